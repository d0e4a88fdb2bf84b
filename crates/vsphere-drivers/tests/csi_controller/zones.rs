//! Zones of nodes: drivers of nodes ask, the controller answers, with the rights of their accounts.

use std::collections::BTreeMap;

use csi::{
    manifests::{self, CONTROLLER, NAMESPACE, NODE, Parameters},
    proto::{
        GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, NodeGetInfoRequest,
        NodeGetInfoResponse,
    },
};
use k8s_openapi::{
    api::core::v1::Event,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
};
use lab::{
    VCenter, VCenterSpec, Wait, kubelet, until,
    vcenter::{Description, HttpFault, HttpFaultKind},
};
use serde_json::{Value, from_value, json, to_value};
use tonic::{Code, Status};

use crate::world::{BOUND, Controller, NODES, Start, World};

const ZONE: &str = "topology.csi.vmware.com/k8s-zone";
const REGION: &str = "topology.csi.vmware.com/k8s-region";
/// A VM on a host without a tag of the zones.
const UNTAGGED: &str = "4230b1a0-5eed-4000-8000-000000000003";
const ESX_2: &str = "/dc-1/host/cluster-1/esx-2.lab.example";
const ESX_5: &str = "/europe/dc-2/host/esx-5.lab.example/esx-5.lab.example";
const CATEGORIES: &str =
    "[Labels]\ntopology-categories = \"k8s-region, k8s-zone\"\ntags-interval = 1\n";

type Labels = BTreeMap<String, String>;

/// Each host of the first cluster is a zone, and a third VM runs where none is.
fn two_zones(usual: &str) -> String {
    let vm = format!(
        "{{name: node-3, uuid: {UNTAGGED}, host: esx-5.lab.example, hardware_version: vmx-19, disk_enable_uuid: true, \
         nics: [{{network: nodes}}]}}"
    );
    usual
        .replace("on: [/dc-1/host/cluster-1]", "on: [/dc-1/host/cluster-1/esx-1.lab.example]")
        .replace("on: [/europe/dc-2/host/cluster-2]", &format!("on: [{ESX_2}]"))
        .replace("      - {name: old-vm,", &format!("      - {vm}\n      - {{name: old-vm,"))
}

struct Zones {
    world: World,
}

impl Zones {
    /// Two nodes in a zone each, and one in none; everything that the manifests have is applied.
    async fn start(labels: &str) -> Self {
        let world = Box::pin(World::start_with(two_zones)).await;
        let made = manifests::manifests(&Parameters::default()).unwrap();
        world.plane.apply(&made.values().unwrap()).unwrap();
        for (at, id) in (1..).zip([NODES[0], NODES[1], UNTAGGED]) {
            let provider = format!("vsphere://{id}");
            let (name, nodes) = (format!("node-{at}"), world.nodes());
            kubelet::register(&nodes, &name, id, Some(&provider)).await.unwrap();
        }
        world.write("csi-vsphere.conf", &(world.configuration("") + labels));
        Self { world }
    }

    async fn controller(&self) -> Controller {
        let kubeconfig = self.world.plane.kubeconfig_of(NAMESPACE, CONTROLLER).await.unwrap();
        let start = Start::controller("csi.sock");
        self.world.serve(Start { kubeconfig: Some(kubeconfig), ..start }).await
    }

    /// The driver of a node.
    async fn node(&self, name: &str, flags: &[&str]) -> Controller {
        let kubeconfig = self.world.plane.kubeconfig_of(NAMESPACE, NODE).await.unwrap();
        let socket = format!("{name}.sock");
        let start = Start { mode: "node", node: name, ..Start::controller(&socket) };
        self.world.serve(Start { flags, kubeconfig: Some(kubeconfig), ..start }).await
    }

    /// The labels of a node whose driver starts.
    async fn registered(&self, name: &str) -> Labels {
        let node = self.node(name, &[]).await;
        let labels = labels(&node).await;
        labels.unwrap_or_else(|status| panic!("{status}\n{}", node.log()))
    }

    /// What a kubelet writes after it registered a driver.
    async fn label(&self, node: &str, labels: &Value) {
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        self.world.nodes().patch(node, &PatchParams::default(), &patch).await.unwrap();
    }

    fn records(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("cns.vmware.com", "v1alpha1", "CSINodeTopology");
        let resource = ApiResource::from_gvk_with_plural(&kind, "csinodetopologies");
        Api::all_with(self.world.plane.client(), &resource)
    }

