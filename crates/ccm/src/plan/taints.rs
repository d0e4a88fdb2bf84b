//! The taints of a Node that the cloud provider sets and removes.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Node, Taint},
    apimachinery::pkg::apis::meta::v1::Time,
};

/// On Nodes that no cloud provider has initialised.
pub(crate) const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// On Nodes whose machine is off.
pub(crate) const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// On Nodes that are off for certain: Kubernetes detaches their volumes by force.
pub(crate) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

pub(crate) const NO_SCHEDULE: &str = "NoSchedule";
pub(crate) const NO_EXECUTE: &str = "NoExecute";
pub(crate) fn of(node: &Node) -> &[Taint] {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
    taints.unwrap_or_default()
}

pub(crate) fn has(node: &Node, key: &str) -> bool {
    of(node).iter().any(|taint| taint.key == key)
}

pub(crate) fn is(taint: &Taint, key: &str, effect: &str) -> bool {
    taint.key == key && taint.effect == effect
}

/// `NoExecute` taints get the time.
pub(crate) fn new(key: &str, effect: &str, value: Option<&str>, now: Timestamp) -> Taint {
    Taint {
        key: key.to_owned(),
        effect: effect.to_owned(),
        value: value.map(str::to_owned),
        time_added: (effect == NO_EXECUTE).then_some(Time(now)),
    }
}
