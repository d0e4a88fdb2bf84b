package cns

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
)

// fault gives the fault of the only volume of a task.
func (l *lab) fault(task *object.Task, err error) (types.BaseMethodFault, error) {
	l.Helper()
	result := l.results(task, err)[0].GetCnsVolumeOperationResult()
	if result.Fault == nil {
		l.Fatal("no fault")
	}
	return result.Fault.Fault, nil
}

func TestExtendGrowsVolumeDiskDeviceAndUse(t *testing.T) {
	l := newLab(t, options{})
	spec := l.blockSpec("a", 1024)
	spec.Datastores = l.datastores[:1]
	id := l.result(l.create(spec)).GetCnsVolumeOperationResult().VolumeId.Id
	l.result(l.attach(id, l.vms[0]))
	l.result(l.extend(id, 3072))
	if got := l.volume(id).BackingObjectDetails.GetCnsBackingObjectDetails().CapacityInMb; got != 3072 {
		t.Errorf("the volume has %d MiB", got)
	}
	if d := l.diskOf(l.vms[0], id); d.CapacityInBytes != 3*gib || d.CapacityInKB != 3<<20 {
		t.Errorf("the device has %d bytes", d.CapacityInBytes)
	}
	if got := 100*gib - l.free(l.datastores[0]); got != 3*gib {
		t.Errorf("%d bytes are used", got)
	}
	task, err := l.extend(id, 200*1024)
	l.wantVolumeFault(&cnstypes.CnsFault{}, task, err)
	task, err = l.extend(uuid.NewString(), 1)
	l.wantVolumeFault(&types.NotFound{}, task, err)
	task, err = l.cns.ExtendVolume(l.ctx, nil)
	l.wantTaskFault(invalid("InputSpec"), task, err)
}

func TestADiskDoesNotShrink(t *testing.T) {
	l := newLab(t, options{assumptions: showCauses})
	id := l.newVolume("a")
	task, err := l.extend(id, 512)
	l.wantVolumeFault(invalid("extendSpecs.capacityInMb"), task, err)
	l.assume(map[string]any{"ExtendSmaller": "CnsFault"})
	task, err = l.extend(id, 512)
	l.wantDiskFault(invalid("newCapacityInMB"), task, err)
	l.assume(map[string]any{"ExtendSmaller": "success"})
	l.result(l.extend(id, 512))
	if got := l.volume(id).BackingObjectDetails.GetCnsBackingObjectDetails().CapacityInMb; got != 1024 {
		t.Errorf("the volume has %d MiB", got)
	}
}

func TestExtendDependsOnTheRelease(t *testing.T) {
	cases := map[string]struct {
		release  string
		online   bool
		sameSize bool
	}{
		"6.7U3": {"6.7U3", false, false}, "7.0U3": {"7.0U3", true, false}, "8.0U3": {"8.0U3", true, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, options{release: c.release})
			id := l.newVolume("a")
			task, err := l.extend(id, 1024)
			if c.sameSize {
				l.result(task, err)
			} else {
				l.wantVolumeFault(invalid("capacityInMb"), task, err)
			}
			l.result(l.attach(id, l.vms[0]))
			task, err = l.extend(id, 2048)
			if c.online {
				l.result(task, err)
			} else {
				l.wantVolumeFault(&cnstypes.CnsFault{Reason: "Fault cause: vim.fault.InvalidState"}, task, err)
			}
			l.result(l.detach(id, l.vms[0]))
			l.result(l.extend(id, 4096))
		})
	}
}

// Volumes whose ids fall into the two halves of "some".
const (
	evenVolume = "00000000-0000-4000-8000-000000000001"
	oddVolume  = "00000000-0000-4000-8000-000000000002"
)

// snapshotted makes a volume with the id and a snapshot.
func (l *lab) snapshotted(id string) {
	l.Helper()
	spec := l.blockSpec("a", 1024)
	spec.VolumeId = &cnstypes.CnsVolumeId{Id: id}
	l.result(l.create(spec))
	l.newSnapshot(id)
}

func TestDisksWithSnapshotsDoNotGrow(t *testing.T) {
	if !evenID(evenVolume) || evenID(oddVolume) {
		t.Fatal("both volumes are in one half")
	}
	l := newLab(t, options{release: "9.1"})
	for _, id := range []string{evenVolume, oddVolume} {
		l.snapshotted(id)
		task, err := l.extend(id, 2048)
		l.wantDiskFault(&types.SystemError{}, task, err)
		task, err = l.extend(id, 2048)
		cause := l.wantVolumeFault(&cnstypes.CnsFault{}, task, err).Fault.(*cnstypes.CnsFault).FaultCause
		if want := "A general system error occurred: The called function cannot be performed on partial chains."; !strings.HasPrefix(cause.LocalizedMessage, want) {
			t.Errorf("text %q", cause.LocalizedMessage)
		}
		l.result(l.attach(id, l.vms[0]))
		task, err = l.extend(id, 2048)
		l.wantDiskFault(&types.GenericVmConfigFault{}, task, err)
	}
}

func TestSomeDisksWithSnapshotsMayGrow(t *testing.T) {
	for choice, want := range map[string]struct{ evenOff, evenOn, oddOff, oddOn bool }{
		"always": {true, true, true, true}, "detached": {true, false, true, false}, "some": {true, true, false, false},
	} {
		l := newLab(t, options{release: "9.1", assumptions: map[string]any{"ExtendWithSnapshots": choice}})
		grows := func(id string, capacityMB int64) bool {
			return l.results(l.extend(id, capacityMB))[0].GetCnsVolumeOperationResult().Fault == nil
		}
		for id, grew := range map[string][2]bool{evenVolume: {want.evenOff, want.evenOn}, oddVolume: {want.oddOff, want.oddOn}} {
			l.snapshotted(id)
			off := grows(id, 2048)
			l.result(l.attach(id, l.vms[0]))
			if on := grows(id, 4096); off != grew[0] || on != grew[1] {
				t.Errorf("%s: %s detached grows: %v, attached: %v", choice, id, off, on)
			}
		}
	}
}
