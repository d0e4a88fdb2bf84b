//! `cargo xtask demo`: what the drivers do so far, on real Kubernetes with the simulated vCenter, shown as it
//! happens.

pub(crate) mod manager;
mod node_facts;
mod volumes;

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use lab::{
    Background, CloudController, Lab, Progress, Spec, Wait, World, components,
    image::{BUSYBOX, DRIVERS, PAUSE},
    preflight, until,
};

use crate::{
    image::{self, Profile},
    interrupt::interruptible,
    lab_commands,
    output::print_line,
};

const BOUND: Duration = Duration::from_secs(180);
/// Compiling Kubernetes on a slow machine.
const BUILT_WITHIN: Duration = Duration::from_secs(3600);
/// What is built while the first nodes start, in the order in which it is needed.
const LATER: &[&[&str]] = &[
    components::REST_OF_CLUSTER,
    components::SIMULATOR,
    components::SIDECARS,
    components::SNAPSHOT_CONTROLLER,
];

/// Shows what the drivers do so far.
#[derive(clap::Args)]
pub(crate) struct Demo {
    /// Keep everything running at the end, until Ctrl-C
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(command: &Demo) -> Result<()> {
    if !rustix::process::getuid().is_root() {
        // Before the long build: nothing of it could be used.
        preflight::check()?;
    }
    chapter("Getting the parts: real Kubernetes components, built once and kept");
    lab_commands::build(components::FIRST_NODE)?;
    preflight::check()?;
    interruptible(show(command.keep))
}

async fn show(keep: bool) -> Result<()> {
    chapter(
        "Starting a control plane, two nodes and the vCenter they run on, while the rest is built",
    );
    let spec = Spec {
        cloud_controller: CloudController::Expected,
        images: &[PAUSE, BUSYBOX],
        ..Spec::with_vcenter()
    };
    let builds: usize = LATER.iter().map(|group| components::steps(group)).sum();
    let progress = Arc::new(Progress::shown(spec.steps() + builds + 1));
    let building = Background::build(LATER, &progress);
    let shown = Arc::clone(&progress);
    let (done, drivers) = tokio::sync::oneshot::channel();
    // A thread of its own, because its priority is lowered.
    std::thread::spawn(move || done.send(build_drivers(&shown)));
    let drivers = async { drivers.await? };
    let lab = async {
        let world = World::claim()?;
        Lab::start_while_building(world, &spec, &building, &progress).await
    };
    let (lab, built): (Lab, image::Built) = tokio::try_join!(lab, drivers)?;
    until("the demo's clients are built", BUILT_WITHIN, || async {
        let needed =
            [&["kubectl", "cnsctl"], components::SIDECARS, components::SNAPSHOT_CONTROLLER];
        let needed = needed.concat();
        let missing = needed.iter().map(|name| building.has(name)).collect::<Result<Vec<_>>>()?;
        let built = missing.into_iter().all(|built| built);
        Ok(if built { Wait::Done(()) } else { Wait::NotYet("being built".to_owned()) })
    })
    .await?;
    chapter("The drivers: one program, one image, no container engine");
    print_line(&format!(
        "image:   {DRIVERS} (a development build; `make image` makes the optimised one)\ndigest:  {}",
        built.digest
    ));
    manager::show(&lab, &built.archive).await?;
    volumes::show(&lab, &built.archive).await?;
    if keep {
        chapter("The cluster stays until Ctrl-C");
        let kubectl = lab.control_plane().kubectl()?;
        let kubeconfig = lab.control_plane().kubeconfig().display();
        let program = kubectl.get_program().to_string_lossy();
        print_line(&format!(
            "export KUBECONFIG={kubeconfig}\n{program} get nodes -o wide\n\
             {program} -n kube-system logs daemonset/vsphere-cloud-controller-manager"
        ));
        tokio::signal::ctrl_c().await?;
    }
    chapter("Removing everything");
    drop(lab);
    print_line(
        "Processes, mounts, loop devices, namespaces and files are gone.\n\nNext: `make lab` for a cluster of your own.",
    );
    Ok(())
}

fn build_drivers(progress: &Progress) -> Result<image::Built> {
    components::yield_to_others();
    let step = progress.step("drivers");
    step.note("compiling");
    let built = image::make(Profile::Development)?;
    step.done("compiled, and an image made");
    Ok(built)
}

fn chapter(title: &str) {
    print_line(&format!("\n── {title}"));
}
