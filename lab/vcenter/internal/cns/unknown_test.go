package cns

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"
)

// wantCallText expects a call to be refused with NotFound and a text.
func (l *lab) wantCallText(text string, task *object.Task, err error) {
	l.Helper()
	l.wantCallFault(&types.NotFound{}, task, err)
	if got := soap.ToSoapFault(err).String; !strings.Contains(got, text) {
		l.Errorf("text %q, want %q", got, text)
	}
}

func TestAVolumeWithoutDiskAndRecordRefusesTheCall(t *testing.T) {
	id := uuid.NewString()
	for release, text := range map[string]string{
		"6.7U3": "TCP:localhost:443>]: retrieveVStorageObject",
		"7.0U3": "CNS: Failed to retrieve datastore for vol " + id + ". (vim.fault.NotFound) {",
		"9.1":   "id = " + id + "\n} was not found",
	} {
		l := newLab(t, options{release: release})
		task, err := l.attach(id, l.vms[0])
		l.wantCallText(text, task, err)
		task, err = l.detach(id, l.vms[0])
		l.wantCallText(text, task, err)
	}
}

func TestAnUnknownVolumeMayBeTheVolumesFault(t *testing.T) {
	l := newLab(t, options{assumptions: map[string]any{"UnknownVolume": "NotFound"}})
	task, err := l.attach(uuid.NewString(), l.vms[0])
	l.wantVolumeFault(&types.NotFound{}, task, err)
	l.assume(map[string]any{"UnknownVolume": "CnsFault"})
	task, err = l.detach(uuid.NewString(), l.vms[0])
	l.wantVolumeFault(&cnstypes.CnsFault{Reason: "Failed to retrieve datastore"}, task, err)
}

func TestDeletingAnUnknownVolumeIsNotFound(t *testing.T) {
	l := newLab(t, options{release: "6.7U3"})
	task, err := l.delete(uuid.NewString())
	l.wantCallText("retrieveVStorageObject", task, err)
	l = newLab(t, options{release: "7.0U3"})
	task, err = l.delete(uuid.NewString())
	l.wantCallText("CNS: Failed to retrieve datastore for vol", task, err)
	l = newLab(t, options{release: "8.0U3"})
	task, err = l.delete(uuid.NewString())
	l.wantVolumeFault(&types.NotFound{}, task, err)
}

// plainDisk makes a disk that CNS has no record of.
func (l *lab) plainDisk() string {
	l.Helper()
	spec := types.VslmCreateSpec{Name: "fcd", CapacityInMB: 1024, BackingSpec: &types.VslmCreateSpecDiskFileBackingSpec{
		VslmCreateSpecBackingSpec: types.VslmCreateSpecBackingSpec{Datastore: l.datastores[0]},
	}}
	made := l.finished(l.global().CreateDisk(l.ctx, spec)).(types.VStorageObject)
	return made.Config.Id.Id
}

func TestADiskWithoutARecordIsNotACNSVolume(t *testing.T) {
	calls := func(l *lab, id string) map[string]func() (*object.Task, error) {
		return map[string]func() (*object.Task, error){
			"attach": func() (*object.Task, error) { return l.attach(id, l.vms[0]) },
			"delete": func() (*object.Task, error) { return l.delete(id) },
			"extend": func() (*object.Task, error) { return l.extend(id, 2048) },
		}
	}
	l := newLab(t, options{release: "6.7U3"})
	id := l.plainDisk()
	for name, call := range calls(l, id) {
		task, err := call()
		fault := l.wantVolumeFault(&cnstypes.CnsFault{}, task, err)
		if want := "CnsFault error: CNS: The input volume " + id + " is not a CNS volume."; fault.LocalizedMessage != want {
			t.Errorf("%s: %q", name, fault.LocalizedMessage)
		}
	}
	for _, release := range []string{"7.0U3", "9.1"} {
		l = newLab(t, options{release: release})
		id = l.plainDisk()
		later := calls(l, id)
		later["snapshot"] = func() (*object.Task, error) { return l.snapshot(id, "") }
		for name, call := range later {
			task, err := call()
			fault := l.wantVolumeFault(&cnstypes.CnsNotRegisteredFault{}, task, err)
			want := "Volume with ID " + id + " is not registered as CNS Volume. Error message: The input volume " + id + " is not registered as a CNS volume."
			if fault.LocalizedMessage != want || fault.Fault.(*cnstypes.CnsNotRegisteredFault).VolumeId.Id != id {
				t.Errorf("%s: %q", name, fault.LocalizedMessage)
			}
		}
	}
}

func TestTheTextOfANotRegisteredFaultMayBeItsKey(t *testing.T) {
	l := newLab(t, options{assumptions: map[string]any{"NotRegisteredText": "key"}})
	task, err := l.attach(l.plainDisk(), l.vms[0])
	if got := l.wantVolumeFault(&cnstypes.CnsNotRegisteredFault{}, task, err).LocalizedMessage; got != "fault.CnsNotRegisteredFault.summary" {
		t.Errorf("text %q", got)
	}
}

