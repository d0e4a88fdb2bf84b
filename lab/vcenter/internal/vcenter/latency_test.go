package vcenter

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vmware/govmomi/cns"
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/latency"
	"vsphere-drivers.example/lab/vcenter/internal/world"
)

// slow starts a vCenter whose operations take the given seconds, and a client of its volumes.
func slow(t *testing.T, times map[latency.Operation]latency.Time) (*VCenter, *slowVolumes) {
	t.Helper()
	return slowWorld(t, defaultWorld(t), times)
}

func slowWorld(t *testing.T, w *world.World, times map[latency.Operation]latency.Time) (*VCenter, *slowVolumes) {
	t.Helper()
	vc := start(t, w, Options{})
	client := login(t, vc.URL)
	storage, err := cns.NewClient(context.Background(), client.Client)
	if err != nil {
		t.Fatal(err)
	}
	vc.Latency.Set(latency.NewProfile("test", times), latency.Seed)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return vc, &slowVolumes{t, ctx, storage, vc}
}

type slowVolumes struct {
	t   *testing.T
	ctx context.Context
	*cns.Client
	vc *VCenter
}

func (v *slowVolumes) create(name string) *object.Task {
	v.t.Helper()
	task, err := v.CreateVolume(v.ctx, []cnstypes.CnsVolumeCreateSpec{{
		Name: name, VolumeType: string(cnstypes.CnsVolumeTypeBlock),
		Datastores: []types.ManagedObjectReference{*v.vc.Inventory.At("/dc-1/datastore/shared-1")},
		Metadata: cnstypes.CnsVolumeMetadata{ContainerCluster: cnstypes.CnsContainerCluster{
			ClusterType: "KUBERNETES", ClusterId: "c1", VSphereUser: admin, ClusterFlavor: "VANILLA",
		}},
		BackingObjectDetails: &cnstypes.CnsBlockBackingDetails{CnsBackingObjectDetails: cnstypes.CnsBackingObjectDetails{CapacityInMb: 16}},
	}})
	if err != nil {
		v.t.Fatal(err)
	}
	return task
}

// volume gives the id of the volume of a task that ended well.
func (v *slowVolumes) volume(task *object.Task) string {
	v.t.Helper()
	info, err := cns.GetTaskInfo(v.ctx, task)
	if err != nil {
		v.t.Fatal(err)
	}
	result, err := cns.GetTaskResult(v.ctx, info)
	if err != nil || result.GetCnsVolumeOperationResult().Fault != nil {
		v.t.Fatalf("%+v, %v", result, err)
	}
	return result.GetCnsVolumeOperationResult().VolumeId.Id
}

func (v *slowVolumes) on(id, vm string) cnstypes.CnsVolumeAttachDetachSpec {
	v.t.Helper()
	found, err := v.vc.Inventory.FindVM("vm", vm)
	if err != nil {
		v.t.Fatal(err)
	}
	return cnstypes.CnsVolumeAttachDetachSpec{VolumeId: cnstypes.CnsVolumeId{Id: id}, Vm: found.Self}
}

func (v *slowVolumes) attach(id, vm string) *object.Task {
	v.t.Helper()
	task, err := v.AttachVolume(v.ctx, []cnstypes.CnsVolumeAttachDetachSpec{v.on(id, vm)})
	if err != nil {
		v.t.Fatal(err)
	}
	return task
}

// times tells when a task started and when it ended, by vCenter's clock.
func (v *slowVolumes) times(task *object.Task, err error) (started, ended time.Time) {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
	info, err := cns.GetTaskInfo(v.ctx, task)
	if err != nil || info.StartTime == nil || info.CompleteTime == nil {
		v.t.Fatalf("%+v, %v", info, err)
	}
	return *info.StartTime, *info.CompleteTime
}

func TestATaskRunsForItsTimeAndTellsOfItself(t *testing.T) {
	const takes = 6 * time.Second // long enough that a slow client hears of each change by itself
	vc, v := slow(t, map[latency.Operation]latency.Time{latency.Create: {Median: takes.Seconds(), P95: takes.Seconds()}})
	client := login(t, vc.URL)
	begin := time.Now()
	task := v.create("a")
	var early mo.Task
	if err := client.RetrieveOne(v.ctx, task.Reference(), []string{"info"}, &early); err != nil {
		t.Fatal(err)
	}
	if early.Info.State != types.TaskInfoStateRunning || early.Info.StartTime == nil || early.Info.Progress != 0 {
		t.Errorf("at once it is %+v", early.Info)
	}
	told := 0
	filter := new(property.WaitFilter).Add(task.Reference(), "Task", []string{"info"})
	err := property.WaitForUpdatesEx(v.ctx, property.DefaultCollector(client.Client), filter, func(updates []types.ObjectUpdate) bool {
		for _, update := range updates {
			info, whole := update.ChangeSet[0].Val.(types.TaskInfo)
			if !whole || info.State != types.TaskInfoStateRunning {
				return true
			}
			if update.Kind == types.ObjectUpdateKindModify {
				told++
			}
		}
		return false
	})
	if err != nil {
		t.Fatal(err)
	}
	v.volume(task)
	if took := time.Since(begin); took < takes {
		t.Errorf("it took %s, less than %s", took, takes)
	}
	if told != 2 {
		t.Errorf("a waiting client is told of it %d times on the way", told)
	}
}

