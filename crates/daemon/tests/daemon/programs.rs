//! Whole programs: this test binary runs itself as one, and gets real signals.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use daemon::{
    lease::{Elector, identity},
    supervise::{Shutdown, Supervisor},
    telemetry,
};
use lab::ControlPlane;
use rustix::process::{Pid, Signal, kill_process};
use tracing::info;

use crate::{BOUND, flags};

/// Says what the program should be; without it there is nothing to do.
const ROLE: &str = "DAEMON_TEST_ROLE";
const KUBECONFIG: &str = "DAEMON_TEST_KUBECONFIG";
/// Longer than any test waits, unless the role says otherwise.
const GRACE: Duration = Duration::from_secs(600);

/// The program that the tests below start.
#[tokio::test]
async fn a_program_under_test() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let kubeconfig = std::env::var(KUBECONFIG).unwrap_or_default();
    let flags = flags(&[
        &format!("--kubeconfig={kubeconfig}"),
        "--leader-elect-lease-duration=1h",
        "--leader-elect-renew-deadline=30s",
        "--leader-elect-retry-period=200ms",
    ]);
    telemetry::install(flags.logs.log_format, flags.logs.verbosity).unwrap();
    let mut tasks = Supervisor::new().unwrap();
    match role.as_str() {
        "leader" => {
            let client = flags.kubernetes.client("program").await.unwrap();
            let timing = flags.leader.timing().unwrap();
            let name = &flags.leader.leader_elect_resource_name;
            let elector = Elector::new(client, "kube-system", name, identity().unwrap(), timing);
            let leadership = elector.leadership();
            tasks.foundation.spawn("lease", |shutdown| elector.run(shutdown));
            tasks.work.spawn("work", |shutdown| async move {
                shutdown.unless(leadership.acquired()).await;
                polite(shutdown).await
            });
        }
        "polite" => tasks.work.spawn("work", polite),
        _ => tasks.work.spawn("work", |_| async {
            info!("the work begins");
            std::future::pending::<Result<(), std::fmt::Error>>().await
        }),
    }
    let grace = if role == "deaf, briefly" { Duration::from_secs(1) } else { GRACE };
    let ended = tasks.run(grace).await;
    info!(?ended, "the program ends");
    ended.unwrap();
}

async fn polite(shutdown: Shutdown) -> Result<(), std::fmt::Error> {
    info!("the work begins");
    shutdown.requested().await;
    Ok(())
}

/// A program that runs; dropping it ends it.
struct Program {
    child: Child,
    lines: Receiver<String>,
}

impl Program {
    fn start(role: &str, plane: Option<&ControlPlane>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "programs::a_program_under_test", "--nocapture"]).env(ROLE, role);
        if let Some(plane) = plane {
            command.env(KUBECONFIG, plane.kubeconfig());
        }
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = mpsc::channel();
        // Ends with the program's output.
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                sender.send(line).unwrap_or_default();
            }
        });
        Self { child, lines }
    }

    fn says(&self, text: &str) {
        let started = Instant::now();
        let mut seen = String::new();
        while let Some(left) = BOUND.checked_sub(started.elapsed()) {
            match self.lines.recv_timeout(left) {
                Ok(line) if line.contains(text) => return,
                Ok(line) => seen.extend([line.as_str(), "\n"]),
                Err(_) => break,
            }
        }
        panic!("no line with {text:?}; there were:\n{seen}");
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    fn ends(&mut self) -> ExitStatus {
        let started = Instant::now();
        while let Some(left) = BOUND.checked_sub(started.elapsed()) {
            // Its end closes its output.
            if let Err(RecvTimeoutError::Disconnected) = self.lines.recv_timeout(left) {
                return self.child.wait().unwrap();
            }
        }
        panic!("it still runs");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn either_signal_ends_a_program_gracefully() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut program = Program::start("polite", None);
        program.says("the work begins");
        program.signal(signal);
        assert!(program.ends().success());
    }
}

#[test]
fn a_task_that_does_not_listen_is_ended_at_the_bound_and_named() {
    let mut program = Program::start("deaf, briefly", None);
    program.says("the work begins");
    program.signal(Signal::TERM);
    program.says(r#"names: ["work"]"#);
    assert!(!program.ends().success());
}

#[test]
fn a_second_signal_ends_the_program_at_once() {
    let mut program = Program::start("deaf", None);
    program.says("the work begins");
    program.signal(Signal::TERM);
    program.says("shutdown requested");
    program.signal(Signal::TERM);
    program.says("Impatient");
    assert!(!program.ends().success());
}

#[tokio::test]
async fn of_two_programs_the_second_works_when_the_first_was_asked_to_end() {
    let plane = ControlPlane::start().await.unwrap();
    let mut first = Program::start("leader", Some(&plane));
    first.says("became leader");
    first.says("the work begins");
    let second = Program::start("leader", Some(&plane));
    second.says("standing by");
    first.signal(Signal::TERM);
    first.says("lease released");
    assert!(first.ends().success());
    // Its lease would have lasted for an hour.
    second.says("became leader");
    second.says("the work begins");
}
