//! `cargo xtask demo`: what the drivers do so far, on real Kubernetes with the simulated vCenter, told as it
//! happens.

mod manager;
mod node_facts;
mod volume;

use std::time::Duration;

use anyhow::Result;
use lab::{CloudController, Lab, Progress, Spec, World, preflight};

use crate::{image, interrupt::interruptible, lab_commands, output::say};

const BOUND: Duration = Duration::from_secs(180);

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
    lab_commands::build()?;
    preflight::check()?;
    chapter("Building the drivers: one program, one image, no container engine");
    let built = image::make()?;
    say(&format!("image:   {}\ndigest:  {}", ccm::manifests::IMAGE, built.digest));
    interruptible(tell(&built, command.keep))
}

async fn tell(built: &image::Built, keep: bool) -> Result<()> {
    chapter("Starting a control plane, two nodes and the vCenter they run on");
    let spec = Spec { cloud_controller: CloudController::Expected, ..Spec::with_vcenter() };
    let progress = Progress::shown(spec.steps());
    let lab = Lab::start_in(World::claim()?, &spec, &progress).await?;
    manager::tell(&lab, &built.archive).await?;
    volume::tell(&lab).await?;
    if keep {
        chapter("The cluster stays until Ctrl-C");
        let kubectl = lab.control_plane().kubectl()?;
        let kubeconfig = lab.control_plane().kubeconfig().display();
        let program = kubectl.get_program().to_string_lossy();
        say(&format!(
            "export KUBECONFIG={kubeconfig}\n{program} get nodes -o wide\n\
             {program} -n kube-system logs daemonset/vsphere-cloud-controller-manager"
        ));
        tokio::signal::ctrl_c().await?;
    }
    chapter("Removing everything");
    drop(lab);
    say(
        "Processes, mounts, loop devices, namespaces and files are gone.\n\nNext: `make lab` for a cluster of your own.",
    );
    Ok(())
}

fn chapter(title: &str) {
    say(&format!("\n── {title}"));
}
