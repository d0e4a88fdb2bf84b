package vcenter

import (
	"fmt"
	"strings"

	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/pbm"
	"vsphere-drivers.example/lab/vcenter/internal/rest"
)

// fillTags makes the described categories and tags.
func (v *VCenter) fillTags() error {
	for _, category := range v.World.Categories {
		id, err := v.services.rest.CreateCategory(rest.Category{
			Name: category.Name, Cardinality: strings.ToUpper(category.Cardinality), AssociableTypes: category.Types,
		})
		if err != nil {
			return fmt.Errorf("tag category %s: %w", category.Name, err)
		}
		for _, tag := range category.Tags {
			if _, err := v.services.rest.CreateTag(rest.Tag{CategoryID: id, Name: tag.Name}); err != nil {
				return fmt.Errorf("tag %s: %w", tag.Name, err)
			}
			for _, path := range tag.On {
				object := v.Inventory.At(path)
				if object == nil {
					return fmt.Errorf("tag %s: there is nothing at %s", tag.Name, path)
				}
				if err := v.SetTag(category.Name, tag.Name, *object, true); err != nil {
					return fmt.Errorf("tag %s on %s: %w", tag.Name, path, err)
				}
			}
		}
	}
	return nil
}

// SetTag puts a tag on an object or takes it off.
func (v *VCenter) SetTag(category, tag string, object types.ManagedObjectReference, on bool) error {
	id, ok := v.services.rest.Find(category, tag)
	if !ok {
		return fmt.Errorf("category %q has no tag %q", category, tag)
	}
	if on {
		return v.services.rest.Attach(id, object)
	}
	return v.services.rest.Detach(id, object)
}

// TagsOf lists the tags of an object as category/tag.
func (v *VCenter) TagsOf(object types.ManagedObjectReference) []string {
	var names []string
	for _, tag := range v.services.rest.Of(object) {
		names = append(names, tag.Category+"/"+tag.Tag)
	}
	return names
}

func (v *VCenter) policyTags(datastore types.ManagedObjectReference) []pbm.Tag {
	var tags []pbm.Tag
	for _, tag := range v.services.rest.Of(datastore) {
		tags = append(tags, pbm.Tag{Category: tag.Category, Name: tag.Tag})
	}
	return tags
}
