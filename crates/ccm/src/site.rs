//! One vCenter, followed: what it shows, whether it answers, and what tags and guests say.
//!
//! [`Site::run`] keeps a [`Snapshot`] current that whoever holds the [`View`] reads without waiting. Hides the
//! session, its credentials and their rotation, the watch of the inventory, and when tags and network cards
//! are read again. A vCenter that does not answer is a snapshot that says so; nobody waits for it.

mod snapshot;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    convert::Infallible,
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use cloud_config::{CredentialSource, Labels, Login, VCenter};
use daemon::supervise::Shutdown;
use futures::{StreamExt, future::join_all};
use jiff::Timestamp;
use secrecy::ExposeSecret;
use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};
use tracing::{info, warn};
use vsphere::{
    connection::{Connection, Settings},
    error::Error,
    inventory::{Entity, Mirror, VmSettings},
    reference::Ref,
    session::Credentials,
    shared::{Bearer, SharedSession},
    sts::KeyPair,
    tags::TagCache,
    types::VirtualMachine,
    watch::Change,
};

pub use self::snapshot::{Guest, Snapshot, Tags};
use crate::credentials::LoginView;

/// Tags change seldom, and nobody tells when. By then vCenter has forgotten the session that they are read in.
const TAGS_EVERY: Duration = Duration::from_secs(600);
/// How soon something that failed is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
/// Hosts change in bursts; their tags are read once for all.
const BURST: Duration = Duration::from_secs(1);
/// How soon refused credentials that replace good ones are tried again, if they do not change.
const REPLACE_AFTER: Duration = Duration::from_secs(30);
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const LOG_OUT_WITHIN: Duration = Duration::from_secs(10);
/// Changes of the inventory that are taken in at once.
const MOST_AT_ONCE: usize = 500;
/// Guests that are read at once: the devices of a VM are many times what is kept of it.
const MOST_GUESTS: usize = 250;

/// What a session service is asked with if the Secret has nothing.
const OWN_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

type Wanted = BTreeSet<Ref<VirtualMachine>>;

/// A vCenter to follow.
#[derive(Debug)]
pub struct Site {
    vcenter: VCenter,
    categories: Vec<String>,
    login: LoginView,
    metrics: vsphere::metrics::Metrics,
    sessions: Sessions,
    wanted: watch::Receiver<Wanted>,
    state: watch::Sender<Arc<Snapshot>>,
    /// Hosts or clusters changed, so that tags may say something else.
    places: Notify,
}

/// The connections of all sites by their names, for whoever has to end them when the sites were not let finish: a process that
/// lost its lease aborts its work at once, and still leaves no session behind.
#[derive(Debug, Clone, Default)]
pub struct Sessions(Arc<Mutex<BTreeMap<String, Connection>>>);

impl Sessions {
    fn open(&self) -> MutexGuard<'_, BTreeMap<String, Connection>> {
        // Nothing can panic while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs out whoever is still logged in.
    pub async fn close(&self) {
        let open = std::mem::take(&mut *self.open());
        join_all(open.iter().map(|(name, connection)| log_out(name, connection))).await;
    }
}

/// Ends the session of a connection, if vCenter answers.
async fn log_out(vcenter: &str, connection: &Connection) {
    if timeout(LOG_OUT_WITHIN, connection.close()).await.is_err() {
        warn!(vcenter, "not logged out: vCenter does not answer");
    }
}

/// What others see of a [`Site`], and what they want from it.
#[derive(Debug)]
pub struct View {
    /// What is known.
    pub snapshot: watch::Receiver<Arc<Snapshot>>,
    /// The VMs whose cards are of interest.
    pub wanted: watch::Sender<Wanted>,
}

/// A site and the view of it. It waits until there is a login, and follows those that come later.
pub fn site(
    vcenter: VCenter,
    labels: &Labels,
    login: LoginView,
    metrics: vsphere::metrics::Metrics,
    sessions: Sessions,
) -> (Site, View) {
    let (wants, wanted) = watch::channel(Wanted::new());
    let first = Snapshot::silent(&vcenter, "it has not been asked yet", Timestamp::now());
    let (state, snapshot) = watch::channel(Arc::new(first));
    let categories = labels.zone.iter().chain(&labels.region).cloned().collect();
    let places = Notify::new();
    let site = Site { vcenter, categories, login, metrics, sessions, wanted, state, places };
    (site, View { snapshot, wanted: wants })
}

