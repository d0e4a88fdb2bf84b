package authz

import (
	"fmt"
	"slices"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/authz/directory"
)

type permission struct {
	principal directory.Principal
	group     bool
	role      int32
	propagate bool
}

func (p permission) sameHolder(o permission) bool {
	return p.group == o.group && p.principal.Same(o.principal)
}

func (p permission) vim(entity types.ManagedObjectReference) types.Permission {
	return types.Permission{
		Entity: &entity, Principal: p.principal.String(), Group: p.group, RoleId: p.role, Propagate: p.propagate,
	}
}

func (a *Authz) fillPermissions() error {
	a.permissions[a.root] = []permission{
		{principal: a.dir.Administrator(), role: roleAdmin, propagate: true},
		{principal: directory.Principal{Name: directory.AdministratorsGroup, Domain: a.dir.Domain()}, group: true, role: roleAdmin, propagate: true},
	}
	for _, p := range a.cfg.Permissions {
		role, ok := a.roleByName(p.Role)
		if !ok {
			return fmt.Errorf("permission of %q on %s: no role %q; add it under roles", p.Principal, p.Entity, p.Role)
		}
		err := a.SetPermissions(p.Entity, []types.Permission{{Principal: p.Principal, Group: p.Group, RoleId: role, Propagate: p.Propagate}})
		if err != nil {
			return fmt.Errorf("permission of %q on %s: %w", p.Principal, p.Entity, err)
		}
	}
	return nil
}

// check turns the wire form into ours: the principal must exist, the role must exist and be grantable.
func (a *Authz) check(p types.Permission) (permission, error) {
	id := a.dir.Parse(p.Principal)
	var known bool
	if p.Group {
		var g directory.GroupEntry
		if g, known = a.dir.FindGroup(id); known {
			id = g.ID
		}
	} else {
		var u directory.Person
		if u, known = a.dir.Find(id); known {
			id = u.ID
		}
	}
	switch {
	case !known:
		return permission{}, errPrincipal
	case a.roleIndex(p.RoleId) < 0:
		return permission{}, errRoleUnknown
	case p.RoleId == roleAnonymous || p.RoleId == roleView:
		return permission{}, errUngrantable
	}
	return permission{principal: id, group: p.Group, role: p.RoleId, propagate: p.Propagate}, nil
}

// SetPermissions adds permissions to an entity; one of the same principal is replaced, others stay.
func (a *Authz) SetPermissions(entity types.ManagedObjectReference, list []types.Permission) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	merged := slices.Clone(a.permissions[entity])
	for _, wire := range list {
		p, err := a.check(wire)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(merged, p.sameHolder); i >= 0 {
			merged[i] = p
		} else {
			merged = append(merged, p)
		}
	}
	return a.store(entity, merged)
}

// ResetPermissions replaces all permissions of an entity.
func (a *Authz) ResetPermissions(entity types.ManagedObjectReference, list []types.Permission) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var fresh []permission
	for _, wire := range list {
		p, err := a.check(wire)
		if err != nil {
			return err
		}
		fresh = append(fresh, p)
	}
	return a.store(entity, fresh)
}

// RemovePermission takes one principal's permission from an entity. The principal need not exist any more.
func (a *Authz) RemovePermission(entity types.ManagedObjectReference, principal string, group bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	wanted := permission{principal: a.dir.Parse(principal), group: group}
	list := a.permissions[entity]
	i := slices.IndexFunc(list, wanted.sameHolder)
	if i < 0 {
		return errNoPermission
	}
	return a.store(entity, slices.Delete(slices.Clone(list), i, i+1))
}

// MergePermissions moves all uses of one role to another.
func (a *Authz) MergePermissions(from, to int32) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.roleIndex(from) < 0 || a.roleIndex(to) < 0 {
		return errRoleUnknown
	}
	move := func(list []permission) []permission {
		moved := slices.Clone(list)
		for i := range moved {
			if moved[i].role == from {
				moved[i].role = to
			}
		}
		return moved
	}
	if !hasAdmin(move(a.permissions[a.root])) {
		return errMinimumAdmin
	}
	for entity, list := range a.permissions {
		a.permissions[entity] = move(list)
	}
	return nil
}

func hasAdmin(list []permission) bool {
	return slices.ContainsFunc(list, func(p permission) bool { return p.role == roleAdmin && p.propagate })
}

// store keeps the rule that nobody can lock everybody out.
func (a *Authz) store(entity types.ManagedObjectReference, list []permission) error {
	if entity == a.root && !hasAdmin(list) {
		return errMinimumAdmin
	}
	if len(list) == 0 {
		delete(a.permissions, entity)
	} else {
		a.permissions[entity] = list
	}
	return nil
}

// Permissions lists the permissions of all entities that match; a nil filter matches all. Those of entities that are
// gone from the inventory are gone too.
func (a *Authz) Permissions(match func(types.Permission) bool) []types.Permission {
	a.mu.RLock()
	defer a.mu.RUnlock()
	var found []types.Permission
	for entity, list := range a.permissions {
		if a.vim.Get(entity) == nil {
			continue
		}
		for _, p := range list {
			if wire := p.vim(entity); match == nil || match(wire) {
				found = append(found, wire)
			}
		}
	}
	return found
}

// EntityPermissions lists the permissions defined on an entity and, when asked, those that reach it from its
// ancestors: propagating ones of principals that have no nearer permission.
func (a *Authz) EntityPermissions(entity types.ManagedObjectReference, inherited bool) []types.Permission {
	a.mu.RLock()
	defer a.mu.RUnlock()
	var nearer []permission
	var found []types.Permission
	seen := map[types.ManagedObjectReference]bool{}
	level := []types.ManagedObjectReference{entity}
	for direct := true; len(level) > 0; direct = false {
		var next []types.ManagedObjectReference
		var here []permission
		for _, ref := range level {
			if seen[ref] {
				continue
			}
			seen[ref] = true
			for _, p := range a.permissions[ref] {
				if (direct || p.propagate) && !slices.ContainsFunc(nearer, p.sameHolder) {
					found = append(found, p.vim(ref))
					here = append(here, p)
				}
			}
			next = append(next, a.parents(ref)...)
		}
		if !inherited {
			return found
		}
		nearer = append(nearer, here...)
		level = next
	}
	return found
}

// parents are the entities whose propagating permissions reach an entity. A virtual machine has two:
// its folder (or vApp) and its resource pool.
func (a *Authz) parents(entity types.ManagedObjectReference) []types.ManagedObjectReference {
	object := a.vim.Get(entity)
	e, ok := object.(mo.Entity)
	if !ok {
		return nil
	}
	var parents []types.ManagedObjectReference
	if p := e.Entity().Parent; p != nil {
		parents = append(parents, *p)
	}
	if pool := poolOf(object); pool != nil {
		parents = append(parents, *pool)
	}
	return parents
}
