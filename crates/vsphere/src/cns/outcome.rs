//! What a task did to each of its volumes.
//!
//! The server answers with one list of results of several types, some with faults. Here a result is matched
//! with the volume it is about, and read as what the operation promises.

use crate::{
    error::Cause,
    fault::Fault,
    reference::Ref,
    types::{
        AnyCnsVolumeInfo, AnyCnsVolumeOperationResult, CnsPlacementResult, CnsQueryResult,
        CnsSnapshot, CnsSnapshotId, CnsVolumeId, Datastore, VStorageObject,
    },
    xml::Malformed,
};

/// The result of an operation for one volume.
pub trait Outcome: Sized {
    /// Reads a result; the cause of the failure if it holds a fault, or not what it should.
    fn read(result: AnyCnsVolumeOperationResult) -> Result<Self, Cause>;

    /// What a task means that succeeds and has no results, if it means anything.
    fn without_result() -> Option<Self> {
        None
    }
}

/// A volume that was made, or a disk that is a volume now.
#[derive(Debug, Clone, PartialEq)]
pub struct Created {
    /// Its id.
    pub volume: CnsVolumeId,
    /// Its name.
    pub name: Option<String>,
    /// Where it is, if the server reports it; those before 7.0U2 do not.
    pub datastore: Option<Ref<Datastore>>,
    /// The datastores that CNS looked at, with the reasons against those that it did not take.
    pub placements: Vec<CnsPlacementResult>,
    /// Whether the server said that a volume of the disk, or with the id that the caller chose, was there before: by
    /// an earlier attempt, unless ids are chosen twice. From 9.1 on it does not say so of one that lies where it is
    /// wanted. Its size and policy need not be those of this attempt.
    pub existed: bool,
}

/// A volume that a VM has now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// The disk's UUID, under which the guest finds it.
    pub disk_uuid: String,
}

/// A volume that its VM does not have any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Detached;

/// A snapshot that was taken.
#[derive(Debug, Clone, PartialEq)]
pub struct TakenSnapshot {
    /// The snapshot; of one that CNS failed to enter in its own records only the ids are known.
    pub snapshot: CnsSnapshot,
    /// What all snapshots of the volume take, in MiB. From vCenter 9.0.
    pub all_mebibytes: Option<i64>,
}

/// A snapshot that is gone.
#[derive(Debug, Clone, PartialEq)]
pub struct DeletedSnapshot {
    /// Its id.
    pub snapshot: Option<CnsSnapshotId>,
    /// What the volume's other snapshots take, in MiB. From vCenter 9.0.
    pub all_mebibytes: Option<i64>,
}

/// A datastore that was compared with what CNS knew of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Synced;

impl Outcome for () {
    fn read(result: AnyCnsVolumeOperationResult) -> Result<Self, Cause> {
        sound(result).map(|_| ())
    }
}

impl Outcome for Detached {
    fn read(result: AnyCnsVolumeOperationResult) -> Result<Self, Cause> {
        match fault_of(&result).filter(|fault| fault.find("InvalidDeviceSpec").is_some()) {
            Some(fault) => Err(Cause::NotDetached {
                fault: Box::new(fault.clone()),
                why: "a snapshot of the VM contains the disk: delete the snapshot",
            }),
            None => sound(result).map(|_| Self),
        }
    }
}

impl Outcome for Synced {
    fn read(result: AnyCnsVolumeOperationResult) -> Result<Self, Cause> {
        sound(result).map(|_| Self)
    }

    fn without_result() -> Option<Self> {
        Some(Self)
    }
}

