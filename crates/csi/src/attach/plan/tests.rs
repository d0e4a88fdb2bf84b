//! The next step, by tables.

use super::{
    Attachment, Duration, ERROR_PAUSE, Facts, Field, Instant, Kind, LET_GO, LOOK_AGAIN, Operation,
    Place, Plan, Problem, Progress, Step, held, next,
};
use crate::attach::observe::trimmed::{Shown, Source};

const DISK: &str = "6000c29";

fn place(volume: &str, node: &str) -> Place {
    Place { volume: volume.to_owned(), node: node.to_owned() }
}

fn here() -> Place {
    place("v-1", "n-1")
}

/// As kube-controller-manager creates it.
fn new() -> Attachment {
    Attachment {
        node: "node-1".into(),
        source: Source::PersistentVolume("pv-1".into()),
        deleting: false,
        finalizer: false,
        others: false,
        recorded_node: None,
        recorded_volume: None,
        attached: false,
        disk: None,
        attach_error: None,
        detach_error: None,
    }
}

fn prepared() -> Attachment {
    let recorded = |text: &str| Some(text.to_owned());
    Attachment {
        finalizer: true,
        recorded_node: recorded("n-1"),
        recorded_volume: recorded("v-1"),
        ..new()
    }
}

fn attached() -> Attachment {
    Attachment { attached: true, disk: Some(DISK.to_owned()), ..prepared() }
}

/// As the stock attacher leaves it.
fn of_stock() -> Attachment {
    Attachment { recorded_volume: None, ..attached() }
}

fn deleted(attachment: Attachment) -> Attachment {
    Attachment { deleting: true, ..attachment }
}

fn facts(attachment: &Attachment) -> Facts<'_> {
    Facts { attachment, wanted: Ok(here()), recorded: Ok(Some(here())), held: None }
}

/// It cannot be attached.
fn unwanted<'a>(attachment: &'a Attachment, problem: &Problem) -> Facts<'a> {
    Facts { wanted: Err(problem.clone()), ..facts(attachment) }
}

/// It must not be detached.
fn in_use(attachment: &Attachment) -> Facts<'_> {
    Facts { held: Some(held("node-1", "v-1")), ..facts(attachment) }
}

fn problem() -> Problem {
    Problem::new(Kind::Denied, "vCenter refuses")
}

fn shown(problem: &Problem) -> Option<Shown> {
    Some(Shown { error_code: Some(problem.code()), message: problem.text.clone() })
}

/// A process that did this last.
fn after(operation: Operation, result: Result<&str, Problem>, now: Instant) -> Progress {
    let mut progress = Progress::new(now);
    progress.operated(operation, result.map(str::to_owned), 1.0, now);
    progress
}

#[test]
fn an_attachment_becomes_attached_and_detached_step_by_step() {
    let now = Instant::now();
    let fresh = || Progress::new(now);
    let published = || after(Operation::Attach(here()), Ok(DISK), now);
    let unpublished = || after(Operation::Detach(here()), Ok(""), now);
    let cases = [
        ("new", new(), fresh(), Step::Prepare(here())),
        ("prepared", prepared(), fresh(), Step::Operate(Operation::Attach(here()))),
        ("published", prepared(), published(), Step::MarkAttached(DISK.to_owned())),
        ("attached", attached(), fresh(), Step::Rest),
        ("attached by the stock attacher", of_stock(), fresh(), Step::Rest),
        ("deleted", deleted(attached()), fresh(), Step::Operate(Operation::Detach(here()))),
        (
            "deleted, of stock",
            deleted(of_stock()),
            fresh(),
            Step::Operate(Operation::Detach(here())),
        ),
        (
            "deleted, perhaps attached",
            deleted(prepared()),
            fresh(),
            Step::Operate(Operation::Detach(here())),
        ),
        (
            "published, then deleted",
            deleted(prepared()),
            published(),
            Step::Operate(Operation::Detach(here())),
        ),
        ("detached", deleted(attached()), unpublished(), Step::Release),
        (
            "kept by others",
            Attachment { finalizer: false, others: true, ..deleted(attached()) },
            fresh(),
            Step::MarkDetached,
        ),
        ("done", deleted(new()), fresh(), Step::Rest),
        (
            "without finalizer",
            Attachment { finalizer: false, ..attached() },
            fresh(),
            Step::Prepare(here()),
        ),
    ];
    for (name, attachment, progress, expected) in cases {
        let plan = next(&facts(&attachment), &progress, now);
        assert_eq!(plan, Plan::from(expected), "{name}");
    }
}

