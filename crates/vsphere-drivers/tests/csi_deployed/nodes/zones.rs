//! Zones that are added to a running cluster, with real kubelets and the stock provisioner.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::{core::v1::Node, storage::v1::CSINode};
use kube::Api;
use lab::{
    Lab, VCenterSpec, Wait,
    csi_driver::{self, NAMESPACE},
    until,
    vcenter::Description,
};
use serde_json::json;

use super::{
    classes, spec,
    tenant::{Tenant, claim, pod},
};
use crate::csi_lab::deployed;

/// Kubelets bring a changed Secret to their pods within a minute and a half.
const BOUND: Duration = Duration::from_secs(300);
const ZONE: &str = "topology.csi.vmware.com/k8s-zone";
const REGION: &str = "topology.csi.vmware.com/k8s-region";

/// Each host that runs a node is a zone.
fn a_zone_for_each_host() -> VCenterSpec {
    let usual = include_str!("../../../../../lab/vcenter/internal/world/default.yaml");
    let hosts = "/dc-1/host/cluster-1/esx";
    let text = usual
        .replace("on: [/dc-1/host/cluster-1]", &format!("on: [{hosts}-1.lab.example]"))
        .replace("on: [/europe/dc-2/host/cluster-2]", &format!("on: [{hosts}-2.lab.example]"));
    VCenterSpec { description: Description::Text(text), ..VCenterSpec::default() }
}

/// The labels of each Node for the keys that its CSINode lists.
async fn zones(lab: &Lab) -> anyhow::Result<BTreeMap<String, Vec<(String, String)>>> {
    let (nodes, csi_nodes): (Api<Node>, Api<CSINode>) =
        (Api::all(lab.client()), Api::all(lab.client()));
    let mut all = BTreeMap::new();
    for node in lab.nodes() {
        let drivers = csi_nodes.get(node.name()).await?.spec.drivers;
        let ours = drivers.into_iter().find(|driver| driver.name == csi_driver::NAME);
        let mut keys = ours.and_then(|driver| driver.topology_keys).unwrap_or_default();
        keys.sort();
        let labels = nodes.get(node.name()).await?.metadata.labels.unwrap_or_default();
        let values = keys.into_iter().map(|key| {
            let value = labels.get(&key).cloned().unwrap_or_default();
            (key, value)
        });
        all.insert(node.name().to_owned(), values.collect());
    }
    Ok(all)
}

#[tokio::test]
async fn zones_that_are_added_to_a_running_cluster_reach_its_nodes_and_pods_still_get_volumes() {
    let lab = deployed(&spec(a_zone_for_each_host())).await;
    lab.control_plane().apply(&classes()).unwrap();
    let tenant = Tenant::new(&lab, "zones").await;
    tenant.claim(claim("before", "vsphere", "64Mi", "Filesystem")).await;
    tenant.run(pod("early", "node-1", &["before"])).await;

    let mut secret = csi_driver::secret(&lab).unwrap();
    let file = &mut secret["stringData"]["csi-vsphere.conf"];
    let labels = "[Labels]\ntopology-categories = \"k8s-region, k8s-zone\"\ntags-interval = 5\n";
    *file = json!(format!("{}{labels}", file.as_str().unwrap()));
    lab.control_plane().apply(&[secret]).unwrap();
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let of = |zone: &str| vec![pair(REGION, "region-1"), pair(ZONE, zone)];
    let expected =
        BTreeMap::from([("node-1".to_owned(), of("zone-1")), ("node-2".to_owned(), of("zone-2"))]);
    until("the nodes have their zones", BOUND, || async {
        let seen = zones(&lab).await?;
        let is_done = seen == expected;
        Ok(if is_done { Wait::Done(()) } else { Wait::NotYet(format!("{seen:?}")) })
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", csi_driver::logs(&lab)));

    // What ran goes on, and the provisioner reads topologies with the rights that its role has.
    tenant.shell("early", "echo still > /before/note; sync").unwrap();
    tenant.claim(claim("after", "vsphere", "64Mi", "Filesystem")).await;
    tenant.run(pod("late", "node-2", &["after"])).await;
    let account = format!("system:serviceaccount:{NAMESPACE}:");
    let mut refused = lab.control_plane().audit().unwrap();
    refused.retain(|one| one.code == 403 && one.user.starts_with(&account));
    assert!(refused.is_empty(), "{refused:#?}");
    tokio::join!(tenant.stop("early"), tenant.stop("late"));
    tokio::join!(tenant.discard("before"), tenant.discard("after"));
}
