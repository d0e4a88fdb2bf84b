package cns

import (
	"cmp"
	"slices"
	"time"

	"github.com/vmware/govmomi/vim25/types"
)

// Volume is a volume as the control endpoint shows it.
type Volume struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	Type       string     `json:"type"`
	Datastore  string     `json:"datastore"`
	CapacityMB int64      `json:"capacityMb"`
	Policy     string     `json:"policy,omitempty"`
	Clusters   []string   `json:"clusters"`
	DiskUUID   string     `json:"diskUuid,omitempty"`
	Path       string     `json:"path,omitempty"`
	Snapshots  []Snapshot `json:"snapshots"`
	VMs        []string   `json:"vms"`
}

// Snapshot is a snapshot as the control endpoint shows it.
type Snapshot struct {
	ID          string    `json:"id"`
	Description string    `json:"description"`
	Created     time.Time `json:"created"`
}

// Attachment is a disk on a VM as the control endpoint shows it.
type Attachment struct {
	Volume   string `json:"volume"`
	VM       string `json:"vm"`
	DiskUUID string `json:"diskUuid"`
}

// Volumes lists all volumes in the order in which they were made.
func (m *Manager) Volumes() []Volume {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := []Volume{}
	for _, v := range m.ordered() {
		shown := Volume{
			ID: v.id, Name: v.name, Type: v.kind, Datastore: v.datastore().Value, CapacityMB: v.capacityMB(), Policy: v.policy,
			Clusters: []string{}, Snapshots: []Snapshot{}, VMs: []string{},
		}
		for _, cluster := range v.metadata.ContainerClusterArray {
			shown.Clusters = append(shown.Clusters, cluster.ClusterId)
		}
		if v.disk != nil {
			shown.DiskUUID, shown.Path = v.disk.uuid, v.disk.path
			for _, s := range v.disk.snapshots {
				shown.Snapshots = append(shown.Snapshots, Snapshot{ID: s.id, Description: s.description, Created: s.created})
			}
			for _, a := range v.disk.attachments {
				shown.VMs = append(shown.VMs, a.vm.Value)
			}
		}
		list = append(list, shown)
	}
	return list
}

// VolumeDatastore tells where a volume, or an FCD that is none, lies: privileges on it are those on its datastore.
func (m *Manager) VolumeDatastore(id string) (types.ManagedObjectReference, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v, ok := m.volumes[id]; ok {
		return v.datastore(), true
	}
	if d := m.findDisk(id); d != nil {
		return d.datastore, true
	}
	return types.ManagedObjectReference{}, false
}

// Attachments lists all disks on VMs, also those of disks that are no volumes any more.
func (m *Manager) Attachments() []Attachment {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := []Attachment{}
	for _, d := range m.disks {
		for _, a := range d.attachments {
			list = append(list, Attachment{Volume: d.id, VM: a.vm.Value, DiskUUID: d.uuid})
		}
	}
	slices.SortFunc(list, func(a, b Attachment) int {
		return cmp.Or(cmp.Compare(a.VM, b.VM), cmp.Compare(a.Volume, b.Volume))
	})
	return list
}
