//! What was begun to create a volume or a snapshot, kept in Kubernetes so that it survives this process.
//!
//! The records are the Go driver's: custom resources `CnsVolumeOperationRequest`, one per name of a volume or a snapshot,
//! with the last operations in their status. Either driver goes on with what the other one began. What the Go driver's
//! format has no field for, the [`Plan`] of the attempt, is in an annotation, which it ignores.
//!
//! A record is written with the version that was read, so that of two processes at the same volume one gives up
//! ([`Kind::Busy`]).

use std::{collections::BTreeMap, time::Duration};

use daemon::permissions::{Permission, Scope};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams, Preconditions},
    core::{ApiResource, GroupVersionKind, Object, TypeMeta},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::refusal::{Kind, Refusal};

const GROUP: &str = "cns.vmware.com";
const VERSION: &str = "v1alpha1";
const KIND: &str = "CnsVolumeOperationRequest";
const PLURAL: &str = "cnsvolumeoperationrequests";
/// The plan of the latest attempt, as JSON.
const PLAN: &str = "csi.vsphere.vmware.com/create";
/// When the latest attempt was last known to be under way, or ended, if that is later than its call.
const UNDER_WAY: &str = "csi.vsphere.vmware.com/under-way";
/// A digest of the name that a snapshot was requested by: the names of records have the volume, too.
const SNAPSHOT: &str = "csi.vsphere.vmware.com/snapshot";
/// Operations that a record keeps.
const MOST_OPERATIONS: usize = 10;
/// The longest name that Kubernetes takes.
const LONGEST_NAME: usize = 253;
/// How long a record stays after its operation ended.
const KEPT: SignedDuration = SignedDuration::from_mins(15);
/// How long a record stays whose operation did not end, or whose volume is not what was requested last: vCenter forgets tasks much earlier, and a later attempt
/// searches for the volume anyway.
const KEPT_UNFINISHED: SignedDuration = SignedDuration::from_hours(24);
const PAGE: u32 = 500;

pub(crate) type Record = Object<Spec, Status>;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    #[serde(rename = "volumeID", default, skip_serializing_if = "String::is_empty")]
    volume: String,
    #[serde(rename = "snapshotID", default, skip_serializing_if = "String::is_empty")]
    snapshot: String,
    /// In MiB.
    #[serde(default, skip_serializing_if = "is_zero")]
    capacity: i64,
    #[serde(default, skip_serializing_if = "is_zero")]
    error_count: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_operation_details: Option<Operation>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    latest_operation_details: Vec<Operation>,
    /// What only the Go driver knows.
    #[serde(flatten)]
    others: BTreeMap<String, serde_json::Value>,
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Operation {
    #[serde(default)]
    task_invocation_timestamp: Option<Timestamp>,
    #[serde(default)]
    task_id: String,
    #[serde(rename = "vCenterServer", default, skip_serializing_if = "String::is_empty")]
    vcenter: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    op_id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    task_status: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    error: String,
}

const IN_PROGRESS: &str = "InProgress";
const SUCCESS: &str = "Success";
const ERROR: &str = "Error";
/// In the text of an operation that the Go driver counts as failed although its task may run.
const NOT_FOLLOWED: &str = "failed to add task to list view";

/// What an attempt to create a volume asked for, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// In MiB.
    pub(crate) size: i64,
    /// The name of the storage policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<String>,
    /// The URL that the StorageClass names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
    /// The datastores that it names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) datastores: Vec<String>,
    /// The datastore cluster that it names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cluster: Option<String>,
    /// The snapshot or volume whose content it gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<String>,
    /// The datastore of the attempt, by its id: a repeated call must name the same one.
    pub(crate) datastore: String,
    /// Datastores that did not take the volume before, by their ids: others are tried first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) failed: Vec<String>,
}

/// What an attempt is to make.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose<'a> {
    Volume(&'a Plan),
    /// By the name that was requested.
    Snapshot(&'a str),
}

/// What is known of the latest attempt, and when it was last known to be under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// vCenter may have got the call; there is no answer.
    Called { at: Timestamp },
    /// vCenter has a task. The server is as the configuration of that time had it; records of old versions have none.
    Started { task: String, vcenter: String, at: Timestamp },
    /// It failed.
    Failed,
    /// It made this volume, or a snapshot of it.
    Done { volume: String },
}

/// The records of one namespace.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    records: Api<Record>,
    resource: ApiResource,
}

/// What the journal asks of the API server.
pub(crate) fn permissions(namespace: &str) -> Vec<Permission> {
    let verbs = ["get", "list", "create", "update", "delete"];
    vec![Permission::new(Scope::Namespace(namespace.to_owned()), (GROUP, PLURAL), &verbs)]
}

