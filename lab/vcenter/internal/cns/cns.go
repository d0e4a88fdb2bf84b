// Package cns is vCenter's Cloud Native Storage with state: the managed objects cns-volume-manager and
// cns-debug-manager at /vsanHealth, the first class disks (FCDs) behind its block volumes, and the catalogue of all FCDs at
// /vslm/sdk.
//
// It replaces govmomi's own simulator of CNS, which keeps books only. Here volumes take space on datastores, attaching
// puts a complete virtual disk on the VM, and what vCenter refuses is refused with the fault vCenter gives. What we could
// not check on a real vCenter is a switch in package assume.
//
// Disks are also published in the vim25 VcenterVStorageObjectManager, so that all three APIs show the same disks.
//
// Locks are taken in this order: operation on a volume, operation on a VM, the VM object, Manager.mu, the FCD catalogue
// or a datastore object.
package cns

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vmware/govmomi/cns"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
	"vsphere-drivers.example/lab/vcenter/internal/profile"
)

// Policies tells which datastores satisfy a storage policy.
type Policies interface {
	// Compatible gives the datastores that satisfy the policy with this profile id; known is false when there is
	// no such policy.
	Compatible(profileID string) (datastores []types.ManagedObjectReference, known bool)
}

// Disks keeps the content of block volumes and shows it to nodes; package disks has the real one.
// Operations on one volume never overlap.
type Disks interface {
	Create(volume string, bytes int64) error
	CreateFromSnapshot(volume string, bytes int64, source, snapshot string) error
	Delete(volume string) error
	Extend(volume string, bytes int64) error
	Snapshot(volume, snapshot string) error
	DeleteSnapshot(volume, snapshot string) error
	// Attach shows the disk to the VM with this managed object id and BIOS UUID, under the name of the link if there is one.
	Attach(volume, vm, biosUUID, link string) error
	Detach(volume, vm string) error
}

// Fate changes how a task ends; the zero value is the normal course.
type Fate struct {
	Delay    time.Duration              // before the work
	Wait     func(*simulator.Task) bool // before the work; if it is false nothing more happens
	SkipWork bool                       // nothing is done
	Half     bool                       // the work is half done
	Hold     bool                       // the work waits for Release or for a restart
	Late     bool                       // the task ends with Fault or Result at once, its work waits as with Hold
	Gone     bool                       // the task cannot be found once its work is done
	Hang     bool                       // the task stays running for ever, after the work
	Fault    types.BaseMethodFault      // replaces the result, after the work
	Result   types.AnyType              // replaces the result of a task that succeeds, such as by one with a volume's fault
	Blame    types.BaseMethodFault      // the fault of every volume in the result, although the work is done
}

// Config is what CNS needs from the rest of the simulator. Only Profile is mandatory.
type Config struct {
	Profile     *profile.Profile
	Assumptions *assume.Settings // nil: the release's defaults
	Policies    Policies         // nil: every datastore satisfies every policy
	Disks       Disks            // nil: volumes have a size but no content
	Tags        Tags             // nil: disks cannot be tagged
	Clock       func() time.Time // nil: the system's clock
	// Fate is asked once for every task, with the request's context and the SOAP method's name; nil: all tasks take their
	// normal course.
	Fate func(ctx *simulator.Context, method string) Fate
	// Working reports whether an attach or detach has a VM for itself while its task takes its time; nil: tasks take none.
	Working func(vm types.ManagedObjectReference) bool
	// MayPlace tells whether a user may create disks on a datastore; nil: everybody may. What CNS makes of a candidate
	// without that privilege depends on the release.
	MayPlace func(user string, datastore types.ManagedObjectReference) bool
	// Sees tells whether a user sees a datastore at all; nil: everybody does.
	Sees func(user string, datastore types.ManagedObjectReference) bool
	// FileService tells whether vSAN file service serves a datastore; nil: it does.
	FileService func(datastore types.ManagedObjectReference) bool
}