impl Site {
    /// Follows the vCenter until `shutdown`, then logs out.
    ///
    /// # Errors
    /// None: a vCenter that cannot be reached is no reason to end.
    pub async fn run(self, shutdown: Shutdown) -> Result<(), Infallible> {
        let mut login = self.login.clone();
        let Some(connection) = shutdown.unless(self.connect(&mut login)).await else {
            return Ok(());
        };
        let parts = async {
            tokio::join!(
                Box::pin(self.follow(&connection)),
                Box::pin(self.read_tags(&connection)),
                Box::pin(self.read_guests(&connection)),
                Box::pin(self.rotate(&connection, login)),
            )
        };
        if shutdown.unless(parts).await.is_some() {
            shutdown.requested().await;
        }
        log_out(&self.vcenter.name, &connection).await;
        self.sessions.open().remove(&self.vcenter.name);
        Ok(())
    }

    fn update(&self, change: impl FnOnce(&mut Snapshot)) {
        self.state.send_modify(|snapshot| change(Arc::make_mut(snapshot)));
    }

    /// A connection with the first credentials that can be used.
    async fn connect(&self, login: &mut LoginView) -> Connection {
        loop {
            let value = login.borrow_and_update().clone();
            let connected = match value {
                Err(why) => Err(why),
                Ok(login) => credentials(&login).and_then(|credentials| {
                    let mut settings = Settings::new(self.vcenter.endpoint.clone(), credentials);
                    settings.trust = self.vcenter.trust.clone();
                    settings.timeout = ANSWER_WITHIN;
                    settings.metrics = self.metrics.clone();
                    Connection::new(&settings).map_err(|error| error.to_string())
                }),
            };
            match connected {
                Ok(connection) => {
                    self.sessions.open().insert(self.vcenter.name.clone(), connection.clone());
                    self.update(|snapshot| snapshot.connection = Some(connection.clone()));
                    return connection;
                }
                Err(why) => {
                    warn!(vcenter = self.vcenter.name, why, "vCenter cannot be asked");
                    self.update(|snapshot| snapshot.fall_silent(&why, Timestamp::now()));
                }
            }
            if login.changed().await.is_err() {
                pending::<()>().await;
            }
        }
    }

    /// Takes credentials that change while running.
    async fn rotate(&self, connection: &Connection, mut login: LoginView) {
        loop {
            if login.changed().await.is_err() {
                return;
            }
            loop {
                let Ok(value) = login.borrow_and_update().clone() else { break };
                let replaced = match credentials(&value) {
                    Ok(new) => connection.replace_credentials(new).await.map_err(|e| e.to_string()),
                    Err(why) => Err(why),
                };
                let Err(why) = replaced else {
                    info!(vcenter = self.vcenter.name, "new credentials are in use");
                    break;
                };
                warn!(vcenter = self.vcenter.name, why, "new credentials are not in use");
                tokio::select! {
                    () = sleep(REPLACE_AFTER) => {}
                    changed = login.changed() => if changed.is_err() { pending::<()>().await },
                }
            }
        }
    }

    /// Keeps the mirror of the inventory.
    async fn follow(&self, connection: &Connection) {
        let root = loop {
            match connection.inventory().root().await {
                Ok(root) => break root,
                Err(error) => self.failed(&error),
            }
            sleep(AGAIN_AFTER).await;
        };
        self.update(|snapshot| snapshot.mirror = Some(Arc::new(Mirror::new(root))));
        let mut changes = connection.watch::<Entity>().ready_chunks(MOST_AT_ONCE);
        while let Some(chunk) = changes.next().await {
            let synced = chunk.iter().any(|change| matches!(change, Ok(Change::Synced)));
            // Known since the login, so that this asks nobody.
            let about = if synced { connection.about().await.ok() } else { None };
            if chunk.iter().flatten().any(is_place) {
                self.places.notify_one();
            }
            for error in chunk.iter().filter_map(|change| change.as_ref().err()) {
                self.failed(error);
            }
            self.state.send_if_modified(|snapshot| {
                let snapshot = Arc::make_mut(snapshot);
                if let Some(about) = about {
                    snapshot.instance = about.instance_uuid;
                }
                for change in chunk.into_iter().flatten() {
                    snapshot.take(change, Timestamp::now());
                }
                // Nobody can use a part of an inventory.
                snapshot.has_caught_up()
            });
        }
    }

    fn failed(&self, error: &Error) {
        let why = self.explained(error);
        warn!(vcenter = self.vcenter.name, why, "vCenter cannot be followed");
        self.update(|snapshot| snapshot.fall_silent(&why, Timestamp::now()));
    }

