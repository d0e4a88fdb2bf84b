//! Login and logout.

use std::{sync::OnceLock, time::Duration};

use secrecy::{ExposeSecret, SecretString};

use crate::{
    budget::Door,
    error::{Cause, Error, Remedy},
    reference::Ref,
    session::{Credentials, LoginBudget},
    shared::{NoTicket, SharedSession},
    soap::{self, Service},
    sts,
    types::{
        CloneSession, Login, LoginByToken, Logout, RetrieveServiceContent, ServiceContent,
        ServiceInstance, SessionManager, UserSession,
    },
    version::{Line, Version},
    wire::{ANONYMOUS, InSession, Wire},
    xml::Method,
};

/// How often a logout is tried, and the pause that grows with each attempt.
const LOGOUTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(100);

/// A session that is open, and what vCenter reported about itself then.
#[derive(Debug)]
pub(crate) struct Established {
    cookie: SecretString,
    /// How calls about sessions name this one; the cookie's value does not work there.
    pub(crate) key: String,
    /// The user as vCenter names it: `VSPHERE.LOCAL\csi`.
    pub(crate) user: String,
    pub(crate) content: ServiceContent,
    /// The version that vCenter is called in; none if it lists none that we know.
    vim: Option<Version>,
    /// The same for vSAN, which is read before the first call to CNS.
    vsan: OnceLock<Option<Version>>,
}

impl Established {
    /// What REST takes for a session of its own, from 8.0U3 on.
    pub(crate) fn rest_id(&self) -> SecretString {
        SecretString::from(self.cookie.expose_secret().trim_matches('"').to_owned())
    }

    pub(crate) fn as_in(&self) -> InSession<'_> {
        let (vim, vsan) = (self.vim.as_ref(), Some(&self.vsan));
        InSession { vim, vsan, cookie: Some(&self.cookie), security: None }
    }
}

fn session_manager(content: &ServiceContent) -> Ref<SessionManager> {
    content.session_manager.clone().unwrap_or_else(|| Ref::new("SessionManager"))
}

/// Opens a session within the budget, which is kept by vCenter and not by its names: which vCenter it is, is read
/// before the login. A name that does not answer then keeps no other one waiting.
pub(crate) async fn login(
    wire: &Wire,
    budget: &LoginBudget,
    credentials: &Credentials,
) -> Result<Established, Error> {
    budget.check(wire, credentials)?;
    let opening = enter(wire, greet(wire).await?, credentials);
    budget.attempt(wire, Door::Soap, credentials, opening).await
}

/// Reads what vCenter reports without a login: its version and its content.
async fn greet(wire: &Wire) -> Result<(Option<Version>, ServiceContent), Error> {
    let listed = wire.versions("/sdk/vimServiceVersions.xml").await?.unwrap_or_default();
    let vim = Version::newest(Line::Vim, &listed);
    let anonymous = InSession { vim: vim.as_ref(), ..ANONYMOUS };
    let instance = Ref::<ServiceInstance>::new("ServiceInstance");
    let content = wire.get(anonymous, Service::Vim, &instance, &RetrieveServiceContent {}).await?;
    let id = content.about.instance_uuid.as_deref().filter(|id| !id.is_empty());
    wire.instance.get_or_init(|| id.unwrap_or(wire.name()).into());
    Ok((vim, content))
}

async fn enter(
    wire: &Wire,
    (vim, content): (Option<Version>, ServiceContent),
    credentials: &Credentials,
) -> Result<Established, Error> {
    let anonymous = InSession { vim: vim.as_ref(), ..ANONYMOUS };
    let manager = session_manager(&content);
    let (answer, cookie) = match credentials {
        Credentials::Password { user, password } => {
            let login = Login {
                user_name: user.clone(),
                password: password.expose_secret().to_owned(),
                locale: None,
            };
            open(wire, anonymous, &manager, &login).await
        }
        Credentials::Certificate(pair) => {
            let token = sts::issue_by_certificate(wire, pair).await?;
            let (login, release) = (LoginByToken { locale: None }, anonymous.release());
            let body = soap::secured(release, Service::Vim, &manager, &login);
            let security = Some(&token.header(&body));
            open(wire, InSession { security, ..anonymous }, &manager, &login).await
        }
        Credentials::Shared(shared) => clone(wire, anonymous, &manager, shared).await,
    }?;
    let UserSession { key, user_name: user, .. } = answer;
    Ok(Established { cookie, key, user, content, vim, vsan: OnceLock::new() })
}

/// Opens a session as a clone of another one.
async fn clone(
    wire: &Wire,
    anonymous: InSession<'_>,
    manager: &Ref<SessionManager>,
    shared: &SharedSession,
) -> Result<(UserSession, SecretString), Error> {
    let trouble = |problem: NoTicket| wire.error(CloneSession::NAME, Cause::NoTicket(problem));
    let ticket = shared.ticket().await.map_err(trouble)?;
    let clone = CloneSession { clone_ticket: ticket.expose_secret().to_owned() };
    match open(wire, anonymous, manager, &clone).await {
        Err(error) if error.is_login() => Err(trouble(shared.refusal(
            "vCenter does not know it; see that the service is logged in at this vCenter",
        ))),
        answered => answered,
    }
}

/// Calls a method that opens a session.
async fn open<M: Method<On = SessionManager, Answer = UserSession>>(
    wire: &Wire,
    session: InSession<'_>,
    manager: &Ref<SessionManager>,
    method: &M,
) -> Result<(UserSession, SecretString), Error> {
    let opened = wire.login(session, Service::Vim, manager, method).await;
    if let Err((Some(cookie), _)) = &opened {
        // The session exists although the answer was cut: end it.
        end(wire, InSession { cookie: Some(cookie), security: None, ..session }, manager).await;
    }
    opened.map_err(|(_, error)| error)
}

pub(crate) async fn logout(wire: &Wire, session: &Established) {
    end(wire, session.as_in(), &session_manager(&session.content)).await;
}

/// Tries a few times, since a session that stays counts against the limit of vCenter; after that nothing
/// is lost: vCenter forgets idle sessions.
async fn end(wire: &Wire, session: InSession<'_>, manager: &Ref<SessionManager>) {
    let mut attempt = 1;
    while let Err(error) = wire.get(session, Service::Vim, manager, &Logout {}).await {
        let passes = matches!(error.remedy, Remedy::Retry | Remedy::Unreachable);
        tracing::debug!(vcenter = %wire.name(), %error, attempt, "logout failed");
        if !passes || attempt == LOGOUTS {
            return;
        }
        tokio::time::sleep(PAUSE * attempt).await;
        attempt += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_of_a_session_is_in_no_debug_text() {
        let session = Established {
            cookie: SecretString::from("\"52b1c0ffee\""),
            key: "key".to_owned(),
            user: "VSPHERE.LOCAL\\csi".to_owned(),
            content: ServiceContent::default(),
            vim: None,
            vsan: OnceLock::new(),
        };
        let security = SecretString::from("<Assertion/>");
        let signed = InSession { security: Some(&security), ..session.as_in() };
        let shown = format!("{session:?} {signed:?} {:?}", session.rest_id());
        assert!(shown.contains("csi"), "{shown}");
        assert!(!shown.contains("52b1c0ffee") && !shown.contains("Assertion"), "{shown}");
    }
}
