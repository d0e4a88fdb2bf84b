package cns

import (
	"sync"
	"testing"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/disks"
)

// wantInUse expects the fault for a disk that a VM has, which names neither the disk nor the VM.
func (l *lab) wantInUse(task *object.Task, err error) {
	l.Helper()
	fault := l.wantVolumeFault(&types.ResourceInUse{}, task, err)
	if got := fault.Fault.(*types.ResourceInUse); got.Type != "" || got.Name != "volume" || fault.LocalizedMessage != "The resource 'volume' is in use." {
		l.Errorf("fault %+v, text %q", got, fault.LocalizedMessage)
	}
}

func TestAnAttachedVolumeIsInUseForOtherVMs(t *testing.T) {
	l := newLab(t, options{})
	id := l.newVolume("a")
	l.result(l.attach(id, l.vms[0]))
	l.wantInUse(l.attach(id, l.vms[1]))
	l.wantInUse(l.delete(id))
	task, err := l.cns.AttachVolume(l.ctx, nil)
	l.wantCallFault(invalid("InputSpec"), task, err)
}

func TestAttachingTwiceToOneVMSucceedsFromNineOne(t *testing.T) {
	l := newLab(t, options{release: "9.0"})
	id := l.newVolume("a")
	l.result(l.attach(id, l.vms[0]))
	l.wantInUse(l.attach(id, l.vms[0]))

	l = newLab(t, options{release: "9.1"})
	id = l.newVolume("a")
	first := l.result(l.attach(id, l.vms[0])).(*cnstypes.CnsVolumeAttachResult).DiskUUID
	if again := l.result(l.attach(id, l.vms[0])).(*cnstypes.CnsVolumeAttachResult).DiskUUID; again != first {
		t.Errorf("%s, then %s", first, again)
	}
}

func TestDetachFromAVMThatHasNotTheDiskIsNotFound(t *testing.T) {
	l := newLab(t, options{})
	id := l.newVolume("a")
	l.result(l.attach(id, l.vms[0]))
	task, err := l.detach(id, l.vms[1])
	if fault := l.wantVolumeFault(&types.NotFound{}, task, err); fault.LocalizedMessage != "The object or item referred to could not be found." {
		t.Errorf("text %q", fault.LocalizedMessage)
	}
	if l.diskOf(l.vms[0], id) == nil {
		t.Error("a detach from another VM took the disk")
	}
}

func TestDetachFromAVMThatHasNotTheDiskHasOtherAnswers(t *testing.T) {
	l := newLab(t, options{assumptions: showCauses})
	id := l.newVolume("a")
	l.assume(map[string]any{"DetachNotAttached": "CnsFault"})
	task, err := l.detach(id, l.vms[1])
	l.wantDiskFault(&types.NotFound{}, task, err)
	l.assume(map[string]any{"DetachNotAttached": "InvalidArgument"})
	task, err = l.detach(id, l.vms[1])
	l.wantVolumeFault(invalid("volumeId"), task, err)
	l.assume(map[string]any{"DetachNotAttached": "call"})
	task, err = l.detach(id, l.vms[1])
	l.wantCallFault(&types.NotFound{}, task, err)
	l.result(l.attach(id, l.vms[1]))
	l.result(l.detach(id, l.vms[1]))
}

func TestAnUnknownVMMayBeTheVolumesFault(t *testing.T) {
	l := newLab(t, options{assumptions: map[string]any{"UnknownVM": "volume"}})
	id := l.newVolume("a")
	gone := types.ManagedObjectReference{Type: "VirtualMachine", Value: "vm-x"}
	task, err := l.attach(id, gone)
	l.wantVolumeFault(&types.ManagedObjectNotFound{}, task, err)
	task, err = l.detach(id, gone)
	l.wantVolumeFault(&types.ManagedObjectNotFound{}, task, err)
}

