package cns

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

const (
	maxControllers  = 4
	firstController = 1000
	controllerUnit  = 7  // a SCSI controller's own place on its bus
	narrowUnits     = 16 // 15 disks
	wideUnits       = 65 // 64 disks
	nvmeUnits       = 15
)

// deviceList is a copy of a VM's devices. Devices in it are replaced, never changed: an answer with the old ones may be
// on its way to a client.
type deviceList struct {
	devices []types.BaseVirtualDevice
}

func newDeviceList(devices []types.BaseVirtualDevice) *deviceList {
	return &deviceList{devices: slices.Clone(devices)}
}

// store puts the devices on the VM, whose lock the caller holds. The configuration is replaced for the same reason as
// devices are.
func (l *deviceList) store(ctx *simulator.Context, vm *simulator.VirtualMachine) {
	config := *vm.Config
	vm.Config = &config
	count := int32(0)
	for _, device := range l.devices {
		if _, ok := device.(*types.VirtualDisk); ok {
			count++
		}
	}
	ctx.Update(vm, []types.PropertyChange{
		{Name: "config.hardware.device", Val: l.devices},
		{Name: "summary.config.numVirtualDisks", Val: count},
	})
}

func (l *deviceList) findDisk(match func(*types.VirtualDisk) bool) *types.VirtualDisk {
	for _, device := range l.devices {
		if d, ok := device.(*types.VirtualDisk); ok && match(d) {
			return d
		}
	}
	return nil
}

func ofVolume(id string) func(*types.VirtualDisk) bool {
	return func(d *types.VirtualDisk) bool { return d.VDiskId != nil && d.VDiskId.Id == id }
}

func (l *deviceList) has(id string) bool { return l.findDisk(ofVolume(id)) != nil }

func (l *deviceList) replace(device types.BaseVirtualDevice) {
	for i, old := range l.devices {
		if old.GetVirtualDevice().Key == device.GetVirtualDevice().Key {
			l.devices[i] = device
		}
	}
}

// remove takes out a volume's disk and says whether it was there.
func (l *deviceList) remove(id string) bool {
	d := l.findDisk(ofVolume(id))
	if d == nil {
		return false
	}
	l.devices = slices.DeleteFunc(l.devices, func(device types.BaseVirtualDevice) bool { return device == types.BaseVirtualDevice(d) })
	l.list(d.ControllerKey, func(keys []int32) []int32 {
		return slices.DeleteFunc(keys, func(key int32) bool { return key == d.Key })
	})
	return true
}

// list changes which devices a controller says it has.
func (l *deviceList) list(controllerKey int32, change func([]int32) []int32) {
	for i, device := range l.devices {
		if device.GetVirtualDevice().Key != controllerKey {
			continue
		}
		switch old := device.(type) {
		case *types.ParaVirtualSCSIController:
			own := *old
			own.Device = change(slices.Clone(old.Device))
			l.devices[i] = &own
		case *types.VirtualLsiLogicController:
			own := *old
			own.Device = change(slices.Clone(old.Device))
			l.devices[i] = &own
		case *types.VirtualLsiLogicSASController:
			own := *old
			own.Device = change(slices.Clone(old.Device))
			l.devices[i] = &own
		case *types.VirtualBusLogicController:
			own := *old
			own.Device = change(slices.Clone(old.Device))
			l.devices[i] = &own
		case *types.VirtualNVMEController:
			own := *old
			own.Device = change(slices.Clone(old.Device))
			l.devices[i] = &own
		}
	}
}

// bus is a SCSI or NVMe controller and how many places it has.
type bus struct {
	key    int32
	number int32
	units  int32
	own    int32 // the place of the controller itself; -1 when it takes none
	para   bool
	nvme   bool
}

// buses are the controllers in the order in which they are filled: paravirtual SCSI before other SCSI before NVMe.
func (l *deviceList) buses(wide bool) []bus {
	var buses []bus
	for _, device := range l.devices {
		b := bus{key: device.GetVirtualDevice().Key}
		switch controller := device.(type) {
		case *types.VirtualNVMEController:
			b.number, b.units, b.own, b.nvme = controller.BusNumber, nvmeUnits, -1, true
		case types.BaseVirtualSCSIController:
			b.number, b.units, b.own = controller.GetVirtualSCSIController().BusNumber, narrowUnits, controllerUnit
			if _, b.para = device.(*types.ParaVirtualSCSIController); b.para && wide {
				b.units = wideUnits
			}
		default:
			continue
		}
		buses = append(buses, b)
	}
	rank := func(b bus) int {
		switch {
		case b.para:
			return 0
		case b.nvme:
			return 2
		}
		return 1
	}
	slices.SortFunc(buses, func(a, b bus) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.number, b.number))
	})
	return buses
}

