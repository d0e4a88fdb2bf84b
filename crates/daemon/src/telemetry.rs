//! Logs: one line per event on stderr, as text or as JSON, with a level that can change while running.
//!
//! Levels are Kubernetes' numbers (`--v`): up to 3 shows what changed, 4 and 5 why, from 6 on everything the
//! suite logs. Libraries show only their warnings below 8.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer, Registry, filter::Targets, fmt::MakeWriter, layer::SubscriberExt, reload,
};

/// Libraries whose own events are shown from this verbosity on; `hyper` stands for `hyper_util` too, and so on.
const LIBRARIES_FROM: u8 = 8;
const LIBRARIES: [&str; 6] = ["h2", "hyper", "kube", "rustls", "tonic", "tower"];

/// How a line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line, for machines.
    Json,
}

/// The verbosity of the running program; clones share it.
#[derive(Clone, Debug)]
pub struct Verbosity {
    now: Arc<AtomicU8>,
    filter: reload::Handle<Targets, Registry>,
}

/// Logging cannot be set up or changed.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// A global subscriber exists.
    #[error("logging has been set up before")]
    Twice(#[source] tracing::subscriber::SetGlobalDefaultError),
    /// The subscriber that the handle belongs to is gone.
    #[error("the log level cannot be changed")]
    Gone(#[source] reload::Error),
}

impl Verbosity {
    /// The current value of `--v`.
    pub fn get(&self) -> u8 {
        self.now.load(Ordering::Relaxed)
    }

    /// Sets it for all threads.
    pub fn set(&self, verbosity: u8) -> Result<(), TelemetryError> {
        self.filter.reload(targets(verbosity)).map_err(TelemetryError::Gone)?;
        self.now.store(verbosity, Ordering::Relaxed);
        Ok(())
    }
}

/// Writes the logs of this program to stderr from now on.
pub fn install(format: Format, verbosity: u8) -> Result<Verbosity, TelemetryError> {
    let (subscriber, handle) = subscriber(format, verbosity, io::stderr);
    tracing::subscriber::set_global_default(subscriber).map_err(TelemetryError::Twice)?;
    Ok(handle)
}

/// A log that is written elsewhere, and the handle that changes its level.
pub fn subscriber<W>(
    format: Format,
    verbosity: u8,
    writer: W,
) -> (impl Subscriber + Send + Sync, Verbosity)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(targets(verbosity));
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let lines = match format {
        Format::Text => lines.boxed(),
        Format::Json => lines.json().flatten_event(true).boxed(),
    };
    let subscriber = Registry::default().with(filter).with(lines);
    (subscriber, Verbosity { now: Arc::new(AtomicU8::new(verbosity)), filter: handle })
}

fn targets(verbosity: u8) -> Targets {
    let ours = match verbosity {
        0..=3 => LevelFilter::INFO,
        4..=5 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let theirs = if verbosity < LIBRARIES_FROM { LevelFilter::WARN } else { LevelFilter::TRACE };
    Targets::new().with_default(ours).with_targets(LIBRARIES.map(|library| (library, theirs)))
}

#[cfg(test)]
mod tests {
    use lab::log::Log;
    use tracing::{debug, info, subscriber::with_default};

    use super::*;

    fn log(format: Format) -> (Log, impl Subscriber + Send + Sync, Verbosity) {
        let lines = Log::default();
        let writer = lines.clone();
        let (subscriber, verbosity) = subscriber(format, 0, move || writer.clone());
        (lines, subscriber, verbosity)
    }

    #[test]
    fn a_line_of_json_has_the_fields_of_the_event() {
        let (lines, subscriber, _verbosity) = log(Format::Json);
        with_default(subscriber, || info!(node = "node-1", "address changed"));
        let line: serde_json::Value = serde_json::from_str(&lines.take()).unwrap();
        assert_eq!(line["message"], "address changed");
        assert_eq!(line["node"], "node-1");
        assert_eq!(line["level"], "INFO");
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'), "{line}");
    }

    #[test]
    fn the_level_changes_while_running() {
        let (lines, subscriber, verbosity) = log(Format::Text);
        with_default(subscriber, || {
            debug!("hidden");
            assert_eq!(lines.take(), "");
            verbosity.set(4).unwrap();
            debug!("shown");
            assert!(lines.take().contains("shown"));
            verbosity.set(2).unwrap();
            debug!("hidden again");
            assert_eq!(lines.take(), "");
        });
        assert_eq!(verbosity.get(), 2);
    }

    #[test]
    fn libraries_are_quiet_until_asked() {
        let (lines, subscriber, verbosity) = log(Format::Text);
        with_default(subscriber, || {
            verbosity.set(7).unwrap();
            debug!(target: "hyper::proto", "bytes");
            info!(target: "kube_client::client", "a request");
            assert_eq!(lines.take(), "");
            verbosity.set(8).unwrap();
            debug!(target: "hyper::proto", "bytes");
            assert!(lines.take().contains("bytes"));
        });
    }
}
