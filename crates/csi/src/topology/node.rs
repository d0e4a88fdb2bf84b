//! The node's side: asks once when it starts, and waits for the answer when the kubelet wants to know.
//!
//! Zones must not keep a node out of a cluster that has none. So where this process registers with the kubelet by itself,
//! it does so without zones if nobody answers, and again as soon as an answer comes. An external registrar cannot be
//! told to do that; there the call fails, as with the Go driver, and is repeated. Without the CustomResourceDefinition,
//! or the right to use it, there are no zones.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use daemon::{client::backoff, supervise::Shutdown};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::{api::core::v1, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout, timeout_at},
};
use tracing::{info, warn};

use super::{
    Labels,
    record::{self, Answer, Record, question, records},
};
use crate::refusal::{Kind, Refusal};

/// The API has this long for a request.
const BOUND: Duration = Duration::from_secs(5);
/// How long the kubelet waits here at most: it gives up after two minutes.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The same where a later answer is not lost.
const SHORT_WAIT: Duration = Duration::from_secs(10);
/// How often the answer is read again: while there is none, and later.
const LOOK_AGAIN: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(60)];

/// The topology of this node.
#[derive(Clone)]
pub struct NodeTopology(Arc<Inner>);

struct Inner {
    /// The API, and the name of this Node.
    api: Option<(Client, String)>,
    /// How to have the kubelet ask again, where this process registers by itself.
    again: Option<Arc<Notify>>,
    /// Whether this process has asked.
    asked: tokio::sync::Mutex<bool>,
    /// What the kubelet was answered last; nothing before that.
    reported: Mutex<Option<Reported>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Reported {
    labels: Labels,
    /// Whether the controller said so.
    is_answer: bool,
}

/// Why there is no answer.
enum NoAnswer {
    /// There are no zones in this cluster.
    Unused(String),
    /// It may come later; the labels of the last one.
    Missing(String, Labels),
}

impl From<kube::Error> for NoAnswer {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.code == 403 => Self::Unused(status.message.clone()),
            // An object that is missing has the reason NotFound.
            kube::Error::Api(status) if status.code == 404 && status.reason != "NotFound" => {
                Self::Unused("the API server does not know CSINodeTopologies".to_owned())
            }
            _ => Self::Missing(error.to_string(), Labels::new()),
        }
    }
}

impl NodeTopology {
    /// The topology of the Node with this name. `again` makes the kubelet ask again.
    #[must_use]
    pub fn new(api: Option<(Client, String)>, again: Option<Arc<Notify>>) -> Self {
        let (asked, reported) = Default::default();
        Self(Arc::new(Inner { api, again, asked, reported }))
    }

    /// The labels of the node whose VM has this BIOS UUID; none where there are no zones.
    ///
    /// # Errors
    /// When zones are configured and that of this node is not known.
    pub async fn labels(&self, uuid: &str) -> Result<Labels, Refusal> {
        let Some((client, node)) = &self.0.api else { return Ok(Labels::new()) };
        let answer = self.0.ask(client, node, uuid).await;
        let is_answer = answer.is_ok();
        let decided = match answer {
            Ok(Answer::Labels(labels)) => Ok(labels),
            Ok(Answer::Problem(why)) => {
                let what = format!("the zone of node {node} is not known: {why}");
                Err(Refusal::new(Kind::Precondition, what))
            }
            // What was reported before is not taken back for a request that failed.
            Err(NoAnswer::Unused(why)) => {
                let labels = self.0.reported_labels();
                info!(reason = why, ?labels, "CSINodeTopologies cannot be used");
                Ok(labels)
            }
            Err(NoAnswer::Missing(why, recorded))
                if self.0.again.is_some() || !recorded.is_empty() =>
            {
                let known = self.0.reported_labels();
                let labels = if known.is_empty() { recorded } else { known };
                warn!(
                    reason = why,
                    ?labels,
                    "zone of this node not answered; reporting what is known"
                );
                Ok(labels)
            }
            Err(NoAnswer::Missing(why, _)) => {
                let what = format!("the zone of node {node} is not known: {why}");
                let remedy = "look at the log of the driver's controller, and at the CSINodeTopology of the node";
                Err(Refusal::new(Kind::Unavailable, what).remedy(remedy))
            }
        };
        if let Ok(labels) = &decided {
            self.0.report(Reported { labels: labels.clone(), is_answer });
        }
        decided
    }

    /// Has the kubelet ask again when the answer is another one than it was given, until `shutdown`.
    pub(crate) async fn follow(self, shutdown: Shutdown) -> Result<(), std::convert::Infallible> {
        while shutdown.unless(sleep(self.0.pause())).await.is_some() {
            if shutdown.unless(self.0.look()).await.is_none() {
                break;
            }
        }
        Ok(())
    }
}

impl Inner {
    fn reported(&self) -> Option<Reported> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn reported_labels(&self) -> Labels {
        self.reported().map(|reported| reported.labels).unwrap_or_default()
    }

    /// Keeps what the kubelet is answered. It takes labels only while it registers a driver, and asks also in between, so
    /// a change has it register again.
    fn report(&self, now: Reported) {
        let before = self.reported();
        let changed = before.is_some_and(|before| before.labels != now.labels);
        if let (true, Some(again)) = (changed, &self.again) {
            info!(labels = ?now.labels, "zone of this node changed; registering again");
            again.notify_one();
        }
        *self.reported.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }

    fn pause(&self) -> Duration {
        let [soon, later] = LOOK_AGAIN;
        if self.reported().is_some_and(|reported| reported.is_answer) { later } else { soon }
    }

