package cns

import (
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// checkDelete refuses a whole delete call, before there is a task.
func (m *Manager) checkDelete(ids []cnstypes.CnsVolumeId) types.BaseMethodFault {
	for _, id := range ids {
		if _, present := m.presenceOf(id.Id); present == nowhere && assume.DeleteUnknown.In(m.assumed) == "call" {
			return m.noDatastore(id.Id)
		}
	}
	return nil
}

// deleteVolumes is CnsDeleteVolume: one volume a call.
func (m *Manager) deleteVolumes(ids []cnstypes.CnsVolumeId, withDisk bool) (types.AnyType, types.BaseMethodFault) {
	if len(ids) != 1 {
		return nil, invalid("InputSpec")
	}
	return batch(outcome(ids[0].Id, m.wrap(m.deleteVolume(ids[0].Id, withDisk)))), nil
}

func (m *Manager) deleteVolume(id string, withDisk bool) types.BaseMethodFault {
	defer m.volumeOps.lock(id)()
	v, present := m.presenceOf(id)
	switch present {
	case nowhere, recordOnly:
		return &types.NotFound{}
	case diskOnly:
		return m.notRegistered(id)
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
		if fault := m.stale(holders, toDelete); fault != nil {
			return fault
		}
		return inUse()
	}
	if !withDisk {
		m.forgetVolume(id)
		return nil
	}
	listed := m.object(types.ID{Id: id})
	fault := m.destroy(v.disk)
	if fault == nil {
		m.linger(listed, m.lateOfCNS())
	}
	return fault
}

// forgetVolume removes CNS's record of a volume, and with it whatever else queries were made to show of it.
func (m *Manager) forgetVolume(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.volumes, id)
	delete(m.shadows, id)
}

// destroy removes a disk with its content, and its volume. The caller holds the volume's operation lock.
func (m *Manager) destroy(d *disk) types.BaseMethodFault {
	m.mu.Lock()
	present := m.findDisk(d.id) != nil
	now := *d
	m.mu.Unlock()
	if !present {
		return &types.NotFound{}
	}
	at, fault := m.onDatastore(now.datastore, toDelete)
	if fault != nil {
		return fault
	}
	if len(now.snapshots) > 0 {
		switch assume.DeleteWithSnapshots.In(m.assumed) {
		case "InvalidState":
			return &types.InvalidState{}
		case "ResourceInUse":
			return inUse()
		case "CnsFault":
			return failedTo(toDelete, &types.InvalidState{})
		}
	}
	if m.content != nil && now.filled {
		if err := m.content.Delete(d.id); err != nil {
			return brokenTo(toDelete, err)
		}
	}
	removeDescriptor(at.dir, now.path)
	m.giveBack(now.datastore, now.taken)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unpublish(d)
	delete(m.disks, d.id)
	delete(m.volumes, d.id)
	delete(m.shadows, d.id)
	return nil
}
