//! The session: one per connection, opened when it is needed, opened again when vCenter forgot it.
//!
//! Logins are single-flight: whoever needs a session while another logs in waits for that one's. A login is
//! carried through even if the call that wanted it is given up, so that no session is opened and forgotten.
//! After refused credentials nobody asks again for three minutes unless they change: vCenter locks accounts
//! after a few attempts, and an account that a driver locked pages somebody else.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use secrecy::{ExposeSecret, SecretString};
use tokio::{
    sync::{OwnedMutexGuard, oneshot},
    task::JoinSet,
    time::Instant,
};

use crate::{
    error::{Cause, Error},
    login::{self, Established},
    wire::Wire,
};

/// How long refused credentials are not tried again.
const HOLD: Duration = Duration::from_secs(180);

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
    /// A SAML token, as the token service issues it.
    Token(crate::sts::Token),
    /// A certificate and its key, which get a token of their own at each login.
    Certificate(crate::sts::KeyPair),
    /// A clone of a session that somebody else opened.
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
            Self::Token(token) => token.subject(),
            Self::Certificate(_) => "the owner of the certificate",
            Self::Shared(shared) => &shared.url,
        }
    }

    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Password { user, password },
                Self::Password { user: other_user, password: other_password },
            ) => user == other_user && password.expose_secret() == other_password.expose_secret(),
            (Self::Token(token), Self::Token(other)) => token.same(other),
            (Self::Certificate(pair), Self::Certificate(other)) => pair.same(other),
            (Self::Shared(shared), Self::Shared(other)) => shared.same(other),
            _ => false,
        }
    }
}

/// What a login left behind.
#[derive(Debug, Default)]
struct Slot {
    session: Option<Arc<Established>>,
    refused: Option<Refused>,
    closed: bool,
}

#[derive(Debug)]
struct Refused {
    credentials: Credentials,
    at: Instant,
}

impl Refused {
    /// How long these credentials must not be tried again.
    fn rest(&self, credentials: &Credentials, now: Instant) -> Option<Duration> {
        if !self.credentials.same(credentials) {
            return None;
        }
        HOLD.checked_sub(now.duration_since(self.at)).filter(|rest| !rest.is_zero())
    }
}

/// The session of a connection.
#[derive(Debug)]
pub(crate) struct Session {
    wire: Arc<Wire>,
    credentials: Mutex<Credentials>,
    slot: Arc<tokio::sync::Mutex<Slot>>,
    /// Logins and logouts, which must not be cut short; they end with the connection.
    running: Mutex<JoinSet<()>>,
}

impl Session {
    pub(crate) fn new(wire: Arc<Wire>, credentials: Credentials) -> Self {
        Self {
            wire,
            credentials: Mutex::new(credentials),
            slot: Arc::default(),
            running: Mutex::default(),
        }
    }

    /// The session, after a login if there is none.
    pub(crate) async fn get(&self) -> Result<Arc<Established>, Error> {
        let slot = Arc::clone(&self.slot).lock_owned().await;
        if slot.closed {
            return Err(self.wire.error("Login", Cause::Closed));
        }
        if let Some(session) = &slot.session {
            return Ok(Arc::clone(session));
        }
        let credentials = self.credentials.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.login(slot, credentials, false).await
    }

    /// The credentials for a login at another of vCenter's services: this session was opened with them, and
    /// nobody has refused them since. An attempt elsewhere counts towards locking the account, too.
    pub(crate) async fn accepted(&self) -> Result<Credentials, Error> {
        self.get().await?;
        let slot = self.slot.lock().await;
        let credentials = self.credentials.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.held(&slot, &credentials)?;
        Ok(credentials)
    }

    /// Another service refused these credentials; they changed after this session was opened.
    pub(crate) async fn refuse(&self, credentials: Credentials) {
        self.wire.metrics().login("refused");
        self.slot.lock().await.refused = Some(Refused { credentials, at: Instant::now() });
    }

    /// Forgets a session that vCenter does not know any more. It is logged out all the same: should
    /// vCenter only have said so, nothing is left behind.
    pub(crate) async fn forget(&self, expired: &Arc<Established>) {
        let mut slot = self.slot.lock().await;
        if slot.session.as_ref().is_some_and(|current| Arc::ptr_eq(current, expired)) {
            slot.session = None;
            self.wire.metrics().session_ended();
            let (wire, expired) = (Arc::clone(&self.wire), Arc::clone(expired));
            self.run(async move { login::logout(&wire, &expired).await });
        }
    }

