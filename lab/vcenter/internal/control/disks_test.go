package control

import (
	"fmt"
	"net/http"
	"testing"

	cnsclient "github.com/vmware/govmomi/cns"
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// volumeFault is the fault of a task's only volume; nil when it succeeded.
func (l *lab) volumeFault(task *object.Task, err error) *types.LocalizedMethodFault {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
	info, err := cnsclient.GetTaskInfo(l.ctx, task)
	if err != nil {
		l.t.Fatal(err)
	}
	one, err := cnsclient.GetTaskResult(l.ctx, info)
	if err != nil {
		l.t.Fatal(err)
	}
	return one.GetCnsVolumeOperationResult().Fault
}

func (l *lab) wantVolumeFault(want string, task *object.Task, err error) {
	l.t.Helper()
	fault := l.volumeFault(task, err)
	if fault == nil || fmt.Sprintf("%T", fault.Fault) != want {
		l.t.Errorf("fault %+v, want %s", fault, want)
	}
}

func attachSpec(id string, vm types.ManagedObjectReference) []cnstypes.CnsVolumeAttachDetachSpec {
	return []cnstypes.CnsVolumeAttachDetachSpec{{VolumeId: cnstypes.CnsVolumeId{Id: id}, Vm: vm}}
}

func (l *lab) attachTo(id, vm string) (*object.Task, error) {
	return l.cns().AttachVolume(l.ctx, attachSpec(id, l.vm(vm).Reference()))
}

func (l *lab) detachFrom(id, vm string) (*object.Task, error) {
	return l.cns().DetachVolume(l.ctx, attachSpec(id, l.vm(vm).Reference()))
}

func (l *lab) snapshotOf(id string) (*object.Task, error) {
	return l.cns().CreateSnapshots(l.ctx, []cnstypes.CnsSnapshotCreateSpec{{VolumeId: cnstypes.CnsVolumeId{Id: id}, Description: "s"}})
}

func TestAVolumeMayLoseItsRecordOrItsDisk(t *testing.T) {
	l := start(t)
	id := l.attached("node-1")
	l.must("POST", "/volume", fmt.Sprintf(`{"volume":%q,"disk":false}`, id))
	if _, err := l.detachFrom(id, "node-1"); fmt.Sprintf("%T", fault(err)) != "types.NotFound" {
		t.Errorf("detach: %v", err)
	}
	l.must("POST", "/volume", fmt.Sprintf(`{"volume":%q,"disk":true}`, id))
	l.must("POST", "/volume", fmt.Sprintf(`{"volume":%q,"record":false}`, id))
	task, err := l.detachFrom(id, "node-1")
	l.wantVolumeFault("*types.CnsNotRegisteredFault", task, err)
	if l.diskFile("node-1", id) == "" {
		t.Error("the disk left its VM")
	}
	for body, field := range map[string]string{
		`{"volume":"nope","record":false}`:              "volume",
		`{"record":false}`:                              "volume",
		`{"volume":"nope"}`:                             "record",
		`{"volume":"nope","record":true}`:               "record",
		`{"volume":"nope","held":true}`:                 "held",
		`{"volume":"nope","disk":true,"tracking":true}`: "record",
	} {
		if status, answer := l.call("POST", "/volume", body); status != http.StatusBadRequest || answer["field"] != field {
			t.Errorf("%s: %d %v", body, status, answer)
		}
	}
}

func TestADeletedVMsHoldOnADiskCanBeEnded(t *testing.T) {
	l := start(t)
	l.must("POST", "/assumptions", `{"StaleAttachment":"ResourceInUse"}`)
	id := l.attached("node-1")
	l.must("POST", "/delete", `{"object":"node-1"}`)
	task, err := l.attachTo(id, "node-2")
	l.wantVolumeFault("*types.ResourceInUse", task, err)
	l.must("POST", "/volume", fmt.Sprintf(`{"volume":%q,"held":false}`, id))
	l.done(l.attachTo(id, "node-2"))
}

func TestABusyVMRefusesItsTasksAndSnapshotsOfItsDisks(t *testing.T) {
	l := start(t)
	id, waiting := l.attached("node-1"), l.done(l.create("pvc-2")).VolumeId.Id
	l.must("POST", "/vm/busy", `{"vm":"node-1","busy":true}`)
	task, err := l.vm("node-1").Reconfigure(l.ctx, types.VirtualMachineConfigSpec{Annotation: "changed"})
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Wait(l.ctx); fmt.Sprintf("%T", fault(err)) != "*types.TaskInProgress" {
		t.Errorf("reconfigure: %T %v", fault(err), err)
	}
	task, err = l.snapshotOf(id)
	l.wantVolumeFault("*types.CnsFault", task, err)
	attach, err := l.attachTo(waiting, "node-1")
	if err != nil {
		t.Fatal(err)
	}
	if state := l.taskState(attach).Info.State; state == types.TaskInfoStateSuccess || state == types.TaskInfoStateError {
		t.Errorf("the attach is %s", state)
	}
	l.must("POST", "/vm/busy", `{"vm":"node-1","busy":false}`)
	l.done(attach, nil)
	l.done(l.snapshotOf(id))
	if status, answer := l.call("POST", "/vm/busy", `{"vm":"node-1"}`); status != http.StatusBadRequest || answer["field"] != "busy" {
		t.Errorf("%d %v", status, answer)
	}
}

func TestASnapshotOfAVMLocksItsDisksUntilItIsRemoved(t *testing.T) {
	l := start(t)
	id := l.attached("node-1")
	l.must("POST", "/vm/snapshot", `{"vm":"node-1","name":"backup"}`)
	var vm mo.VirtualMachine
	l.read(l.vm("node-1").Reference(), []string{"snapshot"}, &vm)
	if vm.Snapshot == nil || len(vm.Snapshot.RootSnapshotList) != 1 || vm.Snapshot.RootSnapshotList[0].Name != "backup" {
		t.Fatalf("snapshots %+v", vm.Snapshot)
	}
	task, err := l.detachFrom(id, "node-1")
	l.wantVolumeFault("*types.CnsFault", task, err)
	l.must("POST", "/vm/snapshot", `{"vm":"node-1","remove_all":true}`)
	l.done(l.detachFrom(id, "node-1"))
	for _, body := range []string{`{"vm":"node-1"}`, `{"vm":"node-1","name":"x","remove_all":true}`} {
		if status, answer := l.call("POST", "/vm/snapshot", body); status != http.StatusBadRequest || answer["field"] != "name" {
			t.Errorf("%s: %d %v", body, status, answer)
		}
	}
}

func TestTrackingOfDiskAndVMMustAgree(t *testing.T) {
	l := start(t)
	id := l.done(l.create("pvc")).VolumeId.Id
	l.must("POST", "/volume", fmt.Sprintf(`{"volume":%q,"tracking":true}`, id))
	task, err := l.attachTo(id, "node-1")
	l.wantVolumeFault("*types.CnsFault", task, err)
	l.watch(l.vm("node-1").Reference(), "config.changeTrackingEnabled", func() {
		l.must("POST", "/vm/tracking", `{"vm":"node-1","tracking":true}`)
	}, func(value any) bool { return value == true })
	l.done(l.attachTo(id, "node-1"))
	if status, answer := l.call("POST", "/vm/tracking", `{"vm":"node-1"}`); status != http.StatusBadRequest || answer["field"] != "tracking" {
		t.Errorf("%d %v", status, answer)
	}
}

func TestAVMRestartsWithItsDisksWhenItsHostIsLost(t *testing.T) {
	l := start(t)
	id := l.attached("node-1")
	vm, target := l.vm("node-1").Reference(), l.ref("/dc-1/host/cluster-1/esx-2.lab.example")
	var before, after mo.VirtualMachine
	paths := []string{"runtime"}
	l.read(vm, paths, &before)
	l.must("POST", "/host/state", `{"host":"esx-1.lab.example","state":"notResponding"}`)
	task, err := l.detachFrom(id, "node-1")
	l.wantVolumeFault("*types.HostNotConnected", task, err)
	l.watch(vm, "runtime.host", func() {
		l.must("POST", "/vm/restart", `{"vm":"node-1","host":"esx-2.lab.example"}`)
	}, func(value any) bool { return value == target })
	l.read(vm, paths, &after)
	if after.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOn || after.Runtime.ConnectionState != types.VirtualMachineConnectionStateConnected {
		t.Errorf("the VM is %s, %s", after.Runtime.PowerState, after.Runtime.ConnectionState)
	}
	if !after.Runtime.BootTime.After(*before.Runtime.BootTime) {
		t.Errorf("booted at %v, before at %v", after.Runtime.BootTime, before.Runtime.BootTime)
	}
	if l.diskFile("node-1", id) == "" {
		t.Error("the VM lost its disk")
	}
	l.done(l.detachFrom(id, "node-1"))
	if status, answer := l.call("POST", "/vm/restart", `{"vm":"node-1","host":"esx-1.lab.example"}`); status != http.StatusBadRequest || answer["field"] != "host" {
		t.Errorf("%d %v", status, answer)
	}
}

func TestWorkMayBeDoneAlthoughTheVolumeHasAFault(t *testing.T) {
	l := start(t)
	id := l.done(l.create("pvc")).VolumeId
	l.must("POST", "/faults", `{"method":"CnsExtendVolume","fault":"CnsFault","fields":{"reason":"VSLM task failed"},"at":"result-done"}`)
	task, err := l.cns().ExtendVolume(l.ctx, []cnstypes.CnsVolumeExtendSpec{{VolumeId: id, CapacityInMb: 64}})
	if fault := l.volumeFault(task, err); fault == nil || fault.LocalizedMessage != "CnsFault error: VSLM task failed" {
		t.Errorf("fault %+v", fault)
	}
	volumes := l.vc.CNS().Volumes()
	if volumes[0].CapacityMB != 64 {
		t.Errorf("the volume has %d MiB", volumes[0].CapacityMB)
	}
	l.must("POST", "/faults", `{"method":"CnsCreateSnapshots","fault":"CnsSnapshotCreatedFault","at":"result-done"}`)
	fault := l.volumeFault(l.snapshotOf(id.Id))
	made := l.vc.CNS().Volumes()[0].Snapshots
	created, ok := fault.Fault.(*cnstypes.CnsSnapshotCreatedFault)
	if !ok || len(made) != 1 || created.SnapshotId.Id != made[0].ID || created.VolumeId != id || created.Datastore.Value != volumes[0].Datastore {
		t.Errorf("fault %+v, snapshots %v", fault.Fault, made)
	}
}

func TestTheDiskLayerCanFailOnRequest(t *testing.T) {
	l := start(t)
	id := l.done(l.create("pvc")).VolumeId
	l.must("POST", "/faults", `{"method":"CnsAttachVolume","fault":"CnsFault","fields":{"reason":"VSLM task failed"},"at":"result"}`)
	if fault := l.volumeFault(l.attachTo(id.Id, "node-1")); fault.LocalizedMessage != "CnsFault error: VSLM task failed" {
		t.Errorf("text %q", fault.LocalizedMessage)
	}
	l.must("POST", "/faults", `{"method":"CnsDeleteVolume","fault":"SystemError","fields":{"reason":"api = DiskLib_Unlink"},"at":"task"}`)
	task, err := l.cns().DeleteVolume(l.ctx, []cnstypes.CnsVolumeId{id}, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Wait(l.ctx); fmt.Sprintf("%T", fault(err)) != "*types.SystemError" {
		t.Errorf("delete: %v", err)
	}
	l.done(l.cns().DeleteVolume(l.ctx, []cnstypes.CnsVolumeId{id}, true))
}
