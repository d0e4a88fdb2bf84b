package cns

import (
	"slices"
	"strings"
	"testing"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"
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
	l.result(l.update(id, c1, pod("pod2", "ns", "c1"))) // what is not named stays
	l.wantEntities(id, "PERSISTENT_VOLUME/c1//pv", "PERSISTENT_VOLUME_CLAIM/c1/ns/pvc", "POD/c1/ns/pod", "POD/c1/ns/pod2")
	l.result(l.update(id, c1, gone(pod("pod", "ns", "c1"))))
	l.result(l.update(id, c1, gone(pod("never", "ns", "c1"))))
	l.wantEntities(id, "PERSISTENT_VOLUME/c1//pv", "PERSISTENT_VOLUME_CLAIM/c1/ns/pvc", "POD/c1/ns/pod2")
}

const duplicatedText = "Duplicated entity for each entity type in one cluster is found."

func TestTwoEntitiesOfATypeInOneSpecAreRefusedInTheCall(t *testing.T) {
	c1 := []cnstypes.CnsContainerCluster{cluster("c1")}
	for _, release := range []string{"6.7U3", "7.0U3", "9.1"} {
		l := newLab(t, options{release: release})
		id := l.newVolume("a")
		task, err := l.update(id, c1, pod("pod", "ns", "c1"), pv("pv", "c1"), pod("pod2", "ns", "c1"))
		l.wantRefusal(&cnstypes.CnsFault{Reason: duplicatedText}, duplicatedText, task, err)
		l.wantEntities(id)

		spec := l.blockSpec("b", 1024)
		spec.Metadata.EntityMetadata = []cnstypes.BaseCnsEntityMetadata{pv("pv", "c1"), pv("pv2", "c1")}
		task, err = l.create(spec)
		l.wantRefusal(&cnstypes.CnsFault{Reason: duplicatedText}, duplicatedText, task, err)
	}
	l := newLab(t, options{})
	id := l.newVolume("a")
	both := []cnstypes.CnsContainerCluster{cluster("c1"), cluster("c2")}
	l.result(l.update(id, both, pod("pod", "ns", "c1"), pod("pod", "ns", "c2")))

	l.assume(map[string]any{"DuplicatedEntityFault": "InvalidArgument"})
	task, err := l.update(id, c1, pod("pod", "ns", "c1"), pod("pod2", "ns", "c1"))
	l.wantRefusal(&types.InvalidArgument{}, duplicatedText, task, err)
	l.assume(map[string]any{"OneEntityPerType": false})
	l.result(l.update(id, c1, pod("pod", "ns", "c1"), pod("pod2", "ns", "c1")))
}

func TestEntitiesMarkedForDeletionCountAsDuplicates(t *testing.T) {
	l := newLab(t, options{})
	id := l.newVolume("a")
	c1 := []cnstypes.CnsContainerCluster{cluster("c1")}
	l.result(l.update(id, c1, pod("pod", "ns", "c1")))
	task, err := l.update(id, c1, gone(pod("pod", "ns", "c1")), pod("pod2", "ns", "c1"))
	l.wantRefusal(&cnstypes.CnsFault{}, duplicatedText, task, err)
	l.assume(map[string]any{"DeletedEntitiesCount": false})
	l.result(l.update(id, c1, gone(pod("pod", "ns", "c1")), pod("pod2", "ns", "c1")))
	l.wantEntities(id, "POD/c1/ns/pod2")
}

