package cns

import (
	"testing"
	"time"

	"github.com/google/uuid"

	govcns "github.com/vmware/govmomi/cns"
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/handclock"
)

func (l *lab) querySnapshots(filter cnstypes.CnsSnapshotQueryFilter) *cnstypes.CnsSnapshotQueryResult {
	l.Helper()
	task, err := l.cns.QuerySnapshots(l.ctx, filter)
	l.must(err)
	info, err := govcns.GetTaskInfo(l.ctx, task)
	l.must(err)
	result, err := govcns.GetQuerySnapshotsTaskResult(l.ctx, info)
	l.must(err)
	return result
}

func ofOne(id, snapshot string) cnstypes.CnsSnapshotQueryFilter {
	spec := cnstypes.CnsSnapshotQuerySpec{VolumeId: cnstypes.CnsVolumeId{Id: id}}
	if snapshot != "" {
		spec.SnapshotId = &cnstypes.CnsSnapshotId{Id: snapshot}
	}
	return cnstypes.CnsSnapshotQueryFilter{SnapshotQuerySpecs: []cnstypes.CnsSnapshotQuerySpec{spec}}
}

func (l *lab) snapshotIDs(id string) []string {
	l.Helper()
	var ids []string
	for _, entry := range l.querySnapshots(ofOne(id, "")).Entries {
		if entry.Error != nil {
			l.Fatalf("query of snapshots of %s: %+v", id, entry.Error)
		}
		ids = append(ids, entry.Snapshot.SnapshotId.Id)
	}
	return ids
}

func (l *lab) deleteSnapshot(id, snapshot string) []cnstypes.CnsSnapshotDeleteSpec {
	return []cnstypes.CnsSnapshotDeleteSpec{{VolumeId: cnstypes.CnsVolumeId{Id: id}, SnapshotId: cnstypes.CnsSnapshotId{Id: snapshot}}}
}

func TestSnapshotsHaveALimitAPageAndAnOrder(t *testing.T) {
	l := newLab(t, options{})
	id := l.newVolume("a")
	var made []string
	for range 32 {
		made = append(made, l.newSnapshot(id))
	}
	l.assume(showCauses)
	task, err := l.snapshot(id, "one too many")
	l.wantDiskFault(&types.LimitExceeded{}, task, err)

	var seen []string
	filter := ofOne(id, "")
	filter.Cursor = &cnstypes.CnsCursor{Limit: 10}
	for pages := 1; ; pages++ {
		result := l.querySnapshots(filter)
		for _, entry := range result.Entries {
			seen = append(seen, entry.Snapshot.SnapshotId.Id)
		}
		if result.Cursor.TotalRecords != 32 {
			t.Fatalf("cursor %+v", result.Cursor)
		}
		if result.Cursor.Offset == result.Cursor.TotalRecords {
			if pages != 4 {
				t.Errorf("%d pages", pages)
			}
			break
		}
		filter.Cursor = &result.Cursor
	}
	for i := range made {
		if seen[i] != made[i] {
			t.Fatalf("snapshot %d is %s, want %s", i, seen[i], made[i])
		}
	}
	filter.Cursor = &cnstypes.CnsCursor{Limit: 129}
	task, err = l.cns.QuerySnapshots(l.ctx, filter)
	l.wantTaskFault(invalid("limit"), task, err)
	if got := l.querySnapshots(cnstypes.CnsSnapshotQueryFilter{}); got.Cursor.TotalRecords != 32 {
		t.Errorf("all snapshots: %+v", got.Cursor)
	}
	if got := l.querySnapshots(ofOne(id, made[3])).Entries; len(got) != 1 || got[0].Snapshot.Description != "s" || got[0].Snapshot.CreateTime.IsZero() {
		t.Errorf("one snapshot: %+v", got)
	}
}

func TestMissingSnapshotsAndVolumesAreNamed(t *testing.T) {
	l := newLab(t, options{})
	id := l.newVolume("a")
	l.sameFault(l.querySnapshots(ofOne(uuid.NewString(), "")).Entries[0].Error.Fault, &cnstypes.CnsVolumeNotFoundFault{})
	l.sameFault(l.querySnapshots(ofOne(id, uuid.NewString())).Entries[0].Error.Fault, &cnstypes.CnsSnapshotNotFoundFault{})
	task, err := l.snapshot(uuid.NewString(), "")
	l.wantVolumeFault(&cnstypes.CnsVolumeNotFoundFault{}, task, err)
	task, err = l.cns.DeleteSnapshots(l.ctx, l.deleteSnapshot(uuid.NewString(), uuid.NewString()))
	l.wantVolumeFault(&types.NotFound{}, task, err)
}

