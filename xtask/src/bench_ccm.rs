//! `cargo xtask bench ccm`: our cloud controller manager beside others, each on a fresh world of the same shape.
//!
//! A world is an API server, a vCenter simulator with as many VMs as there are Nodes, and the Nodes as kubelets
//! register them. One program at a time has the machine. Everything is read from outside: Nodes by a watch of
//! our own, memory and CPU from /proc, requests from the counters of the two servers. [`world`] explains how the
//! program's requests at Kubernetes are distinguished from our own.

mod churn;
mod program;
mod report;
mod world;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use lab::vcenter::Latency;

use self::{
    program::Program,
    world::{Watching, World},
};
use crate::{
    measured::{Started, release_build},
    output::print_error,
};

/// The name in a run of our program.
const OURS: &str = "vsphere-drivers";
/// How many Nodes there are when nothing else is wanted.
const NODES: usize = 500;
/// The slowest peer that is waited for.
const INITIALISED_WITHIN: Duration = Duration::from_secs(3600);
/// Between the last Node and the idle minutes: events and addresses are still written.
const SETTLED_AFTER: Duration = Duration::from_secs(20);
/// Guests that change their address one after the other, and how long ours and a peer may take.
const CHANGES: usize = 5;
const OURS_CHANGES_WITHIN: Duration = Duration::from_secs(60);
const PEER_CHANGES_WITHIN: Duration = Duration::from_secs(360);

#[derive(clap::Args)]
pub(crate) struct BenchCcm {
    /// How many Nodes there are; 500, or 5000 with --churn
    #[arg(long)]
    nodes: Option<usize>,
    /// Measure our program while VMs change all the time, beside the same time idle
    #[arg(long)]
    churn: bool,
    /// How many VMs there are with --churn, Nodes included; 10000
    #[arg(long, requires = "churn")]
    vms: Option<usize>,
    /// How many VMs change in a second
    #[arg(long, default_value_t = 50, requires = "churn")]
    rate: u32,
    /// How long VMs change
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "churn")]
    churn_seconds: u64,
    /// A build of our program to measure instead of a new one, such as that of an older commit
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Another cloud controller manager to measure in the same run; repeat it for several. It must know
    /// upstream's flags
    #[arg(long, value_name = "PATH")]
    peer: Vec<PathBuf>,
    /// Measure each peer once more with these flags, such as "--kube-api-qps=1000 --kube-api-burst=1000
    /// --concurrent-node-syncs=10"
    #[arg(long, value_name = "FLAGS", allow_hyphen_values = true)]
    peer_flags: Vec<String>,
    /// How many seconds requests of an idle program are counted. In ten minutes ours does all that it does
    /// now and then, such as reading tags
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    idle: u64,
    /// How long vCenter's calls and tasks take: none, fast-lab, idle or loaded. Bounds hold for none
    #[arg(long, value_name = "PROFILE", default_value_t)]
    latency: Latency,
    /// Also wait until a peer has noticed a changed address, at most six minutes
    #[arg(long)]
    peer_address: bool,
}

/// What one program did in one world.
struct Run {
    program: String,
    /// Whether it is a peer with flags of its own.
    tuned: bool,
    ours: bool,
    latency: Latency,
    nodes: usize,
    binary_mb: f64,
    seconds_to_first: f64,
    seconds_to_all: f64,
    peak_rss_mb: f64,
    anon_rss_mb: f64,
    cpu_seconds: f64,
    vcenter_requests: u64,
    kubernetes_requests: u64,
    vcenter_requests_per_minute_idle: f64,
    address_change_seconds: Option<f64>,
}

pub(crate) async fn run(arguments: &BenchCcm) -> Result<()> {
    let ours = match &arguments.program {
        Some(path) => path.canonicalize().with_context(|| format!("no {}", path.display()))?,
        None => {
            print_error("building our program");
            release_build(&["-p", OURS, "--bin", OURS], OURS)?
        }
    };
    let mut programs = vec![Program { path: ours, flags: Vec::new(), ours: true }];
    if arguments.churn {
        return churn::run(&programs[0], arguments).await;
    }
    for peer in &arguments.peer {
        programs.push(Program::peer(peer, "")?);
        for flags in &arguments.peer_flags {
            programs.push(Program::peer(peer, flags)?);
        }
    }
    let mut runs = Vec::new();
    for program in &programs {
        print_error(&format!("{}: a world with {} nodes", program.name(), nodes(arguments)));
        let run = measure(program, arguments).await;
        runs.push(run.with_context(|| program.name())?);
    }
    report::report(&runs)
}

