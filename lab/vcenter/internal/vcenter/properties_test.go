package vcenter

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/inventory"
)

// follower waits for changes of one object with a collector of its own.
type follower struct {
	t       *testing.T
	ctx     context.Context
	client  *govmomi.Client
	self    types.ManagedObjectReference
	version string
}

func follow(t *testing.T, client *govmomi.Client, object types.ManagedObjectReference, paths ...string) *follower {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	collector, err := property.DefaultCollector(client.Client).Create(ctx)
	if err != nil {
		t.Fatal(err)
	}
	filter := new(property.WaitFilter).Add(object, object.Type, paths)
	if _, err := collector.CreateFilter(ctx, filter.CreateFilter); err != nil {
		t.Fatal(err)
	}
	return &follower{t: t, ctx: ctx, client: client, self: collector.Reference()}
}

// told is what changed since the last time: the values by path. It waits for a change if there is none, or does not.
func (f *follower) told(wait bool) map[string]any {
	f.t.Helper()
	options := &types.WaitOptions{MaxWaitSeconds: types.NewInt32(0)}
	if wait {
		options.MaxWaitSeconds = types.NewInt32(60)
	}
	answer, err := methods.WaitForUpdatesEx(f.ctx, f.client, &types.WaitForUpdatesEx{This: f.self, Version: f.version, Options: options})
	if err != nil {
		f.t.Fatal(err)
	}
	values := map[string]any{}
	if answer.Returnval == nil {
		return values
	}
	f.version = answer.Returnval.Version
	for _, filter := range answer.Returnval.FilterSet {
		for _, update := range filter.ObjectSet {
			for _, change := range update.ChangeSet {
				values[change.Name] = change.Val
			}
		}
	}
	return values
}

func TestACallOnAnObjectThatIsGoneNamesIt(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := login(t, vc.URL)
	ctx := context.Background()
	vm := one(t, client, "VirtualMachine", "old-vm", nil, nil)
	if err := object.NewVirtualMachine(client.Client, vm).Unregister(ctx); err != nil {
		t.Fatal(err)
	}
	view := types.ManagedObjectReference{Type: "ContainerView", Value: "session[x]<y>"}
	machine := "The object 'vim.VirtualMachine:" + vm.Value + "' has already been deleted or has not been completely created"
	for call, c := range map[string]struct {
		do   func() error
		gone types.ManagedObjectReference
		text string
	}{
		"a method of it": {func() error {
			_, err := object.NewVirtualMachine(client.Client, vm).PowerOn(ctx)
			return err
		}, vm, machine},
		"a read of it": {func() error { return client.RetrieveOne(ctx, vm, []string{"name"}, new(mo.VirtualMachine)) }, vm, machine},
		"a view of it": {func() error {
			_, err := methods.CreateContainerView(ctx, client, &types.CreateContainerView{This: *client.ServiceContent.ViewManager, Container: vm})
			return err
		}, vm, machine},
		"the end of a view": {func() error {
			_, err := methods.DestroyView(ctx, client, &types.DestroyView{This: view})
			return err
		}, view, "The object 'vim.view.ContainerView:session[x]<y>' has already been deleted or has not been completely created"},
	} {
		err := c.do()
		if err == nil || !soap.IsSoapFault(err) {
			t.Errorf("%s: %v", call, err)
			continue
		}
		fault := soap.ToSoapFault(err)
		detail, ok := fault.VimFault().(types.ManagedObjectNotFound)
		if !ok || detail.Obj != c.gone || fault.String != c.text || fault.Code != "ServerFaultCode" {
			t.Errorf("%s: %s %q %+v", call, fault.Code, fault.String, fault.VimFault())
		}
	}
}

