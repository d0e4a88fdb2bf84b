package cns

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

func TestAttachPutsACompleteDiskOnTheVM(t *testing.T) {
	l := newLab(t, options{})
	id, other := l.newVolume("a"), l.newVolume("b")
	diskUUID := l.result(l.attach(id, l.vms[0])).(*cnstypes.CnsVolumeAttachResult).DiskUUID
	if !regexp.MustCompile(`^6000C29[0-9a-f]-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`).MatchString(diskUUID) {
		t.Errorf("disk UUID is %s", diskUUID)
	}
	if second := l.result(l.attach(other, l.vms[0])).(*cnstypes.CnsVolumeAttachResult).DiskUUID; second == diskUUID {
		t.Error("two disks have one UUID")
	}
	d := l.diskOf(l.vms[0], id)
	if d == nil {
		t.Fatal("the VM has no such disk")
	}
	backing := d.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
	if backing.Uuid != diskUUID || backing.DiskMode != "persistent" || !strings.Contains(backing.FileName, id) || backing.Datastore == nil {
		t.Errorf("backing %+v", backing)
	}
	if d.DeviceInfo == nil || d.UnitNumber == nil || d.CapacityInBytes != gib || d.CapacityInKB != 1<<20 {
		t.Errorf("disk is incomplete: %+v", d)
	}
	devices := l.devices(l.vms[0])
	controller, ok := devices.FindByKey(d.ControllerKey).(types.BaseVirtualSCSIController)
	if !ok {
		t.Fatalf("controller %d is missing", d.ControllerKey)
	}
	listed := false
	for _, key := range controller.GetVirtualSCSIController().Device {
		listed = listed || key == d.Key
	}
	if !listed {
		t.Errorf("controller lists %v, not %d", controller.GetVirtualSCSIController().Device, d.Key)
	}
	for _, device := range devices { // what govc device.ls needs
		_ = devices.Name(device)
	}
	l.result(l.detach(id, l.vms[0]))
	if l.diskOf(l.vms[0], id) != nil || l.diskOf(l.vms[0], other) == nil {
		t.Error("detach removed the wrong disk")
	}
	if again := l.result(l.attach(id, l.vms[1])).(*cnstypes.CnsVolumeAttachResult).DiskUUID; again != diskUUID {
		t.Error("a disk has another UUID on another VM")
	}
}

func TestAnUnknownVMIsAFaultAndNeverAPanic(t *testing.T) {
	l := newLab(t, options{})
	id := l.newVolume("a")
	for _, ref := range []types.ManagedObjectReference{{}, {Type: "VirtualMachine", Value: "vm-x"}, l.datastores[0]} {
		task, err := l.attach(id, ref)
		l.wantCallFault(&types.ManagedObjectNotFound{}, task, err)
		task, err = l.detach(id, ref)
		l.wantCallFault(&types.ManagedObjectNotFound{}, task, err)
	}
}

// fill attaches new volumes until the VM is full and says how many fitted.
func (l *lab) fill(vm types.ManagedObjectReference) (count int, fault *types.LocalizedMethodFault) {
	l.Helper()
	for ; count < 300; count++ {
		id := l.quickVolume()
		if fault := l.results(l.attach(id, vm))[0].GetCnsVolumeOperationResult().Fault; fault != nil {
			return count, fault
		}
	}
	return count, nil
}

func setHardware(version string) func(*simulator.Registry) {
	return func(r *simulator.Registry) {
		for _, ref := range r.AllReference("VirtualMachine") {
			ref.(*simulator.VirtualMachine).Config.Version = version
		}
	}
}

