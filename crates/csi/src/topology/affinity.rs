//! Which volumes only some nodes may use, by the node affinity of their PersistentVolumes.

use k8s_openapi::api::core::v1::{NodeSelectorTerm, PersistentVolume};
use kube::ResourceExt;

use super::Labels;
use crate::DRIVER;

/// A volume of the driver that is bound to nodes with certain labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BoundVolume {
    pub(super) name: String,
    /// Any of them must match, in all of its labels: key and allowed values.
    terms: Vec<Vec<(String, Vec<String>)>>,
}

impl BoundVolume {
    /// Nothing for volumes of other drivers, and for those that every node may use.
    pub(super) fn read(volume: &PersistentVolume) -> Option<Self> {
        let spec = volume.spec.as_ref()?;
        spec.csi.as_ref().filter(|source| source.driver == DRIVER)?;
        let terms = &spec.node_affinity.as_ref()?.required.as_ref()?.node_selector_terms;
        Some(Self { name: volume.name_any(), terms: terms.iter().map(read_term).collect() })
    }

    /// Whether a node with these labels may use it.
    pub(super) fn may_be_used_from(&self, labels: &Labels) -> bool {
        let has = |(key, values): &(String, Vec<String>)| {
            labels.get(key).is_some_and(|value| values.contains(value))
        };
        self.terms.iter().any(|term| term.iter().all(has))
    }
}

/// What a provisioner writes: labels with a list of values. Other conditions are left out, so that a volume counts as
/// usable from more nodes than it is.
fn read_term(term: &NodeSelectorTerm) -> Vec<(String, Vec<String>)> {
    let lists = term.match_expressions.iter().flatten().filter(|one| one.operator == "In");
    lists.map(|one| (one.key.clone(), one.values.clone().unwrap_or_default())).collect()
}

/// The names of the volumes that a node could use with the labels `before`, and that neither it with those `after` nor
/// another node can use.
pub(super) fn stranded<'v>(
    volumes: &'v [BoundVolume],
    before: &Labels,
    after: &Labels,
    others: &[Labels],
) -> Vec<&'v str> {
    let lost = |volume: &&BoundVolume| {
        volume.may_be_used_from(before)
            && !volume.may_be_used_from(after)
            && !others.iter().any(|other| volume.may_be_used_from(other))
    };
    volumes.iter().filter(lost).map(|volume| volume.name.as_str()).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{from_value, json};

    use super::*;

    pub(in crate::topology) fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    pub(in crate::topology) fn bound(name: &str, zones: &[&str]) -> BoundVolume {
        let zones = zones.iter().map(|one| (*one).to_owned()).collect();
        BoundVolume { name: name.to_owned(), terms: vec![vec![("zone".to_owned(), zones)]] }
    }

    #[test]
    fn the_affinity_that_a_provisioner_writes_is_read() {
        let expressions = json!([{"key": "zone", "operator": "In", "values": ["a", "b"]}]);
        let terms = json!([{"matchExpressions": expressions}]);
        let volume = |driver: &str| -> PersistentVolume {
            let volume = json!({
                "metadata": {"name": "pv-1"},
                "spec": {
                    "csi": {"driver": driver, "volumeHandle": "x"},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
                },
            });
            from_value(volume).unwrap()
        };
        assert_eq!(BoundVolume::read(&volume(DRIVER)), Some(bound("pv-1", &["a", "b"])));
        assert_eq!(BoundVolume::read(&volume("another.example")), None);
        let mut anywhere = volume(DRIVER);
        anywhere.spec.as_mut().unwrap().node_affinity = None;
        assert_eq!(BoundVolume::read(&anywhere), None);
    }

    #[test]
    fn a_volume_is_stranded_when_no_node_is_left_that_may_use_it() {
        let volumes = [bound("of-a", &["a"]), bound("of-both", &["a", "b"]), bound("of-b", &["b"])];
        let (a, b) = (labels(&[("zone", "a")]), labels(&[("zone", "b")]));
        assert_eq!(stranded(&volumes, &a, &b, &[]), ["of-a"]);
        assert_eq!(stranded(&volumes, &a, &b, std::slice::from_ref(&a)), [""; 0]);
        assert_eq!(stranded(&volumes, &a, &a, &[]), [""; 0]);
        assert_eq!(stranded(&volumes, &a, &Labels::new(), &[b]), ["of-a"]);
    }
}
