//! What holds of every decision.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use vsphere::reference::Ref;

use super::{
    Inventory, NodeHost, Store, Wish, accessible, decide, host, inventory, segment, store, wish,
};
use crate::volumes::placement::Decision;

fn any_store() -> impl Strategy<Value = Store> {
    let hosts = proptest::collection::btree_set(0..4_u8, 0..4);
    let tag = proptest::option::of(0..3_u8);
    let shape = (0..6_u8, 0..100_u64, any::<[bool; 4]>(), hosts, tag);
    shape.prop_map(|(name, free, flags, hosts, tag)| {
        let hosts: Vec<String> = hosts.iter().map(|host| format!("h{host}")).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        Store {
            is_accessible: flags[0],
            maintenance: flags[1].then(|| "inMaintenance".to_owned()),
            is_suspended: flags[2],
            is_permitted: flags[3],
            preferred_in: tag.iter().map(|zone| format!("z{zone}")).collect(),
            ..store(&format!("s{name}"), free, &hosts)
        }
    })
}

/// Datastores of which some can be used: most of those of `any_store` cannot.
fn stores() -> impl Strategy<Value = Vec<Store>> {
    let usable = any_store().prop_map(|one| Store {
        is_accessible: true,
        maintenance: None,
        is_suspended: false,
        is_permitted: true,
        ..one
    });
    let stores = proptest::collection::vec(prop_oneof![any_store(), usable], 0..8);
    // Those of one name have one URL, and are different objects.
    stores.prop_map(|stores| {
        let object = |(at, one): (usize, Store)| Store {
            datastore: Ref::new(&format!("{}-{at}", one.name)),
            path: format!("/dc-{at}/datastore/{}", one.name),
            ..one
        };
        stores.into_iter().enumerate().map(object).collect()
    })
}

/// Up to four hosts, each with nodes of up to two zones of two regions.
fn hosts() -> impl Strategy<Value = Vec<NodeHost>> {
    let zones = proptest::collection::btree_set(0..3_u8, 0..3);
    let hosts = proptest::collection::vec((any::<bool>(), zones), 1..5);
    hosts.prop_map(|hosts| {
        let place = |(at, (is_serving, zones)): (usize, &(bool, _))| {
            let zones: &BTreeSet<u8> = zones;
            let segments = zones.iter().map(|zone| segment(&format!("r{}/z{zone}", zone / 2)));
            NodeHost {
                is_serving: *is_serving,
                segments: segments.collect(),
                ..host(&format!("h{at}"))
            }
        };
        hosts.iter().enumerate().map(place).collect()
    })
}

/// A request: a size, and any number of zones and regions in any order.
fn wishes() -> impl Strategy<Value = Wish> {
    let terms = ["r0/z0", "r0/z1", "r1/z2", "z0", "z1", "r0/", "r1/", "z9"];
    let terms = proptest::sample::subsequence(terms.to_vec(), 0..5).prop_shuffle();
    (0..100_u64, terms).prop_map(|(gib, terms)| Wish {
        segments: terms.into_iter().map(segment).collect(),
        ..wish(gib)
    })
}

fn names(decision: &Decision) -> Vec<&str> {
    decision.candidates().map(|one| one.store.datastore.value()).collect()
}

/// Whether every serving host of the nodes of some segment within a term reaches the storage of a datastore.
fn is_reached(inventory: &Inventory, url: &str, wish: &Wish) -> bool {
    let same = inventory.stores.iter().filter(|one| one.url == url);
    let writers: Vec<_> = same.flat_map(|one| one.seen.writers()).collect();
    let reach = |is_meant: &dyn Fn(&NodeHost) -> bool| {
        let mut meant =
            inventory.hosts.iter().filter(|one| one.is_serving && is_meant(one)).peekable();
        meant.peek().is_some() && meant.all(|one| writers.contains(&&one.host))
    };
    if wish.segments.is_empty() {
        return reach(&|_| true);
    }
    let known = inventory.hosts.iter().flat_map(|one| &one.segments);
    let meant = known.filter(|one| wish.segments.iter().any(|term| one.is_within(term)));
    meant.into_iter().any(|one| reach(&|host: &NodeHost| host.segments.contains(one)))
}

