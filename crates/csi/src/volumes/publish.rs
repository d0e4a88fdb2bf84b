//! Attaching volumes to the VMs of nodes, and detaching them.
//!
//! CNS answers alike for several situations, so what a VM has is read from its devices whenever an answer is not a
//! plain success.

mod by_name;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures::future::join_all;
use tokio_util::sync::CancellationToken;
use vsphere::{
    connection::Connection,
    error::{Cause, Error, Missing, Remedy},
    inventory::{ConnectionState, Device, PowerState, Uuid, Vm},
    reference::Ref,
    types::VirtualMachine,
};

use super::{
    Inner, Published,
    change::{Left, may_be_unknown, restore},
    queue::Change,
    refused::{may_follow, refused},
    site::Site,
    sites::Sites,
    unsettled::VmAt,
};
use crate::refusal::{Kind, Refusal};

/// Older virtual hardware cannot have first class disks.
const OLDEST_HARDWARE: u32 = 13;
/// SCSI controllers that a VM may have, and disks on one: vCenter adds controllers by itself.
const CONTROLLERS: usize = 4;
const DISKS_ON_A_CONTROLLER: usize = 15;

/// What a node is called, and the VM that it is.
struct NodeVm {
    name: String,
    vm: std::sync::Arc<Vm>,
}

impl NodeVm {
    fn reference(&self) -> &Ref<VirtualMachine> {
        &self.vm.reference
    }

    fn describe(&self) -> String {
        format!("VM {} (node {})", self.vm.name, self.name)
    }
}

/// One change of the disks of a node's VM.
struct Attempt<'a> {
    inner: &'a Inner,
    site: &'a Site,
    connection: &'a Connection,
    volume: &'a str,
    /// The node's id, as the caller has it.
    id: &'a str,
    node: NodeVm,
    /// Cancelled when its caller gives up.
    caller: &'a CancellationToken,
}

pub(super) async fn publish(
    inner: &Inner,
    volume: &str,
    node: &str,
    caller: &CancellationToken,
) -> Result<Published, Refusal> {
    let sites = inner.sites()?;
    let uuid = uuid(inner, node)?;
    let Some((site, vm)) = sites.vm(node, uuid)? else {
        return Err(no_vm(&sites, node, uuid));
    };
    let (id, node) = (node, NodeVm { name: name(inner, node), vm });
    if sites.single().is_none() {
        check_vcenter(inner, &site, volume, &node).await?;
    }
    let connection = site.connection()?;
    let attempt = Attempt { inner, site: &site, connection: &connection, volume, id, node, caller };
    let published = attempt.attach().await;
    published.map_err(|refusal| sites.attribute(&site, refusal))
}

/// Refuses a volume of another vCenter than the node's.
async fn check_vcenter(
    inner: &Inner,
    site: &Site,
    volume: &str,
    node: &NodeVm,
) -> Result<(), Refusal> {
    let what = || format!("volume {volume} was not attached to {}", node.describe());
    let Some(home) = inner.site_of(volume).await? else {
        let what = format!("{}: no vCenter has the volume", what());
        return Err(Refusal::new(Kind::NotFound, what));
    };
    if home.server == site.server {
        return Ok(());
    }
    // Its record may be older than its move to another vCenter.
    let moved = inner.moved_from(&home, volume).await.map_err(|mut refusal| {
        refusal.kind = Kind::Unavailable;
        refusal
    })?;
    let home = moved.unwrap_or(home);
    if home.server == site.server {
        return Ok(());
    }
    let what = format!(
        "{}: the volume is in vCenter {}, and the VM in {}",
        what(),
        home.server,
        site.server
    );
    let remedy = "run the pod on a node of the volume's vCenter, by a nodeSelector or an affinity";
    Err(Refusal::new(Kind::Precondition, what).remedy(remedy))
}

