package vcenter

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
)

// powers follows the power states of all VMs with a collector of its own.
type powers struct {
	t         *testing.T
	ctx       context.Context
	client    *govmomi.Client
	collector types.ManagedObjectReference
	version   string
}

func followPowers(t *testing.T, vc *VCenter) *powers {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	client := login(t, vc.URL)
	vms, err := view.NewManager(client.Client).CreateContainerView(ctx, client.ServiceContent.RootFolder, []string{"VirtualMachine"}, true)
	if err != nil {
		t.Fatal(err)
	}
	collector, err := property.DefaultCollector(client.Client).Create(ctx)
	if err != nil {
		t.Fatal(err)
	}
	filter := new(property.WaitFilter).Add(vms.Reference(), "VirtualMachine", []string{"name", "runtime.powerState"}, vms.TraversalSpec())
	if _, err := collector.CreateFilter(ctx, filter.CreateFilter); err != nil {
		t.Fatal(err)
	}
	return &powers{t: t, ctx: ctx, client: client, collector: collector.Reference()}
}

func (p *powers) ask(page int32) (*types.UpdateSet, error) {
	answer, err := methods.WaitForUpdatesEx(p.ctx, p.client, &types.WaitForUpdatesEx{
		This: p.collector, Version: p.version, Options: &types.WaitOptions{MaxObjectUpdates: page},
	})
	if err != nil {
		return nil, err
	}
	return answer.Returnval, nil
}

func (p *powers) poll(page int32) ([]types.ObjectUpdate, bool) {
	p.t.Helper()
	set, err := p.ask(page)
	if err != nil {
		p.t.Fatal(err)
	}
	p.version = set.Version
	if len(set.FilterSet) != 1 {
		p.t.Fatalf("%d filters", len(set.FilterSet))
	}
	return set.FilterSet[0].ObjectSet, set.Truncated != nil && *set.Truncated
}

func TestEveryChangeAmongTenThousandVMsArrives(t *testing.T) {
	w := defaultWorld(t)
	w.Grow(10_000)
	vc := start(t, w, Options{})
	p := followPowers(t, vc)
	seen := 0
	for page, more := int32(0), true; more; page = 1000 {
		var list []types.ObjectUpdate
		list, more = p.poll(page)
		seen += len(list)
		if want := map[int32]int{0: 100, 1000: 500}[page]; more && len(list) != want {
			t.Fatalf("%d objects in a page, asked for %d", len(list), page)
		}
	}
	if seen != 10_003 {
		t.Fatalf("%d VMs entered", seen)
	}
	vms := w.Datacenters[0].VMs
	for i := range 100 {
		vm, err := vc.Inventory.FindVM("vm", vms[len(vms)-1-97*i].Name)
		if err != nil {
			t.Fatal(err)
		}
		if err := vc.Inventory.SetPower(vm, "off"); err != nil {
			t.Fatal(err)
		}
		list, more := p.poll(0)
		if len(list) != 1 || more || list[0].Obj != vm.Self || list[0].Kind != types.ObjectUpdateKindModify || len(list[0].ChangeSet) != 1 ||
			list[0].ChangeSet[0].Val != types.VirtualMachinePowerStatePoweredOff {
			t.Fatalf("change %d is told as %+v", i, list)
		}
	}
	vm, err := vc.Inventory.FindVM("vm", vms[len(vms)-1].Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := vc.Inventory.Unregister(vm); err != nil {
		t.Fatal(err)
	}
	if list, _ := p.poll(0); len(list) != 1 || list[0].Kind != types.ObjectUpdateKindLeave || list[0].Obj != vm.Self {
		t.Errorf("leaving is told as %+v", list)
	}
}

func TestEndedSessionsAreNotToldOfChanges(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	handlers := func() int { return reflect.ValueOf(vc.Vim).Elem().FieldByName("handlers").Len() }
	before := handlers()
	for name, end := range map[string]func(){
		"expired": func() { vc.ExpireAll() },
		"restart": func() { vc.Restart(0) },
	} {
		p := followPowers(t, vc)
		p.poll(0)
		if handlers() == before {
			t.Errorf("%s: nobody is told", name)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := p.ask(0)
			ended <- err
		}()
		end()
		if err := <-ended; err == nil {
			t.Errorf("%s: the wait ended well", name)
		}
		if handlers() != before {
			t.Errorf("%s: %d are still told", name, handlers()-before)
		}
	}
}
