//! A thousand operations on a bad day leave at most one session.

use std::time::Duration;

use futures::StreamExt;
use lab::vcenter::{ADMINISTRATOR, Fault, HttpFault, HttpFaultKind};
use vsphere::{object, types::VirtualMachine};

use crate::site::{LIMIT, administrator, sessions, vcenter, wait_for};

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

#[tokio::test]
async fn a_thousand_operations_with_faults_leave_one_session() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    let mut watch = connection.watch::<Named>();
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
                1 => watch.next().await.is_some(),
                _ => connection.time().await.is_ok(),
            }
        };
        // Operations are given up at any point, a watch also because it has nothing to tell.
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
    connection.close().await;
    wait_for("no session is left", async || sessions(&vcenter, ADMINISTRATOR.0).await == 0).await;
}
