package cns

import (
	"fmt"

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
	v := m.lookup(id)
	if v == nil {
		return &types.NotFound{}
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
	assumed := m.assumed
	grow := capacityMB - d.capacityMB
	holders := m.holders(live)
	switch {
	case grow < 0 || capacityMB > int64(assume.MaxVolumeMB.In(assumed)):
		return invalid("extendSpecs.capacityInMb")
	case grow == 0 && assume.ExtendSameSize.In(assumed):
		return nil
	case grow == 0:
		return invalid("extendSpecs.capacityInMb")
	case len(d.snapshots) > 0 && !assume.ExtendWithSnapshots.In(assumed):
		return cnsFault(&types.InvalidState{}, "CNS: Failed to extend disk.:Fault cause: vim.fault.InvalidState: disk %s has %d snapshots", id, len(d.snapshots))
	case len(holders) > 0 && !assume.OnlineExtend.In(assumed):
		return cnsFault(&types.InvalidState{}, "CNS: Failed to extend disk.:Fault cause: vim.fault.InvalidState: disk %s is attached", id)
	}
	at, _ := m.datastore(d.datastore)
	taken, enough := m.takeFor(d, d.datastore, grow*mib)
	if !enough {
		return m.outOfSpace("extend", at.name)
	}
	if m.content != nil && d.filled {
		if err := m.content.Extend(id, capacityMB*mib); err != nil {
			m.giveBack(d.datastore, taken)
			return cnsFault(&types.SystemError{Reason: err.Error()}, "CNS: Failed to extend disk.:Fault cause: vmodl.fault.SystemError")
		}
	}
	if err := writeDescriptor(at.dir, d.path, capacityMB); err != nil {
		return cnsFault(&types.SystemError{Reason: err.Error()}, "CNS: Failed to extend disk.:Fault cause: vmodl.fault.SystemError")
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
