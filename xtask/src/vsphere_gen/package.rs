//! Gets the pinned pyVmomi package, whose tables describe the API, and unpacks them.
//!
//! The package is Apache-2.0 licensed and not committed. Only facts are taken from it: names, order, versions.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

/// A new release means a new pair, here and in the simulator's own generator, and a look at the differences.
pub(crate) const VERSION: &str = "9.1.1.0";
const SHA256: &str = "76af3cba85573769daf4e6760aace32e7af34e1bbf343895b8c4798b6bc0e2d2";

/// The tables of the services that we call. The order is that of their dependencies.
const TABLES: [&str; 6] = ["core", "query", "vim", "pbm", "vslm", "vsanhealth"];

/// The package in the cache; it is fetched when it is not there.
pub(crate) fn fetched() -> Result<PathBuf> {
    let cache = lab::components::cache_dir()?;
    let package = cache.join(format!("pyvmomi-{VERSION}-py3-none-any.whl"));
    if !package.exists() {
        fs::create_dir_all(&cache).with_context(|| format!("create {}", cache.display()))?;
        // Somebody else may fetch it, too; whoever is last replaces the same bytes.
        let scratch = tempfile::tempdir_in(&cache)?;
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "download", "--quiet", "--retries", "1", "--no-deps", "--dest"])
            .arg(scratch.path())
            .arg(format!("pyvmomi=={VERSION}"));
        lab::run(&mut pip).with_context(|| {
            format!("fetch pyvmomi {VERSION}; or give the file with --wheel, if it is here")
        })?;
        let name = package.file_name().context("the package has a name")?;
        fs::rename(scratch.path().join(name), &package).context("keep the fetched package")?;
    }
    Ok(package)
}

/// The names and texts of the tables in a package, once it is proven to be the pinned one.
pub(crate) fn tables(package: &Path) -> Result<Vec<(String, String)>> {
    let content = fs::read(package).with_context(|| format!("read {}", package.display()))?;
    let digest: String =
        Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
    ensure!(
        digest == SHA256,
        "{} is not pyvmomi {VERSION}: its SHA-256 is {digest}, pinned is {SHA256}; remove it",
        package.display()
    );
    let scratch = tempfile::tempdir()?;
    let mut unpack = Command::new("python3");
    unpack.args(["-m", "zipfile", "-e"]).arg(package).arg(scratch.path());
    lab::run(&mut unpack).context("unpack the package")?;
    TABLES
        .iter()
        .map(|table| {
            let name = format!("pyVmomi/_typeinfo_{table}.py");
            let text = fs::read_to_string(scratch.path().join(&name))
                .with_context(|| format!("read {name} of the package"))?;
            Ok((name, text))
        })
        .collect()
}
