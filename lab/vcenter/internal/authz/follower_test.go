package authz

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// follower is a client with a collector of its own, and the version that it has.
type follower struct {
	*lab
	client    *govmomi.Client
	collector *property.Collector
	self      types.ManagedObjectReference // the collector's; its client forgets it when it is destroyed
	version   string
}

func (l *lab) follow(client *govmomi.Client) *follower {
	l.t.Helper()
	collector, err := property.DefaultCollector(client.Client).Create(l.ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	return &follower{lab: l, client: client, collector: collector, self: collector.Reference()}
}

// followByDefault takes the collector that every session has.
func (l *lab) followByDefault(client *govmomi.Client) *follower {
	return &follower{lab: l, client: client, collector: property.DefaultCollector(client.Client), self: client.ServiceContent.PropertyCollector}
}

func (f *follower) filter(spec types.PropertyFilterSpec) *property.Filter {
	f.t.Helper()
	filter, err := f.collector.CreateFilter(f.ctx, types.CreateFilter{Spec: spec})
	if err != nil {
		f.t.Fatal(err)
	}
	return filter
}

// machines is a view of all VMs, with a filter for some properties.
func (f *follower) machines(paths ...string) (*view.ContainerView, *property.Filter) {
	f.t.Helper()
	v, err := view.NewManager(f.client.Client).CreateContainerView(f.ctx, f.root(), []string{"VirtualMachine"}, true)
	if err != nil {
		f.t.Fatal(err)
	}
	return v, f.filter(throughSpec(v.Reference(), "VirtualMachine", paths...))
}

func throughSpec(v types.ManagedObjectReference, kind string, paths ...string) types.PropertyFilterSpec {
	return types.PropertyFilterSpec{
		PropSet: []types.PropertySpec{{Type: kind, PathSet: paths}},
		ObjectSet: []types.ObjectSpec{{
			Obj: v, Skip: types.NewBool(true), SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{Type: v.Type, Path: "view"}},
		}},
	}
}

func objectSpec(paths []string, refs ...types.ManagedObjectReference) types.PropertyFilterSpec {
	spec := types.PropertyFilterSpec{PropSet: []types.PropertySpec{{Type: refs[0].Type, PathSet: paths}}}
	for _, ref := range refs {
		spec.ObjectSet = append(spec.ObjectSet, types.ObjectSpec{Obj: ref})
	}
	return spec
}

func (f *follower) ask(version string, seconds, page int32) (*types.UpdateSet, error) {
	ctx, cancel := context.WithTimeout(f.ctx, time.Minute)
	defer cancel()
	res, err := methods.WaitForUpdatesEx(ctx, f.client, &types.WaitForUpdatesEx{
		This: f.self, Version: version,
		Options: &types.WaitOptions{MaxWaitSeconds: &seconds, MaxObjectUpdates: page},
	})
	if err != nil {
		return nil, err
	}
	return res.Returnval, nil
}

func (f *follower) poll(seconds, page int32) *types.UpdateSet {
	f.t.Helper()
	set, err := f.ask(f.version, seconds, page)
	if err != nil {
		f.t.Fatal(err)
	}
	if set != nil {
		if set.Version == f.version || set.Version == "" {
			f.t.Errorf("version %q after %q", set.Version, f.version)
		}
		f.version = set.Version
	}
	return set
}

// all polls until nothing is left, and waits for the first if it must.
func (f *follower) all() []types.ObjectUpdate {
	f.t.Helper()
	var list []types.ObjectUpdate
	for set := f.poll(60, 0); set != nil; set = f.poll(0, 0) {
		for _, u := range set.FilterSet {
			list = append(list, u.ObjectSet...)
		}
	}
	return list
}

// later does the same while the test goes on; a failure gives no updates.
func (f *follower) later() <-chan []types.ObjectUpdate {
	told := make(chan []types.ObjectUpdate, 1)
	go func() {
		defer close(told)
		told <- f.all()
	}()
	return told
}

// nothing checks that there is nothing to tell.
func (f *follower) nothing(when string) {
	f.t.Helper()
	if set := f.poll(0, 0); set != nil {
		f.t.Errorf("%s: %+v", when, set)
	}
}

// change sets properties as the inventory would.
func (l *lab) change(ref types.ManagedObjectReference, changes ...types.PropertyChange) {
	ctx := &simulator.Context{Context: l.ctx, Map: l.vim}
	l.vim.AtomicUpdate(ctx, l.vim.Get(ref), changes)
}

func to(name string, value any) types.PropertyChange {
	return types.PropertyChange{Name: name, Val: value}
}

func (l *lab) vms() []types.ManagedObjectReference {
	var refs []types.ManagedObjectReference
	for _, vm := range l.vim.All("VirtualMachine") {
		refs = append(refs, vm.Reference())
	}
	slices.SortFunc(refs, func(a, b types.ManagedObjectReference) int { return strings.Compare(a.Value, b.Value) })
	return refs
}

// clone makes a VM beside another.
func (l *lab) clone(name string) *object.VirtualMachine {
	l.t.Helper()
	source := l.vms()[0]
	var folder mo.VirtualMachine
	if err := l.admin.RetrieveOne(l.ctx, source, []string{"parent"}, &folder); err != nil {
		l.t.Fatal(err)
	}
	task, err := object.NewVirtualMachine(l.admin.Client, source).Clone(l.ctx, object.NewFolder(l.admin.Client, *folder.Parent), name, types.VirtualMachineCloneSpec{})
	if err != nil {
		l.t.Fatal(err)
	}
	info, err := task.WaitForResult(l.ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	return object.NewVirtualMachine(l.admin.Client, info.Result.(types.ManagedObjectReference))
}

func (l *lab) destroy(vm *object.VirtualMachine) {
	l.t.Helper()
	task, err := vm.Destroy(l.ctx)
	if err == nil {
		err = task.Wait(l.ctx)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// only checks for one update of one object and gives its changes.
func only(t *testing.T, list []types.ObjectUpdate, kind types.ObjectUpdateKind, ref types.ManagedObjectReference) map[string]any {
	t.Helper()
	if len(list) != 1 || list[0].Kind != kind || list[0].Obj != ref {
		t.Fatalf("got %+v, want one %s of %s", list, kind, ref)
	}
	changes := map[string]any{}
	for _, c := range list[0].ChangeSet {
		if _, twice := changes[c.Name]; twice || c.Op != types.PropertyChangeOpAssign {
			t.Errorf("%s is told twice or not assigned: %+v", c.Name, list)
		}
		changes[c.Name] = c.Val
	}
	return changes
}
