//! The file of the cloud controller manager: from known keys to valid values.
//!
//! These are the rules of validation and inheritance. The CSI driver's file will have its own module beside
//! this one; both share the dialect and the Secrets.

use std::path::{Path, PathBuf};

use secrecy::SecretString;
use vsphere::{
    endpoint::Endpoint,
    tls::{InvalidThumbprint, Roots, Thumbprint, Trust},
};

use crate::{
    config::{
        AddressRules, Config, CredentialSource, Inline, IpFamily, Labels, Nodes, SecretName,
        Subnet, VCenter,
    },
    document::{Document, Entry, Located, Part, Value, key_label},
    keys::{Format, Id, Key, Section},
    problem::{Place, Report},
};

/// The configuration, if it is valid; problems go into the report.
pub(crate) fn build(
    document: &Document,
    default_directory: Option<&Path>,
    report: &mut Report,
) -> Option<Config> {
    let empty = Part::new(Section::Global, None, Place::Whole);
    let section = |section| document.parts.iter().find(|part| part.section == section);
    let global_part = section(Section::Global).unwrap_or(&empty);
    let global = Settings::read(global_part, report);
    warn_of_half_a_secret(document.format, global_part, &global, report);
    let mut parts: Vec<Part> = document
        .parts
        .iter()
        .filter(|part| part.section == Section::VirtualCenter)
        .cloned()
        .collect();
    if let (Some(server), Some(entry)) = (&global.server, global_part.get(Id::Server))
        && !parts.iter().any(|part| is_called(part, server))
    {
        // Messages about it name the global section, the only one in the file.
        let mut only = Part::new(Section::Global, Some(server.clone()), entry.at);
        only.entries.push(entry.clone());
        parts.insert(0, only);
    }
    if parts.is_empty() && !report.has_problems() {
        report.refuse(
            Place::Whole,
            "",
            "no vCenter is named",
            match document.format {
                Format::Yaml => "add `vcenter:`, below it a name, and below that `server:`",
                Format::Ini => "add a section [VirtualCenter \"ADDRESS\"], or `server` to [Global]",
            },
        );
    }
    let inheritance =
        Inheritance { format: document.format, global_part, global, default_directory };
    let vcenters: Vec<Option<VCenter>> =
        parts.iter().map(|part| inheritance.vcenter(part, report)).collect();
    let labels = labels(section(Section::Labels), report);
    let nodes = nodes(section(Section::Nodes), report);
    Some(Config { vcenters: vcenters.into_iter().collect::<Option<_>>()?, labels, nodes })
}

/// Whether a vCenter has this name or this server.
fn is_called(part: &Part, server: &str) -> bool {
    let own = part.get(Id::Server).map(|entry| &entry.value);
    part.name.as_deref() == Some(server) || matches!(own, Some(Value::Text(text)) if text == server)
}

/// The settings of a section; absent and empty are the same.
#[derive(Default)]
struct Settings {
    user: Option<String>,
    password: Option<SecretString>,
    server: Option<String>,
    port: Option<u16>,
    insecure: bool,
    datacenters: Vec<String>,
    ca_file: Option<PathBuf>,
    thumbprint: Option<Thumbprint>,
    secret_name: Option<String>,
    secret_namespace: Option<String>,
    secrets_directory: Option<PathBuf>,
    families: Vec<IpFamily>,
}

impl Settings {
    fn read(part: &Part, report: &mut Report) -> Self {
        let datacenters = list(part, Id::Datacenters, report);
        Self {
            user: text(part, Id::User, report),
            password: text(part, Id::Password, report).map(SecretString::from),
            server: text(part, Id::Server, report),
            port: port(part, report),
            insecure: flag(part, Id::InsecureFlag, report),
            datacenters: datacenters.into_iter().map(|name| name.text).collect(),
            ca_file: text(part, Id::CaFile, report).map(PathBuf::from),
            thumbprint: thumbprint(part, report),
            secret_name: text(part, Id::SecretName, report),
            secret_namespace: text(part, Id::SecretNamespace, report),
            secrets_directory: text(part, Id::SecretsDirectory, report).map(PathBuf::from),
            families: families(part, report),
        }
    }

    fn secret(&self) -> Option<SecretName> {
        let (name, namespace) = (self.secret_name.clone()?, self.secret_namespace.clone()?);
        Some(SecretName { namespace, name })
    }

    /// The key of a Secret that is given, and the one that is missing.
    fn half_a_secret(&self) -> Option<(Id, Id)> {
        match (&self.secret_name, &self.secret_namespace) {
            (Some(_), None) => Some((Id::SecretName, Id::SecretNamespace)),
            (None, Some(_)) => Some((Id::SecretNamespace, Id::SecretName)),
            _ => None,
        }
    }
}