func TestVolumesOfOneVMAreAttachedOneAfterTheOther(t *testing.T) {
	const takes = 400 * time.Millisecond
	_, v := slow(t, map[latency.Operation]latency.Time{latency.Attach: {Median: takes.Seconds(), P95: takes.Seconds()}})
	one, other := v.volume(v.create("a")), v.volume(v.create("b"))
	begin := time.Now()
	first, second := v.attach(one, "node-1"), v.attach(other, "node-1")
	v.volume(first)
	v.volume(second)
	if took := time.Since(begin); took < 2*takes {
		t.Errorf("two attaches of %s took %s", takes, took)
	}
}

func TestAnAttachHasItsVMForItselfWhileItTakesItsTime(t *testing.T) {
	const takes = 8 * time.Second
	vc, v := slow(t, nil)
	one, other := v.volume(v.create("a")), v.volume(v.create("b"))
	v.volume(v.attach(one, "node-1"))
	vc.Latency.Set(latency.NewProfile("test", map[latency.Operation]latency.Time{latency.Attach: {Median: takes.Seconds(), P95: takes.Seconds()}}), latency.Seed)
	node := object.NewVirtualMachine(login(t, vc.URL).Client, v.on(one, "node-1").Vm)
	reconfigure := func() error {
		task, err := node.Reconfigure(v.ctx, types.VirtualMachineConfigSpec{Annotation: "changed"})
		if err != nil {
			t.Fatal(err)
		}
		return task.Wait(v.ctx)
	}
	snapshot := func() *types.LocalizedMethodFault {
		task, err := v.CreateSnapshots(v.ctx, []cnstypes.CnsSnapshotCreateSpec{{VolumeId: cnstypes.CnsVolumeId{Id: one}, Description: "s"}})
		if err != nil {
			t.Fatal(err)
		}
		info, err := cns.GetTaskInfo(v.ctx, task)
		if err != nil {
			t.Fatal(err)
		}
		result, err := cns.GetTaskResult(v.ctx, info)
		if err != nil {
			t.Fatal(err)
		}
		return result.GetCnsVolumeOperationResult().Fault
	}
	running := v.attach(other, "node-1")
	var busy *types.TaskInProgress
	if err := reconfigure(); err == nil {
		t.Error("a reconfiguration succeeds beside an attach")
	} else if _, ok := fault.As(err, &busy); !ok {
		t.Errorf("a reconfiguration ends with %v", err)
	}
	if got := snapshot(); got == nil {
		t.Error("a snapshot succeeds beside an attach")
	} else if _, ok := got.Fault.(*cnstypes.CnsFault); !ok {
		t.Errorf("a snapshot ends with %+v", got)
	}
	v.volume(running)
	if err := reconfigure(); err != nil {
		t.Errorf("afterwards a reconfiguration ends with %v", err)
	}
	if got := snapshot(); got != nil {
		t.Errorf("afterwards a snapshot ends with %+v", got)
	}
}

func TestABatchTakesTheTimesOfAllItsVolumes(t *testing.T) {
	const takes = time.Second
	each := latency.Time{Median: takes.Seconds(), P95: takes.Seconds()}
	w := defaultWorld(t)
	w.Release = "9.1"
	_, v := slowWorld(t, w, map[latency.Operation]latency.Time{latency.Attach: each, latency.Detach: each})
	var specs []cnstypes.CnsVolumeAttachDetachSpec
	for i, vm := range []string{"node-1", "node-2", "node-1", "node-1"} {
		specs = append(specs, v.on(v.volume(v.create(fmt.Sprint("pvc-", i))), vm))
	}
	started, ended := v.times(v.AttachVolume(v.ctx, specs))
	if took := ended.Sub(started); took < 3*takes {
		t.Errorf("three volumes of one VM are attached within %s", took)
	}
	started, ended = v.times(v.DetachVolume(v.ctx, specs))
	if took := ended.Sub(started); took < 3*takes {
		t.Errorf("three volumes of one VM are detached within %s", took)
	}
}

func TestCreatesHaveACeiling(t *testing.T) {
	const takes = 200 * time.Millisecond
	_, v := slow(t, map[latency.Operation]latency.Time{latency.Create: {Median: takes.Seconds(), P95: takes.Seconds()}})
	var tasks []*object.Task
	for i := range 9 {
		tasks = append(tasks, v.create(fmt.Sprint("pvc-", i)))
	}
	begin, _ := v.times(tasks[0], nil)
	_, end := v.times(tasks[8], nil)
	// The ninth begins after two seconds; with one create in a second after eight.
	if took := end.Sub(begin); took < 2*time.Second+takes || took > 8*time.Second {
		t.Errorf("nine creates take %s", took)
	}
}

