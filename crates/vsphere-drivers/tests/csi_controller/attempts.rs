//! Attempts to create a volume that failed: what may come of them later, and what binds the next request.

use kube::api::{Patch, PatchParams};
use lab::vcenter::{Fault, Moment};
use serde_json::{Value, json};
use tonic::Code;

use crate::{
    situations::started,
    world::{Controller, World, request},
};

const PLAN: &str = "csi.vsphere.vmware.com/create";
const UNDER_WAY: &str = "csi.vsphere.vmware.com/under-way";

impl World {
    /// The ids of all volumes of this name.
    async fn called(&self, name: &str) -> Vec<String> {
        let state = self.vcenter.control().state_as_json().await.unwrap();
        let volumes = state["volumes"].as_array().unwrap().iter();
        let named = volumes.filter(|one| one["name"] == name);
        named.map(|one| one["id"].as_str().unwrap().to_owned()).collect()
    }

    async fn creates(&self) -> u64 {
        let counted = self.vcenter.control().calls().await.unwrap();
        let calls = counted["calls"].as_array().unwrap().iter();
        let creates = calls.filter(|call| call["method"] == "CnsCreateVolume");
        creates.map(|call| call["count"].as_u64().unwrap()).sum()
    }
}

/// A controller for which what was begun is not settled while a test runs.
pub(crate) async fn started_patient() -> (World, Controller) {
    let world = World::start().await;
    let controller = world.run(&["--settle=3600"]).await;
    controller.until_ready().await;
    (world, controller)
}

fn annotation(record: &Value, key: &str) -> String {
    record["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_fault_that_does_not_prove_absence_leads_to_no_other_datastore() {
    let (world, controller) = started_patient().await;
    let control = world.vcenter.control();
    for fault in ["Timedout", "SystemError", "HostCommunication", "CnsFault"] {
        let name = format!("pvc-{}", fault.to_lowercase());
        let late = Fault { at: Moment::ResultLate, ..Fault::next("CnsCreateVolume", fault) };
        control.fail(&late).await.unwrap();
        let before = world.creates().await;
        let refused = controller.create(request(&name, 64)).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{fault}: {refused}");
        assert_eq!(world.creates().await - before, 1, "{fault}: {refused}");
        // vCenter makes the volume after all.
        control.release_tasks().await.unwrap();
        let volume = controller.create_patiently(&name).await;
        assert_eq!(world.called(&name).await, [volume], "{fault}");
    }
}

#[tokio::test]
async fn after_a_fault_without_a_reason_the_next_datastore_is_tried_when_absence_is_proven() {
    let (world, controller) = started_patient().await;
    let control = world.vcenter.control();
    let usual = controller.create_patiently("usual").await;
    let failure = Fault { at: Moment::Result, ..Fault::next("CnsCreateVolume", "CnsFault") };
    control.fail(&failure).await.unwrap();
    let refused = controller.create(request("pvc-1", 64)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    let refused = controller.create(request("pvc-1", 64)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted, "{refused}");
    assert!(refused.message().contains("CnsFault"), "the cause is shown: {refused}");
    // For another one the time for late work is over soon.
    controller.kill();
    let controller = world.run(&[]).await;
    let volume = controller.create_patiently("pvc-1").await;
    let places = world.places().await;
    assert_ne!(places[&volume], places[&usual], "{places:?}");
    assert_eq!(world.called("pvc-1").await, [volume]);
}

#[tokio::test]
async fn a_volume_of_another_class_is_refused_with_what_differs_for_as_long_as_it_is_requested() {
    let (world, controller) = started().await;
    let control = world.vcenter.control();
    let of_policy = |name: &str| {
        let mut request = request("pvc-1", 64);
        request.parameters = [("storagepolicyname".to_owned(), name.to_owned())].into();
        request
    };
    // The first class's attempt makes the volume, and nobody learns of it.
    let lost = Fault { fault: None, at: Moment::Gone, ..Fault::next("CnsCreateVolume", "") };
    control.fail(&lost).await.unwrap();
    controller.create(of_policy("gold")).await.unwrap_err();
    let made = world.called("pvc-1").await;
    for other in [of_policy("shared"), request("pvc-1", 64)] {
        let refused = controller.create(other.clone()).await.unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
        let text = refused.message();
        assert!(text.contains("storage policy \"gold\"") && text.contains(&made[0]), "{text}");
        assert!(text.contains("StorageClass") && text.contains("delete the claim"), "{text}");
        // However long ago the attempt was, its record is kept while such requests come.
        let old = json!({"metadata": {"annotations": {UNDER_WAY: "2026-01-01T00:00:00Z"}}});
        let old = Patch::Merge(old);
        world.records().patch("pvc-1", &PatchParams::default(), &old).await.unwrap();
        controller.create(other).await.unwrap_err();
        let record = world.record("pvc-1").await.unwrap();
        assert!(annotation(&record, UNDER_WAY).as_str() > "2026-01-02", "{record:#}");
        assert!(annotation(&record, PLAN).contains("gold"), "{record:#}");
        assert_eq!(record["status"]["volumeID"], made[0].as_str(), "{record:#}");
    }
    let again = async |to: &Controller| to.create(of_policy("gold")).await;
    assert_eq!(controller.patiently("adopted", again).await.unwrap(), made[0]);
    assert_eq!(world.called("pvc-1").await, made);
}
