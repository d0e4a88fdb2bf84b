//! A vCenter for tests: our simulator (`lab/vcenter`) as a process, and the rope to pull faults with.
//!
//! [`VCenter::start`] needs no root: it serves on loopback. In a lab with nodes the same program is also
//! the hypervisor: a disk that is attached to a node's VM appears in that node's `/dev/disk/by-id`.

mod control;
mod guest;
mod latency;

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
pub(crate) use control::CONTROL_PORT;
pub use control::{
    Assumption, CloneSpec, Control, FailedLogin, Fault, HttpFault, HttpFaultKind, Moment, Objects,
    Power, State,
};
pub use guest::{GuestInterface, GuestReport};
pub use latency::Latency;
use serde::Deserialize;

use crate::{
    components,
    pki::Authority,
    process::{Daemon, Place, run},
    wait::{Wait, until},
    world::World,
};

/// Ten thousand virtual machines take a while.
const READY_WITHIN: Duration = Duration::from_secs(300);

/// The administrator of the default world.
pub const ADMINISTRATOR: (&str, &str) = ("administrator@vsphere.local", "Lab-admin-1!");

/// Which vCenter to start.
#[derive(Clone, Debug, Default)]
pub struct VCenterSpec {
    /// What it holds.
    pub description: Description,
    /// Further virtual machines, made up.
    pub generated_vms: u32,
    /// Who vouches for its certificate.
    pub certificate: Certificate,
    /// How long it takes; what the description says when `None`.
    pub latency: Option<Latency>,
    /// Names of VMs whose attached disks are block devices, in [`VCenter::disks_of`]; needs root. Only for
    /// [`VCenter::start`]: in a lab the nodes have them.
    pub guests: Vec<String>,
}

/// Where a vCenter's inventory is described; `lab/vcenter/README.md` has the format.
#[derive(Clone, Debug, Default)]
pub enum Description {
    /// Two datacenters, two zones, the two nodes of the default lab.
    #[default]
    Default,
    /// A description written in the test.
    Text(String),
    /// A description in a file.
    File(PathBuf),
}

/// Who signs a vCenter's certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Certificate {
    /// The world's authority, see [`VCenter::authority`].
    #[default]
    Authority,
    /// Nobody: it is pinned by its thumbprint.
    SelfSigned,
}

/// A running vCenter. Dropping it ends it.
#[derive(Debug)]
pub struct VCenter {
    url: String,
    served: Served,
    authority: PathBuf,
    control: Control,
    daemon: Daemon,
    world: Arc<World>,
}

#[derive(Clone, Debug, Deserialize)]
struct Served {
    name: String,
    url: String,
    url_ipv6: Option<String>,
    thumbprint_sha1: String,
    thumbprint_sha256: String,
    control: String,
    latency: Latency,
}

#[derive(Deserialize)]
struct Ready {
    vcenters: Vec<Served>,
}

/// Where a vCenter of a lab runs.
pub(crate) struct Hosting<'a> {
    pub(crate) place: Place,
    /// Where it listens, and where its control endpoint does, seen from there.
    pub(crate) listen: SocketAddr,
    pub(crate) control: SocketAddr,
    /// How the machine reaches both, when it does so by other addresses.
    pub(crate) from_machine: Option<Reach>,
    /// Names of nodes, which are also their VMs', and their disk directories.
    pub(crate) nodes: &'a [(String, PathBuf)],
}

/// Addresses on the machine that lead to a vCenter.
#[derive(Clone, Copy)]
pub(crate) struct Reach {
    pub(crate) sdk: SocketAddr,
    pub(crate) control: SocketAddr,
}

impl VCenter {
    /// Starts a vCenter of its own for one test, on loopback; needs no root unless there are guests.
    ///
    /// # Errors
    /// When the simulator is not built, or the description is wrong: then with file, line and field.
    pub async fn start(spec: &VCenterSpec) -> Result<Self> {
        let world = Arc::new(World::claim()?);
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        let authority = Authority::create(&world.dir().join("pki"), "ca")?;
        let mut guests = Vec::new();
        for guest in &spec.guests {
            let disks = disks_of(&world, guest);
            fs::create_dir_all(&disks)?;
            guests.push((guest.clone(), disks));
        }
        let hosting = Hosting {
            place: Place::Machine,
            listen: free,
            control: free,
            from_machine: None,
            nodes: &guests,
        };
        Self::start_at(world, "vcenter", &hosting, &authority, spec).await
    }

