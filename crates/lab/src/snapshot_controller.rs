//! The snapshot controller and its CustomResourceDefinitions in a lab's cluster: what a cluster has for all of its CSI
//! drivers, from its maintainers' own manifests.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use serde_json::{Value, json};

use crate::{
    cluster::Lab,
    image::{self, SNAPSHOT_CONTROLLER},
    upstream,
    wait::{Wait, until},
};

/// The Go module that pins both.
const PINNED_BY: &str = "sidecars";
const CONTROLLER: &str = "github.com/kubernetes-csi/external-snapshotter/v8";
const DEFINITIONS: &str = "github.com/kubernetes-csi/external-snapshotter/client/v8";
const NAMESPACE: &str = "kube-system";
const NAME: &str = "snapshot-controller";
const READY_WITHIN: Duration = Duration::from_secs(300);

/// Installs them and waits until the controller is ready.
///
/// # Errors
/// When a module cannot be fetched, an object is rejected, or the controller does not become ready.
pub async fn install(lab: &Lab) -> Result<()> {
    let archive = lab.control_plane().world().dir().join("snapshot-controller.tar");
    for image in image::standard(&[SNAPSHOT_CONTROLLER])? {
        image.write(&archive)?;
    }
    for node in lab.nodes() {
        node.import(&archive).await?;
    }
    lab.control_plane().apply(&definitions()?)?;
    lab.control_plane().apply(&controller()?)?;
    let deployments: Api<Deployment> = Api::namespaced(lab.client(), NAMESPACE);
    until("the snapshot controller is ready", READY_WITHIN, || async {
        let status = deployments.get(NAME).await?.status.unwrap_or_default();
        let seen = format!("{:?}", status.conditions);
        let is_ready = status.ready_replicas.unwrap_or_default() > 0;
        Ok(if is_ready { Wait::Done(()) } else { Wait::NotYet(seen) })
    })
    .await
}

fn definitions() -> Result<Vec<Value>> {
    let directory = upstream::pinned_module(PINNED_BY, DEFINITIONS)?.join("config/crd");
    let mut objects = Vec::new();
    for kind in ["volumesnapshotclasses", "volumesnapshotcontents", "volumesnapshots"] {
        let file = directory.join(format!("snapshot.storage.k8s.io_{kind}.yaml"));
        objects.extend(objects_in(&file)?);
    }
    Ok(objects)
}

fn controller() -> Result<Vec<Value>> {
    let directory = upstream::pinned_module(PINNED_BY, CONTROLLER)?;
    let directory = directory.join("deploy/kubernetes/snapshot-controller");
    let mut objects = objects_in(&directory.join("rbac-snapshot-controller.yaml"))?;
    for mut object in objects_in(&directory.join("setup-snapshot-controller.yaml"))? {
        object["spec"]["replicas"] = json!(1);
        object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(SNAPSHOT_CONTROLLER);
        objects.push(object);
    }
    Ok(objects)
}

fn objects_in(path: &Path) -> Result<Vec<Value>> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_saphyr::from_multiple(&text).with_context(|| format!("cannot read {}", path.display()))
}
