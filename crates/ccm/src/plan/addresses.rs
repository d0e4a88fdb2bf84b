//! Which addresses a Node gets, from what its guest reports.
//!
//! [`select`] decides in the order of the Go manager: drop what is not on a virtual card, drop local
//! addresses, put statically configured ones first, then choose an internal and an external address per
//! family by subnet, by network name, or the first. [`node_ip::prefer`] lets the kubelet's choice win, and
//! [`settle`] keeps good addresses while the guest reports only a part.

pub(crate) mod metadata;
pub(crate) mod node_ip;
mod settle;

use std::{
    collections::{BTreeSet, HashMap},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use cloud_config::{AddressRules, IpFamily, Subnet};
use k8s_openapi::api::core::v1::NodeAddress;
use vsphere::inventory::Nic;

use self::metadata::{Metadata, MetadataError};
pub(crate) use self::settle::settle;

pub(crate) const HOSTNAME: &str = "Hostname";
pub(crate) const INTERNAL_IP: &str = "InternalIP";
pub(crate) const EXTERNAL_IP: &str = "ExternalIP";

/// VMware Tools report no more interfaces than this; cards may be among those left out.
const MOST_REPORTED: usize = 16;
const MOST_NAMED: usize = 8;

/// How addresses are chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// By name of the vCenter, in order of priority. All of them are required; IPv4 if there are none.
    pub(crate) families: HashMap<String, Vec<IpFamily>>,
    pub(crate) internal: AddressRules,
    pub(crate) external: AddressRules,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Guest<'a> {
    pub(crate) tools_run: bool,
    pub(crate) host_name: Option<&'a str>,
    /// For guests whose tools report no name.
    pub(crate) kubelet_name: Option<&'a str>,
    /// The interfaces in the order in which the guest reports them, then cards that it does not report.
    pub(crate) nics: &'a [Nic],
    /// `guest.ipAddress`, which tools report even where they report no interface.
    pub(crate) first_address: Option<IpAddr>,
    pub(crate) metadata: Option<Metadata<'a>>,
}

/// Addresses, and how far they can be trusted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Selection {
    /// The host name first, then per family the internal and the external address.
    pub(crate) addresses: Vec<NodeAddress>,
    pub(crate) doubt: Option<Doubt>,
}

/// Why a guest may have more addresses than it reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Doubt {
    #[error(
        "VMware Tools report {MOST_REPORTED} interfaces at most and a network card is not among them; set \
         exclude-nics in the guest's tools.conf so that they leave out those of containers"
    )]
    InterfacesCut,
    #[error("a network card of the VM has no address in the guest")]
    SilentCard,
    #[error("VMware Tools report an address of the guest, but no network interface; update them")]
    FirstAddressOnly,
}

/// Why a guest has no addresses for its Node, with the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddressError {
    #[error(
        "VMware Tools do not run in the guest, so its addresses are unknown; install and start open-vm-tools"
    )]
    ToolsNotRunning,
    #[error(
        "VMware Tools report no host name of the guest; set one in the guest and see that tools are current"
    )]
    NoHostName,
    #[error(
        "VMware Tools report no network interface of the guest; this is normal while it starts, later \
         restart or update the tools"
    )]
    NoInterfaces,
    #[error(
        "no network card is in {internal:?} or {external:?}: the cards are in {seen}; correct the network \
         names in the section Nodes of the configuration"
    )]
    NoNetwork { internal: String, external: String, seen: String },
    #[error(
        "the guest's network cards have no address that others can reach (reported: {seen}); check DHCP or \
         the static configuration in the guest"
    )]
    OnlyLocal { seen: String },
    #[error(
        "the guest has no {family} address for the Node (usable: {seen}); give it one, take {family} off \
         ip-family of this vCenter, or correct the excluded subnets"
    )]
    NoFamily { family: IpFamily, seen: String },
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}

struct Candidate<'a> {
    ip: IpAddr,
    network: Option<&'a str>,
}

impl Settings {
    pub(crate) fn families_of(&self, vcenter: &str) -> &[IpFamily] {
        let set = self.families.get(vcenter).map(Vec::as_slice).unwrap_or_default();
        if set.is_empty() { &[IpFamily::V4] } else { set }
    }
}

pub(crate) fn select(
    guest: &Guest<'_>,
    families: &[IpFamily],
    settings: &Settings,
) -> Result<Selection, AddressError> {
    if !guest.tools_run && guest.nics.iter().all(|nic| nic.addresses.is_empty()) {
        return Err(AddressError::ToolsNotRunning);
    }
    let name = [guest.host_name, guest.kubelet_name].into_iter().flatten().map(str::trim);
    let name = name.into_iter().find(|name| !name.is_empty()).ok_or(AddressError::NoHostName)?;
    let (mut candidates, doubt) = candidates(guest, settings)?;
    if let Some(metadata) = guest.metadata {
        let order = metadata.static_addresses()?;
        // The sort is stable: what is not static keeps the guest's order.
        let rank = |ip: &IpAddr| order.iter().position(|one| one == ip).unwrap_or(order.len());
        candidates.sort_by_key(|candidate| rank(&candidate.ip));
    }
    let mut addresses = vec![address(HOSTNAME, name.to_owned())];
    for family in families {
        let found = of_family(&candidates, *family, settings);
        if found.is_empty() {
            let seen = named(candidates.iter().map(|one| one.ip));
            return Err(AddressError::NoFamily { family: *family, seen });
        }
        for (type_, ip) in found {
            let found = address(type_, ip.to_string());
            if !addresses.contains(&found) {
                addresses.push(found);
            }
        }
    }
    Ok(Selection { addresses, doubt })
}

