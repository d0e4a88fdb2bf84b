package control

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// guest reads what vCenter knows of node-1's guest.
func (l *lab) guest() types.GuestInfo {
	l.t.Helper()
	var vm mo.VirtualMachine
	l.read(l.vm("node-1").Reference(), []string{"guest", "summary.guest"}, &vm)
	if vm.Summary.Guest.IpAddress != vm.Guest.IpAddress {
		l.t.Errorf("the summary has %s, the guest %s", vm.Summary.Guest.IpAddress, vm.Guest.IpAddress)
	}
	return *vm.Guest
}

func TestAGuestReportsALinkLocalAddressBesideTheOthers(t *testing.T) {
	l := start(t)
	guest := l.guest()
	want := []string{"10.99.0.11", "fe80::250:56ff:fe99:1"}
	if len(guest.Net) != 1 || !slices.Equal(guest.Net[0].IpAddress, want) || guest.IpAddress != "10.99.0.11" {
		t.Errorf("got %s and %+v", guest.IpAddress, guest.Net)
	}
}

func TestAGuestCanHaveAnAddressWithoutInterfaces(t *testing.T) {
	l := start(t)
	vm := l.vm("node-1").Reference()
	l.watch(vm, "guest.net", func() {
		l.must("POST", "/vm/guest", `{"vm":"node-1","net":false}`)
	}, func(value any) bool {
		cards, set := value.(types.ArrayOfGuestNicInfo)
		return !set || len(cards.GuestNicInfo) == 0
	})
	guest := l.guest()
	if guest.Net != nil || guest.IpStack != nil || guest.IpAddress != "10.99.0.11" || guest.ToolsRunningStatus != "guestToolsRunning" {
		t.Errorf("got %+v", guest)
	}
	l.must("POST", "/vm/guest", `{"vm":"node-1","net":true}`)
	if guest := l.guest(); len(guest.Net) != 1 {
		t.Errorf("got %+v", guest)
	}
}

func TestAGuestReportsInterfacesWithoutACard(t *testing.T) {
	l := start(t)
	l.must("POST", "/vm/guest", `{"vm":"node-1","interfaces":[{"mac":"02:42:ac:11:00:01","addresses":["172.17.0.1/16"]},{"addresses":["192.168.7.1"]}],
		"pod_interfaces":3}`)
	guest := l.guest()
	if len(guest.Net) != 6 || guest.Net[0].DeviceConfigId != 4000 {
		t.Fatalf("got %+v", guest.Net)
	}
	for i, want := range []string{"172.17.0.1", "192.168.7.1", "fe80::ecee:eeff:feee:eeee", "fe80::ecee:eeff:feee:eeee", "fe80::ecee:eeff:feee:eeee"} {
		if card := guest.Net[i+1]; card.DeviceConfigId != -1 || card.Network != "" || !slices.Equal(card.IpAddress, []string{want}) {
			t.Errorf("interface %d is %+v", i, card)
		}
	}
	if guest.IpAddress != "10.99.0.11" {
		t.Errorf("the address is %s", guest.IpAddress)
	}
	l.must("POST", "/vm/guest", `{"vm":"node-1","interfaces_first":true}`)
	if guest := l.guest(); guest.Net[0].DeviceConfigId != -1 || guest.Net[5].DeviceConfigId != 4000 {
		t.Errorf("got %+v", guest.Net)
	}
	l.must("POST", "/vm/clone", `{"vm":"node-1","name":"twin","power":"on"}`)
	var twin mo.VirtualMachine
	l.read(l.vm("twin").Reference(), []string{"guest.net"}, &twin)
	if len(twin.Guest.Net) != 6 {
		t.Errorf("the copy reports %+v", twin.Guest.Net)
	}
	l.must("POST", "/vm/guest", `{"vm":"node-1","interfaces":[],"pod_interfaces":0}`)
	if guest := l.guest(); len(guest.Net) != 1 {
		t.Errorf("got %+v", guest.Net)
	}
}

