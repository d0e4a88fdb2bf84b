//! `cargo xtask bench`: figures that anyone can measure again, as a table and as JSON.

use std::{fs, path::Path, process::Command, time::Instant};

use anyhow::{Context, Result, bail};
use lab::{
    ControlPlane, Lab, Progress, Spec, VCenter, VCenterSpec, World, components, preflight,
    vcenter::Latency,
};
use serde_json::{Value, json};

use crate::{
    bench_ccm::{self, BenchCcm},
    bench_csi::{self, BenchCsi},
    bench_demo, bench_failover,
    bench_vsphere::{self, BenchVsphere},
    empty_caches::EmptyCaches,
    interrupt::interruptible,
    lab_commands,
    output::{print_error, print_line, table},
};

const DATASTORE: &str = "/dc-1/datastore/shared-1";

#[derive(clap::Subcommand)]
pub(crate) enum Bench {
    /// How long the lab takes to start, and what it weighs
    Lab {
        /// How often to start each
        #[arg(long, default_value_t = 3)]
        runs: usize,
        /// Also build all components with empty Go caches (takes long)
        #[arg(long)]
        cold: bool,
    },
    /// How long `make demo` takes, to the first Ready node and to its end
    Demo {
        /// With empty caches of cargo and Go and no component built, as on a new machine (takes long)
        #[arg(long)]
        cold: bool,
    },
    /// How quick the vCenter simulator is, and what it weighs; needs no root
    Vcenter {
        /// How long its calls and tasks take: none, fast-lab, idle or loaded. Bounds hold for none
        #[arg(long, value_name = "PROFILE", default_value_t)]
        latency: Latency,
    },
    /// Our vCenter client beside govmomi's; needs no root
    Vsphere(BenchVsphere),
    /// Our cloud controller manager at many Nodes, beside others; needs no root
    Ccm(BenchCcm),
    /// Our CSI driver's calls, beside others; needs no root
    Csi(BenchCsi),
    /// A host dies with a pod that writes: how long until its successor writes on another node
    Failover,
}

pub(crate) fn run(command: &Bench) -> Result<()> {
    match command {
        Bench::Lab { runs, cold } => {
            lab_commands::build(components::LAB)?;
            preflight::check()?;
            let mut figures = interruptible(lab_figures((*runs).max(1)))?;
            if *cold {
                figures.push(cold_build()?);
            }
            report("lab", Latency::None, &figures)
        }
        Bench::Demo { cold } => report("demo", Latency::None, &bench_demo::figures(*cold)?),
        Bench::Vcenter { latency } => {
            lab_commands::build_without_packages(components::SIMULATOR)?;
            report("vcenter", *latency, &interruptible(vcenter_figures(*latency))?)
        }
        Bench::Vsphere(arguments) => {
            lab_commands::build_without_packages(&["vcenter", "cnsctl", "govmomi-reader"])?;
            interruptible(bench_vsphere::run(arguments))
        }
        Bench::Ccm(arguments) => {
            let programs = [components::CONTROL_PLANE, components::SIMULATOR].concat();
            lab_commands::build_without_packages(&programs)?;
            interruptible(Box::pin(bench_ccm::run(arguments)))
        }
        Bench::Csi(arguments) => {
            let programs = [components::CONTROL_PLANE, components::SIMULATOR].concat();
            lab_commands::build_without_packages(&programs)?;
            interruptible(Box::pin(bench_csi::run(arguments)))
        }
        Bench::Failover => {
            lab_commands::build(&[components::LAB, components::SIDECARS].concat())?;
            preflight::check()?;
            let figures = interruptible(Box::pin(bench_failover::figures()))?;
            report("failover", Latency::None, &figures)
        }
    }
}

pub(crate) struct Figure {
    pub(crate) name: &'static str,
    /// What we promised; measures without a promise are for information.
    pub(crate) bound: Option<f64>,
    pub(crate) unit: &'static str,
    pub(crate) values: Vec<f64>,
}

