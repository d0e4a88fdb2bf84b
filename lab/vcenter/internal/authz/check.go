package authz

import (
	"slices"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/authz/directory"
	"vsphere-drivers.example/lab/vcenter/internal/authz/sso"
)

// Check decides one call: nil lets it through. It belongs into the Handler of every registry (vim25, vsan, pbm, vslm),
// after the session check. It also authenticates Login and LoginByToken, and puts the filtering twins into
// sessions that do not have them yet.
//
// Calls made inside the process have a session without a user and pass.
func (a *Authz) Check(ctx *simulator.Context, m *simulator.Method) types.BaseMethodFault {
	if ctx.Session == nil {
		return a.authenticate(ctx, m)
	}
	if ctx.Session.UserName == "" {
		return nil
	}
	a.putTwins(ctx)
	s := a.scopeOf(a.dir.Parse(ctx.Session.UserName))
	if s.all {
		return nil
	}
	var lacking []requirement
	for _, need := range append(a.fixed(m), a.computed(s, m)...) {
		if !s.allows(need.object, need.privilege) {
			entity, _ := a.entityOf(need.object) // a manager's privileges are those on the root folder
			lacking = append(lacking, requirement{entity, need.privilege})
		}
	}
	if lacking == nil {
		return nil
	}
	return a.denied(lacking)
}

// denied names the first privilege that is lacking; from 8.0 on vCenter lists all of them besides.
func (a *Authz) denied(lacking []requirement) *types.NoPermission {
	fault := noPermission(lacking[0].object, lacking[0].privilege)
	if a.cfg.Release != nil && !a.cfg.Release.AtLeast("8.0U3") {
		return fault
	}
	for _, need := range lacking {
		i := slices.IndexFunc(fault.MissingPrivileges, func(e types.NoPermissionEntityPrivileges) bool { return e.Entity == need.object })
		if i < 0 {
			i = len(fault.MissingPrivileges)
			fault.MissingPrivileges = append(fault.MissingPrivileges, types.NoPermissionEntityPrivileges{Entity: need.object})
		}
		if ids := &fault.MissingPrivileges[i].PrivilegeIds; !slices.Contains(*ids, need.privilege) {
			*ids = append(*ids, need.privilege)
		}
	}
	return fault
}

func noPermission(object types.ManagedObjectReference, privilege string) *types.NoPermission {
	return &types.NoPermission{Object: &object, PrivilegeId: privilege}
}

// authenticate checks the two calls that open a session by credentials. Locked, disabled and unknown accounts all
// look like a wrong password, as on vCenter; an account without any permission is told so.
func (a *Authz) authenticate(ctx *simulator.Context, m *simulator.Method) types.BaseMethodFault {
	switch req := m.Body.(type) {
	case *types.Login:
		user, err := a.dir.Login(directory.SOAP, req.UserName, req.Password)
		if err != nil {
			return new(types.InvalidLogin)
		}
		req.UserName = user.String() // the session shows the name in vCenter's form
		return a.mayEnter(req.UserName)
	case *types.LoginByToken:
		user, err := sso.Redeem(a.dir, ctx.Header.Security)
		if err != nil {
			return new(types.InvalidLogin)
		}
		return a.mayEnter(user.String())
	}
	return nil
}

func (a *Authz) mayEnter(user string) types.BaseMethodFault {
	s := a.scopeOf(a.dir.Parse(user))
	for _, list := range s.granted {
		for _, p := range list {
			if s.rights[p.role][privView] {
				return nil
			}
		}
	}
	return noPermission(a.root, privView)
}

// putTwins shadows the objects that must answer per user. The lock makes sure that a session gets one set only:
// a second PropertyCollector would lose the filters made on the first.
func (a *Authz) putTwins(ctx *simulator.Context) {
	content := contentOf(a.vim)
	a.twins.Lock()
	defer a.twins.Unlock()
	own := ctx.Session.Registry
	if _, ok := own.Get(content.PropertyCollector).(*propertyCollector); ok {
		return
	}
	own.Put(newPropertyCollector(a, content.PropertyCollector))
	if content.SearchIndex != nil {
		own.Put(newSearchIndex(a, *content.SearchIndex))
	}
	if content.UserDirectory != nil {
		own.Put(newUserDirectory(a, *content.UserDirectory))
	}
}

// sessionScope is what the user of a session may do; nil means inside the process: unrestricted.
func (a *Authz) sessionScope(ctx *simulator.Context) *scope {
	if ctx.Session == nil || ctx.Session.UserName == "" {
		return nil
	}
	return a.scopeOf(a.dir.Parse(ctx.Session.UserName))
}

// datastoreOf finds the datastore that a path "[name] dir/file" names within a datacenter.
func (a *Authz) datastoreOf(path string, datacenter *types.ManagedObjectReference) (types.ManagedObjectReference, bool) {
	name, _, ok := strings.Cut(strings.TrimPrefix(path, "["), "]")
	if !ok {
		return types.ManagedObjectReference{}, false
	}
	return a.datastoreNamed(name, datacenter)
}

func (a *Authz) datastoreNamed(name string, datacenter *types.ManagedObjectReference) (types.ManagedObjectReference, bool) {
	for _, e := range a.vim.All("Datastore") {
		ds, ok := e.(*simulator.Datastore)
		if ok && ds.Name == name && (datacenter == nil || a.within(ds.Self, *datacenter)) {
			return ds.Self, true
		}
	}
	return types.ManagedObjectReference{}, false
}

// within tells whether an entity is below (or is) another.
func (a *Authz) within(entity, ancestor types.ManagedObjectReference) bool {
	pending := []types.ManagedObjectReference{entity}
	for steps := 0; len(pending) > 0 && steps < 1000; steps++ {
		ref := pending[0]
		if ref == ancestor {
			return true
		}
		pending = append(pending[1:], a.parents(ref)...)
	}
	return false
}
