//! Which remedy a fault has.

use std::sync::Arc;

use super::{Cause, Error, Failure, Missing, Remedy};
use crate::{reference::Ref, soap, types::CnsPlacementResult};

/// The error of a call that is answered with a fault of this type.
fn error(name: &str, content: &str) -> Error {
    let answer = format!(
        "<Envelope><Body><Fault><faultstring>no</faultstring><detail>\
         <{name}Fault xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:type=\"{name}\">{content}\
         </{name}Fault></detail></Fault></Body></Envelope>"
    );
    let cause = soap::answer(&answer, |_, _| Ok(())).unwrap_err();
    assert!(matches!(cause, Cause::Fault(_)), "not a fault: {answer}");
    let vcenter: Arc<str> = "vcenter".into();
    Error::from(Failure { vcenter, method: "Call", operation: String::new(), cause })
}

fn wrapping(name: &str, content: &str) -> Error {
    let cause = format!(
        "<faultCause><fault xsi:type=\"{name}\">{content}</fault>\
         <localizedMessage>inside</localizedMessage></faultCause>"
    );
    error("CnsFault", &cause)
}

#[test]
fn a_lost_session_inside_another_fault_does_not_read_as_wrong_credentials() {
    assert_eq!(error("NotAuthenticated", "").remedy, Remedy::LoggedOut);
    assert_eq!(wrapping("NotAuthenticated", "").remedy, Remedy::LoggedOut);
    assert_eq!(error("InvalidLogin", "").remedy, Remedy::Login);
    assert_eq!(wrapping("InvalidLogin", "").remedy, Remedy::Refused);
}

#[test]
fn what_is_missing_is_named_and_only_by_the_fault_of_the_call_itself() {
    let host = "<obj type=\"HostSystem\">host-7</obj>";
    let cases = [
        ("ManagedObjectNotFound", host, Missing::Object(Ref::with_kind("HostSystem", "host-7"))),
        ("CnsVolumeNotFoundFault", "<volumeId><id>v</id></volumeId>", Missing::Volume("v".into())),
        ("CnsSnapshotNotFoundFault", "", Missing::Unnamed),
        ("FileNotFound", "<file>[ds] a.vmdk</file>", Missing::File("[ds] a.vmdk".into())),
        ("NotFound", "", Missing::Unnamed),
    ];
    for (name, content, what) in cases {
        assert_eq!(error(name, content).remedy, Remedy::NotFound { what }, "{name}");
        assert_eq!(wrapping(name, content).remedy, Remedy::Refused, "{name} inside another fault");
    }
}

#[test]
fn a_device_that_cannot_be_accessed_is_not_in_use() {
    assert_eq!(error("CannotAccessVmDisk", "").remedy, Remedy::Retry);
    assert_eq!(wrapping("ResourceInUse", "").remedy, Remedy::InUse);
}

/// The remedy of a creation that fails with this fault, with one reason for each datastore.
fn unplaced(fault_name: &str, reasons: &[&str]) -> Remedy {
    let fault = |name: &str| error(name, "").fault().unwrap().clone();
    let placement = |reason: &&str| CnsPlacementResult {
        placement_faults: vec![fault(reason)],
        ..CnsPlacementResult::default()
    };
    let placements = reasons.iter().map(placement).collect();
    Cause::Unplaced { fault: Box::new(fault(fault_name)), placements }.remedy()
}

#[test]
fn a_creation_lacks_space_if_every_datastore_that_suits_the_policy_does() {
    let cases: [(&[&str], Remedy); 5] = [
        (&["NoDiskSpace"], Remedy::NoSpace),
        (&["NoDiskSpace", "CnsInCompatibleFault", "NoDiskSpace"], Remedy::NoSpace),
        (&["CnsInCompatibleFault"], Remedy::Refused),
        (&["NoDiskSpace", "CnsMissingPrivilegeFault"], Remedy::Refused),
        (&["NoDiskSpace", "CnsPlacementFault"], Remedy::Refused),
    ];
    for (reasons, remedy) in cases {
        assert_eq!(unplaced("CnsFault", reasons), remedy, "{reasons:?}");
    }
    assert_eq!(unplaced("TaskInProgress", &["NoDiskSpace"]), Remedy::Busy);
}

#[test]
fn the_messages_of_faults_inside_are_shown() {
    let text = "Attaching mutually shared fcd disks to same VM is not supported.";
    let content = format!("<faultMessage><key>k</key><message>{text}</message></faultMessage>");
    let error = wrapping("NotSupported", &content);
    let shown = error.to_string();
    assert!(shown.contains("CnsFault: no (Attaching mutually shared"), "{shown}");
    assert_eq!(error.fault().unwrap().details().collect::<Vec<_>>(), [text]);
}
