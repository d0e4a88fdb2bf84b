package cns

import (
	"testing"

	govcns "github.com/vmware/govmomi/cns"
	"github.com/vmware/govmomi/cns/methods"
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// TestEmptyRequestsAreRefused asks every method for nothing, and for one spec of nothing: each answer must be a fault of the
// call, of the task or of the volume.
func TestEmptyRequestsAreRefused(t *testing.T) {
	l := newLab(t, options{release: "9.1"})
	manager := govcns.CnsVolumeManagerInstance
	calls := map[string]func(one bool) (*object.Task, error){
		"CnsCreateVolume": func(one bool) (*object.Task, error) {
			return l.create(make([]cnstypes.CnsVolumeCreateSpec, count(one))...)
		},
		"CnsUpdateVolumeMetadata": func(one bool) (*object.Task, error) {
			return l.cns.UpdateVolumeMetadata(l.ctx, make([]cnstypes.CnsVolumeMetadataUpdateSpec, count(one)))
		},
		"CnsDeleteVolume": func(one bool) (*object.Task, error) {
			return l.cns.DeleteVolume(l.ctx, make([]cnstypes.CnsVolumeId, count(one)), true)
		},
		"CnsExtendVolume": func(one bool) (*object.Task, error) {
			return l.cns.ExtendVolume(l.ctx, make([]cnstypes.CnsVolumeExtendSpec, count(one)))
		},
		"CnsAttachVolume": func(one bool) (*object.Task, error) {
			return l.cns.AttachVolume(l.ctx, make([]cnstypes.CnsVolumeAttachDetachSpec, count(one)))
		},
		"CnsDetachVolume": func(one bool) (*object.Task, error) {
			return l.cns.DetachVolume(l.ctx, make([]cnstypes.CnsVolumeAttachDetachSpec, count(one)))
		},
		"CnsQueryVolumeInfo": func(one bool) (*object.Task, error) {
			return l.cns.QueryVolumeInfo(l.ctx, make([]cnstypes.CnsVolumeId, count(one)))
		},
		"CnsCreateSnapshots": func(one bool) (*object.Task, error) {
			return l.cns.CreateSnapshots(l.ctx, make([]cnstypes.CnsSnapshotCreateSpec, count(one)))
		},
		"CnsDeleteSnapshots": func(one bool) (*object.Task, error) {
			return l.cns.DeleteSnapshots(l.ctx, make([]cnstypes.CnsSnapshotDeleteSpec, count(one)))
		},
		"CnsRelocateVolume": func(one bool) (*object.Task, error) {
			if one {
				return l.cns.RelocateVolume(l.ctx, cnstypes.CnsBlockVolumeRelocateSpec{})
			}
			return l.cns.RelocateVolume(l.ctx)
		},
		"CnsReconfigVolumePolicy": func(one bool) (*object.Task, error) {
			return l.cns.ReconfigVolumePolicy(l.ctx, make([]cnstypes.CnsVolumePolicyReconfigSpec, count(one)))
		},
		"CnsConfigureVolumeACLs": func(one bool) (*object.Task, error) {
			return l.cns.ConfigureVolumeACLs(l.ctx, make([]cnstypes.CnsVolumeACLConfigureSpec, count(one))...)
		},
		"CnsSyncVolume": func(one bool) (*object.Task, error) {
			return l.cns.SyncVolume(l.ctx, make([]cnstypes.CnsSyncVolumeSpec, count(one)))
		},
		"CnsUnregisterVolume": func(one bool) (*object.Task, error) {
			return l.cns.UnregisterVolume(l.ctx, make([]cnstypes.CnsUnregisterVolumeSpec, count(one)))
		},
		"CnsSetVolumeControlFlags": func(one bool) (*object.Task, error) {
			return nil, l.cns.SetVolumeControlFlags(l.ctx, make([]cnstypes.CnsVolumeControlFlagsSpec, count(one)))
		},
		"CnsClearVolumeControlFlags": func(one bool) (*object.Task, error) {
			return nil, l.cns.ClearVolumeControlFlags(l.ctx, make([]cnstypes.CnsVolumeControlFlagsSpec, count(one)))
		},
		"CnsQueryVolume": func(bool) (*object.Task, error) {
			_, err := methods.CnsQueryVolume(l.ctx, l.cns, &cnstypes.CnsQueryVolume{This: manager})
			return nil, err
		},
		"CnsSyncDatastore of the wrong object": func(bool) (*object.Task, error) {
			_, err := methods.CnsSyncDatastore(l.ctx, l.cns, &cnstypes.CnsSyncDatastore{This: manager})
			return nil, err
		},
	}
	for name, call := range calls {
		for _, one := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				running, err := call(one)
				if err != nil {
					if !soap.IsSoapFault(err) {
						t.Errorf("the call ended with %v, which is no fault", err)
					}
					return
				}
				info := l.ended(running, nil)
				if info.Error != nil {
					if _, ours := info.Error.Fault.(*types.SystemError); ours {
						t.Errorf("the task failed by our mistake: %+v", info.Error.Fault)
					}
					return
				}
				result := info.Result.(cnstypes.CnsVolumeOperationBatchResult)
				if len(result.VolumeResults) != 1 || result.VolumeResults[0].GetCnsVolumeOperationResult().Fault == nil {
					t.Errorf("the task succeeded: %+v", result)
				}
			})
		}
	}
	if got := l.manager.Volumes(); len(got) != 0 {
		t.Errorf("volumes %v", got)
	}
}

func count(one bool) int {
	if one {
		return 1
	}
	return 0
}
