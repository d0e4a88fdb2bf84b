//! Whether the process answers on its own socket, as the kubelet and the sidecars would find it.

use std::{
    convert::Infallible,
    path::{Path, PathBuf},
    time::Duration,
};

use daemon::{
    admin::{Check, Checks, Weight},
    supervise::Shutdown,
};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::{
    client::Client,
    proto::{ProbeRequest, ProbeResponse},
};

const PERIOD: Duration = Duration::from_secs(5);
/// An answer that takes longer is none.
const BOUND: Duration = Duration::from_secs(3);

/// The check behind `/healthz`.
pub(super) fn check(checks: &Checks) -> Check {
    checks.register("grpc", Weight::Life)
}

/// Calls `Probe` again and again, and reports whether it is answered.
pub(super) async fn watch(
    socket: PathBuf,
    check: Check,
    shutdown: Shutdown,
) -> Result<(), Infallible> {
    let mut well = true;
    loop {
        let probed = probe(&socket).await;
        match &probed {
            Ok(()) => check.pass(""),
            Err(problem) => check.fail(problem.as_str()),
        }
        match &probed {
            Ok(()) if !well => info!("own socket answers again"),
            Err(problem) if well => {
                warn!(socket = %socket.display(), error = problem, "own socket does not answer");
            }
            _ => {}
        }
        well = probed.is_ok();
        if shutdown.unless(sleep(PERIOD)).await.is_none() {
            return Ok(());
        }
    }
}

/// Calls `Probe` once.
pub(super) async fn probe(socket: &Path) -> Result<(), String> {
    let answer = async {
        let mut client = Client::connect(socket).await.map_err(|error| {
            format!("could not connect to the socket {}: {error}", socket.display())
        })?;
        let probed = client.call("/csi.v1.Identity/Probe", ProbeRequest {}).await;
        probed.map(|_: ProbeResponse| ()).map_err(|status| status.message().to_owned())
    };
    let answer = timeout(BOUND, answer).await;
    answer.unwrap_or_else(|_| {
        Err(format!("no answer at the socket {} within {BOUND:?}", socket.display()))
    })
}
