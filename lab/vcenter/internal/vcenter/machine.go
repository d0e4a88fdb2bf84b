package vcenter

import (
	"context"
	"slices"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// onMachine tells the calls on a VM that the library lacks or only pretends to do.
func onMachine(m *simulator.Method) bool {
	switch m.Name {
	case "AttachDisk_Task", "DetachDisk_Task", "MigrateVM_Task", "UnregisterVM":
		return true
	case "RelocateVM_Task":
		req, ok := m.Body.(*types.RelocateVM_Task)
		return ok && movesStorage(&req.Spec)
	}
	return false
}

// exclusive names the tasks that need a VM for themselves. Others, such as a clone, run beside them.
func exclusive(method string) bool {
	switch method {
	case "ReconfigVM_Task", "PowerOnVM_Task", "PowerOffVM_Task", "ResetVM_Task", "SuspendVM_Task", "MigrateVM_Task", "RelocateVM_Task",
		"CreateSnapshot_Task", "CreateSnapshotEx_Task", "RemoveAllSnapshots_Task", "RevertToCurrentSnapshot_Task", "Destroy_Task",
		"UpgradeVM_Task", "ConsolidateVMDisks_Task":
		return true
	}
	return false
}

// refuseBusy lets tasks on a busy VM fail.
func (v *VCenter) refuseBusy(ctx *simulator.Context, m *simulator.Method) {
	if m.This.Type == "VirtualMachine" && exclusive(m.Name) && v.services.cns.Exclusive(m.This) {
		v.Traffic.FailTask(ctx, m, &types.TaskInProgress{Task: m.This})
	}
}

// AttachDiskTask puts a first-class disk on a VM.
func (s *standIn) AttachDiskTask(ctx *simulator.Context, req *types.AttachDisk_Task) soap.HasFault {
	return &methods.AttachDisk_TaskBody{Res: &types.AttachDisk_TaskResponse{Returnval: s.cns.AttachDisk(ctx, req)}}
}

// DetachDiskTask takes a first-class disk off a VM.
func (s *standIn) DetachDiskTask(ctx *simulator.Context, req *types.DetachDisk_Task) soap.HasFault {
	return &methods.DetachDisk_TaskBody{Res: &types.DetachDisk_TaskResponse{Returnval: s.cns.DetachDisk(ctx, req)}}
}

// UnregisterVM takes a VM out of the inventory and leaves the record that the library forgets.
func (s *standIn) UnregisterVM(req *types.UnregisterVM) soap.HasFault {
	body := new(methods.UnregisterVMBody)
	vm, ok := s.vim.Get(req.This).(*simulator.VirtualMachine)
	if !ok {
		body.Fault_ = simulator.Fault("", &types.ManagedObjectNotFound{Obj: req.This})
		return body
	}
	if fault := s.site.TakeOut(vm); fault != nil {
		body.Fault_ = simulator.Fault("", fault)
		return body
	}
	body.Res = new(types.UnregisterVMResponse)
	return body
}

// MigrateVMTask is a vMotion asked for by a client.
func (s *standIn) MigrateVMTask(ctx *simulator.Context, req *types.MigrateVM_Task) soap.HasFault {
	body := new(methods.MigrateVM_TaskBody)
	vm, ok := s.vim.Get(req.This).(*simulator.VirtualMachine)
	if !ok {
		body.Fault_ = simulator.Fault("", &types.ManagedObjectNotFound{Obj: req.This})
		return body
	}
	task := simulator.CreateTask(vm, "migrate", func(*simulator.Task) (types.AnyType, types.BaseMethodFault) {
		// The library holds the VM's lock for the task. Moving takes the locks of hosts and pools too, in its own order.
		free := ctx.Map.AcquireLock(ctx, vm.Self)
		free()
		free()
		defer ctx.Map.AcquireLock(ctx, vm.Self)
		return nil, s.migrate(vm, req)
	})
	body.Res = &types.MigrateVM_TaskResponse{Returnval: task.Run(ctx)}
	return body
}

// movesStorage tells a relocation that is a storage vMotion. The library notes the new datastore and leaves all files.
func movesStorage(spec *types.VirtualMachineRelocateSpec) bool {
	return (spec.Datastore != nil || len(spec.Disk) > 0) && spec.Folder == nil && len(spec.DeviceChange) == 0 && spec.Service == nil
}

// RelocateVMTask is a storage vMotion asked for by a client, perhaps to another host at the same time.
func (s *standIn) RelocateVMTask(ctx *simulator.Context, req *types.RelocateVM_Task) soap.HasFault {
	body := new(methods.RelocateVM_TaskBody)
	vm, ok := s.vim.Get(req.This).(*simulator.VirtualMachine)
	if !ok {
		body.Fault_ = simulator.Fault("", &types.ManagedObjectNotFound{Obj: req.This})
		return body
	}
	task := simulator.CreateTask(vm, "relocate", func(*simulator.Task) (types.AnyType, types.BaseMethodFault) {
		free := ctx.Map.AcquireLock(ctx, vm.Self) // see MigrateVMTask
		free()
		free()
		defer ctx.Map.AcquireLock(ctx, vm.Self)
		return nil, s.relocate(vm, &req.Spec)
	})
	task.Info.Name = "RelocateVM_Task"
	body.Res = &types.RelocateVM_TaskResponse{Returnval: task.Run(ctx)}
	return body
}

func (s *standIn) relocate(vm *simulator.VirtualMachine, spec *types.VirtualMachineRelocateSpec) types.BaseMethodFault {
	find := func(ref types.ManagedObjectReference) (*simulator.Datastore, types.BaseMethodFault) {
		store, ok := s.vim.Get(ref).(*simulator.Datastore)
		if !ok {
			return nil, &types.ManagedObjectNotFound{Obj: ref}
		}
		return store, nil
	}
	if spec.Host != nil {
		if fault := s.migrate(vm, &types.MigrateVM_Task{This: vm.Self, Pool: spec.Pool, Host: spec.Host}); fault != nil {
			return fault
		}
	}
	home, lie := s.storage(vm)
	if spec.Datastore != nil {
		home, lie = *spec.Datastore, map[int32]types.ManagedObjectReference{}
	}
	for _, locator := range spec.Disk {
		lie[locator.DiskId] = locator.Datastore
	}
	store, fault := find(home)
	if fault != nil {
		return fault
	}
	disks := map[int32]*simulator.Datastore{}
	for key, ref := range lie {
		if disks[key], fault = find(ref); fault != nil {
			return fault
		}
	}
	if err := s.site.MoveStorage(vm, store, disks); err != nil {
		return &types.MigrationFault{}
	}
	return nil
}

// storage tells where the files of a VM lie, and by device key where its disks do.
func (s *standIn) storage(vm *simulator.VirtualMachine) (home types.ManagedObjectReference, disks map[int32]types.ManagedObjectReference) {
	disks = map[int32]types.ManagedObjectReference{}
	var stores []types.ManagedObjectReference
	name := ""
	s.vim.WithLock(s.ownContext(), vm, func() {
		stores = slices.Clone(vm.Datastore)
		name, _, _ = strings.Cut(strings.TrimPrefix(vm.Config.Files.VmPathName, "["), "]")
		for _, device := range vm.Config.Hardware.Device {
			backing, ok := device.GetVirtualDevice().Backing.(types.BaseVirtualDeviceFileBackingInfo)
			if disk, is := device.(*types.VirtualDisk); ok && is && backing.GetVirtualDeviceFileBackingInfo().Datastore != nil {
				disks[disk.Key] = *backing.GetVirtualDeviceFileBackingInfo().Datastore
			}
		}
	})
	for _, ref := range stores {
		if store, ok := s.vim.Get(ref).(*simulator.Datastore); ok && s.site.Name(store) == name {
			home = ref
		}
	}
	return home, disks
}

func (s *standIn) ownContext() *simulator.Context {
	return &simulator.Context{Context: context.Background(), Map: s.vim}
}

func (s *standIn) migrate(vm *simulator.VirtualMachine, req *types.MigrateVM_Task) types.BaseMethodFault {
	if req.Host == nil {
		return &types.InvalidArgument{InvalidProperty: "host"}
	}
	host, ok := s.vim.Get(*req.Host).(*simulator.HostSystem)
	if !ok {
		return &types.ManagedObjectNotFound{Obj: *req.Host}
	}
	var power types.VirtualMachinePowerState
	var target types.HostRuntimeInfo
	own := s.ownContext()
	s.vim.WithLock(own, vm, func() { power = vm.Runtime.PowerState })
	s.vim.WithLock(own, host, func() { target = host.Runtime })
	switch {
	case req.State != "" && req.State != power:
		return &types.InvalidPowerState{RequestedState: req.State, ExistingState: power}
	case target.ConnectionState != types.HostSystemConnectionStateConnected:
		return &types.HostNotConnected{}
	case target.InMaintenanceMode:
		return &types.InvalidState{}
	}
	if err := s.site.MoveToHost(vm, host); err != nil {
		return &types.MigrationFault{}
	}
	return nil
}

// libraryCommand tells settings of a VM by which the library lets its users change other properties. vCenter knows no such
// thing: to it they are settings like all others.
func libraryCommand(key string) bool { return strings.HasPrefix(key, "SET.") || key == "ip0" }

// storeSettings takes such settings out of a reconfiguration and stores them as they are.
func (v *VCenter) storeSettings(m *simulator.Method) {
	req, ok := m.Body.(*types.ReconfigVM_Task)
	if !ok {
		return
	}
	var rest, ours []types.BaseOptionValue
	for _, setting := range req.Spec.ExtraConfig {
		if setting != nil && libraryCommand(setting.GetOptionValue().Key) {
			ours = append(ours, setting)
		} else {
			rest = append(rest, setting)
		}
	}
	vm, ok := v.Vim.Get(req.This).(*simulator.VirtualMachine)
	if !ok || len(ours) == 0 {
		return
	}
	req.Spec.ExtraConfig = rest
	ctx := v.ownContext()
	ctx.WithLock(vm, func() {
		kept := slices.DeleteFunc(slices.Clone(vm.Config.ExtraConfig), func(old types.BaseOptionValue) bool {
			return slices.ContainsFunc(ours, func(set types.BaseOptionValue) bool { return set.GetOptionValue().Key == old.GetOptionValue().Key })
		})
		for _, setting := range ours {
			if setting.GetOptionValue().Value != "" {
				kept = append(kept, setting)
			}
		}
		ctx.Update(vm, []types.PropertyChange{{Name: "config.extraConfig", Val: kept}})
	})
}
