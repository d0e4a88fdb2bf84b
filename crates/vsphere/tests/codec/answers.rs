//! SOAP answers: values, faults of every shape, and pages of whoever stands in front of the server.

use vsphere::{
    collector::Change,
    error::Cause,
    fault::Fault,
    recorded,
    reference::Ref,
    types::{
        AnyPbmProfile, CnsBlockBackingDetails, CnsQueryResult, ManagedEntity, ServiceContent,
        UserSession,
    },
};

use crate::{corpus, readers::Seen};

const OPEN: &str = r#"<?xml version="1.0" encoding="UTF-8"?><s:Envelope xmlns:s="soap"><s:Body>"#;
const CLOSE: &str = "</s:Body></s:Envelope>";

fn answer(body: &str) -> String {
    format!("{OPEN}{body}{CLOSE}")
}

fn fault(document: &str) -> Fault {
    match recorded::answer::<ServiceContent>(document) {
        Err(Cause::Fault(fault)) => *fault,
        other => panic!("{other:?}"),
    }
}

/// A fault with this behind code and message.
fn refused(detail: &str) -> Fault {
    let head = "<faultcode>s:Server</faultcode><faultstring>No &amp; never</faultstring>";
    fault(&answer(&format!("<s:Fault>{head}{detail}</s:Fault>")))
}

fn recording(name: &str) -> String {
    corpus().into_iter().find(|(of, _)| of == name).unwrap().1
}

#[test]
fn a_fault_has_the_type_of_its_detail() {
    let detail = r#"<detail><NoPermissionFault xmlns="urn:vim25" xsi:type="NoPermission">
        <object type="Folder">group-d1</object><privilegeId>System.View</privilegeId>
        </NoPermissionFault></detail>"#;
    let fault = refused(detail);
    assert_eq!(fault.type_name(), "NoPermission");
    assert_eq!(fault.message(), "No & never");
    assert_eq!(fault.field("object"), Some("group-d1"));
    assert_eq!(fault.field("object@type"), Some("Folder"));
    assert_eq!(fault.field("privilegeId"), Some("System.View"));
    assert!(fault.is_a("SecurityError") && fault.is_a("RuntimeFault"));
}

#[test]
fn a_fault_without_type_is_named_after_its_detail() {
    for (element, name) in [
        ("NotAuthenticatedFault", "NotAuthenticated"),
        ("vim25:InvalidLoginFault", "InvalidLogin"),
        ("InvalidLogin", "InvalidLogin"),
        // Types that end like the elements of others.
        ("CnsFaultFault", "CnsFault"),
        ("CnsFault", "CnsFault"),
        ("CnsVolumeNotFoundFault", "CnsVolumeNotFoundFault"),
        ("RuntimeFaultFault", "RuntimeFault"),
        ("SomethingNewFault", "SomethingNew"),
    ] {
        assert_eq!(refused(&format!("<detail><{element}/></detail>")).type_name(), name);
    }
}

#[test]
fn a_fault_without_detail_has_the_name_of_its_code() {
    for detail in ["", "<detail/>", "<detail> </detail>", "<faultactor>x</faultactor>"] {
        let fault = refused(detail);
        assert_eq!((fault.type_name(), fault.message()), ("Server", "No & never"));
    }
    let fault = fault(&answer("<s:Fault/>"));
    assert_eq!((fault.type_name(), fault.message()), ("", ""));
}

#[test]
fn the_causes_of_a_fault_are_found_by_type() {
    let detail = r#"<detail><CnsFaultFault xsi:type="vsan:CnsFault">
        <faultCause xsi:type="LocalizedMethodFault">
          <fault xsi:type="vim25:NotFound"><faultCause><fault xsi:type="NoDiskSpace">
            <file>a.vmdk</file></fault><localizedMessage>full</localizedMessage></faultCause></fault>
          <localizedMessage>not there</localizedMessage>
        </faultCause>
        <faultMessage><key>k</key><message>m</message></faultMessage><reason>why</reason>
        </CnsFaultFault></detail>"#;
    let fault = refused(detail);
    assert_eq!(fault.field("reason"), Some("why"));
    assert_eq!(fault.cause().map(Fault::message), Some("not there"));
    let deepest = fault.find("NoDiskSpace").unwrap();
    assert_eq!((deepest.message(), deepest.field("file")), ("full", Some("a.vmdk")));
    assert!(fault.find("InvalidLogin").is_none());
}

#[test]
fn a_fault_in_a_result_may_be_bare_or_localized() {
    let wrapped =
        r#"<fault><fault xsi:type="NotFound"/><localizedMessage>m</localizedMessage></fault>"#;
    let typed = r#"<fault xsi:type="LocalizedMethodFault"><fault xsi:type="NotFound"/>
        <localizedMessage>m</localizedMessage></fault>"#;
    let bare = r#"<fault xsi:type="NotFound"><file>f</file></fault>"#;
    for (text, message) in [(wrapped, "m"), (typed, "m"), (bare, "")] {
        let fault: Fault = crate::read(text).unwrap();
        assert_eq!((fault.type_name(), fault.message()), ("NotFound", message), "{text}");
    }
}

