package inventory

import (
	"fmt"
	"path"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/simulator/esx"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/world"
)

// computeResources makes clusters with hosts and pools, and the hosts outside clusters.
func (s *site) computeResources() error {
	for i := range s.description.Clusters {
		if err := s.cluster(&s.description.Clusters[i]); err != nil {
			return fmt.Errorf("cluster %s: %w", s.description.Clusters[i].Name, err)
		}
	}
	folder, err := s.folder("host", "")
	if err != nil {
		return err
	}
	for _, host := range s.description.Hosts {
		made, fault := simulator.CreateStandaloneHost(s.ctx, folder, types.HostConnectSpec{HostName: host.Name})
		if fault != nil {
			return fmt.Errorf("host %s: %T", host.Name, fault)
		}
		at := path.Join(s.path, "host", host.Name)
		owner := s.ctx.Map.Get(*made.Parent).(*mo.ComputeResource)
		s.paths[at] = owner.Self
		s.host(made, host, at)
		s.rootPool(*owner.ResourcePool, at, []world.Host{host})
	}
	s.hostVersions()
	return nil
}

// hostVersions gives the hosts the release of their vCenter. It comes after all hosts are made: making one, the
// simulator reads the versions of its neighbours and panics on those it does not know.
func (s *site) hostVersions() {
	for _, host := range s.hosts {
		product := host.Config.Product
		product.Version, product.ApiVersion, product.Build = s.profile.Version, s.profile.APIVersion, s.profile.Build
		product.FullName = fmt.Sprintf("VMware ESXi %s build-%s", product.Version, product.Build)
		host.Config.Product = product
		host.Summary.Config.Product = &product
	}
}

func (s *site) cluster(d *world.Cluster) error {
	folder, err := s.folder("host", d.Folder)
	if err != nil {
		return err
	}
	cluster, fault := simulator.CreateClusterComputeResource(s.ctx, folder, d.Name, types.ClusterConfigSpecEx{})
	if fault != nil {
		return fmt.Errorf("%T", fault)
	}
	at := path.Join(s.path, "host", d.Folder, d.Name)
	s.paths[at] = cluster.Self
	for _, host := range d.Hosts {
		answer := cluster.AddHostTask(s.ctx, &types.AddHost_Task{
			This: cluster.Self, Spec: types.HostConnectSpec{HostName: host.Name}, AsConnected: true,
		})
		result, err := s.finish(answer.(*methods.AddHost_TaskBody).Res.Returnval)
		if err != nil {
			return fmt.Errorf("host %s: %w", host.Name, err)
		}
		made := s.ctx.Map.Get(result.(types.ManagedObjectReference)).(*simulator.HostSystem)
		s.clusters[host.Name] = cluster
		s.host(made, host, at)
	}
	s.rootPool(*cluster.ResourcePool, at, d.Hosts)
	for _, pool := range d.Pools {
		s.pool(pool, at, d.Hosts)
	}
	return nil
}

// host gives a host what the simulator's template shares between all of them, and the described state.
func (s *site) host(host *simulator.HostSystem, d world.Host, parent string) {
	host.Runtime.ConnectionState = types.HostSystemConnectionStateConnected
	if d.State != "" {
		host.Runtime.ConnectionState = types.HostSystemConnectionState(d.State)
	}
	host.Runtime.InMaintenanceMode = d.Maintenance
	host.Summary.Runtime = &host.Runtime
	host.Summary.ManagementServerIp = "127.0.0.1"
	host.Datastore = nil
	s.hosts[d.Name] = host
	s.paths[path.Join(parent, d.Name)] = host.Self
}

// rootPool gives the root pool of a cluster or host its own summary: the simulator's template has one for all pools.
func (s *site) rootPool(ref types.ManagedObjectReference, parent string, hosts []world.Host) {
	pool := s.ctx.Map.Get(ref).(*simulator.ResourcePool)
	ownSummary(pool)
	s.paths[path.Join(parent, "Resources")] = ref
	for _, host := range hosts {
		s.pools[host.Name] = ref
	}
}

// pool makes the resource pools of a path below the root pool.
func (s *site) pool(at, cluster string, hosts []world.Host) {
	base := path.Join(cluster, "Resources")
	below := ""
	for _, name := range strings.FieldsFunc(at, func(r rune) bool { return r == '/' }) {
		parent := s.ctx.Map.Get(s.paths[base]).(*simulator.ResourcePool)
		base, below = path.Join(base, name), path.Join(below, name)
		if _, ok := s.paths[base]; !ok {
			child := simulator.NewResourcePool(s.ctx)
			child.Name = name
			child.Owner = parent.Owner
			s.ctx.Map.PutEntity(parent, s.ctx.Map.NewEntity(child))
			ownSummary(child)
			parent.ResourcePool.ResourcePool = append(parent.ResourcePool.ResourcePool, child.Self)
			s.paths[base] = child.Self
		}
		for _, host := range hosts {
			s.pools[path.Join(host.Name, below)] = s.paths[base]
		}
	}
}

func ownSummary(pool *simulator.ResourcePool) {
	self := pool.Self
	summary := *esx.ResourcePool.Summary.GetResourcePoolSummary()
	summary.Name = pool.Name
	summary.Config.Entity = &self
	pool.Summary = &summary
	pool.Config.Entity = &self
}

// parentOf is the compute resource of a host, with the fields clusters and standalone hosts share.
func (s *site) parentOf(host *simulator.HostSystem) *mo.ComputeResource {
	switch owner := s.ctx.Map.Get(*host.Parent).(type) {
	case *simulator.ClusterComputeResource:
		return &owner.ComputeResource
	case *mo.ComputeResource:
		return owner
	}
	return nil
}
