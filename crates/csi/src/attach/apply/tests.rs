//! Every write, as a real API server takes it.

use daemon::lease::{Elector, Timing};
use k8s_openapi::api::storage::v1::{CSINode, VolumeAttachment, VolumeError};
use kube::api::{DeleteParams, PostParams};
use lab::ControlPlane;
use serde_json::json;

use super::*;
use crate::{
    DRIVER,
    attach::{plan::Place, problem::Problem},
    refusal::Kind,
};

struct Cluster {
    plane: ControlPlane,
    writer: Writer,
    all: Api<VolumeAttachment>,
}

impl Cluster {
    async fn start() -> Self {
        let plane = ControlPlane::start().await.unwrap();
        let writer = Writer::new(&plane.client(), Leadership::undisputed());
        let all = Api::all(plane.client());
        Self { plane, writer, all }
    }

    /// A VolumeAttachment as kube-controller-manager creates it. Returns its version.
    async fn create(&self, name: &str) -> String {
        let object = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": {"name": name, "finalizers": ["example.com/other"]},
            "spec": {"attacher": DRIVER, "nodeName": "node-1", "source": {"persistentVolumeName": "pv-1"}},
        });
        let object = serde_json::from_value(object).unwrap();
        let made = self.all.create(&PostParams::default(), &object).await.unwrap();
        made.metadata.resource_version.unwrap()
    }

    /// Applies a step to the current version. Returns what was written.
    async fn apply(&self, name: &str, step: Step) -> VolumeAttachment {
        let version = self.all.get(name).await.unwrap().metadata.resource_version.unwrap();
        let written = self.writer.clone().apply(name, &version, &step).await;
        written.result.unwrap();
        self.all.get(name).await.unwrap()
    }
}

fn place() -> Place {
    Place { volume: "v-1".to_owned(), node: "n-1".to_owned() }
}

fn problem(text: &str) -> Problem {
    Problem::new(Kind::Exhausted, text)
}

#[tokio::test]
async fn each_step_changes_what_it_should_and_nothing_else() {
    let cluster = Cluster::start().await;
    cluster.create("a").await;
    let object = cluster.apply("a", Step::Prepare(place())).await;
    let finalizers = [FINALIZER.to_owned(), "example.com/other".to_owned()];
    let mut found = object.metadata.finalizers.unwrap();
    found.sort_by_key(|name| name != FINALIZER);
    assert_eq!(found, finalizers);
    let annotations = object.metadata.annotations.unwrap();
    assert_eq!((&*annotations[NODE_ANNOTATION], &*annotations[VOLUME_ANNOTATION]), ("n-1", "v-1"));

    let long = "ü".repeat(2000);
    let object = cluster.apply("a", Step::Show(Field::AttachError, problem(&long))).await;
    let VolumeError { error_code, message, time } = object.status.unwrap().attach_error.unwrap();
    assert_eq!((error_code, message, time.is_some()), (Some(8), Some(problem(&long).text), true));

    let object = cluster.apply("a", Step::MarkAttached("6000c29".to_owned())).await;
    let status = object.status.unwrap();
    assert_eq!((status.attached, status.attach_error), (true, None));
    let metadata = status.attachment_metadata.unwrap();
    assert_eq!((&*metadata["type"], &*metadata["diskUUID"]), (BLOCK_VOLUME, "6000c29"));
    assert_eq!(metadata.len(), 2);

    cluster.all.delete("a", &DeleteParams::default()).await.unwrap();
    let object = cluster.apply("a", Step::Show(Field::DetachError, problem("busy"))).await;
    assert!(object.status.unwrap().detach_error.is_some());
    let object = cluster.apply("a", Step::Release).await;
    assert_eq!(object.metadata.finalizers.unwrap(), ["example.com/other"]);
    let object = cluster.apply("a", Step::MarkDetached).await;
    let status = object.status.unwrap();
    assert_eq!(
        (status.attached, status.attachment_metadata, status.detach_error),
        (false, None, None)
    );
}

#[tokio::test]
async fn what_another_client_changed_meanwhile_is_returned_and_not_written() {
    let cluster = Cluster::start().await;
    let old = cluster.create("a").await;
    cluster.apply("a", Step::Prepare(place())).await;
    cluster.all.delete("a", &DeleteParams::default()).await.unwrap();
    let before = cluster.all.get("a").await.unwrap();
    for step in [
        Step::Prepare(place()),
        Step::MarkAttached("6000c29".to_owned()),
        Step::MarkDetached,
        Step::Show(Field::AttachError, problem("full")),
        Step::Release,
    ] {
        let written = cluster.writer.clone().apply("a", &old, &step).await;
        assert!(matches!(written.result, Err(NotWritten::Conflict)), "{step:?}: {written:?}");
        assert!(written.object.unwrap().kept.unwrap().deleting);
    }
    assert_eq!(cluster.all.get("a").await.unwrap(), before);
    let written = cluster.writer.clone().apply("b", &old, &Step::Release).await;
    assert!(matches!(written.result, Err(NotWritten::Gone)), "{written:?}");
}

#[tokio::test]
async fn volumes_lose_the_stock_finalizer_and_csi_nodes_get_their_limit() {
    let cluster = Cluster::start().await;
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": "pv-1", "finalizers": [FINALIZER, "kubernetes.io/pv-protection"]},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": DRIVER, "volumeHandle": "v-1"},
        },
    });
    let node = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
        "metadata": {"name": "node-1", "annotations": {"example.com/kept": "yes"}},
        "spec": {"drivers": [{"name": DRIVER, "nodeID": "n-1", "topologyKeys": null}]},
    });
    cluster.plane.apply(&[volume, node]).unwrap();
    let writer = &cluster.writer;
    let known = writer.volumes.get("pv-1").await.unwrap();
    let written = writer.clone().release_volume("pv-1", known.version()).await;
    written.result.unwrap();
    assert!(!written.object.unwrap().kept.unwrap().finalizer);
    let again = writer.clone().release_volume("pv-1", known.version()).await;
    assert!(matches!(again.result, Err(NotWritten::Conflict)), "{again:?}");
    let written = writer.clone().publish_limit("node-1", "59").await;
    assert_eq!(written.object.unwrap().kept.unwrap().limit.as_deref(), Some("59"));
    let nodes: Api<CSINode> = Api::all(cluster.plane.client());
    let annotations = nodes.get("node-1").await.unwrap().metadata.annotations.unwrap();
    assert_eq!((&*annotations[MAX_VOLUMES], &*annotations["example.com/kept"]), ("59", "yes"));
}

#[tokio::test]
async fn a_process_that_does_not_hold_the_lease_writes_nothing() {
    // Nothing listens there: a request would be refused, not held back.
    let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    let client = Client::try_from(config).unwrap();
    let me = "me".to_owned();
    let elector = Elector::new(client.clone(), "ns", "lease", me, Timing::default());
    let writer = Writer::new(&client, elector.leadership());
    let written = writer.apply("a", "1", &Step::Release).await;
    assert!(matches!(written.result, Err(NotWritten::NotLeading)), "{written:?}");
}
