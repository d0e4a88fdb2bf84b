//! Which vCenter has a volume, where there are several: kept in Kubernetes, because the id of a volume does not show it.
//!
//! The records are the Go driver's: custom resources `CNSVolumeInfo`, one per volume, named by its id. Either driver
//! uses what the other one wrote. An annotation, which the Go driver ignores, has the name that the volume was
//! requested by, so that a repeated request goes to the vCenter that served the first one.
//!
//! A record is a memory and not the truth: one that is lost is written again from what the vCenters have, and with one
//! vCenter none is written.

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use daemon::{
    client,
    permissions::{Permission, Scope},
    supervise::Shutdown,
};
use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams, Preconditions},
    core::{ApiResource, GroupVersionKind, Object, TypeMeta},
    runtime::{WatchStreamExt, watcher},
};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::refusal::{Kind, Refusal};

const GROUP: &str = "cns.vmware.com";
const VERSION: &str = "v1alpha1";
const KIND: &str = "CNSVolumeInfo";
const PLURAL: &str = "cnsvolumeinfoes";
/// The name that the volume was requested by.
const NAME: &str = "csi.vsphere.vmware.com/name";
/// How soon the API server is asked again for a kind that it does not know.
const ABSENT_FOR: Duration = Duration::from_secs(60);

type Record = Object<Spec, Empty>;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Spec {
    #[serde(rename = "volumeID")]
    volume: String,
    #[serde(rename = "vCenterServer")]
    vcenter: String,
}

/// The Go driver's records have no status.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Empty {}

/// The records as they are now, and how they are changed. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct VolumeInfos {
    records: Api<Record>,
    resource: ApiResource,
    known: Arc<Mutex<Known>>,
}

/// What the records say.
#[derive(Debug, Default)]
struct Known {
    /// Whether they were read once.
    is_read: bool,
    /// Whether the API server was asked for them and answered, if only that it has none.
    is_answered: bool,
    /// The server of each volume, as the configuration of that time had it.
    vcenters: HashMap<String, Arc<str>>,
    /// Volumes by the names that they were requested by.
    names: HashMap<String, String>,
}

impl Known {
    fn insert(&mut self, volume: &str, name: Option<&str>, vcenter: &str) {
        // Few servers and many volumes: they share the text.
        let shared = self.vcenters.values().find(|known| &***known == vcenter).cloned();
        self.vcenters.insert(volume.to_owned(), shared.unwrap_or_else(|| vcenter.into()));
        if let Some(name) = name {
            self.names.insert(name.to_owned(), volume.to_owned());
        }
    }

    fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.vcenters.retain(|volume, _| is_kept(volume));
        self.names.retain(|_, volume| is_kept(volume));
    }
}

/// What the records ask of the API server.
pub(crate) fn permissions(namespace: &str) -> Vec<Permission> {
    let verbs = ["get", "list", "watch", "create", "delete"];
    vec![Permission::new(Scope::Namespace(namespace.to_owned()), (GROUP, PLURAL), &verbs)]
}

