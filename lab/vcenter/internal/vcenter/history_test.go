package vcenter

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// collect makes a collector of the tasks that ended well.
func collect(t *testing.T, client *govmomi.Client, span *types.TaskFilterSpecByTime) (types.ManagedObjectReference, error) {
	t.Helper()
	made, err := methods.CreateCollectorForTasks(context.Background(), client, &types.CreateCollectorForTasks{
		This:   *client.ServiceContent.TaskManager,
		Filter: types.TaskFilterSpec{Time: span, State: []types.TaskInfoState{types.TaskInfoStateSuccess}},
	})
	if err != nil {
		return types.ManagedObjectReference{}, err
	}
	return made.Returnval, nil
}

// ended are the tasks that ended well, as "id entity", oldest first.
func ended(t *testing.T, client *govmomi.Client, span *types.TaskFilterSpecByTime) []string {
	t.Helper()
	ctx := context.Background()
	collector, err := collect(t, client, span)
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for {
		page, err := methods.ReadNextTasks(ctx, client, &types.ReadNextTasks{This: collector, MaxCount: 2})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Returnval) == 0 {
			break
		}
		for _, task := range page.Returnval {
			if task.CompleteTime == nil || task.StartTime == nil {
				t.Errorf("%s has no times", task.DescriptionId)
			}
			told = append(told, task.DescriptionId+" "+task.EntityName)
		}
	}
	if _, err := methods.DestroyCollector(ctx, client, &types.DestroyCollector{This: collector}); err != nil {
		t.Fatal(err)
	}
	return told
}

func TestRemovedVMsLeaveARecordOfHow(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := login(t, vc.URL)
	ctx := context.Background()
	old := object.NewVirtualMachine(client.Client, one(t, client, "VirtualMachine", "old-vm", nil, nil))
	if err := old.Unregister(ctx); err != nil {
		t.Fatal(err)
	}
	node := object.NewVirtualMachine(client.Client, one(t, client, "VirtualMachine", "node-1", nil, nil))
	if err := node.Unregister(ctx); !soapFault[*types.InvalidPowerState](err) {
		t.Errorf("a VM that runs was unregistered: %v", err)
	}
	first, err := vc.Inventory.FindVM("vm", "node-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := vc.Inventory.Delete(first); err != nil {
		t.Fatal(err)
	}
	second, err := vc.Inventory.FindVM("vm", "node-2")
	if err != nil {
		t.Fatal(err)
	}
	if err := vc.Inventory.Unregister(second); err != nil {
		t.Fatal(err)
	}
	want := []string{"VirtualMachine.unregister old-vm", "VirtualMachine.destroy node-1", "VirtualMachine.unregister node-2"}
	onVMs := func(client *govmomi.Client) []string {
		return slices.DeleteFunc(ended(t, client, nil), func(task string) bool { return !slices.Contains(want, task) })
	}
	if got := onVMs(client); !slices.Equal(got, want) {
		t.Errorf("recorded are %q", got)
	}
	vc.Restart(0)
	if got := onVMs(loginAs(t, vc, "cpi@vsphere.local", "Lab-cpi-1!")); !slices.Equal(got, want) {
		t.Errorf("after a restart %q are recorded", got)
	}
}

func TestTasksAreToldToThoseWhoSeeTheirEntity(t *testing.T) {
	w := defaultWorld(t)
	for i := range w.Users {
		if w.Users[i].Name == "cpi@vsphere.local" {
			w.Users[i].Permissions[0].On = "/europe/dc-2/vm"
		}
	}
	vc := start(t, w, Options{})
	for _, name := range []string{"node-1", "old-vm"} {
		vm, err := vc.Inventory.FindVM("vm", name)
		if err != nil {
			t.Fatal(err)
		}
		if err := vc.Inventory.Unregister(vm); err != nil {
			t.Fatal(err)
		}
	}
	got := ended(t, loginAs(t, vc, "cpi@vsphere.local", "Lab-cpi-1!"), nil)
	if want := []string{"VirtualMachine.unregister old-vm"}; !slices.Equal(got, want) {
		t.Errorf("told are %q", got)
	}
}

func TestTasksHaveTheTimesOfVCenter(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	vc.Clock.SetSkew(-48 * time.Hour)
	client := login(t, vc.URL)
	before := vc.Clock.Now()
	vm, err := vc.Inventory.FindVM("vm", "old-vm")
	if err != nil {
		t.Fatal(err)
	}
	if err := vc.Inventory.Unregister(vm); err != nil {
		t.Fatal(err)
	}
	after := vc.Clock.Now()
	for _, kind := range []types.TaskFilterSpecTimeOption{"queuedTime", "startedTime", "completedTime"} {
		if got := ended(t, client, &types.TaskFilterSpecByTime{TimeType: kind, BeginTime: &before, EndTime: &after}); len(got) != 1 {
			t.Errorf("%s within the time: %q", kind, got)
		}
		if got := ended(t, client, &types.TaskFilterSpecByTime{TimeType: kind, EndTime: &before}); len(got) != 0 {
			t.Errorf("%s before: %q", kind, got)
		}
		if got := ended(t, client, &types.TaskFilterSpecByTime{TimeType: kind, BeginTime: &after}); len(got) != 0 {
			t.Errorf("%s after: %q", kind, got)
		}
	}
}

