//! The attach controller: VolumeAttachments become attached disks, and go away as detached ones.

use std::collections::BTreeSet;

use csi::manifests::{self, CONTROLLER, NAMESPACE, Parameters};
use k8s_openapi::api::{coordination::v1::Lease, storage::v1::VolumeAttachment};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use lab::{
    Wait, until,
    vcenter::{Fault, Moment, Power},
};
use serde_json::json;

use crate::{
    attachments::{FINALIZER, attach_error, detach_error, status},
    world::{BOUND, Controller, NODES, Start, World, request},
};

pub(crate) const ATTACH: &[&str] = &["--attach"];
pub(crate) const LEASE: &str = "external-attacher-leader-csi-vsphere-vmware-com";

/// The holder of the lease.
pub(crate) async fn until_led(world: &World, not_by: &str) -> String {
    let leases: Api<Lease> = Api::namespaced(world.plane.client(), NAMESPACE);
    let waited = until("lease held", 2 * BOUND, || async {
        let spec = leases.get_opt(LEASE).await?.and_then(|lease| lease.spec).unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        let led = !holder.is_empty() && holder != not_by;
        Ok(if led { Wait::Done(holder) } else { Wait::NotYet(holder) })
    });
    waited.await.unwrap()
}

#[tokio::test]
async fn many_volumes_are_attached_and_detached_with_the_rights_of_the_account_and_few_writes() {
    const MANY: usize = 20;
    let world = World::start().await;
    let made = manifests::manifests(&Parameters::default()).unwrap();
    world.plane.apply(&made.values().unwrap()).unwrap();
    let kubeconfig = world.plane.kubeconfig_of(NAMESPACE, CONTROLLER).await.unwrap();
    let start = Start::controller("csi.sock");
    let start = Start { flags: ATTACH, kubeconfig: Some(kubeconfig), ..start };
    let controller = world.serve(start).await;
    let names: Vec<String> = (0..MANY).map(|number| format!("pv-{number}")).collect();
    let mut handles = Vec::new();
    for name in &names {
        handles.push(world.provision(&controller, name).await);
    }
    let nodes = || ["node-1", "node-2"].into_iter().cycle();
    for (name, node) in names.iter().zip(nodes()) {
        world.attach(name, node).await;
    }
    let mut disks = BTreeSet::new();
    for ((name, handle), node) in names.iter().zip(&handles).zip(nodes()) {
        let disk = world.until_attached(name).await;
        disks.insert((node.to_owned(), handle.clone(), disk));
    }
    assert_eq!(world.disks().await, disks);
    let one = world.attachments().get("pv-0").await.unwrap();
    assert_eq!(one.metadata.finalizers.as_deref(), Some(&[FINALIZER.to_owned()][..]));
    let annotations = one.metadata.annotations.unwrap();
    assert_eq!(annotations["csi.alpha.kubernetes.io/node-id"], NODES[0]);
    assert_eq!(annotations["csi.vsphere.vmware.com/volume-handle"], handles[0]);
    assert_eq!(world.until_limited("node-1").await, world.until_limited("node-2").await);

    for name in &names {
        world.detach(name).await;
    }
    for name in &names {
        world.until_gone(name).await;
    }
    assert!(world.disks().await.is_empty());
    let requests = world.plane.audit().unwrap();
    let refused: Vec<_> = requests.iter().filter(|one| one.code == 403).collect();
    assert!(refused.is_empty(), "{refused:?}");
    let patches = |resource: &str| {
        requests.iter().filter(|one| one.verb == "patch" && one.resource == resource).count()
    };
    // The finalizer before, the status after, and the finalizer again at the end.
    assert_eq!(patches("volumeattachments"), 2 * MANY);
    assert_eq!(patches("volumeattachments/status"), MANY);
    assert_eq!((patches("csinodes"), patches("persistentvolumes")), (2, 0));
}

#[tokio::test]
async fn a_controller_that_is_killed_in_the_middle_of_an_attach_or_a_detach_harms_nothing() {
    let world = World::start().await;
    let first = world.run(ATTACH).await;
    let handle = world.provision(&first, "pv-1").await;
    world.vcenter.control().delay("CnsAttachVolume", 3000, 0).await.unwrap();
    world.attach("pv-1", "node-1").await;
    let prepared = |one: &VolumeAttachment| {
        one.metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty())
    };
    world.until_attachment("pv-1", "prepared", prepared).await;
    first.kill();
    let second = world.run(ATTACH).await;
    let disk = world.until_attached("pv-1").await;
    world.vcenter.control().disarm().await.unwrap();
    let expected = [("node-1".to_owned(), handle, disk)].into();
    assert_eq!(world.disks().await, expected);

    world.vcenter.control().delay("CnsDetachVolume", 3000, 0).await.unwrap();
    world.detach("pv-1").await;
    let calls = async || world.vcenter.control().calls().await.unwrap().to_string();
    let asked = until("detach begun", BOUND, || async {
        let calls = calls().await;
        Ok(if calls.contains("CnsDetachVolume") { Wait::Done(()) } else { Wait::NotYet(calls) })
    });
    asked.await.unwrap();
    second.kill();
    let _third = world.run(ATTACH).await;
    world.until_gone("pv-1").await;
    assert!(world.disks().await.is_empty());
}