func TestAVolumeBelongsToSeveralClusters(t *testing.T) {
	l := newLab(t, options{})
	id := l.newVolume("a")
	c1, c2 := cluster("c1"), cluster("c2")
	l.result(l.update(id, []cnstypes.CnsContainerCluster{c1}, pv("pv", "c1")))
	l.result(l.update(id, []cnstypes.CnsContainerCluster{c2}, pv("pv", "c2")))
	v := l.volume(id)
	if len(v.Metadata.ContainerClusterArray) != 2 || v.Metadata.ContainerCluster.ClusterId != "c2" {
		t.Errorf("clusters %+v", v.Metadata)
	}
	l.wantEntities(id, "PERSISTENT_VOLUME/c1//pv", "PERSISTENT_VOLUME/c2//pv")

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

func TestAnUpdateWithANewClusterKeepsTheOthersFrom70On(t *testing.T) {
	moved := func(release string) (*lab, string) {
		l := newLab(t, options{release: release})
		id := l.newVolume("a")
		l.result(l.update(id, []cnstypes.CnsContainerCluster{cluster("c1")}, pv("pv", ""), pod("pod", "ns", "")))
		l.result(l.update(id, []cnstypes.CnsContainerCluster{cluster("c2")}, pv("pv", "")))
		return l, id
	}
	l, id := moved("7.0U3")
	l.wantEntities(id, "PERSISTENT_VOLUME/c1//pv", "POD/c1/ns/pod", "PERSISTENT_VOLUME/c2//pv")
	if got := l.volume(id).Metadata; len(got.ContainerClusterArray) != 2 || got.ContainerCluster.ClusterId != "c2" {
		t.Errorf("clusters %+v", got)
	}

	l, id = moved("6.7U3") // whose entities show no cluster
	l.wantEntities(id, "PERSISTENT_VOLUME///pv")
	if got := l.volume(id).Metadata.ContainerCluster.ClusterId; got != "c2" {
		t.Errorf("cluster %s", got)
	}
	if got := l.find(&cnstypes.CnsQueryFilter{ContainerClusterIds: []string{"c1"}}); len(got) != 0 {
		t.Errorf("c1 still has %v", got)
	}
	l.result(l.update(id, []cnstypes.CnsContainerCluster{cluster("c2")}, pod("pod", "ns", "")))
	l.wantEntities(id, "PERSISTENT_VOLUME///pv", "POD//ns/pod")
}

func TestWrongMetadataIsNamedByItsFullPath(t *testing.T) {
	eve, anonymous, nomad := cluster("c1"), cluster(""), cluster("c1")
	eve.VSphereUser, nomad.ClusterType = "eve", "NOMAD"
	cases := map[string]struct {
		clusters []cnstypes.CnsContainerCluster
		entity   *cnstypes.CnsKubernetesEntityMetadata
		path     string
	}{
		"another user":         {[]cnstypes.CnsContainerCluster{eve}, nil, "containerCluster.vSphereUser"},
		"no cluster id":        {[]cnstypes.CnsContainerCluster{anonymous}, nil, "containerCluster.clusterId"},
		"a wrong cluster type": {[]cnstypes.CnsContainerCluster{nomad}, nil, "containerCluster.clusterType"},
		"a wrong second one":   {[]cnstypes.CnsContainerCluster{cluster("c1"), nomad}, nil, "containerClusterArray.clusterType"},
		"a wrong entity type":  {[]cnstypes.CnsContainerCluster{cluster("c1")}, entity("CRONJOB", "x", "", "c1"), "entityMetadata.entityType"},
		"a nameless entity":    {[]cnstypes.CnsContainerCluster{cluster("c1")}, pod("", "", "c1"), "entityMetadata.entityName"},
		"an unknown cluster":   {[]cnstypes.CnsContainerCluster{cluster("c1")}, pv("pv", "c9"), "entityMetadata.clusterId"},
	}
	for _, release := range []string{"6.7U3", "8.0U3"} {
		l := newLab(t, options{release: release})
		id := l.newVolume("a")
		for _, c := range cases {
			var entities []cnstypes.BaseCnsEntityMetadata
			if c.entity != nil {
				entities = append(entities, c.entity)
			}
			task, err := l.update(id, c.clusters, entities...)
			l.wantArgument("updateSpecs.metadata."+c.path, task, err)
			spec := l.blockSpec("b", 1024)
			spec.Metadata = cnstypes.CnsVolumeMetadata{ContainerCluster: c.clusters[0], ContainerClusterArray: c.clusters, EntityMetadata: entities}
			task, err = l.create(spec)
			l.wantArgument("createSpecs.metadata."+c.path, task, err)
		}
		task, err := l.cns.UpdateVolumeMetadata(l.ctx, nil)
		l.wantArgument("updateSpecs", task, err)
		l.wantEntities(id)
		l.assume(map[string]any{"MetadataPaths": "short"})
		task, err = l.update(id, []cnstypes.CnsContainerCluster{eve})
		l.wantArgument("metadata.containerCluster.vSphereUser", task, err)
	}
}

func TestAClusterDistributionHasALimit(t *testing.T) {
	l := newLab(t, options{})
	spec := l.blockSpec("a", 1024)
	spec.Metadata.ContainerCluster.ClusterDistribution = strings.Repeat("x", 128)
	l.result(l.create(spec))
	spec.Metadata.ContainerCluster.ClusterDistribution += "x"
	task, err := l.create(spec)
	l.wantArgument("createSpecs.metadata.containerCluster.clusterDistribution", task, err)
}

func TestTheArrayOfClustersMayBeLeftOut(t *testing.T) {
	l := newLab(t, options{})
	spec := l.blockSpec("a", 1024)
	spec.Metadata.ContainerClusterArray = nil
	id := l.result(l.create(spec)).GetCnsVolumeOperationResult().VolumeId.Id
	if got := l.volume(id).Metadata.ContainerClusterArray; len(got) != 1 {
		t.Errorf("clusters %+v", got)
	}
	l.assume(map[string]any{"ClusterArrayMandatory": true})
	task, err := l.create(spec)
	l.wantArgument("createSpecs.metadata.containerClusterArray", task, err)

	l = newLab(t, options{release: "6.7U3", assumptions: map[string]any{"ClusterArrayMandatory": true}})
	spec.Datastores = l.datastores
	l.result(l.create(spec)) // which has no such field
}

func TestAnUpdateWithoutAChangeIsRefused(t *testing.T) {
	c1 := []cnstypes.CnsContainerCluster{cluster("c1")}
	for _, release := range []string{"6.7U3", "7.0U3", "9.1"} {
		l := newLab(t, options{release: release})
		id := l.newVolume("a")
		task, err := l.update(id, c1)
		l.wantArgument("updateSpecs.metadata", task, err)
		l.result(l.update(id, c1, pv("pv", "c1")))
		l.result(l.update(id, c1, pv("pv", "c1"))) // it names an entity, if only to leave it as it is
		l.result(l.update(id, c1, gone(pv("pv", "c1"))))
		task, err = l.update(id, c1)
		l.wantArgument("updateSpecs.metadata", task, err)
		renamed := cluster("c1")
		renamed.ClusterDistribution = "other"
		l.result(l.update(id, []cnstypes.CnsContainerCluster{renamed}))
	}
	l := newLab(t, options{})
	id := l.newVolume("a")
	l.result(l.update(id, c1, pv("pv", "c1")))
	l.assume(map[string]any{"UpdateWithoutChange": "unchanged fails"})
	task, err := l.update(id, c1, pv("pv", "c1"))
	l.wantArgument("updateSpecs.metadata", task, err)
	l.assume(map[string]any{"UpdateWithoutChange": "succeeds"})
	l.result(l.update(id, c1))
}

func TestAnUpdateReadsTheDiskBeforeThereIsATask(t *testing.T) {
	c1 := []cnstypes.CnsContainerCluster{cluster("c1")}
	for release, text := range map[string]string{
		"6.7U3": "Received SOAP response fault from [<cs p:00007f5724006bf0, TCP:localhost:443>]: retrieveVStorageObject\n",
		"7.0U3": "CNS: Failed to retrieve datastore for vol nope. (vim.fault.NotFound) {", "9.1": "CNS: Failed to retrieve datastore for vol nope. (vim.fault.NotFound) {",
	} {
		l := newLab(t, options{release: release})
		task, err := l.update("nope", c1, pv("pv", "c1"))
		l.wantCallFault(&types.NotFound{}, task, err)
		if got := soap.ToSoapFault(err).String; !strings.HasPrefix(got, text) {
			t.Errorf("%s: text %q", release, got)
		}
	}
	l := newLab(t, options{})
	lost, unregistered := l.volumeOn(l.datastores[0]), l.newVolume("b")
	deleting, err := vslm.NewObjectManager(l.vim.Client).Delete(l.ctx, l.datastores[0], lost)
	l.must(err)
	l.must(deleting.Wait(l.ctx))
	task, err := l.update(lost, c1, pv("pv", "c1"))
	l.wantCallFault(&types.NotFound{}, task, err)
	l.result(l.cns.DeleteVolume(l.ctx, volumeIDs(unregistered), false))
	task, err = l.update(unregistered, c1, pv("pv", "c1"))
	l.wantVolumeFault(&cnstypes.CnsNotRegisteredFault{}, task, err)

	l.assume(map[string]any{"UpdateUnknown": "volume"})
	for _, id := range []string{"nope", lost} {
		task, err = l.update(id, c1, pv("pv", "c1"))
		l.wantVolumeFault(&types.NotFound{}, task, err)
	}
}

func TestFileVolumesHaveManyEntitiesOfAType(t *testing.T) {
	l := newLab(t, options{inventory: makeVSAN})
	id := l.result(l.create(l.fileSpec("share", 1024))).GetCnsVolumeOperationResult().VolumeId.Id
	c1 := []cnstypes.CnsContainerCluster{cluster("c1")}
	l.result(l.update(id, c1, pod("a", "ns", "c1"), pod("b", "ns", "c1")))
	l.wantEntities(id, "POD/c1/ns/a", "POD/c1/ns/b")
}
