//! What happens to vCenters now and then: each situation ends in the right volumes, or in a refusal that names the cause.

use lab::{
    Wait, until,
    vcenter::{CloneSpec, Fault, HttpFault, HttpFaultKind, Moment, Power},
};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::world::{BOUND, Controller, NODES, Start, World, request};

pub(crate) async fn started() -> (World, Controller) {
    let world = World::start().await;
    let controller = world.run(&[]).await;
    controller.until_ready().await;
    (world, controller)
}

impl Controller {
    /// Creates a volume as a sidecar does: again, while the answer is one that passes.
    pub(crate) async fn create_patiently(&self, name: &str) -> String {
        let create = async |to: &Self| to.create(request(name, 64)).await;
        self.patiently("created", create).await.unwrap()
    }
}

#[tokio::test]
async fn a_disk_that_cns_has_lost_is_deleted() {
    let (world, controller) = started().await;
    let empty = controller.patiently("read", async |to: &Controller| to.capacity().await);
    let empty = empty.await.unwrap();
    let becomes = async |what: &str, is_so: &dyn Fn(i64) -> bool| {
        let seen = until(what, BOUND, || async {
            let now = controller.capacity().await?;
            let seen = format!("{now} bytes free");
            Ok(if is_so(now) { Wait::Done(()) } else { Wait::NotYet(seen) })
        });
        seen.await.unwrap();
    };
    let volume = controller.create_patiently("lost").await;
    // The inventory follows what happens at vCenter a moment later.
    becomes("the disk takes space", &|now| now < empty).await;
    world.vcenter.control().forget_record(&volume).await.unwrap();
    assert!(world.volumes().await.is_empty());
    controller.delete(&volume).await.unwrap();
    becomes("the disk is gone", &|now| now >= empty).await;
    controller.delete(&volume).await.unwrap();
}

#[tokio::test]
async fn a_disk_that_cns_has_lost_is_attached_grown_detached_and_deleted() {
    let (world, controller) = started().await;
    let control = world.vcenter.control();
    // The first one is also CNS's answer for a dozen other reasons.
    for fault in ["CnsFault", "CnsNotRegisteredFault"] {
        control.assume("NotRegisteredFault", json!(fault)).await.unwrap();
        let name = format!("lost-{fault}").to_lowercase();
        let volume = controller.create_patiently(&name).await;
        let lose = async || control.forget_record(&volume).await.unwrap();
        lose().await;
        controller.attach(&volume, NODES[0]).await.unwrap();
        lose().await;
        // It is attached, whatever CNS knows.
        controller.attach(&volume, NODES[0]).await.unwrap();
        assert!(world.volumes().await.is_empty());
        controller.expand(&volume, 128).await.unwrap();
        lose().await;
        // While old answers of CNS show it, the reason is taken for another one.
        let detach = async |to: &Controller| to.detach(&volume, NODES[0]).await;
        controller.patiently("detached", detach).await.unwrap();
        assert!(control.state().await.unwrap().attachments.is_empty());
        let known = world.volumes().await;
        assert_eq!(known, std::slice::from_ref(&volume));
        let state = control.state_as_json().await.unwrap();
        assert_eq!(state["volumes"][0]["name"], name.as_str(), "it is searched for by its name");
        lose().await;
        controller.delete(&volume).await.unwrap();
        let gone = controller.attach(&volume, NODES[0]).await.unwrap_err();
        assert_eq!(gone.code(), Code::NotFound, "{gone}");
    }
}

#[tokio::test]
async fn a_detach_of_a_lost_disk_that_queries_still_show_is_to_be_tried_again() {
    let (world, controller) = started().await;
    let control = world.vcenter.control();
    control.assume("NotRegisteredFault", json!("CnsFault")).await.unwrap();
    control.assume("StaleQueries", json!(true)).await.unwrap();
    let volume = controller.create_patiently("lost").await;
    controller.attach(&volume, NODES[0]).await.unwrap();
    controller.expand(&volume, 128).await.unwrap();
    control.forget_record(&volume).await.unwrap();
    // Two queries show it as it was before it grew.
    let refused = controller.detach(&volume, NODES[0]).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("may be out of date"), "{refused}");
    let detach = async |to: &Controller| to.detach(&volume, NODES[0]).await;
    controller.patiently("detached", detach).await.unwrap();
    assert!(control.state().await.unwrap().attachments.is_empty());
}