/// What vCenters inherit.
struct Inheritance<'a> {
    format: Format,
    global_part: &'a Part,
    global: Settings,
    default_directory: Option<&'a Path>,
}

impl Inheritance<'_> {
    fn vcenter(&self, part: &Part, report: &mut Report) -> Option<VCenter> {
        let name = part.name.clone().unwrap_or_default();
        let own = Settings::read(part, report);
        warn_of_half_a_secret(self.format, part, &own, report);
        let endpoint = self.endpoint(part, &name, &own, report);
        let credentials = self.credentials(part, &own, report);
        let inline = self.inline(&own);
        let families = [&own.families, &self.global.families].into_iter().find(|f| !f.is_empty());
        let trust = self.trust(part, &own, report);
        let (server, endpoint) = endpoint?;
        Some(VCenter {
            name,
            server,
            endpoint,
            trust,
            datacenters: if own.datacenters.is_empty() {
                self.global.datacenters.clone()
            } else {
                own.datacenters
            },
            fallback: inline.filter(|_| !matches!(credentials, Some(CredentialSource::Inline(_)))),
            credentials: credentials?,
            ip_families: families.cloned().unwrap_or_else(|| vec![IpFamily::V4]),
        })
    }

    fn key(&self, part: &Part, id: Id) -> &'static str {
        Key::of(part.section, id).and_then(|row| row.name(self.format)).unwrap_or_default()
    }

    fn label(&self, part: &Part, id: Id) -> String {
        let name = part.name.as_deref().filter(|_| part.section.is_named());
        key_label(self.format, part.section, name, self.key(part, id))
    }

    /// Where the first of these keys stands, here or in the global section.
    fn origin(&self, part: &Part, own: bool, ids: &[Id]) -> (Place, String) {
        let part = if own { part } else { self.global_part };
        let entry = ids.iter().find_map(|id| part.get(*id));
        entry.map_or((part.at, String::new()), |entry| (entry.at, entry.label.clone()))
    }

    fn endpoint(
        &self,
        part: &Part,
        name: &str,
        own: &Settings,
        report: &mut Report,
    ) -> Option<(String, Endpoint)> {
        let label = self.label(part, Id::Server);
        let (at, server) = match (&own.server, self.format) {
            (Some(server), _) => (part.get(Id::Server).map_or(part.at, |e| e.at), server.as_str()),
            (None, Format::Ini) => (part.at, name),
            (None, Format::Yaml) => {
                report.refuse(
                    part.at,
                    &label,
                    "the address of this vCenter is missing",
                    "add `server:` with its host name or address below the name of the vCenter",
                );
                return None;
            }
        };
        let endpoint: Endpoint = match server.parse() {
            Ok(endpoint) => endpoint,
            Err(error) => {
                refuse_with(report, at, &label, &error.to_string());
                return None;
            }
        };
        // Only a port other than the default is known to have been written.
        let written = Some(endpoint.port()).filter(|port| *port != 443);
        let endpoint = match (own.port, written) {
            (Some(port), Some(other)) if port != other => {
                report.refuse(
                    part.get(Id::Port).map_or(at, |entry| entry.at),
                    &self.label(part, Id::Port),
                    format!("the port is {port} here and {other} in the server"),
                    "keep one of them",
                );
                endpoint
            }
            (_, Some(_)) => endpoint,
            (own, None) => endpoint.with_port(own.or(self.global.port).unwrap_or(443)),
        };
        Some((server.to_owned(), endpoint))
    }

    fn trust(&self, part: &Part, own: &Settings, report: &mut Report) -> Trust {
        let ca_file = own.ca_file.as_ref().or(self.global.ca_file.as_ref());
        let thumbprint = own.thumbprint.as_ref().or(self.global.thumbprint.as_ref());
        if !own.insecure && !self.global.insecure {
            let roots = ca_file.cloned().map_or(Roots::System, Roots::File);
            return Trust::Verify { roots, thumbprint: thumbprint.cloned() };
        }
        if ca_file.is_some() || thumbprint.is_some() {
            let (ca, print) = (self.key(part, Id::CaFile), self.key(part, Id::Thumbprint));
            let (at, label) = self.origin(part, own.insecure, &[Id::InsecureFlag]);
            report.warn(
                at,
                &label,
                format!("any certificate is accepted, so {ca} and {print} are not used"),
                "remove this key to have certificates checked",
            );
        }
        Trust::Insecure
    }

    /// User and password as the file has them, here or in the global section.
    fn inline(&self, own: &Settings) -> Option<Inline> {
        let user = own.user.as_ref().or(self.global.user.as_ref())?.clone();
        let password = own.password.as_ref().or(self.global.password.as_ref())?.clone();
        Some(Inline { user, password })
    }

    fn credentials(
        &self,
        part: &Part,
        own: &Settings,
        report: &mut Report,
    ) -> Option<CredentialSource> {
        let user = own.user.as_ref().or(self.global.user.as_ref());
        let password = own.password.as_ref().or(self.global.password.as_ref());
        let shared = match (self.global.secret(), &self.global.secrets_directory) {
            (Some(secret), None) => Some(CredentialSource::Secret(secret)),
            (None, Some(directory)) => Some(CredentialSource::Directory(directory.clone())),
            _ => None,
        };
        if let Some(source) = own.secret().map(CredentialSource::Secret).or(shared) {
            if user.is_some() || password.is_some() {
                let from = match &source {
                    CredentialSource::Secret(name) => format!("the Secret {name}"),
                    _ => "the directory with secrets".to_owned(),
                };
                let own = own.user.is_some() || own.password.is_some();
                let (at, label) = self.origin(part, own, &[Id::User, Id::Password]);
                report.warn(
                    at,
                    &label,
                    format!("credentials come from {from}, and from here only if it has none for the server"),
                    "remove user and password once it has",
                );
            }
            return Some(source);
        }
        if let Some(inline) = self.inline(own) {
            return Some(CredentialSource::Inline(inline));
        }
        if let (None, None, Some(directory)) = (user, password, self.default_directory) {
            return Some(CredentialSource::Directory(directory.to_owned()));
        }
        let given = [Id::User, Id::Password, Id::SecretName, Id::SecretNamespace];
        if given.into_iter().any(|id| unusable(part, id) || unusable(self.global_part, id)) {
            return None;
        }
        let missing = if user.is_none() { Id::User } else { Id::Password };
        let both = self.global.secret().is_some() && self.global.secrets_directory.is_some();
        let text = match missing {
            _ if both => "both a Secret and a directory are given for credentials",
            Id::User => "the user is missing",
            _ => "the password is missing",
        };
        let remedy = self.how_to_give_credentials(part, own);
        report.refuse(part.at, &self.label(part, missing), text, remedy);
        None
    }

    fn how_to_give_credentials(&self, part: &Part, own: &Settings) -> String {
        if let Some((given, missing)) = own.half_a_secret().or(self.global.half_a_secret()) {
            let (given, missing) = (self.key(part, given), self.key(part, missing));
            return format!("add {missing} beside {given}");
        }
        let (name, namespace) =
            (self.key(part, Id::SecretName), self.key(part, Id::SecretNamespace));
        if self.global.secret().is_some() && self.global.secrets_directory.is_some() {
            return format!("keep either {name} and {namespace} or the directory with secrets");
        }
        format!("name a Secret with {name} and {namespace}, or give user and password")
    }
}