    pub(crate) async fn start_at(
        world: Arc<World>,
        name: &str,
        hosting: &Hosting<'_>,
        authority: &Authority,
        spec: &VCenterSpec,
    ) -> Result<Self> {
        let authority = authority.own();
        let home = world.dir().join(name);
        fs::create_dir_all(&home)?;
        let mut command = hosting.place.command(components::binary("vcenter")?);
        command
            .current_dir(&home)
            .arg("-home")
            .arg(&home)
            .arg("-world")
            .arg(description(&home, &spec.description)?);
        command.args([
            "-listen",
            &hosting.listen.to_string(),
            "-control",
            &hosting.control.to_string(),
        ]);
        command.args(["-generate", &spec.generated_vms.to_string()]);
        command.args(["-name", &hosting.listen.ip().to_string()]);
        if let Some(latency) = spec.latency {
            command.args(["-latency", latency.name()]);
        }
        if spec.certificate == Certificate::Authority {
            command.arg("-ca").arg(&authority.certificate).arg("-ca-key").arg(&authority.key);
        }
        for (node, disks) in hosting.nodes {
            command.arg("-node").arg(format!("{node}={}", disks.display()));
        }
        let mut daemon = Daemon::spawn(&world, name, command)?;
        let served = ready(&mut daemon).await?;
        let (url, control) = match hosting.from_machine {
            Some(reach) => (format!("https://{}/sdk", reach.sdk), reach.control),
            None => (served.url.clone(), parse_address(&served.control)?),
        };
        let authority = authority.certificate;
        Ok(Self { url, served, authority, control: Control::new(control), daemon, world })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.served.name
    }

    /// The address of its SDK on this machine, such as `https://127.0.0.1:40001/sdk`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The address of its SDK for the pods of its lab.
    #[must_use]
    pub fn url_for_pods(&self) -> &str {
        &self.served.url
    }

    /// The same over IPv6, where the machine has it.
    #[must_use]
    pub fn url_ipv6(&self) -> Option<&str> {
        self.served.url_ipv6.as_deref()
    }

    /// The certificate of the authority that signed its own.
    #[must_use]
    pub fn authority(&self) -> &Path {
        &self.authority
    }

    /// The SHA-1 of its certificate, as `AA:BB:…`.
    #[must_use]
    pub fn thumbprint_sha1(&self) -> &str {
        &self.served.thumbprint_sha1
    }

    /// The SHA-256 of its certificate, as `AA:BB:…`.
    #[must_use]
    pub fn thumbprint_sha256(&self) -> &str {
        &self.served.thumbprint_sha256
    }

    /// How long calls and tasks took when it started.
    #[must_use]
    pub fn latency(&self) -> Latency {
        self.served.latency
    }

    /// Runs govmomi's client for volumes (`cnsctl`) as the administrator, trusting the authority only,
    /// and returns what it printed.
    ///
    /// # Errors
    /// When the client fails; the message has what it said.
    pub fn cnsctl(&self, arguments: &[&str]) -> Result<String> {
        let (user, password) = ADMINISTRATOR;
        let mut command = Command::new(components::binary("cnsctl")?);
        command.env("CNSCTL_PASSWORD", password).args(["-url", &self.url, "-user", user, "-ca"]);
        Ok(run(command.arg(&self.authority).args(arguments))?.trim().to_owned())
    }

    /// The directory that a guest sees as its `/dev/disk/by-id`.
    #[must_use]
    pub fn disks_of(&self, guest: &str) -> PathBuf {
        disks_of(&self.world, guest)
    }

    /// Faults and changes on request, counters and state.
    #[must_use]
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Fails when its process has ended, with the end of its log.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.daemon.check()
    }

    /// Resident memory of its process, in bytes.
    #[must_use]
    pub fn resident_bytes(&self) -> Option<u64> {
        self.daemon.resident_bytes()
    }
}

fn disks_of(world: &World, guest: &str) -> PathBuf {
    world.dir().join("guests").join(guest)
}

fn description(home: &Path, description: &Description) -> Result<PathBuf> {
    match description {
        Description::Default => Ok(PathBuf::from("default")),
        Description::File(path) => Ok(path.clone()),
        Description::Text(text) => {
            let path = home.join("world.yaml");
            fs::write(&path, text)?;
            Ok(path)
        }
    }
}

/// Waits for the line by which the simulator says that it is ready.
async fn ready(daemon: &mut Daemon) -> Result<Served> {
    let line = until("the simulator is ready", READY_WITHIN, || {
        let alive = daemon.check();
        let output = daemon.output();
        async move {
            alive?;
            let output = output?;
            let line = output.lines().find(|line| line.starts_with(r#"{"vcenters""#));
            Ok(line
                .map_or_else(|| Wait::NotYet(output.clone()), |line| Wait::Done(line.to_owned())))
        }
    })
    .await?;
    let ready: Ready =
        serde_json::from_str(&line).with_context(|| format!("the simulator said {line:?}"))?;
    ready.vcenters.into_iter().next().context("the simulator serves no vCenter")
}

fn parse_address(url: &str) -> Result<SocketAddr> {
    url.trim_start_matches("http://")
        .parse()
        .with_context(|| format!("{url} is no control endpoint"))
}
