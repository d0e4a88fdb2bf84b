//! What must not happen to data: snapshots that go with their volume, calls that nobody waits for any more, volumes that
//! read as detached because nothing could be read.

use std::collections::BTreeMap;

use futures::future::join_all;
use kube::api::DeleteParams;
use lab::{
    Wait, until,
    vcenter::{Fault, Moment},
};
use serde_json::json;
use tonic::Code;

use crate::{
    situations::started,
    world::{BOUND, Controller, NODES, request},
};

/// Calls for one VM that the driver sends as they come before it waits for the first ones.
const ON_THEIR_WAY: usize = 5;

#[tokio::test]
async fn a_volume_with_snapshots_is_kept_even_where_vcenter_would_delete_them() {
    let (world, controller) = started().await;
    let control = world.vcenter.control();
    control.assume("DeleteWithSnapshots", json!("success")).await.unwrap();
    let volume = controller.create_patiently("pvc-1").await;
    world.vcenter.cnsctl(&["snapshot", &volume]).unwrap();
    let refused = controller.delete(&volume).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains("it has the snapshots "), "{refused}");
    assert_eq!(world.volumes().await, std::slice::from_ref(&volume));
    // What CNS has lost may have snapshots, too.
    control.forget_record(&volume).await.unwrap();
    controller.delete(&volume).await.unwrap_err();
    assert_eq!(world.volumes().await, [volume]);
}

#[tokio::test]
async fn snapshots_that_cannot_be_read_keep_the_volume() {
    let (world, controller) = started().await;
    let volume = controller.create_patiently("pvc-1").await;
    world.vcenter.control().fail(&Fault::next("CnsQuerySnapshots", "CnsFault")).await.unwrap();
    let refused = controller.delete(&volume).await.unwrap_err();
    assert!(refused.message().contains("its snapshots could not be read"), "{refused}");
    assert_eq!(world.volumes().await, std::slice::from_ref(&volume));
    controller.delete(&volume).await.unwrap();
}

#[tokio::test]
async fn a_volume_whose_datastore_cannot_be_reached_is_not_reported_as_deleted() {
    let (world, controller) = started().await;
    let control = world.vcenter.control();
    for answer in ["InvalidDatastore", "SystemError", "shown"] {
        control.assume("DiskOfInaccessibleDatastore", json!(answer)).await.unwrap();
        let name = format!("pvc-{answer}").to_lowercase();
        let volume = controller.create_patiently(&name).await;
        let datastore = world.places().await[&volume].clone();
        control.reach_datastore(&datastore, false).await.unwrap();
        let refused = controller.delete(&volume).await.unwrap_err();
        assert_ne!(refused.code(), Code::NotFound, "{answer}: {refused}");
        assert_eq!(world.volumes().await, std::slice::from_ref(&volume), "{answer}");
        // The request may be repeated: its volume is neither gone nor to be made again.
        let again = controller.create(request(&name, 64)).await;
        assert!(again.is_err() || again.as_ref().is_ok_and(|made| *made == volume), "{again:?}");
        assert_eq!(world.volumes().await, std::slice::from_ref(&volume), "{answer}");
        control.forget_record(&volume).await.unwrap();
        let refused = controller.delete(&volume).await.unwrap_err();
        assert_ne!(refused.code(), Code::NotFound, "{answer}, without a record: {refused}");
        control.reach_datastore(&datastore, true).await.unwrap();
        let delete = async |to: &Controller| to.delete(&volume).await;
        controller.patiently("deleted", delete).await.unwrap();
        // Made anew, which shows that the disk is gone: its name is free.
        let other = controller.create_patiently(&name).await;
        assert_ne!(other, volume, "{answer}");
        controller.delete(&other).await.unwrap();
        assert!(world.volumes().await.is_empty(), "{answer}");
    }
}

