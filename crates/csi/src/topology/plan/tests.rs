//! What nodes are answered in each situation.

use super::{Answer, BoundVolume, Event, Facts, Labels, Node, Place, Step, plan};
use crate::topology::affinity::tests::{bound, labels};

fn zone(name: &str) -> Labels {
    labels(&[("zone", name)])
}

fn success(labels: Labels) -> Answer {
    Answer::Labels(labels)
}

fn problem(why: &str) -> Answer {
    Answer::Problem(why.to_owned())
}

/// A node, as its object and its place are.
struct Case {
    answer: Option<Answer>,
    recorded: Labels,
    place: Place,
}

impl Case {
    fn new(answer: Option<Answer>, recorded: Labels, place: Place) -> Self {
        Self { answer, recorded, place }
    }

    fn step(&self, has_waited: bool, node: Option<&Node<'_>>) -> Step {
        plan(&Facts {
            answer: self.answer.as_ref(),
            recorded: &self.recorded,
            place: &self.place,
            has_waited,
            node,
        })
    }

    /// The step before the Node was read.
    fn first(&self) -> Step {
        self.step(true, None)
    }

    /// The step when the Node has these labels.
    fn with_node(&self, labels: &Labels, volumes: &[BoundVolume], others: &[Labels]) -> Step {
        self.step(true, Some(&Node { labels, volumes, others }))
    }
}

fn told(step: &Step) -> (&'static str, String) {
    match step {
        Step::Rest(Some(event)) | Step::Write(_, Some(event)) => {
            (event.reason, event.message.clone())
        }
        other => panic!("{other:?} tells nothing"),
    }
}

#[test]
fn a_new_node_gets_the_labels_of_its_tags() {
    let case = Case::new(None, Labels::new(), Place::At(zone("a")));
    assert_eq!(case.first(), Step::Read { volumes: false });
    let step = case.with_node(&Labels::new(), &[], &[]);
    assert_eq!(step, Step::Write(success(zone("a")), None));
    let answered = Case::new(Some(success(zone("a"))), zone("a"), Place::At(zone("a")));
    assert_eq!(answered.first(), Step::Rest(None));
}

#[test]
fn without_zones_every_node_is_answered_without_labels() {
    let case = Case::new(None, Labels::new(), Place::Unzoned);
    assert_eq!(case.first(), Step::Write(success(Labels::new()), None));
    let before = Case::new(Some(success(zone("a"))), zone("a"), Place::Unzoned);
    assert_eq!(before.first(), Step::Write(success(Labels::new()), None));
    let answered = Case::new(Some(success(Labels::new())), Labels::new(), Place::Unzoned);
    assert_eq!(answered.first(), Step::Rest(None));
}

#[test]
fn a_node_without_tags_gets_the_reason_once() {
    let case = Case::new(None, Labels::new(), Place::Nowhere("no tag; attach one".to_owned()));
    let step = case.first();
    assert!(matches!(&step, Step::Write(answer, _) if *answer == problem("no tag; attach one")));
    let (reason, text) = told(&step);
    assert_eq!(
        (reason, text.as_str()),
        ("TopologyRetrievalFailed", "zone not found: no tag; attach one")
    );
    let again = Case { answer: Some(problem("no tag; attach one")), ..case };
    assert!(matches!(again.first(), Step::Rest(Some(_))));
    // Zones that are configured later concern nodes that had none.
    let unzoned = Case { answer: Some(success(Labels::new())), ..again };
    assert!(matches!(unzoned.first(), Step::Write(Answer::Problem(_), Some(_))));
}

#[test]
fn while_vcenter_cannot_be_asked_a_new_node_waits_and_a_known_one_is_answered_as_before() {
    let unknown = || Place::Unknown("vCenter is down".to_owned());
    let new = Case::new(None, Labels::new(), unknown());
    assert_eq!(new.step(false, None), Step::Wait);
    assert!(matches!(new.first(), Step::Write(Answer::Problem(_), Some(_))));
    let known = Case::new(None, zone("a"), unknown());
    assert_eq!(known.first(), Step::Read { volumes: false });
    let step = known.with_node(&zone("a"), &[], &[]);
    assert_eq!(step, Step::Write(success(zone("a")), None));
    let answered = Case::new(Some(success(zone("a"))), zone("a"), unknown());
    assert_eq!(answered.first(), Step::Rest(None));
}

#[test]
fn a_label_that_the_node_has_is_never_contradicted_and_the_move_is_told() {
    let case = Case::new(Some(success(zone("a"))), zone("a"), Place::At(zone("b")));
    assert_eq!(case.first(), Step::Read { volumes: true });
    let volumes = ["pv-1", "pv-2", "pv-3", "pv-4"].map(|name| bound(name, &["a"]));
    let step = case.with_node(&zone("a"), &volumes, &[]);
    let (reason, text) = told(&step);
    assert!(matches!(step, Step::Rest(_)), "nothing is written");
    assert_eq!(reason, "ZoneChanged");
    for part in ["stay zone=a", "say zone=b", "volumes pv-1, pv-2, pv-3 and 1 more", "delete it so"]
    {
        assert!(text.contains(part), "{text}");
    }
    // The same when the node asks again, and for a label that the cloud controller manager wrote.
    for recorded in [zone("a"), Labels::new()] {
        let asking = Case::new(None, recorded, Place::At(zone("b")));
        let step = asking.with_node(&zone("a"), &[], &[]);
        assert!(matches!(&step, Step::Write(answer, Some(_)) if *answer == success(zone("a"))));
    }
}

#[test]
fn a_change_that_would_strand_volumes_is_refused_and_another_one_is_taken() {
    let case = Case::new(None, zone("a"), Place::At(zone("b")));
    let (volumes, unlabelled) = ([bound("pv-1", &["a"])], Labels::new());
    let refused = case.with_node(&unlabelled, &volumes, &[zone("b")]);
    assert!(matches!(&refused, Step::Write(answer, _) if *answer == success(zone("a"))));
    let (reason, text) = told(&refused);
    assert!(reason == "ZoneChangeRefused" && text.contains("the volumes pv-1;"), "{text}");
    let taken = case.with_node(&unlabelled, &volumes, &[zone("a")]);
    let message = "its zone changes from zone=a to zone=b".to_owned();
    let event = Event { is_warning: false, reason: "ZoneChanged", message };
    assert_eq!(taken, Step::Write(success(zone("b")), Some(event)));
}

#[test]
fn a_category_that_is_added_changes_no_label_that_is_there() {
    let wanted = labels(&[("rack", "7"), ("zone", "b")]);
    let case = Case::new(Some(success(zone("a"))), zone("a"), Place::At(wanted));
    let step = case.with_node(&zone("a"), &[], &[]);
    let expected = labels(&[("rack", "7"), ("zone", "a")]);
    assert!(matches!(&step, Step::Write(answer, Some(_)) if *answer == success(expected)));
}

#[test]
fn tags_that_are_removed_take_no_zone_from_a_node() {
    let case = Case::new(Some(success(zone("a"))), zone("a"), Place::Nowhere("no tag".to_owned()));
    let step = case.first();
    assert!(matches!(step, Step::Rest(Some(_))));
    assert_eq!(told(&step).0, "ZoneNotFound");
    let asking = Case { answer: None, ..case };
    assert_eq!(asking.first(), Step::Read { volumes: false });
    let step = asking.with_node(&Labels::new(), &[], &[]);
    assert!(matches!(&step, Step::Write(answer, Some(_)) if *answer == success(zone("a"))));
}
