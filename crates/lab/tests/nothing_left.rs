//! After a lab, and after the violent death of one, nothing of it is left on the machine. Needs root.
//!
//! A test program of its own, with one test: it reaps abandoned worlds and counts them, so no other lab of
//! this test run may be killed meanwhile. Other labs and other programs may run beside it: what belongs to
//! a world is found by the world's records, parents, namespaces, cgroup and directory.

mod nodes {
    use std::{
        collections::BTreeSet,
        ffi::OsString,
        fs,
        io::{BufRead, BufReader},
        path::{Path, PathBuf},
        process::{Child, Command, Stdio},
        time::Duration,
    };

    use anyhow::{Context, Result};
    use lab::{ControlPlane, Lab, Spec, Wait, until};

    const BOUND: Duration = Duration::from_secs(120);
    const ROLE: &str = "LAB_TEST_ROLE";
    const READY: &str = "victim is ready in ";

    /// A process by its id and its start time, because ids are reused.
    type Process = (u32, u64);

    /// What one world has on the machine, collected while it runs.
    struct Footprint {
        dir: PathBuf,
        processes: BTreeSet<Process>,
        namespaces: BTreeSet<PathBuf>,
    }

    impl Footprint {
        /// Starts from the processes that the world recorded and follows parents, namespaces and cgroups.
        fn of(dir: &Path) -> Result<Self> {
            let world = dir.file_name().context("a world has a name")?.to_string_lossy();
            let ours = std::process::id();
            let own_namespaces = namespaces(ours);
            let recorded: BTreeSet<u32> =
                lab::reap::processes_of(&world)?.iter().map(|record| record.pid).collect();
            let owner = lab::owner(&world)?;
            let mut footprint = Self {
                dir: dir.to_owned(),
                processes: BTreeSet::new(),
                namespaces: BTreeSet::new(),
            };
            loop {
                let before = footprint.processes.len();
                for (pid, parent, started) in all_processes()? {
                    // `nsenter` and `unshare` are not recorded, but their children are.
                    let wraps = |pid: u32| {
                        pid != ours
                            && Some(pid) != owner
                            && recorded.iter().any(|child| parent_of(*child) == Some(pid))
                    };
                    let below = footprint.processes.iter().any(|(above, _)| *above == parent);
                    if recorded.contains(&pid) || wraps(pid) || below || footprint.claims(pid) {
                        footprint.processes.insert((pid, started));
                        footprint
                            .namespaces
                            .extend(namespaces(pid).difference(&own_namespaces).cloned());
                    }
                }
                if footprint.processes.len() == before {
                    return Ok(footprint);
                }
            }
        }

        /// Whether a process runs in a namespace, a cgroup or a directory of the world.
        fn claims(&self, pid: u32) -> bool {
            let proc = PathBuf::from(format!("/proc/{pid}"));
            let cgroups = fs::read_to_string(proc.join("cgroup")).unwrap_or_default();
            namespaces(pid).intersection(&self.namespaces).next().is_some()
                || cgroups.lines().any(|line| line.contains(&self.cgroup()))
                || fs::read_link(proc.join("cwd")).is_ok_and(|cwd| cwd.starts_with(&self.dir))
        }

        fn cgroup(&self) -> String {
            let name = self.dir.display().to_string();
            format!("/vsphere-lab/{}", name.trim_start_matches('/').replace('/', "-"))
        }

        /// Everything of the world that is on the machine now, a line each.
        fn remains(&self) -> Result<BTreeSet<String>> {
            let mut seen = BTreeSet::new();
            for (pid, _, started) in all_processes()? {
                if self.processes.contains(&(pid, started)) || self.claims(pid) {
                    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                    seen.insert(format!("process {} {pid}", name.trim()));
                }
            }
            for line in fs::read_to_string("/proc/self/mountinfo")?.lines() {
                if line.contains(&self.dir.display().to_string()) {
                    seen.insert(format!("mount {line}"));
                }
            }
            for block in fs::read_dir("/sys/block")? {
                let file = fs::read_to_string(block?.path().join("loop/backing_file"));
                if let Ok(file) = file
                    && Path::new(file.trim()).starts_with(&self.dir)
                {
                    seen.insert(format!("loop device of {}", file.trim()));
                }
            }
            for file in [self.dir.clone(), self.dir.with_extension("lock")] {
                if file.exists() {
                    seen.insert(format!("file {}", file.display()));
                }
            }
            self.list_cgroups(Path::new("/sys/fs/cgroup"), 3, &mut seen);
            Ok(seen)
        }

