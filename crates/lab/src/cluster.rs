//! A whole cluster: control plane, network and nodes in one world.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use components::{Background, Progress, progress::Step};
use k8s_openapi::api::core::v1::{Node as NodeObject, ServiceAccount};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{
    control_plane::{ControlPlane, Files, Site},
    disk::Disk,
    forward::Forward,
    image,
    network::{CONTROL_PLANE, Network},
    node::{API_PORT, Node},
    preflight,
    process::explain,
    vcenter::{CONTROL_PORT, Hosting, Reach, VCenter, VCenterSpec},
    wait::{Wait, until},
    world::World,
};

const READY_WITHIN: Duration = Duration::from_secs(180);
/// Compiling Kubernetes on a slow machine.
const BUILT_WITHIN: Duration = Duration::from_secs(3600);
/// As many as have an address in the world's network.
const MOST_NODES: usize = 200;
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

impl Spec {
    /// The lab that `make lab` starts: the default one with its vCenter.
    #[must_use]
    pub fn with_vcenter() -> Self {
        Self { vcenter: Some(VCenterSpec::default()), ..Self::default() }
    }

    /// Rejects what would only show as a node that never becomes Ready.
    fn check(&self) -> Result<()> {
        if self.nodes.len() > MOST_NODES {
            bail!("a lab has at most {MOST_NODES} nodes, not {}", self.nodes.len());
        }
        for node in &self.nodes {
            let digits = node.uuid.replace('-', "");
            if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                bail!("{}: {:?} is not a valid UUID", node.name, node.uuid);
            }
        }
        Ok(())
    }

    /// How many steps [`Lab::start_in`] reports.
    #[must_use]
    pub fn steps(&self) -> usize {
        7 + usize::from(self.vcenter.is_some())
    }
}

/// What a lab consists of.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The nodes.
    pub nodes: Vec<NodeSpec>,
    /// Whether a cloud controller will initialise them.
    pub cloud_controller: CloudController,
    /// The vCenter whose virtual machines the nodes are, by name.
    pub vcenter: Option<VCenterSpec>,
    /// The images that every node has: the pause image, and any of the others in [`image`].
    pub images: &'static [&'static str],
}

/// A node and the virtual machine it stands for.
#[derive(Clone, Debug)]
pub struct NodeSpec {
    /// Its name in Kubernetes.
    pub name: String,
    /// The virtual machine's UUID, in the usual form with dashes.
    pub uuid: String,
}

/// Nodes start with the taint of nodes that no cloud controller has initialised yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloudController {
    /// None runs in this lab: the lab removes the taint, so that pods can be scheduled.
    Absent,
    /// One will be installed: the taint stays until it removes it.
    Expected,
}

impl Default for Spec {
    fn default() -> Self {
        let node = |number: u8| NodeSpec {
            name: format!("node-{number}"),
            uuid: format!("4230b1a0-5eed-4000-8000-00000000000{number}"),
        };
        Self {
            nodes: vec![node(1), node(2)],
            cloud_controller: CloudController::Absent,
            vcenter: None,
            images: &[image::PAUSE, image::BUSYBOX, image::AGNHOST],
        }
    }
}

/// A running cluster. Dropping it removes all of it.
pub struct Lab {
    nodes: Vec<Node>,
    vcenter: Option<VCenter>,
    // Ended in this order: what listens before what it leads to.
    forwards: Vec<Forward>,
    control_plane: ControlPlane,
    network: Network,
    world: Arc<World>,
}

impl Lab {
    /// Starts a lab in a world of its own, for a test.
    ///
    /// # Errors
    /// When the machine cannot run one (see [`preflight::check`]) or a part does not become ready.
    pub async fn start(spec: &Spec) -> Result<Self> {
        preflight::check()?;
        Self::start_in(World::claim()?, spec, &Progress::silent()).await
    }

    /// Starts a lab in this world. Ready means: every node is Ready in Kubernetes.
    ///
    /// # Errors
    /// As [`Lab::start`].
    pub async fn start_in(world: World, spec: &Spec, progress: &Progress) -> Result<Self> {
        Self::start_while_building(world, spec, &Background::none(), progress).await
    }