    /// Waits for an event on a Node, and returns its message.
    async fn event(&self, node: &str, reason: &str) -> String {
        let events: Api<Event> = Api::namespaced(self.world.plane.client(), "default");
        let waited = until(reason, 2 * BOUND, || async {
            let all = events.list(&ListParams::default()).await?;
            let of_node = all.items.iter().filter(|event| {
                event.involved_object.name.as_deref() == Some(node)
                    && event.involved_object.kind.as_deref() == Some("Node")
            });
            let reasons: Vec<_> = of_node.clone().filter_map(|one| one.reason.as_deref()).collect();
            let found = of_node.clone().find(|event| event.reason.as_deref() == Some(reason));
            let found = found.and_then(|event| event.message.clone());
            Ok(found.map_or_else(|| Wait::NotYet(format!("{reasons:?}")), Wait::Done))
        });
        waited.await.unwrap()
    }

    /// A PersistentVolume that only nodes of a zone may use.
    async fn bound_volume(&self, name: &str, zone: &str) {
        let expression = json!({"key": ZONE, "operator": "In", "values": [zone]});
        let terms = json!([{"matchExpressions": [expression]}]);
        let volume = json!({
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "10Mi"},
                "accessModes": ["ReadWriteOnce"],
                "csi": {"driver": csi::DRIVER, "volumeHandle": name},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            },
        });
        let volume = from_value(volume).unwrap();
        let volumes = self.world.persistent_volumes();
        volumes.create(&PostParams::default(), &volume).await.unwrap();
    }

    fn nobody_was_refused(&self) {
        let requests = self.world.plane.audit().unwrap();
        let refused: Vec<_> = requests.iter().filter(|one| one.code == 403).collect();
        assert!(refused.is_empty(), "{refused:?}");
    }
}

async fn labels(node: &Controller) -> Result<Labels, Status> {
    let answer: NodeGetInfoResponse =
        node.call("/csi.v1.Node/NodeGetInfo", NodeGetInfoRequest {}).await?;
    Ok(answer.accessible_topology.unwrap_or_default().segments.into_iter().collect())
}

