//! The labels of a Node: its size, its location, and what the user adds.
//!
//! Size, zone and region have two labels each, a beta and a stable one. Initialisation writes both; later the
//! stable one follows the beta one, as in Kubernetes' own controller.

use std::collections::BTreeMap;

use daemon::label::is_value;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use vsphere::inventory::Vm;

use crate::plan::{
    instance_type,
    node::{Observed, Settings},
    zones::Policy,
};

/// The beta and the stable label of one fact.
type Pair = (&'static str, &'static str);

const INSTANCE_TYPE: Pair =
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type");
const ZONE: Pair = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone");
const REGION: Pair = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region");

const HOST: &str = "ccm.vsphere.vmware.com/host";
const CLUSTER: &str = "ccm.vsphere.vmware.com/cluster";
const DATACENTER: &str = "ccm.vsphere.vmware.com/datacenter";
pub(super) struct Labels {
    pub(super) changes: BTreeMap<String, String>,
    pub(super) notes: Vec<String>,
}

pub(super) fn initial(
    node: &Node,
    vm: &Vm,
    observed: &Observed<'_>,
    settings: &Settings,
) -> Labels {
    let mut wanted = BTreeMap::new();
    let facts = [
        (INSTANCE_TYPE, instance_type::of(vm)),
        (ZONE, observed.zones.zone.clone()),
        (REGION, observed.zones.region.clone()),
    ];
    for ((old, stable), value) in facts {
        if let Some(value) = value {
            wanted.insert(old.to_owned(), value.clone());
            wanted.insert(stable.to_owned(), value);
        }
    }
    let mut notes = additional(node, settings, &mut wanted);
    place(observed, settings, &mut wanted, &mut notes);
    Labels { changes: differing(node, wanted), notes }
}

/// What has to be corrected on an initialised Node. Zones that were not known when it was initialised are
/// added under every policy.
pub(super) fn refreshed(
    node: &Node,
    observed: &Observed<'_>,
    settings: &Settings,
    pending: bool,
) -> Labels {
    let mut wanted = BTreeMap::new();
    for (old, stable) in [INSTANCE_TYPE, ZONE, REGION] {
        if let Some(value) = label(node, old) {
            wanted.insert(stable.to_owned(), value.to_owned());
        }
    }
    for ((old, stable), fresh) in zones(observed) {
        let Some(fresh) = fresh else { continue };
        let empty = label(node, old).is_none() && label(node, stable).is_none();
        let follows = match settings.zones {
            Policy::Always => true,
            Policy::IfEmpty => empty,
            Policy::Never | Policy::Warn => empty && pending,
        };
        if follows {
            wanted.insert(old.to_owned(), fresh.clone());
            wanted.insert(stable.to_owned(), fresh.clone());
        }
    }
    let mut notes = Vec::new();
    place(observed, settings, &mut wanted, &mut notes);
    Labels { changes: differing(node, wanted), notes }
}

/// That the labels differ from the tags, under the policy that reports it.
pub(super) fn moved(node: &Node, observed: &Observed<'_>, settings: &Settings) -> Option<String> {
    if settings.zones != Policy::Warn {
        return None;
    }
    let differs = |((old, stable), fresh): (Pair, &Option<String>)| {
        let has = label(node, old).or_else(|| label(node, stable)).unwrap_or_default();
        let fresh = fresh.as_ref().filter(|fresh| *fresh != has)?;
        Some(format!("{stable} is {has:?}, but the tags of the VM are {fresh:?}"))
    };
    let differing: Vec<String> = zones(observed).into_iter().filter_map(differs).collect();
    let remedy = "move the VM back, or drain the Node and delete it so that it registers anew";
    (!differing.is_empty()).then(|| format!("{}; {remedy}", differing.join("; ")))
}

fn zones<'a>(observed: &'a Observed<'_>) -> [(Pair, &'a Option<String>); 2] {
    [(ZONE, &observed.zones.zone), (REGION, &observed.zones.region)]
}

/// The user's labels: never Kubernetes' own, and never over existing ones.
fn additional(
    node: &Node,
    settings: &Settings,
    wanted: &mut BTreeMap<String, String>,
) -> Vec<String> {
    let mut notes = Vec::new();
    for (key, value) in &settings.labels {
        if is_reserved(key) {
            notes.push(format!("the label {key} was not set: its prefix belongs to Kubernetes"));
            continue;
        }
        match label(node, key) {
            Some(has) if has != value => {
                notes.push(format!("the label {key} stays {has:?}: it was there before"));
            }
            Some(_) => {}
            None => {
                wanted.insert(key.clone(), value.clone());
            }
        }
    }
    notes
}

/// Whether a key has the prefix `kubernetes.io/` or `k8s.io/`, or one that ends with `.` and one of them.
fn is_reserved(key: &str) -> bool {
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    let of = |domain: &str| {
        prefix.strip_suffix(domain).is_some_and(|sub| sub.is_empty() || sub.ends_with('.'))
    };
    of("kubernetes.io") || of("k8s.io")
}

/// Where the VM runs. These labels are not for scheduling, so they follow the VM.
fn place(
    observed: &Observed<'_>,
    settings: &Settings,
    wanted: &mut BTreeMap<String, String>,
    notes: &mut Vec<String>,
) {
    if !settings.place_labels {
        return;
    }
    let place = &observed.place;
    let labels = [(HOST, &place.host), (CLUSTER, &place.cluster), (DATACENTER, &place.datacenter)];
    for (key, name) in labels {
        match name {
            Some(name) if is_value(name) => {
                wanted.insert(key.to_owned(), name.clone());
            }
            Some(name) => notes.push(format!("{key} was not set: {name:?} cannot be a label")),
            None => {}
        }
    }
}

fn differing(node: &Node, wanted: BTreeMap<String, String>) -> BTreeMap<String, String> {
    wanted.into_iter().filter(|(key, value)| label(node, key) != Some(value)).collect()
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.labels().get(key).map(String::as_str)
}
