package cns

import (
	"log"
	"os"
	"slices"

	"github.com/google/uuid"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"
)

// syncVolumes is CnsSyncVolume.
func (m *Manager) syncVolumes(specs []cnstypes.CnsSyncVolumeSpec) (types.AnyType, types.BaseMethodFault) {
	if len(specs) == 0 {
		return nil, invalid("syncSpecs")
	}
	result := batch()
	for _, spec := range specs {
		result.VolumeResults = append(result.VolumeResults, outcome(spec.VolumeId.Id, m.syncVolume(spec)))
	}
	return result, nil
}

func (m *Manager) syncVolume(spec cnstypes.CnsSyncVolumeSpec) types.BaseMethodFault {
	for _, mode := range spec.SyncMode {
		if mode != string(cnstypes.CnsSyncVolumeModeSPACE_USAGE) {
			return invalid("syncSpecs.syncMode")
		}
	}
	defer m.volumeOps.lock(spec.VolumeId.Id)()
	v := m.lookup(spec.VolumeId.Id)
	if v == nil {
		return &types.NotFound{}
	}
	if spec.Datastore != nil && *spec.Datastore != v.datastore() {
		return &types.NotFound{}
	}
	m.reconcile(v)
	return nil
}

// syncDatastore is CnsSyncDatastore: volumes whose disks are gone go too. Without a URL it is all datastores.
func (m *Manager) syncDatastore(url string) (types.AnyType, types.BaseMethodFault) {
	wanted := map[types.ManagedObjectReference]bool{}
	for _, ref := range m.datastores() {
		if p, ok := m.datastore(ref); ok && (url == "" || p.url == url) {
			wanted[ref] = true
		}
	}
	if len(wanted) == 0 {
		return nil, invalid("datastoreUrl")
	}
	m.mu.Lock()
	volumes := slices.DeleteFunc(m.ordered(), func(v *volume) bool { return !wanted[v.datastore()] })
	m.mu.Unlock()
	for _, v := range volumes {
		unlock := m.volumeOps.lock(v.id)
		m.reconcile(v)
		unlock()
	}
	return nil, nil
}

// reconcile compares a volume with its disk: one that was deleted behind CNS's back is forgotten, one that was changed is
// shown as it is. A disk that storage vMotion took from CNS is out of its reach. The caller holds the volume's operation
// lock.
func (m *Manager) reconcile(v *volume) {
	m.mu.Lock()
	delete(m.shadows, v.id)
	lost := v.disk != nil && v.disk.lost
	m.mu.Unlock()
	if v.disk != nil && !lost {
		m.reconcileDisk(v.disk)
	}
}

// reconcileDisk is reconcile for a disk, whether it is a volume or not.
func (m *Manager) reconcileDisk(known *disk) {
	m.holders(known)
	live, d := m.fcd(known.id)
	at, _ := m.datastore(d.datastore)
	if live != nil && d.beside {
		return
	}
	if live != nil {
		file, local := localFile(at.dir, d.path)
		if _, err := os.Stat(file); !local || !os.IsNotExist(err) {
			return
		}
	}
	m.mu.Lock()
	datastore, taken, filled := known.datastore, known.taken, known.filled
	m.unpublish(known)
	delete(m.disks, known.id)
	delete(m.volumes, known.id)
	m.mu.Unlock()
	if live == nil {
		m.giveBack(datastore, taken) // a VM that takes its disks along frees their space itself
	}
	if m.content != nil && filled {
		if err := m.content.Delete(known.id); err != nil {
			log.Printf("cns: content of disk %s, which is gone: %v", known.id, err)
		}
	}
}

// unregisterVolumes is CnsUnregisterVolume.
func (m *Manager) unregisterVolumes(specs []cnstypes.CnsUnregisterVolumeSpec) (types.AnyType, types.BaseMethodFault) {
	if len(specs) == 0 {
		return nil, invalid("unregisterSpec")
	}
	result := batch()
	for _, spec := range specs {
		result.VolumeResults = append(result.VolumeResults, outcome(spec.VolumeId.Id, m.unregisterVolume(spec)))
	}
	return result, nil
}

// unregisterVolume leaves an FCD, or a plain vmdk that is no FCD either.
func (m *Manager) unregisterVolume(spec cnstypes.CnsUnregisterVolumeSpec) types.BaseMethodFault {
	id := spec.VolumeId.Id
	defer m.volumeOps.lock(id)()
	v := m.lookup(id)
	if v == nil {
		return &types.NotFound{}
	}
	if v.disk == nil {
		return &types.NotSupported{}
	}
	plain := false
	switch cnstypes.CnsUnregisterTargetVolumeType(spec.TargetVolumeType) {
	case cnstypes.CnsUnregisterTargetVolumeTypeFCD:
	case cnstypes.CnsUnregisterTargetVolumeTypeLEGACY_DISK:
		plain = true
	default:
		return invalid("unregisterSpec.targetVolumeType")
	}
	holders := m.holders(v.disk)
	m.mu.Lock()
	defer m.mu.Unlock()
	if plain && (len(v.disk.snapshots) > 0 || len(holders) > 0) {
		return &types.InvalidState{}
	}
	delete(m.volumes, id)
	if plain {
		m.unpublish(v.disk)
		delete(m.disks, id)
	}
	return nil
}

// setFlags is CnsSetVolumeControlFlags and, with on=false, CnsClearVolumeControlFlags.
func (m *Manager) setFlags(specs []cnstypes.CnsVolumeControlFlagsSpec, on bool) types.BaseMethodFault {
	if len(specs) == 0 {
		return invalid("controlFlagsSpecs")
	}
	for _, spec := range specs {
		unlock := m.volumeOps.lock(spec.VolumeId.Id)
		fault := m.setVolumeFlags(spec, on)
		unlock()
		if fault != nil {
			return fault
		}
	}
	return nil
}

func (m *Manager) setVolumeFlags(spec cnstypes.CnsVolumeControlFlagsSpec, on bool) types.BaseMethodFault {
	if _, fault := m.blockDisk(spec.VolumeId.Id); fault != nil {
		return fault
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.volumes[spec.VolumeId.Id]
	if !ok {
		return volumeNotFound(spec.VolumeId.Id)
	}
	return m.setDiskFlags(v.disk, spec.ControlFlags, on)
}

// track switches changed block tracking.
func (d *disk) track(on bool) {
	if on && !d.tracking {
		d.epoch = uuid.NewString()
	}
	d.tracking = on
}

// setDiskFlags changes all named flags or none. The caller holds mu.
func (m *Manager) setDiskFlags(d *disk, names []string, on bool) types.BaseMethodFault {
	keep, pinned, tracking := d.keep, d.pinned, d.tracking
	for _, flag := range names {
		switch cnstypes.CnsVolumeControlFlags(flag) {
		case cnstypes.CnsVolumeControlFlagsKeepAfterDeleteVm:
			keep = on
		case cnstypes.CnsVolumeControlFlagsDisableRelocation:
			pinned = on
		case cnstypes.CnsVolumeControlFlagsEnableChangedBlockTracking:
			tracking = on
		default:
			return invalid("controlFlags")
		}
	}
	d.keep, d.pinned = keep, pinned
	d.track(tracking)
	m.publish(d)
	return nil
}
