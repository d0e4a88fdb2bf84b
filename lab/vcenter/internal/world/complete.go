package world

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/google/uuid"

	"vsphere-drivers.example/lab/vcenter/internal/profile"
)

// Defaults of the fields that an author leaves out.
const (
	defaultHardware = "vmx-19"
	defaultGuestID  = "ubuntu64Guest"
	defaultCapacity = 1 << 40
	defaultMemory   = 4 << 30
	defaultDisk     = 16 << 30
)

// Path is the datacenter's inventory path.
func (dc *Datacenter) Path() string {
	return "/" + path.Join(append(splitPath(dc.Folder), dc.Name)...) + slashIf(dc.Name == "")
}

func slashIf(nameless bool) string {
	if nameless {
		return "/"
	}
	return ""
}

// Paths lists every described object by inventory path, with its vSphere type.
func (w *World) Paths() map[string]string {
	paths := map[string]string{"/": "Folder"}
	folders := func(base, folder string) string {
		at := base
		for _, name := range splitPath(folder) {
			at = path.Join(at, name)
			paths[at] = "Folder"
		}
		return at
	}
	for i := range w.Datacenters {
		dc := &w.Datacenters[i]
		folders("/", dc.Folder)
		top := dc.Path()
		paths[top] = "Datacenter"
		for _, kind := range folderKinds {
			paths[path.Join(top, kind)] = "Folder"
		}
		for _, folder := range dc.Folders {
			folders(top, folder)
		}
		paths[path.Join(top, "network", defaultNetwork)] = "Network"
		for _, network := range dc.Networks {
			paths[path.Join(top, "network", network.Name)] = network.kind()
			if network.Switch != "" {
				paths[path.Join(top, "network", network.Switch)] = "VmwareDistributedVirtualSwitch"
			}
		}
		for _, cluster := range dc.Clusters {
			at := path.Join(folders(path.Join(top, "host"), cluster.Folder), cluster.Name)
			paths[at] = "ClusterComputeResource"
			paths[path.Join(at, "Resources")] = "ResourcePool"
			for _, host := range cluster.Hosts {
				paths[path.Join(at, host.Name)] = "HostSystem"
			}
			for _, pool := range cluster.Pools {
				base := path.Join(at, "Resources")
				for _, name := range splitPath(pool) {
					base = path.Join(base, name)
					paths[base] = "ResourcePool"
				}
			}
		}
		for _, host := range dc.Hosts {
			paths[path.Join(top, "host", host.Name)] = "ComputeResource"
			paths[path.Join(top, "host", host.Name, host.Name)] = "HostSystem"
			paths[path.Join(top, "host", host.Name, "Resources")] = "ResourcePool"
		}
		for _, pod := range dc.Pods {
			paths[path.Join(folders(path.Join(top, "datastore"), pod.Folder), pod.Name)] = "StoragePod"
		}
		for _, ds := range dc.Datastores {
			paths[path.Join(folders(path.Join(top, "datastore"), dc.StoreFolder(&ds)), ds.Name)] = "Datastore"
			if ds.Pod != "" {
				paths[path.Join(top, "datastore", dc.StoreFolder(&ds))] = "StoragePod"
			}
		}
		for _, vm := range dc.VMs {
			paths[path.Join(folders(path.Join(top, "vm"), vm.Folder), vm.Name)] = "VirtualMachine"
		}
	}
	return paths
}

func (n Network) kind() string {
	if n.Switch != "" {
		return "DistributedVirtualPortgroup"
	}
	return "Network"
}

// StoreFolder is the path below the datastore folder that holds the datastore.
func (dc *Datacenter) StoreFolder(ds *Datastore) string {
	for _, pod := range dc.Pods {
		if ds.Pod == pod.Name {
			return path.Join(pod.Folder, pod.Name)
		}
	}
	return ds.Folder
}

func (dc *Datacenter) hostNames() []string {
	var names []string
	for _, cluster := range dc.Clusters {
		for _, host := range cluster.Hosts {
			names = append(names, host.Name)
		}
	}
	for _, host := range dc.Hosts {
		names = append(names, host.Name)
	}
	return names
}

func (dc *Datacenter) networkNames() []string {
	names := []string{defaultNetwork}
	for _, network := range dc.Networks {
		names = append(names, network.Name)
	}
	return names
}

// clusterOf is the cluster a host is in, or nil for a host outside any cluster.
func (dc *Datacenter) clusterOf(host string) *Cluster {
	for i := range dc.Clusters {
		for _, candidate := range dc.Clusters[i].Hosts {
			if candidate.Name == host {
				return &dc.Clusters[i]
			}
		}
	}
	return nil
}

