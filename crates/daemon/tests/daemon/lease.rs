//! Leader election on a real Lease.

use std::time::{Duration, Instant};

use daemon::{
    lease::{Elector, Leadership, Lost, Standing, Timing, identity},
    supervise::{Stop, shutdown},
    telemetry::{self, Format},
};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use lab::{ControlPlane, ProcessRecord, Wait, log::Log, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::BOUND;

const NAME: &str = "cloud-controller-manager";

fn quick() -> Timing {
    let millis = Duration::from_millis;
    Timing::new(millis(4_000), millis(2_500), millis(200)).unwrap()
}

/// A lease that outlives every test, so that only giving it back frees it.
fn lasting() -> Timing {
    Timing::new(Duration::from_secs(3600), Duration::from_secs(30), Duration::from_millis(200))
        .unwrap()
}

struct Running {
    leadership: Leadership,
    stop: Stop,
    task: JoinHandle<Result<(), Lost>>,
}

fn start(client: Client, me: &str, timing: Timing) -> Running {
    let elector = Elector::new(client, "kube-system", NAME, me.to_owned(), timing);
    let (stop, shutdown) = shutdown();
    let leadership = elector.leadership();
    let task = tokio::runtime::Handle::current().spawn(elector.run(shutdown));
    Running { leadership, stop, task }
}

async fn bounded<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, future)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within a minute"))
}

async fn spec(client: &Client) -> LeaseSpec {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    leases.get(NAME).await.unwrap().spec.unwrap()
}

#[tokio::test]
async fn a_released_lease_is_taken_over_without_waiting_for_it_to_run_out() {
    let plane = ControlPlane::start().await.unwrap();
    let first = start(plane.client(), "first", lasting());
    bounded("the first leads", first.leadership.acquired()).await;
    let second = start(plane.client(), "second", lasting());
    until("the second sees the leader", BOUND, || async {
        let standing = second.leadership.standing();
        let expected = Standing::StandingBy(Some("first".to_owned()));
        Ok(if standing == expected {
            Wait::Done(())
        } else {
            Wait::NotYet(format!("{standing:?}"))
        })
    })
    .await
    .unwrap();
    assert!(first.leadership.holds() && !second.leadership.holds());

    drop(first.stop);
    bounded("the first ends", first.task).await.unwrap().unwrap();
    bounded("the second leads", second.leadership.acquired()).await;
    let lease = spec(&plane.client()).await;
    assert_eq!(lease.holder_identity.as_deref(), Some("second"));
    assert_eq!(lease.lease_transitions, Some(1));
    assert_eq!(lease.lease_duration_seconds, Some(3600));
}

#[tokio::test]
async fn a_leader_that_dies_is_succeeded_when_its_lease_has_run_out() {
    let plane = ControlPlane::start().await.unwrap();
    let first = start(plane.client(), "first", quick());
    bounded("the first leads", first.leadership.acquired()).await;
    // Aborted, not asked to end: nothing is given back.
    first.task.abort();
    let died = Instant::now();
    first.task.await.unwrap_err();
    let second = start(plane.client(), "second", quick());
    bounded("the second leads", second.leadership.acquired()).await;
    // It saw the last renewal after the first one died, so the whole lease has passed since.
    assert!(died.elapsed() >= Duration::from_secs(4), "{:?}", died.elapsed());
    assert_eq!(spec(&plane.client()).await.holder_identity.as_deref(), Some("second"));
}

