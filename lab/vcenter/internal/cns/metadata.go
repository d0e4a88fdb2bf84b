package cns

import (
	"reflect"
	"slices"
	"strings"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// planUpdate is CnsUpdateVolumeMetadata: it refuses the call, or gives the work of its task.
func (m *Manager) planUpdate(user string, specs []cnstypes.CnsVolumeMetadataUpdateSpec) (work, types.BaseMethodFault) {
	if len(specs) == 0 {
		return nil, invalid("updateSpecs")
	}
	for _, spec := range specs {
		if fault := m.admitUpdate(user, spec); fault != nil {
			return nil, fault
		}
	}
	return func() (types.AnyType, types.BaseMethodFault) {
		result := batch()
		for _, spec := range specs {
			result.VolumeResults = append(result.VolumeResults, outcome(spec.VolumeId.Id, m.updateOne(spec)))
		}
		return result, nil
	}, nil
}

// admitUpdate refuses an update for what is wrong in it, and for a disk that is not there: CNS reads the disk before it makes
// the task.
func (m *Manager) admitUpdate(user string, spec cnstypes.CnsVolumeMetadataUpdateSpec) types.BaseMethodFault {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := spec.VolumeId.Id
	v, recorded := m.volumes[id]
	share := recorded && v.share != nil
	if !share && m.findDisk(id) == nil && assume.UpdateUnknown.In(m.assumed) == "call" {
		return m.noDatastore(id)
	}
	if !recorded {
		return nil // the volume's fault
	}
	block := v.kind == typeBlock
	if fault := m.checkMetadata("updateSpecs", user, spec.Metadata, block); fault != nil {
		return fault
	}
	merged, fault := m.merge("updateSpecs", v.metadata, spec.Metadata, block)
	if fault != nil {
		return fault
	}
	if !m.changes(v.metadata, spec.Metadata, merged) {
		return m.invalidMetadata("updateSpecs", "metadata")
	}
	return nil
}

// changes tells whether an update is one.
func (m *Manager) changes(old, change, merged cnstypes.CnsVolumeMetadata) bool {
	if !reflect.DeepEqual(old, merged) {
		return true
	}
	switch assume.UpdateWithoutChange.In(m.assumed) {
	case "empty fails":
		return len(change.EntityMetadata) > 0
	case "unchanged fails":
		return false
	}
	return true
}

func (m *Manager) updateOne(spec cnstypes.CnsVolumeMetadataUpdateSpec) types.BaseMethodFault {
	if fault := m.fileLocked(spec.VolumeId.Id); fault != nil {
		return fault
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	id := spec.VolumeId.Id
	v, recorded := m.volumes[id]
	share := recorded && v.share != nil
	switch {
	case !share && m.findDisk(id) == nil:
		return &types.NotFound{}
	case !recorded:
		return m.notRegistered(id)
	}
	merged, fault := m.merge("updateSpecs", v.metadata, spec.Metadata, v.kind == typeBlock)
	if fault == nil {
		v.metadata = merged
		m.noteCluster(v)
	}
	return fault
}

// merge applies a change to a volume's metadata: clusters are added or replaced by id, entities by type, name,
// namespace and cluster; those marked delete go. Nothing of old is changed in place. parameter is that of the call.
func (m *Manager) merge(parameter string, old, change cnstypes.CnsVolumeMetadata, block bool) (cnstypes.CnsVolumeMetadata, types.BaseMethodFault) {
	merged := cnstypes.CnsVolumeMetadata{ContainerClusterArray: m.mergeClusters(old.ContainerClusterArray, change)}
	if first := firstCluster(old, change, merged.ContainerClusterArray, block); first != nil {
		merged.ContainerCluster = *first
	}
	has := func(id string) bool { return findCluster(merged.ContainerClusterArray, id) != nil }
	for _, entity := range old.EntityMetadata {
		if has(entity.GetCnsEntityMetadata().ClusterID) {
			merged.EntityMetadata = append(merged.EntityMetadata, entity)
		}
	}
	changes := entities(change)
	for _, entity := range changes {
		merged.EntityMetadata = slices.DeleteFunc(merged.EntityMetadata, func(e cnstypes.BaseCnsEntityMetadata) bool {
			return entity.Delete && sameEntity(entity, e)
		})
	}
	for _, entity := range changes {
		if entity.Delete {
			continue
		}
		if !has(entity.ClusterID) {
			return old, m.invalidMetadata(parameter, "metadata.entityMetadata.clusterId")
		}
		put(&merged.EntityMetadata, entity)
	}
	if len(merged.EntityMetadata) == 0 {
		merged.EntityMetadata = nil // so that metadata can be compared
	}
	return merged, nil
}

func findCluster(list []cnstypes.CnsContainerCluster, id string) *cnstypes.CnsContainerCluster {
	i := slices.IndexFunc(list, func(c cnstypes.CnsContainerCluster) bool { return c.ClusterId == id })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// firstCluster is the one cluster that a volume shows outside the list: the last that updated a block volume, the one that
// made a file volume, for as long as it is in the list.
func firstCluster(old, change cnstypes.CnsVolumeMetadata, list []cnstypes.CnsContainerCluster, block bool) *cnstypes.CnsContainerCluster {
	if updating := findCluster(list, change.ContainerCluster.ClusterId); block && updating != nil {
		return updating
	}
	if present := findCluster(list, old.ContainerCluster.ClusterId); present != nil {
		return present
	}
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}

func (m *Manager) mergeClusters(old []cnstypes.CnsContainerCluster, change cnstypes.CnsVolumeMetadata) []cnstypes.CnsContainerCluster {
	named := slices.Clone(change.ContainerClusterArray)
	if primary := change.ContainerCluster; primary.ClusterId != "" && findCluster(named, primary.ClusterId) == nil {
		named = append(named, primary)
	}
	omitted := func(c cnstypes.CnsContainerCluster) bool { return findCluster(named, c.ClusterId) == nil }
	merged := slices.Clone(old)
	if len(named) > 0 && slices.ContainsFunc(merged, omitted) && !assume.OmittedClustersStay.In(m.assumed) {
		merged = slices.DeleteFunc(merged, omitted)
	}
	for _, cluster := range named {
		at := slices.IndexFunc(merged, func(c cnstypes.CnsContainerCluster) bool { return c.ClusterId == cluster.ClusterId })
		switch {
		case cluster.Delete && at >= 0:
			merged = slices.Delete(merged, at, at+1)
		case cluster.Delete:
		case at >= 0:
			merged[at] = cluster
		default:
			merged = append(merged, cluster)
		}
	}
	return merged
}

// entities are the changed ones, which checkMetadata has seen; one without a cluster belongs to the change's own.
func entities(change cnstypes.CnsVolumeMetadata) []*cnstypes.CnsKubernetesEntityMetadata {
	var list []*cnstypes.CnsKubernetesEntityMetadata
	for _, base := range change.EntityMetadata {
		own := *base.(*cnstypes.CnsKubernetesEntityMetadata)
		if own.ClusterID == "" {
			own.ClusterID = change.ContainerCluster.ClusterId
		}
		list = append(list, &own)
	}
	return list
}

func sameEntity(a *cnstypes.CnsKubernetesEntityMetadata, base cnstypes.BaseCnsEntityMetadata) bool {
	b, ok := base.(*cnstypes.CnsKubernetesEntityMetadata)
	return ok && a.EntityType == b.EntityType && a.EntityName == b.EntityName && a.Namespace == b.Namespace && a.ClusterID == b.ClusterID
}

// put adds an entity or replaces it as a whole, labels and all.
func put(list *[]cnstypes.BaseCnsEntityMetadata, entity *cnstypes.CnsKubernetesEntityMetadata) {
	for i, base := range *list {
		if sameEntity(entity, base) {
			(*list)[i] = entity
			return
		}
	}
	*list = append(*list, entity)
}

// sameUser compares names in the forms user@domain and DOMAIN\user. Case does not matter in vCenter.
func sameUser(a, b string) bool { return canonicalUser(a) == canonicalUser(b) }

func canonicalUser(name string) string {
	name = strings.ToLower(name)
	if domain, user, ok := strings.Cut(name, `\`); ok {
		return user + "@" + domain
	}
	return name
}