impl Attempt<'_> {
    fn vm(&self) -> VmAt<'_> {
        VmAt { server: &self.site.server, vm: self.node.reference(), node: self.id }
    }

    async fn attach(&self) -> Result<Published, Refusal> {
        self.inner.unsettled.check(self.vm(), self.volume, Change::Attach)?;
        match self.change(Change::Attach).await? {
            Ok(disk) => Ok(Published { disk: plain(&disk) }),
            Err(error) => self.after_attach(error).await,
        }
    }

    async fn detach(&self) -> Result<(), Refusal> {
        if let Err(error) = self.change(Change::Detach).await? {
            self.after_detach(error).await?;
        }
        self.inner.unsettled.check(self.vm(), self.volume, Change::Detach)
    }

    /// Carries out a change, and notes one that may still be carried out after it failed.
    ///
    /// # Errors
    /// When the caller gave up before the change was sent: then it never is.
    async fn change(&self, change: Change) -> Result<Result<String, Error>, Refusal> {
        let vm = self.node.reference();
        let tasks = &self.inner.running;
        let queues = &self.site.queues;
        let changed =
            queues.change(self.connection, tasks, vm, change, self.volume, self.caller).await;
        let Some(changed) = changed else {
            let what = format!(
                "volume {} waited for its turn at {} when its caller gave up",
                self.volume,
                self.node.describe()
            );
            return Err(Refusal::new(Kind::Busy, what));
        };
        if changed.as_ref().is_err_and(may_follow) {
            self.inner.unsettled.note(self.vm(), self.volume, change);
        }
        Ok(changed)
    }

    /// What became of a volume whose attachment did not succeed plainly.
    async fn after_attach(&self, error: Error) -> Result<Published, Refusal> {
        let Self { inner, site, connection, volume, node, .. } = self;
        let what = format!("volume {volume} was not attached to {}", node.describe());
        // The devices of a VM decide; if they cannot be read, the first error is the better one.
        let Ok(Some(devices)) = connection.inventory().devices(node.reference()).await else {
            return Err(refused(what, error));
        };
        if let Some(disk) = disk_of(&devices, volume) {
            let uuid = disk.backing.uuid.as_deref().unwrap_or_default();
            if !uuid.is_empty() {
                return Ok(Published { disk: plain(uuid) });
            }
        }
        match error.remedy {
            Remedy::InUse => {
                let holder = holder(inner, site, volume).await;
                let (by, remedy) = match holder {
                Some(name) => (
                    format!("it is attached to {name}"),
                    "it is detached when no pod uses it there; kubectl get volumeattachments lists attachments",
                ),
                None => (
                    "a VM that is not a node of this cluster has it, or had it when it was deleted"
                        .to_owned(),
                    "detach it there: Cluster, Monitor, Container Volumes in the vSphere Client shows the VM",
                ),
            };
                let refusal = Refusal::new(Kind::Precondition, format!("{what}: {by}"));
                Err(refusal.because(error).remedy(remedy))
            }
            // CNS has a fault for it only from 8.0 on.
            Remedy::NoSpace | Remedy::Refused
                if lacks_slot(&error) || free_slots(&devices) == 0 =>
            {
                Err(no_slot(&what, error, &devices))
            }
            // Not a matter of the VM: the scheduler must not take it for full.
            Remedy::NoSpace => Err(Refusal::new(Kind::Unavailable, what)
                .because(error)
                .remedy("free space on the datastore of the volume or of the VM")),
            Remedy::Refused | Remedy::Invalid { .. } if is_too_old(&node.vm) => {
                let version = node.vm.hardware_version.as_deref().unwrap_or_default();
                let remedy = format!(
                    "upgrade its virtual hardware from {version} to vmx-15 or later (the VM must be powered off)"
                );
                Err(Refusal::new(Kind::Precondition, what).because(error).remedy(remedy))
            }
            _ if may_be_unknown(&error) => {
                let is_unknown = matches!(error.remedy, Remedy::NotFound { .. });
                match restore(site, connection, volume, is_unknown).await? {
                    Left::Nothing => Err(absent(what, error)),
                    Left::Known => Err(refused(what, error)),
                    Left::Restored => {
                        let again = self.change(Change::Attach).await?;
                        let disk = again.map_err(|error| refused(what, error))?;
                        Ok(Published { disk: plain(&disk) })
                    }
                }
            }
            _ => Err(refused(what, error)),
        }
    }

    /// Whether a volume is detached although vCenter did not say so plainly.
    async fn after_detach(&self, error: Error) -> Result<(), Refusal> {
        let Self { site, connection, volume, node, .. } = self;
        let what = format!("volume {volume} was not detached from {}", node.describe());
        match connection.inventory().devices(node.reference()).await {
            // The VM is gone, and its devices with it. Otherwise they cannot be read, which shows nothing.
            Ok(None) if is_gone(&error, node.reference()) => Ok(()),
            Ok(Some(devices)) if disk_of(&devices, volume).is_none() => Ok(()),
            Ok(Some(_)) if is_unknown(&error) || may_be_unknown(&error) => {
                let is_unknown = is_unknown(&error);
                let again = match restore(site, connection, volume, is_unknown).await {
                    Ok(Left::Restored) => self.change(Change::Detach).await?,
                    Ok(Left::Known) => return Err(known_and_refused(what, error)),
                    Ok(Left::Nothing) | Err(_) => Err(error),
                };
                let Err(error) = again else { return Ok(()) };
                let remedy =
                    "CNS has lost the volume; detach the disk from the VM in the vSphere Client";
                Err(Refusal::new(Kind::Precondition, what).because(error).remedy(remedy))
            }
            _ => Err(refused(what, error)),
        }
    }
}

