package cns

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"
	vslmmethods "github.com/vmware/govmomi/vslm/methods"
)

func onDatastore(datastore types.ManagedObjectReference) types.VslmMigrateSpec {
	return types.VslmMigrateSpec{BackingSpec: &types.VslmCreateSpecDiskFileBackingSpec{
		VslmCreateSpecBackingSpec: types.VslmCreateSpecBackingSpec{Datastore: datastore},
	}}
}

// fileBacking reads how VSLM describes a disk's file.
func (l *lab) fileBacking(id types.ID) *types.BaseConfigInfoDiskFileBackingInfo {
	l.Helper()
	seen, err := l.global().Retrieve(l.ctx, id)
	l.must(err)
	return seen.Config.Backing.(*types.BaseConfigInfoDiskFileBackingInfo)
}

func TestVSLMInflatesThinDisks(t *testing.T) {
	l := newLab(t, options{assumptions: map[string]any{"ThinTakesFullSize": false}})
	disks := l.global()
	id := types.ID{Id: l.volumeOn(l.datastores[0])}
	l.result(l.attach(id.Id, l.vms[0]))
	if got := l.fileBacking(id).ProvisioningType; got != "thin" || l.manager.mustDatastore(l.datastores[0]).free != 100*gib {
		t.Errorf("a new disk is %s, or takes space", got)
	}
	l.finished(disks.InflateDisk(l.ctx, id))
	l.finished(disks.InflateDisk(l.ctx, id))
	if got := l.fileBacking(id).ProvisioningType; got != "eagerZeroedThick" || l.free(l.datastores[0]) != 99*gib {
		t.Errorf("the inflated disk is %s, free are %d", got, l.free(l.datastores[0]))
	}
	if *l.diskOf(l.vms[0], id.Id).Backing.(*types.VirtualDiskFlatVer2BackingInfo).ThinProvisioned {
		t.Error("the VM's device is thin")
	}
	l.finished(disks.ExtendDisk(l.ctx, id, 2048))
	if l.free(l.datastores[0]) != 98*gib {
		t.Error("a thick disk grew without space")
	}
	l.result(l.detach(id.Id, l.vms[0]))
	l.finished(disks.Delete(l.ctx, id))
	if l.free(l.datastores[0]) != 100*gib {
		t.Error("the space was not given back")
	}

	spec := l.blockSpec("big", 60*1024)
	spec.Datastores = l.datastores[:1]
	first := types.ID{Id: l.result(l.create(spec)).GetCnsVolumeOperationResult().VolumeId.Id}
	second := types.ID{Id: l.result(l.create(spec)).GetCnsVolumeOperationResult().VolumeId.Id}
	l.finished(disks.InflateDisk(l.ctx, first))
	task, err := disks.InflateDisk(l.ctx, second)
	l.wantVSLMFault(&types.NoDiskSpace{}, task, err)
	if l.fileBacking(second).ProvisioningType != "thin" || l.free(l.datastores[0]) != 40*gib {
		t.Error("a failed inflate left a trace")
	}
	l.newSnapshot(second.Id)
	task, err = disks.InflateDisk(l.ctx, second)
	l.wantVSLMFault(&types.InvalidState{}, task, err)
	task, err = disks.InflateDisk(l.ctx, types.ID{Id: "nope"})
	l.wantVSLMFault(&types.NotFound{}, task, err)
}

