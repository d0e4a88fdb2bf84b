//! Plans by table: from what is found on a node to what is done there.

use std::path::{Path, PathBuf};

use super::{
    Access, Disk, Place, PublishFacts, StageFacts, Step, Subject, publish, stage, unpublish,
    unstage,
};
use crate::{
    node::{
        Publish,
        device::Device,
        mounts::{Mount, Options},
        probe::{Content, FileSystem},
    },
    refusal::{Kind, Refusal},
};

const STAGING: &str = "/staging";
const TARGET: &str = "/pod";
const VOLUME: Subject<'_> = Subject("v-1");

fn disk(content: Content) -> Disk {
    let device = Device { path: "/dev/sdb".into(), name: "sdb".into(), number: (8, 16) };
    Disk { device, size: 1 << 30, content, has_room: false }
}

fn mount(number: (u32, u32), root: &str, target: &str, read_only: bool) -> Mount {
    Mount {
        device: number,
        root: root.into(),
        target: target.into(),
        mount_read_only: read_only,
        file_system_read_only: false,
        kind: "ext4".into(),
        source: format!("/dev/{}-{}", number.0, number.1).into(),
    }
}

fn access(file_system: Option<FileSystem>, options: &[&str]) -> Access {
    let options = Options::parse(options.iter().copied());
    Access::Mount { file_system, options }
}

/// The names of the steps, or the kind of the refusal and its text.
fn outcome(planned: Result<Vec<Step>, Refusal>) -> Result<Vec<&'static str>, (Kind, String)> {
    let name = |step: &Step| match step {
        Step::CreateDirectory(_) => "directory",
        Step::CreateFile(_) => "file",
        Step::Wipe(_) => "wipe",
        Step::Mark(_) => "mark",
        Step::Format { .. } => "format",
        Step::ClearMark(_) => "clear",
        Step::Check { .. } => "check",
        Step::GrowUnmounted { .. } => "grow-unmounted",
        Step::Mount { .. } => "mount",
        Step::Bind { .. } => "bind",
        Step::MakeReadOnly { .. } => "read-only",
        Step::Grow { .. } => "grow",
        Step::Unmount(_) => "unmount",
        Step::RemoveDirectory(_) => "rmdir",
        Step::RemoveFile(_) => "rm",
    };
    match planned {
        Ok(steps) => Ok(steps.iter().map(name).collect()),
        Err(refusal) => Err((refusal.kind, refusal.to_string())),
    }
}

fn staged(
    content: Content,
    access: &Access,
    mounts: &[Mount],
    target: Place,
) -> Result<Vec<&'static str>, (Kind, String)> {
    let facts = StageFacts { disk: disk(content), mounts: mounts.to_vec(), target };
    outcome(stage(VOLUME, Path::new(STAGING), access, &facts))
}

fn assert_refused<T: std::fmt::Debug>(outcome: Result<T, (Kind, String)>, kind: Kind, text: &str) {
    let (found, message) = outcome.unwrap_err();
    assert_eq!(found, kind, "{message}");
    assert!(message.contains("v-1") && message.contains(text), "{message}");
}

#[test]
fn a_blank_disk_is_formatted_as_asked_and_as_ext4_otherwise() {
    let fresh = |wanted| {
        let facts =
            StageFacts { disk: disk(Content::Blank), mounts: Vec::new(), target: Place::Directory };
        let steps = stage(VOLUME, Path::new(STAGING), &access(wanted, &[]), &facts).unwrap();
        let format = steps.iter().find_map(|step| match step {
            Step::Format { kind, .. } => Some(*kind),
            _ => None,
        });
        (outcome(Ok(steps)).unwrap(), format)
    };
    let ext = vec!["mark", "format", "clear", "check", "mount"];
    assert_eq!(fresh(None), (ext.clone(), Some(FileSystem::Ext4)));
    assert_eq!(fresh(Some(FileSystem::Ext3)), (ext, Some(FileSystem::Ext3)));
    assert_eq!(
        fresh(Some(FileSystem::Xfs)),
        (vec!["mark", "format", "clear", "mount"], Some(FileSystem::Xfs))
    );
}