fn nodes(arguments: &BenchCcm) -> usize {
    arguments.nodes.unwrap_or(NODES)
}

async fn measure(program: &Program, arguments: &BenchCcm) -> Result<Run> {
    let nodes = nodes(arguments);
    let world = World::start(nodes, nodes, arguments.latency).await?;
    let mut watching = world.watch().await?;
    let before = world.vcenter_requests().await?;
    let mut started = program.start(&world)?;
    let (first, all) = initialised(&mut watching, &mut started, nodes).await?;
    let usage = started.usage()?;
    let vcenter_requests = world.vcenter_requests().await? - before;
    let kubernetes_requests = world.kubernetes_requests().await?;
    print_error(&format!("all Nodes after {:.1} s; now idle", all.as_secs_f64()));
    tokio::time::sleep(SETTLED_AFTER).await;
    let idle_from = (Instant::now(), world.vcenter_requests().await?);
    tokio::time::sleep(Duration::from_secs(arguments.idle)).await;
    let idle = (world.vcenter_requests().await? - idle_from.1) as f64;
    let minutes = idle_from.0.elapsed().as_secs_f64() / 60.0;
    let (changes, bound) = match program.ours {
        true => (CHANGES, OURS_CHANGES_WITHIN),
        false => (usize::from(arguments.peer_address), PEER_CHANGES_WITHIN),
    };
    let mut seconds = Vec::new();
    for index in 0..changes.min(nodes) {
        seconds.push(address_change(&world, &mut watching, index, bound).await?);
    }
    seconds.sort_by(f64::total_cmp);
    started.alive()?;
    Ok(Run {
        program: program.name(),
        tuned: !program.flags.is_empty(),
        ours: program.ours,
        latency: world.vcenter.latency(),
        nodes,
        binary_mb: std::fs::metadata(&program.path)?.len() as f64 / 1e6,
        seconds_to_first: first.as_secs_f64(),
        seconds_to_all: all.as_secs_f64(),
        peak_rss_mb: usage.peak_rss_mb,
        anon_rss_mb: usage.anon_rss_mb,
        cpu_seconds: usage.cpu_seconds,
        vcenter_requests,
        kubernetes_requests,
        vcenter_requests_per_minute_idle: idle / minutes,
        address_change_seconds: seconds.get(seconds.len() / 2).copied(),
    })
}

/// How long it took from the start of the program until the first and until all Nodes were initialised.
async fn initialised(
    watching: &mut Watching,
    started: &mut Started,
    nodes: usize,
) -> Result<(Duration, Duration)> {
    let mut first = None;
    while watching.initialised() < nodes {
        let looked = tokio::time::timeout(Duration::from_secs(1), watching.next()).await;
        let taken = started.at.elapsed();
        if let Ok(looked) = looked {
            looked?;
        } else {
            started.alive()?;
        }
        if first.is_none() && watching.initialised() > 0 {
            first = Some(taken);
        }
        if taken > INITIALISED_WITHIN {
            bail!("{} of {nodes} Nodes are initialised after an hour", watching.initialised());
        }
    }
    let all = started.at.elapsed();
    Ok((first.unwrap_or(all), all))
}

/// How long it takes until a Node has the new address of its guest.
async fn address_change(
    world: &World,
    watching: &mut Watching,
    index: usize,
    bound: Duration,
) -> Result<f64> {
    let (node, address) = (world::node_name(index), world::later_address(index));
    world.vcenter.control().readdress(&node, &[&format!("{address}/8")]).await?;
    let changed = Instant::now();
    let arrived = async {
        while !watching.has_address(&node, &address) {
            watching.next().await?;
        }
        anyhow::Ok(changed.elapsed().as_secs_f64())
    };
    let arrived = tokio::time::timeout(bound, arrived).await;
    arrived.with_context(|| format!("{node} has not got {address} within {} s", bound.as_secs()))?
}
