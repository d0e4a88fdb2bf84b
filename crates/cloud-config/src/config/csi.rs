//! The configuration of the CSI driver.

use std::{fmt, time::Duration};

use crate::config::VCenter;

/// The configuration of the CSI driver, with the Go driver's defaults where nothing is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsiConfig {
    /// One at least, in the order of the file; no server twice.
    pub vcenters: Vec<CsiVCenter>,
    /// As the file has it; [`CsiConfig::resolve_cluster_id`] finds the one that counts.
    pub cluster_id: Option<ClusterId>,
    /// The name of the distribution that vCenter shows.
    pub cluster_distribution: Option<String>,
    /// The categories whose tags place volumes, at most five; without topology if empty.
    pub topology: Vec<TopologyCategory>,
    /// Whether the nearest tag of a category counts, as for the cloud controller manager with the same setting.
    pub nearest_tag: bool,
    /// Who may mount file volumes, in the order of the file.
    pub net_permissions: Vec<NetPermission>,
    /// How many snapshots a block volume may have.
    pub snapshots: SnapshotLimits,
    /// How many volumes one page of a list has.
    pub query_limit: u32,
    /// How many volumes may be missing in CNS before listing fails.
    pub list_volume_threshold: u32,
    /// How often something is refreshed or cleaned up.
    pub intervals: Intervals,
}

/// A vCenter of the CSI driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsiVCenter {
    /// How it is reached.
    pub vcenter: VCenter,
    /// The datastore for volumes of migrated StorageClasses that name none.
    pub migration_datastore_url: Option<String>,
}

/// The name under which CNS keeps a cluster's volumes: 1 to 64 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterId(String);

/// A text that is not a cluster id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a cluster id has 1 to 64 characters, and this one has {0}")]
pub struct InvalidClusterId(usize);

impl TryFrom<String> for ClusterId {
    type Error = InvalidClusterId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if (1..=64).contains(&text.len()) {
            Ok(Self(text))
        } else {
            Err(InvalidClusterId(text.len()))
        }
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why the ConfigMap with the cluster id cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterIdProblem {
    /// The configuration has another one.
    #[error(
        "the cluster id is {configured} in the configuration and {recorded} in the ConfigMap vsphere-csi-cluster-id; \
         remove it from the configuration to keep the cluster's volumes, or delete the ConfigMap if it has none yet"
    )]
    Conflict {
        /// In the configuration.
        configured: ClusterId,
        /// In the ConfigMap.
        recorded: ClusterId,
    },
    /// It has no valid one.
    #[error(
        "the ConfigMap vsphere-csi-cluster-id cannot be used: {0}; correct its key clusterID, or delete it"
    )]
    Invalid(#[from] InvalidClusterId),
}

impl CsiConfig {
    /// The cluster id that counts, given that of the ConfigMap `vsphere-csi-cluster-id` in the driver's namespace.
    /// `None` if neither has one: the caller then generates it and creates the ConfigMap, immutable.
    pub fn resolve_cluster_id(
        &self,
        recorded: Option<&str>,
    ) -> Result<Option<ClusterId>, ClusterIdProblem> {
        let recorded = recorded.map(|id| ClusterId::try_from(id.to_owned())).transpose()?;
        match (self.cluster_id.clone(), recorded) {
            (Some(configured), Some(recorded)) if configured != recorded => {
                Err(ClusterIdProblem::Conflict { configured, recorded })
            }
            (configured, recorded) => Ok(configured.or(recorded)),
        }
    }
}

/// A category of tags and the label of nodes and volumes that its tags become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyCategory {
    /// Its name in vCenter.
    pub name: String,
    /// The label's key.
    pub label: String,
}

/// Who may mount file volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetPermission {
    /// The name of its section.
    pub name: String,
    /// An address, a range or a subnet; `*` is everybody.
    pub ips: String,
    /// What they may do.
    pub access: Access,
    /// Whether root is mapped to nobody.
    pub root_squash: bool,
}

impl Default for NetPermission {
    fn default() -> Self {
        let (name, ips) = ("#".to_owned(), "*".to_owned());
        Self { name, ips, access: Access::ReadWrite, root_squash: false }
    }
}

/// What may be done with a file volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum Access {
    ReadWrite,
    ReadOnly,
    NoAccess,
}

impl Access {
    /// All of them, with vSAN's names.
    pub(crate) const NAMES: [(Self, &str); 3] = [
        (Self::ReadWrite, "READ_WRITE"),
        (Self::ReadOnly, "READ_ONLY"),
        (Self::NoAccess, "NO_ACCESS"),
    ];

    /// As vSAN's interface names it.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(access, _)| *access == self).map_or("", |(_, name)| name)
    }
}

/// How many snapshots a block volume may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotLimits {
    /// Where no other limit holds.
    pub per_volume: u32,
    /// On vSAN datastores.
    pub vsan: Option<u32>,
    /// On virtual volumes.
    pub vvol: Option<u32>,
}

/// How often something is refreshed or cleaned up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intervals {
    /// Privileges on datastores.
    pub auth_check: Duration,
    /// Tags of the categories in `topology`.
    pub tags: Duration,
    /// Datastores that are tagged as preferred.
    pub preferred_datastores: Duration,
    /// Records of finished volume operations.
    pub operation_cleanup: Duration,
    /// Records of migrated volumes that are gone.
    pub migration_cleanup: Duration,
}
