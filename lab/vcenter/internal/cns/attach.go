package cns

import (
	"slices"
	"strings"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
	"vsphere-drivers.example/lab/vcenter/internal/disks"
)

const multiWriter = string(types.VirtualDiskSharingSharingMultiWriter)

// checkSpecs refuses a whole attach or detach call, before there is a task. CNS looks for the volume first: it needs its
// datastore to check privileges.
func (m *Manager) checkSpecs(specs []cnstypes.CnsVolumeAttachDetachSpec) types.BaseMethodFault {
	if len(specs) == 0 || (len(specs) > 1 && !assume.BatchAttach.In(m.assumed)) {
		return invalid("InputSpec")
	}
	for _, spec := range specs {
		if fault := m.refuseUnknown(spec.VolumeId.Id); fault != nil {
			return fault
		}
		if m.vm(spec.Vm) == nil && assume.UnknownVM.In(m.assumed) == "call" {
			return &types.ManagedObjectNotFound{Obj: spec.Vm}
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

func (m *Manager) attachVolume(spec cnstypes.CnsVolumeAttachDetachSpec) (string, types.BaseMethodFault) {
	id := spec.VolumeId.Id
	defer m.volumeOps.lock(id)()
	v, present := m.presenceOf(id)
	if fault := m.unusable(id, present); fault != nil {
		return "", fault
	}
	vm := m.vm(spec.Vm)
	switch {
	case vm == nil:
		return "", &types.ManagedObjectNotFound{Obj: spec.Vm}
	case v.disk == nil:
		return "", &types.NotSupported{}
	}
	diskUUID, fault := m.attachDisk(v.disk, vm, spec)
	return diskUUID, m.wrap(fault)
}

// checkModes refuses a disk mode or sharing that does not exist, and perhaps one that does not fit the other.
func (m *Manager) checkModes(spec cnstypes.CnsVolumeAttachDetachSpec) types.BaseMethodFault {
	switch {
	case spec.DiskMode != "" && !slices.Contains(types.VirtualDiskMode("").Strings(), spec.DiskMode):
		return invalid("attachSpecs.diskMode")
	case spec.Sharing != "" && !slices.Contains(types.VirtualDiskSharing("").Strings(), spec.Sharing):
		return invalid("attachSpecs.sharing")
	}
	shared, alone := spec.Sharing == multiWriter, spec.DiskMode == string(types.VirtualDiskModeIndependent_persistent)
	if shared != alone && assume.SharedDiskMode.In(m.assumed) == "independent" {
		return invalid("attachSpecs.diskMode")
	}
	return nil
}

// attachDisk puts an FCD on a VM. The caller holds the operation lock of the disk.
func (m *Manager) attachDisk(d *disk, vm *simulator.VirtualMachine, spec cnstypes.CnsVolumeAttachDetachSpec) (string, types.BaseMethodFault) {
	if fault := m.checkModes(spec); fault != nil {
		return "", fault
	}
	release, fault := m.occupy(spec.Vm)
	if fault != nil {
		return "", fault
	}
	defer release()

	holders := m.holders(d)
	if fault := m.stale(holders, toAttach); fault != nil {
		return "", fault
	}
	for _, holder := range holders {
		if holder.vm == spec.Vm && assume.AttachSameVM.In(m.assumed) == "success" {
			return d.uuid, nil
		}
		shared := holder.sharing == multiWriter && spec.Sharing == multiWriter && assume.MultiWriter.In(m.assumed)
		if holder.vm == spec.Vm || !shared {
			return "", inUse()
		}
	}
	m.mu.Lock()
	datastore := d.datastore
	m.mu.Unlock()
	at, fault := m.onDatastore(datastore, toAttach)
	if fault != nil {
		return "", fault
	}
	biosUUID, link, fault := m.plug(vm, d, at, spec)
	if fault != nil {
		return "", fault
	}
	if m.content != nil {
		err := m.fill(d)
		if err == nil {
			err = m.content.Attach(d.id, spec.Vm.Value, biosUUID, link)
		}
		if err != nil {
			m.unplug(vm, d.id)
			m.released(d, spec.Vm)
			return "", brokenTo(toAttach, err)
		}
	}
	return d.uuid, nil
}

// plug puts the disk on the VM, if the VM can take it, and notes that while nobody else can change the VM. The link is
// the name under which the guest finds the disk, empty when it finds it under none.
func (m *Manager) plug(vm *simulator.VirtualMachine, d *disk, at place, spec cnstypes.CnsVolumeAttachDetachSpec) (biosUUID, link string, fault types.BaseMethodFault) {
	m.mu.Lock()
	device, copied := newVirtualDisk(d, spec), *d
	m.mu.Unlock()
	ctx := m.inventory()
	m.vim.WithLock(ctx, vm, func() {
		if m.vm(vm.Self) == nil || vm.Config == nil {
			fault = &types.ManagedObjectNotFound{Obj: vm.Self}
			return
		}
		if fault = m.unfit(vm, copied, at); fault != nil {
			return
		}
		devices := newDeviceList(vm.Config.Hardware.Device)
		var on bus
		if on, fault = m.seat(devices, vm.Config.Version, device, spec); fault != nil {
			return
		}
		biosUUID = vm.Config.Uuid
		if enableUUID(vm.Config.ExtraConfig) || !assume.LinkNeedsEnableUUID.In(m.assumed) {
			link = disks.LinkName(d.uuid)
			if on.nvme {
				link = disks.NVMeLinkName(d.uuid)
			}
		}
		m.mu.Lock()
		d.attachments = append(slices.Clone(d.attachments), attachment{vm: vm.Self, sharing: spec.Sharing})
		m.publish(d)
		m.mu.Unlock()
		devices.store(ctx, vm)
	})
	return biosUUID, link, fault
}

// unfit is the fault of attaching a disk to a VM that cannot take it. The caller holds the VM's lock.
func (m *Manager) unfit(vm *simulator.VirtualMachine, d disk, at place) types.BaseMethodFault {
	if fault := m.unready(vm); fault != nil {
		return fault
	}
	if vm.Config.Template {
		return &types.NotSupported{}
	}
	if fault := m.suspended(vm, toAttach); fault != nil {
		return fault
	}
	if host := vm.Runtime.Host; host != nil && !slices.Contains(at.hosts, *host) && assume.DatastoreMustReachVM.In(m.assumed) {
		return failedTo(toAttach, &types.CannotAccessFile{FileFault: types.FileFault{File: d.path}})
	}
	if d.tracking && !tracks(vm) && assume.TrackingMismatch.In(m.assumed) {
		return failedTo(toAttach, &types.InvalidState{})
	}
	return m.related(vm, d)
}

func (m *Manager) suspended(vm *simulator.VirtualMachine, step string) types.BaseMethodFault {
	const suspended = types.VirtualMachinePowerStateSuspended
	if vm.Runtime.PowerState != suspended || assume.SuspendedVM.In(m.assumed) == "success" {
		return nil
	}
	return failedTo(step, &types.InvalidPowerState{RequestedState: types.VirtualMachinePowerStatePoweredOn, ExistingState: suspended})
}

// tracks tells whether the VM tracks changed blocks, by its property or by the setting that stands for it.
func tracks(vm *simulator.VirtualMachine) bool {
	on := vm.Config.ChangeTrackingEnabled
	return (on != nil && *on) || isSet(vm.Config.ExtraConfig, "ctkEnabled")
}

// related refuses a second disk of one family: linked clones and what they were cloned from. The caller holds the VM's
// lock.
func (m *Manager) related(vm *simulator.VirtualMachine, d disk) types.BaseMethodFault {
	const text = "Attaching mutually shared fcd disks to same VM is not supported."
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, device := range vm.Config.Hardware.Device {
		present, ok := device.(*types.VirtualDisk)
		if !ok || present.VDiskId == nil || present.VDiskId.Id == d.id {
			continue
		}
		if other := m.disks[present.VDiskId.Id]; other != nil && other.ancestor() == d.ancestor() {
			fault := &types.NotSupported{}
			fault.FaultMessage = []types.LocalizableMessage{{Key: "vslm.attach.sharedDisks", Message: text}}
			return failedTo(toAttach, fault)
		}
	}
	return nil
}

// ancestor is the disk that the linked clones of a family come from.
func (d *disk) ancestor() string {
	if d.family != "" {
		return d.family
	}
	return d.id
}

// link notes that a disk, if it was made, is a linked clone of another.
func (m *Manager) link(id string, original disk) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d, ok := m.disks[id]; ok {
		d.family = original.ancestor()
	}
}

func enableUUID(extra []types.BaseOptionValue) bool { return isSet(extra, "disk.EnableUUID") }

func isSet(extra []types.BaseOptionValue, key string) bool {
	for _, base := range extra {
		option := base.GetOptionValue()
		value, _ := option.Value.(string)
		if strings.EqualFold(option.Key, key) {
			return strings.EqualFold(value, "TRUE") || value == "1"
		}
	}
	return false
}
