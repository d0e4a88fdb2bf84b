//! The administration of SSO's own users: those who log in to vCenter without a directory behind them.
//!
//! Hides the second session that this service wants, which is opened with a token. Administration is rare, so
//! that the session is not kept: open it with [`Connection::sso`], and end it with [`Sso::logout`].
//!
//! Users are named `csi` or `csi@vsphere.local`; without a domain they are in that of the administrator.
//!
//! Deliberately absent: groups of one's own, and identity sources.

use secrecy::{ExposeSecret, SecretString};

use crate::{
    authorization::Principal,
    connection::Connection,
    error::Error,
    reference::{IsA, Ref},
    soap::{self, Service},
    sts::KeyPair,
    types::{
        SsoAdminServiceInstance,
        sso::{
            AddUserToLocalGroup, AdminPasswordPolicy, AdminPersonDetails, AdminPersonUser,
            AdminServiceContent, AdminSolutionDetails, CreateLocalPersonUser,
            CreateLocalSolutionUser, DeleteLocalPrincipal, FindPersonUser, GetLocalPasswordPolicy,
            Login, Logout, PrincipalId, ResetLocalPersonUserPassword, SsoAdminServiceInstanceCall,
            UpdateLocalPersonUserDetails,
        },
    },
    wire::{ANONYMOUS, InSession},
    xml::Method,
};

/// An open session of an administrator of SSO.
pub struct Sso {
    connection: Connection,
    content: AdminServiceContent,
    cookie: SecretString,
    /// The domain of users that are named without one.
    domain: String,
}

/// Without the cookie.
impl std::fmt::Debug for Sso {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sso").field("domain", &self.domain).finish_non_exhaustive()
    }
}

impl Connection {
    /// Opens a session of SSO's administration as the user of this connection.
    pub async fn sso(&self) -> Result<Sso, Error> {
        let token = self.token().await?;
        let instance = Ref::<SsoAdminServiceInstance>::new("SsoAdminServiceInstance");
        let question = SsoAdminServiceInstanceCall {};
        let content = self.wire().get(ANONYMOUS, Service::Sso, &instance, &question).await?;
        let manager = &content.session_manager;
        let body = soap::secured(ANONYMOUS.release(), Service::Sso, manager, &Login {});
        let session = InSession { security: Some(&token.header(&body)), ..ANONYMOUS };
        let login = self.wire().login(session, Service::Sso, manager, &Login {}).await;
        let ((), cookie) = login.map_err(|(_, error)| error)?;
        let domain = Principal::from(token.subject.as_str()).domain.to_lowercase();
        Ok(Sso { connection: self.clone(), content, cookie, domain })
    }
}

impl Sso {
    /// Creates a user. Its password must fit the [policy](Self::password_policy).
    pub async fn create_user(
        &self,
        user: &str,
        user_details: AdminPersonDetails,
        password: &SecretString,
    ) -> Result<(), Error> {
        let (user_name, password) = (name(user), password.expose_secret().to_owned());
        let create = CreateLocalPersonUser { user_name, user_details, password };
        self.call(&self.content.principal_management_service, &create).await
    }

    /// Creates a user who logs in by certificate. It has no password.
    pub async fn create_solution_user(
        &self,
        user: &str,
        description: &str,
        pair: &KeyPair,
    ) -> Result<(), Error> {
        let (description, certificate) = (Some(description.to_owned()), pair.certificate());
        let user_details = AdminSolutionDetails { description, certificate };
        let create = CreateLocalSolutionUser { user_name: name(user), user_details };
        self.call(&self.content.principal_management_service, &create).await
    }

    /// Replaces what is written about a user.
    pub async fn update_user(
        &self,
        user: &str,
        user_details: AdminPersonDetails,
    ) -> Result<(), Error> {
        let update = UpdateLocalPersonUserDetails { user_name: name(user), user_details };
        self.call(&self.content.principal_management_service, &update).await
    }

    /// Gives a user another password.
    pub async fn reset_password(&self, user: &str, password: &SecretString) -> Result<(), Error> {
        let (user_name, new_password) = (name(user), password.expose_secret().to_owned());
        let reset = ResetLocalPersonUserPassword { user_name, new_password };
        self.call(&self.content.principal_management_service, &reset).await
    }

    /// Deletes a user.
    pub async fn delete_user(&self, user: &str) -> Result<(), Error> {
        let delete = DeleteLocalPrincipal { principal_name: name(user) };
        self.call(&self.content.principal_management_service, &delete).await
    }

    /// What SSO knows about a user, if there is one.
    pub async fn find_user(&self, user: &str) -> Result<Option<AdminPersonUser>, Error> {
        let find = FindPersonUser { user_id: self.id(user) };
        self.call(&self.content.principal_discovery_service, &find).await
    }

    /// Adds a user to a group of SSO's own and returns whether it was not in it before.
    pub async fn add_to_group(&self, user: &str, group: &str) -> Result<bool, Error> {
        let add = AddUserToLocalGroup { user_id: self.id(user), group_name: group.to_owned() };
        self.call(&self.content.principal_management_service, &add).await
    }

    /// What passwords must be like; none if the server does not have the service.
    pub async fn password_policy(&self) -> Result<Option<AdminPasswordPolicy>, Error> {
        let answered =
            self.call(&self.content.password_policy_service, &GetLocalPasswordPolicy {}).await;
        match answered {
            Ok(policy) => Ok(Some(policy)),
            Err(error) if is_unsupported(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Ends the session. Nothing is lost if it does not work: SSO forgets idle sessions.
    pub async fn logout(self) {
        if let Err(error) = self.call(&self.content.session_manager, &Logout {}).await {
            tracing::debug!(vcenter = %self.connection.vcenter(), %error, "logout failed");
        }
    }

    async fn call<M: Method, K: IsA<M::On>>(
        &self,
        on: &Ref<K>,
        method: &M,
    ) -> Result<M::Answer, Error> {
        let session = InSession { cookie: Some(&self.cookie), ..ANONYMOUS };
        self.connection.wire().get(session, Service::Sso, on, method).await
    }

    fn id(&self, user: &str) -> PrincipalId {
        let Principal { name, domain } = Principal::from(user);
        PrincipalId { name, domain: if domain.is_empty() { self.domain.clone() } else { domain } }
    }
}

/// The name of a user without its domain, which is the service's own.
fn name(user: &str) -> String {
    Principal::from(user).name
}

/// Whether the server lacks the service.
fn is_unsupported(error: &Error) -> bool {
    let lacking = ["MethodNotFound", "NotSupported", "NotImplemented", "ManagedObjectNotFound"];
    error.fault().is_some_and(|fault| lacking.iter().any(|name| fault.find(name).is_some()))
}
