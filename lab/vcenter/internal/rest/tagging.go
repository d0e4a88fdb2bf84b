package rest

import (
	"net/http"
	"slices"
	"sort"
	"strings"
)

const (
	createCategory = "InventoryService.Tagging.CreateCategory"
	editCategory   = "InventoryService.Tagging.EditCategory"
	deleteCategory = "InventoryService.Tagging.DeleteCategory"
	createTag      = "InventoryService.Tagging.CreateTag"
	editTag        = "InventoryService.Tagging.EditTag"
	deleteTag      = "InventoryService.Tagging.DeleteTag"
	attachTag      = "InventoryService.Tagging.AttachTag"
	readObject     = "System.Read"
)

// category answers …/tagging/category and …/tagging/category/{id}.
func (s *Service) category(c *call) (any, error) {
	switch {
	case c.method == http.MethodGet && c.id == "":
		return s.categoryIDs(), nil
	case c.method == http.MethodPost && c.id == "" && c.action == "":
		return s.newCategory(c)
	case c.method == http.MethodGet:
		return s.readCategory(c.id)
	case c.method == http.MethodPatch && c.id != "":
		return nothing{}, s.changeCategory(c)
	case c.method == http.MethodDelete && c.id != "":
		if err := s.need(c, deleteCategory); err != nil {
			return nil, err
		}
		return nothing{}, s.removeCategory(c.id)
	}
	return nil, errMethod
}

func (t *Tags) categoryIDs() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	ids := []string{}
	for id := range t.categories {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	return ids
}

func (t *Tags) readCategory(id string) (Category, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if found := t.categories[id]; found != nil {
		return *found, nil
	}
	return Category{}, notFound("object", id)
}

// newCategory wants all four fields, empty or not, as the vAPI does.
func (s *Service) newCategory(c *call) (any, error) {
	if err := s.need(c, createCategory); err != nil {
		return nil, err
	}
	var spec struct {
		Name            *string   `json:"name"`
		Description     *string   `json:"description"`
		Cardinality     *string   `json:"cardinality"`
		AssociableTypes *[]string `json:"associable_types"`
		CategoryID      string    `json:"category_id"`
	}
	if err := c.decode("create_spec", &spec); err != nil {
		return nil, err
	}
	if spec.Name == nil || spec.Description == nil || spec.Cardinality == nil || spec.AssociableTypes == nil {
		return nil, invalid("name, description, cardinality and associable_types are required")
	}
	id, err := s.CreateCategory(Category{
		ID: spec.CategoryID, Name: *spec.Name, Description: *spec.Description, Cardinality: *spec.Cardinality, AssociableTypes: *spec.AssociableTypes,
	})
	return created(id), err
}

func (s *Service) changeCategory(c *call) error {
	if err := s.need(c, editCategory); err != nil {
		return err
	}
	var spec struct {
		Name            string    `json:"name"`
		Description     *string   `json:"description"`
		Cardinality     string    `json:"cardinality"`
		AssociableTypes *[]string `json:"associable_types"`
	}
	if err := c.decode("update_spec", &spec); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.categories[c.id]
	if old == nil {
		return notFound("object", c.id)
	}
	changed := *old
	if spec.Name != "" {
		for _, other := range s.categories {
			if other.ID != c.id && strings.EqualFold(other.Name, spec.Name) {
				return refuse("already_exists", "cis.tagging.categoryAlreadyExists.error", "Category %s already exists", spec.Name)
			}
		}
		changed.Name = spec.Name
	}
	if spec.Description != nil {
		changed.Description = *spec.Description
	}
	if spec.Cardinality != "" {
		if spec.Cardinality != multiple && spec.Cardinality != old.Cardinality {
			return invalid("Cardinality can be widened to MULTIPLE only")
		}
		changed.Cardinality = spec.Cardinality
	}
	if spec.AssociableTypes != nil {
		for _, kind := range old.AssociableTypes {
			if !slices.Contains(*spec.AssociableTypes, kind) && len(*spec.AssociableTypes) > 0 {
				return invalid("Associable type %s cannot be taken away", kind)
			}
		}
		if len(old.AssociableTypes) == 0 && len(*spec.AssociableTypes) > 0 {
			return invalid("A category for all types cannot be narrowed")
		}
		changed.AssociableTypes = list(*spec.AssociableTypes)
	}
	s.categories[c.id] = &changed
	return nil
}

