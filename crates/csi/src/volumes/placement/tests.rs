//! Placement by tables and properties.

mod worlds;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use vsphere::reference::Ref;

use super::{NodeHost, NodePlaces, Reason, Selection, Size, Store, Wish, decide};
use crate::refusal::Kind;

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
        writers: hosts.iter().map(|host| Ref::new(host)).collect(),
    }
}

fn host(name: &str) -> NodeHost {
    let nodes = vec![format!("node-on-{name}")];
    NodeHost { host: Ref::new(name), name: format!("{name}.example"), nodes, is_serving: true }
}

fn wish(gib: u64) -> Wish {
    Wish { bytes: gib * GIB, ..Wish::default() }
}

/// The candidates, the best first.
fn candidates(stores: &[Store], hosts: &[NodeHost], wish: &Wish) -> Vec<String> {
    let decision = decide(stores, hosts, wish);
    decision.candidates().map(|one| one.datastore.value().to_owned()).collect()
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
            |one| one.writers.clear(),
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
        let decision = decide(&[one], &[host("h1")], &wish(10));
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
    let refusal = decide(&stores, &hosts, &at("ds:///vmfs/volumes/c/")).refusal("pvc-1");
    assert_eq!(refusal.kind, Kind::Invalid);
    assert!(
        refusal.to_string().contains("ds:///vmfs/volumes/a/, ds:///vmfs/volumes/b/"),
        "{refusal}"
    );
}

#[test]
fn what_a_policy_rejects_is_excluded_with_its_reason() {
    let stores = [store("a", 50, &["h1"]), store("b", 90, &["h1"])];
    let mut decision = decide(&stores, &[host("h1")], &wish(1));
    decision.exclude(&BTreeMap::from([(Ref::new("b"), "not flash".to_owned())]));
    let left: Vec<_> = decision.candidates().map(|one| one.datastore.value()).collect();
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
    let decision = decide(&stores, &[host("h1")], &wish(0));
    assert_eq!(decision.room(), (50 * GIB, 30 * GIB));
}

#[test]
fn sizes_are_written_as_people_read_them() {
    let texts = [1023, 1 << 20, 3 << 29, 62 << 40].map(|bytes| Size(bytes).to_string());
    assert_eq!(texts, ["1023 bytes", "1 MiB", "1.5 GiB", "62 TiB"]);
}

fn any_store() -> impl Strategy<Value = Store> {
    let hosts = proptest::collection::btree_set(0..4_u8, 0..4);
    (0..6_u8, 0..100_u64, any::<[bool; 4]>(), hosts).prop_map(|(name, free, flags, hosts)| {
        let hosts: Vec<String> = hosts.iter().map(|host| format!("h{host}")).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        Store {
            is_accessible: flags[0],
            maintenance: flags[1].then(|| "inMaintenance".to_owned()),
            is_suspended: flags[2],
            is_permitted: flags[3],
            ..store(&format!("s{name}"), free, &hosts)
        }
    })
}

proptest! {
    #[test]
    fn a_candidate_is_usable_large_enough_and_reached_by_every_serving_host(
        stores in proptest::collection::vec(any_store(), 0..8),
        serving in proptest::collection::vec(any::<bool>(), 1..4),
        gib in 0..100_u64,
    ) {
        let hosts: Vec<NodeHost> = serving.iter().enumerate().map(|(at, is_serving)| {
            NodeHost { is_serving: *is_serving, ..host(&format!("h{at}")) }
        }).collect();
        let decision = decide(&stores, &hosts, &wish(gib));
        for chosen in decision.candidates() {
            let same: Vec<&Store> = stores.iter().filter(|one| one.url == chosen.url).collect();
            let reached: BTreeSet<_> = same.iter().flat_map(|one| &one.writers).collect();
            prop_assert!(same.iter().any(|one| one.is_accessible && one.is_permitted && !one.is_suspended && one.free >= gib * GIB));
            prop_assert!(hosts.iter().filter(|host| host.is_serving).all(|host| reached.contains(&host.host)));
        }
        let free: Vec<u64> = decision.candidates().map(|one| one.free).collect();
        prop_assert!(free.is_sorted_by(|a, b| a >= b));
        prop_assert_eq!(&decision, &decide(&stores, &hosts, &wish(gib)), "deterministic");
        let excluded = decision.all.iter().filter(|one| one.against.is_some());
        prop_assert_eq!(excluded.count() + free.len(), stores.len());
        prop_assert!(decision.all.iter().all(|one| one.against != Some(Reason::NotSelected)));
    }
}

