package vcenter

import (
	"context"
	"testing"

	cnsclient "github.com/vmware/govmomi/cns"
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"
	vsanfs "github.com/vmware/govmomi/vsan/vsanfs/types"
)

// driver is govmomi's CNS client against a whole vCenter, as the driver's user of a customer would be.
type driver struct {
	*testing.T
	ctx context.Context
	vc  *VCenter
	vim *vim25.Client
	cns *cnsclient.Client
}

// done waits for a task whose only volume must have succeeded, and gives its result.
func (d *driver) done(what string, task *object.Task, err error) cnstypes.BaseCnsVolumeOperationResult {
	d.Helper()
	if err != nil {
		d.Fatalf("%s: %s", what, err)
	}
	one := result(d.T, task, nil)
	if fault := one.GetCnsVolumeOperationResult().Fault; fault != nil {
		d.Fatalf("%s: %T %s", what, fault.Fault, fault.LocalizedMessage)
	}
	return one
}

func (d *driver) at(path string) types.ManagedObjectReference {
	d.Helper()
	ref := d.vc.Inventory.At(path)
	if ref == nil {
		d.Fatalf("there is nothing at %s", path)
	}
	return *ref
}

func (d *driver) spec(name, policy string, datastores ...string) []cnstypes.CnsVolumeCreateSpec {
	spec := createSpec(d.vc, name, policy)
	spec[0].Metadata.ContainerCluster.VSphereUser, spec[0].Datastores = admin, nil
	for _, path := range datastores {
		spec[0].Datastores = append(spec[0].Datastores, d.at(path))
	}
	return spec
}

// TestEveryCNSOperationPassesStrictMode drives each call of govmomi's client, so that what strict mode wants and what CNS
// answers are known to fit together.
func TestEveryCNSOperationPassesStrictMode(t *testing.T) {
	for release, has91 := range map[string]bool{"8.0U3": false, "9.1": true} {
		t.Run(release, func(t *testing.T) {
			home := t.TempDir()
			t.Chdir(home)
			w := defaultWorld(t)
			w.Release = release
			vc := start(t, w, Options{Home: home})
			client := login(t, vc.URL)
			d := &driver{t, context.Background(), vc, client.Client, volumes(t, client)}
			ctx, cns := d.ctx, d.cns

			task, err := cns.CreateVolume(ctx, d.spec("a", gold, "/dc-1/datastore/fast/pod-1"))
			id := d.done("create", task, err).GetCnsVolumeOperationResult().VolumeId
			pair := []cnstypes.CnsVolumeAttachDetachSpec{{VolumeId: id, Vm: d.at("/dc-1/vm/k8s/node-1")}}
			filter := cnstypes.CnsQueryFilter{VolumeIds: []cnstypes.CnsVolumeId{id}, Cursor: &cnstypes.CnsCursor{Limit: 10}}

			if found, err := cns.QueryVolume(ctx, &filter); err != nil || len(found.Volumes) != 1 {
				t.Errorf("query: %v %+v", err, found)
			}
			if found, err := cns.QueryAllVolume(ctx, filter, cnstypes.CnsQuerySelection{Names: []string{"VOLUME_NAME"}}); err != nil || found.Volumes[0].Name != "a" {
				t.Errorf("query all: %v %+v", err, found)
			}
			task, err = cns.QueryVolumeAsync(ctx, filter, &cnstypes.CnsQuerySelection{Names: []string{"VOLUME_NAME"}})
			d.done("query async", task, err)
			task, err = cns.QueryVolumeInfo(ctx, filter.VolumeIds)
			d.done("query info", task, err)
			task, err = cns.UpdateVolumeMetadata(ctx, []cnstypes.CnsVolumeMetadataUpdateSpec{{VolumeId: id, Metadata: cnstypes.CnsVolumeMetadata{
				ContainerCluster: d.spec("", "")[0].Metadata.ContainerCluster,
				EntityMetadata: []cnstypes.BaseCnsEntityMetadata{&cnstypes.CnsKubernetesEntityMetadata{
					CnsEntityMetadata: cnstypes.CnsEntityMetadata{EntityName: "pv", ClusterID: "cluster"}, EntityType: "PERSISTENT_VOLUME",
				}},
			}}})
			d.done("update metadata", task, err)
			task, err = cns.AttachVolume(ctx, pair)
			d.done("attach", task, err)
			task, err = cns.ExtendVolume(ctx, []cnstypes.CnsVolumeExtendSpec{{VolumeId: id, CapacityInMb: 128}})
			d.done("extend", task, err)
			task, err = cns.DetachVolume(ctx, pair)
			d.done("detach", task, err)
			d.snapshots(id)
			task, err = cns.RelocateVolume(ctx, cnstypes.NewCnsBlockVolumeRelocateSpec(id.Id, d.at("/dc-1/datastore/fast/pod-2")))
			d.done("relocate", task, err)
			task, err = cns.ReconfigVolumePolicy(ctx, []cnstypes.CnsVolumePolicyReconfigSpec{{VolumeId: id, Profile: d.spec("", gold)[0].Profile}})
			d.done("change the policy", task, err)
			d.shares()
			d.migrated()
			if has91 {
				d.newer(id)
			}
			task, err = cns.SyncDatastore(ctx, "", false)
			if err == nil {
				err = task.Wait(ctx)
			}
			if err != nil {
				t.Errorf("sync datastores: %s", err)
			}
			task, err = cns.DeleteVolume(ctx, filter.VolumeIds, true)
			d.done("delete", task, err)
		})
	}
}

