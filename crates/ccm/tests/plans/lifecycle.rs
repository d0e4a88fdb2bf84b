//! When Nodes are tainted and deleted, and everything that is no reason to.

use ccm::{
    discovery::{Absence, Answer, Census, Finding, VCenter, Wanted},
    identity::Identity,
    lifecycle::{
        Decision, Evidence, History, KEEP, Plan, Reference, Refusal, Removal, Settings, Subject,
        plan,
    },
};
use k8s_openapi::api::core::v1::Node;
use proptest::prelude::{any, proptest};
use serde_json::{Value, json};
use vsphere::inventory::{ConnectionState, PowerState, Uuid, Vm};

use crate::build::{EAST, OTHER, UUID, at, east, merge, node, off, patched, silent, vm, west};

const GONE: Evidence =
    Evidence { reference: Reference::Gone, removal: Removal::Destroyed, folder_seen: true };

/// A Node that was initialised, with the `Ready` condition in this state.
fn ours(ready: &str, fields: Value) -> Node {
    let mut all = json!({
        "metadata": {"annotations": {
            "ccm.vsphere.vmware.com/vcenter": EAST,
            "ccm.vsphere.vmware.com/vm": "vm-1",
            "ccm.vsphere.vmware.com/folder": "group-v7",
        }},
        "spec": {"providerID": format!("vsphere://{UUID}")},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    });
    merge(&mut all, fields);
    node(all)
}

/// That everybody answered at this second and nobody has the VM.
fn absent(second: i64) -> Finding<'static> {
    Finding::Absent(Absence {
        uuid: UUID.parse().ok(),
        vcenters: vec!["east".to_owned()],
        asked_at: at(second),
        identity: Some(Identity {
            vcenter: EAST.to_owned(),
            vm: "vm-1".to_owned(),
            instance_uuid: None,
            folder: Some("group-v7".to_owned()),
        }),
    })
}

fn decide(node: &Node, finding: &Finding<'_>, settings: &Settings) -> Decision {
    let subjects = [Subject { node, finding, evidence: GONE }];
    plan(&subjects, &History::default(), settings, at(0)).decisions.remove(0)
}

/// The decision at the end of many checks, ten seconds apart, all with the same answer.
fn in_the_end<'a>(
    node: &Node,
    finding: impl Fn(i64) -> Finding<'a>,
    evidence: Evidence,
    settings: &Settings,
) -> Decision {
    let mut history = History::default();
    let mut last = Decision::Keep;
    for second in (0..200).step_by(10) {
        let finding = finding(second);
        let subjects = [Subject { node, finding: &finding, evidence }];
        let planned = plan(&subjects, &history, settings, at(second));
        history = planned.history;
        last = planned.decisions.into_iter().next().unwrap();
    }
    last
}

fn taints(decision: &Decision) -> Vec<String> {
    let (Decision::TaintShutdown(patch) | Decision::Untaint(patch)) = decision else {
        panic!("{decision:?}")
    };
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    let list = patch["spec"]["taints"].as_array().unwrap();
    let shown = |one: &Value| {
        format!("{}:{}", one["key"].as_str().unwrap(), one["effect"].as_str().unwrap())
    };
    list.iter().map(shown).collect()
}

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown:NoSchedule";
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service:NoExecute";

#[test]
fn a_node_goes_when_all_of_the_proof_held_for_long_enough() {
    let node = ours("Unknown", json!({}));
    let decision = in_the_end(&node, absent, GONE, &Settings::default());
    let Decision::Delete(proof) = &decision else { panic!("{decision:?}") };
    let event = decision.event("node-1").unwrap();
    assert_eq!((event.warning, event.reason), (false, "DeletingNode"));
    assert_eq!(
        proof.to_string(),
        format!("the VM vm-1 with the BIOS UUID {UUID} was destroyed and is not in east")
    );
}