func TestSeveralVolumesInOneAttachNeedNineOne(t *testing.T) {
	specs := func(l *lab, ids ...string) (list []cnstypes.CnsVolumeAttachDetachSpec) {
		for _, id := range ids {
			list = append(list, cnstypes.CnsVolumeAttachDetachSpec{VolumeId: cnstypes.CnsVolumeId{Id: id}, Vm: l.vms[0]})
		}
		return list
	}
	l := newLab(t, options{release: "9.0"})
	task, err := l.cns.AttachVolume(l.ctx, specs(l, l.newVolumes(2)...))
	l.wantCallFault(invalid("InputSpec"), task, err)
	task, err = l.cns.DetachVolume(l.ctx, specs(l, l.newVolumes(2)...))
	l.wantCallFault(invalid("InputSpec"), task, err)

	l = newLab(t, options{release: "9.1"})
	ids := l.newVolumes(3)
	l.result(l.attach(ids[1], l.vms[1]))
	results := l.results(l.cns.AttachVolume(l.ctx, specs(l, ids...)))
	if len(results) != 3 || results[0].GetCnsVolumeOperationResult().Fault != nil || results[2].GetCnsVolumeOperationResult().Fault != nil {
		t.Fatalf("results %+v", results)
	}
	l.sameFault(results[1].GetCnsVolumeOperationResult().Fault.Fault, &types.ResourceInUse{})
}

func (l *lab) share(id string, vm types.ManagedObjectReference, sharing, mode string) (*object.Task, error) {
	return l.cns.AttachVolume(l.ctx, []cnstypes.CnsVolumeAttachDetachSpec{{VolumeId: cnstypes.CnsVolumeId{Id: id}, Vm: vm, Sharing: sharing, DiskMode: mode}})
}

func TestSeveralVMsShareADiskOnlyWhenAllAskForIt(t *testing.T) {
	l := newLab(t, options{release: "9.0"})
	id := l.newVolume("a")
	l.result(l.share(id, l.vms[0], multiWriter, "independent_persistent"))
	l.wantInUse(l.share(id, l.vms[1], multiWriter, "independent_persistent"))

	l = newLab(t, options{release: "9.1"})
	id = l.newVolume("a")
	l.result(l.share(id, l.vms[0], multiWriter, "independent_persistent"))
	l.result(l.share(id, l.vms[1], multiWriter, "independent_persistent"))
	l.wantInUse(l.share(id, l.vms[2], "", ""))
	task, err := l.share(id, l.vms[2], "nonsense", "")
	l.wantVolumeFault(invalid("sharing"), task, err)
	if got := len(l.manager.Attachments()); got != 2 {
		t.Errorf("%d attachments", got)
	}
}

func TestDiskModeAndSharingAreIndependentOfEachOther(t *testing.T) {
	l := newLab(t, options{release: "9.1"})
	ids := l.newVolumes(3)
	l.result(l.share(ids[0], l.vms[0], multiWriter, "persistent"))
	l.result(l.share(ids[1], l.vms[0], "", "independent_persistent"))
	l.assume(map[string]any{"SharedDiskMode": "independent"})
	task, err := l.share(ids[2], l.vms[0], multiWriter, "persistent")
	l.wantVolumeFault(invalid("diskMode"), task, err)
	task, err = l.share(ids[2], l.vms[0], "sharingNone", "independent_persistent")
	l.wantVolumeFault(invalid("diskMode"), task, err)
	l.result(l.share(ids[2], l.vms[0], multiWriter, "independent_persistent"))
}

func TestAFullVMLacksAController(t *testing.T) {
	one := map[string]any{"AddControllers": false}
	l := newLab(t, options{release: "7.0U3", assumptions: one})
	count, fault := l.fill(l.vms[0])
	if count != 14 || fault == nil {
		t.Fatalf("%d volumes fitted, then %v", count, fault)
	}
	const reason = "CNS: Failed to attach disk because missing SCSI controller"
	l.sameFault(fault.Fault, &cnstypes.CnsFault{Reason: reason})
	if fault.LocalizedMessage != "CnsFault error: "+reason {
		t.Errorf("text %q", fault.LocalizedMessage)
	}

	l = newLab(t, options{release: "8.0U3", assumptions: one, inventory: setHardware("vmx-13")})
	count, fault = l.fill(l.vms[0])
	if count != 14 || fault == nil {
		t.Fatalf("%d volumes fitted, then %v", count, fault)
	}
	l.sameFault(fault.Fault, &CnsMissingControllerFault{})
	if fault.LocalizedMessage != "" {
		t.Errorf("text %q", fault.LocalizedMessage)
	}
}

