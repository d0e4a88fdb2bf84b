//! The rows: section, name in INI, meaning, and the variable that overrides it or why it has no effect.

use super::{
    Id, Key,
    Section::{
        self, Disk, Global, Labels, NetPermissions, Network, Nodes, Snapshot, TopologyCategory,
        VirtualCenter, Workspace,
    },
    Status::{self, Current, Foreign, Ignored, Replaced},
};

type Name = &'static str;

const fn row(section: Section, ini: Name, ccm: Status, csi: Status, variable: Option<Name>) -> Key {
    Key { section, ini, in_yaml: true, ccm, csi, variable }
}

/// A key that both programs use.
const fn key(section: Section, ini: Name, id: Id, variable: Option<Name>) -> Key {
    row(section, ini, Current(id), Current(id), variable)
}

/// A key of the cloud controller manager, and why the CSI driver's own file does not have it.
const fn ccm(section: Section, ini: Name, id: Id, variable: Option<Name>, why: Name) -> Key {
    row(section, ini, Current(id), Ignored(why), variable)
}

/// A key of a section that the CSI driver's own file does not have.
const fn node(section: Section, ini: Name, id: Id, variable: Option<Name>) -> Key {
    row(section, ini, Current(id), Foreign, variable)
}

/// A key of the CSI driver.
const fn csi(section: Section, ini: Name, id: Id, variable: Option<Name>) -> Key {
    row(section, ini, Foreign, Current(id), variable)
}

/// A key of the CSI driver that has no effect.
const fn csi_ignored(section: Section, ini: Name, why: Name) -> Key {
    row(section, ini, Foreign, Ignored(why), None)
}

const fn ignored(section: Section, ini: Name, why: Name) -> Key {
    row(section, ini, Ignored(why), Ignored(why), None)
}

/// A key of the in-tree provider, which had no YAML.
const fn in_tree(section: Section, ini: Name, why: Name, csi: Name) -> Key {
    Key { in_yaml: false, ..row(section, ini, Ignored(why), Ignored(csi), None) }
}

/// A key of the in-tree provider that neither the Go programs nor we use, although another key does the same.
const fn replaced(section: Section, ini: Name, now: Name, csi: Status) -> Key {
    Key { in_yaml: false, ..row(section, ini, Replaced(now), csi, None) }
}

const ATTEMPTS: &str = "requests are retried by the kind of their failure, not by a count";
const NO_API: &str = "the interface was removed";
const DISKS: &str = "only the CSI driver manages disks";
const CLASSES: &str = "StorageClasses name datastores and policies";
const PLACES: &str = "volumes are placed by StorageClass and topology";
const IDENTITY: &str = "a node's VM is found by its UUID";
const ADDRESSES: &str = "only the cloud controller manager assigns addresses";
const READ: &str = "Secrets are only ever read";
const HOSTS: &str = "the names of the sections [VirtualCenter] are the hosts";
const HOST: &str = "the name of the section is the host that is connected to";
const SUPERVISOR: &str = "only supervisor clusters use it";
const FILE_SERVICE: &str = "privileges decide which vSAN clusters hold file shares";
const SESSIONS: &str =
    "a session service is named in the Secret that secret-name and secret-namespace name";

