package authz

import (
	"net/url"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

const (
	privFiles         = "Datastore.FileManagement"
	privBrowse        = "Datastore.Browse"
	privAllocate      = "Datastore.AllocateSpace"
	privAssignToPool  = "Resource.AssignVMToPool"
	privAddExisting   = "VirtualMachine.Config.AddExistingDisk"
	privDevices       = "VirtualMachine.Config.AddRemoveDevice"
	privHostStorage   = "Host.Config.Storage"
	privCnsSearchable = "Cns.Searchable"
)

// renaming and destroying need a privilege that depends on the kind of the entity.
var (
	renaming = map[string]string{
		"VirtualMachine": "VirtualMachine.Config.Rename", "Folder": "Folder.Rename", "Datacenter": "Datacenter.Rename",
		"Datastore": "Datastore.Rename", "ClusterComputeResource": "Host.Inventory.RenameCluster",
		"ComputeResource": "Host.Inventory.RenameCluster", "ResourcePool": "Resource.RenamePool",
		"VirtualApp": "VApp.Rename", "StoragePod": "Folder.Rename",
	}
	destroying = map[string]string{
		"VirtualMachine": "VirtualMachine.Inventory.Delete", "Folder": "Folder.Delete", "Datacenter": "Datacenter.Delete",
		"Datastore": "Datastore.Delete", "ClusterComputeResource": "Host.Inventory.DeleteCluster",
		"HostSystem": "Host.Inventory.RemoveHostFromCluster", "ResourcePool": "Resource.DeletePool",
		"VirtualApp": "VApp.Delete", "StoragePod": "Folder.Delete", "Network": "Network.Delete",
		"DistributedVirtualPortgroup": "DVPortgroup.Delete", "DistributedVirtualSwitch": "DVSwitch.Delete",
	}
)

// computed are the requirements that depend on what a request asks for.
func (a *Authz) computed(s *scope, m *simulator.Method) []requirement {
	switch req := m.Body.(type) {
	case *types.ReconfigVM_Task:
		return reconfigNeeds(req)
	case *types.MigrateVM_Task:
		needs := []requirement{{req.This, "Resource.HotMigrate"}}
		if req.Pool != nil {
			needs = append(needs, requirement{*req.Pool, privAssignToPool})
		}
		return needs
	case *types.RelocateVM_Task:
		return placementNeeds(&req.Spec)
	case *types.CloneVM_Task:
		needs := []requirement{{req.This, "VirtualMachine.Provisioning.Clone"}, {req.Folder, "VirtualMachine.Inventory.CreateFromExisting"}}
		return append(needs, placementNeeds(&req.Spec.Location)...)
	case *types.Rename_Task:
		return byKind(req.This, renaming)
	case *types.Destroy_Task:
		return byKind(req.This, destroying)
	case *types.SearchDatastore_Task, *types.SearchDatastoreSubFolders_Task:
		return []requirement{{m.This, privBrowse}}
	}
	if strings.HasPrefix(m.Name, "Cns") {
		return a.cnsNeeds(s, m)
	}
	if m.Name == "Fetch" {
		return a.fetchNeeds(m)
	}
	return a.storageNeeds(m)
}

func byKind(ref types.ManagedObjectReference, table map[string]string) []requirement {
	if privilege, ok := table[ref.Type]; ok {
		return []requirement{{ref, privilege}}
	}
	return []requirement{{ref, privRead}}
}

func placementNeeds(spec *types.VirtualMachineRelocateSpec) []requirement {
	var needs []requirement
	if spec.Pool != nil {
		needs = append(needs, requirement{*spec.Pool, privAssignToPool})
	}
	if spec.Datastore != nil {
		needs = append(needs, requirement{*spec.Datastore, privAllocate})
	}
	return needs
}

// fetchNeeds guards the shortcut that reads one property by name and would pass by the PropertyCollector twin.
func (a *Authz) fetchNeeds(m *simulator.Method) []requirement {
	needs := []requirement{}
	for _, ref := range argument(m.Body, "this") {
		needs = append(needs, requirement{ref, propertyPrivilege(ref.Type, stringField(m.Body, "Prop"))})
	}
	return needs
}

// reconfigNeeds maps the parts of a configuration change to the privileges vCenter wants for them.
func reconfigNeeds(req *types.ReconfigVM_Task) []requirement {
	spec := &req.Spec
	var needs []requirement
	add := func(wanted bool, privilege string) {
		if wanted {
			needs = append(needs, requirement{req.This, privilege})
		}
	}
	for _, change := range spec.DeviceChange {
		add(true, devicePrivilege(change.GetVirtualDeviceConfigSpec()))
	}
	add(spec.Name != "", "VirtualMachine.Config.Rename")
	add(spec.Version != "", "VirtualMachine.Config.UpgradeVirtualHardware")
	add(spec.Annotation != "", "VirtualMachine.Config.Annotation")
	add(spec.NumCPUs != 0 || spec.NumCoresPerSocket != nil, "VirtualMachine.Config.CPUCount")
	add(spec.MemoryMB != 0, "VirtualMachine.Config.Memory")
	add(spec.CpuAllocation != nil || spec.MemoryAllocation != nil, "VirtualMachine.Config.Resource")
	add(len(spec.ExtraConfig) > 0, "VirtualMachine.Config.AdvancedConfig")
	add(spec.ChangeTrackingEnabled != nil, "VirtualMachine.Config.ChangeTracking")
	add(spec.SwapPlacement != "", "VirtualMachine.Config.SwapPlacement")
	add(spec.ManagedBy != nil, "VirtualMachine.Config.ManagedBy")
	add(spec.Flags != nil || spec.GuestId != "" || spec.Tools != nil || spec.PowerOpInfo != nil || spec.BootOptions != nil ||
		spec.Uuid != "" || spec.InstanceUuid != "" || spec.CpuHotAddEnabled != nil || spec.MemoryHotAddEnabled != nil,
		"VirtualMachine.Config.Settings")
	add(len(needs) == 0, privRead)
	return needs
}

func devicePrivilege(change *types.VirtualDeviceConfigSpec) string {
	_, disk := change.Device.(*types.VirtualDisk)
	switch change.Operation {
	case types.VirtualDeviceConfigSpecOperationAdd:
		if disk && change.FileOperation == "" {
			return privAddExisting
		}
		if disk {
			return "VirtualMachine.Config.AddNewDisk"
		}
	case types.VirtualDeviceConfigSpecOperationRemove:
		if disk {
			return "VirtualMachine.Config.RemoveDisk"
		}
	case types.VirtualDeviceConfigSpecOperationEdit:
		return "VirtualMachine.Config.EditDevice"
	}
	return privDevices
}

// storageNeeds covers calls that name files and first-class disks instead of objects.
func (a *Authz) storageNeeds(m *simulator.Method) []requirement {
	var needs []requirement
	onPath := func(path string, datacenter *types.ManagedObjectReference) {
		if ds, ok := a.datastoreOf(path, datacenter); ok {
			needs = append(needs, requirement{ds, privFiles})
		}
	}
	switch req := m.Body.(type) {
	case *types.DeleteDatastoreFile_Task:
		onPath(req.Name, req.Datacenter)
	case *types.MakeDirectory:
		onPath(req.Name, req.Datacenter)
	case *types.MoveDatastoreFile_Task:
		onPath(req.SourceName, req.SourceDatacenter)
		onPath(req.DestinationName, req.DestinationDatacenter)
	case *types.CopyDatastoreFile_Task:
		onPath(req.SourceName, req.SourceDatacenter)
		onPath(req.DestinationName, req.DestinationDatacenter)
	case *types.CreateVirtualDisk_Task:
		onPath(req.Name, req.Datacenter)
	case *types.DeleteVirtualDisk_Task:
		onPath(req.Name, req.Datacenter)
	case *types.ExtendVirtualDisk_Task:
		onPath(req.Name, req.Datacenter)
	case *types.SetVirtualDiskUuid:
		onPath(req.Name, req.Datacenter)
	case *types.MoveVirtualDisk_Task:
		onPath(req.SourceName, req.SourceDatacenter)
		onPath(req.DestName, req.DestDatacenter)
	case *types.CopyVirtualDisk_Task:
		onPath(req.SourceName, req.SourceDatacenter)
		onPath(req.DestName, req.DestDatacenter)
	default:
		return a.diskNeeds(m)
	}
	return needs
}

// byURL finds the datastore in https://host/folder/file?dcPath=dc&dsName=name.
func (a *Authz) byURL(path string) []requirement {
	u, err := url.Parse(path)
	if err != nil {
		return nil
	}
	if ds, ok := a.datastoreNamed(u.Query().Get("dsName"), nil); ok {
		return []requirement{{ds, privFiles}}
	}
	return nil
}
