//! One request, one answer, with everything that each of them has: operation id, limits, metrics, log.
//!
//! Knows nothing of sessions: the caller passes the session of each call, or none.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use hyper::http::{Method as Verb, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Semaphore;

use crate::{
    budget::LOGINS,
    connection::{InvalidSettings, Settings},
    endpoint::Endpoint,
    error::{Cause, Error, Failure},
    http::{Http, Reply},
    metrics::Recorder,
    reference::{IsA, Kind, Ref},
    soap::{self, Header, Service},
    version::{self, Line, Release, Version},
    xml::{Element, Field, Malformed, Method, Reader},
};

/// What the first requests to a server are called in errors: where wrong hosts and certificates show.
const CONNECT: &str = "Connect";

/// Of envelopes.
pub(crate) const CONTENT_TYPE: (&str, &str) = ("content-type", "text/xml; charset=utf-8");

/// The session a call is made in, as the wire sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InSession<'a> {
    pub(crate) vim: Option<&'a Version>,
    /// Set by the first call to CNS.
    pub(crate) vsan: Option<&'a OnceLock<Option<Version>>>,
    /// The value of the session cookie.
    pub(crate) cookie: Option<&'a SecretString>,
    /// A complete security header.
    pub(crate) security: Option<&'a SecretString>,
}

/// No login, and a server of unknown version.
pub(crate) const ANONYMOUS: InSession<'static> =
    InSession { vim: None, vsan: None, cookie: None, security: None };

impl InSession<'_> {
    fn vsan(&self) -> Option<&Version> {
        self.vsan.and_then(OnceLock::get).and_then(Option::as_ref)
    }

    /// What the server knows.
    pub(crate) fn release(&self) -> Release {
        self.vim.into_iter().chain(self.vsan()).fold(Release::OLDEST, Release::with)
    }

    fn action(&self, service: Service) -> String {
        service.action(|line| {
            let version = match line {
                Line::Vim => self.vim,
                Line::Vsan => self.vsan(),
            };
            version.map_or_else(|| self.release().version(line), |found| &found.name)
        })
    }
}

/// Requests to one vCenter.
#[derive(Debug)]
pub(crate) struct Wire {
    http: Http,
    pub(crate) endpoint: Endpoint,
    name: Arc<str>,
    /// The instance id of the vCenter, which may have several names; or the name, if vCenter reports no id.
    pub(crate) instance: OnceLock<Arc<str>>,
    timeout: Duration,
    login_timeout: Duration,
    slots: Semaphore,
    /// Fewer than `slots`: slow storage calls leave some for logins, logouts and tasks.
    storage_slots: Semaphore,
    metrics: Recorder,
    /// The first half distinguishes the operations of this process from those of others.
    operations: (u32, AtomicU64),
}

