//! The connection to one vCenter.

use std::{sync::Arc, time::Duration};

use crate::{
    endpoint::Endpoint,
    error::{Cause, Error},
    login::Established,
    metrics::Metrics,
    reference::{IsA, Ref},
    session::{Credentials, Session},
    soap::Service,
    tags::TagSession,
    task::Tasks,
    tls::{InvalidTrust, Trust},
    types::{AboutInfo, CurrentTime, ServiceContent, ServiceInstance},
    wire::Wire,
    xml::{Element, Field, Malformed, Method, Reader},
};

/// What a connection needs to know. Everything but the endpoint and the credentials has a good default.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where vCenter is.
    pub endpoint: Endpoint,
    /// How it proves that it is.
    pub trust: Trust,
    /// Who we are.
    pub credentials: Credentials,
    /// How long a call may take; long polls may take their waiting time more.
    pub timeout: Duration,
    /// How many calls may be on the way at once; long polls do not count.
    pub concurrency: usize,
    /// What vCenter shows as our program in its list of sessions.
    pub user_agent: String,
    /// Where to count.
    pub metrics: Metrics,
}

impl Settings {
    /// The defaults for a vCenter and a user.
    pub fn new(endpoint: Endpoint, credentials: Credentials) -> Self {
        Self {
            endpoint,
            trust: Trust::default(),
            credentials,
            timeout: Duration::from_secs(60),
            concurrency: 16,
            user_agent: concat!("vsphere-drivers/", env!("CARGO_PKG_VERSION")).to_owned(),
            metrics: Metrics::default(),
        }
    }
}

/// Settings that no connection can be made with.
#[derive(Debug, Clone, thiserror::Error)]
#[error(transparent)]
pub struct InvalidSettings(#[from] InvalidTrust);

/// A connection to one vCenter; see the [crate's page](crate) for what it promises. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Connection {
    core: Arc<Core>,
}

/// What the parts of a connection share.
#[derive(Debug)]
pub(crate) struct Core {
    wire: Arc<Wire>,
    session: Session,
    tags: TagSession,
    tasks: Tasks,
}

impl Connection {
    /// A connection that logs in when it is first used. Nothing is sent yet.
    pub fn new(settings: &Settings) -> Result<Self, InvalidSettings> {
        let wire = Arc::new(Wire::new(settings)?);
        let session = Session::new(Arc::clone(&wire), settings.credentials.clone());
        let core = Core { wire, session, tags: TagSession::default(), tasks: Tasks::default() };
        Ok(Self { core: Arc::new(core) })
    }

    /// The vCenter, as the settings name it.
    pub fn vcenter(&self) -> &Arc<str> {
        self.core.wire.name()
    }

    /// Logs in if nobody has, and says who vCenter thinks we are: `VSPHERE.LOCAL\csi`.
    pub async fn login(&self) -> Result<String, Error> {
        Ok(self.established().await?.user.clone())
    }

    /// Takes new credentials and tries them at once. Refused ones change nothing: the old ones stay.
    pub async fn replace_credentials(&self, credentials: Credentials) -> Result<(), Error> {
        self.core.session.replace(credentials.clone()).await?;
        self.core.tags.forget(self).await;
        Ok(())
    }

    /// Logs out. Whoever still calls gets an error.
    pub async fn close(&self) {
        self.core.tasks.stop().await;
        self.core.session.close().await;
        // Last: as long as the session is open, somebody may open one for tags.
        self.core.tags.forget(self).await;
    }

    /// Calls a method on an object.
    pub async fn call<M: Method, K: IsA<M::On>>(
        &self,
        on: &Ref<K>,
        method: &M,
    ) -> Result<M::Answer, Error> {
        self.call_at(M::SERVICE, on, method).await
    }

    /// Calls a method, as another service than its own.
    pub(crate) async fn call_at<M: Method, K: IsA<M::On>>(
        &self,
        service: Service,
        on: &Ref<K>,
        method: &M,
    ) -> Result<M::Answer, Error> {
        self.read_at(service, on, method, M::Answer::default, |answer, reader, value| {
            answer.absorb(reader, value)
        })
        .await
    }

    /// Calls a method and reads what it returns by hand, into what `start` makes. If the session is gone,
    /// logs in and calls once more, from a fresh start.
    pub(crate) async fn read_at<M: Method, K: IsA<M::On>, T>(
        &self,
        service: Service,
        on: &Ref<K>,
        method: &M,
        start: impl Fn() -> T,
        mut take: impl FnMut(&mut T, &mut Reader<'_>, &Element<'_>) -> Result<(), Malformed>,
    ) -> Result<T, Error> {
        let mut session = self.established().await?;
        let mut first = true;
        loop {
            let mut value = start();
            let called = self
                .core
                .wire
                .call(session.as_in(), service, on, method, |reader, element| {
                    take(&mut value, reader, element)
                })
                .await;
            match called {
                Ok(_) => return Ok(value),
                Err(error) if first && is_logged_out(&error) => {
                    first = false;
                    self.core.session.forget(&session).await;
                    session = self.established().await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// What vCenter is: name, version, build, instance id.
    pub async fn about(&self) -> Result<AboutInfo, Error> {
        Ok(self.established().await?.content.about.clone())
    }

    /// vCenter's clock.
    pub async fn time(&self) -> Result<jiff::Timestamp, Error> {
        self.call(&Ref::<ServiceInstance>::new("ServiceInstance"), &CurrentTime {}).await
    }

    /// The objects that everything starts from.
    pub(crate) async fn content(&self) -> Result<ServiceContent, Error> {
        Ok(self.established().await?.content.clone())
    }

    pub(crate) async fn established(&self) -> Result<Arc<Established>, Error> {
        self.core.session.get().await
    }

    pub(crate) async fn forget(&self, session: &Arc<Established>) {
        self.core.session.forget(session).await;
    }

    pub(crate) fn wire(&self) -> &Wire {
        &self.core.wire
    }

    pub(crate) fn session(&self) -> &Session {
        &self.core.session
    }

    pub(crate) fn tag_session(&self) -> &TagSession {
        &self.core.tags
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        &self.core.tasks
    }

    /// A connection for a task that must not keep its owner alive.
    pub(crate) fn downgrade(&self) -> WeakConnection {
        WeakConnection(Arc::downgrade(&self.core))
    }

    /// The error of something that took longer than its deadline.
    pub(crate) fn unfinished(
        &self,
        task: &Ref<crate::types::Task>,
        method: &'static str,
        cause: Cause,
    ) -> Error {
        let failure = Box::new(self.core.wire.failure(method, String::new(), cause));
        Error::Unfinished { task: task.clone(), failure }
    }
}

/// A connection that may be gone.
#[derive(Debug, Clone)]
pub(crate) struct WeakConnection(std::sync::Weak<Core>);

impl WeakConnection {
    pub(crate) fn upgrade(&self) -> Option<Connection> {
        self.0.upgrade().map(|core| Connection { core })
    }
}

/// Whether vCenter has forgotten the session.
pub(crate) fn is_logged_out(error: &Error) -> bool {
    error.fault().is_some_and(|fault| fault.find("NotAuthenticated").is_some())
}
