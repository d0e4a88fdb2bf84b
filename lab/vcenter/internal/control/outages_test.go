package control

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	cnsclient "github.com/vmware/govmomi/cns"
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/pbm"
	pbmtypes "github.com/vmware/govmomi/pbm/types"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"
)

const gold = "9f6e1c3a-5eed-4000-8000-00000000000a"

// createOn starts the creation of a volume on a datastore, with a policy if one is given.
func (l *lab) createOn(name, datastore, policy string) (*object.Task, error) {
	spec := cnstypes.CnsVolumeCreateSpec{
		Name:       name,
		VolumeType: string(cnstypes.CnsVolumeTypeBlock),
		Datastores: []types.ManagedObjectReference{l.ref(datastore)},
		Metadata: cnstypes.CnsVolumeMetadata{ContainerCluster: cnstypes.CnsContainerCluster{
			ClusterType: "KUBERNETES", ClusterId: "c1", VSphereUser: "administrator@vsphere.local", ClusterFlavor: "VANILLA",
		}},
		BackingObjectDetails: &cnstypes.CnsBlockBackingDetails{
			CnsBackingObjectDetails: cnstypes.CnsBackingObjectDetails{CapacityInMb: 16},
		},
	}
	if policy != "" {
		spec.Profile = []types.BaseVirtualMachineProfileSpec{&types.VirtualMachineDefinedProfileSpec{ProfileId: policy}}
	}
	return l.cns().CreateVolume(l.ctx, []cnstypes.CnsVolumeCreateSpec{spec})
}

// started is a task that a call began.
func (l *lab) started(task *object.Task, err error) *object.Task {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
	return task
}

// query finds a volume, nil if CNS shows none.
func (l *lab) query(id cnstypes.CnsVolumeId) *cnstypes.CnsVolume {
	l.t.Helper()
	found, err := l.cns().QueryVolume(l.ctx, &cnstypes.CnsQueryFilter{VolumeIds: []cnstypes.CnsVolumeId{id}})
	if err != nil {
		l.t.Fatal(err)
	}
	if len(found.Volumes) == 0 {
		return nil
	}
	return &found.Volumes[0]
}

// fcds are the first class disks of a datastore, volumes or not.
func (l *lab) fcds(datastore string) []string {
	l.t.Helper()
	found, err := vslm.NewObjectManager(l.client.Client).List(l.ctx, l.ref(datastore))
	if err != nil {
		l.t.Fatal(err)
	}
	var ids []string
	for _, id := range found {
		ids = append(ids, id.Id)
	}
	return ids
}

func kind(fault any) string { return strings.TrimPrefix(fmt.Sprintf("%T", fault), "*") }

func TestARestartOfCNSFailsRunningTasksWhateverBecomesOfTheirWork(t *testing.T) {
	for work, want := range map[string]string{"done": "volume and disk", "half": "disk", "none": "nothing"} {
		t.Run(work, func(t *testing.T) {
			l := start(t)
			l.must("POST", "/faults", `{"method":"CnsCreateVolume","at":"task-hold"}`)
			task := l.started(l.createOn("a", "/dc-1/datastore/vsan-1", ""))
			if state := l.taskState(task).Info.State; state != types.TaskInfoStateRunning {
				t.Errorf("the held task is %s", state)
			}
			l.must("POST", "/cns/restart", fmt.Sprintf(`{"work":%q}`, work))
			if err := task.Wait(l.ctx); kind(fault(err)) != "types.CnsFault" {
				t.Errorf("the task: %v", err)
			}
			if err := l.currentTime(); err != nil {
				t.Errorf("the vim25 session: %v", err)
			}
			got := "nothing"
			spec := l.done(l.createOn("other", "/dc-1/datastore/vsan-1", "")) // CNS works again
			volumes, fcds := 0, 0
			for _, v := range l.vc.CNS().Volumes() {
				if v.ID != spec.VolumeId.Id {
					volumes++
				}
			}
			for _, id := range l.fcds("/dc-1/datastore/vsan-1") {
				if id != spec.VolumeId.Id {
					fcds++
				}
			}
			switch {
			case volumes == 1 && fcds == 1:
				got = "volume and disk"
			case volumes == 0 && fcds == 1:
				got = "disk"
			}
			if got != want {
				t.Errorf("there is %s, want %s", got, want)
			}
		})
	}
}

