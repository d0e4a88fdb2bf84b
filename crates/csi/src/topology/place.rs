//! Where the VM of a node is: the labels that the tags above it say, from what is known of the vCenters.

use std::{borrow::Borrow, sync::Arc};

use daemon::label::is_value;
use vcenter::{Health, Snapshot, zones};
use vsphere::{
    inventory::{PowerState, Uuid, Vm},
    reference::Ref,
    types::ManagedEntity,
};

use super::{Labels, Rules, World};

/// What is known about the place of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// No zones are configured.
    Unzoned,
    /// All labels of the configuration.
    At(Labels),
    /// A label is missing, and somebody has to change something: the reason and the remedy.
    Nowhere(String),
    /// It cannot be judged now: the reason.
    Unknown(String),
}

/// The VM of a node, and the vCenter that shows it.
type Found<'s> = (&'s Snapshot, &'s Arc<Vm>);

impl World {
    /// The vCenters at this moment.
    pub(super) fn snapshots(&self) -> Vec<Arc<Snapshot>> {
        self.vcenters.iter().map(|site| site.view().snapshot()).collect()
    }

    /// Where the VM with this BIOS UUID is.
    pub(super) fn place(&self, snapshots: &[Arc<Snapshot>], uuid: &str) -> Place {
        let Some(rules) = &self.rules else {
            return Place::Unknown("no configuration is in force".to_owned());
        };
        if rules.categories.is_empty() {
            return Place::Unzoned;
        }
        let Ok(parsed) = uuid.parse() else {
            return Place::Nowhere(format!(
                "its CSINodeTopology has the nodeuuid {uuid:?}, which is not the UUID of a VM; the driver's pod on the \
                 node writes it when it starts"
            ));
        };
        let replaced = self.changing.first().map(|server| {
            format!(
                "vCenter {server} cannot be used: its part of the configuration is being replaced"
            )
        });
        match find(snapshots, parsed, replaced) {
            Ok((snapshot, vm)) => labels(rules, snapshot, vm),
            Err(place) => place,
        }
    }
}

/// The VM that a node is.
fn find<S: Borrow<Snapshot>>(
    snapshots: &[S],
    uuid: Uuid,
    mut unread: Option<String>,
) -> Result<Found<'_>, Place> {
    let mut found: Vec<Found<'_>> = Vec::new();
    for snapshot in snapshots.iter().map(Borrow::borrow) {
        match snapshot.health() {
            Health::Unavailable(outage) => {
                unread = Some(format!("vCenter {} cannot be used: {}", outage.vcenter, outage.why));
                continue;
            }
            Health::Partial(outage) => unread = Some(outage.why),
            Health::Current { .. } => {}
        }
        found.extend(snapshot.vm_by_uuid(&uuid).into_iter().map(|vm| (snapshot, vm)));
    }
    // A copy that a backup tool restored is off: the node is the one that runs, also where that cannot be seen.
    if found.iter().any(|(_, vm)| vm.power != PowerState::Off) {
        found.retain(|(_, vm)| vm.power != PowerState::Off);
    } else if let Some(why) = unread {
        return Err(Place::Unknown(why));
    }
    match found.as_slice() {
        [one] => Ok(*one),
        [] => Err(Place::Nowhere(format!(
            "no vCenter shows a VM with the BIOS UUID {uuid}; correct the vCenters and datacenters in the \
             configuration, or give the user System.Read on the VM"
        ))),
        several => {
            let name = |(at, vm): &Found<'_>| format!("{} of {}", vm.name, at.name);
            let names: Vec<_> = several.iter().map(name).collect();
            Err(Place::Nowhere(format!(
                "the VMs {} have the same BIOS UUID {uuid}; give the clone a UUID of its own (uuid.bios) or delete it",
                names.join(" and ")
            )))
        }
    }
}

/// The labels of a VM by the tags on it and above it.
fn labels(rules: &Rules, snapshot: &Snapshot, vm: &Vm) -> Place {
    let Some(map) = snapshot.tags.map.as_deref() else {
        let problem = snapshot.tags.problem.as_deref().unwrap_or("they have not been read yet");
        return Place::Unknown(format!("the tags of vCenter {}: {problem}", snapshot.name));
    };
    // Zone and region may be one category, which then is the zone.
    let mut names: Vec<&str> = Vec::new();
    let mut keys: Vec<&str> = Vec::new();
    for category in &rules.categories {
        if !names.contains(&category.name.as_str()) {
            names.push(&category.name);
            keys.push(&category.label);
        }
    }
    let order = if rules.nearest { zones::Order::Nearest } else { zones::Order::Driver };
    let ancestors = snapshot.ancestors(vm);
    let on = |object: &Ref<ManagedEntity>, category: &str| map.on(object, category);
    let chosen = zones::choose(vm.reference.upcast(), &ancestors, &names, order, on);
    let (mut labels, mut problems) = (Labels::new(), Vec::new());
    for ((category, key), found) in names.iter().zip(keys).zip(chosen) {
        match label(category, key, found) {
            Ok(value) => drop(labels.insert(key.to_owned(), value)),
            Err(_) if map.missing().iter().any(|one| one == category) => problems.push(format!(
                "vCenter {} does not show the category {category:?} to the user; create it, correct it in the \
                 configuration, or give the user System.Read on the root folder",
                snapshot.name
            )),
            Err(problem) => problems.push(problem),
        }
    }
    if !problems.is_empty() && ancestors.host.is_empty() {
        problems.push(format!(
            "something between the VM {} and the root folder is hidden from the user; give it System.Read there",
            vm.name
        ));
    }
    if problems.is_empty() { Place::At(labels) } else { Place::Nowhere(problems.join("; ")) }
}

/// The value of one label; of several tags on one object the first by name counts.
fn label(category: &str, key: &str, found: &[String]) -> Result<String, String> {
    let name_of_key = key.rsplit('/').next().unwrap_or_default();
    if !is_value(name_of_key) {
        return Err(format!(
            "the category {category:?} cannot be a label of Kubernetes; rename it to 63 letters, digits, '-', '_' and \
             '.' at most"
        ));
    }
    match found.first() {
        Some(name) if is_value(name) => Ok(name.clone()),
        Some(name) => Err(format!(
            "the tag {name:?} of the category {category:?} cannot be a label of Kubernetes; rename it to 63 letters, \
             digits, '-', '_' and '.' at most"
        )),
        None => Err(format!(
            "no tag of the category {category:?} is on the host of the VM or on anything above it; attach one to the \
             host, its cluster or its datacenter"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::label;

    #[test]
    fn a_label_is_the_first_tag_and_what_cannot_be_one_is_told_with_the_remedy() {
        let names = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        let key = "topology.csi.vmware.com/zone";
        assert_eq!(label("zone", key, &names(&["a", "b"])).as_deref(), Ok("a"));
        let missing = label("zone", key, &[]).unwrap_err();
        assert!(
            missing.contains("no tag of the category \"zone\"") && missing.contains("; attach")
        );
        let spaced = label("zone", key, &names(&["Data Center"])).unwrap_err();
        assert!(spaced.contains("\"Data Center\"") && spaced.contains("; rename it"), "{spaced}");
        let category = label("my zone", "topology.csi.vmware.com/my zone", &names(&["a"]));
        assert!(category.unwrap_err().contains("the category \"my zone\" cannot be a label"));
    }
}
