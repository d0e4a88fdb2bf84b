//! The custom resource `CSINodeTopology`: a node's question and the controller's answer, in one object named as the Node.
//!
//! It has no status subresource, as the Go driver installs it. What others put into it is kept.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{
    Api, Client,
    core::{ApiResource, GroupVersionKind, Object, TypeMeta},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Labels;

pub(super) const GROUP: &str = "cns.vmware.com";
pub(super) const PLURAL: &str = "csinodetopologies";
const VERSION: &str = "v1alpha1";
const KIND: &str = "CSINodeTopology";

const SUCCESS: &str = "Success";
const ERROR: &str = "Error";

pub(super) type Record = Object<Spec, Status>;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Spec {
    /// The Node's name.
    #[serde(rename = "nodeID", default)]
    pub(super) node: String,
    /// The BIOS UUID of its VM; old versions of the Go driver did not write it.
    #[serde(rename = "nodeuuid", default, skip_serializing_if = "String::is_empty")]
    pub(super) uuid: String,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Status {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    status: String,
    #[serde(rename = "topologyLabels", default, skip_serializing_if = "Option::is_none")]
    labels: Option<Vec<Label>>,
    #[serde(rename = "errorMessage", default, skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Label {
    key: String,
    value: String,
}

/// What the controller answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// The labels of the node's topology; none where there are no zones.
    Labels(Labels),
    /// The reason and the remedy.
    Problem(String),
}

/// The objects of a cluster.
pub(super) fn records(client: &Client) -> Api<Record> {
    Api::all_with(client.clone(), &resource())
}

fn resource() -> ApiResource {
    let kind = GroupVersionKind::gvk(GROUP, VERSION, KIND);
    ApiResource::from_gvk_with_plural(&kind, PLURAL)
}

/// The question of a node, owned by its Node so that it goes with it.
pub(super) fn question(node: &str, uuid: &str, owner: OwnerReference) -> Record {
    let ApiResource { api_version, kind, .. } = resource();
    Object {
        types: Some(TypeMeta { api_version, kind }),
        metadata: ObjectMeta {
            name: Some(node.to_owned()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Spec { node: node.to_owned(), uuid: uuid.to_owned(), others: Map::new() },
        status: None,
    }
}

/// The answer in an object; `None` while there is none.
pub(super) fn answer(record: &Record) -> Option<Answer> {
    let status = record.status.as_ref()?;
    match status.status.as_str() {
        SUCCESS => Some(Answer::Labels(labels(record))),
        ERROR => Some(Answer::Problem(status.message.clone())),
        _ => None,
    }
}

/// The labels of the last answer that had any: they stay while a node asks again.
pub(super) fn labels(record: &Record) -> Labels {
    let labels = record.status.as_ref().and_then(|status| status.labels.as_ref());
    labels.into_iter().flatten().map(|one| (one.key.clone(), one.value.clone())).collect()
}

/// Puts an answer into an object. Labels that a problem follows are kept, so that they are not forgotten.
pub(super) fn set_answer(record: &mut Record, answer: &Answer) {
    let status = record.status.get_or_insert_default();
    match answer {
        Answer::Labels(labels) => {
            let label =
                |(key, value): (&String, &String)| Label { key: key.clone(), value: value.clone() };
            status.status = SUCCESS.to_owned();
            status.labels = (!labels.is_empty()).then(|| labels.iter().map(label).collect());
            status.message = String::new();
        }
        Answer::Problem(why) => {
            status.status = ERROR.to_owned();
            status.message.clone_from(why);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::*;

    #[test]
    fn what_others_wrote_is_kept_and_the_answer_is_in_the_go_drivers_fields() {
        let written = json!({
            "apiVersion": "cns.vmware.com/v1alpha1",
            "kind": "CSINodeTopology",
            "metadata": {"name": "node-1", "annotations": {"a": "b"}},
            "spec": {"nodeID": "node-1", "nodeuuid": "42", "newer": 1},
            "status": {"newer": {"x": [1]}},
        });
        let mut record: Record = from_value(written.clone()).unwrap();
        assert_eq!((answer(&record), labels(&record)), (None, Labels::new()));
        let found = Labels::from([("zone".to_owned(), "a".to_owned())]);
        set_answer(&mut record, &Answer::Labels(found.clone()));
        let mut expected = written;
        expected["status"]["status"] = "Success".into();
        expected["status"]["topologyLabels"] = json!([{"key": "zone", "value": "a"}]);
        assert_eq!(to_value(&record).unwrap(), expected);
        set_answer(&mut record, &Answer::Problem("no tag".to_owned()));
        assert_eq!(answer(&record), Some(Answer::Problem("no tag".to_owned())));
        assert_eq!(labels(&record), found, "the last labels are still known");
        set_answer(&mut record, &Answer::Labels(Labels::new()));
        assert_eq!(answer(&record), Some(Answer::Labels(Labels::new())));
    }

    #[test]
    fn objects_of_the_go_driver_are_read() {
        for status in [json!({}), json!({"status": ""}), json!({"topologyLabels": null})] {
            let spec = json!({"nodeID": "node-1"});
            let object = json!({"metadata": {"name": "node-1"}, "spec": spec, "status": status});
            let record: Record = from_value(object).unwrap();
            assert_eq!((answer(&record), record.spec.uuid.as_str()), (None, ""));
        }
    }
}
