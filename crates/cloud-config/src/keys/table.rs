//! The rows: section, names, kind, what becomes of it, variable, and the sentence for the user's page.

use super::{Id, Key, Kind, Section, Status};

const fn key(
    section: Section,
    names: (&'static str, Option<&'static str>),
    kind: Kind,
    id: Id,
    variable: Option<&'static str>,
    doc: &'static str,
) -> Key {
    let status = Status::Current(id);
    Key { section, ini: names.0, yaml: names.1, kind, status, variable, doc }
}

const fn ignored(
    section: Section,
    names: (&'static str, Option<&'static str>),
    kind: Kind,
    why: &'static str,
) -> Key {
    let status = Status::Ignored(why);
    let (ini, yaml) = names;
    Key { section, ini, yaml, kind, status, variable: None, doc: why }
}

/// A key of the in-tree provider that neither the Go program nor we use, although another key does the same.
const fn replaced(section: Section, ini: &'static str, now: &'static str) -> Key {
    let status = Status::Replaced(now);
    Key { section, ini, yaml: None, kind: Kind::Text, status, variable: None, doc: now }
}

const ATTEMPTS: &str = "requests are retried by the kind of their failure, not by a count";
const NO_API: &str = "the interface was removed";
const DISKS: &str = "only the CSI driver manages disks";
const IDENTITY: &str = "a node's VM is found by its UUID";