/// Whether a key has a value that was already reported, so that it is not reported as missing as well.
fn unusable(part: &Part, id: Id) -> bool {
    part.get(id).is_some_and(|entry| !matches!(entry.value, Value::Text(_)))
}

/// One of the two keys of a Secret alone has no effect, which upstream does not mention.
fn warn_of_half_a_secret(format: Format, part: &Part, settings: &Settings, report: &mut Report) {
    let Some((given, missing)) = settings.half_a_secret() else { return };
    let (Some(entry), Some(missing)) = (part.get(given), Key::of(part.section, missing)) else {
        return;
    };
    let missing = missing.name(format).unwrap_or_default();
    report.warn(
        entry.at,
        &entry.label,
        format!("{missing} is missing, so no Secret is used"),
        format!("add {missing}"),
    );
}

fn labels(part: Option<&Part>, report: &mut Report) -> Labels {
    let mut get = |id| part.and_then(|part| text(part, id, report));
    Labels { zone: get(Id::Zone), region: get(Id::Region) }
}

fn nodes(part: Option<&Part>, report: &mut Report) -> Nodes {
    let mut rules = |network, included, excluded| AddressRules {
        subnets: part.map(|part| subnets(part, included, report)).unwrap_or_default(),
        network: part.and_then(|part| text(part, network, report)),
        excluded: part.map(|part| subnets(part, excluded, report)).unwrap_or_default(),
    };
    Nodes {
        internal: rules(Id::InternalNetwork, Id::InternalSubnets, Id::ExcludedInternalSubnets),
        external: rules(Id::ExternalNetwork, Id::ExternalSubnets, Id::ExcludedExternalSubnets),
    }
}