func (d *driver) snapshots(id cnstypes.CnsVolumeId) {
	d.Helper()
	task, err := d.cns.CreateSnapshots(d.ctx, []cnstypes.CnsSnapshotCreateSpec{{VolumeId: id, Description: "s"}})
	made := d.done("snapshot", task, err).(*cnstypes.CnsSnapshotCreateResult).Snapshot
	task, err = d.cns.QuerySnapshots(d.ctx, cnstypes.CnsSnapshotQueryFilter{SnapshotQuerySpecs: []cnstypes.CnsSnapshotQuerySpec{{VolumeId: id}}})
	if err != nil {
		d.Fatal(err)
	}
	info, err := cnsclient.GetTaskInfo(d.ctx, task)
	if err != nil {
		d.Fatal(err)
	}
	if found, err := cnsclient.GetQuerySnapshotsTaskResult(d.ctx, info); err != nil || len(found.Entries) != 1 {
		d.Errorf("query snapshots: %v %+v", err, found)
	}
	restore := d.spec("restored", gold, "/dc-1/datastore/fast/pod-1")
	restore[0].BackingObjectDetails.GetCnsBackingObjectDetails().CapacityInMb = 128
	restore[0].VolumeSource = &cnstypes.CnsSnapshotVolumeSource{VolumeId: id, SnapshotId: made.SnapshotId}
	task, err = d.cns.CreateVolume(d.ctx, restore)
	d.done("restore", task, err)
	task, err = d.cns.DeleteSnapshots(d.ctx, []cnstypes.CnsSnapshotDeleteSpec{{VolumeId: id, SnapshotId: made.SnapshotId}})
	d.done("delete the snapshot", task, err)
}

func (d *driver) shares() {
	d.Helper()
	spec := d.spec("share", gold, "/dc-1/datastore/vsan-1")
	spec[0].VolumeType = string(cnstypes.CnsVolumeTypeFile)
	spec[0].BackingObjectDetails = &cnstypes.CnsVsanFileShareBackingDetails{CnsFileBackingDetails: cnstypes.CnsFileBackingDetails{
		CnsBackingObjectDetails: cnstypes.CnsBackingObjectDetails{CapacityInMb: 64},
	}}
	everybody := []vsanfs.VsanFileShareNetPermission{{Ips: "*", Permissions: vsanfs.VsanFileShareAccessTypeREAD_WRITE}}
	spec[0].CreateSpec = &cnstypes.CnsVSANFileCreateSpec{SoftQuotaInMb: 64, Permission: everybody}
	task, err := d.cns.CreateVolume(d.ctx, spec)
	id := d.done("create a share", task, err).GetCnsVolumeOperationResult().VolumeId
	task, err = d.cns.ConfigureVolumeACLs(d.ctx, cnstypes.CnsVolumeACLConfigureSpec{
		VolumeId: id, AccessControlSpecList: []cnstypes.CnsNFSAccessControlSpec{{Permission: everybody, Delete: true}},
	})
	d.done("change the access", task, err)
}

