package control

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

func TestAVMotionIsSeenByWatchers(t *testing.T) {
	l := start(t)
	vm, target := l.vm("node-1").Reference(), l.ref("/dc-1/host/cluster-1/esx-2.lab.example")
	l.watch(vm, "runtime.host", func() {
		l.must("POST", "/vm/host", `{"vm":"node-1","host":"esx-2.lab.example"}`)
	}, func(value any) bool { return value == target })
	var host mo.HostSystem
	l.read(target, []string{"vm"}, &host)
	if len(host.Vm) != 2 {
		t.Errorf("the new host has %v", host.Vm)
	}
	l.read(l.ref("/dc-1/host/cluster-1/esx-1.lab.example"), []string{"vm"}, &host)
	if len(host.Vm) != 0 {
		t.Errorf("the old host has %v", host.Vm)
	}
}

func TestAStorageVMotionMovesFilesAndDisks(t *testing.T) {
	l := start(t)
	vm, target := l.vm("node-1").Reference(), l.ref("/dc-1/datastore/local-1")
	l.watch(vm, "datastore", func() {
		l.must("POST", "/vm/datastore", `{"vm":"node-1","datastore":"local-1"}`)
	}, func(any) bool { return true })
	var moved mo.VirtualMachine
	l.read(vm, []string{"datastore", "config.files", "config.hardware.device"}, &moved)
	if len(moved.Datastore) != 1 || moved.Datastore[0] != target || moved.Config.Files.VmPathName != "[local-1] node-1/node-1.vmx" {
		t.Errorf("%v %s", moved.Datastore, moved.Config.Files.VmPathName)
	}
	for _, device := range moved.Config.Hardware.Device {
		if disk, ok := device.(*types.VirtualDisk); ok {
			backing := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
			if *backing.Datastore != target || backing.FileName != "[local-1] node-1/node-1.vmdk" {
				t.Errorf("the disk is at %s", backing.FileName)
			}
		}
	}
	var store mo.Datastore
	l.read(l.ref("/dc-1/datastore/shared-1"), []string{"vm"}, &store)
	if len(store.Vm) != 1 {
		t.Errorf("the old datastore has %v", store.Vm)
	}
}

func TestTheGuestVanishesWithThePowerAndComesBack(t *testing.T) {
	l := start(t)
	vm := l.vm("node-1").Reference()
	l.watch(vm, "runtime.powerState", func() {
		l.must("POST", "/vm/power", `{"vm":"node-1","power":"off"}`)
	}, func(value any) bool { return value == types.VirtualMachinePowerStatePoweredOff })
	var state mo.VirtualMachine
	l.read(vm, []string{"guest.net", "guest.ipAddress", "summary.runtime.powerState"}, &state)
	if state.Guest != nil && (len(state.Guest.Net) != 0 || state.Guest.IpAddress != "") {
		t.Errorf("a VM that is off reports %+v", state.Guest)
	}
	l.must("POST", "/vm/power", `{"vm":"node-1","power":"on"}`)
	state = mo.VirtualMachine{}
	l.read(vm, []string{"guest.net", "guest.ipAddress"}, &state)
	if state.Guest.IpAddress != "10.99.0.11" || len(state.Guest.Net) != 1 {
		t.Errorf("got %+v", state.Guest)
	}
}

func TestGuestAddressesCanChange(t *testing.T) {
	l := start(t)
	vm := l.vm("node-1").Reference()
	l.watch(vm, "guest.net", func() {
		l.must("POST", "/vm/guest", `{"vm":"node-1","addresses":["10.99.0.77/24","fd00::77/64"],"host_name":"renamed"}`)
	}, func(value any) bool {
		cards, ok := value.(types.ArrayOfGuestNicInfo)
		return ok && len(cards.GuestNicInfo) == 1 && fmt.Sprint(cards.GuestNicInfo[0].IpAddress) == "[10.99.0.77 fd00::77 fe80::250:56ff:fe99:1]"
	})
	var state mo.VirtualMachine
	l.read(vm, []string{"guest.ipAddress", "guest.hostName", "summary.guest.ipAddress"}, &state)
	if state.Guest.IpAddress != "10.99.0.77" || state.Guest.HostName != "renamed" || state.Summary.Guest.IpAddress != "10.99.0.77" {
		t.Errorf("got %+v", state.Guest)
	}
}

