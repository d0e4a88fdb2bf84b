//! The network cards of VMs: what the guest reports, joined with what vCenter plugged in.
//!
//! The guest knows addresses; the name of the network comes from vCenter, which often leaves it out of the
//! guest's report. The card's backing has it: as a name, or as the key of a distributed port group that has
//! the name. Card and report belong together by the card's address.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
};

use crate::{
    error::Error,
    inventory::{Device, Inventory},
    object,
    reference::{Kind, Ref},
    types::{DistributedVirtualPortgroup, GuestNicInfo, Network, OpaqueNetwork, VirtualMachine},
};

object! {
    /// What a VM has of networks.
    struct Wiring: VirtualMachine {
        reported: Vec<GuestNicInfo> = "guest.net",
        devices: Vec<Device> = "config.hardware.device",
        networks: Vec<Ref<Network>> = "network",
    }
}

object! {
    /// The name of a distributed port group.
    struct PortGroup: DistributedVirtualPortgroup {
        name: String = "name",
        key: String = "key",
    }
}

object! {
    /// The name of a network that somebody else manages.
    struct Opaque: OpaqueNetwork {
        name: String = "name",
        id: Option<String> = "summary.opaqueNetworkId",
    }
}

/// A network interface of a guest, or a card that no guest reports.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Nic {
    /// The number of the virtual card. Interfaces that the guest made up, such as bridges and tunnels, have
    /// none.
    pub device: Option<i32>,
    /// Its hardware address in lower case.
    pub mac: Option<String>,
    /// The name of the network that the card is plugged into.
    pub network: Option<String>,
    /// The addresses that the guest reports, in its order.
    pub addresses: Vec<IpAddr>,
    /// Whether the guest reports it at all; if not, there are no addresses to be known.
    pub reported: bool,
}

/// Names of networks by what backings have of them.
#[derive(Default)]
struct Names {
    by_portgroup: HashMap<String, String>,
    by_opaque_id: HashMap<String, String>,
}

impl Inventory<'_> {
    /// The network interfaces of these VMs. At most three requests, however many VMs. VMs that do not
    /// exist are left out.
    pub async fn nics(
        &self,
        vms: &[Ref<VirtualMachine>],
    ) -> Result<HashMap<Ref<VirtualMachine>, Vec<Nic>>, Error> {
        let wirings: Vec<Wiring> = self.connection.read(vms).await?;
        let names = self.network_names(&wirings).await?;
        let nics = |wiring: Wiring| {
            let joined = join(&wiring.reported, &wiring.devices, &names);
            (wiring.reference, joined)
        };
        Ok(wirings.into_iter().map(nics).collect())
    }

    async fn network_names(&self, wirings: &[Wiring]) -> Result<Names, Error> {
        let groups: Vec<PortGroup> =
            self.connection.read(&of_kind::<DistributedVirtualPortgroup>(wirings)).await?;
        let opaque: Vec<Opaque> = self.connection.read(&of_kind::<OpaqueNetwork>(wirings)).await?;
        Ok(Names {
            by_portgroup: groups.into_iter().map(|group| (group.key, group.name)).collect(),
            by_opaque_id: opaque.into_iter().filter_map(|net| Some((net.id?, net.name))).collect(),
        })
    }
}

fn of_kind<K: Kind>(wirings: &[Wiring]) -> Vec<Ref<K>> {
    let all = wirings.iter().flat_map(|wiring| &wiring.networks);
    let distinct: HashSet<Ref<K>> = all.filter_map(Ref::cast).collect();
    distinct.into_iter().collect()
}

impl Names {
    fn of(&self, card: &Device) -> Option<String> {
        let backing = &card.backing;
        let of_group = backing.portgroup_key.as_ref().and_then(|key| self.by_portgroup.get(key));
        let of_opaque = backing.opaque_network_id.as_ref().and_then(|id| self.by_opaque_id.get(id));
        of_group.or(of_opaque).or(backing.device_name.as_ref()).cloned()
    }
}

