//! The command line of `vsphere-cloud-controller-manager`: upstream's flags, and ours beside them.
//!
//! Manifests and charts written for the Go program work as they are. Flags without effect here are accepted and
//! logged; values that would mean something else here are refused.

mod controllers;
mod labels;

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser};
use daemon::args::{
    Authentication, Authorization, Ignored, Kubernetes, LeaderElection, Logs, Removed, Serving,
    duration, switch,
};

pub use self::{
    controllers::{Controllers, InvalidControllers},
    labels::{InvalidLabels, NodeLabels},
};
use crate::plan::zones::Policy;

/// The program's name, also its user agent at the API server.
pub const PROGRAM: &str = "vsphere-cloud-controller-manager";

/// Flags that the Go program once had, and what to use instead.
pub const REMOVED: &[Removed] = &[
    ("port", "health and metrics are served over TLS only; use --secure-port"),
    ("address", "use --bind-address"),
    ("insecure-port", "use --secure-port"),
    ("insecure-bind-address", "use --bind-address"),
    ("logtostderr", "logs always go to stderr"),
    ("alsologtostderr", "logs always go to stderr"),
    ("log-dir", "logs always go to stderr"),
    ("log-file", "logs always go to stderr"),
    ("stderrthreshold", "logs always go to stderr"),
];

/// Flags of the Go program without effect here. Nodes are planned when something changes, so there are no periods
/// and worker counts; there are no load balancers, routes, allocated addresses, webhooks, feature gates and no
/// paravirtual mode; no supported Kubernetes has the provider that leader migration moves away from.
pub const IGNORED: &[Ignored] = &[
    Ignored::Value("node-status-update-frequency"),
    Ignored::Value("node-sync-period"),
    Ignored::Value("concurrent-node-syncs"),
    Ignored::Value("concurrent-node-status-updates"),
    Ignored::Value("concurrent-service-syncs"),
    Ignored::Value("min-resync-period"),
    Ignored::Value("controller-start-interval"),
    Ignored::Value("cluster-name"),
    Ignored::Value("cluster-cidr"),
    Ignored::Switch("allocate-node-cidrs"),
    Ignored::Value("cidr-allocator-type"),
    Ignored::Switch("configure-cloud-routes"),
    Ignored::Value("route-reconciliation-period"),
    Ignored::Switch("allow-untagged-cloud"),
    Ignored::Value("external-cloud-volume-plugin"),
    Ignored::Switch("use-service-account-credentials"),
    Ignored::Value("feature-gates"),
    Ignored::Switch("enable-leader-migration"),
    Ignored::Value("leader-migration-config"),
    Ignored::Value("webhooks"),
    Ignored::Value("webhook-bind-address"),
    Ignored::Value("webhook-secure-port"),
    Ignored::Value("webhook-cert-dir"),
    Ignored::Switch("webhook-disable-http2-serving"),
    Ignored::Value("webhook-tls-cert-file"),
    Ignored::Value("webhook-tls-private-key-file"),
    Ignored::Value("webhook-tls-cipher-suites"),
    Ignored::Value("webhook-tls-min-version"),
    Ignored::Value("webhook-tls-sni-cert-key"),
    Ignored::Switch("is-legacy-paravirtual"),
    Ignored::Switch("enable-vpc-mode"),
    Ignored::Value("pod-ip-pool-type"),
    Ignored::Switch("enable-service-annotation-propagation"),
    Ignored::Value("vm-operator-api-version"),
    Ignored::Value("cluster-ip-family"),
];

/// Connects the Nodes of a Kubernetes cluster with their virtual machines in vSphere.
#[derive(Parser, Debug)]
#[command(name = PROGRAM, version)]
pub struct Flags {
    /// Configuration and controllers.
    #[command(flatten)]
    pub cloud: Cloud,
    /// Labels, zones and addresses of Nodes.
    #[command(flatten)]
    pub nodes: Nodes,
    /// Taints and deletion of Nodes.
    #[command(flatten)]
    pub lifecycle: Lifecycle,
    /// Leader election.
    #[command(flatten)]
    pub leader: LeaderElection,
    /// The admin server.
    #[command(flatten)]
    pub serving: Serving,
    /// Authentication at the admin server.
    #[command(flatten)]
    pub authentication: Authentication,
    /// Authorisation at the admin server.
    #[command(flatten)]
    pub authorization: Authorization,
    /// The client of the API server.
    #[command(flatten)]
    pub kubernetes: Kubernetes,
    /// Logging.
    #[command(flatten)]
    pub logs: Logs,
}

