//! Sessions and credentials.

use std::time::Duration;

use lab::{
    VCenter,
    vcenter::{ADMINISTRATOR, Fault, HttpFault, HttpFaultKind},
};
use prometheus_client::registry::Registry;
use vsphere::{
    connection::Connection,
    error::{Cause, Error, Remedy},
    metrics::Metrics,
    object,
    session::Credentials,
    soap::Service,
    types::{CnsQueryFilter, PowerOffVm, VirtualMachine},
};

use crate::site::{
    CPI, CSI, LIMIT, administrator, calls, connect, fix, sessions, settings, vcenter, vcenter_of,
    wait_for,
};

object! {
    /// A VM's name.
    struct Named: VirtualMachine {
        name: String = "name",
    }
}

async fn logins(vcenter: &VCenter) -> u64 {
    calls(vcenter).await.get("Login").copied().unwrap_or_default()
}

#[tokio::test]
async fn every_release_is_logged_in_to_read_and_changed() {
    for release in ["6.7U3", "7.0U1", "7.0U2", "7.0U3", "8.0U3", "9.0", "9.1"] {
        let vcenter = vcenter_of(release).await;
        let connection = administrator(&vcenter);
        assert_eq!(connection.login().await.unwrap(), "VSPHERE.LOCAL\\administrator", "{release}");
        let about = connection.about().await.unwrap();
        assert!(about.instance_uuid.is_some() && !about.build.is_empty(), "{release}: {about:?}");
        let skew = connection.time().await.unwrap().duration_since(jiff::Timestamp::now());
        assert!(skew.abs() < jiff::SignedDuration::from_secs(60), "{release}: {skew}");
        let vms: Vec<Named> = connection.list().await.unwrap();
        let node = vms.iter().find(|vm| vm.name == "node-1").unwrap();
        let task = connection.call(&node.reference, &PowerOffVm {}).await.unwrap();
        connection.wait::<()>(&task, Service::Vim, LIMIT).await.unwrap();
        connection.close().await;
        assert_eq!(sessions(&vcenter, ADMINISTRATOR.0).await, 0, "{release}");
    }
}

#[tokio::test]
async fn calls_at_once_share_one_login() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    let results = futures::future::join_all((0..50).map(|_| connection.time())).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(logins(&vcenter).await, 1);

    vcenter.control().expire_sessions().await.unwrap();
    let results = futures::future::join_all((0..50).map(|_| connection.time())).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(logins(&vcenter).await, 2);
    assert_eq!(sessions(&vcenter, ADMINISTRATOR.0).await, 1);
}

#[tokio::test]
async fn a_session_that_ends_in_the_middle_of_a_list_is_not_noticed() {
    let vcenter = crate::site::generated(600).await;
    let connection = administrator(&vcenter);
    let fault =
        Fault { skip: 1, ..Fault::next("ContinueRetrievePropertiesEx", "NotAuthenticated") };
    vcenter.control().fail(&fault).await.unwrap();
    let vms: Vec<Named> = connection.list().await.unwrap();
    let mut names: Vec<&str> = vms.iter().map(|vm| vm.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 603, "each VM once");
    assert_eq!(vms.len(), 603);
    connection.close().await;
    assert_eq!(sessions(&vcenter, ADMINISTRATOR.0).await, 0);
}

#[tokio::test]
async fn refused_credentials_are_tried_once_and_corrected_ones_at_once() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, (CSI.0, "wrong"));
    for _ in 0..20 {
        let error = connection.time().await.unwrap_err();
        assert!(matches!(error, Error { remedy: Remedy::Login, .. }), "{error}");
        assert!(error.to_string().contains(CSI.0), "{error}");
    }
    let error = connection.time().await.unwrap_err().to_string();
    assert!(error.contains("not tried again"), "{error}");
    assert_eq!(logins(&vcenter).await, 1);

    connection.replace_credentials(Credentials::password(CSI.0, CSI.1)).await.unwrap();
    connection.time().await.unwrap();
    assert_eq!(logins(&vcenter).await, 2);
}

#[tokio::test]
async fn a_mistyped_new_password_does_not_end_a_session_that_works() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CSI);
    connection.time().await.unwrap();
    let error =
        connection.replace_credentials(Credentials::password(CSI.0, "mistyped")).await.unwrap_err();
    assert!(matches!(error, Error { remedy: Remedy::Login, .. }), "{error}");
    connection.time().await.unwrap();
    vcenter.control().expire_sessions().await.unwrap();
    connection.time().await.unwrap();
    assert_eq!(sessions(&vcenter, CSI.0).await, 1);
}

#[tokio::test]
async fn another_user_takes_over_and_the_first_is_logged_out() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CSI);
    connection.time().await.unwrap();
    connection.replace_credentials(Credentials::password(CPI.0, CPI.1)).await.unwrap();
    assert_eq!(connection.login().await.unwrap(), "VSPHERE.LOCAL\\cpi");
    assert_eq!(sessions(&vcenter, CSI.0).await, 0);
    assert_eq!(sessions(&vcenter, CPI.0).await, 1);
}

#[tokio::test]
async fn new_credentials_are_taken_while_vcenter_is_away() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, (CSI.0, "old"));
    vcenter.control().restart(300).await.unwrap();
    connection.replace_credentials(Credentials::password(CSI.0, CSI.1)).await.unwrap();
    wait_for("vCenter is back", async || connection.time().await.is_ok()).await;
}

