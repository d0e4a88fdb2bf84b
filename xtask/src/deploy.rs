//! `cargo xtask deploy`: the manifests as files for `kubectl apply`.
//!
//! The objects are Rust values beside the code that needs them; the files are committed, and a test fails when
//! they are stale. The configuration is a file of its own, so that applying the rest again leaves it alone.

mod yaml;

use std::{fs, path::Path};

use anyhow::{Context, Result};
use ccm::manifests::{Parameters, example, manifests};
use serde_json::Value;

use crate::output::print_line;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");

pub(crate) fn run() -> Result<()> {
    for (name, text) in files()? {
        let path = Path::new(DIRECTORY).join(name);
        fs::create_dir_all(DIRECTORY)?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        print_line(&format!("deploy/{name}"));
    }
    Ok(())
}

/// The names and texts of all files.
fn files() -> Result<Vec<(&'static str, String)>> {
    let (config, secret) = example();
    let example = [serde_json::to_value(config)?, serde_json::to_value(secret)?];
    let header = "# The cloud controller manager: its account, what it may do, and its pods.\n\
                  # Its configuration is in cloud-controller-manager-config.yaml; apply that first, edited.\n";
    let example_header =
        "# The cloud controller manager's configuration and credentials. An example: edit it.\n";
    Ok(vec![
        (
            "cloud-controller-manager.yaml",
            file(header, &manifests(&Parameters::default())?.values()?)?,
        ),
        ("cloud-controller-manager-config.yaml", file(example_header, &example)?),
    ])
}

fn file(header: &str, objects: &[Value]) -> Result<String> {
    let made = "# Written by `cargo xtask deploy`; its content is defined in crates/ccm/src/manifests.rs.\n";
    let documents = objects.iter().map(|object| Ok(format!("---\n{}", yaml::document(object)?)));
    Ok(format!("{header}{made}{}", documents.collect::<Result<String>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_what_the_manifests_say() {
        if std::env::var_os("UPDATE").is_some() {
            run().unwrap();
        }
        for (name, text) in files().unwrap() {
            let found = fs::read_to_string(Path::new(DIRECTORY).join(name)).unwrap_or_default();
            assert!(found == text, "deploy/{name} is stale; run `cargo xtask deploy`");
        }
    }
}
