package vcenter

import (
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// diskUUIDFlag keeps config.flags.diskUuidEnabled in step with the setting disk.EnableUUID, as vCenter does: the two are
// one setting, shown twice.
type diskUUIDFlag struct{}

func (*diskUUIDFlag) Reference() types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: "SimulatorWatcher", Value: "disk-uuid-flag"}
}

func (*diskUUIDFlag) PutObject(*simulator.Context, mo.Reference) {}

func (*diskUUIDFlag) RemoveObject(*simulator.Context, types.ManagedObjectReference) {}

func (*diskUUIDFlag) UpdateObject(ctx *simulator.Context, object mo.Reference, changes []types.PropertyChange) {
	vm, ok := object.(*mo.VirtualMachine)
	if !ok || vm.Config == nil {
		return
	}
	for _, change := range changes {
		if change.Name != "config.extraConfig" {
			continue
		}
		on := false
		for _, option := range vm.Config.ExtraConfig {
			value := option.GetOptionValue()
			if text, ok := value.Value.(string); ok && strings.EqualFold(value.Key, "disk.EnableUUID") {
				on = strings.EqualFold(text, "true") || text == "1"
			}
		}
		if flag := vm.Config.Flags.DiskUuidEnabled; flag == nil || *flag != on {
			flags := vm.Config.Flags
			flags.DiskUuidEnabled = &on
			ctx.Update(vm, []types.PropertyChange{{Name: "config.flags", Val: flags}})
		}
	}
}
