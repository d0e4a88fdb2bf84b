package cns

import (
	"slices"
	"testing"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
)

func entity(kind, name, namespace, cluster string) *cnstypes.CnsKubernetesEntityMetadata {
	return &cnstypes.CnsKubernetesEntityMetadata{
		CnsEntityMetadata: cnstypes.CnsEntityMetadata{EntityName: name, ClusterID: cluster}, EntityType: kind, Namespace: namespace,
	}
}

func pv(name, cluster string, label ...string) *cnstypes.CnsKubernetesEntityMetadata {
	e := entity("PERSISTENT_VOLUME", name, "", cluster)
	if len(label) == 2 {
		e.Labels = []types.KeyValue{{Key: label[0], Value: label[1]}}
	}
	return e
}

func claim(name, namespace, cluster string) *cnstypes.CnsKubernetesEntityMetadata {
	return entity("PERSISTENT_VOLUME_CLAIM", name, namespace, cluster)
}

func pod(name, namespace, cluster string) *cnstypes.CnsKubernetesEntityMetadata {
	return entity("POD", name, namespace, cluster)
}

func gone(e *cnstypes.CnsKubernetesEntityMetadata) *cnstypes.CnsKubernetesEntityMetadata {
	e.Delete = true
	return e
}

func (l *lab) update(id string, clusters []cnstypes.CnsContainerCluster, entities ...cnstypes.BaseCnsEntityMetadata) (*object.Task, error) {
	return l.cns.UpdateVolumeMetadata(l.ctx, []cnstypes.CnsVolumeMetadataUpdateSpec{{
		VolumeId: cnstypes.CnsVolumeId{Id: id},
		Metadata: cnstypes.CnsVolumeMetadata{ContainerCluster: clusters[0], ContainerClusterArray: clusters, EntityMetadata: entities},
	}})
}

// entities lists what a volume has as type/cluster/namespace/name.
func (l *lab) entities(id string) []string {
	l.Helper()
	list := []string{}
	for _, base := range l.volume(id).Metadata.EntityMetadata {
		e := base.(*cnstypes.CnsKubernetesEntityMetadata)
		if e.Delete {
			l.Errorf("%s is marked delete", e.EntityName)
		}
		list = append(list, e.EntityType+"/"+e.ClusterID+"/"+e.Namespace+"/"+e.EntityName)
	}
	slices.Sort(list)
	return list
}

func (l *lab) wantEntities(id string, want ...string) {
	l.Helper()
	slices.Sort(want)
	if got := l.entities(id); !slices.Equal(got, want) {
		l.Fatalf("entities %v, want %v", got, want)
	}
}

func TestMetadataIsMergedEntityByEntity(t *testing.T) {
	l := newLab(t, options{})
	id := l.newVolume("a")
	c1 := []cnstypes.CnsContainerCluster{cluster("c1")}
	l.result(l.update(id, c1, pv("pv", "c1", "a", "1")))
	l.result(l.update(id, c1, claim("pvc", "ns", "c1")))
	l.result(l.update(id, c1, pod("pod", "ns", ""))) // the cluster of the update
	l.wantEntities(id, "PERSISTENT_VOLUME/c1//pv", "PERSISTENT_VOLUME_CLAIM/c1/ns/pvc", "POD/c1/ns/pod")

	l.result(l.update(id, c1, pv("pv", "c1", "b", "2")))
	labels := l.volume(id).Metadata.EntityMetadata[0].GetCnsEntityMetadata().Labels
	if len(labels) != 1 || labels[0].Key != "b" {
		t.Errorf("labels are %v: an entity is replaced as a whole", labels)
	}
	task, err := l.update(id, c1, pod("pod2", "ns", "c1"))
	l.wantVolumeFault(&cnstypes.CnsFault{Reason: "Duplicated entity"}, task, err)
	l.result(l.update(id, c1, pod("pod2", "ns", "c1"), gone(pod("pod", "ns", "c1"))))
	l.result(l.update(id, c1, gone(pod("never", "ns", "c1"))))
	l.wantEntities(id, "PERSISTENT_VOLUME/c1//pv", "PERSISTENT_VOLUME_CLAIM/c1/ns/pvc", "POD/c1/ns/pod2")
}

