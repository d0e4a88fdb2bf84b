//! The vCenters of a file: validation, and what each inherits from the global section. Both drivers' files share these
//! rules.

use std::{
    borrow::Cow,
    path::{Path, PathBuf},
    str::FromStr,
};

use secrecy::SecretString;
use vsphere::{
    endpoint::Endpoint,
    tls::{Roots, Thumbprint, Trust},
};

use crate::{
    config::{CredentialSource, Inline, IpFamily, SecretName, VCenter},
    document::{Document, Part, Value, key_label},
    keys::{FileKind, Format, Id, Key, Section},
    problem::{Place, Report},
    values::Values,
};

/// Every vCenter, in the order of the file; `None` for one with problems, which go into the report.
pub(crate) fn build(
    document: &Document,
    default_directory: Option<&Path>,
    report: &mut Report,
) -> Vec<Option<VCenter>> {
    let empty = Part::new(Section::Global, None, Place::Whole);
    let global_part = document.section(Section::Global).unwrap_or(&empty);
    let global = Settings::read(global_part, report);
    let Document { format, kind, .. } = *document;
    let inheritance = Inheritance { format, kind, global_part, global, default_directory };
    inheritance.warn_of_half_a_secret(global_part, &inheritance.global, report);
    let vcenters = document.parts.iter().filter(|part| part.section == Section::VirtualCenter);
    let mut parts: Vec<Part> = vcenters.cloned().collect();
    if let (Some(server), Some(entry)) = (&inheritance.global.server, global_part.get(Id::Server))
        && !parts.iter().any(|part| is_called(part, server))
    {
        // Messages about it name the global section, the only one in the file.
        let mut only = Part::new(Section::Global, Some(server.clone()), entry.at);
        only.entries.push(entry.clone());
        parts.insert(0, only);
    }
    if parts.is_empty() && !report.has_problems() {
        let remedy = match (format, kind) {
            (Format::Yaml, _) => "add `vcenter:`, below it a name, and below that `server:`",
            (Format::Ini, FileKind::Csi) => "add a section [VirtualCenter \"ADDRESS\"]",
            (Format::Ini, _) => {
                "add a section [VirtualCenter \"ADDRESS\"], or `server` to [Global]"
            }
        };
        report.refuse(Place::Whole, "", "no vCenter is named", remedy);
    }
    parts.iter().map(|part| inheritance.vcenter(part, report)).collect()
}

/// Whether a vCenter has this name or this server.
fn is_called(part: &Part, server: &str) -> bool {
    let own = part.get(Id::Server).map(|entry| &entry.value);
    part.name.as_deref() == Some(server) || matches!(own, Some(Value::Text(text)) if text == server)
}

/// The settings of a section; absent and empty are the same.
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
        let mut values = Values { part, report };
        let datacenters = values.list(Id::Datacenters);
        Self {
            user: values.text(Id::User),
            password: values.text(Id::Password).map(SecretString::from),
            server: values.text(Id::Server),
            port: values.port(),
            insecure: values.flag(Id::InsecureFlag),
            datacenters: datacenters.into_iter().map(|name| name.text).collect(),
            ca_file: values.text(Id::CaFile).map(PathBuf::from),
            thumbprint: values.parsed(
                Id::Thumbprint,
                Thumbprint::from_str,
                "copy the fingerprint of the vCenter's certificate, such as AB:CD:…",
            ),
            secret_name: values.text(Id::SecretName),
            secret_namespace: values.text(Id::SecretNamespace),
            secrets_directory: values.text(Id::SecretsDirectory).map(PathBuf::from),
            families: values.families(),
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
    kind: FileKind,
    global_part: &'a Part,
    global: Settings,
    default_directory: Option<&'a Path>,
}

