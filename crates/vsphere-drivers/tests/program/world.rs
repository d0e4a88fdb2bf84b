//! An API server, a vCenter, a configuration file, and the program as its users start it.

use std::{fs, path::PathBuf};

use k8s_openapi::api::core::v1::{Event, Node};
use kube::{Api, Client, Config, api::ListParams};
pub(crate) use lab::kubelet::{
    SHUTDOWN, UNINITIALIZED, has_taint, is_initialised, label, vsphere_condition,
};
use lab::{ControlPlane, VCenter, VCenterSpec, Wait, kubelet, until, vcenter::Description};
use serde_json::Value;

pub(crate) use crate::process::{BOUND, Program};

/// The program that is tested.
pub(crate) const MANAGER: &str = "vsphere-cloud-controller-manager";
pub(crate) const UUID: &str = "4230b1a0-5eed-4000-8000-000000000001";
/// Another one than the API server's.
const ADMIN: u16 = 5;

pub(crate) struct World {
    pub(crate) plane: ControlPlane,
    pub(crate) vcenter: VCenter,
    pub(crate) nodes: Api<Node>,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_with(str::to_owned).await
    }

    /// With another vCenter than the default one.
    pub(crate) async fn start_with(edit: impl Fn(&str) -> String) -> Self {
        let usual = include_str!("../../../../lab/vcenter/internal/world/default.yaml");
        let description = Description::Text(edit(usual));
        let spec = VCenterSpec { description, ..VCenterSpec::default() };
        let (plane, vcenter) =
            tokio::try_join!(ControlPlane::start(), VCenter::start(&spec)).unwrap();
        let nodes = Api::all(plane.client());
        Self { plane, vcenter, nodes }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.plane.world().dir().join(name)
    }

    /// A file of the world, swapped as a whole as kubelets do it.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let (path, fresh) = (self.path(name), self.path("fresh"));
        fs::write(&fresh, text).unwrap();
        fs::rename(&fresh, &path).unwrap();
        path
    }

    /// The configuration that works; `more` is added at its end.
    pub(crate) fn configuration(&self, more: &str) -> String {
        let (host, port) = self.server();
        format!(
            "global:\n  port: {port}\n  caFile: {}\n  user: cpi@vsphere.local\n  password: Lab-cpi-1!\n\
             vcenter:\n  east:\n    server: {host}\n{more}",
            self.vcenter.authority().display()
        )
    }

    /// Where vCenter is.
    pub(crate) fn server(&self) -> (String, String) {
        let url = self.vcenter.url();
        let authority = url.trim_start_matches("https://").split('/').next().unwrap();
        let (host, port) = authority.rsplit_once(':').unwrap();
        (host.to_owned(), port.to_owned())
    }

    /// Runs the program with the configuration in `vsphere.conf`.
    pub(crate) fn run(&self, flags: &[&str]) -> Program {
        let config = format!("--cloud-config={}", self.path("vsphere.conf").display());
        let kubeconfig = format!("--kubeconfig={}", self.plane.kubeconfig().display());
        let all = [&[config.as_str(), &kubeconfig, "--secure-port=0"], flags].concat();
        Program::start(MANAGER, &all, &[])
    }

    /// Registers a Node as a kubelet does that has an external cloud provider.
    pub(crate) async fn register(&self, name: &str) {
        self.register_as(name, UUID).await;
    }

    /// The same in the VM with this UUID.
    pub(crate) async fn register_as(&self, name: &str, uuid: &str) {
        kubelet::register(&self.nodes, name, uuid, None).await.unwrap();
    }

    /// Waits until a Node is as it should be.
    pub(crate) async fn until(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&Node) -> bool,
    ) -> Node {
        let waited = until(what, BOUND, || async {
            let node = self.nodes.get(name).await?;
            Ok(if holds(&node) { Wait::Done(node) } else { Wait::NotYet(format!("{node:?}")) })
        });
        waited.await.unwrap()
    }

    /// Waits until a Node's condition has this reason, and returns its message.
    pub(crate) async fn until_reason(&self, name: &str, reason: &str) -> String {
        let node = self.until(name, reason, |node| vsphere_condition(node).0 == reason).await;
        vsphere_condition(&node).1.to_owned()
    }

    /// Waits for an event with this reason, and returns its message.
    pub(crate) async fn event(&self, reason: &str) -> String {
        let events: Api<Event> = Api::all(self.plane.client());
        let waited = until(reason, BOUND, || async {
            let all = events.list(&ListParams::default()).await?.items;
            let found = all.iter().find(|event| event.reason.as_deref() == Some(reason));
            Ok(match found {
                Some(event) => Wait::Done(event.message.clone().unwrap_or_default()),
                None => Wait::NotYet(format!("{} other events", all.len())),
            })
        });
        waited.await.unwrap()
    }

    /// The sessions of the program's user.
    pub(crate) async fn sessions(&self) -> usize {
        let state = self.vcenter.control().state_as_json().await.unwrap();
        let ours = |session: &&Value| {
            session["user"].as_str().unwrap_or_default().to_lowercase().contains("cpi")
        };
        state["sessions"].as_array().unwrap().iter().filter(ours).count()
    }

    /// A port for the admin server, and a client of it that trusts anybody.
    pub(crate) fn admin(&self) -> (u16, Client) {
        let port = self.plane.world().port(ADMIN);
        let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
        config.accept_invalid_certs = true;
        (port, Client::try_from(config).unwrap())
    }
}
