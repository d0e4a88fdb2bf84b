package cns

import (
	"strings"
	"testing"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"
)

func (l *lab) relocate(id string, target types.ManagedObjectReference) (*object.Task, error) {
	return l.cns.RelocateVolume(l.ctx, cnstypes.NewCnsBlockVolumeRelocateSpec(id, target))
}

func (l *lab) volumeOn(datastore types.ManagedObjectReference) string {
	l.Helper()
	spec := l.blockSpec("a", 1024)
	spec.Datastores = []types.ManagedObjectReference{datastore}
	return l.result(l.create(spec)).GetCnsVolumeOperationResult().VolumeId.Id
}

func TestRelocateMovesTheDiskItsSpaceAndItsPath(t *testing.T) {
	l := newLab(t, options{})
	id := l.volumeOn(l.datastores[0])
	l.result(l.attach(id, l.vms[0]))
	url := l.volume(id).DatastoreUrl
	l.result(l.relocate(id, l.datastores[1]))
	if l.free(l.datastores[0]) != 100*gib || l.free(l.datastores[1]) != 99*gib {
		t.Errorf("free: %d and %d", l.free(l.datastores[0]), l.free(l.datastores[1]))
	}
	v := l.volume(id)
	file := v.BackingObjectDetails.(*cnstypes.CnsBlockBackingDetails).BackingDiskPath
	var vm mo.VirtualMachine
	l.must(l.vim.RetrieveOne(l.ctx, l.vms[0], []string{"config.files.vmPathName"}, &vm))
	_, base, _ := strings.Cut(strings.TrimSuffix(vm.Config.Files.VmPathName, ".vmx"), "] ")
	if want := "[" + l.manager.mustDatastore(l.datastores[1]).name + "] " + base + "_1.vmdk"; v.DatastoreUrl == url || file != want {
		t.Errorf("volume %+v at %s, want it beside its VM at %s", v, file, want)
	}
	if d := l.diskOf(l.vms[0], id); backingFile(d) != file {
		t.Errorf("the VM has %s", backingFile(d))
	}
	if _, err := vslm.NewObjectManager(l.vim.Client).Retrieve(l.ctx, l.datastores[1], id); err != nil {
		t.Errorf("vim25 does not find the disk on its new datastore: %v", err)
	}
	task, err := l.relocate(id, l.datastores[1])
	l.wantVolumeFault(&types.AlreadyExists{}, task, err)
	task, err = l.relocate(id, types.ManagedObjectReference{Type: "Datastore", Value: "x"})
	l.wantVolumeFault(&types.ManagedObjectNotFound{}, task, err)
	task, err = l.relocate("nope", l.datastores[0])
	l.wantVolumeFault(&types.NotFound{}, task, err)
}

func TestAnAttachedDiskIsRelocatedFromSevenU3(t *testing.T) {
	l := newLab(t, options{release: "6.7U3"})
	id := l.volumeOn(l.datastores[0])
	l.result(l.attach(id, l.vms[0]))
	running, err := l.global().Relocate(l.ctx, types.ID{Id: id}, types.VslmRelocateSpec{VslmMigrateSpec: onDatastore(l.datastores[1])})
	l.wantVSLMFault(&types.ResourceInUse{}, running, err)

	l = newLab(t, options{release: "7.0U3"})
	id = l.volumeOn(l.datastores[0])
	l.result(l.attach(id, l.vms[0]))
	l.result(l.relocate(id, l.datastores[1]))
	if at := l.diskOf(l.vms[0], id).Backing.(*types.VirtualDiskFlatVer2BackingInfo).Datastore; *at != l.datastores[1] {
		t.Errorf("the VM's device is on %s", at.Value)
	}
}

func TestAVolumeFollowsItsVMsStorage(t *testing.T) {
	l := newLab(t, options{})
	id := l.volumeOn(l.datastores[0])
	l.result(l.attach(id, l.vms[0]))
	vm := l.manager.vm(l.vms[0])
	ctx := l.manager.inventory()
	file := "[" + l.manager.mustDatastore(l.datastores[1]).name + "] node/disk.vmdk"
	l.model.Map().WithLock(ctx, vm, func() { // what storage vMotion does to a VM
		devices := newDeviceList(vm.Config.Hardware.Device)
		moved := *devices.findDisk(ofVolume(id))
		backing := *moved.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
		backing.FileName, backing.Datastore = file, &l.datastores[1]
		moved.Backing = &backing
		devices.replace(&moved)
		devices.store(ctx, vm)
	})
	l.manager.Sync()
	if got := l.volume(id).BackingObjectDetails.(*cnstypes.CnsBlockBackingDetails).BackingDiskPath; got != file {
		t.Errorf("the volume is at %s", got)
	}
	if l.free(l.datastores[0]) != 100*gib || l.free(l.datastores[1]) != 99*gib {
		t.Error("the space did not move")
	}
}

