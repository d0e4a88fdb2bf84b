//! The node on real disks: loop devices, the tools of this machine, the kernel's own mounts.

use std::{fs, time::Duration};

use futures::FutureExt as _;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use crate::{
    node::{HostPaths, Node},
    refusal::Kind,
};

#[test]
fn a_volume_that_hangs_takes_no_threads_from_others() {
    let directory = TempDir::new().unwrap();
    let proc = directory.path().join("proc");
    fs::create_dir_all(proc.join("thread-self")).unwrap();
    // Whoever reads the mount table waits for a writer that never comes.
    let table = proc.join("thread-self/mountinfo");
    mknodat(CWD, &table, FileType::Fifo, Mode::RUSR, 0).unwrap();
    let node = Node::at(HostPaths { proc, ..HostPaths::default() });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let hangs = || node.stats("v".into(), directory.path().to_owned()).now_or_never();
        assert!(hangs().is_none());
        for _ in 0..10 {
            // The first caller has given up; its thread has not.
            assert_eq!(hangs().unwrap().unwrap_err().kind, Kind::Busy);
        }
        let other = node.stats("w".into(), "/nonexistent".into());
        let answer = tokio::time::timeout(Duration::from_secs(60), other).await.unwrap();
        assert_eq!(answer.unwrap_err().kind, Kind::NotFound);
    });
    runtime.shutdown_background();
}

mod nodes {
    use std::{
        env, fs,
        fs::{File, OpenOptions},
        future::Future,
        io::{Read as _, Seek as _, SeekFrom, Write as _},
        os::unix::fs::{FileTypeExt as _, symlink},
        path::{Path, PathBuf},
        process::{Command, Stdio},
    };

    use tempfile::TempDir;

    use crate::{
        node::{
            Expand, HostPaths, Node, Publish, Stage,
            device::{self, DiskUuid},
            held::Held,
            mounts::Options,
            plan::{Access, Step},
            probe::{FileSystem, Mark},
            run,
        },
        refusal::Kind,
    };

    const ALONE: &str = "CSI_TEST_HAS_MOUNTS_OF_ITS_OWN";
    const MIB: u64 = 1 << 20;

