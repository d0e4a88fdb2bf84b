//! Volumes in zones: where requests with a topology lead, and from where the answers say that volumes are reached.
//!
//! ```text
//!   zone-1   node-1, node-2   /dc-1          shared-1, vsan-1, pod-1, pod-2
//!   zone-2   node-3           /europe/dc-2   shared-1, shared-2
//! ```

use std::collections::BTreeMap;

use csi::proto::{
    CreateVolumeRequest, CreateVolumeResponse, GetCapacityRequest, GetCapacityResponse, Topology,
    TopologyRequirement,
};
use k8s_openapi::api::storage::v1::CSINode;
use kube::{Api, api::DeleteParams};
use serde_json::json;
use tonic::{Code, Status};

use crate::{
    snapshots::{cloned, restored},
    vcenters::{OTHER, OTHER_NODES, TwoVCenters},
    world::{Controller, NODES, World, request},
};

const NODE_3: &str = "4230b1a0-5eed-4000-8000-000000000003";
const ZONE: &str = "topology.csi.vmware.com/k8s-zone";
const REGION: &str = "topology.csi.vmware.com/k8s-region";
const GIB: i64 = 1 << 30;

/// A node in the second datacenter, and a datastore there with the name of one of the first.
fn two_zones(usual: &str) -> String {
    let vm = format!(
        "    vms:\n      - {{name: node-3, uuid: {NODE_3}, host: esx-3.lab.example, datastore: shared-2, hardware_version: \
         vmx-19, disk_enable_uuid: true, nics: [{{network: nodes}}]}}\n      - {{name: old-vm"
    );
    let store =
        "      - {name: shared-1, capacity: 1TiB, hosts: [esx-3.lab.example, esx-4.lab.example]}\n";
    let role = "      - {role: CNS-DATASTORE, on: /europe/dc-2/datastore/shared-1}\n";
    let preferred = "  - name: cns.vmware.topology-preferred-datastores\n    types: [Datastore]\n    tags:\n      \
                     - {name: zone-1, on: [/dc-1/datastore/shared-1]}\n";
    usual
        .replacen("    vms:\n      - {name: old-vm", &vm, 1)
        .replacen("      - {name: local-5,", &format!("{store}      - {{name: local-5,"), 1)
        .replacen(
            "      - {role: CNS-VM, on: /dc-1/vm}",
            &format!("{role}      - {{role: CNS-VM, on: /dc-1/vm}}"),
            1,
        )
        .replacen("  - name: storage\n", &format!("{preferred}  - name: storage\n"), 1)
}

fn topology(labels: &[(&str, &str)]) -> Topology {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    Topology { segments: labels.iter().map(owned).collect() }
}

fn zone(number: u8) -> Topology {
    let (region, zone) = (format!("region-{number}"), format!("zone-{number}"));
    topology(&[(REGION, &region), (ZONE, &zone)])
}

impl World {
    /// Registers the driver of a node that reports a topology, as its kubelet does.
    async fn register_in(&self, node: &str, id: &str, topology: &Topology) {
        let nodes = Api::<CSINode>::all(self.plane.client());
        // Keys of a driver that is registered cannot be changed.
        nodes.delete(node, &DeleteParams::default()).await.ok();
        let labels: BTreeMap<_, _> = topology.segments.iter().collect();
        let keys: Vec<_> = labels.keys().collect();
        let driver = json!({"name": csi::DRIVER, "nodeID": id, "topologyKeys": keys});
        let metadata = json!({"name": node, "labels": labels});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata});
        let csi_node = json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": metadata["name"]},
            "spec": {"drivers": [driver]},
        });
        self.plane.apply(&[node, csi_node]).unwrap();
    }

    /// The inventory path of the datastore that has a volume.
    async fn place_of(&self, volume: &str) -> String {
        let datastore = self.places().await.remove(volume).unwrap();
        let inventory = self.vcenter.control().state().await.unwrap().inventory;
        let found = inventory.iter().find(|one| one["ref"] == datastore.as_str());
        found.unwrap()["path"].as_str().unwrap().to_owned()
    }
}

/// A request that prefers the first of these topologies, and is content with any of them.
fn within(request: CreateVolumeRequest, preferred: &[Topology]) -> CreateVolumeRequest {
    let mut requisite = preferred.to_vec();
    requisite.reverse();
    let requirement = TopologyRequirement { requisite, preferred: preferred.to_vec() };
    CreateVolumeRequest { accessibility_requirements: Some(requirement), ..request }
}