func TestAGuestReportsAnyOfItsAddressesAsItsOwn(t *testing.T) {
	l := start(t)
	l.must("POST", "/vm/guest", `{"vm":"node-1","addresses":["10.99.0.11/24","fd00::11/64"]}`)
	for _, address := range []string{"fd00::11", "169.254.10.1", "fe80::250:56ff:fe99:1", "172.17.0.1"} {
		l.watch(l.vm("node-1").Reference(), "guest.ipAddress", func() {
			l.must("POST", "/vm/guest", fmt.Sprintf(`{"vm":"node-1","ip_address":%q}`, address))
		}, func(value any) bool { return value == address })
		if guest := l.guest(); guest.IpAddress != address || len(guest.Net) != 1 {
			t.Errorf("got %+v", guest)
		}
	}
	l.must("POST", "/vm/power", `{"vm":"node-1","power":"off"}`)
	if guest := l.guest(); guest.IpAddress != "" {
		t.Errorf("a guest that does not run reports %s", guest.IpAddress)
	}
	l.must("POST", "/vm/power", `{"vm":"node-1","power":"on"}`)
	l.must("POST", "/vm/guest", `{"vm":"node-1","ip_address":""}`)
	if guest := l.guest(); guest.IpAddress != "10.99.0.11" {
		t.Errorf("got %s", guest.IpAddress)
	}
}

func TestOneReadFindsNoAddress(t *testing.T) {
	l := start(t)
	l.must("POST", "/vm/guest", `{"vm":"node-1","blank_reads":1}`)
	var name mo.VirtualMachine
	l.read(l.vm("node-1").Reference(), []string{"name", "guest.toolsRunningStatus"}, &name) // no look at addresses
	if blank := l.guest(); blank.Net != nil || blank.IpAddress != "" || blank.ToolsRunningStatus != "guestToolsRunning" {
		t.Errorf("got %+v", blank)
	}
	if again := l.guest(); len(again.Net) != 1 || again.IpAddress != "10.99.0.11" {
		t.Errorf("got %+v", again)
	}
	l.must("POST", "/vm/guest", `{"vm":"node-1","blank_reads":2}`)
	for i, want := range []string{"", "", "10.99.0.11"} {
		if got := l.guest().IpAddress; got != want {
			t.Errorf("read %d finds %q", i, got)
		}
	}
}

func TestAWatcherIsToldOfNoAddressAndThenOfTheAddress(t *testing.T) {
	l := start(t)
	var told []any
	err := property.Wait(l.ctx, property.DefaultCollector(l.client.Client), l.vm("node-1").Reference(), []string{"guest.ipAddress"},
		func(changes []types.PropertyChange) bool {
			if told = append(told, changes[0].Val); len(told) == 1 {
				l.must("POST", "/vm/guest", `{"vm":"node-1","blank_reads":1}`)
			}
			return len(told) == 3
		})
	if err != nil || fmt.Sprint(told) != "[10.99.0.11 <nil> 10.99.0.11]" {
		t.Errorf("told is %v, %v", told, err)
	}
}

func TestAGuestWithVeryManyInterfacesLosesItsAddresses(t *testing.T) {
	l := start(t)
	l.must("POST", "/vm/guest", `{"vm":"node-1","pod_interfaces":15}`)
	if guest := l.guest(); len(guest.Net) != 16 || guest.IpAddress == "" {
		t.Errorf("with 16 interfaces %+v", guest)
	}
	l.must("POST", "/vm/guest", `{"vm":"node-1","pod_interfaces":400}`)
	if guest := l.guest(); guest.Net != nil || guest.IpAddress != "" {
		t.Errorf("with 401 interfaces %d are reported, and %q", len(guest.Net), guest.IpAddress)
	}
	l.must("POST", "/assumptions", `{"ManyInterfaces":"cut"}`)
	l.must("POST", "/vm/guest", `{"vm":"node-1","pod_interfaces":401}`)
	if guest := l.guest(); len(guest.Net) != 16 || guest.IpAddress != "10.99.0.11" {
		t.Errorf("with 402 interfaces %d are reported, and %q", len(guest.Net), guest.IpAddress)
	}
}

