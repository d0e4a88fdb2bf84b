//! One vCenter of the volumes: what is known of it, and how the cluster is named there.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use cloud_config::{Inline, SnapshotLimits};
use vcenter::{Health, Snapshot, View};
use vsphere::{
    connection::Connection,
    inventory::{ConnectionState, PowerState, Uuid, Vm},
    reference::Ref,
    types::{self, CnsContainerCluster, CnsVolumeMetadata},
};

use super::{
    nodes::KnownNodes,
    placement::{Inventory, MissingNode, NodeHost, PREFERRED_DATASTORES, Store},
    policies::Policies,
    queue::Queues,
    search::Search,
};
use crate::refusal::{Kind, Refusal};

/// One vCenter under one configuration.
#[derive(Debug)]
pub struct Site {
    view: View,
    /// As the configuration has it.
    pub(super) server: String,
    /// The name under which vCenter keeps the cluster's volumes.
    pub(super) cluster: String,
    distribution: Option<String>,
    snapshots: Mutex<SnapshotLimits>,
    pub(super) policies: Policies,
    pub(super) queues: Arc<Queues>,
    pub(super) search: Search,
}

impl Site {
    /// The vCenter behind a view.
    pub fn new(view: View, server: &str, cluster: &str, distribution: Option<&str>) -> Self {
        Self {
            view,
            server: server.to_owned(),
            cluster: cluster.to_owned(),
            distribution: distribution.map(str::to_owned),
            snapshots: Mutex::new(SnapshotLimits { per_volume: 3, vsan: None, vvol: None }),
            policies: Policies::default(),
            queues: Arc::default(),
            search: Search::default(),
        }
    }

    /// Replaces the limits by those of a configuration.
    pub(crate) fn replace_snapshot_limits(&self, limits: &SnapshotLimits) {
        // Nothing can panic while it is held.
        *self.snapshots.lock().unwrap_or_else(PoisonError::into_inner) = limits.clone();
    }

    /// How many snapshots a volume on the datastore with this URL may have. URLs of vSAN and of virtual volumes name
    /// them, which is how the Go driver recognises them.
    pub(super) fn snapshot_limit(&self, url: &str) -> u32 {
        let limits = self.snapshots.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let SnapshotLimits { per_volume, vsan, vvol } = limits;
        let of_kind = |kind: &str, limit: Option<u32>| limit.filter(|_| url.contains(kind));
        of_kind("vsan", vsan).or(of_kind("vvol", vvol)).unwrap_or(per_volume)
    }

    /// Whether a record is about this vCenter; old ones name none.
    pub(super) fn is_named(&self, vcenter: &str) -> bool {
        vcenter.is_empty() || vcenter.eq_ignore_ascii_case(&self.server)
    }

    /// Replaces the credentials, if the configuration has them.
    pub(crate) fn replace_login(&self, login: &Inline) {
        self.view.replace_inline(login);
    }