/// The configuration, and which controllers run.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Cloud")]
pub struct Cloud {
    /// The configuration file (vsphere.conf, YAML or INI), or a directory with it. Changes are applied without a
    /// restart; an invalid change is refused and the old configuration stays in use.
    #[arg(long, value_name = "PATH")]
    pub cloud_config: PathBuf,
    /// Refuse unknown keys in the configuration instead of warning about them.
    #[arg(long, default_value = "false", num_args = 0..=1, default_missing_value = "true",
          require_equals = true, value_parser = switch, action = clap::ArgAction::Set)]
    pub strict_config: bool,
    /// Write nothing: print each patch and deletion that would be sent, once. Acquires no lease, so it can run
    /// beside another cloud controller manager.
    #[arg(long, default_value = "false", num_args = 0..=1, default_missing_value = "true",
          require_equals = true, value_parser = switch, action = clap::ArgAction::Set)]
    pub dry_run: bool,
    /// Start although the configuration has sections for NSX-T load balancers or routes, which this program does
    /// not serve. Services of type LoadBalancer then keep their finalizer until another controller removes it.
    #[arg(long, default_value = "false", num_args = 0..=1, default_missing_value = "true",
          require_equals = true, value_parser = switch, action = clap::ArgAction::Set)]
    pub ignore_load_balancer_config: bool,
    /// The cloud provider: vsphere is the only one.
    #[arg(long, default_value = "vsphere", value_parser = cloud_provider)]
    pub cloud_provider: String,
    /// Which controllers run: `*` for all, `name` for one, `-name` for all but one; the first that matches
    /// counts. Names: cloud-node-controller (cloud-node), cloud-node-lifecycle-controller
    /// (cloud-node-lifecycle). service-lb-controller (service) and node-route-controller (route) are known
    /// and do nothing.
    #[arg(long, default_value = "*", allow_hyphen_values = true, value_name = "LIST")]
    pub controllers: Controllers,
}

/// How Nodes are kept.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Nodes")]
pub struct Nodes {
    /// Labels for every Node that is initialised; labels that a Node already has are kept.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "KEY=VALUE,...")]
    pub node_labels: NodeLabels,
    /// Whether zone and region labels follow when tags change or a VM moves later: never, if-empty (add missing
    /// labels), always, warn (report it in the Node's condition).
    #[arg(long, default_value = "never", value_name = "POLICY", value_parser = policy)]
    pub zone_policy: Policy,
    /// Also label Nodes with host, cluster and datacenter (ccm.vsphere.vmware.com/host and so on).
    #[arg(long, default_value = "false", num_args = 0..=1, default_missing_value = "true",
          require_equals = true, value_parser = switch, action = clap::ArgAction::Set)]
    pub place_labels: bool,
    /// Also initialise Nodes without provider id whose kubelet runs without `--cloud-provider=external`.
    #[arg(long, default_value = "false", num_args = 0..=1, default_missing_value = "true",
          require_equals = true, value_parser = switch, action = clap::ArgAction::Set)]
    pub adopt_nodes: bool,
    /// How long a vCenter may be unavailable before Nodes that work report it in their condition.
    #[arg(long, default_value = "2m", value_name = "DURATION", value_parser = duration)]
    pub vcenter_patience: Duration,
    /// How long a guest must report fewer addresses before the others are removed from its Node.
    #[arg(long, default_value = "1m", value_name = "DURATION", value_parser = duration)]
    pub address_patience: Duration,
}

/// When Nodes are tainted and deleted.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Lifecycle")]
pub struct Lifecycle {
    /// How often Nodes that are not ready are checked.
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = period)]
    pub node_monitor_period: Duration,
    /// How long a Node must be not ready, and its VM provably gone, before it is deleted.
    #[arg(long, default_value = "1m", value_name = "DURATION", value_parser = duration)]
    pub node_deletion_grace: Duration,
    /// How many percent of all Nodes may be deleted within ten minutes, but never fewer than three; others wait.
    #[arg(long, default_value_t = 10, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub node_deletion_limit: u8,
    /// Never delete a Node; the variable SKIP_NODE_DELETION does the same.
    #[arg(long, default_value = "false", num_args = 0..=1, default_missing_value = "true",
          require_equals = true, value_parser = switch, action = clap::ArgAction::Set)]
    pub skip_node_deletion: bool,
    /// Taint Nodes that are not ready and whose VM is certainly powered off with
    /// node.kubernetes.io/out-of-service, so that their volumes move at once.
    #[arg(long, default_value = "false", num_args = 0..=1, default_missing_value = "true",
          require_equals = true, value_parser = switch, action = clap::ArgAction::Set)]
    pub out_of_service_taint: bool,
}

/// Empty means the default, as in the Go program.
fn cloud_provider(text: &str) -> Result<String, String> {
    match text {
        "" | "vsphere" => Ok("vsphere".to_owned()),
        "vsphere-paravirtual" => Err("clusters inside a Supervisor are not supported; \
                                      stay with the image of the Supervisor's release"
            .to_owned()),
        _ => Err("the only cloud provider is vsphere".to_owned()),
    }
}

fn policy(text: &str) -> Result<Policy, String> {
    match text {
        "never" => Ok(Policy::Never),
        "if-empty" => Ok(Policy::IfEmpty),
        "always" => Ok(Policy::Always),
        "warn" => Ok(Policy::Warn),
        _ => Err("write never, if-empty, always or warn".to_owned()),
    }
}

/// A duration above zero.
fn period(text: &str) -> Result<Duration, String> {
    let read = duration(text).map_err(|error| error.to_string())?;
    if read.is_zero() { Err("must be longer than 0".to_owned()) } else { Ok(read) }
}

#[cfg(test)]
mod documents;
#[cfg(test)]
mod tests;
