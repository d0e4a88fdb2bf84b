//! Writing a configuration: YAML without passwords, and the Secrets with them.
//!
//! Every vCenter is written with all that it inherited. Reading the text gives the same configuration, except
//! that credentials of the file are in the Secret that the text names, and that there is no fallback.

use std::collections::BTreeMap;

use secrecy::SecretString;
use serde::{Serialize, Serializer};
use vsphere::tls::{Roots, Trust};

use crate::{
    config::{
        AddressRules, Config, CredentialSource, Inline, IpFamily, SecretName, Subnet, VCenter,
    },
    secret,
};

/// A configuration in the form that we recommend.
#[derive(Debug)]
pub struct Written {
    /// The file.
    pub yaml: String,
    /// Secrets to create for credentials of the file.
    pub secrets: BTreeMap<SecretName, BTreeMap<String, SecretString>>,
}

/// Writes a configuration. Its credentials go into a Secret of the given name; if two vCenters
/// have the same server and different credentials, the second goes into another one, `NAME-2`.
pub fn write(config: &Config, secret: &SecretName) -> Written {
    let mut written = Written { yaml: String::new(), secrets: BTreeMap::new() };
    let directory = config.vcenters.iter().find_map(|vcenter| match &vcenter.credentials {
        CredentialSource::Directory(path) => Some(path),
        _ => None,
    });
    let mut file = Map::default();
    if let Some(path) = directory {
        let mut global = Map::default();
        global.text("secretsDirectory", path.to_string_lossy());
        file.set("global", Value::Map(global));
    }
    let mut sections = Map::default();
    for vcenter in &config.vcenters {
        let source = match &vcenter.credentials {
            CredentialSource::Directory(_) => None,
            CredentialSource::Secret(name) => Some(name.clone()),
            CredentialSource::Inline(inline) => {
                Some(place(config, vcenter, inline, secret, &mut written.secrets))
            }
        };
        sections.set(&vcenter.name, Value::Map(section(vcenter, source)));
    }
    file.set("vcenter", Value::Map(sections));
    let (mut labels, mut nodes) = (Map::default(), Map::default());
    labels.text("region", config.labels.region.clone().unwrap_or_default());
    labels.text("zone", config.labels.zone.clone().unwrap_or_default());
    file.set("labels", Value::Map(labels));
    nodes.rules(
        ["internalNetworkSubnetCidr", "internalVmNetworkName", "excludeInternalNetworkSubnetCidr"],
        &config.nodes.internal,
    );
    nodes.rules(
        ["externalNetworkSubnetCidr", "externalVmNetworkName", "excludeExternalNetworkSubnetCidr"],
        &config.nodes.external,
    );
    file.set("nodes", Value::Map(nodes));
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    // Neither these types nor writing to a string can fail.
    written.yaml = serde_saphyr::to_string_with_options(&file, options).unwrap_or_default();
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

/// A mapping in the order in which it was filled. What is empty is left out.
#[derive(Default)]
struct Map(Vec<(String, Value)>);

#[derive(Serialize)]
#[serde(untagged)]
enum Value {
    Text(String),
    Number(u16),
    Flag(bool),
    List(Vec<String>),
    Map(Map),
}

impl Serialize for Map {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl Map {
    fn set(&mut self, name: &str, value: Value) {
        let empty = match &value {
            Value::Text(text) => text.is_empty(),
            Value::List(items) => items.is_empty(),
            Value::Map(map) => map.0.is_empty(),
            Value::Number(_) | Value::Flag(_) => false,
        };
        if !empty {
            self.0.push((name.to_owned(), value));
        }
    }

    fn text(&mut self, name: &str, text: impl Into<String>) {
        self.set(name, Value::Text(text.into()));
    }

    fn rules(&mut self, [subnets, network, excluded]: [&str; 3], rules: &AddressRules) {
        let join = |subnets: &[Subnet]| {
            subnets.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        };
        self.text(subnets, join(&rules.subnets));
        self.text(network, rules.network.clone().unwrap_or_default());
        self.text(excluded, join(&rules.excluded));
    }
}

fn section(vcenter: &VCenter, secret: Option<SecretName>) -> Map {
    let mut map = Map::default();
    map.text("server", &vcenter.server);
    if vcenter.endpoint.port() != 443 {
        map.set("port", Value::Number(vcenter.endpoint.port()));
    }
    match &vcenter.trust {
        Trust::Insecure => map.set("insecureFlag", Value::Flag(true)),
        Trust::Verify { roots, thumbprint } => {
            if let Roots::File(path) = roots {
                map.text("caFile", path.to_string_lossy());
            }
            if let Some(thumbprint) = thumbprint {
                map.text("thumbprint", thumbprint.to_string());
            }
        }
    }
    map.set("datacenters", Value::List(vcenter.datacenters.clone()));
    if let Some(SecretName { namespace, name }) = secret {
        map.text("secretName", name);
        map.text("secretNamespace", namespace);
    }
    if vcenter.ip_families != [IpFamily::V4] {
        let families = vcenter.ip_families.iter().map(ToString::to_string);
        map.set("ipFamily", Value::List(families.collect()));
    }
    map
}
