//! What cannot be known at once: tasks that still run, VMs that show nothing of themselves, calls without an outcome. No
//! answer is given that the next moment may make wrong.

use csi::proto::{ControllerGetVolumeRequest, ControllerGetVolumeResponse};
use k8s_openapi::api::{
    coordination::v1::Lease,
    storage::v1::{CSINode, VolumeAttachment},
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use lab::{
    Wait, until,
    vcenter::{Fault, Moment},
};
use serde_json::json;
use tonic::Code;

use crate::{
    attach::{ATTACH, LEASE, until_led},
    situations::started,
    world::{BOUND, Controller, MIB, NODES, World, request},
};

#[tokio::test]
async fn a_vm_whose_files_are_lost_is_not_gone_and_keeps_its_disks() {
    let (world, controller) = started().await;
    let control = world.vcenter.control();
    let volume = controller.create_patiently("pvc-1").await;
    controller.attach(&volume, NODES[1]).await.unwrap();
    control.reach_vm("node-2", false).await.unwrap();
    controller.detach(&volume, NODES[1]).await.unwrap_err();
    // A process that never saw which VM it is does not find it at all.
    controller.kill();
    let controller = world.run(&[]).await;
    controller.until_ready().await;
    for node in [NODES[1], "node-2"] {
        let refused = controller.detach(&volume, node).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    }
    assert_eq!(control.state().await.unwrap().attachments.len(), 1);
    control.reach_vm("node-2", true).await.unwrap();
    controller.patiently("detached", async |to| to.detach(&volume, NODES[1]).await).await.unwrap();
    assert!(control.state().await.unwrap().attachments.is_empty());
}

#[tokio::test]
async fn a_vm_that_shows_no_devices_while_its_host_is_away_keeps_its_disks() {
    let (world, controller) = started().await;
    let control = world.vcenter.control();
    let volume = controller.create_patiently("pvc-1").await;
    controller.attach(&volume, NODES[1]).await.unwrap();
    control.assume("OfflineDevices", "empty".into()).await.unwrap();
    control.connect_host("esx-2.lab.example", false).await.unwrap();
    controller.detach(&volume, NODES[1]).await.unwrap_err();
    // CNS may not find the volume either; the empty list is still not a proof.
    let lost = Fault { at: Moment::Result, ..Fault::next("CnsDetachVolume", "NotFound") };
    let rule = control.fail(&lost).await.unwrap();
    controller.detach(&volume, NODES[1]).await.unwrap_err();
    world.until_struck(rule).await;
    assert_eq!(control.state().await.unwrap().attachments.len(), 1);
    control.connect_host("esx-2.lab.example", true).await.unwrap();
    controller.patiently("detached", async |to| to.detach(&volume, NODES[1]).await).await.unwrap();
    assert!(control.state().await.unwrap().attachments.is_empty());
}

/// Old versions of the Go driver gave nodes their names as ids.
#[tokio::test]
async fn of_two_vms_with_the_name_of_a_node_neither_is_judged_alone() {
    let twin = |usual: &str| usual.replace("{host_name: node-2}", "{host_name: node-1}");
    let world = World::start_with(twin).await;
    let nodes: Api<CSINode> = Api::all(world.plane.client());
    nodes.delete("node-1", &DeleteParams::default()).await.unwrap();
    let controller = world.run(&[]).await;
    controller.until_ready().await;
    let control = world.vcenter.control();
    let volume = controller.create_patiently("pvc-1").await;
    for node in NODES {
        controller.attach(&volume, node).await.unwrap();
        let refused = controller.detach(&volume, "node-1").await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        let text = refused.message();
        assert!(text.contains("node-1 and node-2") && text.contains("detach"), "{text}");
        assert_eq!(control.state().await.unwrap().attachments.len(), 1);
        controller.detach(&volume, node).await.unwrap();
        // Neither has it.
        controller.detach(&volume, "node-1").await.unwrap();
    }
    // One VM of that name is left.
    control.unregister("node-1").await.unwrap();
    controller.attach(&volume, NODES[1]).await.unwrap();
    let detach = async |to: &Controller| {
        let done = to.detach(&volume, "node-1").await;
        done.map_err(|status| tonic::Status::unavailable(status.message()))
    };
    controller.patiently("detached", detach).await.unwrap();
    assert!(control.state().await.unwrap().attachments.is_empty());
}

#[tokio::test]
async fn a_volume_is_held_until_the_task_has_ended_although_the_caller_gave_up() {
    let (world, controller) = started().await;
    let control = world.vcenter.control();
    let volume = controller.create_patiently("pvc-1").await;
    for method in ["CnsAttachVolume", "CnsDetachVolume", "CnsExtendVolume", "CnsDeleteVolume"] {
        let call = async || match method {
            "CnsAttachVolume" => controller.attach(&volume, NODES[0]).await.map(drop),
            "CnsDetachVolume" => controller.detach(&volume, NODES[0]).await,
            "CnsExtendVolume" => controller.expand(&volume, 128).await,
            _ => controller.delete(&volume).await,
        };
        let held = Fault { fault: None, at: Moment::Hold, ..Fault::next(method, "") };
        let rule = control.fail(&held).await.unwrap();
        tokio::select! {
            ended = call() => panic!("{method}: {ended:?}"),
            () = world.until_struck(rule) => {}
        }
        let others = [
            call().await,
            controller.detach(&volume, NODES[0]).await,
            controller.attach(&volume, NODES[1]).await.map(drop),
            controller.delete(&volume).await,
        ];
        for refused in others.map(Result::unwrap_err) {
            assert_eq!(refused.code(), Code::Aborted, "{method}: {refused}");
        }
        control.release_tasks().await.unwrap();
        controller.patiently(method, async |_| call().await).await.unwrap();
    }
    assert!(world.volumes().await.is_empty());
}

#[tokio::test]
async fn an_attach_that_is_carried_out_after_it_failed_is_not_left_behind() {
    let (world, controller) = started().await;
    let control = world.vcenter.control();
    // A volume that CNS does not show is registered again and attached by the same call.
    control.assume("FreshVolume", json!("complete")).await.unwrap();
    let volume = controller.create_patiently("pvc-1").await;
    let late = Fault { at: Moment::Late, ..Fault::next("CnsAttachVolume", "CnsFault") };
    control.fail(&late).await.unwrap();
    controller.attach(&volume, NODES[0]).await.unwrap_err();
    // It is not attached, and may be at any moment.
    let early = controller.detach(&volume, NODES[0]).await.unwrap_err();
    assert_eq!(early.code(), Code::Aborted, "{early}");
    control.release_tasks().await.unwrap();
    assert_eq!(control.state().await.unwrap().attachments.len(), 1);
    controller.patiently("detached", async |to| to.detach(&volume, NODES[0]).await).await.unwrap();
    assert!(control.state().await.unwrap().attachments.is_empty());
}

/// A controller whose attach of volume pv-1 to node-1 does not end.
async fn attaching() -> (World, Controller) {
    let world = World::start().await;
    let controller = world.run(ATTACH).await;
    world.provision(&controller, "pv-1").await;
    until_led(&world, "").await;
    let held = Fault { fault: None, at: Moment::Hold, ..Fault::next("CnsAttachVolume", "") };
    let rule = world.vcenter.control().fail(&held).await.unwrap();
    world.attach("pv-1", "node-1").await;
    world.until_struck(rule).await;
    (world, controller)
}

#[tokio::test]
async fn an_attach_that_a_killed_leader_began_is_not_left_behind() {
    let (world, first) = attaching().await;
    let control = world.vcenter.control();
    first.kill();
    world.detach("pv-1").await;
    let _second = world.run(ATTACH).await;
    until("a detach was sent", 2 * BOUND, || async {
        let calls = control.calls().await?.to_string();
        Ok(if calls.contains("CnsDetachVolume") { Wait::Done(()) } else { Wait::NotYet(calls) })
    })
    .await
    .unwrap();
    // The VM had no such disk when it was asked; now it has.
    control.release_tasks().await.unwrap();
    world.until_gone("pv-1").await;
    assert!(world.disks().await.is_empty());
}

#[tokio::test]
async fn a_process_that_lost_the_lease_leaves_its_operations_at_once() {
    let (world, controller) = attaching().await;
    let leases: Api<Lease> = Api::namespaced(world.plane.client(), "vmware-system-csi");
    let stolen = Patch::Merge(json!({"spec": {"holderIdentity": "somebody else"}}));
    leases.patch(LEASE, &PatchParams::default(), &stolen).await.unwrap();
    let log = controller.until_ended().await;
    assert!(log.contains("leadership lost"), "{log}");
    assert!(!log.contains("left to the next process"), "an operation went on: {log}");
    let shown: VolumeAttachment = world.attachments().get("pv-1").await.unwrap();
    assert!(shown.status.is_none_or(|status| !status.attached));
}

#[tokio::test]
async fn a_disk_that_a_broken_create_left_becomes_the_volume_that_was_asked_for() {
    let world = World::start_with(|usual| usual.replace("release: 8.0U3", "release: 9.1")).await;
    let controller = world.run(&[]).await;
    controller.until_ready().await;
    let control = world.vcenter.control();
    for answer in ["fault", "becomes the volume"] {
        control.assume("ChosenIDOfPlainDisk", json!(answer)).await.unwrap();
        let half = Fault { at: Moment::Half, ..Fault::next("CnsCreateVolume", "CnsFault") };
        control.fail(&half).await.unwrap();
        let name = format!("volume-{}", answer.len());
        let volume = controller.create_patiently(&name).await;
        let state = control.state_as_json().await.unwrap();
        let volumes = state["volumes"].as_array().unwrap();
        let made: Vec<_> = volumes.iter().filter(|one| one["name"] == name.as_str()).collect();
        assert_eq!(made.len(), 1, "{answer}: {volumes:?}");
        assert_eq!(made[0]["id"], volume.as_str());
    }
}

#[tokio::test]
async fn a_deleted_volume_that_cns_still_shows_is_not_taken_for_a_new_one_of_its_name() {
    let (world, controller) = started().await;
    let control = world.vcenter.control();
    control.assume("StaleQueries", json!(true)).await.unwrap();
    let first = controller.create_patiently("pvc-1").await;
    controller.delete(&first).await.unwrap();
    let second = controller.create_patiently("pvc-1").await;
    controller.attach(&second, NODES[0]).await.unwrap();
    assert_eq!(control.state().await.unwrap().attachments.len(), 1);
}

#[tokio::test]
async fn a_class_that_is_corrected_after_a_failure_counts() {
    let (world, controller) = started().await;
    let control = world.vcenter.control();
    // A fault that proves that nothing was made.
    let fault =
        Fault { at: Moment::Result, count: 0, ..Fault::next("CnsCreateVolume", "NoDiskSpace") };
    control.fail(&fault).await.unwrap();
    let mut first = request("pvc-1", 64);
    first.parameters = [("storagepolicyname".to_owned(), "gold".to_owned())].into();
    let refused = controller.create(first.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    control.disarm().await.unwrap();
    // The first attempts made nothing, so that neither policy nor size binds the next ones.
    let volume = controller.create(request("pvc-1", 32)).await.unwrap();
    assert_eq!(world.volumes().await, [volume]);
    let other = controller.create(first).await.unwrap_err();
    assert_eq!(other.code(), Code::AlreadyExists, "{other}");
}

#[tokio::test]
async fn a_volume_that_cns_does_not_show_yet_exists_and_is_in_use() {
    let old = "release: 6.7U3\nassumptions: {FreshVolume: absent, OnlineExtend: false}";
    let world = World::start_with(|usual| usual.replace("release: 8.0U3", old)).await;
    let controller = world.run(&[]).await;
    controller.until_ready().await;
    let volume = controller.create(request("pvc-1", 64)).await.unwrap();
    let get = ControllerGetVolumeRequest { volume_id: volume.clone() };
    let got: ControllerGetVolumeResponse =
        controller.call("/csi.v1.Controller/ControllerGetVolume", get).await.unwrap();
    assert_eq!(got.volume.unwrap().capacity_bytes, i64::try_from(64 * MIB).unwrap());
    // It is not shown for two queries.
    let volume = controller.create(request("pvc-2", 64)).await.unwrap();
    controller.attach(&volume, NODES[0]).await.unwrap();
    let refused = controller.expand(&volume, 128).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains("VM node-1 (node node-1) has it"), "{refused}");
}

#[tokio::test]
async fn a_page_of_the_list_costs_two_requests_however_many_nodes_there_are() {
    let (world, controller) = started().await;
    for (number, node) in (0..).zip(NODES) {
        let volume = controller.create_patiently(&format!("pvc-{number}")).await;
        controller.attach(&volume, node).await.unwrap();
    }
    let control = world.vcenter.control();
    let count = async || {
        let state = control.state_as_json().await.unwrap();
        let calls = state["calls"]["calls"].as_array().unwrap().clone();
        let reads = calls.iter().filter(|call| {
            let method = call["method"].as_str().unwrap_or_default();
            method.starts_with("CnsQuery") || method.starts_with("RetrieveProperties")
        });
        reads.map(|call| call["count"].as_u64().unwrap()).sum::<u64>()
    };
    let before = count().await;
    let listed = controller.list().await.unwrap();
    assert!(listed.values().all(|nodes| nodes.len() == 1), "{listed:?}");
    assert_eq!(count().await - before, 2);
}
