package cns

import (
	"github.com/google/uuid"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// vimDisks is vim25's VcenterVStorageObjectManager. What reads disks is the library's. What changes them is ours: the
// library's knows neither space, content, VMs nor CNS, which hears late of such a change.
type vimDisks struct {
	*simulator.VcenterVStorageObjectManager
	m *Manager
}

// CreateDiskTask makes an FCD that is no CNS volume.
func (s *vimDisks) CreateDiskTask(ctx *simulator.Context, req *types.CreateDisk_Task) soap.HasFault {
	user, at := sessionUser(ctx), s.m.root
	if backing := req.Spec.BackingSpec; backing != nil {
		at = backing.GetVslmCreateSpecBackingSpec().Datastore
	}
	task := s.m.startOn(ctx, "CreateDisk_Task", at, func() (types.AnyType, types.BaseMethodFault) {
		made, fault := s.m.createFCD(user, req.Spec, s.m.lateOutside())
		return made, cause(fault)
	})
	return &methods.CreateDisk_TaskBody{Res: &types.CreateDisk_TaskResponse{Returnval: task}}
}

// RegisterDisk makes a vmdk an FCD.
func (s *vimDisks) RegisterDisk(ctx *simulator.Context, req *types.RegisterDisk) soap.HasFault {
	// The library holds the lock of the catalogue for the call. Ours is taken after others.
	free := ctx.Map.AcquireLock(ctx, s.Self)
	free()
	free()
	defer ctx.Map.AcquireLock(ctx, s.Self)
	made, fault := s.m.registerVMDK(req.Path, req.Name, s.m.lateOutside())
	if fault != nil {
		return refuse(fault)
	}
	return &methods.RegisterDiskBody{Res: &types.RegisterDiskResponse{Returnval: made}}
}

// DeleteVStorageObjectTask deletes an FCD, and the CNS volume it may be.
func (s *vimDisks) DeleteVStorageObjectTask(ctx *simulator.Context, req *types.DeleteVStorageObject_Task) soap.HasFault {
	task := s.onDisk(ctx, "DeleteVStorageObject_Task", req.Datastore, req.Id, func(live *disk, _ disk) (types.AnyType, types.BaseMethodFault) {
		if len(s.m.holders(live)) > 0 {
			return nil, &types.InvalidState{}
		}
		listed := s.m.object(req.Id)
		fault := s.m.destroy(live)
		if fault == nil {
			s.m.linger(listed, s.m.lateOutside())
		}
		return nil, fault
	})
	return &methods.DeleteVStorageObject_TaskBody{Res: &types.DeleteVStorageObject_TaskResponse{Returnval: task}}
}

// ExtendDiskTask grows an FCD.
func (s *vimDisks) ExtendDiskTask(ctx *simulator.Context, req *types.ExtendDisk_Task) soap.HasFault {
	task := s.onDisk(ctx, "ExtendDisk_Task", req.Datastore, req.Id, func(*disk, disk) (types.AnyType, types.BaseMethodFault) {
		return nil, s.m.extendDisk(req.Id.Id, req.NewCapacityInMB)
	})
	return &methods.ExtendDisk_TaskBody{Res: &types.ExtendDisk_TaskResponse{Returnval: task}}
}

// VStorageObjectCreateSnapshotTask makes a snapshot; the result is its id.
func (s *vimDisks) VStorageObjectCreateSnapshotTask(ctx *simulator.Context, req *types.VStorageObjectCreateSnapshot_Task) soap.HasFault {
	const method = "VStorageObjectCreateSnapshot_Task"
	task := s.onDisk(ctx, method, req.Datastore, req.Id, func(_ *disk, d disk) (types.AnyType, types.BaseMethodFault) {
		made, fault := s.m.snapshotDisk(d, uuid.NewString(), req.Description)
		if fault != nil {
			return nil, fault
		}
		return &types.ID{Id: made.id}, nil
	})
	return &methods.VStorageObjectCreateSnapshot_TaskBody{Res: &types.VStorageObjectCreateSnapshot_TaskResponse{Returnval: task}}
}

// DeleteSnapshotTask deletes a snapshot.
func (s *vimDisks) DeleteSnapshotTask(ctx *simulator.Context, req *types.DeleteSnapshot_Task) soap.HasFault {
	task := s.onDisk(ctx, "DeleteSnapshot_Task", req.Datastore, req.Id, func(_ *disk, d disk) (types.AnyType, types.BaseMethodFault) {
		if !d.hasSnapshot(req.SnapshotId.Id) {
			return nil, invalid("snapshotId")
		}
		return nil, s.m.deleteDiskSnapshot(d, req.SnapshotId.Id)
	})
	return &methods.DeleteSnapshot_TaskBody{Res: &types.DeleteSnapshot_TaskResponse{Returnval: task}}
}

// onDisk is a task on an FCD of a datastore, as that of VSLM.
func (s *vimDisks) onDisk(ctx *simulator.Context, method string, at types.ManagedObjectReference, id types.ID, work diskWork) types.ManagedObjectReference {
	return s.m.startOn(ctx, method, at, func() (types.AnyType, types.BaseMethodFault) {
		return s.m.changeOutside(id, func(live *disk, d disk) (types.AnyType, types.BaseMethodFault) {
			if d.datastore != at {
				return nil, &types.NotFound{}
			}
			return work(live, d)
		})
	})
}
