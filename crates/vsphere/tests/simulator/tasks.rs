//! Waiting for tasks.

use std::time::Duration;

use lab::{
    VCenter,
    vcenter::{ADMINISTRATOR, Fault, Latency, Moment},
};
use serde_json::json;
use vsphere::{
    cns::NewVolume,
    connection::Connection,
    error::{Cause, Error, Remedy},
    object,
    reference::Ref,
    soap::Service,
    types::{CancelTask, PowerOffVm, Task, VirtualMachine},
};

use crate::site::{
    LIMIT, administrator, calls, connect, described, fix, generated, sessions, vcenter, wait_for,
};

object! {
    /// A VM's name.
    struct Named: VirtualMachine {
        name: String = "name",
    }
}

async fn power_off(connection: &Connection, name: &str) -> Ref<Task> {
    let vms: Vec<Named> = connection.list().await.unwrap();
    let vm = vms.iter().find(|vm| vm.name == name).unwrap();
    connection.call(&vm.reference, &PowerOffVm {}).await.unwrap()
}

/// A task that runs until somebody cancels it.
async fn endless(vcenter: &VCenter, connection: &Connection) -> Ref<Task> {
    let mut fault = Fault::next("PowerOffVM_Task", "");
    (fault.fault, fault.at) = (None, Moment::Never);
    vcenter.control().fail(&fault).await.unwrap();
    power_off(connection, "node-1").await
}

#[tokio::test]
async fn a_failed_task_has_its_fault() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    let task = power_off(&connection, "old-vm").await;
    let error = connection.wait::<()>(&task, Service::Vim, LIMIT).await.unwrap_err();
    assert_eq!(error.fault().unwrap().type_name(), "InvalidPowerState", "{error}");
    assert!(error.fault().unwrap().is_a("InvalidState"));
}

#[tokio::test]
async fn a_thousand_tasks_are_awaited_with_a_handful_of_requests() {
    let vcenter = generated(1000).await;
    let connection = administrator(&vcenter);
    let vms: Vec<Named> = connection.list().await.unwrap();
    let mut tasks = Vec::new();
    for vm in &vms {
        tasks.push(connection.call(&vm.reference, &PowerOffVm {}).await.unwrap());
    }
    let before = calls(&vcenter).await;
    let waits = tasks.iter().map(|task| connection.wait::<()>(task, Service::Vim, LIMIT));
    let ended = futures::future::join_all(waits).await;
    let off = ended.iter().filter(|result| result.is_ok()).count();
    assert!(off >= 1000, "{off} of {}", ended.len());
    let after = calls(&vcenter).await;
    let requests = after.values().sum::<u64>() - before.values().sum::<u64>();
    assert!(requests < 60, "{requests} requests for {} tasks", tasks.len());
}

#[tokio::test]
async fn after_the_deadline_the_task_is_still_the_callers() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    let task = endless(&vcenter, &connection).await;
    let limit = Duration::from_millis(200);
    let error = connection.wait::<()>(&task, Service::Vim, limit).await.unwrap_err();
    let Error { remedy: Remedy::Unfinished { task: same }, .. } = &error else { panic!("{error}") };
    assert_eq!(*same, task);
    assert!(error.to_string().contains(task.value()), "{error}");

    let waiting = connection.wait::<()>(same, Service::Vim, LIMIT);
    let cancelled = async { connection.call(&task, &CancelTask {}).await.unwrap() };
    let (result, ()) = tokio::join!(waiting, cancelled);
    assert_eq!(result.unwrap_err().fault().unwrap().type_name(), "RequestCanceled");
}

#[tokio::test]
async fn a_session_that_ends_while_a_task_runs_is_not_noticed() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    let task = endless(&vcenter, &connection).await;
    let other = administrator(&vcenter);
    let waiting = connection.wait::<()>(&task, Service::Vim, LIMIT);
    let meanwhile = async {
        wait_for("the task is watched", async || {
            calls(&vcenter).await.contains_key("WaitForUpdatesEx")
        })
        .await;
        vcenter.control().expire_sessions().await.unwrap();
        other.call(&task, &CancelTask {}).await.unwrap();
    };
    let (result, ()) = tokio::join!(waiting, meanwhile);
    assert_eq!(result.unwrap_err().fault().unwrap().type_name(), "RequestCanceled");
    other.close().await;
    connection.close().await;
    assert_eq!(sessions(&vcenter, ADMINISTRATOR.0).await, 0);
}

