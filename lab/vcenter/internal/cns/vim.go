package cns

import (
	"slices"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// AttachDisk is VirtualMachine.AttachDisk_Task of vim25: an FCD becomes a device of the VM. The library notes the VM in
// the disk and adds no device.
func (m *Manager) AttachDisk(ctx *simulator.Context, req *types.AttachDisk_Task) types.ManagedObjectReference {
	spec := cnstypes.CnsVolumeAttachDetachSpec{VolumeId: cnstypes.CnsVolumeId{Id: req.DiskId.Id}, Vm: req.This, UnitNumber: req.UnitNumber}
	if req.ControllerKey != 0 {
		spec.ControllerKey = &req.ControllerKey
	}
	return m.startOn(ctx, "AttachDisk_Task", req.This, func() (types.AnyType, types.BaseMethodFault) {
		defer m.volumeOps.lock(req.DiskId.Id)()
		live, d := m.fcd(req.DiskId.Id)
		vm := m.vm(req.This)
		switch {
		case vm == nil:
			return nil, &types.ManagedObjectNotFound{Obj: req.This}
		case live == nil:
			return nil, invalid("diskId")
		case d.datastore != req.Datastore:
			return nil, &types.InvalidDatastore{Datastore: &req.Datastore}
		}
		_, fault := m.attachDisk(live, vm, spec)
		return nil, cause(fault)
	})
}

// DetachDisk is VirtualMachine.DetachDisk_Task of vim25.
func (m *Manager) DetachDisk(ctx *simulator.Context, req *types.DetachDisk_Task) types.ManagedObjectReference {
	return m.startOn(ctx, "DetachDisk_Task", req.This, func() (types.AnyType, types.BaseMethodFault) {
		defer m.volumeOps.lock(req.DiskId.Id)()
		live, _ := m.fcd(req.DiskId.Id)
		vm := m.vm(req.This)
		switch {
		case vm == nil:
			return nil, &types.ManagedObjectNotFound{Obj: req.This}
		case live == nil:
			return nil, invalid("diskId")
		case !slices.ContainsFunc(m.holders(live), func(a attachment) bool { return a.vm == req.This }):
			return nil, &types.NotFound{}
		}
		return nil, cause(m.detachDisk(live, vm))
	})
}
