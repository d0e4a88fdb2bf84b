package inventory

import (
	"path"
	"strings"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// Named finds the objects that are called so now: by reference value (vm-42), by inventory path or by name. Several
// objects may have one name.
func (inv *Inventory) Named(word string) []types.ManagedObjectReference {
	var found []types.ManagedObjectReference
	byPath := strings.HasPrefix(word, "/")
	last := path.Base(word)
	for _, entity := range inv.ctx.Map.All("") {
		ref := entity.Reference()
		if ref.Value == word {
			return []types.ManagedObjectReference{ref}
		}
		switch name := inv.Name(entity); {
		case byPath && (name == last || word == "/"):
			if inv.Path(ref) == path.Clean(word) {
				found = append(found, ref)
			}
		case !byPath && name == word:
			found = append(found, ref)
		}
	}
	return found
}

// Name is the present name of an object. Networks keep theirs in a field of their own.
func (inv *Inventory) Name(entity mo.Entity) string {
	name := ""
	inv.withLock(entity, func() { name = entity.Entity().Name })
	return name
}

// Path is the present inventory path of an object; empty for an object that is gone.
func (inv *Inventory) Path(ref types.ManagedObjectReference) string {
	var names []string
	for {
		entity, ok := inv.ctx.Map.Get(ref).(mo.Entity)
		if !ok {
			return ""
		}
		var parent *types.ManagedObjectReference
		name := ""
		inv.withLock(entity, func() { name, parent = entity.Entity().Name, entity.Entity().Parent })
		if parent == nil {
			return "/" + path.Join(names...)
		}
		names = append([]string{name}, names...)
		ref = *parent
	}
}
