//! `cargo xtask bench csi`: our CSI driver beside others, each on fresh worlds of the same shape.
//!
//! A world is an API server, a vCenter simulator and the objects that two nodes have registered. One program at a
//! time has the machine. Calls come from a process of their own ([`caller`]); memory and CPU are read from /proc, and
//! requests from vCenter's counters.

mod caller;
mod report;
mod world;

use std::{collections::BTreeMap, fmt, path::PathBuf, process::Command, time::Duration};

use anyhow::{Context, Result};
use lab::vcenter::Latency;
use serde::Serialize;

use self::{
    caller::{Caller, Times},
    world::{NODES, Program, Requests, USER, World},
};
use crate::{
    measured::{Started, memory_mb, release_build},
    output::print_error,
};

const OURS: &str = "vsphere-drivers";
/// The release on which volumes are made and deleted.
const VOLUMES: Site = Site { release: "8.0U3", batch_time: None };
/// Where volumes are attached: 9.1 takes several in one call, and nobody knows how long that takes.
const ATTACHING: [Site; 3] = [
    Site { release: "9.1", batch_time: Some("one") },
    Site { release: "9.1", batch_time: Some("sum") },
    Site { release: "8.0U3", batch_time: None },
];
/// What vCenter is in one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
struct Site {
    release: &'static str,
    /// The simulator's assumption `BatchTime`: whether several volumes in one call take the time of `one` of them, or
    /// the `sum`. Nothing where calls take one volume.
    batch_time: Option<&'static str>,
}

/// Calls one after the other, and callers at once.
const SINGLE: usize = 200;
const CALLERS: usize = 50;
/// Volumes that are attached to one VM.
const ATTACHED: usize = 40;
/// Volumes that are made by many callers where vCenter takes its time.
const UNHURRIED: usize = 200;
/// Between the last call and a look at the memory of an idle program.
const SETTLED_AFTER: Duration = Duration::from_secs(10);

#[derive(clap::Args)]
pub(crate) struct BenchCsi {
    /// A build of our program to measure instead of a new one, such as that of an older commit
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Another CSI driver to measure in the same run; repeat it for several. It must know upstream's environment
    #[arg(long, value_name = "PATH")]
    peer: Vec<PathBuf>,
    /// How long vCenter's calls and tasks take where volumes are made: none, fast-lab, idle or loaded. Bounds hold for
    /// none; creates beside raw calls are then measured under fast-lab, too
    #[arg(long, value_name = "PROFILE", default_value_t)]
    latency: Latency,
    /// How long they take where volumes are attached. Bounds hold for loaded
    #[arg(long, value_name = "PROFILE", default_value_t = Latency::Loaded)]
    attach_latency: Latency,
    /// How many volumes are made by fifty callers, and then known to the idle controller
    #[arg(long, default_value_t = 1000)]
    volumes: usize,
    /// Leave out attaching, which takes minutes
    #[arg(long)]
    no_attach: bool,
}

/// What one kind of call cost.
#[derive(Serialize)]
struct Run {
    program: String,
    operation: String,
    #[serde(flatten)]
    site: Site,
    callers: usize,
    count: usize,
    p50_ms: f64,
    p95_ms: f64,
    per_second: f64,
    /// From the first call to the last answer.
    seconds: f64,
    /// All of them.
    vcenter_requests_per_op: f64,
    /// Those among them that wait for changes: how often vCenter answered one.
    vcenter_long_polls_per_op: f64,
    /// Nothing where it is not a driver that calls.
    cpu_ms_per_op: Option<f64>,
    peak_rss_mb: Option<f64>,
    latency_profile: Latency,
    vcenter_calls_per_op: BTreeMap<String, f64>,
    repeated: u64,
}

impl Run {
    fn count_requests(&mut self, before: &Requests, after: &Requests) {
        let count = self.count as f64;
        let polls = after.long_polls() - before.long_polls();
        self.vcenter_requests_per_op = (after.all - before.all) as f64 / count;
        self.vcenter_long_polls_per_op = polls as f64 / count;
        self.vcenter_calls_per_op = after.per_operation(before, count);
    }
}

/// What is measured once for a program.
#[derive(Serialize)]
struct Figure {
    program: String,
    measure: &'static str,
    unit: &'static str,
    value: f64,
}

/// The programs that are called and that call.
struct Programs {
    drivers: Vec<Program>,
    calls: PathBuf,
    raw: PathBuf,
}

#[derive(Default)]
struct Measured {
    runs: Vec<Run>,
    figures: Vec<Figure>,
}

