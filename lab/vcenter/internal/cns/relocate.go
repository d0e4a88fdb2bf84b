package cns

import (
	"slices"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
	"vsphere-drivers.example/lab/vcenter/internal/diskname"
)

// relocateVolumes is CnsRelocateVolume.
func (m *Manager) relocateVolumes(specs []cnstypes.BaseCnsVolumeRelocateSpec) (types.AnyType, types.BaseMethodFault) {
	if len(specs) == 0 {
		return nil, invalid("relocateSpecs")
	}
	result := batch()
	for _, base := range specs {
		if base == nil {
			return nil, invalid("relocateSpecs")
		}
		spec := base.GetCnsVolumeRelocateSpec()
		result.VolumeResults = append(result.VolumeResults, outcome(spec.VolumeId.Id, m.wrap(m.relocateVolume(spec))))
	}
	return result, nil
}

func (m *Manager) relocateVolume(spec cnstypes.CnsVolumeRelocateSpec) types.BaseMethodFault {
	id := spec.VolumeId.Id
	defer m.volumeOps.lock(id)()
	v, present := m.presenceOf(id)
	if fault := m.unusable(id, present); fault != nil {
		return fault
	}
	d, fault := m.blockDisk(id)
	if fault != nil {
		return fault
	}
	policy, fault := policyID(spec.Profile)
	switch {
	case fault != nil:
		return fault
	case spec.ServiceLocator != nil:
		return &types.NotSupported{}
	}
	return m.relocateDisk(v.disk, d, spec.Datastore, policy)
}

// relocateDisk moves a disk with its space to another datastore; an empty policy leaves it the one it has. The caller
// holds the operation lock of the disk, and gives its state and a copy of that.
func (m *Manager) relocateDisk(live *disk, d disk, to types.ManagedObjectReference, policy string) types.BaseMethodFault {
	holders := m.holders(live)
	target, ok := m.datastore(to)
	switch {
	case !ok:
		return &types.ManagedObjectNotFound{Obj: to}
	case to == d.datastore:
		return &types.AlreadyExists{Name: d.path}
	case d.pinned:
		return failedTo(toRelocate, &types.NotSupported{})
	case len(d.snapshots) > 0:
		return failedTo(toRelocate, &types.InvalidState{})
	case len(holders) > 0 && !assume.RelocateAttached.In(m.assumed):
		return inUse()
	case !target.accessible:
		return failedTo(toRelocate, &types.InvalidDatastoreState{DatastoreName: target.name})
	}
	if _, fault := m.onDatastore(d.datastore, toRelocate); fault != nil {
		return fault
	}
	if fault := m.hindered(holders, toRelocate); fault != nil {
		return fault
	}
	if policy == "" {
		policy = m.policyOf(live)
	}
	if fault := m.satisfies(policy, target); fault != nil {
		return fault
	}
	taken, enough := m.takeFor(d, target.ref, d.capacityMB*mib)
	if !enough {
		return m.outOfSpace("relocate", target.name)
	}
	if fault := m.move(live, d, target, holders); fault != nil {
		m.giveBack(target.ref, taken)
		return fault
	}
	m.mu.Lock()
	live.taken, live.policy = taken, policy
	if v, ok := m.volumes[d.id]; ok {
		v.policy = policy
	}
	m.mu.Unlock()
	m.giveBack(d.datastore, d.taken)
	return nil
}

// policyOf is the storage policy of a disk: that of its volume, if it is one.
func (m *Manager) policyOf(d *disk) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v, ok := m.volumes[d.id]; ok {
		return v.policy
	}
	return d.policy
}

