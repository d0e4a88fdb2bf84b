//! Asks a vCenter for the VM that a Node recorded, when none was found.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use tokio::time::timeout;
use vsphere::{connection::Connection, reference::Ref, types};

use crate::{
    discovery::Finding,
    identity::Identity,
    lifecycle::{Evidence, Reference, Removal, is_ready},
    site::Snapshot,
};

const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// What the vCenter of the recorded VM says of it. Without an answer there is no evidence, and for a Node that is
/// ready nobody asks: it stays in any case.
pub(super) async fn gather(
    snapshots: &[Arc<Snapshot>],
    node: &Node,
    finding: &Finding<'_>,
) -> Evidence {
    if is_ready(node) {
        return Evidence::default();
    }
    let Finding::Absent(absence) = finding else { return Evidence::default() };
    let Some(identity) = &absence.identity else { return Evidence::default() };
    let its = |snapshot: &&Arc<Snapshot>| {
        let instance = snapshot.instance.as_deref();
        instance.is_some_and(|instance| instance.eq_ignore_ascii_case(&identity.vcenter))
    };
    let Some(snapshot) = snapshots.iter().find(its) else { return Evidence::default() };
    let Some(connection) = &snapshot.connection else { return Evidence::default() };
    let folder = identity.folder.as_deref().map(Ref::<types::Folder>::new);
    let mirror = snapshot.mirror.as_deref();
    let folder_seen = folder.zip(mirror).is_some_and(|(at, mirror)| mirror.get(&at).is_some());
    let asked = timeout(ANSWER_WITHIN, exists(connection, identity)).await;
    // The tasks of vCenter, which tell how it was removed, are not read yet.
    Evidence { reference: asked.unwrap_or_default(), removal: Removal::Untold, folder_seen }
}

/// Reading leaves out what is hidden as well as what is gone; a question for privileges tells them apart.
async fn exists(connection: &Connection, identity: &Identity) -> Reference {
    let vm = Ref::<types::VirtualMachine>::new(&identity.vm);
    match connection.authorization().lacking(&[vm], &["System.Read"]).await {
        Ok(_) => Reference::Exists,
        Err(error) if error.fault().is_some_and(|fault| fault.is_a("ManagedObjectNotFound")) => {
            Reference::Gone
        }
        Err(_) => Reference::NotAsked,
    }
}
