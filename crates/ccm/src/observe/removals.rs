//! Evidence about VMs that Nodes recorded and no vCenter shows: does the VM exist, and how was it removed?
//!
//! Requests to vCenter run in the background; [`Removals::evidence`] never waits and returns what is known so far.
//! Existence can change, so it is requested repeatedly, with growing pauses while the answer keeps the Node. The
//! way of removal cannot: it is requested for all VMs of a vCenter together, and not again once it is known. Nothing
//! is requested for Nodes that are ready. Without an answer there is no proof.

use std::{
    collections::{HashMap, HashSet},
    future::pending,
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, timeout},
};
use tracing::warn;
use vcenter::Snapshot;
use vsphere::{
    connection::Connection,
    history,
    reference::Ref,
    types::{Folder, VirtualMachine},
};

use super::{
    discovery::{Absence, Finding},
    identity::Identity,
};
use crate::plan::{
    lifecycle::{Evidence, Reference, Removal, is_ready},
    node,
};

const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Requests about single VMs that are made at once.
const CONCURRENT: usize = 16;
/// How old the answer that a VM does not exist may be when its Node is deleted.
const FRESH: Duration = Duration::from_secs(30);
/// A VM may be gone a little earlier than the task that destroys it has ended.
const FIRST_RETRY: Duration = Duration::from_secs(2);
/// The next retries come after this time, doubled each time. Records do not appear much later.
const RETRY: Duration = Duration::from_secs(30);
const LONGEST_RETRY: Duration = Duration::from_secs(600);
/// Records may appear late and requests fail now and then, so nothing is reported before this many times.
const TIMES: u32 = 3;
/// Of this many reads one covers all of the time again: the user may have been allowed to see more since.
const WHOLE_EVERY: u32 = 6;
/// The longest pause between two requests whether a VM exists, while the answer keeps its Node.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// How far vCenter's clock may be from ours, and how long a kubelet may be silent before its Node is not ready.
const SLACK: SignedDuration = SignedDuration::from_mins(10);

/// What is known and asked about VMs that are missing.
pub(crate) struct Removals {
    /// How often a VM is asked for at most.
    every: Duration,
    vms: HashMap<Key, Inquiry>,
    questions: JoinSet<Reply>,
    slots: Arc<Semaphore>,
}

/// A VM, by its vCenter's instance UUID in lower case and the value of its reference.
type Key = (String, String);

#[derive(Default)]
struct Inquiry {
    /// When the VM was last found although its Node was not ready.
    seen: Option<Timestamp>,
    existence: Existence,
    record: Record,
}

#[derive(Default)]
struct Existence {
    answer: Option<(Reference, Instant)>,
    asking: bool,
    /// Answers in a row that kept the Node.
    kept: u32,
}

/// What vCenter's task history has about the removal.
#[derive(Default)]
struct Record {
    /// Stays once it is known.
    removal: Option<Removal>,
    asking: bool,
    /// When the last request ended.
    asked: Option<Instant>,
    /// Answers without a record.
    without: u32,
    /// Requests that failed since the last answer.
    failures: u32,
    /// Up to when answers covered the history.
    read_until: Option<Timestamp>,
}

/// The connection to a vCenter, and VMs with the time within which each may have been removed.
type Question = (Connection, Vec<(Ref<VirtualMachine>, SignedDuration)>);

enum Reply {
    Existence(Key, Reference),
    Removals { vcenter: String, asked: Timestamp, answers: history::Removals },
}

impl Removals {
    pub(crate) fn new(every: Duration) -> Self {
        let slots = Arc::new(Semaphore::new(CONCURRENT));
        Self { every, vms: HashMap::new(), questions: JoinSet::new(), slots }
    }

