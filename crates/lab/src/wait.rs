//! Waiting for a condition, with a bound and a reason when it does not come true.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

/// One look at a condition.
#[derive(Debug)]
pub enum Wait<T> {
    /// The condition holds.
    Done(T),
    /// Not yet, and what was seen instead; the last one is shown when the bound is reached.
    NotYet(String),
}

/// Looks again and again until `check` is done, and fails after `bound` naming what was seen last.
///
/// An error from `check` ends the wait at once: it means that the condition can no longer come true.
pub async fn until<T, F>(what: &str, bound: Duration, mut check: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Wait<T>>>,
{
    let started = Instant::now();
    loop {
        let seen = match check().await? {
            Wait::Done(value) => return Ok(value),
            Wait::NotYet(seen) => seen,
        };
        if started.elapsed() >= bound {
            bail!("{what}: not so after {} s; last seen: {seen}", bound.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_that_never_ends_names_what_was_seen_last() {
        let mut looks = 0;
        let error = until("pods", Duration::from_millis(120), || {
            looks += 1;
            let seen = format!("{looks} looks");
            async move { Ok(Wait::<()>::NotYet(seen)) }
        })
        .await
        .unwrap_err();
        assert!(error.to_string().starts_with("pods: not so after 0 s; last seen: "), "{error}");
        assert!(looks > 1);
    }

    #[tokio::test]
    async fn an_error_ends_the_wait_at_once() {
        let answer = until("etcd", Duration::from_secs(3600), || async {
            Err::<Wait<()>, _>(anyhow::anyhow!("etcd ended"))
        });
        assert_eq!(answer.await.unwrap_err().to_string(), "etcd ended");
    }
}
