package cns

import (
	"fmt"
	"hash/fnv"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// extendVolumes is CnsExtendVolume: one volume a call.
func (m *Manager) extendVolumes(specs []cnstypes.CnsVolumeExtendSpec) (types.AnyType, types.BaseMethodFault) {
	if len(specs) != 1 {
		return nil, invalid("InputSpec")
	}
	return batch(outcome(specs[0].VolumeId.Id, m.wrap(m.extendVolume(specs[0].VolumeId.Id, specs[0].CapacityInMb)))), nil
}

func (m *Manager) extendVolume(id string, capacityMB int64) types.BaseMethodFault {
	defer m.volumeOps.lock(id)()
	v, present := m.presenceOf(id)
	if fault := m.unusable(id, present); fault != nil {
		return fault
	}
	if v.disk == nil {
		return m.extendShare(v, capacityMB)
	}
	return m.extendDisk(id, capacityMB)
}

// extendDisk grows an FCD and its devices. The caller holds the operation lock of the disk.
func (m *Manager) extendDisk(id string, capacityMB int64) types.BaseMethodFault {
	live, d := m.fcd(id)
	if live == nil {
		return &types.NotFound{}
	}
	grow := capacityMB - d.capacityMB
	switch {
	case capacityMB > int64(assume.MaxVolumeMB.In(m.assumed)):
		return invalid("extendSpecs.capacityInMb")
	case grow < 0:
		return m.shrink()
	case grow == 0 && assume.ExtendSameSize.In(m.assumed):
		return nil
	case grow == 0:
		return invalid("extendSpecs.capacityInMb")
	}
	at, fault := m.onDatastore(d.datastore, toExtend)
	if fault != nil {
		return fault
	}
	holders := m.holders(live)
	if fault := m.hindered(holders, toExtend); fault != nil {
		return fault
	}
	if fault := m.rigid(d, holders); fault != nil {
		return fault
	}
	taken, enough := m.takeFor(d, d.datastore, grow*mib)
	if !enough {
		return m.outOfSpace("extend", at.name)
	}
	if m.content != nil && d.filled {
		if err := m.content.Extend(id, capacityMB*mib); err != nil {
			m.giveBack(d.datastore, taken)
			return brokenTo(toExtend, err)
		}
	}
	if err := writeDescriptor(at.dir, d.path, capacityMB); err != nil {
		return brokenTo(toExtend, err)
	}
	m.mu.Lock()
	live.capacityMB = capacityMB
	live.taken += taken
	m.publish(live)
	m.mu.Unlock()
	m.redraw(id, holders, func(device *types.VirtualDisk) {
		device.CapacityInKB = capacityMB * 1024
		device.CapacityInBytes = capacityMB * mib
		if info := device.DeviceInfo; info != nil {
			device.DeviceInfo = &types.Description{Label: info.GetDescription().Label, Summary: fmt.Sprintf("%d KB", device.CapacityInKB)}
		}
	})
	return nil
}

// shrink is the answer to a size below the present one.
func (m *Manager) shrink() types.BaseMethodFault {
	switch assume.ExtendSmaller.In(m.assumed) {
	case "success":
		return nil
	case "CnsFault":
		return failedTo(toExtend, invalid("newCapacityInMB"))
	}
	return invalid("extendSpecs.capacityInMb")
}

// rigid is the fault of extending a disk whose snapshots or VM forbid it.
func (m *Manager) rigid(d disk, holders []attachment) types.BaseMethodFault {
	attached := len(holders) > 0
	if attached && !assume.OnlineExtend.In(m.assumed) {
		return failedTo(toExtend, &types.InvalidState{})
	}
	if attached && m.partOfSnapshot(d.id, holders) {
		return failedTo(toExtend, hotExtendFault())
	}
	if len(d.snapshots) == 0 {
		return nil
	}
	switch assume.ExtendWithSnapshots.In(m.assumed) {
	case "always":
		return nil
	case "detached":
		if !attached {
			return nil
		}
	case "some":
		if evenID(d.id) {
			return nil
		}
	}
	if attached {
		return failedTo(toExtend, hotExtendFault())
	}
	return failedTo(toExtend, &types.SystemError{
		Reason: "The called function cannot be performed on partial chains. Open the parent virtual disk: api = DiskLib_Grow",
	})
}

func hotExtendFault() types.BaseMethodFault {
	return &types.GenericVmConfigFault{
		Reason: "The disk extend operation failed: The virtual disk requires a feature not supported by this program " +
			"Hot-extend is currently supported only for VMFS flat virtual disks without snapshots opened in persistent mode",
	}
}

// evenID splits disks into two halves that stay the same from run to run if the ids do.
func evenID(id string) bool {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(id))
	return sum.Sum32()%2 == 0
}

// redraw changes the disk's device on the VMs that have it.
func (m *Manager) redraw(id string, holders []attachment, change func(*types.VirtualDisk)) {
	for _, holder := range holders {
		vm := m.vm(holder.vm)
		if vm == nil {
			continue
		}
		ctx := m.inventory()
		m.vim.WithLock(ctx, vm, func() {
			devices := newDeviceList(vm.Config.Hardware.Device)
			old := devices.findDisk(ofVolume(id))
			if old == nil {
				return
			}
			changed := *old
			change(&changed)
			devices.replace(&changed)
			devices.store(ctx, vm)
		})
	}
}
