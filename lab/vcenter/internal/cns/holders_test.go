package cns

import (
	"sync/atomic"
	"testing"
	"time"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"
	vslmmethods "github.com/vmware/govmomi/vslm/methods"
	vslmtypes "github.com/vmware/govmomi/vslm/types"
)

func (l *lab) reconfigure(vm types.ManagedObjectReference, spec types.VirtualMachineConfigSpec) {
	l.Helper()
	task, err := object.NewVirtualMachine(l.vim.Client, vm).Reconfigure(l.ctx, spec)
	l.must(err)
	l.must(task.Wait(l.ctx))
}

func (l *lab) destroyVM(vm types.ManagedObjectReference) {
	l.Helper()
	machine := object.NewVirtualMachine(l.vim.Client, vm)
	task, err := machine.PowerOff(l.ctx)
	l.must(err)
	l.must(task.Wait(l.ctx))
	task, err = machine.Destroy(l.ctx)
	l.must(err)
	l.must(task.Wait(l.ctx))
}

func TestADiskThatTracksChangesNeedsAVMThatDoes(t *testing.T) {
	l := newLab(t, options{release: "6.7U3"})
	id := l.newVolume("a")
	l.must(l.manager.SetTracking(id, true))
	task, err := l.attach(id, l.vms[0])
	l.wantVolumeFault(&cnstypes.CnsFault{Reason: "CNS: Failed to attach disk when calling AttachDisk:Fault cause: vim.fault.InvalidState"}, task, err)

	l = newLab(t, options{assumptions: showCauses})
	id = l.newVolume("a")
	l.must(l.global().SetControlFlags(l.ctx, types.ID{Id: id}, []string{"enableChangedBlockTracking"}))
	for range 2 {
		task, err = l.attach(id, l.vms[0])
		l.wantDiskFault(&types.InvalidState{}, task, err)
	}
	l.reconfigure(l.vms[0], types.VirtualMachineConfigSpec{ChangeTrackingEnabled: types.NewBool(true)})
	l.result(l.attach(id, l.vms[0]))
	l.result(l.detach(id, l.vms[0]))
	l.reconfigure(l.vms[1], types.VirtualMachineConfigSpec{ExtraConfig: []types.BaseOptionValue{&types.OptionValue{Key: "ctkEnabled", Value: "TRUE"}}})
	l.result(l.attach(id, l.vms[1]))
	l.result(l.detach(id, l.vms[1]))
	task, err = l.attach(id, l.vms[2])
	l.wantDiskFault(&types.InvalidState{}, task, err)
	client, err := vslm.NewClient(l.ctx, l.vim.Client)
	l.must(err)
	_, err = vslmmethods.VslmClearVStorageObjectControlFlags(l.ctx, client, &vslmtypes.VslmClearVStorageObjectControlFlags{
		This: l.global().Reference(), Id: types.ID{Id: id}, ControlFlags: []string{"enableChangedBlockTracking"},
	})
	l.must(err)
	l.result(l.attach(id, l.vms[2]))
}

func TestADeletedVMMayHoldItsDisksForEver(t *testing.T) {
	l := newLab(t, options{release: "6.7U3"})
	id := l.newVolume("a")
	l.result(l.attach(id, l.vms[0]))
	l.destroyVM(l.vms[0])
	sync, err := l.cns.SyncDatastore(l.ctx, "", true)
	l.must(err)
	l.must(sync.Wait(l.ctx))
	for step, call := range map[string]func() (*object.Task, error){
		"attach disk when calling AttachDisk": func() (*object.Task, error) { return l.attach(id, l.vms[1]) },
		"delete disk":                         func() (*object.Task, error) { return l.delete(id) },
		"extend disk.":                        func() (*object.Task, error) { return l.extend(id, 2048) },
	} {
		task, err := call()
		l.wantVolumeFault(&cnstypes.CnsFault{Reason: "CNS: Failed to " + step + ":Fault cause: vim.fault.InvalidState"}, task, err)
	}
	task, err := l.detach(id, l.vms[0])
	l.wantCallFault(&types.ManagedObjectNotFound{}, task, err)
	if got := l.manager.Attachments(); len(got) != 1 || got[0].VM != l.vms[0].Value {
		t.Errorf("attachments %v", got)
	}
	l.must(l.manager.FreeStale(id))
	l.result(l.attach(id, l.vms[1]))

	l = newLab(t, options{release: "7.0U3"})
	id = l.newVolume("a")
	l.result(l.attach(id, l.vms[0]))
	l.destroyVM(l.vms[0])
	l.result(l.attach(id, l.vms[1]))
}

