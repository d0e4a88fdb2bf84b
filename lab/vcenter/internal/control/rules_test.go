package control

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi"
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

func (l *lab) currentTime() error {
	_, err := methods.GetCurrentTime(l.ctx, l.client.Client)
	return err
}

func TestTheNextCallsFailWithTheFault(t *testing.T) {
	l := start(t)
	l.must("POST", "/faults", `{"method":"CurrentTime","fault":"NoPermission","fields":{"privilegeId":"Host.Config.Storage"},"count":2,"skip":1}`)
	var got []string
	for range 5 {
		err := l.currentTime()
		if f, ok := fault(err).(types.NoPermission); ok {
			got = append(got, f.PrivilegeId)
		} else if err == nil {
			got = append(got, "ok")
		} else {
			t.Fatal(err)
		}
	}
	if want := "[ok Host.Config.Storage Host.Config.Storage ok ok]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if left := l.must("GET", "/rules", ""); len(left["calls"].([]any)) != 0 {
		t.Errorf("the spent rule is still armed: %v", left)
	}
}

func TestEveryNamedFaultReachesTheClient(t *testing.T) {
	l := start(t)
	for name, fields := range map[string]string{
		"NotAuthenticated": `{}`, "InvalidLogin": `{}`, "TaskInProgress": `{}`, "InvalidArgument": `{"invalidProperty":"spec"}`,
		"CnsFault": `{"reason":"no space"}`, "NotFound": `{}`, "ManagedObjectNotFound": `{"obj":{"type":"VirtualMachine","value":"vm-1"}}`,
		"SystemError": `{"reason":"boom"}`, "RequestCanceled": `{}`, "HostNotReachable": `{}`, "ResourceInUse": `{"type":"disk","name":"a"}`,
	} {
		l.must("POST", "/faults", fmt.Sprintf(`{"method":"CurrentTime","fault":%q,"fields":%s}`, name, fields))
		got := fmt.Sprintf("%T", fault(l.currentTime()))
		if !strings.HasSuffix(got, "."+name) {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

func TestALoginCanFail(t *testing.T) {
	l := start(t)
	for _, name := range []string{"InvalidLogin", "NoPermission"} {
		l.must("POST", "/faults", fmt.Sprintf(`{"method":"Login","user":"cpi@vsphere.local","fault":%q}`, name))
		address := *l.vc.URL
		address.User = url.UserPassword("cpi@vsphere.local", "Lab-cpi-1!")
		_, err := govmomi.NewClient(l.ctx, &address, true)
		if got := fmt.Sprintf("%T", fault(err)); got != "types."+name {
			t.Errorf("%s: got %s, %v", name, got, err)
		}
	}
	l.login("cpi@vsphere.local", "Lab-cpi-1!")
}

func TestAFaultCanBeForOneObjectAndOneUser(t *testing.T) {
	l := start(t)
	l.must("POST", "/faults", `{"method":"PowerOffVM_Task","object":"node-1","fault":"TaskInProgress","count":0}`)
	if _, err := l.vm("node-2").PowerOff(l.ctx); err != nil {
		t.Error(err)
	}
	if _, err := l.vm("node-1").PowerOff(l.ctx); err == nil {
		t.Error("the call on node-1 passed")
	} else if _, ok := fault(err).(types.TaskInProgress); !ok {
		t.Errorf("got %T", fault(err))
	}
	l.must("DELETE", "/rules", "")
	l.must("POST", "/faults", `{"method":"CurrentTime","user":"cpi@vsphere.local","fault":"NoPermission","count":0}`)
	if err := l.currentTime(); err != nil {
		t.Error(err)
	}
	if _, err := methods.GetCurrentTime(l.ctx, l.login("cpi@vsphere.local", "Lab-cpi-1!")); err == nil {
		t.Error("the other user's call passed")
	}
}

func TestAnObjectIsAlsoFoundInTheArguments(t *testing.T) {
	l := start(t)
	id := l.done(l.create("pvc")).VolumeId.Id
	l.must("POST", "/faults", `{"method":"CnsAttachVolume","object":"node-1","fault":"CnsFault","fields":{"reason":"no"}}`)
	attach := func(vm string) error {
		_, err := l.attachTo(id, vm)
		return err
	}
	if err := attach("node-2"); err != nil {
		t.Errorf("node-2: %s", err)
	}
	if err := attach("node-1"); err == nil {
		t.Error("the call about node-1 passed")
	}
}

func TestProbabilityIsSeeded(t *testing.T) {
	l := start(t)
	run := func(seed int) string {
		l.must("DELETE", "/rules", "")
		l.must("POST", "/faults", fmt.Sprintf(`{"method":"CurrentTime","fault":"NoPermission","count":0,"probability":0.5,"seed":%d}`, seed))
		pattern := ""
		for range 32 {
			if l.currentTime() == nil {
				pattern += "."
			} else {
				pattern += "x"
			}
		}
		return pattern
	}
	first, again, other := run(7), run(7), run(8)
	if first != again || first == other {
		t.Errorf("%s %s %s", first, again, other)
	}
	if n := strings.Count(first, "x"); n < 6 || n > 26 {
		t.Errorf("%d of 32 failed", n)
	}
}

func TestCallsCanBeDelayed(t *testing.T) {
	l := start(t)
	l.must("POST", "/delays", `{"method":"CurrentTime","delay_ms":150,"jitter_ms":50,"count":1}`)
	began := time.Now()
	if err := l.currentTime(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 150*time.Millisecond {
		t.Errorf("took %s", took)
	}
}

func TestAHangingTaskStaysRunningAndBlocksNobody(t *testing.T) {
	l := start(t)
	l.must("POST", "/faults", `{"method":"PowerOffVM_Task","object":"node-1","at":"task-never"}`)
	task, err := l.vm("node-1").PowerOff(l.ctx)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(l.ctx, 300*time.Millisecond)
	defer cancel()
	if err := task.Wait(short); err == nil {
		t.Error("the task ended")
	}
	if state := l.taskState(task).Info.State; state != types.TaskInfoStateRunning {
		t.Errorf("the task is %s", state)
	}
	if power, err := l.vm("node-1").PowerState(l.ctx); err != nil || power != types.VirtualMachinePowerStatePoweredOff {
		t.Errorf("the VM is %s, %v: the work was not done or the VM is blocked", power, err)
	}
	again, err := l.vm("node-1").PowerOn(l.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Wait(l.ctx); err != nil {
		t.Errorf("the next task on the VM: %s", err)
	}
}

func TestATaskCanFailBeforeOrAfterItsWork(t *testing.T) {
	for at, want := range map[string]types.VirtualMachinePowerState{
		"task": types.VirtualMachinePowerStatePoweredOn, "task-done": types.VirtualMachinePowerStatePoweredOff,
	} {
		t.Run(at, func(t *testing.T) {
			l := start(t)
			l.must("POST", "/faults", fmt.Sprintf(`{"method":"PowerOffVM_Task","fault":"InvalidState","at":%q}`, at))
			task, err := l.vm("node-1").PowerOff(l.ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := task.Wait(l.ctx); err == nil {
				t.Error("the task succeeded")
			} else if got := fmt.Sprintf("%T", fault(err)); got != "*types.InvalidState" {
				t.Errorf("got %s", got)
			}
			if power, _ := l.vm("node-1").PowerState(l.ctx); power != want {
				t.Errorf("the VM is %s", power)
			}
		})
	}
}

func TestCNSTasksFollowTheRulesToo(t *testing.T) {
	l := start(t)
	volumes := func() int { return len(l.vc.CNS().Volumes()) }

	l.must("POST", "/faults", `{"method":"CnsCreateVolume","at":"task","fault":"CnsFault","fields":{"reason":"no"}}`)
	task, err := l.create("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Wait(l.ctx); err == nil || volumes() != 0 {
		t.Errorf("error %v, %d volumes", err, volumes())
	}

	l.must("POST", "/faults", `{"method":"CnsCreateVolume","at":"task-done","fault":"CnsFault","fields":{"reason":"no"}}`)
	if task, err = l.create("b"); err != nil {
		t.Fatal(err)
	}
	if err := task.Wait(l.ctx); err == nil || volumes() != 1 {
		t.Errorf("error %v, %d volumes", err, volumes())
	}

	l.must("POST", "/faults", `{"method":"CnsCreateVolume","at":"result","fault":"CnsFault","fields":{"reason":"inside"}}`)
	if task, err = l.create("c"); err != nil {
		t.Fatal(err)
	}
	info, err := task.WaitForResult(l.ctx)
	if err != nil || volumes() != 1 {
		t.Fatalf("error %v, %d volumes", err, volumes())
	}
	result, ok := info.Result.(cnstypes.CnsVolumeOperationBatchResult)
	if !ok {
		t.Fatalf("the result is a %T", info.Result)
	}
	inside := result.VolumeResults[0].GetCnsVolumeOperationResult().Fault
	if inside == nil || fmt.Sprintf("%T", inside.Fault) != "types.CnsFault" && fmt.Sprintf("%T", inside.Fault) != "*types.CnsFault" {
		t.Errorf("got %+v", inside)
	}

	l.must("POST", "/faults", `{"method":"CnsCreateVolume","at":"task-never"}`)
	if task, err = l.create("d"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); volumes() != 2 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if state := l.taskState(task).Info.State; state != types.TaskInfoStateRunning || volumes() != 2 {
		t.Errorf("the task is %s, %d volumes", state, volumes())
	}
	if task, err = l.create("e"); err != nil {
		t.Fatal(err)
	}
	if err := task.Wait(l.ctx); err != nil {
		t.Errorf("without a rule: %s", err)
	}
}

// The struck call waits between its match and its task, so the other call's task comes first. Both have the same operation
// id, which is the client's choice.
func TestACNSTaskRuleStrikesOnlyTheCallThatMatched(t *testing.T) {
	for method, call := range map[string]func(l *lab, node string) (*object.Task, error){
		"CnsCreateVolume": func(l *lab, node string) (*object.Task, error) { return l.create(node) },
		"CnsAttachVolume": func(l *lab, node string) (*object.Task, error) { return l.attachTo(l.vc.CNS().Volumes()[0].ID, node) },
	} {
		t.Run(method, func(t *testing.T) {
			l := start(t)
			l.done(l.create("pvc"))
			l.ctx = context.WithValue(l.ctx, types.ID{}, "same")
			run := func(node string) error {
				task, err := call(l, node)
				if err != nil {
					return err
				}
				return task.Wait(l.ctx)
			}
			l.must("POST", "/faults", fmt.Sprintf(`{"method":%q,"object":"node-1","at":"task","fault":"InvalidState","delay_ms":500}`, method))
			struck := make(chan error)
			go func() { struck <- run("node-1") }()
			for len(l.must("GET", "/rules", "")["calls"].([]any)) != 0 {
				time.Sleep(time.Millisecond)
			}
			if err := run("node-2"); err != nil {
				t.Errorf("the other call: %s", err)
			}
			if got := fmt.Sprintf("%T", fault(<-struck)); got != "*types.InvalidState" {
				t.Errorf("the call that matched got %s", got)
			}
		})
	}
}

func TestRequestsCanBeBrokenBelowTheAPI(t *testing.T) {
	l := start(t)
	l.must("POST", "/http", `{"path":"/sdk","kind":"status","status":502}`)
	if err := l.currentTime(); err == nil || !strings.Contains(err.Error(), "502") {
		t.Errorf("status: %v", err)
	}
	l.must("POST", "/http", `{"method":"CurrentTime","kind":"reset"}`)
	if err := l.currentTime(); err == nil || soap.IsSoapFault(err) {
		t.Errorf("reset: %v", err)
	}
	l.must("POST", "/http", `{"method":"CurrentTime","kind":"truncate"}`)
	if err := l.currentTime(); err == nil || soap.IsSoapFault(err) {
		t.Errorf("truncate: %v", err)
	}
	l.must("POST", "/http", `{"method":"CurrentTime","kind":"hang"}`)
	short, cancel := context.WithTimeout(l.ctx, 200*time.Millisecond)
	defer cancel()
	if _, err := methods.GetCurrentTime(short, l.client.Client); err == nil || short.Err() == nil {
		t.Errorf("hang: %v", err)
	}
	if err := l.currentTime(); err != nil {
		t.Errorf("afterwards: %s", err)
	}
}

func TestAMethodRuleLeavesOtherMethodsAlone(t *testing.T) {
	l := start(t)
	l.must("POST", "/http", `{"path":"/sdk","method":"PowerOffVM_Task","kind":"status"}`)
	if err := l.currentTime(); err != nil {
		t.Error(err)
	}
	if _, err := l.vm("node-1").PowerOff(l.ctx); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("got %v", err)
	}
}

func TestCallsAreCountedByMethodAndUser(t *testing.T) {
	l := start(t)
	l.must("DELETE", "/calls", "")
	for range 3 {
		if err := l.currentTime(); err != nil {
			t.Fatal(err)
		}
	}
	found := false
	for _, item := range l.must("GET", "/calls", "")["calls"].([]any) {
		call := item.(map[string]any)
		if call["method"] == "CurrentTime" && call["user"] == "administrator@vsphere.local" && call["count"] == 3.0 {
			found = true
		}
	}
	if !found {
		t.Errorf("got %v", l.must("GET", "/calls", ""))
	}
}

func TestAWrongRequestIsRefusedAndChangesNothing(t *testing.T) {
	l := start(t)
	before := fmt.Sprint(l.must("GET", "/state", "")["rules"], l.must("GET", "/state", "")["inventory"], l.must("GET", "/state", "")["skew_ms"])
	for _, test := range []struct{ path, body, field string }{
		{"/faults", `{"fault":"NoPermission"}`, "method"},
		{"/faults", `{"method":"Login"}`, "fault"},
		{"/faults", `{"method":"Login","fault":"Nonsense"}`, "fault"},
		{"/faults", `{"method":"Login","fault":"VirtualMachineConfigInfo"}`, "fault"},
		{"/faults", `{"method":"Login","fault":"NoPermission","fields":{"privilege":"x"}}`, "fields"},
		{"/faults", `{"method":"Login","fault":"NoPermission","fields":[1]}`, "fields"},
		{"/faults", `{"method":"Login","fault":"NoPermission","at":"later"}`, "at"},
		{"/faults", `{"method":"Login","fault":"NoPermission","at":"task-never"}`, "fault"},
		{"/faults", `{"method":"Login","fault":"NoPermission","count":-1}`, "count"},
		{"/faults", `{"method":"Login","fault":"NoPermission","skip":-1}`, "skip"},
		{"/faults", `{"method":"Login","fault":"NoPermission","probability":1.5}`, "probability"},
		{"/faults", `{"method":"Login","fault":"NoPermission","counts":1}`, "counts"},
		{"/faults", `{"method":"Login","fault":"NoPermission","count":"one"}`, "count"},
		{"/faults", `{"method":"Login","fault":"NoPermission"} {}`, "body"},
		{"/faults", `[]`, "body"},
		{"/faults", `{`, "body"},
		{"/delays", `{"method":"Login"}`, "delay_ms"},
		{"/delays", `{"method":"Login","delay_ms":-1}`, "delay_ms"},
		{"/delays", `{"method":"Login","delay_ms":1,"jitter_ms":9223372036854775807}`, "jitter_ms"},
		{"/http", `{"path":"/sdk","kind":"explode"}`, "kind"},
		{"/http", `{"kind":"reset"}`, "path"},
		{"/http", `{"path":"sdk","kind":"reset"}`, "path"},
		{"/http", `{"path":"/sdk","kind":"status","status":99}`, "status"},
		{"/http", `{"path":"/sdk","kind":"reset","status":500}`, "status"},
		{"/faults", `{"method":"PowerOffVM_Task","at":"task-hold"}`, "at"},
		{"/faults", `{"method":"VslmCreateDisk_Task","at":"task-half","fault":"NotFound"}`, "at"},
		{"/faults", `{"method":"VslmCreateDisk_Task","at":"result-late","fault":"NotFound"}`, "at"},
		{"/faults", `{"method":"CnsCreateVolume","at":"task-late"}`, "fault"},
		{"/faults", `{"method":"CnsCreateVolume","at":"task-gone","fault":"NotFound"}`, "fault"},
		{"/http", `{"path":"/rest","kind":"unauthenticated","status":99}`, "status"},
		{"/restart", `{"down_ms":-1}`, "down_ms"},
		{"/restart", `{"work":"most"}`, "work"},
		{"/cns/restart", `{"down_ms":3600001}`, "down_ms"},
		{"/cns/restart", `{"work":"most"}`, "work"},
		{"/sps", `{}`, "down"},
		{"/limits", `{"soap_sessions":-1}`, "soap_sessions"},
		{"/session", `{"key":"none"}`, "half_dead"},
		{"/session", `{"key":"none","half_dead":true}`, "key"},
		{"/volume", `{"volume":"none","health":"blue"}`, "health"},
		{"/volume", `{"volume":"none","compliance":"mostly"}`, "compliance"},
		{"/volume", `{"volume":"none","health":"red"}`, "volume"},
		{"/clock", `{}`, "skew_ms"},
		{"/assumptions", `{"Nonsense":1}`, "Nonsense"},
		{"/vm/host", `{"vm":"node-1"}`, "host"},
		{"/vm/host", `{"vm":"nobody","host":"esx-2.lab.example"}`, "vm"},
		{"/vm/host", `{"vm":"node-1","host":"esx-3.lab.example"}`, "host"},
		{"/vm/datastore", `{"vm":"node-1","datastore":"local-2"}`, "datastore"},
		{"/vm/power", `{"vm":"node-1","power":"dim"}`, "power"},
		{"/vm/guest", `{"vm":"node-1"}`, "addresses"},
		{"/vm/guest", `{"vm":"node-1","addresses":["1.2.3"]}`, "addresses[0]"},
		{"/vm/guest", `{"vm":"node-1","nic":5,"addresses":["1.2.3.4"]}`, "nic"},
		{"/vm/unregister", `{}`, "vm"},
		{"/host/state", `{"host":"esx-1.lab.example","state":"gone"}`, "state"},
		{"/host/state", `{"host":"esx-1.lab.example"}`, "state"},
		{"/datastore/accessible", `{"datastore":"shared-1"}`, "accessible"},
		{"/datastore/free", `{"datastore":"shared-1","free":-5}`, "free"},
		{"/rename", `{"object":"node-1"}`, "to"},
		{"/rename", `{"object":"node-1","to":"node-2"}`, "to"},
		{"/rename", `{"object":"nodes","to":"x"}`, "object"}, // two networks have this name
		{"/delete", `{"object":"zzz"}`, "object"},
		{"/delete", `{"object":"/"}`, "object"},
		{"/rename", `{"object":"/","to":"x"}`, "object"},
		{"/delete", `{"object":"/dc-1/datastore/shared-1"}`, "object"}, // VMs are on it
		{"/tag", `{"category":"k8s-zone","tag":"zone-9","object":"cluster-1"}`, "tag"},
	} {
		status, answer := l.call("POST", test.path, test.body)
		if status != http.StatusBadRequest || answer["field"] != test.field || answer["error"] == "" {
			t.Errorf("%s %s: got %d %v, want field %s", test.path, test.body, status, answer, test.field)
		}
	}
	for _, path := range []string{"/rules/77", "/rules/x", "/sessions/none"} {
		if status, answer := l.call("DELETE", path, ""); status != http.StatusBadRequest {
			t.Errorf("DELETE %s: %d %v", path, status, answer)
		}
	}
	if status, _ := l.call("POST", "/nothing", ""); status != http.StatusNotFound {
		t.Errorf("an unknown call got %d", status)
	}
	after := fmt.Sprint(l.must("GET", "/state", "")["rules"], l.must("GET", "/state", "")["inventory"], l.must("GET", "/state", "")["skew_ms"])
	if before != after {
		t.Errorf("the state changed\nfrom %s\nto   %s", before, after)
	}
}
