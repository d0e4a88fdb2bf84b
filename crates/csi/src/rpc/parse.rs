//! Requests of the CSI specification, as types that cannot be wrong.

use std::{
    collections::HashMap,
    path::{Component, Path, PathBuf},
};

use crate::{
    node::{
        Expand, Publish, Stage, device::DiskUuid, mounts::Options, plan::Access, probe::FileSystem,
    },
    proto::{
        self, CapacityRange, VolumeCapability,
        volume_capability::{AccessType, access_mode::Mode},
    },
    refusal::{Kind, Refusal},
};

/// In the publish context: the UUID of the attached disk.
const DISK_UUID: &str = "diskUUID";
/// The longest string field of a request, by the specification.
const LONGEST: usize = 128;
/// The longest path that the kernel takes.
const LONGEST_PATH: usize = 4095;

fn invalid(what: impl Into<String>) -> Refusal {
    Refusal::new(Kind::Invalid, what)
}

/// A volume's id.
pub(crate) fn volume(id: &str) -> Result<String, Refusal> {
    if id.is_empty() {
        return Err(invalid("volume_id is missing"));
    }
    // The ids of migrated volumes are paths on datastores, which are longer than the specification allows.
    if id.len() > LONGEST * 8 || id.chars().any(char::is_control) {
        return Err(invalid("volume_id is not the id of a volume"));
    }
    Ok(id.to_owned())
}

/// A path on the node: absolute, and without steps upwards, so that what is at its end is what it says.
pub(crate) fn path(field: &str, text: &str) -> Result<PathBuf, Refusal> {
    let path = Path::new(text);
    if text.is_empty() {
        return Err(invalid(format!("{field} is missing")));
    }
    let is_plain =
        path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !path.is_absolute() || !is_plain || text.len() > LONGEST_PATH || text.contains('\0') {
        return Err(invalid(format!("{field} {text:?} is not an absolute path without `..`")));
    }
    // Without a slash at its end, as the mount table has it.
    Ok(path.components().collect())
}

/// How a volume is to be used, read-only or not.
struct Usage {
    access: Access,
    read_only: bool,
}

fn usage(capability: Option<VolumeCapability>) -> Result<Usage, Refusal> {
    let capability = capability.ok_or_else(|| invalid("volume_capability is missing"))?;
    let mode = capability.access_mode.map(|mode| mode.mode());
    let read_only = match mode {
        None | Some(Mode::Unknown) => return Err(invalid("volume_capability has no access_mode")),
        Some(Mode::SingleNodeReaderOnly) => true,
        Some(
            Mode::SingleNodeWriter | Mode::SingleNodeSingleWriter | Mode::SingleNodeMultiWriter,
        ) => false,
        Some(many) => {
            let what =
                format!("access mode {} is not possible: a disk has one node", many.as_str_name());
            return Err(invalid(what).remedy("use ReadWriteOnce or ReadWriteOncePod"));
        }
    };
    let access = match capability.access_type {
        None => return Err(invalid("volume_capability has no access_type")),
        Some(AccessType::Block(_)) => Access::Block,
        Some(AccessType::Mount(mount)) => {
            let mut options = Options::parse(mount.mount_flags.iter().map(String::as_str));
            if read_only {
                options.add("ro");
            }
            Access::Mount { file_system: file_system(&mount.fs_type)?, options }
        }
    };
    Ok(Usage { access, read_only })
}

fn file_system(name: &str) -> Result<Option<FileSystem>, Refusal> {
    if name.is_empty() {
        return Ok(None);
    }
    match FileSystem::from_name(&name.to_ascii_lowercase()) {
        Some(FileSystem::Ext2) | None => {
            let what = format!("fsType {name:?} is not possible on this node");
            Err(invalid(what).remedy("use ext4, ext3, xfs or btrfs"))
        }
        known => Ok(known),
    }
}

fn disk(context: &HashMap<String, String>) -> Result<DiskUuid, Refusal> {
    let text = context.get(DISK_UUID).ok_or_else(|| {
        invalid(format!("publish_context has no {DISK_UUID}"))
            .remedy("the volume must be attached first")
    })?;
    text.parse().map_err(|error| invalid("publish_context").because(error))
}

pub(crate) fn stage(request: proto::NodeStageVolumeRequest) -> Result<Stage, Refusal> {
    let volume = volume(&request.volume_id)?;
    let staging = path("staging_target_path", &request.staging_target_path)?;
    let Usage { access, .. } = usage(request.volume_capability)?;
    Ok(Stage { volume, disk: disk(&request.publish_context)?, staging, access })
}

pub(crate) fn publish(request: proto::NodePublishVolumeRequest) -> Result<Publish, Refusal> {
    let volume = volume(&request.volume_id)?;
    let target = path("target_path", &request.target_path)?;
    let staging = path("staging_target_path", &request.staging_target_path)?;
    let Usage { access, read_only } = usage(request.volume_capability)?;
    let read_only = read_only || request.readonly;
    let mut options = Options::default();
    if read_only {
        options.add("ro");
    }
    let device = match access {
        Access::Mount { .. } => None,
        Access::Block if read_only => {
            let what = format!("volume {volume}: a device cannot be published read-only");
            return Err(invalid(what).remedy("use it with volumeMode Filesystem, or for writing"));
        }
        Access::Block => Some(disk(&request.publish_context)?),
    };
    Ok(Publish { volume, device, staging, target, options })
}

pub(crate) fn expand(request: &proto::NodeExpandVolumeRequest) -> Result<Expand, Refusal> {
    let volume = volume(&request.volume_id)?;
    let path = path("volume_path", &request.volume_path)?;
    let bytes = required(request.capacity_range.as_ref())?;
    Ok(Expand { volume, path, bytes })
}

/// The bytes that are asked for; a range may be left out.
fn required(range: Option<&CapacityRange>) -> Result<u64, Refusal> {
    let Some(range) = range else { return Ok(0) };
    let bytes = u64::try_from(range.required_bytes);
    bytes.map_err(|_| invalid(format!("required_bytes {} is negative", range.required_bytes)))
}

#[cfg(test)]
mod tests;
