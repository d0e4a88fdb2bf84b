package vcenter

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// operator is govmomi's CNS client of the administrator, against a vCenter of a release.
func operator(t *testing.T, release string) *driver {
	t.Helper()
	w := defaultWorld(t)
	w.Release = release
	vc := start(t, w, Options{})
	client := login(t, vc.URL)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return &driver{t, ctx, vc, client.Client, volumes(t, client)}
}

// volume makes a volume on a datastore and attaches it to a VM, if one is named.
func (d *driver) volume(name, datastore, vm string) cnstypes.CnsVolumeId {
	d.Helper()
	spec := d.spec(name, "", datastore)
	spec[0].Profile = nil
	task, err := d.cns.CreateVolume(d.ctx, spec)
	id := d.done("create", task, err).GetCnsVolumeOperationResult().VolumeId
	if vm != "" {
		task, err = d.cns.AttachVolume(d.ctx, d.on(id, vm))
		d.done("attach", task, err)
	}
	return id
}

func (d *driver) on(id cnstypes.CnsVolumeId, vm string) []cnstypes.CnsVolumeAttachDetachSpec {
	return []cnstypes.CnsVolumeAttachDetachSpec{{VolumeId: id, Vm: d.at(vm)}}
}

// refused expects a fault in the volume's result.
func (d *driver) refused(what string, want types.BaseMethodFault, task *object.Task, err error) {
	d.Helper()
	got := result(d.T, task, err).GetCnsVolumeOperationResult().Fault
	if got == nil || !sameType(got.Fault, want) {
		d.Errorf("%s: %+v, want %T", what, got, want)
	}
}

func sameType(got any, want types.BaseMethodFault) bool {
	value := reflect.Indirect(reflect.ValueOf(got))
	return value.IsValid() && value.Type() == reflect.TypeOf(want).Elem()
}

func (d *driver) query(id cnstypes.CnsVolumeId) *cnstypes.CnsVolume {
	d.Helper()
	found, err := d.cns.QueryVolume(d.ctx, &cnstypes.CnsQueryFilter{VolumeIds: []cnstypes.CnsVolumeId{id}})
	if err != nil {
		d.Fatal(err)
	}
	if len(found.Volumes) == 0 {
		return nil
	}
	return &found.Volumes[0]
}

// files are those of a VM's disks by the id of the volume; the VM's own disk has none.
func (d *driver) files(vm string) map[string]string {
	d.Helper()
	var got mo.VirtualMachine
	if err := object.NewVirtualMachine(d.vim, d.at(vm)).Properties(d.ctx, d.at(vm), []string{"config.hardware.device"}, &got); err != nil {
		d.Fatal(err)
	}
	files := map[string]string{}
	for _, device := range got.Config.Hardware.Device {
		disk, ok := device.(*types.VirtualDisk)
		if !ok {
			continue
		}
		id := ""
		if disk.VDiskId != nil {
			id = disk.VDiskId.Id
		}
		files[id] = disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo).FileName
	}
	return files
}

func TestStorageVMotionTakesVolumesIntoTheVMsFolder(t *testing.T) {
	const node = "/dc-1/vm/k8s/node-1"
	for release, follows := range map[string]bool{"6.7U3": false, "7.0U3": true, "8.0U3": true} {
		t.Run(release, func(t *testing.T) {
			d := operator(t, release)
			one, two := d.volume("one", "/dc-1/datastore/vsan-1", node), d.volume("two", "/dc-1/datastore/vsan-1", node)
			target := d.at("/dc-1/datastore/shared-1")
			task, err := object.NewVirtualMachine(d.vim, d.at(node)).Relocate(d.ctx, types.VirtualMachineRelocateSpec{Datastore: &target}, "")
			if err == nil {
				err = task.Wait(d.ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
			files := d.files(node)
			if files[one.Id] != "[shared-1] node-1/node-1_1.vmdk" || files[two.Id] != "[shared-1] node-1/node-1_2.vmdk" || files[""] != "[shared-1] node-1/node-1.vmdk" {
				t.Errorf("files %v", files)
			}
			d.vc.CNS().Sync()
			if !follows {
				task, err := d.cns.DetachVolume(d.ctx, d.on(one, node))
				d.refused("detach", &types.NotFound{}, task, err)
				task, err = d.cns.AttachVolume(d.ctx, d.on(one, "/dc-1/vm/k8s/node-2"))
				d.refused("attach", &types.NotFound{}, task, err)
				task, err = d.cns.DeleteVolume(d.ctx, []cnstypes.CnsVolumeId{one}, true)
				d.refused("delete", &types.NotFound{}, task, err)
				task, err = d.cns.ExtendVolume(d.ctx, []cnstypes.CnsVolumeExtendSpec{{VolumeId: one, CapacityInMb: 128}})
				d.refused("extend", &types.NotFound{}, task, err)
				return
			}
			shown := d.query(one)
			if shown == nil || shown.BackingObjectDetails.(*cnstypes.CnsBlockBackingDetails).BackingDiskPath != files[one.Id] || !strings.Contains(shown.DatastoreUrl, "5eed") {
				t.Errorf("volume %+v", shown)
			}
			task, err = d.cns.DetachVolume(d.ctx, d.on(one, node))
			d.done("detach", task, err)
			task, err = d.cns.DeleteVolume(d.ctx, []cnstypes.CnsVolumeId{one}, true)
			d.done("delete", task, err)
		})
	}
}

func TestARelocationMovesTheDisksThatItNames(t *testing.T) {
	const node = "/dc-1/vm/k8s/node-1"
	d := operator(t, "8.0U3")
	stays, moves := d.volume("stays", "/dc-1/datastore/vsan-1", node), d.volume("moves", "/dc-1/datastore/vsan-1", node)
	before := d.files(node)
	var got mo.VirtualMachine
	vm := object.NewVirtualMachine(d.vim, d.at(node))
	if err := vm.Properties(d.ctx, vm.Reference(), []string{"config.hardware.device"}, &got); err != nil {
		t.Fatal(err)
	}
	spec := types.VirtualMachineRelocateSpec{}
	for _, device := range got.Config.Hardware.Device {
		if disk, ok := device.(*types.VirtualDisk); ok && disk.VDiskId != nil && disk.VDiskId.Id == moves.Id {
			spec.Disk = append(spec.Disk, types.VirtualMachineRelocateSpecDiskLocator{DiskId: disk.Key, Datastore: d.at("/dc-1/datastore/fast/pod-1")})
		}
	}
	task, err := vm.Relocate(d.ctx, spec, "")
	if err == nil {
		err = task.Wait(d.ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	after := d.files(node)
	if after[stays.Id] != before[stays.Id] || after[""] != before[""] || after[moves.Id] != "[pod-1] node-1/node-1_1.vmdk" {
		t.Errorf("files %v, before %v", after, before)
	}
	store := d.at("/europe/dc-2/datastore/shared-2")
	task, err = vm.Relocate(d.ctx, types.VirtualMachineRelocateSpec{Datastore: &store}, "")
	if err == nil {
		err = task.Wait(d.ctx)
	}
	if !soapFault[*types.MigrationFault](err) {
		t.Errorf("to a datastore that its host does not mount: %v", err)
	}
}
