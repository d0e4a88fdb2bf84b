package cns

import (
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"
)

// blame gives every volume of a result the fault, although its work is done. A snapshot that was made is named in the
// fault that is there for that.
func (m *Manager) blame(result types.AnyType, fault types.BaseMethodFault) types.AnyType {
	done, ok := result.(*cnstypes.CnsVolumeOperationBatchResult)
	if !ok {
		return result
	}
	blamed := batch()
	for _, base := range done.VolumeResults {
		id := base.GetCnsVolumeOperationResult().VolumeId.Id
		shown := fault
		if made, ok := base.(*cnstypes.CnsSnapshotCreateResult); ok {
			if _, wanted := fault.(*cnstypes.CnsSnapshotCreatedFault); wanted {
				at, _ := m.VolumeDatastore(id)
				shown = &cnstypes.CnsSnapshotCreatedFault{
					CnsFault: cnstypes.CnsFault{Reason: "Snapshot " + made.Snapshot.SnapshotId.Id + " was created, but CNS could not record it"},
					VolumeId: cnstypes.CnsVolumeId{Id: id}, SnapshotId: made.Snapshot.SnapshotId, Datastore: at,
				}
			}
			blamed.VolumeResults = append(blamed.VolumeResults, &cnstypes.CnsSnapshotCreateResult{
				CnsSnapshotOperationResult: cnstypes.CnsSnapshotOperationResult{CnsVolumeOperationResult: *failed(id, shown)},
			})
			continue
		}
		blamed.VolumeResults = append(blamed.VolumeResults, failed(id, shown))
	}
	return blamed
}
