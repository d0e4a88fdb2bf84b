package cns

import (
	"github.com/google/uuid"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// creation is a request for a volume that admit found to be sound, and who makes it.
type creation struct {
	cnstypes.CnsVolumeCreateSpec
	user     string
	policy   string
	metadata cnstypes.CnsVolumeMetadata // as it is stored
	reach    []hostGroup                // the clusters and hosts that the volume must be usable from
}

// block is the backing of a block volume.
func (c *creation) block() *cnstypes.CnsBlockBackingDetails {
	return c.BackingObjectDetails.(*cnstypes.CnsBlockBackingDetails)
}

// planCreate is CnsCreateVolume: it refuses the call, or gives the work of its task. vCenter wants one volume a call.
func (m *Manager) planCreate(user string, specs []cnstypes.CnsVolumeCreateSpec) (work, types.BaseMethodFault) {
	if len(specs) != 1 {
		fault := invalid("InputSpec")
		if assume.SpecCountLevel.In(m.assumed) == "call" {
			return nil, fault
		}
		return func() (types.AnyType, types.BaseMethodFault) { return nil, fault }, nil
	}
	spec, fault := m.admit(user, specs[0])
	if fault != nil {
		return nil, fault
	}
	return func() (types.AnyType, types.BaseMethodFault) { return m.createVolume(spec), nil }, nil
}

func (m *Manager) createVolume(spec *creation) types.AnyType {
	if spec.VolumeType == typeFile {
		return m.createShare(spec)
	}
	details := spec.block()
	switch {
	case details.BackingDiskId != "":
		return m.registerFCD(spec, details.BackingDiskId)
	case details.BackingDiskUrlPath != "":
		return m.registerPath(spec, details.BackingDiskUrlPath)
	}
	return m.createBlock(spec, details.CapacityInMb)
}

// createBlock makes a new FCD and registers it as a volume.
func (m *Manager) createBlock(spec *creation, capacityMB int64) types.AnyType {
	id, chosen := spec.chosenID()
	if chosen && !assume.Transactions.In(m.assumed) {
		return m.notCreated(spec, nil, &types.NotSupported{})
	}
	if !chosen {
		id = uuid.NewString()
	}
	source, restoring := spec.VolumeSource.(*cnstypes.CnsSnapshotVolumeSource)
	busy := []string{id}
	if restoring {
		busy = append(busy, source.VolumeId.Id)
	}
	defer m.volumeOps.lockAll(busy)()
	if chosen {
		if result := m.repeated(spec, id); result != nil {
			return result
		}
	}
	if old := assume.OldHosts.In(m.assumed); old == "without first class disks" || (chosen && old == "without chosen ids") {
		return m.notCreated(spec, nil, m.unsupported())
	}
	if restoring {
		return m.restore(spec, id, capacityMB, source)
	}
	return m.provision(spec, id, capacityMB, nil, func() error {
		return m.content.Create(id, capacityMB*mib)
	})
}

// unsupported is the fault of a disk layer with hosts that are too old. Its cause is always there: upstream reads it.
func (m *Manager) unsupported() types.BaseMethodFault {
	fault := m.wrap(failedTo(toCreate, &types.NotSupported{})).(*cnstypes.CnsFault)
	fault.FaultCause = localized(&types.NotSupported{})
	return fault
}

// repeated answers a request for an id that a disk has; nil when none has it.
func (m *Manager) repeated(spec *creation, id string) types.AnyType {
	m.mu.Lock()
	d := m.findDisk(id)
	m.mu.Unlock()
	if d == nil {
		return nil
	}
	exists := &cnstypes.CnsVolumeAlreadyExistsFault{
		CnsFault:  cnstypes.CnsFault{Reason: "Volume " + id + " already exists"},
		VolumeId:  cnstypes.CnsVolumeId{Id: id},
		Datastore: d.datastore,
	}
	if !m.within(spec, d.datastore) || assume.ChosenIDExists.In(m.assumed) == "fault" {
		return m.notCreated(spec, nil, exists)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.volumes[id]; !known {
		if assume.ChosenIDOfPlainDisk.In(m.assumed) == "fault" {
			return m.notCreated(spec, nil, exists)
		}
		return m.register(spec, d)
	}
	return created(spec, id, m.placedAt(d.datastore))
}

// within tells whether a datastore is among those that a request allows.
func (m *Manager) within(spec *creation, datastore types.ManagedObjectReference) bool {
	at, ok := m.datastore(datastore)
	_, away := unreached(spec.reach, at)
	return ok && !away && spec.lists(datastore)
}

// restore makes a volume with the content of another's snapshot.
func (m *Manager) restore(spec *creation, id string, capacityMB int64, source *cnstypes.CnsSnapshotVolumeSource) types.AnyType {
	if !assume.Snapshots.In(m.assumed) {
		return m.notCreated(spec, nil, &types.NotSupported{})
	}
	original, fault := m.snapshotOf(source.VolumeId.Id, source.SnapshotId.Id)
	if fault != nil {
		return m.notCreated(spec, nil, fault)
	}
	only := &original.datastore
	if assume.RestoreAnyDatastore.In(m.assumed) {
		only = nil
	}
	made := m.provision(spec, id, capacityMB, only, func() error {
		return m.content.CreateFromSnapshot(id, capacityMB*mib, source.VolumeId.Id, source.SnapshotId.Id)
	})
	if source.LinkedClone {
		m.link(id, original)
	}
	return made
}

// provision finds a datastore, makes the disk and enters the volume. fill makes the content.
func (m *Manager) provision(spec *creation, id string, capacityMB int64, only *types.ManagedObjectReference, fill func() error) types.AnyType {
	at, placements, fault := m.choose(wanted{
		user: spec.user, among: spec.Datastores, policy: spec.policy, bytes: capacityMB * mib, only: only, reach: spec.reach,
	})
	if fault != nil {
		return m.notCreated(spec, placements, fault)
	}
	d := &disk{
		id: id, name: spec.Name, datastore: at.ref, capacityMB: capacityMB, uuid: newDiskUUID(), objectID: uuid.NewString(),
		created: m.now(), keep: true, filled: true, taken: at.taken, late: m.lateOfCNS(),
	}
	m.mu.Lock()
	d.path = m.fcdPath(at.place, id)
	m.mu.Unlock()
	err := writeDescriptor(at.dir, d.path, capacityMB)
	if err == nil && m.content != nil {
		err = fill()
	}
	if err != nil {
		removeDescriptor(at.dir, d.path)
		m.giveBack(at.ref, at.taken)
		return m.notCreated(spec, placements, brokenTo(toCreate, err))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.disks[id] = d
	m.publish(d)
	m.enter(&volume{id: id, name: spec.Name, kind: typeBlock, policy: spec.policy, metadata: spec.metadata, disk: d})
	return created(spec, id, placements)
}

func created(spec *creation, id string, placements []cnstypes.CnsPlacementResult) types.AnyType {
	return batch(&cnstypes.CnsVolumeCreateResult{CnsVolumeOperationResult: *done(id), Name: spec.Name, PlacementResults: placements})
}

// notCreated reports the volume's fault in a task that succeeds.
func (m *Manager) notCreated(spec *creation, placements []cnstypes.CnsPlacementResult, fault types.BaseMethodFault) types.AnyType {
	return batch(&cnstypes.CnsVolumeCreateResult{CnsVolumeOperationResult: *failed("", m.wrap(fault)), Name: spec.Name, PlacementResults: placements})
}

// placedAt is the placement of a volume that was not placed anew. The field is newer than 6.7U3.
func (m *Manager) placedAt(datastore types.ManagedObjectReference) []cnstypes.CnsPlacementResult {
	if !m.since("7.0U2") {
		return nil
	}
	return []cnstypes.CnsPlacementResult{{Datastore: datastore}}
}
