//! What a Node's addresses become when a guest tells something new.
//!
//! Guests forget addresses for a moment: when tools restart, when a card is plugged, when containers make so
//! many interfaces that the list overflows. A Node that loses its address loses its traffic, so what was good
//! stays until a report without doubt replaces it.

use std::{collections::HashSet, net::IpAddr};

use k8s_openapi::api::core::v1::NodeAddress;

use cloud_config::IpFamily;

use crate::addresses::Doubt;

/// The addresses a Node should have.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    /// The list, in order.
    pub addresses: Vec<NodeAddress>,
    /// Why it is still the previous one although the guest tells something else.
    pub kept: Option<Doubt>,
}

/// Decides between the addresses that a Node has and those that the guest tells now.
///
/// A report without doubt always wins. A doubtful one wins if all previous addresses are in it. If it is
/// `steady`, which means that the guest has told the same for a while, it also wins over other addresses as
/// long as none gets lost: there must be one for every type and family that had one. That does not hold for
/// lists that were cut, nor for a single address where there were several.
pub fn settle(
    previous: &[NodeAddress],
    fresh: Vec<NodeAddress>,
    partial: Option<Doubt>,
    steady: bool,
) -> Settled {
    let ips: HashSet<IpAddr> = previous.iter().filter_map(ip).collect();
    let loses = |doubt: &Doubt| {
        let may_change = match doubt {
            Doubt::InterfacesCut => false,
            Doubt::SilentCard => steady,
            Doubt::FirstAddressOnly => steady && ips.len() == 1,
        };
        let kept = |old: &NodeAddress| {
            fresh.iter().any(|new| new == old || (may_change && kind(new) == kind(old)))
        };
        previous.iter().filter(|old| ip(old).is_some()).any(|old| !kept(old))
    };
    match partial.filter(loses) {
        Some(doubt) => Settled { addresses: previous.to_vec(), kept: Some(doubt) },
        None => Settled { addresses: fresh, kept: None },
    }
}

fn ip(address: &NodeAddress) -> Option<IpAddr> {
    address.address.parse().ok()
}

fn kind(address: &NodeAddress) -> (&str, Option<IpFamily>) {
    (&address.type_, ip(address).map(IpFamily::of))
}
