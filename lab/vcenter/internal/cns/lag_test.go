package cns

import (
	"testing"
	"time"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/handclock"
)

func TestAQueryRightAfterCreateShowsTheWholeVolume(t *testing.T) {
	l := newLab(t, options{})
	if v := l.volume(l.newVolume("a")); v.DatastoreUrl == "" || v.Name != "a" {
		t.Errorf("volume %+v", v)
	}
}

func TestTheFirstQueriesAfterCreateMayLackTheVolumeOrItsDatastore(t *testing.T) {
	l := newLab(t, options{})
	l.assume(map[string]any{"FreshVolume": "noDatastoreUrl"})
	id := l.newVolume("a")
	l.find(&cnstypes.CnsQueryFilter{Names: []string{"another"}}) // does not count
	for range staleQueries {
		if v := l.volume(id); v.DatastoreUrl != "" || v.Name != "a" {
			t.Errorf("volume %+v", v)
		}
	}
	if v := l.volume(id); v.DatastoreUrl == "" {
		t.Errorf("volume %+v", v)
	}
	l.assume(map[string]any{"FreshVolume": "absent"})
	id = l.newVolume("b")
	l.result(l.attach(id, l.vms[0])) // the volume is there, the database lacks it
	for range staleQueries {
		if l.exists(id) {
			t.Error("the volume is there already")
		}
	}
	if !l.exists(id) {
		t.Error("the volume is not there yet")
	}
}

func TestWhatHappensToADiskOutsideCNSShowsLater(t *testing.T) {
	clock := handclock.At(time.Now())
	l := newLab(t, options{config: func(c *Config) { c.Clock = clock.Now }})
	disks := l.global()
	id := l.volumeOn(l.datastores[0])
	size := func() int64 { return l.volume(id).BackingObjectDetails.GetCnsBackingObjectDetails().CapacityInMb }
	l.finished(disks.ExtendDisk(l.ctx, types.ID{Id: id}, 2048))
	clock.Advance(89 * time.Second)
	if got := size(); got != 1024 {
		t.Errorf("an extension shows after 89 s: %d MiB", got)
	}
	clock.Advance(time.Second)
	if got := size(); got != 2048 {
		t.Errorf("after 90 s queries show %d MiB", got)
	}
	l.finished(disks.ExtendDisk(l.ctx, types.ID{Id: id}, 4096))
	l.manager.Sync()
	if got := size(); got != 4096 {
		t.Errorf("after a sync queries show %d MiB", got)
	}

	l.finished(disks.Delete(l.ctx, types.ID{Id: id}))
	if !l.exists(id) {
		t.Error("a disk deleted outside CNS is gone from it at once")
	}
	clock.Advance(90 * time.Second)
	if l.exists(id) {
		t.Error("CNS never notices that a disk was deleted")
	}
	if l.free(l.datastores[0]) != 100*gib {
		t.Errorf("free: %d", l.free(l.datastores[0]))
	}
}

func TestHealthAndComplianceCanBeSet(t *testing.T) {
	l := newLab(t, options{})
	id := l.newVolume("a")
	if l.manager.SetStatus("nope", Status{Health: "red"}) || !l.manager.SetStatus(id, Status{Compliance: "nonCompliant", Health: "unknown"}) {
		t.Error("the status of another volume was set")
	}
	if v := l.volume(id); v.ComplianceStatus != "nonCompliant" || v.HealthStatus != "unknown" {
		t.Errorf("volume %+v", v)
	}
	if got := l.find(&cnstypes.CnsQueryFilter{HealthStatus: "unknown"}); len(got) != 1 {
		t.Errorf("found %v", got)
	}
	l.manager.SetStatus(id, Status{Health: "real"})
	if v := l.volume(id); v.ComplianceStatus != "nonCompliant" || v.HealthStatus != "green" {
		t.Errorf("volume %+v", v)
	}
}