#[test]
fn only_a_blank_disk_or_one_that_we_began_to_format_is_ever_formatted() {
    let any = access(None, &[]);
    let ext4 = |marked| Content::FileSystem { kind: FileSystem::Ext4, marked };
    let contents = [
        Content::Blank,
        Content::Interrupted,
        ext4(true),
        ext4(false),
        Content::Foreign("a LUKS header"),
        Content::Unknown { offset: 7 },
    ];
    for content in contents {
        let formats = staged(content, &any, &[], Place::Directory)
            .is_ok_and(|steps| steps.contains(&"format"));
        let may = matches!(content, Content::Blank | Content::Interrupted);
        assert_eq!(formats, may, "{content:?}");
    }
    assert_eq!(
        staged(Content::Interrupted, &any, &[], Place::Directory).unwrap(),
        ["wipe", "mark", "format", "clear", "check", "mount"]
    );
    assert_eq!(
        staged(ext4(true), &any, &[], Place::Absent).unwrap(),
        ["directory", "clear", "check", "mount"]
    );
    assert_refused(
        staged(Content::Foreign("a LUKS header"), &any, &[], Place::Directory),
        Kind::Precondition,
        "LUKS",
    );
    assert_refused(
        staged(Content::Unknown { offset: 7 }, &any, &[], Place::Directory),
        Kind::Precondition,
        "at 7",
    );
}

#[test]
fn a_read_only_volume_is_neither_formatted_nor_repaired() {
    let read_only = access(None, &["ro"]);
    let found = Content::FileSystem { kind: FileSystem::Ext4, marked: true };
    assert_eq!(staged(found, &read_only, &[], Place::Directory).unwrap(), ["mount"]);
    for content in [Content::Blank, Content::Interrupted] {
        assert_refused(
            staged(content, &read_only, &[], Place::Directory),
            Kind::Precondition,
            "blank",
        );
    }
}

#[test]
fn an_ext_file_system_is_grown_after_its_check_and_before_its_mount_unless_it_is_read_only() {
    let planned = |kind, options: &[&str]| {
        let content = Content::FileSystem { kind, marked: false };
        let disk = Disk { has_room: true, ..disk(content) };
        let facts = StageFacts { disk, mounts: Vec::new(), target: Place::Directory };
        outcome(stage(VOLUME, Path::new(STAGING), &access(None, options), &facts)).unwrap()
    };
    for kind in [FileSystem::Ext2, FileSystem::Ext3, FileSystem::Ext4] {
        assert_eq!(planned(kind, &[]), ["check", "grow-unmounted", "mount"], "{kind}");
        assert_eq!(planned(kind, &["ro"]), ["mount"], "{kind}");
    }
    for kind in [FileSystem::Xfs, FileSystem::Btrfs] {
        assert_eq!(planned(kind, &[]), ["mount"], "{kind}");
    }
}

#[test]
fn another_file_system_than_the_one_asked_for_is_refused_within_ext_it_serves() {
    let on = |kind, wanted| {
        let content = Content::FileSystem { kind, marked: false };
        staged(content, &access(wanted, &[]), &[], Place::Directory)
    };
    assert_refused(
        on(FileSystem::Ext4, Some(FileSystem::Xfs)),
        Kind::Precondition,
        "set fsType to ext4",
    );
    assert!(on(FileSystem::Ext3, Some(FileSystem::Ext4)).is_ok());
    assert!(on(FileSystem::Xfs, None).is_ok());
}

#[test]
fn copies_of_an_xfs_volume_may_be_on_one_node() {
    let content = Content::FileSystem { kind: FileSystem::Xfs, marked: false };
    let facts = StageFacts { disk: disk(content), mounts: Vec::new(), target: Place::Directory };
    let steps = stage(VOLUME, Path::new(STAGING), &access(None, &[]), &facts).unwrap();
    let [Step::Mount { options, .. }] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!(*options, Options::parse(["nouuid"]));
}

#[test]
fn a_volume_that_is_staged_stays_so_and_what_is_mounted_instead_is_named() {
    let any = access(None, &[]);
    let found = Content::FileSystem { kind: FileSystem::Ext4, marked: false };
    let again = |mounts: &[Mount], access: &Access| staged(found, access, mounts, Place::Directory);
    let here = mount((8, 16), "/", STAGING, false);
    assert_eq!(again(std::slice::from_ref(&here), &any).unwrap(), Vec::<&str>::new());
    assert_refused(again(&[mount((8, 16), "/", STAGING, true)], &any), Kind::Differs, "read-only");
    assert_refused(
        again(std::slice::from_ref(&here), &access(None, &["ro"])),
        Kind::Differs,
        "for writing",
    );
    let stranger = mount((8, 32), "/", STAGING, false);
    assert_refused(again(std::slice::from_ref(&stranger), &any), Kind::Precondition, "/dev/8-32");
    // A later mount covers an earlier one.
    assert_refused(again(&[here.clone(), stranger.clone()], &any), Kind::Precondition, "/dev/8-32");
    assert_eq!(again(&[stranger, here], &any).unwrap(), Vec::<&str>::new());
    assert_refused(
        again(&[mount((8, 16), "/", "/elsewhere", false)], &any),
        Kind::Precondition,
        "/elsewhere",
    );
}

