package inventory

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
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
			inv.update(vm, set("runtime.connectionState", vmState), set("summary.runtime.connectionState", vmState))
		}
	}
	return nil
}

// SetMaintenance puts a host into maintenance mode or takes it out.
func (inv *Inventory) SetMaintenance(host *simulator.HostSystem, on bool) {
	inv.update(host, set("runtime.inMaintenanceMode", on), set("summary.runtime.inMaintenanceMode", on))
}

// SetAccessible takes a datastore away from all its hosts, or gives it back.
func (inv *Inventory) SetAccessible(ds *simulator.Datastore, accessible bool) {
	ctx := inv.newContext()
	ctx.WithLock(ds, func() {
		mounts := slices.Clone(ds.Host)
		for i := range mounts {
			mounts[i].MountInfo.Accessible = types.NewBool(accessible)
		}
		ctx.Update(ds, []types.PropertyChange{set("summary.accessible", accessible), set("host", mounts)})
	})
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
