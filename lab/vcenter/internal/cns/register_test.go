package cns

import (
	"fmt"
	"net/url"
	"testing"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"
)

// vmdk makes a plain virtual disk and gives its path and its link as the in-tree migration builds it.
func (l *lab) vmdk(name string) (path, link string) {
	l.Helper()
	l.must(object.NewFileManager(l.vim.Client).MakeDirectory(l.ctx, "[LocalDS_0] kubevols", l.datacenter(), true))
	path = "[LocalDS_0] kubevols/" + name
	task, err := object.NewVirtualDiskManager(l.vim.Client).CreateVirtualDisk(l.ctx, path, l.datacenter(), &types.FileBackedVirtualDiskSpec{
		VirtualDiskSpec: types.VirtualDiskSpec{DiskType: "thin", AdapterType: "lsiLogic"}, CapacityKb: 2 << 20,
	})
	l.must(err)
	l.must(task.Wait(l.ctx))
	return path, fmt.Sprintf("https://vc/folder/kubevols/%s?dcPath=%s&dsName=%s", name, url.PathEscape("DC0"), "LocalDS_0")
}

func (l *lab) datacenter() *object.Datacenter {
	return object.NewDatacenter(l.vim.Client, l.model.Map().Any("Datacenter").Reference())
}

func (l *lab) linkSpec(link string) cnstypes.CnsVolumeCreateSpec {
	spec := l.blockSpec("migrated", 0)
	spec.BackingObjectDetails = &cnstypes.CnsBlockBackingDetails{BackingDiskUrlPath: link}
	return spec
}

func TestAnExistingVMDKBecomesAVolume(t *testing.T) {
	l := newLab(t, options{})
	path, link := l.vmdk("a.vmdk")
	id := l.result(l.create(l.linkSpec(link))).GetCnsVolumeOperationResult().VolumeId.Id
	backing := l.volume(id).BackingObjectDetails.(*cnstypes.CnsBlockBackingDetails)
	if backing.BackingDiskPath != path || backing.CapacityInMb != 2048 {
		t.Errorf("backing %+v", backing)
	}
	l.result(l.attach(id, l.vms[0]))
	if d := l.diskOf(l.vms[0], id); backingFile(d) != path {
		t.Errorf("the VM has %s", backingFile(d))
	}
}

func TestAVMDKThatAVMUsesBecomesAnAttachedVolume(t *testing.T) {
	l := newLab(t, options{})
	path, link := l.vmdk("a.vmdk")
	vm := object.NewVirtualMachine(l.vim.Client, l.vms[0])
	devices, err := vm.Device(l.ctx)
	l.must(err)
	controller, err := devices.FindDiskController("")
	l.must(err)
	disk := devices.CreateDisk(controller, l.datastores[0], path)
	l.must(vm.AddDevice(l.ctx, disk))
	id := l.result(l.create(l.linkSpec(link))).GetCnsVolumeOperationResult().VolumeId.Id
	if l.diskOf(l.vms[0], id) == nil {
		t.Fatal("the VM's device does not name the volume")
	}
	task, err := l.attach(id, l.vms[1])
	l.wantVolumeFault(&types.ResourceInUse{}, task, err)
	l.result(l.detach(id, l.vms[0]))
}

func TestAVMDKOfADescribedVMNeedsNoFile(t *testing.T) {
	path := "[LocalDS_0] kubevols/described.vmdk"
	l := newLab(t, options{inventory: func(r *simulator.Registry) {
		vm := r.Any("VirtualMachine").(*simulator.VirtualMachine)
		for _, device := range vm.Config.Hardware.Device {
			if disk, ok := device.(*types.VirtualDisk); ok {
				disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo).FileName = path
				disk.CapacityInKB = 3 << 20
			}
		}
	}})
	id := l.result(l.create(l.linkSpec("https://vc/folder/kubevols/described.vmdk?dcPath=DC0&dsName=LocalDS_0"))).GetCnsVolumeOperationResult().VolumeId.Id
	if got := l.volume(id).BackingObjectDetails.GetCnsBackingObjectDetails().CapacityInMb; got != 3<<10 {
		t.Errorf("size is %d MiB", got)
	}
	if got := l.manager.Attachments(); len(got) != 1 {
		t.Errorf("attachments %v", got)
	}
}

