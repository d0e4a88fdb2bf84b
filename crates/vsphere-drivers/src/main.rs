//! One program for all drivers, selected by the name it is called by or by its first argument.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use ccm::args::PROGRAM as CLOUD_CONTROLLER_MANAGER;

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = env::args_os().collect();
    let called = arguments.first().and_then(|path| Path::new(path).file_name());
    // In the image each driver is a link to this program.
    if called != Some(OsStr::new(CLOUD_CONTROLLER_MANAGER)) && !arguments.is_empty() {
        arguments.remove(0);
    }
    let chosen = arguments.first().and_then(|path| Path::new(path).file_name());
    if chosen == Some(OsStr::new(CLOUD_CONTROLLER_MANAGER)) {
        // Variables that are not text are none of ours.
        let variables = env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        return ccm::command::main(arguments, variables);
    }
    let asked = chosen.is_some_and(|word| word == "--help" || word == "-h" || word == "help");
    let text = format!(
        "The vSphere drivers for Kubernetes, version {}.\n\n\
         Usage: vsphere-drivers {CLOUD_CONTROLLER_MANAGER} [FLAGS]\n\n\
         Called by the name of a driver, through a link, it is that driver.\n",
        env!("CARGO_PKG_VERSION")
    );
    if asked {
        let written = io::stdout().write_all(text.as_bytes());
        return if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let name = chosen.map(|word| format!("error: there is no driver {}\n\n", word.display()));
    let text = name.unwrap_or_default() + &text;
    io::stderr().write_all(text.as_bytes()).unwrap_or_default();
    ExitCode::from(2)
}
