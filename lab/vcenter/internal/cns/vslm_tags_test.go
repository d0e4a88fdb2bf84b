package cns

import (
	"os"
	"slices"
	"testing"

	"github.com/vmware/govmomi/vim25/types"
)

// zones is a category of tags, by tag: what has it.
type zones map[string]map[types.ManagedObjectReference]bool

func (z zones) GetTagByCategoryAndName(category, name string) (string, types.BaseMethodFault) {
	if category != "zone" || z[name] == nil {
		return "", &types.NotFound{}
	}
	return name, nil
}

func (z zones) GetTagCategoryAndName(id string) (string, string, types.BaseMethodFault) {
	return "zone", id, nil
}

func (z zones) AttachTag(object types.ManagedObjectReference, id string) types.BaseMethodFault {
	z[id][object] = true
	return nil
}

func (z zones) DetachTag(object types.ManagedObjectReference, id string) types.BaseMethodFault {
	delete(z[id], object)
	return nil
}

func (z zones) AttachedTags(object types.ManagedObjectReference) (ids []string, _ types.BaseMethodFault) {
	for id, objects := range z {
		if objects[object] {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func (z zones) AttachedObjects(id string) (objects []types.ManagedObjectReference, _ types.BaseMethodFault) {
	for object := range z[id] {
		objects = append(objects, object)
	}
	return objects, nil
}

func TestVSLMTagsDisks(t *testing.T) {
	tags := zones{"a": {}, "b": {}}
	l := newLab(t, options{config: func(c *Config) { c.Tags = tags }})
	tags["a"][l.vms[0]] = true
	disks := l.global()
	kept, deleted := types.ID{Id: l.newVolume("kept")}, types.ID{Id: l.newVolume("deleted")}
	l.must(disks.AttachTag(l.ctx, kept, "zone", "a"))
	l.must(disks.AttachTag(l.ctx, kept, "zone", "b"))
	l.must(disks.AttachTag(l.ctx, deleted, "zone", "a"))
	l.must(disks.DetachTag(l.ctx, kept, "zone", "b"))
	l.finished(disks.Delete(l.ctx, deleted))
	found, err := disks.ListAttachedTags(l.ctx, kept)
	l.must(err)
	if !slices.Equal(found, []types.VslmTagEntry{{TagName: "a", ParentCategoryName: "zone"}}) {
		t.Errorf("tags %+v", found)
	}
	tagged, err := disks.ListAttachedObjects(l.ctx, "zone", "a")
	l.must(err)
	if !slices.Equal(tagged, []types.ID{kept}) {
		t.Errorf("disks with the tag: %v; the VM and the deleted disk do not belong there", tagged)
	}
	l.wantCallFault(&types.NotFound{}, nil, disks.AttachTag(l.ctx, deleted, "zone", "a"))
	l.wantCallFault(&types.NotFound{}, nil, disks.DetachTag(l.ctx, deleted, "zone", "a"))
	l.wantCallFault(&types.NotFound{}, nil, disks.AttachTag(l.ctx, kept, "zone", "x"))
	_, err = disks.ListAttachedTags(l.ctx, deleted)
	l.wantCallFault(&types.NotFound{}, nil, err)
	_, err = disks.ListAttachedObjects(l.ctx, "x", "a")
	l.wantCallFault(&types.NotFound{}, nil, err)
}

func TestVSLMReconcilesADatastore(t *testing.T) {
	l := newLab(t, options{})
	disks := l.global()
	kept, gone := types.ID{Id: l.volumeOn(l.datastores[0])}, types.ID{Id: l.volumeOn(l.datastores[0])}
	at, _ := l.manager.datastore(l.datastores[0])
	file, ok := localFile(at.dir, l.fileBacking(gone).FilePath)
	if !ok {
		t.Fatal("the datastore has no files")
	}
	l.must(os.Remove(file))
	task, err := disks.ReconcileDatastoreInventory(l.ctx, l.datastores[1])
	l.finished(task, err)
	if !l.exists(gone.Id) {
		t.Error("another datastore's disk was forgotten")
	}
	l.finished(disks.ReconcileDatastoreInventory(l.ctx, l.datastores[0]))
	if !l.exists(kept.Id) || l.exists(gone.Id) {
		t.Error("the wrong volumes are left")
	}
	_, err = disks.Retrieve(l.ctx, gone)
	l.wantCallFault(&types.NotFound{}, nil, err)
	_, err = disks.ReconcileDatastoreInventory(l.ctx, types.ManagedObjectReference{Type: "Datastore", Value: "x"})
	l.wantCallFault(&types.ManagedObjectNotFound{}, nil, err)
}
