//! The project's own commands, behind `cargo xtask`. The Makefile calls these and nothing else.

mod bench;
mod bench_ccm;
mod bench_csi;
mod bench_demo;
mod bench_failover;
mod bench_vsphere;
mod corpus;
mod demo;
#[cfg(test)]
mod dependencies;
mod deploy;
mod e2e;
mod empty_caches;
mod image;
mod interrupt;
mod lab_commands;
mod lab_vcenter;
mod lines;
mod measured;
mod output;
mod soak;
mod suite;
#[cfg(test)]
mod tidy;
mod vsphere_gen;
mod walk;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lab::preflight::Unmet;

use crate::output::print_error;

/// The project's commands.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A real Kubernetes on this machine
    #[command(subcommand)]
    Lab(lab_commands::LabCommand),
    /// Formatting, lints and unit tests: the quick subset of `test`
    Check,
    /// Everything: set-up, formatting, lints, unit tests, tests against real parts
    Test,
    /// Tests under every choice of those assumptions about real vCenters that they depend on
    Walk(walk::Walk),
    /// Many random schedules of faults, and a report of them
    #[command(subcommand)]
    Soak(soak::Soak),
    /// Compares how users' configuration files are read with what the Go programs make of them
    Corpus(corpus::Corpus),
    /// Counts production lines per crate
    Lines,
    /// Writes deploy/*.yaml from the typed manifests
    Deploy,
    /// Shows what the project can do so far, on this machine
    Demo(demo::Demo),
    /// Makes the drivers' container image with its bill of materials
    Image,
    /// Kubernetes' own storage suite
    E2e(e2e::E2e),
    /// Measures, prints a table and writes target/bench/*.json
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Writes the generated types of crate vsphere from pyVmomi's tables
    VsphereGen(vsphere_gen::VsphereGen),
}

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    let answer = match command {
        Command::Lab(command) => lab_commands::run(&command),
        Command::Check => suite::check(),
        Command::Test => suite::test(),
        Command::Walk(command) => walk::run(&command),
        Command::Soak(command) => soak::run(&command),
        Command::Corpus(command) => corpus::run(&command),
        Command::Lines => lines::run(),
        Command::Deploy => deploy::run(),
        Command::Demo(command) => demo::run(&command),
        Command::Image => image::run(),
        Command::E2e(command) => e2e::run(&command),
        Command::Bench(command) => bench::run(&command),
        Command::VsphereGen(command) => vsphere_gen::run(&command),
    };
    match answer {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&format!("error: {error:#}"));
            exit_code(&error)
        }
    }
}

/// 1: it failed. 2: wrong use (clap's own). 3: this machine cannot do it. 4: a lab is running already.
fn exit_code(error: &anyhow::Error) -> ExitCode {
    if error.downcast_ref::<Unmet>().is_some() {
        ExitCode::from(3)
    } else if error.downcast_ref::<lab_commands::AlreadyRunning>().is_some() {
        ExitCode::from(4)
    } else {
        ExitCode::FAILURE
    }
}