func TestDetachOfAnUnregisteredDiskMayBeNotFoundWhileItIsAttached(t *testing.T) {
	for release, want := range map[string]types.BaseMethodFault{
		"6.7U3": &cnstypes.CnsFault{Reason: "is not a CNS volume"}, "7.0U3": &types.NotFound{}, "8.0U3": &cnstypes.CnsNotRegisteredFault{},
	} {
		l := newLab(t, options{release: release})
		id := l.newVolume("a")
		l.result(l.attach(id, l.vms[0]))
		l.must(l.manager.ForgetRecord(id))
		task, err := l.detach(id, l.vms[0])
		l.wantVolumeFault(want, task, err)
		if l.diskOf(l.vms[0], id) == nil {
			t.Errorf("%s: the disk left the VM", release)
		}
		spec := l.blockSpec("again", 0)
		spec.BackingObjectDetails = &cnstypes.CnsBlockBackingDetails{BackingDiskId: id}
		l.result(l.create(spec))
		l.result(l.detach(id, l.vms[0]))
	}
}

func TestDetachOfAnUnregisteredDiskMayRefuseTheCall(t *testing.T) {
	l := newLab(t, options{assumptions: map[string]any{"DetachUnregistered": "call"}})
	task, err := l.detach(l.plainDisk(), l.vms[0])
	l.wantCallFault(&types.NotFound{}, task, err)
}

func TestAVolumeWhoseDiskIsGoneIsNotFound(t *testing.T) {
	const text = "The object or item referred to could not be found."
	l := newLab(t, options{release: "6.7U3"})
	id := l.newVolume("a")
	l.result(l.attach(id, l.vms[0]))
	l.must(l.manager.LoseDisk(id))
	for _, call := range []func() (*object.Task, error){
		func() (*object.Task, error) { return l.attach(id, l.vms[1]) },
		func() (*object.Task, error) { return l.detach(id, l.vms[0]) },
		func() (*object.Task, error) { return l.delete(id) },
	} {
		task, err := call()
		if got := l.wantVolumeFault(&types.NotFound{}, task, err).LocalizedMessage; got != text {
			t.Errorf("text %q", got)
		}
	}
	if !l.exists(id) || l.diskOf(l.vms[0], id) == nil {
		t.Error("CNS or the VM lost more than the disk")
	}
	l.must(l.manager.FindDisk(id))
	l.result(l.detach(id, l.vms[0]))
	l.result(l.delete(id))

	// The file of a disk is removed from the datastore through vim25.
	l = newLab(t, options{release: "7.0U3"})
	id = l.volumeOn(l.datastores[0])
	task, err := vslm.NewObjectManager(l.vim.Client).Delete(l.ctx, l.datastores[0], id)
	l.must(err)
	l.must(task.Wait(l.ctx))
	task, err = l.attach(id, l.vms[0])
	l.wantCallText("CNS: Failed to retrieve datastore for vol "+id, task, err)
	task, err = l.detach(id, l.vms[0])
	l.wantCallText("was not found", task, err)
	task, err = l.delete(id)
	l.wantVolumeFault(&types.NotFound{}, task, err)
	task, err = l.extend(id, 2048)
	l.wantVolumeFault(&types.NotFound{}, task, err)
	if !l.exists(id) {
		t.Error("the record is gone")
	}
}

func TestAnAttachedVolumeIsNeitherDeletedNorUnregistered(t *testing.T) {
	l := newLab(t, options{})
	id := l.newVolume("a")
	l.result(l.attach(id, l.vms[0]))
	l.wantInUse(l.delete(id))
	l.wantInUse(l.cns.DeleteVolume(l.ctx, volumeIDs(id), false))
	l.assume(map[string]any{"UnregisterAttached": true})
	l.wantInUse(l.delete(id))
	l.result(l.cns.DeleteVolume(l.ctx, volumeIDs(id), false))
	if l.exists(id) || l.diskOf(l.vms[0], id) == nil {
		t.Error("the record is still there, or the disk left the VM")
	}
}

func TestADiskWithSnapshotsIsNotDeleted(t *testing.T) {
	l := newLab(t, options{assumptions: showCauses})
	id := l.newVolume("a")
	snapshot := l.newSnapshot(id)
	task, err := l.delete(id)
	l.wantDiskFault(&types.InvalidState{}, task, err)
	l.result(l.cns.DeleteSnapshots(l.ctx, l.deleteSnapshot(id, snapshot)))
	l.result(l.delete(id))
}

func TestADiskWithSnapshotsHasOtherFaultsOnDeletion(t *testing.T) {
	l := newLab(t, options{assumptions: map[string]any{"DeleteWithSnapshots": "InvalidState"}})
	id := l.newVolume("a")
	l.newSnapshot(id)
	task, err := l.delete(id)
	l.wantVolumeFault(&types.InvalidState{}, task, err)
	l.assume(map[string]any{"DeleteWithSnapshots": "ResourceInUse"})
	l.wantInUse(l.delete(id))
	l.assume(map[string]any{"DeleteWithSnapshots": "success"})
	l.result(l.delete(id))
}