/// The refusal of a detach although the VM has the disk and CNS shows the volume. Queries may show for a while what CNS
/// has lost, and then the next attempt registers it again.
fn known_and_refused(what: String, error: Error) -> Refusal {
    if error.remedy != Remedy::Refused {
        return refused(what, error);
    }
    let remedy = "it is tried again, because what CNS shows may be out of date; if that does not help, vCenter's logs of \
                  vsan-health and vpxd have the reason, under the opId that the driver logged";
    let mut refusal = refused(what, error).remedy(remedy);
    refusal.kind = Kind::Unavailable;
    refusal
}

fn absent(what: String, error: Error) -> Refusal {
    let remedy = "the volume was deleted; the vSphere Client lists volumes under Cluster, Monitor, Container Volumes";
    Refusal::new(Kind::NotFound, what).because(error).remedy(remedy)
}

pub(super) async fn unpublish(
    inner: &Inner,
    volume: &str,
    node: &str,
    caller: &CancellationToken,
) -> Result<(), Refusal> {
    // A VM has disks of its own vCenter only, so that no other one is asked where that is known.
    let mut sites = inner.sites_for(volume).await?;
    let is_shown = match uuid(inner, node) {
        Ok(uuid) => sites.vm(node, uuid)?.is_some(),
        Err(_) => !sites.vms_called(node).is_empty(),
    };
    if !is_shown {
        sites = inner.sites_after_move(sites, volume).await?;
    }
    let (site, vm) = match uuid(inner, node) {
        Ok(uuid) => match sites.vm(node, uuid)? {
            Some(found) => found,
            None if is_absent(&sites, node, uuid).await? => return Ok(()),
            None => {
                let mut refusal = no_vm(&sites, node, uuid);
                refusal.kind = Kind::Unavailable;
                return Err(refusal);
            }
        },
        Err(unknown) => match by_name::vm_called(inner, &sites, volume, node, unknown).await? {
            Some(found) => found,
            None => return Ok(()),
        },
    };
    let (id, node) = (node, NodeVm { name: name(inner, node), vm });
    let connection = site.connection()?;
    let attempt = Attempt { inner, site: &site, connection: &connection, volume, id, node, caller };
    let detached = attempt.detach().await;
    detached.map_err(|refusal| inner.sites.borrow().attribute(&site, refusal))
}

