//! Tokens of users and of certificates, for SOAP, REST and SSO.

use std::process::Command;

use lab::{VCenter, vcenter::ADMINISTRATOR};
use secrecy::ExposeSecret;
use vsphere::{
    connection::{Connection, Settings},
    error::{Error, Remedy},
    reference::Ref,
    session::Credentials,
    sts::{KeyPair, Token},
    types::{Folder, Permission},
};

use crate::site::{CSI, administrator, connect, sessions, settings, vcenter, vcenter_of};

/// A connection with other credentials than a password.
fn connect_with(vcenter: &VCenter, credentials: Credentials) -> Connection {
    let usual = settings(vcenter, ADMINISTRATOR);
    Connection::new(&Settings { credentials, ..usual }).unwrap()
}

async fn token_of(vcenter: &VCenter, user: (&str, &str)) -> Token {
    let connection = connect(vcenter, user);
    let token = connection.token().await.unwrap();
    connection.close().await;
    token
}

/// A new RSA key with its certificate. Nothing that we link can make an RSA key.
fn pair() -> KeyPair {
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
        .args(["-keyout", "/dev/stdout", "-out", "/dev/stdout"])
        .output()
        .expect("the program openssl is needed: apt-get install openssl");
    let text = String::from_utf8(made.stdout).unwrap();
    KeyPair::from_pem(&text, &text).unwrap()
}

#[tokio::test]
async fn a_token_says_whose_it_is_and_shows_nothing_else() {
    let vcenter = vcenter().await;
    let token = token_of(&vcenter, CSI).await;
    assert_eq!(token.subject().to_lowercase(), CSI.0);
    assert!(token.expires().unwrap() > jiff::Timestamp::now());
    let text = token.text().expose_secret();
    assert!(text.contains("Assertion"));
    let shown = format!("{token:?} {:?}", Credentials::Token(token.clone()));
    assert!(!shown.contains("Assertion") && !shown.contains("Signature"), "{shown}");
    let again = Token::from_text(text).unwrap();
    assert_eq!(again.subject(), token.subject());
    assert_eq!(again.text().expose_secret(), text);
}

#[tokio::test]
async fn a_token_opens_sessions_of_soap_and_rest() {
    for release in ["6.7U3", "8.0U3", "9.1"] {
        let vcenter = vcenter_of(release).await;
        let token = token_of(&vcenter, CSI).await;
        let connection = connect_with(&vcenter, Credentials::Token(token));
        assert_eq!(connection.login().await.unwrap().to_lowercase(), "vsphere.local\\csi");
        assert_eq!(connection.tags().categories().await.unwrap().len(), 3);
        assert_eq!(sessions(&vcenter, CSI.0).await, 2);
        connection.close().await;
        assert_eq!(sessions(&vcenter, CSI.0).await, 0);
    }
}

#[tokio::test]
async fn a_token_that_is_over_is_refused_and_not_tried_again() {
    let vcenter = vcenter().await;
    let token = token_of(&vcenter, CSI).await;
    vcenter.control().skew_clock(3_600_000).await.unwrap();
    let connection = connect_with(&vcenter, Credentials::Token(token));
    for _ in 0..5 {
        let refused = connection.login().await;
        assert!(matches!(refused, Err(Error { remedy: Remedy::Login, .. })), "{refused:?}");
    }
    let state = vcenter.control().state_as_json().await.unwrap();
    let logins = state["calls"]["calls"].as_array().unwrap().iter();
    let logins: u64 = logins
        .filter(|call| call["method"] == "LoginByToken")
        .map(|call| call["count"].as_u64().unwrap())
        .sum();
    assert_eq!(logins, 1);
}

#[tokio::test]
async fn a_forged_token_is_refused() {
    let vcenter = vcenter().await;
    let token = token_of(&vcenter, CSI).await;
    let forged = token.text().expose_secret().replace(token.subject(), ADMINISTRATOR.0);
    let connection = connect_with(&vcenter, Credentials::Token(Token::from_text(&forged).unwrap()));
    let refused = connection.login().await;
    assert!(matches!(refused, Err(Error { remedy: Remedy::Login, .. })), "{refused:?}");
}

#[tokio::test]
async fn no_token_is_asked_for_with_refused_credentials() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, (CSI.0, "wrong"));
    for _ in 0..10 {
        let refused = connection.token().await;
        assert!(matches!(refused, Err(Error { remedy: Remedy::Login, .. })), "{refused:?}");
    }
    // Not locked: five attempts would have done it.
    assert_eq!(token_of(&vcenter, CSI).await.subject().to_lowercase(), CSI.0);
}

#[tokio::test]
async fn a_clock_that_is_off_is_told_from_a_wrong_password() {
    let vcenter = vcenter().await;
    vcenter.control().skew_clock(3_600_000).await.unwrap();
    let connection = connect(&vcenter, CSI);
    let refused = connection.token().await.unwrap_err();
    assert!(matches!(refused, Error { remedy: Remedy::Refused, .. }), "{refused:?}");
    assert!(refused.to_string().contains("clock"), "{refused}");
    connection.close().await;
}

#[tokio::test]
async fn texts_that_are_no_tokens_are_refused_before_they_are_sent() {
    for text in [
        "",
        "secret",
        "<a/>",
        "<saml2:Assertion/>",
        "<Assertion><Subject/></Assertion>",
        "<Assertion",
    ] {
        let error = Token::from_text(text).unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

#[tokio::test]
async fn a_certificate_opens_sessions_of_soap_rest_and_sso() {
    let pair = pair();
    let vcenter = vcenter().await;
    let admin = administrator(&vcenter);
    let sso = admin.sso().await.unwrap();
    sso.create_solution_user("drivers", "the drivers", &pair).await.unwrap();
    sso.logout().await;
    let roles = admin.authorization().roles().await.unwrap();
    let read_only = roles.iter().find(|role| role.name == "ReadOnly").unwrap();
    let permission = Permission {
        principal: "VSPHERE.LOCAL\\drivers".to_owned(),
        role_id: read_only.role_id,
        propagate: true,
        ..Permission::default()
    };
    let root = Ref::<Folder>::new("group-d1");
    admin.authorization().set_permission(&root, permission).await.unwrap();
    let connection = connect_with(&vcenter, Credentials::Certificate(pair));
    assert_eq!(connection.login().await.unwrap().to_lowercase(), "vsphere.local\\drivers");
    assert_eq!(connection.tags().categories().await.unwrap().len(), 3);
    let sso = connection.sso().await.unwrap();
    assert!(sso.find_user("csi").await.unwrap().is_some());
    sso.logout().await;
    assert_eq!(sessions(&vcenter, "drivers").await, 2);
    connection.close().await;
    assert_eq!(sessions(&vcenter, "drivers").await, 0);
    admin.close().await;
}

#[tokio::test]
async fn a_certificate_that_nobody_owns_is_refused_and_not_tried_again() {
    let pair = pair();
    let vcenter = vcenter().await;
    let connection = connect_with(&vcenter, Credentials::Certificate(pair));
    for _ in 0..3 {
        let refused = connection.login().await;
        assert!(matches!(refused, Err(Error { remedy: Remedy::Login, .. })), "{refused:?}");
    }
    let state = vcenter.control().state_as_json().await.unwrap();
    let requests = state["calls"]["requests"].as_array().unwrap();
    let asked = requests.iter().find(|request| request["path"] == "/sts/STSService").unwrap();
    assert_eq!(asked["count"], 1);
}
