//! The vCenters of the configuration in force, followed, and offered to operations on volumes.
//!
//! A change of the configuration concerns only those vCenters whose part of it changes: they are followed anew, and
//! the sessions and inventories of the others stay. A change of user or password alone is taken in place: the session
//! that works stays until the new ones do. So is one of the limits of snapshots.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use cloud_config::{CredentialSource, CsiConfig, SnapshotLimits, VCenter};
use daemon::{
    admin::{Check, Checks},
    reload::{self, Followed},
    supervise::{Ended, Shutdown, Tasks},
};
use futures::future::{join_all, select_all};
use kube::Client;
use tokio::{sync::watch, time::sleep};
use tracing::{debug, info, warn};
use vcenter::{Interests, Sessions, StorageInterest};

use super::{Failure, GRACE, controller::InvalidConfig};
use crate::{
    cluster_id,
    metrics::Metrics,
    topology,
    volumes::{
        PREFERRED_DATASTORES, Site, Sites,
        journal::{self, Journal},
    },
};

/// How soon the cluster id is read again after the API server did not answer.
const RETRY: Duration = Duration::from_secs(2);
/// The same after the ConfigMap contradicted the configuration, until somebody deletes one of the two names.
const RETRY_LASTING: Duration = Duration::from_secs(30);

/// What one vCenter is followed with. If any of it changes, it is followed anew.
#[derive(Debug, Clone, PartialEq)]
struct Terms {
    vcenter: VCenter,
    cluster: String,
    distribution: Option<String>,
    snapshots: SnapshotLimits,
    auth_check: Duration,
    /// The categories whose tags are read, and how often.
    tags: (Vec<String>, Duration),
    /// The contents of its file of certificate authorities; none while it cannot be read.
    authorities: Option<Vec<u8>>,
}

impl Terms {
    /// The terms of each vCenter.
    fn of(config: &CsiConfig, cluster: &str) -> Vec<Self> {
        let mut categories: Vec<_> = config.topology.iter().map(|one| one.name.clone()).collect();
        // Without zones nothing is preferred in any of them.
        if !categories.is_empty() {
            categories.push(PREFERRED_DATASTORES.to_owned());
        }
        let terms = |vcenter: &VCenter| Self {
            vcenter: vcenter.clone(),
            cluster: cluster.to_owned(),
            distribution: config.cluster_distribution.clone(),
            snapshots: config.snapshots.clone(),
            auth_check: config.intervals.auth_check,
            tags: (categories.clone(), config.intervals.tags),
            authorities: authorities([vcenter]).first().and_then(|path| fs::read(path).ok()),
        };
        config.vcenters.iter().map(|one| terms(&one.vcenter)).collect()
    }

    /// Whether a vCenter that is followed with these terms is also followed with the others.
    fn serve(&self, next: &Self) -> bool {
        let mut next = next.clone();
        let is_inline =
            |terms: &Self| matches!(terms.vcenter.credentials, CredentialSource::Inline(_));
        if is_inline(self) && is_inline(&next) {
            next.vcenter.credentials = self.vcenter.credentials.clone();
        }
        // Limits are replaced in place.
        next.snapshots = self.snapshots.clone();
        // A file that is gone for a while is not a reason to give up what is in use.
        next.authorities = next.authorities.or_else(|| self.authorities.clone());
        *self == next
    }
}

fn authorities<'a>(vcenters: impl IntoIterator<Item = &'a VCenter>) -> Vec<PathBuf> {
    let vcenters: Vec<VCenter> = vcenters.into_iter().cloned().collect();
    vcenter::authorities(&vcenters)
}

/// A vCenter that is followed.
struct Serving {
    terms: Terms,
    site: Arc<Site>,
    tasks: Tasks,
}

/// Serves one configuration after the other.
pub(super) struct Run {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) config: Followed<CsiConfig, InvalidConfig>,
    pub(super) metrics: Metrics,
    pub(super) checks: Checks,
    /// Whether the cluster id is known.
    pub(super) check: Check,
    pub(super) sessions: Sessions,
    pub(super) journal: Journal,
    pub(super) publish: watch::Sender<Sites>,
    /// The same for zones.
    pub(super) topology: watch::Sender<topology::World>,
    /// Whether zones are configured.
    pub(super) is_zoned: watch::Sender<bool>,
}

impl Run {
    pub(super) async fn run(mut self, shutdown: Shutdown) -> Result<(), Failure> {
        let mut serving = Vec::new();
        while !shutdown.is_requested() {
            let now = self.config.usable()?;
            let cluster = match shutdown.unless(self.cluster_id(&now)).await {
                None => break,
                Some(None) => continue,
                Some(Some(cluster)) => cluster,
            };
            serving = self.reconcile(serving, &now, &cluster).await?;
            let is_zoned = !now.topology.is_empty();
            self.is_zoned.send_if_modified(|was| std::mem::replace(was, is_zoned) != is_zoned);
            let mut tasks = self.report(&now, &serving);
            let named = authorities(now.vcenters.iter().map(|one| &one.vcenter));
            tokio::select! {
                ended = tasks.ended_early() => return Err(ended.into()),
                ended = ended_early(&mut serving) => return Err(ended.into()),
                () = shutdown.requested() => {}
                why = reload::replaced(&mut self.config, |next| *next == *now, named) => {
                    debug!(why, "comparing the vCenters of the configuration");
                }
            }
            tasks.stop(GRACE).await?;
        }
        self.publish.send_replace(Sites::default());
        self.topology.send_replace(topology::World::default());
        stop(serving).await?;
        Ok(())
    }