/// The reported interfaces in the guest's order, then the cards that the guest does not report.
fn join(reported: &[GuestNicInfo], devices: &[Device], names: &Names) -> Vec<Nic> {
    let cards: Vec<&Device> = devices.iter().filter(|device| device.is_card()).collect();
    let mut seen = HashSet::new();
    let mut nics = Vec::with_capacity(reported.len().max(cards.len()));
    for nic in reported {
        let card = cards.iter().find(|card| match (&nic.mac_address, &card.mac_address) {
            (Some(mac), Some(own)) => mac.eq_ignore_ascii_case(own),
            _ => nic.device_config_id == card.key,
        });
        seen.extend(card.map(|card| card.key));
        let told = nic.network.clone().filter(|name| !name.is_empty());
        nics.push(Nic {
            device: card.map(|card| card.key),
            mac: nic.mac_address.as_ref().map(|mac| mac.to_ascii_lowercase()),
            network: card.and_then(|card| names.of(card)).or(told),
            addresses: nic.ip_address.iter().filter_map(|text| address(text)).collect(),
            reported: true,
        });
    }
    let silent = cards.into_iter().filter(|card| !seen.contains(&card.key));
    nics.extend(silent.map(|card| Nic {
        device: Some(card.key),
        mac: card.mac_address.as_ref().map(|mac| mac.to_ascii_lowercase()),
        network: names.of(card),
        ..Nic::default()
    }));
    nics
}

/// An address as a guest writes it, perhaps with the interface behind it: `fe80::1%eth0`.
fn address(text: &str) -> Option<IpAddr> {
    text.split('%').next().unwrap_or_default().trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{Names, join};
    use crate::{
        inventory::{Backing, Device},
        types::GuestNicInfo,
    };

    fn card(key: i32, mac: &str, backing: Backing) -> Device {
        Device { key, mac_address: Some(mac.to_owned()), backing, ..Device::default() }
    }

    fn reported(mac: Option<&str>, network: Option<&str>, key: i32, ips: &[&str]) -> GuestNicInfo {
        GuestNicInfo {
            mac_address: mac.map(str::to_owned),
            network: network.map(str::to_owned),
            device_config_id: key,
            ip_address: ips.iter().map(|ip| (*ip).to_owned()).collect(),
            ..GuestNicInfo::default()
        }
    }

    #[test]
    fn cards_and_reports_are_joined_by_address_and_get_the_name_of_the_network() {
        let names = Names {
            by_portgroup: [("dvportgroup-1".to_owned(), "nodes".to_owned())].into(),
            by_opaque_id: [("nsx-1".to_owned(), "overlay".to_owned())].into(),
        };
        let portgroup_key = Some("dvportgroup-1".to_owned());
        let opaque_network_id = Some("nsx-1".to_owned());
        let device_name = Some("VM Network".to_owned());
        let devices = [
            Device { key: 1000, ..Device::default() },
            card(4000, "00:50:56:AA:00:01", Backing { portgroup_key, ..Backing::default() }),
            card(4001, "00:50:56:aa:00:02", Backing { device_name, ..Backing::default() }),
            card(4002, "00:50:56:aa:00:03", Backing { opaque_network_id, ..Backing::default() }),
        ];
        let guest = [
            reported(Some("00:50:56:aa:00:01"), None, 4000, &["10.0.0.1", "fe80::1%eth0", "junk"]),
            reported(Some("02:42:00:00:00:01"), None, -1, &["172.17.0.1"]),
            reported(None, Some(""), 4001, &[]),
        ];
        let nics = join(&guest, &devices, &names);
        let seen: Vec<_> = nics.iter().map(|nic| (nic.device, nic.network.as_deref())).collect();
        let expected = [
            (Some(4000), Some("nodes")),
            (None, None),
            (Some(4001), Some("VM Network")),
            (Some(4002), Some("overlay")),
        ];
        assert_eq!(seen, expected);
        let addresses = ["10.0.0.1", "fe80::1"].map(|ip| ip.parse::<IpAddr>().unwrap());
        assert_eq!(nics[0].addresses, addresses);
        assert_eq!(
            nics.iter().map(|nic| nic.reported).collect::<Vec<_>>(),
            [true, true, true, false]
        );
    }
}
