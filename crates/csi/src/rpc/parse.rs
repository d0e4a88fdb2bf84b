//! Requests of the CSI specification, as types that cannot be wrong.

use std::{
    collections::{BTreeSet, HashMap},
    path::{Component, Path, PathBuf},
};

use crate::{
    node::{
        Expand, Publish, Stage, device::DiskUuid, mounts::Options, plan::Access, probe::FileSystem,
    },
    proto::{
        self, CapacityRange, Topology, TopologyRequirement, VolumeCapability,
        volume_capability::{AccessType, access_mode::Mode},
        volume_content_source::Type,
    },
    refusal::{Kind, Refusal},
    rpc::controller::DISK_UUID,
    volumes::{Create, Position, Segment, Selection, SnapshotId, Source},
};

/// The longest string field of a request, by the specification.
const LONGEST: usize = 128;
/// The longest path that the kernel takes.
const LONGEST_PATH: usize = 4095;
/// The longest options of a mount, all together, by the specification.
const LONGEST_OPTIONS: usize = 4096;
/// The longest key and the longest value of a label, by Kubernetes.
const LONGEST_LABEL: (usize, usize) = (253 + 1 + 63, 63);

fn invalid(what: impl Into<String>) -> Refusal {
    Refusal::new(Kind::Invalid, what)
}

/// A text of a request as messages quote it: a part is enough to recognise it.
fn quoted(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
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
    let is_printable = text.len() <= LONGEST_PATH && !text.chars().any(char::is_control);
    if !path.is_absolute() || path.file_name().is_none() || !is_plain || !is_printable {
        let text = quoted(text);
        return Err(invalid(format!("{field} {text} is not an absolute path without `..`")));
    }
    // Without a slash at its end, as the mount table has it.
    Ok(path.components().collect())
}

/// The path of a volume that is published or staged. Nothing is at a relative one, and callers want to hear just
/// that.
pub(crate) fn volume_path(text: &str) -> Result<PathBuf, Refusal> {
    let absolute = path("volume_path", &format!("/{text}"));
    if text.is_empty() || text.starts_with('/') || absolute.is_err() {
        return path("volume_path", text);
    }
    let what = format!("volume_path {} is not an absolute path, so nothing is there", quoted(text));
    Err(Refusal::new(Kind::NotFound, what))
}

/// How a volume is to be used, read-only or not.
struct Usage {
    access: Access,
    read_only: bool,
    /// Whether one pod at most may have it.
    single_writer: bool,
}

fn usage(capability: Option<VolumeCapability>) -> Result<Usage, Refusal> {
    let capability = capability.ok_or_else(|| invalid("volume_capability is missing"))?;
    let mode = capability.access_mode.map(|mode| mode.mode());
    let single_writer = mode == Some(Mode::SingleNodeSingleWriter);
    let read_only = match mode {
        None | Some(Mode::Unknown) => return Err(invalid("volume_capability has no access_mode")),
        Some(Mode::SingleNodeReaderOnly) => true,
        Some(
            Mode::SingleNodeWriter | Mode::SingleNodeSingleWriter | Mode::SingleNodeMultiWriter,
        ) => false,
        Some(many) => {
            let what =
                format!("access mode {} is not possible: a disk has one node", many.as_str_name());
            let remedy = match many {
                Mode::MultiNodeReaderOnly => {
                    "use ReadWriteOnce, with a clone, or a volume from one snapshot, for each node that reads"
                }
                _ => "use ReadWriteOnce or ReadWriteOncePod",
            };
            return Err(invalid(what).remedy(remedy));
        }
    };
    let access = match capability.access_type {
        None => return Err(invalid("volume_capability has no access_type")),
        Some(AccessType::Block(_)) => Access::Block,
        Some(AccessType::Mount(mount)) => {
            let mut options = options(&mount.mount_flags)?;
            if read_only {
                options.add("ro");
            }
            Access::Mount { file_system: file_system(&mount.fs_type)?, options }
        }
    };
    Ok(Usage { access, read_only, single_writer })
}