func TestCallsTakeTheirTime(t *testing.T) {
	const takes = 300 * time.Millisecond
	always := latency.Time{Median: takes.Seconds(), P95: takes.Seconds()}
	vc, v := slow(t, map[latency.Operation]latency.Time{latency.Query: always, latency.LoginSOAP: always})
	for name, call := range map[string]func(){
		"a query": func() {
			if _, err := v.QueryVolume(v.ctx, &cnstypes.CnsQueryFilter{}); err != nil {
				t.Error(err)
			}
		},
		"a login": func() { login(t, vc.URL) },
	} {
		begin := time.Now()
		call()
		if took := time.Since(begin); took < takes {
			t.Errorf("%s took %s, less than %s", name, took, takes)
		}
	}
}

func TestARestartAndAnEndDoNotWaitForSlowTasks(t *testing.T) {
	forever := latency.Time{Median: 3600, P95: 3600}
	vc, v := slow(t, map[latency.Operation]latency.Time{latency.Create: forever, latency.Query: forever})
	v.create("interrupted")
	vc.Restart(0)
	for deadline := time.Now().Add(time.Minute); len(vc.CNS().Volumes()) != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the work that was going on is not done after a minute")
		}
	}
	again, err := cns.NewClient(v.ctx, login(t, vc.URL).Client)
	if err != nil {
		t.Fatal(err)
	}
	v.Client = again
	v.create("lost")
	ended := make(chan struct{})
	go func() {
		_, _ = again.QueryVolume(v.ctx, &cnstypes.CnsQueryFilter{})
		close(ended)
	}()
	if err := vc.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("a call goes on although the vCenter is gone")
	}
	if got := len(vc.CNS().Volumes()); got != 1 {
		t.Errorf("%d volumes after the end", got)
	}
}

func TestEveryTaskOfCNSHasATime(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	idle, err := latency.Lookup("idle")
	if err != nil {
		t.Fatal(err)
	}
	vc.Latency.Set(idle, latency.Seed)
	block := func(details cnstypes.CnsBlockBackingDetails) cnstypes.CnsVolumeCreateSpec {
		return cnstypes.CnsVolumeCreateSpec{VolumeType: "BLOCK", BackingObjectDetails: &details}
	}
	snapshot := block(cnstypes.CnsBlockBackingDetails{})
	snapshot.VolumeSource = &cnstypes.CnsSnapshotVolumeSource{}
	vm := types.ManagedObjectReference{Type: "VirtualMachine", Value: "vm-7"}
	for _, c := range []struct {
		body any
		want []latency.Work
	}{
		{&cnstypes.CnsCreateVolume{CreateSpecs: []cnstypes.CnsVolumeCreateSpec{block(cnstypes.CnsBlockBackingDetails{})}}, []latency.Work{{Operation: latency.Create}}},
		{&cnstypes.CnsCreateVolume{CreateSpecs: []cnstypes.CnsVolumeCreateSpec{block(cnstypes.CnsBlockBackingDetails{BackingDiskId: "x"})}}, []latency.Work{{Operation: latency.Register}}},
		{&cnstypes.CnsCreateVolume{CreateSpecs: []cnstypes.CnsVolumeCreateSpec{block(cnstypes.CnsBlockBackingDetails{BackingDiskUrlPath: "x"})}}, []latency.Work{{Operation: latency.Register}}},
		{&cnstypes.CnsCreateVolume{CreateSpecs: []cnstypes.CnsVolumeCreateSpec{snapshot}}, []latency.Work{{Operation: latency.Restore}}},
		{&cnstypes.CnsCreateVolume{CreateSpecs: []cnstypes.CnsVolumeCreateSpec{{VolumeType: "FILE"}}}, []latency.Work{{Operation: latency.CreateShare}}},
		{&cnstypes.CnsDetachVolume{DetachSpecs: []cnstypes.CnsVolumeAttachDetachSpec{{Vm: vm}}}, []latency.Work{{Operation: latency.Detach, VM: "vm-7"}}},
		{&types.AttachDisk_Task{This: vm}, []latency.Work{{Operation: latency.Attach, VM: "vm-7"}}},
		{&types.DetachDisk_Task{This: vm}, []latency.Work{{Operation: latency.Detach, VM: "vm-7"}}},
		{&types.PowerOffVM_Task{This: vm}, nil},
	} {
		if got := vc.parts(&simulator.Method{Body: c.body}); !slices.Equal(got, c.want) {
			t.Errorf("%T: %+v, want %+v", c.body, got, c.want)
		}
	}
	for name, operation := range taskOperations {
		ctx := context.WithValue(context.Background(), workKey{}, vc.parts(&simulator.Method{Name: name}))
		if vc.taskTime(ctx, time.Now()) <= 0 {
			t.Errorf("%s (%s) takes no time", name, operation)
		}
	}
}
