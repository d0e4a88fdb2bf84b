//! Writing configurations: YAML without passwords, and the Secrets with them.
//!
//! Every vCenter is written with all that it inherited. Reading the text gives the same configuration, except
//! that credentials of the file are in the Secret that the text names, and that there is no fallback.

use std::{collections::BTreeMap, time::Duration};

use secrecy::SecretString;
use serde::{Serialize, Serializer};
use vsphere::tls::{Roots, Trust};

use crate::{
    config::{
        AddressRules, Config, CredentialSource, CsiConfig, Inline, Intervals, IpFamily,
        NetPermission, SecretName, Subnet, TopologyCategory, VCenter,
    },
    csi::{REGION_LABEL, ZONE_LABEL, category_label},
    keys::{Format, Id, Key, Section},
    secret,
};

/// The data of Secrets, by name.
type Secrets = BTreeMap<SecretName, BTreeMap<String, SecretString>>;

/// A configuration in the form that we recommend.
#[derive(Debug)]
pub struct Written {
    /// The file.
    pub yaml: String,
    /// Secrets to create for credentials of the file.
    pub secrets: Secrets,
}

/// Writes a configuration. Its credentials go into a Secret of the given name; if two vCenters
/// have the same server and different credentials, the second goes into another one, `NAME-2`.
pub fn write(config: &Config, secret: &SecretName) -> Written {
    let vcenters: Vec<&VCenter> = config.vcenters.iter().collect();
    let (global, sections, secrets) = connections(&vcenters, secret);
    let (mut labels, mut nodes) = (Map::default(), Map::default());
    labels.text("region", config.labels.region.clone().unwrap_or_default());
    labels.text("zone", config.labels.zone.clone().unwrap_or_default());
    labels.nearest(config.labels.nearest);
    nodes.rules(
        ["internalNetworkSubnetCidr", "internalVmNetworkName", "excludeInternalNetworkSubnetCidr"],
        &config.nodes.internal,
    );
    nodes.rules(
        ["externalNetworkSubnetCidr", "externalVmNetworkName", "excludeExternalNetworkSubnetCidr"],
        &config.nodes.external,
    );
    written(
        [("global", global), ("vcenter", sections), ("labels", labels), ("nodes", nodes)],
        secrets,
    )
}

/// Writes the CSI driver's configuration likewise, as [`crate::Reader::read_shared`] reads it.
pub fn write_csi(config: &CsiConfig, secret: &SecretName) -> Written {
    let vcenters: Vec<&VCenter> = config.vcenters.iter().map(|it| &it.vcenter).collect();
    let (mut global, mut sections, secrets) = connections(&vcenters, secret);
    for ((_, section), vcenter) in sections.0.iter_mut().zip(&config.vcenters) {
        if let (Value::Map(map), Some(url)) = (section, &vcenter.migration_datastore_url) {
            map.text("migrationDatastoreUrl", url);
        }
    }
    let id = config.cluster_id.as_ref().map(ToString::to_string);
    global.text("clusterId", id.unwrap_or_default());
    global.text("clusterDistribution", config.cluster_distribution.clone().unwrap_or_default());
    let Intervals { tags, auth_check, preferred_datastores, operation_cleanup, migration_cleanup } =
        config.intervals;
    let minutes = |interval: Duration| u32::try_from(interval.as_secs() / 60).unwrap_or(u32::MAX);
    let mut snapshot = Map::default();
    for (id, number) in [
        (Id::AuthCheckInterval, minutes(auth_check)),
        (Id::PreferredDatastoresInterval, minutes(preferred_datastores)),
        (Id::OperationCleanupInterval, minutes(operation_cleanup)),
        (Id::MigrationCleanupInterval, minutes(migration_cleanup)),
        (Id::QueryLimit, config.query_limit),
        (Id::ListVolumeThreshold, config.list_volume_threshold),
    ] {
        global.number(Section::Global, id, number);
    }
    for (id, number) in [
        (Id::MaxSnapshots, config.snapshots.per_volume),
        (Id::MaxSnapshotsVsan, config.snapshots.vsan.unwrap_or(0)),
        (Id::MaxSnapshotsVvol, config.snapshots.vvol.unwrap_or(0)),
    ] {
        snapshot.number(Section::Snapshot, id, number);
    }
    let (mut labels, categories) = topology(&config.topology);
    labels.nearest(config.nearest_tag);
    let seconds = u32::try_from(tags.as_secs()).unwrap_or(u32::MAX);
    labels.number(Section::Labels, Id::TagsInterval, seconds);
    let file = [
        ("global", global),
        ("vcenter", sections),
        ("labels", labels),
        ("topologyCategory", categories),
        ("snapshot", snapshot),
        ("netPermissions", net_permissions(&config.net_permissions)),
    ];
    written(file, secrets)
}