fn options(flags: &[String]) -> Result<Options, Refusal> {
    let all: usize = flags.iter().map(|flag| flag.len() + 1).sum();
    if all > LONGEST_OPTIONS {
        return Err(invalid(format!(
            "mount_flags have {all} bytes, and {LONGEST_OPTIONS} at most"
        )));
    }
    if let Some(flag) = flags.iter().find(|flag| flag.chars().any(char::is_control)) {
        return Err(invalid(format!("{} in mount_flags is not an option of mount", quoted(flag))));
    }
    Ok(Options::parse(flags.iter().map(String::as_str)))
}

fn file_system(name: &str) -> Result<Option<FileSystem>, Refusal> {
    if name.is_empty() {
        return Ok(None);
    }
    match FileSystem::from_name(&name.to_ascii_lowercase()) {
        Some(FileSystem::Ext2) | None => {
            let what = format!("fsType {} is not a file system of this driver", quoted(name));
            let remedy = "use ext4, ext3, xfs or btrfs; of new volumes it is csi.storage.k8s.io/fstype \
                          of the StorageClass";
            Err(invalid(what).remedy(remedy))
        }
        known => Ok(known),
    }
}

fn disk(context: &HashMap<String, String>) -> Result<DiskUuid, Refusal> {
    let text = context.get(DISK_UUID).ok_or_else(|| {
        invalid(format!("publish_context has no {DISK_UUID}"))
            .remedy("the volume must be attached first")
    })?;
    text.parse().map_err(|_| {
        let digits = "it needs 32 hexadecimal digits";
        invalid(format!("{DISK_UUID} {} is not the UUID of a disk: {digits}", quoted(text)))
    })
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
    let Usage { access, read_only, single_writer } = usage(request.volume_capability)?;
    // A file system that was staged read-only is shown as it is, so this is what a repeated call will find.
    let staged_read_only = matches!(&access, Access::Mount { options, .. } if options.read_only());
    let read_only = read_only || staged_read_only || request.readonly;
    let mut options = Options::default();
    if read_only {
        options.add("ro");
    }
    let device = match access {
        Access::Mount { .. } => None,
        // Whether a container may write to a device is decided by its cgroup, where kubelet enters it; the mount is only
        // the record of what was asked.
        Access::Block => Some(disk(&request.publish_context)?),
    };
    Ok(Publish { volume, device, staging, target, options, single_writer })
}

pub(crate) fn expand(request: &proto::NodeExpandVolumeRequest) -> Result<Expand, Refusal> {
    let volume = volume(&request.volume_id)?;
    let path = volume_path(&request.volume_path)?;
    let bytes = required(request.capacity_range.as_ref())?;
    Ok(Expand { volume, path, bytes })
}

/// The parameters of a StorageClass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) policy: Option<String>,
    pub(crate) selection: Selection,
}

/// Parameters that a StorageClass of this driver may have.
const PARAMETERS: [&str; 5] =
    ["storagepolicyname", "datastoreurl", "datastores", "datastorecluster", "fstype"];
/// Of the sidecars, which take most of them out themselves.
const SIDECARS: &str = "csi.storage.k8s.io/";
const IN_TREE: &str = "csimigration";

pub(crate) fn parameters(given: &HashMap<String, String>) -> Result<Parameters, Refusal> {
    let mut parameters = Parameters::default();
    for (key, value) in given {
        let value = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
        match key.to_ascii_lowercase().as_str() {
            "storagepolicyname" => parameters.policy = value,
            "datastoreurl" => parameters.selection.url = value,
            "datastorecluster" => parameters.selection.cluster = value,
            "datastores" => {
                let items = value.iter().flat_map(|list| list.split(','));
                let items = items.map(str::trim).filter(|item| !item.is_empty());
                parameters.selection.datastores = items.map(str::to_owned).collect();
            }
            // Accepted for old classes; csi.storage.k8s.io/fstype is the one that counts.
            "fstype" => {}
            lower if lower.starts_with(SIDECARS) => {}
            IN_TREE => {
                let what = "volumes of the in-tree provider are not supported by this version of the driver";
                return Err(invalid(what).remedy("use a StorageClass of csi.vsphere.vmware.com"));
            }
            _ => {
                let what = format!("the StorageClass has the unknown parameter {key:?}");
                let remedy = format!("remove it; known are {}", PARAMETERS.join(", "));
                return Err(invalid(what).remedy(remedy));
            }
        }
    }
    let Selection { url, datastores, cluster } = &parameters.selection;
    let ways = [url.is_some(), !datastores.is_empty(), cluster.is_some()];
    if ways.into_iter().filter(|given| *given).count() > 1 {
        let what =
            "the StorageClass has more than one of datastoreurl, datastores and datastorecluster";
        return Err(invalid(what).remedy("keep one of them"));
    }
    Ok(parameters)
}

