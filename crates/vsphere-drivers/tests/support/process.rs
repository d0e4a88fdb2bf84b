//! A driver as a process: what it prints, how it ends.

use std::{
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// Generous: the machine may be busy with other things.
pub(crate) const BOUND: Duration = Duration::from_secs(60);

/// A program that runs; dropping it ends it.
pub(crate) struct Program {
    child: Child,
    lines: Receiver<String>,
    seen: String,
}

impl Program {
    /// Starts a driver by its name, as the link in the image does.
    pub(crate) fn start(driver: &str, flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vsphere-drivers"));
        command.arg0(format!("/bin/{driver}"));
        command.args(flags).envs(variables.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let outputs: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        // Each ends with the program's output.
        for output in outputs {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    sender.send(line).unwrap_or_default();
                }
            });
        }
        Self { child, lines, seen: String::new() }
    }

    /// The lines with this text that were printed and not read so far.
    pub(crate) fn printed(&mut self, text: &str) -> String {
        let all: String = self.lines.try_iter().map(|line| line + "\n").collect();
        self.seen.push_str(&all);
        all.lines().filter(|line| line.contains(text)).collect::<Vec<_>>().join("\n")
    }

    /// Waits for a line of its output.
    pub(crate) fn until_printed(&mut self, text: &str) -> String {
        let started = Instant::now();
        while let Some(left) = BOUND.checked_sub(started.elapsed()) {
            let Ok(line) = self.lines.recv_timeout(left) else { break };
            self.seen.extend([line.as_str(), "\n"]);
            if line.contains(text) {
                return line;
            }
        }
        panic!("no line with {text:?}; there were:\n{}", self.seen);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end; returns how it ended and all that it printed.
    pub(crate) fn until_ended(&mut self) -> (ExitStatus, String) {
        let started = Instant::now();
        while let Some(left) = BOUND.checked_sub(started.elapsed()) {
            match self.lines.recv_timeout(left) {
                Ok(line) => self.seen.extend([line.as_str(), "\n"]),
                // Its end closes its output.
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return (self.child.wait().unwrap(), self.seen.clone());
                }
                Err(mpsc::RecvTimeoutError::Timeout) => break,
            }
        }
        panic!("it still runs:\n{}", self.seen);
    }

    /// Asks it to end and waits until it has done so well.
    pub(crate) fn stop(&mut self) {
        self.signal(Signal::TERM);
        let (status, seen) = self.until_ended();
        assert!(status.success(), "{status}:\n{seen}");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
