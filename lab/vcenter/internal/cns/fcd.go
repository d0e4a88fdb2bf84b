package cns

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vmdk"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// catalogue is vim25's list of FCDs by datastore and id.
type catalogue map[types.ManagedObjectReference]map[types.ID]*simulator.VStorageObject

// withCatalogue gives access to vim25's FCDs under the lock that vim25's own methods use.
func (m *Manager) withCatalogue(use func(catalogue)) {
	m.vim.WithLock(m.inventory(), m.fcds, func() { use(m.fcds.Catalog()) })
}

// publish shows a disk's state in vim25. The caller holds mu. The object is replaced, never changed: an
// answer with the old one may be on its way to a client.
func (m *Manager) publish(d *disk) {
	if d.lost {
		return
	}
	object := &simulator.VStorageObject{VStorageObject: m.describe(d)}
	for _, s := range d.snapshots {
		object.Snapshots = append(object.Snapshots, types.VStorageObjectSnapshotInfoVStorageObjectSnapshot{
			Id: &types.ID{Id: s.id}, BackingObjectId: s.objectID, CreateTime: s.created, Description: s.description,
		})
	}
	m.withCatalogue(func(all catalogue) {
		for datastore, objects := range all {
			if old, ok := objects[types.ID{Id: d.id}]; ok {
				object.Metadata = old.Metadata
				if datastore != d.datastore {
					delete(objects, types.ID{Id: d.id})
				}
			}
		}
		if all[d.datastore] == nil {
			all[d.datastore] = map[types.ID]*simulator.VStorageObject{}
		}
		all[d.datastore][types.ID{Id: d.id}] = object
	})
}

// noteMetadata changes keys and values of an FCD. The object is replaced, as in publish.
func (m *Manager) noteMetadata(id types.ID, pairs []types.KeyValue, deleted []string) {
	m.withCatalogue(func(all catalogue) {
		for _, objects := range all {
			old, ok := objects[id]
			if !ok {
				continue
			}
			changed := *old
			changed.Metadata = slices.DeleteFunc(slices.Clone(old.Metadata), func(pair types.KeyValue) bool {
				return slices.Contains(deleted, pair.Key) ||
					slices.ContainsFunc(pairs, func(changed types.KeyValue) bool { return changed.Key == pair.Key })
			})
			changed.Metadata = append(changed.Metadata, pairs...)
			objects[id] = &changed
		}
	})
}

// noteCluster writes into a volume's disk which cluster the volume is for. The caller holds mu.
func (m *Manager) noteCluster(v *volume) {
	cluster := v.metadata.ContainerCluster
	if v.disk == nil || cluster.ClusterId == "" {
		return
	}
	var pairs []types.KeyValue
	switch assume.DiskMetadata.In(m.assumed) {
	case "cns.containerCluster.clusterId":
		pairs = []types.KeyValue{
			{Key: "cns.containerCluster.clusterFlavor", Value: cluster.ClusterFlavor},
			{Key: "cns.containerCluster.clusterId", Value: cluster.ClusterId},
			{Key: "cns.containerCluster.clusterType", Value: cluster.ClusterType},
			{Key: "cns.containerCluster.vSphereUser", Value: cluster.VSphereUser},
		}
	case "cns.clusterID":
		pairs = []types.KeyValue{
			{Key: "cns.clusterID", Value: cluster.ClusterId},
			{Key: "cns.clusterType", Value: cluster.ClusterType},
			{Key: "cns.vSphereUser", Value: cluster.VSphereUser},
		}
	}
	m.noteMetadata(types.ID{Id: v.id}, pairs, nil)
}

func (m *Manager) describe(d *disk) types.VStorageObject {
	object := types.VStorageObject{Config: types.VStorageObjectConfigInfo{
		CapacityInMB:    d.capacityMB,
		ConsumptionType: []string{"disk"},
		BaseConfigInfo: types.BaseConfigInfo{
			Id:                          types.ID{Id: d.id},
			Name:                        d.name,
			CreateTime:                  d.created,
			KeepAfterDeleteVm:           types.NewBool(d.keep),
			RelocationDisabled:          types.NewBool(d.pinned),
			NativeSnapshotSupported:     types.NewBool(false),
			ChangedBlockTrackingEnabled: types.NewBool(d.tracking),
			Backing: &types.BaseConfigInfoDiskFileBackingInfo{
				BaseConfigInfoFileBackingInfo: types.BaseConfigInfoFileBackingInfo{
					BaseConfigInfoBackingInfo: types.BaseConfigInfoBackingInfo{Datastore: d.datastore},
					FilePath:                  d.path,
					BackingObjectId:           d.objectID,
					KeyId:                     d.key,
				},
				ProvisioningType: d.provisioning(),
			},
		},
	}}
	for _, a := range d.attachments {
		object.Config.ConsumerId = append(object.Config.ConsumerId, types.ID{Id: a.vm.Value})
	}
	return object
}

// unpublish takes a disk out of vim25. The caller holds mu.
func (m *Manager) unpublish(d *disk) {
	m.withCatalogue(func(all catalogue) {
		for _, objects := range all {
			delete(objects, types.ID{Id: d.id})
		}
	})
}

