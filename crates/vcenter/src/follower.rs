//! The tasks that follow one vCenter: its connection, its inventory, network cards, tags and credentials.

mod privileges;

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    future::pending,
    path::PathBuf,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use cloud_config::VCenter;
use daemon::supervise::{Shutdown, Tasks};
use futures::future::join_all;
use jiff::Timestamp;
use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, sleep, timeout},
};
use tracing::{info, warn};
use vsphere::{
    collector,
    connection::{Connection, Settings},
    error::{Cause, Error, Remedy},
    proxy::Proxy,
    reference::Ref,
    session::LoginBudget,
    tags::TagCache,
    tls::{Roots, Trust},
    types::VirtualMachine,
};

use crate::{
    Snapshot, StorageInterest, Tags, View,
    credentials::{self, Credential},
    guest::{Configuration, Report},
    inventory::{Attached, Inventory, Update, change_in},
    snapshot::Blame,
    storage::Privileges,
    view::{Change, Publisher, view},
};

/// Tags change seldom, and vCenter does not report when. By then it has forgotten the session for them.
const TAGS_EVERY: Duration = Duration::from_secs(600);
/// The pause after the first failure; it doubles with each one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause while vCenter cannot be reached, which is how late the end of an outage is noticed.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// The longest pause while vCenter answers and refuses, which ends when somebody changes it.
const LONGEST_PAUSE_REFUSED: Duration = Duration::from_secs(60);
/// Hosts and datastores change in bursts; their tags and privileges are read once for all.
const BURST: Duration = Duration::from_secs(1);
/// Between two answers where storage is watched: the free space of a datastore changes with every volume.
const STORAGE_PAUSE: Duration = Duration::from_millis(200);
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// After this a watch that starts is reported; large inventories take longer, and the start goes on.
const START_WITHIN: Duration = Duration::from_secs(60);
const LOG_OUT_WITHIN: Duration = Duration::from_secs(10);
/// VMs whose cards are read at once: the devices of a VM are many times what is kept of it.
const MOST_CARDS: usize = 250;

/// What a program reads beside folders, datacenters, clusters, hosts, pools and VMs.
#[derive(Debug, Clone, Default)]
pub struct Interests {
    /// Tag categories; no tags are read when empty.
    pub categories: Vec<String>,
    /// How often the tags are read again; every ten minutes when `None`. They are also read when folders, clusters or
    /// hosts change.
    pub tags_every: Option<Duration>,
    /// Hosts with their state, datastores and the privileges on them; nothing of that is watched when `None`.
    pub storage: Option<StorageInterest>,
}

/// The open connections by the names of their vCenters, and the budget of failed logins that they share: keep
/// one for the life of the process, over all configurations.
///
/// Whoever aborts the tasks of [`follow`] closes the connections with this: a process that lost its lease ends its
/// work at once, and still leaves no session behind.
#[derive(Debug, Clone, Default)]
pub struct Sessions {
    open: Arc<Mutex<BTreeMap<String, Connection>>>,
    budget: LoginBudget,
    proxy: Proxy,
}