    /// The name of the cluster; nothing if the configuration changed before it was known.
    async fn cluster_id(&mut self, config: &CsiConfig) -> Option<String> {
        loop {
            let error = match cluster_id::find(&self.client, &self.namespace, config).await {
                Ok(cluster) => {
                    self.check.pass(cluster.to_string());
                    return Some(cluster.to_string());
                }
                Err(error) => error,
            };
            warn!(%error, "cluster id not known; no configuration is taken until it is");
            self.check.fail(error.to_string());
            let changed = async {
                while self.config.state().value.as_deref().is_none_or(|value| value == config) {
                    self.config.changed().await;
                }
            };
            let pause = if error.is_lasting() { RETRY_LASTING } else { RETRY };
            tokio::select! {
                () = changed => return None,
                () = sleep(pause) => {}
            }
        }
    }

    /// Ends what is not configured any more, keeps what stays, and follows what is new.
    async fn reconcile(
        &self,
        serving: Vec<Serving>,
        config: &CsiConfig,
        cluster: &str,
    ) -> Result<Vec<Serving>, Ended> {
        let wanted = Terms::of(config, cluster);
        let is_start = serving.is_empty();
        let is_wanted = |one: &Serving| wanted.iter().any(|next| one.terms.serve(next));
        let (mut kept, ended): (Vec<_>, Vec<_>) = serving.into_iter().partition(is_wanted);
        let is_changed = !ended.is_empty() || wanted.len() != kept.len();
        if !ended.is_empty() {
            // Those that stay are used while the others log out, whose volumes and nodes are not taken for absent.
            let changing: Vec<_> =
                ended.iter().map(|one| one.terms.vcenter.server.clone()).collect();
            let world = topology_world(config, &kept).while_changing(changing.clone());
            self.topology.send_replace(world);
            self.publish.send_replace(sites(&kept).while_changing(changing));
        }
        // Before the new ones begin: a vCenter has one session at a time.
        stop(ended).await?;
        for next in wanted {
            let known = kept.iter_mut().find(|one| one.terms.serve(&next));
            let Some(known) = known else {
                kept.extend(self.follow(next));
                continue;
            };
            if let CredentialSource::Inline(login) = &next.vcenter.credentials {
                known.site.replace_login(login);
            }
            if known.terms.snapshots != next.snapshots {
                known.site.replace_snapshot_limits(&next.snapshots);
                info!(vcenter = next.vcenter.name, "limits of snapshots replaced");
            }
            (known.terms.vcenter, known.terms.snapshots) = (next.vcenter, next.snapshots);
        }
        if is_changed {
            self.publish.send_replace(sites(&kept));
        }
        self.topology.send_replace(topology_world(config, &kept));
        if is_changed && !is_start {
            info!(vcenters = kept.len(), "configuration reloaded");
        }
        Ok(kept)
    }

    fn follow(&self, terms: Terms) -> Option<Serving> {
        let Terms { vcenter, cluster, distribution, snapshots, auth_check, tags, .. } = &terms;
        info!(cluster, vcenter = vcenter.name, "serving volumes");
        let storage = Some(StorageInterest { auth_check: *auth_check });
        let (categories, tags_every) = (tags.0.clone(), Some(tags.1));
        let interests = Interests { categories, tags_every, storage };
        let vcenters = std::slice::from_ref(vcenter);
        vcenter::describe(vcenters);
        let (metrics, sessions, mut tasks) =
            (&self.metrics.vsphere, &self.sessions, Tasks::default());
        let views =
            vcenter::follow(&self.client, vcenters, &interests, metrics, sessions, &mut tasks);
        let view = views.into_iter().next()?;
        let site = Site::new(view, &vcenter.server, cluster, distribution.as_deref());
        site.replace_snapshot_limits(snapshots);
        Some(Serving { site: Arc::new(site), tasks, terms })
    }

    /// What concerns all vCenters together.
    fn report(&self, config: &CsiConfig, serving: &[Serving]) -> Tasks {
        let mut tasks = Tasks::default();
        if !serving.is_empty() {
            let views = serving.iter().map(|one| one.site.view());
            vcenter::report_health(views, &self.checks, &self.metrics.vcenters, &mut tasks);
        }
        let (journal, every) = (self.journal.clone(), config.intervals.operation_cleanup);
        tasks.spawn("journal", |shutdown| journal::keep_clean(journal, every, shutdown));
        tasks
    }
}

fn sites(serving: &[Serving]) -> Sites {
    Sites::new(serving.iter().map(|one| Arc::clone(&one.site)))
}

fn topology_world(config: &CsiConfig, serving: &[Serving]) -> topology::World {
    topology::World::new(config, serving.iter().map(|one| Arc::clone(&one.site)))
}

async fn stop(serving: Vec<Serving>) -> Result<(), Ended> {
    let stopped = join_all(serving.into_iter().map(|one| one.tasks.stop(GRACE))).await;
    stopped.into_iter().collect()
}

/// The first task of a vCenter that ends although its end was not requested.
async fn ended_early(serving: &mut [Serving]) -> Ended {
    if serving.is_empty() {
        return std::future::pending().await;
    }
    let ended = serving.iter_mut().map(|one| Box::pin(one.tasks.ended_early()));
    select_all(ended).await.0
}
