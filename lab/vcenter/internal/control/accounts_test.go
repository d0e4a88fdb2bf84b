package control

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/sts"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/authz/directory"
)

const (
	cpiUser     = "cpi@vsphere.local"
	cpiPassword = "Lab-cpi-1!"
)

func (l *lab) try(password string) error {
	address := *l.vc.URL
	address.User = url.UserPassword(cpiUser, password)
	_, err := govmomi.NewClient(l.ctx, &address, true)
	return err
}

func (l *lab) failures() []directory.FailedLogin { return l.vc.Access().Directory().FailedLogins() }

func TestFailedLoginsAreCountedOverSOAPRESTAndTokens(t *testing.T) {
	l := start(t)
	if l.try("wrong") == nil {
		t.Error("SOAP takes a wrong password")
	}
	if rest.NewClient(l.client.Client).Login(l.ctx, url.UserPassword(cpiUser, "wrong")) == nil {
		t.Error("REST takes a wrong password")
	}
	address := *l.vc.URL
	anonymous, err := vim25.NewClient(l.ctx, soap.NewClient(&address, true))
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := sts.NewClient(l.ctx, anonymous)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.Issue(l.ctx, sts.TokenRequest{Userinfo: url.UserPassword(cpiUser, "wrong")}); err == nil {
		t.Error("the token service takes a wrong password")
	}
	ways := map[directory.Way]int{}
	for _, failed := range l.failures() {
		if failed.User != cpiUser {
			t.Errorf("counted for %s", failed.User)
		}
		ways[failed.Way]++
	}
	if len(ways) != 3 || ways[directory.SOAP] != 1 || ways[directory.REST] != 1 || ways[directory.STS] != 1 {
		t.Errorf("counted %v", ways)
	}
	if code, _ := l.call("GET", "/logins", ""); code != http.StatusOK {
		t.Errorf("status %d", code)
	}
}

func TestAccountsLockByThePolicyThatIsSet(t *testing.T) {
	l := start(t)
	l.must("POST", "/lockout", `{"max_failed":2}`)
	for range 2 {
		_ = l.try("wrong")
	}
	if l.try(cpiPassword) == nil {
		t.Error("two failed logins do not lock")
	}
	l.must("POST", "/user", `{"user":"cpi@vsphere.local","locked":false}`)
	l.must("POST", "/lockout", `{"max_failed":-1}`)
	for range 6 {
		_ = l.try("wrong")
	}
	if err := l.try(cpiPassword); err != nil {
		t.Errorf("locked although nothing locks: %v", err)
	}
}

func TestAccountsChangeOnRequest(t *testing.T) {
	l := start(t)
	for _, change := range []string{`"locked":true`, `"disabled":true`, `"expired":true`, `"password":"Changed-1!"`} {
		l.must("POST", "/user", `{"user":"cpi@vsphere.local",`+change+`}`)
		if l.try(cpiPassword) == nil {
			t.Errorf("%s changes nothing", change)
		}
		l.must("POST", "/user", `{"user":"cpi@vsphere.local","locked":false,"disabled":false,"expired":false,"password":"Lab-cpi-1!"}`)
		if err := l.try(cpiPassword); err != nil {
			t.Errorf("after %s: %v", change, err)
		}
	}
	if code, _ := l.call("POST", "/user", `{"user":"who@vsphere.local","locked":true}`); code != http.StatusBadRequest {
		t.Errorf("an unknown user gives %d", code)
	}
}

