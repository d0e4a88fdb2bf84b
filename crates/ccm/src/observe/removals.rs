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
    error::Error,
    history,
    reference::Ref,
    types::{Folder, VirtualMachine},
};

use super::{discovery::Finding, identity::Identity};
use crate::plan::lifecycle::{Evidence, Reference, Removal, is_ready};

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
    removal: Known,
}

#[derive(Default)]
struct Existence {
    answer: Option<(Reference, Instant)>,
    asking: bool,
    /// Answers in a row that kept the Node.
    kept: u32,
}

#[derive(Default)]
enum Known {
    #[default]
    NotAsked,
    Asking {
        before: u32,
    },
    /// vCenter has no record, asked so many times, the last time then.
    NoRecord {
        times: u32,
        at: Instant,
    },
    Recorded(Removal),
}

/// VMs of one vCenter, and how long ago each may have been removed at most.
struct Question {
    connection: Connection,
    vms: Vec<(Ref<VirtualMachine>, SignedDuration)>,
}

enum Reply {
    Existence(Key, Reference),
    Removals {
        vcenter: String,
        vms: Vec<Ref<VirtualMachine>>,
        found: Result<HashMap<Ref<VirtualMachine>, history::Removal>, Error>,
    },
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
            Finding::Absent(absence) => match &absence.identity {
                Some(identity) => self.of_missing(snapshots, node, identity, &mut questions),
                None => Evidence::default(),
            },
            _ => Evidence::default(),
        });
        let evidence = evidence.collect();
        for (vcenter, question) in questions {
            self.ask_removals(vcenter, question);
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
            evidence.removal = inquiry.ask_removal(node, identity, connection, questions);
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

    fn ask_removals(&mut self, vcenter: String, question: Question) {
        let Question { connection, vms } = question;
        self.questions.spawn(async move {
            let found = connection.history().removals(&vms).await;
            let vms = vms.into_iter().map(|(vm, _)| vm).collect();
            Reply::Removals { vcenter, vms, found }
        });
    }

    /// Takes in the next answer; pending while nothing is asked. Cancel safe.
    pub(crate) async fn answered(&mut self) {
        match self.questions.join_next().await {
            Some(Ok(Reply::Existence(key, reference))) => {
                if let Some(inquiry) = self.vms.get_mut(&key) {
                    inquiry.existence.take(reference);
                }
            }
            Some(Ok(Reply::Removals { vcenter, vms, found })) => self.take(&vcenter, vms, found),
            Some(Err(error)) => {
                warn!(%error, "request about removed VMs ended early; their Nodes stay");
            }
            None => pending().await,
        }
    }

    fn take(
        &mut self,
        vcenter: &str,
        vms: Vec<Ref<VirtualMachine>>,
        found: Result<HashMap<Ref<VirtualMachine>, history::Removal>, Error>,
    ) {
        let found = found.unwrap_or_else(|error| {
            warn!(vcenter, %error, "could not read how VMs were removed; retrying");
            HashMap::new()
        });
        for vm in vms {
            let inquiry = self.vms.get_mut(&(vcenter.to_owned(), vm.value().to_owned()));
            let Some(inquiry) = inquiry else { continue };
            let Known::Asking { before } = inquiry.removal else { continue };
            let nothing = Known::NoRecord { times: before + 1, at: Instant::now() };
            let recorded = found.get(&vm).map(|removal| Known::Recorded((*removal).into()));
            inquiry.removal = recorded.unwrap_or(nothing);
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
    /// How the VM was removed, as far as that is known; else it is added to the questions.
    fn ask_removal(
        &mut self,
        node: &Node,
        identity: &Identity,
        connection: &Connection,
        questions: &mut HashMap<String, Question>,
    ) -> Removal {
        let before = match self.removal {
            Known::NotAsked => 0,
            Known::NoRecord { times, at } if at.elapsed() >= retry_after(times) => times,
            Known::Recorded(_) | Known::Asking { .. } | Known::NoRecord { .. } => {
                return self.removal.so_far();
            }
        };
        let unready = last_ready(node);
        let since = self.seen.map_or(unready, |seen| seen.max(unready));
        let window = Timestamp::now().duration_since(since).max(SignedDuration::ZERO);
        let question = questions.entry(key(identity).0);
        let question = question
            .or_insert_with(|| Question { connection: connection.clone(), vms: Vec::new() });
        question.vms.push((Ref::new(&identity.vm), window.saturating_add(SLACK)));
        self.removal = Known::Asking { before };
        self.removal.so_far()
    }
}

impl Existence {
    /// The answer, unless the Node would be deleted by it and it is old.
    fn reference(&self, removal: Removal) -> Reference {
        match self.answer {
            Some((_, at)) if removal == Removal::Destroyed && at.elapsed() > FRESH => {
                Reference::NotAsked
            }
            Some((reference, _)) => reference,
            None => Reference::NotAsked,
        }
    }

    /// Whether vCenter is to be asked: at once, then every time while the Node may be deleted, else ever later.
    fn is_due(&self, every: Duration, removal: Removal) -> bool {
        let Some((reference, at)) = self.answer else { return !self.asking };
        let decisive = reference == Reference::Gone
            && matches!(removal, Removal::Destroyed | Removal::NotAsked);
        let pause = match decisive {
            true => every,
            false => every.saturating_mul(1 << self.kept.min(10)).min(LONGEST_PAUSE),
        };
        // Due with the tick that is nearest, not with the one after it.
        !self.asking && at.elapsed() + every / 2 >= pause
    }

    fn take(&mut self, reference: Reference) {
        let same = self.answer.is_some_and(|(before, _)| before == reference);
        self.kept = if same { self.kept.saturating_add(1) } else { 0 };
        (self.answer, self.asking) = (Some((reference, Instant::now())), false);
    }
}

impl Known {
    fn so_far(&self) -> Removal {
        match self {
            // A record may still appear.
            Self::NotAsked
            | Self::Asking { before: 0..=2 }
            | Self::NoRecord { times: 1 | 2, .. } => Removal::NotAsked,
            Self::Asking { .. } | Self::NoRecord { .. } => Removal::Untold,
            Self::Recorded(removal) => *removal,
        }
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
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.and_then(|all| all.iter().find(|one| one.type_ == "Ready"));
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