#[tokio::test]
async fn a_volume_that_does_not_exist_is_not_found_whatever_cns_answers() {
    let (world, controller) = started().await;
    let nothing = "00000000-5eed-4000-8000-000000000000";
    for answer in ["call", "NotFound", "CnsFault"] {
        world.vcenter.control().assume("UnknownVolume", json!(answer)).await.unwrap();
        let refused = controller.attach(nothing, NODES[0]).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound, "{answer}: {refused}");
        controller.detach(nothing, NODES[0]).await.unwrap();
        let refused = controller.expand(nothing, 64).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound, "{answer}: {refused}");
    }
}

#[tokio::test]
async fn a_restart_of_cns_during_a_creation_leaves_one_volume() {
    for work in ["done", "half", "none"] {
        let (world, controller) = started().await;
        let control = world.vcenter.control();
        let held = Fault { fault: None, at: Moment::Hold, ..Fault::next("CnsCreateVolume", "") };
        let rule = control.fail(&held).await.unwrap();
        let restart = async {
            world.until_struck(rule).await;
            control.restart_cns(200, work).await.unwrap();
        };
        let (volume, ()) = tokio::join!(controller.create_patiently("pvc-1"), restart);
        assert_eq!(world.volumes().await, [volume], "{work}: {}", controller.log());
    }
}

#[tokio::test]
async fn a_task_that_cannot_be_found_is_no_second_volume() {
    let (world, controller) = started().await;
    let gone = Fault { fault: None, at: Moment::Gone, ..Fault::next("CnsCreateVolume", "") };
    world.vcenter.control().fail(&gone).await.unwrap();
    let volume = controller.create_patiently("pvc-1").await;
    assert_eq!(world.volumes().await, [volume]);
}

#[tokio::test]
async fn a_session_that_ends_disturbs_nothing() {
    let (world, controller) = started().await;
    let control = world.vcenter.control();
    let volume = controller.create_patiently("pvc-1").await;
    control.expire_sessions().await.unwrap();
    let attach = async |to: &Controller| to.attach(&volume, NODES[0]).await;
    controller.patiently("attached", attach).await.unwrap();
    control.expire_sessions().await.unwrap();
    let second = controller.create_patiently("pvc-2").await;
    control.restart(500).await.unwrap();
    let detach = async |to: &Controller| to.detach(&volume, NODES[0]).await;
    controller.patiently("detached", detach).await.unwrap();
    assert_eq!(world.volumes().await, [volume, second]);
}

#[tokio::test]
async fn volumes_are_made_when_cns_answers_again() {
    let (world, controller) = started().await;
    let kind = HttpFaultKind::Status { status: 503 };
    let fault = HttpFault { path: "/vsanHealth".to_owned(), method: None, kind, count: 0 };
    let rule = world.vcenter.control().break_http(&fault).await.unwrap();
    let refused = controller.create(request("pvc-1", 64)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("503"), "{refused}");
    let nothing = "00000000-5eed-4000-8000-000000000000";
    let refused = controller.delete(nothing).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    // Whether the VM has the volume is not for CNS to say.
    controller.detach(nothing, NODES[0]).await.unwrap();
    world.vcenter.control().disarm_one(rule).await.unwrap();
    let volume = controller.create_patiently("pvc-1").await;
    assert_eq!(world.volumes().await, [volume]);
}

#[tokio::test]
async fn a_datastore_that_has_filled_up_is_passed_over() {
    let (world, controller) = started().await;
    let control = world.vcenter.control();
    // The emptiest one comes first. vCenter finds it full, and has not yet reported that.
    let first = controller.create_patiently("pvc-1").await;
    let full = Fault { at: Moment::Result, ..Fault::next("CnsCreateVolume", "NoDiskSpace") };
    control.fail(&full).await.unwrap();
    let second = controller.create(request("pvc-2", 64)).await.unwrap();
    let places = world.places().await;
    assert_ne!(places[&first], places[&second], "{places:?}");
    let record = world.record("pvc-2").await.unwrap();
    let operations = record["status"]["latestOperationDetails"].as_array().unwrap();
    assert_eq!(operations.len(), 2, "{record:#}");
    assert_eq!(operations[0]["taskStatus"], "Error", "{record:#}");
}

