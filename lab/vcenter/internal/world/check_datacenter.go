package world

import (
	"fmt"
	"slices"
	"strings"
)

func (c *checker) datacenter(field string, dc *Datacenter) {
	for i, folder := range dc.Folders {
		kind, rest, _ := strings.Cut(strings.Trim(folder, "/"), "/")
		if !slices.Contains(folderKinds, kind) || rest == "" {
			c.complain(fmt.Sprintf("%s.folders[%d]", field, i), "%q must start with vm/, host/, datastore/ or network/ and a name", folder)
		}
	}
	c.unique(field+".networks", len(dc.Networks), func(i int) string { return dc.Networks[i].Name })
	c.unique(field+".clusters", len(dc.Clusters), func(i int) string { return dc.Clusters[i].Name })
	c.unique(field+".datastore_clusters", len(dc.Pods), func(i int) string { return dc.Pods[i].Name })
	c.unique(field+".datastores", len(dc.Datastores), func(i int) string { return dc.Datastores[i].Name })
	c.unique(field+".vms", len(dc.VMs), func(i int) string { return dc.VMs[i].Folder + "/" + dc.VMs[i].Name })
	c.hosts(field, dc)
	for i := range dc.Datastores {
		c.datastore(fmt.Sprintf("%s.datastores[%d]", field, i), dc, &dc.Datastores[i])
	}
	for i := range dc.VMs {
		c.vm(fmt.Sprintf("%s.vms[%d]", field, i), dc, &dc.VMs[i])
	}
}

func (c *checker) hosts(field string, dc *Datacenter) {
	seen := map[string]string{}
	list := func(field string, hosts []Host) {
		for i, host := range hosts {
			at := fmt.Sprintf("%s.hosts[%d]", field, i)
			if host.Name == "" {
				c.complain(at+".name", "is missing")
			} else if other, taken := seen[host.Name]; taken {
				c.complain(at+".name", "%q is taken by %s", host.Name, other)
			}
			seen[host.Name] = at
			if host.State != "" {
				c.oneOf(at+".state", host.State, hostStates)
			}
		}
	}
	list(field, dc.Hosts)
	for i, cluster := range dc.Clusters {
		at := fmt.Sprintf("%s.clusters[%d]", field, i)
		list(at, cluster.Hosts)
		if cluster.FileService && !slices.ContainsFunc(dc.Datastores, func(ds Datastore) bool { return ds.Type == "vSAN" && dc.Mounts(&ds, &cluster) }) {
			c.complain(at+".vsan_file_service", "no host of the cluster mounts a vSAN datastore")
		}
		for j, pool := range cluster.Pools {
			if len(splitPath(pool)) == 0 {
				c.complain(fmt.Sprintf("%s.pools[%d]", at, j), "is empty; give a path such as k8s/team-a")
			}
		}
	}
}

func (c *checker) datastore(field string, dc *Datacenter, ds *Datastore) {
	if ds.Type != "" {
		c.oneOf(field+".type", ds.Type, datastoreTypes)
	}
	if ds.Free > ds.Capacity && ds.Capacity > 0 {
		c.complain(field+".free", "is more than the capacity")
	}
	if ds.URL != "" && (!strings.HasPrefix(ds.URL, "ds:///vmfs/volumes/") || !strings.HasSuffix(ds.URL, "/")) {
		c.complain(field+".url", "%q must look like ds:///vmfs/volumes/ID/", ds.URL)
	}
	for i, host := range ds.Hosts {
		c.reference(fmt.Sprintf("%s.hosts[%d]", field, i), host, "host", dc.hostNames())
	}
	if ds.Local && len(ds.Hosts) != 1 {
		c.complain(field+".hosts", "a local datastore is on exactly one host, not on %d", len(ds.Hosts))
	}
	if ds.Local && ds.Type != "" && ds.Type != "VMFS" {
		c.complain(field+".type", "a local datastore is a VMFS, not a %s", ds.Type)
	}
	if ds.Pod != "" {
		var pods []string
		for _, pod := range dc.Pods {
			pods = append(pods, pod.Name)
		}
		c.reference(field+".datastore_cluster", ds.Pod, "datastore cluster", pods)
		if ds.Folder != "" {
			c.complain(field+".folder", "a datastore in a datastore cluster has no folder of its own")
		}
	}
}

func (c *checker) vm(field string, dc *Datacenter, vm *VM) {
	c.uuid(field+".uuid", vm.UUID)
	c.uuid(field+".instance_uuid", vm.InstanceUUID)
	if other, taken := c.uuids[strings.ToLower(vm.UUID)]; taken && vm.UUID != "" {
		c.complain(field+".uuid", "%s is the UUID of %s too", vm.UUID, other)
	}
	c.uuids[strings.ToLower(vm.UUID)] = field
	if vm.Power != "" {
		c.oneOf(field+".power", vm.Power, powerStates)
	}
	if vm.HardwareVersion != "" && !hardwareVersion.MatchString(vm.HardwareVersion) {
		c.complain(field+".hardware_version", "%q must look like vmx-19", vm.HardwareVersion)
	}
	if vm.CPUs < 0 {
		c.complain(field+".cpus", "must not be negative")
	}
	if len(dc.hostNames()) == 0 {
		c.complain(field+".host", "the datacenter has no host to run a VM on")
	}
	c.reference(field+".host", vm.Host, "host", dc.hostNames())
	c.pool(field+".pool", dc, vm)
	c.vmDatastore(field+".datastore", dc, vm)
	for i, nic := range vm.NICs {
		at := fmt.Sprintf("%s.nics[%d]", field, i)
		c.reference(at+".network", nic.Network, "network", dc.networkNames())
		if nic.MAC != "" && !validMAC(nic.MAC) {
			c.complain(at+".mac", "%q must look like 00:50:56:99:00:01", nic.MAC)
		}
		for j, address := range nic.Addresses {
			if !validAddress(address) {
				c.complain(fmt.Sprintf("%s.addresses[%d]", at, j), "%q must be an IP address, with or without prefix length", address)
			}
		}
	}
	if vm.Node != nil && vm.Node.Disks == "" {
		c.complain(field+".node.disks", "is missing; give the directory bound over the node's /dev/disk/by-id")
	}
}

func (c *checker) pool(field string, dc *Datacenter, vm *VM) {
	if vm.Pool == "" {
		return
	}
	cluster := dc.clusterOf(vm.Host)
	if cluster == nil {
		c.complain(field, "only a VM on a host of a cluster can name a pool")
		return
	}
	wanted := strings.Join(splitPath(vm.Pool), "/")
	var known []string
	for _, pool := range cluster.Pools {
		known = append(known, strings.Join(splitPath(pool), "/"))
	}
	if !slices.Contains(known, wanted) {
		c.complain(field, "cluster %s has no pool %q; it has %s", cluster.Name, vm.Pool, strings.Join(known, ", "))
	}
}

func (c *checker) vmDatastore(field string, dc *Datacenter, vm *VM) {
	var mounted []string
	for _, ds := range dc.Datastores {
		if vm.Host == "" || dc.mounts(&ds, vm.Host) {
			mounted = append(mounted, ds.Name)
		}
	}
	switch {
	case len(mounted) == 0:
		c.complain(field, "the host of the VM mounts no datastore; a VM must be on one")
	case vm.Datastore != "" && !slices.Contains(mounted, vm.Datastore):
		c.complain(field, "the host of the VM does not mount %q; it mounts %s", vm.Datastore, strings.Join(mounted, ", "))
	}
}
