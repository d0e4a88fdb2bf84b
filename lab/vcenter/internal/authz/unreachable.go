package authz

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// withoutUnreachable leaves out what vCenter cannot read on storage that no host reaches, or of a VM whose host is away:
// the configuration of VMs is not set then, or lacks devices, and of datastores properties may be missing.
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
	switch state {
	case types.VirtualMachineConnectionStateInaccessible:
		if assume.InaccessibleConfig.In(c.a.cfg.Assumptions) == "unset" {
			o.PropSet = slices.DeleteFunc(slices.Clone(o.PropSet), ofConfig)
		}
	case types.VirtualMachineConnectionStateDisconnected:
		if slices.ContainsFunc(o.PropSet, ofDevices) && assume.OfflineDevices.In(c.a.cfg.Assumptions) == "empty" {
			o.PropSet = slices.Clone(o.PropSet)
			for i := range o.PropSet {
				o.PropSet[i].Val = withoutDevices(o.PropSet[i].Val)
			}
		}
	}
}

// withoutDevices empties the list of a VM's devices in a property that is or contains it.
func withoutDevices(value types.AnyType) types.AnyType {
	switch v := value.(type) {
	case types.ArrayOfVirtualDevice:
		return types.ArrayOfVirtualDevice{}
	case types.VirtualHardware:
		v.Device = nil
		return v
	case types.VirtualMachineConfigInfo:
		v.Hardware.Device = nil
		return v
	}
	return value
}

func ofStorage(p types.DynamicProperty) bool {
	return touches(p.Name, "summary") || touches(p.Name, "info")
}

func ofConfig(p types.DynamicProperty) bool { return touches(p.Name, "config") }

func ofDevices(p types.DynamicProperty) bool { return touches(p.Name, "config.hardware.device") }
