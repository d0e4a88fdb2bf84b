//! The command line and the environment of `vsphere-csi`, as settings that cannot be wrong.
//!
//! Manifests written for the Go program work as they are: its variables choose the mode and the socket, and its flags
//! are accepted. A variable that stands for a flag is read before the command line, so that a flag wins.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Parser};
use daemon::args::{
    self, Answer, Ignored, Kubernetes, Line, Listen, Logs, OptionalListen, OptionalPath, Removed,
    optional_listen, optional_path, switch,
};

/// The program's name, also its user agent at the API server.
pub const PROGRAM: &str = "vsphere-csi";

/// The variable that says what a process of the driver is for; no other program has it.
pub const MODE: &str = "X_CSI_MODE";

const LEVEL: &str = "LOGGER_LEVEL";
const LEVELS: [&str; 2] = ["PRODUCTION", "DEVELOPMENT"];

const REMOVED: &[Removed] = &[];

/// Flags of the Go program without effect here: there are no feature switches and no profiler.
const IGNORED: &[Ignored] = &[
    Ignored::Value("fss-name"),
    Ignored::Value("fss-namespace"),
    Ignored::Value("supervisor-fss-name"),
    Ignored::Value("supervisor-fss-namespace"),
    Ignored::Switch("enable-profile-server"),
];

/// The name of the driver's own configuration file; a file with another name is the cloud controller manager's.
const OWN_CONFIG: &str = "csi-vsphere.conf";

const ENVIRONMENT: &str = "\
Environment:
  CSI_ENDPOINT             The socket to serve at: unix:///path. Required.
  X_CSI_MODE               controller or node. Required.
  CSI_NAMESPACE            The driver's namespace [default: vmware-system-csi]
  NODE_NAME                The name of this Node, in mode node.
  VSPHERE_CSI_CONFIG       The same as --cloud-config.
  LOGGER_LEVEL             PRODUCTION: --log-format=json; DEVELOPMENT: --log-format=text --v=4.
  INCLUSTER_CLIENT_QPS     The same as --kube-api-qps, from 5 to 1000.
  INCLUSTER_CLIENT_BURST   The same as --kube-api-burst, from 5 to 1000.
";

/// Provides volumes of vSphere to pods: as the controller of a cluster or on one of its nodes.
#[derive(Parser, Debug)]
#[command(name = PROGRAM, version, after_help = ENVIRONMENT)]
struct Flags {
    #[command(flatten)]
    controller: ControllerFlags,
    #[command(flatten)]
    node: NodeFlags,
    #[command(flatten)]
    serving: ServingFlags,
    #[command(flatten)]
    kubernetes: Kubernetes,
    #[command(flatten)]
    logs: Logs,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Controller")]
struct ControllerFlags {
    /// The configuration file: csi-vsphere.conf, or under any other name the cloud controller manager's, which then
    /// serves both programs.
    #[arg(long, default_value = "/etc/cloud/csi-vsphere.conf", value_name = "PATH")]
    cloud_config: PathBuf,
    /// Attach and detach volumes, instead of the external attacher. It works under the attacher's lease, so that
    /// never both work.
    #[arg(long, default_value = "false", num_args = 0..=1, default_missing_value = "true",
          require_equals = true, value_parser = switch, action = clap::ArgAction::Set)]
    attach: bool,
    /// How many seconds a call may still be carried out by vCenter after the last sign of it. Until then no volume of
    /// the same name is made. Creating a volume with a thick disk may take five minutes. For tests with a vCenter whose
    /// delays are known.
    #[arg(long, default_value_t = 360, value_name = "SECONDS")]
    settle: u64,
    /// Create volumes that are larger than what is free on their datastore, as the Go driver does: disks are thin, and
    /// take what is written to them. Without it such a volume is refused, because pods fail when the datastore is full.
    #[arg(long, default_value = "false", num_args = 0..=1, default_missing_value = "true",
          require_equals = true, value_parser = switch, action = clap::ArgAction::Set)]
    overcommit: bool,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Node")]
