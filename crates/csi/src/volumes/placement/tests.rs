//! Placement by tables and properties.

mod properties;
mod worlds;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use vsphere::{inventory::Datastore, reference::Ref, types::DatastoreHostMount};

use super::{Inventory, MissingNode, NodeHost, Selection, Size, Store, Wish, accessible, decide};
use crate::{refusal::Kind, volumes::topology::Segment};

const GIB: u64 = 1 << 30;

fn store(name: &str, free_gib: u64, hosts: &[&str]) -> Store {
    Store {
        datastore: Ref::new(name),
        name: name.to_owned(),
        path: format!("/dc-1/datastore/{name}"),
        cluster: None,
        url: format!("ds:///vmfs/volumes/{name}/"),
        capacity: 100 * GIB,
        free: free_gib * GIB,
        is_accessible: true,
        maintenance: None,
        is_suspended: false,
        is_permitted: true,
        seen: mounted_on(hosts),
        preferred_in: Vec::new(),
    }
}

fn mounted_on(hosts: &[&str]) -> Arc<Datastore> {
    let mount =
        |host: &&str| DatastoreHostMount { key: Ref::new(host), ..DatastoreHostMount::default() };
    let mounts = hosts.iter().map(mount).collect();
    Arc::new(Datastore { mounts, ..Datastore::default() })
}

fn host(name: &str) -> NodeHost {
    let (host, name) = (Ref::new(name), format!("{name}.example"));
    NodeHost { host, name, segments: BTreeSet::new(), is_serving: true }
}

/// `z1` is a zone, `r1/z1` a zone of a region, and `r1/` a region.
fn segment(text: &str) -> Segment {
    let (region, zone) = text.split_once('/').unwrap_or(("", text));
    let labels = [("region", region), ("zone", zone)];
    let labels = labels.into_iter().filter(|(_, value)| !value.is_empty());
    Segment::new(labels.map(|(key, value)| (key.to_owned(), value.to_owned()))).unwrap()
}

fn inventory(stores: &[Store], hosts: &[NodeHost]) -> Inventory {
    Inventory {
        vcenter: "vc".to_owned(),
        stores: stores.iter().cloned().map(Arc::new).collect(),
        hosts: hosts.to_vec(),
        ..Inventory::default()
    }
}

fn wish(gib: u64) -> Wish {
    Wish { bytes: gib * GIB, ..Wish::default() }
}

/// The candidates, the best first.
fn candidates(stores: &[Store], hosts: &[NodeHost], wish: &Wish) -> Vec<String> {
    let decision = decide(&inventory(stores, hosts), wish);
    decision.candidates().map(|one| one.store.datastore.value().to_owned()).collect()
}

#[test]
fn the_emptiest_datastore_that_every_node_reaches_is_the_best() {
    let hosts = [host("h1"), host("h2")];
    let stores = [
        store("small", 20, &["h1", "h2"]),
        store("large", 50, &["h1", "h2"]),
        store("local", 90, &["h1"]),
        store("full", 1, &["h1", "h2"]),
    ];
    assert_eq!(candidates(&stores, &hosts, &wish(10)), ["large", "small"]);
    assert_eq!(candidates(&stores, &hosts[..1], &wish(10)), ["local", "large", "small"]);
}

#[test]
fn a_thin_disk_may_be_larger_than_its_datastore_if_the_user_wants_that() {
    let stores = [store("fuller", 5, &["h1"]), store("emptier", 9, &["h1"]), store("no", 9, &[])];
    for gib in [10, 200] {
        assert!(candidates(&stores, &[host("h1")], &wish(gib)).is_empty());
        let wish = Wish { overcommit: true, ..wish(gib) };
        assert_eq!(candidates(&stores, &[host("h1")], &wish), ["emptier", "fuller"]);
    }
}

