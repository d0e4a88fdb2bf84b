//! Kills the driver at every step on a real disk (a loop device) and calls again: the answer and the state are those
//! without the kill.
//!
//! No hook in the driver stops it. It logs a line after every step, and its log is a pipe with room for one line: a
//! reader that takes n lines lets it do n steps more than it began with, and then it waits in the middle of the call.

use std::{
    cell::Cell,
    env, fs,
    fs::File,
    future::Future,
    io::Read as _,
    os::{
        fd::OwnedFd,
        unix::{fs::symlink, process::CommandExt as _},
    },
    path::{Path, PathBuf},
    pin::pin,
    process::{Child, Command, Stdio},
};

use csi::{
    client::Client,
    proto::{
        NodePublishVolumeRequest, NodePublishVolumeResponse, NodeStageVolumeRequest,
        NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
        NodeUnstageVolumeRequest, NodeUnstageVolumeResponse, VolumeCapability,
        volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode},
    },
};
use lab::{Wait, until};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use tokio::net::unix::pipe::Receiver;
use tonic::Status;

use crate::{
    driver::{NAME, Place},
    process::BOUND,
};

const ALONE: &str = "CSI_TEST_HAS_MOUNTS_OF_ITS_OWN";
const DISK: &str = "6000c29a123456789abcdef012345678";
const MIB: u64 = 1 << 20;

/// Runs a test in a process with mounts of its own: whatever happens, the kernel removes them with it.
fn alone<F: Future<Output = ()>>(name: &str, test: impl FnOnce() -> F) {
    if env::var_os(ALONE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(test());
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]).arg(env::current_exe().unwrap());
    command.args(["--exact", "--nocapture", &format!("nodes::{name}")]).env(ALONE, "1");
    let output = command.output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
}

fn run(command: &mut Command) -> String {
    lab::run(command).unwrap()
}

/// A node with one disk, and a `/dev` of its own in which the disk has its link.
struct Machine {
    place: Place,
    access: AccessType,
    /// Whether a pod has used it.
    written: Cell<bool>,
    /// The kernel removes a loop device that was marked for it with its last user.
    _held: File,
}

impl Machine {
    fn new(access: AccessType) -> Self {
        let place = Place::new();
        let file = place.path("disk");
        File::create(&file).unwrap().set_len(512 * MIB).unwrap();
        let device = run(Command::new("losetup").args(["--find", "--show"]).arg(&file));
        let device = PathBuf::from(device.trim());
        let held = File::open(&device).unwrap();
        run(Command::new("losetup").arg("--detach").arg(&device));
        let dev = place.path("dev");
        fs::create_dir(&dev).unwrap();
        run(Command::new("mount").args(["-t", "tmpfs", "dev"]).arg(&dev));
        let nodes = ["null", "zero", "full", "random", "urandom", "loop-control"];
        let nodes = nodes.map(|node| Path::new("/dev").join(node));
        run(Command::new("cp").arg("-a").args(nodes).arg(&device).arg(&dev));
        fs::create_dir_all(dev.join("disk/by-id")).unwrap();
        symlink(&device, dev.join(format!("disk/by-id/wwn-0x{DISK}"))).unwrap();
        run(Command::new("mount").arg("--bind").arg(&dev).arg("/dev"));
        Self { place, access, written: Cell::new(false), _held: held }
    }

    fn capability(&self) -> Option<VolumeCapability> {
        let access_mode = Some(AccessMode { mode: Mode::SingleNodeWriter.into() });
        Some(VolumeCapability { access_mode, access_type: Some(self.access.clone()) })
    }