proptest! {
    #[test]
    fn a_candidate_is_usable_large_enough_and_reached_by_all_nodes_of_a_segment(
        stores in stores(), hosts in hosts(), wish in wishes(),
    ) {
        let inventory = inventory(&stores, &hosts);
        let decision = decide(&inventory, &wish);
        for candidate in decision.candidates() {
            let store = &candidate.store;
            prop_assert!(store.is_accessible && store.is_permitted && !store.is_suspended);
            prop_assert!(store.maintenance.is_none() && store.free >= wish.bytes);
            prop_assert!(is_reached(&inventory, &store.url, &wish), "{decision}");
        }
        // And nothing else is left out.
        for store in &inventory.stores {
            let is_usable = store.is_accessible && store.is_permitted && !store.is_suspended
                && store.maintenance.is_none() && store.free >= wish.bytes;
            let is_expected = is_usable && is_reached(&inventory, &store.url, &wish);
            let is_there = names(&decision).contains(&store.datastore.value());
            prop_assert!(is_there || !is_expected, "{}: {decision}", store.path);
        }
    }

    #[test]
    fn the_order_of_what_vcenter_shows_changes_nothing(
        (stores, shuffled) in stores().prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
        hosts in hosts(), wish in wishes(),
    ) {
        let decision = decide(&inventory(&stores, &hosts), &wish);
        prop_assert_eq!(&decision, &decide(&inventory(&stores, &hosts), &wish));
        prop_assert_eq!(&decision, &decide(&inventory(&shuffled, &hosts), &wish));
    }

    #[test]
    fn candidates_of_a_segment_come_before_those_of_the_next_one_and_the_emptiest_first(
        stores in stores(), hosts in hosts(), wish in wishes(),
    ) {
        let inventory = inventory(&stores, &hosts);
        let all = decide(&inventory, &wish);
        let mut expected: Vec<String> = Vec::new();
        for term in &wish.segments {
            let one = Wish { segments: vec![term.clone()], ..wish.clone() };
            for name in names(&decide(&inventory, &one)) {
                if !expected.contains(&name.to_owned()) {
                    expected.push(name.to_owned());
                }
            }
        }
        if wish.segments.is_empty() {
            let free: Vec<u64> = all.candidates().map(|one| one.store.free).collect();
            prop_assert!(free.is_sorted_by(|a, b| a >= b));
        } else {
            prop_assert_eq!(names(&all), expected);
        }
    }

    #[test]
    fn without_one_datastore_the_others_are_judged_as_before(
        stores in stores().prop_filter("one at least", |all| !all.is_empty()),
        removed in any::<prop::sample::Index>(),
        hosts in hosts(), wish in wishes(),
    ) {
        let before = decide(&inventory(&stores, &hosts), &wish);
        let url = stores[removed.index(stores.len())].url.clone();
        // Together with the objects of the same storage, whose hosts count for each other.
        let left: Vec<Store> = stores.iter().filter(|one| one.url != url).cloned().collect();
        let expected: Vec<&str> = before
            .candidates()
            .filter(|one| one.store.url != url)
            .map(|one| one.store.datastore.value())
            .collect();
        let after = decide(&inventory(&left, &hosts), &wish);
        prop_assert_eq!(names(&after), expected);
    }

    #[test]
    fn what_a_policy_rejects_is_never_a_candidate_and_the_others_stay(
        stores in stores(), hosts in hosts(), wish in wishes(), rejected in any::<prop::sample::Index>(),
    ) {
        let mut decision = decide(&inventory(&stores, &hosts), &wish);
        let Some(rejected) = stores.get(rejected.index(stores.len().max(1))) else { return Ok(()) };
        let all = names(&decision).into_iter().filter(|name| *name != rejected.datastore.value());
        let expected: Vec<String> = all.map(str::to_owned).collect();
        decision.exclude(&BTreeMap::from([(rejected.datastore.clone(), "not flash".to_owned())]));
        prop_assert_eq!(names(&decision), expected);
    }

    #[test]
    fn whoever_is_placed_in_a_segment_can_be_used_there(
        stores in stores(), hosts in hosts(), wish in wishes(),
    ) {
        let inventory = inventory(&stores, &hosts);
        for candidate in decide(&inventory, &wish).candidates() {
            let segments = accessible(&inventory, &candidate.store.datastore);
            let is_within = |term| segments.iter().any(|one| one.is_within(term));
            prop_assert!(wish.segments.is_empty() || wish.segments.iter().any(is_within));
        }
    }

    #[test]
    fn a_refusal_names_every_segment_and_every_datastore(
        stores in stores(), hosts in hosts(), wish in wishes(),
    ) {
        let decision = decide(&inventory(&stores, &hosts), &wish);
        if decision.candidates().next().is_some() {
            return Ok(());
        }
        let text = decision.refusal("pvc-1").to_string();
        for term in &wish.segments {
            prop_assert!(text.contains(&format!("in {term} (")), "{text}");
        }
        let is_judged = text.contains("/datastore/");
        prop_assert!(!is_judged || stores.iter().all(|one| text.contains(&one.path)), "{text}");
    }
}
