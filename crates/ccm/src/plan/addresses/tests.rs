//! Addresses: the cases of `cases.txt`, and what holds for all guests.

use std::{collections::HashMap, io::Write, net::IpAddr};

use crate::plan::addresses::{
    AddressError, Doubt, Guest, Selection, Settings, metadata::Metadata, select, settle,
};
use cloud_config::{IpFamily, Subnet};
use k8s_openapi::{ByteString, api::core::v1::NodeAddress};
use proptest::prelude::{Strategy, any, proptest};
use vsphere::inventory::Nic;

use crate::test_support::addresses as list;

/// A case of the file.
#[derive(Default)]
struct Case {
    families: Vec<IpFamily>,
    settings: Settings,
    nics: Vec<Nic>,
    metadata: Option<String>,
    expected: String,
}

fn family(text: &str) -> IpFamily {
    if text == "ipv6" { IpFamily::V6 } else { IpFamily::V4 }
}

fn base64(bytes: Vec<u8>) -> String {
    serde_json::to_value(ByteString(bytes)).unwrap().as_str().unwrap().to_owned()
}

/// Metadata as cloud-init has it, with the network in one of its three forms.
fn metadata(form: &str, addresses: &str) -> String {
    let addresses: Vec<&str> = addresses.split_whitespace().collect();
    let netplan = format!(
        "version: 2\nethernets:\n  id0: {{dhcp6: true, addresses: [{}]}}\n",
        addresses.iter().map(|one| format!("'{one}'")).collect::<Vec<_>>().join(", ")
    );
    let encoded = |text: String| format!("network: {text}\nnetwork.encoding: {form}\n");
    let text = match form {
        "inline" => format!("network:\n  {}", netplan.replace('\n', "\n  ")),
        "base64" => encoded(base64(netplan.into_bytes())),
        "gzip+base64" => {
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            packer.write_all(netplan.as_bytes()).unwrap();
            encoded(base64(packer.finish().unwrap()))
        }
        _ => "no mapping at all".to_owned(),
    };
    base64(text.into_bytes())
}

/// An interface as `vsphere` joins it: texts that are not addresses are dropped there.
fn nic(line: &str) -> Nic {
    let (name, addresses) = line.split_once(':').unwrap();
    Nic {
        network: Some(name.trim_end_matches('!').to_owned()),
        addresses: addresses.split_whitespace().filter_map(|text| text.parse().ok()).collect(),
        device: (!name.ends_with('!')).then_some(4000),
        reported: true,
        ..Nic::default()
    }
}

fn case(block: &str) -> Case {
    let mut case = Case::default();
    for line in block.lines().filter(|line| !line.starts_with('#')) {
        let (key, value) = line.split_once(' ').unwrap();
        let subnets = || -> Vec<Subnet> {
            value.split_whitespace().map(|text| text.parse().unwrap()).collect()
        };
        match key {
            "case" => {}
            "families" => {
                case.families = value.split(' ').map(family).collect();
            }
            "internal" => case.settings.internal.subnets = subnets(),
            "external" => case.settings.external.subnets = subnets(),
            "exclude-internal" => case.settings.internal.excluded = subnets(),
            "exclude-external" => case.settings.external.excluded = subnets(),
            "internal-network" => case.settings.internal.network = Some(value.to_owned()),
            "external-network" => case.settings.external.network = Some(value.to_owned()),
            "nic" => case.nics.push(nic(value)),
            "metadata" => {
                let (form, addresses) = value.split_once(':').unwrap();
                case.metadata = Some(metadata(form, addresses));
            }
            "expect" => case.expected = value.to_owned(),
            other => panic!("{other} is no key"),
        }
    }
    case
}

fn kind(error: &AddressError) -> String {
    let text = format!("{error:?}");
    format!("error {}", text.split([' ', '(']).next().unwrap())
}

