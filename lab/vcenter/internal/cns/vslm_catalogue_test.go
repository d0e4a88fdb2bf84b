package cns

import (
	"testing"
	"time"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"
	vslmmethods "github.com/vmware/govmomi/vslm/methods"
	vslmtypes "github.com/vmware/govmomi/vslm/types"

	"vsphere-drivers.example/lab/vcenter/internal/handclock"
)

// lists tells whether VSLM lists a disk.
func (l *lab) lists(id string) bool {
	l.Helper()
	found, err := l.global().List(l.ctx, vslmtypes.VslmVsoVStorageObjectQuerySpec{QueryField: "id", QueryOperator: "equals", QueryValue: []string{id}})
	l.must(err)
	return len(found.Id) > 0
}

// reads tells whether VSLM finds a disk by its id.
func (l *lab) reads(id string) bool {
	l.Helper()
	_, err := l.global().Retrieve(l.ctx, types.ID{Id: id})
	if err != nil {
		l.wantCallFault(&types.NotFound{}, nil, err)
	}
	return err == nil
}

func (l *lab) wantListed(id string, want bool, when string) {
	l.Helper()
	if got := l.lists(id); got != want {
		l.Errorf("%s: listed is %v", when, got)
	}
}

// static registers a disk with CNS by its id.
func (l *lab) static(id string) (*object.Task, error) {
	spec := l.blockSpec("static", 0)
	spec.BackingObjectDetails = &cnstypes.CnsBlockBackingDetails{BackingDiskId: id}
	return l.create(spec)
}

func clockedLab(t *testing.T, assumptions map[string]any) (*lab, *handclock.Clock) {
	t.Helper()
	clock := handclock.At(time.Now())
	return newLab(t, options{assumptions: assumptions, config: func(c *Config) { c.Clock = clock.Now }}), clock
}

func TestVSLMKnowsDisksOfCNSAtOnceAndThoseOfVim25Late(t *testing.T) {
	l, clock := clockedLab(t, map[string]any{"OutsideLagSeconds": 90})
	volume := l.volumeOn(l.datastores[0])
	l.wantListed(volume, true, "a new volume")

	plain := l.vimDisk("plain")
	if _, err := l.vim25().Retrieve(l.ctx, l.datastores[0], plain); err != nil {
		t.Errorf("vim25 does not have its own disk: %v", err)
	}
	clock.Advance(89 * time.Second)
	l.wantListed(plain, false, "a disk of vim25 after 89 s")
	if l.reads(plain) {
		t.Error("a disk of vim25 can be read after 89 s")
	}
	task, err := l.static(plain)
	l.wantCallFault(&types.NotFound{}, task, err)
	task, err = l.attach(plain, l.vms[0])
	l.wantCallFault(&types.NotFound{}, task, err)
	clock.Advance(time.Second)
	l.wantListed(plain, true, "a disk of vim25 after 90 s")
	l.result(l.static(plain))

	l.succeeds(l.vim25().Delete(l.ctx, l.datastores[0], volume))
	l.wantListed(volume, true, "a disk that vim25 has just deleted")
	if l.reads(volume) {
		t.Error("a deleted disk can be read")
	}
	clock.Advance(90 * time.Second)
	l.wantListed(volume, false, "a disk that vim25 deleted 90 s ago")
	l.result(l.delete(plain))
	l.wantListed(plain, false, "a deleted volume")
}

func TestTheCatalogueMayHaveWhatVim25DoesAtOnce(t *testing.T) {
	l := newLab(t, options{assumptions: map[string]any{"DiskCatalogue": "fresh"}})
	id := l.vimDisk("plain")
	l.wantListed(id, true, "a disk of vim25")
	l.succeeds(l.vim25().Delete(l.ctx, l.datastores[0], id))
	l.wantListed(id, false, "a disk that vim25 deleted")
}

func TestListsOfDisksMayBeLateForCNS(t *testing.T) {
	l, clock := clockedLab(t, map[string]any{"DiskCatalogue": "late list"})
	id := l.newVolume("a")
	l.wantListed(id, false, "a new volume")
	if !l.reads(id) {
		t.Error("a new volume's disk cannot be read by its id")
	}
	l.assume(map[string]any{"DiskCatalogue": "late"})
	other := l.newVolume("b")
	if l.lists(other) || l.reads(other) {
		t.Error("VSLM has the disk of a new volume")
	}
	l.result(l.attach(other, l.vms[0])) // CNS has it
	l.result(l.detach(other, l.vms[0]))
	clock.Advance(catalogueSeconds * time.Second)
	for _, id := range []string{id, other} {
		l.wantListed(id, true, "a volume after some seconds")
	}
	l.result(l.delete(id))
	l.wantListed(id, true, "a volume that was just deleted")
	clock.Advance(catalogueSeconds * time.Second)
	l.wantListed(id, false, "a volume that was deleted some seconds ago")

	l.assume(map[string]any{"StaleSeconds": 300})
	id = l.newVolume("c")
	clock.Advance(299 * time.Second)
	l.wantListed(id, false, "a volume after 299 s")
	clock.Advance(time.Second)
	l.wantListed(id, true, "a volume after 300 s")
}

func TestTheCatalogueCanBeBroughtUpToDate(t *testing.T) {
	l := newLab(t, options{assumptions: map[string]any{"DiskCatalogue": "late"}})
	client, err := vslm.NewClient(l.ctx, l.vim.Client)
	l.must(err)
	sync := func(url string) error {
		_, err := vslmmethods.VslmSyncDatastore(l.ctx, client, &vslmtypes.VslmSyncDatastore{
			This: client.ServiceContent.StorageLifecycleManager, DatastoreUrl: url, FullSync: true,
		})
		return err
	}
	a, b := l.volumeOn(l.datastores[0]), l.volumeOn(l.datastores[1])
	l.must(sync(l.volume(a).DatastoreUrl))
	l.wantListed(a, true, "a volume of the datastore")
	l.wantListed(b, false, "a volume of another datastore")
	l.wantCallFault(&types.NotFound{}, nil, sync("ds:///nope/"))
	l.manager.Sync()
	l.wantListed(b, true, "a volume after a sync of all")
	url := l.volume(a).DatastoreUrl
	l.result(l.delete(a))
	l.wantListed(a, true, "a deleted volume")
	l.must(sync(url))
	l.wantListed(a, false, "a deleted volume after a sync")
}
