//! `cargo xtask image`: the drivers' container image with its bill of materials, without a container engine.
//!
//! ```text
//!   cargo build --release ─► the program ─┬─► lab::image: libraries, authorities ─► NAME.tar   an OCI archive
//!                                         └─► sbom.rs: crates, Debian packages   ─► NAME.cdx.json
//! ```
//!
//! Equal sources, toolchain and packages give equal bytes, wherever they are built: paths of the machine are
//! not in the program, times are not in the archive.

mod sbom;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use lab::{
    Image,
    image::{DRIVERS, Drivers, GO_DRIVER, debian_architecture},
};
use serde_json::Value;

use crate::output::print_line;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const PROGRAM: &str = "vsphere-drivers";

/// What was built.
pub(crate) struct Built {
    /// The OCI archive.
    pub(crate) archive: PathBuf,
    /// The image's digest.
    pub(crate) digest: String,
}

/// How the program in the image is compiled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Optimised, without paths of this machine: what is shipped.
    Release,
    /// As cargo builds by default, which shares what xtask itself is compiled from: for the demo.
    Development,
}

pub(crate) fn run() -> Result<()> {
    let built = make(Profile::Release)?;
    let archive = built.archive.display();
    let megabytes = fs::metadata(&built.archive)?.len() / 1_000_000;
    print_line(&format!(
        "{DRIVERS}\n{GO_DRIVER} (starts the CSI driver, in place of the Go driver's image)\n{}\n{archive} ({megabytes} MB)\n\n\
         Load it into a node's containerd:\n  ctr --namespace=k8s.io images import {archive}",
        built.digest
    ));
    Ok(())
}

/// Builds the program and the image around it.
pub(crate) fn make(profile: Profile) -> Result<Built> {
    let metadata = metadata()?;
    let program = match profile {
        Profile::Release => build_release(&metadata)?,
        Profile::Development => build_development(&metadata)?,
    };
    build(&metadata, &program, profile)
}

/// Writes archive and bill of materials below `target/image`.
fn build(metadata: &Value, program: &Path, profile: Profile) -> Result<Built> {
    let Drivers { image, packages } = Drivers::around(program)?;
    let dir = target_dir(metadata)?.join("image");
    fs::create_dir_all(&dir)?;
    let mut name = format!("{PROGRAM}-{}-{}", env!("CARGO_PKG_VERSION"), debian_architecture());
    if profile == Profile::Development {
        name.push_str("-development");
    }
    let bill = sbom::write(metadata, PROGRAM, &packages)?;
    fs::write(dir.join(format!("{name}.cdx.json")), &bill)?;
    let archive = dir.join(format!("{name}.tar"));
    let image = labelled(image).text(&format!("/usr/share/sbom/{PROGRAM}.cdx.json"), bill);
    Ok(Built { digest: image.write(&archive)?, archive })
}

fn labelled(image: Image) -> Image {
    image
        .label("org.opencontainers.image.title", PROGRAM)
        .label("org.opencontainers.image.version", env!("CARGO_PKG_VERSION"))
        .label("org.opencontainers.image.licenses", "Apache-2.0")
}

fn build_release(metadata: &Value) -> Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    let home = home.context("neither CARGO_HOME nor HOME is set")?;
    let root = fs::canonicalize(ROOT)?;
    let flags = format!(
        "--remap-path-prefix={}=/cargo --remap-path-prefix={}=/vsphere-drivers",
        home.display(),
        root.display()
    );
    let mut cargo = lab::components::cargo();
    cargo.current_dir(&root).env("RUSTFLAGS", flags);
    cargo.args(["build", "--release", "--locked", "--package", PROGRAM]);
    let status = cargo.status().context("cannot run cargo")?;
    if !status.success() {
        bail!("the program does not build: `cargo build --release --package {PROGRAM}`");
    }
    Ok(target_dir(metadata)?.join("release").join(PROGRAM))
}

/// Together with xtask, so that both share their compiled dependencies.
fn build_development(metadata: &Value) -> Result<PathBuf> {
    let mut cargo = lab::components::cargo();
    cargo.current_dir(ROOT).args(["build", "--quiet", "--package", "xtask", "--package", PROGRAM]);
    let status = cargo.status().context("cannot run cargo")?;
    if !status.success() {
        bail!("the program does not build: `cargo build --package {PROGRAM}`");
    }
    Ok(target_dir(metadata)?.join("debug").join(PROGRAM))
}

fn target_dir(metadata: &Value) -> Result<PathBuf> {
    let path = metadata["target_directory"].as_str();
    path.map(PathBuf::from).context("cargo metadata names no target directory")
}

/// What cargo knows about the workspace and its dependencies, on this machine's platform.
fn metadata() -> Result<Value> {
    let compiler = lab::run(Command::new("rustc").current_dir(ROOT).arg("-vV"))?;
    let host = compiler.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc does not report its host platform")?;
    let mut cargo = lab::components::cargo();
    cargo.current_dir(ROOT).args(["metadata", "--format-version=1", "--locked"]);
    Ok(serde_json::from_str(&lab::run(cargo.args(["--filter-platform", host]))?)?)
}

#[cfg(test)]
mod tests {
    use lab::image::Runtime;

    use super::*;

    /// Any program that is linked against Debian's libraries will do: this test's own.
    fn written(dir: &Path, name: &str) -> (String, Vec<u8>) {
        let program = std::env::current_exe().unwrap();
        let archive = dir.join(name);
        let image = Runtime::of(&program, &[]).unwrap().around(Image::new(DRIVERS));
        let digest = labelled(image.program("/bin/program", &program)).write(&archive).unwrap();
        (digest, fs::read(archive).unwrap())
    }

    #[test]
    fn two_builds_of_the_image_are_equal_to_the_byte() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (written(dir.path(), "one.tar"), written(dir.path(), "two.tar"));
        assert_eq!(one.0, two.0);
        assert!(one.1 == two.1, "the digests are equal and the archives are not");
    }
}