impl Outcome for Created {
    fn read(result: AnyCnsVolumeOperationResult) -> Result<Self, Cause> {
        let known = fault_of(&result).and_then(|fault| fault.find("CnsAlreadyRegisteredFault"));
        if let Some(volume) = known.and_then(|fault| fault.field("volumeId.id")) {
            let (volume, placements) = (volume.into(), Vec::new());
            return Ok(Self { volume, name: None, datastore: None, placements, existed: true });
        }
        let AnyCnsVolumeOperationResult::CnsVolumeCreateResult(created) = result else {
            // Servers may answer with a mere fault.
            return Err(sound(result).err().unwrap_or_else(|| other("CnsVolumeCreateResult")));
        };
        let (name, placements) = (created.name, created.placement_results);
        if let Some(fault) = created.fault.map(Box::new) {
            if let Some(volume) = existing(&fault, created.volume_id) {
                let datastore = fault.field("datastore").map(Ref::new);
                return Ok(Self { volume, name, datastore, placements, existed: true });
            }
            let unplaced = placements.iter().any(|one| !one.placement_faults.is_empty());
            return Err(match unplaced {
                true => Cause::Unplaced { fault, placements },
                false => Cause::Fault(fault),
            });
        }
        let volume = created.volume_id.filter(is_named).ok_or_else(|| other("a volume id"))?;
        let taken = placements.iter().find(|one| one.placement_faults.is_empty());
        let datastore = taken.map(|placement| placement.datastore.clone());
        Ok(Self { volume, name, datastore, placements, existed: false })
    }
}

/// The result of this type, unless it holds a fault.
macro_rules! sound {
    ($result:expr, $type:ident) => {
        match sound($result)? {
            AnyCnsVolumeOperationResult::$type(result) => result,
            _ => return Err(other(stringify!($type))),
        }
    };
}

impl Outcome for Attached {
    fn read(result: AnyCnsVolumeOperationResult) -> Result<Self, Cause> {
        let disk_uuid = sound!(result, CnsVolumeAttachResult).disk_uuid;
        let disk_uuid = disk_uuid.filter(|uuid| !uuid.is_empty());
        disk_uuid.map(|disk_uuid| Self { disk_uuid }).ok_or_else(|| other("a disk UUID"))
    }
}

impl Outcome for TakenSnapshot {
    fn read(result: AnyCnsVolumeOperationResult) -> Result<Self, Cause> {
        // The snapshot is there, and would be left behind if this were an error.
        let taken = fault_of(&result).and_then(|fault| fault.find("CnsSnapshotCreatedFault"));
        if let Some(fault) = taken
            && let Some(volume) = fault.field("volumeId.id")
            // The one name is in keeping with all others, the other one is govmomi's.
            && let Some(id) = fault.field("snapshotId.id").or(fault.field("SnapshotId.id"))
        {
            let (snapshot_id, volume_id) = (id.into(), volume.into());
            let snapshot = CnsSnapshot { snapshot_id, volume_id, ..CnsSnapshot::default() };
            return Ok(Self { snapshot, all_mebibytes: None });
        }
        let created = sound!(result, CnsSnapshotCreateResult);
        let snapshot = created.snapshot.ok_or_else(|| other("a snapshot"))?;
        Ok(Self { snapshot, all_mebibytes: created.aggregated_snapshot_capacity_in_mb })
    }
}

impl Outcome for DeletedSnapshot {
    fn read(result: AnyCnsVolumeOperationResult) -> Result<Self, Cause> {
        let deleted = sound!(result, CnsSnapshotDeleteResult);
        let all_mebibytes = deleted.aggregated_snapshot_capacity_in_mb;
        Ok(Self { snapshot: deleted.snapshot_id, all_mebibytes })
    }
}

impl Outcome for VStorageObject {
    fn read(result: AnyCnsVolumeOperationResult) -> Result<Self, Cause> {
        match sound!(result, CnsQueryVolumeInfoResult).volume_info {
            Some(AnyCnsVolumeInfo::CnsBlockVolumeInfo(block)) => Ok(*block.vstorage_object),
            _ => Err(other("a disk")),
        }
    }
}

impl Outcome for CnsQueryResult {
    fn read(result: AnyCnsVolumeOperationResult) -> Result<Self, Cause> {
        sound!(result, CnsAsyncQueryResult).query_result.ok_or_else(|| other("volumes"))
    }
}

/// The volume that has the chosen id already.
fn existing(fault: &Fault, volume: Option<CnsVolumeId>) -> Option<CnsVolumeId> {
    let exists = fault.find("CnsVolumeAlreadyExistsFault")?;
    exists.field("volumeId.id").map(CnsVolumeId::from).or(volume).filter(is_named)
}

fn is_named(volume: &CnsVolumeId) -> bool {
    !volume.id.is_empty()
}

