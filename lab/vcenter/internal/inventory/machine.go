package inventory

import (
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/world"
)

var powerStates = map[string]types.VirtualMachinePowerState{
	"on":        types.VirtualMachinePowerStatePoweredOn,
	"off":       types.VirtualMachinePowerStatePoweredOff,
	"suspended": types.VirtualMachinePowerStateSuspended,
}

func (s *site) machines() error {
	started := time.Now()
	for i := range s.description.VMs {
		d := &s.description.VMs[i]
		if err := s.machine(d, started); err != nil {
			return fmt.Errorf("VM %s: %w", d.Name, err)
		}
	}
	return nil
}

func (s *site) machine(d *world.VM, started time.Time) error {
	at, err := s.placeOf(d)
	if err != nil {
		return err
	}
	vm := s.newMachine(d, at, started)
	s.enlist(vm, at.host, at.store, at.pool)
	s.adoptMachine(&at.folder.Folder, vm, path.Join(s.path, "vm", d.Folder, d.Name))
	s.vms[vm.Self] = d
	if d.Node != nil {
		s.nodes[vm.Self] = *d.Node
	}
	return nil
}

// place is where a VM belongs.
type place struct {
	host   *simulator.HostSystem
	store  *simulator.Datastore
	pool   types.ManagedObjectReference
	folder *simulator.Folder
}

func (s *site) placeOf(d *world.VM) (place, error) {
	at := place{host: s.hosts[d.Host], store: s.stores[d.Datastore]}
	if at.host == nil || at.store == nil {
		return at, fmt.Errorf("host %q or datastore %q is not there", d.Host, d.Datastore)
	}
	var ok bool
	if at.pool, ok = s.pools[path.Join(d.Host, strings.Trim(d.Pool, "/"))]; !ok {
		return at, fmt.Errorf("host %s has no pool %q", d.Host, d.Pool)
	}
	var err error
	at.folder, err = s.folder("vm", d.Folder)
	return at, err
}

// newMachine makes a VM that nothing refers to yet.
func (s *site) newMachine(d *world.VM, at place, started time.Time) *simulator.VirtualMachine {
	store := at.store
	vm := &simulator.VirtualMachine{DataSets: map[string]*simulator.DataSet{}}
	vm.Self.Type = "VirtualMachine"
	vm.Name = d.Name
	s.ctx.Map.NewEntity(vm)

	hostRef, poolRef := at.host.Self, at.pool
	vm.ResourcePool = &poolRef
	if d.Template {
		vm.ResourcePool = nil
	}
	vm.Datastore = []types.ManagedObjectReference{store.Self}
	vm.EnvironmentBrowser = *s.parentOf(at.host).EnvironmentBrowser
	vm.Config = s.vmConfig(d, store, started)
	vm.Config.Hardware.Device = s.devices(vm, d, store)
	vm.Runtime = types.VirtualMachineRuntimeInfo{
		Host:            &hostRef,
		ConnectionState: types.VirtualMachineConnectionStateConnected,
		PowerState:      powerStates[d.Power],
		MaxCpuUsage:     d.CPUs * 2000,
		MaxMemoryUsage:  int32(d.Memory >> 20),

		FaultToleranceState: types.VirtualMachineFaultToleranceStateNotConfigured,
		RecordReplayState:   types.VirtualMachineRecordReplayStateInactive,
	}
	if d.Power == "on" {
		vm.Runtime.BootTime = &started
	}
	vm.Guest = guestOf(d, report{}, d.Power == "on", s.assumed)
	vm.Layout = &types.VirtualMachineFileLayout{}
	vm.LayoutEx = &types.VirtualMachineFileLayoutEx{Timestamp: started}
	vm.Storage = &types.VirtualMachineStorageInfo{Timestamp: started}
	vm.Capability.ChangeTrackingSupported = true
	vm.Summary = vmSummary(vm, started)
	return vm
}

// adoptMachine is adopt for an object that has its reference already.
func (inv *Inventory) adoptMachine(folder *mo.Folder, vm *simulator.VirtualMachine, at string) {
	folder.ChildEntity = append(folder.ChildEntity, vm.Self)
	inv.ctx.Map.PutEntity(folder, vm)
	inv.paths[at] = vm.Self
}

// enlist adds the VM to the lists of everything it uses.
func (s *site) enlist(vm *simulator.VirtualMachine, host *simulator.HostSystem, store *simulator.Datastore, pool types.ManagedObjectReference) {
	host.Vm = append(host.Vm, vm.Self)
	store.Vm = append(store.Vm, vm.Self)
	if owner, ok := s.ctx.Map.Get(pool).(*simulator.ResourcePool); ok && vm.ResourcePool != nil {
		owner.Vm = append(owner.Vm, vm.Self)
	}
	for _, ref := range vm.Network {
		switch used := s.ctx.Map.Get(ref).(type) {
		case *mo.Network:
			used.Vm = append(used.Vm, vm.Self)
		case *simulator.DistributedVirtualPortgroup:
			used.Vm = append(used.Vm, vm.Self)
		}
	}
}

