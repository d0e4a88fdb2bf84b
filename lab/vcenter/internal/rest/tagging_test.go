package rest

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// zone makes a category for virtual machines with two tags.
func zone(t *testing.T, l *lab, cardinality string) (m *tags.Manager, category, a, b string) {
	t.Helper()
	m = l.tags(adminName, adminPass)
	category, err := m.CreateCategory(l.ctx, &tags.Category{Name: "k8s-zone", Cardinality: cardinality, AssociableTypes: []string{"VirtualMachine"}})
	if err != nil {
		t.Fatal(err)
	}
	if a, err = m.CreateTag(l.ctx, &tags.Tag{Name: "zone-a", CategoryID: category}); err != nil {
		t.Fatal(err)
	}
	if b, err = m.CreateTag(l.ctx, &tags.Tag{Name: "zone-b", CategoryID: category}); err != nil {
		t.Fatal(err)
	}
	return m, category, a, b
}

func TestTagsManagerWorksOnRest(t *testing.T) {
	l := start(t, "8.0U3")
	m, category, a, b := zone(t, l, "MULTIPLE")
	vm := l.vms[0]
	if err := m.AttachTag(l.ctx, a, vm); err != nil {
		t.Fatal(err)
	}
	if err := m.AttachMultipleTagsToObject(l.ctx, []string{a, b}, vm); err != nil {
		t.Fatal(err)
	}
	if found, err := m.GetAttachedTags(l.ctx, vm); err != nil || len(found) != 2 {
		t.Errorf("%v, %v", found, err)
	}
	batch, err := m.GetAttachedTagsOnObjects(l.ctx, []mo.Reference{vm, l.vms[1]})
	if err != nil || len(batch) != 2 || len(batch[0].Tags) != 2 || len(batch[1].Tags) != 0 {
		t.Errorf("%+v, %v", batch, err)
	}
	objects, err := m.ListAttachedObjectsOnTags(l.ctx, []string{a, b})
	if err != nil || len(objects) != 2 || len(objects[0].ObjectIDs) != 1 || objects[0].ObjectIDs[0].Reference() != vm {
		t.Errorf("%+v, %v", objects, err)
	}
	if err := m.DetachTag(l.ctx, a, vm); err != nil {
		t.Fatal(err)
	}
	if left, err := m.ListAttachedObjects(l.ctx, a); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
	if listed, err := m.ListTagsForCategory(l.ctx, category); err != nil || len(listed) != 2 {
		t.Errorf("%v, %v", listed, err)
	}
	if err := m.UpdateCategory(l.ctx, &tags.Category{ID: category, Name: "zone", AssociableTypes: []string{"VirtualMachine", "HostSystem"}}); err != nil {
		t.Error(err)
	}
	if got, err := m.GetCategory(l.ctx, "zone"); err != nil || len(got.AssociableTypes) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := m.UpdateTag(l.ctx, &tags.Tag{ID: a, Name: "zone-1"}); err != nil {
		t.Error(err)
	}
	if err := m.DeleteCategory(l.ctx, &tags.Category{ID: category}); err != nil {
		t.Error(err)
	}
	if left, err := m.ListTags(l.ctx); err != nil || len(left) != 0 {
		t.Errorf("tags of the deleted category: %v, %v", left, err)
	}
}

func TestBothPathsShareOneState(t *testing.T) {
	l := start(t, "8.0U3")
	m, category, a, _ := zone(t, l, "MULTIPLE")
	session := l.api(adminName, adminPass)
	var ids []string
	if status := session.do(http.MethodGet, "/api/cis/tagging/category", nil, &ids); status != http.StatusOK || len(ids) != 1 || ids[0] != category {
		t.Errorf("%d %v", status, ids)
	}
	var got Category
	if status := session.do(http.MethodGet, "/api/cis/tagging/category/"+category, nil, &got); status != http.StatusOK || got.Name != "k8s-zone" {
		t.Errorf("%d %+v", status, got)
	}
	object := objectID{ID: l.vms[0].Value, Type: l.vms[0].Type}
	if status := session.do(http.MethodPost, "/api/cis/tagging/tag-association/"+a+"?action=attach", map[string]any{"object_id": object}, nil); status != http.StatusNoContent {
		t.Errorf("attach: %d", status)
	}
	if found, err := m.ListAttachedTags(l.ctx, l.vms[0]); err != nil || len(found) != 1 || found[0] != a {
		t.Errorf("%v, %v", found, err)
	}
}

