package vcenter

import (
	"path"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vsan"
	"github.com/vmware/govmomi/vsan/methods"
	vsantypes "github.com/vmware/govmomi/vsan/types"
)

// clusterConfigSystem tells which clusters have vSAN and its file service, as described.
type clusterConfigSystem struct {
	types.ManagedObjectReference
	vim         *simulator.Registry
	vsan, files map[types.ManagedObjectReference]bool // by cluster
	stores      map[types.ManagedObjectReference]bool // vSAN datastores of clusters with file service
	fileService bool                                  // the release knows it
}

// installVSAN serves the vSAN configuration at the path that CNS has too, so CNS must be there first.
func (v *VCenter) installVSAN() {
	registry := simulator.NewRegistry()
	registry.Namespace, registry.Path = vsan.Namespace, vsan.Path
	registry.Put(v.services.vsan)
	v.Service.RegisterSDK(registry)
}

func (v *VCenter) newClusterConfigSystem() *clusterConfigSystem {
	s := &clusterConfigSystem{
		ManagedObjectReference: vsan.VsanVcClusterConfigSystemInstance, vim: v.Vim,
		vsan: map[types.ManagedObjectReference]bool{}, files: map[types.ManagedObjectReference]bool{},
		stores: map[types.ManagedObjectReference]bool{}, fileService: v.Profile.AtLeast("7.0U1"),
	}
	for i := range v.World.Datacenters {
		dc := &v.World.Datacenters[i]
		for j := range dc.Clusters {
			cluster := &dc.Clusters[j]
			ref := v.Inventory.At(path.Join(dc.Path(), "host", cluster.Folder, cluster.Name))
			if ref == nil {
				continue
			}
			s.files[*ref] = cluster.FileService
			for k := range dc.Datastores {
				store := &dc.Datastores[k]
				if store.Type != "vSAN" || !dc.Mounts(store, cluster) {
					continue
				}
				s.vsan[*ref] = true
				if at := v.Inventory.At(path.Join(dc.Path(), "datastore", dc.StoreFolder(store), store.Name)); at != nil && cluster.FileService {
					s.stores[*at] = true
				}
			}
		}
	}
	return s
}

// VsanClusterGetConfig tells whether a cluster has vSAN and file service.
func (s *clusterConfigSystem) VsanClusterGetConfig(_ *simulator.Context, req *vsantypes.VsanClusterGetConfig) soap.HasFault {
	body := new(methods.VsanClusterGetConfigBody)
	if _, ok := s.vim.Get(req.Cluster).(*simulator.ClusterComputeResource); !ok {
		body.Fault_ = simulator.Fault("ManagedObjectNotFound", &types.ManagedObjectNotFound{Obj: req.Cluster})
		return body
	}
	config := vsantypes.VsanConfigInfoEx{}
	config.Enabled = types.NewBool(s.vsan[req.Cluster])
	if s.vsan[req.Cluster] && s.fileService {
		config.FileServiceConfig = &vsantypes.VsanFileServiceConfig{Enabled: s.files[req.Cluster]}
	}
	body.Res = &vsantypes.VsanClusterGetConfigResponse{Returnval: config}
	return body
}

// servesFiles tells whether file shares can be made on a datastore.
func (s *clusterConfigSystem) servesFiles(datastore types.ManagedObjectReference) bool {
	return s.stores[datastore]
}