struct NodeFlags {
    /// Register with the kubelet, instead of the external registrar: where the kubelet finds the socket that
    /// CSI_ENDPOINT names, such as /var/lib/kubelet/plugins/csi.vsphere.vmware.com/csi.sock.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "PATH", value_parser = optional_path)]
    kubelet_registration_path: OptionalPath,
    /// The directory that the kubelet watches for new drivers, as this process sees it.
    #[arg(long, default_value = "/registration", value_name = "PATH")]
    registration_directory: PathBuf,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Serving")]
struct ServingFlags {
    /// Where /healthz is served over plain HTTP, such as :9808; nowhere by default.
    #[arg(long, default_value = "", hide_default_value = true, value_parser = optional_listen)]
    health_address: OptionalListen,
    /// Where /metrics is served over plain HTTP, without authentication; empty: nowhere. [default: :2112 in mode
    /// controller]
    #[arg(long, value_parser = optional_listen)]
    metrics_address: Option<OptionalListen>,
    /// Only call the driver that serves at CSI_ENDPOINT, and end: with an error if it does not answer. For probes that
    /// must not depend on the network of pods.
    #[arg(long, default_value = "false", num_args = 0..=1, default_missing_value = "true",
          require_equals = true, value_parser = switch, action = clap::ArgAction::Set)]
    probe: bool,
}

/// What the program is to do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The socket of the CSI services.
    pub endpoint: PathBuf,
    /// Which services.
    pub mode: Mode,
    /// The namespace of the driver's own objects.
    pub namespace: String,
    /// Where `/healthz` is served.
    pub health: Option<Listen>,
    /// Where `/metrics` is served.
    pub metrics: Option<Listen>,
    /// The Kubernetes API.
    pub kubernetes: Kubernetes,
    /// What is logged.
    pub logs: Logs,
    /// Flags and variables that were given and change nothing.
    pub unused: Vec<String>,
}

/// What a process is for.
#[derive(Clone, Debug)]
pub enum Mode {
    /// Volumes of the cluster.
    Controller(Controller),
    /// Volumes on one node.
    Node(Node),
    /// Only to call one of the others, and to end with its answer.
    Probe,
}

/// A controller.
#[derive(Clone, Debug)]
pub struct Controller {
    /// The configuration file.
    pub config: ConfigFile,
    /// Whether the built-in attach controller runs.
    pub attach: bool,
    /// How long a call whose answer was never seen may still be carried out.
    pub settle: Duration,
    /// Whether volumes may be larger than what is free on their datastore.
    pub overcommit: bool,
}

/// Which file is the configuration, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigFile {
    /// `csi-vsphere.conf`.
    Own(PathBuf),
    /// The cloud controller manager's.
    Shared(PathBuf),
}

impl ConfigFile {
    /// Where it is.
    pub fn path(&self) -> &Path {
        match self {
            Self::Own(path) | Self::Shared(path) => path,
        }
    }
}

/// A node.
#[derive(Clone, Debug)]
pub struct Node {
    /// The Node's name; without it the API knows nothing of this node.
    pub name: Option<String>,
    /// How to register with the kubelet; `None` if a registrar does it.
    pub registration: Option<Registration>,
}

/// The two sides of a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The socket of the CSI services, as the kubelet sees it.
    pub endpoint: PathBuf,
    /// The directory that the kubelet watches, as this process sees it.
    pub directory: PathBuf,
}

/// The variables of the process.
pub type Environment = BTreeMap<String, String>;

/// Reads the command line (with the program's name first) and the environment.
pub fn read(
    arguments: impl IntoIterator<Item = OsString>,
    environment: &Environment,
) -> Result<Settings, Answer> {
    let refuse = |text: String| Answer { text: format!("error: {text}\n"), wanted: false };
    let mut words = arguments.into_iter();
    let program = words.next().unwrap_or_else(|| PROGRAM.into());
    let defaults = defaults(environment);
    // A wrong variable must not keep anybody from reading the help.
    let line = [program].into_iter().chain(defaults.clone().unwrap_or_default()).chain(words);
    let line = args::read::<Flags>(line, REMOVED, IGNORED)?;
    defaults.map_err(refuse)?;
    settings(line, environment).map_err(refuse)
}

/// The flags that variables stand for.
fn defaults(environment: &Environment) -> Result<Vec<OsString>, String> {
    let mut flags = Vec::new();
    if let Some(path) = given(environment, "VSPHERE_CSI_CONFIG") {
        flags.push(format!("--cloud-config={path}").into());
    }
    match given(environment, LEVEL) {
        None => {}
        Some("PRODUCTION") => flags.push("--log-format=json".into()),
        Some("DEVELOPMENT") => flags.extend(["--log-format=text".into(), "--v=4".into()]),
        // The Go driver takes anything else for PRODUCTION.
        Some(_) => flags.push("--log-format=json".into()),
    }
    for (name, flag) in [("INCLUSTER_CLIENT_QPS", "qps"), ("INCLUSTER_CLIENT_BURST", "burst")] {
        let Some(text) = given(environment, name) else { continue };
        // Go reads both as decimal numbers, and uses the burst without its fraction.
        let number = text.parse::<f32>().ok().filter(|number| (5.0..=1000.0).contains(number));
        let number = number.ok_or_else(|| wrong(name, text, "a number from 5 to 1000"))?;
        let number = if flag == "qps" { number.to_string() } else { number.trunc().to_string() };
        flags.push(format!("--kube-api-{flag}={number}").into());
    }
    Ok(flags)
}

