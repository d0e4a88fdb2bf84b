package control

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	cnsclient "github.com/vmware/govmomi/cns"
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vim25/types"
)

// done waits for a CNS task whose only volume must have succeeded.
func (l *lab) done(task *object.Task, err error) *cnstypes.CnsVolumeOperationResult {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
	info, err := cnsclient.GetTaskInfo(l.ctx, task)
	if err != nil {
		l.t.Fatal(err)
	}
	one, err := cnsclient.GetTaskResult(l.ctx, info)
	if err != nil {
		l.t.Fatal(err)
	}
	made := one.GetCnsVolumeOperationResult()
	if made.Fault != nil {
		l.t.Fatalf("%T %s", made.Fault.Fault, made.Fault.LocalizedMessage)
	}
	return made
}

// attached makes a volume on a VM and gives its id.
func (l *lab) attached(vm string) string {
	l.t.Helper()
	id := l.done(l.create("pvc")).VolumeId
	l.done(l.cns().AttachVolume(l.ctx, []cnstypes.CnsVolumeAttachDetachSpec{{VolumeId: id, Vm: l.vm(vm).Reference()}}))
	return id.Id
}

// diskFile is the file of a volume's disk on a VM; empty when the VM has no such disk.
func (l *lab) diskFile(vm, id string) string {
	l.t.Helper()
	devices, err := l.vm(vm).Device(l.ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, device := range devices {
		if disk, ok := device.(*types.VirtualDisk); ok && disk.VDiskId != nil && disk.VDiskId.Id == id {
			return disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo).FileName
		}
	}
	return ""
}

func TestVolumesStayAttachedWhenTheirVMMovesOrStops(t *testing.T) {
	l := start(t)
	id := l.attached("node-1")
	file := l.diskFile("node-1", id)
	for _, change := range [][2]string{
		{"/vm/host", `{"vm":"node-1","host":"esx-2.lab.example"}`},
		{"/vm/datastore", `{"vm":"node-1","datastore":"vsan-1"}`},
		{"/vm/power", `{"vm":"node-1","power":"off"}`},
		{"/host/state", `{"host":"esx-2.lab.example","state":"notResponding"}`},
	} {
		l.must("POST", change[0], change[1])
		if got := l.diskFile("node-1", id); got != file {
			t.Errorf("after %s the disk is at %q, not %q", change[0], got, file)
		}
		if got := l.must("GET", "/state", "")["attachments"].([]any); len(got) != 1 {
			t.Errorf("after %s: %v", change[0], got)
		}
	}
}

func TestVolumesOutliveTheirVM(t *testing.T) {
	for path, body := range map[string]string{"/delete": `{"object":"node-1"}`, "/vm/unregister": `{"vm":"node-1"}`} {
		l := start(t)
		id := l.attached("node-1")
		l.must("POST", path, body)
		state := l.must("GET", "/state", "")
		if volumes, left := state["volumes"].([]any), state["attachments"].([]any); len(volumes) != 1 || len(left) != 0 {
			t.Errorf("after %s: volumes %v, attachments %v", path, volumes, left)
		}
		l.done(l.cns().AttachVolume(l.ctx, []cnstypes.CnsVolumeAttachDetachSpec{{VolumeId: cnstypes.CnsVolumeId{Id: id}, Vm: l.vm("node-2").Reference()}}))
	}
}

func TestTheStateShowsSessionsOfBothKindsAndEachCanBeExpired(t *testing.T) {
	l := start(t)
	api := rest.NewClient(l.client.Client)
	if err := api.Login(l.ctx, url.UserPassword("cpi@vsphere.local", "Lab-cpi-1!")); err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{}
	for _, item := range l.must("GET", "/state", "")["sessions"].([]any) {
		session := item.(map[string]any)
		keys[fmt.Sprint(session["kind"], " ", session["user"])] = session["key"].(string)
	}
	if len(keys) != 2 || keys["soap administrator@vsphere.local"] == "" || keys["rest cpi@vsphere.local"] == "" {
		t.Fatalf("sessions %v", keys)
	}
	l.must("DELETE", "/sessions/"+keys["rest cpi@vsphere.local"], "")
	if session, err := api.Session(l.ctx); err == nil && session != nil {
		t.Errorf("the REST session still works: %+v", session)
	}
	if err := l.currentTime(); err != nil {
		t.Errorf("the SOAP session: %s", err)
	}
}

func TestRESTCanBeBrokenToo(t *testing.T) {
	l := start(t)
	api := rest.NewClient(l.client.Client)
	enter := func() error { return api.Login(l.ctx, url.UserPassword("cpi@vsphere.local", "Lab-cpi-1!")) }
	l.must("POST", "/http", `{"path":"/rest","kind":"status","status":503}`)
	if err := enter(); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("got %v", err)
	}
	if err := enter(); err != nil {
		t.Errorf("afterwards: %s", err)
	}
	if status, _ := l.call("GET", "/state", ""); status != http.StatusOK {
		t.Errorf("the control endpoint itself: %d", status)
	}
}
