package authz

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/authz/directory"
	"vsphere-drivers.example/lab/vcenter/internal/handclock"
)

const (
	adminName = "Administrator@vsphere.local"
	adminPass = directory.DefaultPassword
	userName  = "csi@vsphere.local"
	userPass  = "Secret1!"
)

// lab is a stock inventory of two datacenters with our access control in front.
type lab struct {
	t     *testing.T
	ctx   context.Context
	authz *Authz
	vim   *simulator.Registry
	url   *url.URL
	clock *handclock.Clock
	admin *govmomi.Client
}

func start(t *testing.T, cfg Config) *lab {
	t.Helper()
	model := simulator.VPX()
	model.Datacenter = 2
	model.Pod, model.ClusterHost, model.Portgroup = 1, 1, 0 // small: every test builds one
	if err := model.Create(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(model.Remove)
	l := &lab{t: t, ctx: context.Background(), vim: model.Service.Context.Map, clock: handclock.At(time.Now())}
	cfg.Directory.Now = l.clock.Now
	cfg.Directory.Users = append(cfg.Directory.Users, directory.User{Name: userName, Password: userPass})
	a, err := Install(model.Service, l.vim, cfg)
	if err != nil {
		t.Fatal(err)
	}
	l.authz = a
	l.vim.Handler = a.Handle
	server := model.Service.NewServer()
	t.Cleanup(server.Close)
	l.url = server.URL
	l.admin = l.login(adminName, adminPass)
	return l
}

func (l *lab) try(user, password string) (*govmomi.Client, error) {
	u := *l.url
	u.User = nil
	sc := soap.NewClient(&u, true)
	vc, err := vim25.NewClient(l.ctx, sc)
	if err != nil {
		return nil, err
	}
	m := session.NewManager(vc)
	if err := m.Login(l.ctx, url.UserPassword(user, password)); err != nil {
		return nil, err
	}
	return &govmomi.Client{Client: vc, SessionManager: m}, nil
}

func (l *lab) login(user, password string) *govmomi.Client {
	l.t.Helper()
	c, err := l.try(user, password)
	if err != nil {
		l.t.Fatalf("login as %s: %v", user, err)
	}
	return c
}

// find looks an entity up as the administrator.
func (l *lab) find(path string) types.ManagedObjectReference {
	l.t.Helper()
	list, err := find.NewFinder(l.admin.Client).ManagedObjectList(l.ctx, path)
	if err != nil || len(list) != 1 {
		l.t.Fatalf("%s: %d objects, %v", path, len(list), err)
	}
	return list[0].Object.Reference()
}

func (l *lab) root() types.ManagedObjectReference { return l.admin.ServiceContent.RootFolder }

// grant gives the user a role made of the given privileges; no privilege means ReadOnly.
func (l *lab) grant(entity types.ManagedObjectReference, propagate bool, privileges ...string) {
	l.t.Helper()
	l.grantTo(userName, false, entity, propagate, privileges...)
}

func (l *lab) grantTo(who string, group bool, entity types.ManagedObjectReference, propagate bool, privileges ...string) {
	l.t.Helper()
	role := int32(-2)
	if len(privileges) > 0 {
		var err error
		role, err = l.manager().AddRole(l.ctx, l.t.Name()+entity.Value+privileges[0]+who, privileges)
		if err != nil {
			l.t.Fatal(err)
		}
	}
	err := l.manager().SetEntityPermissions(l.ctx, entity, []types.Permission{{
		Principal: who, Group: group, RoleId: role, Propagate: propagate,
	}})
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) manager() *object.AuthorizationManager {
	return object.NewAuthorizationManager(l.admin.Client)
}

// wantDenied checks that an error is NoPermission for this object and privilege.
func wantDenied(t *testing.T, err error, entity types.ManagedObjectReference, privilege string) {
	t.Helper()
	var denied *types.NoPermission
	if _, ok := fault.As(err, &denied); !ok {
		t.Errorf("want NoPermission for %s, got %v", privilege, err)
		return
	}
	if denied.Object == nil || *denied.Object != entity || denied.PrivilegeId != privilege {
		t.Errorf("NoPermission names %v %s, want %v %s", denied.Object, denied.PrivilegeId, entity, privilege)
	}
}

func isFault[T any](err error) bool {
	var f T
	_, ok := fault.As(err, &f)
	return ok
}
