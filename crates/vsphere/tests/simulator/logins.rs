//! How many logins fail at vCenter, whatever number of credentials, connections and retries there are.

use std::{collections::BTreeSet, time::Duration};

use lab::VCenter;
use tokio::time::timeout;
use vsphere::{
    connection::{Connection, Settings},
    error::{Cause, Error, Remedy},
    session::{Credentials, LoginBudget},
};

use crate::site::{CPI, CSI, LIMIT, NOBODY, calls, connect, settings, vcenter, wait_for};

/// The failed logins that vCenter counted, by the service they came through.
async fn failed(vcenter: &VCenter) -> Vec<String> {
    let failed = vcenter.control().failed_logins().await.unwrap();
    failed.into_iter().map(|login| login.way).collect()
}

fn sharing(vcenter: &VCenter, user: (&str, &str), budget: &LoginBudget) -> Connection {
    Connection::new(&Settings { budget: budget.clone(), ..settings(vcenter, user) }).unwrap()
}

/// Another name of the vCenter.
fn alias(vcenter: &VCenter) -> String {
    let alias = vcenter.url().replace("127.0.0.1", "localhost");
    assert_ne!(alias, vcenter.url());
    alias
}

/// Lets vCenter do what the next calls of a method request and never answer: of logins it checks the password.
async fn hang(vcenter: &VCenter, method: &str, count: u32) {
    let lost = lab::vcenter::HttpFault {
        path: "/sdk".to_owned(),
        method: Some(method.to_owned()),
        kind: lab::vcenter::HttpFaultKind::Hang,
        count,
    };
    vcenter.control().break_http(&lost).await.unwrap();
}

/// Uses all three services and returns the errors.
async fn use_everything(connection: &Connection) -> Vec<Error> {
    let mut errors = Vec::new();
    errors.extend(connection.time().await.err());
    errors.extend(connection.tags().categories().await.err());
    errors.extend(connection.sso().await.err());
    errors
}

#[tokio::test]
async fn any_number_of_bad_credentials_fails_three_times_and_locks_nothing() {
    let vcenter = vcenter().await;
    let budget = LoginBudget::default();
    let old = sharing(&vcenter, (CSI.0, "wrong-1"), &budget);
    // A reload makes another connection; its user is the same in another spelling.
    let new = sharing(&vcenter, ("VSPHERE.LOCAL\\CSI", "wrong-2"), &budget);
    let mut texts = BTreeSet::new();
    for round in 0..10 {
        for connection in [&old, &new] {
            let errors = use_everything(connection).await;
            assert_eq!(errors.len(), 3);
            assert!(errors.iter().all(Error::is_login), "{errors:?}");
            if round > 0 {
                texts.extend(errors.iter().map(ToString::to_string));
            }
        }
        let mistyped = Credentials::password(CSI.0, format!("mistyped-{round}"));
        new.replace_credentials(mistyped).await.unwrap_err();
    }
    assert_eq!(failed(&vcenter).await, ["soap", "soap", "soap"]);
    assert_eq!(texts.len(), 2, "texts do not change by themselves: {texts:?}");

    // Not even the right password is tried now, and the time is in a field.
    let right = Credentials::password(CSI.0, CSI.1);
    let error = new.replace_credentials(right).await.unwrap_err();
    let Cause::LoginsSpent { held, .. } = error.failure().cause else { panic!("{error}") };
    assert!(held.as_secs() > 200, "{held:?}");
    // Another user is not concerned, and the account is not locked.
    sharing(&vcenter, CPI, &budget).time().await.unwrap();
    connect(&vcenter, CSI).time().await.unwrap();
}

#[tokio::test]
async fn connections_that_start_at_once_do_not_exceed_the_budget() {
    let vcenter = vcenter().await;
    let budget = LoginBudget::default();
    vcenter.control().delay("Login", 100, 0).await.unwrap();
    let connections: Vec<_> = (0..8)
        .map(|number| sharing(&vcenter, (CSI.0, &format!("wrong-{number}")), &budget))
        .collect();
    let results = futures::future::join_all(connections.iter().map(Connection::time)).await;
    assert!(results.iter().all(Result::is_err));
    assert_eq!(failed(&vcenter).await.len(), 3);
}

#[tokio::test]
async fn one_wrong_password_of_connections_that_start_at_once_fails_once() {
    let vcenter = vcenter().await;
    let budget = LoginBudget::default();
    vcenter.control().delay("Login", 100, 0).await.unwrap();
    let connections: Vec<_> =
        (0..8).map(|_| sharing(&vcenter, (CSI.0, "wrong"), &budget)).collect();
    let results = futures::future::join_all(connections.iter().map(Connection::time)).await;
    assert!(results.iter().all(Result::is_err));
    assert_eq!(failed(&vcenter).await.len(), 1);
}

