package rest

import (
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// Category groups tags: how many of them an object may have, and on what kinds of objects they go.
type Category struct {
	ID              string   `json:"id"`
	Name            string   `json:"name"`
	Description     string   `json:"description"`
	Cardinality     string   `json:"cardinality"` // SINGLE or MULTIPLE
	AssociableTypes []string `json:"associable_types"`
	UsedBy          []string `json:"used_by"`
}

// Tag is one value of a category.
type Tag struct {
	ID          string   `json:"id"`
	CategoryID  string   `json:"category_id"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	UsedBy      []string `json:"used_by"`
}

// Tags is the state of tagging. Its methods serve the REST paths, descriptions and control alike, and all are safe for
// concurrent use. The upper-case methods at the end are the ones govmomi's simulator looks for.
type Tags struct {
	vim *simulator.Registry

	mu         sync.RWMutex
	categories map[string]*Category
	tags       map[string]*Tag
	attached   map[string]map[types.ManagedObjectReference]bool // by tag id
}

func newTags(vim *simulator.Registry) *Tags {
	return &Tags{
		vim: vim, categories: map[string]*Category{}, tags: map[string]*Tag{},
		attached: map[string]map[types.ManagedObjectReference]bool{},
	}
}

const (
	single   = "SINGLE"
	multiple = "MULTIPLE"
)

func newID(kind string) string {
	return "urn:vmomi:InventoryService" + kind + ":" + uuid.NewString() + ":GLOBAL"
}

// CreateCategory adds a category; an empty id is generated.
func (t *Tags) CreateCategory(c Category) (string, error) {
	switch {
	case c.Name == "":
		return "", invalid("Category name is empty")
	case c.Cardinality != single && c.Cardinality != multiple:
		return "", invalid("Cardinality %q is neither SINGLE nor MULTIPLE", c.Cardinality)
	case c.ID != "" && !strings.HasPrefix(c.ID, "urn:vmomi:InventoryServiceCategory:"):
		return "", invalid("%s is no category id", c.ID)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, known := range t.categories {
		if strings.EqualFold(known.Name, c.Name) || known.ID == c.ID {
			return "", refuse("already_exists", "cis.tagging.categoryAlreadyExists.error", "Category %s already exists", c.Name)
		}
	}
	if c.ID == "" {
		c.ID = newID("Category")
	}
	c.AssociableTypes, c.UsedBy = list(c.AssociableTypes), list(c.UsedBy)
	t.categories[c.ID] = &c
	return c.ID, nil
}

// list makes an empty list of none, which JSON writes as [].
func list(values []string) []string {
	return append([]string{}, values...)
}

// CreateTag adds a tag to a category; an empty id is generated.
func (t *Tags) CreateTag(tag Tag) (string, error) {
	switch {
	case tag.Name == "":
		return "", invalid("Tag name is empty")
	case tag.ID != "" && !strings.HasPrefix(tag.ID, "urn:vmomi:InventoryServiceTag:"):
		return "", invalid("%s is no tag id", tag.ID)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.categories[tag.CategoryID] == nil {
		return "", notFound("category", tag.CategoryID)
	}
	for _, known := range t.tags {
		if known.CategoryID == tag.CategoryID && strings.EqualFold(known.Name, tag.Name) || known.ID == tag.ID {
			return "", refuse("already_exists", "cis.tagging.tagAlreadyExists.error", "Tag %s already exists", tag.Name)
		}
	}
	if tag.ID == "" {
		tag.ID = newID("Tag")
	}
	tag.UsedBy = list(tag.UsedBy)
	t.tags[tag.ID] = &tag
	t.attached[tag.ID] = map[types.ManagedObjectReference]bool{}
	return tag.ID, nil
}

// Attach puts a tag on an object; a second time changes nothing. An object that does not exist is refused like one the
// caller may not see, which is how vCenter answers.
func (t *Tags) Attach(tagID string, object types.ManagedObjectReference) error {
	if t.vim.Get(object) == nil {
		return refuse("unauthorized", "cis.tagging.unauthorized.error", "Object %s does not exist or cannot be seen", object)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	tag := t.tags[tagID]
	if tag == nil {
		return notFound("object", tagID)
	}
	category := t.categories[tag.CategoryID]
	if len(category.AssociableTypes) > 0 && !slices.Contains(category.AssociableTypes, object.Type) {
		return invalid("Tags of category %s do not go on objects of type %s", category.Name, object.Type)
	}
	if category.Cardinality == single {
		for other, objects := range t.attached {
			if other != tagID && objects[object] && t.tags[other].CategoryID == category.ID {
				return invalid("Object %s already has a tag of category %s, which allows one", object, category.Name)
			}
		}
	}
	t.attached[tagID][object] = true
	return nil
}

// Detach takes a tag from an object; one that is not there changes nothing.
func (t *Tags) Detach(tagID string, object types.ManagedObjectReference) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tags[tagID] == nil {
		return notFound("object", tagID)
	}
	delete(t.attached[tagID], object)
	return nil
}

// on lists the ids of the tags on an object; t.mu must be held.
func (t *Tags) on(object types.ManagedObjectReference) []string {
	ids := []string{}
	for id, objects := range t.attached {
		if objects[object] {
			ids = append(ids, id)
		}
	}
	sort.Strings(ids)
	return ids
}

// objects lists what a tag is on; t.mu must be held. Objects that are gone from the inventory are left out.
func (t *Tags) objects(tagID string) []types.ManagedObjectReference {
	found := []types.ManagedObjectReference{}
	for object := range t.attached[tagID] {
		if t.vim.Get(object) != nil {
			found = append(found, object)
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].String() < found[j].String() })
	return found
}

// Named is a tag by its names.
type Named struct{ Category, Tag string }

// Of lists the tags on an object by name, for storage policies and state dumps.
func (t *Tags) Of(object types.ManagedObjectReference) []Named {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var names []Named
	for _, id := range t.on(object) {
		tag := t.tags[id]
		names = append(names, Named{t.categories[tag.CategoryID].Name, tag.Name})
	}
	return names
}

// Find looks a tag up by its names.
func (t *Tags) Find(category, tag string) (string, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for id, known := range t.tags {
		if known.Name == tag && t.categories[known.CategoryID].Name == category {
			return id, true
		}
	}
	return "", false
}

// AttachedObjects is for govmomi's simulator: tags on first-class disks and virtual machines.
func (t *Tags) AttachedObjects(tagID string) ([]types.ManagedObjectReference, types.BaseMethodFault) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.tags[tagID] == nil {
		return nil, new(types.NotFound)
	}
	var found []types.ManagedObjectReference
	for object := range t.attached[tagID] {
		found = append(found, object)
	}
	return found, nil
}

// AttachedTags is for govmomi's simulator.
func (t *Tags) AttachedTags(object types.ManagedObjectReference) ([]string, types.BaseMethodFault) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.on(object), nil
}

// AttachTag is for govmomi's simulator, which also tags disks that are no managed objects.
func (t *Tags) AttachTag(object types.ManagedObjectReference, tagID string) types.BaseMethodFault {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tags[tagID] == nil {
		return new(types.NotFound)
	}
	t.attached[tagID][object] = true
	return nil
}

// DetachTag is for govmomi's simulator.
func (t *Tags) DetachTag(object types.ManagedObjectReference, tagID string) types.BaseMethodFault {
	if t.Detach(tagID, object) != nil {
		return new(types.NotFound)
	}
	return nil
}

// GetTagByCategoryAndName is for govmomi's simulator.
func (t *Tags) GetTagByCategoryAndName(category, name string) (string, types.BaseMethodFault) {
	if id, ok := t.Find(category, name); ok {
		return id, nil
	}
	return "", new(types.NotFound)
}

// GetTagCategoryAndName is for govmomi's simulator.
func (t *Tags) GetTagCategoryAndName(tagID string) (string, string, types.BaseMethodFault) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	tag := t.tags[tagID]
	if tag == nil {
		return "", "", new(types.NotFound)
	}
	return t.categories[tag.CategoryID].Name, tag.Name, nil
}
