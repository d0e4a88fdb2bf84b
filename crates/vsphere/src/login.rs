//! Logging in and out: what vCenter is, who we are to it, and the way back.

use secrecy::ExposeSecret;

use crate::{
    error::{Cause, Error},
    reference::Ref,
    session::Credentials,
    soap::Service,
    sts,
    types::{
        Login, LoginByToken, Logout, RetrieveServiceContent, ServiceContent, ServiceInstance,
        SessionManager, UserSession,
    },
    version::Release,
    wire::{In, NOWHERE, Wire},
    xml::{Field, Malformed, Method, Reader},
};

/// A session that is open, and what vCenter said about itself when it was opened.
#[derive(Debug)]
pub(crate) struct Established {
    cookie: String,
    /// Who vCenter says we are: `VSPHERE.LOCAL\csi`.
    pub(crate) user: String,
    pub(crate) content: ServiceContent,
    pub(crate) release: Release,
}

impl Established {
    pub(crate) fn as_in(&self) -> In<'_> {
        In { release: self.release, cookie: Some(&self.cookie), security: None }
    }

    fn sessions(&self) -> Ref<SessionManager> {
        session_manager(&self.content)
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
    let (user, cookie) = match credentials {
        Credentials::Password { user, password } => {
            let login = Login {
                user_name: user.clone(),
                password: password.expose_secret().to_owned(),
                locale: None,
            };
            open(wire, anonymous, &manager, &login).await
        }
        Credentials::Token(token) => {
            let security = token.header();
            let session = In { security: Some(security.expose_secret()), ..anonymous };
            open(wire, session, &manager, &LoginByToken { locale: None }).await
        }
        Credentials::Certificate(pair) => {
            let token = sts::issue_by_certificate(wire, pair).await?;
            let security = token.header();
            let session = In { security: Some(security.expose_secret()), ..anonymous };
            open(wire, session, &manager, &LoginByToken { locale: None }).await
        }
    }
    .map_err(|error| refused(error, credentials))?;
    Ok(Established { cookie, user, content, release })
}

/// Calls a method that opens a session.
async fn open<M: Method<On = SessionManager, Answer = UserSession>>(
    wire: &Wire,
    session: In<'_>,
    manager: &Ref<SessionManager>,
    method: &M,
) -> Result<(String, String), Error> {
    let mut answer = UserSession::default();
    let returned = wire
        .call(session, Service::Vim, manager, method, |reader, value| answer.absorb(reader, value))
        .await?;
    match returned.cookie {
        Some(cookie) => Ok((answer.user_name, cookie)),
        None => Err(wire.error(M::NAME, Cause::Malformed(Malformed::new("no session cookie")))),
    }
}

/// Says who was refused: vCenter's own sentence does not.
fn refused(error: Error, credentials: &Credentials) -> Error {
    match error {
        Error::Login(mut failure) => {
            let user = credentials.user().to_owned();
            failure.cause = Cause::Credentials { user, held: None };
            Error::Login(failure)
        }
        other => other,
    }
}

/// Ends a session. Nothing is lost if it does not work: vCenter forgets idle sessions.
pub(crate) async fn logout(wire: &Wire, session: &Established) {
    let result = wire
        .call(session.as_in(), Service::Vim, &session.sessions(), &Logout {}, |_, _| Ok(()))
        .await;
    if let Err(error) = result {
        tracing::debug!(vcenter = %wire.name(), %error, "logout failed");
    }
}

/// The versions that a service lists, newest and older ones.
async fn versions(wire: &Wire, path: &str) -> Result<Vec<String>, Error> {
    let Some(document) = wire.document("ServiceVersions", path).await? else {
        return Ok(Vec::new());
    };
    listed(&document).map_err(|malformed| wire.error("ServiceVersions", Cause::Malformed(malformed)))
}

/// All `<version>` elements, wherever they are.
fn listed(document: &str) -> Result<Vec<String>, Malformed> {
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
