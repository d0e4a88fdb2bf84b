//! Small worlds, each with the decision about it.
//!
//! ```text
//!   stores   NAME FREE HOSTS [flag…]   in GiB; away, maintenance, suspended, forbidden, capacity=GIB, dc=NAME,
//!                                      pod=NAME, url=NAME
//!   hosts    h1 h2!                    ! does not serve
//!   wish     GIB [over] [url=… | ds=A,B | pod=…]
//!   outcome  the candidates, the best first; or ! and a part of the refusal
//! ```

use super::{GIB, Selection, Store, Wish, decide, host, store, wish};
use crate::volumes::placement::NodeHost;

fn parse_store(text: &str) -> Store {
    let mut words = text.split_whitespace();
    let mut next = || words.next().unwrap();
    let (name, free, hosts) = (next(), next().parse().unwrap(), next());
    let hosts: Vec<&str> = hosts.split(',').filter(|host| *host != "-").collect();
    let mut parsed = store(name, free, &hosts);
    let (mut dc, mut pod) = ("dc-1", None);
    for flag in words {
        match flag.split_once('=').unwrap_or((flag, "")) {
            ("away", _) => parsed.is_accessible = false,
            ("maintenance", _) => parsed.maintenance = Some("inMaintenance".to_owned()),
            ("suspended", _) => parsed.is_suspended = true,
            ("forbidden", _) => parsed.is_permitted = false,
            ("capacity", gib) => parsed.capacity = gib.parse::<u64>().unwrap() * GIB,
            ("dc", name) => dc = name,
            ("pod", name) => pod = Some(name),
            ("url", name) => parsed.url = format!("ds:///vmfs/volumes/{name}/"),
            other => panic!("{other:?}"),
        }
    }
    if dc != "dc-1" && !text.contains("url=") {
        parsed.url = format!("ds:///vmfs/volumes/{dc}-{name}/");
    }
    let folder = pod.map_or_else(String::new, |pod| format!("/{pod}"));
    parsed.path = format!("/{dc}/datastore{folder}/{name}");
    parsed.cluster = pod.map(str::to_owned);
    parsed
}

fn parse_hosts(text: &str) -> Vec<NodeHost> {
    let parse = |word: &str| NodeHost {
        is_serving: !word.ends_with('!'),
        ..host(word.trim_end_matches('!'))
    };
    text.split_whitespace().map(parse).collect()
}

fn parse_wish(text: &str) -> Wish {
    let mut words = text.split_whitespace();
    let mut parsed = wish(words.next().unwrap().parse().unwrap());
    for word in words {
        let Selection { url, datastores, cluster } = &mut parsed.selection;
        match word.split_once('=').unwrap_or((word, "")) {
            ("over", _) => parsed.overcommit = true,
            ("url", text) => *url = Some(text.to_owned()),
            ("ds", list) => *datastores = list.split(',').map(str::to_owned).collect(),
            ("pod", name) => *cluster = Some(name.to_owned()),
            other => panic!("{other:?}"),
        }
    }
    parsed
}

/// Stores, hosts, wish and outcome.
type World = (&'static [&'static str], &'static str, &'static str, &'static str);

