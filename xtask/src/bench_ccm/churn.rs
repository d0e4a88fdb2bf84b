//! `cargo xtask bench ccm --churn`: what a vCenter in constant change costs, beside an idle one.
//!
//! Guests of all VMs change their address in turn, also of those that are no Nodes. What a change of one VM
//! costs must not depend on how many VMs there are.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use lab::vcenter::Latency;
use serde_json::{Value, json};

use super::{
    BenchCcm, SETTLED_AFTER, initialised,
    program::Program,
    world::{self, World},
};
use crate::{
    measured::Started,
    output::{print_error, print_line, table},
};

const NODES: usize = 5_000;
const VMS: usize = 10_000;
/// Changes that are requested at once, at most.
const AT_ONCE: usize = 16;
/// Successive changes concern VMs this far apart: different hosts, Nodes and others.
const STRIDE: usize = 4_999;

/// What the program did in some time.
struct Window {
    name: &'static str,
    seconds: f64,
    changes: usize,
    cpu_seconds: f64,
    vcenter_requests: u64,
    kubernetes_requests: u64,
    rss_mb: f64,
}

pub(super) async fn run(program: &Program, arguments: &BenchCcm) -> Result<()> {
    let nodes = arguments.nodes.unwrap_or(NODES);
    let vms = arguments.vms.unwrap_or(VMS).max(nodes);
    print_error(&format!("a world with {vms} VMs and {nodes} Nodes"));
    let world = World::start(nodes, vms, arguments.latency).await?;
    let mut started = program.start(&world)?;
    let mut watching = world.watch().await?;
    let (_, all) = initialised(&mut watching, &mut started, nodes).await?;
    drop(watching);
    print_error(&format!("all Nodes after {:.1} s", all.as_secs_f64()));
    tokio::time::sleep(SETTLED_AFTER).await;
    let duration = Duration::from_secs(arguments.churn_seconds);
    let idle = window("idle", &world, &mut started, async {
        tokio::time::sleep(duration).await;
        Ok(0)
    });
    let idle = idle.await?;
    let rate = arguments.rate.max(1);
    print_error(&format!("{rate} changes a second"));
    let churn = window("churn", &world, &mut started, churn(&world, vms, rate, duration));
    let windows = [idle, churn.await?];
    report(nodes, vms, arguments.latency, &windows)
}

async fn window(
    name: &'static str,
    world: &World,
    started: &mut Started,
    work: impl Future<Output = Result<usize>>,
) -> Result<Window> {
    let before =
        (started.usage()?, world.vcenter_requests().await?, world.kubernetes_requests().await?);
    let began = Instant::now();
    let changes = work.await?;
    let seconds = began.elapsed().as_secs_f64();
    let usage = started.usage()?;
    Ok(Window {
        name,
        seconds,
        changes,
        cpu_seconds: usage.cpu_seconds - before.0.cpu_seconds,
        vcenter_requests: world.vcenter_requests().await?.saturating_sub(before.1),
        kubernetes_requests: world.kubernetes_requests().await?.saturating_sub(before.2),
        rss_mb: usage.anon_rss_mb,
    })
}

/// Changes `rate` VMs a second and returns how many were changed.
async fn churn(world: &World, vms: usize, rate: u32, duration: Duration) -> Result<usize> {
    let began = tokio::time::Instant::now();
    let total = (f64::from(rate) * duration.as_secs_f64()) as usize;
    let change = |number: usize| async move {
        tokio::time::sleep_until(began + Duration::from_secs(1) * u32::try_from(number)? / rate)
            .await;
        let vm = number.wrapping_mul(STRIDE) % vms;
        // The first round brings new addresses, the second the first ones again.
        let address = match (number / vms).is_multiple_of(2) {
            true => world::later_address(vm),
            false => world::first_address(vm),
        };
        let node = world::node_name(vm);
        world.vcenter.control().readdress(&node, &[&format!("{address}/8")]).await?;
        anyhow::Ok(())
    };
    let done: Vec<()> =
        stream::iter((0..total).map(change)).buffered(AT_ONCE).try_collect().await?;
    Ok(done.len())
}

impl Window {
    fn cores(&self) -> f64 {
        self.cpu_seconds / self.seconds
    }

    fn per_minute(&self, count: u64) -> f64 {
        count as f64 * 60.0 / self.seconds
    }

    fn json(&self) -> Value {
        json!({
            "window": self.name,
            "seconds": self.seconds,
            "changes": self.changes,
            "cpu_seconds": self.cpu_seconds,
            "cores": self.cores(),
            "vcenter_requests_per_minute": self.per_minute(self.vcenter_requests),
            "kubernetes_requests_per_minute": self.per_minute(self.kubernetes_requests),
            "anon_rss_mb": self.rss_mb,
        })
    }
}

fn report(nodes: usize, vms: usize, latency: Latency, windows: &[Window]) -> Result<()> {
    let title = format!("{vms} VMS, {nodes} NODES");
    let mut rows =
        vec![std::iter::once(title).chain(windows.iter().map(|one| one.name.to_owned())).collect()];
    let mut row = |name: &str, value: &dyn Fn(&Window) -> f64| {
        let cells = windows.iter().map(value);
        let cells = cells
            .map(|value| if value.is_finite() { format!("{value:.2}") } else { "-".to_owned() });
        rows.push(std::iter::once(name.to_owned()).chain(cells).collect::<Vec<_>>());
    };
    row("changes, 1/s", &|one| one.changes as f64 / one.seconds);
    row("CPU, cores", &Window::cores);
    row("CPU per change, ms", &|one| 1e3 * one.cpu_seconds / one.changes as f64);
    row("requests at vCenter, 1/min", &|one| one.per_minute(one.vcenter_requests));
    row("requests at Kubernetes, 1/min", &|one| one.per_minute(one.kubernetes_requests));
    row("anonymous memory, MB", &|one| one.rss_mb);
    print_line(&table(&rows));
    print_line(&format!("vCenter's latency: {latency}"));
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench");
    fs::create_dir_all(&dir)?;
    let windows: Vec<Value> = windows.iter().map(Window::json).collect();
    let all = json!({"vms": vms, "nodes": nodes, "latency": latency, "windows": windows});
    let text = serde_json::to_string_pretty(&all)?;
    let file = dir.join("ccm-churn.json");
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    print_line("written to target/bench/ccm-churn.json");
    Ok(())
}