#[test]
fn a_fault_with_many_fields_keeps_the_first_ones() {
    let fields: String = (0..1000).map(|at| format!("<f{at}><a>{at}</a></f{at}>")).collect();
    let fault = refused(&format!("<detail><XFault>{fields}</XFault></detail>"));
    assert_eq!(fault.field("f7.a"), Some("7"));
    assert_eq!(fault.field("f999.a"), None);
}

#[test]
fn what_is_no_answer_is_malformed() {
    for document in [
        "<!DOCTYPE html><html><head><title>503</title></head><body><h1>busy</h1></body></html>",
        "<html><body><br>no end</body></html>",
        "upstream connect error",
        "",
        "<Envelope/>",
        "<Envelope><Header><Body><x/></Body></Header></Envelope>",
        "<Envelope><Body/></Envelope>",
        &answer("<x><returnval><about>").replace(CLOSE, ""),
        &answer("<s:Fault><faultstring>x</faultstring></s:Fault>").replace(CLOSE, ""),
    ] {
        let answer = recorded::answer::<ServiceContent>(document);
        assert!(matches!(answer, Err(Cause::Malformed(_))), "{document}");
    }
}

#[test]
fn an_answer_without_value_is_the_default() {
    let nothing = answer("<FindByUuidResponse></FindByUuidResponse>");
    assert_eq!(recorded::answer::<Option<Ref<ManagedEntity>>>(&nothing).unwrap(), None);
    assert_eq!(recorded::answer::<Vec<Ref<ManagedEntity>>>(&nothing).unwrap(), []);
    recorded::answer::<()>(&nothing).unwrap();
    let several = answer("<r><returnval>a</returnval><other/><returnval>b</returnval></r>");
    assert_eq!(recorded::answer::<Vec<String>>(&several).unwrap(), ["a", "b"]);
}

#[test]
fn recorded_answers_are_read() {
    let content: ServiceContent = recorded::answer(&recording("service-content")).unwrap();
    assert_eq!(content.about.api_version, "8.0.3.0");
    let session: UserSession = recorded::answer(&recording("login")).unwrap();
    assert_eq!(session.user_name, r"VSPHERE.LOCAL\administrator");
    let volumes: CnsQueryResult = recorded::answer(&recording("volumes")).unwrap();
    let backing = volumes.volumes[0].backing_object_details.clone().unwrap();
    let block = CnsBlockBackingDetails::default();
    assert_eq!(std::mem::discriminant(&backing), std::mem::discriminant(&block.into()));
    let policies: Vec<AnyPbmProfile> = recorded::answer(&recording("policies")).unwrap();
    assert!(policies.iter().all(|policy| matches!(policy, AnyPbmProfile::PbmCapabilityProfile(_))));
    assert_eq!(recorded::token(&recording("token")).unwrap(), "csi@VSPHERE.LOCAL");
    let versions = recorded::versions(&recording("versions-vsan")).unwrap();
    assert!(versions.contains(&"vSAN 6.7U3".to_owned()), "{versions:?}");
}

#[test]
fn recorded_faults_are_read() {
    for (name, type_name) in [
        ("fault-login", "InvalidLogin"),
        ("fault-not-authenticated", "NotAuthenticated"),
        ("fault-object", "ManagedObjectNotFound"),
        ("fault-permission", "NoPermission"),
        ("fault-policy", "InvalidArgument"),
        ("fault-request", "InvalidRequest"),
    ] {
        let fault = fault(&recording(name));
        assert_eq!(fault.type_name(), type_name, "{name}");
        assert!(!fault.message().is_empty(), "{name}");
    }
    let denied = fault(&recording("fault-permission"));
    assert_eq!(denied.field("privilegeId"), Some("VirtualMachine.Interact.PowerOff"));
}

#[test]
fn recorded_pages_and_updates_are_read() {
    let (objects, token) = recorded::objects::<Seen>(&recording("properties")).unwrap();
    assert_eq!(objects.len(), 4);
    assert!(token.is_some());
    let changes = recorded::changes::<Seen>(&recording("updates-enter")).unwrap();
    assert!(changes.iter().all(|change| matches!(change, Change::Entered(_))), "{changes:?}");
    let changes = recorded::changes::<Seen>(&recording("updates-modify")).unwrap();
    assert!(changes.iter().any(|change| matches!(change, Change::Changed(_))), "{changes:?}");
    assert!(changes.iter().any(|change| matches!(change, Change::Left(_))), "{changes:?}");
    let (tasks, _) = recorded::objects::<Seen>(&recording("task-refused")).unwrap();
    let Seen::Task(task) = &tasks[0] else { panic!("{tasks:?}") };
    assert_eq!(task.error.as_ref().map(Fault::type_name), Some("InvalidArgument"));
}