func (l *lab) attachAt(id string, controller, unit int32) (*object.Task, error) {
	return l.cns.AttachVolume(l.ctx, []cnstypes.CnsVolumeAttachDetachSpec{{
		VolumeId: cnstypes.CnsVolumeId{Id: id}, Vm: l.vms[0], ControllerKey: &controller, UnitNumber: &unit,
	}})
}

func TestAChosenControllerIsAddedFromNineOne(t *testing.T) {
	l := newLab(t, options{release: "9.0"})
	task, err := l.attachAt(l.newVolume("a"), 1002, 9)
	l.wantVolumeFault(invalid("controllerKey"), task, err)

	l = newLab(t, options{release: "9.1", inventory: setHardware("vmx-21")})
	id := l.newVolume("a")
	l.result(l.attachAt(id, 1002, 12))
	d := l.diskOf(l.vms[0], id)
	if d.ControllerKey != 1002 || *d.UnitNumber != 12 {
		t.Errorf("the disk is on %d:%d", d.ControllerKey, *d.UnitNumber)
	}
	added, ok := l.devices(l.vms[0]).FindByKey(1002).(*types.ParaVirtualSCSIController)
	if !ok || added.BusNumber != 2 || len(added.Device) != 1 {
		t.Errorf("controller %+v", added)
	}
	task, err = l.attachAt(l.newVolume("b"), 1007, 1)
	l.wantVolumeFault(invalid("controllerKey"), task, err)
}

const nvmeKey = 31000

func addNVMe(r *simulator.Registry) {
	for _, ref := range r.AllReference("VirtualMachine") {
		vm := ref.(*simulator.VirtualMachine)
		controller := &types.VirtualNVMEController{}
		controller.Key, controller.ControllerKey = nvmeKey, 100
		controller.DeviceInfo = &types.Description{Label: "NVME controller 0", Summary: "NVME controller 0"}
		vm.Config.Hardware.Device = append(vm.Config.Hardware.Device, controller)
	}
}

// shownDisks notes under which name each disk is shown to a VM.
type shownDisks struct {
	brokenDisks
	mu    sync.Mutex
	links map[string]string
}

func (s *shownDisks) Attach(volume, _, _, link string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links[volume] = link
	return nil
}

func TestNVMeControllersAreUsedOnlyWhenChosen(t *testing.T) {
	shown := &shownDisks{links: map[string]string{}}
	l := newLab(t, options{release: "9.1", config: func(c *Config) { c.Disks = shown }, inventory: func(r *simulator.Registry) {
		addNVMe(r)
		enableUUIDs(r)
	}})
	ids := l.newVolumes(3)
	uuid := l.result(l.attach(ids[0], l.vms[0])).(*cnstypes.CnsVolumeAttachResult).DiskUUID
	if d := l.diskOf(l.vms[0], ids[0]); d.ControllerKey == nvmeKey || shown.links[ids[0]] != disks.LinkName(uuid) {
		t.Errorf("the disk is on controller %d as %s", d.ControllerKey, shown.links[ids[0]])
	}
	uuid = l.result(l.attachAt(ids[1], nvmeKey, 7)).(*cnstypes.CnsVolumeAttachResult).DiskUUID
	d := l.diskOf(l.vms[0], ids[1])
	if d.ControllerKey != nvmeKey || *d.UnitNumber != 7 || shown.links[ids[1]] != disks.NVMeLinkName(uuid) {
		t.Errorf("the disk is on %d:%d as %s", d.ControllerKey, *d.UnitNumber, shown.links[ids[1]])
	}
	if got := l.devices(l.vms[0]).FindByKey(nvmeKey).(*types.VirtualNVMEController).Device; len(got) != 1 || got[0] != d.Key {
		t.Errorf("the controller lists %v", got)
	}
	l.assume(map[string]any{"NVMeControllers": "used"})
	l.result(l.attach(ids[2], l.vms[0]))
	if d := l.diskOf(l.vms[0], ids[2]); d.ControllerKey != nvmeKey || *d.UnitNumber != 0 {
		t.Errorf("the disk is on %d:%d", d.ControllerKey, *d.UnitNumber)
	}
	l.result(l.detach(ids[1], l.vms[0]))
}

