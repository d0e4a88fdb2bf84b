//! Every key of `vsphere.conf` and `csi-vsphere.conf`, in one table (`keys/table.rs`), and how names are found in it.
//!
//! The table drives the reading of both files and formats, the environment's overrides, the suggestions for misspelt
//! names and the page in `docs/user/configuration.md`. A key that is not here does not exist.

mod table;

use std::borrow::Cow;

use crate::nearest::nearest;

pub(crate) use table::KEYS;

/// The two ways to write the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `[Global]` and `key = value`, the older one.
    Ini,
    /// `global:` and `key: value`.
    Yaml,
}

/// Whose file it is, and which program reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// `vsphere.conf`, read by the cloud controller manager.
    Ccm,
    /// `csi-vsphere.conf`.
    Csi,
    /// `vsphere.conf`, read by the CSI driver.
    Shared,
}

/// A section of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Global,
    VirtualCenter,
    Labels,
    Nodes,
    Network,
    Disk,
    Workspace,
    NsxT,
    LoadBalancer,
    LoadBalancerClass,
    Route,
    Snapshot,
    NetPermissions,
    TopologyCategory,
}

/// Every section with its names in INI and YAML; those of the in-tree provider have none in YAML.
pub(crate) const SECTIONS: [(Section, &str, Option<&str>); 14] = [
    (Section::Global, "Global", Some("global")),
    (Section::VirtualCenter, "VirtualCenter", Some("vcenter")),
    (Section::Labels, "Labels", Some("labels")),
    (Section::Nodes, "Nodes", Some("nodes")),
    (Section::Network, "Network", None),
    (Section::Disk, "Disk", None),
    (Section::Workspace, "Workspace", None),
    (Section::NsxT, "NSXT", Some("nsxt")),
    (Section::LoadBalancer, "LoadBalancer", Some("loadBalancer")),
    (Section::LoadBalancerClass, "LoadBalancerClass", Some("loadBalancerClass")),
    (Section::Route, "Route", Some("route")),
    (Section::Snapshot, "Snapshot", Some("snapshot")),
    (Section::NetPermissions, "NetPermissions", Some("netPermissions")),
    (Section::TopologyCategory, "TopologyCategory", Some("topologyCategory")),
];

/// The names of all sections in a format.
fn section_names(format: Format) -> impl Iterator<Item = (Section, &'static str)> {
    SECTIONS.into_iter().filter_map(move |(section, ini, yaml)| match format {
        Format::Ini => Some((section, ini)),
        Format::Yaml => Some((section, yaml?)),
    })
}

impl Section {
    pub(crate) fn name(self, format: Format) -> Option<&'static str> {
        section_names(format).find(|(section, _)| *section == self).map(|(_, name)| name)
    }

    /// Whether there may be several, each with a name.
    pub(crate) fn is_named(self) -> bool {
        matches!(
            self,
            Self::VirtualCenter
                | Self::LoadBalancerClass
                | Self::NetPermissions
                | Self::TopologyCategory
        )
    }

    /// Whether it is for the other program only.
    pub(crate) fn is_foreign(self, kind: FileKind) -> bool {
        match self {
            Self::Snapshot | Self::NetPermissions | Self::TopologyCategory => kind == FileKind::Ccm,
            Self::Nodes => kind != FileKind::Ccm,
            _ => kind != FileKind::Ccm && self.unsupported().is_some(),
        }
    }

    /// What an unsupported section configures, and what breaks when one that the Go program serves is ignored.
    pub(crate) fn unsupported(self) -> Option<(&'static str, Option<&'static str>)> {
        match self {
            Self::NsxT => Some(("the connection to NSX-T", None)),
            Self::LoadBalancer | Self::LoadBalancerClass => Some((
                "load balancing by NSX-T",
                Some(
                    "Services of type LoadBalancer would get no address, and existing ones would keep their \
                     finalizer, so that they and their namespaces could not be deleted",
                ),
            )),
            Self::Route => {
                Some(("routing by NSX-T", Some("Nodes would get no routes to their pods")))
            }
            _ => None,
        }
    }

    pub(crate) fn find(name: &str, format: Format) -> Option<Self> {
        section_names(format)
            .find(|(_, known)| same(known, name, format))
            .map(|(section, _)| section)
    }

    /// The name that was probably meant.
    pub(crate) fn suggestion(name: &str, format: Format, kind: FileKind) -> Option<&'static str> {
        let ours = section_names(format).filter(|(section, _)| !section.is_foreign(kind));
        nearest(name, ours.map(|(_, known)| known))
    }
}