    /// Reads the answer, if the kubelet asked, and has it ask again if that is another one.
    async fn look(&self) {
        let (Some((client, node)), Some(again)) = (&self.api, &self.again) else { return };
        if !*self.asked.lock().await {
            return;
        }
        let Ok(Ok(Some(found))) = timeout(BOUND, records(client).get_opt(node)).await else {
            return;
        };
        let Some(Answer::Labels(labels)) = record::answer(&found) else { return };
        if self.reported().is_none() {
            // It was refused before, and is tried again only after a pause.
            again.notify_one();
            return;
        }
        self.report(Reported { labels, is_answer: true });
    }

    /// The controller's answer.
    async fn ask(&self, client: &Client, node: &str, uuid: &str) -> Result<Answer, NoAnswer> {
        let mut asked = self.asked.lock().await;
        let records = records(client);
        let request = request(client, &records, (node, uuid), *asked);
        let silent =
            || NoAnswer::Missing("the API server did not answer".to_owned(), Labels::new());
        let record = timeout(BOUND, request).await.map_err(|_| silent()).flatten();
        let waits = match &self.again {
            // The answer is followed.
            Some(_) if *asked => Duration::ZERO,
            Some(_) => SHORT_WAIT,
            None => LONGEST_WAIT,
        };
        *asked = true;
        let mut record = record?;
        let answered = timeout_at(Instant::now() + waits, until_answered(&records, &mut record));
        answered.await.unwrap_or_else(|_| {
            let why = "the driver's controller has not answered yet".to_owned();
            Err(NoAnswer::Missing(why, record::labels(&record)))
        })
    }
}

/// Writes the question, unless it was asked.
async fn request(
    client: &Client,
    records: &Api<Record>,
    (name, uuid): (&str, &str),
    asked: bool,
) -> Result<Record, NoAnswer> {
    let found = records.get_opt(name).await?;
    if let Some(found) = found.as_ref().filter(|found| asked && found.spec.uuid == uuid) {
        return Ok(found.clone());
    }
    let nodes: Api<v1::Node> = Api::all(client.clone());
    let node = nodes.get(name).await?;
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: name.to_owned(),
        uid: node.uid().unwrap_or_default(),
        ..OwnerReference::default()
    };
    let Some(found) = found else {
        return Ok(records.create(&PostParams::default(), &question(name, uuid, owner)).await?);
    };
    let patch = Patch::Merge(asking_again(&found, (name, uuid), &owner));
    Ok(records.patch(name, &PatchParams::default(), &patch).await?)
}

/// The change that asks again. Labels are those of a Node and its VM: those of predecessors are forgotten.
fn asking_again(found: &Record, (name, uuid): (&str, &str), owner: &OwnerReference) -> Value {
    let mut patch = json!({
        "spec": {"nodeID": name, "nodeuuid": uuid},
        "status": {"status": "", "errorMessage": ""},
    });
    let owners = found.metadata.owner_references.as_deref().unwrap_or_default();
    let is_owned = owners.iter().any(|one| one.uid == owner.uid);
    if !is_owned {
        patch["metadata"] = json!({"ownerReferences": [owner]});
    }
    let is_other_vm = !found.spec.uuid.is_empty() && found.spec.uuid != uuid;
    if is_other_vm || (!is_owned && !owners.is_empty()) {
        patch["status"]["topologyLabels"] = Value::Null;
    }
    patch
}

/// Waits for the answer, and keeps the object as it is last seen.
async fn until_answered(records: &Api<Record>, record: &mut Record) -> Result<Answer, NoAnswer> {
    let mut pauses = backoff();
    loop {
        if let Some(answer) = record::answer(record) {
            return Ok(answer);
        }
        let name = record.name_any();
        if let Err(error) = watch(records, &name, record).await {
            warn!(%error, "watch of the CSINodeTopology failed; reading it again");
            sleep(pauses.next().unwrap_or(BOUND)).await;
            *record = records.get(&name).await?;
        }
    }
}

/// Follows the object until it changes or the watch ends.
async fn watch(records: &Api<Record>, name: &str, record: &mut Record) -> Result<(), kube::Error> {
    let params = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(40);
    let version = record.resource_version().unwrap_or_default();
    let mut events = records.watch(&params, &version).await?.boxed();
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(changed) | WatchEvent::Modified(changed) => {
                *record = changed;
                return Ok(());
            }
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(uid: &str) -> OwnerReference {
        OwnerReference { uid: uid.to_owned(), ..OwnerReference::default() }
    }

    #[test]
    fn a_node_that_asks_again_keeps_the_labels_of_its_own_vm_and_no_other() {
        let record = question("node-1", "vm-1", owner("1"));
        let again = |uuid: &str, uid: &str| asking_again(&record, ("node-1", uuid), &owner(uid));
        let same = again("vm-1", "1");
        assert_eq!(same["status"], json!({"status": "", "errorMessage": ""}));
        assert_eq!(same.get("metadata"), None);
        let other_vm = again("vm-2", "1");
        assert_eq!(other_vm["status"]["topologyLabels"], Value::Null);
        assert!(other_vm["status"].as_object().unwrap().contains_key("topologyLabels"));
        assert_eq!(other_vm["spec"]["nodeuuid"], "vm-2");
        let other_node = again("vm-1", "2");
        assert!(other_node["status"].as_object().unwrap().contains_key("topologyLabels"));
        assert_eq!(other_node["metadata"]["ownerReferences"][0]["uid"], "2");
        // One that was written without an owner is taken over as it is.
        let mut orphan = record.clone();
        orphan.metadata.owner_references = None;
        let adopted = asking_again(&orphan, ("node-1", "vm-1"), &owner("1"));
        assert_eq!(adopted["status"].as_object().unwrap().len(), 2);
    }
}