// migrated registers a vmdk of the in-tree driver, in a datacenter inside a folder.
func (d *driver) migrated() {
	d.Helper()
	dc, err := find.NewFinder(d.vim).Datacenter(d.ctx, "/europe/dc-2")
	if err != nil {
		d.Fatal(err)
	}
	if err := object.NewFileManager(d.vim).MakeDirectory(d.ctx, "[shared-2] kubevols", dc, true); err != nil {
		d.Fatal(err)
	}
	task, err := object.NewVirtualDiskManager(d.vim).CreateVirtualDisk(d.ctx, "[shared-2] kubevols/old.vmdk", dc, &types.FileBackedVirtualDiskSpec{
		VirtualDiskSpec: types.VirtualDiskSpec{AdapterType: "lsiLogic", DiskType: "thin"}, CapacityKb: 1 << 20,
	})
	if err == nil {
		err = task.Wait(d.ctx)
	}
	if err != nil {
		d.Fatal(err)
	}
	spec := d.spec("migrated", "")
	spec[0].Profile = nil
	spec[0].BackingObjectDetails = &cnstypes.CnsBlockBackingDetails{
		BackingDiskUrlPath: "https://" + d.vc.URL.Host + "/folder/kubevols/old.vmdk?dcPath=europe/dc-2&dsName=shared-2",
	}
	task, err = d.cns.CreateVolume(d.ctx, spec)
	d.done("register a vmdk", task, err)
}

// newer are the calls and fields that came with 9.1.
func (d *driver) newer(id cnstypes.CnsVolumeId) {
	d.Helper()
	task, err := d.cns.SyncVolume(d.ctx, []cnstypes.CnsSyncVolumeSpec{{VolumeId: id, SyncMode: []string{"SPACE_USAGE"}}})
	d.done("sync the volume", task, err)
	flags := []cnstypes.CnsVolumeControlFlagsSpec{{VolumeId: id, ControlFlags: []string{"keepAfterDeleteVm"}}}
	if err := d.cns.ClearVolumeControlFlags(d.ctx, flags); err != nil {
		d.Errorf("clear a flag: %s", err)
	}
	if err := d.cns.SetVolumeControlFlags(d.ctx, flags); err != nil {
		d.Errorf("set a flag: %s", err)
	}
	task, err = d.cns.UpdateVolumeCrypto(d.ctx, []cnstypes.CnsVolumeCryptoUpdateSpec{{
		VolumeId: id, DisksCrypto: &types.DiskCryptoSpec{Crypto: &types.CryptoSpecEncrypt{CryptoKeyId: types.CryptoKeyId{KeyId: "k1"}}},
	}})
	d.done("encrypt", task, err)
	chosen := d.spec("chosen", gold)
	chosen[0].ActiveClusters = []types.ManagedObjectReference{d.at("/dc-1/host/cluster-1")}
	chosen[0].VolumeId = &cnstypes.CnsVolumeId{Id: "c0ffee00-5eed-4000-8000-000000000001"}
	task, err = d.cns.CreateVolume(d.ctx, chosen)
	if got := d.done("choose the id", task, err).GetCnsVolumeOperationResult().VolumeId; got != *chosen[0].VolumeId {
		d.Errorf("the id is %s", got.Id)
	}
	task, err = d.cns.UnregisterVolume(d.ctx, []cnstypes.CnsUnregisterVolumeSpec{{VolumeId: *chosen[0].VolumeId, TargetVolumeType: "FCD"}})
	d.done("unregister", task, err)
}
