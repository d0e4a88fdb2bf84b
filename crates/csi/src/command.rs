//! The program `vsphere-csi`, from its command line to its end.
//!
//! ```text
//!   flags, environment ─► settings ─┬─ controller: volumes of the cluster
//!                                   ├─ node: volumes on this node, registered with the kubelet
//!                                   └─ probe: whether one of these answers at its socket
//!                         both: gRPC at a socket, health and metrics over plain HTTP
//! ```

mod controller;
mod kubernetes;
mod liveness;
mod node;
mod vcenters;

use std::{
    error::Error,
    ffi::OsString,
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

use daemon::{
    admin::{Checks, Plain, PlainContents},
    supervise::{Chain, Supervisor},
    telemetry,
};
use prometheus_client::registry::Registry;
use tracing::{debug, info, warn};

use crate::args::{self, Environment, Mode, Settings};

/// How long calls may take to end; kubelets wait half a minute.
const GRACE: Duration = Duration::from_secs(20);

type Failure = Box<dyn Error + Send + Sync>;

/// Runs the program until a signal. The first argument is the program's name.
pub fn main(
    arguments: impl IntoIterator<Item = OsString>,
    environment: impl IntoIterator<Item = (String, String)>,
) -> ExitCode {
    let environment: Environment = environment.into_iter().collect();
    let settings = match args::read(arguments, &environment) {
        Ok(settings) => settings,
        Err(answer) if answer.wanted => {
            return match io::stdout().write_all(answer.text.as_bytes()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            };
        }
        Err(answer) => return failed(&answer.text),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.map_err(Failure::from).and_then(|runtime| {
        let ended = runtime.block_on(Box::pin(work(settings, environment)));
        // A thread that hangs in a mount must not keep the process: its end is what was asked for.
        runtime.shutdown_background();
        ended
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&format!("error: {}\n", Chain(&*error))),
    }
}

fn failed(text: &str) -> ExitCode {
    // Without stderr there is still the exit code.
    io::stderr().write_all(text.as_bytes()).unwrap_or_default();
    ExitCode::FAILURE
}

async fn work(settings: Settings, environment: Environment) -> Result<(), Failure> {
    let mode = match settings.mode {
        Mode::Controller(_) => "controller",
        Mode::Node(_) => "node",
        // Without a log: what it prints is what `kubectl describe pod` shows.
        Mode::Probe => return Ok(liveness::probe(&settings.endpoint).await?),
    };
    telemetry::install(settings.logs.log_format, settings.logs.verbosity)?;
    info!(version = env!("CARGO_PKG_VERSION"), mode, "CSI driver starting");
    debug!(?settings, "settings read");
    if !settings.unused.is_empty() {
        let unused = settings.unused.join(" ");
        warn!(unused, "flags and variables without effect in this program");
    }
    match settings.mode.clone() {
        Mode::Controller(controller) => controller::work(settings, controller, environment).await,
        Mode::Node(node) => node::work(settings, node).await,
        Mode::Probe => Ok(()),
    }
}

/// Serves health and metrics where the settings say so, and watches the process's own socket.
async fn serve_health(
    settings: &Settings,
    checks: &Checks,
    registry: Registry,
    tasks: &mut Supervisor,
) -> Result<(), Failure> {
    if let Some(address) = &settings.health {
        let contents = PlainContents { checks: Some(checks.clone()), metrics: None };
        let server = Plain::bind("health-address", address, contents).await?;
        tasks.foundation.spawn("health", |shutdown| server.run(shutdown));
        let (socket, check) = (settings.endpoint.clone(), liveness::check(checks));
        tasks.work.spawn("liveness", |shutdown| liveness::watch(socket, check, shutdown));
    }
    if let Some(address) = &settings.metrics {
        let contents = PlainContents { checks: None, metrics: Some(registry) };
        let server = Plain::bind("metrics-address", address, contents).await?;
        tasks.foundation.spawn("metrics", |shutdown| server.run(shutdown));
    }
    Ok(())
}