    /// Runs a test in a process with mounts of its own: whatever happens, the kernel removes them with it.
    fn alone<F: Future<Output = ()>>(name: &str, test: impl FnOnce() -> F) {
        if env::var_os(ALONE).is_some() {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            return runtime.block_on(test());
        }
        let (_, module) = module_path!().split_once("::").unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private"]).arg(env::current_exe().unwrap());
        command.args(["--exact", "--nocapture", &format!("{module}::{name}")]).env(ALONE, "1");
        let output = command.output().unwrap();
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed);
        assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
    }

    /// A node with one disk.
    struct World {
        directory: TempDir,
        node: Node,
        disk: DiskUuid,
        device: PathBuf,
        /// The kernel removes a loop device that was marked for it with its last user.
        _held: File,
    }

    impl World {
        fn new(size: u64) -> Self {
            let directory = TempDir::new().unwrap();
            let file = directory.path().join("disk");
            File::create(&file).unwrap().set_len(size).unwrap();
            let device = PathBuf::from(
                output(Command::new("losetup").args(["--find", "--show"]).arg(&file)).trim(),
            );
            let held = File::open(&device).unwrap();
            output(Command::new("losetup").arg("--detach").arg(&device));
            let disk: DiskUuid = "6000c29a-1234-5678-9abc-def012345678".parse().unwrap();
            let dev = directory.path().join("dev");
            fs::create_dir_all(dev.join("disk/by-id")).unwrap();
            symlink(&device, dev.join(format!("disk/by-id/wwn-0x{disk}"))).unwrap();
            let paths = HostPaths { dev, ..HostPaths::default() };
            Self { node: Node::at(paths), directory, disk, device, _held: held }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        fn request(&self, access: Access) -> Stage {
            Stage { volume: "v".into(), disk: self.disk, staging: self.path("staging"), access }
        }

        async fn stage(&self, kind: &str, options: &[&str]) -> Result<(), String> {
            let options = Options::parse(options.iter().copied());
            let access = Access::Mount { file_system: FileSystem::from_name(kind), options };
            self.node.stage(self.request(access)).await.map_err(|refusal| refusal.to_string())
        }

        async fn publish(&self, target: &str, options: &[&str]) -> Result<(), String> {
            let request = Publish {
                volume: "v".into(),
                device: None,
                staging: self.path("staging"),
                target: self.path(target),
                options: Options::parse(options.iter().copied()),
                single_writer: false,
            };
            self.node.publish(request).await.map_err(|refusal| refusal.to_string())
        }

        async fn unpublish(&self, target: &str) -> Result<(), String> {
            let done = self.node.unpublish("v".into(), self.path(target)).await;
            done.map_err(|refusal| refusal.to_string())
        }

        async fn unstage(&self) -> Result<(), String> {
            let done = self.node.unstage("v".into(), self.path("staging")).await;
            done.map_err(|refusal| refusal.to_string())
        }

        /// Does steps, as a call that has found this disk.
        fn run(&self, steps: &[Step]) -> Result<(), String> {
            let device = device::device(self.device.clone()).unwrap();
            let held = Held::open(&HostPaths::default(), self.disk, device).unwrap();
            run::steps("v", steps, Some(&held)).map_err(|refusal| refusal.to_string())
        }

        fn grow_disk(&self, size: u64) {
            OpenOptions::new().write(true).open(self.path("disk")).unwrap().set_len(size).unwrap();
            output(Command::new("losetup").arg("--set-capacity").arg(&self.device));
        }

        fn write(&self, offset: u64, bytes: &[u8]) {
            let mut disk = OpenOptions::new().write(true).open(&self.device).unwrap();
            disk.seek(SeekFrom::Start(offset)).unwrap();
            disk.write_all(bytes).unwrap();
            disk.sync_all().unwrap();
        }
    }

    fn output(command: &mut Command) -> String {
        let output = command.output().unwrap();
        assert!(
            output.status.success(),
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    fn assert_refused(done: Result<(), String>, text: &str) {
        let message = done.unwrap_err();
        assert!(message.contains(text), "{message}");
    }

    #[test]
    fn data_outlives_pods_and_every_call_may_be_repeated() {
        alone("data_outlives_pods_and_every_call_may_be_repeated", || async {
            for kind in ["ext4", "ext3", "xfs", "btrfs"] {
                let world = World::new(512 * MIB);
                for _ in 0..2 {
                    world.stage(kind, &["noatime"]).await.unwrap();
                }
                for target in ["pod-1", "pod-1", "pod-2"] {
                    world.publish(target, &[]).await.unwrap();
                }
                fs::write(world.path("pod-1/file"), kind).unwrap();
                assert_eq!(fs::read_to_string(world.path("pod-2/file")).unwrap(), kind);
                assert_refused(world.unstage().await, "pod-1");
                for target in ["pod-1", "pod-1", "pod-2", "never"] {
                    world.unpublish(target).await.unwrap();
                    assert!(!world.path(target).exists());
                }
                for _ in 0..2 {
                    world.unstage().await.unwrap();
                }
                world.stage("", &[]).await.unwrap();
                world.publish("pod-3", &["ro"]).await.unwrap();
                assert_eq!(fs::read_to_string(world.path("pod-3/file")).unwrap(), kind);
                assert!(
                    fs::write(world.path("pod-3/file"), "").is_err(),
                    "a read-only volume was written"
                );
                assert_refused(world.publish("pod-3", &[]).await, "read-only");
                assert_refused(world.stage("", &["ro"]).await, "for writing");
            }
        });
    }

    #[test]
    fn a_disk_that_is_not_blank_is_never_formatted() {
        alone("a_disk_that_is_not_blank_is_never_formatted", || async {
            let cases: [(u64, &[u8], &str); 5] = [
                (0, b"LUKS\xba\xbe", "a LUKS header"),
                (512, b"LABELONE", "an LVM physical volume"),
                (4086, b"SWAPSPACE2", "swap space"),
                (510, &[0x55, 0xaa], "an MBR partition table"),
                (700_000, b"somebody's data", "at 700000"),
            ];
            for (offset, bytes, name) in cases {
                let world = World::new(64 * MIB);
                world.write(offset, bytes);
                let before = fs::read(world.path("disk")).unwrap();
                assert_refused(world.stage("ext4", &[]).await, name);
                assert_eq!(
                    fs::read(world.path("disk")).unwrap(),
                    before,
                    "{name}: the disk was written"
                );
            }
            let world = World::new(512 * MIB);
            world.stage("xfs", &[]).await.unwrap();
            world.unstage().await.unwrap();
            assert_refused(world.stage("ext4", &[]).await, "holds xfs");
            assert_refused(World::new(MIB).stage("ext4", &[]).await, "too few");
            assert_refused(World::new(64 * MIB).stage("ext4", &["ro"]).await, "blank");
        });
    }

    #[test]
    fn a_disk_that_took_the_name_of_another_is_neither_written_nor_mounted() {
        alone("a_disk_that_took_the_name_of_another_is_neither_written_nor_mounted", || async {
            let blank = World::new(64 * MIB);
            let other = World::new(64 * MIB);
            other.stage("ext4", &[]).await.unwrap();
            fs::write(other.path("staging/file"), "data").unwrap();
            other.unstage().await.unwrap();
            let before = fs::read(other.path("disk")).unwrap();
            let device = || other.device.clone();
            let steps = [
                Step::Wipe(device()),
                Step::Mark(device()),
                Step::Format { device: device(), kind: FileSystem::Ext4 },
                Step::ClearMark(device()),
                Step::Check { device: device(), kind: FileSystem::Ext4 },
                Step::GrowUnmounted { device: device(), kind: FileSystem::Ext4 },
                Step::Mount {
                    device: device(),
                    target: blank.directory.path().to_owned(),
                    kind: FileSystem::Ext4,
                    options: Options::default(),
                },
                Step::Bind {
                    source: device(),
                    target: blank.path("disk"),
                    options: Options::default(),
                },
            ];
            for step in &steps {
                let refused = blank.run(std::slice::from_ref(step));
                assert_refused(refused, "is another disk by now");
            }
            // The same disk, on which somebody has written since it was found blank.
            for step in &steps[..3] {
                assert_refused(other.run(std::slice::from_ref(step)), "has changed since");
            }
            assert!(fs::read(other.path("disk")).unwrap() == before, "the disk was written");
        });
    }

    #[test]
    fn a_format_that_was_interrupted_is_done_again() {
        alone("a_format_that_was_interrupted_is_done_again", || async {
            for kind in ["ext4", "xfs"] {
                let world = World::new(512 * MIB);
                // What a node leaves that loses power in the middle of mkfs.
                let mut disk = OpenOptions::new().write(true).open(&world.device).unwrap();
                Mark::of(512 * MIB).unwrap().write(&mut disk).unwrap();
                drop(disk);
                world.write(40_000, b"half of a file system");
                world.stage(kind, &[]).await.unwrap();
                fs::write(world.path("staging/file"), "").unwrap();
            }
            // mkfs.btrfs clears more of the end than others, and writes another magic until it is done.
            let world = World::new(512 * MIB);
            let mut disk = OpenOptions::new().read(true).write(true).open(&world.device).unwrap();
            Mark::of(512 * MIB).unwrap().write(&mut disk).unwrap();
            drop(disk);
            world.write(510 * MIB, &vec![0; 2 << 20]);
            world.write(0x1_0040, b"!BHRfS_M");
            world.stage("btrfs", &[]).await.unwrap();
            fs::write(world.path("staging/file"), "").unwrap();
        });
    }

    #[test]
    fn a_volume_is_used_as_a_device() {
        alone("a_volume_is_used_as_a_device", || async {
            let world = World::new(64 * MIB);
            world.node.stage(world.request(Access::Block)).await.unwrap();
            let publish = || Publish {
                volume: "v".into(),
                device: Some(world.disk),
                staging: world.path("staging"),
                target: world.path("pods/device"),
                options: Options::default(),
                single_writer: false,
            };
            for _ in 0..2 {
                world.node.publish(publish()).await.unwrap();
            }
            let target = world.path("pods/device");
            assert!(fs::metadata(&target).unwrap().file_type().is_block_device());
            let mut device = OpenOptions::new().write(true).open(&target).unwrap();
            device.write_all(b"raw").unwrap();
            device.sync_all().unwrap();
            drop(device);
            assert_eq!(fs::read(world.path("disk")).unwrap()[..3], *b"raw");
            let second =
                Publish { target: world.path("pods/second"), single_writer: true, ..publish() };
            let refusal = world.node.publish(second).await.unwrap_err();
            assert_eq!(refusal.kind, Kind::Precondition, "{refusal}");
            let stats = world.node.stats("v".into(), target.clone()).await.unwrap();
            assert_eq!((stats.bytes.total, stats.inodes), (64 * MIB, None));
            world.grow_disk(96 * MIB);
            let expand = Expand { volume: "v".into(), path: target.clone(), bytes: 96 * MIB };
            assert_eq!(world.node.expand(expand).await.unwrap(), 96 * MIB);
            world.unpublish("pods/device").await.unwrap();
            assert!(!target.exists());
        });
    }

    #[test]
    fn a_file_system_grows_with_its_disk_while_it_is_used() {
        alone("a_file_system_grows_with_its_disk_while_it_is_used", || async {
            let world = World::new(512 * MIB);
            world.stage("xfs", &[]).await.unwrap();
            world.publish("pod", &[]).await.unwrap();
            let total = || async {
                world.node.stats("v".into(), world.path("pod")).await.unwrap().bytes.total
            };
            let before = total().await;
            world.grow_disk(1024 * MIB);
            for _ in 0..2 {
                let expand =
                    Expand { volume: "v".into(), path: world.path("pod"), bytes: 1024 * MIB };
                assert_eq!(world.node.expand(expand).await.unwrap(), 1024 * MIB);
            }
            assert!(total().await > before + 400 * MIB);
        });
    }

    #[test]
    fn a_file_system_that_is_smaller_than_its_disk_is_grown_before_it_is_mounted() {
        alone(
            "a_file_system_that_is_smaller_than_its_disk_is_grown_before_it_is_mounted",
            || async {
                for kind in ["ext4", "ext3"] {
                    let world = World::new(64 * MIB);
                    let total = || async {
                        world
                            .node
                            .stats("v".into(), world.path("staging"))
                            .await
                            .unwrap()
                            .bytes
                            .total
                    };
                    world.stage(kind, &[]).await.unwrap();
                    fs::write(world.path("staging/file"), vec![7; 1 << 20]).unwrap();
                    let before = total().await;
                    world.unstage().await.unwrap();
                    world.grow_disk(160 * MIB);
                    let bytes = || fs::read(world.path("disk")).unwrap();
                    let untouched = bytes();
                    world.stage(kind, &["ro", "noload"]).await.unwrap();
                    assert_eq!(total().await, before);
                    world.unstage().await.unwrap();
                    assert!(bytes() == untouched, "a read-only volume was written");
                    for _ in 0..2 {
                        world.stage(kind, &[]).await.unwrap();
                        assert!(total().await > before + 80 * MIB);
                        assert!(fs::read(world.path("staging/file")).unwrap() == vec![7; 1 << 20]);
                        // What kubelet asks next is done already.
                        let path = world.path("staging");
                        let expand = Expand { volume: "v".into(), path, bytes: 160 * MIB };
                        assert_eq!(world.node.expand(expand).await.unwrap(), 160 * MIB);
                        world.unstage().await.unwrap();
                        output(Command::new("e2fsck").args(["-f", "-n"]).arg(&world.device));
                    }
                }
            },
        );
    }

    #[test]
    fn a_file_system_that_cannot_grow_is_mounted_as_it_is() {
        alone("a_file_system_that_cannot_grow_is_mounted_as_it_is", || async {
            let world = World::new(512 * MIB);
            world.stage("ext4", &[]).await.unwrap();
            fs::write(world.path("staging/file"), "data").unwrap();
            world.unstage().await.unwrap();
            world.grow_disk(1024 * MIB);
            // In a mount namespace of its own, the tool is another one.
            let broken = world.path("resize2fs");
            fs::write(&broken, "#!/bin/sh\necho no memory >&2\nexit 1\n").unwrap();
            output(Command::new("chmod").arg("755").arg(&broken));
            let real = fs::canonicalize("/usr/sbin/resize2fs").unwrap();
            output(Command::new("mount").arg("--bind").arg(&broken).arg(real));
            world.stage("ext4", &[]).await.unwrap();
            assert_eq!(fs::read_to_string(world.path("staging/file")).unwrap(), "data");
        });
    }

    #[test]
    fn a_volume_that_another_mount_namespace_still_has_is_mounted_again() {
        alone("a_volume_that_another_mount_namespace_still_has_is_mounted_again", || async {
            let world = World::new(512 * MIB);
            world.stage("ext4", &[]).await.unwrap();
            fs::write(world.path("staging/file"), "data").unwrap();
            // A container that was started meanwhile has a copy of all mounts.
            let mut container = Command::new("unshare")
                .args(["--mount", "--propagation", "private", "sh", "-c", "echo ready; read end"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut ready = [0];
            container.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
            world.unstage().await.unwrap();
            world.stage("ext4", &[]).await.unwrap();
            assert_eq!(fs::read_to_string(world.path("staging/file")).unwrap(), "data");
            drop(container.stdin.take());
            container.wait().unwrap();
        });
    }

    #[test]
    fn errors_that_need_a_decision_are_refused() {
        alone("errors_that_need_a_decision_are_refused", || async {
            let world = World::new(512 * MIB);
            world.stage("ext4", &[]).await.unwrap();
            world.unstage().await.unwrap();
            // The kernel has found errors, and the root directory is gone.
            for change in ["set_super_value state 2", "clri <2>"] {
                output(Command::new("debugfs").args(["-w", "-R", change]).arg(&world.device));
            }
            assert_refused(world.stage("ext4", &[]).await, "run fsck on");
        });
    }

    #[test]
    fn a_mount_in_use_is_not_taken_away() {
        alone("a_mount_in_use_is_not_taken_away", || async {
            let world = World::new(512 * MIB);
            world.stage("ext4", &[]).await.unwrap();
            world.publish("pod", &[]).await.unwrap();
            let open = File::create(world.path("pod/file")).unwrap();
            assert_refused(world.unpublish("pod").await, "fuser -vm");
            drop(open);
            world.unpublish("pod").await.unwrap();
        });
    }

    #[test]
    fn a_read_only_bind_that_was_cut_short_is_completed() {
        alone("a_read_only_bind_that_was_cut_short_is_completed", || async {
            let world = World::new(512 * MIB);
            world.stage("ext4", &[]).await.unwrap();
            // The first half of publishing it read-only.
            fs::create_dir(world.path("pod")).unwrap();
            rustix::mount::mount_bind(world.path("staging"), world.path("pod")).unwrap();
            for _ in 0..2 {
                world.publish("pod", &["ro"]).await.unwrap();
                assert!(fs::write(world.path("pod/file"), "").is_err());
            }
            fs::write(world.path("staging/file"), "").unwrap();
        });
    }

    #[test]
    fn a_read_only_bind_keeps_the_options_of_the_staged_mount() {
        alone("a_read_only_bind_keeps_the_options_of_the_staged_mount", || async {
            let world = World::new(512 * MIB);
            world.stage("ext4", &["nosuid", "nodev", "noexec", "noatime"]).await.unwrap();
            world.publish("pod", &["ro"]).await.unwrap();
            let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
            let pod = world.path("pod").display().to_string();
            let line = table.lines().find(|line| line.contains(&pod)).unwrap();
            assert!(line.contains(" ro,nosuid,nodev,noexec,noatime "), "{line}");
        });
    }

    #[test]
    fn options_that_the_file_system_does_not_know_are_named() {
        alone("options_that_the_file_system_does_not_know_are_named", || async {
            let world = World::new(512 * MIB);
            let refused = world.stage("ext4", &["_netdev", "noatime", "shiny"]).await;
            assert_refused(refused, "ext4 may not know one of the mount options shiny;");
            world.stage("ext4", &["_netdev", "noatime"]).await.unwrap();
        });
    }

    #[test]
    fn files_below_a_target_are_never_removed() {
        alone("files_below_a_target_are_never_removed", || async {
            let world = World::new(64 * MIB);
            fs::create_dir(world.path("pod")).unwrap();
            fs::write(world.path("pod/precious"), "data").unwrap();
            assert_refused(world.unpublish("pod").await, "holds files that are not on the volume");
            assert_eq!(fs::read_to_string(world.path("pod/precious")).unwrap(), "data");
        });
    }

    #[test]
    fn a_path_without_a_volume_has_no_stats() {
        alone("a_path_without_a_volume_has_no_stats", || async {
            let world = World::new(MIB);
            for path in [Path::new("/nonexistent"), world.directory.path()] {
                let refusal = world.node.stats("v".into(), path.to_owned()).await.unwrap_err();
                assert_eq!(refusal.kind, Kind::NotFound, "{refusal}");
            }
        });
    }
}
