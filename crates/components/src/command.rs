//! Commands that are run to their end: quietly, or with their lines counted for a progress display.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, bail};

/// Runs a command to its end and returns its output; a failure carries the command and its standard error.
///
/// # Errors
/// When the program is missing or exits with anything but 0.
pub fn run(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| cannot_run(command))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    bail!("`{line}` failed ({}): {}", output.status, error.trim())
}

/// Runs a command whose standard error reports its progress. `unit` extracts what a line reports as done, such
/// as a package; `note` gets it with the number so far. All other lines are kept for the error message.
///
/// # Errors
/// As [`run`]; the message has the lines that were kept.
pub fn run_counted(
    command: &mut Command,
    unit: impl Fn(&str) -> Option<&str>,
    mut note: impl FnMut(&str, usize),
    started: impl FnOnce(&Child),
) -> Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| cannot_run(command))?;
    started(&child);
    let mut others = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        let mut seen = 0;
        for line in BufReader::new(stderr).lines() {
            let line = line?;
            if let Some(unit) = unit(&line) {
                seen += 1;
                note(unit, seen);
            } else {
                others.push(line);
            }
        }
    }
    let status = child.wait()?;
    if !status.success() {
        let program = command.get_program().to_string_lossy();
        bail!("{program} failed ({status}):\n{}", others.join("\n"));
    }
    Ok(())
}

/// Cargo, without the variables that cargo sets for a program that it runs: build scripts that read them would
/// run again, and with them everything above them.
#[must_use]
pub fn cargo() -> Command {
    let mut command = Command::new("cargo");
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    command
}

fn cannot_run(command: &Command) -> String {
    format!("cannot run {}: is it installed?", command.get_program().to_string_lossy())
}
