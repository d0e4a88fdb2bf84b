//! `cargo xtask lab`: a lab that outlives the shell, and its status.
//!
//! The lab belongs to a supervisor, a process of its own that `up` leaves behind. Its death, however
//! it comes, is the death of the lab; `down` ends it and removes what is left.

use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use lab::{CloudController, Lab, Progress, Spec, World, components, packages, preflight, reap};
use rustix::process::{Pid, Signal};

use crate::{
    interrupt::unless_interrupted,
    lab_vcenter,
    output::{print_error, print_line, table},
};

#[derive(Subcommand)]
pub(crate) enum LabCommand {
    /// Installs the packages and builds every component that a lab or a test needs
    Build,
    /// Starts a control plane and two nodes, and leaves them running
    Up {
        /// Keep the taint of uninitialized nodes: a cloud controller will be installed
        #[arg(long)]
        expect_cloud_controller: bool,
    },
    /// Removes the lab with everything it made
    Down,
    /// Shows every process of the lab
    Status,
    /// Shows the vCenter's inventory, sessions, volumes, attachments and armed faults
    Vcenter {
        /// Everything, as JSON
        #[arg(long)]
        json: bool,
    },
    /// Holds the lab; started by `up`
    #[command(hide = true)]
    Serve {
        #[arg(long)]
        expect_cloud_controller: bool,
    },
}

/// A second lab would be a second world of the same name.
#[derive(Debug)]
pub(crate) struct AlreadyRunning;

impl std::error::Error for AlreadyRunning {}

impl std::fmt::Display for AlreadyRunning {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "a lab is running already; `cargo xtask lab status` shows it, `make lab-down` removes it.\n{}",
            environment()
        )
    }
}

pub(crate) fn run(command: &LabCommand) -> Result<()> {
    match command {
        LabCommand::Build => build(&components::all()),
        LabCommand::Up { expect_cloud_controller } => up(*expect_cloud_controller),
        LabCommand::Down => down(),
        LabCommand::Status => status(),
        LabCommand::Vcenter { json } => lab_vcenter::run(*json),
        LabCommand::Serve { expect_cloud_controller } => serve(*expect_cloud_controller),
    }
}

/// Installs the packages that nodes need and builds these programs, where they are missing.
pub(crate) fn build(programs: &[&str]) -> Result<()> {
    let progress = Progress::shown(1 + components::steps(programs));
    packages::install(&progress)?;
    components::build(programs, &progress)
}

/// Builds these programs where they are missing, for commands that start no nodes; needs no root.
pub(crate) fn build_without_packages(programs: &[&str]) -> Result<()> {
    components::build(programs, &Progress::shown(components::steps(programs)))
}

fn up(expect_cloud_controller: bool) -> Result<()> {
    if lab::owner(lab::LAB)?.is_some() {
        bail!(AlreadyRunning);
    }
    if !rustix::process::getuid().is_root() {
        // Before the long build: nothing of it could be used.
        preflight::check()?;
    }
    build(components::LAB)?;
    preflight::check()?;
    let mut supervisor = Command::new(std::env::current_exe()?);
    supervisor.args(["lab", "serve"]).stdin(Stdio::null()).stdout(Stdio::piped());
    if expect_cloud_controller {
        supervisor.arg("--expect-cloud-controller");
    }
    let mut supervisor = supervisor.spawn().context("cannot start the lab's supervisor")?;
    let output = supervisor.stdout.take().context("the supervisor has no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    if line.trim() != "ready" {
        let status = supervisor.wait()?;
        // It has printed the reason to our standard error.
        bail!("the lab did not start ({status})");
    }
    let taint = match expect_cloud_controller {
        true => " The nodes wait for a cloud controller: they carry the uninitialized taint.",
        false => "",
    };
    let (user, password) = lab::vcenter::ADMINISTRATOR;
    print_line(&format!(
        "\nThe lab is up.{taint}\n{}\n\nvCenter: {} ({user} / {password}), for pods https://10.99.0.1/sdk\n\nTry:\n  \
         kubectl get nodes -o wide\n  \
         kubectl run hello --image={} -- netexec\n  \
         cargo xtask lab vcenter\n  \
         CNSCTL_PASSWORD='{password}' cnsctl -url {} create data 100 /dc-1/datastore/shared-1\n  \
         cargo xtask lab status\n  \
         make lab-down",
        environment(),
        vcenter_url(),
        lab::image::AGNHOST,
        vcenter_url(),
    ));
    Ok(())
}

fn vcenter_url() -> String {
    format!("https://127.0.0.1:{}/sdk", World::lab_port(1))
}

