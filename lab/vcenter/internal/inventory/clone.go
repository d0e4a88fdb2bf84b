package inventory

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/world"
)

// Clone says what a copy of a VM has in common with it. Its instance UUID and the addresses of its cards are always its own.
type Clone struct {
	Name        string
	KeepUUID    bool   // the BIOS UUID, which vCenter changes unless it is told not to
	ExtraConfig bool   // the settings, guestinfo among them
	Power       string // on, off or suspended
}

// Clone copies a VM. The guest of the copy has the host name and the addresses of the original.
func (inv *Inventory) Clone(vm *simulator.VirtualMachine, as Clone) error {
	d := inv.described(vm.Self)
	if d == nil {
		return wrong("vm", "the VM was not described, so it cannot be copied")
	}
	if as.Name == "" {
		return wrong("name", "is missing; give the name of the copy")
	}
	if _, ok := powerStates[as.Power]; !ok {
		return wrong("power", "%q is unknown; known are on, off, suspended", as.Power)
	}
	where := inv.Path(vm.Self)
	i := slices.IndexFunc(inv.sites, func(s *site) bool { return strings.HasPrefix(where, s.path+"/") })
	if i < 0 {
		return wrong("vm", "the VM is in no datacenter")
	}
	copied := copyOf(d, as)
	at, err := inv.sites[i].placeOf(copied)
	if err != nil {
		return wrong("vm", "%s", err)
	}
	if inv.ctx.Map.FindByName(as.Name, at.folder.ChildEntity) != nil {
		return wrong("name", "the folder has an object %q already", as.Name)
	}
	made := inv.sites[i].newMachine(copied, at, time.Now())
	if as.ExtraConfig {
		inv.withLock(vm, func() { made.Config.ExtraConfig = slices.Clone(vm.Config.ExtraConfig) })
	}
	inv.mu.Lock()
	inv.vms[made.Self] = copied
	if special, found := inv.reports[vm.Self]; found {
		special.blankReads = 0
		inv.reports[made.Self] = special
	}
	inv.mu.Unlock()
	inv.addMachine(made, at)
	inv.showGuest(made)
	return nil
}

func copyOf(d *world.VM, as Clone) *world.VM {
	copied := *d
	copied.Name, copied.Power, copied.Node = as.Name, as.Power, nil
	copied.InstanceUUID = uuid.NewString()
	if !as.KeepUUID {
		copied.UUID = uuid.NewString()
	}
	copied.NICs = slices.Clone(d.NICs)
	for i := range copied.NICs {
		random := uuid.New()
		copied.NICs[i].MAC = fmt.Sprintf("00:50:56:%02x:%02x:%02x", random[0]&0x3f, random[1], random[2])
	}
	return &copied
}

// addMachine makes a new VM known to everything it uses and to those who watch.
func (inv *Inventory) addMachine(vm *simulator.VirtualMachine, at place) {
	inv.relist(at.host, "vm", func() []types.ManagedObjectReference { return at.host.Vm }, vm.Self, true)
	inv.relist(at.store, "vm", func() []types.ManagedObjectReference { return at.store.Vm }, vm.Self, true)
	if pool, ok := inv.ctx.Map.Get(at.pool).(*simulator.ResourcePool); ok {
		inv.relist(pool, "vm", func() []types.ManagedObjectReference { return pool.Vm }, vm.Self, true)
	}
	ctx := inv.newContext()
	ctx.WithLock(at.folder, func() {
		ctx.Update(at.folder, []types.PropertyChange{set("childEntity", append(slices.Clone(at.folder.ChildEntity), vm.Self))})
		ctx.Map.PutEntity(&at.folder.Folder, vm)
	})
}

// removeHost takes a host out of the inventory. Its VMs leave with it, whatever they do, and no task says so of them.
func (inv *Inventory) removeHost(host *simulator.HostSystem) error {
	var vms []types.ManagedObjectReference
	inv.withLock(host, func() { vms = slices.Clone(host.Vm) })
	for _, ref := range vms {
		if vm, ok := inv.ctx.Map.Get(ref).(*simulator.VirtualMachine); ok {
			ctx := inv.newContext()
			ctx.WithLock(vm, func() {
				vm.Runtime.PowerState = types.VirtualMachinePowerStatePoweredOff // the library refuses it otherwise
				vm.UnregisterVM(ctx, &types.UnregisterVM{This: vm.Self})
			})
		}
	}
	owner, ok := inv.ctx.Map.Get(*host.Parent).(*simulator.ClusterComputeResource)
	if !ok {
		return wrong("object", "only hosts of clusters can be removed")
	}
	task := simulator.CreateTask(host, "destroy", func(*simulator.Task) (types.AnyType, types.BaseMethodFault) { return nil, nil })
	task.RunBlocking(inv.newContext())
	inv.relist(owner, "host", func() []types.ManagedObjectReference { return owner.Host }, host.Self, false)
	for _, ref := range host.Datastore {
		if store, ok := inv.ctx.Map.Get(ref).(*simulator.Datastore); ok {
			ctx := inv.newContext()
			ctx.WithLock(store, func() {
				left := slices.DeleteFunc(slices.Clone(store.Host), func(mount types.DatastoreHostMount) bool { return mount.Key == host.Self })
				ctx.Update(store, []types.PropertyChange{set("host", left)})
			})
		}
	}
	for _, ref := range host.Network {
		if standard, ok := inv.ctx.Map.Get(ref).(*mo.Network); ok {
			inv.relist(standard, "host", func() []types.ManagedObjectReference { return standard.Host }, host.Self, false)
		}
	}
	ctx := inv.newContext()
	ctx.Map.Remove(ctx, host.Self)
	return nil
}
