package rest

import (
	"errors"
	"net/http"
	"slices"

	"github.com/vmware/govmomi/vim25/types"
)

// objectID is an object on the wire.
type objectID struct {
	ID   string `json:"id"`
	Type string `json:"type"`
}

func (o objectID) ref() types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: o.Type, Value: o.ID}
}

func wireIDs(refs []types.ManagedObjectReference) []objectID {
	ids := []objectID{}
	for _, ref := range refs {
		ids = append(ids, objectID{ref.Value, ref.Type})
	}
	return ids
}

// associationSpec is the body of all association calls; each uses its part.
type associationSpec struct {
	TagID     string      `json:"tag_id"` // may stand here instead of in the path
	ObjectID  *objectID   `json:"object_id"`
	ObjectIDs *[]objectID `json:"object_ids"`
	TagIDs    *[]string   `json:"tag_ids"`
}

// association answers …/tagging/tag-association and …/tagging/tag-association/{tag}.
func (s *Service) association(c *call) (any, error) {
	if c.method != http.MethodPost {
		return nil, errMethod
	}
	var spec associationSpec
	if c.action != "list-attached-objects" || c.id == "" { // the one without a body
		if err := c.decode("", &spec); err != nil {
			return nil, err
		}
	}
	if c.id == "" {
		c.id = spec.TagID
	}
	if c.id != "" {
		return s.ofTag(c, &spec)
	}
	return s.ofObjects(c, &spec)
}

// ofTag answers the calls about one tag.
func (s *Service) ofTag(c *call, spec *associationSpec) (any, error) {
	if _, err := s.readTag(c.id); err != nil {
		return nil, err
	}
	switch c.action {
	case "attach", "detach":
		if spec.ObjectID == nil {
			return nil, invalid("object_id is required")
		}
		return nothing{}, s.change(c, c.action == "attach", c.id, spec.ObjectID.ref())
	case "attach-tag-to-multiple-objects", "detach-tag-from-multiple-objects":
		if spec.ObjectIDs == nil {
			return nil, invalid("object_ids is required")
		}
		var outcome batch
		for _, object := range *spec.ObjectIDs {
			outcome.add(s.change(c, c.action == "attach-tag-to-multiple-objects", c.id, object.ref()))
		}
		return outcome.result(), nil
	case "list-attached-objects":
		return wireIDs(s.readable(c, c.id)), nil
	}
	return nil, errMethod
}

// ofObjects answers the calls about objects and about many tags.
func (s *Service) ofObjects(c *call, spec *associationSpec) (any, error) {
	switch c.action {
	case "list-attached-tags":
		if spec.ObjectID == nil {
			return nil, invalid("object_id is required")
		}
		return s.tagsOn(c, spec.ObjectID.ref())
	case "list-attached-tags-on-objects":
		if spec.ObjectIDs == nil {
			return nil, invalid("object_ids is required")
		}
		results := []map[string]any{}
		for _, object := range *spec.ObjectIDs {
			ids, err := s.tagsOn(c, object.ref())
			if err != nil {
				return nil, err
			}
			results = append(results, map[string]any{"object_id": object, "tag_ids": ids})
		}
		return results, nil
	case "list-attached-objects-on-tags":
		if spec.TagIDs == nil {
			return nil, invalid("tag_ids is required")
		}
		results := []map[string]any{}
		for _, id := range *spec.TagIDs {
			if _, err := s.readTag(id); err != nil {
				return nil, err
			}
			results = append(results, map[string]any{"tag_id": id, "object_ids": wireIDs(s.readable(c, id))})
		}
		return results, nil
	case "attach-multiple-tags-to-object", "detach-multiple-tags-from-object":
		if spec.ObjectID == nil || spec.TagIDs == nil {
			return nil, invalid("object_id and tag_ids are required")
		}
		var outcome batch
		for _, id := range *spec.TagIDs {
			outcome.add(s.change(c, c.action == "attach-multiple-tags-to-object", id, spec.ObjectID.ref()))
		}
		return outcome.result(), nil
	}
	return nil, errMethod
}

// change attaches or detaches: the caller needs the right to tag, and to read the object.
func (s *Service) change(c *call, attach bool, tagID string, object types.ManagedObjectReference) error {
	if err := s.need(c, attachTag); err != nil {
		return err
	}
	if err := s.needOn(c, object, readObject); err != nil {
		return err
	}
	if attach {
		return s.Attach(tagID, object)
	}
	return s.Detach(tagID, object)
}

// tagsOn lists the tags on an object. One that cannot be read, or does not exist, is refused with 403.
func (s *Service) tagsOn(c *call, object types.ManagedObjectReference) ([]string, error) {
	if s.vim.Get(object) == nil {
		return nil, refuse("unauthorized", "cis.tagging.unauthorized.error", "Object %s does not exist or cannot be seen", object)
	}
	if err := s.needOn(c, object, readObject); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.on(object), nil
}

// readable lists the objects of a tag that the caller may read.
func (s *Service) readable(c *call, tagID string) []types.ManagedObjectReference {
	s.mu.RLock()
	all := s.objects(tagID)
	s.mu.RUnlock()
	return slices.DeleteFunc(all, func(object types.ManagedObjectReference) bool {
		return !s.cfg.Access.Allowed(c.user, object, readObject)
	})
}

// batch collects the outcome of calls that go on after an error.
type batch struct{ errors []message }

func (b *batch) add(err error) {
	var r *refusal
	if errors.As(err, &r) {
		b.errors = append(b.errors, message{Args: []string{}, Default: r.text, ID: r.id})
	}
}

func (b *batch) result() any {
	result := map[string]any{"success": len(b.errors) == 0}
	if len(b.errors) > 0 {
		result["error_messages"] = b.errors
	}
	return result
}