func TestSlotsEndAtFifteenOrSixtyFourOnEachOfFourControllers(t *testing.T) {
	wide := map[string]any{"WidePVSCSI": true}
	cases := map[string]struct {
		release, hardware string
		assumptions       map[string]any
		want              int
	}{
		"usual controllers":    {"8.0U3", "vmx-19", nil, 4*15 - 1},
		"wide controllers":     {"8.0U3", "vmx-19", wide, 4*64 - 1},
		"old virtual hardware": {"8.0U3", "vmx-13", wide, 4*15 - 1},
		"an old release":       {"7.0U3", "vmx-19", wide, 4*15 - 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, options{release: c.release, assumptions: c.assumptions, inventory: setHardware(c.hardware)})
			count, fault := l.fill(l.vms[0])
			if count != c.want {
				t.Errorf("%d volumes fitted beside the boot disk, want %d", count, c.want)
			}
			if fault == nil {
				t.Fatal("no end")
			}
			keys, controllers := map[int32]bool{}, map[int32]int{}
			for _, device := range l.devices(l.vms[0]) {
				d := device.GetVirtualDevice()
				if keys[d.Key] {
					t.Errorf("key %d is used twice", d.Key)
				}
				keys[d.Key] = true
				if _, ok := device.(*types.VirtualDisk); ok {
					controllers[d.ControllerKey]++
					if *d.UnitNumber == controllerUnit {
						t.Errorf("disk %d sits on the controller's own unit", d.Key)
					}
				}
			}
			if len(controllers) != 4 {
				t.Errorf("disks per controller: %v", controllers)
			}
		})
	}
}

func TestAClientMayChooseTheSlot(t *testing.T) {
	l := newLab(t, options{release: "9.1"})
	ids := l.newVolumes(3)
	attach := func(id string, controller, unit int32) (*object.Task, error) {
		return l.cns.AttachVolume(l.ctx, []cnstypes.CnsVolumeAttachDetachSpec{{
			VolumeId: cnstypes.CnsVolumeId{Id: id}, Vm: l.vms[0], ControllerKey: &controller, UnitNumber: &unit, DiskMode: "independent_persistent",
		}})
	}
	controller := l.devices(l.vms[0]).PickController((*types.VirtualSCSIController)(nil)).GetVirtualController().Key
	l.result(attach(ids[0], controller, 9))
	if d := l.diskOf(l.vms[0], ids[0]); *d.UnitNumber != 9 || d.Backing.(*types.VirtualDiskFlatVer2BackingInfo).DiskMode != "independent_persistent" {
		t.Errorf("disk %+v", d)
	}
	for _, unit := range []int32{9, controllerUnit, -1, 99} {
		task, err := attach(ids[1], controller, unit)
		l.wantVolumeFault(invalid("unitNumber"), task, err)
	}
	task, err := attach(ids[2], 4711, 1)
	l.wantVolumeFault(invalid("controllerKey"), task, err)
}

func TestADisksVMMayGoAndTheDiskStays(t *testing.T) {
	l := newLab(t, options{})
	id := l.newVolume("a")
	l.result(l.attach(id, l.vms[0]))
	vm := object.NewVirtualMachine(l.vim.Client, l.vms[0])
	task, err := vm.PowerOff(l.ctx)
	l.must(err)
	l.must(task.Wait(l.ctx))
	task, err = vm.Destroy(l.ctx)
	l.must(err)
	l.must(task.Wait(l.ctx))
	if got := l.manager.Attachments(); len(got) != 0 {
		t.Errorf("attachments %v", got)
	}
	l.result(l.attach(id, l.vms[1]))
	l.result(l.detach(id, l.vms[1]))
	l.result(l.cns.QueryVolumeInfo(l.ctx, volumeIDs(id)))
	l.result(l.delete(id))
}

