//! The figures of a run as a table, with bounds, and as JSON.

use std::{fs, path::Path};

use anyhow::Result;
use serde_json::json;

use super::{CALLERS, Measured, Run};
use crate::output::{print_line, table};

/// A promise: what it is about, the value, and what it may be.
struct Bound {
    about: String,
    value: f64,
    limit: Limit,
    unit: &'static str,
}

#[derive(Clone, Copy)]
enum Limit {
    Most(f64),
    Least(f64),
}

pub(super) fn report(measured: &Measured) -> Result<()> {
    print_line(&table(&runs(&measured.runs)));
    print_line("");
    let mut rows = vec![["PROGRAM", "MEASURE", "VALUE"].map(str::to_owned).to_vec()];
    for figure in &measured.figures {
        let value = format!("{:.2} {}", figure.value, figure.unit);
        rows.push(vec![figure.program.clone(), figure.measure.to_owned(), value]);
    }
    print_line(&table(&rows));
    print_line("");
    let mut rows = vec![["BOUND", "VALUE", "LIMIT", ""].map(str::to_owned).to_vec()];
    for Bound { about, value, limit, unit } in bounds(measured) {
        let (limit, kept) = match limit {
            Limit::Most(most) => (format!("<= {most:.2} {unit}"), value <= most),
            Limit::Least(least) => (format!(">= {least:.2} {unit}"), value >= least),
        };
        let kept = if kept { "pass" } else { "miss" };
        rows.push(vec![about, format!("{value:.2} {unit}"), limit, kept.to_owned()]);
    }
    print_line(&table(&rows));
    write(measured)
}

fn runs(runs: &[Run]) -> Vec<Vec<String>> {
    let titles = [
        "PROGRAM",
        "OPERATION",
        "RELEASE",
        "LATENCY",
        "CALLERS",
        "P50 ms",
        "P95 ms",
        "1/s",
        "ALL s",
        "REQUESTS",
        "POLLS",
        "CPU ms",
        "PEAK MB",
    ];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    let some = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |one| format!("{one:.1}"));
    for run in runs {
        rows.push(vec![
            run.program.clone(),
            run.operation.clone(),
            run.release.to_owned(),
            run.latency_profile.to_string(),
            run.callers.to_string(),
            format!("{:.1}", run.p50_ms),
            format!("{:.1}", run.p95_ms),
            format!("{:.1}", run.per_second),
            format!("{:.1}", run.seconds),
            format!("{:.2}", run.vcenter_requests_per_op),
            format!("{:.2}", run.vcenter_long_polls_per_op),
            some(run.cpu_ms_per_op),
            some(run.peak_rss_mb),
        ]);
    }
    rows
}

fn bounds(measured: &Measured) -> Vec<Bound> {
    let find = |program: &str, operation: &str, callers: usize| {
        let mut runs = measured.runs.iter();
        runs.find(|run| {
            run.program == program && run.operation == operation && run.callers == callers
        })
    };
    let mut bounds = Vec::new();
    let mut add = |about: String, value: f64, limit: Limit, unit: &'static str| {
        bounds.push(Bound { about, value, limit, unit });
    };
    let (single, many) = (find("ours", "create", 1), find("ours", "create", CALLERS));
    if let (Some(single), Some(many)) = (single, many) {
        for run in [single, many] {
            let about = format!("requests at vCenter per create, {} callers", run.callers);
            add(about, run.vcenter_requests_per_op, Limit::Most(3.0), "");
        }
        if let Some(raw) = find("raw CNS", "create", CALLERS) {
            let about = format!("creates beside raw CNS, {CALLERS} callers");
            add(about, many.per_second / raw.per_second, Limit::Least(0.8), "");
        }
        let others = measured.runs.iter().filter(|run| run.operation == "create");
        for peer in others.filter(|run| run.program != "ours" && run.program != "raw CNS") {
            let of = &peer.program;
            if peer.callers == 1 {
                let value = single.p50_ms / peer.p50_ms;
                add(format!("p50 of create beside {of}"), value, Limit::Most(0.5), "");
            } else {
                let value = many.per_second / peer.per_second;
                add(format!("creates per second beside {of}"), value, Limit::Least(4.0), "");
            }
        }
    }
    for run in measured.runs.iter().filter(|run| run.operation.starts_with("attach, by")) {
        let release = run.release;
        let together = release == "9.1";
        let most = if together { 1.0 } else { 2.0 };
        let about = format!("requests at vCenter per attach, {release}");
        add(about, run.vcenter_requests_per_op, Limit::Most(most), "");
        let mut runs = measured.runs.iter();
        let one = runs.find(|one| {
            one.program == "ours" && one.operation == "attach" && one.release == release
        });
        if let Some(one) = one {
            let about = format!("attach of {} beside one RPC at a time, {release}", run.count);
            // Elsewhere vCenter takes as long either way if it always has work; the times are drawn at random.
            let least = if together { 5.0 } else { 1.0 };
            add(about, one.seconds / run.seconds, Limit::Least(least), "×");
        }
    }
    let limits =
        [("start to Probe ready", 1.0), ("controller, idle", 40.0), ("node plugin, idle", 12.0)];
    for figure in measured.figures.iter().filter(|figure| figure.program == "ours") {
        let limit = limits.iter().find(|(measure, _)| *measure == figure.measure);
        if let Some((_, most)) = limit {
            add(figure.measure.to_owned(), figure.value, Limit::Most(*most), figure.unit);
        }
    }
    bounds
}

fn write(measured: &Measured) -> Result<()> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench");
    fs::create_dir_all(&dir)?;
    let all = json!({"runs": measured.runs, "figures": measured.figures});
    fs::write(dir.join("csi.json"), serde_json::to_string_pretty(&all)?)?;
    print_line("written to target/bench/csi.json");
    Ok(())
}