func TestDeletingAMissingSnapshotIsNotFound(t *testing.T) {
	l := newLab(t, options{})
	id := l.newVolume("a")
	task, err := l.cns.DeleteSnapshots(l.ctx, l.deleteSnapshot(id, uuid.NewString()))
	l.wantVolumeFault(&types.NotFound{}, task, err)
	l.assume(map[string]any{"DeleteMissingSnapshot": "CnsSnapshotNotFoundFault"})
	task, err = l.cns.DeleteSnapshots(l.ctx, l.deleteSnapshot(id, uuid.NewString()))
	l.wantVolumeFault(&cnstypes.CnsSnapshotNotFoundFault{}, task, err)
	l.assume(map[string]any{"DeleteMissingSnapshot": "InvalidArgument"})
	task, err = l.cns.DeleteSnapshots(l.ctx, l.deleteSnapshot(id, uuid.NewString()))
	fault := l.wantVolumeFault(invalid(""), task, err)
	if fault.Fault.(*types.InvalidArgument).InvalidProperty != "" || fault.LocalizedMessage != "A specified parameter was not correct: " {
		t.Errorf("%+v", fault)
	}
}

func TestAMalformedSnapshotIDFailsBelowCNS(t *testing.T) {
	l := newLab(t, options{release: "9.1"})
	id := l.newVolume("a")
	wrong := id + "+" + uuid.NewString()
	task, err := l.cns.DeleteSnapshots(l.ctx, l.deleteSnapshot(id, wrong))
	l.wantDiskFault(invalid(""), task, err)
	task, err = l.cns.CreateSnapshots(l.ctx, []cnstypes.CnsSnapshotCreateSpec{{VolumeId: cnstypes.CnsVolumeId{Id: id}, SnapshotId: &cnstypes.CnsSnapshotId{Id: wrong}}})
	l.wantDiskFault(invalid(""), task, err)
	_, err = l.global().RetrieveSnapshotDetails(l.ctx, types.ID{Id: id}, types.ID{Id: wrong})
	l.wantCallFault(invalid(""), nil, err)
	if got := soap.ToSoapFault(err).String; got != "InvalidArgument: "+wrong+" is incorrectly formatted." {
		t.Errorf("text %q", got)
	}
	_, err = l.global().DeleteSnapshot(l.ctx, types.ID{Id: id}, types.ID{Id: wrong})
	l.wantCallFault(invalid(""), nil, err)
}

func TestDetailsOfASnapshotComeLateInOldReleases(t *testing.T) {
	clock := handclock.At(time.Now())
	l := newLab(t, options{release: "7.0U3", config: func(c *Config) { c.Clock = clock.Now }})
	id := l.newVolume("a")
	snapshot := l.newSnapshot(id)
	_, err := l.global().RetrieveSnapshotDetails(l.ctx, types.ID{Id: id}, types.ID{Id: snapshot})
	l.wantCallFault(invalid("snapshotId"), nil, err)
	clock.Advance(time.Second)
	_, err = l.global().RetrieveSnapshotDetails(l.ctx, types.ID{Id: id}, types.ID{Id: snapshot})
	l.must(err)

	l = newLab(t, options{release: "8.0U3", config: func(c *Config) { c.Clock = clock.Now }})
	id = l.newVolume("a")
	_, err = l.global().RetrieveSnapshotDetails(l.ctx, types.ID{Id: id}, types.ID{Id: l.newSnapshot(id)})
	l.must(err)
}

func TestADeletedSnapshotIsGoneFromQueries(t *testing.T) {
	clock := handclock.At(time.Now())
	l := newLab(t, options{config: func(c *Config) { c.Clock = clock.Now }})
	id := l.newVolume("a")
	l.result(l.cns.DeleteSnapshots(l.ctx, l.deleteSnapshot(id, l.newSnapshot(id))))
	if got := l.snapshotIDs(id); len(got) != 0 {
		t.Errorf("snapshots %v", got)
	}
	l.assume(map[string]any{"DeletedSnapshotShownMS": 90_000})
	stale := l.newSnapshot(id)
	l.result(l.cns.DeleteSnapshots(l.ctx, l.deleteSnapshot(id, stale)))
	if got := l.snapshotIDs(id); len(got) != 1 || got[0] != stale {
		t.Errorf("snapshots %v", got)
	}
	if got := l.querySnapshots(cnstypes.CnsSnapshotQueryFilter{}).Entries; len(got) != 1 {
		t.Errorf("all snapshots: %v", got)
	}
	task, err := l.cns.DeleteSnapshots(l.ctx, l.deleteSnapshot(id, stale))
	l.wantVolumeFault(&types.NotFound{}, task, err)
	clock.Advance(90 * time.Second)
	if got := l.snapshotIDs(id); len(got) != 0 {
		t.Errorf("snapshots %v", got)
	}
}

