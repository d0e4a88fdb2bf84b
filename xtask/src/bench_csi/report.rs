//! The figures of a run as a table, with bounds, and as JSON.

use std::{fs, path::Path};

use anyhow::Result;
use lab::vcenter::Latency;
use serde_json::json;

use super::{CALLERS, Measured, Run};
use crate::output::{print_line, table};

/// A promise: what it is about, the value, and what it may be.
struct Bound {
    about: String,
    value: f64,
    limit: Limit,
    unit: &'static str,
    /// Why it may not hold.
    reason: &'static str,
}

#[derive(Clone, Copy)]
enum Limit {
    Most(f64),
    Least(f64),
    /// Shown, not judged.
    None,
}

const SHARED_MACHINE: &str = "vCenter takes no time here: API server, etcd, simulator, driver and caller share the \
                              processor, and raw calls need the simulator only";
const ALONE: &str = "an operation alone has its call, its task added to the view, and the answer that it ended; a \
                     create searches by name before that";
const ONE_BY_ONE: &str = "before 9.1 each volume has its call and the answer that its task ended; those that start \
                          together share the rest";
const SUM: &str = "not judged: the volumes of one call are assumed to take the sum of their times";

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
    let mut rows = vec![["BOUND", "VALUE", "LIMIT", "", "REASON"].map(str::to_owned).to_vec()];
    for Bound { about, value, limit, unit, reason } in bounds(measured) {
        let (limit, kept) = match limit {
            Limit::Most(most) => (format!("<= {most:.2} {unit}"), Some(value <= most)),
            Limit::Least(least) => (format!(">= {least:.2} {unit}"), Some(value >= least)),
            Limit::None => ("-".to_owned(), None),
        };
        let judged = kept.map_or("-", |kept| if kept { "pass" } else { "miss" });
        let reason = if kept == Some(true) { "" } else { reason };
        let value = format!("{value:.2} {unit}");
        rows.push([&about, &value, &limit, judged, reason].map(str::to_owned).to_vec());
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
            run.site.to_string(),
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
    let mut bounds = creates(measured);
    bounds.extend(attachments(measured));
    let limits =
        [("start to Probe ready", 1.0), ("controller, idle", 40.0), ("node plugin, idle", 12.0)];
    for figure in measured.figures.iter().filter(|figure| figure.program == "ours") {
        let limit = limits.iter().find(|(measure, _)| *measure == figure.measure);
        if let Some((_, most)) = limit {
            bounds.push(Bound {
                about: figure.measure.to_owned(),
                value: figure.value,
                limit: Limit::Most(*most),
                unit: figure.unit,
                reason: "",
            });
        }
    }
    bounds
}

/// Creates, beside others and beside raw calls under the same latency profile.
fn creates(measured: &Measured) -> Vec<Bound> {
    let mut bounds = Vec::new();
    let mut add = |about: String, value: f64, limit: Limit, reason: &'static str| {
        bounds.push(Bound { about, value, limit, unit: "", reason });
    };
    let creates = || measured.runs.iter().filter(|run| run.operation == "create");
    for run in creates().filter(|run| run.program == "ours") {
        let under = format!("{} callers, {}", run.callers, run.latency_profile);
        let alone = if run.callers == 1 { ALONE } else { "" };
        let about = format!("requests at vCenter per create, {under}");
        add(about, run.vcenter_requests_per_op, Limit::Most(3.0), alone);
        for other in creates() {
            let alike =
                (other.callers, other.latency_profile) == (run.callers, run.latency_profile);
            if !alike || other.program == "ours" {
                continue;
            }
            let (of, rate) = (&other.program, run.per_second / other.per_second);
            match (of.as_str(), run.callers) {
                ("raw CNS", CALLERS) => {
                    let busy = run.latency_profile == Latency::None;
                    let reason = if busy { SHARED_MACHINE } else { "" };
                    add(
                        format!("creates beside raw CNS, {under}"),
                        rate,
                        Limit::Least(0.8),
                        reason,
                    );
                }
                ("raw CNS", _) => {}
                (_, 1) => {
                    let value = run.p50_ms / other.p50_ms;
                    add(format!("p50 of create beside {of}"), value, Limit::Most(0.5), "");
                }
                _ => {
                    add(format!("creates per second beside {of}"), rate, Limit::Least(4.0), "");
                }
            }
        }
    }
    bounds
}

/// Attaching many volumes to one VM.
fn attachments(measured: &Measured) -> Vec<Bound> {
    let mut bounds = Vec::new();
    for run in measured.runs.iter().filter(|run| run.operation.starts_with("attach, by")) {
        let site = run.site;
        let together = site.batch_time.is_some();
        let (most, reason) = if together { (1.0, "") } else { (2.0, ONE_BY_ONE) };
        bounds.push(Bound {
            about: format!("requests at vCenter per attach, {site}"),
            value: run.vcenter_requests_per_op,
            limit: Limit::Most(most),
            unit: "",
            reason,
        });
        let mut runs = measured.runs.iter();
        let one =
            runs.find(|one| one.program == "ours" && one.operation == "attach" && one.site == site);
        let (limit, reason) = match site.batch_time {
            Some("one") => (Limit::Least(5.0), ""),
            Some(_) => (Limit::None, SUM),
            // vCenter takes as long either way if it always has work; the times are drawn at random.
            None => (Limit::Least(1.0), ""),
        };
        bounds.extend(one.map(|one| Bound {
            about: format!("attach of {} beside one RPC at a time, {site}", run.count),
            value: one.seconds / run.seconds,
            limit,
            unit: "×",
            reason,
        }));
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
