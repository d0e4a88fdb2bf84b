//! What a new volume shall be, and which servers can make it.

use super::{metadata_needs, profile};
use crate::{
    reference::Ref,
    types::{
        AnyCnsBackingObjectDetails, AnyCnsBaseCreateSpec, AnyCnsVolumeSource, AnyCryptoSpec,
        ClusterComputeResource, CnsBlockBackingDetails, CnsBlockCreateSpec, CnsCloneVolumeSource,
        CnsSnapshotId, CnsSnapshotVolumeSource, CnsVSANFileCreateSpec, CnsVolumeCreateSpec,
        CnsVolumeId, CnsVolumeMetadata, CnsVolumeType, CnsVsanFileShareBackingDetails, Datastore,
        VsanFileShareNetPermission,
        versions::{VSAN_7_0, VSAN_7_2, VSAN_9_1_0_0},
    },
    version::Since,
};

/// A volume that is to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct NewVolume {
    /// Its name, which need not be unique.
    pub name: String,
    /// What it holds in the beginning, and how large it is.
    pub content: Content,
    /// Where it may be; CNS chooses one of them, or any datastore if there is none here.
    pub datastores: Vec<Ref<Datastore>>,
    /// The id of its storage policy.
    pub policy: Option<String>,
    /// Who uses it.
    pub metadata: Option<CnsVolumeMetadata>,
    /// Its id, if the caller chooses it: then the call can be repeated. From vCenter 9.1.
    pub id: Option<CnsVolumeId>,
    /// The clusters that must reach it. From vCenter 9.1.
    pub clusters: Vec<Ref<ClusterComputeResource>>,
}

/// What a new volume holds in the beginning.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// A disk without content.
    Empty {
        /// Its size in MiB.
        mebibytes: i64,
        /// How its content is kept secret. From vCenter 9.1.
        encryption: Option<AnyCryptoSpec>,
    },
    /// A disk with the content of a snapshot.
    Snapshot {
        /// Its size in MiB; not less than that of the snapshot's volume.
        mebibytes: i64,
        /// The snapshot's volume.
        volume: CnsVolumeId,
        /// The snapshot.
        snapshot: CnsSnapshotId,
        /// Whether it shares blocks with the snapshot instead of copying them. From vCenter 9.1.
        linked: bool,
    },
    /// A disk with the content of another volume. From vCenter 9.1.
    Clone {
        /// Its size in MiB; not less than that of the other volume.
        mebibytes: i64,
        /// The other volume.
        volume: CnsVolumeId,
    },
    /// A file share of vSAN.
    Share {
        /// Its quota in MiB.
        mebibytes: i64,
        /// Who may mount it.
        permissions: Vec<VsanFileShareNetPermission>,
    },
    /// The first class disk with this id.
    Disk(String),
    /// The file of a plain disk, as a URL: see [`file_url`](crate::vslm::file_url).
    File(String),
}

impl NewVolume {
    /// A volume on any datastore, without policy and metadata.
    pub fn new(name: &str, content: Content) -> Self {
        Self {
            name: name.to_owned(),
            content,
            datastores: Vec::new(),
            policy: None,
            metadata: None,
            id: None,
            clusters: Vec::new(),
        }
    }

    /// A block volume without content.
    pub fn block(name: &str, mebibytes: i64) -> Self {
        Self::new(name, Content::Empty { mebibytes, encryption: None })
    }

    /// What the server must know to make it.
    pub(super) fn needs(&self) -> impl Iterator<Item = Since> {
        let by_content = match &self.content {
            Content::Empty { encryption: None, .. } | Content::Disk(_) => None,
            Content::Snapshot { linked: false, .. } | Content::Share { .. } => Some(VSAN_7_0),
            Content::File(_) => Some(VSAN_7_2),
            Content::Empty { .. } | Content::Snapshot { .. } | Content::Clone { .. } => {
                Some(VSAN_9_1_0_0)
            }
        };
        let chosen = (self.id.is_some() || !self.clusters.is_empty()).then_some(VSAN_9_1_0_0);
        let by_metadata = self.metadata.as_ref().and_then(metadata_needs);
        [chosen, by_metadata, by_content].into_iter().flatten()
    }

    pub(super) fn spec(&self) -> CnsVolumeCreateSpec {
        let share = matches!(self.content, Content::Share { .. });
        CnsVolumeCreateSpec {
            name: self.name.clone(),
            volume_type: if share { CnsVolumeType::File } else { CnsVolumeType::Block },
            volume_id: self.id.clone(),
            datastores: self.datastores.clone(),
            metadata: self.metadata.clone(),
            backing_object_details: self.content.backing(),
            profile: profile(self.policy.as_ref()),
            active_clusters: self.clusters.clone(),
            create_spec: self.content.create_spec(),
            volume_source: self.content.source(),
        }
    }
}

impl Content {
    fn backing(&self) -> AnyCnsBackingObjectDetails {
        let mut disk = CnsBlockBackingDetails::default();
        match self {
            Self::Empty { mebibytes, .. }
            | Self::Snapshot { mebibytes, .. }
            | Self::Clone { mebibytes, .. } => disk.capacity_in_mb = Some(*mebibytes),
            Self::Disk(id) => disk.backing_disk_id = Some(id.clone()),
            Self::File(url) => disk.backing_disk_url_path = Some(url.clone()),
            Self::Share { mebibytes, .. } => {
                let capacity_in_mb = Some(*mebibytes);
                return CnsVsanFileShareBackingDetails { capacity_in_mb, ..Default::default() }
                    .into();
            }
        }
        disk.into()
    }

    fn create_spec(&self) -> Option<AnyCnsBaseCreateSpec> {
        Some(match self {
            Self::Empty { encryption: Some(encryption), .. } => {
                CnsBlockCreateSpec { crypto_spec: Some(encryption.clone()) }.into()
            }
            Self::Share { mebibytes, permissions } => CnsVSANFileCreateSpec {
                soft_quota_in_mb: Some(*mebibytes),
                permission: permissions.clone(),
            }
            .into(),
            _ => return None,
        })
    }

    fn source(&self) -> Option<AnyCnsVolumeSource> {
        Some(match self {
            Self::Snapshot { volume, snapshot, linked, .. } => CnsSnapshotVolumeSource {
                volume_id: Some(volume.clone()),
                snapshot_id: Some(snapshot.clone()),
                linked_clone: linked.then_some(true),
            }
            .into(),
            Self::Clone { volume, .. } => {
                CnsCloneVolumeSource { volume_id: volume.clone(), keep_after_delete_vm: Some(true) }
                    .into()
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Content, NewVolume};
    use crate::types::{
        CnsVolumeMetadata,
        versions::{VSAN_7_0, VSAN_8_0_0_2, VSAN_9_1_0_0},
    };

    #[test]
    fn a_volume_needs_all_that_its_parts_need() {
        let volume = NewVolume::block("pvc-1", 64);
        assert_eq!(volume.needs().count(), 0);
        let share = Content::Share { mebibytes: 64, permissions: Vec::new() };
        assert!(NewVolume::new("share", share).needs().eq([VSAN_7_0]));
        let mut metadata = CnsVolumeMetadata::default();
        metadata.container_cluster.delete = Some(true);
        let content = Content::Clone { mebibytes: 64, volume: "source".into() };
        let metadata = Some(metadata);
        let clone = NewVolume { metadata, ..NewVolume::new("clone", content) };
        assert!(clone.needs().eq([VSAN_8_0_0_2, VSAN_9_1_0_0]));
    }
}
