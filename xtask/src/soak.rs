//! `cargo xtask soak csi`: many random schedules of faults over the lives of volumes, and fewer of them under every other
//! choice of those assumptions about real vCenters that they depend on.
//!
//! The schedules are the test program `csi_schedules`, of which `make test` runs the first twenty. The report has the
//! commit that it ran on.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail};

use crate::{
    lab_commands,
    output::{print_error, print_line},
};

const REPORT: &str = "docs/soak-csi.md";
const PROGRAM: [&str; 4] = ["-p", "vsphere-drivers", "--test", "csi_schedules"];
const COMPONENTS: [&str; 4] = ["etcd", "kube-apiserver", "vcenter", "cnsctl"];

#[derive(clap::Subcommand)]
pub(crate) enum Soak {
    /// The CSI driver's controllers
    Csi(Csi),
}

#[derive(clap::Args)]
pub(crate) struct Csi {
    /// How many schedules are played
    #[arg(long, default_value_t = 300)]
    seeds: u64,
    /// Only the schedule of this seed, without a report
    #[arg(long)]
    seed: Option<u64>,
    /// How many schedules are played under each other choice of an assumption; 0 leaves them out
    #[arg(long, default_value_t = 5)]
    assumed: u64,
}

pub(crate) fn run(command: &Soak) -> Result<()> {
    let Soak::Csi(csi) = command;
    lab_commands::build_without_packages(&COMPONENTS)?;
    if let Some(seed) = csi.seed {
        play("SEED", seed)?;
        return Ok(());
    }
    let began = Instant::now();
    let lines = play("SEEDS", csi.seeds)?;
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    let walked = if csi.assumed == 0 { String::new() } else { assumed(csi.assumed)? };
    write(csi, &lines, minutes, &walked)
}

/// Plays schedules and returns what was printed about those that ended well.
fn play(variable: &str, value: u64) -> Result<Vec<String>> {
    let mut cargo = lab::components::cargo();
    cargo.args(["test"]).args(PROGRAM).env(variable, value.to_string()).stdout(Stdio::piped());
    let mut child = cargo.spawn().context("cannot run the schedules")?;
    let output = BufReader::new(child.stdout.take().context("no output")?);
    let mut lines = Vec::new();
    for line in output.lines() {
        let line = line?;
        print_line(&line);
        if line.starts_with("seed ") {
            lines.push(line);
        }
    }
    if !child.wait()?.success() {
        bail!(
            "a schedule failed; `cargo xtask soak csi --seed N` plays it alone, with N from SEED=N above"
        );
    }
    Ok(lines)
}

/// Walks through the assumptions that the first schedules consult, and returns what came of it.
fn assumed(seeds: u64) -> Result<String> {
    print_error("the first schedules under other assumptions about vCenter");
    let mut walk = Command::new(std::env::current_exe()?);
    walk.args(["walk", "-p", "vsphere-drivers", "--test", "csi_schedules"]);
    let walked = walk.env("SEEDS", seeds.to_string()).stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&walked.stdout).into_owned();
    print_line(&text);
    if !walked.status.success() {
        bail!("schedules failed under another assumption; the list above has the command for each");
    }
    Ok(text.lines().last().unwrap_or_default().to_owned())
}

fn write(csi: &Csi, lines: &[String], minutes: f64, walked: &str) -> Result<()> {
    let commit = lab::run(Command::new("git").args(["rev-parse", "HEAD"]))?;
    let deeds: u64 =
        lines.iter().filter_map(|line| line.split(' ').nth(2)?.parse::<u64>().ok()).sum();
    let walked = if walked.is_empty() {
        "Other assumptions about vCenter were left out.".to_owned()
    } else {
        format!(
            "The first {} seeds under every other choice of the assumptions that they consult: {walked} (runs).",
            csi.assumed
        )
    };
    let text = format!(
        "# Soak of the CSI driver\n\nWritten by `cargo xtask soak csi`; do not edit.\n\n\
         Commit {}: {} seeds, {deeds} operations on volumes, {minutes:.0} minutes, 0 failures.\n{walked}\n\n\
         A seed is a schedule of faults (refused calls, tasks that fail before, in the middle of and after their work, tasks\n\
         that fail and do their work later, tasks that vCenter forgets, broken and hanging connections, lost sessions, restarts of vCenter and of CNS, full datastores,\n\
         disconnected hosts, killed controllers, volumes of the same name) over the lives of five volumes with two\n\
         controllers, by calls and by VolumeAttachments, on releases 7.0U3, 8.0U3 and 9.1. Every answer is compared with\n\
         vCenter when it is given; in the end vCenter's volumes and disks, the records in Kubernetes and the answers agree,\n\
         and the same requests to the other controller have the same answers.\n\n\
         Not in it: what nodes write to the disks.\n",
        commit.trim(),
        lines.len()
    );
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::write(root.join(REPORT), text).with_context(|| format!("cannot write {REPORT}"))?;
    print_line(&format!("written to {REPORT}"));
    Ok(())
}