#[test]
fn a_device_is_staged_by_being_there() {
    assert_eq!(
        staged(Content::Unknown { offset: 0 }, &Access::Block, &[], Place::Directory).unwrap(),
        Vec::<&str>::new()
    );
}

fn published(
    device: bool,
    mounts: &[Mount],
    target: Place,
    options: &[&str],
) -> Result<Vec<&'static str>, (Kind, String)> {
    published_by(false, device, mounts, &[], target, options)
}

/// By a pod that shares the volume, or by one that must be the only one.
fn published_by(
    single_writer: bool,
    device: bool,
    mounts: &[Mount],
    shown: &[&str],
    target: Place,
    options: &[&str],
) -> Result<Vec<&'static str>, (Kind, String)> {
    let facts = PublishFacts {
        device: device.then(|| disk(Content::Blank).device),
        shown: shown.iter().map(PathBuf::from).collect(),
        mounts: mounts.to_vec(),
        target,
    };
    let request = Publish {
        volume: VOLUME.0.to_owned(),
        device: None,
        staging: STAGING.into(),
        target: TARGET.into(),
        options: Options::parse(options.iter().copied()),
        single_writer,
    };
    outcome(publish(&request, &facts))
}

#[test]
fn a_volume_of_one_pod_is_shown_to_no_second_one() {
    let staging = mount((8, 16), "/", STAGING, false);
    let here = mount((8, 16), "/", TARGET, false);
    let other = mount((8, 16), "/", "/other-pod", false);
    let stranger = mount((8, 32), "/", "/other-volume", false);
    let file_system = |alone, mounts: &[&Mount]| {
        let mounts: Vec<Mount> = mounts.iter().copied().cloned().collect();
        published_by(alone, false, &mounts, &[], Place::Directory, &[])
    };
    assert_eq!(file_system(true, &[&staging, &stranger]).unwrap(), ["bind"]);
    assert_eq!(file_system(false, &[&staging, &other]).unwrap(), ["bind"]);
    let refused = file_system(true, &[&staging, &other]);
    assert_refused(refused, Kind::Precondition, "/other-pod");
    // A call that is repeated is answered as the first one was.
    assert_eq!(file_system(true, &[&staging, &here, &other]).unwrap(), Vec::<&str>::new());
    let device = |shown: &[&str]| published_by(true, true, &[], shown, Place::File, &[]);
    assert_eq!(device(&[]).unwrap(), ["bind"]);
    assert_refused(device(&["/other-pod/device"]), Kind::Precondition, "/other-pod/device");
}

#[test]
fn a_staged_volume_is_bound_to_the_pod() {
    let staging = mount((8, 16), "/", STAGING, false);
    assert_eq!(
        published(false, std::slice::from_ref(&staging), Place::Absent, &[]).unwrap(),
        ["directory", "bind"]
    );
    assert_eq!(
        published(false, std::slice::from_ref(&staging), Place::Directory, &[]).unwrap(),
        ["bind"]
    );
    assert_refused(published(false, &[], Place::Absent, &[]), Kind::Precondition, STAGING);
    assert_refused(
        published(false, std::slice::from_ref(&staging), Place::File, &[]),
        Kind::Precondition,
        TARGET,
    );
    let there = mount((8, 16), "/", TARGET, false);
    let read_only = mount((8, 16), "/", TARGET, true);
    let stranger = mount((8, 32), "/", TARGET, false);
    let again = |other: Mount, options: &[&str]| {
        published(false, &[staging.clone(), other], Place::Directory, options)
    };
    assert_eq!(again(there.clone(), &[]).unwrap(), Vec::<&str>::new());
    assert_eq!(again(read_only.clone(), &["ro"]).unwrap(), Vec::<&str>::new());
    // What a process leaves that ends in the middle of a read-only bind.
    assert_eq!(again(there, &["ro"]).unwrap(), ["read-only"]);
    assert_refused(again(read_only, &[]), Kind::Differs, "read-only");
    assert_refused(again(stranger, &[]), Kind::Differs, "/dev/8-32");
}