    /// As [`Lab::start_in`] while `building` still builds what is not in [`components::FIRST_NODE`]: each part
    /// starts when its program is there.
    ///
    /// # Errors
    /// As [`Lab::start`], and when the build fails.
    pub async fn start_while_building(
        world: World,
        spec: &Spec,
        building: &Background,
        progress: &Progress,
    ) -> Result<Self> {
        let world = Arc::new(world);
        spec.check()?;
        let step = progress.step("images");
        let images = write_images(&world, spec.images)?;
        step.done(&spec.images.join(", "));

        let step = progress.step("network");
        let network = Network::create(&world)?;
        network.forward_between_nodes()?;
        let inside = SocketAddr::from((CONTROL_PLANE, API_PORT));
        let outside = loopback(world.port(0));
        let forwards = vec![Forward::start(outside, network.namespace()?, inside)?];
        step.done(&format!("API at {outside}"));

        let site = Site { place: network.place(), listen: inside, from_machine: outside };
        let files = Files::create(&world, &site)?;
        let (control_plane, nodes) = tokio::try_join!(
            ControlPlane::start_at(Arc::clone(&world), &site, &files, progress),
            boot_nodes(&world, &network, spec, &images, progress),
        )?;
        let mut lab = Self { nodes, vcenter: None, forwards, control_plane, network, world };
        let step = progress.step("kubelets");
        for node in &mut lab.nodes {
            node.start_kubelet(&files)?;
        }
        step.done("started");
        let (client, ready) = (lab.client(), progress.step("first node Ready"));
        tokio::try_join!(
            first_ready(client, spec, ready),
            lab.start_rest(spec, &site, &files, building, progress),
        )?;
        let step = progress.step("nodes Ready");
        lab.wait_for_nodes(spec, &step).await?;
        step.done(&lab.nodes.iter().map(Node::name).collect::<Vec<_>>().join(", "));
        Ok(lab)
    }

    /// Starts everything that a node does not need to become Ready.
    async fn start_rest(
        &mut self,
        spec: &Spec,
        site: &Site,
        files: &Files,
        building: &Background,
        progress: &Progress,
    ) -> Result<()> {
        built(building, &["kube-controller-manager", "kube-scheduler"]).await?;
        self.control_plane.start_controllers(site, files)?;
        built(building, &["kube-proxy"]).await?;
        for node in &mut self.nodes {
            node.start_proxy()?;
        }
        let Some(wanted) = &spec.vcenter else { return Ok(()) };
        built(building, &["vcenter"]).await?;
        let step = progress.step("vCenter simulator");
        let (started, ways) =
            start_vcenter(&self.world, &self.network, files, &self.nodes, wanted).await?;
        step.done(started.url());
        self.vcenter = Some(started);
        self.forwards.extend(ways);
        Ok(())
    }

    /// A client with all rights.
    #[must_use]
    pub fn client(&self) -> Client {
        self.control_plane.client()
    }

    /// The cluster's API.
    #[must_use]
    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// The vCenter, when the spec has one.
    #[must_use]
    pub fn vcenter(&self) -> Option<&VCenter> {
        self.vcenter.as_ref()
    }

    /// The nodes, in the order of the spec.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A node, to be changed.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn node_mut(&mut self, name: &str) -> Result<&mut Node> {
        let node = self.nodes.iter_mut().find(|node| node.name() == name);
        node.with_context(|| format!("this lab has no node {name}"))
    }

    /// A node's power fails: its processes, pods among them, and its mounts are gone at once. To vCenter its machine still
    /// runs.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn cut_power(&mut self, name: &str) -> Result<()> {
        self.node_mut(name)?;
        self.nodes.retain(|node| node.name() != name);
        Ok(())
    }

    /// Makes a disk that can be plugged into the nodes; `id` is its UUID as 32 hexadecimal digits.
    ///
    /// # Errors
    /// When the id is taken or no loop device is to be had.
    pub fn disk(&self, id: &str, bytes: u64) -> Result<Disk> {
        if id.len() != 32 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            bail!("{id:?} is not a valid disk id: it must have 32 hexadecimal digits");
        }
        Disk::create(&self.world, id, bytes)
    }

    /// Fails when one of the lab's processes has ended, with the end of its log.
    ///
    /// # Errors
    /// Then.
    pub fn check(&mut self) -> Result<()> {
        self.control_plane.check()?;
        self.vcenter.iter_mut().try_for_each(VCenter::check)?;
        self.nodes.iter_mut().try_for_each(Node::check)
    }

    async fn wait_for_nodes(&mut self, spec: &Spec, step: &Step<'_>) -> Result<()> {
        let api: Api<NodeObject> = Api::all(self.client());
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), "default");
        let waited = until("all nodes are Ready", READY_WITHIN, || {
            let alive = self.check();
            let (api, accounts) = (api.clone(), accounts.clone());
            async move {
                alive?;
                let mut waiting = Vec::new();
                for node in &spec.nodes {
                    if let Some(reason) = not_ready(&api, &node.name, spec.cloud_controller).await?
                    {
                        waiting.push(format!("{}: {reason}", node.name));
                    }
                }
                // Made by the controllers a moment after they start; without it no pod is admitted.
                if accounts.get_opt("default").await?.is_none() {
                    waiting.push("the namespace default has no service account".to_owned());
                }
                let seen = waiting.join("; ");
                step.note(&seen);
                Ok(if seen.is_empty() { Wait::Done(()) } else { Wait::NotYet(seen) })
            }
        });
        let waited = waited.await;
        explain(waited, self.nodes.iter_mut().flat_map(Node::daemons))
    }
}

