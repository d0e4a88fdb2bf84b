package main

import (
	"context"

	"github.com/vmware/govmomi/cns/types"
	vim "github.com/vmware/govmomi/vim25/types"
	vsanfs "github.com/vmware/govmomi/vsan/vsanfs/types"
)

var (
	volume   = types.CnsVolumeId{Id: "volume-1"}
	volume2  = types.CnsVolumeId{Id: "volume-2"}
	snapshot = types.CnsSnapshotId{Id: "snapshot-1"}
	policy   = []vim.BaseVirtualMachineProfileSpec{&vim.VirtualMachineDefinedProfileSpec{ProfileId: "policy-1"}}
)

var cluster = types.CnsContainerCluster{
	ClusterType:         "KUBERNETES",
	ClusterId:           "cluster-1",
	VSphereUser:         user,
	ClusterFlavor:       "VANILLA",
	ClusterDistribution: "kubeadm",
}

// The metadata of a volume with its claim and, when it changes, a pod that is gone.
func metadata(more ...types.BaseCnsEntityMetadata) types.CnsVolumeMetadata {
	return types.CnsVolumeMetadata{
		ContainerCluster: cluster,
		EntityMetadata: append([]types.BaseCnsEntityMetadata{
			&types.CnsKubernetesEntityMetadata{
				CnsEntityMetadata: types.CnsEntityMetadata{
					EntityName: "pv-1",
					Labels:     []vim.KeyValue{{Key: "app", Value: "db"}, {Key: "tier", Value: "<gold> & more"}},
					ClusterID:  "cluster-1",
				},
				EntityType: "PERSISTENT_VOLUME",
			},
			&types.CnsKubernetesEntityMetadata{
				CnsEntityMetadata: types.CnsEntityMetadata{
					EntityName: "pvc-1",
					Labels:     []vim.KeyValue{{Key: "app", Value: "db"}},
					ClusterID:  "cluster-1",
				},
				EntityType: "PERSISTENT_VOLUME_CLAIM",
				Namespace:  "default",
				ReferredEntity: []types.CnsKubernetesEntityReference{
					{EntityType: "PERSISTENT_VOLUME", EntityName: "pv-1", ClusterID: "cluster-1"},
				},
			},
		}, more...),
		ContainerClusterArray: []types.CnsContainerCluster{cluster},
	}
}

var filter = types.CnsQueryFilter{
	VolumeIds:                    []types.CnsVolumeId{volume, volume2},
	Names:                        []string{"pvc-1", "pvc-2"},
	ContainerClusterIds:          []string{"cluster-1"},
	StoragePolicyId:              "policy-1",
	Datastores:                   []vim.ManagedObjectReference{datastore},
	Labels:                       []vim.KeyValue{{Key: "app", Value: "db"}},
	ComplianceStatus:             "compliant",
	DatastoreAccessibilityStatus: "accessible",
	Cursor:                       &types.CnsCursor{Offset: 100, Limit: 50, TotalRecords: 200},
	HealthStatus:                 "green",
}

var selection = types.CnsQuerySelection{Names: []string{"VOLUME_NAME", "VOLUME_TYPE", "BACKING_OBJECT_DETAILS", "DATASTORE_URL"}}

var permissions = []vsanfs.VsanFileShareNetPermission{
	{Ips: "10.0.0.0/8", Permissions: vsanfs.VsanFileShareAccessTypeREAD_WRITE, AllowRoot: true},
	{Ips: "*", Permissions: vsanfs.VsanFileShareAccessTypeREAD_ONLY},
}

func create(spec types.CnsVolumeCreateSpec) func(context.Context, *clients) error {
	return func(ctx context.Context, c *clients) error {
		_, err := c.cns.CreateVolume(ctx, []types.CnsVolumeCreateSpec{spec})
		return err
	}
}