func TestAGuestWithoutToolsReportsNothing(t *testing.T) {
	l := start(t)
	vm := l.vm("node-1").Reference()
	l.watch(vm, "guest.toolsRunningStatus", func() {
		l.must("POST", "/vm/guest", `{"vm":"node-1","tools":false}`)
	}, func(value any) bool { return value == "guestToolsNotRunning" })
	var state mo.VirtualMachine
	l.read(vm, []string{"guest.net", "guest.hostName"}, &state)
	if state.Guest != nil && (len(state.Guest.Net) > 0 || state.Guest.HostName != "") {
		t.Errorf("got %+v", state.Guest)
	}
	l.watch(vm, "guest.toolsRunningStatus", func() {
		l.must("POST", "/vm/guest", `{"vm":"node-1","tools":true}`)
	}, func(value any) bool { return value == "guestToolsRunning" })
}

func TestAVMWhoseFilesAreGoneHasNoUUID(t *testing.T) {
	l := start(t)
	vm := l.vm("node-1").Reference()
	var before, lost, back mo.VirtualMachine
	paths := []string{"summary.config.uuid"}
	l.read(vm, paths, &before)
	l.watch(vm, "runtime.connectionState", func() {
		l.must("POST", "/vm/accessible", `{"vm":"node-1","accessible":false}`)
	}, func(value any) bool { return value == types.VirtualMachineConnectionStateInaccessible })
	l.read(vm, paths, &lost)
	l.must("POST", "/vm/accessible", `{"vm":"node-1","accessible":true}`)
	l.read(vm, paths, &back)
	if lost.Summary.Config.Uuid != "" {
		t.Errorf("got %q", lost.Summary.Config.Uuid)
	}
	if before.Summary.Config.Uuid == "" || back.Summary.Config.Uuid != before.Summary.Config.Uuid {
		t.Errorf("got %q after %q", back.Summary.Config.Uuid, before.Summary.Config.Uuid)
	}
}

func TestAVMWhoseFilesAreGoneHasNoConfiguration(t *testing.T) {
	l := start(t)
	vm := l.vm("node-1")
	l.watch(vm.Reference(), "config.hardware.device", func() {
		l.must("POST", "/vm/accessible", `{"vm":"node-1","accessible":false}`)
	}, func(value any) bool {
		if value != nil {
			t.Errorf("got %T", value)
		}
		return true
	})
	var state mo.VirtualMachine
	l.read(vm.Reference(), []string{"config", "config.hardware.device", "summary.config.name"}, &state)
	if state.Config != nil || state.Summary.Config.Name != "node-1" {
		t.Errorf("%s has a configuration: %t", state.Summary.Config.Name, state.Config != nil)
	}
	l.must("POST", "/vm/accessible", `{"vm":"node-1","accessible":true}`)
	l.read(vm.Reference(), []string{"config"}, &state)
	if state.Config == nil || len(state.Config.Hardware.Device) == 0 {
		t.Error("its configuration is not back")
	}
}

func TestObjectsCanBeRenamed(t *testing.T) {
	l := start(t)
	vm := l.vm("node-1").Reference()
	l.watch(vm, "name", func() {
		l.must("POST", "/rename", `{"object":"node-1","to":"worker-1"}`)
	}, func(value any) bool { return value == "worker-1" })
	var state mo.VirtualMachine
	l.read(vm, []string{"config.name", "summary.config.name"}, &state)
	if state.Config.Name != "worker-1" || state.Summary.Config.Name != "worker-1" {
		t.Errorf("got %s and %s", state.Config.Name, state.Summary.Config.Name)
	}
	l.must("POST", "/rename", `{"object":"shared-1","to":"big"}`)
	var store mo.Datastore
	l.read(l.ref("/dc-1/datastore/shared-1"), []string{"name", "summary.name"}, &store)
	if store.Name != "big" || store.Summary.Name != "big" {
		t.Errorf("got %s and %s", store.Name, store.Summary.Name)
	}
}