/// On most releases nothing tells a full datastore from any other failure of the disk layer.
#[tokio::test]
async fn a_datastore_that_fills_up_meanwhile_is_exhausted_by_its_free_space() {
    let (world, controller) = started().await;
    let control = world.vcenter.control();
    control.assume("OutOfSpaceFault", json!("VSLM task failed")).await.unwrap();
    control.assume("FullInPlacement", json!("no entry")).await.unwrap();
    control.assume("DiskFaultCause", json!(false)).await.unwrap();
    let on_one = |name: &str| {
        let mut request = request(name, 64);
        request.parameters.insert("datastores".to_owned(), "shared-1".to_owned());
        request
    };
    let held = Fault { fault: None, at: Moment::Hold, ..Fault::next("CnsCreateVolume", "") };
    let rule = control.fail(&held).await.unwrap();
    let fill_up = async {
        world.until_struck(rule).await;
        control.free_space("shared-1", 1 << 20).await.unwrap();
        control.release_tasks().await.unwrap();
    };
    let (refused, ()) = tokio::join!(controller.create(on_one("pvc-1")), fill_up);
    let refused = refused.unwrap_err();
    assert!(refused.message().contains("VSLM task failed"), "{refused}");
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");

    // With room on it the reason is unknown, and not made up.
    control.free_space("shared-1", 1 << 40).await.unwrap();
    until("the datastore has room", BOUND, || async {
        let failure = Fault { at: Moment::Result, ..Fault::next("CnsCreateVolume", "CnsFault") };
        control.fail(&failure).await?;
        let refused = controller.create(on_one("pvc-2")).await.unwrap_err();
        let seen = refused.to_string();
        // Until the inventory shows it, the driver calls nobody.
        let is_called = seen.contains("CnsFault");
        assert_eq!(refused.code() == Code::Unavailable, is_called, "{seen}");
        Ok(if is_called { Wait::Done(()) } else { Wait::NotYet(seen) })
    })
    .await
    .unwrap();
    assert!(world.volumes().await.is_empty());
}

