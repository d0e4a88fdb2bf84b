//! Records as this driver and the Go driver write them.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::{Attempt, Plan, Record, attempt, is_stale, plan, record_name, snapshot};

/// A record of the Go driver, with these operations.
fn record(status: &serde_json::Value) -> Record {
    let object = json!({
        "apiVersion": "cns.vmware.com/v1alpha1",
        "kind": "CnsVolumeOperationRequest",
        "metadata": {"name": "pvc-1", "namespace": "vmware-system-csi"},
        "spec": {"name": "pvc-1"},
        "status": status,
    });
    serde_json::from_value(object).unwrap()
}

fn operation(task: &str, status: &str, error: &str) -> serde_json::Value {
    json!({
        "taskInvocationTimestamp": "2026-11-01T10:00:00Z",
        "taskId": task,
        "vCenterServer": "vc.example",
        "opId": "1a2b3c4d",
        "taskStatus": status,
        "error": error,
    })
}

fn latest(volume: &str, operation: &serde_json::Value) -> Record {
    record(&json!({
        "volumeID": volume,
        "firstOperationDetails": operation,
        "latestOperationDetails": [operation],
        "quotaDetails": {"storageClassName": "gold"},
    }))
}

#[test]
fn what_the_go_driver_recorded_is_understood() {
    let at: Timestamp = "2026-11-01T10:00:00Z".parse().unwrap();
    let (task, vcenter) = ("task-7".to_owned(), "vc.example".to_owned());
    let started = || Some(Attempt::Started { task: task.clone(), vcenter: vcenter.clone(), at });
    let not_followed = "failed to add task to list view: not ready";
    for (volume, operation, expected) in [
        ("", operation("task-7", "InProgress", ""), started()),
        ("", operation("task-7", "Error", not_followed), started()),
        ("", operation("", "InProgress", ""), Some(Attempt::Called { at })),
        ("", operation("task-7", "Error", "no space"), Some(Attempt::Failed)),
        ("", operation("", "TrackingAborted", "retried"), Some(Attempt::Failed)),
        (
            "v-1",
            operation("task-7", "Success", ""),
            Some(Attempt::Done { volume: "v-1".to_owned() }),
        ),
    ] {
        let record = latest(volume, &operation);
        assert_eq!(attempt(&record), expected, "{operation}");
        assert_eq!(plan(&record), None);
    }
    assert_eq!(attempt(&record(&json!({}))), None);
}

#[test]
fn fields_of_the_go_driver_survive() {
    let record = latest("v-1", &operation("task-7", "Success", ""));
    let written = serde_json::to_value(&record).unwrap();
    assert_eq!(written["status"]["quotaDetails"]["storageClassName"], "gold");
    let operation = &written["status"]["latestOperationDetails"][0];
    assert_eq!((&operation["taskId"], &operation["opId"]), (&json!("task-7"), &json!("1a2b3c4d")));
    assert_eq!(operation["taskInvocationTimestamp"], "2026-11-01T10:00:00Z");
}

#[test]
fn a_plan_is_read_as_it_was_written() {
    let mut record = latest("", &operation("", "InProgress", ""));
    let written = Plan {
        size: 1024,
        policy: Some("gold".to_owned()),
        url: None,
        datastores: vec!["fast-1".to_owned()],
        cluster: None,
        source: Some("v-1+s-1".to_owned()),
        datastore: "datastore-11".to_owned(),
        failed: vec!["datastore-12".to_owned()],
    };
    let text = serde_json::to_string(&written).unwrap();
    record.metadata.annotations = Some([(super::PLAN.to_owned(), text)].into());
    assert_eq!(plan(&record), Some(written));
}

#[test]
fn an_attempt_counts_from_the_last_time_that_it_was_under_way() {
    let mut record = latest("", &operation("", "InProgress", ""));
    let called: Timestamp = "2026-11-01T10:00:00Z".parse().unwrap();
    for (under_way, at) in [
        ("2026-11-01T10:04:00Z", called + SignedDuration::from_mins(4)),
        // Of an earlier attempt, which the Go driver followed by this one.
        ("2026-11-01T09:59:00Z", called),
        ("soon", called),
    ] {
        let annotation = (super::UNDER_WAY.to_owned(), under_way.to_owned());
        record.metadata.annotations = Some([annotation].into());
        assert_eq!(attempt(&record), Some(Attempt::Called { at }), "{under_way}");
    }
}

#[test]
fn records_are_kept_for_a_while_after_their_operation() {
    let began: Timestamp = "2026-11-01T10:00:00Z".parse().unwrap();
    let after = |minutes| began + SignedDuration::from_mins(minutes);
    let ended = latest("v-1", &operation("task-7", "Success", ""));
    assert!(!is_stale(&ended, after(14)));
    assert!(is_stale(&ended, after(16)));
    // It took long, and has just ended.
    let mut late = ended;
    let annotation = (super::UNDER_WAY.to_owned(), "2026-11-01T10:20:00Z".to_owned());
    late.metadata.annotations = Some([annotation].into());
    assert!(!is_stale(&late, after(34)));
    assert!(is_stale(&late, after(36)));
    let open = latest("", &operation("task-7", "InProgress", ""));
    assert!(!is_stale(&open, after(16)));
    assert!(is_stale(&open, after(25 * 60)));
    // Without it the volume would be adopted by a request for something else.
    let differs = latest("v-1", &operation("task-7", "Success", "requested with another policy"));
    assert!(!is_stale(&differs, after(16)));
    assert!(is_stale(&differs, after(25 * 60)));
}

#[test]
fn names_that_kubernetes_does_not_take_become_digests() {
    let claim = "pvc-0c7a1b8e-3f55-4f0a-9d0e-5b8d9f0a1b2c";
    assert_eq!(record_name(claim), claim);
    for name in ["Sanity-Volume", "a/b", "-a", "a.", "ö", &"x".repeat(254)] {
        let at = record_name(name);
        assert!(at.starts_with("name-") && at.len() < 64, "{name}: {at}");
    }
}

#[test]
fn a_snapshot_that_the_go_driver_took_is_in_its_record() {
    let taken = record(&json!({
        "volumeID": "v-1",
        "snapshotID": "s-1",
        "latestOperationDetails": [operation("task-7", "Success", "")],
    }));
    assert_eq!(attempt(&taken), Some(Attempt::Done { volume: "v-1".to_owned() }));
    assert_eq!(snapshot(&taken), Some("s-1"));
    let half = record(&json!({
        "volumeID": "v-1",
        "snapshotID": "s-1",
        "latestOperationDetails": [operation("task-7", "PartiallyFailed", "not recorded")],
    }));
    assert_eq!(attempt(&half), Some(Attempt::Failed), "it is searched for");
}
