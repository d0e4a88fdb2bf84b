//! Says how the vCenters stand: to probes, to people who read `/readyz?verbose`, and to metrics.
//!
//! One vCenter that does not answer is a detail; the process is not ready when none does.

use std::{convert::Infallible, sync::Arc, time::Duration};

use daemon::{
    admin::{Check, Checks, Weight},
    supervise::Shutdown,
};
use futures::future::select_all;
use tokio::{sync::watch, time::sleep};

use crate::{discovery::Answer, metrics::Metrics, site::Snapshot};

/// Changes that come within this time are looked at once.
const TOGETHER: Duration = Duration::from_secs(1);

type Snapshots = Vec<watch::Receiver<Arc<Snapshot>>>;

/// Keeps checks and metrics of all vCenters until `shutdown`; then they are gone.
pub(crate) async fn report(
    mut snapshots: Snapshots,
    checks: Checks,
    metrics: Metrics,
    shutdown: Shutdown,
) -> Result<(), Infallible> {
    let all = checks.register("vcenters", Weight::Readiness);
    let each: Vec<Check> = snapshots
        .iter()
        .map(|one| checks.register(&format!("vcenter/{}", one.borrow().name), Weight::Detail))
        .collect();
    loop {
        look(&mut snapshots, &each, &all, &metrics);
        let changes = snapshots.iter_mut().map(|one| Box::pin(one.changed()));
        let changed = shutdown.unless(select_all(changes)).await;
        // An inventory that is being read changes all the time.
        shutdown.unless(sleep(TOGETHER)).await;
        if !matches!(changed, Some((Ok(()), ..))) {
            // A site that ended says nothing new; whoever runs us ends as well.
            shutdown.requested().await;
            metrics.forget_vcenters();
            return Ok(());
        }
    }
}

fn look(snapshots: &mut Snapshots, each: &[Check], all: &Check, metrics: &Metrics) {
    let (mut current, mut reasons) = (0, Vec::new());
    for (receiver, check) in snapshots.iter_mut().zip(each) {
        let snapshot = Arc::clone(&receiver.borrow_and_update());
        let machines = snapshot.mirror.as_deref().map_or(0, |mirror| mirror.vms().count());
        let answer = snapshot.answer();
        let well = matches!(answer, Answer::Complete(_));
        metrics.vcenter(&snapshot.name, well, machines, snapshot.answered());
        match answer {
            Answer::Complete(_) => {
                current += 1;
                check.pass(format!("{machines} virtual machines"));
            }
            Answer::Silent(silence) => {
                reasons.push(format!("{}: {}", snapshot.name, silence.why));
                check.fail(silence.why);
            }
        }
    }
    match current {
        0 => all.fail(reasons.join("; ")),
        _ => all.pass(format!("{current} of {} answer", snapshots.len())),
    }
}