func TestRegisteringWhatIsNotThereIsRefusedInTheCall(t *testing.T) {
	const missing = "The object or item referred to could not be found."
	l := newLab(t, options{})
	l.vmdk("a.vmdk")
	links := []string{
		"https://vc/folder/kubevols/b.vmdk?dcPath=DC0&dsName=LocalDS_0",
		"https://vc/folder/kubevols/a.vmdk?dcPath=DC9&dsName=LocalDS_0",
		"https://vc/folder/kubevols/a.vmdk?dcPath=F/DC0&dsName=LocalDS_0",
		"https://vc/folder/kubevols/a.vmdk?dcPath=DC0&dsName=LocalDS_9",
		"https://vc/files/kubevols/a.vmdk?dcPath=DC0&dsName=LocalDS_0",
		"https://vc/folder/../kubevols/a.vmdk?dcPath=DC0&dsName=LocalDS_0",
		"https://vc/folder/kubevols?dcPath=DC0&dsName=LocalDS_0",
		"://",
	}
	for _, link := range links {
		task, err := l.create(l.linkSpec(link))
		l.wantArgument("dsDiskUrl", task, err)
	}
	task, err := l.create(l.staticSpec("5b9f1d0e-0000-4000-8000-000000000000"))
	l.wantRefusal(&types.NotFound{}, missing, task, err)

	l.assume(map[string]any{"RegisterUnknown": "volume"})
	for _, link := range links {
		task, err := l.create(l.linkSpec(link))
		l.wantVolumeFault(&types.NotFound{}, task, err)
	}
	task, err = l.create(l.staticSpec("5b9f1d0e-0000-4000-8000-000000000000"))
	if fault := l.wantVolumeFault(&types.NotFound{}, task, err); fault.LocalizedMessage != missing {
		t.Errorf("text %q", fault.LocalizedMessage)
	}

	l = newLab(t, options{release: "6.7U3"})
	task, err = l.create(l.linkSpec("https://vc/folder/a.vmdk?dcPath=DC0&dsName=LocalDS_0"))
	l.wantVolumeFault(&types.NotSupported{}, task, err)
}

// staticSpec registers a disk that exists. Upstream sends no datastores with it.
func (l *lab) staticSpec(id string) cnstypes.CnsVolumeCreateSpec {
	spec := l.blockSpec("static", 0)
	spec.Datastores = nil
	spec.BackingObjectDetails = &cnstypes.CnsBlockBackingDetails{BackingDiskId: id}
	return spec
}

func TestRegisteringAVolumeAgainDependsOnTheRelease(t *testing.T) {
	for _, release := range []string{"7.0U3", "9.0", "9.1"} {
		l := newLab(t, options{release: release})
		_, link := l.vmdk("a.vmdk")
		id := l.result(l.create(l.linkSpec(link))).GetCnsVolumeOperationResult().VolumeId.Id
		for _, spec := range []cnstypes.CnsVolumeCreateSpec{l.linkSpec(link), l.staticSpec(id)} {
			spec.Name = "another"
			if release == "9.1" {
				if got := l.result(l.create(spec)).GetCnsVolumeOperationResult().VolumeId.Id; got != id || l.volume(id).Name != "migrated" {
					t.Errorf("registered as %s, volume %+v", got, l.volume(id))
				}
				continue
			}
			task, err := l.create(spec)
			fault := l.wantVolumeFault(&cnstypes.CnsAlreadyRegisteredFault{}, task, err).Fault.(*cnstypes.CnsAlreadyRegisteredFault)
			if fault.VolumeId.Id != id {
				t.Errorf("fault %+v", fault)
			}
		}
	}
	l := newLab(t, options{release: "6.7U3"})
	task, err := l.create(l.staticSpec(l.newVolume("a")))
	l.wantVolumeFault(&cnstypes.CnsFault{Reason: "already registered"}, task, err)
}

