package cns

import (
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm/methods"
	vslmtypes "github.com/vmware/govmomi/vslm/types"
)

const (
	thin  = string(types.BaseConfigInfoDiskFileBackingInfoProvisioningTypeThin)
	thick = string(types.BaseConfigInfoDiskFileBackingInfoProvisioningTypeEagerZeroedThick)
)

// isThick reads a provisioning type; lazily and eagerly zeroed disks are alike to us.
func isThick(provisioning string) bool { return provisioning != "" && provisioning != thin }

// provisioning is the type that vim25 shows.
func (d *disk) provisioning() string {
	if d.thick {
		return thick
	}
	return thin
}

// fillUp takes what a disk does not have yet of its size; false when the datastore lacks it.
func (m *Manager) fillUp(d *disk) bool {
	taken, enough := m.reserve(d.datastore, d.capacityMB*mib-d.taken, true)
	d.taken += taken
	return enough
}

// VslmInflateDiskTask allocates the whole size of a thin FCD; a thick one stays as it is.
func (s *fcdManager) VslmInflateDiskTask(ctx *simulator.Context, req *vslmtypes.VslmInflateDisk_Task) soap.HasFault {
	task := s.onDisk(ctx, "VslmInflateDisk_Task", req.Id, func(live *disk, d disk) (types.AnyType, types.BaseMethodFault) {
		return nil, cause(s.m.inflate(live, d))
	})
	return &methods.VslmInflateDisk_TaskBody{Res: &vslmtypes.VslmInflateDisk_TaskResponse{Returnval: task}}
}

func (m *Manager) inflate(live *disk, d disk) types.BaseMethodFault {
	switch {
	case d.thick:
		return nil
	case len(d.snapshots) > 0:
		return &types.InvalidState{}
	}
	holders := m.holders(live)
	if !m.fillUp(&d) {
		at, _ := m.datastore(d.datastore)
		return m.outOfSpace("inflate", at.name)
	}
	m.mu.Lock()
	live.taken, live.thick = d.taken, true
	m.publish(live)
	m.mu.Unlock()
	m.redraw(d.id, holders, func(device *types.VirtualDisk) {
		if backing, ok := device.Backing.(*types.VirtualDiskFlatVer2BackingInfo); ok {
			inflated := *backing
			inflated.ThinProvisioned = types.NewBool(false)
			device.Backing = &inflated
		}
	})
	return nil
}