#[tokio::test]
async fn a_mistyped_rotation_with_zones_fails_once_and_the_way_back_works_at_once() {
    let vcenter = vcenter().await;
    let budget = LoginBudget::default();
    let connection = sharing(&vcenter, CSI, &budget);
    connection.tags().categories().await.unwrap();
    for _ in 0..10 {
        let mistyped = Credentials::password(CSI.0, "mistyped");
        let error = connection.replace_credentials(mistyped).await.unwrap_err();
        assert!(error.is_login(), "{error}");
        connection.time().await.unwrap();
        connection.tags().categories().await.unwrap();
        vcenter.control().expire_sessions().await.unwrap();
    }
    assert_eq!(failed(&vcenter).await, ["soap"]);
    connection.replace_credentials(Credentials::password(CSI.0, CSI.1)).await.unwrap();
    connection.time().await.unwrap();
}

#[tokio::test]
async fn a_password_that_changed_at_vcenter_leaves_a_login_for_the_corrected_one() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CSI);
    connection.time().await.unwrap();
    vcenter.control().set_password(CSI.0, "Lab-csi-2!").await.unwrap();
    for _ in 0..5 {
        connection.time().await.unwrap();
        assert!(connection.tags().categories().await.unwrap_err().is_login());
        assert!(connection.sso().await.unwrap_err().is_login());
    }
    vcenter.control().expire_sessions().await.unwrap();
    for _ in 0..5 {
        let errors = use_everything(&connection).await;
        assert!(errors.len() == 3 && errors.iter().all(Error::is_login), "{errors:?}");
    }
    assert_eq!(failed(&vcenter).await, ["rest", "sts"]);
    let corrected = Credentials::password(CSI.0, "Lab-csi-2!");
    connection.replace_credentials(corrected).await.unwrap();
    assert!(use_everything(&connection).await.is_empty());
}

#[tokio::test]
async fn logins_whose_answers_are_lost_are_counted_as_failed() {
    let vcenter = vcenter().await;
    let wrong =
        Settings { login_timeout: Duration::from_secs(1), ..settings(&vcenter, (CSI.0, "wrong")) };
    let connection = Connection::new(&wrong).unwrap();
    hang(&vcenter, "Login", 100).await;
    let mut last = None;
    for _ in 0..6 {
        last = connection.time().await.err();
    }
    assert!(last.is_some_and(|error| error.is_login()));
    assert_eq!(failed(&vcenter).await.len(), 3);
}

#[tokio::test]
async fn logins_that_end_with_their_connections_are_counted_as_failed() {
    let vcenter = vcenter().await;
    let budget = LoginBudget::default();
    hang(&vcenter, "Login", 100).await;
    for reload in 0..6 {
        // A reload gives the connection up while its login is on the way.
        let connection = sharing(&vcenter, (CSI.0, &format!("wrong-{reload}")), &budget);
        let checked = async || failed(&vcenter).await.len() > reload;
        let login = timeout(LIMIT, connection.time());
        tokio::select! {
            () = wait_for("the password is checked", checked) => assert!(reload < 3),
            held = login => {
                let error = held.unwrap().unwrap_err();
                let spent = matches!(error.failure().cause, Cause::LoginsSpent { .. });
                assert!(spent && reload >= 3, "{error}");
            }
        }
    }
    assert_eq!(failed(&vcenter).await.len(), 3);
}

#[tokio::test]
async fn logins_of_accepted_credentials_that_end_with_their_connections_are_not_counted() {
    let vcenter = vcenter().await;
    let budget = LoginBudget::default();
    sharing(&vcenter, CSI, &budget).time().await.unwrap();
    hang(&vcenter, "Login", 100).await;
    for reload in 2..7 {
        let connection = sharing(&vcenter, CSI, &budget);
        let sent = async || calls(&vcenter).await["Login"] == reload;
        tokio::select! {
            () = wait_for("a login is on the way", sent) => {}
            answered = connection.time() => panic!("{answered:?}"),
        }
    }
    vcenter.control().disarm().await.unwrap();
    sharing(&vcenter, CSI, &budget).time().await.unwrap();
}

