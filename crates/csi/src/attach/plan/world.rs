//! Properties of plans: a small world of one VolumeAttachment, its volume, its node and vCenter, in which anything
//! happens in any order. Steps are carried out as the API and vCenter would; whatever happened, the world ends as
//! Kubernetes wants it, and no volume in use is ever detached.

use std::collections::BTreeSet;

use kube::runtime::watcher::Event;
use proptest::prelude::*;

use super::{ERROR_PAUSE, Field, Instant, Kind, Operation, Place, Problem, Progress, Step, next};
use crate::attach::observe::{
    Observer,
    object::Trimmed,
    store::{Known, WatchEvent},
    trimmed::{Attachment, CsiNode, Node, Origin, Shown, Source, Volume},
};

/// Something that happens in the world.
#[derive(Debug, Clone)]
enum Happening {
    /// Kubernetes does not need the volume there any more, or again.
    Delete,
    Create,
    /// Another client keeps the object.
    Keep(bool),
    VolumeGone,
    /// Under the same name, with this handle.
    VolumeMade(u8),
    VolumeDeleting,
    NodeGone,
    NodeMounts(bool),
    OutOfService(bool),
    CsiNodeGone,
    /// A VM with this id joined under the same name.
    CsiNodeMade(u8),
    Power(bool),
    /// Somebody removes all disks in vCenter.
    DisksLost,
    /// A new process leads.
    Restart,
    /// vCenter is compared with the VolumeAttachment.
    Verify,
    /// The next operation fails, after it was carried out or before.
    Fail(bool),
    /// The next write does not arrive, or its answer is lost.
    LoseWrite(bool),
    /// Work goes on for some steps.
    Work(u8),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        1 => Just(Happening::Delete),
        2 => Just(Happening::Create),
        1 => any::<bool>().prop_map(Happening::Keep),
        1 => Just(Happening::VolumeGone),
        3 => (0..2_u8).prop_map(Happening::VolumeMade),
        1 => Just(Happening::VolumeDeleting),
        1 => Just(Happening::NodeGone),
        2 => any::<bool>().prop_map(Happening::NodeMounts),
        1 => any::<bool>().prop_map(Happening::OutOfService),
        1 => Just(Happening::CsiNodeGone),
        3 => (0..2_u8).prop_map(Happening::CsiNodeMade),
        1 => any::<bool>().prop_map(Happening::Power),
        1 => Just(Happening::DisksLost),
        2 => Just(Happening::Restart),
        1 => Just(Happening::Verify),
        4 => any::<bool>().prop_map(Happening::Fail),
        3 => any::<bool>().prop_map(Happening::LoseWrite),
        8 => (1..4_u8).prop_map(Happening::Work),
    ]
}

struct World {
    observer: Observer,
    attachment: Option<Attachment>,
    generation: u64,
    version: u64,
    disks: BTreeSet<Place>,
    off: bool,
    node: Option<Node>,
    fail: Option<bool>,
    lose: Option<bool>,
    progress: Progress,
    now: Instant,
    errors: Vec<Instant>,
}

fn apply<T>(name: &str, uid: &str, version: u64, kept: Option<T>, last: T) -> WatchEvent<T> {
    let event = match kept {
        Some(kept) => Event::Apply(Trimmed::of(name, uid, version, kept)),
        None => Event::Delete(Trimmed::of(name, uid, version, last)),
    };
    Some(Ok(event))
}

fn handle(number: u8) -> String {
    format!("v-{number}")
}

