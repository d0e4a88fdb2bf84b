//! Ctrl-C in the middle of something that has to be cleaned up.

use std::future::Future;

use anyhow::{Result, bail};

/// Runs the work to its end; Ctrl-C drops it where it is, and with it all that it owns.
pub(crate) fn interruptible<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(unless_interrupted(work))
}

/// As [`interruptible`], inside a runtime.
pub(crate) async fn unless_interrupted<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        done = work => done,
        _ = tokio::signal::ctrl_c() => bail!("interrupted; what was started has been removed"),
    }
}