/// Whether none of these vCenters has a VM with this UUID. Their inventories may lag behind, so they are asked.
async fn is_absent(sites: &Sites, node: &str, uuid: Uuid) -> Result<bool, Refusal> {
    for site in sites.all() {
        let connection = site.connection()?;
        let found = connection.inventory().vms_by_uuid(&[uuid], None).await;
        let found =
            found.map_err(|error| sites.attribute(site, refused(format!("node {node}"), error)))?;
        if !found.is_empty() || !site.is_complete() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether CNS does not know a volume that the VM has.
fn is_unknown(error: &Error) -> bool {
    match &error.failure().cause {
        Cause::NotDetached { fault, .. } => fault.find("InvalidDeviceSpec").is_none(),
        _ => matches!(error.remedy, Remedy::NotFound { .. }),
    }
}

/// The volumes that the VMs of a vCenter have, of all nodes: node ids by volume.
pub(super) async fn published(
    inner: &Inner,
    site: &Site,
) -> Result<BTreeMap<String, BTreeSet<String>>, Refusal> {
    let nodes = inner.nodes.current().unwrap_or_default();
    let nodes: Vec<String> = nodes.iter().map(|(_, uuid)| uuid.to_string()).collect();
    let mut published: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (node, volumes) in volumes_in(inner, site, &nodes).await? {
        for volume in volumes {
            published.entry(volume).or_default().insert(node.clone());
        }
    }
    Ok(published)
}

/// The volumes of each node whose devices its vCenter shows. One that does not answer hides its own nodes only.
pub(super) async fn volumes_of(
    inner: &Inner,
    nodes: &[String],
) -> Result<BTreeMap<String, BTreeSet<String>>, Refusal> {
    let sites = inner.sites()?;
    let read = join_all(sites.all().iter().map(|site| volumes_in(inner, site, nodes))).await;
    let (mut volumes, mut failed) = (BTreeMap::new(), Vec::new());
    for (site, read) in sites.all().iter().zip(read) {
        match read {
            Ok(read) => volumes.extend(read),
            Err(refusal) => failed.push(sites.attribute(site, refusal)),
        }
    }
    let is_answered = failed.len() < sites.all().len();
    match failed.pop() {
        Some(refusal) if !is_answered => Err(refusal),
        _ => Ok(volumes),
    }
}

/// The volumes of those nodes whose VMs are in one vCenter.
async fn volumes_in(
    inner: &Inner,
    site: &Site,
    nodes: &[String],
) -> Result<BTreeMap<String, BTreeSet<String>>, Refusal> {
    let connection = site.connection()?;
    // Without it no node would have a VM, and every volume would read as detached.
    site.current()?;
    let mut ids: HashMap<Ref<VirtualMachine>, String> = HashMap::new();
    for node in nodes {
        // A node whose VM is in doubt hinders no other.
        if let Ok(uuid) = uuid(inner, node)
            && let Ok(Some(vm)) = site.vm(node, uuid)
        {
            ids.insert(vm.reference.clone(), node.clone());
        }
    }
    let vms: Vec<_> = ids.keys().cloned().collect();
    let devices = connection.inventory().devices_of(&vms).await;
    let devices =
        devices.map_err(|error| refused("the disks of the nodes could not be read", error))?;
    // A VM without any device was not read: it would at least have controllers.
    let read = devices.into_iter().filter(|(_, devices)| !devices.is_empty());
    let volumes = read.filter_map(|(vm, devices)| {
        let volumes = devices.into_iter().filter_map(|device| device.disk_id).collect();
        Some((ids.remove(&vm)?, volumes))
    });
    Ok(volumes.collect())
}

/// Whether vCenter says that the VM does not exist.
fn is_gone(error: &Error, vm: &Ref<VirtualMachine>) -> bool {
    match &error.remedy {
        Remedy::NotFound { what: Missing::Object(object) } => object.value() == vm.value(),
        _ => false,
    }
}

/// How many volumes fit on a node.
pub(super) async fn slots(inner: &Inner, node: &str) -> Result<u32, Refusal> {
    let sites = inner.sites()?;
    let uuid = uuid(inner, node)?;
    let (site, vm) = sites.vm(node, uuid)?.ok_or_else(|| no_vm(&sites, node, uuid))?;
    let connection = site.connection()?;
    let devices = connection.inventory().devices(&vm.reference).await;
    let what = format!("the devices of VM {} (node {node}) could not be read", vm.name);
    match devices.map_err(|error| refused(what.clone(), error))? {
        Some(devices) if !devices.is_empty() => {
            let volumes = devices.iter().filter(|device| device.disk_id.is_some()).count();
            Ok(u32::try_from(free_slots(&devices) + volumes).unwrap_or(u32::MAX))
        }
        _ => Err(Refusal::new(Kind::Unavailable, what)),
    }
}

/// Whether vCenter shows that nothing runs on a node: its VM is off, or gone.
pub(super) fn is_off(inner: &Inner, node: &str) -> bool {
    let found = inner.sites().and_then(|sites| {
        let vm = sites.vm(node, uuid(inner, node)?)?;
        Ok((sites.is_complete(), vm))
    });
    match found {
        Ok((_, Some((_, vm)))) => {
            vm.power == PowerState::Off && vm.connection == ConnectionState::Connected
        }
        Ok((complete, None)) => complete,
        Err(_) => false,
    }
}

/// The node of this cluster whose VM has a volume.
pub(super) async fn holder(inner: &Inner, site: &Site, volume: &str) -> Option<String> {
    let connection = site.connection().ok()?;
    let nodes = inner.nodes.current()?;
    let mut vms = HashMap::new();
    for (name, uuid) in nodes.iter() {
        if let Ok(Some(vm)) = site.vm(name, uuid) {
            vms.insert(vm.reference.clone(), NodeVm { name: name.to_owned(), vm });
        }
    }
    let references: Vec<_> = vms.keys().cloned().collect();
    let devices = connection.inventory().devices_of(&references).await.ok()?;
    let (vm, _) = devices.iter().find(|(_, devices)| disk_of(devices, volume).is_some())?;
    vms.get(vm).map(NodeVm::describe)
}

fn uuid(inner: &Inner, node: &str) -> Result<Uuid, Refusal> {
    let known = inner.nodes.current().and_then(|nodes| nodes.uuid(node));
    known.or_else(|| node.parse().ok()).ok_or_else(|| {
        let what = format!("node {node} is not known: no CSINode of this name has the driver");
        Refusal::new(Kind::NotFound, what)
            .remedy("kubectl get csinodes lists the nodes that have it")
    })
}

fn name(inner: &Inner, node: &str) -> String {
    let nodes = inner.nodes.current();
    let named = nodes.as_ref().and_then(|nodes| nodes.name(node.parse().ok()?));
    named.unwrap_or(node).to_owned()
}

fn no_vm(sites: &Sites, node: &str, uuid: Uuid) -> Refusal {
    let what =
        format!("node {node}: vCenter {} shows no VM with the BIOS UUID {uuid}", sites.names());
    let (kind, remedy) = if sites.is_complete() {
        (
            Kind::NotFound,
            "the VM must be in a datacenter of the configuration, and visible to its user",
        )
    } else {
        (Kind::Unavailable, "a part of the inventory cannot be read at present")
    };
    Refusal::new(kind, what).remedy(remedy)
}

fn disk_of<'a>(devices: &'a [Device], volume: &str) -> Option<&'a Device> {
    devices.iter().find(|device| device.disk_id.as_deref() == Some(volume))
}

