//! When Nodes are tainted and deleted, and everything that is no reason to.

use std::time::{Duration, Instant};

use crate::{
    observe::{
        discovery::{Absence, Finding},
        identity::Identity,
    },
    plan::lifecycle::{
        Decision, Evidence, History, KEEP, Moment, Reference, Refusal, Removal, Settings, Subject,
        deletion_failed, plan,
    },
};
use k8s_openapi::api::core::v1::Node;
use proptest::prelude::{ProptestConfig, any, proptest};
use serde_json::{Value, json};
use vsphere::inventory::{ConnectionState, PowerState, Uuid, Vm};

use crate::test_support::{
    EAST, OTHER, UUID, VCenter, answered, at, east, find, merge, node, off, patched, unavailable,
    vm, west,
};

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

/// Moments by their second; both clocks run alike.
fn clock() -> impl Fn(i64) -> Moment {
    let start = Instant::now();
    move |second| {
        let elapsed = Duration::from_secs(second.try_into().unwrap());
        Moment { wall: at(second), monotonic: start + elapsed }
    }
}

fn decide(node: &Node, finding: &Finding<'_>, settings: &Settings) -> Decision {
    let subjects = [Subject { node, finding, evidence: GONE }];
    plan(&subjects, &History::default(), settings, clock()(0)).decisions.remove(0)
}

