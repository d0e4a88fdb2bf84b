package cns

import (
	"slices"
	"strings"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

const multiWriter = string(types.VirtualDiskSharingSharingMultiWriter)

// checkAttach refuses a whole attach or detach call, before there is a task.
func (m *Manager) checkAttach(specs []cnstypes.CnsVolumeAttachDetachSpec) types.BaseMethodFault {
	if len(specs) == 0 || (len(specs) > 1 && !assume.BatchAttach.In(m.assumed)) {
		return invalid("InputSpec")
	}
	for _, spec := range specs {
		if assume.UnknownVM.In(m.assumed) == "call" && m.vm(spec.Vm) == nil {
			return &types.ManagedObjectNotFound{Obj: spec.Vm}
		}
		// Releases that have a fault of their own for it report it with the volume.
		if !m.since("8.0U3") && m.lookup(spec.VolumeId.Id) == nil {
			return m.notRegistered(spec.VolumeId.Id)
		}
	}
	return nil
}

func (m *Manager) vm(ref types.ManagedObjectReference) *simulator.VirtualMachine {
	vm, _ := m.vim.Get(ref).(*simulator.VirtualMachine)
	return vm
}

// attachVolumes is CnsAttachVolume.
func (m *Manager) attachVolumes(specs []cnstypes.CnsVolumeAttachDetachSpec) (types.AnyType, types.BaseMethodFault) {
	result := batch()
	for _, spec := range specs {
		diskUUID, fault := m.attachVolume(spec)
		result.VolumeResults = append(result.VolumeResults, &cnstypes.CnsVolumeAttachResult{
			CnsVolumeOperationResult: *outcome(spec.VolumeId.Id, fault), DiskUUID: diskUUID,
		})
	}
	return result, nil
}

// occupy waits for the VM, or refuses while another operation has it.
func (m *Manager) occupy(vm types.ManagedObjectReference) (release func(), fault types.BaseMethodFault) {
	if assume.BusyVM.In(m.assumed) == "wait" {
		return m.vmOps.lock(vm.Value), nil
	}
	release, ok := m.vmOps.tryLock(vm.Value)
	if !ok {
		return nil, &types.TaskInProgress{}
	}
	return release, nil
}

func (m *Manager) attachVolume(spec cnstypes.CnsVolumeAttachDetachSpec) (string, types.BaseMethodFault) {
	id := spec.VolumeId.Id
	defer m.volumeOps.lock(id)()
	v, vm := m.lookup(id), m.vm(spec.Vm)
	switch {
	case v == nil:
		return "", m.notRegistered(id)
	case vm == nil:
		return "", &types.ManagedObjectNotFound{Obj: spec.Vm}
	case v.disk == nil:
		return "", &types.NotSupported{}
	}
	return m.attachDisk(v.disk, vm, spec)
}

// attachDisk puts an FCD on a VM. The caller holds the operation lock of the disk.
func (m *Manager) attachDisk(d *disk, vm *simulator.VirtualMachine, spec cnstypes.CnsVolumeAttachDetachSpec) (string, types.BaseMethodFault) {
	switch {
	case spec.DiskMode != "" && !slices.Contains(types.VirtualDiskMode("").Strings(), spec.DiskMode):
		return "", invalid("attachSpecs.diskMode")
	case spec.Sharing != "" && !slices.Contains(types.VirtualDiskSharing("").Strings(), spec.Sharing):
		return "", invalid("attachSpecs.sharing")
	}
	release, fault := m.occupy(spec.Vm)
	if fault != nil {
		return "", fault
	}
	defer release()

	for _, holder := range m.holders(d) {
		if holder.vm == spec.Vm && assume.AttachSameVM.In(m.assumed) == "success" {
			return d.uuid, nil
		}
		shared := holder.sharing == multiWriter && spec.Sharing == multiWriter && assume.MultiWriter.In(m.assumed)
		if holder.vm == spec.Vm || !shared {
			return "", &types.ResourceInUse{Type: "VStorageObject", Name: d.id}
		}
	}
	m.mu.Lock()
	datastore := d.datastore
	m.mu.Unlock()
	at, ok := m.datastore(datastore)
	if !ok || !at.accessible {
		return "", cnsFault(&types.InvalidDatastoreState{DatastoreName: at.name}, "CNS: Failed to attach disk when calling AttachDisk:Fault cause: vim.fault.InvalidDatastoreState")
	}
	biosUUID, visible, fault := m.plug(vm, d, at, spec)
	if fault != nil {
		return "", fault
	}
	if m.content != nil {
		err := m.fill(d)
		if err == nil {
			err = m.content.Attach(d.id, spec.Vm.Value, biosUUID, d.uuid, visible)
		}
		if err != nil {
			m.unplug(vm, d.id)
			m.released(d, spec.Vm)
			return "", cnsFault(&types.SystemError{Reason: err.Error()}, "CNS: Failed to attach disk when calling AttachDisk:Fault cause: vmodl.fault.SystemError")
		}
	}
	return d.uuid, nil
}

// plug puts the disk on the VM, if the VM can take it, and notes that while nobody else can change the VM.
func (m *Manager) plug(vm *simulator.VirtualMachine, d *disk, at place, spec cnstypes.CnsVolumeAttachDetachSpec) (biosUUID string, visible bool, fault types.BaseMethodFault) {
	m.mu.Lock()
	device, path := newVirtualDisk(d, spec), d.path
	m.mu.Unlock()
	ctx := m.inventory()
	m.vim.WithLock(ctx, vm, func() {
		if m.vm(vm.Self) == nil || vm.Config == nil {
			fault = &types.ManagedObjectNotFound{Obj: vm.Self}
			return
		}
		if vm.Runtime.ConnectionState != "" && vm.Runtime.ConnectionState != types.VirtualMachineConnectionStateConnected {
			fault = &types.InvalidState{}
			return
		}
		if vm.Config.Template {
			fault = &types.NotSupported{}
			return
		}
		if host := vm.Runtime.Host; host != nil {
			if fault = m.reachable(*host, at, path); fault != nil {
				return
			}
		}
		devices := newDeviceList(vm.Config.Hardware.Device)
		if fault = m.seat(devices, vm.Config.Version, device, spec); fault != nil {
			return
		}
		biosUUID = vm.Config.Uuid
		visible = !assume.LinkNeedsEnableUUID.In(m.assumed) || enableUUID(vm.Config.ExtraConfig)
		m.mu.Lock()
		d.attachments = append(slices.Clone(d.attachments), attachment{vm: vm.Self, sharing: spec.Sharing})
		m.publish(d)
		m.mu.Unlock()
		devices.store(ctx, vm)
	})
	return biosUUID, visible, fault
}

// reachable refuses a host that is away or does not mount the disk's datastore.
func (m *Manager) reachable(ref types.ManagedObjectReference, at place, path string) types.BaseMethodFault {
	if host, ok := m.vim.Get(ref).(*simulator.HostSystem); ok {
		state := types.HostSystemConnectionStateConnected
		m.vim.WithLock(m.inventory(), host, func() { state = host.Runtime.ConnectionState })
		if state != types.HostSystemConnectionStateConnected {
			return &types.HostNotConnected{}
		}
	}
	if assume.DatastoreMustReachVM.In(m.assumed) && !slices.Contains(at.hosts, ref) {
		return cnsFault(&types.CannotAccessFile{FileFault: types.FileFault{File: path}},
			"CNS: Failed to attach disk when calling AttachDisk:Fault cause: vim.fault.CannotAccessFile: host %s does not mount datastore %s", ref.Value, at.name)
	}
	return nil
}

func enableUUID(extra []types.BaseOptionValue) bool {
	for _, base := range extra {
		option := base.GetOptionValue()
		value, _ := option.Value.(string)
		if strings.EqualFold(option.Key, "disk.EnableUUID") {
			return strings.EqualFold(value, "TRUE") || value == "1"
		}
	}
	return false
}

// detachVolumes is CnsDetachVolume.
func (m *Manager) detachVolumes(specs []cnstypes.CnsVolumeAttachDetachSpec) (types.AnyType, types.BaseMethodFault) {
	result := batch()
	for _, spec := range specs {
		result.VolumeResults = append(result.VolumeResults, outcome(spec.VolumeId.Id, m.detachVolume(spec)))
	}
	return result, nil
}

func (m *Manager) detachVolume(spec cnstypes.CnsVolumeAttachDetachSpec) types.BaseMethodFault {
	id := spec.VolumeId.Id
	defer m.volumeOps.lock(id)()
	v, vm := m.lookup(id), m.vm(spec.Vm)
	switch {
	case v == nil:
		return m.notRegistered(id)
	case vm == nil:
		return &types.ManagedObjectNotFound{Obj: spec.Vm}
	case v.disk == nil:
		return &types.NotSupported{}
	}
	if !slices.ContainsFunc(m.holders(v.disk), func(a attachment) bool { return a.vm == spec.Vm }) {
		switch assume.DetachNotAttached.In(m.assumed) {
		case "CnsFault":
			return cnsFault(&types.NotFound{}, "CNS: Failed to detach disk when calling DetachDisk:Fault cause: vim.fault.NotFound")
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
	m.unplug(vm, d.id)
	return m.released(d, vm.Self)
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

// released records that a VM lost a disk and takes the device from the node.
func (m *Manager) released(d *disk, vm types.ManagedObjectReference) types.BaseMethodFault {
	m.mu.Lock()
	d.attachments = slices.DeleteFunc(slices.Clone(d.attachments), func(a attachment) bool { return a.vm == vm })
	if m.disks[d.id] == d {
		m.publish(d)
	}
	m.mu.Unlock()
	if m.content != nil {
		if err := m.content.Detach(d.id, vm.Value); err != nil {
			return cnsFault(&types.SystemError{Reason: err.Error()}, "CNS: Failed to detach disk when calling DetachDisk:Fault cause: vmodl.fault.SystemError")
		}
	}
	return nil
}

// holders are the VMs that have the disk. One that lost it behind our back, by a reconfiguration or because it was
// removed, holds it no longer. The caller holds the volume's operation lock.
func (m *Manager) holders(d *disk) []attachment {
	m.mu.Lock()
	believed := slices.Clone(d.attachments)
	m.mu.Unlock()
	var real []attachment
	for _, a := range believed {
		present := false
		if vm := m.vm(a.vm); vm != nil {
			m.vim.WithLock(m.inventory(), vm, func() {
				present = vm.Config != nil && newDeviceList(vm.Config.Hardware.Device).has(d.id)
			})
		}
		if present {
			real = append(real, a)
			continue
		}
		m.released(d, a.vm)
	}
	return real
}