// Mounts tells whether some host of the cluster mounts the datastore.
func (dc *Datacenter) Mounts(ds *Datastore, cluster *Cluster) bool {
	return slices.ContainsFunc(cluster.Hosts, func(host Host) bool { return dc.mounts(ds, host.Name) })
}

func (dc *Datacenter) mounts(ds *Datastore, host string) bool {
	return len(ds.Hosts) == 0 || slices.Contains(ds.Hosts, host)
}

// stableUUID makes the same UUID for the same names at every start, so that tests can rely on it.
func stableUUID(names ...string) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte(strings.Join(names, "\x00"))).String()
}

// complete fills in what the author left out.
func (w *World) complete() {
	if w.Release == "" {
		w.Release = profile.Default
	}
	if w.InstanceUUID == "" {
		w.InstanceUUID = stableUUID(w.Name)
	}
	for i := range w.Policies {
		if w.Policies[i].ID == "" {
			w.Policies[i].ID = stableUUID(w.Name, "policy", w.Policies[i].Name)
		}
	}
	for i := range w.Categories {
		if w.Categories[i].Cardinality == "" {
			w.Categories[i].Cardinality = "multiple"
		}
	}
	card := 0
	for i := range w.Datacenters {
		dc := &w.Datacenters[i]
		for j := range dc.Datastores {
			w.completeDatastore(dc, &dc.Datastores[j])
		}
		hosts := dc.hostNames()
		for j := range dc.VMs {
			vm := &dc.VMs[j]
			if vm.Host == "" {
				vm.Host = hosts[j%len(hosts)]
				if vm.Datastore != "" {
					vm.Host = dc.hostMounting(vm.Datastore)
				}
			}
			w.completeVM(dc, vm, &card)
		}
	}
}

func (dc *Datacenter) hostMounting(datastore string) string {
	for _, ds := range dc.Datastores {
		if ds.Name == datastore && len(ds.Hosts) > 0 {
			return ds.Hosts[0]
		}
	}
	return dc.hostNames()[0]
}

func (w *World) completeDatastore(dc *Datacenter, ds *Datastore) {
	if ds.Type == "" {
		ds.Type = "VMFS"
	}
	if ds.Capacity == 0 {
		ds.Capacity = defaultCapacity
	}
	if ds.Free == 0 {
		ds.Free = ds.Capacity
	}
	if len(ds.Hosts) == 0 {
		ds.Hosts = dc.hostNames()
	}
	if ds.URL == "" {
		id := stableUUID(w.Name, dc.Path(), "datastore", ds.Name)
		prefix := ""
		if ds.Type == "vSAN" {
			prefix = "vsan:"
		}
		ds.URL = fmt.Sprintf("ds:///vmfs/volumes/%s%s/", prefix, id)
	}
}

func (w *World) completeVM(dc *Datacenter, vm *VM, card *int) {
	if vm.UUID == "" {
		vm.UUID = stableUUID(w.Name, dc.Path(), "vm", vm.Folder, vm.Name)
	}
	if vm.InstanceUUID == "" {
		vm.InstanceUUID = stableUUID(w.Name, dc.Path(), "instance", vm.Folder, vm.Name)
	}
	vm.UUID, vm.InstanceUUID = strings.ToLower(vm.UUID), strings.ToLower(vm.InstanceUUID)
	if vm.Datastore == "" {
		for i := range dc.Datastores {
			if dc.mounts(&dc.Datastores[i], vm.Host) {
				vm.Datastore = dc.Datastores[i].Name
				break
			}
		}
	}
	if vm.Power == "" {
		vm.Power = "on"
	}
	if vm.HardwareVersion == "" {
		vm.HardwareVersion = defaultHardware
	}
	if vm.CPUs == 0 {
		vm.CPUs = 2
	}
	if vm.Memory == 0 {
		vm.Memory = defaultMemory
	}
	if vm.Disk == 0 {
		vm.Disk = defaultDisk
	}
	if vm.Guest.ID == "" {
		vm.Guest.ID = defaultGuestID
	}
	if vm.Guest.HostName == "" {
		vm.Guest.HostName = vm.Name
	}
	for i := range vm.NICs {
		nic := &vm.NICs[i]
		*card++
		if nic.MAC == "" {
			nic.MAC = fmt.Sprintf("00:50:56:%02x:%02x:%02x", 0x80|*card>>16&0x3f, *card>>8&0xff, *card&0xff)
		}
		if nic.Network == "" {
			nic.Network = dc.networkNames()[0]
		}
	}
}