#[test]
fn a_node_stays_when_any_part_of_the_proof_is_missing() {
    let node = ours("Unknown", json!({}));
    let check = |evidence: Evidence, expected: &str| {
        let decision = in_the_end(&node, absent, evidence, &Settings::default());
        let Decision::Refuse(refusal) = decision else { panic!("{decision:?}") };
        assert_eq!(refusal.reason(), expected);
    };
    check(Evidence::default(), "NotAsked");
    check(Evidence { reference: Reference::NotAsked, ..GONE }, "NotAsked");
    check(Evidence { reference: Reference::Exists, ..GONE }, "VmStillThere");
    check(Evidence { removal: Removal::Unregistered, ..GONE }, "VmUnregistered");
    check(Evidence { removal: Removal::Untold, ..GONE }, "RemovalUntold");
    check(Evidence { removal: Removal::NotAsked, ..GONE }, "RemovalNotAsked");
    check(Evidence { folder_seen: false, ..GONE }, "NoSight");
}

#[test]
fn a_node_stays_when_it_says_or_we_say_so() {
    let check = |fields: Value, settings: Settings, expected: &str| {
        let node = ours("False", fields);
        let decision = in_the_end(&node, absent, GONE, &settings);
        let Decision::Refuse(refusal) = decision else { panic!("{decision:?}") };
        assert_eq!(refusal.reason(), expected);
    };
    let skip = Settings { skip_deletion: true, ..Settings::default() };
    check(json!({}), skip, "DeletionDisabled");
    check(
        json!({"metadata": {"annotations": {KEEP: "true"}}}),
        Settings::default(),
        "KeptByAnnotation",
    );
}

#[test]
fn a_node_without_provider_id_or_record_stays() {
    let check = |change: fn(&mut Absence), expected: Refusal| {
        let finding = |second| {
            let Finding::Absent(mut absence) = absent(second) else { unreachable!() };
            change(&mut absence);
            Finding::Absent(absence)
        };
        let node = ours("Unknown", json!({}));
        assert_eq!(
            in_the_end(&node, finding, GONE, &Settings::default()),
            Decision::Refuse(expected)
        );
    };
    check(|absence| absence.uuid = None, Refusal::NoProviderId);
    check(|absence| absence.identity = None, Refusal::NotRecorded);
}

#[test]
fn a_ready_node_stays_whatever_vcenter_says() {
    let node = ours("True", json!({}));
    assert_eq!(in_the_end(&node, absent, GONE, &Settings::default()), Decision::Keep);
}

/// The decisions about one Node over checks: second, when vCenter answered (or nothing), ready.
fn over(checks: &[(i64, Option<i64>, bool)]) -> Vec<bool> {
    let mut history = History::default();
    let mut deleted = Vec::new();
    for (second, answered, ready) in checks {
        let node = ours(if *ready { "True" } else { "Unknown" }, json!({}));
        let finding = answered.map_or(Finding::Unknown(Vec::new()), absent);
        let subjects = [Subject { node: &node, finding: &finding, evidence: GONE }];
        let planned = plan(&subjects, &history, &Settings::default(), at(*second));
        history = planned.history;
        deleted.push(matches!(planned.decisions[0], Decision::Delete(_)));
    }
    deleted
}

#[test]
fn the_grace_and_the_number_of_checks_both_count() {
    let quick =
        [(0, Some(0), false), (5, Some(5), false), (10, Some(10), false), (59, Some(59), false)];
    assert_eq!(over(&quick), [false; 4]);
    let slow = [(0, Some(0), false), (60, Some(60), false), (120, Some(120), false)];
    assert_eq!(over(&slow), [false, false, true]);
    // The same answer looked at again is not another check.
    let same =
        [(0, Some(0), false), (30, Some(0), false), (50, Some(0), false), (60, Some(0), false)];
    assert_eq!(over(&same), [false; 4]);
    // An answer that is too old is none.
    let old = [(0, Some(0), false), (60, Some(60), false), (200, Some(100), false)];
    assert_eq!(over(&old), [false; 3]);
}