/// Waits until these programs are in the cache.
async fn built(building: &Background, programs: &[&str]) -> Result<()> {
    until(&format!("{} is built", programs.join(", ")), BUILT_WITHIN, || async {
        for program in programs {
            if !building.has(program)? {
                return Ok(Wait::NotYet(format!("{program} is being built")));
            }
        }
        Ok(Wait::Done(()))
    })
    .await
}

async fn first_ready(client: Client, spec: &Spec, step: Step<'_>) -> Result<()> {
    if spec.nodes.is_empty() {
        return Ok(());
    }
    let api: Api<NodeObject> = Api::all(client);
    let name = until("a node is Ready", READY_WITHIN, || async {
        let mut waiting = Vec::new();
        for NodeSpec { name, .. } in &spec.nodes {
            match api.get_opt(name).await?.map(unready) {
                Some(None) => return Ok(Wait::Done(name.clone())),
                Some(Some(reason)) => waiting.push(format!("{name}: {reason}")),
                None => waiting.push(format!("{name}: not registered")),
            }
        }
        step.note(&waiting.join("; "));
        Ok(Wait::NotYet(waiting.join("; ")))
    })
    .await?;
    step.done(&name);
    Ok(())
}

fn write_images(world: &World, names: &[&str]) -> Result<Vec<PathBuf>> {
    let mut archives = Vec::new();
    for (number, image) in image::standard(names)?.iter().enumerate() {
        let archive = world.dir().join(format!("image-{number}.tar"));
        image.write(&archive)?;
        archives.push(archive);
    }
    Ok(archives)
}

/// The simulator runs where the control plane does; the machine reaches it by two forwarded ports.
async fn start_vcenter(
    world: &Arc<World>,
    network: &Network,
    files: &Files,
    nodes: &[Node],
    spec: &VCenterSpec,
) -> Result<(VCenter, [Forward; 2])> {
    let listen = SocketAddr::from((CONTROL_PLANE, 443));
    let control = loopback(8440);
    let reach = Reach { sdk: loopback(world.port(1)), control: loopback(world.port(CONTROL_PORT)) };
    let disks: Vec<_> = nodes.iter().map(|node| (node.name().to_owned(), node.disks())).collect();
    let hosting = Hosting {
        place: network.place(),
        listen,
        control,
        from_machine: Some(reach),
        nodes: &disks,
    };
    let vcenter =
        VCenter::start_at(Arc::clone(world), "vcenter", &hosting, &files.authority, spec).await?;
    let forwards = [
        Forward::start(reach.sdk, network.namespace()?, listen)?,
        Forward::start(reach.control, network.namespace()?, control)?,
    ];
    Ok((vcenter, forwards))
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

async fn boot_nodes(
    world: &Arc<World>,
    network: &Network,
    spec: &Spec,
    images: &[PathBuf],
    progress: &Progress,
) -> Result<Vec<Node>> {
    let step = progress.step("containerd");
    let mut nodes = Vec::new();
    for (number, node) in (1..).zip(&spec.nodes) {
        nodes.push(Node::boot(world, network, &node.name, &node.uuid, number, images).await?);
    }
    step.done("runs on every node, images loaded");
    Ok(nodes)
}

/// Why the node is not Ready; `None` when it is. Removes the uninitialized taint where no cloud controller will.
async fn not_ready(
    api: &Api<NodeObject>,
    name: &str,
    cloud: CloudController,
) -> Result<Option<String>> {
    let Some(node) = api.get_opt(name).await? else { return Ok(Some("not registered".to_owned())) };
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    if cloud == CloudController::Absent && taints.iter().any(|taint| taint.key == UNINITIALIZED) {
        let rest: Vec<_> = taints.iter().filter(|taint| taint.key != UNINITIALIZED).collect();
        let patch = json!({"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": rest}});
        // A conflict with somebody else's change is resolved by the next attempt.
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.ok();
        return Ok(Some("has the taint of an uninitialized node".to_owned()));
    }
    Ok(unready(node))
}

/// Why the node is not Ready, by its conditions.
fn unready(node: NodeObject) -> Option<String> {
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    match conditions.into_iter().find(|condition| condition.type_ == "Ready") {
        Some(ready) if ready.status == "True" => None,
        Some(ready) => Some(ready.message.unwrap_or(ready.status)),
        None => Some("has no Ready condition".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(uuid: &str) -> Spec {
        let node = NodeSpec { name: "node-1".to_owned(), uuid: uuid.to_owned() };
        Spec { nodes: vec![node], ..Spec::default() }
    }

    #[test]
    fn an_invalid_uuid_is_reported_with_its_node() {
        Spec::default().check().unwrap();
        spec("4230b1a05eed40008000000000000001").check().unwrap();
        let error = spec("4230b1a0-5eed").check().unwrap_err();
        assert_eq!(error.to_string(), "node-1: \"4230b1a0-5eed\" is not a valid UUID");
    }
}
