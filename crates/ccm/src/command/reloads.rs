//! Reports what became of a changed configuration, as events that `kubectl describe` shows.

use std::convert::Infallible;

use cloud_config::Config;
use daemon::{
    args::LeaderElection,
    events::{Kind, Recorder},
    reload::Followed,
    supervise::Shutdown,
};
use k8s_openapi::api::core::v1::ObjectReference;

use crate::{
    command::config::{Environment, InvalidConfig},
    metrics::Metrics,
};

#[derive(Clone)]
pub(super) struct ReloadReporter {
    events: Recorder,
    /// Our pod, or the lease if the manifest does not name the pod.
    about: ObjectReference,
    metrics: Metrics,
}

impl ReloadReporter {
    pub(super) fn new(
        events: Recorder,
        environment: &Environment,
        leader: &LeaderElection,
        metrics: Metrics,
    ) -> Self {
        let object = |version: &str, kind: &str, namespace: &str, name: &str| ObjectReference {
            api_version: Some(version.to_owned()),
            kind: Some(kind.to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            ..ObjectReference::default()
        };
        let about = match environment.pod() {
            Some((namespace, name)) => object("v1", "Pod", namespace, name),
            None => object(
                "coordination.k8s.io/v1",
                "Lease",
                &leader.leader_elect_resource_namespace,
                &leader.leader_elect_resource_name,
            ),
        };
        Self { events, about, metrics }
    }

    pub(super) fn accepted(&self, why: &str) {
        self.metrics.configuration(true);
        let message = format!("{why}; it is in force now, without a restart");
        self.events.record(&self.about, Kind::Normal, "ConfigReloaded", &message);
    }

    /// Reports refused configurations until `shutdown`.
    pub(super) async fn refusals(
        self,
        mut config: Followed<Config, InvalidConfig>,
        shutdown: Shutdown,
    ) -> Result<(), Infallible> {
        while shutdown.unless(config.changed()).await.is_some() {
            let state = config.state();
            let Some(refusal) = &state.problem else { continue };
            self.metrics.configuration(false);
            let message =
                format!("the changed configuration is refused, the old one stays: {refusal}");
            self.events.record(&self.about, Kind::Warning, "ConfigRefused", &message);
        }
        Ok(())
    }
}
