package cns

import (
	"slices"
	"time"

	"github.com/google/uuid"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

func volumeNotFound(id string) types.BaseMethodFault {
	return &cnstypes.CnsVolumeNotFoundFault{
		CnsFault: cnstypes.CnsFault{Reason: "Volume " + id + " was not found"}, VolumeId: cnstypes.CnsVolumeId{Id: id},
	}
}

func snapshotNotFound(id, snapshotID string) types.BaseMethodFault {
	return &cnstypes.CnsSnapshotNotFoundFault{
		CnsFault: cnstypes.CnsFault{Reason: "Snapshot " + snapshotID + " of volume " + id + " was not found"},
		VolumeId: cnstypes.CnsVolumeId{Id: id}, SnapshotId: cnstypes.CnsSnapshotId{Id: snapshotID},
	}
}

// blockDisk gives a copy of the volume's disk as it is now.
func (m *Manager) blockDisk(id string) (disk, types.BaseMethodFault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.volumes[id]
	switch {
	case !ok:
		return disk{}, volumeNotFound(id)
	case v.disk == nil:
		return disk{}, &types.NotSupported{}
	case m.findDisk(id) == nil:
		return disk{}, volumeNotFound(id)
	}
	return *v.disk, nil
}

// snapshotOf gives the disk if it has the snapshot.
func (m *Manager) snapshotOf(id, snapshotID string) (disk, types.BaseMethodFault) {
	d, fault := m.blockDisk(id)
	if fault != nil {
		return d, fault
	}
	if !d.hasSnapshot(snapshotID) {
		return d, snapshotNotFound(id, snapshotID)
	}
	return d, nil
}

func (d *disk) hasSnapshot(id string) bool {
	return slices.ContainsFunc(d.snapshots, func(s snapshot) bool { return s.id == id })
}

// createSnapshots is CnsCreateSnapshots.
func (m *Manager) createSnapshots(specs []cnstypes.CnsSnapshotCreateSpec) (types.AnyType, types.BaseMethodFault) {
	if len(specs) == 0 {
		return nil, invalid("snapshotSpecs")
	}
	result := batch()
	for _, spec := range specs {
		made, fault := m.createSnapshot(spec)
		fault = m.wrap(fault)
		entry := &cnstypes.CnsSnapshotCreateResult{CnsSnapshotOperationResult: cnstypes.CnsSnapshotOperationResult{
			CnsVolumeOperationResult: *outcome(spec.VolumeId.Id, fault),
		}}
		if fault == nil {
			entry.Snapshot = made.wire(spec.VolumeId.Id)
			entry.AggregatedSnapshotCapacityInMb = m.aggregated(spec.VolumeId.Id)
		}
		result.VolumeResults = append(result.VolumeResults, entry)
	}
	return result, nil
}

func (s snapshot) wire(volumeID string) cnstypes.CnsSnapshot {
	return cnstypes.CnsSnapshot{
		SnapshotId: cnstypes.CnsSnapshotId{Id: s.id}, VolumeId: cnstypes.CnsVolumeId{Id: volumeID},
		Description: s.description, CreateTime: s.created, ChangedBlockTrackingId: s.changeID,
	}
}

func (m *Manager) createSnapshot(spec cnstypes.CnsSnapshotCreateSpec) (snapshot, types.BaseMethodFault) {
	id := spec.VolumeId.Id
	defer m.volumeOps.lock(id)()
	if _, present := m.presenceOf(id); present == diskOnly {
		return snapshot{}, m.notRegistered(id)
	}
	d, fault := m.blockDisk(id)
	if fault != nil {
		return snapshot{}, fault
	}
	wanted := uuid.NewString()
	if spec.SnapshotId != nil && spec.SnapshotId.Id != "" {
		if !assume.Transactions.In(m.assumed) {
			return snapshot{}, &types.NotSupported{}
		}
		if !isUUID(spec.SnapshotId.Id) {
			return snapshot{}, failedTo(toSnapshot, malformed(spec.SnapshotId.Id))
		}
		wanted = spec.SnapshotId.Id
	}
	if d.hasSnapshot(wanted) {
		return snapshot{}, &types.AlreadyExists{Name: wanted}
	}
	return m.snapshotDisk(d, wanted, spec.Description)
}

// isUUID tells whether an id is written as the disk layer wants it, with dashes and nothing around it.
func isUUID(id string) bool {
	_, err := uuid.Parse(id)
	return err == nil && len(id) == len(uuid.UUID{}.String())
}

// malformed is the disk layer's answer to an id that it cannot read.
func malformed(id string) types.BaseMethodFault {
	return &worded{fault: &types.InvalidArgument{}, text: "InvalidArgument: " + id + " is incorrectly formatted."}
}

// settle waits until the VMs of a disk let a snapshot be made or deleted, or refuses. The caller holds the operation lock
// of the disk.
func (m *Manager) settle(d disk, step string) (release func(), fault types.BaseMethodFault) {
	if _, fault := m.onDatastore(d.datastore, step); fault != nil {
		return nil, fault
	}
	holders := m.holdersOf(d.id)
	release, fault = m.occupyAll(holders, step)
	if fault != nil {
		return nil, fault
	}
	if fault := m.hindered(holders, step); fault != nil {
		release()
		return nil, fault
	}
	return release, nil
}

func (m *Manager) holdersOf(id string) []attachment {
	live, _ := m.fcd(id)
	if live == nil {
		return nil
	}
	return m.holders(live)
}

// snapshotDisk keeps a disk's content under a new id. The caller holds the operation lock of the disk.
func (m *Manager) snapshotDisk(d disk, wanted, description string) (snapshot, types.BaseMethodFault) {
	made := snapshot{id: wanted, description: description, created: m.now(), objectID: uuid.NewString()}
	release, fault := m.settle(d, toSnapshot)
	if fault != nil {
		return made, fault
	}
	defer release()
	if limit := assume.SnapshotLimit.In(m.assumed); len(d.snapshots) >= limit {
		return made, failedTo(toSnapshot, &types.LimitExceeded{Limit: types.NewInt32(int32(limit))})
	}
	if d.tracking {
		made.changeID = d.changeID(made.created)
	}
	if m.content != nil && d.filled {
		if err := m.content.Snapshot(d.id, made.id); err != nil {
			return made, brokenTo(toSnapshot, err)
		}
	}
	m.setSnapshots(d.id, append(slices.Clone(d.snapshots), made))
	return made, nil
}

func (m *Manager) setSnapshots(id string, snapshots []snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d, ok := m.disks[id]; ok {
		d.snapshots = snapshots
		m.publish(d)
	}
}

// aggregated is what the snapshots of a volume may take: as in vCenter's field, newer than most releases.
func (m *Manager) aggregated(id string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d, ok := m.disks[id]; ok && m.since("9.0") {
		return int64(len(d.snapshots)) * d.capacityMB
	}
	return 0
}

// deleteSnapshots is CnsDeleteSnapshots.
func (m *Manager) deleteSnapshots(specs []cnstypes.CnsSnapshotDeleteSpec) (types.AnyType, types.BaseMethodFault) {
	if len(specs) == 0 {
		return nil, invalid("snapshotDeleteSpecs")
	}
	result := batch()
	for _, spec := range specs {
		fault := m.wrap(m.deleteSnapshot(spec.VolumeId.Id, spec.SnapshotId.Id))
		result.VolumeResults = append(result.VolumeResults, &cnstypes.CnsSnapshotDeleteResult{
			CnsSnapshotOperationResult:     cnstypes.CnsSnapshotOperationResult{CnsVolumeOperationResult: *outcome(spec.VolumeId.Id, fault)},
			SnapshotId:                     spec.SnapshotId,
			AggregatedSnapshotCapacityInMb: m.aggregated(spec.VolumeId.Id),
		})
	}
	return result, nil
}

func (m *Manager) deleteSnapshot(id, snapshotID string) types.BaseMethodFault {
	defer m.volumeOps.lock(id)()
	if _, present := m.presenceOf(id); present != complete {
		return m.unusable(id, present)
	}
	d, fault := m.blockDisk(id)
	if fault != nil {
		return fault
	}
	if !isUUID(snapshotID) {
		return failedTo(toDeleteSnapshot, malformed(snapshotID))
	}
	if !d.hasSnapshot(snapshotID) {
		switch assume.DeleteMissingSnapshot.In(m.assumed) {
		case "InvalidArgument":
			return invalid("")
		case "CnsSnapshotNotFoundFault":
			return snapshotNotFound(id, snapshotID)
		}
		return &types.NotFound{}
	}
	return m.deleteDiskSnapshot(d, snapshotID)
}

// deleteDiskSnapshot forgets one snapshot of a disk. The caller holds the operation lock of the disk.
func (m *Manager) deleteDiskSnapshot(d disk, snapshotID string) types.BaseMethodFault {
	release, fault := m.settle(d, toDeleteSnapshot)
	if fault != nil {
		return fault
	}
	defer release()
	if m.content != nil && d.filled {
		if err := m.content.DeleteSnapshot(d.id, snapshotID); err != nil {
			return brokenTo(toDeleteSnapshot, err)
		}
	}
	m.hide(d, snapshotID)
	m.setSnapshots(d.id, slices.DeleteFunc(slices.Clone(d.snapshots), func(s snapshot) bool { return s.id == snapshotID }))
	return nil
}

// querySnapshots is CnsQuerySnapshots: of one volume, of one snapshot, or all.
func (m *Manager) querySnapshots(filter cnstypes.CnsSnapshotQueryFilter) (types.AnyType, types.BaseMethodFault) {
	if len(filter.SnapshotQuerySpecs) > 1 {
		return nil, invalid("snapshotQuerySpecs")
	}
	var entries []cnstypes.CnsSnapshotQueryResultEntry
	if len(filter.SnapshotQuerySpecs) == 0 {
		entries = m.allSnapshots()
	} else {
		spec := filter.SnapshotQuerySpecs[0]
		only := ""
		if spec.SnapshotId != nil {
			only = spec.SnapshotId.Id
		}
		entries = m.snapshotEntries(spec.VolumeId.Id, only)
	}
	cursor := cnstypes.CnsCursor{}
	if filter.Cursor != nil {
		cursor = *filter.Cursor
	}
	limit := int64(assume.MaxSnapshotPage.In(m.assumed))
	if cursor.Limit > limit {
		return nil, invalid("cursor.limit")
	}
	if cursor.Limit == 0 {
		cursor.Limit = limit
	}
	page, cursor, fault := cut(entries, cursor)
	if fault != nil {
		return nil, fault
	}
	return &cnstypes.CnsSnapshotQueryResult{Entries: page, Cursor: cursor}, nil
}

func (m *Manager) snapshotEntries(id, only string) []cnstypes.CnsSnapshotQueryResultEntry {
	d, fault := m.blockDisk(id)
	if fault != nil {
		return []cnstypes.CnsSnapshotQueryResultEntry{{Error: localized(fault)}}
	}
	d.snapshots = m.shown(&d)
	if only != "" && !d.hasSnapshot(only) {
		return []cnstypes.CnsSnapshotQueryResultEntry{{Error: localized(snapshotNotFound(id, only))}}
	}
	var entries []cnstypes.CnsSnapshotQueryResultEntry
	for _, s := range d.snapshots {
		if only == "" || s.id == only {
			entries = append(entries, cnstypes.CnsSnapshotQueryResultEntry{Snapshot: s.wire(id)})
		}
	}
	return entries
}

func (m *Manager) allSnapshots() []cnstypes.CnsSnapshotQueryResultEntry {
	m.mu.Lock()
	defer m.mu.Unlock()
	var entries []cnstypes.CnsSnapshotQueryResultEntry
	for _, v := range m.ordered() {
		if v.disk == nil {
			continue
		}
		for _, s := range m.shown(v.disk) {
			entries = append(entries, cnstypes.CnsSnapshotQueryResultEntry{Snapshot: s.wire(v.id)})
		}
	}
	return entries
}

// hide remembers a snapshot that is about to be deleted, for queries that lag behind.
func (m *Manager) hide(d disk, snapshotID string) {
	if assume.DeletedSnapshotShownMS.In(m.assumed) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if live, ok := m.disks[d.id]; ok {
		for _, s := range d.snapshots {
			if s.id == snapshotID {
				live.deleted = append(slices.Clone(live.deleted), deletedSnapshot{s, m.now()})
			}
		}
	}
}

// shown are the snapshots that a query finds: those of the disk, and those that CNS has not yet missed.
func (m *Manager) shown(d *disk) []snapshot {
	list := slices.Clone(d.snapshots)
	for _, gone := range d.deleted {
		if lag := time.Duration(assume.DeletedSnapshotShownMS.In(m.assumed)) * time.Millisecond; m.now().Before(gone.at.Add(lag)) {
			list = append(list, gone.snapshot)
		}
	}
	slices.SortStableFunc(list, func(a, b snapshot) int { return a.created.Compare(b.created) })
	return list
}
