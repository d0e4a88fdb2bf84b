package cns

import (
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// creation is a request for a volume and who makes it.
type creation struct {
	cnstypes.CnsVolumeCreateSpec
	user string
}

// createVolumes is CnsCreateVolume: one volume a call, as vCenter wants it.
func (m *Manager) createVolumes(user string, specs []cnstypes.CnsVolumeCreateSpec) (types.AnyType, types.BaseMethodFault) {
	if len(specs) != 1 {
		return nil, invalid("InputSpec")
	}
	spec := &creation{CnsVolumeCreateSpec: specs[0], user: user}
	if fault := m.checkCreate(spec); fault != nil {
		return nil, fault
	}
	if spec.VolumeType == typeFile {
		return m.createShare(spec)
	}
	details, ok := spec.BackingObjectDetails.(*cnstypes.CnsBlockBackingDetails)
	if !ok {
		return nil, invalid("createSpecs.backingObjectDetails")
	}
	switch {
	case details.BackingDiskId != "":
		return m.registerFCD(spec, details.BackingDiskId)
	case details.BackingDiskUrlPath != "":
		return m.registerPath(spec, details.BackingDiskUrlPath)
	}
	return m.createBlock(spec, details.CapacityInMb)
}

// checkCreate refuses what is wrong in itself.
func (m *Manager) checkCreate(spec *creation) types.BaseMethodFault {
	if spec.Name == "" || utf8.RuneCountInString(spec.Name) > assume.NameLimit.In(m.assumed) {
		return invalid("createSpecs.name")
	}
	if spec.VolumeType != typeBlock && spec.VolumeType != typeFile {
		return invalid("createSpecs.volumeType")
	}
	if spec.BackingObjectDetails == nil {
		return invalid("createSpecs.backingObjectDetails")
	}
	if _, fault := policyID(spec.Profile); fault != nil {
		return fault
	}
	return m.checkClusters(spec.user, spec.Metadata)
}

// createBlock makes a new FCD and registers it as a volume.
func (m *Manager) createBlock(spec *creation, capacityMB int64) (types.AnyType, types.BaseMethodFault) {
	if capacityMB <= 0 || capacityMB > int64(assume.MaxVolumeMB.In(m.assumed)) {
		return nil, invalid("createSpecs.backingObjectDetails.capacityInMb")
	}
	id := uuid.NewString()
	if spec.VolumeId != nil && spec.VolumeId.Id != "" {
		if !assume.Transactions.In(m.assumed) {
			return m.notCreated(spec, nil, &types.NotSupported{})
		}
		if _, err := uuid.Parse(spec.VolumeId.Id); err != nil || len(spec.VolumeId.Id) != len(id) {
			return nil, invalid("createSpecs.volumeId")
		}
		id = strings.ToLower(spec.VolumeId.Id)
	}
	source, restoring := spec.VolumeSource.(*cnstypes.CnsSnapshotVolumeSource)
	if spec.VolumeSource != nil && !restoring {
		return nil, invalid("createSpecs.volumeSource")
	}
	busy := []string{id}
	if restoring {
		busy = append(busy, source.VolumeId.Id)
	}
	defer m.volumeOps.lockAll(busy)()
	if fault := m.unused(id); fault != nil {
		return m.notCreated(spec, nil, fault)
	}
	if restoring {
		return m.restore(spec, id, capacityMB, source)
	}
	return m.provision(spec, id, capacityMB, nil, func() error {
		return m.content.Create(id, capacityMB*mib)
	})
}

// unused refuses an id that a disk already has.
func (m *Manager) unused(id string) types.BaseMethodFault {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.findDisk(id)
	if d == nil {
		return nil
	}
	return &cnstypes.CnsVolumeAlreadyExistsFault{
		CnsFault:  cnstypes.CnsFault{Reason: "Volume " + id + " already exists"},
		VolumeId:  cnstypes.CnsVolumeId{Id: id},
		Datastore: d.datastore,
	}
}

// restore makes a volume with the content of another's snapshot.
func (m *Manager) restore(spec *creation, id string, capacityMB int64, source *cnstypes.CnsSnapshotVolumeSource) (types.AnyType, types.BaseMethodFault) {
	if !assume.Snapshots.In(m.assumed) {
		return m.notCreated(spec, nil, &types.NotSupported{})
	}
	original, fault := m.snapshotOf(source.VolumeId.Id, source.SnapshotId.Id)
	if fault != nil {
		return m.notCreated(spec, nil, fault)
	}
	assumed := m.assumed
	if capacityMB < original.capacityMB || (capacityMB > original.capacityMB && !assume.RestoreLarger.In(assumed)) {
		return nil, invalid("createSpecs.backingObjectDetails.capacityInMb")
	}
	only := &original.datastore
	if assume.RestoreAnyDatastore.In(assumed) {
		only = nil
	}
	made, fault := m.provision(spec, id, capacityMB, only, func() error {
		return m.content.CreateFromSnapshot(id, capacityMB*mib, source.VolumeId.Id, source.SnapshotId.Id)
	})
	if source.LinkedClone {
		m.link(id, original)
	}
	return made, fault
}

// provision finds a datastore, makes the disk and enters the volume. fill makes the content.
func (m *Manager) provision(spec *creation, id string, capacityMB int64, only *types.ManagedObjectReference, fill func() error) (types.AnyType, types.BaseMethodFault) {
	metadata, fault := merge(cnstypes.CnsVolumeMetadata{}, spec.Metadata, true, m.assumed)
	if fault != nil {
		return m.notCreated(spec, nil, fault)
	}
	policy, _ := policyID(spec.Profile)
	reach, fault := m.reach(spec)
	if fault != nil {
		return m.notCreated(spec, nil, fault)
	}
	at, placements, fault := m.choose(wanted{user: spec.user, among: spec.Datastores, policy: policy, bytes: capacityMB * mib, only: only, reach: reach})
	if fault != nil {
		return m.notCreated(spec, placements, fault)
	}
	d := &disk{
		id: id, name: spec.Name, datastore: at.ref, capacityMB: capacityMB, uuid: newDiskUUID(), objectID: uuid.NewString(),
		created: m.now(), keep: true, filled: true, taken: at.taken,
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
		return m.notCreated(spec, placements, cnsFault(&types.SystemError{Reason: err.Error()}, "CNS: Failed to create disk.:Fault cause: vmodl.fault.SystemError"))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.disks[id] = d
	m.publish(d)
	m.enter(&volume{id: id, name: spec.Name, kind: typeBlock, policy: policy, metadata: metadata, disk: d})
	return created(spec, id, placements), nil
}

func created(spec *creation, id string, placements []cnstypes.CnsPlacementResult) types.AnyType {
	return batch(&cnstypes.CnsVolumeCreateResult{CnsVolumeOperationResult: *done(id), Name: spec.Name, PlacementResults: placements})
}

// notCreated reports a failure: mistakes in the request end the task, all else is the volume's fault in a successful one.
func (m *Manager) notCreated(spec *creation, placements []cnstypes.CnsPlacementResult, fault types.BaseMethodFault) (types.AnyType, types.BaseMethodFault) {
	switch fault.(type) {
	case *types.InvalidArgument, *types.ManagedObjectNotFound:
		return nil, fault
	}
	return batch(&cnstypes.CnsVolumeCreateResult{CnsVolumeOperationResult: *failed("", fault), Name: spec.Name, PlacementResults: placements}), nil
}
