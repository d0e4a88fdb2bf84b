//! Writing a configuration: YAML without a password, and the Secrets that hold what was one.
//!
//! Every vCenter is written with all that it inherited, so that the text needs no second look to be
//! understood. Reading it back gives the same configuration, but for credentials that stood in the file,
//! which are then in the Secret that the text names.

use std::{collections::BTreeMap, fmt::Write as _};

use secrecy::SecretString;
use vsphere::tls::{Roots, Trust};

use crate::{
    config::{AddressRules, Config, CredentialSource, Inline, IpFamily, SecretName, VCenter},
    secret,
};

/// A configuration in the form that we recommend.
#[derive(Debug)]
pub struct Written {
    /// The file.
    pub yaml: String,
    /// Secrets to create, for credentials that stood in the file.
    pub secrets: BTreeMap<SecretName, BTreeMap<String, SecretString>>,
}

/// Writes a configuration. Credentials that stand in it go into a Secret of the given name; if two vCenters
/// have the same server and different credentials, the second goes into another one, `NAME-2`.
pub fn write(config: &Config, secret: &SecretName) -> Written {
    let mut written = Written { yaml: String::new(), secrets: BTreeMap::new() };
    let directory = config.vcenters.iter().find_map(|vcenter| match &vcenter.credentials {
        CredentialSource::Directory(path) => Some(path),
        _ => None,
    });
    let mut lines = Lines(String::new());
    if let Some(path) = directory {
        lines.open(0, "global");
        lines.text(1, "secretsDirectory", &path.to_string_lossy());
    }
    lines.open(0, "vcenter");
    for vcenter in &config.vcenters {
        let source = match &vcenter.credentials {
            CredentialSource::Directory(_) => None,
            CredentialSource::Secret(name) => Some(name.clone()),
            CredentialSource::Inline(inline) => {
                Some(place(config, vcenter, inline, secret, &mut written.secrets))
            }
        };
        lines.vcenter(vcenter, source.as_ref());
    }
    lines.rest(config);
    written.yaml = lines.0;
    written
}

/// Puts credentials into the first Secret that has room for them.
fn place(
    config: &Config,
    vcenter: &VCenter,
    inline: &Inline,
    wanted: &SecretName,
    secrets: &mut BTreeMap<SecretName, BTreeMap<String, SecretString>>,
) -> SecretName {
    let mut number = 1;
    loop {
        let name = match number {
            1 => wanted.clone(),
            _ => SecretName { name: format!("{}-{number}", wanted.name), ..wanted.clone() },
        };
        let taken = config.vcenters.iter().any(
            |other| matches!(&other.credentials, CredentialSource::Secret(used) if *used == name),
        );
        if !taken && secret::put(secrets.entry(name.clone()).or_default(), &vcenter.server, inline)
        {
            return name;
        }
        number += 1;
    }
}

struct Lines(String);

impl Lines {
    fn line(&mut self, depth: usize, text: &str) {
        let indent = depth * 2;
        // Writing to a string cannot fail.
        _ = writeln!(self.0, "{:indent$}{text}", "");
    }

    fn open(&mut self, depth: usize, name: &str) {
        self.line(depth, &format!("{}:", scalar(name)));
    }

    fn text(&mut self, depth: usize, name: &str, value: &str) {
        self.line(depth, &format!("{name}: {}", scalar(value)));
    }

    fn list(&mut self, depth: usize, name: &str, items: impl IntoIterator<Item = String>) {
        let items: Vec<String> = items.into_iter().map(|item| scalar(&item)).collect();
        if !items.is_empty() {
            self.line(depth, &format!("{name}: [{}]", items.join(", ")));
        }
    }

    fn vcenter(&mut self, vcenter: &VCenter, secret: Option<&SecretName>) {
        self.open(1, &vcenter.name);
        self.text(2, "server", &vcenter.server);
        if vcenter.endpoint.port() != 443 {
            self.line(2, &format!("port: {}", vcenter.endpoint.port()));
        }
        match &vcenter.trust {
            Trust::Insecure => self.line(2, "insecureFlag: true"),
            Trust::Verify { roots, thumbprint } => {
                if let Roots::File(path) = roots {
                    self.text(2, "caFile", &path.to_string_lossy());
                }
                if let Some(thumbprint) = thumbprint {
                    self.text(2, "thumbprint", &thumbprint.to_string());
                }
            }
        }
        self.list(2, "datacenters", vcenter.datacenters.iter().cloned());
        if let Some(SecretName { namespace, name }) = secret {
            self.text(2, "secretName", name);
            self.text(2, "secretNamespace", namespace);
        }
        if vcenter.ip_families != [IpFamily::V4] {
            self.list(2, "ipFamily", vcenter.ip_families.iter().map(ToString::to_string));
        }
    }

    fn rest(&mut self, config: &Config) {
        let labels = [("region", &config.labels.region), ("zone", &config.labels.zone)];
        self.optional("labels", &labels);
        let names = |rules: &AddressRules| {
            let join = |subnets: &[crate::Subnet]| {
                let texts: Vec<String> = subnets.iter().map(ToString::to_string).collect();
                Some(texts.join(",")).filter(|text| !text.is_empty())
            };
            (join(&rules.subnets), rules.network.clone(), join(&rules.excluded))
        };
        let internal = names(&config.nodes.internal);
        let external = names(&config.nodes.external);
        let nodes = [
            ("internalNetworkSubnetCidr", &internal.0),
            ("externalNetworkSubnetCidr", &external.0),
            ("internalVmNetworkName", &internal.1),
            ("externalVmNetworkName", &external.1),
            ("excludeInternalNetworkSubnetCidr", &internal.2),
            ("excludeExternalNetworkSubnetCidr", &external.2),
        ];
        self.optional("nodes", &nodes);
    }

    fn optional(&mut self, section: &str, keys: &[(&str, &Option<String>)]) {
        if keys.iter().all(|(_, value)| value.is_none()) {
            return;
        }
        self.open(0, section);
        for (name, value) in keys {
            if let Some(value) = value {
                self.text(1, name, value);
            }
        }
    }
}

/// A text as a YAML scalar: plain if nobody could take it for anything else, in double quotes otherwise.
pub(crate) fn scalar(text: &str) -> String {
    const WORDS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let plain = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./@".contains(c))
        && !WORDS.iter().any(|word| word.eq_ignore_ascii_case(text));
    if plain {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            ' '..='~' => quoted.push(letter),
            other if other.is_alphabetic() => quoted.push(other),
            other => _ = write!(quoted, "\\U{:08X}", u32::from(other)),
        }
    }
    quoted.push('"');
    quoted
}