#[test]
fn what_was_never_attached_is_released_without_a_detach() {
    let (now, attachment) = (Instant::now(), deleted(Attachment { finalizer: true, ..new() }));
    let facts = Facts { recorded: Ok(None), ..facts(&attachment) };
    assert_eq!(next(&facts, &Progress::new(now), now).step, Step::Release);
}

#[test]
fn a_disk_with_another_uuid_after_it_was_attached_again_is_written() {
    let now = Instant::now();
    let (attachment, attach) = (attached(), Operation::Attach(here()));
    let mut progress = Progress::new(now);
    progress.found_missing();
    let step = |progress: &Progress| next(&facts(&attachment), progress, now).step;
    assert_eq!(step(&progress), Step::Operate(attach.clone()));
    progress.operated(attach.clone(), Ok(DISK.to_owned()), 1.0, now);
    assert_eq!(step(&progress), Step::Rest, "nothing changed");
    progress.found_missing();
    progress.operated(attach, Ok("other".to_owned()), 1.0, now);
    assert_eq!(step(&progress), Step::MarkAttached("other".to_owned()));
}

#[test]
fn an_error_is_shown_then_the_operation_tried_again() {
    let now = Instant::now();
    for (attachment, operation, field) in [
        (prepared(), Operation::Attach(here()), Field::AttachError),
        (deleted(attached()), Operation::Detach(here()), Field::DetachError),
    ] {
        let mut progress = after(operation.clone(), Err(problem()), now);
        let plan = next(&facts(&attachment), &progress, now);
        let expected = Step::Show(field, problem());
        assert_eq!(plan, Plan { step: expected.clone(), problem: Some(problem()) });
        progress.wrote(&expected, now);
        let mut attachment = attachment;
        match field {
            Field::AttachError => attachment.attach_error = shown(&problem()),
            Field::DetachError => attachment.detach_error = shown(&problem()),
        }
        let retry = now + Duration::from_millis(500);
        assert_eq!(next(&facts(&attachment), &progress, now).step, Step::Wait(retry));
        let plan = next(&facts(&attachment), &progress, retry);
        assert_eq!(plan, Plan { step: Step::Operate(operation), problem: Some(problem()) });
    }
}

#[test]
fn an_error_whose_text_alternates_is_written_once_in_ten_seconds() {
    let mut now = Instant::now();
    let (start, mut progress, mut attachment) = (now, Progress::new(now), prepared());
    let (mut written, mut attempts) = (Vec::new(), 0);
    while now <= start + ERROR_PAUSE * 6 {
        let step = next(&facts(&attachment), &progress, now).step;
        match &step {
            Step::Show(Field::AttachError, problem) => {
                attachment.attach_error = shown(problem);
                progress.wrote(&step, now);
                written.push((now - start).as_secs());
            }
            Step::Operate(operation) => {
                attempts += 1;
                let text = format!("text {}", attempts % 2);
                let failed = Err(Problem::new(Kind::Internal, text));
                progress.operated(operation.clone(), failed, 0.01, now);
            }
            Step::Wait(until) => now = *until,
            step => panic!("{step:?}"),
        }
    }
    assert!(attempts > 20 && (3..=7).contains(&written.len()), "{written:?}");
    assert!(written.windows(2).all(|pair| pair[1] - pair[0] >= 10), "{written:?}");
}

#[test]
fn a_problem_that_no_request_solves_is_shown_once_and_looked_at_again() {
    let now = Instant::now();
    let missing = Problem::new(Kind::NotFound, "PersistentVolume pv-1 does not exist");
    let attachment = new();
    let step = next(&unwanted(&attachment, &missing), &Progress::new(now), now).step;
    assert_eq!(step, Step::Show(Field::AttachError, missing.clone()));
    let attachment = Attachment { attach_error: shown(&missing), ..attachment };
    let step = next(&unwanted(&attachment, &missing), &Progress::new(now), now).step;
    assert_eq!(step, Step::Wait(now + LOOK_AGAIN));
    let attachment = attached();
    let step = next(&unwanted(&attachment, &missing), &Progress::new(now), now).step;
    assert_eq!(step, Step::Rest, "what is attached is left alone");
    let attachment = deleted(attached());
    let facts = Facts { recorded: Err(missing.clone()), ..facts(&attachment) };
    let step = next(&facts, &Progress::new(now), now).step;
    assert_eq!(step, Step::Show(Field::DetachError, missing));
}