#[tokio::test]
async fn of_two_controllers_one_works_and_the_other_takes_over() {
    let world = World::start().await;
    let replica = |socket| Start { flags: ATTACH, ..Start::controller(socket) };
    let first = world.serve(replica("first.sock")).await;
    let leader = until_led(&world, "").await;
    let second = world.serve(replica("second.sock")).await;
    for name in ["pv-1", "pv-2"] {
        world.provision(&second, name).await;
    }
    world.attach("pv-1", "node-1").await;
    world.until_attached("pv-1").await;
    let before = world.attachments().get("pv-1").await.unwrap();
    first.kill();
    assert_ne!(until_led(&world, &leader).await, leader);
    world.attach("pv-2", "node-1").await;
    world.until_attached("pv-2").await;
    assert_eq!(world.attachments().get("pv-1").await.unwrap(), before, "nothing is written again");
    assert_eq!(world.disks().await.len(), 2);
}

#[tokio::test]
async fn what_the_stock_attacher_attached_is_taken_over_and_released() {
    let world = World::start().await;
    let plain = world.run(&[]).await;
    let create = async |to: &Controller| to.create(request("a", 10)).await;
    let handle = plain.patiently("volume created", create).await.unwrap();
    let disk = plain.attach(&handle, NODES[0]).await.unwrap();
    world.persistent_volume("pv-1", &handle, &[FINALIZER]).await;
    let annotations = json!({"csi.alpha.kubernetes.io/node-id": NODES[0]});
    let metadata = json!({"name": "va-1", "finalizers": [FINALIZER], "annotations": annotations});
    world.attach_with("pv-1", "node-1", metadata).await;
    let metadata = json!({"type": "vSphere CNS Block Volume", "diskUUID": disk});
    let stock = json!({"status": {"attached": true, "attachmentMetadata": metadata}});
    let (params, stock) = (PatchParams::default(), Patch::Merge(stock));
    let before = world.attachments().patch_status("va-1", &params, &stock).await.unwrap();
    plain.kill();

    let controller = world.run(ATTACH).await;
    world.provision(&controller, "pv-2").await;
    world.attach("pv-2", "node-1").await;
    world.until_attached("pv-2").await;
    assert_eq!(world.attachments().get("va-1").await.unwrap(), before, "what is right stays");
    world.persistent_volumes().delete("pv-1", &DeleteParams::default()).await.unwrap();
    let held = world.persistent_volumes().get("pv-1").await.unwrap().metadata.finalizers.unwrap();
    assert!(held.contains(&FINALIZER.to_owned()), "{held:?}");
    world.detach("va-1").await;
    world.until_gone("va-1").await;
    let released = until("PersistentVolume released", BOUND, || async {
        let volume = world.persistent_volumes().get("pv-1").await?;
        let left = volume.metadata.finalizers.unwrap_or_default();
        // kube-controller-manager, which does not run here, removes its own.
        let done = left == ["kubernetes.io/pv-protection"];
        Ok(if done { Wait::Done(()) } else { Wait::NotYet(format!("{left:?}")) })
    });
    released.await.unwrap();
    assert!(world.disks().await.iter().all(|(_, volume, _)| *volume != handle));
}

