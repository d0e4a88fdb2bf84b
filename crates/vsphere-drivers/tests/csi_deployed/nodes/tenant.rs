//! A user with a namespace: claims, pods, and what `kubectl describe` shows of them.

use std::{collections::BTreeMap, fmt::Debug, time::Duration};

use anyhow::Result;
use k8s_openapi::{
    api::{
        core::v1::{
            Event, Namespace, PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount,
        },
        storage::v1::VolumeAttachment,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{
    Api, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use lab::{Lab, Wait, csi_driver, image, until};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Generous: the machine may be busy with other things.
pub(super) const BOUND: Duration = Duration::from_secs(240);

/// A claim of the size, for a file system or as a device.
pub(super) fn claim(name: &str, class: &str, size: &str, mode: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class,
            "volumeMode": mode,
            "resources": {"requests": {"storage": size}},
        },
    })
}

/// A pod on this node that sleeps, with these claims at /NAME.
pub(super) fn pod(name: &str, node: &str, claims: &[&str]) -> Value {
    let volumes: Vec<Value> = claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    let mounts: Vec<Value> = claims
        .iter()
        .map(|claim| json!({"name": claim, "mountPath": format!("/{claim}")}))
        .collect();
    json!({
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            // Another scenario drains a node meanwhile.
            "tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}],
            "terminationGracePeriodSeconds": 1,
            "volumes": volumes,
            "containers": [sleeper(&json!(mounts))],
        },
    })
}

/// A container that sleeps.
pub(super) fn sleeper(mounts: &Value) -> Value {
    json!({
        "name": "main",
        "image": image::BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["sleep", "100000"],
        "volumeMounts": mounts,
    })
}

/// A namespace of a lab and what a user does in it.
#[derive(Clone, Copy)]
pub(super) struct Tenant<'a> {
    lab: &'a Lab,
    namespace: &'a str,
}

impl<'a> Tenant<'a> {
    /// In a new namespace.
    pub(super) async fn new(lab: &'a Lab, namespace: &'a str) -> Self {
        let tenant = Self::of(lab, namespace);
        let all: Api<Namespace> = Api::all(lab.client());
        let object = json!({"metadata": {"name": namespace}});
        all.create(&PostParams::default(), &read(object)).await.unwrap();
        let accounts: Api<ServiceAccount> = tenant.api();
        let what = "the namespace has a service account";
        tenant.until(what, || async { Ok(some(accounts.get_opt("default").await?)) }).await;
        tenant
    }

    /// In a namespace that exists.
    pub(super) fn of(lab: &'a Lab, namespace: &'a str) -> Self {
        Self { lab, namespace }
    }

