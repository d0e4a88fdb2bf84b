package cns

import (
	"testing"
	"time"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/handclock"
)

func TestAQueryRightAfterAChangeShowsIt(t *testing.T) {
	l := newLab(t, options{})
	id := l.volumeOn(l.datastores[0])
	url := l.volume(id).DatastoreUrl
	l.result(l.relocate(id, l.datastores[1]))
	if l.volume(id).DatastoreUrl == url {
		t.Error("the query after a relocation is stale")
	}
	l.result(l.extend(id, 2048))
	if size := l.volume(id).BackingObjectDetails.GetCnsBackingObjectDetails().CapacityInMb; size != 2048 {
		t.Errorf("the query after an extension shows %d MiB", size)
	}
	l.result(l.delete(id))
	if l.exists(id) {
		t.Error("the query after a deletion is stale")
	}
}

func TestQueriesCanBeStaleAfterAChange(t *testing.T) {
	l := newLab(t, options{assumptions: map[string]any{"StaleQueries": true}})
	id, other := l.volumeOn(l.datastores[0]), l.newVolume("b")
	url := l.volume(id).DatastoreUrl
	l.result(l.relocate(id, l.datastores[1]))
	onFirst := &cnstypes.CnsQueryFilter{Datastores: l.datastores[:1], VolumeIds: volumeIDs(id)}
	if got := l.find(onFirst); len(got) != 1 {
		t.Errorf("found on the old datastore: %v", got)
	}
	l.exists(other) // does not count
	if got := l.volume(id).DatastoreUrl; got != url {
		t.Errorf("the second query shows %s", got)
	}
	if got := l.volume(id).DatastoreUrl; got == url {
		t.Error("the third query is stale")
	}
	l.result(l.delete(id))
	for range staleQueries {
		if !l.exists(id) {
			t.Error("the deleted volume is gone already")
		}
	}
	if l.exists(id) {
		t.Error("the third query shows a deleted volume")
	}
	task, err := l.delete(id)
	l.wantVolumeFault(&types.NotFound{}, task, err)
}

func TestQueriesCanBeStaleForATime(t *testing.T) {
	clock := handclock.At(time.Now())
	l := newLab(t, options{assumptions: map[string]any{"StaleSeconds": 300}, config: func(c *Config) { c.Clock = clock.Now }})
	id := l.newVolume("a")
	size := func() int64 { return l.volume(id).BackingObjectDetails.GetCnsBackingObjectDetails().CapacityInMb }
	wait := func(name string, stale func() bool) {
		t.Helper()
		clock.Advance(299 * time.Second)
		for range 2 * staleQueries {
			if !stale() {
				t.Errorf("%s shows after 299 s", name)
			}
		}
		clock.Advance(time.Second)
		if stale() {
			t.Errorf("%s does not show after 300 s", name)
		}
	}
	l.result(l.extend(id, 2048))
	wait("an extension", func() bool { return size() == 1024 })

	metadata := l.blockSpec("a", 0).Metadata
	metadata.EntityMetadata = []cnstypes.BaseCnsEntityMetadata{pv("pv-1", "c1")}
	update := cnstypes.CnsVolumeMetadataUpdateSpec{VolumeId: cnstypes.CnsVolumeId{Id: id}, Metadata: metadata}
	l.result(l.cns.UpdateVolumeMetadata(l.ctx, []cnstypes.CnsVolumeMetadataUpdateSpec{update}))
	wait("an entity", func() bool { return len(l.volume(id).Metadata.EntityMetadata) == 0 })

	l.result(l.delete(id))
	wait("a deletion", func() bool { return l.exists(id) })

	l.assume(map[string]any{"FreshVolume": "absent"})
	id = l.newVolume("b")
	wait("a new volume", func() bool { return !l.exists(id) })
}