    /// What is known of the VM of each Node, in their order; asks for what is missing.
    pub(crate) fn evidence(
        &mut self,
        snapshots: &[Arc<Snapshot>],
        nodes: &[&Node],
        findings: &[Finding<'_>],
    ) -> Vec<Evidence> {
        self.forget(nodes);
        let mut questions = HashMap::new();
        let evidence = nodes.iter().zip(findings).map(|(node, finding)| match finding {
            _ if is_ready(node) => Evidence::default(),
            Finding::Found(machine, _) => {
                if let Some(identity) = Identity::of(machine) {
                    let seen = Some(Timestamp::now());
                    self.vms.insert(key(&identity), Inquiry { seen, ..Inquiry::default() });
                }
                Evidence::default()
            }
            Finding::Absent(Absence { identity: Some(identity), .. }) => {
                self.of_missing(snapshots, node, identity, &mut questions)
            }
            _ => Evidence::default(),
        });
        let evidence = evidence.collect();
        for (vcenter, (connection, vms)) in questions {
            let asked = Timestamp::now();
            self.questions.spawn(async move {
                let answers = connection.history().removals(&vms).await;
                Reply::Removals { vcenter, asked, answers }
            });
        }
        evidence
    }

    fn of_missing(
        &mut self,
        snapshots: &[Arc<Snapshot>],
        node: &Node,
        identity: &Identity,
        questions: &mut HashMap<String, Question>,
    ) -> Evidence {
        let Some(snapshot) = snapshot_of(snapshots, identity) else { return Evidence::default() };
        let Some(connection) = &snapshot.connection else { return Evidence::default() };
        let folder = identity.folder.as_deref().map(Ref::<Folder>::new);
        let folder_seen = folder.is_some_and(|folder| snapshot.sees(&folder));
        let inquiry = self.vms.entry(key(identity)).or_default();
        let mut evidence = Evidence { folder_seen, ..Evidence::default() };
        if inquiry.existence.answer.is_some_and(|(reference, _)| reference == Reference::Gone) {
            evidence.removal = inquiry.record.removal();
            if inquiry.record.is_due() {
                inquiry.record.asking = true;
                let none = || (connection.clone(), Vec::new());
                let (_, vms) = questions.entry(key(identity).0).or_insert_with(none);
                vms.push((Ref::new(&identity.vm), inquiry.window(node, Timestamp::now())));
            }
        }
        evidence.reference = inquiry.existence.reference(evidence.removal);
        if inquiry.existence.is_due(self.every, evidence.removal) {
            inquiry.existence.asking = true;
            let (key, connection) = (key(identity), connection.clone());
            let slots = Arc::clone(&self.slots);
            self.questions.spawn(async move {
                // The semaphore is never closed; without a permit the request is made all the same.
                let _slot = slots.acquire_owned().await;
                let vm = Ref::new(&key.1);
                let asked = timeout(ANSWER_TIMEOUT, exists(&connection, &vm)).await;
                Reply::Existence(key, asked.unwrap_or_default())
            });
        }
        evidence
    }

    /// Takes in the next answer; pending while nothing is asked. Cancel safe.
    pub(crate) async fn answered(&mut self) {
        match self.questions.join_next().await {
            Some(Ok(Reply::Existence(key, reference))) => {
                if let Some(inquiry) = self.vms.get_mut(&key) {
                    inquiry.existence.take(reference);
                }
            }
            Some(Ok(Reply::Removals { vcenter, asked, answers })) => {
                self.take_removals(&vcenter, asked, answers);
            }
            Some(Err(error)) => {
                warn!(%error, "request about removed VMs ended early; their Nodes stay");
            }
            None => pending().await,
        }
    }

    fn take_removals(&mut self, vcenter: &str, asked: Timestamp, answers: history::Removals) {
        if let Some(error) = answers.values().find_map(|answer| answer.as_ref().err()) {
            warn!(vcenter, %error, "could not read how VMs were removed; retrying");
        }
        for (vm, answer) in answers {
            let inquiry = self.vms.get_mut(&(vcenter.to_owned(), vm.value().to_owned()));
            // One that is not asking is newer than the question: the VM was found meanwhile.
            if let Some(inquiry) = inquiry.filter(|inquiry| inquiry.record.asking) {
                inquiry.record.take(answer.map_err(drop), asked);
            }
        }
    }

    /// Forgets VMs that no Node recorded.
    fn forget(&mut self, nodes: &[&Node]) {
        if self.vms.is_empty() {
            return;
        }
        let recorded = nodes.iter().filter_map(|node| Identity::recorded(node));
        let recorded: HashSet<Key> = recorded.map(|identity| key(&identity)).collect();
        self.vms.retain(|key, _| recorded.contains(key));
    }
}

impl Inquiry {
    /// How long ago the VM may have been removed at most, as far as that was not read.
    fn window(&self, node: &Node, now: Timestamp) -> SignedDuration {
        let whole = self.record.without.is_multiple_of(WHOLE_EVERY);
        let read = self.record.read_until.filter(|_| !whole);
        let since =
            last_ready(node).max(self.seen.unwrap_or_default()).max(read.unwrap_or_default());
        now.duration_since(since).max(SignedDuration::ZERO).saturating_add(SLACK)
    }
}

impl Record {
    fn removal(&self) -> Removal {
        match self {
            Self { removal: Some(removal), .. } => *removal,
            Self { without: TIMES.., .. } => Removal::NoRecord,
            Self { failures: TIMES.., .. } => Removal::Unreadable,
            _ => Removal::NotAsked,
        }
    }

