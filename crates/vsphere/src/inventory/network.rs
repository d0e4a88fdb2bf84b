//! The network cards of VMs, and how they are joined with what the guest reports.
//!
//! The guest knows addresses; the name of the network comes from vCenter, which often leaves it out of the
//! guest's report. The card's backing has it: as a name, or as the key of a distributed port group that has
//! the name. Card and report belong together by the card's MAC address.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
};

use crate::{
    error::Error,
    inventory::{Backing, Device, Inventory, settings::option},
    object,
    reference::{Kind, Ref},
    types::{
        DistributedVirtualPortgroup, GuestNicInfo, Network, OpaqueNetwork, OptionValue,
        VirtualMachine,
    },
};

object! {
    /// What a VM's configuration has of networks, all of one version.
    struct Wiring: VirtualMachine {
        change_version: Option<String> = "config.changeVersion",
        devices: Vec<Device> = "config.hardware.device",
        networks: Vec<Ref<Network>> = "network",
        extra_config: Vec<OptionValue> = "config.extraConfig",
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
    /// The name of a network that NSX manages.
    struct Opaque: OpaqueNetwork {
        name: String = "name",
        id: Option<String> = "summary.opaqueNetworkId",
    }
}

/// A virtual network card.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Card {
    /// The number of the device, unique within the VM.
    pub key: i32,
    /// In lower case.
    pub mac: Option<String>,
    /// The name of the network that it is plugged into.
    pub network: Option<String>,
}

/// The part of a VM's configuration that connects its guest to networks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cards {
    /// Whose.
    pub vm: Ref<VirtualMachine>,
    /// The version of the configuration that all of this was read from.
    pub change_version: Option<String>,
    /// Its network cards.
    pub cards: Vec<Card>,
    extra_config: Vec<OptionValue>,
}

impl Cards {
    /// The option with this key in `extraConfig`. As in vCenter, the case of keys does not matter.
    pub fn option(&self, key: &str) -> Option<String> {
        option(&self.extra_config, key)
    }
}

/// A network interface of a guest, or a card that no guest reports.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Nic {
    /// The number of the virtual card. Interfaces without a card, such as bridges and tunnels, have none.
    pub device: Option<i32>,
    /// Its hardware address in lower case.
    pub mac: Option<String>,
    /// The name of the network that the card is plugged into.
    pub network: Option<String>,
    /// The addresses that the guest reports, in its order.
    pub addresses: Vec<IpAddr>,
    /// Whether the guest reports it at all; if not, its addresses are not known.
    pub reported: bool,
}

/// Names of networks by what backings have of them: the key of a port group, or the id that NSX gave.
type Names = HashMap<String, String>;

impl Inventory<'_> {
    /// The network cards and options of these VMs. At most three requests, however many VMs. VMs that do not
    /// exist are left out.
    pub async fn cards(&self, vms: &[Ref<VirtualMachine>]) -> Result<Vec<Cards>, Error> {
        let wirings: Vec<Wiring> = self.connection.read(vms).await?;
        let names = self.network_names(&wirings).await?;
        let cards = |wiring: Wiring| {
            let plugged = wiring.devices.iter().filter(|device| device.is_card());
            Cards {
                vm: wiring.reference,
                change_version: wiring.change_version,
                cards: plugged.map(|device| card(device, &names)).collect(),
                extra_config: wiring.extra_config,
            }
        };
        Ok(wirings.into_iter().map(cards).collect())
    }

    async fn network_names(&self, wirings: &[Wiring]) -> Result<Names, Error> {
        let groups: Vec<PortGroup> =
            self.connection.read(&of_kind::<DistributedVirtualPortgroup>(wirings)).await?;
        let opaque: Vec<Opaque> = self.connection.read(&of_kind::<OpaqueNetwork>(wirings)).await?;
        let groups = groups.into_iter().map(|group| (group.key, group.name));
        let opaque = opaque.into_iter().filter_map(|network| Some((network.id?, network.name)));
        Ok(groups.chain(opaque).collect())
    }
}

fn of_kind<K: Kind>(wirings: &[Wiring]) -> Vec<Ref<K>> {
    let all = wirings.iter().flat_map(|wiring| &wiring.networks);
    let distinct: HashSet<Ref<K>> = all.filter_map(Ref::cast).collect();
    distinct.into_iter().collect()
}

fn card(device: &Device, names: &Names) -> Card {
    let Backing { portgroup_key, opaque_network_id, device_name, .. } = &device.backing;
    let named = [portgroup_key, opaque_network_id].into_iter().flatten();
    let network = named.filter_map(|key| names.get(key)).chain(device_name).next();
    Card {
        key: device.key,
        mac: device.mac_address.as_ref().map(|mac| mac.to_ascii_lowercase()),
        network: network.cloned(),
    }
}

/// The reported interfaces in the guest's order, then the cards that the guest does not report.
pub fn join(reported: &[GuestNicInfo], cards: &[Card]) -> Vec<Nic> {
    let mut seen = HashSet::new();
    let mut nics = Vec::with_capacity(reported.len().max(cards.len()));
    for nic in reported {
        let card = cards.iter().find(|card| match (&nic.mac_address, &card.mac) {
            (Some(mac), Some(own)) => mac.eq_ignore_ascii_case(own),
            _ => nic.device_config_id == card.key,
        });
        seen.extend(card.map(|card| card.key));
        let by_guest = nic.network.clone().filter(|name| !name.is_empty());
        nics.push(Nic {
            device: card.map(|card| card.key),
            mac: nic.mac_address.as_ref().map(|mac| mac.to_ascii_lowercase()),
            network: card.and_then(|card| card.network.clone()).or(by_guest),
            addresses: nic.ip_address.iter().filter_map(|text| address(text)).collect(),
            reported: true,
        });
    }
    let unreported = cards.iter().filter(|card| !seen.contains(&card.key));
    nics.extend(unreported.map(|card| Nic {
        device: Some(card.key),
        mac: card.mac.clone(),
        network: card.network.clone(),
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

    use super::{Card, Names, card, join};
    use crate::{
        inventory::{Backing, Device},
        types::GuestNicInfo,
    };

    fn device(key: i32, mac: &str, backing: Backing) -> Device {
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
        let names = [("dvportgroup-1", "nodes"), ("nsx-1", "overlay")];
        let names: Names = names.map(|(key, name)| (key.to_owned(), name.to_owned())).into();
        let portgroup_key = Some("dvportgroup-1".to_owned());
        let opaque_network_id = Some("nsx-1".to_owned());
        let device_name = Some("VM Network".to_owned());
        let devices = [
            Device { key: 1000, ..Device::default() },
            device(4000, "00:50:56:AA:00:01", Backing { portgroup_key, ..Backing::default() }),
            device(4001, "00:50:56:aa:00:02", Backing { device_name, ..Backing::default() }),
            device(4002, "00:50:56:aa:00:03", Backing { opaque_network_id, ..Backing::default() }),
        ];
        let guest = [
            reported(Some("00:50:56:aa:00:01"), None, 4000, &["10.0.0.1", "fe80::1%eth0", "junk"]),
            reported(Some("02:42:00:00:00:01"), None, -1, &["172.17.0.1"]),
            reported(None, Some(""), 4001, &[]),
        ];
        let cards: Vec<Card> =
            devices.iter().filter(|one| one.is_card()).map(|one| card(one, &names)).collect();
        let nics = join(&guest, &cards);
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