func TestATagIsNamedInThePathOrInTheBody(t *testing.T) {
	l := start(t, "6.7U3")
	m, _, a, _ := zone(t, l, "MULTIPLE")
	object := objectID{ID: l.vms[0].Value, Type: l.vms[0].Type}
	request := l.rest(adminName, adminPass)
	const path = "/rest/com/vmware/cis/tagging/tag-association?~action="
	if status := request.do(http.MethodPost, path+"attach", map[string]any{"tag_id": a, "object_id": object}, nil); status != http.StatusOK {
		t.Errorf("attach: %d", status)
	}
	if found, err := m.ListAttachedTags(l.ctx, l.vms[0]); err != nil || len(found) != 1 || found[0] != a {
		t.Errorf("%v, %v", found, err)
	}
	var answer struct{ Value []objectID }
	if status := request.do(http.MethodPost, path+"list-attached-objects", map[string]any{"tag_id": a}, &answer); status != http.StatusOK || len(answer.Value) != 1 {
		t.Errorf("list: %d %v", status, answer)
	}
}

func TestAPIAnswersBareJSON(t *testing.T) {
	l := start(t, "8.0U3")
	s := l.api(adminName, adminPass)
	var category, tag string
	spec := map[string]any{"name": "c", "description": "", "cardinality": "SINGLE", "associable_types": []string{}}
	if status := s.do(http.MethodPost, "/api/cis/tagging/category", spec, &category); status != http.StatusCreated {
		t.Fatal(status)
	}
	if status := s.do(http.MethodPost, "/api/cis/tagging/tag", map[string]any{"name": "t", "description": "", "category_id": category}, &tag); status != http.StatusCreated {
		t.Fatal(status)
	}
	var ids []string
	if s.do(http.MethodPost, "/api/cis/tagging/tag?action=list-tags-for-category", map[string]string{"category_id": category}, &ids); len(ids) != 1 {
		t.Errorf("tags of the category: %v", ids)
	}
	object := objectID{ID: l.vms[0].Value, Type: l.vms[0].Type}
	s.do(http.MethodPost, "/api/cis/tagging/tag-association/"+tag+"?action=attach", map[string]any{"object_id": object}, nil)
	if s.do(http.MethodPost, "/api/cis/tagging/tag-association?action=list-attached-tags", map[string]any{"object_id": object}, &ids); len(ids) != 1 {
		t.Errorf("tags of the object: %v", ids)
	}
	var objects []objectID
	if s.do(http.MethodPost, "/api/cis/tagging/tag-association/"+tag+"?action=list-attached-objects", nil, &objects); len(objects) != 1 || objects[0] != object {
		t.Errorf("objects of the tag: %v", objects)
	}
	var onObjects []struct {
		ObjectID objectID `json:"object_id"`
		TagIDs   []string `json:"tag_ids"`
	}
	if s.do(http.MethodPost, "/api/cis/tagging/tag-association?action=list-attached-tags-on-objects", map[string]any{"object_ids": []objectID{object}}, &onObjects); len(onObjects) != 1 || len(onObjects[0].TagIDs) != 1 {
		t.Errorf("batch by object: %+v", onObjects)
	}
	var onTags []struct {
		TagID     string     `json:"tag_id"`
		ObjectIDs []objectID `json:"object_ids"`
	}
	if s.do(http.MethodPost, "/api/cis/tagging/tag-association?action=list-attached-objects-on-tags", map[string]any{"tag_ids": []string{tag}}, &onTags); len(onTags) != 1 || len(onTags[0].ObjectIDs) != 1 {
		t.Errorf("batch by tag: %+v", onTags)
	}
	if status := s.do(http.MethodPatch, "/api/cis/tagging/tag/"+tag, map[string]string{"name": "u"}, nil); status != http.StatusNoContent {
		t.Errorf("rename: %d", status)
	}
	if status := s.do(http.MethodPost, "/api/cis/tagging/tag-association/"+tag+"?action=detach", map[string]any{"object_id": object}, nil); status != http.StatusNoContent {
		t.Errorf("detach: %d", status)
	}
	for _, path := range []string{"/api/cis/tagging/tag/" + tag, "/api/cis/tagging/category/" + category} {
		if status := s.do(http.MethodDelete, path, nil, nil); status != http.StatusNoContent {
			t.Errorf("delete %s: %d", path, status)
		}
	}
	var left []string
	if s.do(http.MethodGet, "/api/cis/tagging/tag", nil, &left); left == nil || len(left) != 0 {
		t.Errorf("an empty list must be [] in JSON: %v", left)
	}
}

func TestCardinalityAndTypesAreEnforced(t *testing.T) {
	l := start(t, "8.0U3")
	m, _, a, b := zone(t, l, "SINGLE")
	if err := m.AttachTag(l.ctx, a, l.vms[0]); err != nil {
		t.Fatal(err)
	}
	if err := m.AttachTag(l.ctx, a, l.vms[0]); err != nil {
		t.Errorf("the same tag again: %v", err)
	}
	if err := m.AttachTag(l.ctx, b, l.vms[0]); err == nil || !strings.Contains(err.Error(), "invalid_argument") {
		t.Errorf("a second tag of a single category: %v", err)
	}
	if err := m.AttachTag(l.ctx, a, l.service.cfg.Access.Root()); err == nil || !strings.Contains(err.Error(), "invalid_argument") {
		t.Errorf("a folder in a category of virtual machines: %v", err)
	}
}