func TestARestartOfVCenterDecidesAboutWorkThatHasNotBegun(t *testing.T) {
	for work, want := range map[string]int{"done": 1, "none": 0} {
		l := start(t)
		l.must("POST", "/faults", `{"method":"CnsCreateVolume","at":"task-hold"}`)
		l.started(l.createOn("a", "/dc-1/datastore/vsan-1", ""))
		l.must("POST", "/restart", fmt.Sprintf(`{"work":%q}`, work))
		if got := len(l.vc.CNS().Volumes()); got != want {
			t.Errorf("%s: %d volumes", work, got)
		}
	}
}

func TestCNSIsDownAloneWhileItRestarts(t *testing.T) {
	l := start(t)
	l.must("POST", "/cns/restart", `{"down_ms":3600000}`)
	_, err := l.cns().QueryVolume(l.ctx, &cnstypes.CnsQueryFilter{})
	if err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("CNS: %v", err)
	}
	if err := l.currentTime(); err != nil {
		t.Errorf("vim25: %v", err)
	}
	l.must("POST", "/cns/restart", `{"down_ms":0}`)
	if _, err := l.cns().QueryVolume(l.ctx, &cnstypes.CnsQueryFilter{}); err != nil {
		t.Errorf("CNS afterwards: %v", err)
	}
}

func TestOnlyWorkWithAPolicyNeedsThePolicyService(t *testing.T) {
	l := start(t)
	profiles := func() error {
		client, err := pbm.NewClient(l.ctx, l.client.Client)
		if err == nil {
			_, err = client.QueryProfile(l.ctx, pbmtypes.PbmProfileResourceType{ResourceType: "STORAGE"}, "")
		}
		return err
	}
	grows := l.done(l.createOn("grows", "/dc-1/datastore/vsan-1", gold)).VolumeId
	l.must("POST", "/sps", `{"down":true}`)
	info, err := cnsclient.GetTaskInfo(l.ctx, l.started(l.createOn("a", "/dc-1/datastore/vsan-1", gold)))
	if err != nil {
		t.Fatal(err)
	}
	refused, err := cnsclient.GetTaskResult(l.ctx, info)
	if err != nil || refused.GetCnsVolumeOperationResult().Fault == nil || len(l.vc.CNS().Volumes()) != 1 {
		t.Errorf("with a policy: %+v, %v", refused, err)
	}
	if err := profiles(); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("PBM: %v", err)
	}
	made := l.done(l.createOn("b", "/dc-1/datastore/vsan-1", ""))
	for _, id := range []cnstypes.CnsVolumeId{made.VolumeId, grows} { // the second has a policy, which an extend does not need
		l.done(l.cns().ExtendVolume(l.ctx, []cnstypes.CnsVolumeExtendSpec{{VolumeId: id, CapacityInMb: 32}}))
	}
	l.must("POST", "/sps", `{"down":false}`)
	l.done(l.createOn("c", "/dc-1/datastore/vsan-1", gold))
	if err := profiles(); err != nil {
		t.Errorf("PBM afterwards: %v", err)
	}
}

func TestTasksCanFailAtHalfTimeBeLateOrVanish(t *testing.T) {
	l := start(t)
	volumes := func() int { return len(l.vc.CNS().Volumes()) }
	l.must("POST", "/faults", `{"method":"CnsCreateVolume","at":"task-late","fault":"Timedout"}`)
	task := l.started(l.createOn("late", "/dc-1/datastore/vsan-1", ""))
	if err := task.Wait(l.ctx); kind(fault(err)) != "types.Timedout" || volumes() != 0 {
		t.Errorf("late: %v, %d volumes", err, volumes())
	}
	if answer := l.must("POST", "/tasks/release", ""); answer["released"] != 1.0 || volumes() != 1 {
		t.Errorf("released %v, %d volumes", answer, volumes())
	}
	l.must("POST", "/faults", `{"method":"CnsCreateVolume","at":"result-late","fault":"Timedout"}`)
	if found := l.volumeFault(l.createOn("later", "/dc-1/datastore/vsan-1", "")); found == nil || kind(found.Fault) != "types.Timedout" || volumes() != 1 {
		t.Errorf("later: %+v, %d volumes", found, volumes())
	}
	if answer := l.must("POST", "/tasks/release", ""); answer["released"] != 1.0 || volumes() != 2 {
		t.Errorf("released %v, %d volumes", answer, volumes())
	}
	l.must("POST", "/faults", `{"method":"CnsCreateVolume","at":"task-half","fault":"CnsFault","fields":{"reason":"x"}}`)
	task = l.started(l.createOn("half", "/dc-1/datastore/vsan-1", ""))
	if err := task.Wait(l.ctx); kind(fault(err)) != "types.CnsFault" || volumes() != 2 || len(l.fcds("/dc-1/datastore/vsan-1")) != 3 {
		t.Errorf("half: %v, %d volumes, disks %v", err, volumes(), l.fcds("/dc-1/datastore/vsan-1"))
	}
	l.must("POST", "/faults", `{"method":"CnsCreateVolume","at":"task-gone"}`)
	task = l.started(l.createOn("gone", "/dc-1/datastore/vsan-1", ""))
	var err error
	for deadline := time.Now().Add(patience); err == nil && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		var state mo.Task // govmomi's wait would not notice that the task leaves
		err = l.client.RetrieveOne(l.ctx, task.Reference(), []string{"info"}, &state)
	}
	if kind(fault(err)) != "types.ManagedObjectNotFound" || volumes() != 3 {
		t.Errorf("gone: %v, %d volumes", err, volumes())
	}
}

