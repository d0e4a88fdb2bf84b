//! What part of a vCenter, or of the configuration, does not work: what does not need it goes on.

use csi::manifests::NAMESPACE;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::DeleteParams};
use lab::{
    Wait, until,
    vcenter::{Fault, Moment},
};
use serde_json::json;
use tonic::Code;

use crate::{
    gate::Gate,
    world::{BOUND, Controller, NODES, Start, World, request},
};

const CLUSTER_ID: &str = "vsphere-csi-cluster-id";

#[tokio::test]
async fn privileges_that_cannot_be_read_stop_only_new_volumes() {
    let world = World::start().await;
    let first = world.run(&[]).await;
    first.until_ready().await;
    let volume = first.create(request("pvc-1", 64)).await.unwrap();
    first.kill();
    let refused = Fault::next("HasPrivilegeOnEntities", "SystemError");
    let refused = Fault { count: 1_000_000, ..refused };
    world.vcenter.control().fail(&refused).await.unwrap();
    let controller = world.run(&[]).await;
    let attach = async |to: &Controller| to.attach(&volume, NODES[0]).await;
    controller.patiently("attached", attach).await.unwrap();
    controller.detach(&volume, NODES[0]).await.unwrap();
    let refused = controller.create(request("pvc-2", 64)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("privileges on its datastores"), "{refused}");
    world.vcenter.control().disarm().await.unwrap();
    let create = async |to: &Controller| to.create(request("pvc-2", 64)).await;
    controller.patiently("created", create).await.unwrap();
}

#[tokio::test]
async fn a_mistyped_password_in_the_file_ends_no_session_that_works() {
    let world = World::start().await;
    let controller = world.run(&[]).await;
    controller.until_ready().await;
    let volume = controller.create(request("pvc-1", 64)).await.unwrap();
    let control = world.vcenter.control();
    let (right, user) = (world.configuration(""), "csi@vsphere.local");
    world.write("csi-vsphere.conf", &right.replace("Lab-csi-1!", "mistyped"));
    until("the log has the reason", BOUND, || async {
        let log = controller.log();
        let refused = log.contains("credentials not replaced");
        Ok(if refused { Wait::Done(()) } else { Wait::NotYet(log) })
    })
    .await
    .unwrap();
    controller.attach(&volume, NODES[0]).await.unwrap();
    controller.create(request("pvc-2", 64)).await.unwrap();
    // The next one is taken without a gap.
    control.set_password(user, "Lab-csi-2!").await.unwrap();
    world.write("csi-vsphere.conf", &right.replace("Lab-csi-1!", "Lab-csi-2!"));
    until("the credentials are replaced", BOUND, || async {
        controller.create(request("pvc-2", 64)).await?;
        let log = controller.log();
        let replaced = log.contains("credentials replaced");
        Ok(if replaced { Wait::Done(()) } else { Wait::NotYet(log) })
    })
    .await
    .unwrap();
    controller.detach(&volume, NODES[0]).await.unwrap();
    assert!(!controller.log().contains("configuration reloaded"), "{}", controller.log());
}

#[tokio::test]
async fn a_cluster_id_that_is_deleted_as_the_message_says_is_no_obstacle_any_more() {
    let world = World::start().await;
    let map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CLUSTER_ID, "namespace": NAMESPACE},
        "data": {"clusterID": "another"},
    });
    world.plane.apply(&[map]).unwrap();
    let controller = world.run(&[]).await;
    until("the log has the reason", BOUND, || async {
        let log = controller.log();
        let refused = log.contains("in the ConfigMap");
        Ok(if refused { Wait::Done(()) } else { Wait::NotYet(log) })
    })
    .await
    .unwrap();
    let refused = controller.create(request("pvc-1", 64)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    let maps: Api<ConfigMap> = Api::namespaced(world.plane.client(), NAMESPACE);
    maps.delete(CLUSTER_ID, &DeleteParams::default()).await.unwrap();
    let create = async |to: &Controller| to.create(request("pvc-1", 64)).await;
    controller.patiently("created", create).await.unwrap();
}

#[tokio::test]
async fn a_task_is_waited_for_and_recorded_although_the_api_server_is_away_for_a_moment() {
    let world = World::start().await;
    let gate = Gate::start(&world).await;
    let kubeconfig = Some(gate.kubeconfig.clone());
    let controller = world.serve(Start { kubeconfig, ..Start::controller("csi.sock") }).await;
    controller.until_ready().await;
    let control = world.vcenter.control();
    let held = Fault { fault: None, at: Moment::Hold, ..Fault::next("CnsCreateVolume", "") };
    control.fail(&held).await.unwrap();
    // The record is made before the call; what follows it has the task.
    gate.refuse(1..3);
    let recorded = async {
        until("the task is recorded", BOUND, || async {
            let record = world.record("pvc-1").await.unwrap_or_default();
            let operations = record["status"]["latestOperationDetails"].as_array();
            let task = operations.and_then(|all| all.last()?["taskId"].as_str());
            let is_recorded = task.is_some_and(|task| !task.is_empty());
            Ok(if is_recorded { Wait::Done(()) } else { Wait::NotYet(record.to_string()) })
        })
        .await
        .unwrap();
        control.release_tasks().await.unwrap();
    };
    let (created, ()) = tokio::join!(controller.create(request("pvc-1", 64)), recorded);
    assert_eq!(world.volumes().await, [created.unwrap()]);
}
