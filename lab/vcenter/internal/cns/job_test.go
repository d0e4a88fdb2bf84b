package cns

import (
	"testing"
	"time"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"
)

// fated is a lab whose next task of a method ends as the test wants.
func fated(t *testing.T, release string) (*lab, map[string]Fate) {
	fates := map[string]Fate{}
	return newLab(t, options{release: release, config: func(c *Config) {
		c.Fate = func(_ *simulator.Context, method string) Fate {
			fate := fates[method]
			delete(fates, method)
			return fate
		}
	}}), fates
}

// synced makes CNS look at all disks.
func (l *lab) synced() {
	l.Helper()
	if info := l.ended(l.cns.SyncDatastore(l.ctx, "", true)); info.Error != nil {
		l.Fatalf("sync: %+v", info.Error)
	}
}

func (l *lab) runs(task *object.Task) bool {
	l.Helper()
	return l.taskInfo(task).State == types.TaskInfoStateRunning
}

func TestWorkHalfDoneLeavesTheRecordsOfCNSAsTheyWere(t *testing.T) {
	l, fates := fated(t, "8.0U3")
	lost := &cnstypes.CnsFault{Reason: "lost"}
	fates["CnsCreateVolume"] = Fate{Half: true, Fault: lost}
	task, err := l.create(l.blockSpec("half", 1024))
	l.wantTaskFault(&cnstypes.CnsFault{Reason: "lost"}, task, err)
	if got := l.manager.Volumes(); len(got) != 0 {
		t.Errorf("volumes %v", got)
	}
	disks, err := vslm.NewObjectManager(l.vim.Client).List(l.ctx, l.datastores[0])
	l.must(err)
	if len(disks) != 1 || l.free(l.datastores[0]) != 99*gib {
		t.Fatalf("disks %v, %d bytes free", disks, l.free(l.datastores[0]))
	}
	static := l.blockSpec("healed", 0)
	static.BackingObjectDetails = &cnstypes.CnsBlockBackingDetails{BackingDiskId: disks[0].Id}
	id := l.result(l.create(static)).GetCnsVolumeOperationResult().VolumeId.Id

	fates["CnsExtendVolume"] = Fate{Half: true, Fault: lost}
	task, err = l.extend(id, 2048)
	l.wantTaskFault(lost, task, err)
	size := func() int64 { return l.volume(id).BackingObjectDetails.GetCnsBackingObjectDetails().CapacityInMb }
	if got := size(); got != 1024 || l.manager.Volumes()[0].CapacityMB != 2048 {
		t.Errorf("CNS shows %d MiB of %d", got, l.manager.Volumes()[0].CapacityMB)
	}
	l.synced()
	if got := size(); got != 2048 {
		t.Errorf("after a sync CNS shows %d MiB", got)
	}

	fates["CnsDeleteVolume"] = Fate{Half: true, Fault: lost}
	task, err = l.delete(id)
	l.wantTaskFault(lost, task, err)
	if _, err := vslm.NewObjectManager(l.vim.Client).Retrieve(l.ctx, l.datastores[0], id); err == nil || !l.exists(id) {
		t.Errorf("the disk is there (%v) or its record is not", err)
	}
	if l.free(l.datastores[0]) != 100*gib {
		t.Errorf("%d bytes free", l.free(l.datastores[0]))
	}
}

func TestAVolumeThatIsDeletedIsGoneFromQueriesWhateverWasHalfDoneBefore(t *testing.T) {
	l, fates := fated(t, "8.0U3")
	id, lost := l.newVolume("a"), &cnstypes.CnsFault{Reason: "lost"}
	fates["CnsExtendVolume"] = Fate{Half: true, Fault: lost}
	task, err := l.extend(id, 2048)
	l.wantTaskFault(lost, task, err)
	l.result(l.delete(id))
	if l.exists(id) {
		t.Error("queries show a volume that CNS deleted")
	}
}

func TestHeldWorkBeginsWhenItIsReleased(t *testing.T) {
	l, fates := fated(t, "8.0U3")
	fates["CnsCreateVolume"] = Fate{Hold: true}
	task, err := l.create(l.blockSpec("held", 1024))
	l.must(err)
	l.newVolume("others go on")
	if !l.runs(task) || len(l.manager.Volumes()) != 1 {
		t.Error("the held task ended or worked")
	}
	if released := l.manager.Release(); released != 1 {
		t.Errorf("released %d", released)
	}
	l.result(task, nil)

	fates["CnsCreateVolume"] = Fate{Late: true, Fault: &types.Timedout{}}
	task, err = l.create(l.blockSpec("late", 1024))
	l.wantTaskFault(&types.Timedout{}, task, err)
	if len(l.manager.Volumes()) != 2 {
		t.Error("the late work is done already")
	}
	if released := l.manager.Release(); released != 1 || len(l.manager.Volumes()) != 3 {
		t.Errorf("released %d, volumes %v", released, l.manager.Volumes())
	}
	l.wantTaskFault(&types.Timedout{}, task, nil)
	if released := l.manager.Release(); released != 0 {
		t.Errorf("released %d again", released)
	}
}

func TestATaskCanBeGoneAlthoughItsWorkIsDone(t *testing.T) {
	l, fates := fated(t, "8.0U3")
	fates["CnsCreateVolume"] = Fate{Gone: true}
	task, err := l.create(l.blockSpec("a", 1024))
	l.must(err)
	for deadline := time.Now().Add(time.Minute); err == nil && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		var state mo.Task
		err = l.vim.RetrieveOne(l.ctx, task.Reference(), []string{"info"}, &state)
		if err == nil && state.Info.State != types.TaskInfoStateRunning {
			t.Fatalf("the task is %s", state.Info.State)
		}
	}
	l.wantCallFault(&types.ManagedObjectNotFound{}, nil, err)
	if len(l.manager.Volumes()) != 1 {
		t.Error("the work was not done")
	}
}

func TestARestartFailsTheTasksOfCNSAndLeavesThoseOfVSLM(t *testing.T) {
	for extent, want := range map[Extent]int{Whole: 2, Half: 1, None: 1} {
		t.Run(string(extent), func(t *testing.T) {
			l, fates := fated(t, "8.0U3")
			fates["CnsCreateVolume"] = Fate{Hang: true}
			hung, err := l.create(l.blockSpec("hung", 1024))
			l.must(err)
			fates["CnsCreateVolume"] = Fate{Hold: true}
			held, err := l.create(l.blockSpec("held", 1024))
			l.must(err)
			fates["VslmCreateDisk_Task"] = Fate{Hold: true}
			disk, err := l.global().CreateDisk(l.ctx, types.VslmCreateSpec{
				Name: "fcd", CapacityInMB: 1, BackingSpec: &types.VslmCreateSpecDiskFileBackingSpec{
					VslmCreateSpecBackingSpec: types.VslmCreateSpecBackingSpec{Datastore: l.datastores[2]},
				},
			})
			l.must(err)
			l.manager.Restart(extent)
			for _, task := range []*object.Task{hung, held} {
				l.wantTaskFault(&cnstypes.CnsFault{Reason: "restart"}, task, nil)
			}
			if got := l.manager.Volumes(); len(got) != want {
				t.Errorf("volumes %v", got)
			}
			if l.manager.Release() != 1 {
				t.Error("the task of VSLM ended too")
			}
			l.finished(disk, nil)
		})
	}
}