    async fn call(&self, client: &mut Client, operation: Operation) -> Result<(), Status> {
        let volume_id = "v".to_owned();
        let context = || [("diskUUID".to_owned(), DISK.to_owned())].into();
        let staging_target_path = self.place.text("kubelet/staging");
        let target_path = self.place.text("kubelet/pods/a/volume");
        match operation {
            Operation::Stage => {
                let request = NodeStageVolumeRequest {
                    volume_id,
                    publish_context: context(),
                    staging_target_path,
                    volume_capability: self.capability(),
                    ..NodeStageVolumeRequest::default()
                };
                let method = "/csi.v1.Node/NodeStageVolume";
                client.call::<_, NodeStageVolumeResponse>(method, request).await.map(drop)
            }
            Operation::Publish => {
                let request = NodePublishVolumeRequest {
                    volume_id,
                    publish_context: context(),
                    staging_target_path,
                    target_path,
                    volume_capability: self.capability(),
                    ..NodePublishVolumeRequest::default()
                };
                let method = "/csi.v1.Node/NodePublishVolume";
                client.call::<_, NodePublishVolumeResponse>(method, request).await.map(drop)
            }
            Operation::Unpublish => {
                let request = NodeUnpublishVolumeRequest { volume_id, target_path };
                let method = "/csi.v1.Node/NodeUnpublishVolume";
                client.call::<_, NodeUnpublishVolumeResponse>(method, request).await.map(drop)
            }
            Operation::Unstage => {
                let request = NodeUnstageVolumeRequest { volume_id, staging_target_path };
                let method = "/csi.v1.Node/NodeUnstageVolume";
                client.call::<_, NodeUnstageVolumeResponse>(method, request).await.map(drop)
            }
        }
    }

    /// What a pod sees at its target.
    fn target(&self) -> PathBuf {
        self.place.path("kubelet/pods/a/volume")
    }

    /// Does these operations with a driver of their own; a volume that is published is used.
    async fn live(&self, operations: &[Operation]) {
        let _driver = self.place.start(&[]);
        let mut client = self.place.connect("csi/csi.sock").await;
        for operation in operations {
            let answer = self.call(&mut client, *operation).await;
            answer.unwrap_or_else(|status| panic!("{operation:?}: {status}"));
            if *operation == Operation::Publish {
                self.use_it();
            }
        }
    }

    /// Writes as a pod does, or reads what it wrote before.
    fn use_it(&self) {
        let is_block = matches!(self.access, AccessType::Block(_));
        let path = if is_block { self.target() } else { self.target().join("file") };
        if self.written.replace(true) {
            let mut read = [0; 4];
            File::open(&path).unwrap().read_exact(&mut read).unwrap();
            assert_eq!(&read, b"data");
        } else {
            fs::write(&path, "data").unwrap();
            run(Command::new("sync").arg(&path));
        }
    }

    fn assert_clean(&self) {
        assert!(!self.target().exists());
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let below = self.place.text("kubelet");
        assert!(!mounts.contains(&below), "{mounts}");
    }
}