/// What a shell needs to use the lab.
fn environment() -> String {
    let kubeconfig = lab::state_dir().join(lab::LAB).join("kubeconfig");
    let programs = ["kubectl", "cnsctl"].map(|program| components::binary(program).ok());
    let bins: Vec<String> = programs
        .iter()
        .flatten()
        .filter_map(|program| program.parent().map(|bin| bin.display().to_string()))
        .collect();
    format!("export KUBECONFIG={}\nexport PATH={}:$PATH", kubeconfig.display(), bins.join(":"))
}

/// Until the lab is ready this process is one of the caller's: Ctrl-C ends both, and the kernel ends
/// the lab's processes with it. Then it leaves the caller's session and outlives its shell.
fn serve(expect_cloud_controller: bool) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let Some(world) = World::claim_lab()? else { bail!(AlreadyRunning) };
        let mut spec = Spec::with_vcenter();
        if expect_cloud_controller {
            spec.cloud_controller = CloudController::Expected;
        }
        let log = File::create(world.dir().join("logs/supervisor.log"))?;
        let progress = Progress::shown(spec.steps());
        let lab = unless_interrupted(Lab::start_in(world, &spec, &progress)).await?;
        rustix::process::setsid()?;
        let mut terminated =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        {
            let mut out = std::io::stdout().lock();
            out.write_all(b"ready\n")?;
            out.flush()?;
        }
        rustix::stdio::dup2_stdout(&log)?;
        rustix::stdio::dup2_stderr(&log)?;
        terminated.recv().await;
        drop(lab);
        Ok(())
    })
}

fn down() -> Result<()> {
    match lab::owner(lab::LAB)? {
        None => print_line("No lab is running."),
        Some(supervisor) => {
            end(supervisor)?;
            print_line(
                "The lab is gone: processes, mounts, loop devices, namespaces, cgroups and files.",
            );
        }
    }
    for world in reap::abandoned_worlds()? {
        print_line(&format!("Removed the world {world}, whose owner had died."));
    }
    Ok(())
}

/// Sends SIGTERM to the supervisor, and SIGKILL after a minute; the reaper removes what is left.
fn end(supervisor: u32) -> Result<()> {
    let pid = i32::try_from(supervisor)
        .ok()
        .and_then(Pid::from_raw)
        .context("the supervisor's process id is invalid")?;
    let started = Instant::now();
    let mut signal = Signal::TERM;
    while lab::owner(lab::LAB)?.is_some() {
        if rustix::process::kill_process(pid, signal).is_err() {
            break;
        }
        wait_a_little();
        match started.elapsed().as_secs() {
            0..60 => {}
            60..120 => signal = Signal::KILL,
            _ => bail!("the lab's supervisor (process {supervisor}) does not end"),
        }
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a bounded poll for the end of another process")]
fn wait_a_little() {
    std::thread::sleep(Duration::from_millis(50));
}

fn status() -> Result<()> {
    let Some(supervisor) = lab::owner(lab::LAB)? else {
        print_error("No lab is running; `make lab` starts one.");
        return Ok(());
    };
    let header = ["COMPONENT", "STATE", "VERSION", "PID", "RSS", "LOG"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for process in reap::processes_of(lab::LAB)? {
        let state = if process.is_alive() { "running" } else { "ended" };
        let memory = process
            .resident_bytes()
            .map_or_else(|| "-".to_owned(), |bytes| format!("{} MB", bytes / 1_000_000));
        rows.push(vec![
            process.name.clone(),
            state.to_owned(),
            process.program().as_deref().and_then(version).unwrap_or_else(|| "-".to_owned()),
            process.pid.to_string(),
            memory,
            process.log.display().to_string(),
        ]);
    }
    print_line(&table(&rows));
    print_line(&format!("\nsupervisor: process {supervisor}\n{}", environment()));
    Ok(())
}

/// What the program itself reports; the lab's helpers (`sleep`, `bash`) have no version of interest.
fn version(program: &Path) -> Option<String> {
    let name = program.file_name()?.to_str()?;
    let file = components::binary(name)
        .ok()
        .or_else(|| (name == "containerd").then(|| program.to_owned()))?;
    let text = lab::run(Command::new(file).arg("--version")).ok()?;
    let looks_like_one = |word: &&str| {
        word.trim_start_matches('v').starts_with(|first: char| first.is_ascii_digit())
    };
    text.split_whitespace()
        .find(|word| looks_like_one(word) && word.contains('.'))
        .map(str::to_owned)
}