#[test]
fn each_reason_excludes_a_datastore_and_is_named() {
    type Edit = fn(&mut Store);
    let cases: [(Edit, &str, Kind); 7] = [
        (|one| one.is_accessible = false, "no host reaches it", Kind::Precondition),
        (
            |one| one.maintenance = Some("inMaintenance".to_owned()),
            "maintenance (inMaintenance)",
            Kind::Precondition,
        ),
        (|one| one.is_suspended = true, "suspended", Kind::Precondition),
        (
            |one| one.seen = mounted_on(&[]),
            "not writable from h1.example, which runs nodes",
            Kind::Precondition,
        ),
        (|one| one.is_permitted = false, "lacks Datastore.FileManagement", Kind::Denied),
        (|one| one.capacity = GIB, "it has 1 GiB in all", Kind::OutOfRange),
        (|one| one.free = 3 * GIB / 2, "it has 1.5 GiB free", Kind::Exhausted),
    ];
    for (edit, text, kind) in cases {
        let mut one = store("one", 50, &["h1"]);
        edit(&mut one);
        let decision = decide(&inventory(&[one], &[host("h1")]), &wish(10));
        assert_eq!(decision.candidates().count(), 0, "{text}");
        let refusal = decision.refusal("pvc-1");
        assert_eq!(refusal.kind, kind, "{refusal}");
        let shown = refusal.to_string();
        assert!(
            shown.contains("volume pvc-1: no datastore can take 10 GiB (/dc-1/datastore/one: "),
            "{shown}"
        );
        assert!(shown.contains(text), "{shown}");
    }
}

#[test]
fn storage_of_two_datacenters_is_reached_by_the_hosts_of_both() {
    let mut north = store("north", 50, &["h1"]);
    let mut south = store("south", 50, &["h2"]);
    let url = "ds:///vmfs/volumes/shared";
    (north.url, south.url) = (url.to_owned(), format!("{url}/"));
    assert_eq!(
        candidates(&[north, south], &[host("h1"), host("h2")], &wish(1)),
        ["north", "south"]
    );
}

#[test]
fn a_host_that_does_not_serve_excludes_nothing() {
    let mut dead = host("h2");
    dead.is_serving = false;
    assert_eq!(candidates(&[store("one", 50, &["h1"])], &[host("h1"), dead], &wish(1)), ["one"]);
}

#[test]
fn a_url_selects_its_datastore_and_a_wrong_one_is_answered_with_the_right_ones() {
    let stores = [store("a", 50, &["h1"]), store("b", 90, &["h1"])];
    let at = |url: &str| {
        let selection = Selection { url: Some(url.to_owned()), ..Selection::default() };
        Wish { selection, ..wish(1) }
    };
    let hosts = [host("h1")];
    assert_eq!(candidates(&stores, &hosts, &at("ds:///vmfs/volumes/a")), ["a"]);
    let refusal =
        decide(&inventory(&stores, &hosts), &at("ds:///vmfs/volumes/c/")).refusal("pvc-1");
    assert_eq!(refusal.kind, Kind::Invalid);
    assert!(
        refusal.to_string().contains("ds:///vmfs/volumes/a/, ds:///vmfs/volumes/b/"),
        "{refusal}"
    );
}

#[test]
fn what_a_policy_rejects_is_excluded_with_its_reason() {
    let stores = [store("a", 50, &["h1"]), store("b", 90, &["h1"])];
    let mut decision = decide(&inventory(&stores, &[host("h1")]), &wish(1));
    decision.exclude(&BTreeMap::from([(Ref::new("b"), "not flash".to_owned())]));
    let left: Vec<_> = decision.candidates().map(|one| one.store.datastore.value()).collect();
    assert_eq!(left, ["a"]);
    decision.exclude(&BTreeMap::from([(Ref::new("a"), "too slow".to_owned())]));
    let refusal = decision.refusal("pvc-1");
    assert_eq!(refusal.kind, Kind::Precondition);
    assert!(
        refusal
            .to_string()
            .contains("/dc-1/datastore/b: the storage policy does not accept it: not flash"),
        "{refusal}"
    );
}

#[test]
fn shared_storage_is_counted_once() {
    let mut twin = store("twin", 30, &["h1"]);
    twin.url = "ds:///vmfs/volumes/a".to_owned();
    let stores = [store("a", 30, &["h1"]), twin, store("b", 20, &["h1"])];
    let decision = decide(&inventory(&stores, &[host("h1")]), &wish(0));
    assert_eq!(decision.room().unwrap(), (50 * GIB, 30 * GIB));
}

