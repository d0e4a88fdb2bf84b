package inventory

import (
	"sort"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// Object is an inventory object as the control endpoint shows it.
type Object struct {
	Ref       string     `json:"ref"`
	Type      string     `json:"type"`
	Path      string     `json:"path"`
	Tags      []string   `json:"tags,omitempty"` // category/tag
	VM        *VM        `json:"vm,omitempty"`
	Host      *Host      `json:"host,omitempty"`
	Datastore *Datastore `json:"datastore,omitempty"`
}

// VM is the part of an object that only VMs have.
type VM struct {
	UUID      string   `json:"uuid"`
	Host      string   `json:"host"`
	Power     string   `json:"power"`
	State     string   `json:"state"`
	Addresses []string `json:"addresses"`
	Disks     []Disk   `json:"disks"`
}

// Disk is a virtual disk of a VM.
type Disk struct {
	Key        int32  `json:"key"`
	Controller int32  `json:"controller"`
	Unit       int32  `json:"unit"`
	Volume     string `json:"volume,omitempty"` // first-class disk id
	UUID       string `json:"uuid,omitempty"`
	File       string `json:"file,omitempty"`
}

// Host is the part of an object that only hosts have.
type Host struct {
	State       string `json:"state"`
	Maintenance bool   `json:"maintenance"`
}

// Datastore is the part of an object that only datastores have.
type Datastore struct {
	URL        string `json:"url"`
	Type       string `json:"type"`
	Capacity   int64  `json:"capacity"`
	Free       int64  `json:"free"`
	Accessible bool   `json:"accessible"`
}

// Objects lists the inventory, sorted by path. Tags are kept elsewhere, so the caller says how to find them.
func (inv *Inventory) Objects(tags func(types.ManagedObjectReference) []string) []Object {
	list := []Object{}
	for _, entity := range inv.ctx.Map.All("") {
		ref := entity.Reference()
		shown := Object{Ref: ref.Value, Type: ref.Type, Path: inv.Path(ref), Tags: tags(ref)}
		if shown.Path == "" {
			continue // gone since the list was made
		}
		inv.withLock(entity, func() {
			switch object := entity.(type) {
			case *simulator.VirtualMachine:
				shown.VM = showVM(object)
			case *simulator.HostSystem:
				shown.Host = &Host{string(object.Runtime.ConnectionState), object.Runtime.InMaintenanceMode}
			case *simulator.Datastore:
				s := object.Summary
				shown.Datastore = &Datastore{s.Url, s.Type, s.Capacity, s.FreeSpace, s.Accessible}
			}
		})
		list = append(list, shown)
	}
	sort.Slice(list, func(i, j int) bool { return strings.Compare(list[i].Path+list[i].Ref, list[j].Path+list[j].Ref) < 0 })
	return list
}

func showVM(vm *simulator.VirtualMachine) *VM {
	shown := &VM{Power: string(vm.Runtime.PowerState), State: string(vm.Runtime.ConnectionState), Addresses: []string{}, Disks: []Disk{}}
	if vm.Runtime.Host != nil {
		shown.Host = vm.Runtime.Host.Value
	}
	if vm.Guest != nil {
		for _, card := range vm.Guest.Net {
			shown.Addresses = append(shown.Addresses, card.IpAddress...)
		}
	}
	if vm.Config == nil {
		return shown
	}
	shown.UUID = vm.Config.Uuid
	for _, device := range vm.Config.Hardware.Device {
		if disk, ok := device.(*types.VirtualDisk); ok {
			shown.Disks = append(shown.Disks, showDisk(disk))
		}
	}
	return shown
}

func showDisk(disk *types.VirtualDisk) Disk {
	shown := Disk{Key: disk.Key, Controller: disk.ControllerKey}
	if disk.UnitNumber != nil {
		shown.Unit = *disk.UnitNumber
	}
	if disk.VDiskId != nil {
		shown.Volume = disk.VDiskId.Id
	}
	if backing, ok := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo); ok {
		shown.UUID, shown.File = backing.Uuid, backing.FileName
	}
	return shown
}
