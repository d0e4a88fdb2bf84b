//! Broken wires, slow servers, and who may read our passwords.

use std::{
    fmt::Write as _,
    sync::{Arc, Mutex},
    time::Duration,
};

use lab::vcenter::{ADMINISTRATOR, Fault, HttpFault, HttpFaultKind};
use serde_json::json;
use tokio::{net::TcpListener, task::JoinSet};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};
use vsphere::{
    connection::{Connection, Settings},
    error::{Cause, Error, Remedy},
    object,
    session::Credentials,
    soap::Service,
    tls::Trust,
    types::{PowerOffVm, VirtualMachine},
};

use crate::site::{
    CPI, LIMIT, administrator, calls, connect, settings, vcenter, wait_for, watched,
};

object! {
    /// A VM's name.
    struct Named: VirtualMachine {
        name: String = "name",
    }
}

fn fault(kind: HttpFaultKind) -> HttpFault {
    HttpFault { path: "/sdk".to_owned(), method: Some("CurrentTime".to_owned()), kind, count: 1 }
}

#[tokio::test]
async fn each_broken_answer_is_told_apart_and_the_next_call_works() {
    let vcenter = vcenter().await;
    let mut settings = settings(&vcenter, ADMINISTRATOR);
    settings.timeout = Duration::from_secs(2);
    let connection = Connection::new(&settings).unwrap();
    connection.time().await.unwrap();
    let kinds = [
        (HttpFaultKind::Status { status: 503 }, "retry", "HTTP status 503"),
        (HttpFaultKind::Status { status: 502 }, "retry", "HTTP status 502"),
        (HttpFaultKind::Reset, "unreachable", "broke"),
        (HttpFaultKind::Truncate, "unreachable", "broke"),
        (HttpFaultKind::Hang, "unreachable", "no answer within 2 s"),
    ];
    for (kind, remedy, text) in kinds {
        vcenter.control().break_http(&fault(kind)).await.unwrap();
        let error = connection.time().await.unwrap_err();
        assert_eq!(error.remedy.name(), remedy, "{kind:?}: {error}");
        assert!(error.to_string().contains(text), "{kind:?}: {error}");
        assert!(error.to_string().contains("CurrentTime"), "{kind:?}: {error}");
        connection.time().await.unwrap();
    }
}

#[tokio::test]
async fn a_call_beyond_the_allowed_ones_waits_for_its_turn() {
    let vcenter = vcenter().await;
    let mut settings = settings(&vcenter, ADMINISTRATOR);
    (settings.concurrency, settings.timeout) = (2, Duration::from_secs(2));
    let connection = Connection::new(&settings).unwrap();
    connection.login().await.unwrap();
    vcenter
        .control()
        .break_http(&HttpFault { count: 2, ..fault(HttpFaultKind::Hang) })
        .await
        .unwrap();
    let order = Mutex::new(Vec::new());
    let hanging = || async {
        connection.time().await.unwrap_err();
        order.lock().unwrap().push("hanging");
    };
    let waiting = async {
        connection.list::<Named>().await.unwrap();
        order.lock().unwrap().push("waiting");
    };
    tokio::join!(hanging(), hanging(), waiting);
    assert_eq!(order.into_inner().unwrap()[0], "hanging");
}

#[tokio::test]
async fn slow_storage_calls_leave_slots_for_logins_logouts_and_tasks() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    connection.login().await.unwrap();
    let hang = HttpFault {
        path: "/vsanHealth".to_owned(),
        method: Some("CnsQueryVolume".to_owned()),
        kind: HttpFaultKind::Hang,
        count: 100,
    };
    vcenter.control().break_http(&hang).await.unwrap();
    let mut queries = JoinSet::new();
    for _ in 0..40 {
        let connection = connection.clone();
        let query = async move {
            let volume = vsphere::types::CnsVolumeId::from("pvc");
            connection.volumes().read(&[volume], &[]).await.is_ok()
        };
        queries.spawn(query);
    }
    let hanging = async || calls(&vcenter).await.get("CnsQueryVolume").copied().unwrap_or_default();
    wait_for("the slots of storage are taken", async || hanging().await >= 12).await;
    let work = async {
        vcenter.control().expire_sessions().await.unwrap();
        let vms: Vec<Named> = connection.list().await.unwrap();
        let node = vms.iter().find(|vm| vm.name == "node-1").unwrap();
        let task = connection.call(&node.reference, &PowerOffVm {}).await.unwrap();
        connection.wait::<()>(&task, Service::Vim, LIMIT).await.unwrap();
    };
    tokio::time::timeout(LIMIT / 2, work).await.expect("other calls do not wait for storage");
    assert!(queries.try_join_next().is_none(), "a query was answered");
}

