//! What the Go driver began, this driver ends: its records are in the API before the controller starts.

use jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use lab::vcenter::{Fault, Moment};
use serde_json::{Value, json};
use tonic::Code;

use crate::world::{World, request};

/// The latest operation of a record.
struct Operation<'a> {
    /// Another one than the configured one.
    vcenter: Option<&'a str>,
    task: &'a str,
    status: &'a str,
    error: &'a str,
    /// How long ago it began.
    age: SignedDuration,
}

const IN_PROGRESS: Operation<'_> = Operation {
    vcenter: None,
    task: "",
    status: "InProgress",
    error: "",
    age: SignedDuration::from_mins(5),
};

impl World {
    /// Puts a record of the Go driver in the place of ours, if there is one.
    async fn record_as_go(&self, name: &str, volume: &str, operation: &Operation<'_>) {
        self.records().delete(name, &DeleteParams::default()).await.ok();
        let began = (Timestamp::now() - operation.age).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let details = json!({
            "taskInvocationTimestamp": began,
            "taskId": operation.task,
            "vCenterServer": operation.vcenter.map_or_else(|| self.server(), str::to_owned),
            "opId": "1a2b3c4d",
            "taskStatus": operation.status,
            "error": operation.error,
        });
        let record = json!({
            "apiVersion": "cns.vmware.com/v1alpha1",
            "kind": "CnsVolumeOperationRequest",
            "metadata": {"name": name},
            "spec": {"name": name},
            "status": {
                "volumeID": volume,
                "capacity": 64,
                "errorCount": 0,
                "firstOperationDetails": details,
                "latestOperationDetails": [details],
            },
        });
        let record = serde_json::from_value(record).unwrap();
        self.records().create(&PostParams::default(), &record).await.unwrap();
    }

    /// The task of the volume's latest attempt.
    async fn task(&self, name: &str) -> String {
        let record = self.record(name).await.unwrap();
        let last = record["status"]["latestOperationDetails"].as_array().unwrap().last().cloned();
        last.as_ref().and_then(|last| last["taskId"].as_str()).unwrap().to_owned()
    }
}

fn last_status(record: &Value) -> &Value {
    &record["status"]["latestOperationDetails"].as_array().unwrap().last().unwrap()["taskStatus"]
}

#[tokio::test]
async fn volumes_that_the_go_driver_made_are_found_by_its_records() {
    let world = World::start().await;
    let controller = world.run(&[]).await;
    controller.until_ready().await;
    let not_followed = "failed to add task to list view";
    for (name, forgotten) in [
        ("success", false),
        ("in-progress", false),
        ("not-followed", false),
        ("failed", false),
        ("without-task", false),
        // The last one: all tasks are forgotten then.
        ("task-lost", true),
    ] {
        let volume = controller.create(request(name, 64)).await.unwrap();
        let task = world.task(name).await;
        let (status, error) = match name {
            "success" => ("Success", ""),
            "not-followed" => ("Error", not_followed),
            "failed" => ("Error", "it seemed so"),
            _ => ("InProgress", ""),
        };
        let task = if name == "without-task" { "" } else { &task };
        let operation = Operation { task, status, error, ..IN_PROGRESS };
        if forgotten {
            world.vcenter.control().forget_tasks().await.unwrap();
        }
        let known = if name == "success" { volume.as_str() } else { "" };
        world.record_as_go(name, known, &operation).await;
        let found = controller.create(request(name, 64)).await;
        assert_eq!(found.as_deref().ok(), Some(volume.as_str()), "{name}: {found:?}");
        let record = world.record(name).await.unwrap();
        assert_eq!(last_status(&record), "Success", "{record:#}");
    }
    assert_eq!(world.volumes().await.len(), 6);
}

#[tokio::test]
async fn volumes_that_the_go_driver_failed_to_make_are_made() {
    let world = World::start().await;
    let controller = world.run(&[]).await;
    controller.until_ready().await;
    let gone = "4d5e6f70-5eed-4000-8000-000000000001";
    let failed = Operation { task: "task-7", status: "Error", error: "no space", ..IN_PROGRESS };
    let deleted = Operation { task: "task-7", status: "Success", ..IN_PROGRESS };
    for (name, volume, operation) in [
        ("failed", "", &failed),
        ("task-lost", "", &Operation { task: "task-7", ..IN_PROGRESS }),
        ("without-task", "", &IN_PROGRESS),
        ("deleted-since", gone, &deleted),
    ] {
        world.record_as_go(name, volume, operation).await;
        let made = controller.create(request(name, 64)).await.unwrap();
        assert_ne!(made, gone);
        let record = world.record(name).await.unwrap();
        assert_eq!(last_status(&record), "Success", "{record:#}");
        assert_eq!(record["status"]["volumeID"], made.as_str(), "{record:#}");
    }
    // What was begun just now may still be carried out. A clock that was a day ahead delays it no longer than that.
    let (fresh, future) = (SignedDuration::from_secs(2), SignedDuration::from_hours(-24));
    for (name, task, age) in
        [("fresh", "", fresh), ("fresh-with-task", "task-7", fresh), ("of-the-future", "", future)]
    {
        world.record_as_go(name, "", &Operation { task, age, ..IN_PROGRESS }).await;
        let refused = controller.create(request(name, 64)).await.unwrap_err();
        assert_eq!(refused.code(), Code::Aborted, "{name}: {refused}");
        let record = world.record(name).await.unwrap();
        let called = &record["status"]["latestOperationDetails"][0]["taskInvocationTimestamp"];
        let called: Timestamp = called.as_str().unwrap().parse().unwrap();
        assert!(called <= Timestamp::now(), "{record:#}");
    }
    assert_eq!(world.volumes().await.len(), 4);
}

