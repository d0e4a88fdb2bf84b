// Package authz decides who may do what in one vCenter. It owns the users (package directory), the roles and
// the permissions, checks every method call against them, and hides from each session what its user may not see.
//
// Hiding works without changes to govmomi's simulator: a session's own object registry is searched before the
// service's, so the first checked call of a session puts filtering twins of the PropertyCollector, the SearchIndex
// and the UserDirectory there. Everything else still sees the stock objects.
package authz

import (
	"fmt"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
	"vsphere-drivers.example/lab/vcenter/internal/authz/directory"
	"vsphere-drivers.example/lab/vcenter/internal/authz/sso"
	"vsphere-drivers.example/lab/vcenter/internal/profile"
)

// Role is a role as a description gives it. vCenter adds the three System privileges by itself.
type Role struct {
	Name       string
	Privileges []string
}

// Permission is a permission as a description gives it.
type Permission struct {
	Entity    types.ManagedObjectReference
	Principal string // name@domain, DOMAIN\name or bare
	Group     bool
	Role      string // by name
	Propagate bool
}

// Config says who exists and what they may do. With no permissions given, only Administrator of the system
// domain and the group Administrators have rights: the Admin role on the root folder, propagating.
type Config struct {
	Release     *profile.Profile // nil means the newest
	Directory   directory.Config
	Roles       []Role
	Permissions []Permission
	SSO         sso.Config

	// HideAncestors leaves the ancestors of an entity invisible to a user who has a permission on the entity only.
	// vCenter shows them (its View role, "visibility access (cannot be granted)"): their names and links can be read,
	// nothing else. That it does so everywhere is an assumption, hence the switch.
	HideAncestors bool

	// Assumptions are those of this vCenter; nil: the release's defaults.
	Assumptions *assume.Settings

	// Reads is told what clients read; it may be nil.
	Reads Reads

	// VolumeDatastore finds the datastore of a CNS volume; nil means that calls naming volumes only are not checked.
	VolumeDatastore func(volumeID string) (types.ManagedObjectReference, bool)
}

// Reads is told what clients read, before they get the answer.
type Reads interface {
	// Vanishes tells whether an object that a read found left the inventory before the read was done.
	Vanishes(object types.ManagedObjectReference) bool
	// GuestRead says that a client is told what a VM's guest reports.
	GuestRead(vm types.ManagedObjectReference)
}

// Authz is the state: directory, roles and permissions of one vCenter.
type Authz struct {
	cfg  Config
	dir  *directory.Directory
	sso  *sso.Endpoint
	vim  *simulator.Registry
	root types.ManagedObjectReference
	rows map[string]row

	mu          sync.RWMutex
	roles       []types.AuthorizationRole
	rights      map[int32]rights // by role id
	nextRole    int32
	permissions map[types.ManagedObjectReference][]permission

	twins sync.Mutex // one set of twins per session
}

// Install replaces the AuthorizationManager, takes over the logins of the service and serves the single sign-on
// endpoints. It must run after the inventory is built (permissions name entities) and before the service listens;
// the caller then runs Handle (or Check) from every Registry.Handler.
func Install(service *simulator.Service, vim *simulator.Registry, cfg Config) (*Authz, error) {
	if cfg.Assumptions == nil {
		release := cfg.Release
		if release == nil {
			release = profile.All[len(profile.All)-1]
		}
		var err error
		if cfg.Assumptions, err = assume.For(release); err != nil {
			return nil, err
		}
	}
	dir, err := directory.New(cfg.Directory)
	if err != nil {
		return nil, err
	}
	rows, err := readRows()
	if err != nil {
		return nil, err
	}
	content := contentOf(vim)
	a := &Authz{
		cfg: cfg, dir: dir, vim: vim, root: content.RootFolder, rows: rows,
		rights: map[int32]rights{}, nextRole: firstRole, permissions: map[types.ManagedObjectReference][]permission{},
	}
	a.fillRoles()
	for _, r := range cfg.Roles {
		if _, err := a.AddRole(r.Name, r.Privileges); err != nil {
			return nil, fmt.Errorf("role %q: %w", r.Name, err)
		}
	}
	if err := a.fillPermissions(); err != nil {
		return nil, err
	}
	vim.Put(newAuthorizationManager(a, *content.AuthorizationManager))
	vim.SessionManager().ValidLogin = func(req *types.Login) bool {
		_, err := dir.Login(directory.SOAP, req.UserName, req.Password)
		return err == nil
	}
	a.sso = sso.Install(service, vim, dir, cfg.SSO)
	return a, nil
}

// Directory is the store of users and groups, for control and for the REST logins.
func (a *Authz) Directory() *directory.Directory { return a.dir }

// SSO is the endpoint of the administration API, for control (its sessions, a restart).
func (a *Authz) SSO() *sso.Endpoint { return a.sso }

// SetVolumeDatastore gives the lookup when CNS is installed after this package; call it before the service listens.
func (a *Authz) SetVolumeDatastore(find func(volumeID string) (types.ManagedObjectReference, bool)) {
	a.cfg.VolumeDatastore = find
}

func contentOf(vim *simulator.Registry) types.ServiceContent {
	if s, ok := vim.Get(vim25.ServiceInstance).(interface{ ServiceContent() types.ServiceContent }); ok {
		return s.ServiceContent()
	}
	if s, ok := vim.Get(vim25.ServiceInstance).(*simulator.ServiceInstance); ok {
		return s.Content
	}
	return types.ServiceContent{}
}