func (t *Tags) removeCategory(id string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.categories[id] == nil {
		return notFound("object", id)
	}
	delete(t.categories, id)
	for tagID, tag := range t.tags {
		if tag.CategoryID == id {
			delete(t.tags, tagID)
			delete(t.attached, tagID)
		}
	}
	return nil
}

// tag answers …/tagging/tag and …/tagging/tag/{id}.
func (s *Service) tag(c *call) (any, error) {
	switch {
	case c.action == "list-tags-for-category" && c.method == http.MethodPost:
		return s.tagsOfCategory(c)
	case c.action != "":
		return nil, errMethod
	case c.method == http.MethodGet && c.id == "":
		return s.tagIDs(""), nil
	case c.method == http.MethodPost && c.id == "":
		return s.newTag(c)
	case c.method == http.MethodGet:
		return s.readTag(c.id)
	case c.method == http.MethodPatch && c.id != "":
		return nothing{}, s.changeTag(c)
	case c.method == http.MethodDelete && c.id != "":
		if err := s.need(c, deleteTag); err != nil {
			return nil, err
		}
		return nothing{}, s.removeTag(c.id)
	}
	return nil, errMethod
}

// tagIDs lists the tags of a category, or all.
func (t *Tags) tagIDs(category string) []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	ids := []string{}
	for id, tag := range t.tags {
		if category == "" || tag.CategoryID == category {
			ids = append(ids, id)
		}
	}
	sort.Strings(ids)
	return ids
}

// tagsOfCategory takes the category from the path under /rest and from the body under /api.
func (s *Service) tagsOfCategory(c *call) (any, error) {
	category := c.id
	if c.api {
		var spec struct {
			CategoryID string `json:"category_id"`
		}
		if err := c.decode("", &spec); err != nil {
			return nil, err
		}
		category = spec.CategoryID
	}
	if _, err := s.readCategory(category); err != nil {
		return nil, err
	}
	return s.tagIDs(category), nil
}

func (t *Tags) readTag(id string) (Tag, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if found := t.tags[id]; found != nil {
		return *found, nil
	}
	return Tag{}, notFound("object", id)
}

func (s *Service) newTag(c *call) (any, error) {
	if err := s.need(c, createTag); err != nil {
		return nil, err
	}
	var spec struct {
		Name        *string `json:"name"`
		Description *string `json:"description"`
		CategoryID  *string `json:"category_id"`
		TagID       string  `json:"tag_id"`
	}
	if err := c.decode("create_spec", &spec); err != nil {
		return nil, err
	}
	if spec.Name == nil || spec.Description == nil || spec.CategoryID == nil {
		return nil, invalid("name, description and category_id are required")
	}
	id, err := s.CreateTag(Tag{ID: spec.TagID, Name: *spec.Name, Description: *spec.Description, CategoryID: *spec.CategoryID})
	return created(id), err
}

func (s *Service) changeTag(c *call) error {
	if err := s.need(c, editTag); err != nil {
		return err
	}
	var spec struct {
		Name        string  `json:"name"`
		Description *string `json:"description"`
	}
	if err := c.decode("update_spec", &spec); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.tags[c.id]
	if old == nil {
		return notFound("object", c.id)
	}
	changed := *old
	if spec.Name != "" {
		for _, other := range s.tags {
			if other.ID != c.id && other.CategoryID == old.CategoryID && strings.EqualFold(other.Name, spec.Name) {
				return refuse("already_exists", "cis.tagging.tagAlreadyExists.error", "Tag %s already exists", spec.Name)
			}
		}
		changed.Name = spec.Name
	}
	if spec.Description != nil {
		changed.Description = *spec.Description
	}
	s.tags[c.id] = &changed
	return nil
}

func (t *Tags) removeTag(id string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tags[id] == nil {
		return notFound("object", id)
	}
	delete(t.tags, id)
	delete(t.attached, id)
	return nil
}