/// A text; `None` if it is absent, empty or not a text.
fn text(part: &Part, id: Id, report: &mut Report) -> Option<String> {
    let entry = part.get(id)?;
    match &entry.value {
        Value::Text(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        other => {
            refuse_shape(entry, other, report);
            None
        }
    }
}

fn refuse_shape(entry: &Entry, value: &Value, report: &mut Report) {
    let (found, remedy) = match value {
        Value::Blank => ("it has no value", "write it as key = value"),
        Value::List(_) => ("there is a list", "write one value without brackets or dashes"),
        Value::Nested if entry.row.kind.is_list() => {
            ("there is a mapping", "write a list of texts, as in [a, b]")
        }
        Value::Nested => {
            ("there is a mapping", "write one value; one that begins with { needs quotes")
        }
        Value::Text(_) | Value::Broken => return,
    };
    let wanted = entry.row.kind.describe();
    report.refuse(entry.at, &entry.label, format!("{found} where it takes a {wanted}"), remedy);
}

/// The items of a list, which may also be one text with commas.
fn list(part: &Part, id: Id, report: &mut Report) -> Vec<Located> {
    let Some(entry) = part.get(id) else { return Vec::new() };
    let located = |text: &str, at| Located { text: text.trim().to_owned(), at };
    let mut items: Vec<Located> = match &entry.value {
        Value::Text(text) => text.split(',').map(|item| located(item, entry.at)).collect(),
        Value::List(items) => items.iter().map(|item| located(&item.text, item.at)).collect(),
        other => {
            refuse_shape(entry, other, report);
            Vec::new()
        }
    };
    items.retain(|item| !item.text.is_empty());
    items
}

fn label(part: &Part, id: Id) -> &str {
    part.get(id).map_or("", |entry| entry.label.as_str())
}

fn flag(part: &Part, id: Id, report: &mut Report) -> bool {
    let Some(entry) = part.get(id) else { return false };
    let text = match &entry.value {
        Value::Blank => return true,
        Value::Text(text) => text,
        other => {
            refuse_shape(entry, other, report);
            return false;
        }
    };
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => true,
        "false" | "no" | "off" | "0" | "" => false,
        _ => {
            let text = format!("{text:?} is neither true nor false");
            report.refuse(entry.at, &entry.label, text, "write true or false");
            false
        }
    }
}

fn port(part: &Part, report: &mut Report) -> Option<u16> {
    let text = text(part, Id::Port, report)?;
    match text.parse() {
        Ok(0) | Err(_) => {
            let entry = part.get(Id::Port)?;
            report.refuse(
                entry.at,
                &entry.label,
                format!("{text:?} is not a valid port"),
                "write a number from 1 to 65535, or remove the key for 443",
            );
            None
        }
        Ok(port) => Some(port),
    }
}

fn thumbprint(part: &Part, report: &mut Report) -> Option<Thumbprint> {
    let text = text(part, Id::Thumbprint, report)?;
    match text.parse() {
        Ok(thumbprint) => Some(thumbprint),
        Err(error) => {
            let error: InvalidThumbprint = error;
            let entry = part.get(Id::Thumbprint)?;
            let remedy = "copy the fingerprint of the vCenter's certificate, such as AB:CD:…";
            report.refuse(entry.at, &entry.label, error.to_string(), remedy);
            None
        }
    }
}

fn families(part: &Part, report: &mut Report) -> Vec<IpFamily> {
    let mut families = Vec::new();
    for item in list(part, Id::IpFamily, report) {
        let family = match item.text.to_ascii_lowercase().as_str() {
            "ipv4" => IpFamily::V4,
            "ipv6" => IpFamily::V6,
            _ => {
                let text = format!("{:?} is not a valid IP family", item.text);
                report.refuse(item.at, label(part, Id::IpFamily), text, "write ipv4, ipv6 or both");
                continue;
            }
        };
        if !families.contains(&family) {
            families.push(family);
        }
    }
    families
}

fn subnets(part: &Part, id: Id, report: &mut Report) -> Vec<Subnet> {
    let mut subnets = Vec::new();
    for item in list(part, id, report) {
        match item.text.parse() {
            Ok(subnet) => subnets.push(subnet),
            Err(error) => {
                let error: crate::InvalidSubnet = error;
                let remedy = "write subnets as 10.0.0.0/8 or fd00::/8, with commas between them";
                report.refuse(item.at, label(part, id), error.to_string(), remedy);
            }
        }
    }
    subnets
}

/// An error that ends with its own remedy.
fn refuse_with(report: &mut Report, at: Place, label: &str, error: &str) {
    let (text, remedy) = error.split_once("; ").unwrap_or((error, "correct it"));
    report.refuse(at, label, text, remedy);
}