/// A volume that is to be created.
pub(crate) fn create(request: proto::CreateVolumeRequest) -> Result<Create, Refusal> {
    let name = name(request.name)?;
    some_capabilities(&request.volume_capabilities)?;
    capabilities(&request.volume_capabilities)?;
    let source = request.volume_content_source.map(source).transpose()?;
    if !request.mutable_parameters.is_empty() {
        return Err(invalid(format!("volume {name}: mutable parameters are not supported"))
            .remedy("remove the volumeAttributesClassName from the claim"));
    }
    let Parameters { policy, selection } = parameters(&request.parameters)?;
    let (required, limit) = range(request.capacity_range.as_ref())?;
    let segments = segments(request.accessibility_requirements.unwrap_or_default())?;
    Ok(Create { name, required, limit, policy, selection, source, segments })
}

/// The segments that are acceptable, each once, the preferred ones first.
fn segments(given: TopologyRequirement) -> Result<Vec<Segment>, Refusal> {
    let parse = |field, topologies: Vec<Topology>| -> Result<Vec<Segment>, Refusal> {
        let parsed = topologies.into_iter().map(|topology| segment(field, topology));
        Ok(parsed.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    };
    let requisite = parse("requisite", given.requisite)?;
    let mut segments = parse("preferred", given.preferred)?;
    if !requisite.is_empty() {
        // By the specification each preferred one is requisite: a volume must not be where none is.
        segments.retain(|one| requisite.iter().any(|required| one.is_within(required)));
    }
    segments.extend(requisite);
    let mut seen = BTreeSet::new();
    segments.retain(|one| seen.insert(one.clone()));
    Ok(segments)
}

/// A part of the cluster, by labels of its nodes. One without labels is none: it leaves open where.
pub(crate) fn segment(field: &str, given: Topology) -> Result<Option<Segment>, Refusal> {
    let is_label =
        |text: &str, longest| text.len() <= longest && !text.chars().any(char::is_control);
    let (key_longest, value_longest) = LONGEST_LABEL;
    let is_wrong = |(key, value): &(&String, &String)| {
        key.is_empty() || !is_label(key, key_longest) || !is_label(value, value_longest)
    };
    if let Some((key, value)) = given.segments.iter().find(is_wrong) {
        let label = format!("{}: {}", quoted(key), quoted(value));
        return Err(invalid(format!("{field} has {label}, which is not a label of nodes")));
    }
    Ok(Segment::new(given.segments))
}

/// The name of a request.
fn name(name: String) -> Result<String, Refusal> {
    if name.is_empty() {
        return Err(invalid("name is missing"));
    }
    if name.len() > LONGEST || name.chars().any(char::is_control) {
        return Err(invalid("name is longer than 128 bytes or has control characters"));
    }
    Ok(name)
}

/// What the content of a new volume comes from. Whatever cannot be the id of a snapshot is the id of none.
fn source(given: proto::VolumeContentSource) -> Result<Source, Refusal> {
    match given.r#type {
        None => Err(invalid("volume_content_source has no type")),
        Some(Type::Volume(source)) => Ok(Source::Volume(volume(&source.volume_id)?)),
        Some(Type::Snapshot(source)) => {
            let text = source.snapshot_id;
            if text.is_empty() {
                return Err(invalid("snapshot_id is missing"));
            }
            let what = || format!("snapshot {} does not exist", quoted(&text));
            let id = SnapshotId::parse(&text);
            id.map(Source::Snapshot).ok_or_else(|| Refusal::new(Kind::NotFound, what()))
        }
    }
}

/// The volume and name of a snapshot that is to be taken. The parameters of its class mean nothing to the Go driver, nor
/// to this one.
pub(crate) fn snapshot(request: proto::CreateSnapshotRequest) -> Result<(String, String), Refusal> {
    let name = name(request.name)?;
    if request.source_volume_id.is_empty() {
        return Err(invalid("source_volume_id is missing"));
    }
    Ok((volume(&request.source_volume_id)?, name))
}

