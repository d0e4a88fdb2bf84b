package inventory

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// SetHostState connects or disconnects a host: connected, disconnected or notResponding. vCenter then does not know what
// the host's VMs do.
func (inv *Inventory) SetHostState(host *simulator.HostSystem, state string) error {
	switch types.HostSystemConnectionState(state) {
	case types.HostSystemConnectionStateConnected, types.HostSystemConnectionStateDisconnected, types.HostSystemConnectionStateNotResponding:
	default:
		return wrong("state", "%q is unknown; known are connected, disconnected, notResponding", state)
	}
	word := types.HostSystemConnectionState(state)
	vmState := types.VirtualMachineConnectionStateConnected
	if word != types.HostSystemConnectionStateConnected {
		vmState = types.VirtualMachineConnectionStateDisconnected
	}
	inv.update(host, set("runtime.connectionState", word), set("summary.runtime.connectionState", word))
	var vms []types.ManagedObjectReference
	inv.withLock(host, func() { vms = slices.Clone(host.Vm) })
	for _, ref := range vms {
		if vm, ok := inv.ctx.Map.Get(ref).(*simulator.VirtualMachine); ok {
			inv.setConnection(vm, vmState)
		}
	}
	return nil
}

// setConnection changes whether vCenter hears of a VM. What is shown of its devices may change with that.
func (inv *Inventory) setConnection(vm *simulator.VirtualMachine, state types.VirtualMachineConnectionState) {
	ctx := inv.newContext()
	ctx.WithLock(vm, func() {
		changes := []types.PropertyChange{set("runtime.connectionState", state), set("summary.runtime.connectionState", state)}
		if vm.Config != nil && assume.OfflineDevices.In(inv.assumed) == "empty" {
			changes = append(changes, set("config.hardware.device", vm.Config.Hardware.Device))
		}
		ctx.Update(vm, changes)
	})
}

// SetMaintenance puts a host into maintenance mode or takes it out.
func (inv *Inventory) SetMaintenance(host *simulator.HostSystem, on bool) {
	inv.update(host, set("runtime.inMaintenanceMode", on), set("summary.runtime.inMaintenanceMode", on))
}

// SetAccessible takes a datastore away from one of its hosts, or from all of them when host is nil, or gives it back.
func (inv *Inventory) SetAccessible(ds *simulator.Datastore, host *simulator.HostSystem, accessible bool) error {
	ctx := inv.newContext()
	var err error
	ctx.WithLock(ds, func() {
		mounts := slices.Clone(ds.Host)
		reached, mounted := accessible && len(mounts) == 0, host == nil
		for i := range mounts {
			if host == nil || mounts[i].Key == host.Self {
				mounts[i].MountInfo.Accessible, mounted = types.NewBool(accessible), true
			}
			state := mounts[i].MountInfo.Accessible
			reached = reached || state == nil || *state
		}
		if !mounted {
			err = wrong("host", "it does not mount %s", ds.Name)
			return
		}
		summary := ds.Summary
		summary.Accessible = reached
		// The whole of it: what cannot be read of an inaccessible datastore can be read again.
		ctx.Update(ds, []types.PropertyChange{set("summary", summary), set("host", mounts)})
	})
	return err
}

// SetFreeSpace changes how much room a datastore has.
func (inv *Inventory) SetFreeSpace(ds *simulator.Datastore, free int64) error {
	ctx := inv.newContext()
	var err error
	ctx.WithLock(ds, func() {
		if capacity := ds.Summary.Capacity; free < 0 || free > capacity {
			err = wrong("free", "must be between 0 and the capacity, %d", capacity)
			return
		}
		ds.Info.GetDatastoreInfo().FreeSpace = free // the library cannot change a property of an abstract type
		ctx.Update(ds, []types.PropertyChange{set("summary.freeSpace", free)})
	})
	return err
}

// SetDatastoreMaintenance puts a datastore into maintenance mode or takes it out.
func (inv *Inventory) SetDatastoreMaintenance(ds *simulator.Datastore, on bool) {
	mode := types.DatastoreSummaryMaintenanceModeStateNormal
	if on {
		mode = types.DatastoreSummaryMaintenanceModeStateInMaintenance
	}
	inv.update(ds, set("summary.maintenanceMode", string(mode)))
}

// suspended is the value of the custom attribute by which administrators ask storage drivers to make no volumes on a
// datastore. vCenter itself does not look at it.
const suspended = "cns.vmware.com/datastoreSuspended"

// SetSuspended marks a datastore so, or takes the mark away.
func (inv *Inventory) SetSuspended(ds *simulator.Datastore, on bool) error {
	manager, ok := inv.ctx.Map.Get(*serviceContent(inv.ctx).CustomFieldsManager).(*simulator.CustomFieldsManager)
	if !ok {
		return wrong("suspended", "this vCenter has no custom attributes")
	}
	ctx := inv.newContext()
	var key int32
	var err error
	ctx.WithLock(manager, func() {
		for _, field := range manager.Field {
			if field.Name == suspended {
				key = field.Key
				return
			}
		}
		made := manager.AddCustomFieldDef(ctx, &types.AddCustomFieldDef{This: manager.Self, Name: suspended, MoType: "Datastore"})
		if err = failed(made); err == nil {
			key = made.(*methods.AddCustomFieldDefBody).Res.Returnval.Key
		}
	})
	if err != nil {
		return err
	}
	ctx = inv.newContext()
	ctx.WithLock(ds, func() {
		values := slices.DeleteFunc(slices.Clone(ds.CustomValue), func(v types.BaseCustomFieldValue) bool {
			return v.GetCustomFieldValue().Key == key
		})
		if on {
			values = append(values, &types.CustomFieldStringValue{CustomFieldValue: types.CustomFieldValue{Key: key}, Value: suspended})
		}
		ctx.Update(ds, []types.PropertyChange{set("customValue", values), set("value", values)})
	})
	return nil
}