/// The meaning of a key, in whichever section it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Id {
    User,
    Password,
    Server,
    Port,
    InsecureFlag,
    Datacenters,
    CaFile,
    Thumbprint,
    SecretName,
    SecretNamespace,
    SecretsDirectory,
    IpFamily,
    Zone,
    Region,
    InternalSubnets,
    ExternalSubnets,
    InternalNetwork,
    ExternalNetwork,
    ExcludedInternalSubnets,
    ExcludedExternalSubnets,
    Cluster,
    ClusterDistribution,
    AuthCheckInterval,
    PreferredDatastoresInterval,
    OperationCleanupInterval,
    MigrationCleanupInterval,
    QueryLimit,
    ListVolumeThreshold,
    MigrationDatastoreUrl,
    TopologyCategories,
    TopologyLabel,
    NearestTag,
    TagsInterval,
    MaxSnapshots,
    MaxSnapshotsVsan,
    MaxSnapshotsVvol,
    Ips,
    Permissions,
    RootSquash,
}

impl Id {
    /// What a value must look like, as the page and messages name it.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::CaFile | Self::SecretsDirectory => "path",
            Self::InsecureFlag | Self::RootSquash | Self::NearestTag => "true or false",
            Self::Port => "port",
            Self::Datacenters | Self::TopologyCategories => "list of texts",
            Self::AuthCheckInterval
            | Self::PreferredDatastoresInterval
            | Self::OperationCleanupInterval
            | Self::MigrationCleanupInterval => "number of minutes",
            Self::TagsInterval => "number of seconds",
            Self::QueryLimit
            | Self::ListVolumeThreshold
            | Self::MaxSnapshots
            | Self::MaxSnapshotsVsan
            | Self::MaxSnapshotsVvol => "number",
            Self::Permissions => "READ_WRITE, READ_ONLY or NO_ACCESS",
            Self::InternalSubnets
            | Self::ExternalSubnets
            | Self::ExcludedInternalSubnets
            | Self::ExcludedExternalSubnets => "list of subnets",
            Self::IpFamily => "list of ipv4, ipv6",
            _ => "text",
        }
    }

    /// What an absent number stands for; zero if that is no number.
    pub(crate) fn default_number(self) -> u32 {
        match self {
            Self::AuthCheckInterval | Self::PreferredDatastoresInterval => 5,
            Self::OperationCleanupInterval => 15,
            Self::MigrationCleanupInterval => 120,
            Self::QueryLimit => 10_000,
            Self::ListVolumeThreshold => 50,
            Self::MaxSnapshots => 3,
            Self::TagsInterval => 60,
            _ => 0,
        }
    }
}

/// What becomes of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// It is used.
    Current(Id),
    /// It is of the in-tree provider and does nothing, as in the Go program; the INI keys that do the same now.
    Replaced(&'static str),
    /// It is accepted and does nothing, for this reason.
    Ignored(&'static str),
    /// The other program uses it, so nobody is warned.
    Foreign,
}

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) section: Section,
    pub(crate) ini: &'static str,
    /// Whether YAML has it too, in camel case.
    in_yaml: bool,
    /// In `vsphere.conf`, for the cloud controller manager.
    ccm: Status,
    /// In `csi-vsphere.conf`.
    csi: Status,
    /// The variable that overrides it; of a vCenter what follows `VCENTER_<ID>_`.
    pub(crate) variable: Option<&'static str>,
}

