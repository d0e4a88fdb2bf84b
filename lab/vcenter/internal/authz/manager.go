package authz

import (
	"errors"
	"slices"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// authorizationManager answers vSphere's AuthorizationManager from the state in Authz.
type authorizationManager struct {
	mo.AuthorizationManager
	a *Authz
}

func newAuthorizationManager(a *Authz, self types.ManagedObjectReference) *authorizationManager {
	m := &authorizationManager{a: a}
	m.Self = self
	return m
}

// Get hands the PropertyCollector the current properties; the simulator asks for it when the method exists.
func (m *authorizationManager) Get() mo.Reference {
	view := &mo.AuthorizationManager{Self: m.Self, RoleList: m.a.Roles()}
	for _, id := range m.a.Privileges() {
		group, name := "", id
		if i := strings.LastIndex(id, "."); i >= 0 {
			group, name = id[:i], id[i+1:]
		}
		view.PrivilegeList = append(view.PrivilegeList, types.AuthorizationPrivilege{
			PrivId: id, Name: name, PrivGroupName: group, OnParent: strings.HasSuffix(id, ".Create"),
		})
	}
	return view
}

// asFault turns a refused change into the fault vCenter gives.
func asFault(err error, name string) *soap.Fault {
	var detail types.BaseMethodFault
	switch {
	case errors.Is(err, errRoleExists):
		detail = &types.AlreadyExists{Name: name}
	case errors.Is(err, errRoleName):
		detail = &types.InvalidName{Name: name}
	case errors.Is(err, errPrivilege):
		detail = &types.InvalidArgument{InvalidProperty: "privIds"}
	case errors.Is(err, errRoleSystem), errors.Is(err, errUngrantable):
		detail = &types.InvalidArgument{InvalidProperty: "roleId"}
	case errors.Is(err, errRoleUsed):
		detail = &types.RemoveFailed{}
	case errors.Is(err, errMinimumAdmin):
		detail = &types.AuthMinimumAdminPermission{}
	case errors.Is(err, errPrincipal):
		detail = &types.UserNotFound{Principal: name, Unresolved: true}
	default:
		detail = &types.NotFound{}
	}
	return simulator.Fault(err.Error(), detail)
}

func notFound(ref types.ManagedObjectReference) *soap.Fault {
	return simulator.Fault("The object has already been deleted or has not been completely created",
		&types.ManagedObjectNotFound{Obj: ref})
}

// missing finds the first reference that is no entity.
func (m *authorizationManager) missing(refs ...types.ManagedObjectReference) *soap.Fault {
	for _, ref := range refs {
		if _, ok := m.a.vim.Get(ref).(mo.Entity); !ok {
			return notFound(ref)
		}
	}
	return nil
}

// AddAuthorizationRole creates a role and answers its id.
func (m *authorizationManager) AddAuthorizationRole(req *types.AddAuthorizationRole) soap.HasFault {
	id, err := m.a.AddRole(req.Name, req.PrivIds)
	if err != nil {
		return &methods.AddAuthorizationRoleBody{Fault_: asFault(err, req.Name)}
	}
	return &methods.AddAuthorizationRoleBody{Res: &types.AddAuthorizationRoleResponse{Returnval: id}}
}

// UpdateAuthorizationRole renames a role and replaces its privileges.
func (m *authorizationManager) UpdateAuthorizationRole(req *types.UpdateAuthorizationRole) soap.HasFault {
	if err := m.a.UpdateRole(req.RoleId, req.NewName, req.PrivIds); err != nil {
		return &methods.UpdateAuthorizationRoleBody{Fault_: asFault(err, req.NewName)}
	}
	return &methods.UpdateAuthorizationRoleBody{Res: &types.UpdateAuthorizationRoleResponse{}}
}

// RemoveAuthorizationRole deletes a role, with its permissions unless failIfUsed is set.
func (m *authorizationManager) RemoveAuthorizationRole(req *types.RemoveAuthorizationRole) soap.HasFault {
	if err := m.a.RemoveRole(req.RoleId, req.FailIfUsed); err != nil {
		return &methods.RemoveAuthorizationRoleBody{Fault_: asFault(err, "")}
	}
	return &methods.RemoveAuthorizationRoleBody{Res: &types.RemoveAuthorizationRoleResponse{}}
}

// MergePermissions moves the uses of one role to another.
func (m *authorizationManager) MergePermissions(req *types.MergePermissions) soap.HasFault {
	if err := m.a.MergePermissions(req.SrcRoleId, req.DstRoleId); err != nil {
		return &methods.MergePermissionsBody{Fault_: asFault(err, "")}
	}
	return &methods.MergePermissionsBody{Res: &types.MergePermissionsResponse{}}
}

// SetEntityPermissions adds permissions, one per principal.
func (m *authorizationManager) SetEntityPermissions(req *types.SetEntityPermissions) soap.HasFault {
	body := &methods.SetEntityPermissionsBody{}
	if body.Fault_ = m.missing(req.Entity); body.Fault_ != nil {
		return body
	}
	if err := m.a.SetPermissions(req.Entity, req.Permission); err != nil {
		body.Fault_ = asFault(err, m.unknown(req.Permission))
		return body
	}
	body.Res = &types.SetEntityPermissionsResponse{}
	return body
}

// ResetEntityPermissions replaces the permissions of an entity.
func (m *authorizationManager) ResetEntityPermissions(req *types.ResetEntityPermissions) soap.HasFault {
	body := &methods.ResetEntityPermissionsBody{}
	if body.Fault_ = m.missing(req.Entity); body.Fault_ != nil {
		return body
	}
	if err := m.a.ResetPermissions(req.Entity, req.Permission); err != nil {
		body.Fault_ = asFault(err, m.unknown(req.Permission))
		return body
	}
	body.Res = &types.ResetEntityPermissionsResponse{}
	return body
}

// unknown names the first principal of a list that does not exist.
func (m *authorizationManager) unknown(list []types.Permission) string {
	for _, p := range list {
		id := m.a.dir.Parse(p.Principal)
		_, user := m.a.dir.Find(id)
		_, group := m.a.dir.FindGroup(id)
		if p.Group && !group || !p.Group && !user {
			return p.Principal
		}
	}
	return ""
}

// RemoveEntityPermission takes one principal's permission away.
func (m *authorizationManager) RemoveEntityPermission(req *types.RemoveEntityPermission) soap.HasFault {
	body := &methods.RemoveEntityPermissionBody{}
	if body.Fault_ = m.missing(req.Entity); body.Fault_ != nil {
		return body
	}
	if err := m.a.RemovePermission(req.Entity, req.User, req.IsGroup); err != nil {
		body.Fault_ = asFault(err, req.User)
		return body
	}
	body.Res = &types.RemoveEntityPermissionResponse{}
	return body
}

// RetrieveEntityPermissions lists what is defined on an entity and, when asked, what reaches it from above.
func (m *authorizationManager) RetrieveEntityPermissions(req *types.RetrieveEntityPermissions) soap.HasFault {
	body := &methods.RetrieveEntityPermissionsBody{}
	if body.Fault_ = m.missing(req.Entity); body.Fault_ != nil {
		return body
	}
	body.Res = &types.RetrieveEntityPermissionsResponse{Returnval: m.a.EntityPermissions(req.Entity, req.Inherited)}
	return body
}

// RetrieveAllPermissions lists the permissions on entities the caller can see.
func (m *authorizationManager) RetrieveAllPermissions(ctx *simulator.Context, _ *types.RetrieveAllPermissions) soap.HasFault {
	return &methods.RetrieveAllPermissionsBody{Res: &types.RetrieveAllPermissionsResponse{Returnval: m.seen(ctx, nil)}}
}

// RetrieveRolePermissions lists the permissions that use a role.
func (m *authorizationManager) RetrieveRolePermissions(ctx *simulator.Context, req *types.RetrieveRolePermissions) soap.HasFault {
	if !slices.ContainsFunc(m.a.Roles(), func(r types.AuthorizationRole) bool { return r.RoleId == req.RoleId }) {
		return &methods.RetrieveRolePermissionsBody{Fault_: asFault(errRoleUnknown, "")}
	}
	list := m.seen(ctx, func(p types.Permission) bool { return p.RoleId == req.RoleId })
	return &methods.RetrieveRolePermissionsBody{Res: &types.RetrieveRolePermissionsResponse{Returnval: list}}
}

func (m *authorizationManager) seen(ctx *simulator.Context, match func(types.Permission) bool) []types.Permission {
	s := m.a.sessionScope(ctx)
	return slices.DeleteFunc(m.a.Permissions(match), func(p types.Permission) bool {
		return s != nil && !s.allows(*p.Entity, privView)
	})
}