pub(crate) async fn run(arguments: &BenchCsi) -> Result<()> {
    let programs = programs(arguments)?;
    let mut measured = Measured::default();
    for program in &programs.drivers {
        print_error(&format!("{}: volumes on {VOLUMES}", program.name()));
        let done = volumes(&programs, program, arguments, &mut measured).await;
        done.with_context(|| program.name())?;
        if program.ours && arguments.latency == Latency::None {
            print_error("ours: volumes where vCenter takes its time");
            unhurried(&programs, program, &mut measured).await?;
        }
        if arguments.no_attach {
            continue;
        }
        // Others attach one volume at a time.
        for site in ATTACHING.iter().filter(|site| program.ours || site.batch_time != Some("sum")) {
            print_error(&format!("{}: attachments on {site}", program.name()));
            let done = attachments(&programs, program, *site, arguments, &mut measured).await;
            done.with_context(|| program.name())?;
        }
    }
    report::report(&measured)
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.release)?;
        self.batch_time.map_or(Ok(()), |time| write!(f, " BatchTime={time}"))
    }
}

fn programs(arguments: &BenchCsi) -> Result<Programs> {
    let ours = match &arguments.program {
        Some(path) => path.canonicalize().with_context(|| format!("no {}", path.display()))?,
        None => {
            print_error("building our program");
            release_build(&["-p", OURS, "--bin", OURS], OURS)?
        }
    };
    print_error("building the callers");
    let calls = release_build(&["-p", "csi", "--example", "calls"], "calls")?;
    let raw = release_build(&["-p", "vsphere", "--example", "measure"], "measure")?;
    let mut drivers = vec![Program { path: ours, ours: true }];
    for peer in &arguments.peer {
        let path = peer.canonicalize().with_context(|| format!("no {}", peer.display()))?;
        drivers.push(Program { path, ours: false });
    }
    Ok(Programs { drivers, calls, raw })
}

/// A controller that runs, with its caller.
struct Bench<'a> {
    world: &'a World,
    program: String,
    site: Site,
    latency: Latency,
    started: Started,
    caller: Caller,
    /// From the start of its process to the first answer.
    ready: f64,
}

impl<'a> Bench<'a> {
    fn start(
        world: &'a World,
        programs: &Programs,
        program: &Program,
        site: Site,
        latency: Latency,
    ) -> Result<Self> {
        let mut caller = Caller::start(&programs.calls, &world.socket("controller"))?;
        let mut started = world.run(program, "controller")?;
        let ready = caller.ask::<serde_json::Value>("ready");
        started.alive()?;
        ready?;
        let ready = started.at.elapsed().as_secs_f64();
        let program = program.name();
        Ok(Self { world, program, site, latency, started, caller, ready })
    }

    /// Runs an operation and reads what it cost.
    async fn measure(
        &mut self,
        operation: &str,
        callers: usize,
        work: impl AsyncFnOnce(&mut Caller, &World) -> Result<Times>,
    ) -> Result<Run> {
        let (cpu, before) = (self.started.usage()?.cpu_seconds, self.world.requests().await?);
        let times = work(&mut self.caller, self.world).await?;
        let (usage, after) = (self.started.usage()?, self.world.requests().await?);
        let mut run = as_run(times, operation, callers, self.site, self.latency);
        let count = run.count as f64;
        run.program.clone_from(&self.program);
        run.count_requests(&before, &after);
        run.cpu_ms_per_op = Some((usage.cpu_seconds - cpu) * 1e3 / count);
        run.peak_rss_mb = Some(usage.peak_rss_mb);
        print_error(&format!("{operation}, {callers} at once: {:.1} s", run.seconds));
        Ok(run)
    }

    async fn calls(&mut self, operation: &str, arguments: &str, callers: usize) -> Result<Run> {
        let line = format!("{operation} {arguments}");
        self.measure(operation, callers, async |caller, _| caller.ask(&line)).await
    }

    fn figure(&self, measure: &'static str, unit: &'static str, value: f64) -> Figure {
        Figure { program: self.program.clone(), measure, unit, value }
    }
}

fn as_run(times: Times, operation: &str, callers: usize, site: Site, latency: Latency) -> Run {
    let mut sorted = times.milliseconds;
    sorted.sort_by(f64::total_cmp);
    let at = |part: usize| sorted.get(sorted.len() * part / 100).copied().unwrap_or(f64::NAN);
    Run {
        program: String::new(),
        operation: operation.to_owned(),
        site,
        callers,
        count: sorted.len(),
        p50_ms: at(50),
        p95_ms: at(95),
        per_second: sorted.len() as f64 / times.seconds,
        seconds: times.seconds,
        vcenter_requests_per_op: 0.0,
        vcenter_long_polls_per_op: 0.0,
        cpu_ms_per_op: None,
        peak_rss_mb: None,
        latency_profile: latency,
        vcenter_calls_per_op: BTreeMap::new(),
        repeated: times.repeated,
    }
}

