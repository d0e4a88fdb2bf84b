package authz

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware/govmomi/simulator/esx"
	"github.com/vmware/govmomi/vim25/types"
)

// Ids of vCenter's system roles, and the first one for roles added later.
const (
	roleNoAccess  int32 = -5
	roleAnonymous int32 = -4
	roleView      int32 = -3
	roleAdmin     int32 = -1
	firstRole     int32 = 1001
)

const (
	privAnonymous = "System.Anonymous"
	privView      = "System.View"
	privRead      = "System.Read"
)

// Reasons a change of roles or permissions is refused; the SOAP layer turns them into vim faults.
var (
	errRoleExists   = errors.New("a role of that name exists")
	errRoleUnknown  = errors.New("no such role")
	errRoleSystem   = errors.New("system roles cannot be changed")
	errRoleName     = errors.New("role name is empty")
	errPrivilege    = errors.New("unknown privilege")
	errRoleUsed     = errors.New("role is used by permissions")
	errMinimumAdmin = errors.New("the root folder would be left without an Admin permission")
	errNoPermission = errors.New("no such permission")
	errPrincipal    = errors.New("unknown principal")
	errUngrantable  = errors.New("role cannot be granted")
)

// rights is the privilege set of a role.
type rights map[string]bool

func newRights(ids []string) rights {
	r := make(rights, len(ids))
	for _, id := range ids {
		r[id] = true
	}
	return r
}

func (a *Authz) fillRoles() {
	for _, role := range esx.RoleList {
		a.roles = append(a.roles, role)
		a.rights[role.RoleId] = newRights(role.Privilege)
	}
}

// Roles lists all roles.
func (a *Authz) Roles() []types.AuthorizationRole {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.Clone(a.roles)
}

// Privileges lists every privilege the release knows: those of the Admin role.
func (a *Authz) Privileges() []string {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.Clone(a.roles[a.roleIndex(roleAdmin)].Privilege)
}

func (a *Authz) roleIndex(id int32) int {
	return slices.IndexFunc(a.roles, func(r types.AuthorizationRole) bool { return r.RoleId == id })
}

func (a *Authz) roleByName(name string) (int32, bool) {
	i := slices.IndexFunc(a.roles, func(r types.AuthorizationRole) bool { return r.Name == name })
	if i < 0 {
		return 0, false
	}
	return a.roles[i].RoleId, true
}

// complete checks privilege ids and adds the three every role has.
func (a *Authz) complete(ids []string) ([]string, error) {
	known := a.rights[roleAdmin]
	all := []string{privAnonymous, privRead, privView}
	for _, id := range ids {
		if !known[id] {
			return nil, fmt.Errorf("%w %q", errPrivilege, id)
		}
		if !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	slices.Sort(all)
	return all, nil
}

// AddRole creates a role and returns its id.
func (a *Authz) AddRole(name string, privileges []string) (int32, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if strings.TrimSpace(name) == "" {
		return 0, errRoleName
	}
	if _, exists := a.roleByName(name); exists {
		return 0, errRoleExists
	}
	ids, err := a.complete(privileges)
	if err != nil {
		return 0, err
	}
	role := types.AuthorizationRole{
		RoleId: a.nextRole, Name: name, Privilege: ids, Info: &types.Description{Label: name, Summary: name},
	}
	a.nextRole++
	a.roles = append(a.roles, role)
	a.rights[role.RoleId] = newRights(ids)
	return role.RoleId, nil
}

func (a *Authz) ownRole(id int32) (int, error) {
	i := a.roleIndex(id)
	switch {
	case i < 0:
		return 0, errRoleUnknown
	case a.roles[i].System:
		return 0, errRoleSystem
	}
	return i, nil
}

// UpdateRole renames a role and replaces its privileges.
func (a *Authz) UpdateRole(id int32, name string, privileges []string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	i, err := a.ownRole(id)
	if err != nil {
		return err
	}
	if strings.TrimSpace(name) == "" {
		return errRoleName
	}
	if other, exists := a.roleByName(name); exists && other != id {
		return errRoleExists
	}
	ids, err := a.complete(privileges)
	if err != nil {
		return err
	}
	// Readers hold copies of the slice header, so the changed role goes into a fresh slice.
	a.roles = slices.Clone(a.roles)
	a.roles[i].Name, a.roles[i].Privilege = name, ids
	a.roles[i].Info = &types.Description{Label: name, Summary: name}
	a.rights[id] = newRights(ids)
	return nil
}

// RemoveRole deletes a role. Permissions that use it go too, or forbid it when failIfUsed is set.
func (a *Authz) RemoveRole(id int32, failIfUsed bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	i, err := a.ownRole(id)
	if err != nil {
		return err
	}
	uses := func(p permission) bool { return p.role == id }
	for _, list := range a.permissions {
		if failIfUsed && slices.ContainsFunc(list, uses) {
			return errRoleUsed
		}
	}
	for entity, list := range a.permissions {
		a.permissions[entity] = slices.DeleteFunc(slices.Clone(list), uses)
	}
	a.roles = slices.Delete(slices.Clone(a.roles), i, i+1)
	delete(a.rights, id)
	return nil
}