impl Sessions {
    /// Sessions whose connections go through a proxy.
    pub fn through(proxy: Proxy) -> Self {
        Self { proxy, ..Self::default() }
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<String, Connection>> {
        // Nothing can panic while it is held.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs out of every vCenter.
    pub async fn close(&self) {
        let open = std::mem::take(&mut *self.open());
        join_all(open.iter().map(|(name, connection)| log_out(name, connection))).await;
    }
}

async fn log_out(vcenter: &str, connection: &Connection) {
    if timeout(LOG_OUT_WITHIN, connection.close()).await.is_err() {
        warn!(vcenter, "session not logged out: vCenter does not answer");
    }
}

/// The files with certificate authorities that a configuration names.
pub fn authorities(vcenters: &[VCenter]) -> Vec<PathBuf> {
    let file = |trust: &Trust| match trust {
        Trust::Verify { roots: Roots::File(path), .. } => Some(path.clone()),
        _ => None,
    };
    let files: BTreeSet<_> = vcenters.iter().filter_map(|one| file(&one.trust)).collect();
    files.into_iter().collect()
}

/// Logs what is followed, without secrets.
pub fn describe(vcenters: &[VCenter]) {
    for vcenter in vcenters {
        info!(
            vcenter = vcenter.name,
            server = vcenter.server,
            datacenters = ?vcenter.datacenters,
            "watching vCenter"
        );
        if vcenter.trust == Trust::Insecure {
            warn!(
                vcenter = vcenter.name,
                "certificate is not verified: any server that answers receives the password; set caFile or thumbprint"
            );
        }
    }
}

/// Follows every vCenter of a configuration in `tasks`, until their shutdown. The views are in the
/// configuration's order.
pub fn follow(
    client: &kube::Client,
    vcenters: &[VCenter],
    interests: &Interests,
    metrics: &vsphere::metrics::Metrics,
    sessions: &Sessions,
    tasks: &mut Tasks,
) -> Vec<View> {
    let credentials = credentials::follow(client, vcenters, tasks);
    let mut views = Vec::new();
    for (vcenter, (credential, inline)) in vcenters.iter().zip(credentials) {
        let mut first = Snapshot::new(vcenter, Timestamp::now());
        first.privileges = interests.storage.as_ref().map(|_| Privileges::default());
        let (published, view) = view(first, inline);
        let follower = Follower {
            vcenter: vcenter.clone(),
            interests: interests.clone(),
            metrics: metrics.clone(),
            sessions: sessions.clone(),
            published,
            places: Notify::new(),
            replaced: Notify::new(),
            unchecked: Notify::new(),
        };
        tasks.spawn(&format!("vcenter/{}", vcenter.name), |shutdown| {
            follower.run(credential, shutdown)
        });
        views.push(view);
    }
    views
}

/// VMs whose network cards are to be read.
type Stale = mpsc::UnboundedSender<Ref<VirtualMachine>>;
type ToRead = mpsc::UnboundedReceiver<Ref<VirtualMachine>>;

struct Follower {
    vcenter: VCenter,
    interests: Interests,
    metrics: vsphere::metrics::Metrics,
    sessions: Sessions,
    published: Publisher,
    /// Hosts, clusters or datacenters changed, and their tags may have.
    places: Notify,
    /// The credentials were replaced, and the new ones may be allowed more.
    replaced: Notify,
    /// The privileges on datastores may be others, or those on new datastores were not read yet.
    unchecked: Notify,
}

impl Follower {
    async fn run(self, mut login: Credential, shutdown: Shutdown) -> Result<(), Infallible> {
        let Some(connection) = shutdown.unless(self.connect(&mut login)).await else {
            return Ok(());
        };
        let (stale, to_read) = mpsc::unbounded_channel();
        let parts = async {
            tokio::join!(
                Box::pin(self.follow_inventory(&connection, &stale)),
                Box::pin(self.read_cards(&connection, to_read, &stale)),
                Box::pin(self.read_tags(&connection)),
                Box::pin(self.read_privileges(&connection)),
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

    /// A connection with the first credentials that can be used.
    async fn connect(&self, login: &mut Credential) -> Connection {
        loop {
            let current = login.borrow_and_update().clone();
            let connected = current.and_then(|login| {
                let credentials = credentials::of(&login)?;
                let mut settings = Settings::new(self.vcenter.endpoint.clone(), credentials);
                settings.trust = self.vcenter.trust.clone();
                settings.timeout = ANSWER_WITHIN;
                settings.metrics = self.metrics.clone();
                settings.budget = self.sessions.budget.clone();
                settings.proxy = self.sessions.proxy.clone();
                Connection::new(&settings).map_err(|error| Some(error.to_string()))
            });
            match connected {
                Ok(connection) => {
                    self.sessions.open().insert(self.vcenter.name.clone(), connection.clone());
                    self.published.update(|snapshot| {
                        snapshot.connection = Some(connection.clone());
                        None
                    });
                    return connection;
                }
                // Not read yet: that is how every start begins.
                Err(None) => {}
                Err(Some(why)) => self.unavailable(why, Blame::Credentials),
            }
            if login.changed().await.is_err() {
                pending::<()>().await;
            }
        }
    }

    /// Takes credentials that change. Refused ones are tried again when they change or are no longer held back;
    /// until then the old session stays.
    async fn rotate(&self, connection: &Connection, mut login: Credential) {
        let mut held = None;
        loop {
            tokio::select! {
                changed = login.changed() => if changed.is_err() { return },
                () = sleep(held.unwrap_or_default()), if held.is_some() => {}
            }
            held = None;
            let Ok(value) = login.borrow_and_update().clone() else { continue };
            let why = match credentials::of(&value) {
                Err(why) => why.unwrap_or_default(),
                Ok(new) => match connection.replace_credentials(new).await {
                    Ok(()) => {
                        info!(vcenter = self.vcenter.name, "credentials replaced");
                        self.replaced.notify_one();
                        self.unchecked.notify_one();
                        continue;
                    }
                    Err(error) => {
                        // vCenter may get the new password later than the Secret.
                        if let Cause::LoginsSpent { held: time, .. }
                        | Cause::Credentials { held: time, .. }
                        | Cause::NoRole { held: time, .. } = error.failure().cause
                        {
                            held = Some(time);
                        }
                        self.explain(&error)
                    }
                },
            };
            let vcenter = &self.vcenter.name;
            warn!(vcenter, why, "credentials not replaced; the previous session stays in use");
        }
    }

    /// Follows the inventory and starts again after every failure.
    async fn follow_inventory(&self, connection: &Connection, stale: &Stale) {
        // Failures since the last answer, and refusals in a row: a watch that is refused may be answered before.
        let (mut failures, mut refusals) = (0, 0);
        loop {
            let began = Instant::now();
            let ended = tokio::select! {
                ended = self.watch(connection, stale, &mut failures) => ended,
                never = self.report_late_start() => match never {},
            };
            let Err(error) = ended else { continue };
            failures += 1;
            let (blame, tolerated) = match error.remedy {
                Remedy::Login => (Blame::Login, 0),
                // An object may be hidden just before a request that names it.
                Remedy::NoPermission { .. } => (Blame::Permissions, 1),
                // A session that ended may be noticed by the poll and by the start after it.
                _ if collector::is_lost(&error) => (Blame::Server, 2),
                // Connections break; that is reported only when a fresh start fails too.
                _ => (Blame::Server, 1),
            };
            if failures > tolerated {
                self.unavailable(self.explain(&error), blame);
            }
            if !is_refusal(&error) || began.elapsed() > LONGEST_PAUSE_REFUSED {
                refusals = 0;
            }
            if is_refusal(&error) {
                refusals += 1;
                warn!(vcenter = self.vcenter.name, %error, refusals, "watch refused; starting again");
            }
            tokio::select! {
                () = sleep(pause(&error, failures.max(refusals))) => {}
                () = self.replaced.notified() => {}
            }
        }
    }

    /// Reports a watch that is not answered: its start may take minutes, but what is known gets old. Never ends.
    async fn report_late_start(&self) -> Infallible {
        let started = Timestamp::now();
        sleep(START_WITHIN).await;
        if self.published.snapshot().answered < started {
            let why = format!("the watch was not answered within {START_WITHIN:?}; waiting for it");
            self.unavailable(why, Blame::Server);
        }
        pending().await
    }

    /// Watches until something fails, or until the configured datacenters are others.
    async fn watch(
        &self,
        connection: &Connection,
        stale: &Stale,
        failures: &mut u32,
    ) -> Result<(), Error> {
        let (datacenters, storage) = (&self.vcenter.datacenters, self.interests.storage.is_some());
        let mut attached = Attached::new(connection, datacenters, storage).await?;
        // Known since the login, so that this sends nothing.
        let instance = connection.about().await?.instance_uuid;
        let mut selected = self.published.selected.clone();
        let mut listed = BTreeSet::new();
        // Whether the guests to list may be others, and whether the inventory is complete.
        let (mut relist, mut complete) = (true, false);
        let mut batch = Batch { fresh: true, ..Batch::default() };
        loop {
            let page = {
                let mut next = pin!(attached.collector.next());
                loop {
                    if complete && std::mem::take(&mut relist) {
                        // Only VMs that vCenter shows: it refuses a whole list for one that is hidden.
                        let shown = |vm: &Ref<_>| attached.inventory.vms.contains_key(vm);
                        let wanted = selected.borrow_and_update().clone();
                        let wanted: BTreeSet<_> = wanted.into_iter().filter(shown).collect();
                        listed.retain(shown);
                        let (more, less) = (wanted.difference(&listed), listed.difference(&wanted));
                        let mut page = None;
                        {
                            // Polled together: the poll may hold what the other request waits for.
                            let mut modify = pin!(attached.guests.modify(more, less));
                            loop {
                                tokio::select! {
                                    modified = &mut modify => break drop(modified?),
                                    early = &mut next, if page.is_none() => page = Some(early),
                                }
                            }
                        }
                        listed = wanted;
                        if let Some(page) = page {
                            break page?;
                        }
                    }
                    tokio::select! {
                        page = &mut next => break page?,
                        // Without a view nothing more is selected; health is still reported.
                        Ok(()) = selected.changed() => relist = true,
                        else => break (&mut next).await?,
                    }
                }
            };
            batch.take(page.changes, &mut attached.inventory);
            complete = page.complete;
            if !complete {
                continue;
            }
            *failures = 0;
            if batch.entities && attached.is_moved(datacenters) {
                return Ok(());
            }
            if attached.retry_refused().await? {
                // What was added is reported next, and published with what is known already.
                complete = false;
                continue;
            }
            let batch = std::mem::take(&mut batch);
            relist |= batch.population;
            self.publish(&mut attached, batch, instance.clone(), stale);
            sleep(self.pause_between_answers()).await;
        }
    }

    fn pause_between_answers(&self) -> Duration {
        if self.interests.storage.is_some() { STORAGE_PAUSE } else { Duration::ZERO }
    }

    /// Publishes a complete state.
    fn publish(
        &self,
        attached: &mut Attached,
        batch: Batch,
        instance: Option<String>,
        stale: &Stale,
    ) {
        let now = Timestamp::now();
        let (places, datastores) = (batch.entities, batch.fresh || batch.datastores);
        self.published.update(|snapshot| {
            let mut everything = batch.fresh || batch.entities;
            if batch.fresh {
                attached.inventory.share(&snapshot.inventory);
                snapshot.keep_guests(&self.published.selected.borrow());
            }
            snapshot.instance = instance;
            snapshot.inventory = attached.inventory.clone();
            everything |= snapshot.answer(&attached.problems(), attached.is_blind(), now);
            let mut vms = batch.vms;
            for report in batch.reports {
                let vm = snapshot.take_report(report, now);
                let entry = snapshot.guests.get(&vm);
                if entry.is_some_and(|entry| entry.is_stale()) {
                    // Fails when the reader of cards has ended, and this ends with it.
                    stale.send(vm.clone()).unwrap_or_default();
                }
                vms.insert(vm);
            }
            let some = || (!vms.is_empty()).then_some(Change::Vms(vms));
            if everything { Some(Change::Everything) } else { some() }
        });
        if places {
            self.places.notify_one();
        }
        if datastores {
            self.unchecked.notify_one();
        }
    }

    /// Publishes that the vCenter cannot be followed, and why.
    fn unavailable(&self, why: String, blame: Blame) {
        if self.published.snapshot().is_news(&why, blame) {
            warn!(vcenter = self.vcenter.name, why, "vCenter is unavailable");
            self.published.update(|snapshot| {
                snapshot.fail(why, blame, Timestamp::now());
                Some(Change::Everything)
            });
        }
    }

    /// The error and where its remedy is: vCenter does not know where its password comes from.
    fn explain(&self, error: &Error) -> String {
        if error.remedy != Remedy::Login {
            return error.to_string();
        }
        let source = credentials::describe(&self.vcenter.credentials);
        format!("{error}; correct the credentials in {source}, which needs no restart")
    }

    /// Reads the network cards of the VMs that come.
    async fn read_cards(&self, connection: &Connection, mut to_read: ToRead, stale: &Stale) {
        let mut came = Vec::new();
        while to_read.recv_many(&mut came, MOST_CARDS).await > 0 {
            let snapshot = self.published.snapshot();
            let is_stale = |vm: &_| snapshot.guests.get(vm).is_some_and(|entry| entry.is_stale());
            let vms: BTreeSet<_> = came.drain(..).filter(is_stale).collect();
            let vms: Vec<_> = vms.into_iter().collect();
            let read = connection.inventory().cards(&vms).await.unwrap_or_else(|error| {
                warn!(vcenter = self.vcenter.name, vms = vms.len(), %error, "network cards not read; retrying");
                Vec::new()
            });
            let known: BTreeSet<_> = read.iter().map(|cards| cards.vm.clone()).collect();
            if !known.is_empty() {
                self.published.update(|snapshot| {
                    for cards in read {
                        let vm = cards.vm.clone();
                        change_in(&mut snapshot.guests, &vm, |entry| {
                            entry.configuration = Some(Arc::new(Configuration::from(cards)));
                        });
                    }
                    Some(Change::Vms(known.clone()))
                });
            }
            // What cannot be read is not guessed: a card that is not known could hold an address.
            let unread: Vec<_> = vms.into_iter().filter(|vm| !known.contains(vm)).collect();
            if !unread.is_empty() {
                sleep(LONGEST_PAUSE).await;
                for vm in unread {
                    stale.send(vm).unwrap_or_default();
                }
            }
        }
    }

    async fn read_tags(&self, connection: &Connection) {
        if self.interests.categories.is_empty() {
            self.publish_tags(Tags { tried: true, ..Tags::default() });
            return;
        }
        let mut cache = TagCache::new(connection, self.interests.categories.iter().cloned());
        let every = self.interests.tags_every.unwrap_or(TAGS_EVERY);
        let mut failures = 0;
        loop {
            let read = cache.refresh().await;
            failures = if read.is_ok() { 0 } else { failures + 1 };
            // Not sooner: after a rotation the new credentials may come a little later than the failure.
            let retry = |error| pause(error, failures).max(LONGEST_PAUSE);
            let next = read.as_ref().err().map_or(every, retry);
            let problem = read.as_ref().err().map(|error| format!("tags cannot be read: {error}"));
            let known = self.published.snapshot().tags.map.clone();
            self.publish_tags(Tags { map: read.ok().or(known), problem, tried: true });
            tokio::select! {
                () = sleep(next) => {}
                () = self.places.notified() => sleep(BURST).await,
            }
        }
    }

    fn publish_tags(&self, tags: Tags) {
        if self.published.snapshot().tags != tags {
            self.published.update(|snapshot| {
                snapshot.tags = tags;
                Some(Change::Everything)
            });
        }
    }
}

/// What changed between two states that were published.
#[derive(Default)]
struct Batch {
    /// Whether it is the first since the watch attached.
    fresh: bool,
    /// Whether anything but VMs changed.
    entities: bool,
    /// Whether an object entered or left.
    population: bool,
    /// Whether a datastore appeared.
    datastores: bool,
    vms: BTreeSet<Ref<VirtualMachine>>,
    reports: Vec<collector::Change<Report>>,
}

impl Batch {
    fn take(&mut self, changes: Vec<Update>, inventory: &mut Inventory) {
        for change in changes {
            match change {
                Update::Guest(change) => self.reports.push(change),
                Update::Storage(update) => {
                    if let Some(storage) = &mut inventory.storage {
                        self.datastores |= storage.apply(update);
                    }
                }
                Update::Inventory(change) => {
                    self.population |= !matches!(change, collector::Change::Changed(_));
                    match inventory.apply(change) {
                        Some(vm) => drop(self.vms.insert(vm)),
                        None => self.entities = true,
                    }
                }
            }
        }
    }
}

/// Whether vCenter answered and refused, which ends when somebody changes something there. Refused logins are
/// held back by the connection and cost no request.
fn is_refusal(error: &Error) -> bool {
    let passes = matches!(
        error.remedy,
        Remedy::Retry | Remedy::Busy | Remedy::LoggedOut | Remedy::Unreachable | Remedy::Login
    );
    !passes && !collector::is_lost(error)
}

/// How long to wait after a failure, the `times`-th in a row.
fn pause(error: &Error, times: u32) -> Duration {
    let longest = if is_refusal(error) { LONGEST_PAUSE_REFUSED } else { LONGEST_PAUSE };
    let factor = 2u32.saturating_pow(times.saturating_sub(1));
    FIRST_PAUSE.saturating_mul(factor).min(longest)
}