fn created() -> Attachment {
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

fn volume(number: u8, deleting: bool) -> Volume {
    Volume { origin: Origin::Ours(handle(number)), deleting, finalizer: false, claim: None }
}

fn csi_node(number: u8) -> CsiNode {
    CsiNode { node_id: format!("n-{number}"), limit: None }
}

impl World {
    fn new() -> Self {
        let now = Instant::now();
        let mut world = Self {
            observer: Observer::default(),
            attachment: None,
            generation: 0,
            version: 1,
            disks: BTreeSet::new(),
            off: false,
            node: None,
            fail: None,
            lose: None,
            progress: Progress::new(now),
            now,
            errors: Vec::new(),
        };
        for event in
            [Happening::VolumeMade(0), Happening::CsiNodeMade(0), Happening::NodeMounts(false)]
        {
            world.happen(&event);
        }
        world.happen(&Happening::Create);
        world
    }

    fn happen(&mut self, happening: &Happening) {
        self.version += 1;
        let version = self.version;
        match happening {
            Happening::Delete => self.edit(|attachment| attachment.deleting = true),
            Happening::Create if self.attachment.is_none() => {
                self.generation += 1;
                self.progress = Progress::new(self.now);
                self.attachment = Some(created());
                self.edit(|_| {});
            }
            Happening::Create => {}
            Happening::Keep(keep) => self.edit(|attachment| {
                // Finalizers cannot be added to what is being deleted.
                attachment.others = *keep && (attachment.others || !attachment.deleting);
            }),
            Happening::VolumeGone => self.set_volume(version, None),
            Happening::VolumeMade(number) => self.set_volume(version, Some(volume(*number, false))),
            Happening::VolumeDeleting => self.set_volume(version, Some(volume(0, true))),
            Happening::NodeGone => self.set_node(None),
            Happening::NodeMounts(mounts) => {
                let handles = if *mounts { vec![handle(0), handle(1)] } else { Vec::new() };
                let out_of_service = self.node.as_ref().is_some_and(|node| node.out_of_service);
                self.set_node(Some(Node { out_of_service, in_use: handles.into_iter().collect() }));
            }
            Happening::OutOfService(out) => {
                let in_use = self.node.clone().unwrap_or_default().in_use;
                self.set_node(Some(Node { out_of_service: *out, in_use }));
            }
            Happening::CsiNodeGone => self.set_csi_node(None),
            Happening::CsiNodeMade(number) => self.set_csi_node(Some(csi_node(*number))),
            Happening::Power(on) => self.off = !on,
            Happening::DisksLost => self.disks.clear(),
            Happening::Restart => self.progress = Progress::new(self.now),
            Happening::Verify => self.verify(),
            Happening::Fail(carried_out) => self.fail = Some(*carried_out),
            Happening::LoseWrite(arrives) => self.lose = Some(*arrives),
            Happening::Work(steps) => {
                for _ in 0..*steps {
                    self.work();
                }
            }
        }
    }

    fn set_volume(&mut self, version: u64, kept: Option<Volume>) {
        self.observer.take_volume(apply("pv-1", "p", version, kept, volume(0, false)));
    }

    fn set_csi_node(&mut self, kept: Option<CsiNode>) {
        self.observer.take_csi_node(apply("node-1", "c", self.version, kept, csi_node(0)));
    }

    fn set_node(&mut self, kept: Option<Node>) {
        self.node.clone_from(&kept);
        self.observer.take_node(apply("node-1", "n", self.version, kept, Node::default()));
    }

    /// Changes the object; one that is deleted and has no finalizer is gone.
    fn edit(&mut self, edit: impl FnOnce(&mut Attachment)) {
        let Some(mut attachment) = self.attachment.take() else { return };
        edit(&mut attachment);
        let gone = attachment.deleting && !attachment.finalizer && !attachment.others;
        self.version += 1;
        let kept = (!gone).then(|| attachment.clone());
        let uid = self.generation.to_string();
        let event = apply("csi-1", &uid, self.version, kept.clone(), attachment);
        self.observer.take_attachment(event);
        self.attachment = kept;
    }

    fn known(&self) -> Option<Known<Attachment>> {
        self.observer.attachments.get("csi-1").cloned()
    }

    fn step(&self) -> Option<Step> {
        let known = self.known()?;
        let facts = self.observer.facts(&known, |_| self.off);
        Some(next(&facts, &self.progress, self.now).step)
    }

    /// Carries out one step.
    fn work(&mut self) {
        let Some(step) = self.step() else { return };
        if self.attachment.as_ref().is_some_and(|attachment| attachment.deleting) {
            self.progress.seen_deleting(self.now);
        }
        match step {
            Step::Rest => {}
            Step::Wait(until) => self.now = until,
            Step::Operate(operation) => self.operate(operation),
            step => self.write(&step),
        }
    }

    fn operate(&mut self, operation: Operation) {
        let attachment = self.attachment.clone().unwrap();
        if let Operation::Detach(place) = &operation {
            let node = self.node.as_ref().filter(|node| !node.out_of_service);
            let mounted = node.is_some_and(|node| node.in_use.contains(&place.volume));
            assert!(self.off || !mounted, "{place:?} is in use");
        } else {
            assert!(attachment.finalizer && !attachment.deleting);
        }
        let failure = self.fail.take();
        if failure != Some(false) {
            match &operation {
                Operation::Attach(place) => {
                    let recorded = (&attachment.recorded_volume, &attachment.recorded_node);
                    assert_eq!(recorded, (&Some(place.volume.clone()), &Some(place.node.clone())));
                    self.disks.insert(place.clone());
                }
                Operation::Detach(place) => _ = self.disks.remove(place),
            }
        }
        let result = match failure {
            None => Ok("disk".to_owned()),
            Some(carried_out) => Err(Problem::new(Kind::Unavailable, format!("{carried_out}"))),
        };
        self.progress.operated(operation, result, 1.0, self.now);
    }

    fn write(&mut self, step: &Step) {
        let lost = self.lose.take();
        if lost != Some(false) {
            self.change(step);
        }
        if lost.is_some() {
            self.progress.not_written(self.now);
        } else {
            self.progress.wrote(step, self.now);
        }
    }

    fn change(&mut self, step: &Step) {
        let before = self.attachment.clone();
        match step.clone() {
            Step::Prepare(place) => self.edit(|attachment| {
                attachment.finalizer = true;
                attachment.recorded_node = Some(place.node);
                attachment.recorded_volume = Some(place.volume);
            }),
            Step::MarkAttached(disk) => self.edit(|attachment| {
                (attachment.attached, attachment.disk) = (true, Some(disk));
                attachment.attach_error = None;
            }),
            Step::MarkDetached => self.edit(|attachment| {
                (attachment.attached, attachment.disk, attachment.detach_error) =
                    (false, None, None);
            }),
            Step::Show(field, problem) => {
                self.errors.push(self.now);
                let (code, message) = (problem.code(), problem.text);
                let shown = Some(Shown { error_code: Some(code), message });
                self.edit(|attachment| match field {
                    Field::AttachError => attachment.attach_error = shown,
                    Field::DetachError => attachment.detach_error = shown,
                });
            }
            Step::Release => {
                assert!(self.disks.is_empty(), "{:?} would stay attached", self.disks);
                self.edit(|attachment| attachment.finalizer = false);
            }
            step => panic!("{step:?} is not a write"),
        }
        assert_ne!(before, self.attachment, "{step:?} changes nothing");
    }

    fn verify(&mut self) {
        let Some(known) = self.known() else { return };
        let place = self.observer.place(&known.value);
        let settled = known.value.attached && !known.value.deleting;
        if settled && place.is_some_and(|place| !self.disks.contains(&place)) {
            self.progress.found_missing();
        }
    }

    /// Everything is well from here on, and work goes on until there is none.
    fn settle(&mut self) {
        (self.fail, self.lose, self.off) = (None, None, false);
        for event in
            [Happening::NodeMounts(false), Happening::VolumeMade(0), Happening::Keep(false)]
        {
            self.happen(&event);
        }
        if self.observer.csi_nodes.get("node-1").is_none() {
            self.happen(&Happening::CsiNodeMade(0));
        }
        for round in 0.. {
            assert!(round < 60, "no end: {:?}, {:?}", self.step(), self.attachment);
            match self.step() {
                None | Some(Step::Rest) => break,
                Some(_) => self.work(),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_history_ends_as_kubernetes_wants_it(history in prop::collection::vec(happening(), 0..30)) {
        let mut world = World::new();
        for happening in &history {
            world.happen(happening);
        }
        world.settle();
        world.verify();
        world.settle();
        match &world.attachment {
            None => prop_assert!(world.disks.is_empty()),
            Some(attachment) => {
                prop_assert!(attachment.attached && attachment.attach_error.is_none(), "{attachment:?}");
                let place = world.observer.place(attachment).unwrap();
                prop_assert_eq!(&world.disks, &[place].into());
                world.happen(&Happening::Restart);
                prop_assert_eq!(world.step(), Some(Step::Rest), "a new process has nothing to do");
                world.happen(&Happening::Delete);
                world.settle();
                prop_assert!(world.attachment.is_none() && world.disks.is_empty());
            }
        }
    }

    #[test]
    fn a_process_that_lives_writes_errors_rarely(
        history in prop::collection::vec(happening(), 0..60)
    ) {
        let mut world = World::new();
        let lasting = |happening: &&Happening| {
            !matches!(happening, Happening::Restart | Happening::Create | Happening::LoseWrite(_))
        };
        for happening in history.iter().filter(lasting) {
            world.happen(happening);
        }
        let close = world.errors.windows(2).find(|pair| pair[1] < pair[0] + ERROR_PAUSE);
        prop_assert!(close.is_none(), "{close:?}");
    }
}
