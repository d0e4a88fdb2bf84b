//! The components are what we pinned, and the storage suite sees our driver.

use crate::output_of;

#[test]
fn components_report_the_version_that_is_pinned() {
    let pinned = components::kubernetes_version().unwrap();
    for component in
        ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"]
    {
        let said = output_of(component, &["--version"]).unwrap();
        assert_eq!(said.trim(), format!("Kubernetes {pinned}"), "{component}");
    }
    let said = output_of("kubectl", &["version", "--client"]).unwrap();
    assert!(said.contains(&format!("Client Version: {pinned}")), "{said}");
}

#[test]
fn every_sidecar_starts() {
    for component in
        ["csi-provisioner", "csi-resizer", "csi-snapshotter", "snapshot-controller", "csi-sanity"]
    {
        let said = output_of(component, &["--version"]).unwrap();
        assert!(!said.trim().is_empty(), "{component} says nothing about its version");
    }
}

#[test]
fn the_storage_suite_selects_its_specs_for_our_driver() {
    let specs = lab::storage_suite::specs().unwrap();
    assert_eq!(specs.len(), 137, "{specs:#?}");
    assert!(
        specs.iter().all(|spec| spec.contains("[Driver: csi.vsphere.vmware.com]")),
        "{specs:#?}"
    );
}

#[test]
fn image_names_are_those_that_the_suite_asks_for() {
    let listed = output_of("e2e.test", &["-list-images"]).unwrap();
    for name in [lab::image::PAUSE, lab::image::BUSYBOX, lab::image::AGNHOST] {
        assert!(listed.lines().any(|line| line.trim() == name), "{name} is not in\n{listed}");
    }
}
