package cns

import (
	"slices"
	"strings"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// updateMetadata is CnsUpdateVolumeMetadata.
func (m *Manager) updateMetadata(user string, specs []cnstypes.CnsVolumeMetadataUpdateSpec) (types.AnyType, types.BaseMethodFault) {
	if len(specs) == 0 {
		return nil, invalid("updateSpecs")
	}
	for _, spec := range specs {
		if fault := m.checkClusters(user, spec.Metadata); fault != nil {
			return nil, fault
		}
	}
	result := batch()
	for _, spec := range specs {
		result.VolumeResults = append(result.VolumeResults, outcome(spec.VolumeId.Id, m.updateOne(spec)))
	}
	return result, nil
}

func (m *Manager) updateOne(spec cnstypes.CnsVolumeMetadataUpdateSpec) types.BaseMethodFault {
	if fault := m.fileLocked(spec.VolumeId.Id); fault != nil {
		return fault
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.volumes[spec.VolumeId.Id]
	if !ok {
		return &types.NotFound{}
	}
	merged, fault := merge(v.metadata, spec.Metadata, v.kind == typeBlock, m.assumed)
	if fault == nil {
		v.metadata = merged
	}
	return fault
}

// checkClusters refuses clusters without an identity or of another user. Metadata may be left out.
func (m *Manager) checkClusters(user string, metadata cnstypes.CnsVolumeMetadata) types.BaseMethodFault {
	clusters := metadata.ContainerClusterArray
	if metadata.ContainerCluster != (cnstypes.CnsContainerCluster{}) || len(metadata.EntityMetadata) > 0 {
		clusters = append([]cnstypes.CnsContainerCluster{metadata.ContainerCluster}, clusters...)
	}
	for _, cluster := range clusters {
		if cluster.ClusterType != string(cnstypes.CnsClusterTypeKubernetes) {
			return invalid("metadata.containerCluster.clusterType")
		}
		if cluster.ClusterId == "" {
			return invalid("metadata.containerCluster.clusterId")
		}
		if assume.SessionUserOnly.In(m.assumed) && !sameUser(cluster.VSphereUser, user) {
			return invalid("metadata.containerCluster.vSphereUser")
		}
	}
	return nil
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

// merge applies a change to a volume's metadata: clusters are added or replaced by id, entities by type, name,
// namespace and cluster; those marked delete go. Nothing of old is changed in place.
func merge(old, change cnstypes.CnsVolumeMetadata, block bool, assumed *assume.Settings) (cnstypes.CnsVolumeMetadata, types.BaseMethodFault) {
	merged := cnstypes.CnsVolumeMetadata{ContainerClusterArray: mergeClusters(old.ContainerClusterArray, change, assumed)}
	has := func(id string) bool {
		return slices.ContainsFunc(merged.ContainerClusterArray, func(c cnstypes.CnsContainerCluster) bool { return c.ClusterId == id })
	}
	for i, cluster := range merged.ContainerClusterArray {
		// The cluster that made the volume stays its first one for as long as it uses it.
		if i == 0 || cluster.ClusterId == old.ContainerCluster.ClusterId {
			merged.ContainerCluster = cluster
		}
	}
	for _, entity := range old.EntityMetadata {
		if has(entity.GetCnsEntityMetadata().ClusterID) {
			merged.EntityMetadata = append(merged.EntityMetadata, entity)
		}
	}
	changes, fault := entities(change)
	if fault != nil {
		return old, fault
	}
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
			return old, invalid("metadata.entityMetadata.clusterId")
		}
		if fault := put(&merged.EntityMetadata, entity, block && assume.OneEntityPerType.In(assumed)); fault != nil {
			return old, fault
		}
	}
	return merged, nil
}

func mergeClusters(old []cnstypes.CnsContainerCluster, change cnstypes.CnsVolumeMetadata, assumed *assume.Settings) []cnstypes.CnsContainerCluster {
	named := slices.Clone(change.ContainerClusterArray)
	sameID := func(id string) func(cnstypes.CnsContainerCluster) bool {
		return func(c cnstypes.CnsContainerCluster) bool { return c.ClusterId == id }
	}
	if primary := change.ContainerCluster; primary.ClusterId != "" && !slices.ContainsFunc(named, sameID(primary.ClusterId)) {
		named = append(named, primary)
	}
	merged := slices.Clone(old)
	if len(change.ContainerClusterArray) > 0 && !assume.OmittedClustersStay.In(assumed) {
		merged = nil
	}
	for _, cluster := range named {
		at := slices.IndexFunc(merged, sameID(cluster.ClusterId))
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

// entities reads the changed entities; one without a cluster belongs to the change's own.
func entities(change cnstypes.CnsVolumeMetadata) ([]*cnstypes.CnsKubernetesEntityMetadata, types.BaseMethodFault) {
	var list []*cnstypes.CnsKubernetesEntityMetadata
	for _, base := range change.EntityMetadata {
		entity, ok := base.(*cnstypes.CnsKubernetesEntityMetadata)
		if !ok || entity.EntityName == "" {
			return nil, invalid("metadata.entityMetadata")
		}
		switch cnstypes.CnsKubernetesEntityType(entity.EntityType) {
		case cnstypes.CnsKubernetesEntityTypePV, cnstypes.CnsKubernetesEntityTypePVC, cnstypes.CnsKubernetesEntityTypePOD:
		default:
			return nil, invalid("metadata.entityMetadata.entityType")
		}
		own := *entity
		if own.ClusterID == "" {
			own.ClusterID = change.ContainerCluster.ClusterId
		}
		list = append(list, &own)
	}
	return list, nil
}

func sameEntity(a *cnstypes.CnsKubernetesEntityMetadata, base cnstypes.BaseCnsEntityMetadata) bool {
	b, ok := base.(*cnstypes.CnsKubernetesEntityMetadata)
	return ok && a.EntityType == b.EntityType && a.EntityName == b.EntityName && a.Namespace == b.Namespace && a.ClusterID == b.ClusterID
}

// put adds or replaces an entity; one says that a second of its type in its cluster is a fault.
func put(list *[]cnstypes.BaseCnsEntityMetadata, entity *cnstypes.CnsKubernetesEntityMetadata, one bool) types.BaseMethodFault {
	for i, base := range *list {
		if sameEntity(entity, base) {
			(*list)[i] = entity
			return nil
		}
		other, ok := base.(*cnstypes.CnsKubernetesEntityMetadata)
		if one && ok && other.EntityType == entity.EntityType && other.ClusterID == entity.ClusterID {
			return cnsFault(nil, "CNS: Duplicated entity for each entity type in one cluster is found: %s %s, present is %s", entity.EntityType, entity.EntityName, other.EntityName)
		}
	}
	*list = append(*list, entity)
	return nil
}
