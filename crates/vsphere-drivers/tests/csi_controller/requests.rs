//! What operations cost, in requests to vCenter and to Kubernetes. Long polls are not counted: how often one is
//! answered depends on how long vCenter takes.

use std::collections::BTreeMap;

use futures::future::try_join_all;

use crate::{
    gate::Gate,
    world::{Controller, NODES, Start, World, request},
};

const COUNT: u64 = 12;
/// What watches wait with.
const LONG_POLL: &str = "WaitForUpdatesEx";

/// Calls that vCenter got, by method.
async fn calls(world: &World) -> BTreeMap<String, u64> {
    let counted = world.vcenter.control().calls().await.unwrap();
    let mut calls = BTreeMap::new();
    for call in counted["calls"].as_array().unwrap() {
        let method = call["method"].as_str().unwrap();
        if method != LONG_POLL {
            *calls.entry(method.to_owned()).or_default() += call["count"].as_u64().unwrap();
        }
    }
    calls
}

/// Fails if there were more than `most` calls since `before`.
async fn assert_at_most(world: &World, before: &BTreeMap<String, u64>, most: u64) {
    let mut made = calls(world).await;
    for (method, count) in &mut made {
        *count -= before.get(method).copied().unwrap_or_default();
    }
    made.retain(|_, count| *count > 0);
    let all: u64 = made.values().sum();
    assert!(all <= most, "{all} requests for {COUNT} operations, not {most}: {made:?}");
}

/// A controller that has done everything once, so that sessions and views are there.
async fn warm(world: &World) -> Controller {
    let controller = world.run(&[]).await;
    let create = async |to: &Controller| to.create(request("first", 10)).await;
    let first = controller.patiently("first volume created", create).await.unwrap();
    controller.attach(&first, NODES[0]).await.unwrap();
    controller
}

#[tokio::test]
async fn a_create_costs_at_most_three_requests_and_an_attach_or_a_detach_two() {
    let world = World::start().await;
    let controller = warm(&world).await;
    let before = calls(&world).await;
    let mut volumes = Vec::new();
    for number in 0..COUNT {
        let name = format!("volume-{number}");
        volumes.push(controller.create(request(&name, 10)).await.unwrap());
    }
    assert_at_most(&world, &before, 3 * COUNT).await;
    let before = calls(&world).await;
    for volume in &volumes {
        controller.attach(volume, NODES[0]).await.unwrap();
    }
    assert_at_most(&world, &before, 2 * COUNT).await;
    let before = calls(&world).await;
    for volume in &volumes {
        controller.detach(volume, NODES[0]).await.unwrap();
    }
    assert_at_most(&world, &before, 2 * COUNT).await;
}

#[tokio::test]
async fn volumes_that_are_attached_together_cost_less_than_a_request_each() {
    let newer = |usual: &str| usual.replacen("release: 8.0U3", "release: 9.1", 1);
    let world = World::start_with(newer).await;
    let controller = warm(&world).await;
    let names: Vec<String> = (0..COUNT).map(|number| format!("volume-{number}")).collect();
    let creates = names.iter().map(|name| controller.create(request(name, 10)));
    let volumes = try_join_all(creates).await.unwrap();
    let before = calls(&world).await;
    try_join_all(volumes.iter().map(|volume| controller.attach(volume, NODES[0]))).await.unwrap();
    assert_at_most(&world, &before, COUNT - 1).await;
}

#[tokio::test]
async fn the_first_request_for_a_volume_writes_its_record_and_reads_none() {
    let world = World::start().await;
    let gate = Gate::start(&world).await;
    let kubeconfig = Some(gate.kubeconfig.clone());
    let controller = world.serve(Start { kubeconfig, ..Start::controller("csi.sock") }).await;
    controller.create_patiently("warm").await;
    gate.open();
    controller.create(request("first", 10)).await.unwrap();
    let (reads, writes) = (gate.reads(), gate.open());
    assert_eq!(reads, 0, "{writes:?}");
    // A task that takes longer is recorded in between.
    assert!((2..=3).contains(&writes.len()), "{writes:?}");
    assert_eq!(writes[0], "POST cnsvolumeoperationrequests");
    // A repeated request needs the record, and changes nothing.
    controller.create(request("first", 10)).await.unwrap();
    assert!(gate.reads() > 0);
    assert!(gate.open().iter().all(|write| write.starts_with("POST")));
}
