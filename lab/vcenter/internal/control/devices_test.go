package control

import (
	"slices"
	"testing"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// deviceCounts are how many devices each property shows that is, or contains, the list of them.
func (l *lab) deviceCounts(vm types.ManagedObjectReference) []int {
	l.t.Helper()
	var list, hardware, config mo.VirtualMachine
	l.read(vm, []string{"config.hardware.device"}, &list)
	l.read(vm, []string{"config.hardware"}, &hardware)
	l.read(vm, []string{"config"}, &config)
	counts := make([]int, 0, 3)
	for _, read := range []mo.VirtualMachine{list, hardware, config} {
		if read.Config == nil {
			l.t.Fatal("a VM without configuration")
		}
		counts = append(counts, len(read.Config.Hardware.Device))
	}
	return counts
}

func TestAVMWhoseHostIsAwayShowsItsLastDevices(t *testing.T) {
	l := start(t)
	id, vm := l.attached("node-1"), l.vm("node-1").Reference()
	before := l.deviceCounts(vm)
	l.must("POST", "/host/state", `{"host":"esx-1.lab.example","state":"notResponding"}`)
	if got := l.deviceCounts(vm); !slices.Equal(got, before) || l.diskFile("node-1", id) == "" {
		t.Errorf("%v devices, before %v", got, before)
	}
}

func TestAVMWhoseHostIsAwayMayShowNoDevices(t *testing.T) {
	l := start(t)
	l.must("POST", "/assumptions", `{"OfflineDevices":"empty"}`)
	id, vm := l.attached("node-1"), l.vm("node-1").Reference()
	before := l.deviceCounts(vm)
	count := func(value any) int { return len(value.(types.ArrayOfVirtualDevice).VirtualDevice) }
	l.watch(vm, "config.hardware.device", func() {
		l.must("POST", "/host/state", `{"host":"esx-1.lab.example","state":"notResponding"}`)
	}, func(value any) bool { return count(value) == 0 })
	if got := l.deviceCounts(vm); !slices.Equal(got, []int{0, 0, 0}) {
		t.Errorf("%v devices", got)
	}
	var other mo.VirtualMachine
	l.read(l.vm("node-2").Reference(), []string{"config.hardware.device"}, &other)
	if len(other.Config.Hardware.Device) == 0 {
		t.Error("a VM on another host shows no devices")
	}
	// The disk is still there: nobody else may have it, and it is not detached.
	task, err := l.cns().DetachVolume(l.ctx, []cnstypes.CnsVolumeAttachDetachSpec{{VolumeId: cnstypes.CnsVolumeId{Id: id}, Vm: vm}})
	l.wantVolumeFault("*types.HostNotConnected", task, err)
	task, err = l.attachTo(id, "node-2")
	l.wantVolumeFault("*types.ResourceInUse", task, err)
	l.watch(vm, "config.hardware.device", func() {
		l.must("POST", "/vm/restart", `{"vm":"node-1","host":"esx-2.lab.example"}`)
	}, func(value any) bool { return count(value) > 0 })
	if got := l.deviceCounts(vm); !slices.Equal(got, before) || l.diskFile("node-1", id) == "" {
		t.Errorf("%v devices on the other host, before %v", got, before)
	}
}
