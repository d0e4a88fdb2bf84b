//! Nodes that are known by name only: they are gone from Kubernetes, or old versions of the Go driver named them so.
//!
//! Names are not unique, neither those of VMs nor those of guests. One VM is the node only if no other one is called so,
//! and a volume counts as detached only if none of them has it.

use super::{
    super::{
        Inner,
        queue::Change,
        refused::refused,
        sites::{Sites, VmOfSite},
        unsettled::VmAt,
    },
    disk_of,
};
use crate::refusal::{Kind, Refusal};

/// The VM that a volume is to be detached from; nothing if it is not attached to any VM of that name.
///
/// # Errors
/// When the VM cannot be told from others, or not every VM is known. `unknown` is why there is no better way to find it.
pub(super) async fn vm_called(
    inner: &Inner,
    sites: &Sites,
    volume: &str,
    node: &str,
    mut unknown: Refusal,
) -> Result<Option<VmOfSite>, Refusal> {
    unknown.kind = Kind::Unavailable;
    let is_complete = inner.nodes.current().is_some() && sites.is_complete();
    let mut found = sites.vms_called(node);
    if found.len() == 1 && is_complete {
        return Ok(found.pop());
    }
    let mut holders = Vec::new();
    for one in &found {
        if has(inner, volume, node, one).await? {
            holders.push(&one.1.name);
        }
    }
    if holders.is_empty() {
        return if is_complete { Ok(None) } else { Err(unknown) };
    }
    if found.len() == 1 {
        return Ok(found.pop());
    }
    let mut names: Vec<&str> = found.iter().map(|(_, vm)| vm.name.as_str()).collect();
    names.sort_unstable();
    let what = format!(
        "volume {volume} was not detached from node {node}: the VMs {} are called so, and {} has it",
        names.join(" and "),
        holders[0]
    );
    let remedy = "detach it from that VM in the vSphere Client, if that VM is the node";
    Err(Refusal::new(Kind::Precondition, what).remedy(remedy))
}

/// Whether a VM has a volume, or may get it any moment.
async fn has(
    inner: &Inner,
    volume: &str,
    node: &str,
    (site, vm): &VmOfSite,
) -> Result<bool, Refusal> {
    let what = || format!("the devices of VM {} (node {node}) could not be read", vm.name);
    let devices = site.connection()?.inventory().devices(&vm.reference).await;
    let Some(devices) = devices.map_err(|error| refused(what(), error))? else {
        return Err(Refusal::new(Kind::Unavailable, what()));
    };
    if disk_of(&devices, volume).is_some() {
        return Ok(true);
    }
    let vm = VmAt { server: &site.server, vm: &vm.reference, node };
    inner.unsettled.check(vm, volume, Change::Detach)?;
    Ok(false)
}
