// Package inventory turns a description into the objects of a simulated vCenter. It makes the objects directly and puts
// them into the simulator's registry instead of calling the create methods one by one: vCenter's own create path writes
// files and runs tasks, which makes 10,000 VMs slow, and it cannot express a description (UUIDs, addresses, free space).
package inventory

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
	"vsphere-drivers.example/lab/vcenter/internal/profile"
	"vsphere-drivers.example/lab/vcenter/internal/world"
)

// Inventory is the built world: the registry it is in, and where to find the objects by the paths of the description.
type Inventory struct {
	ctx     *simulator.Context
	profile *profile.Profile
	paths   map[string]types.ManagedObjectReference
	nodes   map[types.ManagedObjectReference]world.Node
	sites   []*site

	assumed *assume.Settings

	armed atomic.Int32 // VMs that vanish or are blank at a read, so that reads look no further while there are none

	mu        sync.Mutex
	vms       map[types.ManagedObjectReference]*world.VM // what the guests report once they run
	reports   map[types.ManagedObjectReference]report    // what they report besides
	vanishing map[types.ManagedObjectReference]bool
}

// Build fills the registry of ctx with the described world. The registry must hold a fresh service instance, and nobody
// may be served from it yet.
func Build(ctx *simulator.Context, w *world.World, p *profile.Profile, assumed *assume.Settings) (*Inventory, error) {
	inv := &Inventory{
		ctx:       ctx,
		profile:   p,
		assumed:   assumed,
		paths:     map[string]types.ManagedObjectReference{},
		nodes:     map[types.ManagedObjectReference]world.Node{},
		vms:       map[types.ManagedObjectReference]*world.VM{},
		reports:   map[types.ManagedObjectReference]report{},
		vanishing: map[types.ManagedObjectReference]bool{},
	}
	root, ok := ctx.Map.Get(serviceContent(ctx).RootFolder).(*simulator.Folder)
	if !ok {
		return nil, fmt.Errorf("the registry has no root folder; create the service instance first")
	}
	inv.paths["/"] = root.Self
	for i := range w.Datacenters {
		if err := inv.datacenter(root, &w.Datacenters[i]); err != nil {
			return nil, fmt.Errorf("datacenter %s: %w", w.Datacenters[i].Name, err)
		}
	}
	inv.settle()
	inv.ForgetTasks()
	ctx.Map.AddHandler(&guestFollowsPower{inv})
	return inv, nil
}

// At finds an object by the path it had in the description, or nil.
func (inv *Inventory) At(at string) *types.ManagedObjectReference {
	ref, ok := inv.paths[path.Clean("/"+at)]
	if !ok {
		return nil
	}
	return &ref
}

// Nodes are the VMs that are lab nodes, with where their disks go.
func (inv *Inventory) Nodes() map[types.ManagedObjectReference]world.Node {
	return inv.nodes
}

func serviceContent(ctx *simulator.Context) types.ServiceContent {
	instance := ctx.Map.Get(types.ManagedObjectReference{Type: "ServiceInstance", Value: "ServiceInstance"})
	return instance.(*simulator.ServiceInstance).Content
}

// site is a datacenter: what it takes to build it, and more VMs in it.
type site struct {
	*Inventory
	description *world.Datacenter
	path        string
	dc          *simulator.Datacenter
	hosts       map[string]*simulator.HostSystem
	clusters    map[string]*simulator.ClusterComputeResource // by host
	pools       map[string]types.ManagedObjectReference      // by host and path: esx-1/k8s
	stores      map[string]*simulator.Datastore
	networks    map[string]network
}