func TestASessionHasNoMoreThan32Collectors(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := login(t, vc.URL)
	ctx := context.Background()
	var last types.ManagedObjectReference
	for range 32 {
		made, err := collect(t, client, nil)
		if err != nil {
			t.Fatal(err)
		}
		last = made
	}
	if _, err := collect(t, client, nil); !soapFault[*types.InvalidState](err) {
		t.Errorf("the next: %v", err)
	}
	if _, err := collect(t, login(t, vc.URL), nil); err != nil {
		t.Errorf("another session's: %s", err)
	}
	if _, err := methods.DestroyCollector(ctx, client, &types.DestroyCollector{This: last}); err != nil {
		t.Fatal(err)
	}
	if _, err := collect(t, client, nil); err != nil {
		t.Errorf("after one is gone: %s", err)
	}
}

func TestACollectorIsReadInBothDirections(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := login(t, vc.URL)
	ctx := context.Background()
	for _, name := range []string{"node-1", "node-2", "old-vm"} {
		vm, err := vc.Inventory.FindVM("vm", name)
		if err != nil {
			t.Fatal(err)
		}
		if err := vc.Inventory.Unregister(vm); err != nil {
			t.Fatal(err)
		}
	}
	collector, err := collect(t, client, nil)
	if err != nil {
		t.Fatal(err)
	}
	names := func(tasks []types.TaskInfo) (names []string) {
		for _, task := range tasks {
			names = append(names, task.EntityName)
		}
		return names
	}
	for _, count := range []int32{0, 1001} {
		if _, err := methods.ReadNextTasks(ctx, client, &types.ReadNextTasks{This: collector, MaxCount: count}); !soapFault[*types.InvalidArgument](err) {
			t.Errorf("a page of %d: %v", count, err)
		}
	}
	if _, err := methods.SetCollectorPageSize(ctx, client, &types.SetCollectorPageSize{This: collector, MaxCount: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := methods.ResetCollector(ctx, client, &types.ResetCollector{This: collector}); err != nil {
		t.Fatal(err)
	}
	before, err := methods.ReadPreviousTasks(ctx, client, &types.ReadPreviousTasks{This: collector, MaxCount: 9})
	if err != nil || !slices.Equal(names(before.Returnval), []string{"node-2", "node-1"}) {
		t.Errorf("before the latest page: %v %v", before, err)
	}
	if _, err := methods.RewindCollector(ctx, client, &types.RewindCollector{This: collector}); err != nil {
		t.Fatal(err)
	}
	next, err := methods.ReadNextTasks(ctx, client, &types.ReadNextTasks{This: collector, MaxCount: 2})
	if err != nil || !slices.Equal(names(next.Returnval), []string{"node-1", "node-2"}) {
		t.Errorf("from the start: %v %v", next, err)
	}
	var read mo.TaskHistoryCollector
	if err := client.RetrieveOne(ctx, collector, []string{"latestPage"}, &read); err != nil || !slices.Equal(names(read.LatestPage), []string{"old-vm"}) {
		t.Errorf("the latest page: %v %v", names(read.LatestPage), err)
	}
}

func TestTheLatestPageIsToldForNewTasksAndTheirStates(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := login(t, vc.URL)
	made, err := methods.CreateCollectorForTasks(context.Background(), client, &types.CreateCollectorForTasks{This: *client.ServiceContent.TaskManager})
	if err != nil {
		t.Fatal(err)
	}
	f := follow(t, client, made.Returnval, "latestPage")
	states := func(told map[string]any) string {
		page, _ := told["latestPage"].(types.ArrayOfTaskInfo)
		if len(page.TaskInfo) == 0 {
			return "none"
		}
		return string(page.TaskInfo[0].State)
	}
	if got := states(f.told(true)); got != "none" {
		t.Fatalf("the page begins with %s", got)
	}
	started, proceed := make(chan struct{}), make(chan struct{})
	vm, err := vc.Inventory.FindVM("vm", "node-1")
	if err != nil {
		t.Fatal(err)
	}
	task := simulator.CreateTask(vm, "test", func(*simulator.Task) (types.AnyType, types.BaseMethodFault) {
		close(started)
		<-proceed
		return nil, nil
	})
	task.Run(vc.ownContext())
	<-started
	if got := states(f.told(true)); got != "running" {
		t.Fatalf("a new task is told as %s", got)
	}
	vc.Vim.AtomicUpdate(vc.ownContext(), task, []types.PropertyChange{{Name: "info.progress", Val: int32(50)}})
	if told := f.told(false); len(told) != 0 {
		t.Errorf("progress is told: %v", told)
	}
	close(proceed)
	if got := states(f.told(true)); got != "success" {
		t.Errorf("its end is told as %s", got)
	}
}

func TestACollectorIsToldOnlyOfWhatItsFilterLetsThrough(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := login(t, vc.URL)
	collector, err := collect(t, client, nil) // of tasks that ended well
	if err != nil {
		t.Fatal(err)
	}
	f := follow(t, client, collector, "latestPage")
	f.told(true)
	vm, err := vc.Inventory.FindVM("vm", "node-1")
	if err != nil {
		t.Fatal(err)
	}
	failing := simulator.CreateTask(vm, "test", func(*simulator.Task) (types.AnyType, types.BaseMethodFault) {
		return nil, new(types.InvalidState)
	})
	failing.RunBlocking(vc.ownContext())
	if told := f.told(false); len(told) != 0 {
		t.Errorf("a task that failed is told: %v", told)
	}
	if _, err := methods.DestroyCollector(f.ctx, client, &types.DestroyCollector{This: collector}); err != nil {
		t.Fatal(err)
	}
	if err := vc.Inventory.Unregister(vm); err != nil {
		t.Fatal(err)
	}
	if told := f.told(false); len(told) != 0 {
		t.Errorf("a collector that is gone is told: %v", told)
	}
}
