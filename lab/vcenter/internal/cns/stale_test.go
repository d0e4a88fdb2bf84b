package cns

import (
	"testing"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"
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
