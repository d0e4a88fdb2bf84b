//! Two vCenters in which everything has the same name: datacenters, datastores, policies, VMs and their ids.
//!
//! The second one has more free space, so that volumes are created there unless a test changes that.

use std::collections::BTreeMap;

use csi::{
    manifests::NAMESPACE,
    proto::{
        ControllerGetVolumeRequest, ControllerGetVolumeResponse, ListVolumesRequest,
        ListVolumesResponse,
    },
};
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use lab::{
    VCenter, VCenterSpec, Wait, until,
    vcenter::{Description, HttpFault, HttpFaultKind, Power},
};
use serde_json::{Value, json, to_value};
use tonic::{Code, Status};

use crate::world::{BOUND, Controller, NODES, World, request};

/// The nodes of the second vCenter.
pub(crate) const OTHER_NODES: [&str; 2] =
    ["4230b1a0-5eed-4000-8000-000000000003", "4230b1a0-5eed-4000-8000-000000000004"];
/// How the second one is called: the first one has the same address.
pub(crate) const OTHER: &str = "localhost";
/// Several vCenters must have zones.
const LABELS: &str = "[Labels]\ntopology-categories = \"k8s-zone\"\n";
const TIB: u64 = 1 << 40;

pub(crate) struct TwoVCenters {
    pub(crate) world: World,
    pub(crate) other: VCenter,
}

impl TwoVCenters {
    pub(crate) async fn start() -> Self {
        Self::start_with(|usual| usual).await
    }

    /// With another description of the second one.
    async fn start_with(edit: impl FnOnce(String) -> String) -> Self {
        let usual = include_str!("../../../../lab/vcenter/internal/world/default.yaml");
        let mut text = usual.replace("free: 6TiB", "free: 7TiB");
        for (first, second) in NODES.iter().zip(OTHER_NODES) {
            text = text.replace(first, second);
        }
        let description = Description::Text(edit(text));
        let spec = VCenterSpec { description, ..VCenterSpec::default() };
        let world = World::start().await;
        let other = VCenter::start(&spec).await.unwrap();
        for (at, id) in (3..).zip(OTHER_NODES) {
            world.register(&format!("node-{at}"), id);
        }
        let both = Self { world, other };
        both.configure(&both.configuration());
        both
    }

    fn configure(&self, text: &str) {
        self.world.write("csi-vsphere.conf", text);
    }

    /// The configuration with both.
    fn configuration(&self) -> String {
        let port = self.other.url().trim_end_matches("/sdk").rsplit_once(':').unwrap().1;
        format!(
            "{}[VirtualCenter \"{OTHER}\"]\nuser = \"csi@vsphere.local\"\npassword = \"Lab-csi-1!\"\n\
             port = \"{port}\"\nca-file = \"{}\"\n{LABELS}",
            self.world.configuration(""),
            self.other.authority().display()
        )
    }

    /// The configuration with the first one alone, and the same zones.
    fn configuration_of_the_first(&self) -> String {
        self.world.configuration("") + LABELS
    }

    /// A controller that knows both inventories.
    async fn run(&self) -> Controller {
        let controller = self.world.run(&[]).await;
        self.until_both_are_known(&controller).await;
        controller
    }

    async fn until_both_are_known(&self, controller: &Controller) {
        let knows_both = async |to: &Controller| {
            let capacity = to.capacity().await?.unsigned_abs();
            let missing = || Status::unavailable("one of them is missing");
            if capacity > 15 * TIB { Ok(()) } else { Err(missing()) }
        };
        controller.patiently("both are known", knows_both).await.unwrap();
    }

    /// Makes the first one the roomier.
    async fn prefer_the_first(&self, controller: &Controller) {
        let before = controller.capacity().await.unwrap();
        let control = self.world.vcenter.control();
        control.free_space("/dc-1/datastore/vsan-1", 15 * TIB / 2).await.unwrap();
        until("the free space is known", BOUND, || async {
            let now = controller.capacity().await?;
            Ok(if now > before { Wait::Done(()) } else { Wait::NotYet(now.to_string()) })
        })
        .await
        .unwrap();
    }

    fn infos(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("cns.vmware.com", "v1alpha1", "CNSVolumeInfo");
        let resource = ApiResource::from_gvk_with_plural(&kind, "cnsvolumeinfoes");
        Api::namespaced_with(self.world.plane.client(), NAMESPACE, &resource)
    }