func TestBefore70ADiskIsRegisteredWithVSLMAndThenByItsID(t *testing.T) {
	l := newLab(t, options{release: "6.7U3"})
	_, link := l.vmdk("a.vmdk")
	client, err := vslm.NewClient(l.ctx, l.vim.Client)
	l.must(err)
	disks := vslm.NewGlobalObjectManager(client)
	disk, err := disks.RegisterDisk(l.ctx, link, "fcd")
	l.must(err)
	id := disk.Config.Id.Id
	l.result(l.create(l.staticSpec(id))) // at once
	_, err = disks.RegisterDisk(l.ctx, link, "again")
	l.wantRefusal(&types.AlreadyExists{}, "The specified key, name, or identifier '"+id+"' already exists.", nil, err)
	if fault := soap.ToSoapFault(err).VimFault().(types.AlreadyExists); fault.Name != id {
		t.Errorf("fault %+v", fault)
	}
}

func TestADatacenterInAFolderIsFoundByItsPath(t *testing.T) {
	l := newLab(t, options{inventory: func(r *simulator.Registry) {
		datacenter := r.Any("Datacenter").(*simulator.Datacenter)
		folder := &simulator.Folder{}
		folder.Name = "EU"
		folder.Self = types.ManagedObjectReference{Type: "Folder", Value: "group-eu"}
		folder.Parent = datacenter.Parent
		r.Put(folder)
		datacenter.Parent = &folder.Self
	}})
	if l.manager.datacenter("EU/DC0") == nil || l.manager.datacenter("/EU/DC0/") == nil {
		t.Error("not found by its path")
	}
	if l.manager.datacenter("DC0") != nil {
		t.Error("found without its folder")
	}
}

func TestDisksOfCNSAndOfVim25AreTheSame(t *testing.T) {
	l := newLab(t, options{})
	disks := vslm.NewObjectManager(l.vim.Client)
	id := l.volumeOn(l.datastores[0])
	snapshot := l.newSnapshot(id)
	seen, err := disks.Retrieve(l.ctx, l.datastores[0], id)
	l.must(err)
	if seen.Config.Name != "a" || seen.Config.CapacityInMB != 1024 {
		t.Errorf("disk %+v", seen.Config)
	}
	list, err := disks.RetrieveSnapshotInfo(l.ctx, l.datastores[0], id)
	l.must(err)
	if len(list.Snapshots) != 1 || list.Snapshots[0].Id.Id != snapshot {
		t.Errorf("snapshots %+v", list.Snapshots)
	}

	task, err := disks.CreateDisk(l.ctx, types.VslmCreateSpec{Name: "fcd", CapacityInMB: 10, BackingSpec: &types.VslmCreateSpecDiskFileBackingSpec{
		VslmCreateSpecBackingSpec: types.VslmCreateSpecBackingSpec{Datastore: l.datastores[1]},
	}})
	l.must(err)
	info, err := task.WaitForResult(l.ctx)
	l.must(err)
	made := info.Result.(types.VStorageObject).Config.Id.Id
	l.manager.Sync()
	l.result(l.static(made))
	l.result(l.attach(made, l.vms[0]))
	l.result(l.detach(made, l.vms[0]))
	l.result(l.delete(made))
	if _, err := disks.Retrieve(l.ctx, l.datastores[1], made); err == nil {
		t.Error("vim25 still has the deleted disk")
	}
}

func TestAVMDKRegisteredThroughVim25BecomesTheSameVolume(t *testing.T) {
	l := newLab(t, options{})
	_, link := l.vmdk("a.vmdk")
	registered, err := vslm.NewObjectManager(l.vim.Client).RegisterDisk(l.ctx, link, "fcd")
	l.must(err)
	task, err := l.create(l.linkSpec(link))
	l.wantVolumeFault(&types.NotFound{}, task, err) // VSLM does not know it yet
	l.manager.Sync()
	if got := l.result(l.create(l.linkSpec(link))).GetCnsVolumeOperationResult().VolumeId.Id; got != registered.Config.Id.Id {
		t.Errorf("volume %s, disk %s", got, registered.Config.Id.Id)
	}
}