fn shown(addresses: &[NodeAddress]) -> String {
    let one = |one: &NodeAddress| format!("{}={}", one.type_, one.address);
    addresses.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn addresses_are_chosen_as_the_table_says() {
    let text = include_str!("cases.txt");
    let blocks: Vec<&str> = text.split("\n\n").filter(|block| block.contains("case ")).collect();
    assert_eq!(blocks.len(), 53 + 6);
    for block in blocks {
        let case = case(block.trim());
        let metadata = case.metadata.as_deref();
        let guest = Guest {
            tools_run: true,
            host_name: Some("node-1"),
            nics: &case.nics,
            metadata: metadata.map(|text| Metadata { text, encoding: Some("base64") }),
            ..Guest::default()
        };
        let result = match select(&guest, &case.families, &case.settings) {
            Ok(selected) => shown(&selected.addresses),
            Err(error) => kind(&error),
        };
        let expected = match case.expected.starts_with("error") {
            true => case.expected,
            false => format!("Hostname=node-1 {}", case.expected),
        };
        assert_eq!(result, expected, "{block}");
    }
}

#[test]
fn d26_metadata_that_is_packed_as_a_whole_is_understood() {
    let nics = [card(&["10.0.0.1", "10.0.0.2"])];
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(b"network: {ethernets: {a: {addresses: [10.0.0.2/24]}}}").unwrap();
    let text = base64(packer.finish().unwrap());
    for encoding in ["gzip+base64", "gz+b64"] {
        let metadata = Some(Metadata { text: &text, encoding: Some(encoding) });
        let found = selected(&Guest { metadata, ..guest(&nics) }).unwrap();
        assert_eq!(found.addresses[1].address, "10.0.0.2", "{encoding}");
    }
}

fn card(addresses: &[&str]) -> Nic {
    Nic {
        device: Some(4000),
        addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
        reported: true,
        ..Nic::default()
    }
}

fn guest(nics: &[Nic]) -> Guest<'_> {
    Guest { tools_run: true, host_name: Some("node-1"), nics, ..Guest::default() }
}

fn selected(guest: &Guest<'_>) -> Result<Selection, AddressError> {
    select(guest, &[IpFamily::V4], &Settings::default())
}

#[test]
fn a_guest_without_tools_or_name_says_what_to_do() {
    let nics = [card(&["10.0.0.1"])];
    let silent = Guest { tools_run: false, ..guest(&[]) };
    let error = selected(&silent).unwrap_err();
    assert_eq!(error, AddressError::ToolsNotRunning);
    assert!(error.to_string().contains("start open-vm-tools"));
    let nameless = Guest { host_name: Some(" "), ..guest(&nics) };
    assert_eq!(selected(&nameless).unwrap_err(), AddressError::NoHostName);
}

#[test]
fn a_guest_whose_tools_report_no_name_has_the_kubelets() {
    let nics = [card(&["10.0.0.1"])];
    let nameless = Guest { host_name: None, kubelet_name: Some("talos-1"), ..guest(&nics) };
    let found = selected(&nameless).unwrap();
    let expected = "Hostname=talos-1 InternalIP=10.0.0.1 ExternalIP=10.0.0.1";
    assert_eq!(shown(&found.addresses), expected);
}

#[test]
fn a_windows_guest_without_interfaces_has_its_first_address() {
    let first_address = Some("10.0.0.1".parse().unwrap());
    let found = selected(&Guest { first_address, ..guest(&[]) }).unwrap();
    assert_eq!(found.doubt, Some(Doubt::FirstAddressOnly));
    assert_eq!(shown(&found.addresses), "Hostname=node-1 InternalIP=10.0.0.1 ExternalIP=10.0.0.1");
}