#[tokio::test]
async fn a_leader_renews_and_keeps_what_others_wrote_into_the_lease() {
    let plane = ControlPlane::start().await.unwrap();
    let leader = start(plane.client(), "leader", quick());
    bounded("it leads", leader.leadership.acquired()).await;
    let before = spec(&plane.client()).await;
    let leases: Api<Lease> = Api::namespaced(plane.client(), "kube-system");
    let note = Patch::Merge(json!({"metadata": {"annotations": {"note": "kept"}}}));
    leases.patch(NAME, &PatchParams::default(), &note).await.unwrap();
    until("two renewals later", BOUND, || async {
        let now = spec(&plane.client()).await;
        let renewed = now.renew_time > before.renew_time;
        Ok(if renewed { Wait::Done(()) } else { Wait::NotYet(format!("{now:?}")) })
    })
    .await
    .unwrap();
    let lease = leases.get(NAME).await.unwrap();
    assert_eq!(lease.metadata.annotations.unwrap()["note"], "kept");
    let after = lease.spec.unwrap();
    assert_eq!(after.acquire_time, before.acquire_time);
    assert_eq!(after.lease_transitions, Some(0));
    assert!(leader.leadership.holds() && !leader.task.is_finished());
}

#[tokio::test]
async fn a_leader_whose_lease_is_taken_away_ends_and_names_the_new_one() {
    let plane = ControlPlane::start().await.unwrap();
    let leader = start(plane.client(), "leader", quick());
    bounded("it leads", leader.leadership.acquired()).await;
    let leases: Api<Lease> = Api::namespaced(plane.client(), "kube-system");
    let thief = Patch::Merge(json!({"spec": {"holderIdentity": "thief"}}));
    leases.patch(NAME, &PatchParams::default(), &thief).await.unwrap();
    let lost = bounded("it ends", leader.task).await.unwrap().unwrap_err();
    assert!(matches!(&lost, Lost::Taken { holder, .. } if holder == "thief"), "{lost}");
    assert!(!leader.leadership.holds());
    assert_eq!(spec(&plane.client()).await.holder_identity.as_deref(), Some("thief"));
}

#[tokio::test]
async fn an_api_that_is_gone_ends_leadership_by_the_renew_deadline() {
    let plane = ControlPlane::start().await.unwrap();
    let leader = start(plane.client(), "leader", quick());
    bounded("it leads", leader.leadership.acquired()).await;
    drop(plane);
    let lost = bounded("it ends", leader.task).await.unwrap().unwrap_err();
    assert!(matches!(lost, Lost::Expired { .. }), "{lost}");
    assert!(!leader.leadership.holds());
}

#[tokio::test]
async fn an_api_that_hangs_ends_leadership_before_the_lease_runs_out() {
    let plane = ControlPlane::start().await.unwrap();
    let leader = start(plane.client(), "leader", quick());
    bounded("it leads", leader.leadership.acquired()).await;
    let record = std::fs::read(plane.world().dir().join("processes/kube-apiserver")).unwrap();
    let record: ProcessRecord = serde_json::from_slice(&record).unwrap();
    let pid = Pid::from_raw(i32::try_from(record.pid).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let lost = bounded("it ends", leader.task).await.unwrap().unwrap_err();
    assert!(lost.to_string().contains("did not answer"), "{lost}");
    assert!(!leader.leadership.holds());
}

#[tokio::test]
async fn a_namespace_that_does_not_exist_is_named_in_the_log() {
    let plane = ControlPlane::start().await.unwrap();
    let lines = Log::default();
    let writer = lines.clone();
    let (log, _verbosity) = telemetry::subscriber(Format::Text, 0, move || writer.clone());
    let _log = tracing::subscriber::set_default(log);
    let elector = Elector::new(plane.client(), "nowhere", NAME, "me".to_owned(), quick());
    let (_stop, shutdown) = shutdown();
    let said = until("the log says so", BOUND, || async {
        let text = lines.text();
        let found = text.contains("lease not acquired") && text.contains("namespaces \\\"nowhere");
        Ok(if found { Wait::Done(()) } else { Wait::NotYet(text) })
    });
    tokio::select! {
        ended = elector.run(shutdown) => panic!("{ended:?}"),
        said = said => said.unwrap(),
    }
}

#[test]
fn an_identity_is_the_host_and_a_new_uuid() {
    let (one, two) = (identity().unwrap(), identity().unwrap());
    assert_ne!(one, two);
    let (host, uuid) = one.rsplit_once('_').unwrap();
    assert!(!host.is_empty() && uuid.len() == 36, "{one}");
}