func TestFinishedTasksCanBeForgotten(t *testing.T) {
	l := start(t)
	task := l.started(l.createOn("a", "/dc-1/datastore/vsan-1", ""))
	l.done(task, nil)
	if answer := l.must("DELETE", "/tasks", ""); answer["forgotten"].(float64) < 1 {
		t.Errorf("got %v", answer)
	}
	if _, err := task.WaitForResult(l.ctx); kind(fault(err)) != "types.ManagedObjectNotFound" {
		t.Errorf("the task: %v", err)
	}
}

func TestCNSHearsOfAStorageVMotionLater(t *testing.T) {
	l := start(t)
	made := l.done(l.createOn("a", "/dc-1/datastore/vsan-1", ""))
	l.done(l.cns().AttachVolume(l.ctx, []cnstypes.CnsVolumeAttachDetachSpec{{VolumeId: made.VolumeId, Vm: l.vm("node-1").Reference()}}))
	path := func() string {
		return l.query(made.VolumeId).BackingObjectDetails.(*cnstypes.CnsBlockBackingDetails).BackingDiskPath
	}
	before := path()
	l.must("POST", "/vm/datastore", `{"vm":"node-1","datastore":"shared-1"}`)
	file := l.diskFile("node-1", made.VolumeId.Id)
	if file != "[shared-1] node-1/node-1_1.vmdk" || path() != before {
		t.Errorf("the disk is at %s, CNS shows %s", file, path())
	}
	l.must("POST", "/cns/sync", "")
	if path() != file {
		t.Errorf("after a sync CNS shows %s", path())
	}
}

func TestHealthAndComplianceAreSetOverTheEndpoint(t *testing.T) {
	l := start(t)
	made := l.done(l.createOn("a", "/dc-1/datastore/vsan-1", ""))
	l.must("POST", "/volume", fmt.Sprintf(`{"volume":%q,"health":"yellow","compliance":"outOfDate"}`, made.VolumeId.Id))
	if v := l.query(made.VolumeId); v.HealthStatus != "yellow" || v.ComplianceStatus != "outOfDate" {
		t.Errorf("volume %+v", v)
	}
}

func TestSessionLimitsAreSetOverTheEndpoint(t *testing.T) {
	l := start(t)
	if answer := l.must("POST", "/limits", `{"rest_sessions":1}`); answer["rest_sessions"] != 1.0 || answer["soap_sessions"] != 2000.0 {
		t.Errorf("got %v", answer)
	}
	for i := range 2 {
		err := rest.NewClient(l.client.Client).Login(l.ctx, url.UserPassword("cpi@vsphere.local", "Lab-cpi-1!"))
		if i == 0 && err != nil || i == 1 && (err == nil || !strings.Contains(err.Error(), "503")) {
			t.Errorf("session %d: %v", i+1, err)
		}
	}
}

func TestRESTCanRefuseASessionThatItKnowsWithAnyStatus(t *testing.T) {
	l := start(t)
	api := rest.NewClient(l.client.Client)
	if err := api.Login(l.ctx, url.UserPassword("cpi@vsphere.local", "Lab-cpi-1!")); err != nil {
		t.Fatal(err)
	}
	list := func() error { _, err := tags.NewManager(api).ListCategories(l.ctx); return err }
	for _, status := range []string{"401", "400"} {
		l.must("POST", "/http", `{"path":"/rest/com/vmware/cis/tagging","kind":"unauthenticated","status":`+status+`}`)
		if err := list(); err == nil || !strings.Contains(err.Error(), status) {
			t.Errorf("%s: %v", status, err)
		}
		if err := list(); err != nil {
			t.Errorf("after %s: %v", status, err)
		}
	}
}