    /// A new controller, for which the record of a volume in the second one names the first one.
    async fn run_with_stale_record(&self, volume: &str) -> Controller {
        let patch = Patch::Merge(json!({"spec": {"vCenterServer": self.world.server()}}));
        self.infos().patch(volume, &PatchParams::default(), &patch).await.unwrap();
        self.run().await
    }

    /// The server in the record of a volume.
    pub(crate) async fn recorded(&self, volume: &str) -> Option<String> {
        let found = self.infos().get_opt(volume).await.unwrap()?;
        assert_eq!(found.data["spec"]["volumeID"], volume);
        Some(found.data["spec"]["vCenterServer"].as_str().unwrap().to_owned())
    }
}

async fn volumes(vcenter: &VCenter) -> Vec<String> {
    let state = vcenter.control().state_as_json().await.unwrap();
    let volumes = state["volumes"].as_array().cloned().unwrap_or_default();
    volumes.iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

/// Calls of these methods that a vCenter got.
pub(crate) async fn calls(vcenter: &VCenter, is_counted: impl Fn(&str) -> bool) -> u64 {
    let counted = vcenter.control().calls().await.unwrap();
    let calls = counted["calls"].as_array().unwrap().iter();
    let calls = calls.filter(|call| is_counted(call["method"].as_str().unwrap()));
    calls.map(|call| call["count"].as_u64().unwrap()).sum()
}

async fn create(controller: &Controller, name: &str) -> String {
    let create = async |to: &Controller| to.create(request(name, 64)).await;
    controller.patiently("created", create).await.unwrap()
}

/// All volumes with their nodes, in pages of one.
async fn listed(controller: &Controller) -> BTreeMap<String, Vec<String>> {
    let (mut all, mut starting_token) = (BTreeMap::new(), String::new());
    loop {
        let request = ListVolumesRequest { max_entries: 1, starting_token };
        let page: ListVolumesResponse =
            controller.call("/csi.v1.Controller/ListVolumes", request).await.unwrap();
        assert!(page.entries.len() <= 1, "{page:?}");
        for entry in page.entries {
            let nodes = entry.status.unwrap_or_default().published_node_ids;
            let known = all.insert(entry.volume.unwrap().volume_id, nodes);
            assert_eq!(known, None, "listed twice");
        }
        starting_token = page.next_token;
        if starting_token.is_empty() {
            return all;
        }
    }
}

#[tokio::test]
async fn each_volume_is_served_by_its_own_vcenter_although_all_names_are_equal() {
    let both = TwoVCenters::start().await;
    let controller = both.run().await;
    let second = create(&controller, "pvc-second").await;
    both.prefer_the_first(&controller).await;
    let first = create(&controller, "pvc-first").await;
    assert_eq!(volumes(&both.world.vcenter).await, std::slice::from_ref(&first));
    assert_eq!(volumes(&both.other).await, std::slice::from_ref(&second));
    assert_eq!(both.recorded(&first).await, Some(both.world.server()));
    assert_eq!(both.recorded(&second).await.as_deref(), Some(OTHER));
    // Also without the record of the operation the name leads to the vCenter of the first call.
    both.world.records().delete("pvc-second", &DeleteParams::default()).await.unwrap();
    assert_eq!(create(&controller, "pvc-second").await, second);

    let refused = controller.attach(&second, NODES[0]).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    let text = refused.message();
    assert!(text.contains(OTHER) && text.contains(&both.world.server()), "{text}");
    controller.attach(&first, NODES[0]).await.unwrap();
    controller.attach(&second, OTHER_NODES[0]).await.unwrap();
    let nodes = |node: &str| vec![node.to_owned()];
    let expected =
        BTreeMap::from([(first.clone(), nodes(NODES[0])), (second.clone(), nodes(OTHER_NODES[0]))]);
    assert_eq!(listed(&controller).await, expected);
    for (volume, node) in [(&first, NODES[0]), (&second, OTHER_NODES[0])] {
        controller.expand(volume, 128).await.unwrap();
        controller.detach(volume, node).await.unwrap();
        controller.delete(volume).await.unwrap();
        controller.delete(volume).await.unwrap();
        assert_eq!(both.recorded(volume).await, None);
    }
    assert_eq!(listed(&controller).await, BTreeMap::new());
    for vcenter in [&both.world.vcenter, &both.other] {
        assert_eq!(volumes(vcenter).await, [""; 0]);
    }
}

#[tokio::test]
async fn a_volume_is_found_again_after_its_record_was_deleted_and_the_go_drivers_record_is_used() {
    let both = TwoVCenters::start().await;
    let controller = both.run().await;
    let volume = create(&controller, "pvc-1").await;
    controller.kill();
    both.infos().delete(&volume, &DeleteParams::default()).await.unwrap();
    let controller = both.run().await;
    controller.attach(&volume, OTHER_NODES[0]).await.unwrap();
    assert_eq!(both.recorded(&volume).await.as_deref(), Some(OTHER));
    controller.detach(&volume, OTHER_NODES[0]).await.unwrap();
    controller.kill();
    // As the Go driver writes it. It alone can lead to the volume: the other vCenter cannot be asked.
    both.infos().delete(&volume, &DeleteParams::default()).await.unwrap();
    let record = json!({
        "apiVersion": "cns.vmware.com/v1alpha1",
        "kind": "CNSVolumeInfo",
        "metadata": {"name": volume, "namespace": NAMESPACE},
        "spec": {
            "volumeID": volume,
            "vCenterServer": OTHER,
            "validaggregatedsnapshotsize": false,
            "zones": null,
            "snapshotlatestoperationcompletetime": null,
            "isLinkedClone": false,
        },
    });
    both.world.plane.apply(&[record]).unwrap();
    let silence = HttpFault {
        path: "/".to_owned(),
        method: None,
        kind: HttpFaultKind::Status { status: 503 },
        count: 0,
    };
    both.world.vcenter.control().break_http(&silence).await.unwrap();
    let controller = both.world.run(&[]).await;
    let attach = async |to: &Controller| to.attach(&volume, OTHER_NODES[0]).await;
    controller.patiently("attached", attach).await.unwrap();
}

#[tokio::test]
async fn while_a_vcenter_is_being_replaced_nothing_of_it_is_taken_for_absent() {
    let both = TwoVCenters::start().await;
    both.configure(&both.configuration_of_the_first());
    let controller = both.world.run(&[]).await;
    controller.until_ready().await;
    // Without a record, as from the time of one vCenter.
    let volume = create(&controller, "pvc-1").await;
    controller.attach(&volume, NODES[0]).await.unwrap();
    both.configure(&both.configuration());
    both.until_both_are_known(&controller).await;
    // Its sessions end slowly.
    let slow = HttpFault {
        path: "/sdk".to_owned(),
        method: Some("Logout".to_owned()),
        kind: HttpFaultKind::Hang,
        count: 1,
    };
    let rule = both.world.vcenter.control().break_http(&slow).await.unwrap();
    let changed = both.configuration().replacen("port =", "insecure-flag = \"true\"\nport =", 1);
    both.configure(&changed);
    both.world.until_struck(rule).await;
    until("it is replaced", BOUND, || async {
        if controller.detach(&volume, NODES[0]).await.is_ok() {
            let attached = both.world.vcenter.control().state().await?.attachments;
            assert!(attached.is_empty(), "{attached:?}: {}", controller.log());
        }
        Ok(match controller.delete(&volume).await {
            Ok(()) => {
                let left = volumes(&both.world.vcenter).await;
                assert!(left.is_empty(), "{left:?}: {}", controller.log());
                Wait::Done(())
            }
            Err(refused) => Wait::NotYet(refused.to_string()),
        })
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_volume_that_moved_to_another_vcenter_is_deleted_there() {
    let both = TwoVCenters::start().await;
    let controller = both.run().await;
    let volume = create(&controller, "pvc-1").await;
    assert_eq!(both.recorded(&volume).await.as_deref(), Some(OTHER));
    controller.kill();
    let controller = both.run_with_stale_record(&volume).await;
    controller.delete(&volume).await.unwrap();
    assert!(volumes(&both.other).await.is_empty());
    assert_eq!(both.recorded(&volume).await, None);
}

#[tokio::test]
async fn a_volume_that_moved_to_another_vcenter_is_served_there_and_its_record_corrected() {
    let both = TwoVCenters::start().await;
    let controller = both.run().await;
    let volume = create(&controller, "pvc-1").await;
    both.other.control().assume("Snapshots", json!(true)).await.unwrap();
    let attachments = async || both.other.control().state().await.unwrap().attachments.len();
    let mut snapshot = String::new();
    let mut last = controller;
    for step in ["attach", "detach", "expand", "snapshot", "delete the snapshot", "exists"] {
        last.kill();
        let controller = both.run_with_stale_record(&volume).await;
        match step {
            "attach" => {
                // The node of the recorded vCenter is the wrong one, too.
                let refused = controller.attach(&volume, NODES[0]).await.unwrap_err();
                assert_ne!(refused.code(), Code::Ok, "{refused}");
                controller.attach(&volume, OTHER_NODES[0]).await.unwrap();
                assert_eq!(attachments().await, 1);
            }
            "detach" => {
                controller.detach(&volume, OTHER_NODES[0]).await.unwrap();
                assert_eq!(attachments().await, 0, "{}", controller.log());
            }
            "expand" => controller.expand(&volume, 128).await.unwrap(),
            "snapshot" => {
                let taken = controller.snapshot(&volume, "snapshot-1").await.unwrap();
                snapshot = taken.snapshot_id;
            }
            "delete the snapshot" => {
                controller.delete_snapshot(&snapshot).await.unwrap();
                let state = both.other.control().state_as_json().await.unwrap();
                let left = &state["volumes"][0]["snapshots"];
                assert_eq!(left.as_array().unwrap().len(), 0, "{left}");
            }
            _ => {
                let get = ControllerGetVolumeRequest { volume_id: volume.clone() };
                let got: ControllerGetVolumeResponse =
                    controller.call("/csi.v1.Controller/ControllerGetVolume", get).await.unwrap();
                assert_eq!(got.volume.unwrap().volume_id, volume);
            }
        }
        assert_eq!(both.recorded(&volume).await.as_deref(), Some(OTHER), "{step}");
        last = controller;
    }
}

#[tokio::test]
async fn a_powered_off_copy_is_not_the_node_while_the_vcenter_of_the_node_cannot_be_read() {
    // A backup tool restored a node of the first vCenter in the second one.
    let copy = |text: String| text.replace(OTHER_NODES[1], NODES[0]);
    let both = TwoVCenters::start_with(copy).await;
    both.other.control().power("node-2", Power::Off).await.unwrap();
    let controller = both.run().await;
    let volume = create(&controller, "pvc-1").await;
    let refused = controller.attach(&volume, NODES[0]).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    controller.kill();
    let silence = HttpFault {
        path: "/".to_owned(),
        method: None,
        kind: HttpFaultKind::Status { status: 503 },
        count: 0,
    };
    both.world.vcenter.control().break_http(&silence).await.unwrap();
    let controller = both.world.run(&[]).await;
    let attach = async |to: &Controller| to.attach(&volume, OTHER_NODES[0]).await;
    controller.patiently("the second one is known", attach).await.unwrap();
    controller.detach(&volume, OTHER_NODES[0]).await.unwrap();
    let refused = controller.attach(&volume, NODES[0]).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains(&both.world.server()), "{refused}");
    let attached = both.other.control().state().await.unwrap().attachments;
    assert!(attached.is_empty(), "{attached:?}");
}

/// Everything that is done with volumes of the first vCenter, without patience.
async fn serve_the_first(controller: &Controller, volume: &str, name: &str) {
    controller.attach(volume, NODES[0]).await.unwrap();
    controller.expand(volume, 256).await.unwrap();
    controller.detach(volume, NODES[0]).await.unwrap();
    let new = controller.create(request(name, 64)).await.unwrap();
    controller.delete(&new).await.unwrap();
}

#[tokio::test]
async fn a_vcenter_that_hangs_or_dies_hinders_nothing_of_the_other() {
    let both = TwoVCenters::start().await;
    let controller = both.run().await;
    let second = create(&controller, "pvc-second").await;
    both.prefer_the_first(&controller).await;
    let first = create(&controller, "pvc-first").await;
    let hang =
        HttpFault { path: "/".to_owned(), method: None, kind: HttpFaultKind::Hang, count: 0 };
    both.other.control().break_http(&hang).await.unwrap();
    serve_the_first(&controller, &first, "pvc-while-it-hangs").await;
    both.other.control().disarm().await.unwrap();
    both.other.control().restart(1000).await.unwrap();
    let attach = async |to: &Controller| to.attach(&second, OTHER_NODES[0]).await;
    controller.patiently("attached after the restart", attach).await.unwrap();
    let detach = async |to: &Controller| to.detach(&second, OTHER_NODES[0]).await;
    controller.patiently("detached", detach).await.unwrap();

    let TwoVCenters { world, other } = both;
    drop(other);
    serve_the_first(&controller, &first, "pvc-while-it-is-down").await;
    until("the outage is known", BOUND, || async {
        let refused = controller.delete(&second).await.unwrap_err();
        let text = refused.message().to_owned();
        let is_named = refused.code() == Code::Unavailable && text.contains(OTHER);
        Ok(if is_named { Wait::Done(()) } else { Wait::NotYet(text) })
    })
    .await
    .unwrap();
    serve_the_first(&controller, &first, "pvc-after-it-died").await;
    // What no vCenter that answers has may be in the one that does not.
    let refused = controller.delete("0c7a1b8e-3f55-4f0a-9d0e-5b8d9f0a1b2c").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains(OTHER), "{refused}");
    drop(world);
}

#[tokio::test]
async fn a_vcenter_is_added_changed_and_removed_without_a_new_session_at_the_other() {
    let both = TwoVCenters::start().await;
    let (first, second) = (both.configuration_of_the_first(), both.configuration());
    both.configure(&first);
    let controller = both.world.run(&[]).await;
    controller.until_ready().await;
    let volume = create(&controller, "pvc-1").await;
    assert_eq!(both.recorded(&volume).await, None, "one vCenter needs no record");
    let logins = async || calls(&both.world.vcenter, |method| method.starts_with("Login")).await;
    let before = logins().await;

    both.configure(&second);
    both.until_both_are_known(&controller).await;
    let other = create(&controller, "pvc-2").await;
    assert!(volumes(&both.other).await.contains(&other));
    // A volume of the time before has no record and is found.
    controller.attach(&volume, NODES[0]).await.unwrap();
    assert_eq!(both.recorded(&volume).await, Some(both.world.server()));

    both.other.control().set_password("csi@vsphere.local", "Lab-csi-2!").await.unwrap();
    let (head, tail) = second.rsplit_once("Lab-csi-1!").unwrap();
    let rotated = format!("{head}Lab-csi-2!{tail}");
    both.configure(&rotated);
    until("the password is replaced", BOUND, || async {
        let log = controller.log();
        let is_replaced = log.contains("credentials replaced");
        Ok(if is_replaced { Wait::Done(()) } else { Wait::NotYet(log) })
    })
    .await
    .unwrap();
    controller.attach(&other, OTHER_NODES[0]).await.unwrap();
    controller.detach(&other, OTHER_NODES[0]).await.unwrap();
    controller.attach(&other, OTHER_NODES[0]).await.unwrap();

    both.configure(&first);
    until("the second one is gone", BOUND, || async {
        let refused = controller.expand(&other, 128).await.err();
        let text = format!("{refused:?}");
        let is_gone = refused.is_some_and(|status| status.code() == Code::FailedPrecondition);
        Ok(if is_gone && text.contains(OTHER) { Wait::Done(()) } else { Wait::NotYet(text) })
    })
    .await
    .unwrap();
    let refused = controller.delete(&other).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    // That no vCenter shows its node does not mean that the node is gone.
    let refused = controller.detach(&other, OTHER_NODES[0]).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    controller.detach(&volume, NODES[0]).await.unwrap();
    assert!(volumes(&both.other).await.contains(&other));
    assert_eq!(logins().await, before, "the first one was logged into again");
    let sessions = both.other.control().objects("csi@vsphere.local").await.unwrap();
    assert!(sessions.is_empty(), "{sessions:?}");
    both.configure(&rotated);
    let detach = async |to: &Controller| {
        let done = to.detach(&other, OTHER_NODES[0]).await;
        done.map_err(|status| Status::unavailable(status.message()))
    };
    controller.patiently("detached", detach).await.unwrap();
    assert!(both.other.control().state().await.unwrap().attachments.is_empty());
    let delete = async |to: &Controller| {
        let done = to.delete(&other).await;
        done.map_err(|status| Status::unavailable(status.message()))
    };
    controller.patiently("deleted", delete).await.unwrap();
    assert!(!volumes(&both.other).await.contains(&other));
}

#[tokio::test]
async fn a_create_costs_no_more_requests_with_two_vcenters() {
    const COUNT: u64 = 12;
    let both = TwoVCenters::start().await;
    let controller = both.run().await;
    create(&controller, "first").await;
    let count = async || {
        // Tags are read by REST, on a clock of their own.
        let is_counted = |method: &str| method != "WaitForUpdatesEx" && !method.contains(' ');
        let counted = [&both.world.vcenter, &both.other];
        let [first, second] = counted.map(|vcenter| calls(vcenter, is_counted));
        first.await + second.await
    };
    let before = count().await;
    for number in 0..COUNT {
        controller.create(request(&format!("volume-{number}"), 10)).await.unwrap();
    }
    let made = count().await - before;
    assert!(made <= 3 * COUNT, "{made} requests for {COUNT} volumes");
    let recorded: Vec<Value> = {
        let all = both.infos().list(&kube::api::ListParams::default()).await.unwrap();
        all.items.iter().map(|one| to_value(one).unwrap()).collect()
    };
    assert_eq!(recorded.len() as u64, COUNT + 1);
}