#[test]
fn an_outage_or_a_moment_of_readiness_begins_the_row_anew() {
    let outage = [
        (0, Some(0), false),
        (60, Some(60), false),
        (70, None, false),
        (80, Some(80), false),
        (90, Some(90), false),
        (100, Some(100), false),
    ];
    assert_eq!(over(&outage), [false, false, false, false, false, true]);
    let ready = [
        (0, Some(0), false),
        (60, Some(60), false),
        (70, Some(70), true),
        (80, Some(80), false),
        (90, Some(90), false),
        (100, Some(100), false),
    ];
    assert_eq!(over(&ready), [false; 6]);
}

#[test]
fn a_node_made_anew_under_an_old_name_has_no_past() {
    let old = ours("Unknown", json!({}));
    let new = ours("Unknown", json!({"metadata": {"uid": "uid-2"}}));
    let mut history = History::default();
    for (second, node) in [(0, &old), (60, &old), (120, &new)] {
        let finding = absent(second);
        let subjects = [Subject { node, finding: &finding, evidence: GONE }];
        let planned = plan(&subjects, &history, &Settings::default(), at(second));
        history = planned.history;
        assert_eq!(planned.decisions, [Decision::Refuse(Refusal::TooEarly)]);
    }
}

/// Many Nodes of which the first ones are gone, after enough checks.
fn crowd(size: usize, gone: usize) -> Vec<Decision> {
    let nodes: Vec<Node> = (0..size)
        .map(|at| ours("Unknown", json!({"metadata": {"uid": format!("uid-{at}")}})))
        .collect();
    let running = vm("vm-9", OTHER, "x", &[]);
    let census = Census::new(&[east(&[&running])]);
    let there = node(json!({"spec": {"providerID": format!("vsphere://{OTHER}")}}));
    let found = census.find(&Wanted::of(&there));
    let mut planned = Plan { decisions: Vec::new(), history: History::default() };
    for second in [0, 60, 120] {
        let absent = absent(second);
        let subjects: Vec<Subject<'_>> = nodes
            .iter()
            .enumerate()
            .map(|(at, node)| Subject {
                node,
                finding: if at < gone { &absent } else { &found },
                evidence: Evidence { folder_seen: false, ..GONE },
            })
            .collect();
        planned = plan(&subjects, &planned.history, &Settings::default(), at(second));
    }
    planned.decisions
}

#[test]
fn when_too_many_would_go_none_goes() {
    let deletions = |size, gone| {
        crowd(size, gone).iter().filter(|one| matches!(one, Decision::Delete(_))).count()
    };
    assert_eq!(deletions(3, 1), 1);
    assert_eq!(deletions(3, 2), 0);
    assert_eq!(deletions(50, 5), 5);
    assert_eq!(deletions(50, 6), 0);
    let refused = crowd(50, 6).remove(0);
    assert_eq!(refused, Decision::Refuse(Refusal::TooMany { would: 6, most: 5 }));
}

#[test]
fn deletions_of_the_last_minutes_count_as_well() {
    let nodes: Vec<Node> = (0..3)
        .map(|at| ours("Unknown", json!({"metadata": {"uid": format!("uid-{at}")}})))
        .collect();
    let mut history = History::default();
    let mut deleted = Vec::new();
    // One after the other vanishes, a minute and a half apart, and each is deleted when that may be.
    for second in (0..1200).step_by(30) {
        let finding = absent(second);
        let left: Vec<&Node> = nodes
            .iter()
            .filter(|node| !deleted.iter().any(|(uid, _)| *uid == node.metadata.uid))
            .collect();
        let subject = left.first().map(|node| Subject { node, finding: &finding, evidence: GONE });
        let subjects: Vec<Subject<'_>> = subject.into_iter().collect();
        let planned = plan(&subjects, &history, &Settings::default(), at(second));
        history = planned.history;
        if let [Decision::Delete(_)] = planned.decisions.as_slice() {
            deleted.push((left[0].metadata.uid.clone(), second));
        }
    }
    let times: Vec<i64> = deleted.iter().map(|(_, second)| *second).collect();
    assert_eq!(times.len(), 2, "{times:?}");
    assert!(times[1] - times[0] >= 600, "{times:?}");
}

