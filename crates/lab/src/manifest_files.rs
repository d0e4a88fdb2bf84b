//! The manifests as files for `kubectl apply`, in `deploy/`.
//!
//! A crate that defines manifests has a test that [checks](check) its files; `cargo xtask deploy` lets these tests write
//! them. Whoever applies them in a lab [reads](read) the files: nothing has to be compiled together with the drivers.

mod yaml;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");

/// A file of `deploy/` and what is to be in it.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    /// Its name, such as `csi-driver.yaml`.
    pub name: &'a str,
    /// Lines that say what it is, each with `# ` in front.
    pub about: &'a str,
    /// The source that defines the objects, by its path in the repository.
    pub source: &'a str,
    /// What `kubectl apply` finds in it.
    pub objects: &'a [Value],
}

/// Compares the file with what is to be in it, and writes it first where the environment has `UPDATE`.
///
/// # Errors
/// When it differs.
pub fn check(file: &File<'_>) -> Result<()> {
    let path = path(file.name);
    let text = text(file)?;
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if fs::read_to_string(path).unwrap_or_default() != text {
        bail!("deploy/{} is stale; run `cargo xtask deploy`", file.name);
    }
    Ok(())
}

/// The objects in a file.
///
/// # Errors
/// When there is no such file, or it is not YAML.
pub fn read(name: &str) -> Result<Vec<Value>> {
    let path = path(name);
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_saphyr::from_multiple(&text).with_context(|| format!("cannot read {}", path.display()))
}

fn path(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(name)
}

fn text(file: &File<'_>) -> Result<String> {
    let File { about, source, objects, .. } = file;
    let mut text = format!(
        "{about}\n# Written by `cargo xtask deploy`; its content is defined in {source}.\n"
    );
    for object in *objects {
        text.push_str("---\n");
        text.push_str(&yaml::document(object)?);
    }
    Ok(text)
}