fn other(missing: &str) -> Cause {
    Cause::Malformed(Malformed::new(&format!("a volume's result lacks {missing}")))
}

/// The result, unless it holds a fault.
fn sound(result: AnyCnsVolumeOperationResult) -> Result<AnyCnsVolumeOperationResult, Cause> {
    match fault_of(&result) {
        Some(fault) => Err(Cause::Fault(Box::new(fault.clone()))),
        None => Ok(result),
    }
}

/// A field that all types of results have.
macro_rules! common {
    ($result:expr, $field:ident: $($type:ident)*) => {
        match $result {
            $(AnyCnsVolumeOperationResult::$type(result) => result.$field.as_ref(),)*
            AnyCnsVolumeOperationResult::Other { base, .. } => base.$field.as_ref(),
        }
    };
    ($result:expr, $field:ident) => {
        common!($result, $field: CnsVolumeOperationResult CnsAsyncQueryResult CnsQueryVolumeInfoResult
            CnsSnapshotCreateResult CnsSnapshotDeleteResult CnsSnapshotOperationResult
            CnsVolumeAttachResult CnsVolumeCreateResult)
    };
}

fn fault_of(result: &AnyCnsVolumeOperationResult) -> Option<&Fault> {
    common!(result, fault)
}

fn volume_of(result: &AnyCnsVolumeOperationResult) -> Option<&CnsVolumeId> {
    common!(result, volume_id).filter(|id| is_named(id))
}

/// The results in the order of the volumes, each used once: a volume may be in a call twice. Results that
/// name no volume are taken in their own order by the volumes that are left.
pub(super) fn ordered(
    volumes: &[CnsVolumeId],
    results: Vec<AnyCnsVolumeOperationResult>,
) -> Vec<Option<AnyCnsVolumeOperationResult>> {
    let mut results: Vec<_> = results.into_iter().map(Some).collect();
    let mut take = |wanted: Option<&CnsVolumeId>| {
        let fits = |result: &&mut Option<_>| {
            result.as_ref().is_some_and(|result| volume_of(result) == wanted)
        };
        results.iter_mut().find(fits).and_then(Option::take)
    };
    let mut found: Vec<_> = volumes.iter().map(|volume| take(Some(volume))).collect();
    for missing in found.iter_mut().filter(|result| result.is_none()) {
        *missing = take(None);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{ordered, volume_of};
    use crate::types::{AnyCnsVolumeOperationResult, CnsVolumeId, CnsVolumeOperationResult};

    fn result(id: &str) -> AnyCnsVolumeOperationResult {
        CnsVolumeOperationResult { volume_id: Some(id.into()), fault: None }.into()
    }

    fn order(volumes: &[&str], results: &[&str]) -> Vec<Option<Option<String>>> {
        let volumes: Vec<CnsVolumeId> = volumes.iter().map(|id| CnsVolumeId::from(*id)).collect();
        let results = results.iter().map(|id| result(id)).collect();
        let named =
            |result: AnyCnsVolumeOperationResult| volume_of(&result).map(|id| id.id.clone());
        ordered(&volumes, results).into_iter().map(|result| result.map(named)).collect()
    }

    fn is(id: &str) -> Option<Option<String>> {
        Some(Some(id.to_owned()))
    }

    #[test]
    fn results_follow_the_order_of_the_volumes() {
        assert_eq!(order(&["a", "b", "c"], &["c", "a", "b"]), [is("a"), is("b"), is("c")]);
    }

    #[test]
    fn a_volume_that_is_asked_for_twice_gets_two_results() {
        assert_eq!(order(&["a", "b", "a"], &["a", "a", "b"]), [is("a"), is("b"), is("a")]);
        assert_eq!(order(&["a", "a"], &["a"]), [is("a"), None]);
    }

    #[test]
    fn a_result_without_a_volume_goes_to_a_volume_without_a_result() {
        assert_eq!(order(&["a", "b"], &["", "a"]), [is("a"), Some(None)]);
        assert_eq!(order(&["a", "b"], &[""]), [Some(None), None]);
    }

    #[test]
    fn results_of_strangers_are_nobodys() {
        assert_eq!(order(&["a"], &["b"]), [None]);
    }
}
