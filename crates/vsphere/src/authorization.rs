//! Who may do what: roles, permissions, and what they come to for a user on an object.
//!
//! A role is a named set of privileges; a permission gives a user or a group a role on an entity and, if it
//! propagates, below it. What that comes to only the server knows ([`Authorization::privileges`]).
//!
//! Deliberately absent: global permissions, which are above the inventory and not in this API.

mod principal;

use std::collections::{BTreeSet, HashMap};

pub use self::principal::Principal;
use crate::{
    connection::Connection,
    error::{Cause, Error},
    object,
    reference::{IsA, Ref},
    types::{
        AddAuthorizationRole, AuthorizationManager, AuthorizationRole, EntityPrivilege,
        FetchUserPrivilegeOnEntities, HasPrivilegeOnEntities, HasUserPrivilegeOnEntities,
        ManagedEntity, Permission, RemoveAuthorizationRole, RemoveEntityPermission,
        RetrieveEntityPermissions, SetEntityPermissions, UpdateAuthorizationRole,
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
        let found: Option<RoleList> = self.connection.read_one(&self.at().await?).await?;
        let mut found = found.unwrap_or_default();
        if let Some(hidden) = found.unreadable.pop() {
            let cause = Cause::Fault(Box::new(hidden.fault));
            return Err(self.connection.wire().error("roleList", cause));
        }
        Ok(found.roles)
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

    /// The permissions that were given on an entity itself, or those that count there: with those from above, each
    /// of which names where it was given.
    pub async fn permissions<K: IsA<ManagedEntity>>(
        self,
        entity: &Ref<K>,
        inherited: bool,
    ) -> Result<Vec<Permission>, Error> {
        self.call(&RetrieveEntityPermissions { entity: entity.upcast(), inherited }).await
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
            // The question names the session, which may have been replaced while it was asked: of one that does not
            // exist vCenter says that it may do nothing.
            let now = &self.connection.established().await?.key;
            if now != key {
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
            let entities = chunk.iter().map(|entity| entity.upcast::<ManagedEntity>().upcast());
            let question = HasUserPrivilegeOnEntities {
                entities: entities.collect(),
                user_name: user.to_owned(),
                priv_id: owned(privileges),
            };
            all.extend(self.call(&question).await?.into_iter().filter_map(missing));
        }
        Ok(all)
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
