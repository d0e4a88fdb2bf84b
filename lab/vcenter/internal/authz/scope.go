package authz

import (
	"slices"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
	"vsphere-drivers.example/lab/vcenter/internal/authz/directory"
)

// scope is what one user may do at one moment. It is taken once per call, so that a call over thousands of
// objects asks the permissions once and sees them unchanged.
type scope struct {
	a       *Authz
	all     bool // Admin everywhere: nothing needs to be looked up
	granted map[types.ManagedObjectReference][]permission
	rights  map[int32]rights
	visible map[types.ManagedObjectReference]bool    // ancestors of granted entities
	memo    map[types.ManagedObjectReference][]int32 // what an entity hands down
	known   map[types.ManagedObjectReference]standing
}

// standing is how the user stands to one object.
type standing struct {
	entity      types.ManagedObjectReference // whose permissions rule it
	inInventory bool
	roles       []int32
}

func (a *Authz) scopeOf(user directory.Principal) *scope {
	groups := a.dir.GroupsOf(user)
	a.mu.RLock()
	defer a.mu.RUnlock()
	s := &scope{
		a: a, granted: map[types.ManagedObjectReference][]permission{}, rights: map[int32]rights{},
		visible: map[types.ManagedObjectReference]bool{}, memo: map[types.ManagedObjectReference][]int32{},
		known: map[types.ManagedObjectReference]standing{},
	}
	for entity, list := range a.permissions {
		var mine []permission
		for _, p := range list {
			if p.group && slices.ContainsFunc(groups, p.principal.Same) || !p.group && p.principal.Same(user) {
				mine = append(mine, p)
				s.rights[p.role] = a.rights[p.role]
			}
		}
		if mine != nil && a.vim.Get(entity) != nil { // permissions end with their entity
			s.granted[entity] = mine
		}
	}
	if here := decisive(s.granted[a.root], true); len(s.granted) == 1 && len(here) > 0 {
		s.all = !slices.ContainsFunc(here, func(p permission) bool { return p.role != roleAdmin || !p.propagate })
	}
	if !s.all && !a.cfg.HideAncestors {
		s.markAncestors()
	}
	return s
}

// decisive picks the permissions of one entity that count: the user's own beats those of groups.
// From below only propagating ones count.
func decisive(list []permission, direct bool) []permission {
	var own, groups []permission
	for _, p := range list {
		switch {
		case !direct && !p.propagate:
		case p.group:
			groups = append(groups, p)
		default:
			own = append(own, p)
		}
	}
	if own != nil {
		return own
	}
	return groups
}

func (s *scope) markAncestors() {
	for entity, list := range s.granted {
		if !slices.ContainsFunc(list, func(p permission) bool { return s.rights[p.role][privView] }) {
			continue
		}
		pending := s.a.parents(entity)
		for len(pending) > 0 {
			ref := pending[0]
			pending = pending[1:]
			if !s.visible[ref] {
				s.visible[ref] = true
				pending = append(pending, s.a.parents(ref)...)
			}
		}
	}
}

// roles are the roles the user has on an entity: those defined on it, else those nearest above.
func (s *scope) roles(entity types.ManagedObjectReference) []int32 {
	if s.all {
		return []int32{roleAdmin}
	}
	if here := decisive(s.granted[entity], true); here != nil {
		return roleIDs(here)
	}
	return s.inherited(entity)
}

