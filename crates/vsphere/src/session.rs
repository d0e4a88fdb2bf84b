//! The session: one per connection, opened when it is needed, opened again when vCenter forgot it.
//!
//! Logins are single-flight: calls that need a session while a login is on the way wait for it. A login is carried
//! through even if the call that wanted it is given up, so that no session is opened and forgotten. Failed logins
//! are [budgeted](LoginBudget).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest as _, Sha256};
use tokio::{
    sync::{OwnedMutexGuard, oneshot},
    task::JoinSet,
};

pub use crate::budget::LoginBudget;
use crate::{
    connection::Settings,
    error::{Cause, Error},
    login::{self, Established},
    wire::Wire,
};

/// A digest of credentials.
pub(crate) type Digest = [u8; 32];

/// Who we are to vCenter.
#[derive(Debug, Clone)]
pub enum Credentials {
    /// A user name (`csi@vsphere.local`) and a password.
    Password {
        /// The user with its domain.
        user: String,
        /// The password.
        password: SecretString,
    },
    /// A certificate and its key, which get a token of their own at each login.
    Certificate(crate::sts::KeyPair),
    /// A clone of a session that another program opened.
    Shared(crate::shared::SharedSession),
}

impl Credentials {
    /// A user and its password.
    pub fn password(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self::Password { user: user.into(), password: SecretString::from(password.into()) }
    }

    /// Who is logging in, for messages.
    pub(crate) fn user(&self) -> &str {
        match self {
            Self::Password { user, .. } => user,
            Self::Certificate(_) => "the owner of the certificate",
            Self::Shared(shared) => &shared.url,
        }
    }

    /// Tells credentials apart without keeping them. A clone of a session proves nothing, and nothing is locked.
    pub(crate) fn digest(&self) -> Option<Digest> {
        let secret = match self {
            Self::Password { password, .. } => password,
            Self::Certificate(pair) => &SecretString::from(pair.certificate()),
            Self::Shared(_) => return None,
        };
        let parts = format!("{}\0{}", self.user(), secret.expose_secret());
        Some(Sha256::digest(SecretString::from(parts).expose_secret()).into())
    }
}

/// What a login left behind.
#[derive(Debug, Default)]
struct Slot {
    session: Option<Arc<Established>>,
    closed: bool,
}

/// The session of a connection.
#[derive(Debug)]
pub(crate) struct Session {
    wire: Arc<Wire>,
    pub(crate) budget: LoginBudget,
    credentials: Mutex<Credentials>,
    slot: Arc<tokio::sync::Mutex<Slot>>,
    /// Logins and logouts, which must not be cut short; they end with the connection.
    running: Mutex<JoinSet<()>>,
}

impl Session {
    pub(crate) fn new(wire: Arc<Wire>, settings: &Settings) -> Self {
        Self {
            wire,
            budget: settings.budget.clone(),
            credentials: Mutex::new(settings.credentials.clone()),
            slot: Arc::default(),
            running: Mutex::default(),
        }
    }

    /// The session, after a login if there is none.
    pub(crate) async fn get(&self) -> Result<Arc<Established>, Error> {
        let slot = self.slot().await?;
        if let Some(session) = &slot.session {
            return Ok(Arc::clone(session));
        }
        let credentials = self.credentials().clone();
        self.login(slot, credentials).await
    }

    /// The slot, unless the connection was closed.
    async fn slot(&self) -> Result<OwnedMutexGuard<Slot>, Error> {
        let slot = Arc::clone(&self.slot).lock_owned().await;
        if slot.closed { Err(self.wire.error("Login", Cause::Closed)) } else { Ok(slot) }
    }

    pub(crate) fn credentials(&self) -> MutexGuard<'_, Credentials> {
        self.credentials.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a session that vCenter does not know any more. It is logged out all the same: should
    /// vCenter only have said so, nothing is left behind.
    pub(crate) async fn forget(&self, expired: &Arc<Established>) {
        let mut slot = self.slot.lock().await;
        if let Some(session) = slot.session.take_if(|current| Arc::ptr_eq(current, expired)) {
            self.wire.metrics().session_ended();
            let wire = Arc::clone(&self.wire);
            self.run(async move { login::logout(&wire, &session).await });
        }
    }

    /// Whether vCenter still has this session, as far as is known.
    pub(crate) async fn is_current(&self, session: &Arc<Established>) -> bool {
        let slot = self.slot.lock().await;
        slot.session.as_ref().is_some_and(|current| Arc::ptr_eq(current, session))
    }

    /// Takes new credentials. They are tried at once: refused ones change nothing, so that a mistyped
    /// password does not end a session that works. If vCenter does not answer they are taken on trust.
    pub(crate) async fn replace(&self, credentials: Credentials) -> Result<(), Error> {
        let slot = self.slot().await?;
        match self.login(slot, credentials.clone()).await {
            Err(error) if error.is_refused_login() => Err(error),
            _ => {
                *self.credentials() = credentials;
                Ok(())
            }
        }
    }

    /// Logs out, for good.
    pub(crate) async fn close(&self) {
        let session = {
            let mut slot = self.slot.lock().await;
            slot.closed = true;
            slot.session.take()
        };
        end(&self.wire, session).await;
        let mut running =
            std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner));
        while running.join_next().await.is_some() {}
    }

    /// Logs in while holding the slot.
    async fn login(
        &self,
        mut slot: OwnedMutexGuard<Slot>,
        credentials: Credentials,
    ) -> Result<Arc<Established>, Error> {
        let (wire, budget) = (Arc::clone(&self.wire), self.budget.clone());
        let login = async move {
            match login::login(&wire, &budget, &credentials).await {
                Ok(session) => {
                    wire.metrics().login("success");
                    wire.metrics().session_opened();
                    tracing::info!(vcenter = %wire.name(), user = credentials.user(), "logged in");
                    let session = Arc::new(session);
                    end(&wire, slot.session.replace(Arc::clone(&session))).await;
                    Ok(session)
                }
                Err(error) if error.is_refused_login() => Err(error),
                Err(error) => {
                    wire.metrics().login("failed");
                    // New credentials could not be tried; the next call does, and the old session must not stay.
                    end(&wire, slot.session.take()).await;
                    Err(error)
                }
            }
        };
        self.carry(login).await
    }

    /// Carries a login through even if the caller gives up; what it opened stays for the next call.
    pub(crate) async fn carry<T: Send + 'static>(
        &self,
        login: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, receiver) = oneshot::channel();
        self.run(async move { sender.send(login.await).unwrap_or_default() });
        receiver.await.unwrap_or_else(|_| Err(self.wire.error("Login", Cause::Closed)))
    }

    /// Runs in the background until it ends, at most as long as the connection.
    pub(crate) fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        while running.try_join_next().is_some() {}
        running.spawn(work);
    }
}

/// Logs out of a session that was in the slot.
async fn end(wire: &Wire, session: Option<Arc<Established>>) {
    if let Some(session) = session {
        wire.metrics().session_ended();
        login::logout(wire, &session).await;
    }
}
