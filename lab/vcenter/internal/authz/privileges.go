package authz

import (
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// bySession takes the scope of the user who owns a session.
func (m *authorizationManager) bySession(ctx *simulator.Context, key string) (*scope, *soap.Fault) {
	if ctx.Session != nil && key == ctx.Session.Key {
		return m.a.scopeOf(m.a.dir.Parse(ctx.Session.UserName)), nil
	}
	if user, ok := m.a.SessionUser(key); ok {
		return m.a.scopeOf(m.a.dir.Parse(user)), nil
	}
	return nil, simulator.Fault("no session of that id; it may have expired", &types.InvalidArgument{InvalidProperty: "sessionId"})
}

func granted(s *scope, entity types.ManagedObjectReference, ids []string) []bool {
	answers := make([]bool, len(ids))
	for i, id := range ids {
		answers[i] = s.allows(entity, id)
	}
	return answers
}

func availability(s *scope, entities []types.ManagedObjectReference, ids []string) []types.EntityPrivilege {
	var list []types.EntityPrivilege
	for _, entity := range entities {
		p := types.EntityPrivilege{Entity: entity}
		for i, yes := range granted(s, entity, ids) {
			p.PrivAvailability = append(p.PrivAvailability, types.PrivilegeAvailability{PrivId: ids[i], IsGranted: yes})
		}
		list = append(list, p)
	}
	return list
}

// hasPrivilegeBody is govmomi's body without omitempty on the answers, which would swallow every "no" on the wire.
type hasPrivilegeBody struct {
	Res    *hasPrivilegeAnswers `xml:"HasPrivilegeOnEntityResponse,omitempty"`
	Fault_ *soap.Fault          `xml:"http://schemas.xmlsoap.org/soap/envelope/ Fault,omitempty"`
}

type hasPrivilegeAnswers struct {
	Returnval []bool `xml:"returnval"`
}

// Fault is the soap.HasFault interface.
func (b *hasPrivilegeBody) Fault() *soap.Fault { return b.Fault_ }

// HasPrivilegeOnEntity tells which privileges the user of a session has on an entity.
func (m *authorizationManager) HasPrivilegeOnEntity(ctx *simulator.Context, req *types.HasPrivilegeOnEntity) soap.HasFault {
	body := &hasPrivilegeBody{}
	if body.Fault_ = m.missing(req.Entity); body.Fault_ != nil {
		return body
	}
	s, fault := m.bySession(ctx, req.SessionId)
	if body.Fault_ = fault; fault == nil {
		body.Res = &hasPrivilegeAnswers{Returnval: granted(s, req.Entity, req.PrivId)}
	}
	return body
}

// HasPrivilegeOnEntities tells the same for many entities.
func (m *authorizationManager) HasPrivilegeOnEntities(ctx *simulator.Context, req *types.HasPrivilegeOnEntities) soap.HasFault {
	body := &methods.HasPrivilegeOnEntitiesBody{}
	if body.Fault_ = m.missing(req.Entity...); body.Fault_ != nil {
		return body
	}
	s, fault := m.bySession(ctx, req.SessionId)
	if body.Fault_ = fault; fault == nil {
		body.Res = &types.HasPrivilegeOnEntitiesResponse{Returnval: availability(s, req.Entity, req.PrivId)}
	}
	return body
}

// HasUserPrivilegeOnEntities tells which privileges a user has, logged in or not.
func (m *authorizationManager) HasUserPrivilegeOnEntities(req *types.HasUserPrivilegeOnEntities) soap.HasFault {
	body := &methods.HasUserPrivilegeOnEntitiesBody{}
	for _, ref := range req.Entities {
		if m.a.vim.Get(ref) == nil {
			body.Fault_ = notFound(ref)
			return body
		}
	}
	s := m.a.scopeOf(m.a.dir.Parse(req.UserName))
	body.Res = &types.HasUserPrivilegeOnEntitiesResponse{Returnval: availability(s, req.Entities, req.PrivId)}
	return body
}

// FetchUserPrivilegeOnEntities lists all privileges a user has on entities.
func (m *authorizationManager) FetchUserPrivilegeOnEntities(req *types.FetchUserPrivilegeOnEntities) soap.HasFault {
	body := &methods.FetchUserPrivilegeOnEntitiesBody{}
	if body.Fault_ = m.missing(req.Entities...); body.Fault_ != nil {
		return body
	}
	s := m.a.scopeOf(m.a.dir.Parse(req.UserName))
	body.Res = &types.FetchUserPrivilegeOnEntitiesResponse{}
	for _, entity := range req.Entities {
		body.Res.Returnval = append(body.Res.Returnval, types.UserPrivilegeResult{Entity: entity, Privileges: s.privileges(entity)})
	}
	return body
}

// userDirectory is a session's twin of the UserDirectory: it knows the single sign-on users and groups.
type userDirectory struct {
	mo.UserDirectory
	a *Authz
}

func newUserDirectory(a *Authz, self types.ManagedObjectReference) *userDirectory {
	d := &userDirectory{a: a}
	d.Self = self
	d.DomainList = []string{a.dir.Domain()}
	return d
}

// RetrieveUserGroups searches users and groups by name.
func (d *userDirectory) RetrieveUserGroups(req *types.RetrieveUserGroups) soap.HasFault {
	res := &types.RetrieveUserGroupsResponse{}
	add := func(name, principal string, group bool) {
		if !req.ExactMatch || d.a.dir.Parse(principal).Same(d.a.dir.Parse(req.SearchStr)) {
			res.Returnval = append(res.Returnval, &types.UserSearchResult{Principal: principal, FullName: name, Group: group})
		}
	}
	search := req.SearchStr
	if req.ExactMatch {
		search = d.a.dir.Parse(search).Name
	}
	if req.FindUsers {
		for _, p := range d.a.dir.People(req.Domain, search) {
			add(p.ID.Name, p.ID.String(), false)
		}
	}
	if req.FindGroups {
		for _, g := range d.a.dir.Groups(req.Domain, search) {
			add(g.ID.Name, g.ID.String(), true)
		}
	}
	return &methods.RetrieveUserGroupsBody{Res: res}
}
