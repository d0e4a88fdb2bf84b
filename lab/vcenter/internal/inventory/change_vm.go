package inventory

import (
	"slices"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/world"
)

// MoveToHost is a vMotion: the VM runs on another host, which must mount its datastores.
func (inv *Inventory) MoveToHost(vm *simulator.VirtualMachine, host *simulator.HostSystem) error {
	var old types.ManagedObjectReference
	var pool *types.ManagedObjectReference
	var stores []types.ManagedObjectReference
	inv.withLock(vm, func() { old, pool, stores = *vm.Runtime.Host, vm.ResourcePool, slices.Clone(vm.Datastore) })
	for _, store := range stores {
		if simulator.FindReference(host.Datastore, store) == nil {
			return wrong("host", "%s does not mount datastore %s of the VM", host.Name, inv.Path(store))
		}
	}
	if old == host.Self {
		return nil
	}
	self := host.Self
	changes := []types.PropertyChange{set("runtime.host", &self), set("summary.runtime.host", &self)}
	from, _ := inv.ctx.Map.Get(old).(*simulator.HostSystem)
	var leaves, joins *simulator.ResourcePool
	if from != nil && *from.Parent != *host.Parent && pool != nil {
		// A VM that changes its cluster comes into the root pool of the new one.
		root := inv.rootPoolOf(host)
		leaves, _ = inv.ctx.Map.Get(*pool).(*simulator.ResourcePool)
		joins, _ = inv.ctx.Map.Get(root).(*simulator.ResourcePool)
		changes = append(changes, set("resourcePool", &root))
	}
	inv.update(vm, changes...)
	if from != nil {
		inv.relist(from, "vm", func() []types.ManagedObjectReference { return from.Vm }, vm.Self, false)
	}
	inv.relist(host, "vm", func() []types.ManagedObjectReference { return host.Vm }, vm.Self, true)
	if leaves != nil && joins != nil {
		inv.relist(leaves, "vm", func() []types.ManagedObjectReference { return leaves.Vm }, vm.Self, false)
		inv.relist(joins, "vm", func() []types.ManagedObjectReference { return joins.Vm }, vm.Self, true)
	}
	return nil
}

// RestartOn is what high availability does to a VM whose host is lost: it starts anew on another host, with all of its
// disks. No task stands for it.
func (inv *Inventory) RestartOn(vm *simulator.VirtualMachine, host *simulator.HostSystem) error {
	var state types.HostRuntimeInfo
	inv.withLock(host, func() { state = host.Runtime })
	if state.ConnectionState != types.HostSystemConnectionStateConnected || state.InMaintenanceMode {
		return wrong("host", "%s cannot run a VM now", host.Name)
	}
	if err := inv.MoveToHost(vm, host); err != nil {
		return err
	}
	inv.setConnection(vm, types.VirtualMachineConnectionStateConnected)
	if err := inv.SetPower(vm, "off"); err != nil {
		return err
	}
	return inv.SetPower(vm, "on")
}

// SetTracking switches changed block tracking of a VM.
func (inv *Inventory) SetTracking(vm *simulator.VirtualMachine, on bool) {
	inv.update(vm, set("config.changeTrackingEnabled", on), newVersion())
}

// TakeSnapshot makes a snapshot of a VM, as an administrator or a backup does.
func (inv *Inventory) TakeSnapshot(vm *simulator.VirtualMachine, name string) error {
	if name == "" {
		return wrong("name", "is missing; give the name of the snapshot")
	}
	ctx := inv.newContext()
	var answer soap.HasFault
	ctx.WithLock(vm, func() { answer = vm.CreateSnapshotTask(ctx, &types.CreateSnapshot_Task{This: vm.Self, Name: name}) })
	if err := failed(answer); err != nil {
		return err
	}
	if _, err := inv.finish(answer.(*methods.CreateSnapshot_TaskBody).Res.Returnval); err != nil {
		return wrong("vm", "vCenter refuses to make a snapshot: %s", err)
	}
	return nil
}

// RemoveSnapshots deletes all snapshots of a VM.
func (inv *Inventory) RemoveSnapshots(vm *simulator.VirtualMachine) error {
	ctx := inv.newContext()
	var answer soap.HasFault
	ctx.WithLock(vm, func() { answer = vm.RemoveAllSnapshotsTask(ctx, &types.RemoveAllSnapshots_Task{This: vm.Self}) })
	if err := failed(answer); err != nil {
		return err
	}
	if _, err := inv.finish(answer.(*methods.RemoveAllSnapshots_TaskBody).Res.Returnval); err != nil {
		return wrong("vm", "vCenter refuses to delete its snapshots: %s", err)
	}
	return nil
}

func (inv *Inventory) rootPoolOf(host *simulator.HostSystem) types.ManagedObjectReference {
	switch owner := inv.ctx.Map.Get(*host.Parent).(type) {
	case *simulator.ClusterComputeResource:
		return *owner.ResourcePool
	case *mo.ComputeResource:
		return *owner.ResourcePool
	}
	return types.ManagedObjectReference{}
}

// SetPower puts a VM into a power state: on, off or suspended.
func (inv *Inventory) SetPower(vm *simulator.VirtualMachine, power string) error {
	state, ok := powerStates[power]
	if !ok {
		return wrong("power", "%q is unknown; known are on, off, suspended", power)
	}
	ctx := inv.newContext()
	ctx.WithLock(vm, func() {
		if vm.Runtime.PowerState == state {
			return
		}
		changes := []types.PropertyChange{set("runtime.powerState", state), set("summary.runtime.powerState", state)}
		if power == "on" {
			now := time.Now()
			changes = append(changes, set("runtime.bootTime", &now), set("summary.runtime.bootTime", &now))
		}
		ctx.Update(vm, changes)
	})
	return nil
}

// SetVMAccessible takes a VM's files away, or gives them back. vCenter cannot read what is in them meanwhile: such a VM
// has no BIOS UUID and no configuration.
func (inv *Inventory) SetVMAccessible(vm *simulator.VirtualMachine, accessible bool) error {
	d := inv.described(vm.Self)
	if d == nil {
		return wrong("vm", "the VM was not described, so its UUID is unknown")
	}
	state, uuid := types.VirtualMachineConnectionStateInaccessible, ""
	if accessible {
		state, uuid = types.VirtualMachineConnectionStateConnected, d.UUID
	}
	ctx := inv.newContext()
	ctx.WithLock(vm, func() {
		config := *vm.Config
		config.Uuid = uuid
		// The whole of it: none of it may be shown meanwhile.
		ctx.Update(vm, []types.PropertyChange{
			set("runtime.connectionState", state), set("summary.runtime.connectionState", state),
			set("config", &config), set("summary.config.uuid", uuid),
		})
	})
	return nil
}

func (inv *Inventory) described(ref types.ManagedObjectReference) *world.VM {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	return inv.vms[ref]
}
