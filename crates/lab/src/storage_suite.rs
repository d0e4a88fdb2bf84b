//! Kubernetes' own storage suite, against the CSI driver of a lab; `lab/e2e/driver.yaml` describes the driver to it.
//!
//! The suite's own parallel runner is a program that we do not have, so several processes get a few specs each.

mod report;

use std::{
    collections::VecDeque,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::task::JoinSet;

pub use self::report::{Outcome, Spec, State};
use crate::{
    cluster::Lab,
    image::{self, GLIBC, NGINX},
    manifest_files,
    process::{Place, run},
    snapshot_controller,
    world::World,
};

/// What we leave out: other operating systems, and specs that end parts of the cluster.
const SKIP: &str = "Disruptive|Windows";
const FOCUS: &str = "External.Storage";
/// Specs for one process. Starting one takes a second or two; what it does not get, another may have earlier.
const BATCH: usize = 3;
/// What specs run besides the images that every lab has.
const IMAGES: [&str; 2] = [NGINX, GLIBC];
/// A spec that hangs is cut off by the suite itself long before.
const LONGEST: &str = "3h";

/// The specs whose name matches the regular expression, or all; also those that skip themselves because of what the driver
/// cannot do. Starts nothing: it is the suite's own dry run.
///
/// # Errors
/// When the suite is not built or rejects the driver's definition or the expression.
pub fn specs(focus: Option<&str>) -> Result<Vec<Spec>> {
    let world = World::claim()?;
    let report = world.dir().join("specs.json");
    // The program has no other specs.
    run(suite()?
        .current_dir(world.dir())
        .args(["-ginkgo.dry-run", &format!("-ginkgo.focus={}", focus.unwrap_or(FOCUS))])
        .arg(format!("-ginkgo.skip={SKIP}"))
        .arg(format!("-ginkgo.json-report={}", report.display())))?;
    let chosen = report::read(&report)?.into_iter().filter(|one| one.state == State::Passed);
    let mut specs: Vec<Spec> = chosen.map(|one| one.spec).collect();
    // The suite's own order is random.
    specs.sort();
    Ok(specs)
}

/// Specs that need programs of others which are not in the registries that a lab is built from, and which these are.
const WITHOUT_PROGRAMS: [(&str, &str); 1] = [(
    "should provision storage with any volume data source",
    "it needs the images hello-populator and volume-data-source-validator, which cannot be had here",
)];

/// Takes out what cannot be run here, as outcomes with the reason; the rest can be run.
///
/// # Errors
/// When it cannot be found out.
pub fn divide(lab: &Lab, specs: Vec<Spec>) -> Result<(Vec<Outcome>, Vec<Spec>)> {
    let mut ext4 = None;
    let (mut skipped, mut rest) = (Vec::new(), Vec::new());
    for spec in specs {
        let missing = WITHOUT_PROGRAMS.iter().find(|(demand, _)| spec.demand == *demand);
        let reason = match missing {
            Some((_, reason)) => Some((*reason).to_owned()),
            None if grows_ext4(&spec) => {
                if ext4.is_none() {
                    ext4 = Some(cannot_grow_ext4(lab)?);
                }
                ext4.clone().flatten()
            }
            None => None,
        };
        match reason {
            Some(reason) => {
                skipped.push(Outcome { spec, state: State::Skipped, reason, took: Duration::ZERO });
            }
            None => rest.push(spec),
        }
    }
    Ok((skipped, rest))
}

/// Whether the spec grows a mounted volume of the class's own file system, ext4; the same is demanded of xfs and of devices.
fn grows_ext4(spec: &Spec) -> bool {
    let ephemeral = spec.volume.starts_with("Generic Ephemeral-volume")
        && spec.demand == "should support expansion of pvcs created for ephemeral pvcs";
    let grows = ephemeral || spec.volume.contains("(allowExpansion)");
    grows && spec.volume.contains("(default fs)")
}

/// Why this machine's root cannot grow an ext4 that is mounted; `None` where it can. Tries it.
fn cannot_grow_ext4(lab: &Lab) -> Result<Option<String>> {
    let node = lab.nodes().first().context("this lab has no node")?;
    let disk = lab.disk("6000c29a5eed4000800000000000e4f5", 64 << 20)?;
    let device = disk.device().display().to_string();
    let place = "/mnt/growing";
    node.run("mkfs.ext4", &["-q", &device])?;
    node.run("mkdir", &["-p", place])?;
    node.run("mount", &[&device, place])?;
    let grown = disk.grow(128 << 20).and_then(|()| node.run("resize2fs", &[&device]));
    node.run("umount", &[place])?;
    Ok(grown.err().map(|error| {
        let error = format!("{error:#}");
        let cause = error.lines().rfind(|line| line.contains("resize")).unwrap_or(&error);
        format!(
            "root on this machine may not grow a mounted ext4 (CAP_SYS_RESOURCE): {}",
            cause.trim()
        )
    }))
}

fn suite() -> Result<Command> {
    let definition = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/e2e/driver.yaml");
    let mut command = Place::Machine.command(components::binary("e2e.test")?);
    command.arg(format!("-storage.testdriver={}", definition.canonicalize()?.display()));
    Ok(command)
}

/// A run of specs in a lab that has the driver.
#[derive(Clone, Debug)]
pub struct Run {
    /// Where the output of the suite goes.
    pub logs: PathBuf,
    /// How many specs may run at once, besides those that want the cluster for themselves.
    pub at_once: usize,
}

impl Run {
    /// Runs the specs and returns what became of them, in the order in which they ended; `note` gets each as it ends. Those
    /// that want the cluster for themselves come last.
    ///
    /// # Errors
    /// When the suite cannot be started. A spec that fails is an outcome.
    pub async fn specs(
        &self,
        lab: &Lab,
        specs: Vec<Spec>,
        note: &dyn Fn(&Outcome),
    ) -> Result<Vec<Outcome>> {
        fs::create_dir_all(&self.logs)
            .with_context(|| format!("cannot create {}", self.logs.display()))?;
        for (number, image) in image::standard(&IMAGES)?.iter().enumerate() {
            let archive = lab.control_plane().world().dir().join(format!("suite-{number}.tar"));
            image.write(&archive)?;
            for node in lab.nodes() {
                node.import(&archive).await?;
            }
        }
        lab.control_plane().apply(&manifest_files::read("csi-storage-classes.yaml")?)?;
        snapshot_controller::install(lab).await?;
        lab.control_plane().apply(&manifest_files::read("csi-snapshot-class.yaml")?)?;
        let (alone, together): (Vec<Spec>, Vec<Spec>) =
            specs.into_iter().partition(Spec::is_serial);
        let batches = together.chunks(BATCH).map(<[Spec]>::to_vec).collect();
        let mut outcomes = self.batches(lab, "together", batches, self.at_once, note).await?;
        let batches = alone.into_iter().map(|spec| vec![spec]).collect();
        outcomes.extend(self.batches(lab, "alone", batches, 1, note).await?);
        Ok(outcomes)
    }

    async fn batches(
        &self,
        lab: &Lab,
        name: &str,
        mut batches: VecDeque<Vec<Spec>>,
        at_once: usize,
        note: &dyn Fn(&Outcome),
    ) -> Result<Vec<Outcome>> {
        let mut running = JoinSet::new();
        let mut outcomes = Vec::new();
        let mut number = 0;
        loop {
            while running.len() < at_once
                && let Some(batch) = batches.pop_front()
            {
                number += 1;
                let process = self.process(lab, &format!("{name}-{number}"), batch)?;
                running.spawn(process.run());
            }
            let Some(ended) = running.join_next().await else { return Ok(outcomes) };
            let ended = ended.context("a task that ran specs broke off")??;
            ended.iter().for_each(note);
            outcomes.extend(ended);
        }
    }

    fn process(&self, lab: &Lab, name: &str, specs: Vec<Spec>) -> Result<Process> {
        let mut command = suite()?;
        let plane = lab.control_plane();
        let report = self.logs.join(format!("{name}.json"));
        let log = self.logs.join(format!("{name}.log"));
        let output = File::create(&log)?;
        command
            .current_dir(plane.world().dir())
            .arg(format!("-kubeconfig={}", plane.kubeconfig().display()))
            .arg(format!("-kubectl-path={}", components::binary("kubectl")?.display()))
            .args(["-provider=skeleton", "-dump-logs-on-failure=false", "-ginkgo.no-color"])
            .arg(format!("-ginkgo.timeout={LONGEST}"))
            .arg(format!("-ginkgo.json-report={}", report.display()))
            .args(specs.iter().map(|spec| format!("-ginkgo.focus={}", spec.pattern())))
            .stdout(output.try_clone()?)
            .stderr(output);
        Ok(Process { command, specs, report, log })
    }
}

/// A process of the suite with its specs.
struct Process {
    command: Command,
    specs: Vec<Spec>,
    report: PathBuf,
    log: PathBuf,
}

impl Process {
    async fn run(self) -> Result<Vec<Outcome>> {
        let mut command = tokio::process::Command::from(self.command);
        let status = command.stdin(Stdio::null()).kill_on_drop(true).status().await;
        let status = status.context("cannot run the storage suite")?;
        let reported = report::read(&self.report).unwrap_or_default();
        let mut outcomes = Vec::new();
        for spec in self.specs {
            let found = reported.iter().find(|one| one.spec == spec && one.state != State::NotRun);
            outcomes.push(found.cloned().unwrap_or_else(|| Outcome {
                spec,
                state: State::Failed,
                reason: format!(
                    "the suite ended ({status}) without a report of this spec; see {}",
                    self.log.display()
                ),
                took: Duration::ZERO,
            }));
        }
        Ok(outcomes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_specs_that_grow_a_mounted_ext4_need_a_machine_that_can() {
        let grows = |volume: &str, demand: &str| {
            let name = format!("External Storage {volume} {demand}");
            let suite = String::new();
            grows_ext4(&Spec { suite, volume: volume.to_owned(), demand: demand.to_owned(), name })
        };
        let of_ephemeral = "should support expansion of pvcs created for ephemeral pvcs";
        assert!(grows("Dynamic PV (default fs)(allowExpansion)", "should resize volume"));
        assert!(grows("Generic Ephemeral-volume (default fs) (late-binding)", of_ephemeral));
        assert!(!grows("Generic Ephemeral-volume (block volmode) (late-binding)", of_ephemeral));
        assert!(!grows("Dynamic PV (block volmode)(allowExpansion)", "should resize volume"));
        // It skips itself.
        assert!(!grows("CSI Ephemeral-volume (default fs)", of_ephemeral));
        assert!(!grows("Generic Ephemeral-volume (default fs) (late-binding)", "should create"));
    }
}
