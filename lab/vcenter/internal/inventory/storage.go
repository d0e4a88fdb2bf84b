package inventory

import (
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/world"
)

// summaryTypes are the words vCenter uses in a datastore's summary.
var summaryTypes = map[string]string{"VMFS": "VMFS", "vSAN": "vsan", "NFS": "NFS", "NFS41": "NFS41", "VVOL": "VVOL"}

// storage makes datastore clusters and datastores and mounts them on their hosts.
func (s *site) storage() error {
	pods := map[string]*simulator.StoragePod{}
	for _, d := range s.description.Pods {
		folder, err := s.folder("datastore", d.Folder)
		if err != nil {
			return err
		}
		made := folder.CreateStoragePod(s.ctx, &types.CreateStoragePod{This: folder.Self, Name: d.Name})
		if err := failed(made); err != nil {
			return fmt.Errorf("datastore cluster %s: %w", d.Name, err)
		}
		ref := made.(*methods.CreateStoragePodBody).Res.Returnval
		pods[d.Name] = s.ctx.Map.Get(ref).(*simulator.StoragePod)
		pods[d.Name].Summary.Name = d.Name
		s.paths[path.Join(s.path, "datastore", d.Folder, d.Name)] = ref
	}
	for i := range s.description.Datastores {
		d := &s.description.Datastores[i]
		var folder *mo.Folder
		var at string
		if pod, ok := pods[d.Pod]; ok && d.Pod != "" {
			folder, at = &pod.Folder, path.Join(s.pathOf(pod.Self), d.Name)
			pod.Summary.Capacity += int64(d.Capacity)
			pod.Summary.FreeSpace += int64(d.Free)
		} else {
			made, err := s.folder("datastore", d.Folder)
			if err != nil {
				return err
			}
			folder, at = &made.Folder, path.Join(s.path, "datastore", d.Folder, d.Name)
		}
		if err := s.datastore(d, folder, at); err != nil {
			return fmt.Errorf("datastore %s: %w", d.Name, err)
		}
	}
	return nil
}

func (s *site) pathOf(ref types.ManagedObjectReference) string {
	for at, candidate := range s.paths {
		if candidate == ref {
			return at
		}
	}
	return "/"
}

func (s *site) datastore(d *world.Datastore, folder *mo.Folder, at string) error {
	ds := &simulator.Datastore{}
	ds.Self.Type = "Datastore"
	ds.Name = d.Name
	s.adopt(folder, ds, at)
	s.dc.Datastore = append(s.dc.Datastore, ds.Self)
	s.stores[d.Name] = ds

	self := ds.Self
	ds.Summary = types.DatastoreSummary{
		Datastore:          &self,
		Name:               d.Name,
		Url:                d.URL,
		Capacity:           int64(d.Capacity),
		FreeSpace:          int64(d.Free),
		Accessible:         !d.Inaccessible,
		MultipleHostAccess: types.NewBool(len(d.Hosts) > 1),
		Type:               summaryTypes[d.Type],
		MaintenanceMode:    string(types.DatastoreSummaryMaintenanceModeStateNormal),
	}
	if d.Maintenance {
		ds.Summary.MaintenanceMode = string(types.DatastoreSummaryMaintenanceModeStateInMaintenance)
	}
	ds.Info = datastoreInfo(d)
	ds.Capability = types.DatastoreCapability{
		DirectoryHierarchySupported:      true,
		RawDiskMappingsSupported:         d.Type == "VMFS",
		PerFileThinProvisioningSupported: true,
		StorageIORMSupported:             d.Type == "VMFS",
		NativeSnapshotSupported:          d.Type == "VVOL",
		TopLevelDirectoryCreateSupported: types.NewBool(d.Type != "vSAN" && d.Type != "VVOL"),
		SeSparseSupported:                types.NewBool(d.Type == "VMFS"),
	}
	browser := &simulator.HostDatastoreBrowser{}
	browser.Datastore = []types.ManagedObjectReference{ds.Self}
	ds.Browser = s.ctx.Map.Put(browser).Reference()
	for _, name := range d.Hosts {
		if err := s.mount(ds, d, name); err != nil {
			return err
		}
	}
	return nil
}

func (s *site) mount(ds *simulator.Datastore, d *world.Datastore, name string) error {
	host, ok := s.hosts[name]
	if !ok {
		return fmt.Errorf("there is no host %s", name)
	}
	ds.Host = append(ds.Host, types.DatastoreHostMount{
		Key: host.Self,
		MountInfo: types.HostMountInfo{
			Path:       strings.TrimPrefix(strings.TrimSuffix(d.URL, "/"), "ds://"),
			AccessMode: string(types.HostMountModeReadWrite),
			Mounted:    types.NewBool(true),
			Accessible: types.NewBool(!d.Inaccessible),
		},
	})
	host.Datastore = append(host.Datastore, ds.Self)
	if system, ok := s.ctx.Map.Get(*host.ConfigManager.DatastoreSystem).(*simulator.HostDatastoreSystem); ok {
		system.Datastore = host.Datastore
	}
	if cluster := s.clusters[name]; cluster != nil && d.Type == "vSAN" {
		if config, ok := cluster.ConfigurationEx.(*types.ClusterConfigInfoEx); ok {
			config.VsanConfigInfo = &types.VsanClusterConfigInfo{Enabled: types.NewBool(true)}
		}
	}
	if owner := s.parentOf(host); simulator.FindReference(owner.Datastore, ds.Self) == nil {
		owner.Datastore = append(owner.Datastore, ds.Self)
	}
	return nil
}

// datastoreInfo is the type-specific part, by which clients tell VMFS, vSAN and NFS apart.
func datastoreInfo(d *world.Datastore) types.BaseDatastoreInfo {
	now := time.Now()
	info := types.DatastoreInfo{
		Name:                   d.Name,
		Url:                    d.URL,
		FreeSpace:              int64(d.Free),
		MaxFileSize:            64 << 40,
		MaxVirtualDiskCapacity: 62 << 40,
		MaxMemoryFileSize:      64 << 40,
		Timestamp:              &now,
	}
	volume := types.HostFileSystemVolume{Type: summaryTypes[d.Type], Name: d.Name, Capacity: int64(d.Capacity)}
	id := path.Base(d.URL)
	switch d.Type {
	case "vSAN":
		return &types.VsanDatastoreInfo{DatastoreInfo: info, MembershipUuid: strings.TrimPrefix(id, "vsan:")}
	case "NFS", "NFS41":
		return &types.NasDatastoreInfo{DatastoreInfo: info, Nas: &types.HostNasVolume{
			HostFileSystemVolume: volume, RemoteHost: "nfs.lab.example", RemotePath: "/export/" + d.Name,
		}}
	case "VVOL":
		return &types.VvolDatastoreInfo{DatastoreInfo: info, VvolDS: &types.HostVvolVolume{HostFileSystemVolume: volume, ScId: id}}
	}
	return &types.VmfsDatastoreInfo{DatastoreInfo: info, Vmfs: &types.HostVmfsVolume{
		HostFileSystemVolume: volume, BlockSizeMb: 1, MajorVersion: 6, Version: "6.82", Uuid: id,
		Local:  types.NewBool(d.Local),
		Extent: []types.HostScsiDiskPartition{{DiskName: "naa." + strings.ReplaceAll(id, "-", ""), Partition: 1}},
	}}
}
