//! Envelopes against those of other clients, and signatures against another implementation.

use std::{
    collections::HashMap,
    io::Write,
    process::{Command, Stdio},
};

use quick_xml::{
    Reader as Events,
    escape::unescape,
    events::{BytesStart, Event},
};

use super::*;
use crate::{
    reference::Ref,
    soap::Service,
    types::{LoginByToken, SessionManager, SsoSessionManager, sso},
    xml::Method,
};

const TEXT: &str = r#"<saml2:Assertion xmlns:saml2="urn:oasis:names:tc:SAML:2.0:assertion" ID="_token"><saml2:Subject><saml2:NameID>csi@VSPHERE.LOCAL</saml2:NameID></saml2:Subject><saml2:Conditions NotOnOrAfter="2026-11-16T02:00:00.000Z"/></saml2:Assertion>"#;

/// An envelope in the normal form of the golden files: the header, if it has anything, and the call.
#[derive(Default)]
struct Normal {
    lines: String,
    ids: HashMap<String, String>,
}

impl Normal {
    fn of(envelope: &str) -> String {
        let mut events = Events::from_str(envelope);
        let mut normal = Self::default();
        // Names of open elements, and how deep the next one is shown.
        let (mut open, mut pending, mut skip): (Vec<String>, Option<String>, usize) =
            (vec![], None, 0);
        loop {
            match events.read_event().unwrap() {
                Event::Start(_) if skip > 0 => skip += 1,
                Event::End(_) if skip > 1 => skip -= 1,
                Event::Start(start) => {
                    let name = start.name().into_inner().trim_start_matches("soapenv:").to_owned();
                    if let Some(line) = pending.take() {
                        normal.line(&line);
                    }
                    pending = match name.as_str() {
                        "Envelope" | "Body" => None,
                        "saml2:Assertion" => {
                            skip = 1;
                            Some(format!("{}<{name}>TOKEN", indent(&open)))
                        }
                        _ => Some(format!("{}{}", indent(&open), normal.tag(&name, &start))),
                    };
                    open.push(name);
                }
                Event::End(_) => {
                    skip = 0;
                    let name = open.pop().unwrap();
                    match (pending.take(), name.as_str()) {
                        (_, "Envelope" | "Body") | (Some(_), "Header") => {}
                        (Some(line), _) => normal.line(&format!("{line}</{name}>")),
                        (None, _) => normal.line(&format!("{}</{name}>", indent(&open))),
                    }
                }
                Event::Text(text) if skip == 0 => {
                    let text = text.into_inner().into_owned();
                    let shown = shown(open.last().unwrap(), &text);
                    pending.as_mut().unwrap().push_str(&shown);
                }
                Event::GeneralRef(entity) => {
                    let text =
                        unescape(&format!("&{};", &*entity.into_inner())).unwrap().into_owned();
                    let text = text.replace('&', "&amp;").replace('<', "&lt;");
                    pending.as_mut().unwrap().push_str(&text);
                }
                Event::Eof => return normal.lines,
                _ => {}
            }
        }
    }

    fn line(&mut self, line: &str) {
        self.lines.push_str(line);
        self.lines.push('\n');
    }

    fn tag(&mut self, name: &str, start: &BytesStart<'_>) -> String {
        let mut attributes: Vec<(String, String)> = start
            .attributes()
            .map(Result::unwrap)
            .map(|one| (one.key.into_inner().to_owned(), one.value.into_owned()))
            .filter(|(key, _)| !key.starts_with("xmlns"))
            .collect();
        attributes.sort();
        let attributes: String = attributes
            .iter()
            .map(|(key, value)| {
                let value = match key.as_str() {
                    "URI" => format!("#{}", self.id(value.trim_start_matches('#'))),
                    "wsu:Id" | "Id" | "Sig" => self.id(value),
                    _ => value.clone(),
                };
                format!(" {key}=\"{value}\"")
            })
            .collect();
        format!("<{name}{attributes}>")
    }

