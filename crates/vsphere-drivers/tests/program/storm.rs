//! An outage of vCenter must not become a storm of Node writes.
//!
//! Writes are counted in the API server's audit log, for five hundred Nodes, through ten kinds of outage. A steady
//! outage is worth one write of each Node when it begins and one when it ends; an outage whose reason changes all the
//! time is worth twice that.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use k8s_openapi::api::core::v1::{Node, Secret};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use lab::{
    ControlPlane, VCenter, VCenterSpec, Wait, kubelet, until,
    vcenter::{Certificate, Control, Fault, HttpFault, HttpFaultKind},
};
use serde_json::{Value, json};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::world::{MANAGER, Program, is_initialised, vsphere_condition};

const NODES: usize = 500;
/// Five hundred Nodes take longer than one.
const BOUND: Duration = Duration::from_secs(180);
const USER: &str = "cpi@vsphere.local";
/// How long an outage is kept up after its Nodes report it, one disturbance a second.
const BEATS: u32 = 8;
const STEADY: usize = 2;
const CHANGING: usize = 4;

/// Something that keeps a vCenter from being followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outage {
    WrongPassword,
    Refused,
    Hanging,
    Unavailable,
    AlternatingErrors,
    ExpiringSessions,
    MissingDatacenter,
    UnreadableTags,
    ChangedCertificate,
    Flapping,
}

impl Outage {
    const ALL: [Self; 10] = [
        Self::Refused,
        Self::Unavailable,
        Self::Hanging,
        Self::ChangedCertificate,
        Self::MissingDatacenter,
        Self::UnreadableTags,
        Self::ExpiringSessions,
        Self::AlternatingErrors,
        Self::Flapping,
        Self::WrongPassword,
    ];

    /// Whether Nodes report it. The others leave every Node with its VM.
    fn is_reported(self) -> bool {
        match self {
            Self::WrongPassword
            | Self::Refused
            | Self::Hanging
            | Self::Unavailable
            | Self::ChangedCertificate => true,
            Self::AlternatingErrors
            | Self::ExpiringSessions
            | Self::MissingDatacenter
            | Self::UnreadableTags
            | Self::Flapping => false,
        }
    }

    fn most_writes(self) -> usize {
        match self {
            Self::AlternatingErrors | Self::Flapping => CHANGING,
            _ => STEADY,
        }
    }
}

/// A port that leads to a vCenter, or nowhere, or to another one.
struct Wire {
    port: u16,
    open: Option<JoinSet<()>>,
}

