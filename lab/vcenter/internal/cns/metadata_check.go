package cns

import (
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// checkMetadata refuses metadata that is wrong in itself. All of it may be left out. parameter is that of the call.
func (m *Manager) checkMetadata(parameter, user string, metadata cnstypes.CnsVolumeMetadata, block bool) types.BaseMethodFault {
	present := metadata.ContainerCluster != (cnstypes.CnsContainerCluster{})
	if present || len(metadata.EntityMetadata) > 0 {
		if wrong := m.wrongCluster(user, metadata.ContainerCluster); wrong != "" {
			return m.invalidMetadata(parameter, "metadata.containerCluster."+wrong)
		}
	}
	if present && len(metadata.ContainerClusterArray) == 0 && m.since("7.0U1") && assume.ClusterArrayMandatory.In(m.assumed) {
		return m.invalidMetadata(parameter, "metadata.containerClusterArray")
	}
	for _, cluster := range metadata.ContainerClusterArray {
		if wrong := m.wrongCluster(user, cluster); wrong != "" {
			return m.invalidMetadata(parameter, "metadata.containerClusterArray."+wrong)
		}
	}
	for _, entity := range metadata.EntityMetadata {
		if wrong := wrongEntity(entity); wrong != "" {
			return m.invalidMetadata(parameter, "metadata.entityMetadata."+wrong)
		}
	}
	if block && m.duplicated(entities(metadata)) {
		const text = "Duplicated entity for each entity type in one cluster is found."
		if assume.DuplicatedEntityFault.In(m.assumed) == "CnsFault" {
			return &worded{fault: &cnstypes.CnsFault{Reason: text}, text: text}
		}
		return &worded{fault: &types.InvalidArgument{}, text: text}
	}
	return nil
}

// invalidMetadata names a wrong field of metadata.
func (m *Manager) invalidMetadata(parameter, path string) types.BaseMethodFault {
	if assume.MetadataPaths.In(m.assumed) == "full" {
		path = parameter + "." + path
	}
	return invalid(path)
}

// wrongCluster names the field of a cluster that is wrong; empty when none is.
func (m *Manager) wrongCluster(user string, cluster cnstypes.CnsContainerCluster) string {
	switch {
	case cluster.ClusterType != string(cnstypes.CnsClusterTypeKubernetes):
		return "clusterType"
	case cluster.ClusterId == "":
		return "clusterId"
	case !sameUser(cluster.VSphereUser, user) && assume.SessionUserOnly.In(m.assumed):
		return "vSphereUser"
	case len(cluster.ClusterDistribution) > assume.DistributionLimit.In(m.assumed):
		return "clusterDistribution"
	}
	return ""
}

// wrongEntity names the field of an entity that is wrong; empty when none is.
func wrongEntity(base cnstypes.BaseCnsEntityMetadata) string {
	entity, ok := base.(*cnstypes.CnsKubernetesEntityMetadata)
	if !ok {
		return "entityType"
	}
	switch cnstypes.CnsKubernetesEntityType(entity.EntityType) {
	case cnstypes.CnsKubernetesEntityTypePV, cnstypes.CnsKubernetesEntityTypePVC, cnstypes.CnsKubernetesEntityTypePOD:
	default:
		return "entityType"
	}
	if entity.EntityName == "" {
		return "entityName"
	}
	return ""
}

// duplicated tells whether a spec has two entities of one type in one cluster. What the volume has does not count.
func (m *Manager) duplicated(list []*cnstypes.CnsKubernetesEntityMetadata) bool {
	if !twice(list, true) || !assume.OneEntityPerType.In(m.assumed) {
		return false
	}
	return twice(list, false) || assume.DeletedEntitiesCount.In(m.assumed)
}

func twice(list []*cnstypes.CnsKubernetesEntityMetadata, deleted bool) bool {
	type kind struct{ cluster, entity string }
	seen := map[kind]bool{}
	for _, entity := range list {
		if entity.Delete && !deleted {
			continue
		}
		key := kind{entity.ClusterID, entity.EntityType}
		if seen[key] {
			return true
		}
		seen[key] = true
	}
	return false
}
