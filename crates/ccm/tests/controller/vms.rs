//! What happens to VMs, and what follows for their Nodes. Deletion is as eager as it can be set, and still no
//! Node goes whose VM exists.

use kube::api::DeleteParams;
use lab::{
    VCenter, VCenterSpec, Wait, until,
    vcenter::{Description, Power},
};

use crate::cluster::{
    BOUND, Cluster, Running, SHUTDOWN, UUIDS, VM, addresses, annotation, condition_status, eager,
    has_taint, is_initialised, label, provider_id, put_login, secret, section, trust,
    vsphere_condition,
};

const HOST: &str = "ccm.vsphere.vmware.com/host";
const ZONE: &str = "topology.kubernetes.io/zone";

/// Two datacenters, each with a VM and a user who sees nothing else.
fn world(name: &str, instance: &str, vms: [(&str, &str, &str); 2]) -> Description {
    let mut text = format!("name: {name}\ninstance_uuid: {instance}\nusers:\n");
    for (user, sees) in [("cpi", "/"), ("one", "/dc-1"), ("two", "/dc-2")] {
        text.push_str(&format!(
            "  - {{name: {user}@vsphere.local, password: Lab-cpi-1!, permissions: [{{role: ReadOnly, on: \
             {sees}}}]}}\n"
        ));
    }
    text.push_str(
        "categories:\n  - {name: k8s-region}\n  - name: k8s-zone\n    tags:\n      - {name: zone-1, on: \
         [/dc-1]}\n      - {name: zone-2, on: [/dc-2]}\ndatacenters:\n",
    );
    for (at, (vm, uuid, power)) in vms.into_iter().enumerate() {
        let number = at + 1;
        let host_name = if vm.starts_with("node") { vm } else { "node-1" };
        text.push_str(&format!(
            "  - name: dc-{number}\n    networks: [{{name: nodes}}]\n    clusters: [{{name: cluster-{number}, \
             hosts: [{{name: esx-{number}}}]}}]\n    datastores: [{{name: shared-{number}}}]\n    vms:\n      - \
             {{name: {vm}, uuid: {uuid}, power: \"{power}\", host: esx-{number}, datastore: \
             shared-{number}, guest: {{host_name: {host_name}}}, nics: [{{network: nodes, addresses: \
             [10.99.0.1{number}/24]}}]}}\n"
        ));
    }
    Description::Text(text)
}

const FIRST: &str = "5eed0000-0000-4000-8000-000000000001";
const SECOND: &str = "5eed0000-0000-4000-8000-000000000002";

#[tokio::test]
async fn a_suspended_vm_counts_as_shut_down_and_its_node_stays() {
    let cluster = Cluster::start().await;
    let running = cluster.run_eagerly(cluster.config(Vec::new()));
    cluster.join_both().await;
    cluster.vcenter.control().power("node-1", Power::Suspended).await.unwrap();
    let asleep = |node: &_| vsphere_condition(node).0 == "PoweredOff";
    let ready = cluster.until("node-1", "a condition that it is off", asleep).await;
    assert!(!has_taint(&ready, SHUTDOWN), "the kubelet has not been missed yet");
    cluster.ready("node-1", false).await;
    let node = cluster.until("node-1", "tainted", |node| has_taint(node, SHUTDOWN)).await;
    assert_eq!(addresses(&node)["InternalIP"], "10.99.0.11");
    cluster.vcenter.control().power("node-1", Power::On).await.unwrap();
    cluster.ready("node-1", true).await;
    cluster.until("node-1", "not tainted", |node| !has_taint(node, SHUTDOWN)).await;
    running.stop().await;
}