func TestVSLMClonesDisksWithTheirContent(t *testing.T) {
	l, dir, _ := contentLab(t, false, nil)
	disks := l.global()
	source := types.ID{Id: l.volumeOn(l.datastores[0])}
	l.must(os.WriteFile(filepath.Join(dir, source.Id+".img"), []byte("precious"), 0o600))
	spec := types.VslmCloneSpec{
		VslmMigrateSpec: onDatastore(l.datastores[1]), Name: "copy", KeepAfterDeleteVm: types.NewBool(true),
		Metadata: []types.KeyValue{{Key: "from", Value: source.Id}},
	}
	made := l.finished(disks.Clone(l.ctx, source, spec)).(types.VStorageObject)
	id := made.Config.Id
	if id == source || made.Config.Name != "copy" || made.Config.CapacityInMB != 1024 || !*made.Config.KeepAfterDeleteVm || l.exists(id.Id) {
		t.Errorf("clone %+v", made.Config)
	}
	if l.free(l.datastores[0]) != 99*gib || l.free(l.datastores[1]) != 99*gib || l.fileBacking(id).Datastore != l.datastores[1] {
		t.Error("the clone takes no space, or is elsewhere")
	}
	content, err := os.Open(filepath.Join(dir, id.Id+".img"))
	l.must(err)
	defer content.Close()
	text := make([]byte, 8)
	if _, err := content.Read(text); err != nil || string(text) != "precious" {
		t.Errorf("content %q, %v", text, err)
	}
	if info, err := content.Stat(); err != nil || info.Size() != gib {
		t.Errorf("content %+v, %v", info, err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
		t.Errorf("content of %v, %v", files, err)
	}
	if pairs, err := disks.RetrieveMetadata(l.ctx, id, nil, ""); err != nil || len(pairs) != 1 || pairs[0].Value != source.Id {
		t.Errorf("metadata %v, %v", pairs, err)
	}
	if snapshots, err := disks.RetrieveSnapshotInfo(l.ctx, source); err != nil || len(snapshots) != 0 {
		t.Errorf("the source has snapshots: %v, %v", snapshots, err)
	}
	l.finished(disks.Delete(l.ctx, source))
	l.finished(disks.AttachDisk(l.ctx, id, l.vms[0], 0, nil))

	spec.Name = ""
	task, err := disks.Clone(l.ctx, id, spec)
	l.wantVSLMFault(invalid("name"), task, err)
	task, err = disks.Clone(l.ctx, source, spec)
	l.wantVSLMFault(&types.NotFound{}, task, err)
	spec.Name, spec.VslmMigrateSpec = "lost", onDatastore(types.ManagedObjectReference{Type: "Datastore", Value: "x"})
	task, err = disks.Clone(l.ctx, id, spec)
	l.wantVSLMFault(&types.ManagedObjectNotFound{}, task, err)
}

func TestVSLMRelocatesDisks(t *testing.T) {
	l := newLab(t, options{})
	disks := l.global()
	id := types.ID{Id: l.volumeOn(l.datastores[0])}
	move := func(to types.ManagedObjectReference) (*vslm.Task, error) {
		return disks.Relocate(l.ctx, id, types.VslmRelocateSpec{VslmMigrateSpec: onDatastore(to)})
	}
	moved := l.finished(move(l.datastores[1])).(types.VStorageObject)
	path := moved.Config.Backing.(*types.BaseConfigInfoDiskFileBackingInfo).FilePath
	l.manager.Sync()
	if details := l.volume(id.Id).BackingObjectDetails.(*cnstypes.CnsBlockBackingDetails); details.BackingDiskPath != path {
		t.Errorf("the volume is at %s, the disk at %s", details.BackingDiskPath, path)
	}
	if l.free(l.datastores[0]) != 100*gib || l.free(l.datastores[1]) != 99*gib {
		t.Error("the space did not move")
	}
	task, err := move(l.datastores[1])
	l.wantVSLMFault(&types.AlreadyExists{}, task, err)

	l.result(l.attach(id.Id, l.vms[0]))
	l.assume(map[string]any{"RelocateAttached": false})
	task, err = move(l.datastores[2])
	l.wantVSLMFault(&types.ResourceInUse{}, task, err)
	l.assume(map[string]any{"RelocateAttached": true})
	l.finished(move(l.datastores[2]))
	if got := backingFile(l.diskOf(l.vms[0], id.Id)); got != l.fileBacking(id).FilePath {
		t.Errorf("the VM has %s", got)
	}
	l.result(l.detach(id.Id, l.vms[0]))
	l.newSnapshot(id.Id)
	task, err = move(l.datastores[0])
	l.wantVSLMFault(&types.InvalidState{}, task, err)
}

// policyUpdate is the request as a client with the whole type sends it; govmomi's loses the policy's id.
type policyUpdate struct {
	Req *VslmUpdateVstorageObjectPolicy `xml:"urn:vslm VslmUpdateVstorageObjectPolicy_Task,omitempty"`
}

func (*policyUpdate) Fault() *soap.Fault { return nil }

func TestVSLMChangesStoragePolicies(t *testing.T) {
	table := policies{}
	l := newLab(t, options{config: func(c *Config) { c.Policies = table }})
	table["gold"], table["none"] = l.datastores[:1], nil
	disks := l.global()
	client, err := vslm.NewClient(l.ctx, l.vim.Client)
	l.must(err)
	change := func(id types.ID, policies ...string) (*vslm.Task, error) {
		request := policyUpdate{Req: &VslmUpdateVstorageObjectPolicy{This: disks.Reference(), Id: id}}
		for _, policy := range policies {
			request.Req.Profile = append(request.Req.Profile, &types.VirtualMachineDefinedProfileSpec{ProfileId: policy})
		}
		answer := &vslmmethods.VslmUpdateVstorageObjectPolicy_TaskBody{}
		if err := client.RoundTrip(l.ctx, &request, answer); err != nil {
			return nil, err
		}
		return vslm.NewTask(client, answer.Res.Returnval), nil
	}
	volume := types.ID{Id: l.volumeOn(l.datastores[0])}
	l.finished(change(volume, "gold"))
	l.manager.Sync()
	if got := l.volume(volume.Id).StoragePolicyId; got != "gold" {
		t.Errorf("the volume's policy is %s", got)
	}
	task, err := change(volume, "none")
	l.wantVSLMFault(&cnstypes.CnsFault{Reason: "does not satisfy"}, task, err)
	task, err = change(volume, "unknown")
	l.wantVSLMFault(invalid("profileId"), task, err)
	task, err = change(types.ID{Id: "nope"}, "gold")
	l.wantVSLMFault(&types.NotFound{}, task, err)
	task, err = disks.UpdatePolicy(l.ctx, volume, nil)
	l.wantVSLMFault(invalid("profile"), task, err)

	spec := types.VslmCreateSpec{Name: "fcd", CapacityInMB: 1024, BackingSpec: onDatastore(l.datastores[0]).BackingSpec}
	plain := l.finished(disks.CreateDisk(l.ctx, spec)).(types.VStorageObject).Config.Id
	l.finished(change(plain, "gold"))
	task, err = disks.Relocate(l.ctx, plain, types.VslmRelocateSpec{VslmMigrateSpec: onDatastore(l.datastores[1])})
	l.wantVSLMFault(&cnstypes.CnsFault{Reason: "does not satisfy"}, task, err)
}

func TestVSLMTellsChangedAreas(t *testing.T) {
	l := newLab(t, options{})
	disks := l.global()
	id := types.ID{Id: l.volumeOn(l.datastores[0])}
	l.must(disks.SetControlFlags(l.ctx, id, []string{"enableChangedBlockTracking"}))
	first, second := types.ID{Id: l.newSnapshot(id.Id)}, types.ID{Id: l.newSnapshot(id.Id)}
	details, err := disks.RetrieveSnapshotDetails(l.ctx, id, first)
	l.must(err)
	for name, c := range map[string]struct {
		snapshot types.ID
		start    int64
		since    string
		areas    []types.DiskChangeExtent
	}{
		"all of a snapshot":       {first, 0, "*", []types.DiskChangeExtent{{Start: 0, Length: gib}}},
		"the rest of it":          {first, 4096, "*", []types.DiskChangeExtent{{Start: 4096, Length: gib - 4096}}},
		"since another snapshot":  {second, 0, details.ChangedBlockTrackingId, []types.DiskChangeExtent{{Start: 0, Length: gib}}},
		"since the same snapshot": {first, 0, details.ChangedBlockTrackingId, nil},
	} {
		got, err := disks.QueryChangedDiskAreas(l.ctx, id, c.snapshot, c.start, c.since)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got.StartOffset != c.start || got.Length != gib-c.start || len(got.ChangedArea) != len(c.areas) || len(c.areas) == 1 && got.ChangedArea[0] != c.areas[0] {
			t.Errorf("%s: %+v", name, got)
		}
	}
	_, err = disks.QueryChangedDiskAreas(l.ctx, id, types.ID{Id: uuid.NewString()}, 0, "*")
	l.wantCallFault(invalid("snapshotId"), nil, err)
	_, err = disks.QueryChangedDiskAreas(l.ctx, types.ID{Id: "nope"}, first, 0, "*")
	l.wantCallFault(&types.NotFound{}, nil, err)
	_, err = disks.QueryChangedDiskAreas(l.ctx, id, first, gib, "*")
	l.wantCallFault(invalid("startOffset"), nil, err)
	_, err = disks.QueryChangedDiskAreas(l.ctx, id, first, 0, "nope")
	l.wantCallFault(invalid("changeId"), nil, err)
}

// wantTrackingFault expects a call for changed blocks to fail because they were not tracked.
func (l *lab) wantTrackingFault(key string, err error) {
	l.Helper()
	l.wantCallFault(&types.FileFault{}, nil, err)
	fault := soap.ToSoapFault(err).VimFault().(types.FileFault)
	if len(fault.FaultMessage) != 1 || fault.FaultMessage[0].Key != "vim.hostd.vmsvc.cbt."+key {
		l.Errorf("messages %+v, want %s", fault.FaultMessage, key)
	}
}

func TestVSLMTellsWhyChangesAreNotKnown(t *testing.T) {
	l := newLab(t, options{})
	disks := l.global()
	id := types.ID{Id: l.newVolume("a")}
	track := func(on bool) { l.must(l.manager.SetTracking(id.Id, on)) }
	snapshot := func() (types.ID, string) {
		made := types.ID{Id: l.newSnapshot(id.Id)}
		details, err := disks.RetrieveSnapshotDetails(l.ctx, id, made)
		l.must(err)
		return made, details.ChangedBlockTrackingId
	}
	track(true)
	_, old := snapshot()
	track(false)
	untracked, none := snapshot()
	if none != "" {
		t.Errorf("a snapshot without tracking has the change id %s", none)
	}
	_, err := disks.QueryChangedDiskAreas(l.ctx, id, untracked, 0, old)
	l.wantTrackingFault("noTrack", err)
	track(true)
	anew, first := snapshot()
	_, err = disks.QueryChangedDiskAreas(l.ctx, id, anew, 0, old)
	l.wantTrackingFault("noEpoch", err)
	later, lastID := snapshot()
	_, err = disks.QueryChangedDiskAreas(l.ctx, id, later, 0, first)
	l.must(err)
	_, err = disks.QueryChangedDiskAreas(l.ctx, id, anew, 0, lastID)
	l.wantTrackingFault("cannotGetChanges", err)
}
