//! What must not happen to data: snapshots that go with their volume, calls that nobody waits for any more, volumes that
//! read as detached because nothing could be read.

use futures::future::join_all;
use lab::{
    Wait, until,
    vcenter::{Fault, Moment},
};
use serde_json::json;
use tonic::Code;

use crate::{
    situations::started,
    world::{BOUND, NODES, request},
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
    for _ in 0..20 {
        if let Ok(listed) = restarted.list().await {
            assert!(!listed[&volume].is_empty(), "{listed:?}");
        }
    }
    let refused = restarted.list().await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    control.disarm().await.unwrap();
    let listed = restarted.patiently("listed", async |to| to.list().await).await.unwrap();
    assert!(!listed[&volume].is_empty(), "{listed:?}");
}
