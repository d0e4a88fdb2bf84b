//! `cargo xtask e2e`: Kubernetes' own storage suite.

use anyhow::{Result, bail};

use crate::{lab_commands, output::print_line};

#[derive(clap::Args)]
pub(crate) struct E2e {
    /// Only name the specs that apply to the driver
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(command: &E2e) -> Result<()> {
    lab_commands::build_without_packages(&["e2e.test"])?;
    let specs = lab::storage_suite::specs()?;
    for spec in &specs {
        print_line(spec);
    }
    print_line(&format!("{} specs apply to the driver.", specs.len()));
    if !command.list {
        bail!(
            "there is no CSI driver to run them against yet (see the status table in README.md); `--list` only names them"
        );
    }
    Ok(())
}
