//! What proves that a VM does not exist any more, and everything that does not.

use std::{collections::HashSet, fmt};

use jiff::Timestamp;
use kube::ResourceExt;
use vsphere::{history, inventory::Uuid};

use crate::{
    observe::discovery::Absence,
    observe::identity::Identity,
    plan::lifecycle::{KEEP, Settings, Subject},
};

/// What vCenter answered about the VM that is recorded on a Node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Evidence {
    pub(crate) reference: Reference,
    pub(crate) removal: Removal,
    /// Whether the user sees the folder that the VM was in.
    pub(crate) folder_seen: bool,
}

/// Whether a recorded VM exists, by its reference, in the vCenter with the recorded instance id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Reference {
    /// Not requested, or not answered.
    #[default]
    NotAsked,
    /// Although it was not found: inaccessible VMs have no UUID.
    Exists,
    /// vCenter answered that there is no such object.
    Gone,
}

/// How a VM was removed, by the records of vCenter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Removal {
    /// Not requested, or not answered yet.
    #[default]
    NotAsked,
    NoRecord,
    /// The records could not be read, several times.
    Unreadable,
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

/// That a VM is gone, and what shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proof {
    /// Of its BIOS.
    pub(crate) uuid: Uuid,
    pub(crate) identity: Identity,
    /// All of them answered that they do not have it.
    pub(crate) vcenters: Vec<String>,
}

/// Why a Node stays although no VM was found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("nodes are not deleted: SKIP_NODE_DELETION is set")]
    Disabled,
    #[error("the Node is not deleted: it has the annotation {KEEP}")]
    KeptByAnnotation,
    #[error("the Node has no provider id of a VM, so it cannot be shown that its VM is gone")]
    NoProviderId,
    #[error(
        "the Node's VM was never seen by this controller, so it cannot be shown that it is gone; delete the \
         Node by hand if it is"
    )]
    NotRecorded,
    #[error("the vCenters have not answered lately")]
    NotAsked,
    #[error(
        "the VM {0} was not found, but vCenter still has it: it may be inaccessible or orphaned, or the user \
         may not see it any more"
    )]
    StillThere(String),
    #[error(
        "the VM {0} was unregistered, not destroyed; register it again, or delete the Node by hand if it is \
         not to come back"
    )]
    Unregistered(String),
    #[error("vCenter has not answered yet how the VM was removed")]
    RemovalNotAsked,
    #[error(
        "vCenter has no record that the user may see of how the VM {0} was removed, so it may only be \
         unregistered; delete the Node by hand if it is gone"
    )]
    NoRemovalRecord(String),
    #[error(
        "the task history of vCenter cannot be read, so it is not known whether the VM {0} was destroyed or only \
         unregistered; the log of the cloud controller manager has the cause"
    )]
    TaskHistoryUnreadable(String),
    #[error(
        "the user of vCenter sees no other VM of this cluster and not the folder {0}, so a missing privilege \
         may be the reason; give it System.Read there"
    )]
    FolderNotVisible(String),
    #[error("the VM is gone; the Node is deleted when that has been so for longer")]
    TooEarly,
    /// The window is full. The text is the same for as long as that lasts.
    #[error(
        "the VM is gone, but as many Nodes as --node-deletion-limit allows were deleted in the last minutes; \
         the Node is deleted later, or delete it by hand"
    )]
    TooMany,
}

/// Whether it is certain that the VM of a Node is gone, at this moment.
pub(super) fn prove(
    subject: &Subject<'_>,
    absence: &Absence,
    visible: &HashSet<&str>,
    settings: &Settings,
    now: Timestamp,
) -> Result<Proof, Refusal> {
    if settings.skip_deletion {
        return Err(Refusal::Disabled);
    }
    if subject.node.annotations().get(KEEP).is_some_and(|value| value != "false") {
        return Err(Refusal::KeptByAnnotation);
    }
    let uuid = absence.uuid.ok_or(Refusal::NoProviderId)?;
    let identity = absence.identity.clone().ok_or(Refusal::NotRecorded)?;
    // An answer from the future is from before the clock was set back.
    let age = now.duration_since(absence.asked_at);
    if age > settings.freshness || age.is_negative() {
        return Err(Refusal::NotAsked);
    }
    let Evidence { reference, removal, folder_seen } = subject.evidence;
    match reference {
        Reference::NotAsked => return Err(Refusal::NotAsked),
        Reference::Exists => return Err(Refusal::StillThere(identity.vm)),
        Reference::Gone => {}
    }
    if !folder_seen && !visible.contains(identity.vcenter.as_str()) {
        return Err(Refusal::FolderNotVisible(identity.folder.unwrap_or_default()));
    }
    match removal {
        Removal::NotAsked => Err(Refusal::RemovalNotAsked),
        Removal::NoRecord => Err(Refusal::NoRemovalRecord(identity.vm)),
        Removal::Unreadable => Err(Refusal::TaskHistoryUnreadable(identity.vm)),
        Removal::Unregistered => Err(Refusal::Unregistered(identity.vm)),
        Removal::Destroyed => Ok(Proof { uuid, identity, vcenters: absence.vcenters.clone() }),
    }
}

impl Refusal {
    /// The stable word for events and metrics.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Disabled => "DeletionDisabled",
            Self::KeptByAnnotation => "KeptByAnnotation",
            Self::NoProviderId => "NoProviderId",
            Self::NotRecorded => "VmNotRecorded",
            Self::NotAsked => "NotAsked",
            Self::StillThere(_) => "VmStillThere",
            Self::Unregistered(_) => "VmUnregistered",
            Self::RemovalNotAsked => "RemovalNotAsked",
            Self::NoRemovalRecord(_) => "NoRemovalRecord",
            Self::TaskHistoryUnreadable(_) => "TaskHistoryUnreadable",
            Self::FolderNotVisible(_) => "FolderNotVisible",
            Self::TooEarly => "TooEarly",
            Self::TooMany => "TooManyDeletions",
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