#[test]
fn a_device_is_bound_to_a_file() {
    assert_eq!(published(true, &[], Place::Absent, &[]).unwrap(), ["file", "bind"]);
    assert_eq!(published(true, &[], Place::File, &[]).unwrap(), ["bind"]);
    assert_refused(published(true, &[], Place::Directory, &[]), Kind::Precondition, TARGET);
    let there = mount((0, 5), "/sdb", TARGET, false);
    assert_eq!(published(true, &[there], Place::File, &[]).unwrap(), Vec::<&str>::new());
    let other = mount((0, 5), "/sdc", TARGET, false);
    assert_refused(published(true, &[other], Place::File, &[]), Kind::Differs, TARGET);
}

#[test]
fn unpublishing_removes_every_mount_and_then_the_path() {
    let there = mount((8, 16), "/", TARGET, false);
    let done =
        |mounts: &[Mount], place| outcome(Ok(unpublish(Path::new(TARGET), mounts, place))).unwrap();
    assert_eq!(done(&[], Place::Absent), Vec::<&str>::new());
    assert_eq!(done(std::slice::from_ref(&there), Place::Directory), ["unmount", "rmdir"]);
    assert_eq!(
        done(&[there.clone(), there.clone()], Place::Directory),
        ["unmount", "unmount", "rmdir"]
    );
    assert_eq!(done(std::slice::from_ref(&there), Place::File), ["unmount", "rm"]);
    assert_eq!(done(&[there], Place::Broken), ["unmount", "rmdir"]);
    assert_eq!(done(&[], Place::Directory), ["rmdir"]);
}

#[test]
fn a_volume_that_a_pod_still_has_is_not_unstaged() {
    let staging = mount((8, 16), "/", STAGING, false);
    let done = |mounts: &[Mount]| outcome(unstage(VOLUME, Path::new(STAGING), mounts));
    assert_eq!(done(&[]).unwrap(), Vec::<&str>::new());
    assert_eq!(done(std::slice::from_ref(&staging)).unwrap(), ["unmount"]);
    assert_eq!(
        done(&[staging.clone(), mount((8, 32), "/", "/other", false)]).unwrap(),
        ["unmount"]
    );
    assert_refused(
        done(&[staging, mount((8, 16), "/sub", "/pod", false)]),
        Kind::Precondition,
        "/pod",
    );
}

/// A machine in miniature: what steps do to facts.
#[derive(Clone, Debug)]
struct Machine {
    content: Content,
    mounts: Vec<Mount>,
    staging: Place,
}

impl Machine {
    fn run(&mut self, step: &Step) {
        match step {
            Step::CreateDirectory(_) => self.staging = Place::Directory,
            Step::Wipe(_) => self.content = Content::Blank,
            Step::Mark(_) => self.content = Content::Interrupted,
            Step::Format { kind, .. } => {
                self.content = Content::FileSystem { kind: *kind, marked: true }
            }
            Step::ClearMark(_) => {
                if let Content::FileSystem { marked, .. } = &mut self.content {
                    *marked = false;
                }
            }
            Step::Mount { target, options, .. } => {
                let target: PathBuf = target.clone();
                let read_only = options.read_only();
                self.mounts.push(mount((8, 16), "/", target.to_str().unwrap(), read_only));
            }
            Step::Check { .. } => {}
            other => panic!("{other:?} is not a step of staging"),
        }
    }

    fn plan(&self, access: &Access) -> Vec<Step> {
        let facts = StageFacts {
            disk: disk(self.content),
            mounts: self.mounts.clone(),
            target: self.staging,
        };
        stage(VOLUME, Path::new(STAGING), access, &facts).unwrap()
    }
}

#[test]
fn after_a_crash_between_any_two_steps_staging_ends_in_the_same_state() {
    let wanted = access(Some(FileSystem::Xfs), &[]);
    let fresh = Machine { content: Content::Blank, mounts: Vec::new(), staging: Place::Absent };
    let mut whole = fresh.clone();
    let steps = fresh.plan(&wanted);
    steps.iter().for_each(|step| whole.run(step));
    for crash in 0..=steps.len() {
        let mut machine = fresh.clone();
        steps[..crash].iter().for_each(|step| machine.run(step));
        machine.plan(&wanted).iter().for_each(|step| machine.run(step));
        assert_eq!(
            (machine.content, &machine.mounts),
            (whole.content, &whole.mounts),
            "after {crash} steps"
        );
        assert!(machine.plan(&wanted).is_empty());
    }
}