        /// Cgroups of the world, and the one above all worlds when it is empty.
        fn list_cgroups(&self, dir: &Path, depth: usize, seen: &mut BTreeSet<String>) {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                let path = entry.path();
                if !path.is_dir() || path.is_symlink() {
                    continue;
                }
                let is_dir = |entry: std::io::Result<fs::DirEntry>| {
                    entry.is_ok_and(|entry| entry.path().is_dir())
                };
                let empty = || fs::read_dir(&path).is_ok_and(|mut below| !below.any(is_dir));
                if path.display().to_string().contains(&self.cgroup())
                    || (path.ends_with("vsphere-lab") && empty())
                {
                    seen.insert(format!("cgroup {}", path.display()));
                }
                if depth > 1 {
                    self.list_cgroups(&path, depth - 1, seen);
                }
            }
        }
    }

    /// Id, parent and start time of every process.
    fn all_processes() -> Result<Vec<(u32, u32, u64)>> {
        let pids = fs::read_dir("/proc")?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        Ok(pids
            .filter_map(|pid| stat(pid).map(|(parent, started)| (pid, parent, started)))
            .collect())
    }

    fn parent_of(pid: u32) -> Option<u32> {
        stat(pid).map(|(parent, _)| parent)
    }

    /// Parent and start time.
    fn stat(pid: u32) -> Option<(u32, u64)> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        Some((fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?))
    }

    /// The namespaces of a process, such as `net:[4026531840]`.
    fn namespaces(pid: u32) -> BTreeSet<PathBuf> {
        let link = |kind| fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok();
        ["net", "mnt", "pid", "uts", "ipc"].into_iter().filter_map(link).collect()
    }

    /// Network links of the machine: a lab makes none there.
    fn links() -> Result<BTreeSet<OsString>> {
        fs::read_dir("/sys/class/net")?.map(|link| Ok(link?.file_name())).collect()
    }

    async fn nothing_is_left(when: &str, world: &Footprint) -> Result<()> {
        // The kernel takes apart namespaces and mounts in the background.
        until(&format!("nothing is left {when}"), BOUND, || async {
            let left: Vec<String> = world.remains()?.into_iter().collect();
            Ok(if left.is_empty() { Wait::Done(()) } else { Wait::NotYet(left.join("\n")) })
        })
        .await
    }

    /// A process of somebody else, with a program that labs run too, in namespaces of its own.
    struct Bystander(Child);

    impl Bystander {
        fn start() -> Result<Self> {
            let mut command = Command::new("unshare");
            command.args(["--net", "--mount", "--uts", "--ipc", "--", "sleep", "3600"]);
            Ok(Self(command.stdin(Stdio::null()).spawn()?))
        }
    }

    impl Drop for Bystander {
        fn drop(&mut self) {
            self.0.kill().ok();
            self.0.wait().ok();
        }
    }

    /// Starts this very test again as another process that holds a lab until it is killed, and returns it
    /// with the directory of its world.
    fn start_victim(role: &str) -> Result<(Child, PathBuf)> {
        let mut victim = Command::new(std::env::current_exe()?)
            .args(["--exact", "nodes::a_lab_leaves_nothing_behind_even_when_killed", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = victim.stdout.take().context("the victim has no output")?;
        for line in BufReader::new(output).lines() {
            if let Some((_, dir)) = line?.split_once(READY) {
                return Ok((victim, PathBuf::from(dir)));
            }
        }
        anyhow::bail!("the victim ended before it was ready: {}", victim.wait()?)
    }

    /// What the other process does.
    #[expect(clippy::print_stdout, reason = "the test that started it reads this")]
    async fn be_a_victim(role: &str) -> Result<()> {
        let plane;
        let lab;
        let (disk, raw);
        let dir = if role == "control plane" {
            plane = ControlPlane::start().await?;
            plane.world().dir()
        } else {
            lab = Lab::start(&Spec::default()).await?;
            disk = lab.disk("6000c29a5eed400080000000000000d2", 64 << 20)?;
            let node = &lab.nodes()[0];
            node.plug(&disk)?;
            let link = format!("/dev/disk/by-id/{}", disk.link());
            node.run("mkfs.ext4", &["-q", &link])?;
            node.run("mount", &[&link, "/mnt"])?;
            // As a kubelet does for a raw block volume: a second loop device on top of the node's disk.
            raw = lab.disk("6000c29a5eed400080000000000000d4", 64 << 20)?;
            node.plug(&raw)?;
            let link = format!("/dev/disk/by-id/{}", raw.link());
            node.run("losetup", &["--find", &link])?;
            lab.control_plane().world().dir()
        };
        println!("{READY}{}", dir.display());
        std::future::pending().await
    }

    #[tokio::test]
    async fn a_lab_leaves_nothing_behind_even_when_killed() {
        if let Ok(role) = std::env::var(ROLE) {
            return be_a_victim(&role).await.unwrap();
        }
        lab::reap::abandoned_worlds().unwrap();
        let links_before = links().unwrap();

        let lab = Lab::start(&Spec::default()).await.unwrap();
        let disk = lab.disk("6000c29a5eed400080000000000000d3", 64 << 20).unwrap();
        lab.nodes()[0].plug(&disk).unwrap();
        let _bystander = Bystander::start().unwrap();
        let world = Footprint::of(lab.control_plane().world().dir()).unwrap();
        let seen = world.remains().unwrap();
        for part in ["kube-apiserver", "containerd", "kubelet", "loop device", "cgroup", "file"] {
            assert!(seen.iter().any(|line| line.contains(part)), "no {part} in {seen:#?}");
        }
        drop(disk);
        drop(lab);
        nothing_is_left("after a lab", &world).await.unwrap();

        for role in ["control plane", "lab with a mounted disk"] {
            let (mut victim, dir) = start_victim(role).unwrap();
            let world = Footprint::of(&dir).unwrap();
            assert!(!world.remains().unwrap().is_empty(), "{role}: a running one is seen");
            victim.kill().unwrap();
            victim.wait().unwrap();
            let reaped = lab::reap::abandoned_worlds().unwrap();
            let name = dir.file_name().unwrap().to_string_lossy().into_owned();
            assert_eq!(reaped, [name]);
            nothing_is_left(&format!("after a killed {role}"), &world).await.unwrap();
        }
        assert_eq!(links().unwrap(), links_before);
    }
}