impl Wire {
    pub(crate) fn new(settings: &Settings) -> Result<Self, InvalidSettings> {
        let http = Http::new(settings)?;
        let name: Arc<str> = settings.endpoint.to_string().into();
        // Only has to differ between processes that talk to one vCenter.
        let started = jiff::Timestamp::now().subsec_nanosecond().unsigned_abs();
        let process = started ^ std::process::id().rotate_left(16);
        Ok(Self {
            http,
            endpoint: settings.endpoint.clone(),
            instance: OnceLock::new(),
            timeout: settings.timeout,
            login_timeout: settings.login_timeout,
            slots: Semaphore::new(settings.concurrency),
            storage_slots: Semaphore::new((settings.concurrency * 3 / 4).max(1)),
            metrics: settings.metrics.of(&name),
            name,
            operations: (process, AtomicU64::new(1)),
        })
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn metrics(&self) -> &Recorder {
        &self.metrics
    }

    /// An error of something that was never sent.
    pub(crate) fn error(&self, method: &'static str, cause: Cause) -> Error {
        Error::from(self.failure(method, String::new(), cause))
    }

    pub(crate) fn failure(&self, method: &'static str, operation: String, cause: Cause) -> Failure {
        Failure { vcenter: Arc::clone(&self.name), method, operation, cause }
    }

    /// Calls a method and passes each value it returns to `take`.
    pub(crate) async fn call<M: Method, K: IsA<M::On>>(
        &self,
        session: InSession<'_>,
        service: Service,
        on: &Ref<K>,
        method: &M,
        take: impl FnMut(&mut Reader<'_>, &Element<'_>) -> Result<(), Malformed>,
    ) -> Result<(), Error> {
        self.find_version(session, service).await?;
        if let Some(since) = M::SINCE.filter(|since| !session.release().knows(*since)) {
            return Err(self.error(M::NAME, Cause::TooOld(since)));
        }
        self.soap(session, service, on, method, None, take).await.1
    }

    /// Calls a method and returns its value.
    pub(crate) async fn get<M: Method, K: IsA<M::On>>(
        &self,
        session: InSession<'_>,
        service: Service,
        on: &Ref<K>,
        method: &M,
    ) -> Result<M::Answer, Error> {
        let mut answer = M::Answer::default();
        let take = |reader: &mut Reader<'_>, value: &Element<'_>| answer.absorb(reader, value);
        self.call(session, service, on, method, take).await?;
        Ok(answer)
    }

    /// Calls a method that opens a session, and returns its value with the session's cookie. The cookie may come
    /// though the rest of the answer does not.
    pub(crate) async fn login<M: Method, K: IsA<M::On>>(
        &self,
        session: InSession<'_>,
        service: Service,
        on: &Ref<K>,
        method: &M,
    ) -> Result<(M::Answer, SecretString), (Option<SecretString>, Error)> {
        let mut answer = M::Answer::default();
        let take = |reader: &mut Reader<'_>, value: &Element<'_>| answer.absorb(reader, value);
        match self.soap(session, service, on, method, None, take).await {
            (Some(cookie), Ok(())) => Ok((answer, cookie)),
            (None, Ok(())) => {
                let missing = Malformed::new("no session cookie");
                Err((None, self.error(M::NAME, Cause::Malformed(missing))))
            }
            (cookie, Err(error)) => Err((cookie, error)),
        }
    }

    /// The same as [`call`](Self::call) for a call that vCenter answers when something happens: it takes no slot, is not measured,
    /// and may take `patience` more than any other.
    pub(crate) async fn long_poll<M: Method, K: IsA<M::On>>(
        &self,
        session: InSession<'_>,
        service: Service,
        on: &Ref<K>,
        method: &M,
        patience: Duration,
        take: impl FnMut(&mut Reader<'_>, &Element<'_>) -> Result<(), Malformed>,
    ) -> Result<(), Error> {
        self.find_version(session, service).await?;
        self.soap(session, service, on, method, Some(patience), take).await.1
    }

    /// Sends the envelope of a call, and returns the cookie that its answer sets. `poll` is the patience of a long
    /// poll.
    async fn soap<M: Method, K: Kind>(
        &self,
        session: InSession<'_>,
        service: Service,
        on: &Ref<K>,
        method: &M,
        poll: Option<Duration>,
        take: impl FnMut(&mut Reader<'_>, &Element<'_>) -> Result<(), Malformed>,
    ) -> (Option<SecretString>, Result<(), Error>) {
        let operation = self.operation();
        let header = Header {
            operation: &operation,
            session: session.cookie.map(ExposeSecret::expose_secret),
            security: session.security.map(ExposeSecret::expose_secret),
        };
        let body = soap::request(header, session.release(), service, on, method);
        let action = session.action(service);
        let cookie = session.cookie.map(|value| {
            SecretString::from(format!("vmware_soap_session={}", value.expose_secret()))
        });
        let mut headers = vec![CONTENT_TYPE, ("soapaction", &*action)];
        headers.extend(cookie.as_ref().map(|cookie| ("cookie", cookie.expose_secret())));
        let sending = |limit| {
            let limit = limit + poll.unwrap_or_default();
            self.http.send(Verb::POST, service.path(), &headers, body, limit)
        };
        let slots = poll.is_none().then_some((service, service.client()));
        let mut set = None;
        let read = |reply: Reply| {
            set = session_cookie(&reply);
            read(reply, take)
        };
        let answered = self.send(M::NAME, &operation, slots, sending, read).await;
        (set, answered)
    }

    /// The versions that a service lists in its document, which needs no session; none if there is no document.
    pub(crate) async fn versions(&self, path: &str) -> Result<Option<Vec<String>>, Error> {
        let sending = |limit| self.http.send(Verb::GET, path, &[], String::new(), limit);
        let read = |reply: Reply| match reply.status {
            StatusCode::OK => Ok(Some(version::listed(&reply.text?)?)),
            StatusCode::NOT_FOUND => Ok(None),
            status => Err(Cause::Status(status.as_u16())),
        };
        self.send(CONNECT, "", None, sending, read).await
    }

    /// Reads the version of vSAN before the first call to CNS in a session. A server that has no list of versions
    /// at the moment is taken for the oldest, for this call.
    pub(crate) async fn find_version(
        &self,
        session: InSession<'_>,
        service: Service,
    ) -> Result<(), Error> {
        if let Some(unknown) =
            session.vsan.filter(|known| service.is_vsan() && known.get().is_none())
            && let Some(listed) = self.versions("/sdk/vsanServiceVersions.xml").await?
        {
            unknown.get_or_init(|| Version::newest(Line::Vsan, &listed));
        }
        Ok(())
    }

    /// A request to the REST API or the token service; `method` names it in metrics and errors, `read` takes the
    /// answer.
    pub(crate) async fn rest<T>(
        &self,
        method: &'static str,
        verb: Verb,
        path: &str,
        headers: &[(&'static str, &str)],
        body: String,
        read: impl FnOnce(Reply) -> Result<T, Cause>,
    ) -> Result<T, Error> {
        let operation = self.operation();
        let mut headers = headers.to_vec();
        headers.push(("x-request-id", &operation));
        if !body.is_empty() && headers.iter().all(|(name, _)| *name != CONTENT_TYPE.0) {
            headers.push((CONTENT_TYPE.0, "application/json"));
        }
        let sending = |limit| self.http.send(verb, path, &headers, body, limit);
        self.send(method, &operation, Some((Service::Vim, "rest")), sending, read).await
    }

    /// Sends a request in the slots of a service, or at once, reads its answer, and reports both. With a slot goes the
    /// name of the client in metrics. `sending` takes the time until the answer must be there.
    async fn send<T, S: Future<Output = Result<Reply, Cause>>>(
        &self,
        method: &'static str,
        operation: &str,
        slots: Option<(Service, &'static str)>,
        sending: impl FnOnce(Duration) -> S,
        read: impl FnOnce(Reply) -> Result<T, Cause>,
    ) -> Result<T, Error> {
        let (vcenter, started) = (&self.name, Instant::now());
        let slow = LOGINS.contains(&method) && method != "session.create";
        let limit = if slow { self.login_timeout } else { self.timeout };
        let sending = sending(limit);
        let (reply, took) = match slots {
            Some((service, _)) => self.in_turn(method, service, sending).await,
            None => (sending.await, Duration::ZERO),
        };
        let answered = reply.and_then(read);
        if let Some((_, client)) = slots {
            self.metrics.request(method, client, answered.is_ok(), took);
        }
        let elapsed = started.elapsed();
        answered
            .inspect(
                |_| tracing::trace!(%vcenter, method, %operation, ?elapsed, "vCenter answered"),
            )
            .map_err(|cause| {
                tracing::debug!(%vcenter, method, %operation, ?elapsed, %cause, "call failed");
                let error = Error::from(self.failure(method, operation.to_owned(), cause));
                self.metrics.failed(method, error.remedy.name());
                error
            })
    }

    /// Sends when there is a slot, and returns the time from then on, too. Waiting for a slot has a limit.
    async fn in_turn(
        &self,
        method: &'static str,
        service: Service,
        sending: impl Future<Output = Result<Reply, Cause>>,
    ) -> (Result<Reply, Cause>, Duration) {
        // Calls that hang free their slots when their own time is over; waiting for one must outlast that.
        let patience = self.timeout + self.timeout.max(self.login_timeout);
        let slots = async {
            let storage =
                if service.is_storage() { Some(self.storage_slots.acquire().await) } else { None };
            (storage, self.slots.acquire().await)
        };
        let Ok(_permits) = tokio::time::timeout(patience, slots).await else {
            return (Err(Cause::Timeout(patience)), patience);
        };
        let started = Instant::now();
        let reply = sending.await;
        let took = started.elapsed();
        self.metrics.answered(method, took);
        (reply, took)
    }

    fn operation(&self) -> String {
        let count = self.operations.1.fetch_add(1, Ordering::Relaxed);
        format!("vsd-{:08x}-{count:x}", self.operations.0)
    }
}

/// Reads a SOAP answer. Faults come with status 500; any other status is not vCenter's.
fn read(
    reply: Reply,
    take: impl FnMut(&mut Reader<'_>, &Element<'_>) -> Result<(), Malformed>,
) -> Result<(), Cause> {
    let failed = reply.status == StatusCode::INTERNAL_SERVER_ERROR;
    if reply.status != StatusCode::OK && !failed {
        return Err(Cause::Status(reply.status.as_u16()));
    }
    soap::answer(&reply.text?, take).map_err(|cause| match cause {
        Cause::Malformed(_) if failed => Cause::Status(reply.status.as_u16()),
        cause => cause,
    })
}

/// The session cookie that an answer sets.
fn session_cookie(reply: &Reply) -> Option<SecretString> {
    let cookies =
        reply.headers.get_all("set-cookie").iter().filter_map(|value| value.to_str().ok());
    cookies
        .filter_map(|cookie| cookie.strip_prefix("vmware_soap_session="))
        .filter_map(|rest| rest.split(';').next())
        .map(SecretString::from)
        .next_back()
}
