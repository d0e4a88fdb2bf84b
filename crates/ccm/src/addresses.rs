//! Which addresses a Node gets, from what its guest reports.
//!
//! [`select`] is the whole decision, in the order that users of the cloud provider know: drop what is not
//! on a virtual card, drop local addresses, put statically configured ones first, then choose an internal
//! and an external address per family by subnet, by network name, or the first. [`node_ip::honour`] lets
//! the kubelet's choice win, and [`settle`] keeps good addresses while the guest tells only half.
//!
//! Deliberately absent: reading VMs and writing Nodes. Everything here is a function of values.

pub mod metadata;
pub mod node_ip;
mod settle;

use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use cloud_config::{AddressRules, IpFamily, Subnet};
use k8s_openapi::api::core::v1::NodeAddress;
use vsphere::{inventory::Nic, types::GuestNicInfo};

use self::metadata::{Metadata, MetadataError};
pub use self::settle::{Settled, settle};

/// The type of the address that is the guest's name.
pub const HOSTNAME: &str = "Hostname";
/// The type of addresses for use inside of the cluster's network.
pub const INTERNAL_IP: &str = "InternalIP";
/// The type of addresses for use from outside.
pub const EXTERNAL_IP: &str = "ExternalIP";

/// VMware Tools report no more interfaces than this, and the cards may be among those left out.
const MOST_REPORTED: usize = 16;
/// The number of addresses that an error names.
const MOST_NAMED: usize = 8;

/// How addresses are chosen. The families are those of each vCenter, everything else holds for all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The families by name of the vCenter, in order of priority. All of them are required.
    pub families: HashMap<String, Vec<IpFamily>>,
    /// How the internal address is chosen.
    pub internal: AddressRules,
    /// How the external address is chosen.
    pub external: AddressRules,
}

/// What is known of a guest.
#[derive(Debug, Clone, Copy, Default)]
pub struct Guest<'a> {
    /// Whether VMware Tools run, without which there is nothing to be known.
    pub tools_run: bool,
    /// The name it reports.
    pub host_name: Option<&'a str>,
    /// The name that the kubelet reports, for guests whose tools report none.
    pub kubelet_name: Option<&'a str>,
    /// Its interfaces in the order it reports them, and the cards it does not report.
    pub nics: &'a [Nic],
    /// The one address that tools report even where they report no interface.
    pub first_address: Option<IpAddr>,
    /// The metadata that cloud-init started from.
    pub metadata: Option<Metadata<'a>>,
}

/// Addresses, and how far they can be trusted.
#[derive(Debug, Clone, PartialEq)]
pub struct Selection {
    /// The name first, then per family the internal and the external address.
    pub addresses: Vec<NodeAddress>,
    /// Why there may be more than the guest tells.
    pub doubt: Option<Doubt>,
}

/// Why a report of a guest may be only a part of the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    /// The list of interfaces is full, and a card is not in it.
    #[error(
        "VMware Tools report {MOST_REPORTED} interfaces at most and a network card is not among them; set \
         exclude-nics in the guest's tools.conf so that they leave out those of containers"
    )]
    InterfacesCut,
    /// A card has no address.
    #[error("a network card of the VM has no address in the guest")]
    SilentCard,
    /// There is only the guest's first address.
    #[error("VMware Tools report an address of the guest, but no network interface; update them")]
    FirstAddressOnly,
}

/// Why a guest has no addresses for its Node. The text names the cause and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Nothing is known of the guest.
    #[error(
        "VMware Tools do not run in the guest, so its addresses are unknown; install and start open-vm-tools"
    )]
    ToolsNotRunning,
    /// The guest has no name.
    #[error(
        "VMware Tools report no host name of the guest; set one in the guest and see that tools are current"
    )]
    NoHostName,
    /// The guest has no interfaces, for now or for good.
    #[error(
        "VMware Tools report no network interface of the guest; this is normal while it starts, later \
         restart or update the tools"
    )]
    NoInterfaces,
    /// Both network names are set and neither exists on this VM.
    #[error(
        "no network card is in {internal:?} or {external:?}: the cards are in {seen}; correct the network \
         names in the section Nodes of the configuration"
    )]
    NoNetwork {
        /// The name wanted for internal addresses.
        internal: String,
        /// The name wanted for external addresses.
        external: String,
        /// The names that exist.
        seen: String,
    },
    /// There are addresses, and none that another machine could reach.
    #[error(
        "the guest's network cards have no address that others can reach (reported: {seen}); check DHCP or \
         the static configuration in the guest"
    )]
    OnlyLocal {
        /// All that was reported.
        seen: String,
    },
    /// A required family is missing.
    #[error(
        "the guest has no {family} address for the Node (usable: {seen}); give it one, take {family} off \
         ip-family of this vCenter, or correct the excluded subnets"
    )]
    NoFamily {
        /// The missing family.
        family: IpFamily,
        /// What is usable in any family.
        seen: String,
    },
    /// What cloud-init started from cannot be read.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}

/// An address with the network it is in.
struct Candidate<'a> {
    ip: IpAddr,
    network: Option<&'a str>,
}

impl Settings {
    /// The families for VMs of this vCenter: IPv4 if nothing is set.
    pub fn families_of(&self, vcenter: &str) -> &[IpFamily] {
        let set = self.families.get(vcenter).map(Vec::as_slice).unwrap_or_default();
        if set.is_empty() { &[IpFamily::V4] } else { set }
    }
}

/// The addresses of a guest for its Node.
pub fn select(
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
        let place = |ip: &IpAddr| order.iter().position(|one| one == ip).unwrap_or(order.len());
        candidates.sort_by_key(|candidate| place(&candidate.ip));
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

/// What a guest reports, without asking for the VM's devices: the name of a network that the guest leaves
/// out comes from the names that are known by the card's hardware address in lower case.
pub fn reported(report: &[GuestNicInfo], networks: &HashMap<String, String>) -> Vec<Nic> {
    let nic = |nic: &GuestNicInfo| {
        let mac = nic.mac_address.as_ref().map(|mac| mac.to_ascii_lowercase());
        let told = nic.network.clone().filter(|name| !name.is_empty());
        let joined = mac.as_ref().and_then(|mac| networks.get(mac)).cloned();
        let parse = |text: &String| text.split('%').next()?.trim().parse().ok();
        Nic {
            device: (nic.device_config_id != -1).then_some(nic.device_config_id),
            network: joined.or(told),
            addresses: nic.ip_address.iter().filter_map(parse).collect(),
            mac,
            reported: true,
        }
    };
    report.iter().map(nic).collect()
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
    let mut told = HashSet::new();
    let names = cards.iter().filter_map(|card| card.network.as_deref());
    let seen: Vec<&str> = names.filter(|name| told.insert(*name)).take(MOST_NAMED).collect();
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

fn named(addresses: impl Iterator<Item = IpAddr>) -> String {
    let mut names: Vec<String> = addresses.take(MOST_NAMED + 1).map(|ip| ip.to_string()).collect();
    if names.len() > MOST_NAMED {
        names.truncate(MOST_NAMED);
        names.push("…".to_owned());
    }
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
