//! Every key of `vsphere.conf`, in one table (`keys/table.rs`), and how names are found in it.
//!
//! The table drives the reading of both formats, the environment's overrides, the suggestions for misspelt
//! names and the page in `docs/user/configuration.md`. A key that is not here does not exist.

mod table;

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

/// A section of the file.
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
}

impl Section {
    pub(crate) const ALL: [Self; 11] = [
        Self::Global,
        Self::VirtualCenter,
        Self::Labels,
        Self::Nodes,
        Self::Network,
        Self::Disk,
        Self::Workspace,
        Self::NsxT,
        Self::LoadBalancer,
        Self::LoadBalancerClass,
        Self::Route,
    ];

    /// How it is written; sections of the in-tree provider have no YAML name.
    pub(crate) fn name(self, format: Format) -> Option<&'static str> {
        let (ini, yaml) = match self {
            Self::Global => ("Global", Some("global")),
            Self::VirtualCenter => ("VirtualCenter", Some("vcenter")),
            Self::Labels => ("Labels", Some("labels")),
            Self::Nodes => ("Nodes", Some("nodes")),
            Self::Network => ("Network", None),
            Self::Disk => ("Disk", None),
            Self::Workspace => ("Workspace", None),
            Self::NsxT => ("NSXT", Some("nsxt")),
            Self::LoadBalancer => ("LoadBalancer", Some("loadBalancer")),
            Self::LoadBalancerClass => ("LoadBalancerClass", Some("loadBalancerClass")),
            Self::Route => ("Route", Some("route")),
        };
        match format {
            Format::Ini => Some(ini),
            Format::Yaml => yaml,
        }
    }

    /// Whether there may be several, each with a name.
    pub(crate) fn is_named(self) -> bool {
        matches!(self, Self::VirtualCenter | Self::LoadBalancerClass)
    }

    /// What breaks when a section that the Go program serves is ignored.
    pub(crate) fn consequence(self) -> Option<&'static str> {
        match self {
            Self::LoadBalancer | Self::LoadBalancerClass => Some(
                "Services of type LoadBalancer would get no address, and existing ones would keep their \
                 finalizer, so that they and their namespaces could not be deleted",
            ),
            Self::Route => Some("Nodes would get no routes to their pods"),
            _ => None,
        }
    }

    /// What an unsupported section configures.
    pub(crate) fn unsupported(self) -> Option<&'static str> {
        match self {
            Self::NsxT => Some("the connection to NSX-T"),
            Self::LoadBalancer | Self::LoadBalancerClass => Some("load balancing by NSX-T"),
            Self::Route => Some("routing by NSX-T"),
            _ => None,
        }
    }

    pub(crate) fn find(name: &str, format: Format) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|section| section.name(format).is_some_and(|known| same(known, name, format)))
    }

    /// The name that was probably meant.
    pub(crate) fn suggestion(name: &str, format: Format) -> Option<&'static str> {
        nearest(name, Self::ALL.into_iter().filter_map(|section| section.name(format)))
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
}

/// What a value must look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Path,
    Flag,
    Port,
    Number,
    List,
    Subnets,
    Families,
}

impl Kind {
    /// As the page and messages name it.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Path => "path",
            Self::Flag => "true or false",
            Self::Port => "port",
            Self::Number => "number",
            Self::List => "list of texts",
            Self::Subnets => "list of subnets",
            Self::Families => "list of ipv4, ipv6",
        }
    }

    pub(crate) fn is_list(self) -> bool {
        matches!(self, Self::List | Self::Subnets | Self::Families)
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
}

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) section: Section,
    pub(crate) ini: &'static str,
    /// None: there was none when YAML came.
    pub(crate) yaml: Option<&'static str>,
    pub(crate) kind: Kind,
    pub(crate) status: Status,
    /// The variable that overrides it; of a vCenter what follows `VCENTER_<ID>_`.
    pub(crate) variable: Option<&'static str>,
    #[cfg_attr(not(test), expect(dead_code, reason = "only the page shows it"))]
    pub(crate) doc: &'static str,
}

impl Key {
    pub(crate) fn name(&self, format: Format) -> Option<&'static str> {
        match format {
            Format::Ini => Some(self.ini),
            Format::Yaml => self.yaml,
        }
    }

    pub(crate) fn find(section: Section, name: &str, format: Format) -> Option<&'static Self> {
        KEYS.iter()
            .filter(|key| key.section == section)
            .find(|key| key.name(format).is_some_and(|known| same(known, name, format)))
    }

    /// The row of something that is used.
    pub(crate) fn of(section: Section, id: Id) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.section == section && key.status == Status::Current(id))
    }
}

/// The remedy for a name that the section does not have.
pub(crate) fn advice(section: Section, name: &str, format: Format) -> String {
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
    let here = KEYS.iter().filter(|key| key.section == section);
    if let Some(meant) = nearest(name, here.filter_map(|key| key.name(format))) {
        return format!("did you mean {meant}?");
    }
    let elsewhere =
        Section::ALL.into_iter().find(|other| Key::find(*other, name, format).is_some());
    match elsewhere.and_then(|section| section.name(format)) {
        Some(home) => format!("it belongs to the section {home}"),
        None => "remove it, or see docs/user/configuration.md for all keys".to_owned(),
    }
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
    use super::{Format, KEYS, Key, Section, advice};

    #[test]
    fn every_key_is_found_by_its_names_and_no_two_share_one() {
        for (at, key) in KEYS.iter().enumerate() {
            for format in [Format::Ini, Format::Yaml] {
                let Some(name) = key.name(format) else { continue };
                let found = Key::find(key.section, name, format).unwrap();
                assert!(std::ptr::eq(found, key), "{name} is also row {at}");
            }
        }
    }

    #[test]
    fn every_sentence_of_the_table_ends_like_one() {
        for key in KEYS.iter().filter(|key| key.yaml.is_some() && key.variable.is_some()) {
            assert!(key.doc.ends_with('.'), "{}: {}", key.ini, key.doc);
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
            assert_eq!(advice(section, name, format), wanted, "{name}");
        }
    }
}