#[test]
fn sizes_are_written_as_people_read_them() {
    let texts = [1023, 1 << 20, 3 << 29, 62 << 40].map(|bytes| Size(bytes).to_string());
    assert_eq!(texts, ["1023 bytes", "1 MiB", "1.5 GiB", "62 TiB"]);
}

#[test]
fn of_five_hundred_datastores_the_emptiest_shared_one_is_found_for_ten_thousand_nodes() {
    let (stores, hosts) = large();
    let inventory = inventory(&stores, &hosts);
    let decision = decide(&inventory, &wish(10));
    let best = decision.candidates().next().map(|one| one.store.datastore.value());
    assert_eq!((decision.candidates().count(), best), (45, Some("s190")));
    let segments = (0..10).map(|zone| segment(&format!("z{zone}"))).collect();
    let in_zones = decide(&inventory, &Wish { segments, ..wish(10) });
    let best = in_zones.candidates().next().unwrap();
    let segments = accessible(&inventory, &best.store.datastore);
    assert_eq!((in_zones.candidates().count(), segments.len()), (450, 9));
}

/// Five hundred datastores and ten thousand nodes on four hundred hosts in ten zones.
fn large() -> (Vec<Store>, Vec<NodeHost>) {
    let names: Vec<String> = (0..400).map(|number| format!("h{number}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let zone = |at: usize| BTreeSet::from([segment(&format!("z{}", at / 40))]);
    let on = |(at, name): (usize, &&str)| NodeHost { segments: zone(at), ..host(name) };
    let hosts = all.iter().enumerate().map(on).collect();
    let stores = (0..500_u64).map(|number| {
        // Every tenth is shared by all hosts, and the others by those of nine zones and of most of the tenth.
        let writers = if number % 10 == 0 { &all[..] } else { &all[..399] };
        store(&format!("s{number}"), number % 100, writers)
    });
    (stores.collect(), hosts)
}

#[test]
fn nothing_is_placed_for_nodes_that_are_nowhere_to_be_seen() {
    let away = |name| NodeHost { is_serving: false, ..host(name) };
    let judge = |hosts: &[NodeHost], missing: &[&str], incomplete: Option<&str>| {
        let missing =
            missing.iter().map(|node| MissingNode { name: (*node).to_owned(), segment: None });
        let inventory = Inventory {
            missing: missing.collect(),
            incomplete: incomplete.map(str::to_owned),
            ..inventory(&[store("a", 50, &["h1", "h2"])], hosts)
        };
        let decision = decide(&inventory, &wish(1));
        let refusal = decision.refusal("pvc-1");
        let count = decision.candidates().count();
        assert_eq!(decision.room().is_ok(), count > 0, "room is as unknown as a place");
        if count > 0 { Ok(()) } else { Err((refusal.kind, refusal.to_string())) }
    };
    type Case<'a> = (&'a [NodeHost], &'a [&'a str], Option<&'a str>, &'a str);
    let incomplete = Some("dc-2 does not exist");
    let cases: [Case<'_>; 4] = [
        (&[], &[], None, "no node of this cluster was found in vCenter vc"),
        (&[], &["node-9"], None, "no node of this cluster was found in vCenter vc"),
        // No host is asked, so every datastore would count as reached by all of them.
        (&[away("h1"), away("h2")], &[], None, "out of maintenance (h1.example and h2.example)"),
        // It may be in the datacenter that is not seen.
        (&[host("h1")], &["node-9"], incomplete, "where node-9 runs (dc-2 does not exist)"),
    ];
    for (hosts, missing, incomplete, text) in cases {
        let (kind, refused) = judge(hosts, missing, incomplete).unwrap_err();
        assert_eq!(kind, Kind::Unavailable, "{refused}");
        assert!(refused.contains(text), "{refused}");
    }
    judge(&[host("h1"), away("h2")], &[], None).unwrap();
    // It is gone, and Kubernetes does not know that yet.
    judge(&[host("h1")], &["node-9"], None).unwrap();
    judge(&[host("h1")], &[], incomplete).unwrap();
}

