package vcenter

import (
	"context"
	"testing"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"
	"github.com/vmware/govmomi/vslm/methods"
	vslmtypes "github.com/vmware/govmomi/vslm/types"

	"vsphere-drivers.example/lab/vcenter/internal/cns"
	"vsphere-drivers.example/lab/vcenter/internal/rest"
)

// policyUpdate is the request with the policy's id, for which govmomi's type has no room.
type policyUpdate struct {
	Req *cns.VslmUpdateVstorageObjectPolicy `xml:"urn:vslm VslmUpdateVstorageObjectPolicy_Task,omitempty"`
}

func (*policyUpdate) Fault() *soap.Fault { return nil }

func TestChangesOfDisksThroughVSLMPassStrictMode(t *testing.T) {
	home := t.TempDir()
	t.Chdir(home)
	vc := start(t, defaultWorld(t), Options{Home: home})
	ctx := context.Background()
	client, err := vslm.NewClient(ctx, login(t, vc.URL).Client)
	if err != nil {
		t.Fatal(err)
	}
	disks := vslm.NewGlobalObjectManager(client)
	done := func(task *vslm.Task, err error) types.AnyType {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		result, err := task.Wait(ctx, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	at := func(path string) types.VslmMigrateSpec {
		return types.VslmMigrateSpec{BackingSpec: &types.VslmCreateSpecDiskFileBackingSpec{
			VslmCreateSpecBackingSpec: types.VslmCreateSpecBackingSpec{Datastore: *vc.Inventory.At(path)},
		}}
	}
	const first, second = "/dc-1/datastore/fast/pod-1", "/dc-1/datastore/fast/pod-2"
	made := done(disks.CreateDisk(ctx, types.VslmCreateSpec{Name: "a", CapacityInMB: 64, BackingSpec: at(first).BackingSpec}))
	id := made.(types.VStorageObject).Config.Id
	done(disks.InflateDisk(ctx, id))
	done(disks.Relocate(ctx, id, types.VslmRelocateSpec{VslmMigrateSpec: at(second)}))
	copied := done(disks.Clone(ctx, id, types.VslmCloneSpec{VslmMigrateSpec: at(first), Name: "b"})).(types.VStorageObject)
	if copied.Config.Id == id {
		t.Error("the clone has the id of its source")
	}
	update := policyUpdate{Req: &cns.VslmUpdateVstorageObjectPolicy{
		This: disks.Reference(), Id: id, Profile: []types.BaseVirtualMachineProfileSpec{&types.VirtualMachineDefinedProfileSpec{ProfileId: gold}},
	}}
	var answer methods.VslmUpdateVstorageObjectPolicy_TaskBody
	if err := client.RoundTrip(ctx, &update, &answer); err != nil {
		t.Fatal(err)
	}
	done(vslm.NewTask(client, answer.Res.Returnval), nil)
	snapshot := done(disks.CreateSnapshot(ctx, id, "s")).(types.ID)
	if changes, err := disks.QueryChangedDiskAreas(ctx, id, snapshot, 0, "*"); err != nil || changes.Length != 64<<20 {
		t.Errorf("changed areas: %+v, %v", changes, err)
	}
	done(disks.ReconcileDatastoreInventory(ctx, *vc.Inventory.At(second)))

	category, err := vc.REST().CreateCategory(rest.Category{Name: "backup", Cardinality: "SINGLE"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := vc.REST().CreateTag(rest.Tag{CategoryID: category, Name: "daily"}); err != nil {
		t.Fatal(err)
	}
	if err := disks.AttachTag(ctx, id, "backup", "daily"); err != nil {
		t.Error(err)
	}
	if tags, err := disks.ListAttachedTags(ctx, id); err != nil || len(tags) != 1 || tags[0].ParentCategoryName != "backup" || tags[0].TagName != "daily" {
		t.Errorf("tags: %+v, %v", tags, err)
	}
	if tagged, err := disks.ListAttachedObjects(ctx, "backup", "daily"); err != nil || len(tagged) != 1 || tagged[0] != id {
		t.Errorf("tagged: %v, %v", tagged, err)
	}
	if err := disks.DetachTag(ctx, id, "backup", "daily"); err != nil {
		t.Error(err)
	}
}

func TestChangesOfDisksThroughVim25PassStrictModeAndReachVSLM(t *testing.T) {
	home := t.TempDir()
	t.Chdir(home)
	vc := start(t, defaultWorld(t), Options{Home: home})
	ctx := context.Background()
	vim := login(t, vc.URL)
	at := *vc.Inventory.At("/dc-1/datastore/fast/pod-1")
	disks := vslm.NewObjectManager(vim.Client)
	done := func(task *object.Task, err error) types.AnyType {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		info, err := task.WaitForResult(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return info.Result
	}
	id := done(disks.CreateDisk(ctx, types.VslmCreateSpec{Name: "a", CapacityInMB: 64, BackingSpec: &types.VslmCreateSpecDiskFileBackingSpec{
		VslmCreateSpecBackingSpec: types.VslmCreateSpecBackingSpec{Datastore: at},
	}})).(types.VStorageObject).Config.Id
	var store mo.Datastore
	if err := vim.RetrieveOne(ctx, at, []string{"summary.url"}, &store); err != nil {
		t.Fatal(err)
	}
	client, err := vslm.NewClient(ctx, vim.Client)
	if err != nil {
		t.Fatal(err)
	}
	sync := vslmtypes.VslmSyncDatastore{This: client.ServiceContent.StorageLifecycleManager, DatastoreUrl: store.Summary.Url, FcdId: &id}
	if _, err := methods.VslmSyncDatastore(ctx, client, &sync); err != nil {
		t.Fatal(err)
	}
	if _, err := vslm.NewGlobalObjectManager(client).Retrieve(ctx, id); err != nil {
		t.Errorf("VSLM does not know the disk: %v", err)
	}
	done(disks.ExtendDisk(ctx, at, id.Id, 128))
	snapshot := done(disks.CreateSnapshot(ctx, at, id.Id, "s")).(types.ID)
	done(disks.DeleteSnapshot(ctx, at, id.Id, snapshot.Id))
	done(disks.Delete(ctx, at, id.Id))
	if _, err := disks.Retrieve(ctx, at, id.Id); err == nil {
		t.Error("the disk is still there")
	}
}