    /// The error, and where its remedy is: vCenter does not know where we have its password from.
    fn explained(&self, error: &Error) -> String {
        let place = match &self.vcenter.credentials {
            _ if !matches!(error, Error::Login(_)) => return error.to_string(),
            CredentialSource::Inline(_) => "the configuration".to_owned(),
            CredentialSource::Secret(name) => format!("the secret {name}"),
            CredentialSource::Directory(path) => format!("the directory {}", path.display()),
        };
        format!("{error}; correct it in {place}, which is noticed without a restart")
    }

    async fn read_tags(&self, connection: &Connection) {
        if self.categories.is_empty() {
            self.update(|snapshot| snapshot.tags.tried = true);
            return;
        }
        let cache = TagCache::new(connection, self.categories.iter().cloned());
        loop {
            let read = cache.refresh().await;
            let next = if read.is_ok() { TAGS_EVERY } else { AGAIN_AFTER };
            let problem = read.as_ref().err().map(|error| format!("tags cannot be read: {error}"));
            self.state.send_if_modified(|snapshot| {
                let map = read.ok().or_else(|| snapshot.tags.map.clone());
                let tags = Tags { map, problem, tried: true };
                let news = snapshot.tags != tags;
                if news {
                    Arc::make_mut(snapshot).tags = tags;
                }
                news
            });
            tokio::select! {
                () = sleep(next) => {}
                () = self.places.notified() => sleep(BURST).await,
            }
        }
    }

    /// Keeps what is known of the guests that somebody wants.
    async fn read_guests(&self, connection: &Connection) {
        let (mut wanted, mut state) = (self.wanted.clone(), self.state.subscribe());
        loop {
            let now = wanted.borrow_and_update().clone();
            let stale = state.borrow_and_update().stale(&now);
            if stale.is_empty() {
                tokio::select! {
                    changed = wanted.changed() => if changed.is_err() { return },
                    _ = state.changed() => {}
                }
                continue;
            }
            let mut all = true;
            for some in stale.chunks(MOST_GUESTS) {
                // What cannot be read is not guessed: a card that is not known could hold an address.
                let read = read_guests(connection, some).await.unwrap_or_else(|error| {
                    warn!(vcenter = self.vcenter.name, %error, "network cards cannot be read");
                    HashMap::new()
                });
                all &= read.len() == some.len();
                self.update(|snapshot| snapshot.know(&now, read, Timestamp::now()));
            }
            if !all {
                sleep(AGAIN_AFTER).await;
            }
        }
    }
}

/// The cards and the metadata of these VMs, in a handful of requests.
async fn read_guests(
    connection: &Connection,
    vms: &[Ref<VirtualMachine>],
) -> Result<HashMap<Ref<VirtualMachine>, Guest>, Error> {
    let mut nics = connection.inventory().nics(vms).await?;
    let settings: Vec<VmSettings> = connection.read(vms).await?;
    let guest = |settings: VmSettings| {
        let guest = Guest {
            nics: nics.remove(&settings.reference)?,
            metadata: settings.option("guestinfo.metadata").filter(|text| !text.is_empty()),
            encoding: settings.option("guestinfo.metadata.encoding"),
            ..Guest::default()
        };
        Some((settings.reference, guest))
    };
    Ok(settings.into_iter().filter_map(guest).collect())
}

/// Whether a change is about something that tags of zones are on.
fn is_place(change: &Change<Entity>) -> bool {
    let kind = |kind: &str| ["HostSystem", "ClusterComputeResource", "Datacenter"].contains(&kind);
    match change {
        Change::Entered(Entity::Host(_) | Entity::Cluster(_) | Entity::Datacenter(_)) => true,
        Change::Entered(_) | Change::Synced => false,
        Change::Changed(delta) => kind(delta.reference().kind()),
        Change::Left(reference) => kind(reference.kind()),
    }
}

fn credentials(login: &Login) -> Result<Credentials, String> {
    match login {
        Login::Password(inline) => {
            let password = inline.password.expose_secret();
            if inline.user.trim_start().starts_with("-----BEGIN") {
                let pair = KeyPair::from_pem(&inline.user, password);
                return pair.map(Credentials::Certificate).map_err(|error| error.to_string());
            }
            Ok(Credentials::password(inline.user.clone(), password))
        }
        Login::SharedSession { url, token } => {
            let own = || Bearer::File(OWN_TOKEN.into());
            let bearer = token.clone().map_or_else(own, Bearer::Token);
            Ok(Credentials::Shared(SharedSession { url: url.clone(), bearer }))
        }
    }
}
