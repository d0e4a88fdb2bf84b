//! What is known of a guest: what VMware Tools report, joined with the VM's network cards.
//!
//! The report is pushed by vCenter. Cards and cloud-init metadata are read when `config.changeVersion` differs
//! from the one that they were read with. The two are joined when they are read, so that no report is
//! lost while cards are read.

use std::sync::Arc;

use jiff::Timestamp;
use vsphere::{
    inventory::{Card, Cards, Nic, join},
    object,
    types::{GuestNicInfo, VirtualMachine},
};

object! {
    /// The properties that are watched for VMs whose guests are selected.
    pub(crate) struct Report: VirtualMachine {
        pub nics: Vec<GuestNicInfo> = "guest.net",
        pub change_version: Option<String> = "config.changeVersion",
    }
}

impl Report {
    /// What has to stay the same for a guest to be steady: the addresses of the VM's own cards. Interfaces of
    /// containers come and go, and so do the states and lifetimes of addresses.
    fn steady(&self) -> Vec<(&str, Vec<&str>)> {
        let own = self.nics.iter().filter(|nic| nic.device_config_id != -1);
        let mut cards: Vec<_> = own
            .map(|nic| {
                let mut addresses: Vec<_> = nic.ip_address.iter().map(String::as_str).collect();
                addresses.sort_unstable();
                (nic.mac_address.as_deref().unwrap_or_default(), addresses)
            })
            .collect();
        cards.sort_unstable();
        cards
    }
}

/// A guest at the moment of its snapshot.
#[derive(Debug, Clone)]
pub struct Guest<'a> {
    /// Its interfaces, and the VM's cards that it does not report.
    pub nics: Vec<Nic>,
    /// `guestinfo.metadata` of cloud-init, as it is in the VM's options.
    pub metadata: Option<&'a str>,
    /// `guestinfo.metadata.encoding`.
    pub encoding: Option<&'a str>,
    /// Since when it reports the same.
    pub since: Timestamp,
}

/// What is kept of a selected guest.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) report: Report,
    /// When the addresses of its own cards last changed.
    pub(crate) since: Timestamp,
    /// `None` until they were read.
    pub(crate) configuration: Option<Arc<Configuration>>,
}

/// What was read of a VM's configuration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Configuration {
    change_version: Option<String>,
    cards: Vec<Card>,
    metadata: Option<String>,
    encoding: Option<String>,
}

impl From<Cards> for Configuration {
    fn from(read: Cards) -> Self {
        Self {
            metadata: read.option("guestinfo.metadata").filter(|text| !text.is_empty()),
            encoding: read.option("guestinfo.metadata.encoding"),
            change_version: read.change_version,
            cards: read.cards,
        }
    }
}

impl Entry {
    pub(crate) fn new(report: Report, now: Timestamp) -> Self {
        Self { report, since: now, configuration: None }
    }

    /// Takes a newer report.
    pub(crate) fn update(&mut self, report: Report, now: Timestamp) {
        if self.report.steady() != report.steady() {
            self.since = now;
        }
        self.report = report;
    }

    /// Whether the cards must be read again. They stay while vCenter reports no version: then it cannot read the
    /// configuration, because the VM's files are not accessible.
    pub(crate) fn is_stale(&self) -> bool {
        let now = &self.report.change_version;
        let is_older = |read: &Configuration| now.is_some() && read.change_version != *now;
        self.configuration.as_deref().is_none_or(is_older)
    }

    pub(crate) fn guest(&self) -> Option<Guest<'_>> {
        let read = self.configuration.as_ref()?;
        Some(Guest {
            nics: join(&self.report.nics, &read.cards),
            metadata: read.metadata.as_deref(),
            encoding: read.encoding.as_deref(),
            since: self.since,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;
    use vsphere::inventory::Cards;

    use super::{Configuration, Entry, Report};

    #[test]
    fn cards_are_stale_when_the_configuration_is_another_not_when_it_cannot_be_read() {
        let version = |version: Option<&str>| version.map(str::to_owned);
        let cases = [
            (None, Some("1"), true),
            (None, None, true),
            (Some("1"), Some("1"), false),
            (Some("1"), Some("2"), true),
            (Some("1"), None, false),
        ];
        for (read, reported, stale) in cases {
            let report = Report { change_version: version(reported), ..Report::default() };
            let mut entry = Entry::new(report, Timestamp::UNIX_EPOCH);
            entry.configuration = read.map(|read| {
                let mut cards = Cards::default();
                cards.change_version = version(Some(read));
                Arc::new(Configuration::from(cards))
            });
            assert_eq!(entry.is_stale(), stale, "{read:?} {reported:?}");
        }
    }
}