// freeUnit is the lowest free place on a bus.
func (l *deviceList) freeUnit(b bus) (int32, bool) {
	for unit := range b.units {
		if l.isFree(b, unit) {
			return unit, true
		}
	}
	return 0, false
}

func (l *deviceList) isFree(b bus, unit int32) bool {
	if unit < 0 || unit >= b.units || unit == b.own {
		return false
	}
	return !slices.ContainsFunc(l.devices, func(device types.BaseVirtualDevice) bool {
		d := device.GetVirtualDevice()
		return d.ControllerKey == b.key && d.UnitNumber != nil && *d.UnitNumber == unit
	})
}

// seat gives the disk a controller and a place on it, and adds it.
func (m *Manager) seat(l *deviceList, hardware string, d *types.VirtualDisk, spec cnstypes.CnsVolumeAttachDetachSpec) (bus, types.BaseMethodFault) {
	version, _ := strconv.Atoi(strings.TrimPrefix(hardware, "vmx-"))
	if version < assume.MinHardware.In(m.assumed) {
		return bus{}, failedTo(toAttach, &types.NotSupported{})
	}
	wide := m.since("8.0U3") && assume.WidePVSCSI.In(m.assumed) && version >= assume.WidePVSCSIHardware.In(m.assumed)
	buses, fault := m.usableBuses(l, wide, spec.ControllerKey)
	if fault != nil {
		return bus{}, fault
	}
	for _, b := range buses {
		unit, free := int32(0), false
		if spec.UnitNumber != nil {
			unit, free = *spec.UnitNumber, l.isFree(b, *spec.UnitNumber)
		} else {
			unit, free = l.freeUnit(b)
		}
		if free {
			l.add(d, b, unit)
			return b, nil
		}
	}
	if spec.ControllerKey != nil || spec.UnitNumber != nil {
		return bus{}, invalid("attachSpecs.unitNumber")
	}
	if present := scsi(l.buses(wide)); len(present) < maxControllers && assume.AddControllers.In(m.assumed) {
		b := l.addController(freeNumber(present), wide)
		l.add(d, b, 0)
		return b, nil
	}
	reason := "CNS: Failed to attach disk because missing SCSI controller"
	if assume.NoSlotFault.In(m.assumed) == "CnsMissingControllerFault" {
		return bus{}, &worded{fault: &CnsMissingControllerFault{CnsFault: cnstypes.CnsFault{Reason: reason}}}
	}
	return bus{}, cnsFault(nil, "%s", reason)
}

// usableBuses are the controllers that a disk may sit on: the chosen one, or all that CNS looks at.
func (m *Manager) usableBuses(l *deviceList, wide bool, chosen *int32) ([]bus, types.BaseMethodFault) {
	buses := l.buses(wide)
	if chosen == nil {
		if slices.ContainsFunc(buses, func(b bus) bool { return b.nvme }) && assume.NVMeControllers.In(m.assumed) == "used" {
			slices.SortStableFunc(buses, func(a, b bus) int { return -compareBool(a.nvme, b.nvme) })
			return buses, nil
		}
		return scsi(buses), nil
	}
	if i := slices.IndexFunc(buses, func(b bus) bool { return b.key == *chosen }); i >= 0 {
		return buses[i : i+1], nil
	}
	number := *chosen - firstController
	if number < 0 || number >= maxControllers || !assume.AddChosenController.In(m.assumed) {
		return nil, invalid("attachSpecs.controllerKey")
	}
	return []bus{l.addController(number, wide)}, nil
}