impl Journal {
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        let kind = GroupVersionKind::gvk(GROUP, VERSION, KIND);
        let resource = ApiResource::from_gvk_with_plural(&kind, PLURAL);
        Self { records: Api::namespaced_with(client, namespace, &resource), resource }
    }

    /// The record of a volume name.
    pub(crate) async fn read(&self, name: &str) -> Result<Option<Record>, Refusal> {
        let found = self.records.get_opt(&record_name(name)).await;
        found.map_err(|error| unavailable(name, "could not be read", error))
    }

    /// Records the first attempt before vCenter is called. Nothing if there is a record of this name.
    pub(crate) async fn begin_first(
        &self,
        name: &str,
        vcenter: &str,
        purpose: Purpose<'_>,
    ) -> Result<Option<Record>, Refusal> {
        let record = begun(self.empty(name), vcenter, purpose);
        match self.records.create(&PostParams::default(), &record).await {
            Ok(created) => Ok(Some(created)),
            Err(kube::Error::Api(answer)) if answer.reason == "AlreadyExists" => Ok(None),
            Err(error) => Err(written(name, error)),
        }
    }

    /// Records another attempt before vCenter is called.
    pub(crate) async fn begin(
        &self,
        known: Record,
        vcenter: &str,
        purpose: Purpose<'_>,
    ) -> Result<Record, Refusal> {
        let name = known.spec.name.clone();
        self.write(&name, &begun(known, vcenter, purpose)).await
    }

    /// The records of snapshots that were requested by this name.
    pub(crate) async fn snapshots_named(&self, name: &str) -> Result<Vec<Record>, Refusal> {
        let same = ListParams::default().labels(&format!("{SNAPSHOT}={}", digest(name)));
        let found = self.records.list(&same).await;
        found
            .map(|found| found.items)
            .map_err(|error| unavailable(name, "could not be read", error))
    }

    /// Records the task of the attempt.
    pub(crate) async fn started(&self, record: Record, task: &str) -> Result<Record, Refusal> {
        self.change(record, |status, operation| {
            task.clone_into(&mut operation.task_id);
            let first = status.first_operation_details.as_mut();
            if let Some(first) = first.filter(|first| is_open(first)) {
                task.clone_into(&mut first.task_id);
            }
        })
        .await
    }

    /// Records that the attempt is under way, or was just now. A call in the future was made by a clock that is wrong.
    pub(crate) async fn under_way(&self, record: Record) -> Result<Record, Refusal> {
        let clamp = |at: Timestamp| at.min(now());
        self.change(signed(record), |_, operation| {
            operation.task_invocation_timestamp = operation.task_invocation_timestamp.map(clamp);
        })
        .await
    }

    /// Records the volume of the attempt.
    pub(crate) async fn done(
        &self,
        record: Record,
        volume: &str,
        size: i64,
    ) -> Result<(), Refusal> {
        let ended = self.change(signed(record), |status, operation| {
            volume.clone_into(&mut status.volume);
            status.capacity = size;
            end(status, operation, SUCCESS, "");
        });
        ended.await.map(|_| ())
    }

    /// Records the snapshot of the attempt.
    pub(crate) async fn taken(
        &self,
        record: Record,
        volume: &str,
        snapshot: &str,
    ) -> Result<(), Refusal> {
        let ended = self.change(signed(record), |status, operation| {
            volume.clone_into(&mut status.volume);
            snapshot.clone_into(&mut status.snapshot);
            end(status, operation, SUCCESS, "");
        });
        ended.await.map(|_| ())
    }

    /// Records what the volume of the attempt differs in from a request for it.
    pub(crate) async fn differs(
        &self,
        record: Record,
        volume: &str,
        size: i64,
        why: &str,
    ) -> Result<(), Refusal> {
        let ended = self.change(signed(record), |status, operation| {
            volume.clone_into(&mut status.volume);
            status.capacity = size;
            end(status, operation, SUCCESS, why);
        });
        ended.await.map(|_| ())
    }

    /// Records that the attempt failed for a reason that does not prove that it made nothing.
    pub(crate) async fn doubted(
        &self,
        mut record: Record,
        plan: Option<&Plan>,
        why: &str,
    ) -> Result<Record, Refusal> {
        if let Some(plan) = plan {
            planned(&mut record, plan);
        }
        self.change(signed(record), |_, operation| why.clone_into(&mut operation.error)).await
    }

    /// Records that the attempt made nothing.
    pub(crate) async fn failed(&self, record: Record, why: &str) -> Result<Record, Refusal> {
        self.change(signed(record), |status, operation| {
            status.error_count += 1;
            end(status, operation, ERROR, why);
        })
        .await
    }

    async fn change(
        &self,
        mut record: Record,
        edit: impl FnOnce(&mut Status, &mut Operation),
    ) -> Result<Record, Refusal> {
        let name = record.spec.name.clone();
        let status = record.status.get_or_insert_default();
        let mut operation = status.latest_operation_details.pop().unwrap_or_default();
        edit(status, &mut operation);
        status.latest_operation_details.push(operation);
        self.write(&name, &record).await
    }

    async fn write(&self, name: &str, record: &Record) -> Result<Record, Refusal> {
        let at = record.metadata.name.clone().unwrap_or_default();
        let replaced = self.records.replace(&at, &PostParams::default(), record).await;
        replaced.map_err(|error| written(name, error))
    }

    fn empty(&self, name: &str) -> Record {
        Object {
            types: Some(TypeMeta {
                api_version: self.resource.api_version.clone(),
                kind: self.resource.kind.clone(),
            }),
            metadata: ObjectMeta { name: Some(record_name(name)), ..ObjectMeta::default() },
            spec: Spec { name: name.to_owned() },
            status: None,
        }
    }

    /// Deletes records of operations that ended long ago.
    pub(crate) async fn clean_up(&self) -> Result<usize, kube::Error> {
        let (now, mut deleted) = (Timestamp::now(), 0);
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let found = self.records.list(&page).await?;
            for record in found.items.iter().filter(|record| is_stale(record, now)) {
                let preconditions = Preconditions {
                    resource_version: record.metadata.resource_version.clone(),
                    uid: record.metadata.uid.clone(),
                };
                let only_this =
                    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
                let name = record.metadata.name.as_deref().unwrap_or_default();
                match self.records.delete(name, &only_this).await {
                    Ok(_) => deleted += 1,
                    // Another replica was first, or the volume is being worked on again.
                    Err(kube::Error::Api(answer)) if matches!(answer.code, 404 | 409) => {}
                    Err(error) => return Err(error),
                }
            }
            match found.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(deleted),
            }
        }
    }
}