    /// What is followed.
    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        self.view.snapshot()
    }

    /// The connection; vCenter need not answer.
    pub(super) fn connection(&self) -> Result<Connection, Refusal> {
        let snapshot = self.snapshot();
        snapshot.connection.clone().ok_or_else(|| unavailable(&snapshot))
    }

    /// The inventory, if it is current: placing a volume by an old one would be a guess.
    pub(super) fn current(&self) -> Result<Arc<Snapshot>, Refusal> {
        let snapshot = self.snapshot();
        match snapshot.health() {
            Health::Current { .. } | Health::Partial(_) => Ok(snapshot),
            Health::Unavailable(_) => Err(unavailable(&snapshot)),
        }
    }

    /// The VM of a node; nothing if vCenter shows none.
    ///
    /// # Errors
    /// When several have the node's UUID, or the inventory is not current.
    pub(super) fn vm(&self, node: &str, uuid: Uuid) -> Result<Option<Arc<Vm>>, Refusal> {
        let snapshot = self.current()?;
        let found = snapshot.vm_by_uuid(&uuid);
        // A copy that a backup tool restored is off: the node is the one that runs.
        let running: Vec<_> =
            found.iter().copied().filter(|vm| vm.power != PowerState::Off).collect();
        match (found.as_slice(), running.as_slice()) {
            ([], _) => Ok(None),
            ([vm], _) | (_, [vm]) => Ok(Some(Arc::clone(vm))),
            (several, _) => {
                let names: Vec<_> = several.iter().map(|vm| vm.name.as_str()).collect();
                let what = format!(
                    "node {node}: the VMs {} of {} have the same BIOS UUID {uuid}",
                    names.join(" and "),
                    self.server
                );
                let remedy = "give the clone a UUID of its own (uuid.bios) or delete it";
                Err(Refusal::new(Kind::Precondition, what).remedy(remedy))
            }
        }
    }

    /// Whether a VM with this UUID is in the inventory, which need not be current.
    pub(super) fn shows(&self, uuid: Uuid) -> bool {
        !self.snapshot().vm_by_uuid(&uuid).is_empty()
    }

    /// Whether absence means something: the inventory has everything that the configuration names, and every VM in it
    /// shows which one it is.
    pub(super) fn is_complete(&self) -> bool {
        let snapshot = self.snapshot();
        matches!(snapshot.health(), Health::Current { .. }) && snapshot.are_all_identified()
    }

    /// The VMs that are called so in vCenter, or whose guests are: old versions of the Go driver named nodes by it.
    pub(super) fn vms_called(&self, name: &str) -> Vec<Arc<Vm>> {
        let snapshot = self.snapshot();
        let vms = snapshot.vms().filter(|vm| {
            !vm.template && (vm.name == name || vm.host_name.as_deref() == Some(name))
        });
        vms.cloned().collect()
    }

    /// What new volumes are placed by.
    ///
    /// # Errors
    /// When it is not current, or it is not known where the user may create files.
    pub(super) fn places(&self, nodes: &KnownNodes) -> Result<Inventory, Refusal> {
        let snapshot = self.current()?;
        if let Some(why) = snapshot.privileges_unknown() {
            let what = format!("vCenter {} cannot be used for new volumes: {why}", snapshot.name);
            return Err(Refusal::new(Kind::Unavailable, what));
        }
        self.inventory(nodes)
    }

    /// The datastores, and the hosts that run nodes.
    ///
    /// # Errors
    /// When it is not current.
    pub(super) fn inventory(&self, nodes: &KnownNodes) -> Result<Inventory, Refusal> {
        let snapshot = self.current()?;
        let tags = snapshot.tags.map.as_deref();
        let stores = snapshot.datastores().map(|datastore| {
            let cluster = snapshot.datastore_cluster(datastore);
            let reference = &datastore.reference;
            let preferred = tags.map_or(&[][..], |tags| tags.on(reference, PREFERRED_DATASTORES));
            Arc::new(Store {
                is_permitted: snapshot.may_create_on(reference).unwrap_or_default(),
                preferred_in: preferred.to_vec(),
                ..Store::new(datastore, snapshot.datastore_path(datastore), cluster)
            })
        });
        let incomplete = match snapshot.health() {
            Health::Partial(outage) => Some(outage.why),
            Health::Current { .. } | Health::Unavailable(_) => None,
        };
        let (hosts, missing) = node_places(&snapshot, nodes);
        let vcenter = self.server.clone();
        Ok(Inventory { vcenter, stores: stores.collect(), hosts, missing, incomplete })
    }

    /// What CNS records of the cluster that a volume belongs to.
    pub(super) async fn metadata(
        &self,
        connection: &Connection,
    ) -> Result<CnsVolumeMetadata, vsphere::error::Error> {
        let cluster = CnsContainerCluster {
            cluster_type: "KUBERNETES".to_owned(),
            cluster_id: self.cluster.clone(),
            vsphere_user: connection.login().await?,
            cluster_flavor: Some("VANILLA".to_owned()),
            cluster_distribution: self.distribution.clone(),
            delete: None,
        };
        Ok(CnsVolumeMetadata {
            container_cluster: cluster.clone(),
            container_cluster_array: vec![cluster],
            ..CnsVolumeMetadata::default()
        })
    }
}

/// Where the cluster's nodes run, and those whose VMs are not shown.
fn node_places(snapshot: &Snapshot, nodes: &KnownNodes) -> (Vec<NodeHost>, Vec<MissingNode>) {
    let (mut hosts, mut missing) = (BTreeMap::<_, BTreeSet<_>>::new(), Vec::new());
    for (name, uuid) in nodes.iter() {
        let segment = nodes.segment(name);
        let vms = snapshot.vm_by_uuid(&uuid);
        if vms.is_empty() {
            missing.push(MissingNode { name: name.to_owned(), segment: segment.cloned() });
        }
        for host in vms.iter().filter_map(|vm| vm.host.clone()) {
            hosts.entry(host).or_default().extend(segment.cloned());
        }
    }
    let place = |(reference, segments): (Ref<types::HostSystem>, _)| {
        let host = snapshot.host(&reference);
        // Datastores name also hosts that the user does not see.
        let name = host.map_or(reference.value(), |host| &host.name).to_owned();
        let is_serving = host
            .is_none_or(|host| host.connection == ConnectionState::Connected && !host.maintenance);
        NodeHost { host: reference, name, segments, is_serving }
    };
    (hosts.into_iter().map(place).collect(), missing)
}

fn unavailable(snapshot: &Snapshot) -> Refusal {
    let why = match snapshot.health() {
        Health::Unavailable(outage) | Health::Partial(outage) => outage.why,
        Health::Current { .. } => "it is not connected yet".to_owned(),
    };
    Refusal::new(Kind::Unavailable, format!("vCenter {} cannot be used: {why}", snapshot.name))
}