// findDisk gives the FCD with this id, also one that was made through vim25 and that CNS has not met yet.
// The caller holds mu.
func (m *Manager) findDisk(id string) *disk {
	var found *disk
	m.withCatalogue(func(all catalogue) {
		for _, objects := range all {
			if object, ok := objects[types.ID{Id: id}]; ok {
				found = adopt(object)
			}
		}
	})
	if found == nil {
		return nil
	}
	known, ok := m.disks[id]
	if !ok {
		m.disks[id] = found
		return found
	}
	known.refresh(found)
	return known
}

// fcd gives the FCD with this id, and a copy that can be read without mu; nil when there is none.
func (m *Manager) fcd(id string) (*disk, disk) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.findDisk(id)
	if d == nil {
		return nil, disk{}
	}
	return d, *d
}

// fill makes the content of a disk that did not come from CNS; it starts empty. The caller holds the operation lock of
// the disk.
func (m *Manager) fill(d *disk) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d.filled {
		return nil
	}
	if err := m.content.Create(d.id, d.capacityMB*mib); err != nil {
		return err
	}
	d.filled = true
	return nil
}

// refresh takes over what vim25's own methods may have changed.
func (d *disk) refresh(seen *disk) {
	d.name, d.capacityMB = seen.name, seen.capacityMB
	changeIDs := map[string]string{}
	for _, s := range d.snapshots {
		changeIDs[s.id] = s.changeID
	}
	d.snapshots = seen.snapshots
	for i := range d.snapshots {
		d.snapshots[i].changeID = changeIDs[d.snapshots[i].id]
	}
}

// fcdOf finds the FCD that has this vmdk; empty when none has.
func (m *Manager) fcdOf(path string) string {
	id := ""
	m.withCatalogue(func(all catalogue) {
		for _, objects := range all {
			for _, object := range objects {
				if adopt(object).path == path {
					id = object.Config.Id.Id
				}
			}
		}
	})
	return id
}

// adopt reads a disk from vim25's description.
func adopt(object *simulator.VStorageObject) *disk {
	config := object.Config
	d := &disk{
		id:         config.Id.Id,
		name:       config.Name,
		capacityMB: config.CapacityInMB,
		created:    config.CreateTime,
		uuid:       newDiskUUID(),
		keep:       config.KeepAfterDeleteVm != nil && *config.KeepAfterDeleteVm,
		pinned:     config.RelocationDisabled != nil && *config.RelocationDisabled,
		tracking:   config.ChangedBlockTrackingEnabled != nil && *config.ChangedBlockTrackingEnabled,
	}
	if backing, ok := config.Backing.(*types.BaseConfigInfoDiskFileBackingInfo); ok {
		d.datastore, d.path, d.objectID, d.key = backing.Datastore, backing.FilePath, backing.BackingObjectId, backing.KeyId
		d.thick = isThick(backing.ProvisioningType)
	}
	for _, s := range object.Snapshots {
		if s.Id != nil {
			d.snapshots = append(d.snapshots, snapshot{id: s.Id.Id, description: s.Description, created: s.CreateTime, objectID: s.BackingObjectId})
		}
	}
	return d
}

// newDiskUUID is a page 83 identifier as ESXi makes them: VMware's NAA prefix and random digits.
func newDiskUUID() string {
	digits := strings.ReplaceAll(uuid.NewString(), "-", "")
	id := "6000C29" + digits[7:]
	return id[:8] + "-" + id[8:12] + "-" + id[12:16] + "-" + id[16:20] + "-" + id[20:]
}

// fcdPath says where a new disk's vmdk lies. On vSAN the directory is an object of its own and has a UUID for
// its name. The caller holds mu.
func (m *Manager) fcdPath(datastore place, id string) string {
	dir, ok := m.fcdDirs[datastore.ref]
	if !ok {
		dir = "fcd"
		if datastore.vsan {
			dir = uuid.NewString()
		}
		m.fcdDirs[datastore.ref] = dir
	}
	return (&object.DatastorePath{Datastore: datastore.name, Path: path.Join(dir, id+".vmdk")}).String()
}

// writeDescriptor puts the vmdk's descriptor where the simulator keeps a datastore's files, if it keeps any: vim25's
// own methods look for it there.
func writeDescriptor(dir, datastorePath string, capacityMB int64) error {
	file, ok := localFile(dir, datastorePath)
	if !ok {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	target, err := os.Create(file)
	if err != nil {
		return err
	}
	flat := strings.TrimSuffix(filepath.Base(file), ".vmdk") + "-flat.vmdk"
	extent := vmdk.Extent{Info: flat, Size: capacityMB * mib / vmdk.SectorSize}
	if err := vmdk.NewDescriptor(extent).Write(target); err != nil {
		target.Close()
		return err
	}
	if err := target.Close(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(filepath.Dir(file), flat), nil, 0o600)
}

// removeDescriptor is the reverse. A file that is gone already is no mistake.
func removeDescriptor(dir, datastorePath string) {
	if file, ok := localFile(dir, datastorePath); ok {
		_ = os.Remove(file)
		_ = os.Remove(strings.TrimSuffix(file, ".vmdk") + "-flat.vmdk")
	}
}

// localFile is a datastore path on this machine; false when the datastore has no directory here.
func localFile(dir, datastorePath string) (string, bool) {
	var p object.DatastorePath
	if info, err := os.Stat(dir); err != nil || !info.IsDir() || !p.FromString(datastorePath) || strings.Contains(p.Path, "..") {
		return "", false
	}
	return filepath.Join(dir, p.Path), true
}