/// The UUID of a disk as guests see it: `6000C298 595b-f457…` becomes 32 digits in lower case.
fn plain(uuid: &str) -> String {
    uuid.chars().filter(char::is_ascii_hexdigit).map(|digit| digit.to_ascii_lowercase()).collect()
}

fn is_too_old(vm: &Vm) -> bool {
    let version = vm.hardware_version.as_deref().and_then(|text| text.strip_prefix("vmx-"));
    version
        .and_then(|number| number.parse().ok())
        .is_some_and(|number: u32| number < OLDEST_HARDWARE)
}

fn no_slot(what: &str, error: Error, devices: &[Device]) -> Refusal {
    let volumes = devices.iter().filter(|device| device.disk_id.is_some()).count();
    let what = format!("{what}: it has {volumes} volumes and no free place for another");
    let remedy =
        "move pods with volumes to other nodes; a VM has four SCSI controllers with 15 disks each";
    Refusal::new(Kind::Exhausted, what).because(error).remedy(remedy)
}

/// Whether vCenter says that the VM has no place for a disk.
fn lacks_slot(error: &Error) -> bool {
    let faults = ["CnsMissingControllerFault", "TooManyDevices"];
    error.fault().is_some_and(|fault| faults.iter().any(|name| fault.find(name).is_some()))
}

/// Places for disks on the controllers that a VM has, and on those that vCenter may add.
fn free_slots(devices: &[Device]) -> usize {
    let is_scsi = |device: &&Device| {
        let name = device.type_name.as_str();
        name == "ParaVirtualSCSIController"
            || name.starts_with("VirtualLsiLogic")
            || name == "VirtualBusLogicController"
    };
    let controllers: Vec<&Device> = devices.iter().filter(is_scsi).collect();
    let on_existing: usize = controllers
        .iter()
        .map(|controller| {
            let on_it = |device: &&Device| device.controller_key == Some(controller.key);
            DISKS_ON_A_CONTROLLER.saturating_sub(devices.iter().filter(on_it).count())
        })
        .sum();
    on_existing + CONTROLLERS.saturating_sub(controllers.len()) * DISKS_ON_A_CONTROLLER
}

#[cfg(test)]
mod tests {
    use vsphere::inventory::Device;

    use super::{free_slots, plain};

    fn device(type_name: &str, key: i32, controller: Option<i32>) -> Device {
        let type_name = type_name.to_owned();
        Device { type_name, key, controller_key: controller, ..Device::default() }
    }

    #[test]
    fn free_places_are_those_of_controllers_that_exist_or_can_be_added() {
        assert_eq!(free_slots(&[]), 60);
        let mut devices = vec![
            device("ParaVirtualSCSIController", 1000, None),
            device("VirtualDisk", 2000, Some(1000)),
            device("VirtualVmxnet3", 4000, Some(100)),
        ];
        assert_eq!(free_slots(&devices), 59);
        devices.push(device("VirtualLsiLogicSASController", 1001, None));
        for (number, key) in (0..14).zip(2001..) {
            devices.push(device("VirtualDisk", key, Some(1000)));
            assert_eq!(free_slots(&devices), 58 - number);
        }
    }

    #[test]
    fn a_disk_s_uuid_is_written_as_the_guest_sees_it() {
        assert_eq!(
            plain("6000C298-595b-f457-5739-e9105b2c0c2d"),
            "6000c298595bf4575739e9105b2c0c2d"
        );
    }
}