fn settings(line: Line<Flags>, environment: &Environment) -> Result<Settings, String> {
    let Line { flags, mut unused } = line;
    unused.extend(unknown_level(environment));
    let Flags { controller, node, serving, kubernetes, logs } = flags;
    let endpoint = endpoint(given(environment, "CSI_ENDPOINT"))?;
    let mode = if serving.probe {
        Mode::Probe
    } else {
        mode(given(environment, MODE), controller, node, environment)?
    };
    let usual = || match mode {
        Mode::Controller(_) => optional_listen(":2112").ok().flatten(),
        Mode::Node(_) | Mode::Probe => None,
    };
    let metrics = serving.metrics_address.unwrap_or_else(usual);
    let namespace = given(environment, "CSI_NAMESPACE").unwrap_or("vmware-system-csi").to_owned();
    let health = serving.health_address;
    Ok(Settings { endpoint, mode, namespace, health, metrics, kubernetes, logs, unused })
}

/// A level of logs that is none of the Go driver's; it must not keep volumes from being served.
fn unknown_level(environment: &Environment) -> Option<String> {
    let level = given(environment, LEVEL).filter(|level| !LEVELS.contains(level))?;
    Some(format!("{LEVEL}={level} (it is {})", LEVELS.join(" or ")))
}

/// A variable; an empty one counts as missing, as in Go.
fn given<'a>(environment: &'a Environment, name: &str) -> Option<&'a str> {
    environment.get(name).map(String::as_str).filter(|text| !text.is_empty())
}

fn wrong(variable: &str, value: &str, allowed: &str) -> String {
    format!("{variable}={value} is not valid; it must be {allowed}")
}

fn endpoint(text: Option<&str>) -> Result<PathBuf, String> {
    let allowed = "an absolute path of a socket, such as unix:///csi/csi.sock";
    let text =
        text.ok_or_else(|| format!("the variable CSI_ENDPOINT is missing; set it to {allowed}"))?;
    let path = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:"));
    let path = path.map(Path::new).filter(|path| path.is_absolute() && path.file_name().is_some());
    path.map(Path::to_owned).ok_or_else(|| wrong("CSI_ENDPOINT", text, allowed))
}

fn mode(
    text: Option<&str>,
    controller: ControllerFlags,
    node: NodeFlags,
    environment: &Environment,
) -> Result<Mode, String> {
    let allowed = "controller or node";
    let text =
        text.ok_or_else(|| format!("the variable X_CSI_MODE is missing; set it to {allowed}"))?;
    let elsewhere = |flag: &str, mode: &str| {
        Err(format!("--{flag} is for X_CSI_MODE={mode}, and X_CSI_MODE is {text}; remove one"))
    };
    match text.to_ascii_lowercase().as_str() {
        "controller" if node.kubelet_registration_path.is_some() => {
            elsewhere("kubelet-registration-path", "node")
        }
        "controller" => {
            let ControllerFlags { cloud_config: path, attach, settle, overcommit } = controller;
            let own = path.file_name().is_some_and(|name| name == OWN_CONFIG);
            let config = if own { ConfigFile::Own(path) } else { ConfigFile::Shared(path) };
            let settle = Duration::from_secs(settle);
            Ok(Mode::Controller(Controller { config, attach, settle, overcommit }))
        }
        "node" if controller.attach => elsewhere("attach", "controller"),
        "node" if controller.overcommit => elsewhere("overcommit", "controller"),
        "node" => {
            let name = given(environment, "NODE_NAME").map(str::to_owned);
            let registration = registration(node)?;
            Ok(Mode::Node(Node { name, registration }))
        }
        _ => Err(wrong("X_CSI_MODE", text, allowed)),
    }
}

fn registration(flags: NodeFlags) -> Result<Option<Registration>, String> {
    let NodeFlags { kubelet_registration_path, registration_directory: directory } = flags;
    let Some(endpoint) = kubelet_registration_path else { return Ok(None) };
    if !endpoint.is_absolute() {
        let path = endpoint.display();
        return Err(format!(
            "--kubelet-registration-path={path} is not valid; it must be an absolute path on the node"
        ));
    }
    Ok(Some(Registration { endpoint, directory }))
}

#[cfg(test)]
mod tests;
