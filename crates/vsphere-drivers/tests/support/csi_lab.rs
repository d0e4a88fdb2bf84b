//! A lab with the CSI driver of this build, deployed as its users do it.

use std::path::{Path, PathBuf};

use lab::{Lab, Progress, Spec, csi_driver, image::Drivers};

/// A lab of this kind with the driver.
pub(crate) async fn deployed(spec: &Spec) -> Lab {
    let lab = Lab::start(spec).await.unwrap();
    install(&lab).await;
    lab
}

/// Installs the driver with the manifests of `deploy/`.
pub(crate) async fn install(lab: &Lab) {
    let objects = csi_driver::manifests().unwrap();
    csi_driver::install(lab, &archive(lab), &objects, &Progress::silent()).await.unwrap();
}

/// The drivers' image around the program that this test was built with.
pub(crate) fn archive(lab: &Lab) -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_vsphere-drivers"));
    let archive = lab.control_plane().world().dir().join("drivers.tar");
    Drivers::around(program).unwrap().image.write(&archive).unwrap();
    archive
}
