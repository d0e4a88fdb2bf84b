package cns

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm/methods"
	vslmtypes "github.com/vmware/govmomi/vslm/types"
)

// Tags keeps the tags of all objects; package rest has it. The names of its methods are those that govmomi's simulator
// uses for the same.
type Tags interface {
	GetTagByCategoryAndName(category, name string) (id string, fault types.BaseMethodFault)
	GetTagCategoryAndName(id string) (category, name string, fault types.BaseMethodFault)
	AttachTag(object types.ManagedObjectReference, id string) types.BaseMethodFault
	DetachTag(object types.ManagedObjectReference, id string) types.BaseMethodFault
	AttachedTags(object types.ManagedObjectReference) (ids []string, fault types.BaseMethodFault)
	AttachedObjects(id string) ([]types.ManagedObjectReference, types.BaseMethodFault)
}

// taggable is an FCD as tagging knows it, by the name that vim25's calls use too.
func taggable(id types.ID) types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: "fcd", Value: id.Id}
}

// tagged finds a disk and a tag.
func (s *fcdManager) tagged(id types.ID, category, name string) (tag string, fault types.BaseMethodFault) {
	switch {
	case s.m.tags == nil:
		return "", &types.NotSupported{}
	case s.m.known(id) == nil:
		return "", &types.NotFound{}
	}
	return s.m.tags.GetTagByCategoryAndName(category, name)
}

// VslmAttachTagToVStorageObject puts a tag on an FCD.
func (s *fcdManager) VslmAttachTagToVStorageObject(_ *simulator.Context, req *vslmtypes.VslmAttachTagToVStorageObject) soap.HasFault {
	tag, fault := s.tagged(req.Id, req.Category, req.Tag)
	if fault == nil {
		fault = s.m.tags.AttachTag(taggable(req.Id), tag)
	}
	if fault != nil {
		return refuse(fault)
	}
	return &methods.VslmAttachTagToVStorageObjectBody{Res: &vslmtypes.VslmAttachTagToVStorageObjectResponse{}}
}

// VslmDetachTagFromVStorageObject takes a tag off an FCD.
func (s *fcdManager) VslmDetachTagFromVStorageObject(_ *simulator.Context, req *vslmtypes.VslmDetachTagFromVStorageObject) soap.HasFault {
	tag, fault := s.tagged(req.Id, req.Category, req.Tag)
	if fault == nil {
		fault = s.m.tags.DetachTag(taggable(req.Id), tag)
	}
	if fault != nil {
		return refuse(fault)
	}
	return &methods.VslmDetachTagFromVStorageObjectBody{Res: &vslmtypes.VslmDetachTagFromVStorageObjectResponse{}}
}

// VslmListTagsAttachedToVStorageObject lists an FCD's tags.
func (s *fcdManager) VslmListTagsAttachedToVStorageObject(_ *simulator.Context, req *vslmtypes.VslmListTagsAttachedToVStorageObject) soap.HasFault {
	switch {
	case s.m.tags == nil:
		return refuse(&types.NotSupported{})
	case s.m.known(req.Id) == nil:
		return refuse(&types.NotFound{})
	}
	ids, fault := s.m.tags.AttachedTags(taggable(req.Id))
	if fault != nil {
		return refuse(fault)
	}
	response := &vslmtypes.VslmListTagsAttachedToVStorageObjectResponse{}
	for _, id := range ids {
		if category, name, fault := s.m.tags.GetTagCategoryAndName(id); fault == nil { // else it has just been deleted
			response.Returnval = append(response.Returnval, types.VslmTagEntry{TagName: name, ParentCategoryName: category})
		}
	}
	return &methods.VslmListTagsAttachedToVStorageObjectBody{Res: response}
}

// VslmListVStorageObjectsAttachedToTag lists the FCDs with a tag. Deleted disks and objects of other kinds are left out.
func (s *fcdManager) VslmListVStorageObjectsAttachedToTag(_ *simulator.Context, req *vslmtypes.VslmListVStorageObjectsAttachedToTag) soap.HasFault {
	if s.m.tags == nil {
		return refuse(&types.NotSupported{})
	}
	tag, fault := s.m.tags.GetTagByCategoryAndName(req.Category, req.Tag)
	if fault != nil {
		return refuse(fault)
	}
	objects, fault := s.m.tags.AttachedObjects(tag)
	if fault != nil {
		return refuse(fault)
	}
	slices.SortFunc(objects, compareRefs)
	response := &vslmtypes.VslmListVStorageObjectsAttachedToTagResponse{}
	for _, object := range objects {
		id := types.ID{Id: object.Value}
		if object == taggable(id) && s.m.known(id) != nil {
			response.Returnval = append(response.Returnval, id)
		}
	}
	return &methods.VslmListVStorageObjectsAttachedToTagBody{Res: response}
}

// VslmReconcileDatastoreInventoryTask forgets the FCDs of a datastore whose files are gone, and the volumes they were.
func (s *fcdManager) VslmReconcileDatastoreInventoryTask(ctx *simulator.Context, req *vslmtypes.VslmReconcileDatastoreInventory_Task) soap.HasFault {
	if _, ok := s.m.datastore(req.Datastore); !ok {
		return refuse(&types.ManagedObjectNotFound{Obj: req.Datastore})
	}
	task := s.task(ctx, "VslmReconcileDatastoreInventory_Task", func() (types.AnyType, types.BaseMethodFault) {
		for _, object := range s.m.objects() {
			if adopt(&object).datastore != req.Datastore {
				continue
			}
			unlock := s.m.volumeOps.lock(object.Config.Id.Id)
			if live, _ := s.m.fcd(object.Config.Id.Id); live != nil {
				s.m.reconcileDisk(live)
			}
			unlock()
		}
		return nil, nil
	})
	return &methods.VslmReconcileDatastoreInventory_TaskBody{Res: &vslmtypes.VslmReconcileDatastoreInventory_TaskResponse{Returnval: task}}
}