func TestWhatASessionMadeIsCounted(t *testing.T) {
	l := start(t)
	key, err := l.client.SessionManager.UserSession(l.ctx)
	if err != nil {
		t.Fatal(err)
	}
	before := l.vc.Made(key.Key)
	views := view.NewManager(l.client.Client)
	container, err := views.CreateContainerView(l.ctx, l.client.ServiceContent.RootFolder, []string{"VirtualMachine"}, true)
	if err != nil {
		t.Fatal(err)
	}
	list, err := views.CreateListView(l.ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	collector, err := property.DefaultCollector(l.client.Client).Create(l.ctx)
	if err != nil {
		t.Fatal(err)
	}
	spec := types.PropertyFilterSpec{
		PropSet:   []types.PropertySpec{{Type: "VirtualMachine", PathSet: []string{"name"}}},
		ObjectSet: []types.ObjectSpec{{Obj: container.Reference(), Skip: types.NewBool(true), SelectSet: []types.BaseSelectionSpec{container.TraversalSpec()}}},
	}
	if _, err := collector.CreateFilter(l.ctx, types.CreateFilter{Spec: spec}); err != nil {
		t.Fatal(err)
	}
	page, err := methods.RetrievePropertiesEx(l.ctx, l.client, &types.RetrievePropertiesEx{
		This: l.client.ServiceContent.PropertyCollector, SpecSet: []types.PropertyFilterSpec{spec}, Options: types.RetrieveOptions{MaxObjects: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	made := l.vc.Made(key.Key)
	if made.ContainerViews != 1 || made.ListViews != 1 || made.PropertyCollectors != 1 || made.PropertyFilters != 1 || made.OpenPages != 1 {
		t.Errorf("counted %+v", made)
	}
	if _, err := methods.CancelRetrievePropertiesEx(l.ctx, l.client, &types.CancelRetrievePropertiesEx{
		This: l.client.ServiceContent.PropertyCollector, Token: page.Returnval.Token,
	}); err != nil {
		t.Fatal(err)
	}
	for _, destroy := range []error{collector.Destroy(l.ctx), container.Destroy(l.ctx), list.Destroy(l.ctx)} {
		if destroy != nil {
			t.Error(destroy)
		}
	}
	if after := l.vc.Made(key.Key); after != before {
		t.Errorf("left %+v, before %+v", after, before)
	}
}

func TestManyTasksAreRecorded(t *testing.T) {
	l := start(t)
	l.must("POST", "/tasks", `{"count":12000,"object":"node-2"}`)
	made, err := methods.CreateCollectorForTasks(l.ctx, l.client, &types.CreateCollectorForTasks{This: *l.client.ServiceContent.TaskManager})
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for {
		page, err := methods.ReadNextTasks(l.ctx, l.client, &types.ReadNextTasks{This: made.Returnval, MaxCount: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Returnval) == 0 {
			break
		}
		read += len(page.Returnval)
	}
	if read != 12000 {
		t.Errorf("%d records", read)
	}
	if code, _ := l.call("POST", "/tasks", `{"count":0,"object":"node-2"}`); code != http.StatusBadRequest {
		t.Errorf("no task gives %d", code)
	}
}

func TestAClonedVMIsSeenByWatchersAndHasWhatIsAsked(t *testing.T) {
	l := start(t)
	var original mo.VirtualMachine
	l.read(l.vm("node-1").Reference(), []string{"config", "guest.ipAddress"}, &original)
	folder := l.ref("/dc-1/vm")
	var parent mo.VirtualMachine
	l.read(l.vm("node-1").Reference(), []string{"parent"}, &parent)
	if parent.Parent != nil {
		folder = *parent.Parent
	}
	l.watch(folder, "childEntity", func() {
		l.must("POST", "/vm/clone", `{"vm":"node-1","name":"twin","keep_uuid":true,"extra_config":true,"power":"on"}`)
	}, func(any) bool { return true })
	var twin mo.VirtualMachine
	l.read(l.vm("twin").Reference(), []string{"config", "guest.ipAddress", "runtime"}, &twin)
	switch {
	case twin.Config.Uuid != original.Config.Uuid:
		t.Error("the BIOS UUID is another one")
	case twin.Config.InstanceUuid == original.Config.InstanceUuid:
		t.Error("the instance UUID is the same")
	case twin.Guest.IpAddress != original.Guest.IpAddress:
		t.Errorf("the guest has %q", twin.Guest.IpAddress)
	}
	l.must("POST", "/vm/clone", `{"vm":"node-1","name":"other"}`)
	var other mo.VirtualMachine
	l.read(l.vm("other").Reference(), []string{"config", "runtime"}, &other)
	if other.Config.Uuid == original.Config.Uuid || other.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOff {
		t.Errorf("%s %s", other.Config.Uuid, other.Runtime.PowerState)
	}
	if code, _ := l.call("POST", "/vm/clone", `{"vm":"node-1","name":"twin"}`); code != http.StatusBadRequest {
		t.Errorf("a second twin gives %d", code)
	}
	l.must("POST", "/delete", `{"object":"twin"}`)
}

func TestARemovedHostTakesItsVMsWithIt(t *testing.T) {
	l := start(t)
	vm := l.vm("node-1").Reference()
	l.must("POST", "/delete", `{"object":"esx-1.lab.example"}`)
	if l.vc.Vim.Get(vm) != nil {
		t.Error("its VM is still there")
	}
	var cluster mo.ClusterComputeResource
	l.read(l.ref("/dc-1/host/cluster-1"), []string{"host"}, &cluster)
	if len(cluster.Host) != 1 {
		t.Errorf("the cluster has %v", cluster.Host)
	}
	var root []mo.HostSystem
	hosts, err := view.NewManager(l.client.Client).CreateContainerView(l.ctx, l.client.ServiceContent.RootFolder, []string{"HostSystem"}, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := hosts.Retrieve(l.ctx, []string{"HostSystem"}, []string{"name"}, &root); err != nil {
		t.Fatal(err)
	}
	for _, host := range root {
		if host.Name == "esx-1.lab.example" {
			t.Error("the host is still there")
		}
	}
}
