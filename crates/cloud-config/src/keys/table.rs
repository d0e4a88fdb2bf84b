//! The rows: section, name in INI, meaning, and the variable that overrides it or why it has no effect.

use super::{
    Id, Key,
    Section::{self, Disk, Global, Labels, Network, Nodes, VirtualCenter, Workspace},
    Status,
};

const fn key(section: Section, ini: &'static str, id: Id, variable: Option<&'static str>) -> Key {
    Key { section, ini, in_yaml: true, status: Status::Current(id), variable }
}

const fn ignored(section: Section, ini: &'static str, why: &'static str) -> Key {
    Key { section, ini, in_yaml: true, status: Status::Ignored(why), variable: None }
}

/// A key of the in-tree provider, which had no YAML.
const fn in_tree(section: Section, ini: &'static str, why: &'static str) -> Key {
    Key { section, ini, in_yaml: false, status: Status::Ignored(why), variable: None }
}

/// A key of the in-tree provider that neither the Go program nor we use, although another key does the same.
const fn replaced(section: Section, ini: &'static str, now: &'static str) -> Key {
    Key { section, ini, in_yaml: false, status: Status::Replaced(now), variable: None }
}

const ATTEMPTS: &str = "requests are retried by the kind of their failure, not by a count";
const NO_API: &str = "the interface was removed";
const DISKS: &str = "only the CSI driver manages disks";
const IDENTITY: &str = "a node's VM is found by its UUID";

/// The table.
pub(crate) static KEYS: &[Key] = &[
    key(Global, "user", Id::User, Some("VSPHERE_USER")),
    key(Global, "password", Id::Password, Some("VSPHERE_PASSWORD")),
    key(Global, "server", Id::Server, Some("VSPHERE_VCENTER")),
    key(Global, "port", Id::Port, Some("VSPHERE_VCENTER_PORT")),
    key(Global, "insecure-flag", Id::InsecureFlag, Some("VSPHERE_INSECURE")),
    key(Global, "datacenters", Id::Datacenters, Some("VSPHERE_DATACENTER")),
    key(Global, "ca-file", Id::CaFile, Some("VSPHERE_CAFILE")),
    key(Global, "thumbprint", Id::Thumbprint, Some("VSPHERE_THUMBPRINT")),
    key(Global, "secret-name", Id::SecretName, Some("VSPHERE_SECRET_NAME")),
    key(Global, "secret-namespace", Id::SecretNamespace, Some("VSPHERE_SECRET_NAMESPACE")),
    key(Global, "secrets-directory", Id::SecretsDirectory, Some("VSPHERE_SECRETS_DIRECTORY")),
    key(Global, "ip-family", Id::IpFamily, None),
    ignored(Global, "soap-roundtrip-count", ATTEMPTS),
    ignored(Global, "api-disable", NO_API),
    ignored(Global, "api-binding", NO_API),
    replaced(Global, "datacenter", "datacenters"),
    in_tree(Global, "datastore", DISKS),
    in_tree(Global, "working-dir", DISKS),
    in_tree(Global, "vm-uuid", IDENTITY),
    in_tree(Global, "vm-name", IDENTITY),
    in_tree(Global, "secret-not-managed", "Secrets are only ever read"),
    key(VirtualCenter, "user", Id::User, Some("USERNAME")),
    key(VirtualCenter, "password", Id::Password, Some("PASSWORD")),
    key(VirtualCenter, "server", Id::Server, Some("SERVER")),
    key(VirtualCenter, "port", Id::Port, Some("PORT")),
    key(VirtualCenter, "insecure-flag", Id::InsecureFlag, Some("INSECURE")),
    key(VirtualCenter, "datacenters", Id::Datacenters, Some("DATACENTERS")),
    key(VirtualCenter, "ca-file", Id::CaFile, Some("CAFILE")),
    key(VirtualCenter, "thumbprint", Id::Thumbprint, Some("THUMBPRINT")),
    key(VirtualCenter, "secret-name", Id::SecretName, Some("SECRET_NAME")),
    key(VirtualCenter, "secret-namespace", Id::SecretNamespace, Some("SECRET_NAMESPACE")),
    key(VirtualCenter, "ip-family", Id::IpFamily, Some("IP_FAMILY")),
    ignored(VirtualCenter, "soap-roundtrip-count", ATTEMPTS),
    key(Labels, "zone", Id::Zone, Some("VSPHERE_LABEL_ZONE")),
    key(Labels, "region", Id::Region, Some("VSPHERE_LABEL_REGION")),
    key(
        Nodes,
        "internal-network-subnet-cidr",
        Id::InternalSubnets,
        Some("VSPHERE_NODES_INTERNAL_NETWORK_SUBNET_CIDR"),
    ),
    key(
        Nodes,
        "external-network-subnet-cidr",
        Id::ExternalSubnets,
        Some("VSPHERE_NODES_EXTERNAL_NETWORK_SUBNET_CIDR"),
    ),
    key(
        Nodes,
        "internal-vm-network-name",
        Id::InternalNetwork,
        Some("VSPHERE_NODES_INTERNAL_VM_NETWORK_NAME"),
    ),
    key(
        Nodes,
        "external-vm-network-name",
        Id::ExternalNetwork,
        Some("VSPHERE_NODES_EXTERNAL_VM_NETWORK_NAME"),
    ),
    key(Nodes, "exclude-internal-network-subnet-cidr", Id::ExcludedInternalSubnets, None),
    key(Nodes, "exclude-external-network-subnet-cidr", Id::ExcludedExternalSubnets, None),
    replaced(
        Network,
        "public-network",
        "internal-vm-network-name and external-vm-network-name in [Nodes]",
    ),
    in_tree(Disk, "scsicontrollertype", DISKS),
    in_tree(Workspace, "server", DISKS),
    in_tree(Workspace, "datacenter", DISKS),
    in_tree(Workspace, "folder", DISKS),
    in_tree(Workspace, "default-datastore", DISKS),
    in_tree(Workspace, "resourcepool-path", DISKS),
];
