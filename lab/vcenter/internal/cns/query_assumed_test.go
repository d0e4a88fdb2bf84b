package cns

import (
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
