package cns

import (
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// deleteVolumes is CnsDeleteVolume: one volume a call.
func (m *Manager) deleteVolumes(ids []cnstypes.CnsVolumeId, withDisk bool) (types.AnyType, types.BaseMethodFault) {
	if len(ids) != 1 {
		return nil, invalid("InputSpec")
	}
	return batch(outcome(ids[0].Id, m.deleteVolume(ids[0].Id, withDisk))), nil
}

func (m *Manager) deleteVolume(id string, withDisk bool) types.BaseMethodFault {
	defer m.volumeOps.lock(id)()
	v := m.lookup(id)
	if v == nil {
		return &types.NotFound{}
	}
	if v.share != nil {
		m.forgetVolume(id)
		if withDisk {
			m.giveBack(v.share.datastore, v.share.taken)
		}
		return nil
	}
	holders := m.holders(v.disk)
	if len(holders) > 0 && (withDisk || !assume.UnregisterAttached.In(m.assumed)) {
		return &types.ResourceInUse{Type: "VStorageObject", Name: id}
	}
	if !withDisk {
		m.forgetVolume(id)
		return nil
	}
	return m.destroy(v.disk)
}

func (m *Manager) forgetVolume(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.volumes, id)
}

// destroy removes a disk with its content, and its volume. The caller holds the volume's operation lock.
func (m *Manager) destroy(d *disk) types.BaseMethodFault {
	m.mu.Lock()
	present := m.findDisk(d.id) != nil
	now := *d
	m.mu.Unlock()
	if present && len(now.snapshots) > 0 {
		if assume.DeleteWithSnapshots.In(m.assumed) == "InvalidState" {
			return &types.InvalidState{}
		}
		return cnsFault(&types.InvalidState{}, "CNS: Failed to delete disk.:Fault cause: vim.fault.InvalidState: disk %s has %d snapshots", d.id, len(now.snapshots))
	}
	if m.content != nil && now.filled {
		if err := m.content.Delete(d.id); err != nil {
			return cnsFault(&types.SystemError{Reason: err.Error()}, "CNS: Failed to delete disk.")
		}
	}
	if at, ok := m.datastore(now.datastore); ok {
		removeDescriptor(at.dir, now.path)
	}
	m.giveBack(now.datastore, now.taken)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unpublish(d)
	delete(m.disks, d.id)
	delete(m.volumes, d.id)
	return nil
}
