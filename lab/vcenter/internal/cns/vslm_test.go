package cns

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"
	vslmmethods "github.com/vmware/govmomi/vslm/methods"
	vslmtypes "github.com/vmware/govmomi/vslm/types"
)

func (l *lab) global() *vslm.GlobalObjectManager {
	l.Helper()
	client, err := vslm.NewClient(l.ctx, l.vim.Client)
	l.must(err)
	return vslm.NewGlobalObjectManager(client)
}

// finished waits for a VSLM task.
func (l *lab) finished(task *vslm.Task, err error) types.AnyType {
	l.Helper()
	l.must(err)
	result, err := task.Wait(l.ctx, time.Minute)
	l.must(err)
	return result
}

func (l *lab) wantVSLMFault(fault types.BaseMethodFault, task *vslm.Task, err error) {
	l.Helper()
	l.must(err)
	_, err = task.Wait(l.ctx, time.Minute)
	if !soap.IsVimFault(err) {
		l.Fatalf("task ended with %v, want %T", err, fault)
	}
	l.sameFault(soap.ToVimFault(err), fault)
}

func TestVSLMShowsDisksOfCNS(t *testing.T) {
	l := newLab(t, options{})
	disks := l.global()
	id := types.ID{Id: l.newVolume("a")}
	l.newVolume("b")
	seen, err := disks.Retrieve(l.ctx, id)
	l.must(err)
	if seen.Config.Name != "a" || seen.Config.CapacityInMB != 1024 {
		t.Errorf("disk %+v", seen.Config)
	}
	for name, c := range map[string]struct {
		field, operator, value string
		want                   int
	}{
		"by id":            {"id", "equals", id.Id, 1},
		"by name":          {"name", "startsWith", "a", 1},
		"by other names":   {"name", "notEquals", "a", 1},
		"by size":          {"capacity", "greaterThanOrEqual", "1024", 2},
		"by creation":      {"createTime", "lessThan", time.Now().Add(time.Hour).Format(time.RFC3339Nano), 2},
		"by datastore":     {"datastoreMoId", "equals", l.volumePlace(id.Id), -1},
		"by metadata":      {"metadataKey", "contains", "x", 0},
		"by another place": {"datastoreMoId", "equals", "nowhere", 0},
	} {
		found, err := disks.List(l.ctx, vslmtypes.VslmVsoVStorageObjectQuerySpec{QueryField: c.field, QueryOperator: c.operator, QueryValue: []string{c.value}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if c.want >= 0 && len(found.Id) != c.want || c.want < 0 && len(found.Id) == 0 {
			t.Errorf("%s: found %v", name, found.Id)
		}
	}
	page, err := disks.ListObjectsForSpec(l.ctx, nil, 1)
	l.must(err)
	if len(page.Id) != 1 || page.AllRecordsReturned {
		t.Errorf("page %+v", page)
	}
	for _, wrong := range []vslmtypes.VslmVsoVStorageObjectQuerySpec{
		{QueryField: "colour", QueryOperator: "equals", QueryValue: []string{"x"}},
		{QueryField: "name", QueryOperator: "like", QueryValue: []string{"x"}},
		{QueryField: "capacity", QueryOperator: "equals", QueryValue: []string{"x"}},
		{QueryField: "name", QueryOperator: "equals"},
	} {
		if _, err := disks.ListObjectsForSpec(l.ctx, []vslmtypes.VslmVsoVStorageObjectQuerySpec{wrong}, 10); err == nil {
			t.Errorf("%+v was accepted", wrong)
		}
	}
}

func TestVSLMDoesNotFindAnUnknownDisk(t *testing.T) {
	l := newLab(t, options{})
	disks, unknown := l.global(), types.ID{Id: uuid.NewString()}
	_, err := disks.RetrieveSnapshotInfo(l.ctx, unknown)
	l.wantCallFault(&types.NotFound{}, nil, err)
	_, err = disks.RetrieveMetadata(l.ctx, unknown, nil, "")
	l.wantCallFault(&types.NotFound{}, nil, err)
	l.wantCallFault(&types.NotFound{}, nil, disks.SetControlFlags(l.ctx, unknown, nil))
	_, err = disks.Retrieve(l.ctx, unknown)
	l.wantCallFault(&types.NotFound{}, nil, err)
	if text := soap.ToSoapFault(err).String; !strings.Contains(text, "id = "+unknown.Id+"\n} was not found") {
		t.Errorf("text %q", text)
	}
}

func TestVSLMMayCallAnUnknownDiskAnInvalidArgument(t *testing.T) {
	l := newLab(t, options{assumptions: map[string]any{"UnknownDisk": "InvalidArgument"}})
	_, err := l.global().Retrieve(l.ctx, types.ID{Id: uuid.NewString()})
	l.wantCallFault(invalid("VolumeId"), nil, err)
}

func TestADiskCannotBeReadWhileNoHostReachesItsDatastore(t *testing.T) {
	l := newLab(t, options{})
	disks, id := l.global(), types.ID{Id: l.newVolume("a")}
	l.reachDatastores(false)
	_, err := disks.Retrieve(l.ctx, id)
	l.wantCallFault(&types.InvalidDatastore{}, nil, err)
	listed, err := disks.List(l.ctx)
	l.must(err)
	if len(listed.Id) != 1 {
		t.Errorf("the catalogue lists %v", listed.Id)
	}
	l.reachDatastores(true)
	everywhere(l, "Datastore", func(d *simulator.Datastore) {
		d.Summary.MaintenanceMode = string(types.DatastoreSummaryMaintenanceModeStateInMaintenance)
	})
	_, err = disks.Retrieve(l.ctx, id)
	l.must(err)
}

func TestADiskOfAnInaccessibleDatastoreMayBeAnErrorOrShown(t *testing.T) {
	l := newLab(t, options{assumptions: map[string]any{"DiskOfInaccessibleDatastore": "SystemError"}})
	disks, id := l.global(), types.ID{Id: l.newVolume("a")}
	l.reachDatastores(false)
	_, err := disks.Retrieve(l.ctx, id)
	l.wantCallFault(&types.SystemError{}, nil, err)
	l.assume(map[string]any{"DiskOfInaccessibleDatastore": "shown"})
	shown, err := disks.Retrieve(l.ctx, id)
	l.must(err)
	if shown.Config.Name != "a" {
		t.Errorf("disk %+v", shown.Config)
	}
}

// clusterKeys are what a disk shows of clusters.
func (l *lab) clusterKeys(id string) map[string]string {
	l.Helper()
	found, err := l.global().List(l.ctx, vslmtypes.VslmVsoVStorageObjectQuerySpec{QueryField: "id", QueryOperator: "equals", QueryValue: []string{id}})
	l.must(err)
	keys := map[string]string{}
	for _, pair := range found.QueryResults[0].Metadata {
		if strings.Contains(pair.Key, "luster") {
			keys[pair.Key] = pair.Value
		}
	}
	return keys
}

func TestADiskNamesTheClusterOfItsVolume(t *testing.T) {
	for release, want := range map[string]map[string]string{
		"6.7U3": {"cns.clusterID": "c1", "cns.clusterType": "KUBERNETES"},
		"8.0U3": {
			"cns.containerCluster.clusterId": "c1", "cns.containerCluster.clusterType": "KUBERNETES",
			"cns.containerCluster.clusterFlavor": "VANILLA", "cns.containerCluster.vSphereUser": "user",
		},
	} {
		l := newLab(t, options{release: release})
		id := l.newVolume("a")
		if got := l.clusterKeys(id); !maps.Equal(got, want) {
			t.Errorf("%s: %v", release, got)
		}
		// It is the disk's, whatever becomes of the record.
		l.must(l.manager.ForgetRecord(id))
		if got := l.clusterKeys(id); !maps.Equal(got, want) {
			t.Errorf("%s, without a record: %v", release, got)
		}
		plain := l.plainDisk()
		if got := l.clusterKeys(plain); len(got) != 0 {
			t.Errorf("%s: a disk that is not a volume shows %v", release, got)
		}
		spec := l.blockSpec("registered", 0)
		spec.BackingObjectDetails = &cnstypes.CnsBlockBackingDetails{BackingDiskId: plain}
		l.result(l.create(spec))
		if got := l.clusterKeys(plain); !maps.Equal(got, want) {
			t.Errorf("%s, registered: %v", release, got)
		}
	}
}

func TestADiskMayNotNameTheClusterOfItsVolume(t *testing.T) {
	l := newLab(t, options{assumptions: map[string]any{"DiskMetadata": "absent"}})
	if got := l.clusterKeys(l.newVolume("a")); len(got) != 0 {
		t.Errorf("shown: %v", got)
	}
}

func (l *lab) volumePlace(id string) string {
	for _, v := range l.manager.Volumes() {
		if v.ID == id {
			return v.Datastore
		}
	}
	return ""
}

func TestVSLMRegistersAVMDKForTheOldMigration(t *testing.T) {
	l := newLab(t, options{release: "7.0U3"})
	disks := l.global()
	_, link := l.vmdk("a.vmdk")
	registered, err := disks.RegisterDisk(l.ctx, link, "fcd")
	l.must(err)
	id := registered.Config.Id
	_, err = disks.RegisterDisk(l.ctx, link, "again")
	l.wantCallFault(&types.AlreadyExists{}, nil, err)
	if exists := soap.ToSoapFault(err).VimFault().(types.AlreadyExists); exists.Name != id.Id {
		t.Errorf("the fault names %s", exists.Name)
	}
	spec := l.blockSpec("migrated", 0)
	spec.BackingObjectDetails = &cnstypes.CnsBlockBackingDetails{BackingDiskId: id.Id}
	l.result(l.create(spec))
	if *registered.Config.KeepAfterDeleteVm {
		t.Error("a registered disk is kept without being asked to")
	}
	l.must(disks.SetControlFlags(l.ctx, id, []string{"keepAfterDeleteVm"}))
	seen, err := disks.Retrieve(l.ctx, id)
	l.must(err)
	if !*seen.Config.KeepAfterDeleteVm {
		t.Error("the flag was not set")
	}
	clear := vslmtypes.VslmClearVStorageObjectControlFlags{This: disks.Reference(), Id: id, ControlFlags: []string{"keepAfterDeleteVm"}}
	client, err := vslm.NewClient(l.ctx, l.vim.Client)
	l.must(err)
	_, err = vslmmethods.VslmClearVStorageObjectControlFlags(l.ctx, client, &clear)
	l.must(err)
	if seen, err = disks.Retrieve(l.ctx, id); err != nil || *seen.Config.KeepAfterDeleteVm {
		t.Errorf("the flag was not cleared: %v", err)
	}
	l.wantCallFault(invalid("controlFlags"), nil, disks.SetControlFlags(l.ctx, id, []string{"nonsense"}))
	l.wantCallFault(&types.NotFound{}, nil, disks.SetControlFlags(l.ctx, types.ID{Id: "nope"}, nil))
}

func TestVSLMChangesDisks(t *testing.T) {
	l := newLab(t, options{})
	disks := l.global()
	spec := types.VslmCreateSpec{Name: "fcd", CapacityInMB: 1024, KeepAfterDeleteVm: types.NewBool(true), BackingSpec: &types.VslmCreateSpecDiskFileBackingSpec{
		VslmCreateSpecBackingSpec: types.VslmCreateSpecBackingSpec{Datastore: l.datastores[0]},
	}}
	made := l.finished(disks.CreateDisk(l.ctx, spec)).(types.VStorageObject)
	id := made.Config.Id
	if l.free(l.datastores[0]) != 99*gib || l.exists(id.Id) {
		t.Error("the disk takes no space, or is a volume")
	}
	l.finished(disks.ExtendDisk(l.ctx, id, 2048))
	snapshot := l.finished(disks.CreateSnapshot(l.ctx, id, "s")).(types.ID)
	info, err := disks.RetrieveSnapshotInfo(l.ctx, id)
	l.must(err)
	if len(info) != 1 || info[0].Id.Id != snapshot.Id {
		t.Errorf("snapshots %+v", info)
	}
	task, err := disks.Delete(l.ctx, id)
	l.wantVSLMFault(&types.InvalidState{}, task, err)
	l.finished(disks.DeleteSnapshot(l.ctx, id, snapshot))
	task, err = disks.DeleteSnapshot(l.ctx, id, snapshot)
	l.wantVSLMFault(invalid("snapshotId"), task, err)

	l.finished(disks.UpdateMetadata(l.ctx, id, []types.KeyValue{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}}, nil))
	l.finished(disks.UpdateMetadata(l.ctx, id, []types.KeyValue{{Key: "a", Value: "3"}}, []string{"b"}))
	pairs, err := disks.RetrieveMetadata(l.ctx, id, nil, "")
	l.must(err)
	if len(pairs) != 1 || pairs[0].Value != "3" {
		t.Errorf("metadata %v", pairs)
	}
	if value, err := disks.RetrieveMetadataValue(l.ctx, id, nil, "a"); err != nil || value != "3" {
		t.Errorf("the value is %q, %v", value, err)
	}
	_, err = disks.RetrieveMetadataValue(l.ctx, id, nil, "b")
	l.wantCallFault(&types.KeyNotFound{}, nil, err)

	l.finished(disks.AttachDisk(l.ctx, id, l.vms[0], 0, nil))
	if d := l.diskOf(l.vms[0], id.Id); d == nil || d.CapacityInBytes != 2*gib {
		t.Errorf("device %+v", d)
	}
	task, err = disks.Delete(l.ctx, id)
	l.wantVSLMFault(&types.ResourceInUse{}, task, err)
	static := l.blockSpec("static", 0)
	static.BackingObjectDetails = &cnstypes.CnsBlockBackingDetails{BackingDiskId: id.Id}
	l.result(l.create(static))
	l.result(l.detach(id.Id, l.vms[0]))
	l.finished(disks.Delete(l.ctx, id))
	l.manager.Sync()
	if l.exists(id.Id) || l.free(l.datastores[0]) != 100*gib {
		t.Error("the deleted disk is still there")
	}
	task, err = disks.Delete(l.ctx, id)
	l.wantVSLMFault(&types.NotFound{}, task, err)
	_, err = disks.AttachDisk(l.ctx, id, types.ManagedObjectReference{Type: "VirtualMachine", Value: "x"}, 0, nil)
	l.wantCallFault(&types.ManagedObjectNotFound{}, nil, err)
	spec.CapacityInMB = 0
	task, err = disks.CreateDisk(l.ctx, spec)
	l.wantVSLMFault(invalid("capacityInMB"), task, err)
}

func TestVSLMRestoresSnapshots(t *testing.T) {
	l, dir, _ := contentLab(t, false, nil)
	disks := l.global()
	source := types.ID{Id: l.volumeOn(l.datastores[0])}
	l.must(os.WriteFile(filepath.Join(dir, source.Id+".img"), []byte("precious"), 0o600))
	snapshot := types.ID{Id: l.newSnapshot(source.Id)}
	details, err := disks.RetrieveSnapshotDetails(l.ctx, source, snapshot)
	l.must(err)
	if details.Path != l.volume(source.Id).BackingObjectDetails.(*cnstypes.CnsBlockBackingDetails).BackingDiskPath || details.ChangedBlockTrackingId != "" {
		t.Errorf("details %+v", details)
	}
	made := l.finished(disks.CreateDiskFromSnapshot(l.ctx, source, snapshot, "restored", nil, nil, "")).(types.VStorageObject)
	if made.Config.CapacityInMB != 1024 || l.free(l.datastores[0]) != 98*gib || l.exists(made.Config.Id.Id) {
		t.Errorf("disk %+v, or it takes no space, or it is a volume", made.Config)
	}
	content, err := os.Open(filepath.Join(dir, made.Config.Id.Id+".img"))
	l.must(err)
	defer content.Close()
	text := make([]byte, 8)
	if _, err := content.Read(text); err != nil || string(text) != "precious" {
		t.Errorf("content %q, %v", text, err)
	}
	_, err = disks.RetrieveSnapshotDetails(l.ctx, source, types.ID{Id: uuid.NewString()})
	l.wantCallFault(invalid("snapshotId"), nil, err)
	task, err := disks.CreateDiskFromSnapshot(l.ctx, source, types.ID{Id: uuid.NewString()}, "restored", nil, nil, "")
	l.wantVSLMFault(invalid("snapshotId"), task, err)
	task, err = disks.CreateDiskFromSnapshot(l.ctx, types.ID{Id: "nope"}, snapshot, "restored", nil, nil, "")
	l.wantVSLMFault(&types.NotFound{}, task, err)
}

func TestAllThreeAPIsAtOnce(t *testing.T) {
	l := newLab(t, options{})
	global, vim := l.global(), vslm.NewObjectManager(l.vim.Client)
	var group sync.WaitGroup
	for range 8 {
		group.Add(3)
		go func() {
			defer group.Done()
			for range 5 {
				id := l.quickVolume()
				if _, fault := l.manager.deleteVolumes(volumeIDs(id), true); fault != nil {
					t.Error(fault)
				}
			}
		}()
		go func() {
			defer group.Done()
			if _, err := global.List(l.ctx); err != nil {
				t.Error(err)
			}
		}()
		go func() {
			defer group.Done()
			if _, err := vim.List(l.ctx, l.datastores[0]); err != nil {
				t.Error(err)
			}
			task, err := global.CreateDisk(l.ctx, types.VslmCreateSpec{Name: "fcd", CapacityInMB: 1, BackingSpec: &types.VslmCreateSpecDiskFileBackingSpec{
				VslmCreateSpecBackingSpec: types.VslmCreateSpecBackingSpec{Datastore: l.datastores[0]},
			}})
			if err == nil {
				_, err = task.Wait(l.ctx, time.Minute)
			}
			if err != nil {
				t.Error(err)
			}
		}()
	}
	group.Wait()
	all, err := global.List(l.ctx)
	l.must(err)
	if len(all.Id) != 8 {
		t.Errorf("%d disks are left", len(all.Id))
	}
}
