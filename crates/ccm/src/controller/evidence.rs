//! Asks vCenters for the VMs that Nodes recorded, when none was found.
//!
//! Whether a VM exists is asked each time anew, because that can change. How it was removed cannot: it is asked
//! in the background, for all VMs of a vCenter together, and not again once it was told. Nobody waits for it;
//! until it is told there is no proof. For Nodes that are ready nobody is asked at all: they stay in any case.

use std::{
    collections::{HashMap, HashSet},
    future::pending,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};
use tracing::warn;
use vsphere::{
    connection::Connection,
    error::Error,
    history,
    reference::Ref,
    types::{self, VirtualMachine},
};

use super::AT_ONCE;
use crate::{
    discovery::Finding,
    identity::Identity,
    lifecycle::{Evidence, Reference, Removal, is_ready},
    site::Snapshot,
};

const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// A VM may be gone a little earlier than the task that destroys it has ended.
const AGAIN_SOON: Duration = Duration::from_secs(2);
/// How soon vCenter is asked again after that. Records do not come much later, so each time is longer.
const AGAIN_AFTER: Duration = Duration::from_secs(30);
const AGAIN_AT_THE_LATEST: Duration = Duration::from_secs(600);
/// How far the clocks of others may be from ours, and how long a kubelet may be silent before its Node says so.
const SLACK: SignedDuration = SignedDuration::from_mins(10);

/// What was asked and told about VMs that are gone.
#[derive(Default)]
pub(super) struct Inquiry {
    known: HashMap<Key, Known>,
    asking: JoinSet<Reply>,
}

/// A VM by the id of its vCenter and the value of its reference.
type Key = (String, String);

#[derive(Default)]
struct Known {
    /// When it was last there although its Node was not ready.
    seen: Option<Timestamp>,
    removal: Told,
}

#[derive(Default)]
enum Told {
    #[default]
    Unasked,
    Asking {
        before: u32,
    },
    /// Nothing, so many times, the last time then.
    Nothing {
        times: u32,
        at: Instant,
    },
    This(Removal),
}

/// VMs of one vCenter, and since when they may have been removed.
struct Question {
    connection: Connection,
    vms: Vec<Ref<VirtualMachine>>,
    since: Timestamp,
}

/// What a vCenter said to a question.
struct Reply {
    vcenter: String,
    vms: Vec<Ref<VirtualMachine>>,
    removals: Result<HashMap<Ref<VirtualMachine>, history::Removal>, Error>,
}