/// The table.
pub(crate) static KEYS: &[Key] = &[
    key(
        Section::Global,
        ("user", Some("user")),
        Kind::Text,
        Id::User,
        Some("VSPHERE_USER"),
        "The user for every vCenter that names none; better in a Secret. A certificate in PEM makes `password` its private key.",
    ),
    key(
        Section::Global,
        ("password", Some("password")),
        Kind::Text,
        Id::Password,
        Some("VSPHERE_PASSWORD"),
        "The password for every vCenter that names none; better in a Secret.",
    ),
    key(
        Section::Global,
        ("server", Some("server")),
        Kind::Text,
        Id::Server,
        Some("VSPHERE_VCENTER"),
        "The only vCenter, for files without a section for each.",
    ),
    key(
        Section::Global,
        ("port", Some("port")),
        Kind::Port,
        Id::Port,
        Some("VSPHERE_VCENTER_PORT"),
        "The port of every vCenter that names none; 443 if absent.",
    ),
    key(
        Section::Global,
        ("insecure-flag", Some("insecureFlag")),
        Kind::Flag,
        Id::InsecureFlag,
        Some("VSPHERE_INSECURE"),
        "Accepts any certificate of any vCenter; a vCenter's own section cannot revert this.",
    ),
    key(
        Section::Global,
        ("datacenters", Some("datacenters")),
        Kind::List,
        Id::Datacenters,
        Some("VSPHERE_DATACENTER"),
        "Where VMs are looked for, by name, inventory path or reference (`Datacenter:datacenter-3`); all if absent.",
    ),
    key(
        Section::Global,
        ("ca-file", Some("caFile")),
        Kind::Path,
        Id::CaFile,
        Some("VSPHERE_CAFILE"),
        "A PEM file with the authorities that are trusted instead of the system's.",
    ),
    key(
        Section::Global,
        ("thumbprint", Some("thumbprint")),
        Kind::Text,
        Id::Thumbprint,
        Some("VSPHERE_THUMBPRINT"),
        "The SHA-1 or SHA-256 digest of a certificate that is trusted without a known authority.",
    ),
    key(
        Section::Global,
        ("secret-name", Some("secretName")),
        Kind::Text,
        Id::SecretName,
        Some("VSPHERE_SECRET_NAME"),
        "The Secret with the credentials of every vCenter that names none.",
    ),
    key(
        Section::Global,
        ("secret-namespace", Some("secretNamespace")),
        Kind::Text,
        Id::SecretNamespace,
        Some("VSPHERE_SECRET_NAMESPACE"),
        "The namespace of that Secret.",
    ),
    key(
        Section::Global,
        ("secrets-directory", Some("secretsDirectory")),
        Kind::Path,
        Id::SecretsDirectory,
        Some("VSPHERE_SECRETS_DIRECTORY"),
        "A directory with one file per key of such a Secret; `/etc/cloud/secrets` if that exists and no credentials are configured.",
    ),
    key(
        Section::Global,
        ("ip-family", Some("ipFamily")),
        Kind::Families,
        Id::IpFamily,
        None,
        "Which addresses nodes get, the preferred family first; ipv4 if absent.",
    ),
    ignored(
        Section::Global,
        ("soap-roundtrip-count", Some("soapRoundtripCount")),
        Kind::Number,
        ATTEMPTS,
    ),
    ignored(Section::Global, ("api-disable", Some("apiDisable")), Kind::Flag, NO_API),
    ignored(Section::Global, ("api-binding", Some("apiBinding")), Kind::Text, NO_API),
    replaced(Section::Global, "datacenter", "datacenters"),
    ignored(Section::Global, ("datastore", None), Kind::Text, DISKS),
    ignored(Section::Global, ("working-dir", None), Kind::Text, DISKS),
    ignored(Section::Global, ("vm-uuid", None), Kind::Text, IDENTITY),
    ignored(Section::Global, ("vm-name", None), Kind::Text, IDENTITY),
    ignored(
        Section::Global,
        ("secret-not-managed", None),
        Kind::Flag,
        "Secrets are only ever read",
    ),
    key(
        Section::VirtualCenter,
        ("user", Some("user")),
        Kind::Text,
        Id::User,
        Some("USERNAME"),
        "The user.",
    ),
    key(
        Section::VirtualCenter,
        ("password", Some("password")),
        Kind::Text,
        Id::Password,
        Some("PASSWORD"),
        "The password.",
    ),
    key(
        Section::VirtualCenter,
        ("server", Some("server")),
        Kind::Text,
        Id::Server,
        Some("SERVER"),
        "Host name or address; required in YAML, the section's name if absent in INI. Secrets are searched for exactly this text.",
    ),
    key(
        Section::VirtualCenter,
        ("port", Some("port")),
        Kind::Port,
        Id::Port,
        Some("PORT"),
        "The port.",
    ),
    key(
        Section::VirtualCenter,
        ("insecure-flag", Some("insecureFlag")),
        Kind::Flag,
        Id::InsecureFlag,
        Some("INSECURE"),
        "Accepts any certificate.",
    ),
    key(
        Section::VirtualCenter,
        ("datacenters", Some("datacenters")),
        Kind::List,
        Id::Datacenters,
        Some("DATACENTERS"),
        "Where VMs are looked for.",
    ),
    key(
        Section::VirtualCenter,
        ("ca-file", Some("caFile")),
        Kind::Path,
        Id::CaFile,
        Some("CAFILE"),
        "A PEM file with the authorities that are trusted.",
    ),
    key(
        Section::VirtualCenter,
        ("thumbprint", Some("thumbprint")),
        Kind::Text,
        Id::Thumbprint,
        Some("THUMBPRINT"),
        "The digest of the certificate that is trusted.",
    ),
    key(
        Section::VirtualCenter,
        ("secret-name", Some("secretName")),
        Kind::Text,
        Id::SecretName,
        Some("SECRET_NAME"),
        "The Secret with this vCenter's credentials.",
    ),
    key(
        Section::VirtualCenter,
        ("secret-namespace", Some("secretNamespace")),
        Kind::Text,
        Id::SecretNamespace,
        Some("SECRET_NAMESPACE"),
        "The namespace of that Secret.",
    ),
    key(
        Section::VirtualCenter,
        ("ip-family", Some("ipFamily")),
        Kind::Families,
        Id::IpFamily,
        Some("IP_FAMILY"),
        "Which addresses nodes get, the preferred family first.",
    ),
    ignored(
        Section::VirtualCenter,
        ("soap-roundtrip-count", Some("soapRoundtripCount")),
        Kind::Number,
        ATTEMPTS,
    ),
    key(
        Section::Labels,
        ("zone", Some("zone")),
        Kind::Text,
        Id::Zone,
        Some("VSPHERE_LABEL_ZONE"),
        "The category of the tags that name zones.",
    ),
    key(
        Section::Labels,
        ("region", Some("region")),
        Kind::Text,
        Id::Region,
        Some("VSPHERE_LABEL_REGION"),
        "The category of the tags that name regions.",
    ),
    key(
        Section::Nodes,
        ("internal-network-subnet-cidr", Some("internalNetworkSubnetCidr")),
        Kind::Subnets,
        Id::InternalSubnets,
        Some("VSPHERE_NODES_INTERNAL_NETWORK_SUBNET_CIDR"),
        "Internal addresses are taken from these subnets.",
    ),
    key(
        Section::Nodes,
        ("external-network-subnet-cidr", Some("externalNetworkSubnetCidr")),
        Kind::Subnets,
        Id::ExternalSubnets,
        Some("VSPHERE_NODES_EXTERNAL_NETWORK_SUBNET_CIDR"),
        "External addresses are taken from these subnets.",
    ),
    key(
        Section::Nodes,
        ("internal-vm-network-name", Some("internalVmNetworkName")),
        Kind::Text,
        Id::InternalNetwork,
        Some("VSPHERE_NODES_INTERNAL_VM_NETWORK_NAME"),
        "Internal addresses are taken from adapters on this network.",
    ),
    key(
        Section::Nodes,
        ("external-vm-network-name", Some("externalVmNetworkName")),
        Kind::Text,
        Id::ExternalNetwork,
        Some("VSPHERE_NODES_EXTERNAL_VM_NETWORK_NAME"),
        "External addresses are taken from adapters on this network.",
    ),
    key(
        Section::Nodes,
        ("exclude-internal-network-subnet-cidr", Some("excludeInternalNetworkSubnetCidr")),
        Kind::Subnets,
        Id::ExcludedInternalSubnets,
        None,
        "Addresses in these subnets are never internal.",
    ),
    key(
        Section::Nodes,
        ("exclude-external-network-subnet-cidr", Some("excludeExternalNetworkSubnetCidr")),
        Kind::Subnets,
        Id::ExcludedExternalSubnets,
        None,
        "Addresses in these subnets are never external.",
    ),
    replaced(
        Section::Network,
        "public-network",
        "internal-vm-network-name and external-vm-network-name in [Nodes]",
    ),
    ignored(Section::Disk, ("scsicontrollertype", None), Kind::Text, DISKS),
    ignored(Section::Workspace, ("server", None), Kind::Text, DISKS),
    ignored(Section::Workspace, ("datacenter", None), Kind::Text, DISKS),
    ignored(Section::Workspace, ("folder", None), Kind::Text, DISKS),
    ignored(Section::Workspace, ("default-datastore", None), Kind::Text, DISKS),
    ignored(Section::Workspace, ("resourcepool-path", None), Kind::Text, DISKS),
];