#[tokio::test]
async fn a_login_that_nobody_waits_for_is_kept_for_the_next_call() {
    let vcenter = vcenter().await;
    vcenter.control().delay("Login", 300, 0).await.unwrap();
    let connection = administrator(&vcenter);
    let given_up = tokio::time::timeout(Duration::from_millis(50), connection.time()).await;
    assert!(given_up.is_err());
    connection.time().await.unwrap();
    assert_eq!(logins(&vcenter).await, 1);
    assert_eq!(sessions(&vcenter, ADMINISTRATOR.0).await, 1);
}

#[tokio::test]
async fn a_closed_connection_refuses_and_leaves_no_session() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    connection.time().await.unwrap();
    connection.close().await;
    let error = connection.time().await.unwrap_err();
    assert!(matches!(error.failure().cause, Cause::Closed), "{error}");
    assert_eq!(sessions(&vcenter, ADMINISTRATOR.0).await, 0);
}

#[tokio::test]
async fn the_version_of_vsan_is_read_before_the_first_call_to_cns() {
    let vcenter = vcenter().await;
    fix(&vcenter, &[("Snapshots", true.into())]).await;
    let connection = administrator(&vcenter);
    let document = "/sdk/vsanServiceVersions.xml";
    let missing = HttpFault {
        path: document.to_owned(),
        method: None,
        kind: HttpFaultKind::Status { status: 404 },
        count: 1,
    };
    vcenter.control().break_http(&missing).await.unwrap();
    connection.time().await.unwrap();
    assert_eq!(requests(&vcenter, document).await, 0, "who does not call CNS does not need it");
    // Without the document the oldest version is assumed, for one call.
    let volumes = connection.volumes();
    let too_old = volumes.query_by_task(&CnsQueryFilter::default(), &[]).await.unwrap_err();
    assert!(matches!(too_old.failure().cause, Cause::TooOld(_)), "{too_old}");
    volumes.query_by_task(&CnsQueryFilter::default(), &[]).await.unwrap();
    volumes.query_by_task(&CnsQueryFilter::default(), &[]).await.unwrap();
    assert_eq!(requests(&vcenter, document).await, 2);
    connection.close().await;
}

/// How many requests there were for a path.
async fn requests(vcenter: &VCenter, path: &str) -> u64 {
    let state = vcenter.control().state_as_json().await.unwrap();
    let all = state["calls"]["requests"].as_array().unwrap().iter();
    all.filter(|request| request["path"] == path)
        .map(|request| request["count"].as_u64().unwrap())
        .sum()
}

#[tokio::test]
async fn vcenter_sees_our_name_and_version() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    connection.time().await.unwrap();
    let state = vcenter.control().state_as_json().await.unwrap();
    let agent = state["sessions"][0]["agent"].as_str().unwrap().to_owned();
    assert_eq!(agent, format!("vsphere-drivers/{}", env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn calls_logins_failures_and_sessions_are_counted() {
    let vcenter = vcenter().await;
    let mut registry = Registry::default();
    let mut settings = settings(&vcenter, ADMINISTRATOR);
    settings.metrics = Metrics::registered(&mut registry);
    let connection = Connection::new(&settings).unwrap();
    connection.time().await.unwrap();
    vcenter.control().fail(&Fault::next("CurrentTime", "TaskInProgress")).await.unwrap();
    connection.time().await.unwrap_err();
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let name = connection.vcenter();
    for line in [
        format!(
            "vsphere_call_duration_seconds_count{{vcenter=\"{name}\",method=\"CurrentTime\"}} 2"
        ),
        format!(
            "vsphere_call_failures_total{{vcenter=\"{name}\",method=\"CurrentTime\",remedy=\"busy\"}} 1"
        ),
        format!("vsphere_logins_total{{vcenter=\"{name}\",result=\"success\"}} 1"),
        format!("vsphere_open_sessions{{vcenter=\"{name}\"}} 1"),
    ] {
        assert!(text.contains(&line), "no line {line} in\n{text}");
    }
}

#[tokio::test]
async fn requests_and_operations_of_cns_are_counted_under_the_go_driver_s_names() {
    let vcenter = vcenter().await;
    let mut registry = Registry::default();
    let mut settings = settings(&vcenter, CSI);
    settings.metrics = Metrics::registered_as_go_csi(&mut registry);
    let connection = Connection::new(&settings).unwrap();
    let id = crate::cns::volume(&connection, "counted").await;
    let delete = async || connection.volumes().delete(&id, true).await?.wait(LIMIT).await;
    delete().await.unwrap();
    delete().await.unwrap_err();
    vcenter.control().fail(&Fault::next("CurrentTime", "TaskInProgress")).await.unwrap();
    connection.time().await.unwrap_err();
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let operations = "vsphere_cns_volume_ops_histogram_count";
    let requests = "vsphere_request_ops_seconds_count";
    for line in [
        format!("{operations}{{optype=\"create-volume\",status=\"pass\"}} 1"),
        format!("{operations}{{optype=\"delete-volume\",status=\"pass\"}} 1"),
        format!("{operations}{{optype=\"delete-volume\",status=\"fail\"}} 1"),
        format!("{requests}{{request=\"CnsCreateVolume\",client=\"cns\",status=\"success\"}} 1"),
        format!("{requests}{{request=\"CurrentTime\",client=\"soap\",status=\"fail-unknown\"}} 1"),
    ] {
        assert!(text.contains(&line), "no line {line} in\n{text}");
    }
    assert!(!text.contains("request=\"WaitForUpdatesEx\""), "long polls are not counted");
}