    /// The objects of a kind in the namespace.
    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.lab.client(), self.namespace)
    }

    pub(super) async fn create<K>(&self, object: Value)
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
        K: Clone + Debug + DeserializeOwned + serde::Serialize,
    {
        self.api::<K>().create(&PostParams::default(), &read(object)).await.unwrap();
    }

    pub(super) async fn claim(&self, object: Value) {
        self.create::<PersistentVolumeClaim>(object).await;
    }

    /// Creates a pod and waits until it runs.
    pub(super) async fn run(&self, pod: Value) {
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        self.create::<Pod>(pod).await;
        self.until_ready(&name).await;
    }

    /// Waits until a pod of this name is ready; returns it.
    pub(super) async fn until_ready(&self, name: &str) -> Pod {
        self.until_pod(name, "is ready", is_ready).await
    }

    pub(super) async fn until_pod(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&Pod) -> bool,
    ) -> Pod {
        let (pods, holds): (Api<Pod>, _) = (self.api(), &holds);
        self.until(&format!("the pod {name} {what}"), || async {
            let found = pods.get_opt(name).await?;
            if let Some(pod) = found.filter(|pod| holds(pod)) {
                return Ok(Wait::Done(pod));
            }
            Ok(Wait::NotYet(self.events(name).await?.join("\n")))
        })
        .await
    }

    /// Deletes a pod and waits until it is gone.
    pub(super) async fn stop(&self, name: &str) {
        self.api::<Pod>().delete(name, &DeleteParams::default()).await.unwrap();
        self.until_gone::<Pod>(name).await;
    }

    /// Deletes a claim and waits until it, its PersistentVolume and the disk are gone.
    pub(super) async fn discard(&self, name: &str) {
        let (volume, handle) = self.volume(name).await;
        self.api::<PersistentVolumeClaim>().delete(name, &DeleteParams::default()).await.unwrap();
        self.until_gone::<PersistentVolumeClaim>(name).await;
        self.until_deleted(&volume, &handle).await;
    }

    /// Waits until a PersistentVolume and its disk are gone.
    pub(super) async fn until_deleted(&self, volume: &str, handle: &str) {
        let all: Api<PersistentVolume> = Api::all(self.lab.client());
        let what = format!("the PersistentVolume {volume} is deleted");
        self.until(&what, || async { Ok(none(all.get_opt(volume).await?)) }).await;
        let state = self.lab.vcenter().unwrap().control().state().await.unwrap();
        let left: Vec<_> = state.volumes.iter().filter(|one| one["id"] == handle).collect();
        assert!(left.is_empty(), "vCenter still has {left:?}");
    }

    pub(super) async fn until_gone<K>(&self, name: &str)
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
        K: Clone + Debug + DeserializeOwned,
    {
        let all: Api<K> = self.api();
        let what = format!("{} {name} is gone", K::kind(&()));
        self.until(&what, || async { Ok(none(all.get_opt(name).await?)) }).await;
    }

    /// The PersistentVolume of a claim that is bound, and its id in vCenter.
    pub(super) async fn volume(&self, claim: &str) -> (String, String) {
        let claims: Api<PersistentVolumeClaim> = self.api();
        let what = format!("the claim {claim} is bound");
        let name = self.until(&what, || async {
            let found = claims.get(claim).await?;
            let is_bound = found.status.and_then(|status| status.phase).as_deref() == Some("Bound");
            match found.spec.and_then(|spec| spec.volume_name).filter(|_| is_bound) {
                Some(volume) => Ok(Wait::Done(volume)),
                None => Ok(Wait::NotYet(self.events(claim).await?.join("\n"))),
            }
        });
        let name = name.await;
        let all: Api<PersistentVolume> = Api::all(self.lab.client());
        let volume = all.get(&name).await.unwrap();
        (name, volume.spec.unwrap().csi.unwrap().volume_handle)
    }

    /// The VolumeAttachment of a PersistentVolume.
    pub(super) async fn attachment(&self, volume: &str) -> Result<Option<VolumeAttachment>> {
        let all: Api<VolumeAttachment> = Api::all(self.lab.client());
        let mut found = all.list(&ListParams::default()).await?.items;
        found.retain(|one| one.spec.source.persistent_volume_name.as_deref() == Some(volume));
        Ok(found.pop())
    }

    /// Waits until no VolumeAttachment names the volume, and no VM has it.
    pub(super) async fn until_detached(&self, claim: &str) {
        let (volume, handle) = self.volume(claim).await;
        self.until_volume_detached(&volume, &handle).await;
    }

    pub(super) async fn until_volume_detached(&self, volume: &str, handle: &str) {
        self.until(&format!("the volume {volume} is detached"), || async {
            Ok(none(self.attachment(volume).await?))
        })
        .await;
        assert_eq!(self.vms(handle).await, Vec::<String>::new());
    }

    /// The VMs that have a volume, by name.
    pub(super) async fn vms(&self, handle: &str) -> Vec<String> {
        let state = self.lab.vcenter().unwrap().control().state().await.unwrap();
        let has = state.attachments.iter().filter(|one| one["volume"] == handle);
        let name = |reference: &Value| {
            let object = state.inventory.iter().find(|one| one["ref"] == *reference);
            let path = object.and_then(|object| object["path"].as_str()).unwrap_or_default();
            path.rsplit('/').next().unwrap_or_default().to_owned()
        };
        has.map(|one| name(&one["vm"])).collect()
    }

    /// Requests another size for a claim.
    pub(super) async fn request(&self, claim: &str, size: &str) {
        let wish = json!({"spec": {"resources": {"requests": {"storage": size}}}});
        let claims: Api<PersistentVolumeClaim> = self.api();
        claims.patch(claim, &PatchParams::default(), &Patch::Merge(&wish)).await.unwrap();
    }

    /// Changes a pod without effect. The kubelet then looks at its volumes at once, and not in a minute or two.
    pub(super) async fn touch(&self, pod: &str) {
        let change = Patch::Merge(json!({"metadata": {"annotations": {"changed": "now"}}}));
        self.api::<Pod>().patch(pod, &PatchParams::default(), &change).await.unwrap();
    }

    /// Waits until a claim has this capacity.
    pub(super) async fn until_size(&self, claim: &str, size: &str) {
        let claims: Api<PersistentVolumeClaim> = self.api();
        let wanted = Quantity(size.to_owned());
        self.until(&format!("the claim {claim} has {size}"), || async {
            let status = claims.get(claim).await?.status.unwrap_or_default();
            let capacity: BTreeMap<_, _> = status.capacity.unwrap_or_default();
            if capacity.get("storage") == Some(&wanted) {
                return Ok(Wait::Done(()));
            }
            let events = self.events(claim).await?.join("\n");
            Ok(Wait::NotYet(format!("{capacity:?} {:?}\n{events}", status.conditions)))
        })
        .await;
    }

    /// Runs a script in a pod and returns what it printed.
    pub(super) fn shell(&self, pod: &str, script: &str) -> Result<String> {
        let mut kubectl = self.lab.control_plane().kubectl()?;
        kubectl.args(["--namespace", self.namespace, "exec", pod, "--", "sh", "-ec", script]);
        Ok(lab::run(&mut kubectl)?.trim().to_owned())
    }

    /// The messages of an object's events.
    pub(super) async fn events(&self, name: &str) -> Result<Vec<String>> {
        let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
        let events = self.api::<Event>().list(&about).await?.items;
        let text = |event: Event| {
            let reason = event.reason.unwrap_or_default();
            format!("{reason}: {}", event.message.unwrap_or_default())
        };
        Ok(events.into_iter().map(text).collect())
    }

    /// Waits until one event of an object has all these words; returns it.
    pub(super) async fn until_event(&self, name: &str, words: &[&str]) -> String {
        self.until(&format!("an event of {name} has {words:?}"), || async {
            let events = self.events(name).await?;
            let found = events.iter().find(|text| words.iter().all(|word| text.contains(word)));
            Ok(found
                .map_or_else(|| Wait::NotYet(events.join("\n")), |text| Wait::Done(text.clone())))
        })
        .await
    }

    /// Waits, and ends the test with the driver's logs when it takes too long.
    pub(super) async fn until<T, F>(&self, what: &str, check: impl FnMut() -> F) -> T
    where
        F: Future<Output = Result<Wait<T>>>,
    {
        let what = format!("{}: {what}", self.namespace);
        match until(&what, BOUND, check).await {
            Ok(value) => value,
            Err(error) => panic!("{error:#}\n{}", csi_driver::logs(self.lab)),
        }
    }
}

/// An object as the API's types have it.
pub(super) fn read<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

pub(super) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = |all: &Vec<_>| {
        all.iter().any(|one: &k8s_openapi::api::core::v1::PodCondition| {
            one.type_ == "Ready" && one.status == "True"
        })
    };
    pod.metadata.deletion_timestamp.is_none() && conditions.is_some_and(ready)
}

fn some<T>(found: Option<T>) -> Wait<T> {
    found.map_or_else(|| Wait::NotYet("there is none".to_owned()), Wait::Done)
}

fn none<T: Debug>(found: Option<T>) -> Wait<()> {
    found.map_or(Wait::Done(()), |found| Wait::NotYet(format!("{found:?}")))
}