    fn id(&mut self, value: &str) -> String {
        let next = format!("ID{}", self.ids.len() + 1);
        if value.is_empty() {
            String::new()
        } else {
            self.ids.entry(value.to_owned()).or_insert(next).clone()
        }
    }
}

/// Two blanks for each element around it, but the envelope and the body.
fn indent(open: &[String]) -> String {
    let around = open.iter().filter(|name| !["Envelope", "Body"].contains(&name.as_str()));
    "  ".repeat(around.count())
}

fn shown(element: &str, text: &str) -> String {
    match element {
        "wsu:Created" | "wsu:Expires" => "TIME".to_owned(),
        "ds:DigestValue" => "DIGEST".to_owned(),
        "ds:SignatureValue" => "SIGNATURE".to_owned(),
        "wsse:BinarySecurityToken" => "CERTIFICATE".to_owned(),
        _ => text.to_owned(),
    }
}

fn golden(text: &str) -> &str {
    text.split_once("-->\n").unwrap().1
}

fn token(pair: Option<KeyPair>) -> Token {
    Token { pair, ..Token::from_text(TEXT.to_owned()).unwrap() }
}

fn envelope<M: Method, K: crate::reference::Kind>(
    token: &Token,
    service: Service,
    on: &Ref<K>,
    method: &M,
) -> String {
    let security = token.header(&soap::secured(Release::OLDEST, service, on, method));
    let header = Header { security: Some(security.expose_secret()), ..Header::default() };
    soap::request(header, Release::OLDEST, service, on, method)
}

/// A directory with a new RSA key and its certificate. Nothing that we link can make an RSA key.
fn made() -> (tempfile::TempDir, KeyPair) {
    let home = tempfile::tempdir().unwrap();
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=drivers",
        ])
        .args(["-keyout", "key.pem", "-out", "certificate.pem"])
        .current_dir(&home)
        .output()
        .expect("the program openssl is needed: apt-get install openssl");
    assert!(made.status.success());
    let read = |name| std::fs::read_to_string(home.path().join(name)).unwrap();
    let pair = KeyPair::from_pem(&read("certificate.pem"), &read("key.pem")).unwrap();
    (home, pair)
}

fn openssl(home: &tempfile::TempDir, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut running = Command::new("openssl")
        .args(arguments)
        .current_dir(home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    running.stdin.take().unwrap().write_all(input).unwrap();
    running.wait_with_output().unwrap().stdout
}

/// The text from one mark to the end of another.
fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let start = text.find(start).unwrap();
    &text[start..start + text[start..].find(end).unwrap() + end.len()]
}

#[test]
fn the_request_for_a_bearer_token_is_that_of_other_clients() {
    let asked = bearer_request("csi@vsphere.local", &"secret & <more>".into());
    let expected = golden(include_str!("../../tests/golden/StsIssue-bearer.xml"));
    assert_eq!(Normal::of(asked.expose_secret()), expected);
}

#[test]
fn logins_by_bearer_token_are_those_of_other_clients() {
    let manager = Ref::<SessionManager>::new("SessionManager");
    let login = LoginByToken { locale: Some("en_US".to_owned()) };
    let sent = envelope(&token(None), Service::Vim, &manager, &login);
    let expected = golden(include_str!("../../tests/golden/LoginByToken.xml"));
    assert_eq!(Normal::of(&sent), expected);
    let manager = Ref::<SsoSessionManager>::with_kind("SsoAdminSessionManager", "sessionManager");
    let sent = envelope(&token(None), Service::Sso, &manager, &sso::Login {});
    assert_eq!(Normal::of(&sent), golden(include_str!("../../tests/golden/SsoLogin.xml")));
}

fn unsecured<M: Method<On = K>, K: crate::reference::Kind>(on: &Ref<K>, method: &M) -> String {
    Normal::of(&soap::request(Header::default(), Release::OLDEST, Service::Sso, on, method))
}