func TestAVolumeBelongsToSeveralClusters(t *testing.T) {
	l := newLab(t, options{})
	id := l.newVolume("a")
	c1, c2 := cluster("c1"), cluster("c2")
	l.result(l.update(id, []cnstypes.CnsContainerCluster{c1}, pv("pv", "c1")))
	l.result(l.update(id, []cnstypes.CnsContainerCluster{c2}, pv("pv", "c2")))
	v := l.volume(id)
	if len(v.Metadata.ContainerClusterArray) != 2 || v.Metadata.ContainerCluster.ClusterId != "c1" {
		t.Errorf("clusters %+v", v.Metadata)
	}
	l.wantEntities(id, "PERSISTENT_VOLUME/c1//pv", "PERSISTENT_VOLUME/c2//pv")

	task, err := l.update(id, []cnstypes.CnsContainerCluster{c2}, pv("pv", "c9"))
	l.wantVolumeFault(invalid("clusterId"), task, err)

	c2.ClusterDistribution = "other"
	l.result(l.update(id, []cnstypes.CnsContainerCluster{c2}))
	if got := l.volume(id).Metadata.ContainerClusterArray[1].ClusterDistribution; got != "other" {
		t.Errorf("distribution is %s", got)
	}
	c1.Delete = true
	l.result(l.update(id, []cnstypes.CnsContainerCluster{c1}))
	l.wantEntities(id, "PERSISTENT_VOLUME/c2//pv")
	if got := l.volume(id).Metadata.ContainerCluster.ClusterId; got != "c2" {
		t.Errorf("the first cluster is %s", got)
	}
	if got := l.find(&cnstypes.CnsQueryFilter{ContainerClusterIds: []string{"c1"}}); len(got) != 0 {
		t.Errorf("c1 still has %v", got)
	}
}

func TestOmittedClustersMayGo(t *testing.T) {
	l := newLab(t, options{assumptions: map[string]any{"OmittedClustersStay": false}})
	id := l.newVolume("a")
	l.result(l.update(id, []cnstypes.CnsContainerCluster{cluster("c2")}))
	if got := l.volume(id).Metadata.ContainerClusterArray; len(got) != 1 || got[0].ClusterId != "c2" {
		t.Errorf("clusters %+v", got)
	}
}

func TestWrongMetadataIsRefused(t *testing.T) {
	l := newLab(t, options{})
	id := l.newVolume("a")
	c1 := []cnstypes.CnsContainerCluster{cluster("c1")}
	task, err := l.update("nope", c1)
	l.wantVolumeFault(&types.NotFound{}, task, err)
	task, err = l.update(id, c1, entity("CRONJOB", "x", "", "c1"))
	l.wantVolumeFault(invalid("entityType"), task, err)
	task, err = l.update(id, c1, entity("POD", "", "", "c1"))
	l.wantVolumeFault(invalid("entityMetadata"), task, err)
	eve := cluster("c1")
	eve.VSphereUser = "eve"
	task, err = l.update(id, []cnstypes.CnsContainerCluster{eve})
	l.wantTaskFault(invalid("vSphereUser"), task, err)
	task, err = l.cns.UpdateVolumeMetadata(l.ctx, nil)
	l.wantTaskFault(invalid("updateSpecs"), task, err)
	l.wantEntities(id)
}

func TestFileVolumesHaveManyEntitiesOfAType(t *testing.T) {
	l := newLab(t, options{inventory: makeVSAN})
	id := l.result(l.create(l.fileSpec("share", 1024))).GetCnsVolumeOperationResult().VolumeId.Id
	c1 := []cnstypes.CnsContainerCluster{cluster("c1")}
	l.result(l.update(id, c1, pod("a", "ns", "c1"), pod("b", "ns", "c1")))
	l.wantEntities(id, "POD/c1/ns/a", "POD/c1/ns/b")
}
