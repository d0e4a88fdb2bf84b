//! Two processes, one lease.

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use lab::{Wait, until};
use rustix::process::Signal;
use serde_json::json;

use crate::world::{BOUND, World, is_initialised};

const QUICK: &[&str] = &[
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
];

async fn holder(world: &World) -> Option<String> {
    let leases: Api<Lease> = Api::namespaced(world.plane.client(), "kube-system");
    let lease = leases.get_opt("cloud-controller-manager").await.unwrap()?;
    lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
}

#[tokio::test]
async fn when_the_leader_ends_or_dies_the_other_one_takes_over_and_works() {
    let world = World::start().await;
    world.write("vsphere.conf", &world.configuration(""));
    let mut first = world.run(QUICK);
    first.until_printed("watching vCenter");
    let mut second = world.run(QUICK);
    second.until_printed("standing by");
    let before = holder(&world).await.unwrap();
    first.stop();
    assert_eq!(holder_of_other(&world, &before).await, holder(&world).await.unwrap());
    second.until_printed("watching vCenter");
    world.register("node-1").await;
    world.until("node-1", "initialised by the second", is_initialised).await;

    let mut third = world.run(QUICK);
    third.until_printed("standing by");
    let before = holder(&world).await.unwrap();
    second.signal(Signal::KILL);
    second.until_ended();
    holder_of_other(&world, &before).await;
    third.until_printed("watching vCenter");
    third.stop();
    assert_eq!(holder(&world).await, None, "the lease is given back");
}

async fn holder_of_other(world: &World, before: &str) -> String {
    until("another leader", BOUND, || async {
        Ok(match holder(world).await {
            Some(now) if now != before => Wait::Done(now),
            other => Wait::NotYet(format!("{other:?}")),
        })
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn nothing_is_left_at_vcenter_and_of_the_lease_when_the_program_ends() {
    let world = World::start().await;
    world.register("node-1").await;
    world.write("vsphere.conf", &world.configuration("labels: {zone: k8s-zone}\n"));
    for signal in [Signal::TERM, Signal::INT] {
        let mut program = world.run(&[]);
        world.until("node-1", "initialised", is_initialised).await;
        program.until_printed("watching vCenter");
        until("a session", BOUND, || async {
            let sessions = world.sessions().await;
            Ok(if sessions > 0 { Wait::Done(()) } else { Wait::NotYet(sessions.to_string()) })
        })
        .await
        .unwrap();
        program.signal(signal);
        let (status, seen) = program.until_ended();
        assert!(status.success(), "{seen}");
        assert_eq!(world.sessions().await, 0);
        assert_eq!(holder(&world).await, None);
    }
}

#[tokio::test]
async fn a_leader_that_loses_its_lease_ends_at_once_and_leaves_no_session() {
    let world = World::start().await;
    world.register("node-1").await;
    world.write("vsphere.conf", &world.configuration("labels: {zone: k8s-zone}\n"));
    let mut program = world.run(QUICK);
    world.until("node-1", "initialised", is_initialised).await;
    let leases: Api<Lease> = Api::namespaced(world.plane.client(), "kube-system");
    let taken = Patch::Merge(json!({"spec": {"holderIdentity": "somebody else"}}));
    leases.patch("cloud-controller-manager", &PatchParams::default(), &taken).await.unwrap();
    let (status, seen) = program.until_ended();
    assert_eq!(status.code(), Some(1), "{seen}");
    assert!(seen.contains("is held by somebody else"), "{seen}");
    assert_eq!(world.sessions().await, 0);
}
