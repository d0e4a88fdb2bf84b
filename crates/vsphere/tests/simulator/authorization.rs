//! Roles, permissions, and what they come to.

use std::collections::BTreeSet;

use vsphere::{
    authorization::Principal,
    connection::Connection,
    error::{Error, Remedy},
    object,
    reference::Ref,
    types::{Datastore, Folder, Permission},
};

use crate::site::{CPI, CSI, NOBODY, administrator, connect, vcenter, vcenter_of};

object! {
    /// A datastore's name.
    struct Store: Datastore { name: String = "name" }
}

/// The root folder of every vCenter.
fn root() -> Ref<Folder> {
    Ref::new("group-d1")
}

async fn store(connection: &Connection, name: &str) -> Ref<Datastore> {
    let stores: Vec<Store> = connection.list().await.unwrap();
    stores.into_iter().find(|found| found.name == name).unwrap().reference
}

async fn role(connection: &Connection, name: &str) -> i32 {
    let roles = connection.authorization().roles().await.unwrap();
    roles.iter().find(|role| role.name == name).unwrap().role_id
}

fn permission(principal: &str, role_id: i32, propagate: bool) -> Permission {
    Permission { principal: principal.to_owned(), role_id, propagate, ..Permission::default() }
}

#[tokio::test]
async fn a_role_is_created_changed_and_deleted() {
    for release in ["6.7U3", "8.0U3", "9.1"] {
        let vcenter = vcenter_of(release).await;
        let admin = administrator(&vcenter);
        let authorization = admin.authorization();
        let id = authorization.create_role("drivers", &["Datastore.FileManagement"]).await.unwrap();
        let roles = authorization.roles().await.unwrap();
        let made = roles.iter().find(|role| role.role_id == id).unwrap();
        assert!(!made.system);
        for privilege in ["Datastore.FileManagement", "System.View", "System.Read"] {
            assert!(made.privilege.iter().any(|id| id == privilege), "{made:?}");
        }
        let twice = authorization.create_role("drivers", &[]).await;
        assert!(matches!(twice, Err(Error { remedy: Remedy::Invalid { .. }, .. })), "{twice:?}");
        let unknown = authorization.create_role("other", &["No.Such"]).await;
        assert!(
            matches!(unknown, Err(Error { remedy: Remedy::Invalid { .. }, .. })),
            "{unknown:?}"
        );
        authorization.update_role(id, "drivers-2", &["Cns.Searchable"]).await.unwrap();
        let roles = authorization.roles().await.unwrap();
        let changed = roles.iter().find(|role| role.role_id == id).unwrap();
        assert_eq!(changed.name, "drivers-2");
        assert!(changed.privilege.iter().any(|id| id == "Cns.Searchable"));
        assert!(!changed.privilege.iter().any(|id| id == "Datastore.FileManagement"));
        let store = store(&admin, "nfs-1").await;
        authorization.set_permission(&store, permission(CSI.0, id, false)).await.unwrap();
        authorization.delete_role(id, true).await.unwrap_err();
        authorization.delete_role(id, false).await.unwrap();
        assert_eq!(authorization.permissions(&store, false).await.unwrap(), []);
        let gone = authorization.delete_role(id, false).await;
        assert!(matches!(gone, Err(Error { remedy: Remedy::NotFound { .. }, .. })), "{gone:?}");
        admin.close().await;
    }
}

#[tokio::test]
async fn permissions_are_given_and_taken_one_by_one() {
    let vcenter = vcenter().await;
    let admin = administrator(&vcenter);
    let authorization = admin.authorization();
    let read_only = role(&admin, "ReadOnly").await;
    let store = store(&admin, "shared-1").await;
    authorization.set_permission(&store, permission(CPI.0, read_only, true)).await.unwrap();
    let given = authorization.permissions(&store, false).await.unwrap();
    let who: BTreeSet<String> = given.iter().map(|given| given.principal.to_lowercase()).collect();
    assert_eq!(who, ["vsphere.local\\cpi", "vsphere.local\\csi"].map(str::to_owned).into());
    assert!(given.iter().all(|given| given.entity == Some(store.upcast())));
    let with_inherited = authorization.permissions(&store, true).await.unwrap();
    assert!(with_inherited.len() > given.len(), "{with_inherited:?}");
    assert!(with_inherited.iter().any(|given| given.entity == Some(root().upcast())));
    authorization.remove_permission(&store, CPI.0, false).await.unwrap();
    let left = authorization.permissions(&store, false).await.unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(Principal::from(left[0].principal.as_str()), Principal::from(CSI.0));
    let gone = authorization.remove_permission(&store, CPI.0, false).await;
    assert!(matches!(gone, Err(Error { remedy: Remedy::NotFound { .. }, .. })), "{gone:?}");
    let stranger =
        authorization.set_permission(&store, permission("who@vsphere.local", read_only, true));
    stranger.await.unwrap_err();
    admin.close().await;
}

#[tokio::test]
async fn users_without_the_right_change_nothing() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CPI);
    let authorization = connection.authorization();
    let refused = authorization.create_role("drivers", &[]).await;
    let Err(Error { remedy: Remedy::NoPermission { privilege, .. }, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(privilege.as_deref(), Some("Authorization.ModifyRoles"));
    let refused = authorization.set_permission(&root(), permission(CPI.0, -1, true)).await;
    assert!(
        matches!(refused, Err(Error { remedy: Remedy::NoPermission { .. }, .. })),
        "{refused:?}"
    );
    connection.close().await;
    let nobody = connect(&vcenter, NOBODY);
    let refused = nobody.authorization().roles().await;
    assert!(
        matches!(refused, Err(Error { remedy: Remedy::NoPermission { .. }, .. })),
        "{refused:?}"
    );
}

#[tokio::test]
async fn privileges_are_told_for_oneself_and_for_others() {
    let vcenter = vcenter().await;
    let (admin, csi) = (administrator(&vcenter), connect(&vcenter, CSI));
    let stores = [store(&csi, "shared-1").await, store(&csi, "nfs-1").await];
    let wanted = ["Datastore.FileManagement", "System.Read"];
    let lacking = csi.authorization().lacking(&stores, &wanted).await.unwrap();
    assert_eq!(lacking.len(), 1);
    assert_eq!(lacking[&stores[1].upcast()], ["Datastore.FileManagement"]);
    let by_admin = admin.authorization().lacking_of(CSI.0, &stores, &wanted).await.unwrap();
    assert_eq!(by_admin, lacking);
    assert!(admin.authorization().lacking(&stores, &wanted).await.unwrap().is_empty());
    let own = csi.authorization().privileges(&stores).await.unwrap();
    assert!(own[&stores[0].upcast()].contains("Datastore.FileManagement"));
    assert!(!own[&stores[1].upcast()].contains("Datastore.FileManagement"));
    assert_eq!(admin.authorization().privileges_of(CSI.0, &stores).await.unwrap(), own);
    let nothing = [Ref::<Datastore>::new("datastore-none")];
    let missing = csi.authorization().lacking(&nothing, &wanted).await;
    assert!(matches!(missing, Err(Error { remedy: Remedy::NotFound { .. }, .. })), "{missing:?}");
    vcenter.control().expire_sessions().await.unwrap();
    assert_eq!(csi.authorization().lacking(&stores, &wanted).await.unwrap(), lacking);
    csi.close().await;
    admin.close().await;
}
