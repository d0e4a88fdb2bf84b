package authz

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// withoutUnreachable leaves out what vCenter cannot read on storage that no host reaches: the configuration of VMs is not
// set then, and of datastores properties may be missing.
func (c *propertyCollector) withoutUnreachable(ctx *simulator.Context, objects []types.ObjectContent) []types.ObjectContent {
	for i := range objects {
		switch o := &objects[i]; o.Obj.Type {
		case "Datastore":
			if slices.ContainsFunc(o.PropSet, ofStorage) {
				c.hideSummary(ctx, o)
			}
		case "VirtualMachine":
			if slices.ContainsFunc(o.PropSet, ofConfig) {
				c.hideConfig(ctx, o)
			}
		}
	}
	return objects
}

func (c *propertyCollector) hideSummary(ctx *simulator.Context, o *types.ObjectContent) {
	store, ok := ctx.Map.Get(o.Obj).(*simulator.Datastore)
	if !ok {
		return
	}
	accessible, name := true, ""
	ctx.WithLock(store, func() { accessible, name = store.Summary.Accessible, store.Name })
	if accessible || assume.InaccessibleSummary.In(c.a.cfg.Assumptions) != "missing" {
		return
	}
	fault := &types.InaccessibleDatastore{InvalidDatastore: types.InvalidDatastore{Datastore: &store.Self, Name: name}}
	for _, p := range o.PropSet {
		if ofStorage(p) {
			o.MissingSet = append(o.MissingSet, types.MissingProperty{
				Path: p.Name, Fault: types.LocalizedMethodFault{Fault: fault, LocalizedMessage: "Unable to access the datastore."},
			})
		}
	}
	o.PropSet = slices.DeleteFunc(slices.Clone(o.PropSet), ofStorage)
}

func (c *propertyCollector) hideConfig(ctx *simulator.Context, o *types.ObjectContent) {
	vm, ok := ctx.Map.Get(o.Obj).(*simulator.VirtualMachine)
	if !ok {
		return
	}
	var state types.VirtualMachineConnectionState
	ctx.WithLock(vm, func() { state = vm.Runtime.ConnectionState })
	if state == types.VirtualMachineConnectionStateInaccessible && assume.InaccessibleConfig.In(c.a.cfg.Assumptions) == "unset" {
		o.PropSet = slices.DeleteFunc(slices.Clone(o.PropSet), ofConfig)
	}
}

func ofStorage(p types.DynamicProperty) bool {
	return touches(p.Name, "summary") || touches(p.Name, "info")
}

func ofConfig(p types.DynamicProperty) bool { return touches(p.Name, "config") }
