//! An API, a vCenter, and the program beside them with nothing but the token of its account.

use std::{fs, path::PathBuf, process::Stdio};

use ccm::manifests::{Manifests, NAMESPACE};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use lab::{ControlPlane, VCenter, VCenterSpec, Wait, audit::Request, kubelet, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::process::{Child, Command};

use crate::{BOUND, UUIDS, secret, vsphere_conf};

pub(crate) const ACCOUNT: &str = "cloud-controller-manager";

/// Where the program runs.
pub(crate) struct Cluster {
    pub(crate) plane: ControlPlane,
    pub(crate) vcenter: VCenter,
    pub(crate) nodes: Api<Node>,
}

/// The program. Dropping it ends it.
pub(crate) struct Program {
    child: Child,
    log: PathBuf,
}

impl Cluster {
    /// Starts both and applies the manifests.
    pub(crate) async fn start(manifests: &Manifests) -> Self {
        let spec = VCenterSpec::default();
        let (plane, vcenter) =
            tokio::try_join!(ControlPlane::start(), VCenter::start(&spec)).unwrap();
        let mut objects = manifests.values().unwrap();
        objects.push(secret(vcenter.url()));
        plane.apply(&objects).unwrap();
        let nodes = Api::all(plane.client());
        let cluster = Self { plane, vcenter, nodes };
        cluster.configure(&cluster.good_configuration());
        cluster
    }

    pub(crate) fn good_configuration(&self) -> String {
        vsphere_conf(self.vcenter.url(), self.vcenter.authority().to_str().unwrap())
    }

    fn configuration_file(&self) -> PathBuf {
        self.plane.world().dir().join("vsphere.conf")
    }

    /// Replaces the configuration file at once, as kubelets do.
    pub(crate) fn configure(&self, text: &str) {
        let new = self.configuration_file().with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.configuration_file()).unwrap();
    }

    /// The port on which the program serves.
    pub(crate) fn port(&self) -> u16 {
        self.plane.world().port(7)
    }

    /// Starts the program as its pod would, with the account's token instead of a mounted one.
    pub(crate) async fn run(&self) -> Program {
        let kubeconfig = self.plane.kubeconfig_of(NAMESPACE, ACCOUNT).await.unwrap();
        let log = self.plane.world().dir().join("logs/program.log");
        let output = fs::File::create(&log).unwrap();
        // It dies with this thread, also when the test is killed.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--", env!("CARGO_BIN_EXE_vsphere-drivers")])
            .arg("vsphere-cloud-controller-manager")
            .arg(format!("--cloud-config={}", self.configuration_file().display()))
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args(["--bind-address=127.0.0.1", &format!("--secure-port={}", self.port()), "--v=4"])
            .args(["--node-monitor-period=1s", "--node-deletion-grace=0s"])
            .env("POD_NAMESPACE", NAMESPACE)
            .env("POD_NAME", "vsphere-cloud-controller-manager-1")
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .kill_on_drop(true);
        Program { child: command.spawn().unwrap(), log }
    }

    /// Registers a Node as a kubelet does that has an external cloud provider.
    pub(crate) async fn register(&self, number: usize) -> String {
        let name = format!("node-{number}");
        kubelet::register(&self.nodes, &name, UUIDS[number - 1], None).await.unwrap();
        name
    }

    pub(crate) async fn forget(&self, name: &str) {
        self.nodes.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until the Node is as wanted.
    pub(crate) async fn until(&self, name: &str, what: &str, holds: impl Fn(&Node) -> bool) {
        until(&format!("{name}: {what}"), BOUND, || async {
            let node = self.nodes.get(name).await?;
            Ok(if holds(&node) { Wait::Done(()) } else { Wait::NotYet(format!("{node:?}")) })
        })
        .await
        .unwrap();
    }

    /// Waits until there is no such Node.
    pub(crate) async fn until_gone(&self, name: &str) {
        until(&format!("{name} is deleted"), BOUND, || async {
            let node = self.nodes.get_opt(name).await?;
            Ok(node.map_or(Wait::Done(()), |node| Wait::NotYet(format!("{node:?}"))))
        })
        .await
        .unwrap();
    }

    /// Waits until the account has made such a request.
    pub(crate) async fn until_requested(&self, what: &str, fits: impl Fn(&Request) -> bool) {
        until(what, BOUND, || async {
            let requests = self.requests();
            let found = requests.iter().any(&fits);
            Ok(if found { Wait::Done(()) } else { Wait::NotYet(format!("{requests:#?}")) })
        })
        .await
        .unwrap();
    }

    /// Waits until this many events with the reason are about the pod.
    pub(crate) async fn until_event_count(&self, reason: &str, count: i32) {
        let events: Api<Event> = Api::namespaced(self.plane.client(), NAMESPACE);
        until(&format!("{reason} was recorded {count} times"), BOUND, || async {
            let all = events.list(&ListParams::default()).await?.items;
            let reported = all.iter().filter(|event| event.reason.as_deref() == Some(reason));
            let seen: i32 = reported.filter_map(|event| event.count).sum();
            Ok(if seen == count { Wait::Done(()) } else { Wait::NotYet(format!("{all:#?}")) })
        })
        .await
        .unwrap();
    }

    /// What the account asked for.
    pub(crate) fn requests(&self) -> Vec<Request> {
        let account = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
        let mut requests = self.plane.audit().unwrap();
        requests.retain(|request| request.user == account);
        requests.sort();
        requests.dedup();
        requests
    }

    /// Changes an annotation of the Node twenty times, as somebody else, and returns what it is then.
    pub(crate) async fn touch(&self, name: &str) -> Node {
        let mut last = None;
        for value in 0..20 {
            let patch = json!({"metadata": {"annotations": {"touched": value.to_string()}}});
            let patch = Patch::Merge(patch);
            let touched = self.nodes.patch(name, &PatchParams::default(), &patch).await;
            last = Some(touched.unwrap());
        }
        last.unwrap()
    }
}

impl Program {
    /// Asks it to end, and fails unless it ends well.
    pub(crate) async fn stop(mut self) {
        let pid = i32::try_from(self.child.id().unwrap()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let status = tokio::time::timeout(BOUND, self.child.wait()).await.unwrap().unwrap();
        assert!(status.success(), "{status}: {}", self.log());
    }

    /// What it logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}
