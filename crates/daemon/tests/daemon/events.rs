//! Events as the API stores them.

use daemon::{
    events::{Kind, recorder},
    lease::{Elector, Timing},
    supervise::shutdown,
};
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use kube::{Api, api::ListParams};
use lab::ControlPlane;
use prometheus_client::{encoding::text::encode, registry::Registry};

use crate::BOUND;

#[tokio::test]
async fn a_repeated_event_is_counted_and_all_are_written_before_the_end() {
    let plane = ControlPlane::start().await.unwrap();
    let (recorder, writer) = recorder(plane.client(), "cloud-controller-manager", "host-1");
    let node = ObjectReference {
        kind: Some("Node".to_owned()),
        name: Some("node-1".to_owned()),
        uid: Some("node-1".to_owned()),
        ..ObjectReference::default()
    };
    for _ in 0..3 {
        recorder.record(&node, Kind::Warning, "NoAddress", "the VM has no address");
    }
    recorder.record(&node, Kind::Normal, "Synced", "all is well");
    let (stop, shutdown) = shutdown();
    drop(stop);
    tokio::time::timeout(BOUND, writer.run(shutdown)).await.unwrap().unwrap();

    let events: Api<Event> = Api::namespaced(plane.client(), "default");
    let mut seen = events.list(&ListParams::default()).await.unwrap().items;
    seen.sort_by(|a, b| a.reason.cmp(&b.reason));
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert_eq!(seen[0].reason.as_deref(), Some("NoAddress"));
    assert_eq!(seen[0].type_.as_deref(), Some("Warning"));
    assert_eq!(seen[0].count, Some(3));
    assert!(seen[0].last_timestamp >= seen[0].first_timestamp);
    let source = seen[1].source.clone().unwrap();
    assert_eq!(source.component.as_deref(), Some("cloud-controller-manager"));
    assert_eq!(seen[1].count, Some(1));
}

#[tokio::test]
async fn a_new_leader_is_an_event_on_the_lease_and_a_metric() {
    let plane = ControlPlane::start().await.unwrap();
    let (recorder, writer) = recorder(plane.client(), "cloud-controller-manager", "host-1");
    let (client, me) = (plane.client(), "me".to_owned());
    let elector = Elector::new(client, "kube-system", "ccm", me, Timing::default());
    let elector = elector.with_events(recorder);
    let mut metrics = Registry::default();
    elector.register(&mut metrics);
    let told = || {
        let mut text = String::new();
        encode(&mut text, &metrics).unwrap();
        text
    };
    assert!(told().contains("leader_election_master_status{name=\"ccm\"} 0"), "{}", told());

    let (stop, shutdown) = shutdown();
    let leadership = elector.leadership();
    let lead = async {
        leadership.acquired().await;
        assert!(told().contains("leader_election_master_status{name=\"ccm\"} 1"), "{}", told());
        drop(stop);
    };
    let run = async { tokio::join!(elector.run(shutdown.clone()), lead) };
    tokio::time::timeout(BOUND, run).await.unwrap().0.unwrap();
    tokio::time::timeout(BOUND, writer.run(shutdown)).await.unwrap().unwrap();

    let events: Api<Event> = Api::namespaced(plane.client(), "kube-system");
    let seen = events.list(&ListParams::default()).await.unwrap().items;
    let [event] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!(event.reason.as_deref(), Some("LeaderElection"));
    assert_eq!(event.message.as_deref(), Some("me became leader"));
    assert_eq!(event.involved_object.kind.as_deref(), Some("Lease"));
    assert!(event.involved_object.uid.is_some());
}