func TestRelocateNeedsRoomAPolicyAndTheRelease(t *testing.T) {
	table := policies{}
	l := newLab(t, options{config: func(c *Config) { c.Policies = table }})
	table["gold"] = l.datastores[:1]
	spec := withPolicy(l.blockSpec("a", 60*1024), "gold")
	id := l.result(l.create(spec)).GetCnsVolumeOperationResult().VolumeId.Id
	task, err := l.relocate(id, l.datastores[1])
	l.wantVolumeFault(&cnstypes.CnsFault{Reason: "does not satisfy"}, task, err)
	table["gold"] = l.datastores
	big := l.blockSpec("b", 60*1024)
	big.Datastores = l.datastores[1:2]
	l.result(l.create(big))
	task, err = l.relocate(id, l.datastores[1])
	l.wantVolumeFault(&cnstypes.CnsFault{Reason: "VSLM task failed"}, task, err)
	if l.free(l.datastores[0]) != 40*gib {
		t.Error("a failed move gave space back")
	}

	l = newLab(t, options{release: "6.7U3"})
	_, err = l.relocate(l.newVolume("a"), l.datastores[0])
	l.wantCallFault(&types.MethodNotFound{}, nil, err)
}

func (l *lab) changePolicy(id string, policies ...string) (*object.Task, error) {
	spec := cnstypes.CnsVolumePolicyReconfigSpec{VolumeId: cnstypes.CnsVolumeId{Id: id}}
	for _, policy := range policies {
		spec.Profile = append(spec.Profile, &types.VirtualMachineDefinedProfileSpec{ProfileId: policy})
	}
	return l.cns.ReconfigVolumePolicy(l.ctx, []cnstypes.CnsVolumePolicyReconfigSpec{spec})
}

func TestPoliciesCanBeChanged(t *testing.T) {
	table := policies{}
	l := newLab(t, options{config: func(c *Config) { c.Policies = table }})
	table["gold"], table["none"] = l.datastores, nil
	id := l.newVolume("a")
	l.result(l.changePolicy(id, "gold"))
	if v := l.volume(id); v.StoragePolicyId != "gold" || v.ComplianceStatus != "compliant" {
		t.Errorf("volume %+v", v)
	}
	task, err := l.changePolicy(id, "unknown")
	l.wantVolumeFault(invalid("profileId"), task, err)
	task, err = l.changePolicy(id)
	l.wantVolumeFault(invalid("profile"), task, err)
	task, err = l.changePolicy(id, "gold", "none")
	l.wantVolumeFault(invalid("profile"), task, err)
	task, err = l.changePolicy("nope", "gold")
	l.wantVolumeFault(&types.NotFound{}, task, err)
}

func TestAPolicyTheDatastoreDoesNotSatisfyIsRefused(t *testing.T) {
	table := policies{}
	l := newLab(t, options{config: func(c *Config) { c.Policies = table }})
	table["gold"], table["none"] = l.datastores, nil
	id := l.newVolume("a")
	l.result(l.changePolicy(id, "gold"))
	task, err := l.changePolicy(id, "none")
	l.wantVolumeFault(&cnstypes.CnsFault{Reason: "does not satisfy"}, task, err)
	l.assume(map[string]any{"ReconfigIncompatible": "nonCompliant"})
	l.result(l.changePolicy(id, "none"))
	if v := l.volume(id); v.ComplianceStatus != "nonCompliant" {
		t.Errorf("volume %+v", v)
	}
}

func TestControlFlags(t *testing.T) {
	l := newLab(t, options{release: "9.1"})
	id := l.volumeOn(l.datastores[0])
	flags := func(id string, names ...string) []cnstypes.CnsVolumeControlFlagsSpec {
		return []cnstypes.CnsVolumeControlFlagsSpec{{VolumeId: cnstypes.CnsVolumeId{Id: id}, ControlFlags: names}}
	}
	l.must(l.cns.SetVolumeControlFlags(l.ctx, flags(id, "disableRelocation", "enableChangedBlockTracking")))
	task, err := l.relocate(id, l.datastores[1])
	l.wantDiskFault(&types.NotSupported{}, task, err)
	if l.result(l.snapshot(id, "")).(*cnstypes.CnsSnapshotCreateResult).Snapshot.ChangedBlockTrackingId == "" {
		t.Error("the snapshot has no change id")
	}
	l.must(l.cns.ClearVolumeControlFlags(l.ctx, flags(id, "disableRelocation", "keepAfterDeleteVm")))
	object, err := vslm.NewObjectManager(l.vim.Client).Retrieve(l.ctx, l.datastores[0], id)
	l.must(err)
	if *object.Config.KeepAfterDeleteVm || *object.Config.RelocationDisabled || !*object.Config.ChangedBlockTrackingEnabled {
		t.Errorf("disk %+v", object.Config)
	}
	l.wantCallFault(invalid("controlFlags"), nil, l.cns.SetVolumeControlFlags(l.ctx, flags(id, "nonsense")))
	l.wantCallFault(&cnstypes.CnsVolumeNotFoundFault{}, nil, l.cns.SetVolumeControlFlags(l.ctx, flags("nope", "keepAfterDeleteVm")))
}