/// Every address that could be the Node's, in the guest's order.
fn candidates<'a>(
    guest: &Guest<'a>,
    settings: &Settings,
) -> Result<(Vec<Candidate<'a>>, Option<Doubt>), AddressError> {
    let reported = guest.nics.iter().filter(|nic| nic.reported).count();
    if reported == 0 {
        let ip = guest.first_address.map(|ip| ip.to_canonical()).filter(is_reachable);
        let only =
            ip.map(|ip| Candidate { ip, network: None }).ok_or(AddressError::NoInterfaces)?;
        return Ok((vec![only], Some(Doubt::FirstAddressOnly)));
    }
    let cards: Vec<&Nic> = guest.nics.iter().filter(|nic| nic.device.is_some()).collect();
    check_networks(&cards, settings)?;
    let mut candidates = Vec::new();
    let mut silent = false;
    for card in &cards {
        let before = candidates.len();
        let reachable = card.addresses.iter().map(IpAddr::to_canonical).filter(is_reachable);
        candidates.extend(reachable.map(|ip| Candidate { ip, network: card.network.as_deref() }));
        silent |= candidates.len() == before;
    }
    if candidates.is_empty() {
        let seen = named(cards.iter().flat_map(|card| card.addresses.iter().copied()));
        return Err(AddressError::OnlyLocal { seen });
    }
    let cut = reported >= MOST_REPORTED && cards.iter().any(|card| !card.reported);
    let doubt = match (cut, silent) {
        (true, _) => Some(Doubt::InterfacesCut),
        (false, true) => Some(Doubt::SilentCard),
        (false, false) => None,
    };
    Ok((candidates, doubt))
}

/// Two names of networks that both do not exist are a mistake in the configuration.
fn check_networks(cards: &[&Nic], settings: &Settings) -> Result<(), AddressError> {
    let (Some(internal), Some(external)) = (&settings.internal.network, &settings.external.network)
    else {
        return Ok(());
    };
    let wanted = |name: &str| same(name, internal) || same(name, external);
    let mut names = cards.iter().filter_map(|card| card.network.as_deref());
    if names.any(wanted) {
        return Ok(());
    }
    let names: BTreeSet<&str> = cards.iter().filter_map(|card| card.network.as_deref()).collect();
    let seen: Vec<&str> = names.into_iter().take(MOST_NAMED).collect();
    let seen = if seen.is_empty() { "networks without a name".to_owned() } else { seen.join(", ") };
    Err(AddressError::NoNetwork { internal: internal.clone(), external: external.clone(), seen })
}

/// The internal and the external address of one family, as far as there are any.
fn of_family(
    candidates: &[Candidate<'_>],
    family: IpFamily,
    settings: &Settings,
) -> Vec<(&'static str, IpAddr)> {
    let roles = [(INTERNAL_IP, &settings.internal), (EXTERNAL_IP, &settings.external)];
    let mut chosen = Vec::new();
    let mut first = Vec::new();
    for (type_, rules) in roles {
        let allowed = |one: &&Candidate<'_>| {
            IpFamily::of(one.ip) == family
                && !rules.excluded.iter().any(|subnet| subnet.contains(one.ip))
        };
        let allowed: Vec<&Candidate<'_>> = candidates.iter().filter(allowed).collect();
        chosen.extend(choose(rules, &allowed).map(|ip| (type_, ip)));
        first.extend(allowed.first().map(|one| (type_, one.ip)));
    }
    // Where a rule found something, the other type is left out rather than guessed.
    if chosen.is_empty() { first } else { chosen }
}

/// The order of subnets beats that of addresses, and a subnet beats a name.
fn choose(rules: &AddressRules, allowed: &[&Candidate<'_>]) -> Option<IpAddr> {
    let inside = |subnet: &Subnet| allowed.iter().find(|one| subnet.contains(one.ip));
    let in_network = || {
        let wanted = rules.network.as_deref()?;
        allowed.iter().find(|one| one.network.is_some_and(|name| same(name, wanted)))
    };
    rules.subnets.iter().find_map(inside).or_else(in_network).map(|one| one.ip)
}

/// Whether another machine could use the address.
fn is_reachable(ip: &IpAddr) -> bool {
    let local = |ip: Ipv4Addr| {
        let [a, b, c, _] = ip.octets();
        ip.is_unspecified() || ip.is_loopback() || ip.is_link_local() || (a, b, c) == (224, 0, 0)
    };
    let local6 = |ip: Ipv6Addr| {
        let multicast = ip.segments()[0] & 0xff0f == 0xff02;
        ip.is_unspecified() || ip.is_loopback() || ip.is_unicast_link_local() || multicast
    };
    match ip.to_canonical() {
        IpAddr::V4(ip) => !local(ip),
        IpAddr::V6(ip) => !local6(ip),
    }
}

fn same(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.to_lowercase()
}

fn address(type_: &str, address: String) -> NodeAddress {
    NodeAddress { address, type_: type_.to_owned() }
}

/// Addresses in an order that does not depend on the guest's, so that a message stays the same.
fn named(addresses: impl Iterator<Item = IpAddr>) -> String {
    let addresses: BTreeSet<IpAddr> = addresses.collect();
    let mut names: Vec<String> =
        addresses.iter().take(MOST_NAMED).map(ToString::to_string).collect();
    if addresses.len() > MOST_NAMED {
        names.push("…".to_owned());
    }
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests;