/// With a parameter of its class.
fn of_class(request: CreateVolumeRequest, key: &str, value: &str) -> CreateVolumeRequest {
    CreateVolumeRequest { parameters: [(key.to_owned(), value.to_owned())].into(), ..request }
}

impl Controller {
    /// Creates a volume, and returns from where it is reached beside its id.
    async fn place(&self, request: CreateVolumeRequest) -> Result<(String, Vec<Topology>), Status> {
        let create = async |to: &Self| {
            let answer: Result<CreateVolumeResponse, _> =
                to.call("/csi.v1.Controller/CreateVolume", request.clone()).await;
            answer
        };
        let volume = self.patiently("placed", create).await?.volume.unwrap();
        Ok((volume.volume_id, volume.accessible_topology))
    }

    /// The room in a segment, and the largest volume.
    async fn room(&self, topology: Option<&Topology>, class: &[(&str, &str)]) -> (i64, i64) {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let request = GetCapacityRequest {
            accessible_topology: topology.cloned(),
            parameters: class.iter().map(owned).collect(),
            ..GetCapacityRequest::default()
        };
        let read = async |to: &Self| {
            let answer: Result<GetCapacityResponse, _> =
                to.call("/csi.v1.Controller/GetCapacity", request.clone()).await;
            answer
        };
        let answer = self.patiently("the room is known", read).await.unwrap();
        (answer.available_capacity / GIB, answer.maximum_volume_size.unwrap() / GIB)
    }

    /// Waits until nodes are known in each of these topologies.
    async fn until_known(&self, all: &[Topology]) {
        for topology in all {
            let known = async |to: &Self| {
                let room = to.room(Some(topology), &[]).await.0;
                if room > 0 { Ok(()) } else { Err(Status::unavailable("no node is known there")) }
            };
            self.patiently("the nodes are known", known).await.unwrap();
        }
    }
}

async fn start(configuration: impl FnOnce(&World) -> String) -> (World, Controller) {
    let world = World::start_with(two_zones).await;
    for (at, id) in (1..).zip(NODES) {
        world.register_in(&format!("node-{at}"), id, &zone(1)).await;
    }
    world.register_in("node-3", NODE_3, &zone(2)).await;
    world.write("csi-vsphere.conf", &configuration(&world));
    let controller = world.run(&[]).await;
    controller.until_known(&[zone(1), zone(2)]).await;
    (world, controller)
}

#[tokio::test]
async fn a_volume_is_created_in_the_first_zone_that_can_take_it_and_the_answer_names_its_zones() {
    let (world, controller) = start(|world| world.configuration("")).await;
    let both = [zone(2), zone(1)];
    let (second, reached) =
        controller.place(within(request("pvc-second", 64), &both)).await.unwrap();
    assert_eq!(reached, [zone(2)]);
    assert_eq!(
        world.place_of(&second).await,
        "/europe/dc-2/datastore/shared-2",
        "the emptier one there"
    );
    let (first, reached) =
        controller.place(within(request("pvc-first", 64), &[zone(1)])).await.unwrap();
    assert_eq!(reached, [zone(1)]);
    assert_eq!(world.place_of(&first).await, "/dc-1/datastore/vsan-1");
    // The preferred zone has no room for it.
    let large = within(request("pvc-large", 3 << 20), &both);
    let (large, reached) = controller.place(large).await.unwrap();
    assert_eq!(reached, [zone(1)]);
    assert_eq!(world.place_of(&large).await, "/dc-1/datastore/vsan-1");
    // A part of the labels.
    let region = topology(&[(REGION, "region-2")]);
    let (_, reached) =
        controller.place(within(request("pvc-region", 64), &[region])).await.unwrap();
    assert_eq!(reached, [zone(2)]);

    // A volume that exists is answered likewise, also when only vCenter knows it.
    for _ in 0..2 {
        let again = controller.place(within(request("pvc-second", 64), &both)).await.unwrap();
        assert_eq!(again, (second.clone(), vec![zone(2)]));
        // One that was adopted has none.
        let deleted = world.records().delete("pvc-second", &DeleteParams::default()).await;
        let is_absent = matches!(&deleted, Err(kube::Error::Api(status)) if status.code == 404);
        assert!(deleted.is_ok() || is_absent, "{deleted:?}");
    }
    let elsewhere = within(request("pvc-second", 64), &[zone(1)]);
    let answer: Result<CreateVolumeResponse, _> =
        controller.call("/csi.v1.Controller/CreateVolume", elsewhere).await;
    let refused = answer.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("/europe/dc-2/datastore/shared-2"), "{refused}");
    assert!(refused.message().contains("zone-1"), "{refused}");

    // Copies are made where their source is, wherever else they might be.
    let snapshot = controller.snapshot(&second, "snapshot-1").await.unwrap().snapshot_id;
    for copy in [restored("pvc-restored", 64, &snapshot), cloned("pvc-cloned", 64, &second)] {
        let copied = within(copy, &[zone(1), zone(2)]);
        let (copy, reached) = controller.place(copied).await.unwrap();
        assert_eq!(reached, [zone(2)]);
        assert_eq!(world.place_of(&copy).await, "/europe/dc-2/datastore/shared-2");
    }
}

