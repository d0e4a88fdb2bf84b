package inventory

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/diskname"
)

// MoveToDatastore is a storage vMotion of a VM's files and of all of its disks.
func (inv *Inventory) MoveToDatastore(vm *simulator.VirtualMachine, store *simulator.Datastore) error {
	return inv.MoveStorage(vm, store, nil)
}

// MoveStorage is a storage vMotion of a VM's files, and of its disks to where a map by device key says; those that it
// does not name go with the files. First-class disks leave their folder and get names like the VM's own.
func (inv *Inventory) MoveStorage(vm *simulator.VirtualMachine, store *simulator.Datastore, disks map[int32]*simulator.Datastore) error {
	host, _ := inv.ctx.Map.Get(*vm.Runtime.Host).(*simulator.HostSystem)
	targets := []*simulator.Datastore{store}
	for _, target := range disks {
		targets = append(targets, target)
	}
	for _, target := range targets {
		if host == nil || simulator.FindReference(host.Datastore, target.Self) == nil {
			return wrong("datastore", "the host of the VM does not mount %s", target.Name)
		}
	}
	var old []types.ManagedObjectReference
	ctx := inv.newContext()
	ctx.WithLock(vm, func() {
		old = slices.Clone(vm.Datastore)
		files := vm.Config.Files
		for _, file := range []*string{&files.VmPathName, &files.SnapshotDirectory, &files.SuspendDirectory, &files.LogDirectory} {
			*file = onStore(*file, store)
		}
		used := []types.ManagedObjectReference{store.Self}
		devices := slices.Clone(vm.Config.Hardware.Device)
		for i := range devices {
			target := store
			if named := disks[devices[i].GetVirtualDevice().Key]; named != nil {
				target = named
			}
			if moveDisk(devices, i, files.VmPathName, target) {
				used = appendNew(used, target.Self)
			}
		}
		urls := []types.VirtualMachineConfigInfoDatastoreUrlPair{{Name: store.Name, Url: store.Summary.Url}}
		ctx.Update(vm, []types.PropertyChange{
			set("datastore", used), set("config.files", files), set("config.hardware.device", devices),
			set("config.datastoreUrl", urls), set("summary.config.vmPathName", files.VmPathName), newVersion(),
		})
	})
	for _, ref := range old {
		if ds, ok := inv.ctx.Map.Get(ref).(*simulator.Datastore); ok && simulator.FindReference(vm.Datastore, ref) == nil {
			inv.relist(ds, "vm", func() []types.ManagedObjectReference { return ds.Vm }, vm.Self, false)
		}
	}
	for _, target := range targets {
		inv.relist(target, "vm", func() []types.ManagedObjectReference { return target.Vm }, vm.Self, true)
	}
	return nil
}

// moveDisk puts a copy of a disk with its file on the datastore into the list; false says that the device has no file. A
// first-class disk that is on the datastore already stays where it is.
func moveDisk(devices []types.BaseVirtualDevice, i int, configFile string, store *simulator.Datastore) bool {
	disk, ok := devices[i].(*types.VirtualDisk)
	if !ok {
		return false
	}
	backing, ok := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
	if !ok {
		return false
	}
	self := store.Self
	file := *backing
	file.Datastore = &self
	switch {
	case disk.VDiskId == nil:
		file.FileName = onStore(file.FileName, store)
	case backing.Datastore == nil || *backing.Datastore != self:
		file.FileName = diskname.Next(configFile, store.Name, devices)
	}
	moved := *disk
	moved.Backing = &file
	devices[i] = &moved
	return true
}

func onStore(file string, store *simulator.Datastore) string {
	_, rest, ok := strings.Cut(file, "] ")
	if !ok {
		return file
	}
	return fmt.Sprintf("[%s] %s", store.Name, rest)
}
