//! Who may do what: roles, permissions, and what they come to for a user on an object.
//!
//! A role is a named set of privileges; a permission gives a user or a group a role on an entity and, if it
//! propagates, below it. The server knows what that comes to ([`Authorization::privileges`]); for plans and
//! for users that do not exist yet there is [`Grants`], which works it out by the same rules.
//!
//! Deliberately absent: global permissions, which are above the inventory and not in this API.

mod effective;
mod principal;

use std::collections::{BTreeSet, HashMap, HashSet};

pub use self::{
    effective::{Ancestry, Grants, Identity},
    principal::Principal,
};
use crate::{
    connection::Connection,
    error::{Cause, Error},
    object,
    reference::{IsA, Ref},
    types::{
        AddAuthorizationRole, AuthorizationManager, AuthorizationRole, EntityPrivilege,
        FetchUserPrivilegeOnEntities, HasPrivilegeOnEntities, HasUserPrivilegeOnEntities,
        ManagedEntity, Permission, RemoveAuthorizationRole, RemoveEntityPermission, ResourcePool,
        RetrieveAllPermissions, RetrieveEntityPermissions, SetEntityPermissions,
        UpdateAuthorizationRole, VirtualMachine,
    },
    xml::Method,
};

/// Entities of one request.
const MOST: usize = 500;

object! {
    struct RoleList: AuthorizationManager {
        roles: Vec<AuthorizationRole> = "roleList",
    }
}

object! {
    struct Child: ManagedEntity {
        parent: Option<Ref<ManagedEntity>> = "parent",
    }
}

object! {
    struct Machine: VirtualMachine {
        pool: Option<Ref<ResourcePool>> = "resourcePool",
    }
}

/// Roles, permissions and privileges, as a connection sees them.
#[derive(Debug, Clone, Copy)]
pub struct Authorization<'a> {
    connection: &'a Connection,
}

impl Connection {
    /// Roles, permissions and privileges.
    pub fn authorization(&self) -> Authorization<'_> {
        Authorization { connection: self }
    }
}