/// Volumes are made and deleted, one after the other and by many callers.
async fn volumes(
    programs: &Programs,
    program: &Program,
    arguments: &BenchCsi,
    measured: &mut Measured,
) -> Result<()> {
    let world = World::start(VOLUMES.release, arguments.latency).await?;
    let mut bench = Bench::start(&world, programs, program, VOLUMES, arguments.latency)?;
    measured.figures.push(bench.figure("start to Probe ready", "s", bench.ready));
    for warm in ["create warm 20 4", "delete warm 20 4"] {
        bench.caller.ask::<Times>(warm)?;
    }
    let (one, many) = (format!("one {SINGLE} 1"), format!("many {} {CALLERS}", arguments.volumes));
    for (operation, group, callers) in
        [("create", &one, 1), ("delete", &one, 1), ("create", &many, CALLERS)]
    {
        measured.runs.push(bench.calls(operation, group, callers).await?);
    }
    tokio::time::sleep(SETTLED_AFTER).await;
    let idle = memory_mb(bench.started.id(), "VmRSS:")?;
    measured.figures.push(bench.figure("controller, idle", "MB", idle));
    measured.runs.push(bench.calls("delete", &many, CALLERS).await?);
    if program.ours {
        drop(bench);
        for (count, callers) in [(SINGLE, 1), (5 * SINGLE, CALLERS)] {
            measured.runs.push(raw(programs, &world, count, callers, arguments.latency).await?);
        }
        measured.figures.push(node(&world, programs, program).await?);
    }
    Ok(())
}

/// Volumes are made by many callers where the time of vCenter decides, not that of the machine that all share.
async fn unhurried(programs: &Programs, program: &Program, measured: &mut Measured) -> Result<()> {
    let latency = Latency::FastLab;
    let world = World::start(VOLUMES.release, latency).await?;
    let mut bench = Bench::start(&world, programs, program, VOLUMES, latency)?;
    let group = format!("many {UNHURRIED} {CALLERS}");
    measured.runs.push(bench.calls("create", &group, CALLERS).await?);
    drop(bench);
    measured.runs.push(raw(programs, &world, UNHURRIED, CALLERS, latency).await?);
    Ok(())
}

/// Creates volumes with nothing but the calls for it.
async fn raw(
    programs: &Programs,
    world: &World,
    count: usize,
    callers: usize,
    latency: Latency,
) -> Result<Run> {
    let before = world.requests().await?;
    let mut command = Command::new(&programs.raw);
    command.env("VSPHERE_PASSWORD", USER.1).args(["create", world.vcenter.url()]);
    command.arg(world.vcenter.authority()).args([USER.0, "vsan-1"]);
    command.args([count.to_string(), callers.to_string()]);
    let times: Times = Caller::of(&mut command)?.answer()?;
    let mut run = as_run(times, "create", callers, VOLUMES, latency);
    let after = world.requests().await?;
    "raw CNS".clone_into(&mut run.program);
    run.count_requests(&before, &after);
    Ok(run)
}

/// The memory of the plugin of a node that has nothing to do.
async fn node(world: &World, programs: &Programs, program: &Program) -> Result<Figure> {
    let mut caller = Caller::start(&programs.calls, &world.socket("node"))?;
    let mut started = world.run(program, "node")?;
    let ready = caller.ask::<serde_json::Value>("ready");
    started.alive()?;
    ready?;
    tokio::time::sleep(SETTLED_AFTER).await;
    let value = memory_mb(started.id(), "VmRSS:")?;
    Ok(Figure { program: program.name(), measure: "node plugin, idle", unit: "MB", value })
}

/// Volumes are attached to one VM: by RPC, one after the other, and by VolumeAttachments, all at once.
async fn attachments(
    programs: &Programs,
    program: &Program,
    site: Site,
    arguments: &BenchCsi,
    measured: &mut Measured,
) -> Result<()> {
    let world = World::start(site.release, Latency::None).await?;
    if let Some(time) = site.batch_time {
        world.vcenter.control().assume("BatchTime", time.into()).await?;
    }
    let latency = arguments.attach_latency;
    let mut bench = Bench::start(&world, programs, program, site, latency)?;
    bench.caller.ask::<Times>(&format!("create some {ATTACHED} 10"))?;
    let volumes: Vec<String> = bench.caller.ask("ids some")?;
    world.vcenter.control().set_latency(latency).await?;
    let (node, id) = NODES[0];
    if program.ours {
        let name = "attach, by VolumeAttachment";
        let attached = bench
            .measure(name, ATTACHED, async |_, world| caller::attach(world, node, &volumes).await);
        measured.runs.push(attached.await?);
        let name = "detach, by VolumeAttachment";
        let detached =
            bench.measure(name, ATTACHED, async |_, world| caller::detach(world, &volumes).await);
        measured.runs.push(detached.await?);
    }
    for operation in ["attach", "detach"] {
        let group = format!("some {ATTACHED} 1 {id}");
        measured.runs.push(bench.calls(operation, &group, 1).await?);
    }
    Ok(())
}