// move changes where a disk lies: that of a VM goes into its folder. Content stays where Disks has it, which knows no
// datastores.
func (m *Manager) move(live *disk, old disk, target place, holders []attachment) types.BaseMethodFault {
	path, beside := m.besideVM(target, holders)
	if !beside {
		m.mu.Lock()
		path = m.fcdPath(target, old.id)
		m.mu.Unlock()
	}
	if err := writeDescriptor(target.dir, path, old.capacityMB); err != nil {
		return brokenTo(toRelocate, err)
	}
	if source, ok := m.datastore(old.datastore); ok {
		removeDescriptor(source.dir, old.path)
	}
	m.mu.Lock()
	live.datastore, live.path, live.beside, live.relocating = target.ref, path, beside, true
	m.publish(live)
	m.mu.Unlock()
	m.redraw(old.id, holders, func(device *types.VirtualDisk) {
		if backing, ok := device.Backing.(*types.VirtualDiskFlatVer2BackingInfo); ok {
			moved := *backing
			moved.FileName = path
			moved.Datastore = &target.ref
			device.Backing = &moved
		}
	})
	m.mu.Lock()
	live.relocating = false
	m.mu.Unlock()
	return nil
}

// besideVM is the file for a disk in the folder of the VM that has it; false says that no VM has it.
func (m *Manager) besideVM(target place, holders []attachment) (file string, found bool) {
	for _, holder := range holders {
		vm := m.vm(holder.vm)
		if vm == nil {
			continue
		}
		m.vim.WithLock(m.inventory(), vm, func() {
			if vm.Config != nil {
				file, found = diskname.Next(vm.Config.Files.VmPathName, target.name, vm.Config.Hardware.Device), true
			}
		})
		if found {
			break
		}
	}
	return file, found
}

// satisfies refuses a datastore that does not suit the policy; an empty policy suits all.
func (m *Manager) satisfies(policy string, at place) types.BaseMethodFault {
	if fault := m.policyService(policy); fault != nil {
		return fault
	}
	if policy == "" || m.policies == nil {
		return nil
	}
	suitable, known := m.policies.Compatible(policy)
	if !known {
		return invalid("profile.profileId")
	}
	if !slices.Contains(suitable, at.ref) {
		return cnsFault(nil, "CNS: Datastore %s does not satisfy the storage policy %s", at.name, policy)
	}
	return nil
}

// reconfigPolicies is CnsReconfigVolumePolicy.
func (m *Manager) reconfigPolicies(specs []cnstypes.CnsVolumePolicyReconfigSpec) (types.AnyType, types.BaseMethodFault) {
	if len(specs) == 0 {
		return nil, invalid("volumePolicyReconfigSpecs")
	}
	result := batch()
	for _, spec := range specs {
		result.VolumeResults = append(result.VolumeResults, outcome(spec.VolumeId.Id, m.wrap(m.reconfigPolicy(spec))))
	}
	return result, nil
}

func (m *Manager) reconfigPolicy(spec cnstypes.CnsVolumePolicyReconfigSpec) types.BaseMethodFault {
	defer m.volumeOps.lock(spec.VolumeId.Id)()
	v := m.lookup(spec.VolumeId.Id)
	if v == nil {
		return &types.NotFound{}
	}
	policy, fault := policyID(spec.Profile)
	if fault == nil && policy == "" {
		fault = invalid("volumePolicyReconfigSpecs.profile")
	}
	if fault != nil {
		return fault
	}
	return m.setPolicy(spec.VolumeId.Id, v.datastore(), policy)
}

// setPolicy changes the storage policy of a volume, of an FCD, or of both when they are one.
func (m *Manager) setPolicy(id string, datastore types.ManagedObjectReference, policy string) types.BaseMethodFault {
	at, _ := m.datastore(datastore)
	fault := m.satisfies(policy, at)
	_, incompatible := fault.(*cnstypes.CnsFault)
	if fault != nil && !(incompatible && assume.ReconfigIncompatible.In(m.assumed) == "nonCompliant") {
		return fault
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if v, ok := m.volumes[id]; ok {
		v.policy, v.breach = policy, incompatible
	}
	if d, ok := m.disks[id]; ok {
		d.policy = policy
	}
	return nil
}
