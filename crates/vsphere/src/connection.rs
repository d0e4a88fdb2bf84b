//! The connection to one vCenter.

use std::{sync::Arc, time::Duration};

use crate::{
    endpoint::Endpoint,
    error::{Cause, Error, Remedy},
    login::Established,
    metrics::Metrics,
    proxy::{InvalidProxy, Proxy},
    reference::{IsA, Ref},
    session::{Credentials, LoginBudget, Session},
    soap::Service,
    tags::TagSession,
    task::Tasks,
    tls::{InvalidTrust, Trust},
    types::{AboutInfo, CurrentTime, ServiceContent, ServiceInstance, Task},
    wire::Wire,
    xml::Method,
};

/// The settings of a connection. Everything but the endpoint and the credentials has a good default.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where vCenter is.
    pub endpoint: Endpoint,
    /// Which certificates are accepted.
    pub trust: Trust,
    /// The proxy between this program and vCenter.
    pub proxy: Proxy,
    /// The login.
    pub credentials: Credentials,
    /// How long a call may take; long polls may take their waiting time more.
    pub timeout: Duration,
    /// How long a login may take. vCenter may ask a directory that is slow, and a login that is given up counts as
    /// failed although the password is right.
    pub login_timeout: Duration,
    /// How many calls may be on the way at once; long polls do not count.
    pub concurrency: usize,
    /// What vCenter shows as our program in its list of sessions.
    pub user_agent: String,
    /// The metrics to record in.
    pub metrics: Metrics,
    /// The failed logins so far; share one among all connections of a process.
    pub budget: LoginBudget,
}

impl Settings {
    /// The defaults for a vCenter and a user.
    pub fn new(endpoint: Endpoint, credentials: Credentials) -> Self {
        Self {
            endpoint,
            trust: Trust::default(),
            proxy: Proxy::default(),
            credentials,
            timeout: Duration::from_secs(60),
            login_timeout: Duration::from_secs(120),
            concurrency: 16,
            user_agent: concat!("vsphere-drivers/", env!("CARGO_PKG_VERSION")).to_owned(),
            metrics: Metrics::default(),
            budget: LoginBudget::default(),
        }
    }
}

/// Settings that are not valid.
#[derive(Debug, Clone, thiserror::Error)]
#[error(transparent)]
pub enum InvalidSettings {
    /// The settings of TLS.
    Trust(#[from] InvalidTrust),
    /// The proxy.
    Proxy(#[from] InvalidProxy),
}

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
        let session = Session::new(Arc::clone(&wire), settings);
        let core = Core { wire, session, tags: TagSession::default(), tasks: Tasks::default() };
        Ok(Self { core: Arc::new(core) })
    }

    /// The vCenter, as the settings name it.
    pub fn vcenter(&self) -> &Arc<str> {
        self.core.wire.name()
    }

    /// Logs in if there is no session, and returns the user as vCenter names it: `VSPHERE.LOCAL\csi`.
    pub async fn login(&self) -> Result<String, Error> {
        Ok(self.established().await?.user.clone())
    }

    /// Takes new credentials and tries them at once. Refused ones change nothing: the old ones stay.
    pub async fn replace_credentials(&self, credentials: Credentials) -> Result<(), Error> {
        self.core.session.replace(credentials).await?;
        self.core.tags.forget(self).await;
        Ok(())
    }

    /// Logs out. Later calls fail.
    pub async fn close(&self) {
        self.core.tasks.stop().await;
        self.core.session.close().await;
        // Last: as long as the session is open, another call may open one for tags.
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
        let call = |session: Arc<Established>| async move {
            self.wire().get(session.as_in(), service, on, method).await
        };
        self.in_session(call).await
    }

    /// Runs `work` in the session, and once more in a new one if vCenter has forgotten the session.
    pub(crate) async fn in_session<T, W>(
        &self,
        work: impl Fn(Arc<Established>) -> W,
    ) -> Result<T, Error>
    where
        W: Future<Output = Result<T, Error>>,
    {
        let session = self.established().await?;
        match work(Arc::clone(&session)).await {
            Err(error) if error.is_logged_out() => {
                self.forget(&session).await;
                work(self.established().await?).await
            }
            answered => answered,
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

    /// The credentials for a login at another of vCenter's services, after a call in the session that was opened with
    /// them: credentials that vCenter no longer accepts fail here, once, and not at every service.
    pub(crate) async fn accepted_credentials(&self) -> Result<Credentials, Error> {
        self.time().await?;
        Ok(self.session().credentials().clone())
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
    pub(crate) fn unfinished(&self, task: &Ref<Task>, method: &'static str, cause: Cause) -> Error {
        let failure = self.core.wire.failure(method, String::new(), cause);
        Error::with(Remedy::Unfinished { task: task.clone() }, failure)
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
