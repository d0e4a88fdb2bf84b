package cns

import (
	"fmt"
	"slices"
)

// What happens to volumes without any call to CNS. The control endpoint asks for it.

// ForgetRecord drops CNS's record of a volume. Its disk stays, also on a VM.
func (m *Manager) ForgetRecord(id string) error {
	defer m.volumeOps.lock(id)()
	v := m.lookup(id)
	if v == nil || v.disk == nil {
		return fmt.Errorf("there is no block volume %q", id)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	// Nobody deleted it, so queries that lag behind go on showing it.
	delete(m.volumes, id)
	return nil
}

// LoseDisk drops the disk of a volume from the catalogue, as when its file is removed from the datastore. CNS's record
// stays, and a VM that has the disk keeps its device.
func (m *Manager) LoseDisk(id string) error {
	defer m.volumeOps.lock(id)()
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.volumes[id]
	if v == nil || v.disk == nil || m.findDisk(id) == nil {
		return fmt.Errorf("there is no block volume %q with a disk", id)
	}
	m.unpublish(v.disk)
	delete(m.disks, id)
	v.unnoticed = true
	return nil
}

// FindDisk is the reverse of LoseDisk.
func (m *Manager) FindDisk(id string) error {
	defer m.volumeOps.lock(id)()
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.volumes[id]
	if v == nil || v.disk == nil || m.findDisk(id) != nil {
		return fmt.Errorf("there is no block volume %q without a disk", id)
	}
	m.disks[id] = v.disk
	v.unnoticed = false
	m.publish(v.disk)
	m.noteCluster(v)
	return nil
}

// SetTracking switches changed block tracking of a disk, as a backup program does.
func (m *Manager) SetTracking(id string, on bool) error {
	defer m.volumeOps.lock(id)()
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.findDisk(id)
	if d == nil {
		return fmt.Errorf("there is no disk %q", id)
	}
	d.track(on)
	m.publish(d)
	return nil
}

// FreeStale ends the hold that VMs which are gone have on a disk.
func (m *Manager) FreeStale(id string) error {
	defer m.volumeOps.lock(id)()
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.findDisk(id)
	if d == nil {
		return fmt.Errorf("there is no disk %q", id)
	}
	d.attachments = slices.DeleteFunc(slices.Clone(d.attachments), func(a attachment) bool { return a.stale })
	m.publish(d)
	return nil
}
