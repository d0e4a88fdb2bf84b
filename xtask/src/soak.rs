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
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::{
    lab_commands,
    output::{print_error, print_line},
};

const REPORT: &str = "docs/soak-csi.md";
/// Of the workspace, as `make test` and the walk build it, so that nothing is compiled twice.
const PROGRAM: [&str; 3] = ["--workspace", "--test", "csi_schedules"];
const COMPONENTS: [&str; 4] = ["etcd", "kube-apiserver", "vcenter", "cnsctl"];

#[derive(clap::Subcommand)]
pub(crate) enum Soak {
    /// The CSI driver's controllers
    Csi(Csi),
}

#[derive(clap::Args)]
pub(crate) struct Csi {
    /// How many schedules are played; 0 leaves them out and keeps what the report has of them
    #[arg(long, default_value_t = 300)]
    seeds: u64,
    /// Only the schedule of this seed, without a report
    #[arg(long)]
    seed: Option<u64>,
    /// How many schedules are played under each other choice of an assumption; 0 leaves them out and keeps what the
    /// report has of them
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
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(REPORT);
    let mut report = Report::read(&fs::read_to_string(&file).unwrap_or_default());
    if csi.seeds > 0 {
        let (commit, began) = (commit()?, Instant::now());
        let played = Totals::of(&play("SEEDS", csi.seeds)?);
        report.seeds = played.sentence(&commit, began.elapsed());
        report.write(&file)?;
    }
    if csi.assumed > 0 {
        let (commit, began) = (commit()?, Instant::now());
        let walked = walk_assumptions(csi.assumed)?;
        let minutes = began.elapsed().as_secs() / 60;
        report.assumed = format!(
            "commit {commit}: the first {} seeds under every other choice of the assumptions about vCenter that they \
             consult, {minutes} minutes, runs: {walked}.",
            csi.assumed
        );
        report.write(&file)?;
    }
    Ok(())
}

/// What is checked out, and whether it was changed since.
fn commit() -> Result<String> {
    let commit = lab::run(Command::new("git").args(["rev-parse", "HEAD"]))?;
    let changes = ["status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs"];
    let changed = !lab::run(Command::new("git").args(changes))?.is_empty();
    Ok(format!("{}{}", commit.trim(), if changed { " with uncommitted changes" } else { "" }))
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

/// Walks through the assumptions that the first schedules consult, and returns how many runs passed and failed.
fn walk_assumptions(seeds: u64) -> Result<String> {
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

/// What the lines about schedules add up to.
#[derive(Debug, Default, PartialEq)]
struct Totals {
    seeds: usize,
    deeds: u64,
    /// None if at least one schedule was played without guests.
    mebibytes: Option<(f64, f64)>,
}

impl Totals {
    /// From lines such as `seed 3: 23 deeds in 8.1 s, 4.5 MiB written, 480 MiB read and compared`.
    fn of(lines: &[String]) -> Self {
        let before = |line: &str, unit: &str| -> Option<f64> {
            line.split(unit)
                .next()
                .filter(|start| start.len() < line.len())?
                .rsplit(' ')
                .next()?
                .parse()
                .ok()
        };
        let sum = |unit| lines.iter().map(|line| before(line, unit)).sum::<Option<f64>>();
        let deeds =
            lines.iter().filter_map(|line| line.split(' ').nth(2)?.parse::<u64>().ok()).sum();
        let mebibytes = sum(" MiB written").zip(sum(" MiB read"));
        Self { seeds: lines.len(), deeds, mebibytes }
    }

    fn sentence(&self, commit: &str, taken: Duration) -> String {
        let Self { seeds, deeds, mebibytes } = self;
        let minutes = taken.as_secs() / 60;
        let bytes = match mebibytes {
            None => "not run as root, so no guest wrote to a disk".to_owned(),
            Some((written, read)) => {
                format!(
                    "{written:.0} MiB written by guests, {:.1} GiB read and compared",
                    read / 1024.0
                )
            }
        };
        format!(
            "commit {commit}: {seeds} seeds, {deeds} operations on volumes, {bytes}, {minutes} minutes, 0 failures."
        )
    }
}

/// The report's two results; each part is run, and replaced, for itself.
#[derive(Debug, PartialEq)]
struct Report {
    seeds: String,
    assumed: String,
}

const SEEDS: &str = "- Schedules: ";
const ASSUMED: &str = "- Other assumptions: ";

impl Report {
    fn read(text: &str) -> Self {
        let found = |start| {
            let line = text.lines().find_map(|line| line.strip_prefix(start));
            line.unwrap_or("not run yet.").to_owned()
        };
        Self { seeds: found(SEEDS), assumed: found(ASSUMED) }
    }

    fn text(&self) -> String {
        format!(
            "# Soak of the CSI driver\n\nWritten by `cargo xtask soak csi`; do not edit.\n\n\
             {SEEDS}{}\n{ASSUMED}{}\n\n{EXPLAINED}",
            self.seeds, self.assumed
        )
    }

    fn write(&self, file: &Path) -> Result<()> {
        fs::write(file, self.text()).with_context(|| format!("cannot write {REPORT}"))?;
        print_line(&format!("written to {REPORT}"));
        Ok(())
    }
}

const EXPLAINED: &str = "\
A seed is a schedule of faults over the lives of five volumes with two controllers, by calls and by VolumeAttachments, on releases 7.0U3, 8.0U3 and 9.1.
The faults are refused calls, tasks that fail before, in the middle of and after their work, tasks that fail and do their work later, tasks that vCenter forgets, broken and hanging connections, lost sessions, restarts of vCenter and of CNS, full datastores, disconnected hosts, killed controllers and volumes of the same name.
Every answer is compared with vCenter when it is given.
Guests write to the block devices of attached disks after every step, and first read all of them back: what was written must be there, and zeros elsewhere, also after growth, on another VM, and in a new volume of an old name.
In the end vCenter's volumes and disks, the records in Kubernetes, the disks that guests see and the answers agree, the same requests to the other controller have the same answers, and every volume is attached and read once more.

Not in it: file systems and mounts, which the tests of the node service have.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_not_run_again_keeps_its_result() {
        let seeds = "commit 1: 2 seeds.".to_owned();
        let first = Report { seeds: seeds.clone(), ..Report::read("") };
        assert!(first.text().contains("\n- Other assumptions: not run yet.\n"), "{}", first.text());
        let then = Report { assumed: "commit 2.".to_owned(), ..Report::read(&first.text()) };
        assert_eq!(Report::read(&then.text()), Report { seeds, assumed: "commit 2.".to_owned() });
    }

    #[test]
    fn bytes_count_only_if_every_schedule_had_guests() {
        let with =
            "seed 3: 23 deeds in 8.1 s, 4.5 MiB written, 480 MiB read and compared".to_owned();
        let without = "seed 4: 20 deeds in 7.0 s, no bytes: not run as root".to_owned();
        let both = Totals::of(&[with.clone(), without]);
        assert_eq!(both, Totals { seeds: 2, deeds: 43, mebibytes: None });
        let twice = Totals::of(&[with.clone(), with]);
        assert_eq!(twice, Totals { seeds: 2, deeds: 46, mebibytes: Some((9.0, 960.0)) });
    }
}