    fn is_due(&self) -> bool {
        let pause = retry_after(self.without.saturating_add(self.failures));
        let waited = self.asked.is_none_or(|at| at.elapsed() >= pause);
        self.removal.is_none() && !self.asking && waited
    }

    /// Takes in an answer, with a record or without, or that the history could not be read.
    fn take(&mut self, answer: Result<Option<history::Removal>, ()>, asked: Timestamp) {
        (self.asking, self.asked) = (false, Some(Instant::now()));
        match answer {
            Ok(Some(removal)) => self.removal = Some(removal.into()),
            Ok(None) => {
                self.without = self.without.saturating_add(1);
                (self.failures, self.read_until) = (0, Some(asked));
            }
            Err(()) => self.failures = self.failures.saturating_add(1),
        }
    }
}

impl Existence {
    /// The answer, unless the Node would be deleted by it and it is old.
    fn reference(&self, removal: Removal) -> Reference {
        let counts = |at: Instant| removal != Removal::Destroyed || at.elapsed() <= FRESH;
        let answer = self.answer.filter(|(_, at)| counts(*at));
        answer.map(|(reference, _)| reference).unwrap_or_default()
    }

    /// Whether vCenter is to be asked: at once, then every time while the Node may be deleted, else ever later.
    fn is_due(&self, every: Duration, removal: Removal) -> bool {
        let Some((reference, at)) = self.answer else { return !self.asking };
        let decisive = reference == Reference::Gone
            && matches!(removal, Removal::Destroyed | Removal::NotAsked);
        let longer = every.saturating_mul(1 << self.kept.min(10)).min(LONGEST_PAUSE);
        let pause = if decisive { every } else { longer };
        // Due with the tick that is nearest, not with the one after it.
        !self.asking && at.elapsed() + every / 2 >= pause
    }

    fn take(&mut self, reference: Reference) {
        let same = self.answer.is_some_and(|(before, _)| before == reference);
        self.kept = if same { self.kept.saturating_add(1) } else { 0 };
        (self.answer, self.asking) = (Some((reference, Instant::now())), false);
    }
}

fn key(identity: &Identity) -> Key {
    (identity.vcenter.to_ascii_lowercase(), identity.vm.clone())
}

fn retry_after(times: u32) -> Duration {
    match times {
        0 | 1 => FIRST_RETRY,
        more => RETRY.saturating_mul(1 << (more - 2).min(16)).min(LONGEST_RETRY),
    }
}

/// When the Node stopped being ready, about a minute after its kubelet's last heartbeat. Its VM existed then.
fn last_ready(node: &Node) -> Timestamp {
    let ready = node::condition(node, "Ready");
    let since = ready.and_then(|ready| ready.last_transition_time.as_ref());
    let since = since.or(node.metadata.creation_timestamp.as_ref());
    since.map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

fn snapshot_of<'a>(snapshots: &'a [Arc<Snapshot>], identity: &Identity) -> Option<&'a Snapshot> {
    let is_it = |snapshot: &&Arc<Snapshot>| {
        let instance = snapshot.instance.as_deref();
        instance.is_some_and(|instance| instance.eq_ignore_ascii_case(&identity.vcenter))
    };
    snapshots.iter().find(is_it).map(Arc::as_ref)
}

