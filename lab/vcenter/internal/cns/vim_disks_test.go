package cns

import (
	"testing"

	"github.com/google/uuid"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"
)

// vim25 is govmomi's client of the disks as vim25 has them.
func (l *lab) vim25() *vslm.ObjectManager { return vslm.NewObjectManager(l.vim.Client) }

// vimDisk makes a disk of 10 MiB through vim25.
func (l *lab) vimDisk(name string) string {
	l.Helper()
	info := l.ended(l.vim25().CreateDisk(l.ctx, types.VslmCreateSpec{Name: name, CapacityInMB: 10, BackingSpec: &types.VslmCreateSpecDiskFileBackingSpec{
		VslmCreateSpecBackingSpec: types.VslmCreateSpecBackingSpec{Datastore: l.datastores[0]},
	}}))
	made, ok := info.Result.(types.VStorageObject)
	if !ok {
		l.Fatalf("no disk was made: %+v", info)
	}
	return made.Config.Id.Id
}

func (l *lab) succeeds(task *object.Task, err error) {
	l.Helper()
	if info := l.ended(task, err); info.Error != nil {
		l.Fatalf("task failed: %s %+v", info.Error.LocalizedMessage, info.Error.Fault)
	}
}

func TestVim25DeletesNoDiskThatAVMHasOrThatHasSnapshots(t *testing.T) {
	l := newLab(t, options{})
	held, kept := l.volumeOn(l.datastores[0]), l.volumeOn(l.datastores[0])
	l.result(l.attach(held, l.vms[0]))
	task, err := l.vim25().Delete(l.ctx, l.datastores[0], held)
	l.wantTaskFault(&types.InvalidState{}, task, err)
	snapshot := l.newSnapshot(kept)
	task, err = l.vim25().Delete(l.ctx, l.datastores[0], kept)
	l.wantTaskFault(&types.InvalidState{}, task, err)
	if l.free(l.datastores[0]) != 98*gib || l.diskOf(l.vms[0], held) == nil {
		t.Error("a disk is gone although it could not be deleted")
	}
	l.succeeds(l.vim25().DeleteSnapshot(l.ctx, l.datastores[0], kept, snapshot))
	l.succeeds(l.vim25().Delete(l.ctx, l.datastores[0], kept))
	if got := l.free(l.datastores[0]); got != 99*gib {
		t.Errorf("%d bytes are free after a deletion", got)
	}
	task, err = l.vim25().Delete(l.ctx, l.datastores[0], kept)
	l.wantTaskFault(&types.NotFound{}, task, err)
	task, err = l.vim25().Delete(l.ctx, l.datastores[1], held)
	l.wantTaskFault(&types.NotFound{}, task, err)
}

func TestSnapshotsAndSizesOfVim25AreThoseOfCNS(t *testing.T) {
	l := newLab(t, options{})
	id := l.volumeOn(l.datastores[0])
	info := l.ended(l.vim25().CreateSnapshot(l.ctx, l.datastores[0], id, "of vim25"))
	made, ok := info.Result.(types.ID)
	if !ok {
		t.Fatalf("no snapshot was made: %+v", info)
	}
	l.result(l.cns.DeleteSnapshots(l.ctx, l.deleteSnapshot(id, made.Id)))
	task, err := l.vim25().DeleteSnapshot(l.ctx, l.datastores[0], id, made.Id)
	l.wantTaskFault(invalid("snapshotId"), task, err)
	l.succeeds(l.vim25().ExtendDisk(l.ctx, l.datastores[0], id, 2048))
	task, err = l.vim25().ExtendDisk(l.ctx, l.datastores[0], id, 1024)
	l.wantTaskFault(&types.InvalidArgument{}, task, err)
	if got := l.free(l.datastores[0]); got != 98*gib {
		t.Errorf("%d bytes are free beside a disk of 2 GiB", got)
	}

	l.result(l.attach(id, l.vms[0]))
	l.manager.SetBusy(l.vms[0], true)
	defer l.manager.SetBusy(l.vms[0], false)
	task, err = l.vim25().CreateSnapshot(l.ctx, l.datastores[0], id, "of a busy VM's disk")
	l.wantTaskFault(&types.InvalidState{}, task, err)
}

func TestADiskOfVim25TakesSpaceAndIsRegisteredOnce(t *testing.T) {
	l := newLab(t, options{})
	l.vimDisk("plain")
	if got := l.free(l.datastores[0]); got != 100*gib-10*mib {
		t.Errorf("%d bytes are free beside a disk of 10 MiB", got)
	}
	_, link := l.vmdk("a.vmdk")
	registered, err := l.vim25().RegisterDisk(l.ctx, link, "fcd")
	l.must(err)
	_, err = l.vim25().RegisterDisk(l.ctx, link, "again")
	l.wantCallFault(&types.AlreadyExists{Name: registered.Config.Id.Id}, nil, err)
	task, err := l.vim25().ExtendDisk(l.ctx, l.datastores[0], uuid.NewString(), 20)
	l.wantTaskFault(&types.NotFound{}, task, err)
	task, err = l.vim25().CreateSnapshot(l.ctx, l.datastores[0], uuid.NewString(), "")
	l.wantTaskFault(&types.NotFound{}, task, err)
}
