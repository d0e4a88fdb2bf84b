//! A world's network: one namespace with a bridge, the control plane's address on it, nodes around it.
//!
//! It has no way to the machine's own network, so worlds share addresses without meeting each other
//! and a pod cannot reach anything outside. From the machine it is reached through [`crate::forward`].

use std::{
    fs::File,
    net::{IpAddr, Ipv4Addr},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::{
    process::{Daemon, Place, run},
    world::World,
};

/// The control plane's address in every world.
pub(crate) const CONTROL_PLANE: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// The first address of Services: the API itself.
pub(crate) const API_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
pub(crate) const SERVICES: &str = "10.96.0.0/16";
pub(crate) const PODS: &str = "10.244.0.0/16";

/// The addresses of the nth node, counted from 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeNetwork {
    pub(crate) number: u8,
}

impl NodeNetwork {
    pub(crate) fn address(self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 99, 0, 10 + self.number))
    }

    pub(crate) fn pods(self) -> String {
        format!("10.244.{}.0/24", self.number)
    }
}

/// Dropping it removes the namespace with all that is in it.
#[derive(Debug)]
pub(crate) struct Network {
    // Does nothing but keep the namespace alive.
    holder: Daemon,
}

impl Network {
    pub(crate) fn create(world: &World) -> Result<Self> {
        let mut command = Place::Machine.command("unshare");
        // The interfaces are made by the holder itself: when it sleeps, they are there.
        command.args(["--net", "--", "sh", "-ec"]).arg(format!(
            "ip link set lo up
             ip link add nodes type bridge
             ip address add {CONTROL_PLANE}/24 dev nodes
             ip link set nodes up
             exec sleep infinity"
        ));
        let mut network = Self { holder: Daemon::spawn(world, "network", command)? };
        network.wait_for_bridge()?;
        Ok(network)
    }

    fn wait_for_bridge(&mut self) -> Result<()> {
        let name = format!("/proc/{}/comm", self.holder.pid());
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(60) {
            self.holder.check()?;
            if std::fs::read_to_string(&name).is_ok_and(|comm| comm.trim() == "sleep") {
                return Ok(());
            }
            std::thread::yield_now();
        }
        bail!("the lab's bridge was not there within a minute")
    }

    /// Where the control plane's processes run.
    pub(crate) fn place(&self) -> Place {
        Place::Network(self.holder.pid())
    }

    /// The namespace, for [`crate::forward`].
    pub(crate) fn namespace(&self) -> Result<File> {
        let path = format!("/proc/{}/ns/net", self.holder.pid());
        File::open(&path).with_context(|| format!("cannot open {path}"))
    }

    /// Wires a node, given by its first process, to the bridge and its pods into everybody's routes.
    pub(crate) fn connect(&self, node: u32, at: NodeNetwork) -> Result<()> {
        let (number, address) = (at.number, at.address());
        self.ip(&format!("link add n{number} type veth peer name eth0 netns {node}"))?;
        self.ip(&format!("link set n{number} master nodes up"))?;
        self.ip(&format!("route add {} via {address}", at.pods()))?;
        let inside = |arguments: &str| ip(Place::Network(node), arguments);
        inside(&format!("address add {address}/24 dev eth0"))?;
        inside("link set eth0 up")?;
        // The bridge's own stack forwards to the other nodes' pods.
        inside(&format!("route add default via {CONTROL_PLANE}"))
    }

    /// Lets the bridge's stack forward packets between the pods of different nodes.
    pub(crate) fn forward_between_nodes(&self) -> Result<()> {
        run(self.place().command("sysctl").args(["-qw", "net.ipv4.ip_forward=1"])).map(drop)
    }

    fn ip(&self, arguments: &str) -> Result<()> {
        ip(self.place(), arguments)
    }
}

fn ip(place: Place, arguments: &str) -> Result<()> {
    let mut command: Command = place.command("ip");
    run(command.args(arguments.split(' '))).map(drop)
}