// inherited unites what reaches an entity through each of its parents.
func (s *scope) inherited(entity types.ManagedObjectReference) []int32 {
	var ids []int32
	for _, parent := range s.a.parents(entity) {
		for _, id := range s.passed(parent) {
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// passed are the roles an entity hands down.
func (s *scope) passed(entity types.ManagedObjectReference) []int32 {
	if ids, ok := s.memo[entity]; ok {
		return ids
	}
	s.memo[entity] = nil // a loop in a broken inventory must not hang us
	var ids []int32
	if here := decisive(s.granted[entity], false); here != nil {
		ids = roleIDs(here)
	} else {
		ids = s.inherited(entity)
	}
	s.memo[entity] = ids
	return ids
}

func roleIDs(list []permission) []int32 {
	var ids []int32
	for _, p := range list {
		if !slices.Contains(ids, p.role) {
			ids = append(ids, p.role)
		}
	}
	return ids
}

// effective adds what visibility gives to the roles.
func (s *scope) effective(entity types.ManagedObjectReference) []int32 {
	ids := s.roles(entity)
	if len(ids) == 0 && s.visible[entity] {
		return []int32{roleView}
	}
	return ids
}

// allows tells whether the user has a privilege on an entity. Objects outside the inventory belong to an entity or
// to the root folder; every user may see them, because the inventory they lead to is checked object by object.
func (s *scope) allows(ref types.ManagedObjectReference, privilege string) bool {
	if s.all {
		return true
	}
	at := s.standing(ref)
	if !at.inInventory && strings.HasPrefix(privilege, "System.") {
		return privilege != privRead || s.mayRead(ref, at)
	}
	for _, id := range at.roles {
		if s.rights[id][privilege] {
			return true
		}
	}
	return s.visible[at.entity] && (privilege == privView || privilege == privAnonymous)
}

// mayRead tells whether the user may read an object outside the inventory: any but a task whose entity he may not read.
// The task of an entity that is gone is readable.
func (s *scope) mayRead(ref types.ManagedObjectReference, at standing) bool {
	if ref.Type != "Task" || s.a.vim.Get(at.entity) == nil {
		return true
	}
	for _, id := range at.roles {
		if s.rights[id][privRead] {
			return true
		}
	}
	return !assume.TaskReadNeedsEntity.In(s.a.cfg.Assumptions)
}

// standing is asked for every property of every object of a read, so it is kept.
func (s *scope) standing(ref types.ManagedObjectReference) standing {
	at, ok := s.known[ref]
	if !ok {
		at.entity, at.inInventory = s.a.entityOf(ref)
		at.roles = s.roles(at.entity)
		s.known[ref] = at
	}
	return at
}

// privileges lists everything the user may do on an entity.
func (s *scope) privileges(entity types.ManagedObjectReference) []string {
	if s.all {
		return s.a.Privileges()
	}
	found := map[string]bool{}
	for _, id := range s.roles(entity) {
		for privilege := range s.rights[id] {
			found[privilege] = true
		}
	}
	if s.visible[entity] {
		found[privView], found[privAnonymous] = true, true
	}
	list := make([]string, 0, len(found))
	for privilege := range found {
		list = append(list, privilege)
	}
	slices.Sort(list)
	return list
}

// entityOf names the entity whose permissions rule an object, and whether the object is itself in the inventory.
func (a *Authz) entityOf(ref types.ManagedObjectReference) (types.ManagedObjectReference, bool) {
	object := a.vim.Get(ref)
	if _, ok := object.(mo.Entity); ok {
		return ref, true
	}
	switch o := object.(type) {
	case *simulator.Task:
		if o.Info.Entity != nil {
			return *o.Info.Entity, false
		}
	case *simulator.VirtualMachineSnapshot:
		return o.Vm, false
	case *simulator.HostDatastoreBrowser:
		if len(o.Datastore) > 0 {
			return o.Datastore[0], false
		}
	case *simulator.HostDatastoreSystem:
		if o.Host != nil {
			return o.Host.Self, false
		}
	}
	return a.root, false
}

func poolOf(object mo.Reference) *types.ManagedObjectReference {
	if vm, ok := object.(*simulator.VirtualMachine); ok {
		return vm.ResourcePool
	}
	return nil
}

// Allowed tells whether a user has a privilege on an object, for front ends outside the SOAP chain.
func (a *Authz) Allowed(user string, ref types.ManagedObjectReference, privilege string) bool {
	return a.scopeOf(a.dir.Parse(user)).allows(ref, privilege)
}

// Root is the root folder, where privileges that concern no entity are checked.
func (a *Authz) Root() types.ManagedObjectReference { return a.root }
