package vcenter

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	lookup "github.com/vmware/govmomi/lookup/simulator"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
	"vsphere-drivers.example/lab/vcenter/internal/authz"
	"vsphere-drivers.example/lab/vcenter/internal/authz/directory"
	"vsphere-drivers.example/lab/vcenter/internal/authz/sso"
	"vsphere-drivers.example/lab/vcenter/internal/cns"
	"vsphere-drivers.example/lab/vcenter/internal/disks"
	"vsphere-drivers.example/lab/vcenter/internal/history"
	"vsphere-drivers.example/lab/vcenter/internal/pbm"
	"vsphere-drivers.example/lab/vcenter/internal/rest"
	"vsphere-drivers.example/lab/vcenter/internal/strict"
	"vsphere-drivers.example/lab/vcenter/internal/traffic"
)

// services are the parts of vCenter next to the inventory.
type services struct {
	access   *authz.Authz
	rest     *rest.Service
	policies *pbm.Policies
	cns      *cns.Manager
	vsan     *clusterConfigSystem
	disks    *disks.Disks
	tasks    *history.Tasks
}

// CNS is the state of volumes.
func (v *VCenter) CNS() *cns.Manager { return v.services.cns }

// Access is the state of users, roles and permissions.
func (v *VCenter) Access() *authz.Authz { return v.services.access }

// Tasks are the records of tasks.
func (v *VCenter) Tasks() *history.Tasks { return v.services.tasks }

// REST is the state of tags and of the sessions outside SOAP.
func (v *VCenter) REST() *rest.Service { return v.services.rest }

// install adds the services.
func (v *VCenter) install(home string) error {
	for _, step := range []func() error{v.installAccess, v.installTagging, v.installPolicies} {
		if err := step(); err != nil {
			return err
		}
	}
	v.services.tasks = history.Install(v.Vim, history.Config{
		Now:  v.Clock.Now,
		Root: v.services.access.Root(),
		Sees: func(user string, ref types.ManagedObjectReference) bool {
			return v.services.access.Allowed(user, ref, "System.View")
		},
		ReadsRoot: func(user string) bool {
			return v.services.access.Allowed(user, v.services.access.Root(), "System.Read")
		},
		Open:        v.hasSession,
		Assumptions: v.Assumed,
	})
	v.services.vsan = v.newClusterConfigSystem()
	if err := v.installVolumes(home); err != nil {
		return err
	}
	v.installVSAN()
	directory := lookup.New()
	v.Service.RegisterSDK(directory)
	for _, registry := range append(v.services.cns.Registries(), v.Vim, v.services.policies.Registry(), directory) {
		registry.Handler = v.handle
		v.cookies.read(registry)
	}
	return nil
}

func (v *VCenter) installTagging() error {
	v.services.rest = rest.Install(v.Service, v.Vim, rest.Config{
		Release:    v.Profile,
		Access:     restAccess{v.services.access, v},
		Now:        v.Clock.Now,
		Idle:       func() time.Duration { return time.Duration(assume.RESTIdleMinutes.In(v.Assumed)) * time.Minute },
		MaxPerUser: func() int { return v.Limits().RESTSessions },
		Before: func(user, verb, path, action string, _ http.ResponseWriter) bool {
			name := verb + " " + path
			if action != "" {
				name += "?action=" + action
			}
			v.Traffic.Note(user, name)
			v.lingerREST(verb, path)
			return false
		},
	})
	return v.fillTags()
}

func (v *VCenter) installPolicies() error {
	cfg := pbm.Config{Release: v.Profile, Tags: v.policyTags}
	for _, policy := range v.World.Policies {
		made := pbm.Policy{Name: policy.Name, ID: policy.ID, Description: policy.Description}
		for _, path := range policy.Datastores {
			datastore := v.Inventory.At(path)
			if datastore == nil {
				return fmt.Errorf("storage policy %s: there is nothing at %s", policy.Name, path)
			}
			made.Datastores = append(made.Datastores, *datastore)
		}
		cfg.Policies = append(cfg.Policies, made)
	}
	policies, err := pbm.Install(v.Service, v.Vim, cfg)
	v.services.policies = policies
	return err
}

func (v *VCenter) installAccess() error {
	cfg := authz.Config{
		Release: v.Profile, Assumptions: v.Assumed, Reads: v.Inventory, Directory: directory.Config{Now: v.Clock.Now},
	}
	for _, role := range v.World.Roles {
		cfg.Roles = append(cfg.Roles, authz.Role{Name: role.Name, Privileges: role.Privileges})
	}
	for _, user := range v.World.Users {
		cfg.Directory.Users = append(cfg.Directory.Users, directory.User{
			Name: user.Name, Password: user.Password, Groups: user.Groups, Disabled: user.Disabled, Locked: user.Locked,
		})
		for _, permission := range user.Permissions {
			entity := v.Inventory.At(permission.On)
			if entity == nil {
				return fmt.Errorf("user %s: there is nothing at %s", user.Name, permission.On)
			}
			cfg.Permissions = append(cfg.Permissions, authz.Permission{
				Entity: *entity, Principal: user.Name, Role: permission.Role, Propagate: permission.Propagate.On(),
			})
		}
	}
	cfg.SSO = sso.Config{
		Before: func(user string, m *simulator.Method) types.BaseMethodFault {
			v.linger(&simulator.Context{Context: context.Background()}, m)
			return v.Traffic.CheckUser(new(simulator.Context), user, m)
		},
		Certificates: func() []string { return []string{v.Vim.SessionManager().TLSCert()} },
	}
	access, err := authz.Install(v.Service, v.Vim, cfg)
	v.services.access = access
	return err
}