func TestADiskThatIsNotKeptGoesWithItsVM(t *testing.T) {
	l := newLab(t, options{release: "9.1"})
	id := l.volumeOn(l.datastores[0])
	l.must(l.cns.ClearVolumeControlFlags(l.ctx, []cnstypes.CnsVolumeControlFlagsSpec{{VolumeId: cnstypes.CnsVolumeId{Id: id}, ControlFlags: []string{"keepAfterDeleteVm"}}}))
	l.result(l.attach(id, l.vms[0]))
	vm := object.NewVirtualMachine(l.vim.Client, l.vms[0])
	task, err := vm.PowerOff(l.ctx)
	l.must(err)
	l.must(task.Wait(l.ctx))
	task, err = vm.Destroy(l.ctx)
	l.must(err)
	l.must(task.Wait(l.ctx))
	task, err = l.cns.SyncDatastore(l.ctx, "", true)
	l.must(err)
	l.must(task.Wait(l.ctx))
	if l.exists(id) {
		t.Error("the volume is still there")
	}
}

func TestADiskThatAReconfigurationRemovedIsFree(t *testing.T) {
	l := newLab(t, options{})
	id := l.newVolume("a")
	l.result(l.attach(id, l.vms[0]))
	vm := object.NewVirtualMachine(l.vim.Client, l.vms[0])
	l.must(vm.RemoveDevice(l.ctx, true, l.diskOf(l.vms[0], id)))
	if got := l.manager.Attachments(); len(got) != 0 {
		t.Errorf("attachments %v", got)
	}
	l.result(l.attach(id, l.vms[1]))
}

func TestTwoHundredParallelAttachesLoseAndDoubleNothing(t *testing.T) {
	l := newLab(t, options{machines: 20})
	if len(l.vms) < 20 {
		t.Fatalf("%d VMs", len(l.vms))
	}
	var ids []string
	for range 200 {
		ids = append(ids, l.quickVolume())
	}
	parallel := func(work func(id string, vm types.ManagedObjectReference) (*object.Task, error)) {
		var group sync.WaitGroup
		for i, id := range ids {
			group.Add(1)
			go func() {
				defer group.Done()
				task, err := work(id, l.vms[i%20])
				if err == nil {
					_, err = task.WaitForResult(l.ctx)
				}
				if err != nil {
					t.Error(err)
				}
			}()
		}
		group.Wait()
	}
	began := time.Now()
	parallel(l.attach)
	t.Logf("200 attaches on 20 VMs took %v", time.Since(began))
	seen, slots := map[string]int{}, map[string]bool{}
	for _, vm := range l.vms[:20] {
		count := 0
		for _, device := range l.devices(vm) {
			d, ok := device.(*types.VirtualDisk)
			if !ok || d.VDiskId == nil {
				continue
			}
			count++
			seen[d.VDiskId.Id]++
			slot := fmt.Sprintf("%s %d:%d", vm.Value, d.ControllerKey, *d.UnitNumber)
			if slots[slot] {
				t.Errorf("slot %s has two disks", slot)
			}
			slots[slot] = true
		}
		if count != 10 {
			t.Errorf("%s has %d disks", vm.Value, count)
		}
	}
	for _, id := range ids {
		if seen[id] != 1 {
			t.Errorf("volume %s is on %d VMs", id, seen[id])
		}
	}
	parallel(l.detach)
	if left := l.manager.Attachments(); len(left) != 0 {
		t.Errorf("%d attachments are left", len(left))
	}
}

func TestParallelAttachesOfOneVolumeHaveOneWinner(t *testing.T) {
	l := newLab(t, options{machines: 20})
	id := l.newVolume("a")
	var group sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for _, vm := range l.vms {
		group.Add(1)
		go func() {
			defer group.Done()
			task, err := l.attach(id, vm)
			if err != nil {
				t.Error(err)
				return
			}
			info, err := task.WaitForResult(l.ctx)
			if err != nil {
				t.Error(err)
				return
			}
			result := info.Result.(cnstypes.CnsVolumeOperationBatchResult).VolumeResults[0].GetCnsVolumeOperationResult()
			mu.Lock()
			defer mu.Unlock()
			if result.Fault == nil {
				won++
			}
		}()
	}
	group.Wait()
	if won != 1 {
		t.Errorf("%d VMs got the disk", won)
	}
}