func TestSyncForgetsVolumesWhoseDisksAreGone(t *testing.T) {
	l := newLab(t, options{release: "9.1"})
	a, b, c := l.volumeOn(l.datastores[0]), l.volumeOn(l.datastores[1]), l.volumeOn(l.datastores[1])
	disks := vslm.NewObjectManager(l.vim.Client)
	for id, at := range map[string]types.ManagedObjectReference{a: l.datastores[0], b: l.datastores[1]} {
		task, err := disks.Delete(l.ctx, at, id)
		l.must(err)
		l.must(task.Wait(l.ctx))
	}
	if !l.exists(a) || !l.exists(b) {
		t.Fatal("CNS noticed without a sync")
	}
	l.result(l.cns.SyncVolume(l.ctx, []cnstypes.CnsSyncVolumeSpec{{VolumeId: cnstypes.CnsVolumeId{Id: a}, SyncMode: []string{"SPACE_USAGE"}}}))
	task, err := l.cns.SyncDatastore(l.ctx, l.volume(b).DatastoreUrl, true)
	l.must(err)
	l.must(task.Wait(l.ctx))
	if l.exists(a) || l.exists(b) || !l.exists(c) {
		t.Error("sync forgot the wrong volumes")
	}
	if l.free(l.datastores[0]) != 100*gib || l.free(l.datastores[1]) != 99*gib {
		t.Error("the space of vanished disks is still taken")
	}
	task, err = l.cns.SyncDatastore(l.ctx, "ds:///nope/", false)
	l.wantTaskFault(invalid("datastoreUrl"), task, err)
	task, err = l.cns.SyncVolume(l.ctx, []cnstypes.CnsSyncVolumeSpec{{VolumeId: cnstypes.CnsVolumeId{Id: "nope"}}})
	l.wantVolumeFault(&types.NotFound{}, task, err)
	task, err = l.cns.SyncVolume(l.ctx, []cnstypes.CnsSyncVolumeSpec{{VolumeId: cnstypes.CnsVolumeId{Id: c}, SyncMode: []string{"COLOUR"}}})
	l.wantVolumeFault(invalid("syncMode"), task, err)
}

func TestUnregisterLeavesAnFCDOrAPlainDisk(t *testing.T) {
	l := newLab(t, options{release: "9.1"})
	unregister := func(id, target string) (*object.Task, error) {
		return l.cns.UnregisterVolume(l.ctx, []cnstypes.CnsUnregisterVolumeSpec{{VolumeId: cnstypes.CnsVolumeId{Id: id}, TargetVolumeType: target}})
	}
	disks := vslm.NewObjectManager(l.vim.Client)
	a, b := l.volumeOn(l.datastores[0]), l.volumeOn(l.datastores[0])
	l.result(unregister(a, "FCD"))
	if _, err := disks.Retrieve(l.ctx, l.datastores[0], a); err != nil || l.exists(a) {
		t.Errorf("FCD is gone or the volume stayed: %v", err)
	}
	task, err := unregister(b, "CLOUD")
	l.wantVolumeFault(invalid("targetVolumeType"), task, err)
	l.result(l.attach(b, l.vms[0]))
	task, err = unregister(b, "LEGACY_DISK")
	l.wantVolumeFault(&types.InvalidState{}, task, err)
	l.result(l.detach(b, l.vms[0]))
	l.result(unregister(b, "LEGACY_DISK"))
	if _, err := disks.Retrieve(l.ctx, l.datastores[0], b); err == nil {
		t.Error("the FCD is still there")
	}
	task, err = unregister(b, "FCD")
	l.wantVolumeFault(&types.NotFound{}, task, err)

	l = newLab(t, options{})
	_, err = l.cns.UnregisterVolume(l.ctx, nil)
	l.wantCallFault(&types.MethodNotFound{}, nil, err)
}