#[rustfmt::skip]
const WORLDS: &[World] = &[
    // Reach.
    (&["a 50 h1,h2"], "h1 h2", "10", "a"),
    (&["a 50 h1"], "h1 h2", "10", "! /dc-1/datastore/a: not writable from h2.example, which runs nodes"),
    (&["a 50 h1"], "h1 h2 h3", "10", "! not writable from h2.example and h3.example, which run nodes"),
    (&["a 50 h1"], "h1 h2!", "10", "a"),
    (&["a 50 h1", "b 90 h2"], "h1 h2", "10", "! mount one of them on every host that runs nodes"),
    (&["a 50 h1", "b 90 h1,h2"], "h1 h2", "10", "b"),
    (&["a 50 -"], "h1", "10", "! not writable from h1.example"),
    (&["a 50 h1 url=x", "b 40 h2 url=x dc=dc-2"], "h1 h2", "10", "a b"),
    (&[], "h1", "10", "! no datastore can take 10 GiB (vCenter shows none)"),
    // Order.
    (&["a 50 h1", "b 90 h1"], "h1", "10", "b a"),
    (&["b 50 h1", "a 50 h1"], "h1", "10", "a b"),
    (&["a 10 h1", "b 9 h1"], "h1", "10", "a"),
    (&["a 30 h1", "b 20 h1", "c 25 h1"], "h1", "0", "a c b"),
    // Room.
    (&["a 9 h1"], "h1", "10", "! /dc-1/datastore/a: it has 9 GiB free); free space on one of them"),
    (&["a 9 h1 capacity=9"], "h1", "10", "! it has 9 GiB in all); request less than the largest"),
    (&["a 9 h1"], "h1", "10 over", "a"),
    (&["a 9 h1 capacity=9"], "h1", "10 over", "a"),
    (&["a 9 h1 capacity=9", "b 5 h1"], "h1", "10", "! /dc-1/datastore/b: it has 5 GiB free"),
    (&["a 0 h1"], "h1", "0", "a"),
    // State.
    (&["a 50 h1 away"], "h1", "10", "! /dc-1/datastore/a: no host reaches it"),
    (&["a 50 h1 maintenance"], "h1", "10", "! it is in maintenance (inMaintenance)"),
    (&["a 50 h1 suspended"], "h1", "10", "! it is suspended for new volumes"),
    (&["a 50 h1 forbidden"], "h1", "10", "! grant the user a role with Datastore.FileManagement"),
    (&["a 50 h1 maintenance", "b 20 h1"], "h1", "10", "b"),
    (&["a 50 h1 suspended", "b 20 h1"], "h1", "10", "b"),
    // URLs.
    (&["a 50 h1", "b 90 h1"], "h1", "10 url=ds:///vmfs/volumes/a/", "a"),
    (&["a 50 h1", "b 90 h1"], "h1", "10 url=ds:///vmfs/volumes/a", "a"),
    (&["a 50 h1", "b 90 h1"], "h1", "10 url=ds:///c/", "! shows no datastore with the URL \"ds:///c/\" of the parameter datastoreurl; correct the StorageClass; the URLs are ds:///vmfs/volumes/a/, ds:///vmfs/volumes/b/"),
    (&["a 5 h1", "b 90 h1"], "h1", "10 url=ds:///vmfs/volumes/a/", "! (/dc-1/datastore/a: it has 5 GiB free)"),
    (&["a 50 h1 url=x", "b 40 h1 url=x dc=dc-2"], "h1", "10 url=ds:///vmfs/volumes/x", "a b"),
    // Lists.
    (&["a 50 h1", "b 90 h1", "c 99 h1"], "h1", "10 ds=a,b", "b a"),
    (&["a 50 h1", "b 90 h1"], "h1", "10 ds=ds:///vmfs/volumes/a/", "a"),
    (&["a 50 h1", "b 90 h1"], "h1", "10 ds=/dc-1/datastore/a,b", "b a"),
    (&["a 50 h1", "b 90 h1"], "h1", "10 ds=a,missing", "a"),
    (&["a 50 h1", "b 90 h1"], "h1", "10 ds=missing", "! shows no datastore of the parameter datastores (missing); correct the StorageClass; the datastores are /dc-1/datastore/a, /dc-1/datastore/b"),
    (&["a 50 h1", "a 90 h2 dc=dc-2"], "h1", "10 ds=a", "a"),
    (&["a 50 h1", "a 90 h1 dc=dc-2"], "h1", "10 ds=a", "! several datastores are called \"a\"; write the path of one of them into the StorageClass: /dc-1/datastore/a, /dc-2/datastore/a"),
    (&["a 50 h1", "a 90 h1 dc=dc-2"], "h1", "10 ds=/dc-2/datastore/a", "a"),
    (&["a 50 h1", "a 5 h1 dc=dc-2"], "h1", "10 ds=a", "a"),
    (&["a 50 h1 url=x", "a 90 h1 dc=dc-2 url=x"], "h1", "10 ds=a", "a a"),
    (&["a 5 h1", "b 90 h1"], "h1", "10 ds=a", "! (/dc-1/datastore/a: it has 5 GiB free)"),
    // Datastore clusters.
    (&["a 50 h1 pod=fast", "b 90 h1 pod=fast", "c 99 h1"], "h1", "10 pod=fast", "b a"),
    (&["a 50 h1 pod=fast", "b 90 h1 pod=slow"], "h1", "10 pod=/dc-1/datastore/fast", "a"),
    (&["a 50 h1 pod=fast", "b 90 h1 pod=fast maintenance"], "h1", "10 pod=fast", "a"),
    (&["a 50 h1 pod=fast", "c 99 h1"], "h1", "10 pod=missing", "! shows no datastore in the datastore cluster \"missing\" of the parameter datastorecluster; correct the StorageClass; the datastore clusters are /dc-1/datastore/fast"),
    (&["a 50 h1 pod=fast", "b 90 h1 pod=fast dc=dc-2"], "h1", "10 pod=fast", "! several datastore clusters are called \"fast\"; write the path of one of them into the StorageClass: /dc-1/datastore/fast, /dc-2/datastore/fast"),
    (&["a 50 h1 pod=fast", "b 90 h2 pod=fast dc=dc-2"], "h1", "10 pod=fast", "a"),
    (&["a 50 h1 pod=fast", "b 90 h1 pod=fast"], "h1", "10 ds=/dc-1/datastore/fast/a", "a"),
    (&["a 5 h1 pod=fast", "b 6 h1 pod=fast"], "h1", "10 pod=fast", "! /dc-1/datastore/fast/b: it has 6 GiB free; /dc-1/datastore/fast/a: it has 5 GiB free"),
    (&["c 99 h1"], "h1", "10 pod=fast", "! the datastore clusters are none"),
];

#[test]
fn every_world_has_the_decision_of_the_table() {
    assert!(WORLDS.len() >= 40);
    for (stores, hosts, wish, expected) in WORLDS {
        let parsed: Vec<Store> = stores.iter().map(|text| parse_store(text)).collect();
        let decision = decide(&parsed, &parse_hosts(hosts), &parse_wish(wish));
        let names: Vec<&str> = decision.candidates().map(|one| &*one.name).collect();
        let outcome = match decision.check_unambiguous("pvc-1") {
            Err(refusal) => format!("! {refusal}"),
            Ok(()) if names.is_empty() => format!("! {}", decision.refusal("pvc-1")),
            Ok(()) => names.join(" "),
        };
        let is_expected = match expected.strip_prefix("! ") {
            Some(text) => outcome.starts_with('!') && outcome.contains(text),
            None => outcome == *expected,
        };
        assert!(is_expected, "{stores:?}, {hosts}, {wish}: {outcome}, not {expected}");
        let table = decision.to_string();
        assert!(parsed.iter().all(|one| table.contains(&one.path)), "{table}");
    }
}