/// The decision at the end of many checks, ten seconds apart, all with the same answer.
fn in_the_end<'a>(
    node: &Node,
    finding: impl Fn(i64) -> Finding<'a>,
    evidence: Evidence,
    settings: &Settings,
) -> Decision {
    let (clock, mut history) = (clock(), History::default());
    let mut last = Decision::Keep;
    for second in (0..200).step_by(10) {
        let finding = finding(second);
        let subjects = [Subject { node, finding: &finding, evidence }];
        let planned = plan(&subjects, &history, settings, clock(second));
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
    check(Evidence { removal: Removal::NoRecord, ..GONE }, "NoRemovalRecord");
    check(Evidence { removal: Removal::Unreadable, ..GONE }, "TaskHistoryUnreadable");
    check(Evidence { removal: Removal::NotAsked, ..GONE }, "RemovalNotAsked");
    check(Evidence { folder_seen: false, ..GONE }, "FolderNotVisible");
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
    let (clock, mut history) = (clock(), History::default());
    let mut deleted = Vec::new();
    for (second, answered, ready) in checks {
        let node = ours(if *ready { "True" } else { "Unknown" }, json!({}));
        let finding = answered.map_or(Finding::Unknown(Vec::new()), absent);
        let subjects = [Subject { node: &node, finding: &finding, evidence: GONE }];
        let planned = plan(&subjects, &history, &Settings::default(), clock(*second));
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
    // Nor is an answer of the second in which the last one was counted.
    let at_once = [(0, Some(0), false), (60, Some(60), false), (90, Some(60), false)];
    assert_eq!(over(&at_once), [false; 3]);
    // An answer may be a minute old, and not older.
    let minute = [(0, Some(0), false), (60, Some(60), false), (180, Some(120), false)];
    assert_eq!(over(&minute), [false, false, true]);
    let older = [(0, Some(0), false), (60, Some(60), false), (181, Some(120), false)];
    assert_eq!(over(&older), [false; 3]);
    let old = [(0, Some(0), false), (60, Some(60), false), (200, Some(100), false)];
    assert_eq!(over(&old), [false; 3]);
}

#[test]
fn two_plans_in_the_same_moment_are_one_check_and_do_not_begin_the_row_anew() {
    let twice =
        [(0, Some(0), false), (60, Some(60), false), (60, Some(60), false), (90, Some(90), false)];
    assert_eq!(over(&twice), [false, false, false, true]);
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

/// Whether a Node goes at the last of these moments: seconds of the wall clock and of the monotonic one.
fn goes_at_last(moments: &[(i64, u64)]) -> bool {
    let (start, mut history) = (Instant::now(), History::default());
    let node = ours("Unknown", json!({}));
    let mut last = Decision::Keep;
    for (wall, monotonic) in moments {
        let finding = absent(*wall);
        let subjects = [Subject { node: &node, finding: &finding, evidence: GONE }];
        let now = Moment { wall: at(*wall), monotonic: start + Duration::from_secs(*monotonic) };
        let planned = plan(&subjects, &history, &Settings::default(), now);
        history = planned.history;
        last = planned.decisions.into_iter().next().unwrap();
    }
    matches!(last, Decision::Delete(_))
}

#[test]
fn a_wall_clock_that_is_set_neither_shortens_the_grace_nor_prevents_a_deletion() {
    // Forward by an hour: three checks, but twenty seconds only.
    assert!(!goes_at_last(&[(0, 0), (3610, 10), (3620, 20)]));
    assert!(goes_at_last(&[(0, 0), (3610, 10), (3620, 20), (3660, 60)]));
    // Back by an hour: the row of checks begins anew.
    assert!(!goes_at_last(&[(3600, 0), (3660, 60), (70, 70), (80, 80)]));
    assert!(goes_at_last(&[(3600, 0), (3660, 60), (70, 70), (80, 80), (90, 90)]));
    // Answers from before it was set back are not fresh.
    let (node, finding) = (ours("Unknown", json!({})), absent(1));
    assert_eq!(decide(&node, &finding, &Settings::default()), Decision::Refuse(Refusal::NotAsked));
}

#[test]
fn a_machine_without_vm_and_provider_id_is_left_alone_unless_its_kubelet_waits_for_one() {
    let bare = node(json!({}));
    assert_eq!(in_the_end(&bare, absent, GONE, &Settings::default()), Decision::Keep);
    let taint =
        json!({"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"});
    let waiting = node(json!({"spec": {"taints": [taint]}}));
    let finding = |second| {
        let Finding::Absent(absence) = absent(second) else { unreachable!() };
        Finding::Absent(Absence { uuid: None, ..absence })
    };
    let decision = in_the_end(&waiting, finding, GONE, &Settings::default());
    assert_eq!(decision, Decision::Refuse(Refusal::NoProviderId));
}

#[test]
fn a_deletion_that_fails_is_a_warning() {
    let event = deletion_failed("node-1", &"conflict");
    assert_eq!((event.warning, event.reason), (true, "DeletingNodeFailed"));
    assert_eq!(event.message, "Deleting node node-1 failed: conflict");
}

#[test]
fn what_vcenter_recorded_is_what_counts() {
    assert_eq!(Removal::from(vsphere::history::Removal::Destroyed), Removal::Destroyed);
    assert_eq!(Removal::from(vsphere::history::Removal::Unregistered), Removal::Unregistered);
}

#[test]
fn a_node_made_anew_under_an_old_name_has_no_past() {
    let old = ours("Unknown", json!({}));
    let new = ours("Unknown", json!({"metadata": {"uid": "uid-2"}}));
    let (clock, mut history) = (clock(), History::default());
    for (second, node) in [(0, &old), (60, &old), (120, &new)] {
        let finding = absent(second);
        let subjects = [Subject { node, finding: &finding, evidence: GONE }];
        let planned = plan(&subjects, &history, &Settings::default(), clock(second));
        history = planned.history;
        assert_eq!(planned.decisions, [Decision::Refuse(Refusal::TooEarly)]);
    }
}

/// A cluster whose first Nodes lose their VMs at once: when each of them is decided to go, by second.
///
/// Of the deletions of `stuck` Nodes the API refuses all.
fn deletions(size: usize, gone: usize, stuck: usize, settings: &Settings) -> Vec<(usize, i64)> {
    let nodes: Vec<Node> = (0..size)
        .map(|at| ours("Unknown", json!({"metadata": {"uid": format!("uid-{at:03}")}})))
        .collect();
    let running = vm("vm-9", OTHER, "x", &[]);
    let vcenters = &[east(&[&running])];
    let there = node(json!({"spec": {"providerID": format!("vsphere://{OTHER}")}}));
    let found = find(vcenters, &there);
    let (clock, mut history) = (clock(), History::default());
    let mut left: Vec<usize> = (0..size).collect();
    let mut decided = Vec::new();
    for second in (0..12_000).step_by(60) {
        let absent = absent(second);
        let subject = |at: &usize| Subject {
            node: &nodes[*at],
            finding: if *at < gone { &absent } else { &found },
            evidence: Evidence { folder_seen: gone == size, ..GONE },
        };
        let subjects: Vec<Subject<'_>> = left.iter().map(subject).collect();
        let planned = plan(&subjects, &history, settings, clock(second));
        history = planned.history;
        let goes = |(at, decision): (&usize, &Decision)| {
            matches!(decision, Decision::Delete(_)).then_some(*at)
        };
        let go: Vec<usize> = left.iter().zip(&planned.decisions).filter_map(goes).collect();
        decided.extend(go.iter().map(|at| (*at, second)));
        left.retain(|at| !go.contains(at) || *at < stuck);
        if stuck == 0 && decided.len() == gone {
            break;
        }
    }
    decided
}

#[test]
fn the_nodes_of_two_vms_of_five_that_are_destroyed_together_both_go() {
    let gone = deletions(5, 2, 0, &Settings::default());
    assert_eq!(gone, [(0, 120), (1, 120)]);
}

#[test]
fn nodes_above_the_limit_go_in_the_next_window() {
    let seconds = |size, gone| -> Vec<i64> {
        let decided = deletions(size, gone, 0, &Settings::default());
        decided.into_iter().map(|(_, second)| second).collect()
    };
    assert_eq!(seconds(3, 3), [120, 120, 120]);
    assert_eq!(seconds(5, 4), [120, 120, 120, 720]);
    assert_eq!(seconds(50, 6), [120, 120, 120, 120, 120, 720]);
}

#[test]
fn a_node_above_the_limit_says_so_in_words_that_stay_the_same() {
    let decision = Decision::Refuse(Refusal::TooMany);
    let event = decision.event("node-1").unwrap();
    assert_eq!((event.warning, event.reason), (true, "TooManyDeletions"));
    assert!(event.message.contains("--node-deletion-limit"), "{}", event.message);
}

#[test]
fn nodes_that_the_api_does_not_delete_hold_up_no_others() {
    let decided = deletions(10, 8, 4, &Settings::default());
    for at in 4..8 {
        assert!(decided.iter().any(|(node, _)| *node == at), "{at}: {decided:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn every_proven_node_goes_in_the_end_and_never_more_than_the_limit_in_a_window(
        size in 1..50_usize,
        gone in 0..50_usize,
        most_percent in 0..30_usize,
    ) {
        let gone = gone.min(size);
        let settings = Settings { most_percent, ..Settings::default() };
        let decided = deletions(size, gone, 0, &settings);
        assert_eq!(decided.len(), gone);
        let limit = (size * most_percent / 100).max(3);
        for (_, from) in &decided {
            let within = decided.iter().filter(|(_, second)| (*from..from + 600).contains(second));
            assert!(within.count() <= limit);
        }
    }
}

#[test]
fn d1_a_vm_that_is_off_taints_its_node_without_asking_the_guest() {
    let own = off(vm("vm-1", UUID, "node-1", &[]));
    let suspended = Vm { power: PowerState::Suspended, ..own.clone() };
    for machine in [&own, &suspended] {
        let vcenters = &[east(&[machine])];
        let node = ours(
            "Unknown",
            json!({"spec": {"taints": [{"key": "dedicated", "effect": "NoExecute"}]}}),
        );
        let finding = find(vcenters, &node);
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
    let vcenters = &[east(&[&own])];
    let ready = ours("True", fields.clone());
    let decision = decide(&ready, &find(vcenters, &ready), &Settings::default());
    assert_eq!(taints(&decision), ["dedicated:NoExecute"]);
    let unready = ours("Unknown", fields);
    let decision = decide(&unready, &find(vcenters, &unready), &Settings::default());
    assert_eq!(decision, Decision::Keep);
}

#[test]
fn out_of_service_only_on_request_and_when_it_is_certain() {
    let settings = Settings { out_of_service: true, ..Settings::default() };
    let own = off(vm("vm-1", UUID, "node-1", &[]));
    let check = |machine: &Vm, settings: &Settings, expected: &[&str]| {
        let node = ours("Unknown", json!({}));
        let vcenters = &[east(&[machine])];
        let decision = decide(&node, &find(vcenters, &node), settings);
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
        let vcenters = &[east(&[&own])];
        let decision = decide(&node, &find(vcenters, &node), &Settings::default());
        assert_eq!(matches!(decision, Decision::Untaint(_)), goes, "{decision:?}");
    };
    check("vsphere-powered-off", true);
    check("nodeshutdown", false);
}

/// What happened to the Node after long enough, in a word.
fn after(vcenters: impl Fn(i64) -> Vec<VCenter>, evidence: Evidence) -> &'static str {
    let node = ours("Unknown", json!({}));
    let finding = |second| find(&vcenters(second), &node);
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
        let answered = |vcenter, second| answered(second, vcenter);
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
    let unread = Evidence { reference: Reference::NotAsked, ..GONE };
    check("d2: all the proof is there but a read that failed", &[], &[], unread, "NotAsked");
}

#[test]
fn nothing_happens_to_a_node_while_a_vcenter_is_down() {
    let current = |second| answered(second, east(&[]));
    assert_eq!(after(|_| vec![unavailable(east(&[])), unavailable(west(&[]))], GONE), "kept");
    assert_eq!(after(|second| vec![current(second), unavailable(west(&[]))], GONE), "kept");
    let dark = off(vm("vm-1", UUID, "node-1", &[]));
    assert_eq!(after(|_| vec![unavailable(east(&[&dark]))], GONE), "kept");
}

#[test]
fn d3_nodes_of_other_clouds_are_never_tainted_or_deleted() {
    let node = ours("Unknown", json!({"spec": {"providerID": "k3s://node-1"}}));
    let finding = |_| find(&[east(&[])], &node);
    assert_eq!(in_the_end(&node, finding, GONE, &Settings::default()), Decision::Keep);
    assert_eq!(in_the_end(&node, absent, GONE, &Settings::default()), Decision::Keep);
}

proptest! {
    #[test]
    fn a_node_goes_only_if_the_last_three_checks_proved_it(
        checks in proptest::collection::vec((1..40_i64, 0..4_u8, any::<bool>()), 1..25),
    ) {
        let own: Uuid = UUID.parse().unwrap();
        let (clock, mut history) = (clock(), History::default());
        let (mut second, mut row, mut unready_since) = (0, 0_u32, None);
        for (pause, state, ready) in checks {
            second += pause;
            let node = ours(if ready { "True" } else { "Unknown" }, json!({}));
            let finding = if state == 0 { Finding::Unknown(Vec::new()) } else { absent(second) };
            let evidence = if state == 1 { Evidence::default() } else { GONE };
            let subjects = [Subject { node: &node, finding: &finding, evidence }];
            let planned = plan(&subjects, &history, &Settings::default(), clock(second));
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
