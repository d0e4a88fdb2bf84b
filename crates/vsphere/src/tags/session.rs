//! The REST session of a connection: opened by the first request, and again when vCenter has forgotten it.
//!
//! It is opened with the credentials of the SOAP session, within the budget of failed logins. A login is completed
//! even if its caller has given up.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use hyper::http::{Method, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

use super::rest::{Dialect, Request};
use crate::{
    budget::Door,
    connection::Connection,
    error::{Cause, Error},
    fault::Fault,
    login::Established,
    session::Credentials,
    sts,
    wire::Wire,
};

const SESSION: &str = "vmware-api-session-id";

/// The REST session, if there is one.
#[derive(Debug, Default)]
pub(crate) struct TagSession {
    slot: Arc<Mutex<Option<Arc<Open>>>>,
}

/// A session that is open.
#[derive(Debug)]
struct Open {
    id: SecretString,
    dialect: Dialect,
    /// The SOAP session that it is a part of, if it was not opened on its own.
    borrowed: Option<Arc<Established>>,
    /// Whether a request was answered in it.
    worked: AtomicBool,
}

impl TagSession {
    /// Sends a request; if the session is gone, logs in and sends it once more.
    pub(super) async fn send<T: DeserializeOwned>(
        &self,
        connection: &Connection,
        request: &Request,
    ) -> Result<T, Error> {
        let open = self.get(connection).await?;
        match open.send(connection.wire(), request).await {
            Err(error) if error.is_logged_out() => {
                self.expired(connection, &open).await;
                self.get(connection).await?.send(connection.wire(), request).await
            }
            answered => answered,
        }
    }

    /// Logs out, if there is a session.
    pub(crate) async fn forget(&self, connection: &Connection) {
        if let Some(open) = self.slot.lock().await.take().filter(|open| open.borrowed.is_none()) {
            open.logout(connection.wire()).await;
        }
    }

    async fn expired(&self, connection: &Connection, gone: &Arc<Open>) {
        {
            let mut slot = self.slot.lock().await;
            if slot.as_ref().is_some_and(|current| Arc::ptr_eq(current, gone)) {
                *slot = None;
            }
        }
        let Some(session) = &gone.borrowed else { return };
        if gone.worked.load(Ordering::Relaxed) {
            connection.forget(session).await;
        } else if let Err(error) = connection.time().await {
            // A server before 8.0U3 refuses REST in such a session, which is no reason to end it. A call in SOAP
            // opens a new one if it is gone.
            tracing::debug!(vcenter = %connection.vcenter(), %error, "shared session not usable");
        }
    }

    /// The session, after a login if there is none. Holding the slot makes it a single flight.
    async fn get(&self, connection: &Connection) -> Result<Arc<Open>, Error> {
        let mut slot = Arc::clone(&self.slot).lock_owned().await;
        if let Some(open) = &*slot {
            return Ok(Arc::clone(open));
        }
        let credentials = connection.accepted_credentials().await?;
        if let Credentials::Shared(_) = credentials {
            let session = connection.session().get().await?;
            let open = Arc::new(Open::borrowed(session));
            *slot = Some(Arc::clone(&open));
            return Ok(open);
        }
        let own = connection.clone();
        let login = async move {
            let (wire, budget) = (own.wire(), &own.session().budget);
            let login = login(wire, &credentials);
            let open = Arc::new(budget.attempt(wire, Door::Rest, &credentials, login).await?);
            *slot = Some(Arc::clone(&open));
            Ok(open)
        };
        connection.session().carry(login).await
    }
}

impl Open {
    /// The SOAP session under its other name.
    fn borrowed(session: Arc<Established>) -> Self {
        let (id, worked) = (session.rest_id(), AtomicBool::new(false));
        Self { id, dialect: Dialect::Api, borrowed: Some(session), worked }
    }

    async fn send<T: DeserializeOwned>(&self, wire: &Wire, request: &Request) -> Result<T, Error> {
        let (path, body) = (request.path(self.dialect), request.body(self.dialect));
        let headers = [("accept", "application/json"), (SESSION, self.id.expose_secret())];
        let read = |reply| self.dialect.read(reply);
        let answer = wire.rest(request.name, request.verb(), &path, &headers, body, read).await;
        if answer.is_ok() {
            self.worked.store(true, Ordering::Relaxed);
        }
        answer
    }

    /// Ends the session. Nothing is lost if it does not work: vCenter forgets idle sessions.
    async fn logout(&self, wire: &Wire) {
        let path = self.dialect.session_path();
        let headers = [("accept", "application/json"), (SESSION, self.id.expose_secret())];
        let read = |reply| self.dialect.read::<()>(reply);
        let sent = wire.rest("session.delete", Method::DELETE, path, &headers, String::new(), read);
        if let Err(error) = sent.await {
            tracing::debug!(vcenter = %wire.name(), %error, "logout failed");
        }
    }
}

/// Opens a session in the newest dialect that the server speaks.
async fn login(wire: &Wire, credentials: &Credentials) -> Result<Open, Error> {
    let opened = match open(wire, credentials, Dialect::Api).await {
        Ok(None) => open(wire, credentials, Dialect::Rest).await,
        answered => answered,
    };
    let missing = Cause::Status(StatusCode::NOT_FOUND.as_u16());
    opened?.ok_or_else(|| wire.error("session.create", missing))
}

/// Opens a session, unless the server does not speak the dialect.
async fn open(
    wire: &Wire,
    credentials: &Credentials,
    dialect: Dialect,
) -> Result<Option<Open>, Error> {
    let path = dialect.session_path();
    let authorization = sts::authorization(wire, credentials, path).await?;
    let headers = [
        ("accept", "application/json"),
        ("authorization", authorization.expose_secret()),
        ("content-type", "application/json"),
        ("vmware-use-header-authn", "true"),
    ];
    let read = |reply: crate::http::Reply| match reply.status {
        StatusCode::NOT_FOUND => Ok(None),
        StatusCode::UNAUTHORIZED => Err(Cause::Fault(Box::new(Fault::bare("InvalidLogin", "")))),
        _ => dialect.read::<String>(reply).map(Some),
    };
    let id = wire.rest("session.create", Method::POST, path, &headers, String::new(), read).await?;
    Ok(id.map(|id| Open {
        id: SecretString::from(id),
        dialect,
        borrowed: None,
        worked: AtomicBool::new(false),
    }))
}
