//! The REST session of a connection: opened when tags are first asked for, and again when vCenter forgot it.
//!
//! It is opened with the credentials that the SOAP session was opened with, never with others and never with
//! refused ones, so that asking for tags adds no attempts towards locking the account. A login is carried
//! through even if whoever wanted it has given up.

use std::sync::Arc;

use hyper::http::{Method, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use tokio::sync::{Mutex, oneshot};

use super::rest::{Dialect, Request};
use crate::{
    connection::{Connection, is_logged_out},
    error::{Cause, Error},
    fault::Fault,
    login,
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
    /// Whether it is the SOAP session's, which ends with that.
    borrowed: bool,
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
            Err(error) if is_logged_out(&error) => {
                self.expired(&open).await;
                self.get(connection).await?.send(connection.wire(), request).await
            }
            answered => answered,
        }
    }

    /// Logs out, if anybody has logged in.
    pub(crate) async fn forget(&self, connection: &Connection) {
        if let Some(open) = self.slot.lock().await.take().filter(|open| !open.borrowed) {
            open.logout(connection.wire()).await;
        }
    }

    async fn expired(&self, gone: &Arc<Open>) {
        let mut slot = self.slot.lock().await;
        if slot.as_ref().is_some_and(|current| Arc::ptr_eq(current, gone)) {
            *slot = None;
        }
    }

    /// The session, after a login if there is none. Holding the slot makes it a single flight.
    async fn get(&self, connection: &Connection) -> Result<Arc<Open>, Error> {
        let mut slot = Arc::clone(&self.slot).lock_owned().await;
        if let Some(open) = &*slot {
            return Ok(Arc::clone(open));
        }
        let credentials = connection.session().accepted().await?;
        if let Credentials::Shared(_) = credentials {
            let id = connection.session().get().await?.rest_id();
            let open = Arc::new(Open { id, dialect: Dialect::Api, borrowed: true });
            *slot = Some(Arc::clone(&open));
            return Ok(open);
        }
        let (sender, receiver) = oneshot::channel();
        let own = connection.clone();
        connection.session().run(async move {
            let result = login(own.wire(), &credentials).await.map(Arc::new);
            match &result {
                Ok(open) => *slot = Some(Arc::clone(open)),
                Err(Error::Login(_)) => own.session().refuse(credentials).await,
                Err(_) => {}
            }
            drop(slot);
            // Nobody waits any more if the call was given up; the session stays for the next one.
            sender.send(result).unwrap_or_default();
        });
        match receiver.await {
            Ok(result) => result,
            Err(_) => Err(connection.wire().error("session.create", Cause::Closed)),
        }
    }
}

impl Open {
    async fn send<T: DeserializeOwned>(&self, wire: &Wire, request: &Request) -> Result<T, Error> {
        let (path, body) = (request.path(self.dialect), request.body(self.dialect));
        let headers = [("accept", "application/json"), (SESSION, self.id.expose_secret())];
        let verb = request.verb.clone();
        wire.rest(request.name, verb, &path, &headers, body, |reply| self.dialect.read(reply)).await
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
    match opened.map_err(|error| login::refused(error, credentials))? {
        Some(open) => Ok(open),
        None => Err(wire.error("session.create", Cause::Status(StatusCode::NOT_FOUND.as_u16()))),
    }
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
    Ok(id.map(|id| Open { id: SecretString::from(id), dialect, borrowed: false }))
}
