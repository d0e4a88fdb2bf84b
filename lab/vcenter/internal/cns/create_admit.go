package cns

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// admit reads a request for a volume. What is wrong in it refuses the call: vCenter makes no task then.
func (m *Manager) admit(user string, spec cnstypes.CnsVolumeCreateSpec) (*creation, types.BaseMethodFault) {
	c := &creation{CnsVolumeCreateSpec: spec, user: user}
	if spec.Name == "" || utf8.RuneCountInString(spec.Name) > assume.NameLimit.In(m.assumed) {
		return nil, invalid("createSpecs.name")
	}
	var fault types.BaseMethodFault
	switch spec.VolumeType {
	case typeBlock:
		fault = m.admitBlock(c)
	case typeFile:
		fault = m.admitShare(c)
	default:
		fault = invalid("createSpecs.volumeType")
	}
	if fault != nil {
		return nil, fault
	}
	if fault := m.admitMetadata(c); fault != nil {
		return nil, fault
	}
	for _, step := range []func(*creation) types.BaseMethodFault{m.admitReach, m.admitDatastores, m.admitPolicy, m.admitSource} {
		if fault := step(c); fault != nil {
			return nil, fault
		}
	}
	return c, nil
}

// admitBlock checks what a block volume is made of.
func (m *Manager) admitBlock(c *creation) types.BaseMethodFault {
	details, ok := c.BackingObjectDetails.(*cnstypes.CnsBlockBackingDetails)
	if !ok {
		return invalid("createSpecs.backingObjectDetails")
	}
	if !c.isNew() {
		return nil
	}
	if details.CapacityInMb <= 0 || details.CapacityInMb > int64(assume.MaxVolumeMB.In(m.assumed)) {
		return invalid("createSpecs.backingObjectDetails.capacityInMb")
	}
	if id, chosen := c.chosenID(); chosen {
		if _, err := uuid.Parse(id); err != nil || len(id) != len(uuid.Nil.String()) {
			return invalid("createSpecs.volumeId")
		}
	}
	if _, ok := c.VolumeSource.(*cnstypes.CnsSnapshotVolumeSource); c.VolumeSource != nil && !ok {
		return invalid("createSpecs.volumeSource")
	}
	return nil
}

// isNew tells whether the request makes storage, instead of registering what is there.
func (c *creation) isNew() bool {
	details, ok := c.BackingObjectDetails.(*cnstypes.CnsBlockBackingDetails)
	return !ok || (details.BackingDiskId == "" && details.BackingDiskUrlPath == "")
}

func (c *creation) chosenID() (id string, chosen bool) {
	if c.VolumeId == nil || c.VolumeId.Id == "" {
		return "", false
	}
	return strings.ToLower(c.VolumeId.Id), true
}

// lists tells whether a datastore is a candidate. Without a list every one is.
func (c *creation) lists(datastore types.ManagedObjectReference) bool {
	return len(c.Datastores) == 0 || slices.Contains(c.Datastores, datastore)
}

func (m *Manager) admitMetadata(c *creation) types.BaseMethodFault {
	block := c.VolumeType == typeBlock
	fault := m.checkMetadata("createSpecs", c.user, c.Metadata, block)
	if fault == nil {
		c.metadata, fault = m.merge("createSpecs", cnstypes.CnsVolumeMetadata{}, c.Metadata, block)
	}
	return fault
}

// admitReach reads the clusters and hosts that the volume must be usable from.
func (m *Manager) admitReach(c *creation) types.BaseMethodFault {
	for _, ref := range c.ActiveClusters {
		cluster, ok := m.vim.Get(ref).(*simulator.ClusterComputeResource)
		if !ok {
			return &types.ManagedObjectNotFound{Obj: ref}
		}
		m.vim.WithLock(m.inventory(), cluster, func() {
			c.reach = append(c.reach, hostGroup{ref, cluster.Name, slices.Clone(cluster.Host)})
		})
	}
	for _, ref := range c.Hosts {
		if _, ok := m.vim.Get(ref).(*simulator.HostSystem); !ok {
			return &types.ManagedObjectNotFound{Obj: ref}
		}
		c.reach = append(c.reach, hostGroup{ref, ref.Value, []types.ManagedObjectReference{ref}})
	}
	return nil
}

// admitDatastores checks the candidates, of which a new volume needs at least one.
func (m *Manager) admitDatastores(c *creation) types.BaseMethodFault {
	if len(c.Datastores) == 0 && c.isNew() && !(len(c.reach) > 0 && assume.ClustersInsteadOfDatastores.In(m.assumed)) {
		const text = "createSpecs.datastores is empty"
		switch assume.NoDatastores.In(m.assumed) {
		case "InvalidArgument":
			return &worded{fault: &types.InvalidArgument{}, text: text}
		case "CnsFault":
			return &worded{fault: &cnstypes.CnsFault{Reason: text}, text: text}
		}
	}
	var forbidden []types.ManagedObjectReference
	for _, ref := range c.Datastores {
		if _, ok := m.vim.Get(ref).(*simulator.Datastore); !ok || (m.sees != nil && !m.sees(c.user, ref)) {
			return &types.ManagedObjectNotFound{Obj: ref}
		}
		if m.mayPlace != nil && !m.mayPlace(c.user, ref) {
			forbidden = append(forbidden, ref)
		}
	}
	if len(forbidden) == 0 {
		return nil
	}
	level := assume.DatastorePrivilege.In(m.assumed)
	if level == "call" || (level == "call when none is left" && len(forbidden) == len(c.Datastores)) {
		return &types.NoPermission{Object: &forbidden[0], PrivilegeId: placePrivilege}
	}
	return nil
}

func (m *Manager) admitPolicy(c *creation) types.BaseMethodFault {
	id, fault := policyID(c.Profile)
	if fault != nil {
		return invalid("createSpecs.profile")
	}
	c.policy = id
	if !m.knowsPolicy(id) && assume.UnknownPolicy.In(m.assumed) == "call" {
		return invalid("createSpecs.profile.profileId")
	}
	return nil
}

// knowsPolicy is true of no policy, too.
func (m *Manager) knowsPolicy(id string) bool {
	if id == "" || m.policies == nil {
		return true
	}
	_, known := m.policies.Compatible(id)
	return known
}

// admitSource refuses disks that are not there and a size that is not the snapshot's. A snapshot that is not there is the
// volume's fault.
func (m *Manager) admitSource(c *creation) types.BaseMethodFault {
	if c.VolumeType != typeBlock {
		return nil
	}
	if !c.isNew() {
		return m.admitBacking(c.block())
	}
	source, restoring := c.VolumeSource.(*cnstypes.CnsSnapshotVolumeSource)
	if !restoring {
		return nil
	}
	original, fault := m.snapshotOf(source.VolumeId.Id, source.SnapshotId.Id)
	if fault != nil {
		return nil
	}
	wanted := c.block().CapacityInMb
	if wanted < original.capacityMB || (wanted > original.capacityMB && !assume.RestoreLarger.In(m.assumed)) {
		return invalid("createSpecs.backingObjectDetails.capacityInMb")
	}
	return nil
}