impl Figure {
    fn median(&self) -> f64 {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

async fn lab_figures(runs: usize) -> Result<Vec<Figure>> {
    let mut api = Figure {
        name: "API-only control plane ready",
        bound: Some(4.0),
        unit: "s",
        values: vec![],
    };
    let mut full = Figure {
        name: "two nodes Ready, warm binaries",
        bound: Some(30.0),
        unit: "s",
        values: vec![],
    };
    let mut down = Figure { name: "lab removed", bound: None, unit: "s", values: vec![] };
    let mut memory = Figure {
        name: "memory of an API-only control plane",
        bound: None,
        unit: "MB",
        values: vec![],
    };
    for run in 1..=runs {
        print_error(&format!("run {run} of {runs}"));
        let started = Instant::now();
        let plane = ControlPlane::start().await?;
        api.values.push(started.elapsed().as_secs_f64());
        let processes = lab::reap::processes_of(plane.world().name())?;
        let bytes: u64 = processes.iter().filter_map(lab::ProcessRecord::resident_bytes).sum();
        memory.values.push((bytes / 1_000_000) as f64);
        drop(plane);

        let started = Instant::now();
        let lab = Lab::start_in(World::claim()?, &Spec::default(), &Progress::silent()).await?;
        full.values.push(started.elapsed().as_secs_f64());
        let started = Instant::now();
        drop(lab);
        down.values.push(started.elapsed().as_secs_f64());
    }
    Ok(vec![api, memory, full, down, attach_figure().await?])
}

/// How long the simulator takes to attach a volume to a lab node; the disk is there when the task ends.
async fn attach_figure() -> Result<Figure> {
    let lab = Lab::start_in(World::claim()?, &Spec::with_vcenter(), &Progress::silent()).await?;
    let (Some(vcenter), Some(node)) = (lab.vcenter(), lab.nodes().first()) else {
        bail!("the lab is incomplete")
    };
    let volume = vcenter.cnsctl(&["create", "measured", "64", DATASTORE])?;
    let swing = measured(vcenter, &["swing", "20", &volume, node.uuid()])?;
    let milliseconds = swing["task_ms"].as_f64().context("task_ms was not measured")?;
    let name = "volume attached and on its node";
    Ok(Figure { name, bound: Some(100.0), unit: "ms", values: vec![milliseconds] })
}

async fn vcenter_figures(latency: Latency) -> Result<Vec<Figure>> {
    let with = |generated_vms| VCenterSpec {
        generated_vms,
        latency: Some(latency),
        ..VCenterSpec::default()
    };
    let figure = |name, bound, unit, value| Figure { name, bound, unit, values: vec![value] };
    let started = Instant::now();
    let small = VCenter::start(&with(20)).await?;
    let ready = started.elapsed().as_secs_f64();
    let created = measured(&small, &["measure", "200", DATASTORE])?;
    let rush = measured(&small, &["rush", "200", "20", "/dc-1/datastore/generated-01"])?;
    drop(small);
    print_error("10,000 VMs");
    let started = Instant::now();
    let large = VCenter::start(&with(10_000)).await?;
    let large_ready = started.elapsed().as_secs_f64();
    let memory = large.resident_bytes().context("the simulator has no memory")? as f64 / 1e9;
    let number =
        |of: &Value, key: &str| of[key].as_f64().with_context(|| format!("{key} was not measured"));
    Ok(vec![
        figure("default world ready", Some(1.0), "s", ready),
        figure("10,000 VMs ready", Some(60.0), "s", large_ready),
        figure("memory with 10,000 VMs", Some(1.5), "GB", memory),
        figure("CNS create task", Some(5.0), "ms", number(&created, "task_ms")?),
        figure("CNS create, until a client saw it", None, "ms", number(&created, "call_ms")?),
        figure("200 attach calls at once on 20 VMs", None, "s", number(&rush, "seconds")?),
        figure("disks lost of 200", Some(0.0), "", number(&rush, "lost")?),
        figure("disks doubled of 200", Some(0.0), "", number(&rush, "doubled")?),
    ])
}

/// Runs govmomi's client against the simulator and reads what it measured.
fn measured(vcenter: &VCenter, arguments: &[&str]) -> Result<Value> {
    serde_json::from_str(&vcenter.cnsctl(arguments)?).context("what cnsctl measured")
}

/// With empty caches of Go, also its module cache: what a new machine does.
fn cold_build() -> Result<Figure> {
    let caches = EmptyCaches::create()?;
    let mut build = Command::new("cargo");
    build.args(["run", "--quiet", "--package", "components", "--", "components"]);
    let started = Instant::now();
    let status = build.envs(caches.of_go()).status()?;
    let minutes = started.elapsed().as_secs_f64() / 60.0;
    if !status.success() {
        bail!("the components do not build");
    }
    Ok(Figure {
        name: "components from cold caches",
        bound: Some(15.0),
        unit: "min",
        values: vec![minutes],
    })
}

fn report(name: &str, latency: Latency, figures: &[Figure]) -> Result<()> {
    let mut rows = vec![["MEASURE", "MEDIAN", "BOUND", "RUNS"].map(str::to_owned).to_vec()];
    let mut json = Vec::new();
    for figure in figures {
        let Figure { name, bound, unit, values } = figure;
        let each: Vec<String> = values.iter().map(|value| format!("{value:.1}")).collect();
        rows.push(vec![
            (*name).to_owned(),
            format!("{:.1} {unit}", figure.median()),
            bound.map_or_else(|| "-".to_owned(), |bound| format!("{bound} {unit}")),
            each.join(" "),
        ]);
        json.push(json!({"measure": name, "unit": unit, "median": figure.median(), "bound": bound, "runs": values, "latency": latency}));
    }
    print_line(&table(&rows));
    print_line(&format!("vCenter's latency: {latency}"));
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench");
    fs::create_dir_all(&dir)?;
    let file = dir.join(format!("{name}.json"));
    let text = serde_json::to_string_pretty(&Value::Array(json))?;
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    print_line(&format!("written to target/bench/{name}.json"));
    Ok(())
}
