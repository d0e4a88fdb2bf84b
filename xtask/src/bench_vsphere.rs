//! `cargo xtask bench vsphere`: our client beside govmomi's, on the same simulator, in the same run.
//!
//! Both programs read the same ten properties of every VM. CPU time and peak memory are read from outside,
//! from /proc, after a program reported that it is done and before it ends.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use lab::{
    VCenter, VCenterSpec, components,
    vcenter::{ADMINISTRATOR, Control, Latency, Power},
};
use serde_json::{Value, json};

use crate::{
    measured::{self, release_build},
    output::{print_error, print_line, table},
};

const VMS: u32 = 10_000;
/// What govmomi's program is given, too: the page size of ours.
const PAGE: &str = "250";
/// Reads of one process: CPU time is counted in hundredths of a second.
const REPEAT: &str = "3";

#[derive(clap::Args)]
pub(crate) struct BenchVsphere {
    /// How often to run each program
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// How long vCenter's calls and tasks take: none, fast-lab, idle or loaded. Bounds hold for none
    #[arg(long, value_name = "PROFILE", default_value_t)]
    latency: Latency,
}

/// What one process cost.
struct Cost {
    program: &'static str,
    vms: u64,
    cpu_seconds: f64,
    peak_rss_mb: f64,
    seconds: f64,
}

pub(crate) async fn run(arguments: &BenchVsphere) -> Result<()> {
    print_error("building the client");
    let ours = release_build(&["-p", "vsphere", "--example", "measure"], "measure")?;
    print_error(&format!("a vCenter with {VMS} VMs"));
    let spec = VCenterSpec {
        generated_vms: VMS,
        latency: Some(arguments.latency),
        ..VCenterSpec::default()
    };
    let vcenter = VCenter::start(&spec).await?;
    let mut costs = Vec::new();
    for run in 1..=arguments.runs.max(1) {
        print_error(&format!("reads, run {run} of {}", arguments.runs.max(1)));
        costs.push(read("vsphere", ours_reading(&ours, &vcenter))?);
        costs.push(read("govmomi, paged", govmomi(&vcenter, PAGE)?)?);
        costs.push(read("govmomi, not paged", govmomi(&vcenter, "0")?)?);
    }
    let mut figures = ratios(&costs);
    print_error("an idle watch, then changes");
    figures.extend(watch(&ours, &vcenter).await?);
    print_error("a thousand tasks");
    figures.extend(tasks(&ours, &vcenter).await?);
    report(vcenter.latency(), &costs, &figures)
}

fn ours(program: &Path, mode: &str, vcenter: &VCenter) -> Command {
    let mut command = Command::new(program);
    command
        .env("VSPHERE_PASSWORD", ADMINISTRATOR.1)
        .args([mode, vcenter.url()])
        .arg(vcenter.authority())
        .arg(ADMINISTRATOR.0);
    command
}

fn ours_reading(program: &Path, vcenter: &VCenter) -> Command {
    let mut command = ours(program, "read", vcenter);
    command.arg(REPEAT);
    command
}

fn govmomi(vcenter: &VCenter, page: &str) -> Result<Command> {
    let mut command = Command::new(components::binary("govmomi-reader")?);
    command
        .env("READER_PASSWORD", ADMINISTRATOR.1)
        .args(["-url", vcenter.url(), "-user", ADMINISTRATOR.0])
        .args(["-password-env", "READER_PASSWORD", "-page", page, "-repeat", REPEAT, "-ca"])
        .arg(vcenter.authority());
    Ok(command)
}

