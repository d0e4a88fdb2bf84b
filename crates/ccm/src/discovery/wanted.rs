//! What a Node knows of the machine it runs in.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node;
use vsphere::inventory::{Uuid, Vm};

use crate::{identity::Identity, provider_id::Reading};

/// The facts of a Node by which its VM can be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// Its provider id.
    pub provider_id: Reading,
    /// The id that its kernel sees, in whatever byte order.
    pub system_uuid: Option<Uuid>,
    /// The addresses that its kubelet reports.
    pub addresses: Vec<IpAddr>,
    /// Which VM it was when we last looked.
    pub identity: Option<Identity>,
}

impl Wanted {
    /// Reads them from a Node.
    pub fn of(node: &Node) -> Self {
        let status = node.status.as_ref();
        let addresses = status.and_then(|status| status.addresses.as_deref()).unwrap_or_default();
        let parse = |text: &str| Some(text.parse::<IpAddr>().ok()?.to_canonical());
        let system = status.and_then(|status| status.node_info.as_ref());
        Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            provider_id: provider_id(node),
            system_uuid: system.and_then(|system| system.system_uuid.parse().ok()),
            addresses: addresses.iter().filter_map(|one| parse(&one.address)).collect(),
            identity: Identity::recorded(node),
        }
    }

    /// Whether a guest calls itself like the Node or has one of its addresses.
    pub(super) fn looks_like(&self, vm: &Vm) -> bool {
        let own = vm.host_name.as_deref().unwrap_or_default().trim().to_lowercase();
        let name = self.name.to_lowercase();
        let named = !own.is_empty() && super::short(&own) == super::short(&name);
        let cards = vm.nics.iter().filter(|nic| nic.device_config_id != -1);
        let mut ips = cards.flat_map(|nic| &nic.ip_address).filter_map(|text| text.parse().ok());
        named || ips.any(|ip: IpAddr| self.addresses.contains(&ip.to_canonical()))
    }
}

fn provider_id(node: &Node) -> Reading {
    Reading::of(node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()))
}