/// A cluster that was restored from a backup of another one asks for volumes of the same names, at the same vCenter.
#[tokio::test]
async fn the_disk_of_another_cluster_is_not_adopted() {
    let (world, controller) = started().await;
    let control = world.vcenter.control();
    let mut theirs = BTreeMap::new();
    // What its disk does not show, CNS does.
    for (number, (key, is_lost)) in (1..).zip([
        ("cns.containerCluster.clusterId", true),
        ("cns.clusterID", true),
        ("cns.containerCluster.clusterId", false),
        ("absent", false),
    ]) {
        control.assume("DiskMetadata", json!(key)).await.unwrap();
        let name = format!("pvc-5eed0000-5eed-4000-8000-00000000000{number}");
        let volume = controller.create_patiently(&name).await;
        world.records().delete(&name, &DeleteParams::default()).await.unwrap();
        if is_lost {
            control.forget_record(&volume).await.unwrap();
        }
        theirs.insert(name, volume);
    }
    controller.kill();
    let restored = world.configuration("").replace("\"lab\"", "\"restored\"");
    world.write("csi-vsphere.conf", &restored);
    let controller = world.run(&[]).await;
    controller.until_ready().await;
    for (name, volume) in &theirs {
        // After a failure the volume is searched for.
        let failure = Fault { at: Moment::Result, ..Fault::next("CnsCreateVolume", "CnsFault") };
        control.fail(&failure).await.unwrap();
        let own = controller.create_patiently(name).await;
        assert_ne!(own, *volume, "{name}: {}", controller.log());
        assert_eq!(controller.create_patiently(name).await, own);
        controller.delete(&own).await.unwrap();
    }
}

#[tokio::test]
async fn a_call_that_waits_for_its_turn_is_never_sent_after_its_caller_gave_up() {
    let (world, controller) = started().await;
    let control = world.vcenter.control();
    let names: Vec<String> = (0..=ON_THEIR_WAY).map(|number| format!("pvc-{number}")).collect();
    let created = names.iter().map(|name| controller.create(request(name, 64)));
    let volumes: Vec<String> = join_all(created).await.into_iter().map(Result::unwrap).collect();
    let (last, first) = volumes.split_last().unwrap();
    for volume in &volumes {
        controller.attach(volume, NODES[0]).await.unwrap();
    }
    let count = u32::try_from(ON_THEIR_WAY).unwrap();
    let held = Fault { fault: None, at: Moment::Hold, ..Fault::next("CnsDetachVolume", "") };
    let rule = control.fail(&Fault { count, ..held }).await.unwrap();
    let held = join_all(first.iter().map(|volume| controller.detach(volume, NODES[0])));
    // Another call for the volume is refused while one waits, and has another answer otherwise.
    let until_held = async |held: bool| {
        until(&format!("the volume is held: {held}"), BOUND, || async {
            let other = controller.attach(last, NODES[1]).await.unwrap_err();
            let is_held = other.code() == Code::Aborted;
            Ok(if is_held == held { Wait::Done(()) } else { Wait::NotYet(other.to_string()) })
        })
        .await
        .unwrap();
    };
    let late = async {
        world.until_struck(rule).await;
        let waits = async {
            loop {
                // The call that asks whether the volume is held may itself hold it when this one comes.
                let refused = controller.detach(last, NODES[0]).await.unwrap_err();
                assert_eq!(refused.code(), Code::Aborted, "{refused}");
            }
        };
        tokio::select! {
            () = waits => {}
            () = until_held(true) => {}
        }
        // Long before those that were sent have ended.
        until_held(false).await;
        control.release_tasks().await.unwrap();
    };
    let (ended, ()) = tokio::join!(held, late);
    ended.into_iter().for_each(|detached| detached.unwrap());
    let left = control.state().await.unwrap().attachments;
    assert_eq!(left.len(), 1, "the call was sent although nobody waited for it: {left:?}");
}

#[tokio::test]
async fn volumes_are_not_listed_as_detached_while_the_inventory_cannot_be_read() {
    let (world, controller) = started().await;
    let control = world.vcenter.control();
    let volume = controller.create_patiently("pvc-1").await;
    controller.attach(&volume, NODES[0]).await.unwrap();
    let refused = Fault::next("WaitForUpdatesEx", "SystemError");
    control.fail(&Fault { count: 1_000_000, ..refused }).await.unwrap();
    controller.kill();
    let restarted = world.run(&[]).await;
    // From before the login until the driver has noticed that it cannot watch.
    until("the watch has failed", BOUND, || async {
        let refused = restarted.list().await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
        let noticed = refused.message().contains("WaitForUpdatesEx");
        Ok(if noticed { Wait::Done(()) } else { Wait::NotYet(refused.to_string()) })
    })
    .await
    .unwrap();
    control.disarm().await.unwrap();
    let listed = restarted.patiently("listed", async |to| to.list().await).await.unwrap();
    assert!(!listed[&volume].is_empty(), "{listed:?}");
}