/// The id of a snapshot; nothing if no snapshot can be called so.
pub(crate) fn snapshot_id(text: &str) -> Result<Option<SnapshotId>, Refusal> {
    if text.is_empty() {
        return Err(invalid("snapshot_id is missing"));
    }
    Ok(SnapshotId::parse(text))
}

pub(crate) fn some_capabilities(given: &[VolumeCapability]) -> Result<(), Refusal> {
    if given.is_empty() { Err(invalid("volume_capabilities are missing")) } else { Ok(()) }
}

/// Whether a block volume can be used in all these ways.
pub(crate) fn capabilities(given: &[VolumeCapability]) -> Result<(), Refusal> {
    given.iter().try_for_each(|one| usage(Some(one.clone())).map(|_| ()))
}

/// The volume and node of an attachment.
pub(crate) fn attach(
    request: proto::ControllerPublishVolumeRequest,
) -> Result<(String, String), Refusal> {
    let volume = volume(&request.volume_id)?;
    let node = node(&request.node_id)?;
    usage(request.volume_capability)?;
    if request.readonly {
        let what = format!("volume {volume}: a disk cannot be attached read-only");
        return Err(invalid(what).remedy("mount it read-only: readOnly of the pod's volumeMounts"));
    }
    Ok((volume, node))
}

/// A node's id.
pub(crate) fn node(id: &str) -> Result<String, Refusal> {
    if id.is_empty() {
        return Err(invalid("node_id is missing"));
    }
    // Node names are DNS names, and may be as long.
    if id.len() > 256 || id.chars().any(char::is_control) {
        return Err(invalid("node_id is not the id of a node"));
    }
    Ok(id.to_owned())
}

/// A volume that is to grow.
pub(crate) struct Grow {
    pub(crate) volume: String,
    pub(crate) required: u64,
    pub(crate) limit: Option<u64>,
}

pub(crate) fn grow(request: proto::ControllerExpandVolumeRequest) -> Result<Grow, Refusal> {
    let volume = volume(&request.volume_id)?;
    if request.capacity_range.is_none() {
        return Err(invalid("capacity_range is missing"));
    }
    let (required, limit) = range(request.capacity_range.as_ref())?;
    if required == 0 {
        return Err(invalid("capacity_range has no required_bytes"));
    }
    // Callers need not tell how it is used.
    if let Some(capability) = request.volume_capability {
        usage(Some(capability))?;
    }
    Ok(Grow { volume, required, limit })
}

/// How many entries a page may have; none if the caller leaves it open.
pub(crate) fn max_entries(number: i32) -> Result<Option<u32>, Refusal> {
    let number = u32::try_from(number);
    let number = number.map_err(|_| invalid("max_entries is negative"))?;
    Ok(Some(number).filter(|number| *number > 0))
}

/// Where a page begins.
pub(crate) fn token(text: &str) -> Result<Position, Refusal> {
    if text.is_empty() {
        return Ok(Position::default());
    }
    text.parse().map_err(|_| {
        let what = format!("starting_token {} does not lead to a page", quoted(text));
        Refusal::new(Kind::Busy, what).remedy("list again without a token")
    })
}

/// The bytes that are required, if any, and the most that are allowed.
fn range(range: Option<&CapacityRange>) -> Result<(u64, Option<u64>), Refusal> {
    let required = required(range)?;
    let limit = range.map_or(0, |range| range.limit_bytes);
    let limit =
        u64::try_from(limit).map_err(|_| invalid(format!("limit_bytes {limit} is negative")))?;
    let limit = Some(limit).filter(|limit| *limit > 0);
    if let Some(limit) = limit.filter(|limit| *limit < required) {
        let what = format!("required_bytes {required} is more than limit_bytes {limit}");
        return Err(Refusal::new(Kind::OutOfRange, what));
    }
    Ok((required, limit))
}

/// The bytes that are asked for; a range may be left out.
fn required(range: Option<&CapacityRange>) -> Result<u64, Refusal> {
    let Some(range) = range else { return Ok(0) };
    let bytes = u64::try_from(range.required_bytes);
    bytes.map_err(|_| invalid(format!("required_bytes {} is negative", range.required_bytes)))
}

#[cfg(test)]
mod tests;