func TestClientsMayChooseTheSnapshotsIdWhereTheReleaseHasIt(t *testing.T) {
	want := uuid.NewString()
	chosen := func(l *lab, id string) []cnstypes.CnsSnapshotCreateSpec {
		return []cnstypes.CnsSnapshotCreateSpec{{VolumeId: cnstypes.CnsVolumeId{Id: id}, SnapshotId: &cnstypes.CnsSnapshotId{Id: want}}}
	}
	l := newLab(t, options{release: "9.1"})
	id := l.newVolume("a")
	made := l.result(l.cns.CreateSnapshots(l.ctx, chosen(l, id))).(*cnstypes.CnsSnapshotCreateResult)
	if made.Snapshot.SnapshotId.Id != want || made.AggregatedSnapshotCapacityInMb != 1024 {
		t.Errorf("snapshot %+v", made)
	}
	task, err := l.cns.CreateSnapshots(l.ctx, chosen(l, id))
	l.wantVolumeFault(&types.AlreadyExists{}, task, err)

	l = newLab(t, options{})
	task, err = l.cns.CreateSnapshots(l.ctx, chosen(l, l.newVolume("a")))
	l.wantVolumeFault(&types.NotSupported{}, task, err)
}

func restoreSpec(l *lab, id, snapshot string, capacityMB int64) cnstypes.CnsVolumeCreateSpec {
	spec := l.blockSpec("restored", capacityMB)
	spec.VolumeSource = &cnstypes.CnsSnapshotVolumeSource{VolumeId: cnstypes.CnsVolumeId{Id: id}, SnapshotId: cnstypes.CnsSnapshotId{Id: snapshot}}
	return spec
}

func TestARestoreStaysOnTheSourcesDatastoreAndHasItsSize(t *testing.T) {
	l := newLab(t, options{})
	spec := l.blockSpec("source", 1024)
	spec.Datastores = l.datastores[1:2]
	id := l.result(l.create(spec)).GetCnsVolumeOperationResult().VolumeId.Id
	snapshot := l.newSnapshot(id)
	result := l.result(l.create(restoreSpec(l, id, snapshot, 1024))).(*cnstypes.CnsVolumeCreateResult)
	if result.PlacementResults[0].Datastore != l.datastores[1] {
		t.Errorf("placed on %s", result.PlacementResults[0].Datastore.Value)
	}
	for _, size := range []int64{512, 2048} {
		task, err := l.create(restoreSpec(l, id, snapshot, size))
		l.wantCallFault(invalid("capacityInMb"), task, err)
	}
	away := restoreSpec(l, id, snapshot, 1024)
	away.Datastores = l.datastores[2:]
	task, err := l.create(away)
	l.wantVolumeFault(&cnstypes.CnsFault{}, task, err)
	task, err = l.create(restoreSpec(l, id, "nope", 1024))
	l.wantVolumeFault(&cnstypes.CnsSnapshotNotFoundFault{}, task, err)
	task, err = l.create(restoreSpec(l, "nope", snapshot, 1024))
	l.wantVolumeFault(&cnstypes.CnsVolumeNotFoundFault{}, task, err)

	l.assume(map[string]any{"RestoreLarger": true, "RestoreAnyDatastore": true})
	away.BackingObjectDetails.GetCnsBackingObjectDetails().CapacityInMb = 4096
	l.result(l.create(away))
}

func TestSnapshotsBeginWithSevenU3(t *testing.T) {
	l := newLab(t, options{release: "6.7U3"})
	id := l.newVolume("a")
	task, err := l.snapshot(id, "")
	l.wantCallFault(&types.MethodNotFound{}, task, err)
	task, err = l.create(restoreSpec(l, id, "s", 1024))
	l.wantVolumeFault(&types.NotSupported{}, task, err)

	l = newLab(t, options{release: "7.0U3"})
	l.newSnapshot(l.newVolume("a"))
}
