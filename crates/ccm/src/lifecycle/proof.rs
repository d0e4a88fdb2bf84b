//! What proves that a VM does not exist any more, and everything that does not.

use std::{collections::HashSet, fmt};

use jiff::Timestamp;
use vsphere::{history, inventory::Uuid};

use crate::{
    discovery::Absence,
    identity::Identity,
    lifecycle::{KEEP, Settings, Subject},
};

/// What vCenter said when it was asked for the VM that a Node recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Whether the object exists.
    pub reference: Reference,
    /// How it was removed.
    pub removal: Removal,
    /// Whether the user sees the folder that it was in.
    pub folder_seen: bool,
}

/// Whether a recorded VM exists, by its reference, in the vCenter with the recorded instance id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reference {
    /// Nobody asked, or there was no answer.
    #[default]
    NotAsked,
    /// It does, found or not: inaccessible VMs have no UUID.
    Exists,
    /// vCenter says that there is no such object.
    Gone,
}

/// How a VM was removed, by the records of vCenter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Removal {
    /// Nobody asked, or there is no answer yet.
    #[default]
    NotAsked,
    /// They do not tell.
    Untold,
    /// With its disks.
    Destroyed,
    /// From the inventory only: it may come back.
    Unregistered,
}

impl From<history::Removal> for Removal {
    fn from(removal: history::Removal) -> Self {
        match removal {
            history::Removal::Destroyed => Self::Destroyed,
            history::Removal::Unregistered => Self::Unregistered,
        }
    }
}

/// That a VM is gone, with what shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// The id of its BIOS.
    pub uuid: Uuid,
    /// Which VM it was.
    pub identity: Identity,
    /// The vCenters that all answered that they do not have it.
    pub vcenters: Vec<String>,
}

/// Why a Node stays although no VM was found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Deletion is off.
    #[error("nodes are not deleted: SKIP_NODE_DELETION is set")]
    Disabled,
    /// This Node is not to be deleted.
    #[error("the Node is not deleted: it has the annotation {KEEP}")]
    KeptByAnnotation,
    /// The Node has no id, or one that is not ours or not well formed.
    #[error("the Node has no provider id of a VM, so it cannot be shown that its VM is gone")]
    NoProviderId,
    /// It is not known which VM the Node was.
    #[error(
        "the Node's VM was never seen by this controller, so it cannot be shown that it is gone; delete the \
         Node by hand if it is"
    )]
    NotRecorded,
    /// The answers are too old.
    #[error("the vCenters have not been asked lately")]
    NotAsked,
    /// The object is still there.
    #[error(
        "the VM {0} was not found, but vCenter still has it: it may be inaccessible or orphaned, or the user may \
         not see it any more"
    )]
    StillThere(String),
    /// It may come back.
    #[error(
        "the VM {0} was unregistered, not destroyed; register it again, or delete the Node by hand if it is \
         not to come back"
    )]
    Unregistered(String),
    /// It will be known soon.
    #[error("vCenter is being asked how the VM was removed")]
    RemovalNotAsked,
    /// Nobody knows what happened.
    #[error(
        "vCenter has no record that the user may see of how the VM {0} was removed, so it may only be \
         unregistered; delete the Node by hand if it is gone"
    )]
    RemovalUntold(String),
    /// The user may simply not see it.
    #[error(
        "the user of vCenter sees no other VM of this cluster and not the folder {0}, so a missing privilege \
         may be the reason; give it System.Read there"
    )]
    NoSight(String),
    /// It has not been gone for long or often enough.
    #[error("the VM is gone; the Node is deleted when that has been so for longer")]
    TooEarly,
    /// Too many Nodes at once.
    #[error(
        "the VMs of {would} Nodes are gone and no more than {most} are deleted at once; if that is right, \
         delete the Nodes by hand"
    )]
    TooMany {
        /// How many would go.
        would: usize,
        /// How many may.
        most: usize,
    },
}

/// Whether it is certain that the VM of a Node is gone, at this moment.
pub(super) fn prove(
    subject: &Subject<'_>,
    absence: &Absence,
    seen: &HashSet<&str>,
    settings: &Settings,
    now: Timestamp,
) -> Result<Proof, Refusal> {
    let annotations = subject.node.metadata.annotations.as_ref();
    if settings.skip_deletion {
        return Err(Refusal::Disabled);
    }
    if annotations.is_some_and(|all| all.get(KEEP).is_some_and(|value| value != "false")) {
        return Err(Refusal::KeptByAnnotation);
    }
    let uuid = absence.uuid.ok_or(Refusal::NoProviderId)?;
    let identity = absence.identity.clone().ok_or(Refusal::NotRecorded)?;
    if now.duration_since(absence.asked_at) > settings.freshness {
        return Err(Refusal::NotAsked);
    }
    let Evidence { reference, removal, folder_seen } = subject.evidence;
    match reference {
        Reference::NotAsked => return Err(Refusal::NotAsked),
        Reference::Exists => return Err(Refusal::StillThere(identity.vm)),
        Reference::Gone => {}
    }
    if !folder_seen && !seen.contains(identity.vcenter.as_str()) {
        return Err(Refusal::NoSight(identity.folder.unwrap_or_default()));
    }
    match removal {
        Removal::NotAsked => Err(Refusal::RemovalNotAsked),
        Removal::Untold => Err(Refusal::RemovalUntold(identity.vm)),
        Removal::Unregistered => Err(Refusal::Unregistered(identity.vm)),
        Removal::Destroyed => Ok(Proof { uuid, identity, vcenters: absence.vcenters.clone() }),
    }
}

impl Refusal {
    /// The stable word for events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Disabled => "DeletionDisabled",
            Self::KeptByAnnotation => "KeptByAnnotation",
            Self::NoProviderId => "NoProviderId",
            Self::NotRecorded => "VmNotRecorded",
            Self::NotAsked => "NotAsked",
            Self::StillThere(_) => "VmStillThere",
            Self::Unregistered(_) => "VmUnregistered",
            Self::RemovalNotAsked => "RemovalNotAsked",
            Self::RemovalUntold(_) => "RemovalUntold",
            Self::NoSight(_) => "NoSight",
            Self::TooEarly => "TooEarly",
            Self::TooMany { .. } => "TooManyDeletions",
        }
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { uuid, identity, vcenters } = self;
        let (vm, vcenters) = (&identity.vm, vcenters.join(", "));
        write!(f, "the VM {vm} with the BIOS UUID {uuid} was destroyed and is not in {vcenters}")
    }
}