#[tokio::test]
async fn a_task_that_vcenter_forgot_is_unfinished() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    let task = endless(&vcenter, &connection).await;
    let restarted = async {
        wait_for("the task is watched", async || {
            calls(&vcenter).await.contains_key("WaitForUpdatesEx")
        })
        .await;
        vcenter.control().restart(100).await.unwrap();
    };
    let (result, ()) = tokio::join!(connection.wait::<()>(&task, Service::Vim, LIMIT), restarted);
    let error = result.unwrap_err();
    assert!(matches!(error.failure().cause, Cause::TaskLost), "{error}");
    for _ in 0..2 {
        let again = connection.wait::<()>(&task, Service::Vim, LIMIT).await.unwrap_err();
        assert!(matches!(again.failure().cause, Cause::TaskLost), "{again}");
    }
}

#[tokio::test]
async fn a_task_that_vcenter_does_not_know_is_lost_however_often_it_is_awaited() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    let running = endless(&vcenter, &connection).await;
    // While another task keeps the view.
    let other = connection.wait::<()>(&running, Service::Vim, LIMIT);
    let unknown = Ref::<Task>::new("task-999999");
    let asked = async {
        for _ in 0..2 {
            let limit = Duration::from_secs(20);
            let error = connection.wait::<()>(&unknown, Service::Vim, limit).await.unwrap_err();
            assert!(matches!(error.failure().cause, Cause::TaskLost), "{error}");
        }
        connection.call(&running, &CancelTask {}).await.unwrap();
    };
    let (cancelled, ()) = tokio::join!(other, asked);
    assert_eq!(cancelled.unwrap_err().fault().unwrap().type_name(), "RequestCanceled");
}

#[tokio::test]
async fn tasks_are_polled_together_when_the_view_does_not_work() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    let broken = Fault { count: 0, ..Fault::next("CreateListView", "NotSupported") };
    vcenter.control().fail(&broken).await.unwrap();
    for name in ["node-1", "node-2"] {
        let task = power_off(&connection, name).await;
        connection.wait::<()>(&task, Service::Vim, LIMIT).await.unwrap();
    }
    assert!(!calls(&vcenter).await.contains_key("WaitForUpdatesEx"));
}

#[tokio::test]
async fn a_task_that_the_user_may_not_read_is_not_waited_for() {
    // Without a role on the root folder, to which the tasks of volumes belong.
    let world = include_str!("../../../../lab/vcenter/internal/world/default.yaml");
    let tenant = "users:\n  - name: tenant@vsphere.local\n    password: Tenant-1!\n    permissions: [{role: \
                  CNS-DATASTORE, on: /dc-1/datastore/vsan-1}]\n";
    let vcenter = described(&world.replace("users:\n", tenant)).await;
    let answers = [("TaskReadNeedsEntity", json!(true)), ("CnsTaskEntity", json!("vm"))];
    fix(&vcenter, &answers).await;
    let connection = connect(&vcenter, ("tenant@vsphere.local", "Tenant-1!"));
    let store = connection.inventory().by_path("/dc-1/datastore/vsan-1").await.unwrap();
    let datastores = vec![store.unwrap().cast().unwrap()];
    for view in ["works", "does not work"] {
        if view != "works" {
            let broken = Fault { count: 0, ..Fault::next("WaitForUpdatesEx", "NotSupported") };
            vcenter.control().fail(&broken).await.unwrap();
        }
        let new = NewVolume { datastores: datastores.clone(), ..NewVolume::block("pvc-1", 64) };
        let started = connection.volumes().create(&new).await.unwrap();
        let error = started.wait(LIMIT).await.unwrap_err();
        assert!(matches!(error.failure().cause, Cause::TaskHidden(_)), "the view {view}: {error}");
        assert!(matches!(error.remedy, Remedy::Unfinished { .. }), "{error}");
        assert!(error.to_string().contains("Read on the root folder"), "{error}");
        assert!(error.fault().is_none(), "a fault would mean that nothing was done");
    }
}

#[tokio::test]
async fn a_task_that_vanishes_before_the_watch_reports_it_is_lost() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    let control = vcenter.control();
    let store = connection.inventory().by_path("/dc-1/datastore/vsan-1").await.unwrap();
    let datastores = vec![store.unwrap().cast().unwrap()];
    // It takes less than a second, and vCenter takes longer to look at what is in the view.
    control.set_latency(Latency::FastLab).await.unwrap();
    control.delay("WaitForUpdatesEx", 2000, 0).await.unwrap();
    let gone = Fault { at: Moment::Gone, fault: None, ..Fault::next("CnsCreateVolume", "") };
    control.fail(&gone).await.unwrap();
    let new = NewVolume { datastores, ..NewVolume::block("pvc-1", 64) };
    let started = connection.volumes().create(&new).await.unwrap();
    let error = started.wait(2 * LIMIT).await.unwrap_err();
    assert!(matches!(error.failure().cause, Cause::TaskLost), "{error}");
}
