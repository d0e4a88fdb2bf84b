package cns

import (
	"testing"

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
	task, err := l.extend(id, 2048)
	l.wantVolumeFault(invalid("capacityInMb"), task, err)
	task, err = l.extend(id, 200*1024)
	l.wantVolumeFault(&cnstypes.CnsFault{Reason: "VSLM task failed"}, task, err)
	task, err = l.extend("nope", 1)
	l.wantVolumeFault(&types.NotFound{}, task, err)
	task, err = l.cns.ExtendVolume(l.ctx, nil)
	l.wantTaskFault(invalid("InputSpec"), task, err)
	l.newSnapshot(id)
	task, err = l.extend(id, 4096)
	l.wantVolumeFault(&cnstypes.CnsFault{Reason: "1 snapshots"}, task, err)
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
				l.wantVolumeFault(&cnstypes.CnsFault{Reason: "is attached"}, task, err)
			}
			l.result(l.detach(id, l.vms[0]))
			l.result(l.extend(id, 4096))
		})
	}
}

func TestExtendWithSnapshotsMayBeAllowed(t *testing.T) {
	l := newLab(t, options{assumptions: map[string]any{"ExtendWithSnapshots": true}})
	id := l.newVolume("a")
	l.newSnapshot(id)
	l.result(l.extend(id, 2048))
}
