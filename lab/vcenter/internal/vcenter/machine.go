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
	if m.This.Type == "VirtualMachine" && exclusive(m.Name) && v.services.cns.Busy(m.This) {
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
	own := &simulator.Context{Context: context.Background(), Map: s.vim}
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