/// A record with one more attempt.
fn begun(mut record: Record, vcenter: &str, purpose: Purpose<'_>) -> Record {
    let operation = Operation {
        task_invocation_timestamp: Some(now()),
        vcenter: vcenter.to_owned(),
        task_status: IN_PROGRESS.to_owned(),
        ..Operation::default()
    };
    let annotations = record.metadata.annotations.get_or_insert_default();
    annotations.remove(UNDER_WAY);
    match purpose {
        Purpose::Volume(plan) => planned(&mut record, plan),
        Purpose::Snapshot(name) => {
            let labels = record.metadata.labels.get_or_insert_default();
            labels.insert(SNAPSHOT.to_owned(), digest(name));
        }
    }
    let status = record.status.get_or_insert_default();
    status.volume.clear();
    status.snapshot.clear();
    status.first_operation_details.get_or_insert_with(|| operation.clone());
    status.latest_operation_details.push(operation);
    let surplus = status.latest_operation_details.len().saturating_sub(MOST_OPERATIONS);
    status.latest_operation_details.drain(..surplus);
    record
}

fn planned(record: &mut Record, plan: &Plan) {
    let annotations = record.metadata.annotations.get_or_insert_default();
    annotations.insert(PLAN.to_owned(), serde_json::to_string(plan).unwrap_or_default());
}

/// A record whose attempt is under way, or ends, now.
fn signed(mut record: Record) -> Record {
    let annotations = record.metadata.annotations.get_or_insert_default();
    annotations.insert(UNDER_WAY.to_owned(), now().to_string());
    record
}

/// The last sign of the latest attempt, which was called then.
fn last_sign(record: &Record, called: Timestamp) -> Timestamp {
    let annotations = record.metadata.annotations.as_ref();
    let under_way = annotations.and_then(|all| all.get(UNDER_WAY)?.parse().ok());
    called.max(under_way.unwrap_or(called))
}

/// What a record says of the latest attempt.
pub(crate) fn attempt(record: &Record) -> Option<Attempt> {
    let status = record.status.as_ref()?;
    let last = status.latest_operation_details.last()?;
    let may_run = is_open(last) || last.error.contains(NOT_FOLLOWED);
    let called = last.task_invocation_timestamp.unwrap_or(Timestamp::UNIX_EPOCH);
    let at = last_sign(record, called);
    Some(match last.task_status.as_str() {
        SUCCESS if !status.volume.is_empty() => Attempt::Done { volume: status.volume.clone() },
        _ if may_run && !last.task_id.is_empty() => {
            Attempt::Started { task: last.task_id.clone(), vcenter: last.vcenter.clone(), at }
        }
        _ if may_run => Attempt::Called { at },
        _ => Attempt::Failed,
    })
}