fn written<const N: usize>(sections: [(&str, Map); N], secrets: Secrets) -> Written {
    let mut file = Map::default();
    for (name, section) in sections {
        file.set(name, Value::Map(section));
    }
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    // Neither these types nor writing to a string can fail.
    let yaml = serde_saphyr::to_string_with_options(&file, options).unwrap_or_default();
    Written { yaml, secrets }
}

/// The global section and those of the vCenters, and Secrets with their credentials.
fn connections(vcenters: &[&VCenter], secret: &SecretName) -> (Map, Map, Secrets) {
    let (mut global, mut sections, mut secrets) = (Map::default(), Map::default(), Secrets::new());
    let directory = vcenters.iter().find_map(|vcenter| match &vcenter.credentials {
        CredentialSource::Directory(path) => Some(path),
        _ => None,
    });
    if let Some(path) = directory {
        global.text("secretsDirectory", path.to_string_lossy());
    }
    for vcenter in vcenters {
        let source = match &vcenter.credentials {
            CredentialSource::Directory(_) => None,
            CredentialSource::Secret(name) => Some(name.clone()),
            CredentialSource::Inline(inline) => {
                Some(place(vcenters, vcenter, inline, secret, &mut secrets))
            }
        };
        sections.set(&vcenter.name, Value::Map(section(vcenter, source)));
    }
    (global, sections, secrets)
}

/// The section with labels, and those of categories whose label is not the usual one.
fn topology(categories: &[TopologyCategory]) -> (Map, Map) {
    let (mut labels, mut overrides) = (Map::default(), Map::default());
    match categories {
        [zone, region] if categories.iter().any(|it| it.label != category_label(&it.name)) => {
            labels.text("zone", &zone.name);
            labels.text("region", &region.name);
            for (category, usual) in [(zone, ZONE_LABEL), (region, REGION_LABEL)] {
                if category.label != usual {
                    // Both may be one category.
                    overrides.0.retain(|(name, _)| *name != category.name);
                    let mut label = Map::default();
                    label.text("label", &category.label);
                    overrides.set(&category.name, Value::Map(label));
                }
            }
        }
        _ => {
            let names = categories.iter().map(|category| category.name.clone());
            labels.set("topologyCategories", Value::List(names.collect()));
        }
    }
    (labels, overrides)
}

fn net_permissions(permissions: &[NetPermission]) -> Map {
    let mut sections = Map::default();
    if *permissions == [NetPermission::default()] {
        return sections;
    }
    for permission in permissions {
        let mut map = Map::default();
        map.text("ips", &permission.ips);
        map.text("permissions", permission.access.name());
        map.set("rootsquash", Value::Flag(permission.root_squash));
        sections.set(&permission.name, Value::Map(map));
    }
    sections
}

/// Puts credentials into the first Secret that has room for them.
fn place(
    vcenters: &[&VCenter],
    vcenter: &VCenter,
    inline: &Inline,
    wanted: &SecretName,
    secrets: &mut Secrets,
) -> SecretName {
    let mut number = 1;
    loop {
        let name = match number {
            1 => wanted.clone(),
            _ => SecretName { name: format!("{}-{number}", wanted.name), ..wanted.clone() },
        };
        let taken = vcenters.iter().any(
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
    Number(u32),
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

    /// Left out if it is not set.
    fn nearest(&mut self, nearest: bool) {
        if nearest {
            self.set("nearestTag", Value::Flag(true));
        }
    }

    /// Left out if it is the default.
    fn number(&mut self, section: Section, id: Id, number: u32) {
        let name = Key::of(section, id).and_then(|key| key.name(Format::Yaml));
        if let Some(name) = name.filter(|_| number != id.default_number()) {
            self.set(&name, Value::Number(number));
        }
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
        map.set("port", Value::Number(vcenter.endpoint.port().into()));
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
