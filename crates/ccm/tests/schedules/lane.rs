//! Where schedules are played: an API server that can refuse us, and two vCenters with enough VMs for all.

use std::fmt::Write as _;

use cloud_config::{Config, Labels, Nodes};
use k8s_openapi::api::{
    core::v1::Node,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use lab::{ControlPlane, VCenter, VCenterSpec, vcenter::Description};
use serde_json::json;
use vsphere::tls::{Roots, Trust};

use crate::{
    manager::{put_login, secret, section},
    script::{MACHINES, VCENTERS, Who, home},
    witness::Witness,
};

/// Whom the manager is to the API, and what its rights are called.
const ACCOUNT: &str = "cloud-controller-manager";

/// An API server and the vCenters.
pub(crate) struct Lane {
    pub(crate) nodes: Api<Node>,
    /// With the manager's rights only.
    pub(crate) client: Client,
    pub(crate) vcenters: [VCenter; VCENTERS],
    pub(crate) witness: Witness,
    plane: ControlPlane,
}

/// How many sessions a vCenter has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sessions {
    pub(crate) soap: usize,
    pub(crate) rest: usize,
}

/// A VM and the Node that runs in it.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) address: String,
}

impl Machine {
    pub(crate) fn of(slot: usize, at: usize) -> Self {
        Self {
            name: format!("n{slot}-{at}"),
            uuid: format!("4230b1a0-5eed-4000-8{slot:03x}-00000000000{at}"),
            address: format!("10.99.{slot}.{}", 10 + at),
        }
    }
}

impl Lane {
    /// A lane for so many schedules.
    pub(crate) async fn start(schedules: usize) -> Self {
        let spec = |at| VCenterSpec { description: world(schedules, at), ..VCenterSpec::default() };
        let (first, second) = (spec(0), spec(1));
        let (plane, first, second) = tokio::try_join!(
            ControlPlane::start(),
            VCenter::start(&first),
            VCenter::start(&second)
        )
        .unwrap();
        let nodes = Api::all(plane.client());
        let client = as_account(&plane).await;
        let witness = Witness::start(nodes.clone());
        let lane = Self { nodes, client, vcenters: [first, second], witness, plane };
        let rules = json!([
            {"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]},
        ]);
        let role = json!({"metadata": {"name": ACCOUNT}, "rules": rules});
        let role: ClusterRole = serde_json::from_value(role).unwrap();
        let roles: Api<ClusterRole> = Api::all(lane.plane.client());
        roles.create(&PostParams::default(), &role).await.unwrap();
        lane.refuse(false).await;
        lane
    }

    /// Takes the manager's rights, or gives them back.
    pub(crate) async fn refuse(&self, refuse: bool) {
        let bindings: Api<ClusterRoleBinding> = Api::all(self.plane.client());
        // Whether it was there already does not matter, nor whether it was gone.
        if refuse {
            bindings.delete(ACCOUNT, &DeleteParams::default()).await.ok();
            return;
        }
        let binding = json!({
            "metadata": {"name": ACCOUNT},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ACCOUNT},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": ACCOUNT}],
        });
        let binding: ClusterRoleBinding = serde_json::from_value(binding).unwrap();
        bindings.create(&PostParams::default(), &binding).await.ok();
    }

    /// Changes the credentials in the Secret.
    pub(crate) async fn log_in_as(&self, who: Who) -> kube::Result<()> {
        let (user, password) = match who {
            Who::Usual => ("cpi@vsphere.local", "Lab-cpi-1!"),
            Who::Administrator => ("administrator@vsphere.local", "Lab-admin-1!"),
            Who::Mistyped => ("nobody@vsphere.local", "mistyped"),
        };
        put_login(&self.plane.client(), user, password).await
    }

    /// The configuration, with or without the names of the datacenters.
    pub(crate) fn config(&self, datacenters: bool) -> Config {
        let vcenters = self.vcenters.iter().zip(["vcenter", "other"]).map(|(vcenter, name)| {
            let roots = Roots::File(vcenter.authority().to_owned());
            let trust = Trust::Verify { roots, thumbprint: None };
            let mut section = section(name, vcenter.url(), trust);
            // One entry of the Secret is for both.
            "vcenter".clone_into(&mut section.server);
            section.credentials = secret();
            if datacenters {
                section.datacenters = vec!["dc-1".to_owned()];
            }
            section
        });
        let labels = Labels { zone: Some("k8s-zone".to_owned()), ..Labels::default() };
        Config { vcenters: vcenters.collect(), labels, nodes: Nodes::default() }
    }

    /// A round trip to the API server and to each vCenter.
    pub(crate) async fn beat(&self) -> anyhow::Result<()> {
        self.nodes.get_opt("nobody").await?;
        for vcenter in &self.vcenters {
            vcenter.control().calls().await?;
        }
        Ok(())
    }

    /// Our sessions in a vCenter by kind.
    pub(crate) async fn sessions(&self, vcenter: usize) -> Sessions {
        let state = self.vcenters[vcenter].control().state_as_json().await.unwrap();
        let of = |kind: &str| {
            let sessions = state["sessions"].as_array().into_iter().flatten();
            let ours = sessions.filter(|one| {
                one["agent"].as_str().unwrap_or_default().starts_with("vsphere-drivers/")
            });
            ours.filter(|one| one["kind"] == kind).count()
        };
        Sessions { soap: of("soap"), rest: of("rest") }
    }
}

async fn as_account(plane: &ControlPlane) -> Client {
    let kubeconfig = Kubeconfig::read_from(plane.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    config.headers.push(("impersonate-user".parse().unwrap(), ACCOUNT.parse().unwrap()));
    Client::try_from(config).unwrap()
}

/// A vCenter with its VMs of all schedules.
fn world(schedules: usize, vcenter: usize) -> Description {
    let mut text = format!("name: vcenter-{vcenter}\nusers:\n");
    for (user, password, role) in [
        ("cpi", "Lab-cpi-1!", "ReadOnly"),
        ("administrator", "Lab-admin-1!", "Admin"),
        ("nobody", "Lab-nobody-1!", "NoAccess"),
    ] {
        let permission = format!("[{{role: {role}, on: /}}]");
        writeln!(
            text,
            "  - {{name: {user}@vsphere.local, password: {password}, permissions: {permission}}}"
        )
        .unwrap();
    }
    text.push_str(
        "categories: [{name: k8s-zone, tags: [{name: zone-1, on: [/dc-1]}]}]\ndatacenters:\n  - name: dc-1\n    \
         networks: [{name: nodes}]\n    clusters: [{name: cluster-1, hosts: [{name: esx-1}, {name: \
         esx-2}]}]\n    datastores: [{name: shared-1}]\n    vms:\n",
    );
    let own = (0..MACHINES).filter(|at| home(*at) == vcenter);
    for (slot, at) in (0..schedules).flat_map(|slot| own.clone().map(move |at| (slot, at))) {
        let Machine { name, uuid, address } = Machine::of(slot, at);
        writeln!(
            text,
            "      - {{name: {name}, uuid: {uuid}, host: esx-1, datastore: shared-1, guest: {{host_name: \
             {name}}}, nics: [{{network: nodes, addresses: [{address}/24]}}]}}"
        )
        .unwrap();
    }
    Description::Text(text)
}