func (v *VCenter) installVolumes(home string) error {
	var err error
	cfg := cns.Config{
		Profile: v.Profile, Assumptions: v.Assumed, Policies: v.services.policies, Clock: v.Clock.Now, Fate: v.fate,
		Tags:    v.services.rest,
		Working: func(vm types.ManagedObjectReference) bool { return v.Latency.Busy(vm.Value, time.Now()) },
		MayPlace: func(user string, datastore types.ManagedObjectReference) bool {
			return v.services.access.Allowed(user, datastore, "Datastore.FileManagement")
		},
		Sees: func(user string, datastore types.ManagedObjectReference) bool {
			return v.services.access.Allowed(user, datastore, "System.View")
		},
		FileService: v.services.vsan.servesFiles,
	}
	if nodes := v.Inventory.Nodes(); len(nodes) > 0 {
		if home == "" {
			return errors.New("nodes with real disks need a home directory for the disks' content")
		}
		store := disks.Config{Dir: filepath.Join(home, "disks-"+v.World.Name), Nodes: map[string]string{}}
		if err := os.MkdirAll(store.Dir, 0o700); err != nil {
			return fmt.Errorf("content of disks: %w", err)
		}
		for ref, node := range nodes {
			store.Nodes[ref.Value] = node.Disks
		}
		if v.services.disks, err = disks.New(store); err != nil {
			return err
		}
		cfg.Disks = v.services.disks
	}
	if v.services.cns, err = cns.Install(v.Service, v.Vim, cfg); err != nil {
		return err
	}
	v.services.access.SetVolumeDatastore(v.services.cns.VolumeDatastore)
	return nil
}

// fate lets the rules and the latency decide about the tasks of CNS, which are not the simulator's.
func (v *VCenter) fate(ctx *simulator.Context, _ string) cns.Fate {
	fate := v.ruled(ctx)
	if takes := v.taskTime(ctx.Context, time.Now()); takes > 0 {
		pause := v.Traffic.Pauses() // from now on: a restart must not miss a task that has just begun
		fate.Wait = func(task *simulator.Task) bool { return v.work(task, takes, pause) }
	}
	return fate
}

func (v *VCenter) ruled(ctx *simulator.Context) cns.Fate {
	fate, ok := v.Traffic.Claim(ctx)
	if !ok {
		return cns.Fate{}
	}
	switch fate.At {
	case traffic.AtHalf:
		return cns.Fate{Half: true, Fault: fate.Fault}
	case traffic.AtHold:
		return cns.Fate{Hold: true}
	case traffic.AtLate:
		return cns.Fate{Late: true, Fault: fate.Fault}
	case traffic.AtGone:
		return cns.Fate{Gone: true}
	case traffic.AtTask:
		return cns.Fate{SkipWork: true, Fault: fate.Fault}
	case traffic.AtTaskDone:
		return cns.Fate{Fault: fate.Fault}
	case traffic.AtResult:
		return cns.Fate{SkipWork: true, Result: cns.VolumeFault(fate.Fault)}
	case traffic.AtResultDone:
		return cns.Fate{Blame: fate.Fault}
	case traffic.AtResultLate:
		return cns.Fate{Late: true, Result: cns.VolumeFault(fate.Fault)}
	}
	return cns.Fate{Hang: true}
}

// protect puts the checks in front of the endpoints that look at whole requests.
func (v *VCenter) protect(next http.Handler) (http.Handler, error) {
	guard, err := strict.New(strict.Config{
		Profile:    v.Profile,
		HasSession: func(cookie string) bool { return v.hasSession(v.cookies.key(cookie)) },
		ShutOut:    func(path, cookie string) bool { return v.isHalfDead(path, v.cookies.key(cookie)) },
	})
	if err != nil {
		return nil, err
	}
	named, err := nameMissing(v.services.cns.Correct(next))
	if err != nil {
		return nil, err
	}
	return v.cookies.write(v.endIdle(v.limitSessions(guard(named)))), nil
}

// expireAll ends the sessions outside SOAP and tells how many there were.
func (s *services) expireAll() int {
	ended := len(s.access.SSO().Sessions()) + len(s.rest.Sessions())
	s.access.SSO().Reset()
	s.rest.ExpireAll()
	return ended
}

func (s *services) close() error {
	s.cns.Abandon(cns.None)
	if s.disks == nil {
		return nil
	}
	return s.disks.Close()
}