#[tokio::test]
async fn a_volume_that_another_vcenter_made_is_not_made_again() {
    let world = World::start().await;
    let controller = world.run(&[]).await;
    controller.until_ready().await;
    let volume = "4d5e6f70-5eed-4000-8000-000000000001";
    let vcenter = Some("vc-2.example");
    let made = Operation { vcenter, task: "task-7", status: "Success", ..IN_PROGRESS };
    world.record_as_go("elsewhere", volume, &made).await;
    let refused = controller.create(request("elsewhere", 64)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("vc-2.example"), "{refused}");
    assert!(world.volumes().await.is_empty());
}

#[tokio::test]
async fn a_task_of_the_go_driver_that_runs_is_waited_for() {
    let world = World::start().await;
    let controller = world.run(&[]).await;
    controller.until_ready().await;
    let control = world.vcenter.control();
    let held = Fault { fault: None, at: Moment::Hold, ..Fault::next("CnsCreateVolume", "") };
    control.fail(&held).await.unwrap();
    let task = {
        let first = controller.create(request("running", 64));
        tokio::pin!(first);
        loop {
            tokio::select! {
                ended = &mut first => panic!("{ended:?}"),
                () = tokio::time::sleep(std::time::Duration::from_millis(50)) => {}
            }
            if world.record("running").await.is_some() {
                let task = world.task("running").await;
                if !task.is_empty() {
                    break task;
                }
            }
        }
    };
    controller.kill();
    world.record_as_go("running", "", &Operation { task: &task, ..IN_PROGRESS }).await;
    let controller = world.run(&[]).await;
    controller.until_ready().await;
    let created = async {
        let create = async |to: &crate::world::Controller| to.create(request("running", 64)).await;
        controller.patiently("created", create).await
    };
    let (created, released) = tokio::join!(created, control.release_tasks());
    released.unwrap();
    assert_eq!(world.volumes().await, [created.unwrap()]);
}

/// After a restore, a vCenter gives ids of tasks again, and another vCenter has ids of its own.
#[tokio::test]
async fn the_volume_of_another_task_is_not_taken() {
    let world = World::start().await;
    let controller = world.run(&[]).await;
    controller.until_ready().await;
    let other = controller.create(request("other", 64)).await.unwrap();
    let task = world.task("other").await;
    let mut made = vec![other];
    for (name, vcenter) in [("restored", None), ("moved", Some("other.example"))] {
        let task = task.as_str();
        world.record_as_go(name, "", &Operation { vcenter, task, ..IN_PROGRESS }).await;
        let volume = controller.create(request(name, 64)).await.unwrap();
        assert!(!made.contains(&volume), "{name}: {}", controller.log());
        made.push(volume);
    }
    assert_eq!(world.volumes().await.len(), 3);
}

/// csi-provisioner forgets a volume after a code that it takes for final.
#[tokio::test]
async fn no_code_is_final_while_a_volume_may_exist() {
    let world = World::start().await;
    let controller = world.run(&[]).await;
    controller.until_ready().await;
    let made = controller.create(request("made", 64)).await.unwrap();
    let task = world.task("made").await;
    let denied = Fault { count: 1_000_000, ..Fault::next("CnsQueryVolume", "NoPermission") };
    let control = world.vcenter.control();
    let rule = control.fail(&denied).await.unwrap();
    for (name, task) in [("called", ""), ("lost", "task-7"), ("taken", task.as_str())] {
        world.record_as_go(name, "", &Operation { task, ..IN_PROGRESS }).await;
        let refused = controller.create(request(name, 64)).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{name}: {refused}");
    }
    let refused = controller.create(request("new", 64)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    control.disarm_one(rule).await.unwrap();
    assert_eq!(controller.create(request("made", 64)).await.unwrap(), made);
}

#[tokio::test]
async fn a_class_that_was_corrected_is_compared_only_with_a_volume_that_exists() {
    let world = World::start().await;
    let controller = world.run(&[]).await;
    controller.until_ready().await;
    let plan = json!({"size": 64, "policy": "mistyped", "datastore": "datastore-1"}).to_string();
    let annotate = async |name: &str| {
        let annotations = json!({"csi.vsphere.vmware.com/create": plan});
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        world.records().patch(name, &PatchParams::default(), &patch).await.unwrap();
    };
    let age = SignedDuration::from_secs(2);
    world.record_as_go("fresh", "", &Operation { age, ..IN_PROGRESS }).await;
    annotate("fresh").await;
    let refused = controller.create(request("fresh", 64)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted, "{refused}");
    world.record_as_go("settled", "", &IN_PROGRESS).await;
    annotate("settled").await;
    controller.create(request("settled", 64)).await.unwrap();

    controller.create(request("made", 64)).await.unwrap();
    annotate("made").await;
    let refused = controller.create(request("made", 64)).await.unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
}
