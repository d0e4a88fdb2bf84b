//! A node: a real kubelet with real containers, in namespaces that look like a machine of its own.

mod config;

pub(crate) use config::API_PORT;

use std::{
    fs::{self, File},
    net::IpAddr,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::{
    control_plane::Files,
    disk::Disk,
    network::{Network, NodeNetwork, PODS},
    process::{Daemon, Place, run},
    wait::{Wait, until},
    world::World,
};

const INIT: &str = include_str!("node/init.sh");
/// Where a node sees the components.
const BIN: &str = "/opt/lab/bin";
const BOOT_WITHIN: Duration = Duration::from_secs(120);

/// Dropping it is a power failure: every process of the node is killed, its mounts and interfaces are gone.
#[derive(Debug)]
pub struct Node {
    name: String,
    uuid: String,
    network: NodeNetwork,
    daemons: Vec<Daemon>,
    // The first process of the node; it ends after the daemons.
    init: Daemon,
    dir: PathBuf,
    world: Arc<World>,
}

impl Node {
    /// Starts everything that needs no API: namespaces, root file system, containerd, images.
    pub(crate) async fn boot(
        world: &Arc<World>,
        network: &Network,
        name: &str,
        uuid: &str,
        number: u8,
        images: &[PathBuf],
    ) -> Result<Self> {
        let dir = world.dir().join(name);
        let address = NodeNetwork { number };
        config::prepare(&dir, world, uuid, address)?;
        let mut command = Place::Machine.command("unshare");
        command.args([
            "--net",
            "--pid",
            "--mount",
            "--uts",
            "--ipc",
            "--fork",
            "--kill-child",
            "--",
        ]);
        command.args(["bash", "-c", INIT, "init.sh", name]);
        command.args([dir.join("root"), dir.join("disks"), components::directory_of("kubelet")?]);
        let init = Daemon::spawn_forked(world, &format!("{name}/init"), command)?;
        let (name, uuid) = (name.to_owned(), uuid.to_owned());
        let mut node = Self {
            name,
            uuid,
            network: address,
            daemons: vec![],
            init,
            dir,
            world: Arc::clone(world),
        };
        node.wait_for_root().await?;
        network.connect(node.init.pid(), address)?;
        node.spawn("containerd", Path::new("/usr/bin/containerd"), &[])?;
        node.wait_for_containerd().await?;
        for image in images {
            node.import(image).await?;
        }
        Ok(node)
    }

    /// Writes the credentials of kubelet and kube-proxy, and starts the kubelet.
    pub(crate) fn start_kubelet(&mut self, files: &Files) -> Result<()> {
        config::enrol(&self.dir, &self.name, self.network, files)?;
        self.spawn_kubelet()
    }

    fn spawn_kubelet(&mut self) -> Result<()> {
        self.spawn(
            "kubelet",
            &Path::new(BIN).join("kubelet"),
            &[
                "--config=/etc/kubernetes/kubelet.yaml",
                "--kubeconfig=/etc/kubernetes/kubelet.conf",
                "--cloud-provider=external",
                &format!("--hostname-override={}", self.name),
                &format!("--node-ip={}", self.network.address()),
            ],
        )
    }

    pub(crate) fn start_proxy(&mut self) -> Result<()> {
        self.spawn(
            "kube-proxy",
            &Path::new(BIN).join("kube-proxy"),
            &[
                "--kubeconfig=/etc/kubernetes/kube-proxy.conf",
                // With Debian's nft the nftables mode forgets a Service when another one appears.
                "--proxy-mode=iptables",
                // The machine's connection-tracking limits are not the lab's to change.
                "--conntrack-max-per-core=0",
                &format!("--cluster-cidr={PODS}"),
                &format!("--hostname-override={}", self.name),
            ],
        )
    }

    /// Its name in Kubernetes.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The UUID its kubelet reports: that of the virtual machine it stands for.
    #[must_use]
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// Its address in the world's network.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.network.address()
    }

    /// The directory that is its `/dev/disk/by-id`.
    #[must_use]
    pub fn disks(&self) -> PathBuf {
        self.dir.join("disks")
    }

    /// Makes the disk appear in this node's `/dev/disk/by-id`, as hot-plugging does.
    ///
    /// # Errors
    /// When it is plugged in already.
    pub fn plug(&self, disk: &Disk) -> Result<()> {
        let link = self.disks().join(disk.link());
        symlink(disk.device(), &link)
            .with_context(|| format!("cannot plug {} into {}", disk.link(), self.name))
    }

    /// Takes the disk out again; what has it open keeps it until it closes it.
    ///
    /// # Errors
    /// When it is not plugged into this node.
    pub fn unplug(&self, disk: &Disk) -> Result<()> {
        let link = self.disks().join(disk.link());
        fs::remove_file(&link)
            .with_context(|| format!("cannot unplug {} from {}", disk.link(), self.name))
    }

    /// Runs a program on the node to its end and returns what it printed.
    ///
    /// # Errors
    /// When it cannot be started or fails; the message has its standard error.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        run(self.command(program).args(arguments))
    }

    /// Loads an image archive into the node's containerd.
    ///
    /// # Errors
    /// When containerd rejects it.
    pub async fn import(&self, archive: &Path) -> Result<()> {
        let mut command = tokio::process::Command::from(self.command("ctr"));
        let input =
            File::open(archive).with_context(|| format!("cannot read {}", archive.display()))?;
        command.args(["--namespace=k8s.io", "images", "import", "-"]).stdin(Stdio::from(input));
        let output = command.kill_on_drop(true).output().await.context("cannot run ctr")?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            bail!(
                "{}: containerd rejected the image {}: {}",
                self.name,
                archive.display(),
                error.trim()
            );
        }
        Ok(())
    }

    /// Stops its kubelet (SIGSTOP): to Kubernetes the node looks like a machine that was switched off. Its pods
    /// keep running.
    ///
    /// # Errors
    /// When the kubelet is gone.
    pub fn pause_kubelet(&self) -> Result<()> {
        self.kubelet()?.pause()
    }

    /// Continues the kubelet.
    ///
    /// # Errors
    /// When the kubelet is gone.
    pub fn resume_kubelet(&self) -> Result<()> {
        self.kubelet()?.resume()
    }

    /// Ends its kubelet at once (SIGKILL), or does nothing if it is ended. Pods and mounts stay.
    pub fn kill_kubelet(&mut self) {
        self.daemons.retain(|daemon| !is_kubelet(daemon));
    }

    /// Starts the kubelet again after it was killed.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn restart_kubelet(&mut self) -> Result<()> {
        self.kill_kubelet();
        self.spawn_kubelet()
    }

    fn kubelet(&self) -> Result<&Daemon> {
        let kubelet = self.daemons.iter().find(|daemon| is_kubelet(daemon));
        kubelet.with_context(|| format!("{} has no kubelet", self.name))
    }

    /// Fails when one of its processes has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.init.check()?;
        self.daemons.iter_mut().try_for_each(Daemon::check)
    }

    /// Kubelet, kube-proxy and containerd, for error messages.
    pub(crate) fn daemons(&mut self) -> impl Iterator<Item = &mut Daemon> {
        self.daemons.iter_mut()
    }

    fn command(&self, program: &str) -> Command {
        self.place().command(program)
    }

    fn place(&self) -> Place {
        Place::Node(self.init.pid())
    }

    fn spawn(&mut self, name: &str, program: &Path, arguments: &[&str]) -> Result<()> {
        let mut command = self.place().command(program);
        command.args(arguments);
        let daemon = Daemon::spawn_forked(&self.world, &format!("{}/{name}", self.name), command)?;
        // In front: daemons end from first to last, and later ones use earlier ones.
        self.daemons.insert(0, daemon);
        Ok(())
    }

    async fn wait_for_root(&mut self) -> Result<()> {
        let ready = format!("/proc/{}/root/run/lab-ready", self.init.pid());
        let what = format!("{} has its root file system", self.name);
        until(&what, BOOT_WITHIN, || {
            let alive = self.init.check();
            let seen = Path::new(&ready).exists();
            async move {
                alive?;
                Ok(if seen {
                    Wait::Done(())
                } else {
                    Wait::NotYet("its first process is still running init.sh".to_owned())
                })
            }
        })
        .await
    }

    async fn wait_for_containerd(&mut self) -> Result<()> {
        until(&format!("containerd on {} answers", self.name), BOOT_WITHIN, || {
            let alive = self.check();
            let answer = self.run("ctr", &["version"]);
            async move {
                alive?;
                Ok(match answer {
                    Ok(_) => Wait::Done(()),
                    Err(error) => Wait::NotYet(format!("{error:#}")),
                })
            }
        })
        .await
    }
}

fn is_kubelet(daemon: &Daemon) -> bool {
    daemon.name().ends_with("/kubelet")
}