fn pairs(all: &[(&str, &str)]) -> Labels {
    all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Whether provisioners are told that volumes are placed by zones.
async fn is_constrained(controller: &Controller) -> bool {
    let answer: GetPluginCapabilitiesResponse = controller
        .call("/csi.v1.Identity/GetPluginCapabilities", GetPluginCapabilitiesRequest {})
        .await
        .unwrap();
    answer.capabilities.len() == 3
}

fn silence() -> HttpFault {
    let kind = HttpFaultKind::Status { status: 503 };
    HttpFault { path: "/".to_owned(), method: None, kind, count: 0 }
}

#[tokio::test]
async fn nodes_of_two_zones_get_their_labels_and_one_without_tags_the_reason() {
    let zones = Box::pin(Zones::start(CATEGORIES)).await;
    let controller = zones.controller().await;
    assert!(is_constrained(&controller).await);
    let untagged = zones.node("node-3", &[]).await;
    let refused = labels(&untagged).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    for part in ["no tag of the category \"k8s-zone\"", "attach one to the host"] {
        assert!(refused.message().contains(part), "{refused}");
    }
    assert!(zones.event("node-3", "TopologyRetrievalFailed").await.contains("k8s-zone"));
    let expected = |zone: &str| pairs(&[(REGION, "region-1"), (ZONE, zone)]);
    assert_eq!(zones.registered("node-1").await, expected("zone-1"));
    assert_eq!(zones.registered("node-2").await, expected("zone-2"));

    let record = zones.records().get("node-1").await.unwrap();
    let node = zones.world.nodes().get("node-1").await.unwrap();
    let owner = &record.metadata.owner_references.unwrap()[0];
    assert_eq!((owner.kind.as_str(), Some(&owner.uid)), ("Node", node.metadata.uid.as_ref()));
    assert_eq!(record.data["spec"], json!({"nodeID": "node-1", "nodeuuid": NODES[0]}));
    assert_eq!(record.data["status"]["status"], "Success");

    // The remedy helps without a restart.
    zones.world.vcenter.control().tag("k8s-zone", "zone-2", ESX_5).await.unwrap();
    let found = until("the tag is found", BOUND, || async {
        Ok(labels(&untagged)
            .await
            .map_or_else(|status| Wait::NotYet(status.to_string()), Wait::Done))
    });
    assert_eq!(found.await.unwrap(), pairs(&[(REGION, "region-2"), (ZONE, "zone-2")]));
    zones.nobody_was_refused();
}

#[tokio::test]
async fn the_labels_of_old_configurations_are_used_and_the_go_drivers_object_as_it_is() {
    let old = "[Labels]\nzone = k8s-zone\nregion = k8s-region\ntags-interval = 1\n\
               [TopologyCategory \"k8s-region\"]\nlabel = topology.kubernetes.io/region\n";
    let zones = Box::pin(Zones::start(old)).await;
    let (zone, region) =
        ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/region");
    let recorded = json!([{"key": zone, "value": "zone-1"}, {"key": region, "value": "region-1"}]);
    let record = json!({
        "apiVersion": "cns.vmware.com/v1alpha1",
        "kind": "CSINodeTopology",
        "metadata": {"name": "node-1"},
        "spec": {"nodeID": "node-1", "nodeuuid": NODES[0]},
        "status": {"status": "Success", "topologyLabels": recorded},
    });
    zones.world.plane.apply(&[record]).unwrap();
    // A vCenter that does not answer keeps no node out that was in.
    zones.world.vcenter.control().break_http(&silence()).await.unwrap();
    let _controller = zones.controller().await;
    assert_eq!(zones.registered("node-1").await, pairs(&[(zone, "zone-1"), (region, "region-1")]));
    let new = zones.node("node-2", &[]).await;
    let refused = labels(&new).await.unwrap_err();
    assert!(refused.message().contains("cannot be used"), "{refused}");
    zones.world.vcenter.control().disarm().await.unwrap();
    let found = until("vCenter answers", 2 * BOUND, || async {
        Ok(labels(&new).await.map_or_else(|status| Wait::NotYet(status.to_string()), Wait::Done))
    });
    assert_eq!(found.await.unwrap(), pairs(&[(zone, "zone-2"), (region, "region-1")]));
}

#[tokio::test]
async fn a_vmotion_to_another_zone_contradicts_no_label_strands_no_volume_and_is_told() {
    let zones = Box::pin(Zones::start(CATEGORIES)).await;
    let _controller = zones.controller().await;
    let before = zones.registered("node-1").await;
    zones.label("node-1", &to_value(&before).unwrap()).await;
    zones.bound_volume("pv-1", "zone-1").await;
    zones.world.vcenter.control().migrate("node-1", ESX_2).await.unwrap();
    let text = zones.event("node-1", "ZoneChanged").await;
    for part in ["k8s-zone=zone-1", "say k8s-region=region-1, k8s-zone=zone-2", "pv-1", "drain"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(zones.registered("node-1").await, before, "the kubelet would refuse others");

    // Without labels on the Node the tags count again, but for volumes that no other node could use.
    zones.label("node-1", &json!({ZONE: null, REGION: null})).await;
    assert_eq!(zones.registered("node-1").await, before);
    let text = zones.event("node-1", "ZoneChangeRefused").await;
    assert!(text.contains("no other node could use the volumes pv-1"), "{text}");
    let volumes = zones.world.persistent_volumes();
    volumes.delete("pv-1", &DeleteParams::default()).await.unwrap();
    // No controller of Kubernetes runs that would release it.
    let released = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    volumes.patch("pv-1", &PatchParams::default(), &released).await.unwrap();
    until("pv-1 is gone", BOUND, || async {
        let found = volumes.get_opt("pv-1").await?;
        Ok(found.map_or(Wait::Done(()), |_| Wait::NotYet(String::new())))
    })
    .await
    .unwrap();
    let after = pairs(&[(REGION, "region-1"), (ZONE, "zone-2")]);
    assert_eq!(zones.registered("node-1").await, after);
    zones.nobody_was_refused();
}

#[tokio::test]
async fn without_zones_a_node_registers_whatever_is_missing_and_zones_may_be_added_later() {
    let zones = Box::pin(Zones::start("")).await;
    let registration = zones.world.path("registration");
    std::fs::create_dir_all(&registration).unwrap();
    let directory = format!("--registration-directory={}", registration.display());
    let flags = ["--kubelet-registration-path=/csi/csi.sock", directory.as_str()];
    // No controller runs.
    let node = zones.node("node-1", &flags).await;
    assert_eq!(labels(&node).await.unwrap(), Labels::new(), "{}", node.log());
    let controller = zones.controller().await;
    assert!(!is_constrained(&controller).await);
    let unzoned = zones.node("node-2", &[]).await;
    assert_eq!(labels(&unzoned).await.unwrap(), Labels::new(), "{}", unzoned.log());
    let status = zones.records().get("node-2").await.unwrap().data["status"].clone();
    assert_eq!(status["status"], "Success");
    drop(unzoned);

    let socket = registration.join("csi.vsphere.vmware.com-reg.sock");
    let made = || std::fs::metadata(&socket).and_then(|found| found.modified()).ok();
    let first = made();
    let configuration = zones.world.configuration("") + CATEGORIES;
    zones.world.write("csi-vsphere.conf", &configuration);
    until("the driver registers again", 3 * BOUND, || async {
        // Kubelets ask also in between, and take no labels then.
        labels(&node).await?;
        let is_new = made().is_some_and(|now| Some(now) != first);
        Ok(if is_new { Wait::Done(()) } else { Wait::NotYet(node.log()) })
    })
    .await
    .unwrap();
    let expected = pairs(&[(REGION, "region-1"), (ZONE, "zone-1")]);
    assert_eq!(labels(&node).await.unwrap(), expected);
    // Sidecars read the capabilities again, because their connections were closed.
    controller.probe().await.unwrap_err();
    let again = csi::client::Client::connect(&zones.world.path("csi.sock")).await.unwrap();
    let answer: GetPluginCapabilitiesResponse = again
        .clone()
        .call("/csi.v1.Identity/GetPluginCapabilities", GetPluginCapabilitiesRequest {})
        .await
        .unwrap();
    assert_eq!(answer.capabilities.len(), 3);
    drop((node, controller));

    let definitions: Api<CustomResourceDefinition> = Api::all(zones.world.plane.client());
    let name = "csinodetopologies.cns.vmware.com";
    definitions.delete(name, &DeleteParams::default()).await.unwrap();
    until("the definition is gone", BOUND, || async {
        let found = definitions.get_opt(name).await?;
        Ok(found.map_or(Wait::Done(()), |_| Wait::NotYet(String::new())))
    })
    .await
    .unwrap();
    assert_eq!(zones.registered("node-1").await, Labels::new());
}

#[tokio::test]
async fn nodes_of_several_vcenters_get_the_zones_of_their_own_and_a_dead_one_delays_no_other() {
    const OTHER: &str = "4230b1a0-5eed-4000-8000-000000000009";
    let usual = include_str!("../../../../lab/vcenter/internal/world/default.yaml");
    let text =
        usual.replace(NODES[0], OTHER).replace(NODES[1], UNTAGGED).replace("zone-1", "zone-9");
    let spec = VCenterSpec { description: Description::Text(text), ..VCenterSpec::default() };
    let zones = Box::pin(Zones::start("")).await;
    let other = VCenter::start(&spec).await.unwrap();
    let provider = format!("vsphere://{OTHER}");
    kubelet::register(&zones.world.nodes(), "node-9", OTHER, Some(&provider)).await.unwrap();
    let port = other.url().trim_end_matches("/sdk").rsplit_once(':').unwrap().1.to_owned();
    let configuration = format!(
        "{}[VirtualCenter \"localhost\"]\nuser = \"csi@vsphere.local\"\npassword = \"Lab-csi-1!\"\nport = \"{port}\"\n\
         ca-file = \"{}\"\n{CATEGORIES}",
        zones.world.configuration(""),
        other.authority().display()
    );
    zones.world.write("csi-vsphere.conf", &configuration);
    zones.world.vcenter.control().break_http(&silence()).await.unwrap();
    let _controller = zones.controller().await;
    let of_other = zones.registered("node-9").await;
    assert_eq!(of_other, pairs(&[(REGION, "region-1"), (ZONE, "zone-9")]));
    zones.world.vcenter.control().disarm().await.unwrap();
    let node = zones.node("node-2", &[]).await;
    let found = until("the first one answers", 2 * BOUND, || async {
        Ok(labels(&node).await.map_or_else(|status| Wait::NotYet(status.to_string()), Wait::Done))
    });
    assert_eq!(found.await.unwrap(), pairs(&[(REGION, "region-1"), (ZONE, "zone-2")]));
    // A VM that both show is none.
    let both = zones.node("node-3", &[]).await;
    let refused = labels(&both).await.unwrap_err();
    assert!(refused.message().contains("have the same BIOS UUID"), "{refused}");
}
