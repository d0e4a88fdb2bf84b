//! Small worlds, each with the decision about it.
//!
//! ```text
//!   stores   NAME FREE HOSTS [flag…]   in GiB; away, maintenance, suspended, forbidden, capacity=GIB, dc=NAME,
//!                                      pod=NAME, url=NAME, tag=VALUE (preferred there)
//!   hosts    h1 h2! h3@r1/z1+z2        ! does not serve; @ are the segments of its nodes, of a zone or of region/zone
//!   wish     GIB [over] [url=… | ds=A,B | pod=…] [in=z1,r1/z2,r1/]   segments in order; r1/ is a whole region
//!   outcome  the candidates, the best first; or ! and a part of the refusal
//! ```

use vsphere::reference::Ref;

use super::{GIB, Selection, Store, Wish, decide, host, inventory, segment, store, wish};
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
            ("tag", value) => parsed.preferred_in.push(value.to_owned()),
            ("url", name) => parsed.url = format!("ds:///vmfs/volumes/{name}/"),
            other => panic!("{other:?}"),
        }
    }
    if dc != "dc-1" {
        parsed.datastore = Ref::new(&format!("{dc}-{name}"));
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
    let parse = |word: &str| {
        let (name, segments) = word.split_once('@').unwrap_or((word, ""));
        let segments = segments.split('+').filter(|text| !text.is_empty());
        NodeHost {
            is_serving: !name.ends_with('!'),
            segments: segments.map(segment).collect(),
            ..host(name.trim_end_matches('!'))
        }
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
            ("in", list) => parsed.segments = list.split(',').map(segment).collect(),
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
    // Segments.
    (&["a 50 h1", "b 90 h2"], "h1@z1 h2@z2", "10 in=z1", "a"),
    (&["a 50 h1", "b 90 h2"], "h1@z1 h2@z2", "10 in=z2", "b"),
    (&["a 50 h1", "b 90 h2"], "h1@z1 h2@z2", "10 in=z1,z2", "a b"),
    (&["a 50 h1", "b 90 h2"], "h1@z1 h2@z2", "10 in=z2,z1", "b a"),
    (&["a 50 h1", "b 90 h2"], "h1@z1 h2@z2", "10", "! mount one of them on every host that runs nodes"),
    (&["a 5 h1", "b 90 h2"], "h1@z1 h2@z2", "10 in=z1,z2", "b"),
    (&["a 50 h1", "c 40 h1,h2", "b 90 h2"], "h1@z1 h2@z2", "10 in=z1,z2", "a c b"),
    (&["a 50 h1"], "h1@z1 h2@z1", "10 in=z1", "! no datastore can take 10 GiB in zone=z1 (/dc-1/datastore/a: not writable from h2.example, which runs nodes); mount"),
    (&["a 50 h1"], "h1@z1 h2!@z1", "10 in=z1", "a"),
    (&["a 50 h1"], "h1@z1+z2 h2@z2", "10 in=z1", "a"),
    (&["a 50 h1"], "h1@z1+z2 h2@z2", "10 in=z2", "! not writable from h2.example"),
    (&["a 50 h1"], "h1", "10 in=z1", "! no datastore can take 10 GiB in zone=z1 (no node of it was found in vCenter vc); the driver's node pods must run"),
    (&["a 50 h1"], "h1@z1", "10 in=z2,z1", "a"),
    (&["a 50 h1"], "h1!@z1 h2@z2", "10 in=z1", "! no host that runs nodes is connected and out of maintenance (h1.example)"),
    (&["a 5 h1", "b 50 h1 maintenance", "c 3 h2"], "h1@z1 h2@z2", "10 in=z1,z2,z3",
     "! volume pvc-1: no datastore can take 10 GiB in zone=z1 (/dc-1/datastore/b: it is in maintenance (inMaintenance); /dc-1/datastore/a: it has 5 GiB free; /dc-1/datastore/c: not writable from h1.example, which runs nodes), nor in zone=z2 (/dc-1/datastore/c: it has 3 GiB free; /dc-1/datastore/b: it is in maintenance (inMaintenance); /dc-1/datastore/a: not writable from h2.example, which runs nodes), nor in zone=z3 (no node of it was found in vCenter vc); free space on one of them, or request less"),
    (&["a 50 h1 url=x", "b 40 h2 url=x dc=dc-2"], "h1@z1 h2@z1", "10 in=z1", "a b"),
    // A part of the labels means any segment that has them, one that all reach first.
    (&["a 90 h1", "b 50 h1,h2", "c 80 h2"], "h1@r1/z1 h2@r1/z2", "10 in=r1/", "b a c"),
    (&["a 90 h1", "c 80 h2"], "h1@r1/z1 h2@r1/z2", "10 in=r1/z2", "c"),
    (&["a 90 h1", "c 80 h3"], "h1@r1/z1 h2@r1/z2 h3@r2/z3", "10 in=r1/", "a"),
    (&["a 90 h1,h2"], "h1@r1/z1 h2@r1/z1 h3@r1/z2", "10 in=z1", "a"),
    (&["c 80 h3"], "h1@r1/z1 h2@r1/z2 h3@r2/z3", "10 in=r1/", "! not writable from h1.example and h2.example"),
    // Preferred datastores.
    (&["a 50 h1 tag=z1", "b 90 h1"], "h1@z1", "10 in=z1", "a b"),
    (&["a 50 h1 tag=z2", "b 90 h1"], "h1@z1", "10 in=z1", "b a"),
    (&["a 50 h1 tag=r1", "b 90 h1"], "h1@r1/z1", "10 in=r1/z1", "a b"),
    (&["a 5 h1 tag=z1", "b 90 h1"], "h1@z1", "10 in=z1", "b"),
    (&["a 50 h1 tag=z1", "b 90 h1"], "h1@z1", "10", "b a"),
    // Names that zones share.
    (&["a 50 h1", "a 90 h2 dc=dc-2"], "h1@z1 h2@z2", "10 ds=a in=z2", "a"),
    (&["a 50 h1", "a 90 h2 dc=dc-2"], "h1@z1 h2@z2", "10 ds=a in=z1,z2", "a a"),
    (&["a 50 h1", "a 90 h2 dc=dc-2"], "h1@r1/z1 h2@r1/z2", "10 ds=a in=r1/", "a a"),
    (&["a 50 h1", "a 90 h1 dc=dc-2"], "h1@z1 h2@z2", "10 ds=a in=z1", "! several datastores are called \"a\"; write the path of one of them into the StorageClass: /dc-1/datastore/a, /dc-2/datastore/a"),
    (&["b 50 h1", "a 40 h2", "a 90 h2 dc=dc-2"], "h1@z1 h2@z2", "10 ds=a,b in=z1,z2", "b"),
    (&["a 50 h1 pod=fast", "b 90 h2 pod=fast dc=dc-2"], "h1@z1 h2@z2", "10 pod=fast in=z2,z1", "b a"),
    (&["a 50 h1", "b 90 h2"], "h1@z1 h2@z2", "10 ds=missing in=z1", "! shows no datastore of the parameter datastores (missing)"),
];

#[test]
fn every_world_has_the_decision_of_the_table() {
    assert!(WORLDS.len() >= 40);
    for (stores, hosts, wish, expected) in WORLDS {
        let parsed: Vec<Store> = stores.iter().map(|text| parse_store(text)).collect();
        let hosts_parsed = parse_hosts(hosts);
        let mut decision = decide(&inventory(&parsed, &hosts_parsed), &parse_wish(wish));
        let resolved = decision.resolve_names("pvc-1");
        let names: Vec<&str> = decision.candidates().map(|one| &*one.store.name).collect();
        let outcome = match resolved {
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
        let is_judged = hosts_parsed.iter().any(|one| one.is_serving) && !table.contains("no ");
        assert!(!is_judged || parsed.iter().all(|one| table.contains(&one.path)), "{table}");
    }
}