// Manager is the state of one vCenter's CNS.
type Manager struct {
	vim         *simulator.Registry
	fcds        *simulator.VcenterVStorageObjectManager
	release     *profile.Profile
	assumed     *assume.Settings
	policies    Policies
	content     Disks
	tags        Tags
	now         func() time.Time
	fate        func(*simulator.Context, string) Fate
	working     func(types.ManagedObjectReference) bool
	fileService func(types.ManagedObjectReference) bool
	mayPlace    func(string, types.ManagedObjectReference) bool
	sees        func(string, types.ManagedObjectReference) bool
	registries  []*simulator.Registry
	root        types.ManagedObjectReference

	volumeOps keyedLocks
	vmOps     keyedLocks
	jobs      jobs

	busy    sync.Mutex // guards busyVMs; comes before all other locks
	busyVMs map[types.ManagedObjectReference]func()

	mu       sync.Mutex
	sequence int64
	volumes  map[string]*volume
	disks    map[string]*disk
	fcdDirs  map[types.ManagedObjectReference]string
	shadows  map[string]*shadow
	ghosts   map[string]ghost
	// policiesDown says that the storage policy service (SPS) does not run.
	policiesDown bool
}

// Install registers CNS and VSLM with the service and listens to the inventory. It must come before Service.NewServer, and
// govmomi's packages cns/simulator and vslm/simulator must not be imported, or their objects take the place of ours.
func Install(service *simulator.Service, vim *simulator.Registry, cfg Config) (*Manager, error) {
	if cfg.Profile == nil {
		return nil, errors.New("cns: the configuration names no vCenter release")
	}
	m := &Manager{
		vim:         vim,
		release:     cfg.Profile,
		policies:    cfg.Policies,
		content:     cfg.Disks,
		tags:        cfg.Tags,
		now:         cfg.Clock,
		fate:        cfg.Fate,
		working:     cfg.Working,
		fileService: cfg.FileService,
		mayPlace:    cfg.MayPlace,
		sees:        cfg.Sees,
		busyVMs:     map[types.ManagedObjectReference]func(){},
		volumes:     map[string]*volume{},
		disks:       map[string]*disk{},
		fcdDirs:     map[types.ManagedObjectReference]string{},
		shadows:     map[string]*shadow{},
		ghosts:      map[string]ghost{},
	}
	instance, ok := vim.Get(vim25.ServiceInstance).(*simulator.ServiceInstance)
	if !ok || instance.Content.VStorageObjectManager == nil {
		return nil, errors.New("cns: the inventory has no FCD manager; CNS needs a vCenter, not a host")
	}
	if m.fcds, ok = vim.Get(*instance.Content.VStorageObjectManager).(*simulator.VcenterVStorageObjectManager); !ok {
		return nil, fmt.Errorf("cns: %s is no FCD manager", instance.Content.VStorageObjectManager)
	}
	vim.Put(&vimDisks{VcenterVStorageObjectManager: m.fcds, m: m})
	m.root = instance.Content.RootFolder
	if m.assumed = cfg.Assumptions; m.assumed == nil {
		var err error
		if m.assumed, err = assume.For(cfg.Profile); err != nil {
			return nil, err
		}
	}
	if m.now == nil {
		m.now = time.Now
	}

	registry := simulator.NewRegistry()
	registry.Namespace = cns.Namespace
	registry.Path = cns.Path
	registry.Cookie = simulator.HTTPCookie
	registry.Put(&volumeManager{ManagedObjectReference: cns.CnsVolumeManagerInstance, m: m})
	registry.Put(&debugManager{ManagedObjectReference: cns.CnsDebugManagerInstance, m: m})
	m.registries = []*simulator.Registry{registry, newVSLM(m)}
	for _, r := range m.registries {
		service.RegisterSDK(r)
	}

	vim.AddHandler(&inventoryWatch{m: m})
	return m, nil
}

// Registries are those of CNS and of VSLM, for hooks on their calls.
func (m *Manager) Registries() []*simulator.Registry { return m.registries }

// Assumptions are those of this vCenter.
func (m *Manager) Assumptions() *assume.Settings { return m.assumed }

// since tells whether this vCenter is the named release or newer; "never" is none.
func (m *Manager) since(release string) bool { return m.release.AtLeast(release) }

// inventory is a fresh locking context for the vim25 registry: govmomi shares locks among users of one context, so
// every operation needs its own.
func (m *Manager) inventory() *simulator.Context {
	return &simulator.Context{Context: background, Map: m.vim}
}
