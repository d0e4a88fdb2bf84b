//! Tells the user what became of a changed configuration, where `kubectl describe` shows it.

use std::{convert::Infallible, sync::Arc};

use cloud_config::Config;
use daemon::{
    args::LeaderElection,
    events::{Kind, Recorder},
    reload::Followed,
    supervise::Shutdown,
};
use k8s_openapi::api::core::v1::ObjectReference;

use crate::{command::settings::Environment, metrics::Metrics};

/// Who tells.
#[derive(Clone)]
pub(super) struct Teller {
    events: Recorder,
    /// Our pod, or the lease if nobody told us which pod we are.
    about: ObjectReference,
    metrics: Metrics,
}

impl Teller {
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
        let about = match &environment.pod {
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

    /// That a changed configuration is in force.
    pub(super) fn reloaded(&self, why: &str) {
        self.metrics.configuration(true);
        let message = format!("{why}; it is in force now, without a restart");
        self.events.record(&self.about, Kind::Normal, "ConfigReloaded", &message);
    }

    /// Tells about configurations that are refused, until `shutdown`.
    pub(super) async fn refusals(
        self,
        mut config: Followed<Arc<Config>>,
        shutdown: Shutdown,
    ) -> Result<(), Infallible> {
        while let Some(Ok(())) = shutdown.unless(config.refusal.changed()).await {
            let Some(refusal) = config.refusal.borrow_and_update().clone() else { continue };
            self.metrics.configuration(false);
            let message =
                format!("the changed configuration is refused, the old one stays: {refusal}");
            self.events.record(&self.about, Kind::Warning, "ConfigRefused", &message);
        }
        shutdown.requested().await;
        Ok(())
    }
}
