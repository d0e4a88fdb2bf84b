//! What a Node knows of the machine it runs in.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node;
use vsphere::inventory::{Uuid, Vm};

use super::{Key, canonical, short};
use crate::{
    observe::identity::Identity,
    provider_id::{self, Reading},
};

/// The facts of a Node by which its VM can be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lookup {
    pub(crate) name: String,
    pub(crate) provider_id: Reading,
    /// `nodeInfo.systemUUID`, in whichever byte order the kernel reports it.
    pub(crate) system_uuid: Option<Uuid>,
    /// The addresses in the Node's status.
    pub(crate) addresses: Vec<IpAddr>,
    /// The VM recorded in the Node's annotations.
    pub(crate) identity: Option<Identity>,
}

impl Lookup {
    pub(crate) fn of(node: &Node) -> Self {
        let status = node.status.as_ref();
        let addresses = status.and_then(|status| status.addresses.as_deref()).unwrap_or_default();
        let parse = |text: &str| Some(text.parse::<IpAddr>().ok()?.to_canonical());
        let system = status.and_then(|status| status.node_info.as_ref());
        Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            provider_id: Reading::of(provider_id::of(node)),
            system_uuid: system.and_then(|system| system.system_uuid.parse().ok()),
            addresses: addresses.iter().filter_map(|one| parse(&one.address)).collect(),
            identity: Identity::recorded(node),
        }
    }

    /// The keys under which [`Directory::find`](super::Directory::find) may look: a VM with none of them does
    /// not concern the Node.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> {
        let uuids = [self.provider_id.uuid(), self.system_uuid].into_iter().flatten();
        let addresses = self.addresses.iter().copied().map(Key::Address);
        let recorded = self.identity.iter().map(|own| Key::Reference(own.vm.clone()));
        let name = Key::Name(short(&self.name).to_lowercase());
        uuids.map(|uuid| Key::Uuid(canonical(uuid))).chain(addresses).chain(recorded).chain([name])
    }

    /// Whether a guest has the Node's name or one of its addresses.
    pub(super) fn looks_like(&self, vm: &Vm) -> bool {
        let own = vm.host_name.as_deref().unwrap_or_default().trim().to_lowercase();
        let named = !own.is_empty() && short(&own) == short(&self.name.to_lowercase());
        let address = vm.ip_address.as_deref().and_then(|text| text.parse::<IpAddr>().ok());
        named || address.is_some_and(|ip| self.addresses.contains(&ip.to_canonical()))
    }
}