proptest! {
    #[test]
    fn without_one_datastore_the_others_are_judged_as_before(
        stores in proptest::collection::vec(any_store(), 1..8),
        removed in any::<prop::sample::Index>(),
        gib in 0..100_u64,
    ) {
        let hosts = [host("h0"), host("h1")];
        let before = candidates(&stores, &hosts, &wish(gib));
        let url = stores[removed.index(stores.len())].url.clone();
        // Together with the objects of the same storage, whose hosts count for each other.
        let left: Vec<Store> = stores.iter().filter(|one| one.url != url).cloned().collect();
        let gone: BTreeSet<&str> =
            stores.iter().filter(|one| one.url == url).map(|one| one.datastore.value()).collect();
        let expected: Vec<String> =
            before.into_iter().filter(|name| !gone.contains(name.as_str())).collect();
        prop_assert_eq!(candidates(&left, &hosts, &wish(gib)), expected);
    }
}

#[test]
fn of_five_hundred_datastores_the_emptiest_shared_one_is_found_for_ten_thousand_nodes() {
    let names: Vec<String> = (0..400).map(|number| format!("h{number}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let hosts: Vec<NodeHost> = all
        .iter()
        .map(|name| NodeHost {
            nodes: (0..25).map(|at| format!("{name}-{at}")).collect(),
            ..host(name)
        })
        .collect();
    let stores: Vec<Store> = (0..500_u64)
        .map(|number| {
            // Every tenth is shared by all hosts.
            let writers = if number % 10 == 0 { &all[..] } else { &all[..399] };
            store(&format!("s{number}"), number % 100, writers)
        })
        .collect();
    let decision = decide(&stores, &hosts, &wish(10));
    let best = decision.candidates().next().map(|one| one.datastore.value());
    assert_eq!((decision.candidates().count(), best), (45, Some("s190")));
}

#[test]
fn nothing_is_placed_for_nodes_that_are_nowhere_to_be_seen() {
    let away = |name| NodeHost { is_serving: false, ..host(name) };
    let judge = |hosts: &[NodeHost], missing: &[&str], incomplete| {
        let missing = missing.iter().map(|&node| node.to_owned()).collect();
        let judged = NodePlaces { hosts: hosts.to_vec(), missing }.judged("vc", incomplete);
        judged.map(|hosts| hosts.len()).map_err(|refusal| (refusal.kind, refusal.to_string()))
    };
    type Case<'a> = (&'a [NodeHost], &'a [&'a str], Option<&'a str>, &'a str);
    let incomplete = Some("dc-2 does not exist");
    let cases: [Case<'_>; 4] = [
        (&[], &[], None, "no node of this cluster was found in vCenter vc"),
        (&[], &["node-9"], None, "no node of this cluster was found in vCenter vc"),
        // No host is asked, so every datastore would count as reached by all of them.
        (&[away("h1"), away("h2")], &[], None, "out of maintenance (h1.example, h2.example)"),
        // It may be in the datacenter that is not seen.
        (&[host("h1")], &["node-9"], incomplete, "where node-9 runs (dc-2 does not exist)"),
    ];
    for (hosts, missing, incomplete, text) in cases {
        let (kind, refused) = judge(hosts, missing, incomplete).unwrap_err();
        assert_eq!(kind, Kind::Unavailable, "{refused}");
        assert!(refused.contains(text), "{refused}");
    }
    assert_eq!(judge(&[host("h1"), away("h2")], &[], None), Ok(2));
    // It is gone, and Kubernetes does not know that yet.
    assert_eq!(judge(&[host("h1")], &["node-9"], None), Ok(1));
    assert_eq!(judge(&[host("h1")], &[], incomplete), Ok(1), "all nodes are seen");
}
