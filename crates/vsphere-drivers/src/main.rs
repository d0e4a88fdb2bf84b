//! One program for all drivers, selected by the name it is called by or by its first argument.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

/// A driver's name, and its `main`: it takes its arguments, its name among them, and the environment.
type Driver = (&'static str, fn(Vec<OsString>, Vec<(String, String)>) -> ExitCode);

const DRIVERS: &[Driver] =
    &[(ccm::args::PROGRAM, ccm::command::main), (csi::args::PROGRAM, csi::command::main)];

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = env::args_os().collect();
    // In the image each driver is a link to this program.
    if driver(&arguments).is_none() && !arguments.is_empty() {
        arguments.remove(0);
    }
    if let Some((name, main)) = driver(&arguments) {
        if *name == ccm::args::PROGRAM && env::var_os(csi::args::MODE).is_some() {
            return wrong_image();
        }
        // Variables that are not text are none of ours.
        let variables = env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        return main(arguments, variables.collect());
    }
    let chosen = arguments.first();
    let asked = chosen.is_some_and(|word| word == "--help" || word == "-h" || word == "help");
    if asked {
        let written = io::stdout().write_all(usage().as_bytes());
        return if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let name = chosen.map(|word| format!("error: there is no driver {}\n\n", word.display()));
    let text = name.unwrap_or_default() + &usage();
    io::stderr().write_all(text.as_bytes()).unwrap_or_default();
    ExitCode::from(2)
}

/// A pod of the Go CSI driver names no command, so it depends on the image which driver is started.
fn wrong_image() -> ExitCode {
    let text = format!(
        "error: {} is set, so this is a pod of the CSI driver, and its image starts the cloud controller manager; \
         use the image {}\n",
        csi::args::MODE,
        csi::manifests::GO_DRIVER_IMAGE,
    );
    io::stderr().write_all(text.as_bytes()).unwrap_or_default();
    ExitCode::FAILURE
}

/// The driver that the first word names, which may be a path.
fn driver(arguments: &[OsString]) -> Option<&'static Driver> {
    let name = Path::new(arguments.first()?).file_name()?;
    DRIVERS.iter().find(|(known, _)| OsStr::new(known) == name)
}

fn usage() -> String {
    let lines: String =
        DRIVERS.iter().map(|(name, _)| format!("  vsphere-drivers {name} [FLAGS]\n")).collect();
    format!(
        "The vSphere drivers for Kubernetes, version {}.\n\nUsage:\n{lines}\n\
         Called by the name of a driver, through a link, it is that driver.\n",
        env!("CARGO_PKG_VERSION")
    )
}