impl Inheritance<'_> {
    fn vcenter(&self, part: &Part, report: &mut Report) -> Option<VCenter> {
        let name = part.name.clone().unwrap_or_default();
        let own = Settings::read(part, report);
        self.warn_of_half_a_secret(part, &own, report);
        let endpoint = self.endpoint(part, &name, &own, report);
        let credentials = self.credentials(part, &own, report);
        let trust = self.trust(part, &own, report);
        let (server, endpoint) = endpoint?;
        let (credentials, fallback) = credentials?;
        let families = [&own.families, &self.global.families].into_iter().find(|f| !f.is_empty());
        let datacenters = Some(own.datacenters).filter(|own| !own.is_empty());
        Some(VCenter {
            name,
            server,
            endpoint,
            trust,
            datacenters: datacenters.unwrap_or_else(|| self.global.datacenters.clone()),
            credentials,
            fallback,
            ip_families: families.cloned().unwrap_or_else(|| vec![IpFamily::V4]),
        })
    }

    fn key(&self, part: &Part, id: Id) -> Cow<'static, str> {
        Key::of(part.section, id).and_then(|row| row.name(self.format)).unwrap_or_default()
    }

    fn label(&self, part: &Part, id: Id) -> String {
        let name = part.name.as_deref().filter(|_| part.section.is_named());
        key_label(self.format, part.section, name, &self.key(part, id))
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
                let remedy =
                    "add `server:` with its host name or address below the name of the vCenter";
                report.refuse(part.at, &label, "the address of this vCenter is missing", remedy);
                return None;
            }
        };
        let endpoint: Endpoint = match server.parse() {
            Ok(endpoint) => endpoint,
            Err(error) => {
                // It ends with its own remedy.
                let error = error.to_string();
                let (text, remedy) = error.split_once("; ").unwrap_or((&error, "correct it"));
                report.refuse(at, &label, text, remedy);
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
            let text = format!("any certificate is accepted, so {ca} and {print} are not used");
            report.warn(at, &label, text, "remove this key to have certificates checked");
        }
        Trust::Insecure
    }

    /// Where credentials come from, and those of the file if that is elsewhere.
    fn credentials(
        &self,
        part: &Part,
        own: &Settings,
        report: &mut Report,
    ) -> Option<(CredentialSource, Option<Inline>)> {
        let user = own.user.as_ref().or(self.global.user.as_ref());
        let password = own.password.as_ref().or(self.global.password.as_ref());
        let inline = user.cloned().zip(password.cloned());
        let inline = inline.map(|(user, password)| Inline { user, password });
        let shared = match (self.global.secret(), &self.global.secrets_directory) {
            (Some(secret), None) => Some(CredentialSource::Secret(secret)),
            (None, Some(directory)) => Some(CredentialSource::Directory(directory.clone())),
            _ => None,
        };
        let named = own.secret().map(CredentialSource::Secret).or(shared);
        if self.kind == FileKind::Csi && named.is_some() && inline.is_some() {
            // The Go CSI driver reads no Secret.
            let ids = [Id::SecretName, Id::SecretsDirectory];
            let (at, label) = self.origin(part, own.secret().is_some(), &ids);
            let text = "it has no effect, because user and password stand in this file";
            report.warn(at, &label, text, "remove them to have the Secret read instead");
        } else if let Some(source) = named {
            if user.is_some() || password.is_some() {
                let from = match &source {
                    CredentialSource::Secret(name) => format!("the Secret {name}"),
                    _ => "the directory with secrets".to_owned(),
                };
                let own = own.user.is_some() || own.password.is_some();
                let (at, label) = self.origin(part, own, &[Id::User, Id::Password]);
                let text = format!(
                    "credentials come from {from}, and from here only if it has none for the server"
                );
                report.warn(at, &label, text, "remove user and password once it has");
            }
            return Some((source, inline));
        }
        if self.kind != FileKind::Ccm && user.is_some_and(|user| !has_domain(user)) {
            let (at, label) = self.origin(part, own.user.is_some(), &[Id::User]);
            let text = "the user has no domain";
            let remedy = "write it as user@domain or domain\\user, such as csi@vsphere.local";
            match self.kind {
                FileKind::Csi => report.refuse(at, &label, text, remedy),
                _ => report.warn(at, &label, text, remedy),
            }
        }
        if let Some(inline) = inline {
            return Some((CredentialSource::Inline(inline), None));
        }
        if let (None, None, Some(directory)) = (user, password, self.default_directory) {
            return Some((CredentialSource::Directory(directory.to_owned()), None));
        }
        let given = [Id::User, Id::Password, Id::SecretName, Id::SecretNamespace];
        if !given.into_iter().any(|id| unusable(part, id) || unusable(self.global_part, id)) {
            let missing = if user.is_none() { Id::User } else { Id::Password };
            self.refuse_credentials(part, own, missing, report);
        }
        None
    }

    fn refuse_credentials(&self, part: &Part, own: &Settings, missing: Id, report: &mut Report) {
        let both = self.global.secret().is_some() && self.global.secrets_directory.is_some();
        let text = match missing {
            _ if both => "both a Secret and a directory are given for credentials",
            Id::User => "the user is missing",
            _ => "the password is missing",
        };
        let key = |id| self.key(part, id);
        let (name, namespace) = (key(Id::SecretName), key(Id::SecretNamespace));
        let remedy = match own.half_a_secret().or(self.global.half_a_secret()) {
            Some((given, missing)) => format!("add {} beside {}", key(missing), key(given)),
            None if both => {
                format!("keep either {name} and {namespace} or the directory with secrets")
            }
            None => format!("name a Secret with {name} and {namespace}, or give user and password"),
        };
        report.refuse(part.at, &self.label(part, missing), text, remedy);
    }

    /// One of the two keys of a Secret alone has no effect, which upstream does not mention.
    fn warn_of_half_a_secret(&self, part: &Part, settings: &Settings, report: &mut Report) {
        let Some((given, missing)) = settings.half_a_secret() else { return };
        let Some(entry) = part.get(given) else { return };
        let missing = self.key(part, missing);
        let text = format!("{missing} is missing, so no Secret is used");
        report.warn(entry.at, &entry.label, text, format!("add {missing}"));
    }
}

/// Whether a user is written as the Go CSI driver wants it; a certificate stands for its user.
fn has_domain(user: &str) -> bool {
    let halves = user.rsplit_once('@').or_else(|| user.split_once('\\'));
    user.trim_start().starts_with("-----BEGIN")
        || halves.is_some_and(|(one, other)| !one.is_empty() && !other.is_empty())
}

/// Whether a key has a value that was already reported, so that it is not reported as missing as well.
fn unusable(part: &Part, id: Id) -> bool {
    part.get(id).is_some_and(|entry| !matches!(entry.value, Value::Text(_)))
}
