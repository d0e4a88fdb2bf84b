//! How the manager works: what the flags and the environment set, completed by the configuration file.
//!
//! Built once from the flags, which hold the defaults, and handed on as it is.

use std::time::Duration;

use cloud_config::Config;
use jiff::SignedDuration;

use crate::{
    args::{Controllers, Flags},
    plan::{addresses, lifecycle, node, zones::Categories},
};

/// The settings of one run.
#[derive(Debug, Clone)]
pub struct Settings {
    pub(crate) controllers: Controllers,
    /// The time between two ticks of the controller.
    pub(crate) lifecycle_every: Duration,
    /// How long a guest must report fewer addresses before they are taken from its Node.
    pub(crate) steady_after: SignedDuration,
    pub(crate) node: node::Settings,
    /// When Nodes are tainted and deleted.
    pub lifecycle: lifecycle::Settings,
    pub(crate) categories: Categories,
}

impl Settings {
    /// What the flags say; `skip_deletion` as `SKIP_NODE_DELETION` in the environment.
    pub fn new(flags: &Flags, skip_deletion: bool) -> Self {
        // Durations of the flags are Go's, which are shorter than this type can hold.
        let signed = |duration| SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
        Self {
            controllers: flags.cloud.controllers,
            lifecycle_every: flags.lifecycle.node_monitor_period,
            steady_after: signed(flags.nodes.address_patience),
            node: node::Settings {
                zones: flags.nodes.zone_policy,
                labels: flags.nodes.node_labels.0.clone(),
                place_labels: flags.nodes.place_labels,
                adopt: flags.nodes.adopt_nodes,
                patience: signed(flags.nodes.vcenter_patience),
                ..node::Settings::default()
            },
            lifecycle: lifecycle::Settings {
                grace: signed(flags.lifecycle.node_deletion_grace),
                most_percent: flags.lifecycle.node_deletion_limit.into(),
                skip_deletion: flags.lifecycle.skip_node_deletion || skip_deletion,
                out_of_service: flags.lifecycle.out_of_service_taint,
                ..lifecycle::Settings::default()
            },
            categories: Categories::default(),
        }
    }

    /// The same, with what the configuration file says about addresses and zones.
    pub(crate) fn with(mut self, config: &Config) -> Self {
        let families =
            config.vcenters.iter().map(|one| (one.name.clone(), one.ip_families.clone()));
        self.node.addresses = addresses::Settings {
            families: families.collect(),
            internal: config.nodes.internal.clone(),
            external: config.nodes.external.clone(),
        };
        self.categories = config.labels.clone();
        self
    }
}
