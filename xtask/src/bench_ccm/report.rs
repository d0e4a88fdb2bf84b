//! The figures of a run as a table, with ratios and bounds, and as JSON.

use std::{fs, path::Path};

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    bench_ccm::Run,
    output::{print_line, table},
};

/// A promise: what it is about, the value, and what it may be at most.
struct Bound {
    about: String,
    value: f64,
    most: f64,
    unit: &'static str,
}

/// Bounds beside a peer hold for so many Nodes, and those without for so many.
const FEW: usize = 500;
const MANY: usize = 5000;

pub(super) fn report(runs: &[Run]) -> Result<()> {
    print_line(&table(&figures(runs)));
    let mut rows = vec![["BOUND", "VALUE", "AT MOST", ""].map(str::to_owned).to_vec()];
    for Bound { about, value, most, unit } in
        runs.iter().filter(|run| run.ours).flat_map(|ours| bounds(ours, runs))
    {
        let kept = if value <= most { "pass" } else { "miss" };
        rows.push(vec![
            about,
            format!("{value:.3} {unit}"),
            format!("{most:.3} {unit}"),
            kept.to_owned(),
        ]);
    }
    print_line("");
    print_line(&table(&rows));
    if let Some(run) = runs.first() {
        print_line(&format!("vCenter's latency: {}", run.latency));
    }
    write(runs)
}

type Measure = fn(&Run) -> Option<f64>;

/// A row per measure, a column per program; peers with how many times ours it is.
fn figures(runs: &[Run]) -> Vec<Vec<String>> {
    let measures: [(&str, Measure); 10] = [
        ("first Node, s", |run| Some(run.seconds_to_first)),
        ("all Nodes, s", |run| Some(run.seconds_to_all)),
        ("peak memory, MB", |run| Some(run.peak_rss_mb)),
        ("anonymous memory, MB", |run| Some(run.anon_rss_mb)),
        ("CPU, s", |run| Some(run.cpu_seconds)),
        ("requests at vCenter", |run| Some(run.vcenter_requests as f64)),
        ("requests at Kubernetes", |run| Some(run.kubernetes_requests as f64)),
        ("idle requests at vCenter, 1/min", |run| Some(run.vcenter_requests_per_minute_idle)),
        ("address change, s", |run| run.address_change_seconds),
        ("program, MB", |run| Some(run.binary_mb)),
    ];
    let nodes = runs.first().map_or(0, |run| run.nodes);
    let mut titles = vec![format!("{nodes} NODES")];
    titles.extend(runs.iter().map(|run| run.program.clone()));
    let mut rows = vec![titles];
    for (name, measure) in measures {
        let ours = runs.iter().find(|run| run.ours).and_then(measure);
        let cell = |run: &Run| match (measure(run), ours) {
            (None, _) => "-".to_owned(),
            (Some(value), Some(ours)) if !run.ours && ours > 0.0 => {
                format!("{value:.2} ({:.1} ×)", value / ours)
            }
            (Some(value), _) => format!("{value:.2}"),
        };
        rows.push(std::iter::once(name.to_owned()).chain(runs.iter().map(cell)).collect());
    }
    rows
}

fn bounds(ours: &Run, runs: &[Run]) -> Vec<Bound> {
    let mut bounds = Vec::new();
    let mut add = |about: String, value: f64, most: f64, unit| {
        bounds.push(Bound { about, value, most, unit });
    };
    if ours.nodes <= FEW {
        for peer in runs.iter().filter(|run| !run.ours) {
            let of = &peer.program;
            let time = if peer.tuned { 1.0 / 5.0 } else { 1.0 / 25.0 };
            add(format!("time beside {of}"), ours.seconds_to_all / peer.seconds_to_all, time, "");
            add(format!("peak memory beside {of}"), ours.peak_rss_mb / peer.peak_rss_mb, 0.25, "");
            add(format!("CPU beside {of}"), ours.cpu_seconds / peer.cpu_seconds, 0.1, "");
        }
    }
    if ours.nodes <= MANY {
        add("all Nodes".to_owned(), ours.seconds_to_all, 30.0, "s");
        add("peak memory".to_owned(), ours.peak_rss_mb, 80.0, "MB");
    }
    let idle = ours.vcenter_requests_per_minute_idle;
    add("idle requests at vCenter".to_owned(), idle, 4.0, "1/min");
    if let Some(seconds) = ours.address_change_seconds {
        add("address change".to_owned(), seconds, 2.0, "s");
    }
    add("program, stripped".to_owned(), ours.binary_mb, 15.0, "MB");
    bounds
}

/// Runs with another number of Nodes or another latency that were written before stay.
fn write(runs: &[Run]) -> Result<()> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench");
    fs::create_dir_all(&dir)?;
    let file = dir.join("ccm.json");
    let before = fs::read(&file).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    let mut all = before.and_then(|before| before["runs"].as_array().cloned()).unwrap_or_default();
    let same = |one: &Value, run: &Run| {
        one["nodes"] == run.nodes && one["latency"].as_str().unwrap_or("none") == run.latency.name()
    };
    all.retain(|one| !runs.iter().any(|run| same(one, run)));
    all.extend(runs.iter().map(as_json));
    fs::write(&file, serde_json::to_string_pretty(&json!({ "runs": all }))?)?;
    print_line("written to target/bench/ccm.json");
    Ok(())
}

fn as_json(run: &Run) -> Value {
    json!({
        "program": run.program,
        "nodes": run.nodes,
        "latency": run.latency,
        "seconds_to_first": run.seconds_to_first,
        "seconds_to_all": run.seconds_to_all,
        "peak_rss_mb": run.peak_rss_mb,
        "anon_rss_mb": run.anon_rss_mb,
        "cpu_seconds": run.cpu_seconds,
        "vcenter_requests": run.vcenter_requests,
        "kubernetes_requests": run.kubernetes_requests,
        "vcenter_requests_per_minute_idle": run.vcenter_requests_per_minute_idle,
        "address_change_seconds": run.address_change_seconds,
    })
}
