package inventory

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/world"
)

// Keys that vCenter gives to the devices every VM has.
const (
	keyPCI, keyIDE, keyPS2, keySIO     = 100, 200, 300, 400
	keyVideo, keyKeyboard, keyPointing = 500, 600, 700
	keySCSI, keyDisk, keyCard, keyVMCI = 1000, 2000, 4000, 12000
	keyNVMe                            = 31000
)

// device is the part that all devices have. A device without label or controller makes clients fail.
func device(key int32, label, summary string, controller int32, unit *int32) types.VirtualDevice {
	return types.VirtualDevice{
		Key: key, DeviceInfo: &types.Description{Label: label, Summary: summary}, ControllerKey: controller, UnitNumber: unit,
	}
}

func controller(key int32, label string, bus int32, holds ...int32) types.VirtualController {
	return types.VirtualController{VirtualDevice: device(key, label, label, 0, nil), BusNumber: bus, Device: holds}
}

// devices are the virtual hardware: the fixed set, one paravirtual SCSI controller with the system disk, perhaps an NVMe
// controller, and the cards.
func (s *site) devices(vm *simulator.VirtualMachine, d *world.VM, store *simulator.Datastore) []types.BaseVirtualDevice {
	pci := controller(keyPCI, "PCI controller 0", 0, keyVideo, keyVMCI, keySCSI)
	list := []types.BaseVirtualDevice{
		&types.VirtualIDEController{VirtualController: controller(keyIDE, "IDE 0", 0)},
		&types.VirtualIDEController{VirtualController: controller(keyIDE+1, "IDE 1", 1)},
		&types.VirtualPS2Controller{VirtualController: controller(keyPS2, "PS2 controller 0", 0, keyKeyboard, keyPointing)},
		&types.VirtualSIOController{VirtualController: controller(keySIO, "SIO controller 0", 0)},
		&types.VirtualKeyboard{VirtualDevice: device(keyKeyboard, "Keyboard", "Keyboard", keyPS2, types.NewInt32(0))},
		&types.VirtualPointingDevice{VirtualDevice: device(keyPointing, "Pointing device", "Pointing device; Device", keyPS2, types.NewInt32(1))},
		&types.VirtualMachineVideoCard{
			VirtualDevice:    device(keyVideo, "Video card", "Video card", keyPCI, types.NewInt32(0)),
			VideoRamSizeInKB: 4096, NumDisplays: 1, Use3dRenderer: "automatic",
		},
		&types.VirtualMachineVMCIDevice{VirtualDevice: device(keyVMCI, "VMCI device", "VMCI device", keyPCI, types.NewInt32(17)), Id: -1},
		systemSCSI(),
		systemDisk(d, store),
	}
	if d.NVMe {
		pci.Device = append(pci.Device, keyNVMe)
		nvme := &types.VirtualNVMEController{VirtualController: controller(keyNVMe, "NVME controller 0", 0)}
		nvme.ControllerKey, nvme.UnitNumber = keyPCI, types.NewInt32(30)
		list = append(list, nvme)
	}
	for i, nic := range d.NICs {
		key := int32(keyCard + i)
		pci.Device = append(pci.Device, key)
		plugged := s.networks[nic.Network]
		vm.Network = appendNew(vm.Network, plugged.ref)
		card := &types.VirtualVmxnet3{}
		card.VirtualDevice = device(key, fmt.Sprintf("Network adapter %d", i+1), plugged.name, keyPCI, types.NewInt32(int32(7+i)))
		card.Backing = plugged.backing
		card.Connectable = &types.VirtualDeviceConnectInfo{
			StartConnected: true, AllowGuestControl: true, Connected: d.Power == "on", Status: "ok",
		}
		card.AddressType = string(types.VirtualEthernetCardMacTypeManual)
		card.MacAddress = nic.MAC
		card.WakeOnLanEnabled = types.NewBool(true)
		list = append(list, card)
	}
	return append([]types.BaseVirtualDevice{&types.VirtualPCIController{VirtualController: pci}}, list...)
}

func systemSCSI() types.BaseVirtualDevice {
	scsi := &types.ParaVirtualSCSIController{}
	scsi.VirtualController = controller(keySCSI, "SCSI controller 0", 0, keyDisk)
	scsi.DeviceInfo = &types.Description{Label: "SCSI controller 0", Summary: "VMware paravirtual SCSI"}
	scsi.ControllerKey, scsi.UnitNumber = keyPCI, types.NewInt32(3)
	scsi.SharedBus = types.VirtualSCSISharingNoSharing
	scsi.HotAddRemove = types.NewBool(true)
	scsi.ScsiCtlrUnitNumber = 7
	return scsi
}

func systemDisk(d *world.VM, store *simulator.Datastore) types.BaseVirtualDevice {
	self := store.Self
	disk := &types.VirtualDisk{CapacityInBytes: int64(d.Disk), CapacityInKB: int64(d.Disk >> 10)}
	disk.VirtualDevice = device(keyDisk, "Hard disk 1", fmt.Sprintf("%d KB", d.Disk>>10), keySCSI, types.NewInt32(0))
	disk.DiskObjectId = fmt.Sprintf("1-%d", keyDisk)
	disk.Backing = &types.VirtualDiskFlatVer2BackingInfo{
		VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{
			FileName: home(d, store) + "/" + d.Name + ".vmdk", Datastore: &self,
		},
		DiskMode:        string(types.VirtualDiskModePersistent),
		ThinProvisioned: types.NewBool(true),
		WriteThrough:    types.NewBool(false),
		Uuid:            uuid.NewSHA1(uuid.NameSpaceURL, []byte("system-disk/"+d.UUID)).String(),
	}
	return disk
}

func appendNew(refs []types.ManagedObjectReference, ref types.ManagedObjectReference) []types.ManagedObjectReference {
	if simulator.FindReference(refs, ref) != nil {
		return refs
	}
	return append(refs, ref)
}
