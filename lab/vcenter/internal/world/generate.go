package world

import (
	"fmt"
	"net/netip"
)

// generated is the name of everything the generator adds, and the start of its VMs' names.
const generated = "generated"

// Grow adds a cluster of its own with count VMs, spread over hosts and datastores as the generate block asks. Names,
// UUIDs and addresses are the same at every start.
func (w *World) Grow(count int) {
	if count <= 0 {
		return
	}
	perHost, perStore := w.Generate.VMsPerHost, w.Generate.VMsPerStore
	if perHost == 0 {
		perHost = 100
	}
	if perStore == 0 {
		perStore = 500
	}
	dc := w.home()
	cluster := Cluster{Name: generated}
	for i := range (count + perHost - 1) / perHost {
		cluster.Hosts = append(cluster.Hosts, Host{Name: fmt.Sprintf("esx-%s-%03d.lab.example", generated, i+1)})
	}
	var hosts []string
	for _, host := range cluster.Hosts {
		hosts = append(hosts, host.Name)
	}
	for i := range (count + perStore - 1) / perStore {
		dc.Datastores = append(dc.Datastores, Datastore{
			Name: fmt.Sprintf("%s-%02d", generated, i+1), Capacity: 64 << 40, Hosts: hosts,
		})
	}
	dc.Clusters = append(dc.Clusters, cluster)
	address := netip.MustParseAddr("10.128.0.1")
	for i := range count {
		dc.VMs = append(dc.VMs, VM{
			Name:      fmt.Sprintf("%s-%05d", generated, i+1),
			Folder:    generated,
			Host:      hosts[i/perHost],
			Datastore: fmt.Sprintf("%s-%02d", generated, i/perStore+1),
			NICs:      []NIC{{Network: defaultNetwork, Addresses: []string{address.String() + "/9"}}},
		})
		address = address.Next()
	}
	w.complete()
}

// home is the datacenter the generator builds in.
func (w *World) home() *Datacenter {
	if len(w.Datacenters) == 0 {
		w.Datacenters = append(w.Datacenters, Datacenter{Name: generated})
	}
	return &w.Datacenters[0]
}
