//! Which addresses a Node has after its guest reported something new.
//!
//! Guests report fewer addresses for a moment: when tools restart, when a card is plugged, when containers
//! create so many interfaces that the list overflows. A Node that loses its address loses its traffic, so good
//! addresses stay until a report without doubt replaces them.

use std::{collections::HashSet, net::IpAddr};

use k8s_openapi::api::core::v1::NodeAddress;

use cloud_config::IpFamily;

use crate::plan::addresses::Doubt;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settled {
    pub(crate) addresses: Vec<NodeAddress>,
    /// Why they are still the previous ones although the guest reports others.
    pub(crate) kept: Option<Doubt>,
}

/// Decides between the addresses that a Node has and those that the guest reports now.
///
/// A report without doubt always wins. A doubtful one wins if all previous addresses are in it. One that is
/// `steady` also wins over other addresses as long as there is one for every type and family that had one;
/// but not a list that was cut, nor a single address where there were several.
pub(crate) fn settle(
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
