package cns

import (
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// checkDetach refuses a whole detach call, before there is a task.
func (m *Manager) checkDetach(specs []cnstypes.CnsVolumeAttachDetachSpec) types.BaseMethodFault {
	if fault := m.checkSpecs(specs); fault != nil {
		return fault
	}
	for _, spec := range specs {
		if m.vm(spec.Vm) == nil {
			continue // the volume's fault
		}
		v, present := m.presenceOf(spec.VolumeId.Id)
		switch {
		case present == diskOnly && assume.DetachUnregistered.In(m.assumed) == "call":
			return &types.NotFound{}
		case present == complete && v.disk != nil && !held(m.attached(v.disk), spec.Vm) && assume.DetachNotAttached.In(m.assumed) == "call":
			return &types.NotFound{}
		}
	}
	return nil
}

// attached is what holders gives, for a caller that must not wait for operations on the volume.
func (m *Manager) attached(d *disk) []attachment {
	m.mu.Lock()
	defer m.mu.Unlock()
	return d.attachments
}

// detachVolumes is CnsDetachVolume.
func (m *Manager) detachVolumes(specs []cnstypes.CnsVolumeAttachDetachSpec) (types.AnyType, types.BaseMethodFault) {
	result := batch()
	for _, spec := range specs {
		result.VolumeResults = append(result.VolumeResults, outcome(spec.VolumeId.Id, m.wrap(m.detachVolume(spec))))
	}
	return result, nil
}

func (m *Manager) detachVolume(spec cnstypes.CnsVolumeAttachDetachSpec) types.BaseMethodFault {
	id := spec.VolumeId.Id
	defer m.volumeOps.lock(id)()
	v, present := m.presenceOf(id)
	if present == diskOnly && assume.DetachUnregistered.In(m.assumed) != "notRegistered" {
		return &types.NotFound{}
	}
	if fault := m.unusable(id, present); fault != nil {
		return fault
	}
	vm := m.vm(spec.Vm)
	switch {
	case vm == nil:
		return &types.ManagedObjectNotFound{Obj: spec.Vm}
	case v.disk == nil:
		return &types.NotSupported{}
	}
	if !held(m.holders(v.disk), spec.Vm) {
		switch assume.DetachNotAttached.In(m.assumed) {
		case "CnsFault":
			return failedTo(toDetach, &types.NotFound{})
		case "InvalidArgument":
			return invalid("volumeId")
		}
		return &types.NotFound{}
	}
	return m.detachDisk(v.disk, vm)
}

// detachDisk takes an FCD off a VM that has it. The caller holds the operation lock of the disk.
func (m *Manager) detachDisk(d *disk, vm *simulator.VirtualMachine) types.BaseMethodFault {
	release, fault := m.occupy(vm.Self)
	if fault != nil {
		return fault
	}
	defer release()
	m.vim.WithLock(m.inventory(), vm, func() { fault = m.fixed(vm, d.id) })
	if fault != nil {
		return fault
	}
	m.unplug(vm, d.id)
	return m.released(d, vm.Self)
}

// fixed is the fault of taking a disk off a VM that cannot let go of it. The caller holds the VM's lock.
func (m *Manager) fixed(vm *simulator.VirtualMachine, id string) types.BaseMethodFault {
	if fault := m.unready(vm); fault != nil {
		return fault
	}
	if fault := m.suspended(vm, toDetach); fault != nil {
		return fault
	}
	if !m.lockedBySnapshot(vm, id) {
		return nil
	}
	if assume.DetachWithVMSnapshot.In(m.assumed) == "CnsFault" {
		return failedTo(toDetach, &types.InvalidDeviceSpec{})
	}
	return &types.InvalidDeviceSpec{}
}

// unplug takes the disk off the VM.
func (m *Manager) unplug(vm *simulator.VirtualMachine, id string) {
	ctx := m.inventory()
	m.vim.WithLock(ctx, vm, func() {
		if vm.Config == nil {
			return
		}
		devices := newDeviceList(vm.Config.Hardware.Device)
		if devices.remove(id) {
			devices.store(ctx, vm)
		}
	})
}
