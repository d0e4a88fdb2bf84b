//! Logging in and out: what vCenter is, who we are to it, and the way back.

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

use crate::{
    error::{Cause, Error},
    reference::Ref,
    session::Credentials,
    shared::{NoTicket, SharedSession},
    soap::{self, Service},
    sts,
    types::{
        CloneSession, Login, LoginByToken, Logout, RetrieveServiceContent, ServiceContent,
        ServiceInstance, SessionManager, UserSession,
    },
    version::Release,
    wire::{In, NOWHERE, Wire},
    xml::{Element, Field, Malformed, Method, Reader},
};

/// What the first requests to a server are called in errors: where wrong hosts and certificates show.
const CONNECT: &str = "Connect";
/// How often a logout is tried, and the pause that grows with each attempt.
const LOGOUTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(100);

/// A session that is open, and what vCenter said about itself when it was opened.
#[derive(Debug)]
pub(crate) struct Established {
    cookie: String,
    /// How calls about sessions name this one; the cookie's value does not work there.
    pub(crate) key: String,
    /// Who vCenter says we are: `VSPHERE.LOCAL\csi`.
    pub(crate) user: String,
    pub(crate) content: ServiceContent,
    pub(crate) release: Release,
}

impl Established {
    /// What REST takes for a session of its own, from 8.0U3 on.
    pub(crate) fn rest_id(&self) -> SecretString {
        SecretString::from(self.cookie.trim_matches('"').to_owned())
    }

    pub(crate) fn as_in(&self) -> In<'_> {
        In { release: self.release, cookie: Some(&self.cookie), security: None }
    }
}

fn session_manager(content: &ServiceContent) -> Ref<SessionManager> {
    content.session_manager.clone().unwrap_or_else(|| Ref::new("SessionManager"))
}

/// Finds out which release the server is and opens a session.
pub(crate) async fn login(wire: &Wire, credentials: &Credentials) -> Result<Established, Error> {
    let release = Release::listed(
        &versions(wire, "/sdk/vimServiceVersions.xml").await?,
        &versions(wire, "/sdk/vsanServiceVersions.xml").await?,
    );
    let anonymous = In { release, ..NOWHERE };
    let instance = Ref::<ServiceInstance>::new("ServiceInstance");
    let mut content = ServiceContent::default();
    wire.call(anonymous, Service::Vim, &instance, &RetrieveServiceContent {}, |reader, value| {
        content.absorb(reader, value)
    })
    .await?;
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
        Credentials::Token(token) => open_by_token(wire, anonymous, &manager, token).await,
        Credentials::Certificate(pair) => match sts::issue_by_certificate(wire, pair).await {
            Ok(token) => open_by_token(wire, anonymous, &manager, &token).await,
            Err(error) => Err(error),
        },
        Credentials::Shared(shared) => clone(wire, anonymous, &manager, shared).await,
    }
    .map_err(|error| refused(error, credentials))?;
    Ok(Established { cookie, key: answer.key, user: answer.user_name, content, release })
}

/// Opens a session as a clone of another one.
async fn clone(
    wire: &Wire,
    anonymous: In<'_>,
    manager: &Ref<SessionManager>,
    shared: &SharedSession,
) -> Result<(UserSession, String), Error> {
    let trouble = |problem: NoTicket| wire.error(CloneSession::NAME, Cause::NoTicket(problem));
    let ticket = shared.ticket().await.map_err(trouble)?;
    let clone = CloneSession { clone_ticket: ticket.expose_secret().to_owned() };
    match open(wire, anonymous, manager, &clone).await {
        Err(Error::Login(_)) => Err(trouble(shared.refusal(
            "vCenter does not know it; see that the service is logged in at this vCenter",
        ))),
        answered => answered,
    }
}

async fn open_by_token(
    wire: &Wire,
    anonymous: In<'_>,
    manager: &Ref<SessionManager>,
    token: &sts::Token,
) -> Result<(UserSession, String), Error> {
    let login = LoginByToken { locale: None };
    let security = token.header(&soap::secured(anonymous.release, Service::Vim, manager, &login));
    let session = In { security: Some(security.expose_secret()), ..anonymous };
    open(wire, session, manager, &login).await
}

/// Calls a method that opens a session.
async fn open<M: Method<On = SessionManager, Answer = UserSession>>(
    wire: &Wire,
    session: In<'_>,
    manager: &Ref<SessionManager>,
    method: &M,
) -> Result<(UserSession, String), Error> {
    let mut answer = UserSession::default();
    let take = |reader: &mut Reader<'_>, value: &Element<'_>| answer.absorb(reader, value);
    match wire.call_for_cookie(session, Service::Vim, manager, method, take).await {
        (Some(cookie), Ok(())) => Ok((answer, cookie)),
        (None, Ok(())) => {
            Err(wire.error(M::NAME, Cause::Malformed(Malformed::new("no session cookie"))))
        }
        (Some(cookie), Err(error)) => {
            // The session exists, though its announcement was cut: do not leave it behind.
            end(wire, In { cookie: Some(&cookie), security: None, ..session }, manager).await;
            Err(error)
        }
        (None, Err(error)) => Err(error),
    }
}

/// Says who was refused: vCenter's own sentence does not.
pub(crate) fn refused(error: Error, credentials: &Credentials) -> Error {
    match error {
        Error::Login(mut failure) => {
            let user = credentials.user().to_owned();
            failure.cause = Cause::Credentials { user, held: None };
            Error::Login(failure)
        }
        other => other,
    }
}

/// Ends a session.
pub(crate) async fn logout(wire: &Wire, session: &Established) {
    end(wire, session.as_in(), &session_manager(&session.content)).await;
}

/// Tries a few times, since a session that stays counts against the limit of vCenter; after that nothing
/// is lost: vCenter forgets idle sessions.
async fn end(wire: &Wire, session: In<'_>, manager: &Ref<SessionManager>) {
    for attempt in 1..=LOGOUTS {
        match wire.call(session, Service::Vim, manager, &Logout {}, |_, _| Ok(())).await {
            Ok(()) => return,
            Err(error @ (Error::Retry(_) | Error::Unreachable(_))) if attempt < LOGOUTS => {
                tracing::debug!(vcenter = %wire.name(), %error, attempt, "logout failed, trying again");
                tokio::time::sleep(PAUSE * attempt).await;
            }
            Err(error) => {
                tracing::debug!(vcenter = %wire.name(), %error, "logout failed");
                return;
            }
        }
    }
}

/// The versions that a service lists, newest and older ones.
async fn versions(wire: &Wire, path: &str) -> Result<Vec<String>, Error> {
    let Some(document) = wire.document(CONNECT, path).await? else {
        return Ok(Vec::new());
    };
    listed(&document).map_err(|malformed| wire.error(CONNECT, Cause::Malformed(malformed)))
}

/// All `<version>` elements, wherever they are.
pub(crate) fn listed(document: &str) -> Result<Vec<String>, Malformed> {
    let mut reader = Reader::new(document);
    let root = reader.root()?;
    let mut found = Vec::new();
    while let Some(namespace) = reader.child(&root)? {
        while let Some(child) = reader.child(&namespace)? {
            match child.name() {
                "version" => found.push(reader.text(&child)?.into_owned()),
                "priorVersions" => {
                    while let Some(prior) = reader.child(&child)? {
                        found.push(reader.text(&prior)?.into_owned());
                    }
                }
                _ => {}
            }
        }
    }
    Ok(found)
}