#[test]
fn an_error_names_eight_addresses_at_most_in_an_order_of_their_own() {
    let seen = |last: std::ops::RangeInclusive<u8>| {
        let texts: Vec<String> = last.rev().map(|at| format!("169.254.0.{at}")).collect();
        let nics = [card(&texts.iter().map(String::as_str).collect::<Vec<_>>())];
        match selected(&guest(&nics)).unwrap_err() {
            AddressError::OnlyLocal { seen } => seen,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(seen(1..=2), "169.254.0.1, 169.254.0.2");
    assert_eq!(
        seen(1..=8),
        (1..=8).map(|at| format!("169.254.0.{at}")).collect::<Vec<_>>().join(", ")
    );
    assert!(seen(1..=9).ends_with("169.254.0.8, …"));
}

#[test]
fn families_are_those_of_the_vcenter_or_ipv4() {
    let families = HashMap::from([("a".to_owned(), vec![IpFamily::V6]), ("b".to_owned(), vec![])]);
    let settings = Settings { families, ..Settings::default() };
    assert_eq!(settings.families_of("a"), [IpFamily::V6]);
    assert_eq!(settings.families_of("b"), [IpFamily::V4]);
    assert_eq!(settings.families_of("c"), [IpFamily::V4]);
}

#[test]
fn a_card_that_the_guest_leaves_out_raises_doubt() {
    let left_out = Nic { device: Some(4001), ..Nic::default() };
    let found = selected(&guest(&[card(&["10.0.0.1"]), left_out.clone()])).unwrap();
    assert_eq!(found.doubt, Some(Doubt::SilentCard));
    let mut many: Vec<Nic> = vec![Nic { device: None, ..card(&["10.244.0.1"]) }; 15];
    many.extend([card(&["10.0.0.1"]), left_out]);
    assert_eq!(selected(&guest(&many)).unwrap().doubt, Some(Doubt::InterfacesCut));
    assert_eq!(selected(&guest(&many[..16])).unwrap().doubt, None);
}

#[test]
fn partial_reports_never_wipe_addresses() {
    let had = "Hostname=a InternalIP=10.0.0.1 ExternalIP=1.1.1.1";
    let check = |partial, steady, fresh: &str, expected: &str| {
        let settled = settle(&list(had), list(fresh), partial, steady);
        assert_eq!(shown(&settled.addresses), expected, "{partial:?} {steady} {fresh}");
        assert_eq!(settled.kept, partial.filter(|_| expected == had && fresh != had));
    };
    let lost = "Hostname=a InternalIP=10.0.0.1";
    let changed = "Hostname=a InternalIP=10.0.0.2 ExternalIP=1.1.1.1";
    for steady in [false, true] {
        check(None, steady, lost, lost);
        check(None, steady, changed, changed);
        for doubt in [Doubt::SilentCard, Doubt::FirstAddressOnly, Doubt::InterfacesCut] {
            check(Some(doubt), steady, lost, had);
            check(Some(doubt), steady, had, had);
        }
        check(Some(Doubt::InterfacesCut), steady, changed, had);
        check(Some(Doubt::FirstAddressOnly), steady, changed, had);
    }
    check(Some(Doubt::SilentCard), false, changed, had);
    check(Some(Doubt::SilentCard), true, changed, changed);
    // A guest that never tells more than one address may change it.
    let (one, other) = (list("InternalIP=10.0.0.1"), list("InternalIP=10.0.0.2"));
    let partial = Some(Doubt::FirstAddressOnly);
    assert_eq!(settle(&one, other.clone(), partial, true).addresses, other);
    assert_eq!(settle(&one, other, partial, false).addresses, one);
}

fn any_ip() -> impl Strategy<Value = IpAddr> {
    let special = ["127.0.0.1", "169.254.1.1", "224.0.0.5", "::1", "fe80::1", "ff02::1", "0.0.0.0"];
    let fixed = (0..special.len()).prop_map(move |at| special[at].parse().unwrap());
    let v4 = (0..4_u8, 0..4_u8).prop_map(|(a, b)| IpAddr::from([10, 0, a, b]));
    let v6 = (0..4_u16).prop_map(|a| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, a]));
    proptest::prop_oneof![fixed, v4, v6, any::<IpAddr>()]
}

