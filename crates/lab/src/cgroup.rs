//! The cgroup of a node, below one that carries its world's name; both cgroup versions.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

const TOP: &str = "/sys/fs/cgroup";
const ALL_WORLDS: &str = "vsphere-lab";

/// The path of a node's cgroup, in the form of the kubelet's `cgroupRoot`.
pub(crate) fn of_node(world: &Path, node: &str) -> String {
    format!("/{ALL_WORLDS}/{}/{node}", of_world(world))
}

/// Named after the whole directory: two state directories may have worlds of the same name.
fn of_world(dir: &Path) -> String {
    dir.display().to_string().trim_start_matches('/').replace('/', "-")
}

/// Makes the cgroup of a node in every hierarchy, ready to hold pods.
pub(crate) fn create(world: &Path, node: &str) -> Result<()> {
    let world = of_world(world);
    for hierarchy in hierarchies() {
        let mut dir = hierarchy;
        for part in [ALL_WORLDS, world.as_str(), node] {
            hand_down_controllers(&dir);
            let below = dir.join(part);
            match fs::create_dir(&below) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(error)
                        .with_context(|| format!("cannot make the cgroup {}", below.display()));
                }
                _ => {}
            }
            // Version 1 starts a cpuset empty, and nothing can run in an empty one.
            for set in ["cpuset.cpus", "cpuset.mems"] {
                if let Ok(value) = fs::read(dir.join(set)) {
                    fs::write(below.join(set), value).ok();
                }
            }
            dir = below;
        }
    }
    Ok(())
}

/// Removes the cgroups of a world. An error means that the kernel is not done with one yet: try again.
pub(crate) fn remove(world: &Path) -> io::Result<()> {
    for hierarchy in hierarchies() {
        let shared = hierarchy.join(ALL_WORLDS);
        let own = shared.join(of_world(world));
        if own.exists() {
            remove_tree(&own)?;
            // Only the last world succeeds, which is the point.
            fs::remove_dir(&shared).ok();
        }
    }
    Ok(())
}

/// Version 2 has one; version 1 has one a controller (and perhaps a version 2 one beside them).
fn hierarchies() -> Vec<PathBuf> {
    let top = Path::new(TOP);
    if top.join("cgroup.controllers").exists() {
        return vec![top.to_owned()];
    }
    let Ok(entries) = fs::read_dir(top) else { return Vec::new() };
    let is_hierarchy = |path: &PathBuf| !path.is_symlink() && path.join("cgroup.procs").exists();
    entries.flatten().map(|entry| entry.path()).filter(is_hierarchy).collect()
}

/// Version 2 gives a cgroup only the controllers that the one above hands down; version 1 has no such
/// file. A controller that cannot be delegated is reported by the kubelet.
fn hand_down_controllers(dir: &Path) {
    for controller in ["cpu", "cpuset", "io", "memory", "pids"] {
        if let Ok(mut file) =
            fs::OpenOptions::new().write(true).open(dir.join("cgroup.subtree_control"))
        {
            io::Write::write_all(&mut file, format!("+{controller}").as_bytes()).ok();
        }
    }
}

fn remove_tree(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(dir)
}