#[tokio::test]
async fn datastores_that_were_not_tried_yet_come_before_those_that_failed() {
    let (world, controller) = started().await;
    let next = Fault::next("CnsCreateVolume", "NoDiskSpace");
    let full = Fault { at: Moment::Result, count: 3, ..next };
    world.vcenter.control().fail(&full).await.unwrap();
    let refused = controller.create(request("pvc-1", 64)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    controller.create(request("pvc-1", 64)).await.unwrap();
    let record = world.record("pvc-1").await.unwrap();
    let plan = record["metadata"]["annotations"]["csi.vsphere.vmware.com/create"].as_str();
    let plan: Value = serde_json::from_str(plan.unwrap()).unwrap();
    let failed = plan["failed"].as_array().unwrap();
    assert_eq!(failed.len(), 3, "{plan}");
    assert!(!failed.contains(&plan["datastore"]), "{plan}");
}

#[tokio::test]
async fn a_datastore_without_the_privilege_is_never_sent() {
    // The emptiest one, which would come first, and one whose URL is known.
    let [vsan, shared] = ["vsan-1", "shared-1"]
        .map(|name| format!("      - {{role: CNS-DATASTORE, on: /dc-1/datastore/{name}}}\n"));
    let world = World::start_with(|text| text.replace(&vsan, "").replace(&shared, "")).await;
    let control = world.vcenter.control();
    // On this choice one such datastore fails the whole call.
    control.assume("DatastorePrivilege", json!("call")).await.unwrap();
    let controller = world.run(&[]).await;
    controller.until_ready().await;
    for number in 0..4 {
        controller.create(request(&format!("pvc-{number}"), 64)).await.unwrap();
    }
    let mut only = request("pvc-9", 64);
    let url = "ds:///vmfs/volumes/5eed0001-00000001-0001-000000000001/";
    only.parameters = [("datastoreurl".to_owned(), url.to_owned())].into();
    let refused = controller.create(only).await.unwrap_err();
    assert!(refused.message().contains("lacks Datastore.FileManagement"), "{refused}");
    assert_eq!(world.volumes().await.len(), 4);
}

#[tokio::test]
async fn a_host_that_is_disconnected_hinders_no_other() {
    let (world, controller) = started().await;
    let control = world.vcenter.control();
    let volume = controller.create_patiently("pvc-1").await;
    controller.attach(&volume, NODES[1]).await.unwrap();
    control.connect_host("esx-2.lab.example", false).await.unwrap();
    let other = controller.create_patiently("pvc-2").await;
    controller.attach(&other, NODES[0]).await.unwrap();
    controller.detach(&other, NODES[0]).await.unwrap();
    // What cannot be carried out is refused, and never reported as done.
    let detached = controller.detach(&volume, NODES[1]).await;
    let has = world.vcenter.control().state().await.unwrap().attachments;
    assert_eq!(detached.is_ok(), has.is_empty(), "{detached:?}, {has:?}");
    control.connect_host("esx-2.lab.example", true).await.unwrap();
    let detach = async |to: &Controller| to.detach(&volume, NODES[1]).await;
    controller.patiently("detached", detach).await.unwrap();
    assert!(control.state().await.unwrap().attachments.is_empty());
}

#[tokio::test]
async fn two_vms_that_run_with_one_uuid_are_told_apart_by_nobody() {
    let (world, controller) = started().await;
    let control = world.vcenter.control();
    let volume = controller.create_patiently("pvc-1").await;
    let clone = CloneSpec { keep_uuid: true, powered_on: true, ..CloneSpec::default() };
    control.clone_vm("node-1", "twin", clone).await.unwrap();
    let refused = until("the twin is seen", BOUND, || async {
        Ok(match controller.attach(&volume, NODES[0]).await {
            Err(status) => Wait::Done(status),
            Ok(_) => Wait::NotYet("attached".to_owned()),
        })
    })
    .await
    .unwrap();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains("node-1 and twin"), "{refused}");
    assert!(refused.message().contains("uuid.bios"), "{refused}");
    // The other node is not concerned.
    let other = controller.create_patiently("pvc-2").await;
    controller.attach(&other, NODES[1]).await.unwrap();
    let listed = controller.list().await.unwrap();
    assert_eq!(listed[&other], [NODES[1]], "{listed:?}");
    // A copy that is off, such as a backup tool restores, is not the node.
    control.power("twin", Power::Off).await.unwrap();
    let attach = async |to: &Controller| {
        let done = to.attach(&volume, NODES[0]).await;
        done.map_err(|status| Status::unavailable(status.message()))
    };
    controller.patiently("attached to the VM that runs", attach).await.unwrap();
}

#[tokio::test]
async fn a_vm_without_a_free_place_is_exhausted() {
    for release in ["7.0U3", "8.0U3"] {
        let narrow = format!("release: {release}\nassumptions: {{WidePVSCSI: false}}");
        let world = World::start_with(|usual| usual.replace("release: 8.0U3", &narrow)).await;
        let controller = world.run(&[]).await;
        controller.until_ready().await;
        let mut refused = None;
        for number in 0..61 {
            let volume = controller.create(request(&format!("pvc-{number}"), 1)).await.unwrap();
            if let Err(status) = controller.attach(&volume, NODES[0]).await {
                refused = Some((number, status));
                break;
            }
        }
        let (number, status) = refused.unwrap();
        assert_eq!(number, 59, "{release}: {status}");
        assert_eq!(status.code(), Code::ResourceExhausted, "{release}: {status}");
    }
}

#[tokio::test]
async fn two_controllers_make_one_volume_of_one_name() {
    let world = World::start().await;
    let (one, two) = tokio::join!(
        world.serve(Start::controller("one.sock")),
        world.serve(Start::controller("two.sock"))
    );
    tokio::join!(one.until_ready(), two.until_ready());
    for number in 0..8 {
        let name = format!("pvc-{number}");
        let (a, b) = tokio::join!(one.create_patiently(&name), two.create_patiently(&name));
        assert_eq!(a, b);
    }
    assert_eq!(world.volumes().await.len(), 8);
}