impl VolumeInfos {
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        let kind = GroupVersionKind::gvk(GROUP, VERSION, KIND);
        let resource = ApiResource::from_gvk_with_plural(&kind, PLURAL);
        let records = Api::namespaced_with(client, namespace, &resource);
        Self { records, resource, known: Arc::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Nothing can panic while it is held.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server that has a volume, by its record.
    pub(crate) fn vcenter_of(&self, volume: &str) -> Option<Arc<str>> {
        self.known().vcenters.get(volume).cloned()
    }

    /// The server that has the volume which was requested by this name.
    pub(crate) fn vcenter_named(&self, name: &str) -> Option<Arc<str>> {
        let known = self.known();
        known.vcenters.get(known.names.get(name)?).cloned()
    }

    /// Refuses while it is not known what the records say, or none can be written.
    pub(crate) fn check_read(&self) -> Result<(), Refusal> {
        if self.known().is_read {
            return Ok(());
        }
        let what =
            "which vCenter has which volume is not known: the CNSVolumeInfos were not read yet";
        let remedy = "if it lasts, install their CustomResourceDefinition: kubectl apply -f deploy/csi-driver.yaml";
        Err(Refusal::new(Kind::Unavailable, what).remedy(remedy))
    }

    /// Refuses until the API server was asked for the records. With one vCenter none need be there, but a volume of
    /// another one, which was configured before, must not be taken for its own.
    pub(crate) fn check_answered(&self) -> Result<(), Refusal> {
        if self.known().is_answered {
            return Ok(());
        }
        let what =
            "which vCenter has which volume is not known: the API server has not answered yet";
        Err(Refusal::new(Kind::Unavailable, what))
    }

    /// Records which vCenter has a volume; without a request if that is known.
    pub(crate) async fn record(
        &self,
        volume: &str,
        name: Option<&str>,
        vcenter: &str,
    ) -> Result<(), Refusal> {
        if self.vcenter_of(volume).is_some_and(|known| &*known == vcenter) {
            return Ok(());
        }
        let record = self.new_record(volume, name, vcenter);
        let written = async {
            match self.records.create(&PostParams::default(), &record).await {
                Err(error) if code(&error) == Some(409) => self.replace(&record).await,
                other => other.map(|_| ()),
            }
        };
        // The volume exists, so callers must not take the refusal for final.
        written.await.map_err(|error| unwritten(volume, error))?;
        self.known().insert(volume, name, vcenter);
        Ok(())
    }

    /// Writes a record in place of one that names another server. The Go driver's role has no right to update it.
    async fn replace(&self, record: &Record) -> Result<(), kube::Error> {
        let name = record.metadata.name.as_deref().unwrap_or_default();
        let mut record = record.clone();
        if let Some(found) = self.records.get_opt(name).await? {
            if found.spec.vcenter == record.spec.vcenter {
                return Ok(());
            }
            // The name of the request, unless this one knows it.
            let annotations = &mut record.metadata.annotations;
            *annotations = annotations.take().or(found.metadata.annotations);
            let preconditions = Preconditions { uid: found.metadata.uid, resource_version: None };
            let only_this =
                DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            self.records.delete(name, &only_this).await?;
        }
        self.records.create(&PostParams::default(), &record).await.map(|_| ())
    }

    fn new_record(&self, volume: &str, name: Option<&str>, vcenter: &str) -> Record {
        let annotations = name.map(|name| [(NAME.to_owned(), name.to_owned())].into());
        Object {
            types: Some(TypeMeta {
                api_version: self.resource.api_version.clone(),
                kind: self.resource.kind.clone(),
            }),
            metadata: ObjectMeta {
                name: Some(volume.to_owned()),
                annotations,
                ..ObjectMeta::default()
            },
            spec: Spec { volume: volume.to_owned(), vcenter: vcenter.to_owned() },
            status: None,
        }
    }

    /// Deletes the record of a volume that does not exist any more.
    pub(crate) async fn forget(&self, volume: &str) -> Result<(), Refusal> {
        if self.vcenter_of(volume).is_none() {
            return Ok(());
        }
        match self.records.delete(volume, &DeleteParams::default()).await {
            Err(error) if code(&error) != Some(404) => return Err(unwritten(volume, error)),
            _ => {}
        }
        self.known().retain(|known| known != volume);
        Ok(())
    }

    /// Watches the records until `shutdown`.
    pub(crate) async fn follow(self, shutdown: Shutdown) -> Result<(), Infallible> {
        let records = watcher(self.records.clone(), client::watch());
        let mut events = pin!(records.backoff(client::backoff()));
        // Volumes of a list that is being read; those that are not in it are gone.
        let mut listed: Option<HashSet<String>> = None;
        while let Some(Some(event)) = shutdown.unless(events.next()).await {
            match event {
                Ok(watcher::Event::Init) => listed = Some(HashSet::new()),
                Ok(watcher::Event::InitApply(record)) => {
                    listed.get_or_insert_default().insert(record.spec.volume.clone());
                    self.take(&record);
                }
                Ok(watcher::Event::InitDone) => {
                    let listed = listed.take().unwrap_or_default();
                    let mut known = self.known();
                    known.retain(|volume| listed.contains(volume));
                    known.is_read = true;
                    known.is_answered = true;
                }
                Ok(watcher::Event::Apply(record)) => self.take(&record),
                Ok(watcher::Event::Delete(record)) => {
                    self.known().retain(|volume| volume != record.spec.volume);
                }
                Err(error) if refused_with(&error) == Some(404) => {
                    tracing::debug!("the API server does not know CNSVolumeInfos");
                    self.known().is_answered = true;
                    shutdown.unless(sleep(ABSENT_FOR)).await;
                }
                Err(error) => {
                    // Clusters with one vCenter work without the right to read them.
                    if refused_with(&error) == Some(403) {
                        self.known().is_answered = true;
                    }
                    tracing::warn!(%error, "watch of CNSVolumeInfos failed; starting again");
                }
            }
        }
        Ok(())
    }

    fn take(&self, record: &Record) {
        let name = record.metadata.annotations.as_ref().and_then(|all| all.get(NAME));
        self.known().insert(&record.spec.volume, name.map(String::as_str), &record.spec.vcenter);
    }
}

fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(answer) => Some(answer.code),
        _ => None,
    }
}

/// The code of an answer to the list.
fn refused_with(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => {
            code(error)
        }
        _ => None,
    }
}

fn unwritten(volume: &str, error: kube::Error) -> Refusal {
    let what = format!("volume {volume}: the record of its vCenter could not be written");
    Refusal::new(Kind::Unavailable, what).because(error)
}

#[cfg(test)]
mod tests {
    use super::Known;

    #[test]
    fn a_volume_is_found_by_its_id_and_by_the_name_of_its_request_until_its_record_is_gone() {
        let mut known = Known::default();
        known.insert("a", Some("pvc-a"), "one.example");
        known.insert("b", None, "two.example");
        assert_eq!(known.vcenters.get("a").map(|server| &**server), Some("one.example"));
        assert_eq!(known.names.get("pvc-a").map(String::as_str), Some("a"));
        known.insert("a", Some("pvc-a"), "two.example");
        assert_eq!(known.vcenters.get("a"), known.vcenters.get("b"), "the last record counts");
        known.retain(|volume| volume != "a");
        assert!(known.names.is_empty() && known.vcenters.len() == 1);
    }
}
