//! A change as it is written and logged.

use serde_json::{Value, json};

use super::{eu_a, found, new_node, observed, old_node, planned, settings};
use crate::{
    plan::{
        node::{NodeChange, Observed, Settings, plan},
        zones::{Policy, Zones},
    },
    test_support::{UUID, at, merge, nics, patched, vm},
};

#[test]
fn a_change_is_not_empty_when_any_part_of_it_is_there() {
    let full = planned(&new_node(json!({})), &settings());
    assert!(NodeChange::default().is_empty() && !full.is_empty());
    assert!(!NodeChange { status: None, events: Vec::new(), ..full.clone() }.is_empty());
    assert!(!NodeChange { patch: None, events: Vec::new(), ..full.clone() }.is_empty());
    assert!(!NodeChange { patch: None, status: None, ..full }.is_empty());
}

#[test]
fn the_patch_follows_the_status_write_unless_its_ground_changed() {
    let planned_on = new_node(json!({}));
    let change = planned(&planned_on, &settings());
    let after = |fields: Value| {
        let mut value =
            serde_json::to_value(patched(&planned_on, [&None, &change.status])).unwrap();
        merge(&mut value, json!({"metadata": {"resourceVersion": "8"}}));
        merge(&mut value, fields);
        change.patch_after(&planned_on, &serde_json::from_value(value).unwrap())
    };
    let mut expected = change.patch.clone().unwrap();
    expected["metadata"]["resourceVersion"] = json!("8");
    assert_eq!(after(json!({})), Some(Some(expected.clone())));
    let unrelated = json!({"metadata": {"annotations": {"flannel": "x"}}});
    assert_eq!(after(unrelated), Some(Some(expected)));
    for fields in [
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"metadata": {"uid": "uid-2"}}),
        json!({"metadata": {"annotations": {"ccm.vsphere.vmware.com/vm": "vm-7"}}}),
        json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
        json!({"spec": {"providerID": "vsphere://x"}}),
    ] {
        assert_eq!(after(fields.clone()), None, "{fields}");
    }
    assert_eq!(NodeChange::default().patch_after(&planned_on, &planned_on), Some(None));
}

#[test]
fn a_change_is_one_short_line_with_what_was_and_what_is() {
    let change = planned(&new_node(json!({})), &settings());
    let expected = format!(
        "initialised; provider id vsphere://{UUID}; addresses none -> Hostname=node-1 InternalIP=10.0.0.1 \
         ExternalIP=10.0.0.1; label node.kubernetes.io/instance-type=vsphere-vm.cpu-4.mem-16gb.os-ubuntu; \
         label topology.kubernetes.io/region=eu; label topology.kubernetes.io/zone=a; annotations folder, \
         vcenter, vm; condition none -> Synced"
    );
    assert_eq!(change.summary.to_string(), expected);
    let labels =
        json!({"topology.kubernetes.io/zone": "b", "failure-domain.beta.kubernetes.io/zone": "b"});
    let own = old_node(json!({"metadata": {"labels": labels}}));
    let (vm, nics) = (vm("vm-1", UUID, "node-1", &[]), nics(&["10.0.0.2"]));
    let untagged = Zones { problems: vec!["x".to_owned()], ..eu_a() };
    let seen = Observed { zones: untagged, ..observed(found(&vm), &nics) };
    let change = plan(&own, &seen, &Settings { zones: Policy::Always, ..settings() }, at(1));
    let expected = "addresses Hostname=node-1 InternalIP=10.0.0.1 ExternalIP=10.0.0.1 -> Hostname=node-1 \
                    InternalIP=10.0.0.2 ExternalIP=10.0.0.2; label topology.kubernetes.io/zone b -> a; \
                    condition Synced -> TopologyIncomplete";
    assert_eq!(change.summary.to_string(), expected);
}