impl Inquiry {
    /// What is known of the VM of each Node.
    pub(super) async fn gather(
        &mut self,
        snapshots: &[Arc<Snapshot>],
        nodes: &[&Node],
        findings: &[Finding<'_>],
    ) -> Vec<Evidence> {
        self.forget(nodes);
        let asked = nodes.iter().zip(findings);
        let asked: Vec<_> = asked.map(|(node, finding)| ask(snapshots, node, finding)).collect();
        let mut evidence: Vec<Evidence> = stream::iter(asked).buffered(AT_ONCE).collect().await;
        let mut questions = HashMap::new();
        for ((node, finding), evidence) in nodes.iter().zip(findings).zip(&mut evidence) {
            match finding {
                _ if is_ready(node) => {}
                Finding::Found(machine, _) => {
                    if let Some(identity) = Identity::of(machine) {
                        let there = Known { seen: Some(Timestamp::now()), ..Known::default() };
                        self.known.insert(key(&identity), there);
                    }
                }
                Finding::Absent(absence) if evidence.reference == Reference::Gone => {
                    let Some(identity) = &absence.identity else { continue };
                    evidence.removal = self.removal(snapshots, node, identity, &mut questions);
                }
                _ => {}
            }
        }
        self.ask(questions);
        evidence
    }

    /// How a VM was removed, as far as that was told; else perhaps a question.
    fn removal(
        &mut self,
        snapshots: &[Arc<Snapshot>],
        node: &Node,
        identity: &Identity,
        questions: &mut HashMap<String, Question>,
    ) -> Removal {
        let known = self.known.entry(key(identity)).or_default();
        let before = match known.removal {
            Told::This(removal) => return removal,
            Told::Nothing { times, at } if at.elapsed() >= pause(times) => times,
            Told::Unasked => 0,
            Told::Asking { .. } | Told::Nothing { .. } => return known.so_far(),
        };
        let snapshot = vcenter_of(snapshots, identity);
        let Some(connection) = snapshot.and_then(|snapshot| snapshot.connection.as_ref()) else {
            return known.so_far();
        };
        let heard = last_heard(node);
        let since = known.seen.map_or(heard, |seen| seen.max(heard));
        let question = questions.entry(key(identity).0).or_insert_with(|| Question {
            connection: connection.clone(),
            vms: Vec::new(),
            since,
        });
        question.since = question.since.min(since);
        question.vms.push(Ref::new(&identity.vm));
        known.removal = Told::Asking { before };
        known.so_far()
    }

    /// Sends each vCenter its question.
    fn ask(&mut self, questions: HashMap<String, Question>) {
        for (vcenter, Question { connection, vms, since }) in questions {
            let past = Timestamp::now().duration_since(since).max(SignedDuration::ZERO);
            let within = past.saturating_add(SLACK);
            self.asking.spawn(async move {
                let removals = connection.history().removals(&vms, within).await;
                Reply { vcenter, vms, removals }
            });
        }
    }

    /// Takes the next answer; returns when there was one.
    pub(super) async fn answered(&mut self) {
        match self.asking.join_next().await {
            Some(Ok(reply)) => self.take(reply),
            // Without an answer there is no proof.
            Some(Err(error)) => warn!(%error, "a question about VMs ended early; their Nodes stay"),
            None => pending().await,
        }
    }

    fn take(&mut self, reply: Reply) {
        let Reply { vcenter, vms, removals } = reply;
        let removals = removals.unwrap_or_else(|error| {
            warn!(%error, "vCenter does not tell how VMs were removed");
            HashMap::new()
        });
        for vm in vms {
            let known = self.known.get_mut(&(vcenter.clone(), vm.value().to_owned()));
            let Some(known) = known else { continue };
            let Told::Asking { before } = known.removal else { continue };
            let nothing = Told::Nothing { times: before + 1, at: Instant::now() };
            known.removal = removals.get(&vm).map_or(nothing, |told| Told::This((*told).into()));
        }
    }

    /// Forgets VMs that no Node recorded.
    fn forget(&mut self, nodes: &[&Node]) {
        if self.known.is_empty() {
            return;
        }
        let recorded = nodes.iter().filter_map(|node| Identity::recorded(node));
        let recorded: HashSet<Key> = recorded.map(|identity| key(&identity)).collect();
        self.known.retain(|key, _| recorded.contains(key));
    }
}

impl Known {
    fn so_far(&self) -> Removal {
        match self.removal {
            // It is too early to say that nothing is told.
            Told::Unasked | Told::Asking { before: 0..=2 } | Told::Nothing { times: 1 | 2, .. } => {
                Removal::NotAsked
            }
            Told::Asking { .. } | Told::Nothing { .. } => Removal::Untold,
            Told::This(removal) => removal,
        }
    }
}

fn key(identity: &Identity) -> Key {
    (identity.vcenter.to_ascii_lowercase(), identity.vm.clone())
}

fn pause(times: u32) -> Duration {
    if times <= 1 {
        return AGAIN_SOON;
    }
    let doubled = (times - 2).min(16);
    AGAIN_AFTER.saturating_mul(1 << doubled).min(AGAIN_AT_THE_LATEST)
}

/// When the Node stopped to be ready, about a minute after its kubelet last said something. Its VM was there
/// then.
fn last_heard(node: &Node) -> Timestamp {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.and_then(|all| all.iter().find(|one| one.type_ == "Ready"));
    let heard = ready.and_then(|ready| ready.last_transition_time.as_ref());
    let heard = heard.or(node.metadata.creation_timestamp.as_ref());
    heard.map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

fn vcenter_of<'a>(snapshots: &'a [Arc<Snapshot>], identity: &Identity) -> Option<&'a Snapshot> {
    let its = |snapshot: &&Arc<Snapshot>| {
        let instance = snapshot.instance.as_deref();
        instance.is_some_and(|instance| instance.eq_ignore_ascii_case(&identity.vcenter))
    };
    snapshots.iter().find(its).map(Arc::as_ref)
}

/// What the vCenter of the recorded VM says of it now. Without an answer there is no evidence.
async fn ask(snapshots: &[Arc<Snapshot>], node: &Node, finding: &Finding<'_>) -> Evidence {
    if is_ready(node) {
        return Evidence::default();
    }
    let Finding::Absent(absence) = finding else { return Evidence::default() };
    let Some(identity) = &absence.identity else { return Evidence::default() };
    let Some(snapshot) = vcenter_of(snapshots, identity) else { return Evidence::default() };
    let Some(connection) = &snapshot.connection else { return Evidence::default() };
    let folder = identity.folder.as_deref().map(Ref::<types::Folder>::new);
    let mirror = snapshot.mirror.as_deref();
    let folder_seen = folder.zip(mirror).is_some_and(|(at, mirror)| mirror.get(&at).is_some());
    let asked = timeout(ANSWER_WITHIN, exists(connection, identity)).await;
    Evidence { reference: asked.unwrap_or_default(), removal: Removal::NotAsked, folder_seen }
}

/// Reading leaves out what is hidden as well as what is gone; a question for privileges tells them apart.
async fn exists(connection: &Connection, identity: &Identity) -> Reference {
    let vm = Ref::<VirtualMachine>::new(&identity.vm);
    let answer = connection.authorization().lacking(&[vm], &["System.Read"]).await;
    let is =
        |kind| answer.as_ref().is_err_and(|error| error.fault().is_some_and(|it| it.is_a(kind)));
    match answer {
        Ok(_) => Reference::Exists,
        // Nobody is refused an object that is not there.
        Err(_) if is("NoPermission") => Reference::Exists,
        Err(_) if is("ManagedObjectNotFound") => Reference::Gone,
        Err(_) => Reference::NotAsked,
    }
}