    /// Takes new credentials. They are tried at once: refused ones change nothing, so that a mistyped
    /// password does not end a session that works. If vCenter does not answer they are taken on trust.
    pub(crate) async fn replace(&self, credentials: Credentials) -> Result<(), Error> {
        let slot = Arc::clone(&self.slot).lock_owned().await;
        if slot.closed {
            return Err(self.wire.error("Login", Cause::Closed));
        }
        let tried = self.login(slot, credentials.clone(), true).await;
        if let Err(error @ Error::Login(_)) = tried {
            return Err(error);
        }
        *self.credentials.lock().unwrap_or_else(PoisonError::into_inner) = credentials;
        Ok(())
    }

    /// Logs out, for good.
    pub(crate) async fn close(&self) {
        let session = {
            let mut slot = self.slot.lock().await;
            slot.closed = true;
            slot.session.take()
        };
        if let Some(session) = session {
            self.wire.metrics().session_ended();
            login::logout(&self.wire, &session).await;
        }
        let mut running =
            std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner));
        while running.join_next().await.is_some() {}
    }

    /// Logs in while holding the slot, in a task of its own.
    async fn login(
        &self,
        mut slot: OwnedMutexGuard<Slot>,
        credentials: Credentials,
        replacing: bool,
    ) -> Result<Arc<Established>, Error> {
        self.held(&slot, &credentials)?;
        let wire = Arc::clone(&self.wire);
        let (sender, receiver) = oneshot::channel();
        self.run(async move {
            let result = login::login(&wire, &credentials).await;
            let answer = settle(&wire, &mut slot, credentials, result, replacing).await;
            drop(slot);
            // Nobody waits any more if the call was given up; the session stays for the next one.
            sender.send(answer).unwrap_or_default();
        });
        receiver.await.unwrap_or_else(|_| Err(self.wire.error("Login", Cause::Closed)))
    }

    /// Keeps credentials from being tried again soon after they were refused.
    fn held(&self, slot: &Slot, credentials: &Credentials) -> Result<(), Error> {
        if let Some(refused) = &slot.refused
            && let Some(rest) = refused.rest(credentials, Instant::now())
        {
            let user = credentials.user().to_owned();
            self.wire.metrics().login("held");
            return Err(self.wire.error("Login", Cause::Credentials { user, held: Some(rest) }));
        }
        Ok(())
    }

    /// Carries something through even if the call that wanted it is given up.
    pub(crate) fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        while running.try_join_next().is_some() {}
        running.spawn(work);
    }
}

/// Writes the outcome of a login into the slot.
async fn settle(
    wire: &Wire,
    slot: &mut Slot,
    credentials: Credentials,
    result: Result<Established, Error>,
    replacing: bool,
) -> Result<Arc<Established>, Error> {
    match result {
        Ok(session) => {
            wire.metrics().login("success");
            wire.metrics().session_opened();
            tracing::info!(vcenter = %wire.name(), user = credentials.user(), "logged in");
            let session = Arc::new(session);
            slot.refused = None;
            if let Some(old) = slot.session.replace(Arc::clone(&session)) {
                wire.metrics().session_ended();
                login::logout(wire, &old).await;
            }
            Ok(session)
        }
        Err(error @ Error::Login(_)) => {
            wire.metrics().login("refused");
            tracing::error!(vcenter = %wire.name(), user = credentials.user(), %error, "login refused");
            slot.refused = Some(Refused { credentials, at: Instant::now() });
            Err(error)
        }
        Err(error) => {
            wire.metrics().login("failed");
            if replacing && let Some(old) = slot.session.take() {
                // The new ones could not be tried; the next call does, and the old session must not stay.
                wire.metrics().session_ended();
                login::logout(wire, &old).await;
            }
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Credentials, HOLD, Instant, Refused};

    #[test]
    fn refused_credentials_rest_until_they_change_or_the_time_is_over() {
        let wrong = Credentials::password("csi@vsphere.local", "wrong");
        let at = Instant::now();
        let refused = Refused { credentials: wrong.clone(), at };
        assert_eq!(refused.rest(&wrong, at), Some(HOLD));
        assert_eq!(refused.rest(&wrong, at + HOLD), None);
        let corrected = Credentials::password("csi@vsphere.local", "right");
        assert_eq!(refused.rest(&corrected, at), None);
        let other = Credentials::password("cpi@vsphere.local", "wrong");
        assert_eq!(refused.rest(&other, at), None);
        assert!(HOLD.as_secs() >= 180);
    }
}