#[test]
fn the_administration_of_users_is_called_as_other_clients_call_it() {
    let management = Ref::new("principalManagementService");
    let details = sso::AdminPersonDetails {
        description: Some("user of the drivers".to_owned()),
        email_address: Some("csi@example.com".to_owned()),
        first_name: Some("Container".to_owned()),
        last_name: Some("Storage".to_owned()),
    };
    let user_id = sso::PrincipalId { name: "csi".to_owned(), domain: "vsphere.local".to_owned() };
    let (user_name, password) = ("csi".to_owned(), "secret & <more>".to_owned());
    let create = sso::CreateLocalPersonUser {
        user_name: user_name.clone(),
        user_details: details.clone(),
        password: password.clone(),
    };
    let update =
        sso::UpdateLocalPersonUserDetails { user_name: user_name.clone(), user_details: details };
    let reset =
        sso::ResetLocalPersonUserPassword { user_name: user_name.clone(), new_password: password };
    let delete = sso::DeleteLocalPrincipal { principal_name: user_name };
    let add =
        sso::AddUserToLocalGroup { user_id: user_id.clone(), group_name: "Operators".to_owned() };
    let find = sso::FindPersonUser { user_id };
    let manager = Ref::with_kind("SsoAdminSessionManager", "sessionManager");
    let policy = sso::GetLocalPasswordPolicy {};
    let calls = [
        (
            unsecured(&management, &create),
            include_str!("../../tests/golden/SsoCreateLocalPersonUser.xml"),
        ),
        (
            unsecured(&management, &update),
            include_str!("../../tests/golden/SsoUpdateLocalPersonUserDetails.xml"),
        ),
        (
            unsecured(&management, &reset),
            include_str!("../../tests/golden/SsoResetLocalPersonUserPassword.xml"),
        ),
        (
            unsecured(&management, &delete),
            include_str!("../../tests/golden/SsoDeleteLocalPrincipal.xml"),
        ),
        (
            unsecured(&management, &add),
            include_str!("../../tests/golden/SsoAddUserToLocalGroup.xml"),
        ),
        (
            unsecured(&Ref::new("principalDiscoveryService"), &find),
            include_str!("../../tests/golden/SsoFindPersonUser.xml"),
        ),
        (
            unsecured(&Ref::new("passwordPolicyService"), &policy),
            include_str!("../../tests/golden/SsoGetLocalPasswordPolicy.xml"),
        ),
        (unsecured(&manager, &sso::Logout {}), include_str!("../../tests/golden/SsoLogout.xml")),
    ];
    for (sent, expected) in calls {
        assert_eq!(sent, golden(expected));
    }
}

#[test]
fn signed_requests_are_those_of_other_clients() {
    let (_, pair) = made();
    let asked = holder_request(&pair);
    let expected = golden(include_str!("../../tests/golden/StsIssue-holder-of-key.xml"));
    assert_eq!(Normal::of(asked.expose_secret()), expected);
    let manager = Ref::<SessionManager>::new("SessionManager");
    let login = LoginByToken { locale: Some("en_US".to_owned()) };
    let sent = envelope(&token(Some(pair)), Service::Vim, &manager, &login);
    let expected = golden(include_str!("../../tests/golden/LoginByToken-holder-of-key.xml"));
    // Theirs has an empty id, which XML does not allow.
    assert_eq!(Normal::of(&sent), expected.replace("<ds:Signature Id=\"\">", "<ds:Signature>"));
}