impl Wire {
    async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut wire = Self { port, open: None };
        wire.serve(listener, target);
        wire
    }

    fn serve(&mut self, listener: TcpListener, target: SocketAddr) {
        let mut open = JoinSet::new();
        open.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                connections.spawn(async move {
                    let mut server = TcpStream::connect(target).await?;
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        self.open = Some(open);
    }

    /// Connections break, and new ones are refused.
    async fn cut(&mut self) {
        if let Some(mut open) = self.open.take() {
            open.shutdown().await;
        }
    }

    async fn lead_to(&mut self, target: SocketAddr) {
        self.cut().await;
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await.unwrap();
        self.serve(listener, target);
    }
}

struct Storm {
    plane: ControlPlane,
    vcenter: VCenter,
    /// The same vCenter behind a certificate that nobody vouches for.
    stranger: VCenter,
    wire: Wire,
    nodes: Api<Node>,
    program: Program,
    password: u32,
}

fn address_of(vcenter: &VCenter) -> SocketAddr {
    vcenter.url().trim_start_matches("https://").trim_end_matches("/sdk").parse().unwrap()
}

impl Storm {
    async fn start() -> Self {
        let spec =
            VCenterSpec { generated_vms: u32::try_from(NODES).unwrap(), ..Default::default() };
        let strange = VCenterSpec { certificate: Certificate::SelfSigned, ..spec.clone() };
        let (plane, vcenter, stranger) = tokio::try_join!(
            ControlPlane::start(),
            VCenter::start(&spec),
            VCenter::start(&strange)
        )
        .unwrap();
        let wire = Wire::to(address_of(&vcenter)).await;
        let account = json!([
            {"apiVersion": "v1", "kind": "ServiceAccount",
             "metadata": {"name": "manager", "namespace": "kube-system"}},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
             "metadata": {"name": "manager"},
             "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
             "subjects": [{"kind": "ServiceAccount", "name": "manager", "namespace": "kube-system"}]},
        ]);
        plane.apply(account.as_array().unwrap()).unwrap();
        let nodes = Api::all(plane.client());
        let program = run(&plane, &vcenter, &wire).await;
        let storm = Self { plane, vcenter, stranger, wire, nodes, program, password: 1 };
        storm.write_secret().await;
        storm.register().await;
        storm
    }

    fn control(&self) -> &Control {
        self.vcenter.control()
    }

    fn password(&self) -> String {
        format!("Lab-cpi-{}!", self.password)
    }

    async fn write_secret(&self) {
        let secrets: Api<Secret> = Api::namespaced(self.plane.client(), "kube-system");
        let entries = json!({"127.0.0.1.username": USER, "127.0.0.1.password": self.password()});
        if secrets.get_opt("vsphere").await.unwrap().is_some() {
            let patch = Patch::Merge(json!({"stringData": entries}));
            secrets.patch("vsphere", &PatchParams::default(), &patch).await.unwrap();
            return;
        }
        let object = json!({"metadata": {"name": "vsphere"}, "stringData": entries});
        let secret = serde_json::from_value(object).unwrap();
        secrets.create(&PostParams::default(), &secret).await.unwrap();
    }

    /// Registers a Node for every VM, by the VM's own UUID.
    async fn register(&self) {
        let state = self.control().state_as_json().await.unwrap();
        let mut made = JoinSet::new();
        for object in state["inventory"].as_array().unwrap() {
            let path = object["path"].as_str().unwrap_or_default();
            let Some(name) = path.rsplit('/').next().filter(|name| name.starts_with("generated-0"))
            else {
                continue;
            };
            let Some(uuid) = object["vm"]["uuid"].as_str().or(object["uuid"].as_str()) else {
                continue;
            };
            made.spawn(register(self.nodes.clone(), name.to_owned(), uuid.to_owned()));
        }
        assert_eq!(made.len(), NODES, "{}", state["inventory"][0]);
        made.join_all().await;
    }

    /// Waits until all Nodes are so.
    async fn all(&self, what: &str, holds: impl Fn(&Node) -> bool) {
        let waited = until(what, BOUND, || async {
            let all = self.nodes.list(&ListParams::default()).await?.items;
            let left: Vec<_> = all.iter().filter(|node| !holds(node)).collect();
            let first = left.first().map(|node| (&node.metadata.name, vsphere_condition(node)));
            Ok(match left.len() {
                0 if all.len() == NODES => Wait::Done(()),
                count => Wait::NotYet(format!("{count} of {} are not: {first:?}", all.len())),
            })
        });
        waited.await.unwrap();
    }

    /// How often each Node was written so far.
    fn writes(&self) -> BTreeMap<String, usize> {
        let mut writes = BTreeMap::new();
        for request in self.plane.audit().unwrap() {
            let node = matches!(request.resource.as_str(), "nodes" | "nodes/status");
            if node && matches!(request.verb.as_str(), "patch" | "update") {
                *writes.entry(request.name).or_default() += 1;
            }
        }
        writes
    }

    /// The same, once nothing was written for a while: what an earlier state caused does not count for the next.
    async fn writes_when_quiet(&self) -> BTreeMap<String, usize> {
        let mut last = self.writes();
        let mut polls = tokio::time::interval(Duration::from_secs(3));
        polls.tick().await;
        for _ in 0..40 {
            polls.tick().await;
            let now = self.writes();
            if now == last {
                return now;
            }
            last = now;
        }
        panic!("Nodes are written all the time although nothing changes");
    }

    async fn begin(&mut self, outage: Outage) {
        let everything = |kind| HttpFault { path: "/".to_owned(), method: None, kind, count: 0 };
        match outage {
            Outage::Refused | Outage::Flapping => self.wire.cut().await,
            Outage::ChangedCertificate => self.wire.lead_to(address_of(&self.stranger)).await,
            Outage::Unavailable | Outage::AlternatingErrors => {
                let fault = everything(HttpFaultKind::Status { status: 503 });
                self.control().break_http(&fault).await.unwrap();
                self.wire.lead_to(address_of(&self.vcenter)).await;
            }
            Outage::Hanging => {
                self.control().break_http(&everything(HttpFaultKind::Hang)).await.unwrap();
                self.wire.lead_to(address_of(&self.vcenter)).await;
            }
            Outage::MissingDatacenter => self.control().rename("dc-2", "moved").await.unwrap(),
            // Tags are read after a datacenter, cluster or host changed, and then every few seconds until that works.
            Outage::UnreadableTags => {
                for path in
                    ["/rest/com/vmware/cis/tagging", "/api/cis/tagging", "/api/vcenter/tagging"]
                {
                    let kind = HttpFaultKind::Status { status: 500 };
                    let fault = HttpFault { path: path.to_owned(), method: None, kind, count: 0 };
                    self.control().break_http(&fault).await.unwrap();
                }
                self.control().rename("dc-2", "moved").await.unwrap();
            }
            Outage::ExpiringSessions => self.control().expire_sessions().await.unwrap(),
            Outage::WrongPassword => {
                self.password += 1;
                self.control().set_password(USER, &self.password()).await.unwrap();
                self.control().expire_sessions().await.unwrap();
            }
        }
    }

    /// How often vCenter was asked for something that only a manager that noticed the outage asks for.
    async fn signs(&self, outage: Outage) -> u64 {
        let (list, key, value) = match outage {
            Outage::ExpiringSessions => ("calls", "method", "Login"),
            // The watch starts again.
            Outage::MissingDatacenter => ("calls", "method", "CreatePropertyCollector"),
            _ => ("requests", "path", "tagging"),
        };
        let counts = self.control().calls().await.unwrap();
        let is_sign = |one: &&Value| one[key].as_str().is_some_and(|text| text.contains(value));
        let signs = counts[list].as_array().unwrap().iter().filter(is_sign);
        signs.filter_map(|one| one["count"].as_u64()).sum()
    }

    /// Waits for a sign that the manager noticed the outage.
    async fn until_noticed(&mut self, outage: Outage, signs_before: u64) {
        if outage.is_reported() {
            let unavailable = |node: &Node| vsphere_condition(node).0 == "VCenterUnavailable";
            self.all(&format!("{outage:?} is reported by all Nodes"), unavailable).await;
            return;
        }
        let mut polls = tokio::time::interval(Duration::from_millis(200));
        let noticing = async {
            loop {
                polls.tick().await;
                let noticed = match outage {
                    Outage::AlternatingErrors | Outage::Flapping => {
                        !self.program.printed("vCenter is unavailable").is_empty()
                    }
                    _ => self.signs(outage).await > signs_before,
                };
                if noticed {
                    return;
                }
            }
        };
        let noticed = tokio::time::timeout(BOUND, noticing).await;
        assert!(noticed.is_ok(), "the manager did not notice {outage:?}");
    }

    /// What goes on while an outage lasts.
    async fn disturb(&mut self, outage: Outage, beat: u32) {
        let control = self.control().clone();
        match outage {
            Outage::Flapping if beat.is_multiple_of(2) => {
                self.wire.lead_to(address_of(&self.vcenter)).await;
            }
            Outage::Flapping => self.wire.cut().await,
            Outage::AlternatingErrors => {
                control.disarm().await.unwrap();
                let kind = match beat % 4 {
                    0 => HttpFaultKind::Reset,
                    1 => HttpFaultKind::Status { status: 500 },
                    2 => HttpFaultKind::Truncate,
                    _ => {
                        let fault = Fault { count: 0, ..Fault::next("*", "SystemError") };
                        control.fail(&fault).await.unwrap();
                        return;
                    }
                };
                let fault = HttpFault { path: "/".to_owned(), method: None, kind, count: 0 };
                control.break_http(&fault).await.unwrap();
            }
            Outage::ExpiringSessions => control.expire_sessions().await.unwrap(),
            _ => {}
        }
    }

    async fn end(&mut self, outage: Outage) {
        self.control().disarm().await.unwrap();
        match outage {
            Outage::Refused | Outage::Flapping | Outage::ChangedCertificate | Outage::Hanging => {
                self.wire.lead_to(address_of(&self.vcenter)).await;
            }
            Outage::MissingDatacenter | Outage::UnreadableTags => {
                self.control().rename("moved", "dc-2").await.unwrap();
            }
            Outage::WrongPassword => self.write_secret().await,
            _ => {}
        }
    }

    /// Plays one outage. The error says how often Nodes were written when that was too often.
    async fn play(&mut self, outage: Outage) -> Result<(), String> {
        let before = self.writes_when_quiet().await;
        let signs = self.signs(outage).await;
        // What was printed about earlier outages is not a sign of this one.
        self.program.printed("");
        self.begin(outage).await;
        self.until_noticed(outage, signs).await;
        let mut beats = tokio::time::interval(Duration::from_secs(1));
        for beat in 0..BEATS {
            beats.tick().await;
            self.disturb(outage, beat).await;
        }
        self.end(outage).await;
        self.all(&format!("all Nodes are well after {outage:?}"), is_well).await;
        let after = self.writes_when_quiet().await;
        let of =
            |name: &String, count: &usize| count.saturating_sub(*before.get(name).unwrap_or(&0));
        let worst = after.iter().max_by_key(|(name, count)| of(name, count));
        let most = worst.map(|(name, count)| of(name, count)).unwrap_or_default();
        let all: usize = after.iter().map(|(name, count)| of(name, count)).sum();
        let allowed = outage.most_writes();
        // The log begins again when it is full, which it is after tens of thousands of requests.
        if after.values().sum::<usize>() < before.values().sum() {
            return Err(format!("{outage:?}: more requests than the audit log holds"));
        }
        if most > allowed || all > NODES * allowed {
            let lines = self.program.printed(worst.map_or("", |(name, _)| name));
            return Err(format!(
                "{outage:?}: up to {most} writes of a Node, {all} in all; {allowed} allowed:\n{lines}"
            ));
        }
        Ok(())
    }
}