/// Reading leaves out what is hidden as well as what is gone; a check of privileges tells them apart.
async fn exists(connection: &Connection, vm: &Ref<VirtualMachine>) -> Reference {
    let answer =
        connection.authorization().lacking(std::slice::from_ref(vm), &["System.Read"]).await;
    let is =
        |kind| answer.as_ref().is_err_and(|error| error.fault().is_some_and(|it| it.is_a(kind)));
    match answer {
        Ok(_) => Reference::Exists,
        // vCenter refuses access only to objects that exist.
        Err(_) if is("NoPermission") => Reference::Exists,
        Err(_) if is("ManagedObjectNotFound") => Reference::Gone,
        Err(_) => Reference::NotAsked,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Connection, Duration, Inquiry, Record, Ref, Removals, SLACK, TIMES, WHOLE_EVERY, history,
    };
    use crate::{
        plan::lifecycle::Removal,
        test_support::{at, node},
    };
    use serde_json::json;
    use vsphere::{connection::Settings, session::Credentials};

    #[test]
    fn a_history_that_cannot_be_read_is_not_one_without_a_record() {
        let mut record = Record::default();
        for _ in 1..TIMES {
            record.take(Err(()), at(0));
            assert_eq!(record.removal(), Removal::NotAsked);
        }
        record.take(Err(()), at(0));
        assert_eq!(record.removal(), Removal::Unreadable);
        record.take(Ok(None), at(0));
        assert_eq!(record.removal(), Removal::NotAsked, "the first answer");
        for _ in 1..TIMES {
            record.take(Ok(None), at(0));
        }
        record.take(Err(()), at(0));
        assert_eq!(record.removal(), Removal::NoRecord);
        record.take(Ok(Some(history::Removal::Destroyed)), at(0));
        assert_eq!(record.removal(), Removal::Destroyed);
        assert!(!record.is_due());
    }

    #[tokio::test]
    async fn a_record_that_was_found_counts_though_those_of_other_vms_could_not_be_read() {
        let nobody = Credentials::password("nobody", "");
        let settings = Settings::new("https://127.0.0.1:9".parse().unwrap(), nobody);
        let connection = Connection::new(&settings).unwrap();
        let (found, unread) = (Ref::new("vm-1"), Ref::new("vm-2"));
        let question = [(unread.clone(), SLACK)];
        let mut answers = connection.history().removals(&question).await;
        answers.insert(found.clone(), Ok(Some(history::Removal::Destroyed)));
        let key = |vm: &Ref<_>| ("vcenter".to_owned(), vm.value().to_owned());
        let mut removals = Removals::new(Duration::ZERO);
        for vm in [&found, &unread] {
            removals.vms.entry(key(vm)).or_default().record.asking = true;
        }
        removals.take_removals("vcenter", at(0), answers);
        assert_eq!(removals.vms[&key(&found)].record.removal(), Removal::Destroyed);
        let record = &removals.vms[&key(&unread)].record;
        assert_eq!((record.failures, record.without, record.asking), (1, 0, false));
    }

    #[test]
    fn what_was_read_of_the_history_is_seldom_read_again() {
        let unready = json!({"type": "Ready", "status": "Unknown", "lastTransitionTime": at(0)});
        let node = node(json!({"status": {"conditions": [unready]}}));
        let mut inquiry = Inquiry::default();
        let window = |inquiry: &Inquiry, second| {
            let window = inquiry.window(&node, at(second)).saturating_sub(SLACK);
            window.as_secs()
        };
        assert_eq!(window(&inquiry, 60), 60);
        inquiry.record.take(Err(()), at(60));
        assert_eq!(window(&inquiry, 90), 90, "nothing is known to have been read");
        for answer in 1..WHOLE_EVERY {
            inquiry.record.take(Ok(None), at(100));
            assert_eq!(window(&inquiry, 130), 30, "after {answer} answers");
        }
        inquiry.record.take(Ok(None), at(100));
        assert_eq!(window(&inquiry, 130), 130, "the user may see more by now");
    }
}
