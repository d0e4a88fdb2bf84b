//! The permissions of the manager, collected from the modules that make the requests.

use daemon::{
    admin, events, lease,
    permissions::{Permission, Scope},
    reload,
};

use super::{ACCOUNT, NAMESPACE, Parameters};

/// Every permission that the manager needs, and no other.
#[must_use]
pub fn permissions(settings: &Parameters) -> Vec<Permission> {
    let mut all = nodes();
    all.extend(admin::permissions());
    // About Nodes, which are in no namespace, and about the lease and our pod.
    all.extend(events::permissions(None));
    all.extend(events::permissions(Some(NAMESPACE)));
    all.extend(lease::permissions(NAMESPACE, ACCOUNT));
    for secret in &settings.secrets {
        all.extend(reload::permissions(&secret.namespace, &secret.name));
    }
    all
}

/// The controller watches all Nodes, patches them and their status, reads one again after a conflict,
/// and deletes those whose VM is gone.
fn nodes() -> Vec<Permission> {
    let verbs = ["get", "list", "watch", "patch", "delete"];
    vec![
        Permission::new(Scope::Cluster, ("", "nodes"), &verbs),
        Permission::new(Scope::Cluster, ("", "nodes/status"), &["patch"]),
    ]
}