#[tokio::test]
async fn a_volume_in_use_is_detached_only_when_its_node_lets_go_or_is_known_to_be_down() {
    let world = World::start().await;
    // A Node for each way, two of them on each VM: what ends one wait must not end another.
    world.register("node-3", NODES[1]);
    world.register("node-4", NODES[0]);
    let controller = world.run(ATTACH).await;
    for (number, node) in (0..).zip(["node-1", "node-2", "node-3", "node-4"]) {
        let name = format!("pv-{number}");
        let handle = world.provision(&controller, &name).await;
        world.node(node, &[&handle]).await;
        world.attach(&name, node).await;
        world.until_attached(&name).await;
        world.detach(&name).await;
        let error = world.until_error(&name, detach_error, |_| true).await;
        assert_eq!(error.error_code, Some(9));
        assert!(error.message.unwrap().contains("still reports it as in use"));
        assert!(status(&world.attachments().get(&name).await.unwrap()).attached);
        assert_eq!(world.disks().await.len(), 1);
        match number {
            0 => world.node(node, &[]).await,
            1 => {
                let key = "node.kubernetes.io/out-of-service";
                let taint = json!({"key": key, "value": "nodeshutdown", "effect": "NoExecute"});
                let patch = Patch::Merge(json!({"spec": {"taints": [taint]}}));
                world.nodes().patch(node, &PatchParams::default(), &patch).await.unwrap();
            }
            2 => drop(world.nodes().delete(node, &DeleteParams::default()).await.unwrap()),
            _ => world.vcenter.control().power("node-1", Power::Off).await.unwrap(),
        }
        world.until_gone(&name).await;
        assert!(world.disks().await.is_empty());
    }
}

#[tokio::test]
async fn a_disk_that_vcenter_lost_is_attached_again_at_the_start() {
    let world = World::start().await;
    let first = world.run(ATTACH).await;
    let handle = world.provision(&first, "pv-1").await;
    world.attach("pv-1", "node-1").await;
    world.until_attached("pv-1").await;
    first.kill();
    let plain = world.run(&[]).await;
    let detach = async |to: &Controller| to.detach(&handle, NODES[0]).await;
    plain.patiently("detached behind our back", detach).await.unwrap();
    assert!(world.disks().await.is_empty());
    plain.kill();
    let _second = world.run(ATTACH).await;
    let again = until("attached again", 2 * BOUND, || async {
        let disks = world.disks().await;
        Ok(if disks.len() == 1 { Wait::Done(disks) } else { Wait::NotYet(format!("{disks:?}")) })
    });
    let (_, _, disk) = again.await.unwrap().pop_first().unwrap();
    let shows = |one: &VolumeAttachment| {
        let metadata = status(one).attachment_metadata.unwrap_or_default();
        metadata.get("diskUUID") == Some(&disk)
    };
    world.until_attachment("pv-1", "with its disk", shows).await;
}

#[tokio::test]
async fn a_refused_attach_says_why_and_is_tried_until_it_succeeds() {
    let world = World::start().await;
    let controller = world.run(ATTACH).await;
    for name in ["pv-1", "pv-2", "pv-3"] {
        world.provision(&controller, name).await;
    }
    world.attach_with("pv-1", "node-1", json!({"name": "there"})).await;
    world.until_attached("there").await;
    world.attach_with("pv-1", "node-2", json!({"name": "elsewhere"})).await;
    let error = world.until_error("elsewhere", attach_error, |_| true).await;
    assert_eq!(error.error_code, Some(9));
    assert!(error.message.as_ref().unwrap().contains("VM node-1 (node node-1)"), "{error:?}");
    world.detach("there").await;
    world.until_attached("elsewhere").await;

    let full = Fault {
        at: Moment::Result,
        count: 1000,
        ..Fault::next("CnsAttachVolume", "CnsMissingControllerFault")
    };
    world.vcenter.control().fail(&full).await.unwrap();
    world.attach("pv-2", "node-1").await;
    let error = world.until_error("pv-2", attach_error, |_| true).await;
    assert_eq!(error.error_code, Some(8), "{error:?}");
    world.vcenter.control().disarm().await.unwrap();
    world.until_attached("pv-2").await;

    let away = world.attachments();
    world.attach("pv-3", "node-9").await;
    let error = world.until_error("pv-3", attach_error, |_| true).await;
    assert!(error.message.as_ref().unwrap().contains("CSINode node-9"), "{error:?}");
    away.delete("pv-3", &DeleteParams::default()).await.unwrap();
    world.until_gone("pv-3").await;
}

#[tokio::test]
async fn what_was_asked_for_while_vcenter_was_down_is_done_when_it_is_back() {
    let world = World::start().await;
    let controller = world.run(ATTACH).await;
    for name in ["pv-1", "pv-2"] {
        world.provision(&controller, name).await;
    }
    world.attach("pv-1", "node-1").await;
    world.until_attached("pv-1").await;
    world.vcenter.control().restart(10_000).await.unwrap();
    world.detach("pv-1").await;
    world.attach("pv-2", "node-1").await;
    world.until_error("pv-2", attach_error, |error| error.error_code == Some(14)).await;
    world.until_attached("pv-2").await;
    world.until_gone("pv-1").await;
    assert_eq!(world.disks().await.len(), 1);
}