#[test]
fn d1_a_vm_that_is_off_taints_its_node_without_asking_the_guest() {
    let own = off(vm("vm-1", UUID, "node-1", &[]));
    let suspended = Vm { power: PowerState::Suspended, ..own.clone() };
    for machine in [&own, &suspended] {
        let census = Census::new(&[east(&[machine])]);
        let node = ours(
            "Unknown",
            json!({"spec": {"taints": [{"key": "dedicated", "effect": "NoExecute"}]}}),
        );
        let finding = census.find(&Wanted::of(&node));
        let decision = decide(&node, &finding, &Settings::default());
        assert_eq!(taints(&decision), ["dedicated:NoExecute", SHUTDOWN]);
        let Decision::TaintShutdown(patch) = decision else { panic!() };
        let tainted = patched(&node, [&Some(patch), &None]);
        assert_eq!(decide(&tainted, &finding, &Settings::default()), Decision::Keep);
    }
}

#[test]
fn the_shutdown_taint_goes_when_the_node_is_ready() {
    let fields = json!({"spec": {"taints": [
        {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"},
        {"key": "dedicated", "effect": "NoExecute"},
    ]}});
    let own = vm("vm-1", UUID, "node-1", &[]);
    let census = Census::new(&[east(&[&own])]);
    let ready = ours("True", fields.clone());
    let decision = decide(&ready, &census.find(&Wanted::of(&ready)), &Settings::default());
    assert_eq!(taints(&decision), ["dedicated:NoExecute"]);
    let unready = ours("Unknown", fields);
    let decision = decide(&unready, &census.find(&Wanted::of(&unready)), &Settings::default());
    assert_eq!(decision, Decision::Keep);
}

#[test]
fn out_of_service_only_on_request_and_when_it_is_certain() {
    let settings = Settings { out_of_service: true, ..Settings::default() };
    let own = off(vm("vm-1", UUID, "node-1", &[]));
    let check = |machine: &Vm, settings: &Settings, expected: &[&str]| {
        let node = ours("Unknown", json!({}));
        let census = Census::new(&[east(&[machine])]);
        let decision = decide(&node, &census.find(&Wanted::of(&node)), settings);
        assert_eq!(taints(&decision), expected);
    };
    check(&own, &settings, &[SHUTDOWN, OUT_OF_SERVICE]);
    check(&own, &Settings::default(), &[SHUTDOWN]);
    let suspended = Vm { power: PowerState::Suspended, ..own.clone() };
    check(&suspended, &settings, &[SHUTDOWN]);
    for connection in
        [ConnectionState::Disconnected, ConnectionState::Orphaned, ConnectionState::Inaccessible]
    {
        check(&Vm { connection, ..own.clone() }, &settings, &[SHUTDOWN]);
    }
}

#[test]
fn out_of_service_ends_with_power_and_only_if_it_is_ours() {
    let own = vm("vm-1", UUID, "node-1", &[]);
    let check = |value: &str, goes: bool| {
        let key = "node.kubernetes.io/out-of-service";
        let taint = json!({"key": key, "value": value, "effect": "NoExecute"});
        let node = ours("Unknown", json!({"spec": {"taints": [taint]}}));
        let census = Census::new(&[east(&[&own])]);
        let decision = decide(&node, &census.find(&Wanted::of(&node)), &Settings::default());
        assert_eq!(matches!(decision, Decision::Untaint(_)), goes, "{decision:?}");
    };
    check("vsphere-powered-off", true);
    check("nodeshutdown", false);
}

/// What happened to the Node after long enough, in a word.
fn after<'a>(vcenters: impl Fn(i64) -> Vec<VCenter<'a>>, evidence: Evidence) -> &'static str {
    let node = ours("Unknown", json!({}));
    let finding = |second| Census::new(&vcenters(second)).find(&Wanted::of(&node));
    match in_the_end(&node, finding, evidence, &Settings::default()) {
        Decision::Keep => "kept",
        Decision::TaintShutdown(_) => "tainted",
        Decision::Untaint(_) => "untainted",
        Decision::Delete(_) => "deleted",
        Decision::Refuse(refusal) => refusal.reason(),
    }
}