#[tokio::test]
async fn a_zone_that_cannot_take_a_volume_refuses_it_with_every_reason() {
    let (world, controller) = start(|world| world.configuration("")).await;
    let refuse = async |request: CreateVolumeRequest| {
        let refused = controller.place(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        refused.message().to_owned()
    };
    let text = refuse(within(request("pvc-1", 3 << 20), &[zone(2)])).await;
    for part in [
        "zone-2 (",
        "/europe/dc-2/datastore/shared-2: it has 2 TiB in all",
        "/dc-1/datastore/vsan-1: not writable from esx-3.lab.example",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text =
        refuse(of_class(within(request("pvc-1", 64), &[zone(2)]), "storagepolicyname", "gold"))
            .await;
    assert!(text.contains("the storage policy does not accept it"), "{text}");
    let text = refuse(within(request("pvc-1", 64), &[topology(&[(ZONE, "zone-9")])])).await;
    assert!(text.contains("zone-9 (no node of it was found"), "{text}");
    // A host in maintenance hinders the zone of its nodes and no other.
    let control = world.vcenter.control();
    control.maintain_host("esx-3.lab.example", true).await.unwrap();
    let known = async |to: &Controller| match to.room(Some(&zone(2)), &[]).await {
        (0, 0) => Ok(()),
        other => Err(Status::unavailable(format!("{other:?}"))),
    };
    controller.patiently("the maintenance is known", known).await.unwrap();
    let text = refuse(within(request("pvc-away", 64), &[zone(2)])).await;
    assert!(text.contains("out of maintenance (esx-3.lab.example)"), "{text}");
    let (_, reached) =
        controller.place(within(request("pvc-near", 64), &[zone(2), zone(1)])).await.unwrap();
    assert_eq!(reached, [zone(1)]);
}

#[tokio::test]
async fn a_name_of_datastores_in_both_zones_means_the_one_of_the_requested_zone() {
    let (world, controller) = start(|world| world.configuration("")).await;
    let called = |name, zones: &[Topology]| {
        of_class(within(request(name, 64), zones), "datastores", "shared-1")
    };
    let place = async |request| {
        let (volume, reached) = controller.place(request).await.unwrap();
        (world.place_of(&volume).await, reached)
    };
    let (first, reached) = place(called("pvc-1", &[zone(1)])).await;
    assert_eq!(reached, [zone(1)]);
    let (second, reached) = place(called("pvc-2", &[zone(2)])).await;
    assert_eq!(reached, [zone(2)]);
    assert_eq!(first, "/dc-1/datastore/shared-1");
    assert_eq!(second, "/europe/dc-2/datastore/shared-1");
    assert_eq!(place(called("pvc-3", &[zone(2), zone(1)])).await.0, second);
    // Without a zone it must be reached by all nodes, and none is.
    let everywhere = of_class(request("pvc-4", 64), "datastores", "shared-1");
    let refused = controller.place(everywhere).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
}

#[tokio::test]
async fn each_zone_has_the_room_of_the_datastores_that_it_reaches() {
    let (world, controller) = start(|world| world.configuration("")).await;
    // vsan-1, shared-1, pod-1 and pod-2.
    assert_eq!(controller.room(Some(&zone(1)), &[]).await, (6144 + 1500 + 2048, 6144));
    assert_eq!(controller.room(Some(&zone(2)), &[]).await, (2048 + 1024, 2048));
    let shared = [("datastores", "shared-1")];
    assert_eq!(controller.room(Some(&zone(1)), &shared).await, (1500, 1500));
    assert_eq!(controller.room(Some(&zone(2)), &shared).await, (1024, 1024));
    let gold = [("storagepolicyname", "gold")];
    assert_eq!(controller.room(Some(&zone(1)), &gold).await, (6144 + 2048, 6144));
    assert_eq!(controller.room(Some(&zone(2)), &gold).await, (0, 0));
    assert_eq!(controller.room(Some(&topology(&[(ZONE, "zone-9")])), &[]).await, (0, 0));
    // No datastore is reached by all nodes.
    assert_eq!(controller.room(None, &[]).await, (0, 0));
    // What becomes free is known to the zone.
    let control = world.vcenter.control();
    control.free_space("/europe/dc-2/datastore/shared-1", 512 << 30).await.unwrap();
    let known = async |to: &Controller| match to.room(Some(&zone(2)), &[]).await {
        (2560, 2048) => Ok(()),
        other => Err(Status::unavailable(format!("{other:?}"))),
    };
    controller.patiently("the free space is known", known).await.unwrap();
}

#[tokio::test]
async fn a_datastore_with_the_tag_of_a_zone_is_preferred_there() {
    let zoned = |world: &World| {
        format!(
            "{}[Labels]\ntopology-categories = \"k8s-region, k8s-zone\"\n",
            world.configuration("")
        )
    };
    let (world, controller) = start(zoned).await;
    let (preferred, _) = controller.place(within(request("pvc-1", 64), &[zone(1)])).await.unwrap();
    assert_eq!(world.place_of(&preferred).await, "/dc-1/datastore/shared-1");
    // It is a preference: where it has no room, another one is taken.
    let large = within(request("pvc-large", 2 << 20), &[zone(1)]);
    let (large, _) = controller.place(large).await.unwrap();
    assert_eq!(world.place_of(&large).await, "/dc-1/datastore/vsan-1");
}

#[tokio::test]
async fn the_segment_of_a_request_decides_its_vcenter() {
    let both = TwoVCenters::start().await;
    for (at, id) in (1..).zip(NODES) {
        both.world.register_in(&format!("node-{at}"), id, &zone(1)).await;
    }
    both.world.register_in("node-3", OTHER_NODES[0], &zone(2)).await;
    both.world.register_in("node-4", OTHER_NODES[1], &zone(2)).await;
    let controller = both.world.run(&[]).await;
    controller.until_known(&[zone(1), zone(2)]).await;
    let server = both.world.server();
    // The second one is the roomier.
    let cases: [(&str, &[u8], &str); 4] = [
        ("pvc-1", &[1], &server),
        ("pvc-2", &[2], OTHER),
        ("pvc-3", &[1, 2], &server),
        ("pvc-4", &[2, 1], OTHER),
    ];
    for (name, zones, expected) in cases {
        let zones: Vec<Topology> = zones.iter().map(|number| zone(*number)).collect();
        let (volume, reached) = controller.place(within(request(name, 64), &zones)).await.unwrap();
        assert_eq!(reached, &zones[..1], "{name}");
        assert_eq!(both.recorded(&volume).await.as_deref(), Some(expected), "{name}");
    }
    // Without a segment it is the roomiest, and a snapshot is restored where it is.
    let (volume, reached) = controller.place(request("pvc-5", 64)).await.unwrap();
    assert_eq!(reached, [zone(2)]);
    let snapshot = controller.snapshot(&volume, "snapshot-1").await.unwrap().snapshot_id;
    let wrong = within(restored("pvc-6", 64, &snapshot), &[zone(1)]);
    let refused = controller.place(wrong).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    // Nodes of one segment in both: the roomier one is taken.
    both.world.register_in("node-4", OTHER_NODES[1], &zone(1)).await;
    let shared = async |to: &Controller| {
        let room = to.room(Some(&zone(1)), &[]).await;
        if room.1 > 6144 { Ok(()) } else { Err(Status::unavailable(format!("{room:?}"))) }
    };
    controller.patiently("both vCenters have the segment", shared).await.unwrap();
    let (volume, reached) =
        controller.place(within(request("pvc-7", 64), &[zone(1)])).await.unwrap();
    assert!(reached.contains(&zone(1)), "{reached:?}");
    assert_eq!(both.recorded(&volume).await.as_deref(), Some(OTHER));
}