func scsi(buses []bus) []bus {
	return slices.DeleteFunc(slices.Clone(buses), func(b bus) bool { return b.nvme })
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// freeNumber is the lowest bus number that no controller has.
func freeNumber(present []bus) int32 {
	number := int32(0)
	for slices.ContainsFunc(present, func(b bus) bool { return b.number == number }) {
		number++
	}
	return number
}

// addController adds a paravirtual SCSI controller.
func (l *deviceList) addController(number int32, wide bool) bus {
	key := firstController + number
	for l.keyUsed(key) {
		key++
	}
	pci := int32(100)
	for _, device := range l.devices {
		if _, ok := device.(*types.VirtualPCIController); ok {
			pci = device.GetVirtualDevice().Key
		}
	}
	controller := &types.ParaVirtualSCSIController{VirtualSCSIController: types.VirtualSCSIController{
		VirtualController: types.VirtualController{
			VirtualDevice: types.VirtualDevice{
				Key:           key,
				ControllerKey: pci,
				UnitNumber:    types.NewInt32(3 + number),
				DeviceInfo:    &types.Description{Label: fmt.Sprintf("SCSI controller %d", number), Summary: "VMware paravirtual SCSI"},
			},
			BusNumber: number,
		},
		SharedBus:          types.VirtualSCSISharingNoSharing,
		HotAddRemove:       types.NewBool(true),
		ScsiCtlrUnitNumber: controllerUnit,
	}}
	l.devices = append(l.devices, controller)
	b := bus{key: key, number: number, units: narrowUnits, own: controllerUnit, para: true}
	if wide {
		b.units = wideUnits
	}
	return b
}

func (l *deviceList) keyUsed(key int32) bool {
	return slices.ContainsFunc(l.devices, func(device types.BaseVirtualDevice) bool { return device.GetVirtualDevice().Key == key })
}

// add completes the disk with its place: device lists of clients fail on disks without label, controller or unit.
func (l *deviceList) add(d *types.VirtualDisk, b bus, unit int32) {
	switch {
	case b.nvme:
		d.Key = 32000 + nvmeUnits*b.number + unit
	case unit >= narrowUnits:
		d.Key = 131072 + wideUnits*b.number + unit
	default:
		d.Key = 2000 + 16*b.number + unit
	}
	for l.keyUsed(d.Key) {
		d.Key++
	}
	labels := map[string]bool{}
	for _, device := range l.devices {
		if info := device.GetVirtualDevice().DeviceInfo; info != nil {
			labels[info.GetDescription().Label] = true
		}
	}
	label := 1
	for labels[fmt.Sprintf("Hard disk %d", label)] {
		label++
	}
	d.DeviceInfo = &types.Description{Label: fmt.Sprintf("Hard disk %d", label), Summary: fmt.Sprintf("%d KB", d.CapacityInKB)}
	d.ControllerKey = b.key
	d.UnitNumber = &unit
	d.DiskObjectId = fmt.Sprintf("%d-%d", b.key, d.Key)
	l.devices = append(l.devices, d)
	l.list(b.key, func(keys []int32) []int32 { return append(keys, d.Key) })
}

func newVirtualDisk(d *disk, spec cnstypes.CnsVolumeAttachDetachSpec) *types.VirtualDisk {
	datastore, objectID := d.datastore, d.objectID
	return &types.VirtualDisk{
		VirtualDevice: types.VirtualDevice{
			Backing: &types.VirtualDiskFlatVer2BackingInfo{
				VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{
					FileName: d.path, Datastore: &datastore, BackingObjectId: &objectID,
				},
				DiskMode:        cmp.Or(spec.DiskMode, string(types.VirtualDiskModePersistent)),
				Split:           types.NewBool(false),
				WriteThrough:    types.NewBool(false),
				ThinProvisioned: types.NewBool(!d.thick),
				KeyId:           d.key,
				DigestEnabled:   types.NewBool(false),
				Uuid:            d.uuid,
				Sharing:         cmp.Or(spec.Sharing, string(types.VirtualDiskSharingSharingNone)),
			},
		},
		CapacityInKB:    d.capacityMB * 1024,
		CapacityInBytes: d.capacityMB * mib,
		Shares:          &types.SharesInfo{Shares: 1000, Level: types.SharesLevelNormal},
		StorageIOAllocation: &types.StorageIOAllocationInfo{
			Limit: types.NewInt64(-1), Shares: &types.SharesInfo{Shares: 1000, Level: types.SharesLevelNormal}, Reservation: types.NewInt32(0),
		},
		VDiskId:                    &types.ID{Id: d.id},
		NativeUnmanagedLinkedClone: types.NewBool(false),
	}
}

func backingFile(d *types.VirtualDisk) string {
	if backing, ok := d.Backing.(types.BaseVirtualDeviceFileBackingInfo); ok {
		return backing.GetVirtualDeviceFileBackingInfo().FileName
	}
	return ""
}