func (inv *Inventory) datacenter(root *simulator.Folder, d *world.Datacenter) error {
	parent, err := inv.folders(root, "/", d.Folder)
	if err != nil {
		return err
	}
	made := parent.CreateDatacenter(inv.ctx, &types.CreateDatacenter{This: parent.Self, Name: d.Name})
	if err := failed(made); err != nil {
		return err
	}
	ref := made.(*methods.CreateDatacenterBody).Res.Returnval
	s := &site{
		Inventory:   inv,
		description: d,
		path:        d.Path(),
		dc:          inv.ctx.Map.Get(ref).(*simulator.Datacenter),
		hosts:       map[string]*simulator.HostSystem{},
		clusters:    map[string]*simulator.ClusterComputeResource{},
		pools:       map[string]types.ManagedObjectReference{},
		stores:      map[string]*simulator.Datastore{},
		networks:    map[string]network{},
	}
	inv.paths[s.path] = ref
	inv.sites = append(inv.sites, s)
	for name, folder := range s.roots() {
		inv.paths[path.Join(s.path, name)] = folder
	}
	for _, folder := range d.Folders {
		kind, rest, _ := strings.Cut(strings.Trim(folder, "/"), "/")
		if _, err := s.folder(kind, rest); err != nil {
			return err
		}
	}
	for _, step := range []func() error{s.computeResources, s.networking, s.storage, s.machines} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (s *site) roots() map[string]types.ManagedObjectReference {
	return map[string]types.ManagedObjectReference{
		"vm": s.dc.VmFolder, "host": s.dc.HostFolder, "datastore": s.dc.DatastoreFolder, "network": s.dc.NetworkFolder,
	}
}

// folder is the folder at a path below one of the datacenter's four, made when it is not there.
func (s *site) folder(kind, at string) (*simulator.Folder, error) {
	root, ok := s.ctx.Map.Get(s.roots()[kind]).(*simulator.Folder)
	if !ok {
		return nil, fmt.Errorf("there is no %s folder", kind)
	}
	return s.folders(root, path.Join(s.path, kind), at)
}

func (inv *Inventory) folders(parent *simulator.Folder, base, at string) (*simulator.Folder, error) {
	for _, name := range strings.FieldsFunc(at, func(r rune) bool { return r == '/' }) {
		base = path.Join(base, name)
		if ref, ok := inv.paths[base]; ok {
			parent = inv.ctx.Map.Get(ref).(*simulator.Folder)
			continue
		}
		made := parent.CreateFolder(inv.ctx, &types.CreateFolder{This: parent.Self, Name: name})
		if err := failed(made); err != nil {
			return nil, fmt.Errorf("folder %s: %w", base, err)
		}
		ref := made.(*methods.CreateFolderBody).Res.Returnval
		inv.paths[base] = ref
		parent = inv.ctx.Map.Get(ref).(*simulator.Folder)
	}
	return parent, nil
}

// adopt puts a new object into a folder, both ways.
func (inv *Inventory) adopt(folder *mo.Folder, child mo.Entity, at string) {
	inv.ctx.Map.NewEntity(child)
	folder.ChildEntity = append(folder.ChildEntity, child.Reference())
	inv.ctx.Map.PutEntity(folder, child)
	inv.paths[at] = child.Reference()
}

// finish waits for a task of the simulator and gives its result.
func (inv *Inventory) finish(ref types.ManagedObjectReference) (types.AnyType, error) {
	task, ok := inv.ctx.Map.Get(ref).(*simulator.Task)
	if !ok {
		return nil, fmt.Errorf("task %s is gone", ref.Value)
	}
	task.Wait()
	if task.Info.Error != nil {
		return nil, fmt.Errorf("%T", task.Info.Error.Fault)
	}
	return task.Info.Result, nil
}

// settle waits for every task.
func (inv *Inventory) settle() {
	for _, object := range inv.ctx.Map.AllReference("Task") {
		if task, ok := object.(*simulator.Task); ok {
			task.Wait()
		}
	}
}

// ForgetTasks removes all tasks, as a restart of vCenter does. Those that still work finish unseen.
func (inv *Inventory) ForgetTasks() {
	ctx := inv.newContext()
	for _, task := range ctx.Map.AllReference("Task") {
		ctx.Map.Remove(ctx, task.Reference())
	}
	none := []types.ManagedObjectReference{}
	if manager, ok := ctx.Map.Get(*serviceContent(ctx).TaskManager).(*simulator.TaskManager); ok {
		inv.update(manager, set("recentTask", none))
	}
	for _, entity := range ctx.Map.All("") {
		recent := 0
		inv.withLock(entity, func() { recent = len(entity.Entity().RecentTask) })
		if recent > 0 {
			inv.update(entity, set("recentTask", none))
		}
	}
}

// DropRecent takes tasks that are gone off the lists of recent tasks.
func (inv *Inventory) DropRecent(entities []types.ManagedObjectReference, gone func(types.ManagedObjectReference) bool) {
	ctx := inv.newContext()
	if manager, ok := ctx.Map.Get(*serviceContent(ctx).TaskManager).(*simulator.TaskManager); ok {
		ctx.WithLock(manager, func() {
			ctx.Update(manager, []types.PropertyChange{set("recentTask", slices.DeleteFunc(slices.Clone(manager.RecentTask), gone))})
		})
	}
	for _, ref := range entities {
		entity, ok := ctx.Map.Get(ref).(mo.Entity)
		if !ok {
			continue
		}
		own := inv.newContext()
		own.WithLock(entity, func() {
			recent := slices.DeleteFunc(slices.Clone(entity.Entity().RecentTask), gone)
			if len(recent) != len(entity.Entity().RecentTask) {
				own.Update(entity, []types.PropertyChange{set("recentTask", recent)})
			}
		})
	}
}

func failed(answer soap.HasFault) error {
	fault := answer.Fault()
	if fault == nil {
		return nil
	}
	return fmt.Errorf("%T %s", fault.VimFault(), fault.String)
}

// withLock runs f while it alone may touch the object. Every use has a context of its own, because locks belong to contexts.
func (inv *Inventory) withLock(object mo.Reference, f func()) {
	inv.newContext().WithLock(object, f)
}

func (inv *Inventory) newContext() *simulator.Context {
	return &simulator.Context{Context: context.Background(), Session: inv.ctx.Session, Map: inv.ctx.Map}
}