/// A program that answers with JSON lines and ends when its standard input does.
struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a program to measure")?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("no output")?);
        Ok(Self { child, input, output })
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("a program ended without an answer: {}", self.child.wait()?);
        }
        serde_json::from_str(&line).with_context(|| format!("no JSON: {line}"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.input = None;
        // A watch does not look at its input; both ways it must not outlive us.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn read(program: &'static str, command: Command) -> Result<Cost> {
    let mut running = Program::start(command)?;
    let answer = running.line()?;
    let seconds: Vec<f64> = serde_json::from_value(answer["seconds"].clone())?;
    let cost = Cost {
        program,
        vms: answer["vms"].as_u64().context("no vms")?,
        cpu_seconds: measured::cpu_seconds(running.child.id())?,
        peak_rss_mb: measured::memory_mb(running.child.id(), "VmHWM:")?,
        seconds: seconds.iter().sum(),
    };
    running.input = None;
    running.child.wait()?;
    Ok(cost)
}

/// A figure with its bound.
struct Figure(&'static str, f64, &'static str, Option<f64>);

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn ratios(costs: &[Cost]) -> Vec<Figure> {
    let of = |program: &str, value: fn(&Cost) -> f64| {
        median(costs.iter().filter(|cost| cost.program == program).map(value).collect())
    };
    let ratio = |value: fn(&Cost) -> f64| of("vsphere", value) / of("govmomi, paged", value);
    vec![
        Figure("CPU beside govmomi, both paged", ratio(|cost| cost.cpu_seconds), "", Some(0.2)),
        Figure(
            "peak memory beside govmomi, both paged",
            ratio(|cost| cost.peak_rss_mb),
            "",
            Some(1.0 / 3.0),
        ),
        Figure("time beside govmomi, both paged", ratio(|cost| cost.seconds), "", None),
    ]
}

async fn requests(control: &Control) -> Result<(u64, u64)> {
    let state = control.state_as_json().await?;
    let calls = state["calls"]["calls"].as_array().context("no calls")?;
    let count = |call: &&Value| call["count"].as_u64().unwrap_or_default();
    let polls = calls.iter().filter(|call| call["method"] == "WaitForUpdatesEx");
    Ok((calls.iter().map(|call| count(&call)).sum(), polls.map(|call| count(&call)).sum()))
}

async fn watch(ours_program: &Path, vcenter: &VCenter) -> Result<Vec<Figure>> {
    let mut running = Program::start(ours(ours_program, "watch", vcenter))?;
    let started = Instant::now();
    let known = running.line()?["vms"].as_u64().context("no vms")?;
    let synced = started.elapsed().as_secs_f64();
    let (all, polls) = requests(vcenter.control()).await?;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let (all_after, polls_after) = requests(vcenter.control()).await?;
    let memory = measured::memory_mb(running.child.id(), "VmRSS:")?;
    let mut delays = Vec::new();
    for round in 0..40 {
        let (power, state) =
            if round % 2 == 0 { (Power::Off, "poweredOff") } else { (Power::On, "poweredOn") };
        vcenter.control().power("node-1", power).await?;
        let changed = Instant::now();
        while running.line()?["power"] != state {}
        delays.push(changed.elapsed().as_secs_f64() * 1e3);
    }
    let other = (all_after - all) - (polls_after - polls);
    print_error(&format!("{known} VMs are followed"));
    Ok(vec![
        Figure("until a watch of 10,000 VMs is complete", synced, "s", None),
        Figure("memory of that watch", memory, "MB", Some(60.0)),
        Figure("its requests in 20 idle seconds besides the poll", other as f64, "", Some(0.0)),
        Figure(
            "a change reaches the stream, median of 40",
            median(delays.clone()),
            "ms",
            Some(100.0),
        ),
        Figure("the slowest of them", delays.iter().copied().fold(0.0, f64::max), "ms", None),
    ])
}

async fn tasks(ours_program: &Path, vcenter: &VCenter) -> Result<Vec<Figure>> {
    let mut running = Program::start(ours(ours_program, "tasks", vcenter))?;
    let started = running.line()?["started"].as_u64().context("no tasks")?;
    let (before, _) = requests(vcenter.control()).await?;
    running.input.as_mut().context("no input")?.write_all(b"go\n")?;
    let answer = running.line()?;
    let (after, _) = requests(vcenter.control()).await?;
    if answer["tasks"].as_u64() != Some(started) {
        bail!("not all tasks ended: {answer}");
    }
    let seconds = answer["seconds"].as_f64().context("no seconds")?;
    Ok(vec![
        Figure("requests to await 1,000 tasks at once", (after - before) as f64, "", None),
        Figure("time for that", seconds, "s", None),
    ])
}

fn report(latency: Latency, costs: &[Cost], figures: &[Figure]) -> Result<()> {
    let titles = ["PROGRAM", "VMS", "CPU", "PEAK MEMORY", "TIME"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    for cost in costs {
        rows.push(vec![
            cost.program.to_owned(),
            format!("{} × {REPEAT}", cost.vms),
            format!("{:.2} s", cost.cpu_seconds),
            format!("{:.1} MB", cost.peak_rss_mb),
            format!("{:.2} s", cost.seconds),
        ]);
    }
    print_line(&table(&rows));
    let mut rows = vec![["MEASURE", "VALUE", "BOUND"].map(str::to_owned).to_vec()];
    for Figure(name, value, unit, bound) in figures {
        let bound = bound.map_or_else(|| "-".to_owned(), |bound| format!("{bound:.2} {unit}"));
        rows.push(vec![(*name).to_owned(), format!("{value:.2} {unit}"), bound]);
    }
    print_line(&table(&rows));
    print_line(&format!("vCenter's latency: {latency}"));
    let runs: Vec<Value> = costs
        .iter()
        .map(|cost| {
            json!({
                "program": cost.program, "vms": cost.vms, "cpu_seconds": cost.cpu_seconds,
                "peak_rss_mb": cost.peak_rss_mb, "seconds": cost.seconds,
            })
        })
        .collect();
    let figures: Vec<Value> = figures
        .iter()
        .map(|Figure(name, value, unit, bound)| {
            json!({"measure": name, "value": value, "unit": unit, "bound": bound})
        })
        .collect();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench");
    fs::create_dir_all(&dir)?;
    let all = json!({"latency": latency, "runs": runs, "figures": figures});
    let text = serde_json::to_string_pretty(&all)?;
    fs::write(dir.join("vsphere.json"), text)?;
    print_line("written to target/bench/vsphere.json");
    Ok(())
}
