//! `cargo xtask e2e`: Kubernetes' own storage suite against the CSI driver, on two nodes of a lab.
//!
//! The driver is installed from `deploy/`, with its roles, by the stock sidecars, and every spec that applies to what it can
//! do is run. The table is printed, and `target/e2e/report.json` has an entry for each spec.

mod report;

use std::{cell::Cell, path::PathBuf};

use anyhow::{Result, bail};
use lab::{
    Lab, Progress, Spec as LabSpec, World, components, csi_driver, preflight,
    storage_suite::{self, Outcome, Run, Spec, State},
};

use crate::{
    image::{self, Profile},
    interrupt::interruptible,
    lab_commands,
    output::print_line,
};

#[derive(clap::Args)]
pub(crate) struct E2e {
    /// Only name the specs that would be run
    #[arg(long)]
    list: bool,
    /// Only specs whose name matches this regular expression
    #[arg(long, value_name = "REGEX")]
    focus: Option<String>,
    /// How many specs run at once
    #[arg(long, value_name = "NUMBER", default_value_t = 4)]
    at_once: usize,
}

pub(crate) fn run(command: &E2e) -> Result<()> {
    if command.list {
        lab_commands::build_without_packages(&["e2e.test"])?;
        let specs = storage_suite::specs(command.focus.as_deref())?;
        specs.iter().for_each(|spec| print_line(&spec.name));
        print_line(&format!(
            "{} specs; those about what the driver cannot do will skip themselves.",
            specs.len()
        ));
        return Ok(());
    }
    let suite = [&["e2e.test"], components::SIDECARS, components::SNAPSHOT_CONTROLLER].concat();
    lab_commands::build(&[components::LAB, &suite].concat())?;
    preflight::check()?;
    let specs = storage_suite::specs(command.focus.as_deref())?;
    if specs.is_empty() {
        bail!("no spec matches; `cargo xtask e2e --list` names all");
    }
    let drivers = image::make(Profile::Development)?;
    let outcomes = interruptible(async {
        let spec = LabSpec::with_vcenter();
        let progress = Progress::shown(spec.steps() + csi_driver::STEPS);
        let lab = Lab::start_in(World::claim()?, &spec, &progress).await?;
        let objects = csi_driver::manifests()?;
        csi_driver::install(&lab, &drivers.archive, &objects, &progress).await?;
        let outcomes = run_specs(&lab, specs, command.at_once).await?;
        drop(lab);
        Ok(outcomes)
    })?;
    report::write(&directory(), &outcomes)?;
    print_line(&report::tables(&outcomes));
    let line = report::summary(&outcomes);
    print_line(&line);
    if outcomes.iter().any(|outcome| outcome.state == State::Failed) {
        bail!("{line}");
    }
    Ok(())
}

async fn run_specs(lab: &Lab, specs: Vec<Spec>, at_once: usize) -> Result<Vec<Outcome>> {
    let (mut outcomes, possible) = storage_suite::divide(lab, specs)?;
    let (total, ended) = (possible.len(), Cell::new(0_usize));
    let run = Run { logs: directory().join("logs"), at_once };
    let note = |outcome: &Outcome| {
        ended.set(ended.get() + 1);
        // What does not apply would hide what does.
        if outcome.state != State::Skipped {
            print_line(&format!("[{}/{total}] {}", ended.get(), report::line(outcome)));
        }
    };
    outcomes.extend(run.specs(lab, possible, &note).await?);
    Ok(outcomes)
}

fn directory() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/e2e"))
}
