//! Reads the configuration file and the environment of the program.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use cloud_config::{Config, Problems, Reader};
use daemon::reload::Contents;
use tracing::warn;

/// The directory with credentials when the configuration names none.
const SECRETS: &str = "/etc/cloud/secrets";
/// The file that is read in a directory with several.
const USUAL: &str = "vsphere.conf";

pub(super) struct Environment(pub(super) HashMap<String, String>);

impl Environment {
    /// Whether Nodes are never deleted. Any value counts, as in the Go program.
    pub(super) fn skip_deletion(&self) -> bool {
        self.0.contains_key("SKIP_NODE_DELETION")
    }

    /// Namespace and name of our pod, where the manifest sets them.
    pub(super) fn pod(&self) -> Option<(&String, &String)> {
        self.0.get("POD_NAMESPACE").zip(self.0.get("POD_NAME"))
    }
}

/// Why the files that `--cloud-config` names are not a configuration.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidConfig {
    /// A directory without a file that could be meant.
    #[error("{0}")]
    File(String),
    #[error(transparent)]
    Contents(#[from] Problems),
}

/// A parser of configurations that logs their warnings.
pub(super) fn parser(
    strict: bool,
    ignore_load_balancing: bool,
    variables: HashMap<String, String>,
) -> impl Fn(&Contents) -> Result<Config, InvalidConfig> + Send + Sync + 'static {
    move |contents| {
        let (path, bytes) = chosen(contents).map_err(InvalidConfig::File)?;
        let secrets = Path::new(SECRETS).is_dir().then(|| PathBuf::from(SECRETS));
        let reader = Reader {
            strict,
            environment: variables.clone().into_iter().collect(),
            secrets_directory: secrets,
            ignore_load_balancing,
        };
        let accepted = reader.read(&path.display().to_string(), bytes)?;
        for warning in &accepted.warnings {
            warn!(%warning, "configuration warning");
        }
        Ok(accepted.config)
    }
}

/// The configuration among the files of a directory, or the file itself.
fn chosen(contents: &Contents) -> Result<(&PathBuf, &[u8]), String> {
    let usual = |path: &PathBuf| path.file_name().is_some_and(|name| name == USUAL);
    let mut all = contents.iter();
    let found = match (all.next(), all.next()) {
        (only, None) => only,
        _ => contents.iter().find(|(path, _)| usual(path)),
    };
    found.map(|(path, bytes)| (path, bytes.as_slice())).ok_or_else(|| {
        let names: Vec<_> = contents.keys().map(|path| path.display().to_string()).collect();
        if names.is_empty() {
            format!("the directory is empty; put {USUAL} into it")
        } else {
            format!(
                "the directory has several files and none is called {USUAL} ({}); name the file in \
                 --cloud-config",
                names.join(", ")
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(names: &[&str]) -> Contents {
        names.iter().map(|name| (PathBuf::from(name), Vec::new())).collect()
    }

    #[test]
    fn the_configuration_may_have_any_name_and_lie_in_a_directory() {
        for (names, expected) in [
            (&["/etc/cloud/vsphere.yaml"][..], Some("/etc/cloud/vsphere.yaml")),
            (&["/etc/cloud/ca.pem", "/etc/cloud/vsphere.conf"], Some("/etc/cloud/vsphere.conf")),
            (&["/etc/cloud/a", "/etc/cloud/b"], None),
            (&[], None),
        ] {
            let contents = contents(names);
            let found = chosen(&contents).map(|(path, _)| path.to_str().unwrap());
            assert_eq!(found.clone().ok(), expected, "{found:?}");
            assert!(found.is_ok() || found.unwrap_err().contains("vsphere.conf"));
        }
    }

    #[test]
    fn a_variable_that_is_there_keeps_nodes_whatever_it_says() {
        let set = [("SKIP_NODE_DELETION".to_owned(), "false".to_owned())];
        assert!(Environment(set.into()).skip_deletion());
        assert!(!Environment(HashMap::new()).skip_deletion());
    }
}
