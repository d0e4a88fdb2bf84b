//! After a lab, and after the violent death of one, the machine is as it was. Needs root.
//!
//! A test program of its own, with one test: it compares the whole machine before and after, so no
//! other lab of this test run may come or go meanwhile. A lab of the user's may run beside it.

mod nodes {
    use std::{
        collections::BTreeSet,
        fs,
        io::{BufRead, BufReader},
        path::Path,
        process::{Command, Stdio},
        time::Duration,
    };

    use anyhow::{Context, Result};
    use lab::{ControlPlane, Lab, Spec, Wait, until};

    const BOUND: Duration = Duration::from_secs(120);
    const ROLE: &str = "LAB_TEST_ROLE";

    /// Programs that a lab runs, as the kernel names them (15 characters).
    const PROGRAMS: &[&str] = &[
        "etcd",
        "kube-apiserver",
        "kube-controller",
        "kube-scheduler",
        "kubelet",
        "kube-proxy",
        "containerd",
        "containerd-shim",
        "runc",
        "unshare",
        "nsenter",
        "setpriv",
        "agnhost",
        "sleep",
        "busybox",
    ];

    /// What a lab could leave behind, a line each.
    fn machine() -> Result<BTreeSet<String>> {
        let mut seen = BTreeSet::new();
        for entry in fs::read_dir("/proc")? {
            let dir = entry?.path();
            let Ok(name) = fs::read_to_string(dir.join("comm")) else { continue };
            if PROGRAMS.contains(&name.trim()) {
                seen.insert(format!("process {} {}", name.trim(), dir.display()));
            }
            for kind in ["net", "mnt", "pid", "uts", "ipc"] {
                if let Ok(namespace) = fs::read_link(dir.join("ns").join(kind)) {
                    seen.insert(format!("namespace {}", namespace.display()));
                }
            }
        }
        for line in fs::read_to_string("/proc/self/mountinfo")?.lines() {
            seen.insert(format!("mount {line}"));
        }
        for link in fs::read_dir("/sys/class/net")? {
            seen.insert(format!("link {}", link?.file_name().display()));
        }
        for block in fs::read_dir("/sys/block")? {
            let block = block?;
            if let Ok(file) = fs::read_to_string(block.path().join("loop/backing_file")) {
                seen.insert(format!("loop device {} {}", block.file_name().display(), file.trim()));
            }
        }
        list_below(&lab::state_dir(), 1, &mut seen);
        list_below(Path::new("/sys/fs/cgroup"), 3, &mut seen);
        Ok(seen)
    }

    fn list_below(dir: &Path, depth: usize, seen: &mut BTreeSet<String>) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let ours = path.starts_with(lab::state_dir())
                || path.components().any(|part| part.as_os_str() == "vsphere-lab");
            if ours {
                seen.insert(format!("file {}", path.display()));
            }
            if depth > 1 && path.is_dir() && !path.is_symlink() {
                list_below(&path, depth - 1, seen);
            }
        }
    }

    async fn becomes_as_it_was(when: &str, before: &BTreeSet<String>) -> Result<()> {
        // The kernel takes apart namespaces and mounts in the background.
        until(&format!("nothing is left {when}"), BOUND, || async {
            let new: Vec<String> = machine()?.difference(before).cloned().collect();
            Ok(if new.is_empty() { Wait::Done(()) } else { Wait::NotYet(new.join("\n")) })
        })
        .await
    }

    /// Starts this very test again as another process that holds a lab until it is killed.
    fn start_victim(role: &str) -> Result<std::process::Child> {
        let mut victim = Command::new(std::env::current_exe()?)
            .args(["--exact", "nodes::a_lab_leaves_nothing_behind_even_when_killed", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = victim.stdout.take().context("the victim has no output")?;
        for line in BufReader::new(output).lines() {
            if line?.contains("victim is ready") {
                return Ok(victim);
            }
        }
        anyhow::bail!("the victim ended before it was ready: {}", victim.wait()?)
    }

    /// What the other process does.
    #[expect(clippy::print_stdout, reason = "tells the test that started it")]
    async fn be_a_victim(role: &str) -> Result<()> {
        let plane;
        let lab;
        let disk;
        if role == "control plane" {
            plane = ControlPlane::start().await?;
            assert!(plane.kubeconfig().exists());
        } else {
            lab = Lab::start(&Spec::default()).await?;
            disk = lab.disk("6000c29a5eed400080000000000000d2", 64 << 20)?;
            let node = &lab.nodes()[0];
            node.plug(&disk)?;
            let link = format!("/dev/disk/by-id/{}", disk.link());
            node.run("mkfs.ext4", &["-q", &link])?;
            node.run("mount", &[&link, "/mnt"])?;
        }
        println!("victim is ready");
        std::future::pending().await
    }

    #[tokio::test]
    async fn a_lab_leaves_nothing_behind_even_when_killed() {
        if let Ok(role) = std::env::var(ROLE) {
            return be_a_victim(&role).await.unwrap();
        }
        lab::reap::abandoned_worlds().unwrap();
        let before = machine().unwrap();

        let lab = Lab::start(&Spec::default()).await.unwrap();
        let disk = lab.disk("6000c29a5eed400080000000000000d3", 64 << 20).unwrap();
        lab.nodes()[0].plug(&disk).unwrap();
        assert!(machine().unwrap().len() > before.len() + 10, "the comparison sees a running lab");
        drop(disk);
        drop(lab);
        becomes_as_it_was("after a lab", &before).await.unwrap();

        for role in ["control plane", "lab with a mounted disk"] {
            let mut victim = start_victim(role).unwrap();
            victim.kill().unwrap();
            victim.wait().unwrap();
            let reaped = lab::reap::abandoned_worlds().unwrap();
            assert_eq!(reaped.len(), 1, "{reaped:?}");
            becomes_as_it_was(&format!("after a killed {role}"), &before).await.unwrap();
        }
    }
}