func TestVMsCanBeDeletedAndUnregistered(t *testing.T) {
	l := start(t)
	for path, name := range map[string]string{"/delete": "node-1", "/vm/unregister": "node-2"} {
		vm := l.vm(name).Reference()
		key := "vm"
		if path == "/delete" {
			key = "object"
		}
		l.must("POST", path, fmt.Sprintf(`{%q:%q}`, key, name))
		var state mo.VirtualMachine
		err := l.client.RetrieveOne(l.ctx, vm, []string{"name"}, &state)
		if err == nil || !soap.IsSoapFault(err) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
}

func TestHostsCanBeDisconnected(t *testing.T) {
	l := start(t)
	host := l.ref("/dc-1/host/cluster-1/esx-1.lab.example")
	l.watch(host, "runtime.connectionState", func() {
		l.must("POST", "/host/state", `{"host":"esx-1.lab.example","state":"notResponding"}`)
	}, func(value any) bool { return value == types.HostSystemConnectionStateNotResponding })
	var vm mo.VirtualMachine
	l.read(l.vm("node-1").Reference(), []string{"runtime.connectionState"}, &vm)
	if vm.Runtime.ConnectionState != types.VirtualMachineConnectionStateDisconnected {
		t.Errorf("its VM is %s", vm.Runtime.ConnectionState)
	}
	l.must("POST", "/host/state", `{"host":"esx-1.lab.example","state":"connected","maintenance":true}`)
	var state mo.HostSystem
	l.read(host, []string{"runtime"}, &state)
	if state.Runtime.ConnectionState != types.HostSystemConnectionStateConnected || !state.Runtime.InMaintenanceMode {
		t.Errorf("got %+v", state.Runtime)
	}
}

func TestDatastoresCanBecomeInaccessibleAndFull(t *testing.T) {
	l := start(t)
	ref := l.ref("/dc-1/datastore/shared-1")
	l.watch(ref, "summary.accessible", func() {
		l.must("POST", "/datastore/accessible", `{"datastore":"shared-1","accessible":false}`)
	}, func(value any) bool { return value == false })
	l.must("POST", "/datastore/free", `{"datastore":"shared-1","free":1048576}`)
	var store mo.Datastore
	l.read(ref, []string{"summary", "host"}, &store)
	if store.Summary.FreeSpace != 1048576 || *store.Host[0].MountInfo.Accessible {
		t.Errorf("got %+v", store.Summary)
	}
}

func TestADatastoreCanBeLostToOneHost(t *testing.T) {
	l := start(t)
	ref, lost := l.ref("/dc-1/datastore/shared-1"), l.ref("/dc-1/host/cluster-1/esx-1.lab.example")
	reached := func(mounts []types.DatastoreHostMount) map[bool]int {
		count := map[bool]int{}
		for _, mount := range mounts {
			if *mount.MountInfo.Accessible == (mount.Key == lost) {
				t.Errorf("got %+v", mount)
			}
			count[*mount.MountInfo.Accessible]++
		}
		return count
	}
	l.watch(ref, "host", func() {
		l.must("POST", "/datastore/accessible", `{"datastore":"shared-1","host":"esx-1.lab.example","accessible":false}`)
	}, func(value any) bool {
		list, ok := value.(types.ArrayOfDatastoreHostMount)
		return ok && fmt.Sprint(reached(list.DatastoreHostMount)) == "map[false:1 true:1]"
	})
	var store mo.Datastore
	l.read(ref, []string{"summary"}, &store)
	if !store.Summary.Accessible {
		t.Error("the other host reaches it")
	}
	l.must("POST", "/datastore/accessible", `{"datastore":"shared-1","host":"esx-2.lab.example","accessible":false}`)
	l.read(ref, []string{"summary"}, &store)
	if store.Summary.Accessible {
		t.Error("no host reaches it")
	}
	request := `{"datastore":"shared-1","host":"esx-3.lab.example","accessible":false}`
	if status, answer := l.call("POST", "/datastore/accessible", request); status != http.StatusBadRequest || answer["field"] != "host" {
		t.Errorf("%d %v", status, answer)
	}
}

func TestAnInaccessibleDatastoreShowsWhatWasLastKnown(t *testing.T) {
	l := start(t)
	l.must("POST", "/datastore/accessible", `{"datastore":"shared-1","accessible":false}`)
	var store mo.Datastore
	l.read(l.ref("/dc-1/datastore/shared-1"), []string{"summary.freeSpace", "info"}, &store)
	if store.Summary.FreeSpace == 0 || store.Info == nil {
		t.Errorf("got %+v", store)
	}
}

func TestTheSummaryOfAnInaccessibleDatastoreCanBeMissing(t *testing.T) {
	l := start(t)
	l.must("POST", "/assumptions", `{"InaccessibleSummary":"missing"}`)
	filter := new(property.WaitFilter).Add(l.ref("/dc-1/datastore/shared-1"), "Datastore", []string{"name", "summary.url", "summary.accessible"})
	reach := func(accessible bool) {
		l.must("POST", "/datastore/accessible", fmt.Sprintf(`{"datastore":"shared-1","accessible":%t}`, accessible))
	}
	round := 0
	err := property.WaitForUpdates(l.ctx, property.DefaultCollector(l.client.Client), filter, func(updates []types.ObjectUpdate) bool {
		for _, u := range updates {
			set, missing := len(u.ChangeSet), len(u.MissingSet)
			switch {
			case round == 0 && set == 3 && missing == 0:
				reach(false)
			case round == 1 && set == 0 && missing == 2:
				for _, m := range u.MissingSet {
					if _, ok := m.Fault.Fault.(*types.InaccessibleDatastore); !ok {
						t.Errorf("got %+v", m)
					}
				}
				reach(true)
			case round == 2 && set == 2 && missing == 0:
				return true
			default:
				t.Errorf("round %d: %+v", round, u)
				return true
			}
			round++
		}
		return false
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestDatastoresCanBeSuspendedAndMaintained(t *testing.T) {
	l := start(t)
	store := l.ref("/dc-1/datastore/shared-1")
	marks := func(values []types.BaseCustomFieldValue) (marks []string) {
		for _, value := range values {
			if text, ok := value.(*types.CustomFieldStringValue); ok {
				marks = append(marks, text.Value)
			}
		}
		return marks
	}
	l.must("POST", "/datastore/state", `{"datastore":"shared-2","suspended":true}`)
	l.watch(store, "customValue", func() {
		l.must("POST", "/datastore/state", `{"datastore":"shared-1","suspended":true,"maintenance":true}`)
	}, func(value any) bool {
		list, ok := value.(types.ArrayOfCustomFieldValue)
		return ok && fmt.Sprint(marks(list.CustomFieldValue)) == "[cns.vmware.com/datastoreSuspended]"
	})
	var state mo.Datastore
	l.read(store, []string{"customValue", "summary.maintenanceMode", "availableField"}, &state)
	if state.Summary.MaintenanceMode != "inMaintenance" || len(marks(state.CustomValue)) != 1 || len(state.AvailableField) != 1 {
		t.Errorf("got %+v", state)
	}
	l.must("POST", "/datastore/state", `{"datastore":"shared-1","suspended":false,"maintenance":false}`)
	state = mo.Datastore{}
	l.read(store, []string{"customValue", "summary.maintenanceMode"}, &state)
	if state.Summary.MaintenanceMode != "normal" || len(marks(state.CustomValue)) != 0 {
		t.Errorf("got %+v", state)
	}
	if status, answer := l.call("POST", "/datastore/state", `{"datastore":"shared-1"}`); status != http.StatusBadRequest || answer["field"] != "maintenance" {
		t.Errorf("%d %v", status, answer)
	}
}

func TestSessionsCanBeListedAndExpired(t *testing.T) {
	l := start(t)
	other := l.login("cpi@vsphere.local", "Lab-cpi-1!")
	key := ""
	for _, s := range l.vc.Sessions() {
		if s.UserName != l.vc.Sessions()[0].UserName {
			key = s.Key
		}
	}
	if len(l.vc.Sessions()) != 2 || key == "" {
		t.Fatalf("got %v", l.vc.Sessions())
	}
	l.must("DELETE", "/sessions/"+key, "")
	if _, err := methods.GetCurrentTime(l.ctx, other); err == nil {
		t.Error("the expired session still works")
	} else if _, ok := fault(err).(types.NotAuthenticated); !ok {
		t.Errorf("got %T", fault(err))
	}
	if err := l.currentTime(); err != nil {
		t.Errorf("the other session: %s", err)
	}
	if got := l.must("DELETE", "/sessions", "")["expired"]; got != 1.0 {
		t.Errorf("expired %v", got)
	}
	if err := l.currentTime(); err == nil {
		t.Error("the session survived")
	}
}

func TestARestartKeepsVolumesAndEndsSessions(t *testing.T) {
	l := start(t)
	task, err := l.create("kept")
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Wait(l.ctx); err != nil {
		t.Fatal(err)
	}
	l.must("POST", "/restart", `{"down_ms":200}`)
	if err := l.currentTime(); err == nil || soap.IsSoapFault(err) {
		t.Errorf("while down: %v", err)
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if err = l.currentTime(); soap.IsSoapFault(err) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, ok := fault(err).(types.NotAuthenticated); !ok {
		t.Errorf("the old session got %v", err)
	}
	l.client = l.login("administrator@vsphere.local", "Lab-admin-1!")
	if got := l.must("GET", "/state", "")["volumes"].([]any); len(got) != 1 {
		t.Errorf("volumes %v", got)
	}
}

func TestTheClockIsSetOverTheEndpoint(t *testing.T) {
	l := start(t)
	l.must("POST", "/clock", `{"skew_ms":7200000}`)
	now, err := methods.GetCurrentTime(l.ctx, l.client.Client)
	if err != nil {
		t.Fatal(err)
	}
	if ahead := time.Until(*now); ahead < 119*time.Minute || ahead > 121*time.Minute {
		t.Errorf("%s ahead", ahead)
	}
}

func TestAssumptionsCanBeSwitched(t *testing.T) {
	l := start(t)
	l.must("POST", "/assumptions", `{"NameLimit":5}`)
	if assume.NameLimit.In(l.vc.Assumed) != 5 {
		t.Error("the switch had no effect")
	}
	if status, _ := l.call("GET", "/assumptions", ""); status != http.StatusOK {
		t.Errorf("got %d", status)
	}
}

func TestTheEndpointListensOnLoopbackOnly(t *testing.T) {
	l := start(t)
	if endpoint, err := Serve(l.vc, "0.0.0.0:0"); err == nil {
		_ = endpoint.Close()
		t.Error("it listens to everybody")
	}
}

func TestTagsCanBePutOnAndTakenOff(t *testing.T) {
	l := start(t)
	client := rest.NewClient(l.client.Client)
	if err := client.Login(l.ctx, url.UserPassword("administrator@vsphere.local", "Lab-admin-1!")); err != nil {
		t.Fatal(err)
	}
	cluster := l.ref("/dc-1/host/cluster-1")
	names := func() string {
		attached, err := tags.NewManager(client).GetAttachedTags(l.ctx, cluster)
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, tag := range attached {
			text += tag.Name + " "
		}
		return text
	}
	if got := names(); got != "zone-1 " {
		t.Fatalf("at start %q", got)
	}
	l.must("POST", "/untag", `{"category":"k8s-zone","tag":"zone-1","object":"cluster-1"}`)
	if got := names(); got != "" {
		t.Errorf("after untag %q", got)
	}
	l.must("POST", "/tag", `{"category":"k8s-zone","tag":"zone-2","object":"cluster-1"}`)
	if got := names(); got != "zone-2 " {
		t.Errorf("after tag %q", got)
	}
	if status, _ := l.call("POST", "/tag", `{"category":"k8s-zone","tag":"zone-1","object":"cluster-1"}`); status != http.StatusBadRequest {
		t.Errorf("a second tag of a single-cardinality category: %d", status)
	}
}

func TestTheLatencyIsSetOverTheEndpoint(t *testing.T) {
	l := start(t)
	if got := l.must("GET", "/latency", ""); got["profile"] != "none" {
		t.Errorf("at first it is %v", got)
	}
	l.must("POST", "/latency", `{"profile":"idle","seed":7}`)
	if got := l.must("GET", "/latency", ""); got["profile"] != "idle" || got["seed"] != 7.0 {
		t.Errorf("it is %v", got)
	}
	begin := time.Now()
	task, err := l.create("slow")
	if err != nil {
		t.Fatal(err)
	}
	if state := l.taskState(task).Info.State; state != types.TaskInfoStateRunning {
		t.Errorf("the task is %s at once", state)
	}
	if err := task.Wait(l.ctx); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < 200*time.Millisecond { // the shortest of all is longer
		t.Errorf("a create took %s", took)
	}
	for body, field := range map[string]string{`{}`: "profile", `{"profile":"slow"}`: "profile", `{"seed":1}`: "profile"} {
		if status, answer := l.call("POST", "/latency", body); status != http.StatusBadRequest || answer["field"] != field {
			t.Errorf("%s: %d %v", body, status, answer)
		}
	}
	if got := l.must("GET", "/state", ""); got["latency"] != "idle" {
		t.Errorf("the state shows %v", got["latency"])
	}
}