#[tokio::test]
async fn a_name_that_does_not_answer_delays_no_login_by_the_other_name_of_its_vcenter() {
    let vcenter = vcenter().await;
    let budget = LoginBudget::default();
    let settings = Settings { budget, timeout: 10 * LIMIT, ..settings(&vcenter, CSI) };
    let address = Connection::new(&settings).unwrap();
    let endpoint = alias(&vcenter).parse().unwrap();
    let alias = Connection::new(&Settings { endpoint, ..settings }).unwrap();
    address.time().await.unwrap();
    alias.time().await.unwrap();
    vcenter.control().expire_sessions().await.unwrap();
    // The first request of a login.
    hang(&vcenter, "RetrieveServiceContent", 1).await;
    let sent = async || calls(&vcenter).await["RetrieveServiceContent"] == 3;
    tokio::select! {
        () = wait_for("a login by the address hangs", sent) => {}
        answered = address.time() => panic!("{answered:?}"),
    }
    timeout(LIMIT, alias.time()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_refusal_of_rest_does_not_hold_logins_of_soap() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CSI);
    connection.time().await.unwrap();
    let refusal = lab::vcenter::HttpFault {
        path: "/api/session".to_owned(),
        method: None,
        kind: lab::vcenter::HttpFaultKind::Status { status: 401 },
        count: 1,
    };
    vcenter.control().break_http(&refusal).await.unwrap();
    for _ in 0..5 {
        let error = connection.tags().categories().await.unwrap_err();
        assert_eq!(error.remedy, Remedy::Login, "{error}");
    }
    assert_eq!(failed(&vcenter).await.len(), 0, "only the proxy refused");
    vcenter.control().expire_sessions().await.unwrap();
    connection.time().await.unwrap();
}

#[tokio::test]
async fn a_password_that_was_changed_fails_once_whatever_service_is_used_first() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CSI);
    connection.tags().categories().await.unwrap();
    vcenter.control().set_password(CSI.0, "Changed-1!").await.unwrap();
    vcenter.control().expire_sessions().await.unwrap();
    // Sessions of REST ended as well, and tags are what is asked for first.
    let error = connection.tags().categories().await.unwrap_err();
    assert!(error.is_login(), "{error}");
    use_everything(&connection).await;
    assert_eq!(failed(&vcenter).await, ["soap"]);
}

#[tokio::test]
async fn a_directory_that_answers_late_is_not_taken_for_a_wrong_password() {
    let vcenter = vcenter().await;
    // Longer than calls may take: vCenter asks a directory that is slow.
    vcenter.control().delay("Login", 5_000, 0).await.unwrap();
    let patient = Settings { timeout: Duration::from_secs(3), ..settings(&vcenter, CSI) };
    let connection = Connection::new(&patient).unwrap();
    let errors = use_everything(&connection).await;
    assert!(errors.is_empty(), "{errors:?}");
    connection.close().await;
}

#[tokio::test]
async fn tags_that_cannot_be_reached_neither_charge_nor_hold_logins() {
    let vcenter = vcenter().await;
    let budget = LoginBudget::default();
    vcenter.control().delay("POST /api/session", 60_000, 0).await.unwrap();
    for _ in 0..4 {
        let hasty = Settings {
            timeout: Duration::from_secs(1),
            budget: budget.clone(),
            ..settings(&vcenter, CSI)
        };
        let connection = Connection::new(&hasty).unwrap();
        connection.time().await.unwrap();
        let error = connection.tags().categories().await.unwrap_err();
        assert!(matches!(error.failure().cause, Cause::Timeout(_)), "{error}");
    }
}

#[tokio::test]
async fn one_vcenter_under_two_names_fails_three_times_and_locks_nothing() {
    let vcenter = vcenter().await;
    let budget = LoginBudget::default();
    let alias = alias(&vcenter);
    for round in 0..3 {
        for (name, url) in [("address", vcenter.url()), ("alias", &alias)] {
            let wrong = format!("wrong-{name}-{round}");
            let settings = Settings {
                endpoint: url.parse().unwrap(),
                budget: budget.clone(),
                ..settings(&vcenter, (CSI.0, &wrong))
            };
            let error = Connection::new(&settings).unwrap().time().await.unwrap_err();
            assert!(error.is_login(), "{error}");
        }
    }
    assert_eq!(failed(&vcenter).await, ["soap", "soap", "soap"]);
    connect(&vcenter, CSI).time().await.unwrap();
}

#[tokio::test]
async fn a_user_without_a_role_does_not_log_in_again_and_again() {
    let vcenter = vcenter().await;
    let budget = LoginBudget::default();
    let mut texts = BTreeSet::new();
    for _ in 0..3 {
        let connection = sharing(&vcenter, NOBODY, &budget);
        for _ in 0..3 {
            let errors = use_everything(&connection).await;
            assert_eq!(errors.len(), 3);
            for error in errors {
                // The password is right: what has to change is the permission.
                assert!(matches!(error.remedy, Remedy::NoPermission { .. }), "{error}");
                texts.insert(error.to_string());
            }
        }
    }
    assert_eq!(calls(&vcenter).await["Login"], 1);
    assert_eq!(texts.len(), 1, "texts do not change by themselves: {texts:?}");
}

#[tokio::test]
async fn credentials_of_a_user_without_a_role_do_not_end_a_session_that_works() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CSI);
    let user = connection.login().await.unwrap();
    let no_role = Credentials::password(NOBODY.0, NOBODY.1);
    let error = connection.replace_credentials(no_role).await.unwrap_err();
    assert!(matches!(error.remedy, Remedy::NoPermission { .. }), "{error}");
    assert_eq!(connection.login().await.unwrap(), user);
    connection.time().await.unwrap();
}
