//! What a user may do, computed from roles and permissions, where the server cannot: for a user that
//! does not exist yet, for permissions that are only planned, or to find the permission that is responsible.
//!
//! The rules are vCenter's. On each object the user's own permission counts, or if there is none, all those of
//! the user's groups together. If there is any, it replaces everything from above, however much that was. If
//! there is none, what counts for the parent counts here, as far as it propagates; a VM has two parents, its
//! folder and its resource pool, and inherits from both.
//!
//! Deliberately absent: the names of ancestors, which vCenter shows to users that see something below them
//! without any permission, and global permissions, which are not in the inventory.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::Principal;
use crate::{
    reference::Ref,
    types::{AuthorizationRole, ManagedEntity, Permission},
};

/// The parents of objects, up to the root folder.
pub type Ancestry = HashMap<Ref<ManagedEntity>, Vec<Ref<ManagedEntity>>>;

/// A user and the groups that it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The user.
    pub user: Principal,
    /// All its groups, those inside other groups too.
    pub groups: Vec<Principal>,
}

/// The roles and permissions of a vCenter at one moment, or as they are planned.
#[derive(Debug, Clone, Default)]
pub struct Grants {
    roles: HashMap<i32, BTreeSet<String>>,
    permissions: HashMap<Ref<ManagedEntity>, Vec<Permission>>,
}

impl Grants {
    /// Roles by their ids, and permissions that name the entity they are on.
    pub fn new(
        roles: &[AuthorizationRole],
        permissions: impl IntoIterator<Item = Permission>,
    ) -> Self {
        let roles = roles
            .iter()
            .map(|role| (role.role_id, role.privilege.iter().cloned().collect()))
            .collect();
        let mut grants = Self { roles, permissions: HashMap::new() };
        for permission in permissions {
            grants.set(permission);
        }
        grants
    }

    /// Adds a permission; one of the same principal on the same entity is replaced.
    pub fn set(&mut self, permission: Permission) {
        let Some(entity) = &permission.entity else { return };
        let here = self.permissions.entry(entity.clone()).or_default();
        here.retain(|old| !same_holder(old, &permission));
        here.push(permission);
    }

    /// What the user may do on an object.
    pub fn privileges(
        &self,
        who: &Identity,
        entity: &Ref<ManagedEntity>,
        ancestry: &Ancestry,
    ) -> BTreeSet<String> {
        let mut roles = self.decisive(who, entity, true);
        if roles.is_empty() {
            let mut visited = HashSet::new();
            self.inherit(who, entity, ancestry, &mut visited, &mut roles);
        }
        roles.iter().filter_map(|role| self.roles.get(role)).flatten().cloned().collect()
    }

    /// Adds what an object gets from above. No ancestor is visited twice: VMs have two ways up.
    fn inherit(
        &self,
        who: &Identity,
        entity: &Ref<ManagedEntity>,
        ancestry: &Ancestry,
        visited: &mut HashSet<Ref<ManagedEntity>>,
        roles: &mut HashSet<i32>,
    ) {
        for parent in ancestry.get(entity).into_iter().flatten() {
            if !visited.insert(parent.clone()) {
                continue;
            }
            let here = self.decisive(who, parent, false);
            if here.is_empty() {
                self.inherit(who, parent, ancestry, visited, roles);
            } else {
                roles.extend(here);
            }
        }
    }

    /// The roles that count on an object itself, or for what is below it.
    fn decisive(&self, who: &Identity, entity: &Ref<ManagedEntity>, itself: bool) -> HashSet<i32> {
        let here = self.permissions.get(entity).into_iter().flatten();
        let (mut own, mut of_groups) = (HashSet::new(), HashSet::new());
        for permission in here.filter(|permission| itself || permission.propagate) {
            let principal = Principal::from(permission.principal.as_str());
            if !permission.group && principal == who.user {
                own.insert(permission.role_id);
            } else if permission.group && who.groups.contains(&principal) {
                of_groups.insert(permission.role_id);
            }
        }
        if own.is_empty() { of_groups } else { own }
    }
}

fn same_holder(one: &Permission, other: &Permission) -> bool {
    one.group == other.group
        && Principal::from(one.principal.as_str()) == Principal::from(other.principal.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: i32 = 1;
    const WRITE: i32 = 2;
    const NOTHING: i32 = 3;

    fn entity(name: &str) -> Ref<ManagedEntity> {
        Ref::new(name)
    }

    fn permission(on: &str, principal: &str, role_id: i32, propagate: bool) -> Permission {
        let group = principal.starts_with("group");
        Permission {
            entity: Some(entity(on)),
            principal: principal.to_owned(),
            group,
            role_id,
            propagate,
        }
    }

    /// root > folder > vm, and root > pool > vm.
    fn may(permissions: Vec<Permission>, on: &str) -> String {
        let role = |role_id, privilege: &[&str]| AuthorizationRole {
            role_id,
            privilege: privilege.iter().map(|&id| id.to_owned()).collect(),
            ..AuthorizationRole::default()
        };
        let roles = [role(READ, &["read"]), role(WRITE, &["read", "write"]), role(NOTHING, &[])];
        let ancestry =
            [("vm", vec!["folder", "pool"]), ("folder", vec!["root"]), ("pool", vec!["root"])]
                .into_iter()
                .map(|(child, parents)| (entity(child), parents.into_iter().map(entity).collect()))
                .collect();
        let who = Identity {
            user: "USER\\me".into(),
            groups: vec!["group-1@user".into(), "group-2@user".into()],
        };
        let found = Grants::new(&roles, permissions).privileges(&who, &entity(on), &ancestry);
        found.into_iter().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn nobody_may_do_anything_without_permission() {
        assert_eq!(may(vec![permission("root", "other@user", WRITE, true)], "vm"), "");
    }

    #[test]
    fn permissions_reach_down_only_if_they_propagate() {
        assert_eq!(may(vec![permission("root", "me@user", WRITE, true)], "vm"), "read write");
        assert_eq!(may(vec![permission("root", "me@user", WRITE, false)], "vm"), "");
        assert_eq!(may(vec![permission("root", "me@user", WRITE, false)], "root"), "read write");
    }

    #[test]
    fn a_nearer_permission_replaces_a_richer_one_from_above() {
        let root = permission("root", "me@user", WRITE, true);
        assert_eq!(may(vec![root.clone(), permission("vm", "me@user", READ, false)], "vm"), "read");
        assert_eq!(may(vec![root, permission("vm", "group-1@user", READ, false)], "vm"), "read");
    }

    #[test]
    fn a_user_s_own_permission_beats_those_of_its_groups() {
        let own = permission("vm", "me@user", NOTHING, true);
        assert_eq!(may(vec![own, permission("vm", "group-1@user", WRITE, true)], "vm"), "");
    }

    #[test]
    fn groups_and_parents_add_up() {
        let groups = [("vm", "group-1@user", READ), ("vm", "group-2@user", WRITE)];
        let groups = groups.map(|(on, who, role)| permission(on, who, role, true)).to_vec();
        assert_eq!(may(groups, "vm"), "read write");
        let parents = [("folder", "me@user", READ), ("pool", "me@user", WRITE)];
        let parents = parents.map(|(on, who, role)| permission(on, who, role, true)).to_vec();
        assert_eq!(may(parents, "vm"), "read write");
    }

    #[test]
    fn a_permission_set_again_is_replaced() {
        let first = permission("root", "me@user", WRITE, true);
        let second = permission("root", "USER\\ME", READ, true);
        assert_eq!(may(vec![first, second], "root"), "read");
    }
}
