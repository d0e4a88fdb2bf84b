//! The envelope around a call.

use super::{Header, Service, envelope, preview, request};
use crate::{
    reference::Ref,
    types::{
        CurrentTime, PbmRetrieveServiceContent, PbmServiceInstance, RetrieveContent,
        ServiceInstance, VslmServiceInstance,
    },
    version::Release,
};

#[test]
fn the_header_has_session_operation_and_security_in_this_order() {
    let header = Header {
        operation: "a<b",
        session: Some("\"cookie & more\""),
        security: Some("<wsse:Security/>"),
    };
    let on = Ref::<ServiceInstance>::new("ServiceInstance");
    let text = request(header, Release::OLDEST, Service::Pbm, &on, &CurrentTime {});
    let expected = "<soapenv:Header><vcSessionCookie>cookie &amp; more</vcSessionCookie>\
                    <operationID>a&lt;b</operationID><wsse:Security/></soapenv:Header><soapenv:Body ";
    assert!(text.contains(expected), "{text}");
    let text = envelope(Header::default(), "<x/>");
    assert!(text.contains("XMLSchema\"><soapenv:Body><x/>"), "{text}");
}

#[test]
fn services_that_do_not_look_at_cookies_find_the_session_in_the_envelope() {
    let on = Ref::<PbmServiceInstance>::new("ServiceInstance");
    let pbm = preview(Release::NEWEST, &on, &PbmRetrieveServiceContent {});
    let on = Ref::<VslmServiceInstance>::new("ServiceInstance");
    let vslm = preview(Release::NEWEST, &on, &RetrieveContent {});
    for (text, path) in [(pbm, "POST /pbm\n"), (vslm, "POST /vslm/sdk\n")] {
        assert!(text.starts_with(path), "{text}");
        assert!(text.contains("<vcSessionCookie>COOKIE</vcSessionCookie>"), "{text}");
    }
}

#[test]
fn the_action_names_the_version_that_the_server_shall_speak() {
    let action = |service: Service| service.action(|line| Release::OLDEST.version(line));
    assert_eq!(action(Service::Vim), "urn:vim25/6.7.3");
    assert_eq!(action(Service::Cns), "urn:vsan/vSAN 6.7U3");
    assert_eq!(
        (Service::CnsTasks.path(), action(Service::CnsTasks)),
        ("/sdk", action(Service::Cns))
    );
    assert_eq!(action(Service::Sso), "urn:sso/version2");
}

#[test]
fn the_administration_of_sso_gets_no_header_without_a_namespace() {
    let header = Header { operation: "op", session: Some("cookie"), security: None };
    let on = Ref::<ServiceInstance>::new("ServiceInstance");
    let text = request(header, Release::OLDEST, Service::Sso, &on, &CurrentTime {});
    assert!(!text.contains("Header"), "{text}");
    let text = request(header, Release::OLDEST, Service::Cns, &on, &CurrentTime {});
    assert!(text.contains("<operationID>op</operationID>") && !text.contains("cookie"), "{text}");
}
