//! The components are what we pinned, and the storage suite sees our driver.

use lab::storage_suite::Spec;

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

/// With every kind of volume there is; specs about those that the driver does not have skip themselves when they run.
#[test]
fn the_storage_suite_selects_its_specs_for_our_driver() {
    let specs = lab::storage_suite::specs(None).unwrap();
    assert_eq!(specs.len(), 252, "{specs:#?}");
    let dynamic = |suite: &str| {
        let fits = |spec: &&Spec| spec.suite == suite && spec.volume.starts_with("Dynamic PV");
        specs.iter().filter(fits).count()
    };
    let counted = [
        ("provisioning", 18),
        ("volumes", 9),
        ("volumeMode", 4),
        ("multiVolume", 36),
        ("subPath", 16),
        ("fsgroupchangepolicy", 7),
        ("volume-expand", 11),
    ];
    for (suite, count) in counted {
        assert_eq!(dynamic(suite), count, "{suite}");
    }
    assert!(
        specs.iter().all(|spec| spec.name.contains("[Driver: csi.vsphere.vmware.com]")),
        "{specs:#?}"
    );
}

#[test]
fn image_names_are_those_that_the_suite_asks_for() {
    let listed = output_of("e2e.test", &["-list-images"]).unwrap();
    let images = [
        lab::image::PAUSE,
        lab::image::BUSYBOX,
        lab::image::AGNHOST,
        lab::image::NGINX,
        lab::image::GLIBC,
    ];
    for name in images {
        assert!(listed.lines().any(|line| line.trim() == name), "{name} is not in\n{listed}");
    }
}
