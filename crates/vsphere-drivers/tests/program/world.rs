//! An API server, a vCenter, a configuration file, and the program as its users start it.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::{Event, Node};
use kube::{Api, Client, Config, api::ListParams};
pub(crate) use lab::kubelet::{
    SHUTDOWN, UNINITIALIZED, has_taint, is_initialised, label, vsphere_condition,
};
use lab::{ControlPlane, VCenter, VCenterSpec, Wait, kubelet, until, vcenter::Description};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Generous: the machine may be busy with other things.
pub(crate) const BOUND: Duration = Duration::from_secs(60);
pub(crate) const UUID: &str = "4230b1a0-5eed-4000-8000-000000000001";
/// Another one than the API server's.
const ADMIN: u16 = 5;

pub(crate) struct World {
    pub(crate) plane: ControlPlane,
    pub(crate) vcenter: VCenter,
    pub(crate) nodes: Api<Node>,
}

/// A program that runs; dropping it ends it.
pub(crate) struct Program {
    child: Child,
    lines: Receiver<String>,
    seen: String,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_with(str::to_owned).await
    }

    /// With another vCenter than the default one.
    pub(crate) async fn start_with(edit: impl Fn(&str) -> String) -> Self {
        let usual = include_str!("../../../../lab/vcenter/internal/world/default.yaml");
        let description = Description::Text(edit(usual));
        let spec = VCenterSpec { description, ..VCenterSpec::default() };
        let (plane, vcenter) =
            tokio::try_join!(ControlPlane::start(), VCenter::start(&spec)).unwrap();
        let nodes = Api::all(plane.client());
        Self { plane, vcenter, nodes }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.plane.world().dir().join(name)
    }

    /// A file of the world, swapped as a whole as kubelets do it.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let (path, fresh) = (self.path(name), self.path("fresh"));
        fs::write(&fresh, text).unwrap();
        fs::rename(&fresh, &path).unwrap();
        path
    }

    /// The configuration that works; `more` is added at its end.
    pub(crate) fn configuration(&self, more: &str) -> String {
        let (host, port) = self.server();
        format!(
            "global:\n  port: {port}\n  caFile: {}\n  user: cpi@vsphere.local\n  password: Lab-cpi-1!\n\
             vcenter:\n  east:\n    server: {host}\n{more}",
            self.vcenter.authority().display()
        )
    }

    /// Where vCenter is.
    pub(crate) fn server(&self) -> (String, String) {
        let url = self.vcenter.url();
        let authority = url.trim_start_matches("https://").split('/').next().unwrap();
        let (host, port) = authority.rsplit_once(':').unwrap();
        (host.to_owned(), port.to_owned())
    }

    /// Runs the program with the configuration in `vsphere.conf`.
    pub(crate) fn run(&self, flags: &[&str]) -> Program {
        let config = format!("--cloud-config={}", self.path("vsphere.conf").display());
        let kubeconfig = format!("--kubeconfig={}", self.plane.kubeconfig().display());
        let all = [&[config.as_str(), &kubeconfig, "--secure-port=0"], flags].concat();
        Program::start(&all, &[])
    }

    /// Registers a Node as a kubelet does that has an external cloud provider.
    pub(crate) async fn register(&self, name: &str) {
        self.register_as(name, UUID).await;
    }

    /// The same in the VM with this UUID.
    pub(crate) async fn register_as(&self, name: &str, uuid: &str) {
        kubelet::register(&self.nodes, name, uuid, None).await.unwrap();
    }

    /// Waits until a Node is as it should be.
    pub(crate) async fn until(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&Node) -> bool,
    ) -> Node {
        let waited = until(what, BOUND, || async {
            let node = self.nodes.get(name).await?;
            Ok(if holds(&node) { Wait::Done(node) } else { Wait::NotYet(format!("{node:?}")) })
        });
        waited.await.unwrap()
    }

    /// Waits until a Node's condition has this reason, and returns its message.
    pub(crate) async fn until_reason(&self, name: &str, reason: &str) -> String {
        let node = self.until(name, reason, |node| vsphere_condition(node).0 == reason).await;
        vsphere_condition(&node).1.to_owned()
    }

    /// Waits for an event with this reason, and returns its message.
    pub(crate) async fn event(&self, reason: &str) -> String {
        let events: Api<Event> = Api::all(self.plane.client());
        let waited = until(reason, BOUND, || async {
            let all = events.list(&ListParams::default()).await?.items;
            let found = all.iter().find(|event| event.reason.as_deref() == Some(reason));
            Ok(match found {
                Some(event) => Wait::Done(event.message.clone().unwrap_or_default()),
                None => Wait::NotYet(format!("{} other events", all.len())),
            })
        });
        waited.await.unwrap()
    }

    /// The sessions of the program's user.
    pub(crate) async fn sessions(&self) -> usize {
        let state = self.vcenter.control().state_as_json().await.unwrap();
        let ours = |session: &&Value| {
            session["user"].as_str().unwrap_or_default().to_lowercase().contains("cpi")
        };
        state["sessions"].as_array().unwrap().iter().filter(ours).count()
    }

    /// A port for the admin server, and a client of it that trusts anybody.
    pub(crate) fn admin(&self) -> (u16, Client) {
        let port = self.plane.world().port(ADMIN);
        let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
        config.accept_invalid_certs = true;
        (port, Client::try_from(config).unwrap())
    }
}

impl Program {
    pub(crate) fn start(flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vsphere-drivers"));
        // By its name, as the link in the image calls it.
        command.arg0("/bin/vsphere-cloud-controller-manager");
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
