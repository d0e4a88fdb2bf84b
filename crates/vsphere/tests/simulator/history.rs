//! How VMs that are gone were removed.

use std::collections::HashMap;

use jiff::SignedDuration;
use lab::{VCenter, vcenter::Fault};
use vsphere::{
    connection::Connection, history::Removal, object, reference::Ref, types::VirtualMachine,
};

use crate::site::{CPI, administrator, connect, described, vcenter, wait_for};

const HOUR: SignedDuration = SignedDuration::from_hours(1);

object! {
    /// A VM's name.
    struct Vm: VirtualMachine { name: String = "name" }
}

async fn named(connection: &Connection, name: &str) -> Ref<VirtualMachine> {
    let vms: Vec<Vm> = connection.list().await.unwrap();
    vms.into_iter().find(|vm| vm.name == name).unwrap().reference
}

/// How VMs were removed, of those that a removal is recorded of. All of the history could be read.
async fn recorded(
    connection: &Connection,
    vms: &[(Ref<VirtualMachine>, SignedDuration)],
) -> HashMap<Ref<VirtualMachine>, Removal> {
    let answers = connection.history().removals(vms).await;
    assert_eq!(answers.len(), vms.len());
    answers.into_iter().filter_map(|(vm, answer)| Some((vm, answer.unwrap()?))).collect()
}

/// How often a method was called.
async fn calls(vcenter: &VCenter, method: &str) -> u64 {
    let state = vcenter.control().state_as_json().await.unwrap();
    let counts = state["calls"]["calls"].as_array().unwrap();
    let of_method = counts.iter().filter(|count| count["method"] == method);
    of_method.filter_map(|count| count["count"].as_u64()).sum()
}

#[tokio::test]
async fn a_destroyed_vm_is_told_from_an_unregistered_one_and_from_one_that_is_there() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CPI);
    let [first, second, third] = [
        named(&connection, "node-1").await,
        named(&connection, "node-2").await,
        named(&connection, "old-vm").await,
    ];
    let control = vcenter.control();
    control.delete("node-1").await.unwrap();
    control.unregister("node-2").await.unwrap();
    let vms = [first.clone(), second.clone(), third].map(|vm| (vm, HOUR));
    let told = recorded(&connection, &vms).await;
    let expected = HashMap::from([(first, Removal::Destroyed), (second, Removal::Unregistered)]);
    assert_eq!(told, expected);
    // The records outlive a restart.
    control.restart(0).await.unwrap();
    assert_eq!(recorded(&connection, &vms).await, expected);
    connection.close().await;
}

#[tokio::test]
async fn the_time_is_that_of_vcenter_and_what_is_older_is_not_told() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CPI);
    let vm = named(&connection, "node-1").await;
    let control = vcenter.control();
    let day = 24 * 3_600_000;
    control.skew_clock(-2 * day).await.unwrap();
    control.delete("node-1").await.unwrap();
    let vms = [(vm.clone(), HOUR)];
    let told = recorded(&connection, &vms).await;
    assert_eq!(told.get(&vm), Some(&Removal::Destroyed));
    control.skew_clock(-day).await.unwrap();
    assert_eq!(recorded(&connection, &vms).await, HashMap::new());
    let vms = [(vm, SignedDuration::from_hours(72))];
    assert_eq!(recorded(&connection, &vms).await.len(), 1);
    connection.close().await;
}

#[tokio::test]
async fn a_user_who_does_not_see_where_the_vm_was_is_told_nothing() {
    let world = include_str!("../../../../lab/vcenter/internal/world/default.yaml");
    let elsewhere = "permissions: [{role: ReadOnly, on: /europe/dc-2}]";
    let world = world.replace("permissions: [{role: ReadOnly, on: /}]", elsewhere);
    let vcenter = described(&world).await;
    let vm = named(&administrator(&vcenter), "node-1").await;
    vcenter.control().delete("node-1").await.unwrap();
    let connection = connect(&vcenter, CPI);
    let told = recorded(&connection, &[(vm.clone(), HOUR)]).await;
    assert_eq!(told, HashMap::new());
    let told = recorded(&administrator(&vcenter), &[(vm, HOUR)]).await;
    assert_eq!(told.len(), 1);
    connection.close().await;
}