#[test]
fn a_node_that_cannot_be_seen_hinders_its_own_segment_only() {
    let missing = MissingNode { name: "node-9".to_owned(), segment: Some(segment("z2")) };
    let hosts = ["z1", "z2"]
        .map(|zone| NodeHost { segments: BTreeSet::from([segment(zone)]), ..host(zone) });
    let seen = inventory(&[store("a", 50, &["z1", "z2"])], &hosts);
    let incomplete = Some("dc-2 does not exist".to_owned());
    let unseen = Inventory { missing: vec![missing], incomplete, ..seen.clone() };
    let decide_in = |zones: &[&str]| {
        let segments = zones.iter().map(|zone| segment(zone)).collect();
        decide(&unseen, &Wish { segments, ..wish(1) })
    };
    assert_eq!(decide_in(&["z1"]).candidates().count(), 1);
    assert_eq!(decide_in(&["z2", "z1"]).candidates().count(), 1);
    let refused = decide_in(&["z2"]);
    assert_eq!(refused.candidates().count(), 0);
    assert_eq!(refused.refusal("pvc-1").kind, Kind::Unavailable);
    assert!(refused.room().is_err(), "it may have room");
    let store = &seen.stores[0].datastore;
    assert_eq!(accessible(&seen, store).len(), 2);
    assert_eq!(accessible(&unseen, store), BTreeSet::from([segment("z1")]));
}

#[test]
fn a_segment_without_a_place_is_exhausted_so_that_another_node_is_looked_for() {
    let hosts = [NodeHost { segments: BTreeSet::from([segment("z1")]), ..host("h1") }];
    type Edit = fn(&mut Store);
    let edits: [Edit; 6] = [
        |one| one.free = 0,
        |one| one.capacity = 0,
        |one| one.is_permitted = false,
        |one| one.maintenance = Some("inMaintenance".to_owned()),
        |one| one.seen = mounted_on(&[]),
        |one| one.is_suspended = true,
    ];
    for edit in edits {
        let mut one = store("one", 50, &["h1"]);
        edit(&mut one);
        let wish = Wish { segments: vec![segment("z1")], ..wish(10) };
        let decision = decide(&inventory(&[one], &hosts), &wish);
        let refusal = decision.refusal("pvc-1");
        assert_eq!(refusal.kind, Kind::Exhausted, "{refusal}");
    }
    let wish = Wish { segments: vec![segment("z2")], ..wish(10) };
    let nowhere = decide(&inventory(&[store("one", 50, &["h1"])], &hosts), &wish);
    assert_eq!(nowhere.refusal("pvc-1").kind, Kind::Exhausted);
    assert_eq!(nowhere.room().unwrap(), (0, 0), "that no node is there is known");
}

#[test]
fn a_volume_is_accessible_from_segments_all_of_whose_nodes_reach_it() {
    let host = |name: &str, zones: &[&str], is_serving| NodeHost {
        segments: zones.iter().map(|zone| segment(zone)).collect(),
        is_serving,
        ..host(name)
    };
    let hosts = [
        host("h1", &["z1"], true),
        host("h2", &["z1", "z2"], true),
        host("h3", &["z2"], false),
        host("h4", &["z3"], false),
        host("h5", &[], true),
    ];
    let stores = [
        store("all", 50, &["h1", "h2", "h3", "h4", "h5"]),
        store("one", 50, &["h1"]),
        store("two", 50, &["h2"]),
        store("away", 50, &["h1", "h2", "h4"]),
        store("none", 50, &["h5"]),
    ];
    let inventory = inventory(&stores, &hosts);
    let zones = |name: &str| {
        let segments = accessible(&inventory, &Ref::new(name));
        segments.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(zones("all"), "zone=z1 zone=z2 zone=z3");
    assert_eq!(zones("one"), "", "its other host does not reach it");
    assert_eq!(zones("two"), "zone=z2", "the host in maintenance is left out");
    assert_eq!(zones("away"), "zone=z1 zone=z2 zone=z3");
    assert_eq!(zones("none"), "");
    assert_eq!(zones("unknown"), "");
}
