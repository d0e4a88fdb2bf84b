package cns

import (
	"cmp"

	"github.com/google/uuid"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm/methods"
	vslmtypes "github.com/vmware/govmomi/vslm/types"
)

// VslmCloneVStorageObjectTask makes an FCD with the present content of another; the result is the new one.
func (s *fcdManager) VslmCloneVStorageObjectTask(ctx *simulator.Context, req *vslmtypes.VslmCloneVStorageObject_Task) soap.HasFault {
	user := sessionUser(ctx)
	task := s.onDisk(ctx, "VslmCloneVStorageObject_Task", req.Id, func(_ *disk, source disk) (types.AnyType, types.BaseMethodFault) {
		return s.m.cloneFCD(user, source, req.Spec)
	})
	return &methods.VslmCloneVStorageObject_TaskBody{Res: &vslmtypes.VslmCloneVStorageObject_TaskResponse{Returnval: task}}
}

// destination reads where a disk is to go, and under which policy.
func destination(spec types.VslmMigrateSpec) (backing *types.VslmCreateSpecDiskFileBackingSpec, policy string, fault types.BaseMethodFault) {
	backing, ok := spec.BackingSpec.(*types.VslmCreateSpecDiskFileBackingSpec)
	if !ok {
		return nil, "", invalid("spec.backingSpec")
	}
	if spec.Service != nil || spec.DisksCrypto != nil {
		return nil, "", &types.NotSupported{} // another vCenter, or another key on the way
	}
	policy, fault = policyID(spec.Profile)
	return backing, policy, fault
}

// cloneFCD is for a caller that holds the operation lock of the source.
func (m *Manager) cloneFCD(user string, source disk, spec types.VslmCloneSpec) (types.AnyType, types.BaseMethodFault) {
	backing, policy, fault := destination(spec.VslmMigrateSpec)
	switch {
	case fault != nil:
		return nil, fault
	case spec.Name == "":
		return nil, invalid("spec.name")
	}
	at, _, fault := m.choose(wanted{user: user, among: []types.ManagedObjectReference{backing.Datastore}, policy: policy, bytes: source.capacityMB * mib})
	if fault != nil {
		return nil, cause(fault)
	}
	d := &disk{
		id: uuid.NewString(), name: spec.Name, datastore: at.ref, capacityMB: source.capacityMB, uuid: newDiskUUID(), objectID: uuid.NewString(),
		created: m.now(), keep: spec.KeepAfterDeleteVm != nil && *spec.KeepAfterDeleteVm, taken: at.taken, policy: policy, key: source.key,
		thick: isThick(cmp.Or(backing.ProvisioningType, source.provisioning())),
	}
	if d.thick && !m.fillUp(d) {
		m.giveBack(d.datastore, d.taken)
		return nil, cause(m.outOfSpace("clone", at.name))
	}
	m.mu.Lock()
	d.path = m.fcdPath(at.place, d.id)
	m.mu.Unlock()
	err := writeDescriptor(at.dir, d.path, d.capacityMB)
	if err == nil && m.content != nil && source.filled {
		err = m.copyContent(source, d)
		d.filled = true
	}
	if err != nil {
		removeDescriptor(at.dir, d.path)
		m.giveBack(d.datastore, d.taken)
		return nil, &types.SystemError{Reason: err.Error()}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.disks[d.id] = d
	m.publish(d)
	m.withCatalogue(func(all catalogue) {
		noted := *all[d.datastore][types.ID{Id: d.id}]
		noted.Metadata = spec.Metadata
		all[d.datastore][types.ID{Id: d.id}] = &noted
	})
	described := m.describe(d)
	return &described, nil
}

// copyContent goes through a snapshot that nobody else sees, because that is how Disks copies.
func (m *Manager) copyContent(source disk, to *disk) error {
	passing := uuid.NewString()
	if err := m.content.Snapshot(source.id, passing); err != nil {
		return err
	}
	err := m.content.CreateFromSnapshot(to.id, to.capacityMB*mib, source.id, passing)
	if gone := m.content.DeleteSnapshot(source.id, passing); err == nil {
		err = gone
	}
	return err
}

// VslmRelocateVStorageObjectTask moves an FCD, and the CNS volume it may be, to another datastore.
func (s *fcdManager) VslmRelocateVStorageObjectTask(ctx *simulator.Context, req *vslmtypes.VslmRelocateVStorageObject_Task) soap.HasFault {
	task := s.onDisk(ctx, "VslmRelocateVStorageObject_Task", req.Id, func(live *disk, d disk) (types.AnyType, types.BaseMethodFault) {
		backing, policy, fault := destination(req.Spec.VslmMigrateSpec)
		if fault != nil {
			return nil, fault
		}
		if fault := s.m.relocateDisk(live, d, backing.Datastore, policy); fault != nil {
			return nil, cause(fault)
		}
		_, d = s.m.fcd(d.id)
		described := s.m.describe(&d)
		return &described, nil
	})
	return &methods.VslmRelocateVStorageObject_TaskBody{Res: &vslmtypes.VslmRelocateVStorageObject_TaskResponse{Returnval: task}}
}
