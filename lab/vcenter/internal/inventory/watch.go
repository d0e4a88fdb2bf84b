package inventory

import (
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// guestFollowsPower makes the guest of a described VM appear and vanish with its power state, whoever changes that: only
// a running guest reports addresses.
type guestFollowsPower struct{ inv *Inventory }

func (*guestFollowsPower) Reference() types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: "SimulatorWatcher", Value: "guest-follows-power"}
}

func (*guestFollowsPower) PutObject(*simulator.Context, mo.Reference) {}

func (w *guestFollowsPower) RemoveObject(_ *simulator.Context, ref types.ManagedObjectReference) {
	w.inv.mu.Lock()
	defer w.inv.mu.Unlock()
	delete(w.inv.vms, ref)
	w.inv.setReport(ref, report{})
	delete(w.inv.reports, ref)
	if w.inv.vanishing[ref] {
		delete(w.inv.vanishing, ref)
		w.inv.armed.Add(-1)
	}
}

func (w *guestFollowsPower) UpdateObject(ctx *simulator.Context, object mo.Reference, changes []types.PropertyChange) {
	vm, ok := object.(*mo.VirtualMachine)
	if !ok {
		return
	}
	for _, change := range changes {
		if change.Name != "runtime.powerState" {
			continue
		}
		if guest := w.inv.guest(vm); guest != nil {
			ctx.Update(vm, guestChanges(guest))
		}
	}
}