#[tokio::test]
async fn a_slow_vcenter_is_waited_for() {
    let vcenter = vcenter().await;
    vcenter.control().delay("*", 100, 100).await.unwrap();
    let connection = administrator(&vcenter);
    let vms: Vec<Named> = connection.list().await.unwrap();
    let node = vms.iter().find(|vm| vm.name == "node-1").unwrap();
    let task = connection.call(&node.reference, &PowerOffVm {}).await.unwrap();
    connection.wait::<()>(&task, Service::Vim, LIMIT).await.unwrap();
    let complete = async {
        let mut collector = watched::<Named>(&connection).await.unwrap();
        while !collector.next().await.unwrap().complete {}
    };
    tokio::time::timeout(LIMIT, complete).await.unwrap();
    connection.close().await;
}

#[tokio::test]
async fn a_dead_vcenter_does_not_delay_another() {
    let alive = vcenter().await;
    // It accepts connections and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = silent.local_addr().unwrap().to_string().parse().unwrap();
    let credentials = Credentials::password(ADMINISTRATOR.0, ADMINISTRATOR.1);
    let dead = Settings { trust: Trust::Insecure, ..Settings::new(endpoint, credentials) };
    let dead = Connection::new(&dead).unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        let dead = dead.clone();
        waiting.spawn(async move { dead.time().await });
    }
    let connection = administrator(&alive);
    for _ in 0..20 {
        connection.time().await.unwrap();
    }
    assert!(waiting.try_join_next().is_none(), "the dead one answered");
}

#[tokio::test]
async fn faults_are_sorted_by_remedy_with_their_details() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    connection.time().await.unwrap();
    let cases = [
        ("ManagedObjectNotFound", json!({}), "not-found"),
        ("FileNotFound", json!({"file": "x"}), "not-found"),
        ("ResourceInUse", json!({}), "in-use"),
        ("TaskInProgress", json!({}), "busy"),
        ("NoDiskSpace", json!({"file": "", "datastore": "shared-1"}), "no-space"),
        ("InvalidArgument", json!({"invalidProperty": "spec.name"}), "invalid"),
        ("HostNotConnected", json!({}), "retry"),
        ("InvalidPowerState", json!({}), "refused"),
        ("NotSupported", json!({}), "refused"),
        ("CnsFault", json!({"reason": "no"}), "refused"),
    ];
    for (name, fields, remedy) in cases {
        let fault = Fault { fields, ..Fault::next("CurrentTime", name) };
        vcenter.control().fail(&fault).await.unwrap();
        let error = connection.time().await.unwrap_err();
        assert_eq!(error.remedy.name(), remedy, "{name}: {error}");
        assert_eq!(error.fault().unwrap().type_name(), name);
        if let Error { remedy: Remedy::Invalid { field }, .. } = &error {
            assert_eq!(field.as_deref(), Some("spec.name"));
        }
    }
}

#[tokio::test]
async fn a_missing_privilege_is_named_with_its_object() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    let fields = json!({
        "object": {"type": "Datastore", "value": "datastore-7"},
        "privilegeId": "Datastore.FileManagement",
    });
    let fault = Fault { fields, ..Fault::next("CurrentTime", "NoPermission") };
    vcenter.control().fail(&fault).await.unwrap();
    let error = connection.time().await.unwrap_err();
    let Error { remedy: Remedy::NoPermission { object, privilege }, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(object.as_ref().unwrap().kind(), "Datastore");
    assert_eq!(privilege.as_deref(), Some("Datastore.FileManagement"));
    let text = error.to_string();
    assert!(text.contains("Datastore datastore-7") && text.contains("grant"), "{text}");
}

#[tokio::test]
async fn passwords_are_in_no_debug_text_no_log_and_no_error() {
    let log = Arc::new(Mutex::new(String::new()));
    let _guard = tracing::subscriber::set_default(Log(Arc::clone(&log)));
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CPI);
    connection.time().await.unwrap();
    let wrong = connect(&vcenter, (CPI.0, "Wrong-secret-1!"));
    let error = wrong.time().await.unwrap_err();
    let mut text = format!("{error} {error:?} {connection:?} {:?}", settings(&vcenter, CPI));
    text.push_str(&log.lock().unwrap());
    assert!(text.contains("login refused"), "the log was not kept: {text}");
    for secret in [CPI.1, "Wrong-secret-1!"] {
        assert!(!text.contains(secret), "{text}");
    }
    assert!(matches!(error.failure().cause, Cause::Credentials { .. }));
}

/// Keeps every event with all its fields.
struct Log(Arc<Mutex<String>>);

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut Line(&mut self.0.lock().unwrap()));
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}