var volumeOperations = []operation{
	{"CnsCreateVolume-block", "CnsCreateVolume", create(types.CnsVolumeCreateSpec{
		Name:       "pvc-1",
		VolumeType: "BLOCK",
		VolumeId:   &volume,
		Datastores: []vim.ManagedObjectReference{datastore, ref("Datastore", "datastore-2")},
		Metadata:   metadata(),
		BackingObjectDetails: &types.CnsBlockBackingDetails{
			CnsBackingObjectDetails: types.CnsBackingObjectDetails{CapacityInMb: 1024},
		},
		Profile:        policy,
		ActiveClusters: []vim.ManagedObjectReference{ref("ClusterComputeResource", "domain-c1")},
		Hosts:          []vim.ManagedObjectReference{host},
	})},
	{"CnsCreateVolume-static", "CnsCreateVolume", create(types.CnsVolumeCreateSpec{
		Name:       "pvc-1",
		VolumeType: "BLOCK",
		Metadata:   metadata(),
		BackingObjectDetails: &types.CnsBlockBackingDetails{
			CnsBackingObjectDetails: types.CnsBackingObjectDetails{CapacityInMb: 1024},
			BackingDiskId:           "disk-1",
			BackingDiskUrlPath:      "https://vcenter.example/folder/disk-1.vmdk?dcPath=dc-1&dsName=shared-1",
		},
	})},
	{"CnsCreateVolume-file", "CnsCreateVolume", create(types.CnsVolumeCreateSpec{
		Name:       "pvc-1",
		VolumeType: "FILE",
		Datastores: []vim.ManagedObjectReference{datastore},
		Metadata:   metadata(),
		BackingObjectDetails: &types.CnsVsanFileShareBackingDetails{
			CnsFileBackingDetails: types.CnsFileBackingDetails{
				CnsBackingObjectDetails: types.CnsBackingObjectDetails{CapacityInMb: 1024},
			},
		},
		Profile:    policy,
		CreateSpec: &types.CnsVSANFileCreateSpec{SoftQuotaInMb: 1024, Permission: permissions},
	})},
	{"CnsCreateVolume-snapshot", "CnsCreateVolume", create(types.CnsVolumeCreateSpec{
		Name:       "pvc-1",
		VolumeType: "BLOCK",
		Datastores: []vim.ManagedObjectReference{datastore},
		Metadata:   metadata(),
		BackingObjectDetails: &types.CnsBlockBackingDetails{
			CnsBackingObjectDetails: types.CnsBackingObjectDetails{CapacityInMb: 1024},
		},
		Profile:      policy,
		VolumeSource: &types.CnsSnapshotVolumeSource{VolumeId: volume2, SnapshotId: snapshot, LinkedClone: true},
	})},
	{"CnsDeleteVolume", "CnsDeleteVolume", func(ctx context.Context, c *clients) error {
		_, err := c.cns.DeleteVolume(ctx, []types.CnsVolumeId{volume, volume2}, true)
		return err
	}},
	{"CnsAttachVolume", "CnsAttachVolume", func(ctx context.Context, c *clients) error {
		_, err := c.cns.AttachVolume(ctx, []types.CnsVolumeAttachDetachSpec{
			{VolumeId: volume, Vm: machine},
			{
				VolumeId: volume2, Vm: machine2, DiskMode: "independent_persistent", Sharing: "sharingMultiWriter",
				ControllerKey: pointer[int32](1000), UnitNumber: pointer[int32](3),
			},
		})
		return err
	}},
	{"CnsDetachVolume", "CnsDetachVolume", func(ctx context.Context, c *clients) error {
		_, err := c.cns.DetachVolume(ctx, []types.CnsVolumeAttachDetachSpec{{VolumeId: volume, Vm: machine}})
		return err
	}},
	{"CnsExtendVolume", "CnsExtendVolume", func(ctx context.Context, c *clients) error {
		_, err := c.cns.ExtendVolume(ctx, []types.CnsVolumeExtendSpec{{VolumeId: volume, CapacityInMb: 2048}})
		return err
	}},
	{"CnsQueryVolume", "CnsQueryVolume", func(ctx context.Context, c *clients) error {
		_, err := c.cns.QueryVolume(ctx, &filter)
		return err
	}},
	{"CnsQueryAllVolume", "CnsQueryAllVolume", func(ctx context.Context, c *clients) error {
		_, err := c.cns.QueryAllVolume(ctx, filter, selection)
		return err
	}},
	{"CnsQueryAsync", "CnsQueryAsync", func(ctx context.Context, c *clients) error {
		_, err := c.cns.QueryVolumeAsync(ctx, filter, &selection)
		return err
	}},
	{"CnsQueryVolumeInfo", "CnsQueryVolumeInfo", func(ctx context.Context, c *clients) error {
		_, err := c.cns.QueryVolumeInfo(ctx, []types.CnsVolumeId{volume, volume2})
		return err
	}},
	{"CnsUpdateVolumeMetadata", "CnsUpdateVolumeMetadata", func(ctx context.Context, c *clients) error {
		pod := &types.CnsKubernetesEntityMetadata{
			CnsEntityMetadata: types.CnsEntityMetadata{EntityName: "pod-1", Delete: true, ClusterID: "cluster-1"},
			EntityType:        "POD",
			Namespace:         "default",
			ReferredEntity: []types.CnsKubernetesEntityReference{
				{EntityType: "PERSISTENT_VOLUME_CLAIM", EntityName: "pvc-1", Namespace: "default", ClusterID: "cluster-1"},
			},
		}
		_, err := c.cns.UpdateVolumeMetadata(ctx, []types.CnsVolumeMetadataUpdateSpec{{VolumeId: volume, Metadata: metadata(pod)}})
		return err
	}},
}