impl Key {
    pub(crate) fn name(&self, format: Format) -> Option<Cow<'static, str>> {
        match format {
            Format::Ini => Some(self.ini.into()),
            Format::Yaml => self.in_yaml.then(|| camel_case(self.ini).into()),
        }
    }

    pub(crate) fn status(&self, kind: FileKind) -> Status {
        match (kind, self.ccm) {
            // What the manager uses means the same to the CSI driver when that reads the manager's file.
            (FileKind::Ccm, _) | (FileKind::Shared, Status::Current(_)) => self.ccm,
            _ => self.csi,
        }
    }

    /// The meaning, if any program uses it.
    pub(crate) fn id(&self) -> Option<Id> {
        [self.ccm, self.csi].into_iter().find_map(|status| match status {
            Status::Current(id) => Some(id),
            _ => None,
        })
    }

    pub(crate) fn find(section: Section, name: &str, format: Format) -> Option<&'static Self> {
        KEYS.iter()
            .filter(|key| key.section == section)
            .find(|key| key.name(format).is_some_and(|known| same(&known, name, format)))
    }

    /// The row of something that is used.
    pub(crate) fn of(section: Section, id: Id) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.section == section && key.id() == Some(id))
    }
}

/// The remedy for a name that the section does not have.
pub(crate) fn advice(section: Section, name: &str, format: Format, kind: FileKind) -> String {
    let other = match format {
        Format::Ini => Format::Yaml,
        Format::Yaml => Format::Ini,
    };
    if let Some(key) = Key::find(section, name, other)
        && let Some(right) = key.name(format)
    {
        return format!("in this format it is called {right}");
    }
    if let Some(misplaced) = Section::find(name, format) {
        let how = match format {
            Format::Ini => "write it in brackets",
            Format::Yaml => "move it to the left margin",
        };
        return format!("{} is a section; {how}", misplaced.name(format).unwrap_or(name));
    }
    let ours = |key: &&Key| key.section == section && key.status(kind) != Status::Foreign;
    let here = KEYS.iter().filter(ours);
    if let Some(meant) = nearest(name, here.filter_map(|key| key.name(format))) {
        return format!("did you mean {meant}?");
    }
    let mut sections = section_names(format).filter(|(other, _)| !other.is_foreign(kind));
    match sections.find(|(other, _)| Key::find(*other, name, format).is_some()) {
        Some((_, home)) => format!("it belongs to the section {home}"),
        None => "remove it, or see docs/user/configuration.md for all keys".to_owned(),
    }
}

/// `ca-file` becomes `caFile`.
fn camel_case(name: &str) -> String {
    let mut words = name.split('-');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| name + &word[..1].to_ascii_uppercase() + &word[1..])
}

/// INI names are case-insensitive, YAML names are not.
fn same(known: &str, name: &str, format: Format) -> bool {
    match format {
        Format::Ini => known.eq_ignore_ascii_case(name),
        Format::Yaml => known == name,
    }
}

#[cfg(test)]
mod tests {
    use super::{FileKind, Format, KEYS, Key, Section, advice};

    #[test]
    fn every_key_is_found_by_its_names_and_no_two_share_one() {
        for (at, key) in KEYS.iter().enumerate() {
            for format in [Format::Ini, Format::Yaml] {
                let Some(name) = key.name(format) else { continue };
                let found = Key::find(key.section, &name, format).unwrap();
                assert!(std::ptr::eq(found, key), "{name} is also row {at}");
            }
        }
    }

    #[test]
    fn an_unknown_name_gets_the_advice_that_fits() {
        let cases = [
            (Section::Global, "secretNmae", Format::Yaml, "did you mean secretName?"),
            (Section::Global, "ca-file", Format::Yaml, "in this format it is called caFile"),
            (
                Section::Global,
                "insecureFlag",
                Format::Ini,
                "in this format it is called insecure-flag",
            ),
            (
                Section::Global,
                "vcenter",
                Format::Yaml,
                "vcenter is a section; move it to the left margin",
            ),
            (Section::Global, "zone", Format::Yaml, "it belongs to the section labels"),
            (Section::Global, "insecure", Format::Yaml, "did you mean insecureFlag?"),
            (
                Section::Labels,
                "colour",
                Format::Yaml,
                "remove it, or see docs/user/configuration.md for all keys",
            ),
        ];
        for (section, name, format, wanted) in cases {
            assert_eq!(advice(section, name, format, FileKind::Ccm), wanted, "{name}");
        }
    }
}
