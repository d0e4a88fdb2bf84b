//! Two vCenters, one of which is down.

use std::fs;

use kube::api::{Patch, PatchParams};
use lab::{
    VCenter, VCenterSpec, Wait, until,
    vcenter::{Description, HttpFault, HttpFaultKind, Power},
};
use serde_json::json;

use crate::world::{BOUND, SHUTDOWN, World, has_taint, is_initialised, vsphere_condition};

/// A vCenter with other VMs than the usual ones.
async fn start_other() -> VCenter {
    let usual = include_str!("../../../../lab/vcenter/internal/world/default.yaml");
    let other = usual.replace("node-", "other-").replace("5eed-4000-8000", "5eed-4000-9000");
    let other = other.replace("10.99.0.", "10.98.0.").replace("name: vcenter", "name: other");
    let spec = VCenterSpec { description: Description::Text(other), ..VCenterSpec::default() };
    VCenter::start(&spec).await.unwrap()
}

async fn is_not_ready(world: &World, name: &str) {
    let condition = json!([{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]);
    let patch = Patch::Strategic(json!({"status": {"conditions": condition}}));
    world.nodes.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Requests are answered with 503, also on the connections that are open.
async fn break_down(vcenter: &VCenter) {
    let kind = HttpFaultKind::Status { status: 503 };
    let fault = HttpFault { path: "/".to_owned(), method: None, kind, count: 0 };
    vcenter.control().break_http(&fault).await.unwrap();
    vcenter.control().restart(0).await.unwrap();
}

#[tokio::test]
async fn the_node_of_a_destroyed_vm_stays_while_another_vcenter_is_down_and_goes_afterwards() {
    let world = World::start().await;
    let west = start_other().await;
    let authorities =
        [world.vcenter.authority(), west.authority()].map(|path| fs::read_to_string(path).unwrap());
    let both = world.write("both.pem", &authorities.concat());
    let port = west.url().trim_end_matches("/sdk").rsplit_once(':').unwrap().1;
    let more = format!("  west:\n    server: localhost\n    port: {port}\n");
    let usual = world.vcenter.authority().display().to_string();
    let text = world.configuration(&more).replace(&usual, &both.display().to_string());
    world.write("vsphere.conf", &text);
    for (name, last) in [("node-1", '1'), ("node-2", '2')] {
        world.register_as(name, &format!("4230b1a0-5eed-4000-8000-00000000000{last}")).await;
    }
    let mut program = world.run(&[
        "--leader-elect=false",
        "--vcenter-patience=1s",
        "--node-monitor-period=1s",
        "--node-deletion-grace=0s",
    ]);
    for name in ["node-1", "node-2"] {
        world.until(name, "initialised", is_initialised).await;
        is_not_ready(&world, name).await;
    }
    break_down(&west).await;
    world.vcenter.control().delete("node-1").await.unwrap();
    let unknown = |node: &_| vsphere_condition(node).0 == "VCenterUnavailable";
    world.until("node-1", "its VM may be in the other vCenter", unknown).await;
    // The next round of the lifecycle controller is over when it has seen that this VM is off.
    world.vcenter.control().power("node-2", Power::Off).await.unwrap();
    world.until("node-2", "shut down", |node| has_taint(node, SHUTDOWN)).await;
    world.until("node-1", "there", |node| node.metadata.deletion_timestamp.is_none()).await;

    west.control().disarm().await.unwrap();
    until("the Node is deleted", BOUND, || async {
        let node = world.nodes.get_opt("node-1").await?;
        Ok(node
            .map_or(Wait::Done(()), |node| Wait::NotYet(format!("{:?}", vsphere_condition(&node)))))
    })
    .await
    .unwrap();
    world.until("node-2", "there", |node| node.metadata.deletion_timestamp.is_none()).await;
    program.stop();
}