#[test]
fn a_volume_that_is_in_use_is_not_detached_and_says_so_once() {
    let now = Instant::now();
    let attachment = deleted(attached());
    let says = held("node-1", "v-1");
    let plan = next(&in_use(&attachment), &Progress::new(now), now);
    assert_eq!(plan.step, Step::Show(Field::DetachError, says.clone()));
    let attachment = Attachment { detach_error: shown(&says), ..attachment };
    let plan = next(&in_use(&attachment), &Progress::new(now), now);
    assert_eq!(plan.step, Step::Wait(now + LOOK_AGAIN));
    let failed = after(Operation::Detach(here()), Err(problem()), now);
    let later = now + ERROR_PAUSE;
    assert_eq!(next(&in_use(&attachment), &failed, later).step, Step::Wait(later + LOOK_AGAIN));
    let plan = next(&facts(&attachment), &Progress::new(now), now);
    assert_eq!(plan.step, Step::Operate(Operation::Detach(here())));
}

#[test]
fn what_an_earlier_attempt_may_have_attached_elsewhere_is_detached_first() {
    let now = Instant::now();
    let attachment = Attachment { recorded_node: Some("n-0".to_owned()), ..prepared() };
    let detach = Operation::Detach(place("v-1", "n-0"));
    let mut progress = Progress::new(now);
    let step = |facts: &Facts<'_>, progress: &Progress| next(facts, progress, now).step;
    assert_eq!(step(&facts(&attachment), &progress), Step::Operate(detach.clone()));
    assert!(matches!(step(&in_use(&attachment), &progress), Step::Show(Field::AttachError, _)));
    progress.operated(detach, Ok(String::new()), 1.0, now);
    assert_eq!(step(&facts(&attachment), &progress), Step::Prepare(here()));
    let prepared = prepared();
    assert_eq!(step(&facts(&prepared), &progress), Step::Operate(Operation::Attach(here())));
    let elsewhere = Attachment { attached: true, ..attachment };
    assert_eq!(step(&facts(&elsewhere), &Progress::new(now)), Step::Rest, "it may be in use there");
}

#[test]
fn an_object_that_is_gone_is_left_alone_whatever_old_events_say() {
    let now = Instant::now();
    let mut progress = Progress::new(now);
    progress.released();
    let attachment = deleted(attached());
    assert_eq!(next(&facts(&attachment), &progress, now).step, Step::Rest);
}

#[test]
fn a_problem_that_usually_passes_is_shown_when_it_does_not() {
    let mut now = Instant::now();
    let attachment = prepared();
    let attach = Operation::Attach(here());
    for kind in [Kind::Busy, Kind::Unavailable] {
        let mut progress = Progress::new(now);
        for failure in 1..=4 {
            progress.operated(attach.clone(), Err(Problem::new(kind, "wait")), 1.0, now);
            let plan = next(&facts(&attachment), &progress, now);
            assert!(plan.problem.is_some());
            let Step::Wait(until) = plan.step else {
                assert!(matches!(plan.step, Step::Show(..)) && failure == 4, "{plan:?}");
                break;
            };
            assert!(failure < 4, "{kind:?}");
            now = until;
            let step = next(&facts(&attachment), &progress, now).step;
            assert_eq!(step, Step::Operate(attach.clone()));
        }
    }
}

#[test]
fn a_node_that_lets_go_a_moment_later_is_not_reported() {
    let now = Instant::now();
    let (attachment, mut progress) = (deleted(attached()), Progress::new(now));
    progress.seen_deleting(now);
    progress.seen_deleting(now + LET_GO);
    assert_eq!(next(&in_use(&attachment), &progress, now).step, Step::Wait(now + LET_GO));
    let step = next(&in_use(&attachment), &progress, now + LET_GO).step;
    assert!(matches!(step, Step::Show(Field::DetachError, _)), "{step:?}");
}
