package cns

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"
)

func (l *lab) chosenSpec(id string, datastores ...types.ManagedObjectReference) cnstypes.CnsVolumeCreateSpec {
	spec := l.blockSpec("a", 1024)
	spec.VolumeId = &cnstypes.CnsVolumeId{Id: id}
	if len(datastores) > 0 {
		spec.Datastores = datastores
	}
	return spec
}

func TestClientsMayChooseTheVolumesIdWhereTheReleaseHasIt(t *testing.T) {
	id := uuid.NewString()
	l := newLab(t, options{release: "9.1"})
	if got := l.result(l.create(l.chosenSpec(strings.ToUpper(id)))).GetCnsVolumeOperationResult().VolumeId.Id; got != id {
		t.Errorf("id is %s", got)
	}
	task, err := l.create(l.chosenSpec("../../etc"))
	l.wantArgument("createSpecs.volumeId", task, err)

	l = newLab(t, options{})
	task, err = l.create(l.chosenSpec(id))
	l.wantVolumeFault(&types.NotSupported{}, task, err)
}

func TestAChosenIDThatExistsIsJudgedByTheRequestedScope(t *testing.T) {
	l, cluster, host := reachedLab(t, "9.1")
	id := uuid.NewString()
	wantExisting := func(spec cnstypes.CnsVolumeCreateSpec) {
		t.Helper()
		result := l.result(l.create(spec)).(*cnstypes.CnsVolumeCreateResult)
		if result.VolumeId.Id != id || result.PlacementResults[0].Datastore != l.datastores[1] || len(l.manager.Volumes()) != 1 {
			t.Errorf("result %+v of %d volumes", result, len(l.manager.Volumes()))
		}
	}
	wantExists := func(spec cnstypes.CnsVolumeCreateSpec) {
		t.Helper()
		task, err := l.create(spec)
		fault := l.wantVolumeFault(&cnstypes.CnsVolumeAlreadyExistsFault{}, task, err).Fault.(*cnstypes.CnsVolumeAlreadyExistsFault)
		if fault.VolumeId.Id != id || fault.Datastore != l.datastores[1] {
			t.Errorf("fault %+v", fault)
		}
	}
	l.result(l.create(l.chosenSpec(id, l.datastores[1])))
	wantExisting(l.chosenSpec(id, l.datastores[1]))
	wantExisting(l.chosenSpec(id, l.datastores...))
	wantExists(l.chosenSpec(id, l.datastores[0]))
	for _, spec := range l.narrowed(cluster, host) { // no host mounts the volume's datastore
		spec.Datastores, spec.VolumeId = nil, &cnstypes.CnsVolumeId{Id: id}
		wantExists(spec)
	}
	l.assume(map[string]any{"ChosenIDExists": "fault"})
	wantExists(l.chosenSpec(id, l.datastores[1]))
}

func TestAChosenIDMayBeThatOfADiskWithoutARecord(t *testing.T) {
	l := newLab(t, options{release: "9.1"})
	task, err := vslm.NewObjectManager(l.vim.Client).CreateDisk(l.ctx, types.VslmCreateSpec{Name: "fcd", CapacityInMB: 10, BackingSpec: &types.VslmCreateSpecDiskFileBackingSpec{
		VslmCreateSpecBackingSpec: types.VslmCreateSpecBackingSpec{Datastore: l.datastores[0]},
	}})
	l.must(err)
	info, err := task.WaitForResult(l.ctx)
	l.must(err)
	id := info.Result.(types.VStorageObject).Config.Id.Id
	made, err := l.create(l.chosenSpec(id))
	l.wantVolumeFault(&cnstypes.CnsVolumeAlreadyExistsFault{}, made, err)
	if l.exists(id) {
		t.Error("the disk became a volume")
	}
	l.assume(map[string]any{"ChosenIDOfPlainDisk": "becomes the volume"})
	l.result(l.create(l.chosenSpec(id)))
	if got := l.volume(id).BackingObjectDetails.GetCnsBackingObjectDetails().CapacityInMb; got != 10 {
		t.Errorf("the volume has %d MiB, not those of the disk", got)
	}
}
