package cns

import (
	"cmp"

	"github.com/google/uuid"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm/methods"
	vslmtypes "github.com/vmware/govmomi/vslm/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// VslmRegisterDisk makes a vmdk an FCD. One that is an FCD already is named in the fault.
func (s *fcdManager) VslmRegisterDisk(_ *simulator.Context, req *vslmtypes.VslmRegisterDisk) soap.HasFault {
	made, fault := s.m.registerVMDK(req.Path, req.Name, lateness{})
	if fault != nil {
		return refuse(fault)
	}
	return &methods.VslmRegisterDiskBody{Res: &vslmtypes.VslmRegisterDiskResponse{Returnval: made}}
}

// registerVMDK makes an FCD of a vmdk that is none.
func (m *Manager) registerVMDK(link, name string, late lateness) (types.VStorageObject, types.BaseMethodFault) {
	at, filePath, capacityMB, fault := m.locate(link)
	if fault != nil {
		return types.VStorageObject{}, fault
	}
	defer m.volumeOps.lock(filePath)()
	if id := m.fcdOf(filePath); id != "" {
		return types.VStorageObject{}, &types.AlreadyExists{Name: id}
	}
	made := *m.newFCD(&disk{name: cmp.Or(name, filePath), datastore: at.ref, path: filePath, capacityMB: capacityMB, late: late})
	return m.describe(&made), nil
}

// VslmCreateDiskTask makes an FCD that is no CNS volume.
func (s *fcdManager) VslmCreateDiskTask(ctx *simulator.Context, req *vslmtypes.VslmCreateDisk_Task) soap.HasFault {
	user := sessionUser(ctx)
	task := s.task(ctx, "VslmCreateDisk_Task", func() (types.AnyType, types.BaseMethodFault) { return s.m.createFCD(user, req.Spec, lateness{}) })
	return &methods.VslmCreateDisk_TaskBody{Res: &vslmtypes.VslmCreateDisk_TaskResponse{Returnval: task}}
}

func (m *Manager) createFCD(user string, spec types.VslmCreateSpec, late lateness) (types.AnyType, types.BaseMethodFault) {
	backing, ok := spec.BackingSpec.(*types.VslmCreateSpecDiskFileBackingSpec)
	switch {
	case !ok:
		return nil, invalid("spec.backingSpec")
	case spec.Name == "":
		return nil, invalid("spec.name")
	case spec.CapacityInMB <= 0 || spec.CapacityInMB > int64(assume.MaxVolumeMB.In(m.assumed)):
		return nil, invalid("spec.capacityInMB")
	}
	policy, fault := policyID(spec.Profile)
	if fault != nil {
		return nil, fault
	}
	at, _, fault := m.choose(wanted{user: user, among: []types.ManagedObjectReference{backing.Datastore}, policy: policy, bytes: spec.CapacityInMB * mib})
	if fault != nil {
		return nil, fault
	}
	d := &disk{
		id: uuid.NewString(), name: spec.Name, datastore: at.ref, capacityMB: spec.CapacityInMB, uuid: newDiskUUID(), objectID: uuid.NewString(),
		created: m.now(), keep: spec.KeepAfterDeleteVm != nil && *spec.KeepAfterDeleteVm, taken: at.taken, policy: policy, late: late,
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	d.path = m.fcdPath(at.place, d.id)
	if err := writeDescriptor(at.dir, d.path, d.capacityMB); err != nil {
		m.giveBack(at.ref, at.taken)
		return nil, &types.SystemError{Reason: err.Error()}
	}
	m.disks[d.id] = d
	m.publish(d)
	described := m.describe(d)
	return &described, nil
}

// VslmDeleteVStorageObjectTask deletes an FCD, and the CNS volume it may be.
func (s *fcdManager) VslmDeleteVStorageObjectTask(ctx *simulator.Context, req *vslmtypes.VslmDeleteVStorageObject_Task) soap.HasFault {
	task := s.onDisk(ctx, "VslmDeleteVStorageObject_Task", req.Id, func(live *disk, _ disk) (types.AnyType, types.BaseMethodFault) {
		if len(s.m.holders(live)) > 0 {
			return nil, inUse()
		}
		return nil, s.m.destroy(live)
	})
	return &methods.VslmDeleteVStorageObject_TaskBody{Res: &vslmtypes.VslmDeleteVStorageObject_TaskResponse{Returnval: task}}
}

// VslmExtendDiskTask grows an FCD.
func (s *fcdManager) VslmExtendDiskTask(ctx *simulator.Context, req *vslmtypes.VslmExtendDisk_Task) soap.HasFault {
	task := s.onDisk(ctx, "VslmExtendDisk_Task", req.Id, func(live *disk, _ disk) (types.AnyType, types.BaseMethodFault) {
		return nil, s.m.extendDisk(live.id, req.NewCapacityInMB)
	})
	return &methods.VslmExtendDisk_TaskBody{Res: &vslmtypes.VslmExtendDisk_TaskResponse{Returnval: task}}
}

// VslmCreateSnapshotTask makes a snapshot; the result is its id.
func (s *fcdManager) VslmCreateSnapshotTask(ctx *simulator.Context, req *vslmtypes.VslmCreateSnapshot_Task) soap.HasFault {
	task := s.onDisk(ctx, "VslmCreateSnapshot_Task", req.Id, func(_ *disk, d disk) (types.AnyType, types.BaseMethodFault) {
		made, fault := s.m.snapshotDisk(d, uuid.NewString(), req.Description)
		if fault != nil {
			return nil, fault
		}
		return &types.ID{Id: made.id}, nil
	})
	return &methods.VslmCreateSnapshot_TaskBody{Res: &vslmtypes.VslmCreateSnapshot_TaskResponse{Returnval: task}}
}

// VslmDeleteSnapshotTask deletes a snapshot.
func (s *fcdManager) VslmDeleteSnapshotTask(ctx *simulator.Context, req *vslmtypes.VslmDeleteSnapshot_Task) soap.HasFault {
	if !isUUID(req.SnapshotId.Id) {
		return refuse(malformed(req.SnapshotId.Id))
	}
	task := s.onDisk(ctx, "VslmDeleteSnapshot_Task", req.Id, func(_ *disk, d disk) (types.AnyType, types.BaseMethodFault) {
		if !d.hasSnapshot(req.SnapshotId.Id) {
			return nil, invalid("snapshotId")
		}
		return nil, s.m.deleteDiskSnapshot(d, req.SnapshotId.Id)
	})
	return &methods.VslmDeleteSnapshot_TaskBody{Res: &vslmtypes.VslmDeleteSnapshot_TaskResponse{Returnval: task}}
}

// VslmAttachDiskTask puts an FCD on a VM.
func (s *fcdManager) VslmAttachDiskTask(ctx *simulator.Context, req *vslmtypes.VslmAttachDisk_Task) soap.HasFault {
	vm := s.m.vm(req.Vm)
	if vm == nil {
		return refuse(&types.ManagedObjectNotFound{Obj: req.Vm})
	}
	spec := cnstypes.CnsVolumeAttachDetachSpec{VolumeId: cnstypes.CnsVolumeId{Id: req.Id.Id}, Vm: req.Vm, UnitNumber: req.UnitNumber}
	if req.ControllerKey != 0 {
		spec.ControllerKey = &req.ControllerKey
	}
	task := s.onDisk(ctx, "VslmAttachDisk_Task", req.Id, func(live *disk, _ disk) (types.AnyType, types.BaseMethodFault) {
		_, fault := s.m.attachDisk(live, vm, spec)
		return nil, fault
	})
	return &methods.VslmAttachDisk_TaskBody{Res: &vslmtypes.VslmAttachDisk_TaskResponse{Returnval: task}}
}

// VslmUpdateVStorageObjectMetadataTask changes an FCD's own keys and values.
func (s *fcdManager) VslmUpdateVStorageObjectMetadataTask(ctx *simulator.Context, req *vslmtypes.VslmUpdateVStorageObjectMetadata_Task) soap.HasFault {
	task := s.onDisk(ctx, "VslmUpdateVStorageObjectMetadata_Task", req.Id, func(*disk, disk) (types.AnyType, types.BaseMethodFault) {
		s.m.noteMetadata(req.Id, req.Metadata, req.DeleteKeys)
		return nil, nil
	})
	return &methods.VslmUpdateVStorageObjectMetadata_TaskBody{Res: &vslmtypes.VslmUpdateVStorageObjectMetadata_TaskResponse{Returnval: task}}
}

// VslmSetVStorageObjectControlFlags switches flags of an FCD on.
func (s *fcdManager) VslmSetVStorageObjectControlFlags(_ *simulator.Context, req *vslmtypes.VslmSetVStorageObjectControlFlags) soap.HasFault {
	if fault := s.flags(req.Id.Id, req.ControlFlags, true); fault != nil {
		return refuse(fault)
	}
	return &methods.VslmSetVStorageObjectControlFlagsBody{Res: &vslmtypes.VslmSetVStorageObjectControlFlagsResponse{}}
}

// VslmClearVStorageObjectControlFlags switches flags of an FCD off.
func (s *fcdManager) VslmClearVStorageObjectControlFlags(_ *simulator.Context, req *vslmtypes.VslmClearVStorageObjectControlFlags) soap.HasFault {
	if fault := s.flags(req.Id.Id, req.ControlFlags, false); fault != nil {
		return refuse(fault)
	}
	return &methods.VslmClearVStorageObjectControlFlagsBody{Res: &vslmtypes.VslmClearVStorageObjectControlFlagsResponse{}}
}

func (s *fcdManager) flags(id string, names []string, on bool) types.BaseMethodFault {
	defer s.m.volumeOps.lock(id)()
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	d := s.m.findDisk(id)
	if d == nil || s.m.unreadable(id) {
		return s.m.unknownFCD(id)
	}
	return s.m.setDiskFlags(d, names, on)
}

// task runs work and gives VSLM's own reference to it.
func (s *fcdManager) task(ctx *simulator.Context, method string, work work) types.ManagedObjectReference {
	task := s.m.start(ctx, method, work)
	return ctx.Map.Put(&vslmTask{ManagedObjectReference: types.ManagedObjectReference{Type: "VslmTask", Value: task.Value}, m: s.m, task: task}).Reference()
}

// diskWork is what a task does with one FCD: it gets its state, and a copy of that.
type diskWork func(*disk, disk) (types.AnyType, types.BaseMethodFault)

// onDisk is a task on one FCD.
func (s *fcdManager) onDisk(ctx *simulator.Context, method string, id types.ID, work diskWork) types.ManagedObjectReference {
	return s.task(ctx, method, func() (types.AnyType, types.BaseMethodFault) {
		if live, _ := s.m.catalogued(id.Id); live == nil {
			return nil, &types.NotFound{}
		}
		return s.m.changeOutside(id, work)
	})
}

// changeOutside does work on a disk, under its operation lock, of which CNS hears later.
func (m *Manager) changeOutside(id types.ID, work diskWork) (types.AnyType, types.BaseMethodFault) {
	defer m.volumeOps.lock(id.Id)()
	live, d := m.fcd(id.Id)
	if live == nil {
		return nil, &types.NotFound{}
	}
	m.mu.Lock()
	was := m.recall(id.Id)
	m.mu.Unlock()
	result, fault := work(live, d)
	if fault == nil {
		m.mu.Lock()
		m.outside(was)
		m.mu.Unlock()
	}
	return result, cause(fault)
}

// vslmTask is the managed object VslmTask: a vim25 task under another name.
type vslmTask struct {
	types.ManagedObjectReference
	m    *Manager
	task types.ManagedObjectReference
}

func (s *vslmTask) info() (info types.TaskInfo, ok bool) {
	task, ok := s.m.vim.Get(s.task).(*simulator.Task)
	if ok {
		s.m.vim.WithLock(s.m.inventory(), task, func() { info = task.Info })
	}
	return info, ok
}

// VslmQueryInfo tells how the task is doing.
func (s *vslmTask) VslmQueryInfo(*simulator.Context, *vslmtypes.VslmQueryInfo) soap.HasFault {
	info, ok := s.info()
	if !ok {
		return refuse(&types.ManagedObjectNotFound{Obj: s.ManagedObjectReference})
	}
	user := ""
	if reason, ok := info.Reason.(*types.TaskReasonUser); ok {
		user = reason.UserName
	}
	return &methods.VslmQueryInfoBody{Res: &vslmtypes.VslmQueryInfoResponse{Returnval: vslmtypes.VslmTaskInfo{
		Key: s.Value, Task: s.ManagedObjectReference, DescriptionId: info.DescriptionId, State: vslmtypes.VslmTaskInfoState(info.State),
		Error: info.Error, Result: info.Result, QueueTime: info.QueueTime, StartTime: info.StartTime, CompleteTime: info.CompleteTime,
		ActivationId: info.ActivationId, Reason: &vslmtypes.VslmTaskReasonUser{UserName: user},
	}}}
}

// VslmQueryTaskResult gives the task's result.
func (s *vslmTask) VslmQueryTaskResult(*simulator.Context, *vslmtypes.VslmQueryTaskResult) soap.HasFault {
	info, ok := s.info()
	if !ok {
		return refuse(&types.ManagedObjectNotFound{Obj: s.ManagedObjectReference})
	}
	return &methods.VslmQueryTaskResultBody{Res: &vslmtypes.VslmQueryTaskResultResponse{Returnval: info.Result}}
}