impl Drop for Machine {
    /// Gives the next machine the real `/dev`, and lets go of the disk.
    fn drop(&mut self) {
        let volume = [self.target(), self.place.path("kubelet/staging")];
        for path in volume.iter().chain(&[PathBuf::from("/dev"), self.place.path("dev")]) {
            Command::new("umount").args(["--lazy", "--quiet"]).arg(path).status().ok();
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Stage,
    Publish,
    Unpublish,
    Unstage,
}

const LIFE: [Operation; 4] =
    [Operation::Stage, Operation::Publish, Operation::Unpublish, Operation::Unstage];

/// The driver, with a log that has room for one line.
struct Stepped {
    child: Child,
    log: Receiver,
    client: Client,
}

impl Stepped {
    async fn start(place: &Place) -> Self {
        // A packet for each line, and room for one packet.
        let (reader, writer): (OwnedFd, OwnedFd) =
            pipe_with(PipeFlags::CLOEXEC | PipeFlags::DIRECT).unwrap();
        fcntl_setpipe_size(&writer, 4096).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_vsphere-drivers"));
        command.arg0(NAME).env("CSI_ENDPOINT", place.endpoint()).env("X_CSI_MODE", "node");
        let child = command.stdin(Stdio::null()).stderr(Stdio::from(writer)).spawn().unwrap();
        // The command holds the end of the pipe that the child has.
        drop(command);
        let mut log = Receiver::from_owned_fd(reader).unwrap();
        while !line(&mut log).await.contains("serving gRPC") {}
        let mut client = place.connect("csi/csi.sock").await;
        // Its line stays in the pipe, so that the next one has to wait.
        let unknown = client.call::<_, ()>("/unknown/Method", ()).await;
        unknown.unwrap_err();
        Self { child, log, client }
    }

    /// Waits until the driver waits for somebody to read its log.
    async fn until_blocked(&self) {
        let tasks = PathBuf::from(format!("/proc/{}/task", self.child.id()));
        // The number of write differs between architectures, its first argument does not.
        let writes = |text: &str| {
            let mut words = text.split_whitespace();
            matches!(words.next(), Some("1" | "64")) && words.next() == Some("0x2")
        };
        let waited = until("the driver waits", BOUND, || async {
            let mut calls = fs::read_dir(&tasks)?
                .flatten()
                .map(|task| fs::read_to_string(task.path().join("syscall")).unwrap_or_default());
            let blocked = calls.any(|text| writes(&text));
            Ok(if blocked { Wait::Done(()) } else { Wait::NotYet(String::new()) })
        });
        waited.await.unwrap();
    }

    /// Calls, and kills the driver when so many lines of its log were read; `false` if it answered before.
    async fn killed_at(mut self, machine: &Machine, operation: Operation, lines: usize) -> bool {
        let mut client = self.client.clone();
        let steps = async {
            for _ in 0..lines {
                self.until_blocked().await;
                line(&mut self.log).await;
            }
            self.until_blocked().await;
        };
        // The caller waits until the driver is gone.
        let mut call = pin!(machine.call(&mut client, operation));
        let was_killed = tokio::select! {
            answer = &mut call => {
                answer.unwrap();
                false
            }
            () = steps => true,
        };
        drop(self);
        was_killed
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The next line of a log.
async fn line(log: &mut Receiver) -> String {
    let mut packet = vec![0; 8192];
    loop {
        log.readable().await.unwrap();
        match log.try_read(&mut packet) {
            Ok(0) => panic!("the driver has ended"),
            Ok(length) => return String::from_utf8_lossy(&packet[..length]).into_owned(),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Runs the whole life of a volume with one kill; `false` if the operation ended before it.
async fn survives(access: &AccessType, killed: usize, lines: usize) -> bool {
    let machine = Machine::new(access.clone());
    machine.live(&LIFE[..killed]).await;
    let driver = Stepped::start(&machine.place).await;
    let was_killed = driver.killed_at(&machine, LIFE[killed], lines).await;
    // Whether it was killed or not, the call is made again.
    machine.live(&LIFE[killed..]).await;
    machine.assert_clean();
    // What was written is on the disk.
    machine.live(&LIFE[..2]).await;
    was_killed
}

async fn survives_every_kill(access: AccessType, steps: [usize; 4]) {
    for (operation, steps) in steps.into_iter().enumerate() {
        let mut kills = 0;
        while survives(&access, operation, kills).await {
            kills += 1;
        }
        // A line for each step, and one for the answer.
        assert_eq!(kills, steps + 1, "{:?}", LIFE[operation]);
    }
}

fn file_system(name: &str) -> AccessType {
    AccessType::Mount(MountVolume { fs_type: name.to_owned(), ..MountVolume::default() })
}

#[test]
fn a_kill_at_any_step_of_a_file_system_harms_nothing() {
    alone("a_kill_at_any_step_of_a_file_system_harms_nothing", || async {
        // Directory, mark, format, mark removed, check, mount; directory, bind; and back.
        survives_every_kill(file_system("ext4"), [6, 2, 2, 1]).await;
    });
}

#[test]
fn a_kill_at_any_step_of_a_device_harms_nothing() {
    alone("a_kill_at_any_step_of_a_device_harms_nothing", || async {
        survives_every_kill(AccessType::Block(BlockVolume {}), [0, 2, 2, 0]).await;
    });
}

#[test]
fn a_kill_in_the_middle_of_a_format_is_followed_by_a_new_format() {
    alone("a_kill_in_the_middle_of_a_format_is_followed_by_a_new_format", || async {
        for kind in ["ext4", "xfs"] {
            let machine = Machine::new(file_system(kind));
            // Writes a part of a file system, then takes its caller with it.
            let broken = machine.place.path("mkfs");
            let script = "#!/bin/sh\nfor device; do :; done\nprintf half | dd of=$device bs=4096 seek=10 \
                          conv=notrunc\nkill -KILL $PPID\n";
            fs::write(&broken, script).unwrap();
            run(Command::new("chmod").arg("755").arg(&broken));
            let real = fs::canonicalize(format!("/usr/sbin/mkfs.{kind}")).unwrap();
            run(Command::new("mount").arg("--bind").arg(&broken).arg(&real));
            let mut driver = machine.place.start(&[]);
            let mut client = machine.place.connect("csi/csi.sock").await;
            machine.call(&mut client, Operation::Stage).await.unwrap_err();
            let (status, text) = driver.until_ended();
            assert!(!status.success(), "{text}");
            run(Command::new("umount").arg(&real));
            machine.live(&LIFE).await;
            machine.assert_clean();
        }
    });
}
