//! What the command line takes, and what it says about the rest.

use std::ffi::OsString;

use clap::CommandFactory;
use daemon::args::{Line, read};

use super::*;

fn line(words: &str) -> Result<Line<Flags>, String> {
    let words = [PROGRAM, "--cloud-config=/etc/cloud/vsphere.conf"]
        .into_iter()
        .chain(words.split_whitespace());
    read(words.map(OsString::from), REMOVED, IGNORED).map_err(|answer| answer.text)
}

fn flags(words: &str) -> Flags {
    line(words).unwrap().flags
}

#[test]
fn the_definition_is_consistent() {
    Flags::command().debug_assert();
}

#[test]
fn every_flag_of_upstream_is_taken() {
    let all = include_str!("../../tests/data/upstream-flags.txt");
    for flag in all.lines().filter(|line| !line.starts_with('#')) {
        if let Err(text) = line(flag) {
            panic!("{flag}: {text}");
        }
    }
}

#[test]
fn controllers_are_chosen_as_in_kubernetes_own_components() {
    let table = [
        ("*", true, true),
        ("*,-service,-route", true, true),
        ("-service,-route", false, false),
        ("cloud-node", true, false),
        ("cloud-node-lifecycle-controller", false, true),
        ("*,-cloud-node-lifecycle", true, false),
        ("-cloud-node,*", false, true),
        ("cloud-node,-cloud-node-controller", true, false),
        ("*, cloud-node", true, true),
        ("", false, false),
    ];
    for (text, nodes, lifecycle) in table {
        let chosen = text.parse::<Controllers>().unwrap();
        assert_eq!((chosen.nodes, chosen.lifecycle), (nodes, lifecycle), "{text:?}");
    }
}

#[test]
fn a_list_of_controllers_may_begin_with_a_dash() {
    let chosen = flags("--controllers=-cloud-node-lifecycle,*").cloud.controllers;
    assert_eq!(chosen.names(), ["cloud-node-controller"]);
}

#[test]
fn a_controller_that_nobody_knows_is_named_beside_those_that_exist() {
    let text = line("--controllers=*,-nodeipam").unwrap_err();
    assert!(text.contains("\"nodeipam\" is not a known controller"), "{text}");
    assert!(text.contains("cloud-node-lifecycle-controller (cloud-node-lifecycle)"), "{text}");
}

#[test]
fn labels_are_refused_at_the_start_and_not_by_the_api_later() {
    let labels = flags("--node-labels=team=storage,example.com/rack=r-1,empty=").nodes.node_labels;
    let labels: Vec<_> = labels.0.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(labels, ["empty=", "example.com/rack=r-1", "team=storage"]);
    for (given, part) in [
        ("rack", "write key=value"),
        ("=a", "is not a valid label key"),
        ("Example.com/rack=a", "is not a valid label key"),
        ("a/b/c=d", "is not a valid label key"),
        ("rack=two words", "unexpected argument"),
        ("rack=-a", "is not a valid value of the label rack"),
    ] {
        let text = line(&format!("--node-labels={given}")).unwrap_err();
        assert!(text.contains(part), "{given}: {text}");
    }
}

#[test]
fn another_cloud_is_refused_with_what_to_do() {
    assert_eq!(flags("--cloud-provider=").cloud.cloud_provider, "vsphere");
    let text = line("--cloud-provider=vsphere-paravirtual").unwrap_err();
    assert!(text.contains("Supervisor"), "{text}");
    assert!(
        line("--cloud-provider=aws").unwrap_err().contains("the only cloud provider is vsphere")
    );
}

#[test]
fn a_removed_flag_says_what_to_use() {
    let text = line("--port=10253").unwrap_err();
    assert!(text.contains("--port was removed") && text.contains("--secure-port"), "{text}");
}

#[test]
fn a_flag_that_is_misspelt_is_answered_with_the_right_one() {
    let text = line("--zone-polcy=always").unwrap_err();
    assert!(text.contains("--zone-policy"), "{text}");
    assert!(line("--zone-policy=sometimes").unwrap_err().contains("if-empty"));
}

#[test]
fn words_that_are_no_flags_are_refused() {
    assert!(line("run").unwrap_err().contains("unexpected argument 'run'"));
}

#[test]
fn without_a_configuration_nothing_starts() {
    let words = [PROGRAM].map(OsString::from);
    let text = read::<Flags>(words, REMOVED, IGNORED).unwrap_err().text;
    assert!(text.contains("--cloud-config"), "{text}");
}

#[test]
fn load_balancers_and_routes_are_wanted_unless_both_are_switched_off() {
    for (text, unserved) in
        [("*", true), ("*,-service", true), ("*,-service,-route", false), ("cloud-node", false)]
    {
        assert_eq!(text.parse::<Controllers>().unwrap().unserved, unserved, "{text:?}");
    }
}
