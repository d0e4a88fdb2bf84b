//! The manager as a pod of its DaemonSet, with a mounted token, on real nodes. Needs root.

mod upstream;

use std::path::Path;

use ccm::manifests::{self, NAMESPACE, Parameters};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Node, Pod},
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use lab::{
    CloudController, Lab, Spec, Wait,
    image::Drivers,
    kubelet::{is_initialised, label, provider_id},
    until,
};
use serde_json::json;

use crate::{BOUND, UUIDS, config_map, secret};

const PROGRAM: &str = "vsphere-cloud-controller-manager";

/// An image as `cargo xtask image` makes it, around the program that this test was built with.
pub(super) async fn load_image(lab: &Lab) {
    let program = Path::new(env!("CARGO_BIN_EXE_vsphere-drivers"));
    let image = Drivers::around(program).unwrap().image;
    let archive = lab.control_plane().world().dir().join("drivers.tar");
    image.write(&archive).unwrap();
    lab.nodes()[0].import(&archive).await.unwrap();
}

async fn until_ready(pods: &Api<Pod>) {
    until("the manager's pod is ready", BOUND, || async {
        let all = pods.list(&ListParams::default()).await?.items;
        let ready = |pod: &Pod| {
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
            conditions.is_some_and(|conditions| {
                conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True")
            })
        };
        let well = !all.is_empty() && all.iter().all(ready);
        let seen = all.iter().map(|pod| format!("{:?}", pod.status)).collect();
        Ok(if well { Wait::Done(()) } else { Wait::NotYet(seen) })
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn the_manager_s_pod_becomes_ready_and_initialises_the_nodes_it_runs_on() {
    let spec = Spec { cloud_controller: CloudController::Expected, ..Spec::with_vcenter() };
    let lab = Lab::start(&spec).await.unwrap();
    let vcenter = lab.vcenter().unwrap();
    load_image(&lab).await;
    let nodes: Api<Node> = Api::all(lab.client());
    let role = json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}});
    nodes.patch("node-1", &PatchParams::default(), &Patch::Merge(role)).await.unwrap();

    let url = vcenter.url_for_pods();
    let mut objects = vec![secret(url), config_map(url, vcenter.authority())];
    objects.extend(manifests::manifests(&Parameters::default()).unwrap().values().unwrap());
    lab.control_plane().apply(&objects).unwrap();
    for (name, uuid) in ["node-1", "node-2"].into_iter().zip(UUIDS) {
        let node = until(&format!("{name} is initialised"), BOUND, || async {
            let node = nodes.get(name).await?;
            let seen = format!("{:?}", node.spec);
            Ok(if is_initialised(&node) { Wait::Done(node) } else { Wait::NotYet(seen) })
        })
        .await
        .unwrap();
        assert_eq!(provider_id(&node), Some(format!("vsphere://{uuid}").as_str()));
        assert_eq!(label(&node, "topology.kubernetes.io/zone"), Some("zone-1"));
    }
    let pods: Api<Pod> = Api::namespaced(lab.client(), NAMESPACE);
    until_ready(&pods).await;

    let sets: Api<DaemonSet> = Api::namespaced(lab.client(), NAMESPACE);
    sets.delete(PROGRAM, &DeleteParams::default()).await.unwrap();
    until("the manager has logged out", BOUND, || async {
        let sessions = vcenter.control().state().await?.sessions;
        let left =
            sessions.iter().filter(|one| one.to_string().to_lowercase().contains("cpi@")).count();
        Ok(if left == 0 { Wait::Done(()) } else { Wait::NotYet(format!("{sessions:?}")) })
    })
    .await
    .unwrap();
}