impl Authorization<'_> {
    /// All roles with their privileges.
    pub async fn roles(self) -> Result<Vec<AuthorizationRole>, Error> {
        let Some(mut found) = self.connection.read_one::<RoleList, _>(&self.at().await?).await?
        else {
            return Ok(Vec::new());
        };
        match found.unreadable.pop() {
            Some(hidden) => {
                let cause = Cause::Fault(Box::new(hidden.fault));
                Err(self.connection.wire().error("roleList", cause))
            }
            None => Ok(found.roles),
        }
    }

    /// Creates a role and returns its id. vCenter adds the three `System` privileges that every role has.
    pub async fn create_role(self, name: &str, privileges: &[&str]) -> Result<i32, Error> {
        let priv_ids = owned(privileges);
        self.call(&AddAuthorizationRole { name: name.to_owned(), priv_ids }).await
    }

    /// Gives a role another name, or the same, and other privileges in the place of those it has.
    pub async fn update_role(self, id: i32, name: &str, privileges: &[&str]) -> Result<(), Error> {
        let (new_name, priv_ids) = (name.to_owned(), owned(privileges));
        self.call(&UpdateAuthorizationRole { role_id: id, new_name, priv_ids }).await
    }

    /// Deletes a role. If somebody has it, it stays when `fail_if_used`; else those permissions go with it.
    pub async fn delete_role(self, id: i32, fail_if_used: bool) -> Result<(), Error> {
        self.call(&RemoveAuthorizationRole { role_id: id, fail_if_used }).await
    }

    /// The permissions that were given on an entity itself.
    pub async fn permissions<K: IsA<ManagedEntity>>(
        self,
        entity: &Ref<K>,
    ) -> Result<Vec<Permission>, Error> {
        self.call(&RetrieveEntityPermissions { entity: entity.upcast(), inherited: false }).await
    }

    /// The permissions that count on an entity, with those from above; each names where it was given.
    pub async fn inherited_permissions<K: IsA<ManagedEntity>>(
        self,
        entity: &Ref<K>,
    ) -> Result<Vec<Permission>, Error> {
        self.call(&RetrieveEntityPermissions { entity: entity.upcast(), inherited: true }).await
    }

    /// Gives one principal a role on an entity, in the place of the one it has there. Others keep theirs.
    pub async fn set_permission<K: IsA<ManagedEntity>>(
        self,
        entity: &Ref<K>,
        mut permission: Permission,
    ) -> Result<(), Error> {
        permission.entity = None;
        let permission = vec![permission];
        self.call(&SetEntityPermissions { entity: entity.upcast(), permission }).await
    }

    /// Takes away what one principal was given on an entity itself.
    pub async fn remove_permission<K: IsA<ManagedEntity>>(
        self,
        entity: &Ref<K>,
        principal: &str,
        group: bool,
    ) -> Result<(), Error> {
        let user = principal.to_owned();
        self.call(&RemoveEntityPermission { entity: entity.upcast(), user, is_group: group }).await
    }

    /// What the user of this connection may do on each of these entities.
    pub async fn privileges<K: IsA<ManagedEntity>>(
        self,
        entities: &[Ref<K>],
    ) -> Result<HashMap<Ref<ManagedEntity>, BTreeSet<String>>, Error> {
        let user = self.connection.login().await?;
        self.privileges_of(&user, entities).await
    }

    /// What a user, logged in or not, may do on each of these entities.
    pub async fn privileges_of<K: IsA<ManagedEntity>>(
        self,
        user: &str,
        entities: &[Ref<K>],
    ) -> Result<HashMap<Ref<ManagedEntity>, BTreeSet<String>>, Error> {
        let mut all = HashMap::new();
        for chunk in entities.chunks(MOST) {
            let entities = chunk.iter().map(Ref::upcast).collect();
            let question = FetchUserPrivilegeOnEntities { entities, user_name: user.to_owned() };
            let found = self.call(&question).await?;
            all.extend(
                found.into_iter().map(|at| (at.entity, at.privileges.into_iter().collect())),
            );
        }
        Ok(all)
    }

    /// Which of these privileges the user of this connection lacks, on each entity where it lacks any.
    pub async fn lacking<K: IsA<ManagedEntity>>(
        self,
        entities: &[Ref<K>],
        privileges: &[&str],
    ) -> Result<HashMap<Ref<ManagedEntity>, Vec<String>>, Error> {
        let mut all = HashMap::new();
        for chunk in entities.chunks(MOST) {
            let key = &self.connection.established().await?.key;
            let mut asked = self.ask(key, chunk, privileges).await;
            // The question names the session, which may have been replaced while it was asked.
            let now = &self.connection.established().await?.key;
            if asked.is_err() && now != key {
                asked = self.ask(now, chunk, privileges).await;
            }
            all.extend(asked?.into_iter().filter_map(missing));
        }
        Ok(all)
    }

    async fn ask<K: IsA<ManagedEntity>>(
        self,
        session: &str,
        entities: &[Ref<K>],
        privileges: &[&str],
    ) -> Result<Vec<EntityPrivilege>, Error> {
        let question = HasPrivilegeOnEntities {
            entity: entities.iter().map(Ref::upcast).collect(),
            session_id: session.to_owned(),
            priv_id: owned(privileges),
        };
        self.call(&question).await
    }

    /// Which of these privileges a user, logged in or not, lacks, on each entity where it lacks any.
    pub async fn lacking_of<K: IsA<ManagedEntity>>(
        self,
        user: &str,
        entities: &[Ref<K>],
        privileges: &[&str],
    ) -> Result<HashMap<Ref<ManagedEntity>, Vec<String>>, Error> {
        let mut all = HashMap::new();
        for chunk in entities.chunks(MOST) {
            let question = HasUserPrivilegeOnEntities {
                entities: chunk
                    .iter()
                    .map(|entity| entity.upcast::<ManagedEntity>().upcast())
                    .collect(),
                user_name: user.to_owned(),
                priv_id: owned(privileges),
            };
            all.extend(self.call(&question).await?.into_iter().filter_map(missing));
        }
        Ok(all)
    }

    /// All roles and permissions that the user of this connection may see, to work with.
    pub async fn grants(self) -> Result<Grants, Error> {
        let permissions = self.call(&RetrieveAllPermissions {}).await?;
        Ok(Grants::new(&self.roles().await?, permissions))
    }

    /// The parents of these entities and of their parents, up to the root folder: a request for each level.
    pub async fn ancestry<K: IsA<ManagedEntity>>(
        self,
        entities: &[Ref<K>],
    ) -> Result<Ancestry, Error> {
        let mut level: HashSet<Ref<ManagedEntity>> = entities.iter().map(Ref::upcast).collect();
        let machines: Vec<_> = level.iter().filter_map(Ref::cast::<VirtualMachine>).collect();
        let mut ancestry = Ancestry::new();
        for machine in self.connection.read::<Machine, _>(&machines).await? {
            let parents = ancestry.entry(machine.reference.upcast()).or_default();
            parents.extend(machine.pool.map(|pool| pool.upcast()));
        }
        let mut known = HashSet::new();
        level.extend(ancestry.values().flatten().cloned().collect::<Vec<_>>());
        while !level.is_empty() {
            let unread: Vec<_> =
                level.drain().filter(|entity| known.insert(entity.clone())).collect();
            for child in self.connection.read::<Child, _>(&unread).await? {
                let Some(parent) = child.parent else { continue };
                ancestry.entry(child.reference).or_default().push(parent.clone());
                level.insert(parent);
            }
        }
        Ok(ancestry)
    }

    async fn at(self) -> Result<Ref<AuthorizationManager>, Error> {
        let content = self.connection.content().await?;
        Ok(content.authorization_manager.unwrap_or_else(|| Ref::new("AuthorizationManager")))
    }

    async fn call<M: Method<On = AuthorizationManager>>(
        self,
        method: &M,
    ) -> Result<M::Answer, Error> {
        self.connection.call(&self.at().await?, method).await
    }
}

fn owned(privileges: &[&str]) -> Vec<String> {
    privileges.iter().map(|&id| id.to_owned()).collect()
}

/// The privileges that were not granted, if any.
fn missing(at: EntityPrivilege) -> Option<(Ref<ManagedEntity>, Vec<String>)> {
    let refused = at.priv_availability.into_iter().filter(|privilege| !privilege.is_granted);
    let refused: Vec<String> = refused.map(|privilege| privilege.priv_id).collect();
    (!refused.is_empty()).then_some((at.entity, refused))
}
