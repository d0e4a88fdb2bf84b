//! The administration of SSO's users.

use lab::vcenter::Fault;
use secrecy::SecretString;
use vsphere::{
    error::{Error, Remedy},
    types::sso::AdminPersonDetails,
};

use crate::site::{CSI, administrator, connect, vcenter};

fn details(description: &str) -> AdminPersonDetails {
    AdminPersonDetails {
        description: Some(description.to_owned()),
        email_address: Some("drivers@example.com".to_owned()),
        first_name: Some("Container & Storage".to_owned()),
        last_name: Some("<Drivers>".to_owned()),
    }
}

#[tokio::test]
async fn a_user_is_created_found_changed_and_deleted() {
    let vcenter = vcenter().await;
    let admin = administrator(&vcenter);
    let sso = admin.sso().await.unwrap();
    assert_eq!(sso.find_user("drivers").await.unwrap(), None);
    let password = SecretString::from("Fresh-1! & <more>");
    sso.create_user("drivers@vsphere.local", details("for tests"), &password).await.unwrap();
    let found = sso.find_user("drivers").await.unwrap().unwrap();
    assert_eq!(found.id.name, "drivers");
    assert_eq!(found.details, details("for tests"));
    assert!(!found.disabled && !found.locked);
    let twice = sso.create_user("drivers", details("again"), &password).await;
    assert!(matches!(twice, Err(Error { remedy: Remedy::Invalid { .. }, .. })), "{twice:?}");
    sso.update_user("drivers", details("for more tests")).await.unwrap();
    let found = sso.find_user("drivers@vsphere.local").await.unwrap().unwrap();
    assert_eq!(found.details.description.as_deref(), Some("for more tests"));
    sso.delete_user("drivers").await.unwrap();
    assert_eq!(sso.find_user("drivers").await.unwrap(), None);
    let gone = sso.delete_user("drivers").await;
    assert!(matches!(gone, Err(Error { remedy: Remedy::NotFound { .. }, .. })), "{gone:?}");
    sso.logout().await;
    admin.close().await;
}

#[tokio::test]
async fn a_member_of_the_administrators_logs_in_with_its_new_password() {
    let vcenter = vcenter().await;
    let admin = administrator(&vcenter);
    let sso = admin.sso().await.unwrap();
    sso.create_user("drivers", details(""), &"Fresh-1! & <more>".into()).await.unwrap();
    assert!(sso.add_to_group("drivers", "Administrators").await.unwrap());
    assert!(!sso.add_to_group("drivers", "Administrators").await.unwrap());
    sso.reset_password("drivers", &"Fresh-2! & <more>".into()).await.unwrap();
    sso.logout().await;
    let old = connect(&vcenter, ("drivers@vsphere.local", "Fresh-1! & <more>"));
    assert!(matches!(old.login().await, Err(Error { remedy: Remedy::Login, .. })));
    let new = connect(&vcenter, ("drivers@vsphere.local", "Fresh-2! & <more>"));
    assert_eq!(new.login().await.unwrap().to_lowercase(), "vsphere.local\\drivers");
    new.close().await;
    admin.close().await;
}

#[tokio::test]
async fn a_password_must_fit_the_policy_that_is_told() {
    let vcenter = vcenter().await;
    let admin = administrator(&vcenter);
    let sso = admin.sso().await.unwrap();
    let policy = sso.password_policy().await.unwrap().unwrap();
    let length = policy.password_format.length_restriction;
    assert!(length.min_length > 1 && length.max_length >= length.min_length, "{length:?}");
    let short = sso.create_user("drivers", details(""), &"a".into()).await;
    assert!(matches!(short, Err(Error { remedy: Remedy::Invalid { .. }, .. })), "{short:?}");
    sso.logout().await;
    admin.close().await;
}

#[tokio::test]
async fn a_server_without_policy_service_tells_no_policy() {
    let vcenter = vcenter().await;
    let admin = administrator(&vcenter);
    let sso = admin.sso().await.unwrap();
    let fault = Fault::next("GetLocalPasswordPolicy", "MethodNotFound");
    let receiver = serde_json::json!({ "type": "SsoAdminPasswordPolicyService", "value": "p" });
    let fields = serde_json::json!({ "receiver": receiver, "method": "GetLocalPasswordPolicy" });
    vcenter.control().fail(&Fault { fields, ..fault }).await.unwrap();
    assert_eq!(sso.password_policy().await.unwrap(), None);
    sso.logout().await;
    admin.close().await;
}

#[tokio::test]
async fn a_user_who_is_no_administrator_changes_nobody() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CSI);
    let sso = connection.sso().await.unwrap();
    let refused = sso.create_user("drivers", details(""), &"Fresh-1!".into()).await;
    assert!(
        matches!(refused, Err(Error { remedy: Remedy::NoPermission { .. }, .. })),
        "{refused:?}"
    );
    sso.logout().await;
    connection.close().await;
}

#[tokio::test]
async fn passwords_and_cookies_are_not_shown() {
    let vcenter = vcenter().await;
    let admin = administrator(&vcenter);
    let sso = admin.sso().await.unwrap();
    assert_eq!(format!("{sso:?}"), "Sso { domain: \"vsphere.local\", .. }");
    let error = sso.create_user("csi", details(""), &"Fresh-1!Secret".into()).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("Fresh-1!Secret"));
    sso.logout().await;
    admin.close().await;
}