#[tokio::test]
async fn an_inaccessible_vm_keeps_its_node() {
    let cluster = Cluster::start().await;
    let running = cluster.run_eagerly(cluster.config(Vec::new()));
    cluster.join_both().await;
    let before = cluster.nodes.get("node-1").await.unwrap();
    cluster.vcenter.control().reach_vm("node-1", false).await.unwrap();
    cluster.ready("node-1", false).await;
    cluster.until_two_rounds_passed().await;
    let after = cluster.nodes.get("node-1").await.unwrap();
    assert_eq!((&before.metadata.uid, &before.spec), (&after.metadata.uid, &after.spec));
    cluster.vcenter.control().reach_vm("node-1", true).await.unwrap();
    let good = |node: &_| condition_status(node, "VSphereReady") == Some("True");
    cluster.until("node-1", "in agreement", good).await;
    running.stop().await;
}

#[tokio::test]
async fn a_vmotion_changes_the_label_of_the_host_and_nothing_else() {
    let cluster = Cluster::start().await;
    let running = cluster.run_eagerly(cluster.config(Vec::new()));
    cluster.join_both().await;
    let at = |host: &'static str| move |node: &_| label(node, HOST) == Some(host);
    let before = cluster.until("node-1", "on its host", at("esx-1.lab.example")).await;
    cluster.ready("node-1", false).await;
    cluster.vcenter.control().migrate("node-1", "esx-2.lab.example").await.unwrap();
    let after = cluster.until("node-1", "on the other host", at("esx-2.lab.example")).await;
    assert_eq!((&before.metadata.uid, &before.spec), (&after.metadata.uid, &after.spec));
    assert_eq!(label(&after, ZONE), Some("zone-1"));
    assert_eq!(addresses(&before), addresses(&after));
    running.stop().await;
}

#[tokio::test]
async fn a_vm_that_moved_to_another_datacenter_is_found_again_and_its_zone_stays() {
    // The same id in the other byte order: a description may have each once.
    let swapped = "a0b13042-ed5e-0040-8000-000000000001";
    let vms = [("here", UUIDS[0], "on"), ("there", swapped, "off")];
    let cluster = Cluster::start_of(world("vcenter", FIRST, vms)).await;
    cluster.register("node-1", UUIDS[0], None).await;
    let running = cluster.run_eagerly(cluster.config(Vec::new()));
    let before = cluster.until("node-1", "initialised", is_initialised).await;
    assert_eq!(label(&before, ZONE), Some("zone-1"));
    cluster.vcenter.control().unregister("here").await.unwrap();
    cluster.vcenter.control().power("there", Power::On).await.unwrap();
    cluster.until_at("node-1", "10.99.0.12").await;
    // The status is written first.
    let moved = |node: &_| annotation(node, VM) != annotation(&before, VM);
    let after = cluster.until("node-1", "another VM", moved).await;
    assert_eq!((&before.metadata.uid, &before.spec), (&after.metadata.uid, &after.spec));
    assert_eq!(label(&after, ZONE), Some("zone-1"));
    running.stop().await;
}

#[tokio::test]
async fn a_vm_that_moved_to_another_vcenter_is_found_there() {
    let here = [("here", UUIDS[0], "on"), ("other", UUIDS[1], "off")];
    let cluster = Cluster::start_of(world("vcenter", FIRST, here)).await;
    let elsewhere =
        [("another", "4230b1a0-5eed-4000-8000-000000000003", "off"), ("there", UUIDS[0], "off")];
    let description = world("second", SECOND, elsewhere);
    let spec = VCenterSpec { description, ..VCenterSpec::default() };
    let second = VCenter::start(&spec).await.unwrap();
    cluster.register("node-1", UUIDS[0], None).await;
    let config = cluster.config(vec![section("second", second.url(), trust(&second))]);
    let running = cluster.run_eagerly(config);
    let before = cluster.until("node-1", "initialised", is_initialised).await;
    cluster.vcenter.control().unregister("here").await.unwrap();
    second.control().power("there", Power::On).await.unwrap();
    cluster.until_at("node-1", "10.99.0.12").await;
    let there = |node: &_| annotation(node, "ccm.vsphere.vmware.com/vcenter") == Some(SECOND);
    let after = cluster.until("node-1", "recorded there", there).await;
    assert_eq!((&before.metadata.uid, &before.spec), (&after.metadata.uid, &after.spec));
    running.stop().await;
}