#[test]
fn signatures_and_digests_are_those_of_another_implementation() {
    let (home, pair) = made();
    let manager = Ref::<SessionManager>::new("SessionManager");
    let login = LoginByToken { locale: None };
    let signed_login = envelope(&token(Some(pair.clone())), Service::Vim, &manager, &login);
    for sent in [holder_request(&pair).expose_secret(), signed_login.as_str()] {
        let signed = between(sent, "<ds:SignedInfo", "</ds:SignedInfo>");
        let value = between(sent, "<ds:SignatureValue>", "</ds:SignatureValue>");
        let raw = openssl(&home, &["dgst", "-sha256", "-sign", "key.pem"], signed.as_bytes());
        assert_eq!(value, format!("<ds:SignatureValue>{}</ds:SignatureValue>", base64(&raw)));
        let parts = [
            between(sent, "<wsu:Timestamp", "</wsu:Timestamp>"),
            between(sent, "<soapenv:Body", "</soapenv:Body>"),
        ];
        for part in parts {
            let raw = openssl(&home, &["dgst", "-sha256", "-binary"], part.as_bytes());
            let digest = format!("<ds:DigestValue>{}</ds:DigestValue>", base64(&raw));
            assert!(signed.contains(&digest), "{part}");
        }
    }
}

#[test]
fn a_rest_login_by_password_is_that_of_other_clients() {
    let text = include_str!("../../tests/golden/rest-session-create.txt");
    let expected = text.lines().find_map(|line| line.strip_prefix("authorization: ")).unwrap();
    let sent = basic("csi@vsphere.local", &"secret & <more>".into());
    assert_eq!(sent.expose_secret(), expected);
}

#[test]
fn what_is_signed_of_a_rest_request_names_host_and_port_as_the_server_sees_them() {
    let message = |endpoint: &str| {
        let message = rest_message("1:2", "/api/session", &endpoint.parse().unwrap(), b"#");
        String::from_utf8(message).unwrap()
    };
    assert_eq!(message("VCenter.example"), "1:2\nPOST\n/api/session\nvcenter.example\n80\n#\n");
    assert_eq!(message("[2001:db8::5]:8443"), "1:2\nPOST\n/api/session\n[2001:db8::5]\n8443\n#\n");
}

#[test]
fn keys_that_cannot_be_used_are_refused_without_showing_them() {
    let no_key = KeyPair::from_pem("secret", "secret").unwrap_err();
    assert!(no_key.to_string().starts_with("the certificate cannot be used"), "{no_key}");
    let (home, pair) = made();
    assert_eq!(format!("{pair:?}"), "KeyPair");
    let certificate = std::fs::read_to_string(home.path().join("certificate.pem")).unwrap();
    let curve = openssl(
        &home,
        &["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
        b"",
    );
    let error = KeyPair::from_pem(&certificate, &String::from_utf8(curve).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "the private key cannot be used: it is not an RSA key");
}

#[test]
fn a_token_is_found_in_an_answer_wherever_it_is() {
    let answer = format!(
        "<S:Envelope><S:Body><Collection><Response><Requested>{TEXT}</Requested></Response></Collection>\
         </S:Body></S:Envelope>"
    );
    let found = answered(&answer).unwrap();
    assert_eq!((found.id.as_str(), found.subject.as_str()), ("_token", "csi@VSPHERE.LOCAL"));
    assert_eq!(found.assertion.expose_secret(), TEXT);
    assert!(!format!("{found:?}").contains("Assertion"));
    let nothing = "<S:Envelope><S:Body><Collection/></S:Body></S:Envelope>";
    assert!(matches!(answered(nothing), Err(Cause::Malformed(_))));
    let refusal = "<S:Envelope><S:Body><S:Fault><faultcode>ns0:FailedAuthentication</faultcode>\
                   <faultstring>Invalid credentials</faultstring></S:Fault></S:Body></S:Envelope>";
    assert!(matches!(answered(refusal), Err(Cause::Fault(_))));
}

#[test]
fn texts_that_are_no_tokens_are_refused_without_showing_them() {
    for text in [
        "",
        "secret",
        "<a/>",
        "<saml2:Assertion/>",
        "<Assertion><Subject/></Assertion>",
        "<Assertion",
    ] {
        let error = Token::from_text(text.to_owned()).unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
