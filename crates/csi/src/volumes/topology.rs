//! Where nodes and volumes are: the labels by which Kubernetes leads a pod to a node that reaches its volume.
//!
//! A node reports what its Node is labelled with. A request may name less than that: it then means every node that
//! has these labels, whatever else they are labelled with.

use std::{collections::BTreeMap, fmt, sync::Arc};

/// Labels of nodes, with their values; one at least. Clones share them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segment(Arc<BTreeMap<String, String>>);

impl Segment {
    /// The segment of these labels; nothing if there are none.
    pub fn new(labels: impl IntoIterator<Item = (String, String)>) -> Option<Self> {
        let labels: BTreeMap<_, _> = labels.into_iter().collect();
        (!labels.is_empty()).then(|| Self(Arc::new(labels)))
    }

    /// Whether whatever is in this segment is also in the other one.
    pub fn is_within(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || other.0.iter().all(|(key, value)| self.0.get(key) == Some(value))
    }

    /// The keys and values.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

impl fmt::Display for Segment {
    /// As `kubectl get nodes --selector` takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (key, value)) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "," };
            write!(f, "{separator}{key}={value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Segment;

    fn segment(text: &str) -> Segment {
        let labels = text.split(',').map(|label| label.split_once('=').unwrap());
        Segment::new(labels.map(|(key, value)| (key.to_owned(), value.to_owned()))).unwrap()
    }

    #[test]
    fn a_segment_is_within_those_that_name_a_part_of_its_labels() {
        let whole = segment("zone=a,region=north");
        for (part, is_within) in [
            ("region=north,zone=a", true),
            ("zone=a", true),
            ("region=north", true),
            ("zone=b", false),
            ("zone=a,rack=1", false),
        ] {
            assert_eq!(whole.is_within(&segment(part)), is_within, "{part}");
        }
        assert_eq!(Segment::new([]), None);
        assert_eq!(whole.to_string(), "region=north,zone=a");
    }
}
