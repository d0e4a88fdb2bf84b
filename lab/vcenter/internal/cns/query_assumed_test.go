package cns

import (
	"fmt"
	"slices"
	"testing"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"
)

func TestSeveralLabelsFindVolumesWithAnyOfThem(t *testing.T) {
	l := newLab(t, options{})
	labelled := func(labels ...types.KeyValue) string {
		spec := l.blockSpec("pvc", 1024)
		entity := pv("pv", "c1")
		entity.Labels = labels
		spec.Metadata.EntityMetadata = []cnstypes.BaseCnsEntityMetadata{entity}
		return l.result(l.create(spec)).GetCnsVolumeOperationResult().VolumeId.Id
	}
	app, tier := types.KeyValue{Key: "app", Value: "web"}, types.KeyValue{Key: "tier", Value: "front"}
	one, both := labelled(app), labelled(app, tier)
	filter := &cnstypes.CnsQueryFilter{Labels: []types.KeyValue{app, tier}}
	if got := l.find(filter); !slices.Equal(got, []string{one, both}) {
		t.Errorf("found %v", got)
	}
	l.assume(map[string]any{"LabelsMatch": "all"})
	if got := l.find(filter); !slices.Equal(got, []string{both}) {
		t.Errorf("found %v", got)
	}
}

func TestAFilterHasAtMostTenValuesInAList(t *testing.T) {
	l := newLab(t, options{})
	names, clusters := []string{"a"}, []string{"c1"}
	var datastores []types.ManagedObjectReference
	var labels []types.KeyValue
	for i := range 10 {
		names, clusters = append(names, fmt.Sprint("n", i)), append(clusters, fmt.Sprint("x", i))
		labels = append(labels, types.KeyValue{Key: fmt.Sprint("k", i), Value: "v"})
		datastores = append(datastores, l.datastores[i%len(l.datastores)])
	}
	made := l.newVolume("a")
	filter := &cnstypes.CnsQueryFilter{Names: names[:10], ContainerClusterIds: clusters[:10], Datastores: datastores}
	if found := l.find(filter); !slices.Equal(found, []string{made}) {
		t.Errorf("found %v", found)
	}
	for field, filter := range map[string]*cnstypes.CnsQueryFilter{
		"names":               {Names: names},
		"containerClusterIds": {ContainerClusterIds: clusters},
		"datastores":          {Datastores: append(datastores, l.datastores[0])},
		"labels":              {Labels: append(labels, types.KeyValue{Key: "k", Value: "v"})},
	} {
		_, err := l.cns.QueryVolume(l.ctx, filter)
		l.wantCallFault(invalid("filter."+field), nil, err)
	}
}

func TestAFilterMayHaveAnyNumberOfValues(t *testing.T) {
	l := newLab(t, options{assumptions: map[string]any{"FilterValues": 0}})
	made, names := l.newVolume("a"), []string{"a"}
	for i := range 100 {
		names = append(names, fmt.Sprint("n", i))
	}
	if found := l.find(&cnstypes.CnsQueryFilter{Names: names}); !slices.Equal(found, []string{made}) {
		t.Errorf("found %v", found)
	}
}

func TestAPageOfSnapshotsHasALargestSize(t *testing.T) {
	l := newLab(t, options{})
	id := l.newVolume("a")
	l.newSnapshot(id)
	filter := ofOne(id, "")
	filter.Cursor = &cnstypes.CnsCursor{Limit: 128}
	if got := l.querySnapshots(filter).Entries; len(got) != 1 {
		t.Errorf("snapshots %+v", got)
	}
	filter.Cursor.Limit = 129
	task, err := l.cns.QuerySnapshots(l.ctx, filter)
	l.wantTaskFault(invalid("cursor.limit"), task, err)
}