func TestADiskOfADeletedVMMayStayInUse(t *testing.T) {
	l := newLab(t, options{assumptions: map[string]any{"StaleAttachment": "ResourceInUse"}})
	id := l.newVolume("a")
	l.result(l.attach(id, l.vms[0]))
	l.destroyVM(l.vms[0])
	l.wantInUse(l.attach(id, l.vms[1]))
	l.wantInUse(l.delete(id))
	l.must(l.manager.FreeStale(id))
	l.result(l.delete(id))
}

func TestASnapshotOfAVMLocksItsDisks(t *testing.T) {
	l := newLab(t, options{assumptions: showCauses})
	ids := l.newVolumes(3)
	l.result(l.attach(ids[0], l.vms[0]))
	l.result(l.share(ids[1], l.vms[0], "", "independent_persistent"))
	vm := object.NewVirtualMachine(l.vim.Client, l.vms[0])
	task, err := vm.CreateSnapshot(l.ctx, "backup", "", false, false)
	l.must(err)
	l.must(task.Wait(l.ctx))
	l.result(l.attach(ids[2], l.vms[0]))
	task, err = l.detach(ids[0], l.vms[0])
	l.wantDiskFault(&types.InvalidDeviceSpec{}, task, err)
	if l.diskOf(l.vms[0], ids[0]) == nil {
		t.Error("the disk left the VM")
	}
	task, err = l.extend(ids[0], 2048)
	l.wantDiskFault(&types.GenericVmConfigFault{}, task, err)
	l.result(l.detach(ids[1], l.vms[0])) // not part of the snapshot
	l.result(l.detach(ids[2], l.vms[0])) // attached after it
	task, err = vm.RemoveAllSnapshot(l.ctx, nil)
	l.must(err)
	l.must(task.Wait(l.ctx))
	l.result(l.detach(ids[0], l.vms[0]))
}

func TestUpTo70AVMsSnapshotIsTheDevicesFault(t *testing.T) {
	l := newLab(t, options{release: "6.7U3"})
	id := l.newVolume("a")
	l.result(l.attach(id, l.vms[0]))
	l.succeeds(object.NewVirtualMachine(l.vim.Client, l.vms[0]).CreateSnapshot(l.ctx, "backup", "", false, false))
	task, err := l.detach(id, l.vms[0])
	if got := l.wantVolumeFault(&types.InvalidDeviceSpec{}, task, err).LocalizedMessage; got != "Invalid configuration for device '0'." {
		t.Errorf("text %q", got)
	}
}

func TestAttachesToABusyVMQueue(t *testing.T) {
	l := newLab(t, options{})
	ids := l.newVolumes(3)
	l.manager.SetBusy(l.vms[0], true)
	var tasks []*object.Task
	for _, id := range ids {
		task, err := l.attach(id, l.vms[0])
		l.must(err)
		tasks = append(tasks, task)
	}
	l.result(l.attach(l.newVolume("other"), l.vms[1]))
	for _, task := range tasks {
		if state := l.taskInfo(task).State; state != types.TaskInfoStateRunning && state != types.TaskInfoStateQueued {
			t.Errorf("an attach to the busy VM is %s", state)
		}
	}
	l.manager.SetBusy(l.vms[0], false)
	for _, task := range tasks {
		l.result(task, nil)
	}
}

func TestAttachesToABusyVMMayFail(t *testing.T) {
	l := newLab(t, options{assumptions: map[string]any{"BusyVM": "TaskInProgress"}})
	id := l.newVolume("a")
	l.manager.SetBusy(l.vms[0], true)
	task, err := l.attach(id, l.vms[0])
	if got := l.wantVolumeFault(&types.TaskInProgress{}, task, err).LocalizedMessage; got != "Another task is already in progress." {
		t.Errorf("text %q", got)
	}
	l.manager.SetBusy(l.vms[0], false)
	l.result(l.attach(id, l.vms[0]))
}