#[tokio::test]
async fn a_session_never_runs_out_of_collectors_though_reading_fails() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CPI);
    let vm = named(&connection, "node-1").await;
    let control = vcenter.control();
    control.delete("node-1").await.unwrap();
    // A session has 32.
    let fault = Fault { count: 40, ..Fault::next("ReadNextTasks", "SystemError") };
    control.fail(&fault).await.unwrap();
    let vms = [(vm.clone(), HOUR)];
    for _ in 0..40 {
        assert!(connection.history().removals(&vms).await[&vm].is_err());
    }
    let told = recorded(&connection, &vms).await;
    assert_eq!(told.get(&vm), Some(&Removal::Destroyed));
    connection.close().await;
}

#[tokio::test]
async fn vms_are_asked_for_together_and_nobody_is_asked_for_none() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CPI);
    let vms = [named(&connection, "node-1").await, named(&connection, "node-2").await];
    let vms = vms.map(|vm| (vm, HOUR));
    vcenter.control().delete("node-1").await.unwrap();
    vcenter.control().delete("node-2").await.unwrap();
    assert_eq!(recorded(&connection, &[]).await, HashMap::new());
    assert_eq!(calls(&vcenter, "CreateCollectorForTasks").await, 0);
    assert_eq!(recorded(&connection, &vms).await.len(), 2);
    for method in ["CreateCollectorForTasks", "ReadNextTasks"] {
        assert_eq!(calls(&vcenter, method).await, 1, "{method}");
    }
    let destroyed = async || calls(&vcenter, "DestroyCollector").await == 1;
    wait_for("the collector is destroyed", destroyed).await;
    connection.close().await;
}

#[tokio::test]
async fn a_removal_is_found_among_more_than_ten_thousand_other_tasks() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    let [early, late, there] = [
        named(&connection, "node-1").await,
        named(&connection, "node-2").await,
        named(&connection, "old-vm").await,
    ];
    let control = vcenter.control();
    let hour = 3_600_000;
    control.skew_clock(-26 * hour).await.unwrap();
    control.add_tasks(12_000, "old-vm").await.unwrap();
    control.delete("node-1").await.unwrap();
    control.skew_clock(-2 * hour).await.unwrap();
    control.add_tasks(12_000, "old-vm").await.unwrap();
    control.skew_clock(0).await.unwrap();
    control.delete("node-2").await.unwrap();

    let recent = [(late.clone(), SignedDuration::from_hours(48))];
    let found = recorded(&connection, &recent).await;
    assert_eq!(found.get(&late), Some(&Removal::Destroyed));
    assert_eq!(calls(&vcenter, "ReadNextTasks").await, 1, "the newest part is read first");

    let hours = SignedDuration::from_hours;
    let vms = [(early.clone(), hours(48)), (late.clone(), hours(1)), (there, hours(48))];
    let found = recorded(&connection, &vms).await;
    assert_eq!(
        found,
        HashMap::from([(early.clone(), Removal::Destroyed), (late, Removal::Destroyed)])
    );
    // Each VM has a time of its own.
    let found = recorded(&connection, &[(early, hours(3))]).await;
    assert_eq!(found, HashMap::new());
    connection.close().await;
}

#[tokio::test]
async fn a_part_that_cannot_be_read_leaves_what_was_found_and_read_before_it() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CPI);
    let [gone, recent, old] = [
        named(&connection, "node-1").await,
        named(&connection, "node-2").await,
        named(&connection, "old-vm").await,
    ];
    let control = vcenter.control();
    control.delete("node-1").await.unwrap();
    let fault = Fault { skip: 1, ..Fault::next("CreateCollectorForTasks", "SystemError") };
    control.fail(&fault).await.unwrap();
    let minutes = SignedDuration::from_mins(20);
    let vms = [(gone.clone(), 48 * HOUR), (recent.clone(), minutes), (old.clone(), 48 * HOUR)];
    let answers = connection.history().removals(&vms).await;
    assert!(matches!(answers[&gone], Ok(Some(Removal::Destroyed))), "{answers:?}");
    assert!(matches!(answers[&recent], Ok(None)), "{answers:?}");
    assert!(answers[&old].is_err(), "{answers:?}");
    connection.close().await;
}

#[tokio::test]
async fn a_question_that_is_given_up_leaves_no_collector() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CPI);
    let vm = named(&connection, "node-1").await;
    let control = vcenter.control();
    control.delay("ReadNextTasks", 60_000, 0).await.unwrap();
    let collectors = async || control.objects("cpi").await.unwrap()[0].history_collectors;
    tokio::select! {
        () = wait_for("there is a collector", async || collectors().await == 1) => {}
        answers = async { connection.history().removals(&[(vm, HOUR)]).await } => panic!("{answers:?}"),
    }
    wait_for("there is none", async || collectors().await == 0).await;
    connection.close().await;
}
