//! A thousand operations on a bad day leave at most one session, and nothing that nobody uses in it.

use std::time::Duration;

use lab::{
    VCenter,
    vcenter::{ADMINISTRATOR, Fault, HttpFault, HttpFaultKind, Objects},
};
use vsphere::{
    collector::{Change, Collector, is_lost},
    connection::Connection,
    object,
    soap::Service,
    types::{PowerOffVm, VirtualMachine},
};

use crate::site::{LIMIT, administrator, calls, generated, sessions, vcenter, wait_for, watched};

object! {
    /// A VM's name.
    struct Named: VirtualMachine {
        name: String = "name",
    }
}

/// Numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// What one watch has at the server.
const WATCH: Objects = Objects {
    container_views: 1,
    list_views: 0,
    property_collectors: 1,
    property_filters: 1,
    history_collectors: 0,
    open_pages: 0,
};

/// Waits until the administrator's only session has these objects.
async fn has(vcenter: &VCenter, expected: Objects) {
    wait_for(&format!("only {expected:?} is left"), async || {
        vcenter.control().objects("administrator").await.unwrap() == [expected]
    })
    .await;
}

type Watch = Collector<Change<Named>>;

/// Reads one answer of a watch, of a new one if there is none. What fails or is given up is not used again.
async fn watch(connection: &Connection, slot: &mut Option<Watch>) -> bool {
    let mut collector = match slot.take() {
        Some(collector) => collector,
        None => match watched(connection).await {
            Ok(collector) => collector,
            Err(_) => return false,
        },
    };
    let answered = collector.next().await.is_ok();
    *slot = answered.then_some(collector);
    answered
}

#[tokio::test]
async fn a_thousand_operations_with_faults_leave_one_session() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    let mut watching = None;
    let mut dice = Dice(5);
    let mut failed = 0;
    for _ in 0..1000 {
        let control = vcenter.control();
        let http = |kind, method: Option<&str>| HttpFault {
            path: "/sdk".to_owned(),
            method: method.map(str::to_owned),
            kind,
            count: 1,
        };
        match dice.roll(40) {
            0 => control.expire_sessions().await.unwrap(),
            1 => drop(control.break_http(&http(HttpFaultKind::Status { status: 503 }, None)).await),
            2 => drop(control.break_http(&http(HttpFaultKind::Reset, None)).await),
            3 => drop(control.break_http(&http(HttpFaultKind::Truncate, None)).await),
            4 => drop(control.break_http(&http(HttpFaultKind::Truncate, Some("Login"))).await),
            5 => drop(control.fail(&Fault::next("CurrentTime", "NotAuthenticated")).await),
            6 => drop(control.fail(&Fault::next("Logout", "SystemError")).await),
            _ => {}
        }
        let (kind, given_up) = (dice.roll(4), dice.roll(5) == 0);
        let operation = async {
            match kind {
                0 => connection.list::<Named>().await.is_ok(),
                1 => watch(&connection, &mut watching).await,
                _ => connection.time().await.is_ok(),
            }
        };
        // Operations are given up at any point, a watch also because it has nothing to report.
        let patience = match (given_up, kind) {
            (true, _) => Duration::from_millis(1),
            (false, 1) => Duration::from_millis(10),
            (false, _) => LIMIT,
        };
        failed += u32::from(!tokio::time::timeout(patience, operation).await.unwrap_or(false));
    }
    assert!(failed > 0, "there was no bad day");
    vcenter.control().disarm().await.unwrap();
    connection.time().await.unwrap();
    wait_for("one session is left", async || sessions(&vcenter, ADMINISTRATOR.0).await <= 1).await;
    if watching.is_none() {
        assert!(watch(&connection, &mut watching).await);
    }
    has(&vcenter, WATCH).await;
    drop(watching);
    has(&vcenter, Objects::default()).await;
    connection.close().await;
    wait_for("no session is left", async || sessions(&vcenter, ADMINISTRATOR.0).await == 0).await;
}

#[tokio::test]
async fn a_read_that_is_given_up_leaves_no_pages_and_no_view() {
    let vcenter = generated(700).await;
    let connection = administrator(&vcenter);
    assert_eq!(connection.list::<Named>().await.unwrap().len(), 703);
    let before = calls(&vcenter).await["RetrievePropertiesEx"];
    vcenter.control().delay("ContinueRetrievePropertiesEx", 300, 0).await.unwrap();
    let begun = wait_for("the first page is read", async || {
        calls(&vcenter).await["RetrievePropertiesEx"] > before
    });
    tokio::select! {
        _ = connection.list::<Named>() => panic!("it ended before it was given up"),
        () = begun => {}
    }
    has(&vcenter, Objects::default()).await;
}

#[tokio::test]
async fn a_watch_that_starts_again_in_its_session_leaves_no_view() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    let mut collector: Watch = watched(&connection).await.unwrap();
    for _ in 0..3 {
        collector.next().await.unwrap();
        let fault = Fault::next("WaitForUpdatesEx", "InvalidCollectorVersion");
        vcenter.control().fail(&fault).await.unwrap();
        let error = tokio::time::timeout(LIMIT, collector.next()).await.unwrap().unwrap_err();
        assert!(is_lost(&error), "{error}");
        collector = watched(&connection).await.unwrap();
    }
    has(&vcenter, WATCH).await;
    drop(collector);
    has(&vcenter, Objects::default()).await;
}

#[tokio::test]
async fn a_task_view_that_fails_leaves_nothing() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    let vms: Vec<Named> = connection.list().await.unwrap();
    let node = vms.iter().find(|vm| vm.name == "node-1").unwrap();
    let fault = Fault::next("CreateFilter", "SystemError");
    vcenter.control().fail(&fault).await.unwrap();
    let task = connection.call(&node.reference, &PowerOffVm {}).await.unwrap();
    connection.wait::<()>(&task, Service::Vim, LIMIT).await.unwrap();
    has(&vcenter, Objects::default()).await;
}

#[tokio::test]
async fn a_task_view_ends_when_nothing_is_waited_for_and_the_next_task_gets_another() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    let vms: Vec<Named> = connection.list().await.unwrap();
    for name in ["node-1", "node-2"] {
        let vm = vms.iter().find(|vm| vm.name == name).unwrap();
        let task = connection.call(&vm.reference, &PowerOffVm {}).await.unwrap();
        connection.wait::<()>(&task, Service::Vim, LIMIT).await.unwrap();
        assert_eq!(vcenter.control().objects("administrator").await.unwrap()[0].list_views, 1);
        has(&vcenter, Objects::default()).await;
    }
}
