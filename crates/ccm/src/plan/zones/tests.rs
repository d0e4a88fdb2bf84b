//! Zones and regions from tags, nearest first.

use crate::plan::zones::{Categories, Zones, find};
use vcenter::Ancestors;
use vsphere::{reference::Ref, types::ManagedEntity};

/// Finds zones on ways like `dc[region=eu] > cluster > host[zone=a]`, farthest first, as people think; the
/// ways of the host, the pool and the folder have ` | ` between them, and `vm` is the VM.
fn zones(ways: &str) -> Zones {
    zones_in_order(ways, false)
}

fn zones_in_order(ways: &str, nearest: bool) -> Zones {
    let mut tags: Vec<(String, String, Vec<String>)> = Vec::new();
    let mut chains: Vec<Vec<Ref<ManagedEntity>>> = Vec::new();
    let vm = Ref::new("vm");
    for way in ways.split(" | ") {
        let mut chain = Vec::new();
        for object in way.split(" > ").filter(|object| !object.is_empty()) {
            let (name, rest) = object.split_once('[').unwrap_or((object, ""));
            for tag in rest.trim_end_matches(']').split(' ').filter(|tag| !tag.is_empty()) {
                let (category, values) = tag.split_once('=').unwrap();
                let values = values.split(',').map(|value| value.replace('_', " ")).collect();
                tags.push((name.to_owned(), category.to_owned(), values));
            }
            if name != "vm" {
                chain.push(Ref::new(name));
            }
        }
        chain.reverse();
        chains.push(chain);
    }
    chains.resize(3, Vec::new());
    let [host, pool, folder] = chains.try_into().unwrap();
    let ancestors = Ancestors { host, pool, folder };
    let categories =
        Categories { zone: Some("zone".to_owned()), region: Some("region".to_owned()), nearest };
    find(vm, &ancestors, &categories, |object, category| {
        let on = tags.iter().find(|(name, of, _)| name == object.value() && of == category);
        on.map_or(&[], |(_, _, values)| values.as_slice())
    })
}

fn check(ways: &str, expected: &str) {
    let found = zones(ways);
    let shown = |name: &str, value: &Option<String>| {
        value.as_ref().map(|value| format!("{name}={value}")).unwrap_or_default()
    };
    let text = format!("{} {}", shown("region", &found.region), shown("zone", &found.zone));
    assert_eq!(text.trim(), expected, "{ways}");
}

#[test]
fn d8_the_nearest_tag_wins_for_each_category_by_itself() {
    check("dc[region=eu] > cluster > host[zone=a] > vm", "region=eu zone=a");
    check("dc[region=eu] > cluster[zone=b] > host[zone=a] > vm", "region=eu zone=a");
    check("dc[region=eu zone=x] > cluster[region=us] > host[zone=a]", "region=us zone=a");
    check("dc[region=eu zone=x] > host[region=us zone=y]", "region=us zone=y");
    check("dc[region=eu] > cluster[zone=b] > host[rack=7]", "region=eu zone=b");
}

#[test]
fn pools_and_folders_count_where_hosts_say_nothing() {
    check("dc[region=eu] > host | pool[zone=p] | folder[zone=f]", "region=eu zone=p");
    check("dc > host | pool | folder[zone=f region=r]", "region=r zone=f");
    check("dc[zone=d] > host | pool[zone=p]", "zone=d");
}

#[test]
fn where_a_vm_runs_beats_its_pool_and_that_its_own_tags_as_in_the_go_manager() {
    check("dc[region=eu] > host[zone=h] | | folder > vm[zone=v]", "region=eu zone=h");
    check("dc[region=eu zone=x] > host | | vm[region=us zone=v]", "region=eu zone=x");
    check("dc > host | pool[region=eu zone=p] | vm[region=us zone=v]", "region=eu zone=p");
    check("dc > host | | folder[zone=f] > vm[region=us zone=v]", "region=us zone=v");
    check("dc > host | | folder[zone=f region=eu] > vm", "region=eu zone=f");
    // A way that has both beats one that has only one of them.
    check("dc > host[zone=h] | | vm[region=us zone=v]", "region=us zone=v");
    check("dc > host[zone=h] | pool[region=eu zone=p] | vm[region=us]", "region=eu zone=p");
    // Where none has both, each is taken from where it is.
    check("dc > host[zone=h] | pool | vm[region=us]", "region=us zone=h");
    // A way that ends in the same datacenter has both.
    check("dc[region=eu] > host | | dc[region=eu] > folder > vm[zone=v]", "region=eu zone=v");
}

#[test]
fn with_the_nearest_tag_a_path_that_has_both_does_not_beat_one_that_has_only_one_of_them() {
    let found = zones_in_order("dc > host[zone=h] | | vm[region=us zone=v]", true);
    assert_eq!((found.zone.as_deref(), found.region.as_deref()), (Some("h"), Some("us")));
}

#[test]
fn missing_tags_degrade_and_say_what_to_do() {
    check("dc > cluster > host > vm", "");
    check("dc[region=eu] > host", "region=eu");
    let found = zones("dc[region=eu] > host");
    assert_eq!(found.problems.len(), 1);
    assert!(found.problems[0].contains("gets no zone; attach one to its host"));
}

#[test]
fn a_tag_that_cannot_be_a_label_is_left_out_and_told() {
    let found = zones("dc[region=Data_Center] > host[zone=a]");
    assert_eq!((found.region, found.zone.as_deref()), (None, Some("a")));
    assert!(found.problems[0].contains("\"Data Center\" cannot be a label"));
}

#[test]
fn of_several_tags_on_one_object_the_first_counts_and_it_is_told() {
    let found = zones("dc[region=eu] > host[zone=a,b]");
    assert_eq!(found.zone.as_deref(), Some("a"));
    assert!(found.problems[0].contains("several tags of the category \"zone\" (a, b)"));
}

#[test]
fn categories_that_are_not_configured_are_not_asked_for() {
    let host = [Ref::new("host")];
    let ancestors = Ancestors { host: host.to_vec(), ..Ancestors::default() };
    let found = find(Ref::new("vm"), &ancestors, &Categories::default(), |_, _| {
        panic!("nobody wants tags")
    });
    assert_eq!(found, Zones::default());
}