func TestSnapshotsOfABusyVMsDiskFail(t *testing.T) {
	l := newLab(t, options{assumptions: showCauses})
	id, detached := l.newVolume("a"), l.newVolume("b")
	snapshot := l.newSnapshot(id)
	l.result(l.attach(id, l.vms[0]))
	l.manager.SetBusy(l.vms[0], true)
	defer l.manager.SetBusy(l.vms[0], false) // whatever waits must end
	for _, call := range []func() (*object.Task, error){
		func() (*object.Task, error) { return l.snapshot(id, "") },
		func() (*object.Task, error) { return l.cns.DeleteSnapshots(l.ctx, l.deleteSnapshot(id, snapshot)) },
	} {
		task, err := call()
		l.wantDiskFault(&types.InvalidState{}, task, err)
	}
	task, err := l.global().CreateSnapshot(l.ctx, types.ID{Id: id}, "s")
	l.wantVSLMFault(&types.InvalidState{}, task, err)
	l.newSnapshot(detached)
	if got := l.snapshotIDs(id); len(got) != 1 {
		t.Errorf("snapshots %v", got)
	}
	l.manager.SetBusy(l.vms[0], false)
	l.newSnapshot(id)
}

func TestSnapshotsOfABusyVMsDiskHaveOtherAnswers(t *testing.T) {
	l := newLab(t, options{assumptions: map[string]any{"DiskFaultCause": true, "BusySnapshot": "TaskInProgress"}})
	id := l.newVolume("a")
	l.result(l.attach(id, l.vms[0]))
	l.manager.SetBusy(l.vms[0], true)
	task, err := l.snapshot(id, "")
	l.wantVolumeFault(&types.TaskInProgress{}, task, err)
	l.assume(map[string]any{"BusySnapshot": "InvalidState"})
	task, err = l.snapshot(id, "")
	l.wantVolumeFault(&types.InvalidState{}, task, err)
	l.assume(map[string]any{"BusySnapshot": "FileLocked"})
	task, err = l.snapshot(id, "")
	l.wantDiskFault(&types.FileLocked{}, task, err)
	l.assume(map[string]any{"BusySnapshot": "wait"})
	task, err = l.snapshot(id, "")
	l.manager.SetBusy(l.vms[0], false)
	l.result(task, err)
}

func TestMetadataOfABusyVMsDiskCannotBeUpdated(t *testing.T) {
	l := newLab(t, options{})
	id := l.newVolume("a")
	l.result(l.attach(id, l.vms[0]))
	update := func() (*object.Task, error) {
		return l.cns.UpdateVolumeMetadata(l.ctx, []cnstypes.CnsVolumeMetadataUpdateSpec{{
			VolumeId: cnstypes.CnsVolumeId{Id: id},
			Metadata: cnstypes.CnsVolumeMetadata{
				ContainerCluster: cluster("c1"), ContainerClusterArray: []cnstypes.CnsContainerCluster{cluster("c1")},
				EntityMetadata: []cnstypes.BaseCnsEntityMetadata{&cnstypes.CnsKubernetesEntityMetadata{
					CnsEntityMetadata: cnstypes.CnsEntityMetadata{EntityName: "pv", ClusterID: "c1"}, EntityType: "PERSISTENT_VOLUME",
				}},
			},
		}})
	}
	l.manager.SetBusy(l.vms[0], true)
	task, err := update()
	l.wantVolumeFault(&cnstypes.CnsFault{Reason: "file lock"}, task, err)
	l.manager.SetBusy(l.vms[0], false)
	l.result(update())
}

func TestAnAttachMakesItsVMBusy(t *testing.T) {
	blocked := make(chan struct{})
	slow := &slowDisks{until: blocked, began: make(chan struct{})}
	l := newLab(t, options{config: func(c *Config) { c.Disks = slow }})
	ids := l.newVolumes(2)
	l.result(l.attach(ids[0], l.vms[0]))
	slow.on.Store(true)
	running, err := l.attach(ids[1], l.vms[0])
	l.must(err)
	select {
	case <-slow.began:
	case <-time.After(time.Minute):
		t.Fatal("the attach did not begin")
	}
	task, err := l.snapshot(ids[0], "")
	l.wantVolumeFault(&cnstypes.CnsFault{}, task, err)
	close(blocked)
	l.result(running, nil)
	l.newSnapshot(ids[0])
}

// slowDisks holds an attach up, once it is switched on.
type slowDisks struct {
	brokenDisks
	on    atomic.Bool
	began chan struct{}
	until chan struct{}
}

func (s *slowDisks) Attach(string, string, string, string) error {
	if s.on.Load() {
		close(s.began)
		<-s.until
	}
	return nil
}
