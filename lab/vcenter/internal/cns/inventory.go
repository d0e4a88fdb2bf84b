package cns

import (
	"slices"

	"github.com/vmware/govmomi/cns"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// inventoryWatch hears what others do to VMs: one that leaves the inventory or is reconfigured frees its disks, one whose
// storage moves takes them along.
type inventoryWatch struct {
	m *Manager
}

// Reference tells the registry's listeners apart.
func (w *inventoryWatch) Reference() types.ManagedObjectReference {
	return cns.CnsVolumeManagerInstance
}

// PutObject is for simulator.RegisterObject.
func (w *inventoryWatch) PutObject(*simulator.Context, mo.Reference) {}

// UpdateObject compares a VM's devices with what we know. The VM's lock is held.
func (w *inventoryWatch) UpdateObject(_ *simulator.Context, object mo.Reference, changes []types.PropertyChange) {
	vm, ok := object.(*mo.VirtualMachine)
	if !ok || vm.Config == nil {
		return
	}
	if !slices.ContainsFunc(changes, func(c types.PropertyChange) bool {
		return c.Name == "config.hardware.device" || c.Name == "config.hardware"
	}) {
		return
	}
	devices := newDeviceList(vm.Config.Hardware.Device)
	for _, d := range w.m.disksOf(vm.Self) {
		device := devices.findDisk(ofVolume(d.id))
		if device == nil {
			w.m.lost(d, vm.Self)
			continue
		}
		if backing, ok := device.Backing.(types.BaseVirtualDeviceFileBackingInfo); ok {
			w.m.moved(d, backing.GetVirtualDeviceFileBackingInfo())
		}
	}
}

// lost is released, for an attachment that is not stale: that one does not depend on what the VM has.
func (m *Manager) lost(d *disk, vm types.ManagedObjectReference) {
	m.mu.Lock()
	stale := slices.ContainsFunc(d.attachments, func(a attachment) bool { return a.vm == vm && a.stale })
	m.mu.Unlock()
	if !stale {
		m.released(d, vm)
	}
}

// moved follows a disk to where its VM's storage went. CNS hears of it later, or loses the disk.
func (m *Manager) moved(d *disk, backing *types.VirtualDeviceFileBackingInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d.relocating || backing.Datastore == nil || (*backing.Datastore == d.datastore && backing.FileName == d.path) {
		return
	}
	was := m.recall(d.id)
	if source, ok := m.datastore(d.datastore); ok {
		removeDescriptor(source.dir, d.path)
	}
	if *backing.Datastore != d.datastore {
		m.giveBack(d.datastore, d.taken)
		d.taken, _ = m.takeFor(*d, *backing.Datastore, d.capacityMB*mib)
		d.datastore = *backing.Datastore
	}
	d.path, d.beside = backing.FileName, true
	if m.disks[d.id] != d {
		return
	}
	if assume.VMotionLosesVolumes.In(m.assumed) {
		d.lost = true
		m.unpublish(d)
		return
	}
	m.publish(d)
	m.outside(was)
}

// RemoveObject takes FCDs off a VM before the VM's files are deleted. A disk whose keepAfterDeleteVm is not
// set stays on the VM and is deleted with it; the next sync then finds it gone.
func (w *inventoryWatch) RemoveObject(ctx *simulator.Context, ref types.ManagedObjectReference) {
	vm, ok := w.m.vim.Get(ref).(*simulator.VirtualMachine)
	if !ok {
		return
	}
	lost := w.m.disksOf(ref)
	if len(lost) == 0 {
		return
	}
	kept := map[*disk]bool{}
	w.m.mu.Lock()
	for _, d := range lost {
		kept[d] = d.keep
	}
	w.m.mu.Unlock()
	// Before the device goes: what UpdateObject sees must not free a disk that stays held.
	for _, d := range lost {
		if kept[d] {
			w.m.abandoned(d, ref)
		} else {
			w.m.released(d, ref)
		}
	}
	ctx.WithLock(vm, func() {
		if vm.Config == nil {
			return
		}
		devices := newDeviceList(vm.Config.Hardware.Device)
		for _, d := range lost {
			if kept[d] {
				devices.remove(d.id)
			}
		}
		devices.store(ctx, vm)
	})
}

// disksOf are the disks a VM has.
func (m *Manager) disksOf(vm types.ManagedObjectReference) []*disk {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []*disk
	for _, d := range m.disks {
		if slices.ContainsFunc(d.attachments, func(a attachment) bool { return a.vm == vm }) {
			list = append(list, d)
		}
	}
	return list
}