fn any_nics() -> impl Strategy<Value = Vec<Nic>> {
    let nic = (proptest::collection::vec(any_ip(), 0..4), any::<bool>()).prop_map(
        |(addresses, backed)| Nic {
            device: backed.then_some(4000),
            addresses,
            reported: true,
            ..Nic::default()
        },
    );
    proptest::collection::vec(nic, 0..4)
}

proptest! {
    #[test]
    fn no_address_is_local_or_excluded_or_made_up(nics in any_nics(), two in any::<bool>()) {
        let mut settings = Settings::default();
        settings.internal.excluded = vec!["10.0.1.0/24".parse().unwrap()];
        settings.external.excluded = vec!["10.0.2.0/24".parse().unwrap()];
        let families = if two { vec![IpFamily::V6, IpFamily::V4] } else { vec![IpFamily::V4] };
        if let Ok(found) = select(&guest(&nics), &families, &settings) {
            for one in &found.addresses[1..] {
                let ip: IpAddr = one.address.parse().unwrap();
                let excluded = match one.type_.as_str() {
                    "InternalIP" => &settings.internal.excluded,
                    _ => &settings.external.excluded,
                };
                assert!(!excluded.iter().any(|subnet| subnet.contains(ip)), "{ip}");
                assert!(!ip.is_loopback() && !ip.is_unspecified(), "{ip}");
                assert!(!one.address.starts_with("169.254.") && !one.address.starts_with("fe80:"));
                let cards = nics.iter().filter(|nic| nic.device.is_some());
                let mut known = cards.flat_map(|nic| &nic.addresses).map(IpAddr::to_canonical);
                assert!(known.any(|own| own == ip), "{ip}");
            }
        }
    }

    #[test]
    fn what_was_chosen_is_chosen_again(nics in any_nics()) {
        let first = selected(&guest(&nics));
        assert_eq!(selected(&guest(&nics)), first);
        if let Ok(found) = first {
            // The guest that has only the chosen addresses, in their order.
            let texts: Vec<&str> = found.addresses[1..].iter().map(|one| one.address.as_str()).collect();
            let again = selected(&guest(&[card(&texts)])).unwrap();
            assert_eq!(again.addresses, found.addresses);
        }
    }

    #[test]
    fn interfaces_that_are_no_cards_change_nothing(nics in any_nics(), extra in any_ip()) {
        let bridge = Nic { device: None, addresses: vec![extra], reported: true, ..Nic::default() };
        let before = selected(&guest(&nics)).map(|found| found.addresses);
        let mut more = vec![bridge.clone()];
        more.extend(nics.iter().cloned());
        more.push(bridge);
        if !nics.is_empty() {
            let after = selected(&guest(&more)).map(|found| found.addresses);
            assert_eq!(after, before);
        }
    }

    #[test]
    fn settling_twice_changes_nothing(
        had in proptest::collection::vec(any_ip(), 0..3),
        tells in proptest::collection::vec(any_ip(), 0..3),
        doubt in 0..4_usize,
        steady in any::<bool>(),
    ) {
        let doubts = [Doubt::SilentCard, Doubt::FirstAddressOnly, Doubt::InterfacesCut];
        let partial = doubts.get(doubt).copied();
        let list = |ips: &[IpAddr]| -> Vec<NodeAddress> {
            let one = |ip: &IpAddr| NodeAddress {
                type_: "InternalIP".to_owned(),
                address: ip.to_string(),
            };
            ips.iter().map(one).collect()
        };
        let once = settle(&list(&had), list(&tells), partial, steady).addresses;
        let twice = settle(&once, list(&tells), partial, steady).addresses;
        assert_eq!(once, twice);
        assert!(once == list(&had) || once == list(&tells));
        if partial.is_some() && !had.is_empty() {
            assert!(!once.is_empty());
        }
    }
}
