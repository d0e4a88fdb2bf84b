//! Tokens of users and of certificates, which open sessions of SOAP, REST and SSO.

use std::process::Command;

use lab::{VCenter, vcenter::ADMINISTRATOR};
use vsphere::{
    connection::{Connection, Settings},
    error::{Error, Remedy},
    reference::Ref,
    session::Credentials,
    sts::KeyPair,
    types::{Folder, Permission},
};

use crate::site::{CSI, administrator, connect, sessions, settings, vcenter, vcenter_of};

/// A connection with other credentials than a password.
fn connect_with(vcenter: &VCenter, credentials: Credentials) -> Connection {
    let usual = settings(vcenter, ADMINISTRATOR);
    Connection::new(&Settings { credentials, ..usual }).unwrap()
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
async fn no_token_is_asked_for_with_refused_credentials() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, (CSI.0, "wrong"));
    for _ in 0..10 {
        let refused = connection.sso().await;
        assert!(matches!(refused, Err(Error { remedy: Remedy::Login, .. })), "{refused:?}");
    }
    // Not locked: five attempts would have done it.
    connect(&vcenter, CSI).sso().await.unwrap().logout().await;
}

#[tokio::test]
async fn a_clock_that_is_off_is_told_from_a_wrong_password() {
    let vcenter = vcenter().await;
    vcenter.control().skew_clock(3_600_000).await.unwrap();
    let connection = connect(&vcenter, CSI);
    let refused = connection.sso().await.unwrap_err();
    assert!(matches!(refused, Error { remedy: Remedy::Refused, .. }), "{refused:?}");
    assert!(refused.to_string().contains("clock"), "{refused}");
    connection.close().await;
}

#[tokio::test]
async fn a_certificate_opens_sessions_of_soap_rest_and_sso() {
    let pair = pair();
    for release in ["6.7U3", "8.0U3", "9.1"] {
        let vcenter = vcenter_of(release).await;
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
        let connection = connect_with(&vcenter, Credentials::Certificate(pair.clone()));
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