func TestAWrongGuestIsRefusedAndChangesNothing(t *testing.T) {
	l := start(t)
	for body, field := range map[string]string{
		`{"vm":"node-1"}`: "addresses",
		`{"vm":"node-1","net":false,"addresses":["10.0.0.300"]}`:                                    "addresses[0]",
		`{"vm":"node-1","net":false,"nic":7,"addresses":[]}`:                                        "nic",
		`{"vm":"node-1","net":false,"ip_address":"10.0.0.0/8"}`:                                     "ip_address",
		`{"vm":"node-1","net":false,"blank_reads":-1}`:                                              "blank_reads",
		`{"vm":"node-1","net":false,"pod_interfaces":20000}`:                                        "pod_interfaces",
		`{"vm":"node-1","net":false,"interfaces":[{"addresses":["10.0.0.1"]},{"addresses":["x"]}]}`: "interfaces[1].addresses[0]",
	} {
		status, answer := l.call("POST", "/vm/guest", body)
		if status != http.StatusBadRequest || answer["field"] != field {
			t.Errorf("%s: %d %v", body, status, answer)
		}
	}
	if guest := l.guest(); len(guest.Net) != 1 {
		t.Errorf("got %+v", guest)
	}
}

func TestAReadFailsWhenOneOfItsObjectsVanishes(t *testing.T) {
	l := start(t)
	vms, err := view.NewManager(l.client.Client).CreateContainerView(l.ctx, l.client.ServiceContent.RootFolder, []string{"VirtualMachine"}, true)
	if err != nil {
		t.Fatal(err)
	}
	read := func() ([]mo.VirtualMachine, error) {
		var list []mo.VirtualMachine
		err := vms.Retrieve(l.ctx, []string{"VirtualMachine"}, []string{"name"}, &list)
		return list, err
	}
	gone := l.vm("node-2").Reference()
	l.must("POST", "/vm/vanish", `{"vm":"node-2"}`)
	if all, err := l.readOne("node-1"); err != nil || all.Name != "node-1" {
		t.Errorf("a read of another VM: %v %v", all, err)
	}
	_, err = read()
	if lost, ok := fault(err).(types.ManagedObjectNotFound); !ok || lost.Obj != gone {
		t.Errorf("the read in which it vanishes: %v", err)
	}
	list, err := read()
	if err != nil || len(list) != 2 {
		t.Errorf("the next read: %d VMs, %v", len(list), err)
	}
	l.must("POST", "/vm/vanish", `{"vm":"old-vm"}`)
	answer, err := methods.RetrieveProperties(l.ctx, l.client, &types.RetrieveProperties{
		This: l.client.ServiceContent.PropertyCollector,
		SpecSet: []types.PropertyFilterSpec{{
			ReportMissingObjectsInResults: types.NewBool(true),
			ObjectSet:                     []types.ObjectSpec{{Obj: l.vm("node-1").Reference()}, {Obj: l.vm("old-vm").Reference()}},
			PropSet:                       []types.PropertySpec{{Type: "VirtualMachine", PathSet: []string{"name"}}},
		}},
	})
	if err != nil || len(answer.Returnval) != 1 || answer.Returnval[0].Obj != l.vm("node-1").Reference() {
		t.Errorf("a read that asks for missing objects: %+v, %v", answer, err)
	}
}

func (l *lab) readOne(name string) (mo.VirtualMachine, error) {
	var vm mo.VirtualMachine
	return vm, l.client.RetrieveOne(l.ctx, l.vm(name).Reference(), []string{"name"}, &vm)
}