func TestBadTaggingRequestsAreRefused(t *testing.T) {
	l := start(t, "8.0U3")
	m, category, a, _ := zone(t, l, "SINGLE")
	if _, err := m.CreateCategory(l.ctx, &tags.Category{Name: "K8S-ZONE", Cardinality: "SINGLE"}); err == nil || !strings.Contains(err.Error(), "already_exists") {
		t.Errorf("same name: %v", err)
	}
	if _, err := m.CreateTag(l.ctx, &tags.Tag{Name: "x", CategoryID: "urn:vmomi:InventoryServiceCategory:gone:GLOBAL"}); err == nil {
		t.Error("tag of an unknown category is accepted")
	}
	gone := types.ManagedObjectReference{Type: "VirtualMachine", Value: "vm-gone"}
	if err := m.AttachTag(l.ctx, a, gone); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("unknown object: %v", err)
	}
	s := l.api(adminName, adminPass)
	for path, body := range map[string]string{
		"/api/cis/tagging/category":                                                          `{"name":"x"}`,
		"/api/cis/tagging/tag":                                                               `{"name":"x","description":"","category_id":"` + category + `","colour":"red"}`,
		"/api/cis/tagging/tag-association/" + a + "?action=attach":                           `{}`,
		"/api/cis/tagging/tag-association?action=list-attached-tags":                         `{}`,
		"/api/cis/tagging/tag-association?action=list-attached-tags-on-objects":              `[]`,
		"/rest/com/vmware/cis/tagging/category":                                              `{"name":"x"}`,
		"/rest/com/vmware/cis/tagging/tag-association?~action=list-attached-objects-on-tags": `not json`,
	} {
		if status := s.do(http.MethodPost, path, body, nil); status != http.StatusBadRequest {
			t.Errorf("%s with %s: %d", path, body, status)
		}
	}
	if status := s.do(http.MethodGet, "/api/cis/tagging/tag/urn:none", nil, nil); status != http.StatusNotFound {
		t.Errorf("unknown tag: %d", status)
	}
}

func TestTagsAreReadableOnReadableObjectsOnly(t *testing.T) {
	l := start(t, "8.0U3")
	m, _, a, _ := zone(t, l, "SINGLE")
	for _, vm := range l.vms {
		if err := m.AttachTag(l.ctx, a, vm); err != nil {
			t.Fatal(err)
		}
	}
	user := l.tags(userName, userPass)
	if found, err := user.ListAttachedTags(l.ctx, l.vms[0]); err != nil || len(found) != 1 {
		t.Errorf("readable: %v, %v", found, err)
	}
	if _, err := user.ListAttachedTags(l.ctx, l.vms[1]); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("not readable: %v", err)
	}
	if objects, err := user.ListAttachedObjects(l.ctx, a); err != nil || len(objects) != 1 {
		t.Errorf("objects of the tag: %v, %v", objects, err)
	}
	if err := user.AttachTag(l.ctx, a, l.vms[0]); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("attach without the privilege: %v", err)
	}
	if _, err := user.CreateCategory(l.ctx, &tags.Category{Name: "mine", Cardinality: "SINGLE"}); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("create without the privilege: %v", err)
	}
}

func TestTagsCanBeSetFromADescription(t *testing.T) {
	l := start(t, "8.0U3")
	category, err := l.service.CreateCategory(Category{Name: "tier", Cardinality: "SINGLE"})
	if err != nil {
		t.Fatal(err)
	}
	tag, err := l.service.CreateTag(Tag{Name: "fast", CategoryID: category})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.service.Attach(tag, l.vms[0]); err != nil {
		t.Fatal(err)
	}
	if names := l.service.Of(l.vms[0]); len(names) != 1 || names[0] != (Named{"tier", "fast"}) {
		t.Errorf("%v", names)
	}
	if id, ok := l.service.Find("tier", "fast"); !ok || id != tag {
		t.Errorf("%s %v", id, ok)
	}
}

func TestReconfigurationOfAVirtualMachineSetsTheSameTags(t *testing.T) {
	l := start(t, "8.0U3")
	_, _, tag, _ := zone(t, l, "SINGLE")
	vc := l.soap()
	if err := session.NewManager(vc).Login(l.ctx, url.UserPassword(adminName, adminPass)); err != nil {
		t.Fatal(err)
	}
	task, err := object.NewVirtualMachine(vc, l.vms[0]).Reconfigure(l.ctx, types.VirtualMachineConfigSpec{TagSpecs: []types.TagSpec{{
		ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationAdd}, Id: types.TagId{Uuid: tag},
	}}})
	if err == nil {
		err = task.Wait(l.ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	if names := l.service.Of(l.vms[0]); len(names) != 1 || names[0].Tag != "zone-a" {
		t.Errorf("%v", names)
	}
}
