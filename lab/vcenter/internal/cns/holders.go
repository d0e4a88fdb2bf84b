package cns

import (
	"slices"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// holders are the VMs that have the disk. One that lost it behind our back, by a reconfiguration or because it was
// removed, holds it no longer, unless its attachment is stale. The caller holds the volume's operation lock.
func (m *Manager) holders(d *disk) []attachment {
	m.mu.Lock()
	believed := slices.Clone(d.attachments)
	m.mu.Unlock()
	var real []attachment
	for _, a := range believed {
		present := a.stale
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

func held(holders []attachment, vm types.ManagedObjectReference) bool {
	return slices.ContainsFunc(holders, func(a attachment) bool { return a.vm == vm })
}

// released records that a VM lost a disk and takes the device from the node.
func (m *Manager) released(d *disk, vm types.ManagedObjectReference) types.BaseMethodFault {
	m.mu.Lock()
	d.attachments = slices.DeleteFunc(slices.Clone(d.attachments), func(a attachment) bool { return a.vm == vm })
	if m.disks[d.id] == d {
		m.publish(d)
	}
	m.mu.Unlock()
	return m.withdraw(d, vm)
}

// withdraw takes the device from the node.
func (m *Manager) withdraw(d *disk, vm types.ManagedObjectReference) types.BaseMethodFault {
	if m.content != nil {
		if err := m.content.Detach(d.id, vm.Value); err != nil {
			return brokenTo(toDetach, err)
		}
	}
	return nil
}

// abandoned records that a VM which held the disk is gone. vCenter may go on believing that the VM has it.
func (m *Manager) abandoned(d *disk, vm types.ManagedObjectReference) {
	if assume.StaleAttachment.In(m.assumed) == "freed" {
		m.released(d, vm)
		return
	}
	m.mu.Lock()
	d.attachments = slices.Clone(d.attachments)
	for i := range d.attachments {
		if d.attachments[i].vm == vm {
			d.attachments[i].stale = true
		}
	}
	m.mu.Unlock()
	m.withdraw(d, vm)
}

// stale is the fault of an operation on a disk that a VM which is gone still holds.
func (m *Manager) stale(holders []attachment, step string) types.BaseMethodFault {
	if !slices.ContainsFunc(holders, func(a attachment) bool { return a.stale }) {
		return nil
	}
	if assume.StaleAttachment.In(m.assumed) == "ResourceInUse" {
		return inUse()
	}
	return failedTo(step, &types.InvalidState{})
}

// hindered is the fault of an operation on an attached disk whose VM cannot take part in it; nil if all can.
func (m *Manager) hindered(holders []attachment, step string) types.BaseMethodFault {
	if fault := m.stale(holders, step); fault != nil {
		return fault
	}
	for _, holder := range holders {
		vm := m.vm(holder.vm)
		if vm == nil {
			continue
		}
		var fault types.BaseMethodFault
		m.vim.WithLock(m.inventory(), vm, func() { fault = m.unready(vm) })
		if fault != nil {
			return fault
		}
	}
	return nil
}

// unready is the fault of changing a VM that its host cannot change now. The caller holds the VM's lock.
func (m *Manager) unready(vm *simulator.VirtualMachine) types.BaseMethodFault {
	if vm.Runtime.Host != nil {
		if fault := m.hostAway(*vm.Runtime.Host); fault != nil {
			return fault
		}
	}
	if vm.Runtime.ConnectionState != "" && vm.Runtime.ConnectionState != types.VirtualMachineConnectionStateConnected {
		return &types.InvalidState{}
	}
	return nil
}

func (m *Manager) hostAway(ref types.ManagedObjectReference) types.BaseMethodFault {
	host, ok := m.vim.Get(ref).(*simulator.HostSystem)
	if !ok {
		return nil
	}
	var state types.HostRuntimeInfo
	m.vim.WithLock(m.inventory(), host, func() { state = host.Runtime })
	switch {
	case state.ConnectionState != types.HostSystemConnectionStateConnected:
		return &types.HostNotConnected{}
	case state.InMaintenanceMode:
		return &types.InvalidHostState{Host: &ref}
	}
	return nil
}

// lockedBySnapshot tells whether a snapshot of the VM contains the disk. Independent disks are not part of one, nor are
// those that were attached later. The caller holds the VM's lock.
func (m *Manager) lockedBySnapshot(vm *simulator.VirtualMachine, id string) bool {
	if vm.Snapshot == nil {
		return false
	}
	return m.contains(vm.Snapshot.RootSnapshotList, id)
}

func (m *Manager) contains(tree []types.VirtualMachineSnapshotTree, id string) bool {
	return slices.ContainsFunc(tree, func(node types.VirtualMachineSnapshotTree) bool {
		if taken, ok := m.vim.Get(node.Snapshot).(*simulator.VirtualMachineSnapshot); ok {
			d := newDeviceList(taken.Config.Hardware.Device).findDisk(ofVolume(id))
			if d != nil && !independent(d) {
				return true
			}
		}
		return m.contains(node.ChildSnapshotList, id)
	})
}

func independent(d *types.VirtualDisk) bool {
	backing, ok := d.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
	if !ok {
		return false
	}
	switch types.VirtualDiskMode(backing.DiskMode) {
	case types.VirtualDiskModeIndependent_persistent, types.VirtualDiskModeIndependent_nonpersistent:
		return true
	}
	return false
}

// partOfSnapshot tells whether a snapshot of some VM contains the disk.
func (m *Manager) partOfSnapshot(id string, holders []attachment) (part bool) {
	for _, holder := range holders {
		if vm := m.vm(holder.vm); vm != nil {
			m.vim.WithLock(m.inventory(), vm, func() { part = part || m.lockedBySnapshot(vm, id) })
		}
	}
	return part
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

// occupyAll takes the VMs that have a disk for a snapshot of it. Unlike an attach, that does not wait for a busy VM.
func (m *Manager) occupyAll(holders []attachment, step string) (release func(), fault types.BaseMethodFault) {
	refs := make([]string, 0, len(holders))
	for _, holder := range holders {
		refs = append(refs, holder.vm.Value)
	}
	work := func() bool { return slices.ContainsFunc(holders, func(a attachment) bool { return m.works(a.vm) }) }
	if !work() {
		if free, ok := m.vmOps.tryLockAll(refs); ok {
			return free, nil
		}
	}
	switch assume.BusySnapshot.In(m.assumed) {
	case "CnsFault":
		return nil, failedTo(step, &types.InvalidState{})
	case "InvalidState":
		return nil, &types.InvalidState{}
	case "TaskInProgress":
		return nil, &types.TaskInProgress{}
	case "FileLocked":
		return nil, failedTo(step, &types.FileLocked{})
	}
	for work() {
		time.Sleep(workPoll)
	}
	return m.vmOps.lockAll(refs), nil
}

// workPoll is how often a snapshot that waits looks whether its VM is free.
const workPoll = 10 * time.Millisecond

// works reports whether an attach or detach has the VM for itself while its task takes its time.
func (m *Manager) works(vm types.ManagedObjectReference) bool {
	return m.working != nil && m.working(vm)
}

// fileLocked is the fault of writing to the files of a disk while its VM is busy.
func (m *Manager) fileLocked(id string) types.BaseMethodFault {
	live, d := m.fcd(id)
	if live == nil || !slices.ContainsFunc(d.attachments, func(a attachment) bool { return m.Busy(a.vm) }) {
		return nil
	}
	if assume.BusyMetadata.In(m.assumed) == "success" {
		return nil
	}
	return cnsFault(&types.FileLocked{}, "CNS: Unable to acquire the file lock of volume %s", id)
}

// SetBusy makes a VM busy with something that is not ours, such as a backup, or ends that. It waits for operations of
// CNS on the VM, as other tasks of vCenter do.
func (m *Manager) SetBusy(vm types.ManagedObjectReference, busy bool) {
	m.busy.Lock()
	defer m.busy.Unlock()
	free, was := m.busyVMs[vm]
	switch {
	case busy && !was:
		m.busyVMs[vm] = m.vmOps.lock(vm.Value)
	case was && !busy:
		delete(m.busyVMs, vm)
		free()
	}
}

// Exclusive reports whether something has a VM for itself: what SetBusy stands for, or an attach or detach that takes its time.
func (m *Manager) Exclusive(vm types.ManagedObjectReference) bool { return m.Busy(vm) || m.works(vm) }

// Busy tells whether SetBusy made a VM busy.
func (m *Manager) Busy(vm types.ManagedObjectReference) bool {
	m.busy.Lock()
	defer m.busy.Unlock()
	_, busy := m.busyVMs[vm]
	return busy
}