func TestObjectsOfASessionAreNamedByIt(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := login(t, vc.URL)
	ctx := context.Background()
	session, err := client.SessionManager.UserSession(ctx)
	if err != nil {
		t.Fatal(err)
	}
	collector, err := property.DefaultCollector(client.Client).Create(ctx)
	if err != nil {
		t.Fatal(err)
	}
	history, err := collect(t, client, nil)
	if err != nil {
		t.Fatal(err)
	}
	const id = `[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`
	form := regexp.MustCompile(`^session\[(` + id + `)\]` + id + `$`)
	for _, ref := range []types.ManagedObjectReference{collector.Reference(), history} {
		if parts := form.FindStringSubmatch(ref.Value); parts == nil || parts[1] != session.Key {
			t.Errorf("%s of session %s is called %s", ref.Type, session.Key, ref.Value)
		}
	}
}

func TestSomePropertiesChangeWithoutAnUpdate(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := login(t, vc.URL)
	vm := one(t, client, "VirtualMachine", "node-1", nil, nil)
	f := follow(t, client, vm, "recentTask", "overallStatus", "runtime.powerState")
	f.told(true)
	// The task is in recentTask before the power state changes.
	task, err := object.NewVirtualMachine(client.Client, vm).PowerOff(f.ctx)
	if err == nil {
		err = task.Wait(f.ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	if told := f.told(true); len(told) != 1 || told["runtime.powerState"] != types.VirtualMachinePowerStatePoweredOff {
		t.Errorf("told is %v", told)
	}
	ctx := vc.ownContext()
	vc.Vim.AtomicUpdate(ctx, vc.Vim.Get(vm), []types.PropertyChange{{Name: "overallStatus", Val: types.ManagedEntityStatusRed}})
	if told := f.told(false); len(told) != 0 {
		t.Errorf("told is %v", told)
	}
	f.version = ""
	anew := f.told(true)
	tasks, _ := anew["recentTask"].(types.ArrayOfManagedObjectReference)
	if anew["overallStatus"] != types.ManagedEntityStatusRed || !slices.Contains(tasks.ManagedObjectReference, task.Reference()) {
		t.Errorf("read anew they are %v", anew)
	}
}

func TestAnAnswerHasAHundredObjects(t *testing.T) {
	w := defaultWorld(t)
	w.Grow(150)
	vc := start(t, w, Options{})
	p := followPowers(t, vc)
	first, more := p.poll(0)
	if len(first) != 100 || !more {
		t.Errorf("%d objects in the first answer, truncated %t", len(first), more)
	}
	if second, more := p.poll(0); len(second) != 53 || more {
		t.Errorf("%d objects in the second answer, truncated %t", len(second), more)
	}
}

func TestFindByUuidGivesOneOfSeveral(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := login(t, vc.URL)
	ctx := context.Background()
	source, err := vc.Inventory.FindVM("vm", "node-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := vc.Inventory.Clone(source, inventory.Clone{Name: "twin", KeepUUID: true, Power: "off"}); err != nil {
		t.Fatal(err)
	}
	twin := one(t, client, "VirtualMachine", "twin", nil, nil)
	index := object.NewSearchIndex(client.Client)
	found, err := index.FindByUuid(ctx, nil, source.Config.Uuid, true, nil)
	if err != nil || found == nil || found.Reference() != source.Self {
		t.Errorf("FindByUuid: %v %v", found, err)
	}
	all, err := index.FindAllByUuid(ctx, nil, source.Config.Uuid, true, nil)
	if err != nil || len(all) != 2 || all[0].Reference() != source.Self || all[1].Reference() != twin {
		t.Errorf("FindAllByUuid: %v %v", all, err)
	}
}

func TestTheIDOfAVMIsNotUsedAgain(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := login(t, vc.URL)
	source, err := vc.Inventory.FindVM("vm", "node-1")
	if err != nil {
		t.Fatal(err)
	}
	used := map[types.ManagedObjectReference]bool{}
	for i := range 5 {
		name := fmt.Sprintf("copy-%d", i)
		if err := vc.Inventory.Clone(source, inventory.Clone{Name: name, Power: "off"}); err != nil {
			t.Fatal(err)
		}
		ref := one(t, client, "VirtualMachine", name, nil, nil)
		if used[ref] {
			t.Errorf("%s is used again", ref.Value)
		}
		used[ref] = true
		if err := object.NewVirtualMachine(client.Client, ref).Unregister(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}