#[tokio::test]
async fn a_node_made_anew_with_the_same_name_is_the_new_vm_and_stays() {
    let vms = [("old", UUIDS[0], "on"), ("new", UUIDS[1], "off")];
    let cluster = Cluster::start_of(world("vcenter", FIRST, vms)).await;
    cluster.register("node-1", UUIDS[0], None).await;
    let running = cluster.run_eagerly(cluster.config(Vec::new()));
    cluster.until("node-1", "initialised", is_initialised).await;
    cluster.vcenter.control().delete("old").await.unwrap();
    // Perhaps it is gone already.
    cluster.nodes.delete("node-1", &DeleteParams::default()).await.ok();
    until("the old Node is gone", BOUND, || async {
        let node = cluster.nodes.get_opt("node-1").await?;
        Ok(node.map_or(Wait::Done(()), |node| Wait::NotYet(format!("{node:?}"))))
    })
    .await
    .unwrap();
    cluster.vcenter.control().power("new", Power::On).await.unwrap();
    cluster.register("node-1", UUIDS[1], None).await;
    let node = cluster.until("node-1", "initialised", is_initialised).await;
    assert_eq!(provider_id(&node), Some(format!("vsphere://{}", UUIDS[1]).as_str()));
    cluster.vcenter.control().power("new", Power::Off).await.unwrap();
    // The round that taints it would have deleted it instead.
    let tainted = cluster.until("node-1", "tainted", |node| has_taint(node, SHUTDOWN)).await;
    assert_eq!(tainted.metadata.uid, node.metadata.uid);
    running.stop().await;
}

#[tokio::test]
async fn a_guest_whose_tools_stop_reporting_leaves_the_node_its_addresses() {
    let cluster = Cluster::start().await;
    let running = cluster.run_eagerly(cluster.config(Vec::new()));
    cluster.join_both().await;
    let before = cluster.nodes.get("node-1").await.unwrap();
    cluster.vcenter.control().run_tools("node-1", false).await.unwrap();
    let reported = |node: &_| vsphere_condition(node).0 == "ToolsNotRunning";
    let silent = cluster.until("node-1", "a condition with the reason", reported).await;
    assert_eq!(addresses(&before), addresses(&silent));
    cluster.vcenter.control().readdress("node-1", &["10.99.0.80/24"]).await.unwrap();
    cluster.vcenter.control().run_tools("node-1", true).await.unwrap();
    let after = cluster.until_at("node-1", "10.99.0.80").await;
    assert_eq!(before.spec, after.spec);
    running.stop().await;
}

#[tokio::test]
async fn a_vm_that_the_user_may_not_see_any_more_does_not_take_its_node_with_it() {
    let vms = [("node-1", UUIDS[0], "on"), ("node-2", UUIDS[1], "on")];
    let cluster = Cluster::start_of(world("vcenter", FIRST, vms)).await;
    let mut config = cluster.config(Vec::new());
    config.vcenters[0].credentials = secret();
    let client = cluster.plane.client();
    put_login(&client, "cpi@vsphere.local", "Lab-cpi-1!").await.unwrap();
    let running = Running::start(ccm::Context::new(client.clone()), config, eager());
    cluster.join_both().await;
    put_login(&client, "two@vsphere.local", "Lab-cpi-1!").await.unwrap();
    cluster.ready("node-1", false).await;
    let missed = |node: &_| vsphere_condition(node).0 == "VmNotFound";
    let before = cluster.until("node-1", "not seen", missed).await;
    cluster.until_two_rounds_passed().await;
    let after = cluster.nodes.get("node-1").await.unwrap();
    assert_eq!((&before.metadata.uid, &before.spec), (&after.metadata.uid, &after.spec));
    put_login(&client, "cpi@vsphere.local", "Lab-cpi-1!").await.unwrap();
    let good = |node: &_| condition_status(node, "VSphereReady") == Some("True");
    cluster.until("node-1", "in agreement", good).await;
    running.stop().await;
}