fn is_well(node: &Node) -> bool {
    is_initialised(node) && matches!(vsphere_condition(node).0, "Synced" | "TopologyIncomplete")
}

async fn run(plane: &ControlPlane, vcenter: &VCenter, wire: &Wire) -> Program {
    let text = format!(
        "global:\n  port: {}\n  caFile: {}\n  secretName: vsphere\n  secretNamespace: kube-system\n\
         vcenter:\n  east:\n    server: 127.0.0.1\n    datacenters: [dc-1, dc-2]\n\
         labels: {{zone: k8s-zone, region: k8s-region}}\n",
        wire.port,
        vcenter.authority().display()
    );
    let path = plane.world().dir().join("vsphere.conf");
    std::fs::write(&path, text).unwrap();
    let kubeconfig = plane.kubeconfig_of("kube-system", "manager").await.unwrap();
    let config = format!("--cloud-config={}", path.display());
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let flags =
        [&config, &kubeconfig, "--secure-port=0", "--leader-elect=false", "--vcenter-patience=1s"];
    Program::start(MANAGER, &flags, &[])
}

async fn register(nodes: Api<Node>, name: String, uuid: String) {
    kubelet::register(&nodes, &name, &uuid, None).await.unwrap();
}

#[tokio::test]
async fn ten_kinds_of_outage_write_no_node_more_often_than_its_state_changes() {
    let mut storm = Storm::start().await;
    storm.all("all Nodes are initialised", is_well).await;
    let mut broken = Vec::new();
    for outage in Outage::ALL {
        broken.extend(storm.play(outage).await.err());
    }
    storm.program.stop();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
