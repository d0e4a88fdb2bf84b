//! What flags, the environment and the configuration file say, as the manager's own settings.

use std::path::{Path, PathBuf};

use cloud_config::{Config, Reader, Strictness};
use daemon::reload::Contents;
use jiff::SignedDuration;
use tracing::warn;

use crate::{args::Flags, lifecycle, run::Options};

/// Where credentials are if nothing says where.
const SECRETS: &str = "/etc/cloud/secrets";
/// The file that counts in a directory with several.
const USUAL: &str = "vsphere.conf";

/// The variables that mean something to us.
#[derive(Clone)]
pub(super) struct Environment {
    /// All of them, for the configuration.
    pub(super) variables: Vec<(String, String)>,
    /// The pod that we are, if the manifest says so: namespace and name.
    pub(super) pod: Option<(String, String)>,
    skip_deletion: bool,
}

impl Environment {
    pub(super) fn of(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let variables: Vec<_> = variables.into_iter().collect();
        let value = |name: &str| {
            let found = variables.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.clone())
        };
        // As upstream has it, that the variable is there is enough.
        let skip_deletion = value("SKIP_NODE_DELETION").is_some();
        let pod = value("POD_NAMESPACE").zip(value("POD_NAME"));
        Self { variables, pod, skip_deletion }
    }
}

/// How the manager runs by the flags.
pub(super) fn options(flags: &Flags, environment: &Environment) -> Options {
    // Flags cannot say more than fits: durations are Go's.
    let signed = |duration| SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    let lifecycle = lifecycle::Settings {
        grace: signed(flags.lifecycle.node_deletion_grace),
        most_percent: flags.lifecycle.node_deletion_limit.into(),
        skip_deletion: flags.lifecycle.skip_node_deletion || environment.skip_deletion,
        out_of_service: flags.lifecycle.out_of_service_taint,
        ..lifecycle::Settings::default()
    };
    Options {
        controllers: flags.cloud.controllers,
        lifecycle_every: flags.lifecycle.node_monitor_period,
        labels: flags.nodes.node_labels.0.clone(),
        lifecycle,
        zones: flags.nodes.zone_policy,
        place_labels: flags.nodes.place_labels,
        adopt: flags.nodes.adopt_nodes,
        patience: signed(flags.nodes.vcenter_patience),
        steady_after: signed(flags.nodes.address_patience),
        ..Options::default()
    }
}

/// Reads configurations; what deserves a warning is logged.
pub(super) fn parser(
    strict: bool,
    variables: Vec<(String, String)>,
) -> impl Fn(&Contents) -> Result<Config, String> + Send + Sync + 'static {
    move |contents| {
        let (path, bytes) = chosen(contents)?;
        let strictness = if strict { Strictness::Strict } else { Strictness::Tolerant };
        let secrets = Path::new(SECRETS).is_dir().then(|| PathBuf::from(SECRETS));
        let reader = Reader::new()
            .strictness(strictness)
            .environment(variables.iter().cloned())
            .secrets_directory(secrets);
        let accepted = reader.read(&path.display().to_string(), bytes);
        let accepted = accepted.map_err(|problems| problems.to_string())?;
        for warning in &accepted.warnings {
            warn!(%warning, "configuration");
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
        assert!(Environment::of(set).skip_deletion);
        assert!(!Environment::of([]).skip_deletion);
    }
}