/// The table.
pub(crate) static KEYS: &[Key] = &[
    key(Global, "user", Id::User, Some("VSPHERE_USER")),
    key(Global, "password", Id::Password, Some("VSPHERE_PASSWORD")),
    ccm(Global, "server", Id::Server, Some("VSPHERE_VCENTER"), HOSTS),
    key(Global, "port", Id::Port, Some("VSPHERE_VCENTER_PORT")),
    key(Global, "insecure-flag", Id::InsecureFlag, Some("VSPHERE_INSECURE")),
    key(Global, "datacenters", Id::Datacenters, Some("VSPHERE_DATACENTER")),
    key(Global, "ca-file", Id::CaFile, Some("VSPHERE_CAFILE")),
    key(Global, "thumbprint", Id::Thumbprint, Some("VSPHERE_THUMBPRINT")),
    key(Global, "secret-name", Id::SecretName, Some("VSPHERE_SECRET_NAME")),
    key(Global, "secret-namespace", Id::SecretNamespace, Some("VSPHERE_SECRET_NAMESPACE")),
    key(Global, "secrets-directory", Id::SecretsDirectory, Some("VSPHERE_SECRETS_DIRECTORY")),
    ccm(Global, "ip-family", Id::IpFamily, None, ADDRESSES),
    ignored(Global, "soap-roundtrip-count", ATTEMPTS),
    ignored(Global, "api-disable", NO_API),
    ignored(Global, "api-binding", NO_API),
    replaced(Global, "datacenter", "datacenters", Replaced("datacenters")),
    in_tree(Global, "datastore", DISKS, CLASSES),
    in_tree(Global, "working-dir", DISKS, PLACES),
    in_tree(Global, "vm-uuid", IDENTITY, IDENTITY),
    in_tree(Global, "vm-name", IDENTITY, IDENTITY),
    in_tree(Global, "secret-not-managed", READ, READ),
    csi(Global, "cluster-id", Id::Cluster, None),
    csi(Global, "cluster-distribution", Id::ClusterDistribution, None),
    csi(Global, "csi-auth-check-intervalinmin", Id::AuthCheckInterval, None),
    csi(
        Global,
        "csi-fetch-preferred-datastores-intervalinmin",
        Id::PreferredDatastoresInterval,
        None,
    ),
    csi(
        Global,
        "cnsvolumeoperationrequest-cleanup-intervalinmin",
        Id::OperationCleanupInterval,
        None,
    ),
    csi(Global, "volumemigration-cr-cleanup-intervalinmin", Id::MigrationCleanupInterval, None),
    csi(Global, "query-limit", Id::QueryLimit, None),
    csi(Global, "list-volume-threshold", Id::ListVolumeThreshold, None),
    csi_ignored(Global, "supervisor-id", SUPERVISOR),
    csi_ignored(Global, "cnsregistervolumes-cleanup-intervalinmin", SUPERVISOR),
    csi_ignored(Global, "cnspvcprotection-cleanup-intervalinmin", SUPERVISOR),
    key(VirtualCenter, "user", Id::User, Some("USERNAME")),
    key(VirtualCenter, "password", Id::Password, Some("PASSWORD")),
    ccm(VirtualCenter, "server", Id::Server, Some("SERVER"), HOST),
    key(VirtualCenter, "port", Id::Port, Some("PORT")),
    key(VirtualCenter, "insecure-flag", Id::InsecureFlag, Some("INSECURE")),
    key(VirtualCenter, "datacenters", Id::Datacenters, Some("DATACENTERS")),
    key(VirtualCenter, "ca-file", Id::CaFile, Some("CAFILE")),
    key(VirtualCenter, "thumbprint", Id::Thumbprint, Some("THUMBPRINT")),
    key(VirtualCenter, "secret-name", Id::SecretName, Some("SECRET_NAME")),
    key(VirtualCenter, "secret-namespace", Id::SecretNamespace, Some("SECRET_NAMESPACE")),
    ccm(VirtualCenter, "ip-family", Id::IpFamily, Some("IP_FAMILY"), ADDRESSES),
    ignored(VirtualCenter, "soap-roundtrip-count", ATTEMPTS),
    csi(VirtualCenter, "migration-datastore-url", Id::MigrationDatastoreUrl, None),
    csi_ignored(VirtualCenter, "targetvSANFileShareClusters", FILE_SERVICE),
    csi_ignored(VirtualCenter, "targetvSANFileShareDatastoreURLs", FILE_SERVICE),
    csi_ignored(VirtualCenter, "vc-session-manager-url", SESSIONS),
    csi_ignored(VirtualCenter, "vc-session-manager-token", SESSIONS),
    key(Labels, "zone", Id::Zone, Some("VSPHERE_LABEL_ZONE")),
    key(Labels, "region", Id::Region, Some("VSPHERE_LABEL_REGION")),
    csi(Labels, "topology-categories", Id::TopologyCategories, None),
    key(Labels, "nearest-tag", Id::NearestTag, None),
    csi(Labels, "tags-interval", Id::TagsInterval, None),
    node(
        Nodes,
        "internal-network-subnet-cidr",
        Id::InternalSubnets,
        Some("VSPHERE_NODES_INTERNAL_NETWORK_SUBNET_CIDR"),
    ),
    node(
        Nodes,
        "external-network-subnet-cidr",
        Id::ExternalSubnets,
        Some("VSPHERE_NODES_EXTERNAL_NETWORK_SUBNET_CIDR"),
    ),
    node(
        Nodes,
        "internal-vm-network-name",
        Id::InternalNetwork,
        Some("VSPHERE_NODES_INTERNAL_VM_NETWORK_NAME"),
    ),
    node(
        Nodes,
        "external-vm-network-name",
        Id::ExternalNetwork,
        Some("VSPHERE_NODES_EXTERNAL_VM_NETWORK_NAME"),
    ),
    node(Nodes, "exclude-internal-network-subnet-cidr", Id::ExcludedInternalSubnets, None),
    node(Nodes, "exclude-external-network-subnet-cidr", Id::ExcludedExternalSubnets, None),
    replaced(
        Network,
        "public-network",
        "internal-vm-network-name and external-vm-network-name in [Nodes]",
        Ignored(ADDRESSES),
    ),
    in_tree(Disk, "scsicontrollertype", DISKS, "any controller of a VM is used"),
    in_tree(Workspace, "server", DISKS, PLACES),
    in_tree(Workspace, "datacenter", DISKS, PLACES),
    in_tree(Workspace, "folder", DISKS, PLACES),
    in_tree(Workspace, "default-datastore", DISKS, CLASSES),
    in_tree(Workspace, "resourcepool-path", DISKS, PLACES),
    csi(
        Snapshot,
        "global-max-snapshots-per-block-volume",
        Id::MaxSnapshots,
        Some("GLOBAL_MAX_SNAPSHOTS_PER_BLOCK_VOLUME"),
    ),
    csi(
        Snapshot,
        "granular-max-snapshots-per-block-volume-vsan",
        Id::MaxSnapshotsVsan,
        Some("GRANULAR_MAX_SNAPSHOTS_PER_BLOCK_VOLUME_VSAN"),
    ),
    csi(
        Snapshot,
        "granular-max-snapshots-per-block-volume-vvol",
        Id::MaxSnapshotsVvol,
        Some("GRANULAR_MAX_SNAPSHOTS_PER_BLOCK_VOLUME_VVOL"),
    ),
    csi(NetPermissions, "ips", Id::Ips, None),
    csi(NetPermissions, "permissions", Id::Permissions, None),
    csi(NetPermissions, "rootsquash", Id::RootSquash, None),
    csi(TopologyCategory, "label", Id::TopologyLabel, None),
];