#[test]
fn what_happens_to_a_node_that_is_not_ready_when_something_happens_to_its_vm() {
    let own = vm("vm-1", UUID, "node-1", &[]);
    let dark = off(own.clone());
    let asleep = Vm { power: PowerState::Suspended, ..dark.clone() };
    let lost = Vm { uuid: None, connection: ConnectionState::Inaccessible, ..own.clone() };
    let moved = vm("vm-2", UUID, "node-1", &[]);
    let renewed = vm("vm-3", OTHER, "node-1", &[]);
    let exists = Evidence { reference: Reference::Exists, ..GONE };
    let unregistered = Evidence { removal: Removal::Unregistered, ..GONE };
    let check = |event: &str, here: &[&Vm], there: &[&Vm], evidence: Evidence, expected: &str| {
        let answered =
            |vcenter, second| VCenter { answer: Answer::Complete(at(second)), ..vcenter };
        let vcenters = |second| vec![answered(east(here), second), answered(west(there), second)];
        assert_eq!(after(vcenters, evidence), expected, "{event}");
    };
    let unasked = Evidence::default();
    check("nothing, or a move to another host", &[&own], &[], unasked, "kept");
    check("powered off", &[&dark], &[], unasked, "tainted");
    check("suspended", &[&asleep], &[], unasked, "tainted");
    check("deleted from disk", &[], &[], GONE, "deleted");
    check("unregistered", &[], &[], unregistered, "VmUnregistered");
    check("inaccessible, and not shown", &[], &[], exists, "VmStillThere");
    check("inaccessible", &[&lost], &[], GONE, "kept");
    check("in another datacenter", &[&moved], &[], unasked, "kept");
    check("in another vCenter", &[], &[&moved], unasked, "kept");
    check("made anew with the same name", &[&renewed], &[], GONE, "deleted");
    check("d2: reading it fails", &[], &[], unasked, "NotAsked");
}

#[test]
fn nothing_happens_to_a_node_while_a_vcenter_is_down() {
    let answered = |second| VCenter { answer: Answer::Complete(at(second)), ..east(&[]) };
    assert_eq!(after(|_| vec![silent(east(&[])), silent(west(&[]))], GONE), "kept");
    assert_eq!(after(|second| vec![answered(second), silent(west(&[]))], GONE), "kept");
    let dark = off(vm("vm-1", UUID, "node-1", &[]));
    assert_eq!(after(|_| vec![silent(east(&[&dark]))], GONE), "kept");
}

#[test]
fn d3_nodes_of_other_clouds_are_never_tainted_or_deleted() {
    let node = ours("Unknown", json!({"spec": {"providerID": "k3s://node-1"}}));
    let finding = |_| Census::new(&[east(&[])]).find(&Wanted::of(&node));
    assert_eq!(in_the_end(&node, finding, GONE, &Settings::default()), Decision::Keep);
    assert_eq!(in_the_end(&node, absent, GONE, &Settings::default()), Decision::Keep);
}

proptest! {
    #[test]
    fn a_node_goes_only_if_the_last_three_checks_proved_it(
        checks in proptest::collection::vec((1..40_i64, 0..4_u8, any::<bool>()), 1..25),
    ) {
        let own: Uuid = UUID.parse().unwrap();
        let mut history = History::default();
        let (mut second, mut row, mut unready_since) = (0, 0_u32, None);
        for (pause, state, ready) in checks {
            second += pause;
            let node = ours(if ready { "True" } else { "Unknown" }, json!({}));
            let finding = if state == 0 { Finding::Unknown(Vec::new()) } else { absent(second) };
            let evidence = if state == 1 { Evidence::default() } else { GONE };
            let subjects = [Subject { node: &node, finding: &finding, evidence }];
            let planned = plan(&subjects, &history, &Settings::default(), at(second));
            history = planned.history;
            row = if !ready && state > 1 { row + 1 } else { 0 };
            unready_since = if ready { None } else { unready_since.or(Some(second)) };
            let may = row >= 3 && unready_since.is_some_and(|since| second - since >= 60);
            match &planned.decisions[0] {
                Decision::Delete(proof) => assert!(may && proof.uuid == own),
                other => assert!(!may, "{other:?}"),
            }
        }
    }
}