func TestAGuestWithoutDiskUUIDsSeesNoLink(t *testing.T) {
	shown := &shownDisks{links: map[string]string{}}
	l := newLab(t, options{config: func(c *Config) { c.Disks = shown }})
	id := l.newVolume("a")
	l.result(l.attach(id, l.vms[0]))
	if link, attached := shown.links[id]; !attached || link != "" {
		t.Errorf("attached %v, link %q", attached, link)
	}
}

func TestAHostThatDoesNotMountTheDatastoreCannotAttach(t *testing.T) {
	l := newLab(t, options{assumptions: showCauses, inventory: func(r *simulator.Registry) {
		for _, ref := range r.AllReference("Datastore") {
			ref.(*simulator.Datastore).Host = nil
		}
	}})
	id := l.newVolume("a")
	task, err := l.attach(id, l.vms[0])
	l.wantDiskFault(&types.CannotAccessFile{}, task, err)
	if l.diskOf(l.vms[0], id) != nil {
		t.Error("the disk is there all the same")
	}
}

func TestOldVirtualHardwareCannotAttach(t *testing.T) {
	l := newLab(t, options{assumptions: showCauses, inventory: setHardware("vmx-12")})
	task, err := l.attach(l.newVolume("a"), l.vms[0])
	l.wantDiskFault(&types.NotSupported{}, task, err)

	l = newLab(t, options{inventory: setHardware("vmx-13")})
	l.result(l.attach(l.newVolume("a"), l.vms[0]))
}

func TestASuspendedVMKeepsItsDisks(t *testing.T) {
	l := newLab(t, options{assumptions: showCauses})
	ids := l.newVolumes(2)
	l.result(l.attach(ids[0], l.vms[0]))
	power := func(state types.VirtualMachinePowerState) {
		everywhere(l, "VirtualMachine", func(vm *simulator.VirtualMachine) { vm.Runtime.PowerState = state })
	}
	power(types.VirtualMachinePowerStateSuspended)
	task, err := l.attach(ids[1], l.vms[0])
	l.wantDiskFault(&types.InvalidPowerState{}, task, err)
	task, err = l.detach(ids[0], l.vms[0])
	l.wantDiskFault(&types.InvalidPowerState{}, task, err)
	power(types.VirtualMachinePowerStatePoweredOff)
	l.result(l.attach(ids[1], l.vms[0]))
}

func TestTwoDisksOfAFamilyDoNotShareAVM(t *testing.T) {
	l := newLab(t, options{release: "9.1"})
	id := l.newVolume("a")
	spec := restoreSpec(l, id, l.newSnapshot(id), 1024)
	spec.VolumeSource.(*cnstypes.CnsSnapshotVolumeSource).LinkedClone = true
	clone := l.result(l.create(spec)).GetCnsVolumeOperationResult().VolumeId.Id
	l.result(l.attach(id, l.vms[0]))
	task, err := l.attach(clone, l.vms[0])
	l.wantDiskFault(&types.NotSupported{}, task, err)
	task, err = l.attach(clone, l.vms[0])
	cause := l.wantVolumeFault(&cnstypes.CnsFault{}, task, err).Fault.(*cnstypes.CnsFault).FaultCause.Fault.GetMethodFault()
	if len(cause.FaultMessage) != 1 || cause.FaultMessage[0].Message != "Attaching mutually shared fcd disks to same VM is not supported." {
		t.Errorf("messages %+v", cause.FaultMessage)
	}
	l.result(l.attach(clone, l.vms[1]))
}