/// Why the latest attempt failed, or is in doubt.
pub(crate) fn reason(record: &Record) -> Option<&str> {
    let last = record.status.as_ref()?.latest_operation_details.last()?;
    Some(last.error.as_str()).filter(|reason| !reason.is_empty())
}

/// The snapshot that an attempt made.
pub(crate) fn snapshot(record: &Record) -> Option<&str> {
    let status = record.status.as_ref()?;
    Some(status.snapshot.as_str()).filter(|id| !id.is_empty())
}

/// The server of the latest attempt; empty in records of old versions.
pub(crate) fn vcenter(record: &Record) -> &str {
    let operations = record.status.as_ref().map(|status| &*status.latest_operation_details);
    operations.and_then(|all| all.last()).map_or("", |last| &last.vcenter)
}

/// The plan of the latest attempt; the Go driver records none.
pub(crate) fn plan(record: &Record) -> Option<Plan> {
    serde_json::from_str(record.metadata.annotations.as_ref()?.get(PLAN)?).ok()
}

fn is_open(operation: &Operation) -> bool {
    operation.task_status == IN_PROGRESS
}

fn end(status: &mut Status, operation: &mut Operation, how: &str, why: &str) {
    let first = status.first_operation_details.as_mut();
    let first = first.filter(|first| is_open(first) && first.task_id == operation.task_id);
    for operation in first.into_iter().chain([operation]) {
        how.clone_into(&mut operation.task_status);
        why.clone_into(&mut operation.error);
    }
}

fn is_stale(record: &Record, now: Timestamp) -> bool {
    let last = record.status.as_ref().and_then(|status| status.latest_operation_details.last());
    let began = last.and_then(|last| last.task_invocation_timestamp);
    let began = began.or(record.metadata.creation_timestamp.as_ref().map(|time| time.0));
    // What differs from a request for it is refused only while the record is there.
    let is_refused = |last: &Operation| last.task_status == SUCCESS && !last.error.is_empty();
    let is_long = last.is_some_and(|last| is_open(last) || is_refused(last));
    let kept = if is_long { KEPT_UNFINISHED } else { KEPT };
    began.is_some_and(|began| now.duration_since(last_sign(record, began)) > kept)
}

/// Kubernetes' times have whole seconds.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// A volume's name where Kubernetes takes it for an object, else a digest of it.
fn record_name(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let fits = name.len() <= LONGEST_NAME
        && name.bytes().all(|byte| is_plain(byte) || byte == b'-')
        && name.bytes().next().is_some_and(is_plain)
        && name.bytes().last().is_some_and(is_plain);
    if fits { name.to_owned() } else { format!("name-{}", digest(name)) }
}

/// The beginning of a digest, in hexadecimal digits.
pub(crate) fn digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn unavailable(name: &str, what: &str, error: kube::Error) -> Refusal {
    let what = format!("volume {name}: its record in Kubernetes {what}");
    if let kube::Error::Api(answer) = &error
        && answer.code == 404
    {
        let remedy = "install the CustomResourceDefinition cnsvolumeoperationrequests.cns.vmware.com and \
                      the namespace of the driver: kubectl apply -f deploy/csi-driver.yaml";
        // The client's own text shows the answer three times.
        return Refusal::new(Kind::Precondition, what).because(&*answer.message).remedy(remedy);
    }
    Refusal::new(Kind::Unavailable, what).because(error)
}

/// The refusal to work on a volume that another process works on.
pub(crate) fn busy(name: &str) -> Refusal {
    Refusal::new(Kind::Busy, format!("another process has begun an operation on volume {name}"))
}

fn written(name: &str, error: kube::Error) -> Refusal {
    match error {
        kube::Error::Api(answer) if answer.code == 409 => busy(name),
        error => unavailable(name, "could not be written", error),
    }
}

/// Cleans up from time to time until `shutdown`.
pub(crate) async fn keep_clean(
    journal: Journal,
    every: Duration,
    shutdown: daemon::supervise::Shutdown,
) -> Result<(), std::convert::Infallible> {
    while shutdown.unless(tokio::time::sleep(every)).await.is_some() {
        let Some(cleaned) = shutdown.unless(journal.clean_up()).await else { break };
        match cleaned {
            Ok(0) => {}
            Ok(records) => tracing::info!(records, "old records of volume operations deleted"),
            Err(error) => tracing::warn!(%error, "old records of volume operations not deleted"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