// home is the VM's directory on its datastore. On vSAN directories carry the UUID of their object, not a name.
func home(d *world.VM, store *simulator.Datastore) string {
	name := d.Name
	if store.Summary.Type == summaryTypes["vSAN"] {
		name = uuid.NewSHA1(uuid.NameSpaceURL, []byte("vm-home/"+d.UUID)).String()
	}
	return fmt.Sprintf("[%s] %s", store.Name, name)
}

func (s *site) vmConfig(d *world.VM, store *simulator.Datastore, started time.Time) *types.VirtualMachineConfigInfo {
	resources := types.DefaultResourceConfigSpec()
	directory := home(d, store)
	word := "TRUE"
	if !d.DiskEnableUUID.On() {
		word = "FALSE"
	}
	return &types.VirtualMachineConfigInfo{
		ChangeVersion: changeVersion(started),
		Modified:      started,
		Name:          d.Name,
		GuestFullName: d.Guest.ID,
		GuestId:       d.Guest.ID,
		Version:       d.HardwareVersion,
		Uuid:          d.UUID,
		InstanceUuid:  d.InstanceUUID,
		CreateDate:    &started,
		Template:      d.Template,
		Firmware:      string(types.GuestOsDescriptorFirmwareTypeEfi),
		Files: types.VirtualMachineFileInfo{
			VmPathName:        directory + "/" + d.Name + ".vmx",
			SnapshotDirectory: directory,
			SuspendDirectory:  directory,
			LogDirectory:      directory,
		},
		Flags: types.VirtualMachineFlagInfo{
			DiskUuidEnabled: types.NewBool(d.DiskEnableUUID.On()),
			EnableLogging:   types.NewBool(true),
		},
		Tools:              &types.ToolsConfigInfo{},
		BootOptions:        &types.VirtualMachineBootOptions{},
		CpuAllocation:      &resources.CpuAllocation,
		MemoryAllocation:   &resources.MemoryAllocation,
		LatencySensitivity: &types.LatencySensitivity{Level: types.LatencySensitivitySensitivityLevelNormal},
		Hardware: types.VirtualHardware{
			NumCPU: d.CPUs, NumCoresPerSocket: types.NewInt32(1), MemoryMB: int32(d.Memory >> 20),
		},
		ExtraConfig:           []types.BaseOptionValue{&types.OptionValue{Key: "disk.EnableUUID", Value: word}},
		DatastoreUrl:          []types.VirtualMachineConfigInfoDatastoreUrlPair{{Name: store.Name, Url: store.Summary.Url}},
		ChangeTrackingEnabled: types.NewBool(false),
	}
}

func changeVersion(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000000Z") }

func vmSummary(vm *simulator.VirtualMachine, started time.Time) types.VirtualMachineSummary {
	self := vm.Self
	summary := types.VirtualMachineSummary{
		Vm:      &self,
		Runtime: vm.Runtime,
		Guest: &types.VirtualMachineGuestSummary{
			GuestId:            vm.Config.GuestId,
			GuestFullName:      vm.Config.GuestFullName,
			ToolsStatus:        vm.Guest.ToolsStatus,
			ToolsRunningStatus: vm.Guest.ToolsRunningStatus,
			HostName:           vm.Guest.HostName,
			IpAddress:          vm.Guest.IpAddress,
		},
		Config: types.VirtualMachineConfigSummary{
			Name:             vm.Name,
			Template:         vm.Config.Template,
			VmPathName:       vm.Config.Files.VmPathName,
			MemorySizeMB:     vm.Config.Hardware.MemoryMB,
			NumCpu:           vm.Config.Hardware.NumCPU,
			NumEthernetCards: int32(len(vm.Network)),
			NumVirtualDisks:  1,
			Uuid:             vm.Config.Uuid,
			InstanceUuid:     vm.Config.InstanceUuid,
			GuestId:          vm.Config.GuestId,
			GuestFullName:    vm.Config.GuestFullName,
			HwVersion:        vm.Config.Version,
		},
		Storage:       &types.VirtualMachineStorageSummary{Timestamp: started},
		OverallStatus: types.ManagedEntityStatusGreen,
	}
	summary.QuickStats.GuestHeartbeatStatus = types.ManagedEntityStatusGray
	if vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn {
		summary.QuickStats.GuestHeartbeatStatus = types.ManagedEntityStatusGreen
	}
	return summary
}
