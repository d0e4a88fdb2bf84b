//! Pods that use volumes on a lab's two nodes. Needs root.
//!
//! A lab with the driver costs most of a minute, so each test has several scenarios in one lab, each in a namespace of
//! its own.

mod forms;
mod go_manifest;
mod growth;
mod many;
mod mistakes;
mod snapshots;
mod stateful;
mod tenant;
mod trouble;
mod zones;

use lab::{Spec, VCenterSpec, csi_driver, image, manifest_files};

use crate::csi_lab::deployed;

/// The lab of these tests.
fn spec(vcenter: VCenterSpec) -> Spec {
    Spec { vcenter: Some(vcenter), images: &[image::PAUSE, image::BUSYBOX], ..Spec::default() }
}

/// The classes of `deploy/` for the lab's claims.
fn classes() -> Vec<serde_json::Value> {
    manifest_files::read("csi-storage-classes.yaml").unwrap()
}

#[tokio::test]
async fn pods_use_volumes_of_every_kind_and_nothing_is_left() {
    let lab = deployed(&spec(VCenterSpec::default())).await;
    lab.control_plane().apply(&classes()).unwrap();
    tokio::join!(
        stateful::a_stateful_set_moves_with_its_data(&lab),
        growth::volumes_grow_online_and_offline(&lab),
        forms::pods_share_and_protect_a_volume(&lab),
        forms::a_volume_of_the_go_driver_is_used_and_deleted(&lab),
        many::forty_volumes_on_one_node(&lab),
        snapshots::a_file_is_in_the_snapshot_and_in_the_clone(&lab),
    );
    let left = lab.vcenter().unwrap().control().state().await.unwrap();
    let logs = || csi_driver::logs(&lab);
    assert!(left.volumes.is_empty(), "volumes are left: {:#?}\n{}", left.volumes, logs());
    assert!(left.attachments.is_empty(), "{:#?}\n{}", left.attachments, logs());
}