var snapshotOperations = []operation{
	{"CnsCreateSnapshots", "CnsCreateSnapshots", func(ctx context.Context, c *clients) error {
		_, err := c.cns.CreateSnapshots(ctx, []types.CnsSnapshotCreateSpec{
			{VolumeId: volume, Description: "snapshot of pvc-1", SnapshotId: &snapshot},
		})
		return err
	}},
	{"CnsDeleteSnapshots", "CnsDeleteSnapshots", func(ctx context.Context, c *clients) error {
		_, err := c.cns.DeleteSnapshots(ctx, []types.CnsSnapshotDeleteSpec{{VolumeId: volume, SnapshotId: snapshot}})
		return err
	}},
	{"CnsQuerySnapshots", "CnsQuerySnapshots", func(ctx context.Context, c *clients) error {
		_, err := c.cns.QuerySnapshots(ctx, types.CnsSnapshotQueryFilter{
			SnapshotQuerySpecs: []types.CnsSnapshotQuerySpec{{VolumeId: volume, SnapshotId: &snapshot}, {VolumeId: volume2}},
			Cursor:             &types.CnsCursor{Offset: 0, Limit: 128},
		})
		return err
	}},
	{"CnsRelocateVolume", "CnsRelocateVolume", func(ctx context.Context, c *clients) error {
		spec := types.NewCnsBlockVolumeRelocateSpec("volume-1", datastore, policy...)
		_, err := c.cns.RelocateVolume(ctx, &spec)
		return err
	}},
	{"CnsReconfigVolumePolicy", "CnsReconfigVolumePolicy", func(ctx context.Context, c *clients) error {
		_, err := c.cns.ReconfigVolumePolicy(ctx, []types.CnsVolumePolicyReconfigSpec{{VolumeId: volume, Profile: policy}})
		return err
	}},
	{"CnsConfigureVolumeACLs", "CnsConfigureVolumeACLs", func(ctx context.Context, c *clients) error {
		_, err := c.cns.ConfigureVolumeACLs(ctx, types.CnsVolumeACLConfigureSpec{
			VolumeId: volume,
			AccessControlSpecList: []types.CnsNFSAccessControlSpec{
				{Permission: permissions[:1]},
				{Permission: permissions[1:], Delete: true},
			},
		})
		return err
	}},
	{"CnsSyncVolume", "CnsSyncVolume", func(ctx context.Context, c *clients) error {
		_, err := c.cns.SyncVolume(ctx, []types.CnsSyncVolumeSpec{
			{VolumeId: volume, Datastore: &datastore, SyncMode: []string{"SPACE_USAGE"}},
		})
		return err
	}},
	{"CnsSyncDatastore", "CnsSyncDatastore", func(ctx context.Context, c *clients) error {
		_, err := c.cns.SyncDatastore(ctx, "ds:///vmfs/volumes/datastore-1/", true)
		return err
	}},
	{"CnsUnregisterVolume", "CnsUnregisterVolume", func(ctx context.Context, c *clients) error {
		_, err := c.cns.UnregisterVolume(ctx, []types.CnsUnregisterVolumeSpec{{VolumeId: volume, TargetVolumeType: "FCD"}})
		return err
	}},
}
