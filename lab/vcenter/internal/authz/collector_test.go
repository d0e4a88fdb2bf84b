package authz

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

func TestEverythingEntersInPages(t *testing.T) {
	l := start(t, Config{})
	f := l.follow(l.admin)
	f.machines("name", "guest.hostName")
	for range 2 { // an empty version starts over
		f.version = ""
		seen := map[types.ManagedObjectReference]bool{}
		for more := true; more; {
			set := f.poll(60, 3)
			more = set.Truncated != nil && *set.Truncated
			list := set.FilterSet[0].ObjectSet
			if len(set.FilterSet) != 1 || len(list) > 3 || more && len(list) != 3 {
				t.Fatalf("page %+v", set)
			}
			for _, u := range list {
				if u.Kind != types.ObjectUpdateKindEnter || len(u.ChangeSet) == 0 || u.ChangeSet[0].Name != "name" {
					t.Errorf("update %+v", u)
				}
				for _, c := range u.ChangeSet {
					if c.Val == nil {
						t.Errorf("%s has no value and is told", c.Name)
					}
				}
				seen[u.Obj] = true
			}
		}
		if want := l.vms(); len(seen) != len(want) || len(want) < 4 {
			t.Errorf("%d of %d VMs entered", len(seen), len(want))
		}
		f.nothing("after the last page")
	}
}

func TestAWaitOverNothingEndsWithTheFirstObject(t *testing.T) {
	l := start(t, Config{})
	f := l.follow(l.admin)
	f.nothing("without filters")
	list, err := view.NewManager(l.admin.Client).CreateListView(l.ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.filter(throughSpec(list.Reference(), "VirtualMachine", "name"))
	f.nothing("with an empty view")
	told := f.later()
	vm := l.vms()[0]
	if _, err := list.Add(l.ctx, []types.ManagedObjectReference{vm}); err != nil {
		t.Fatal(err)
	}
	only(t, <-told, types.ObjectUpdateKindEnter, vm)
}

func TestAChangeIsToldWithTheCurrentValueOfWhatWasAskedFor(t *testing.T) {
	l := start(t, Config{})
	vm := l.vms()[0]
	net := []types.GuestNicInfo{{Network: "VM Network", IpAddress: []string{"10.0.0.7"}}}
	for name, c := range map[string]struct {
		asked   string
		changes []types.PropertyChange
		want    func(any) bool // nil: nothing is told
	}{
		"the property": {"guest.net", []types.PropertyChange{to("guest.net", net)},
			func(v any) bool { return v.(types.ArrayOfGuestNicInfo).GuestNicInfo[0].IpAddress[0] == "10.0.0.7" }},
		"what it is part of": {"guest.hostName", []types.PropertyChange{to("guest", &types.GuestInfo{HostName: "n1"})},
			func(v any) bool { return v == "n1" }},
		"a part of it": {"runtime", []types.PropertyChange{to("runtime.powerState", types.VirtualMachinePowerStateSuspended)},
			func(v any) bool {
				runtime := v.(types.VirtualMachineRuntimeInfo)
				return runtime.PowerState == types.VirtualMachinePowerStateSuspended && runtime.Host != nil
			}},
		"it is unset":              {"guest.hostName", []types.PropertyChange{to("guest", &types.GuestInfo{})}, func(v any) bool { return v == nil }},
		"the same start of a name": {"guest.ip", []types.PropertyChange{to("guest.ipAddress", "10.0.0.8")}, nil},
		"another property":         {"name", []types.PropertyChange{to("guest.ipAddress", "10.0.0.9")}, nil},
	} {
		f := l.follow(l.admin)
		f.machines(c.asked)
		f.all()
		l.change(vm, c.changes...)
		if c.want == nil {
			f.nothing(name)
			continue
		}
		got := only(t, f.all(), types.ObjectUpdateKindModify, vm)
		if value, ok := got[c.asked]; len(got) != 1 || !ok || !c.want(value) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for _, c := range []struct {
		changed, wanted string
		yes             bool
	}{{`guest.net["a"]`, "guest.net", true}, {"guest", "guest.net", true}, {"guestHeartbeat", "guest", false}, {"guest.net", "guest.netx", false}} {
		if touches(c.changed, c.wanted) != c.yes {
			t.Errorf("%s touches %s: %v", c.changed, c.wanted, !c.yes)
		}
	}
}

func TestWhoAsksForEverythingIsToldWholeProperties(t *testing.T) {
	l := start(t, Config{})
	vm := l.vms()[0]
	f := l.follow(l.admin)
	spec := objectSpec(nil, vm)
	spec.PropSet = []types.PropertySpec{{Type: "ManagedEntity", PathSet: []string{"name"}}, {Type: "VirtualMachine", All: types.NewBool(true)}}
	f.filter(spec)
	if got := only(t, f.all(), types.ObjectUpdateKindEnter, vm); got["runtime"] == nil || got["config"] == nil {
		t.Errorf("enters with %v", slices.Sorted(maps.Keys(got)))
	}
	l.change(vm, to("runtime.powerState", types.VirtualMachinePowerStateSuspended), to("name", "new"))
	got := only(t, f.all(), types.ObjectUpdateKindModify, vm)
	if _, ok := got["runtime"].(types.VirtualMachineRuntimeInfo); !ok || got["name"] != "new" || len(got) != 2 {
		t.Errorf("told %v", slices.Sorted(maps.Keys(got)))
	}
}

func TestChangesBetweenTwoPollsAreToldTogether(t *testing.T) {
	l := start(t, Config{})
	f := l.follow(l.admin)
	f.machines("name", "config.annotation")
	f.all()
	vm := l.vms()[1]
	l.change(vm, to("name", "first"))
	l.change(vm, to("config.annotation", "hello"))
	l.change(vm, to("name", "second"))
	if got := only(t, f.all(), types.ObjectUpdateKindModify, vm); len(got) != 2 || got["name"] != "second" || got["config.annotation"] != "hello" {
		t.Errorf("told %v", got)
	}

	passing := l.clone("passing")
	l.destroy(passing)
	f.nothing("a VM that came and went")

	born := l.clone("born")
	if got := only(t, f.all(), types.ObjectUpdateKindEnter, born.Reference()); got["name"] != "born" {
		t.Errorf("enters as %v", got)
	}
	l.change(born.Reference(), to("name", "late"))
	l.destroy(born)
	only(t, f.all(), types.ObjectUpdateKindLeave, born.Reference())
	l.clone("other") // the view is read again
	for _, u := range f.all() {
		if u.Obj == born.Reference() {
			t.Errorf("a destroyed VM is back: %+v", u)
		}
	}
}

func TestAListViewTellsWhatIsAddedAndRemoved(t *testing.T) {
	l := start(t, Config{})
	task, err := object.NewVirtualMachine(l.admin.Client, l.vms()[0]).PowerOff(l.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Wait(l.ctx); err != nil {
		t.Fatal(err)
	}
	list, err := view.NewManager(l.admin.Client).CreateListView(l.ctx, l.vms()[:1])
	if err != nil {
		t.Fatal(err)
	}
	f := l.follow(l.admin)
	f.filter(throughSpec(list.Reference(), "Task", "info"))
	f.nothing("objects of another type")
	refs := []types.ManagedObjectReference{task.Reference()}
	for round := range 2 {
		if _, err := list.Add(l.ctx, refs); err != nil {
			t.Fatal(err)
		}
		if round == 1 {
			f.nothing("a task that is in the view already")
			continue
		}
		got := only(t, f.all(), types.ObjectUpdateKindEnter, refs[0])
		if info, ok := got["info"].(types.TaskInfo); !ok || info.State != types.TaskInfoStateSuccess {
			t.Errorf("the task enters with %+v", got)
		}
	}
	if _, err := list.Reset(l.ctx, nil); err != nil {
		t.Fatal(err)
	}
	only(t, f.all(), types.ObjectUpdateKindLeave, refs[0])
}

func TestNamedObjectsLeaveWhenTheyAreDestroyedAndMembersWithTheirView(t *testing.T) {
	l := start(t, Config{})
	vm := l.clone("named")
	f := l.follow(l.admin)
	f.filter(objectSpec([]string{"name"}, vm.Reference()))
	only(t, f.all(), types.ObjectUpdateKindEnter, vm.Reference())
	l.destroy(vm)
	only(t, f.all(), types.ObjectUpdateKindLeave, vm.Reference())
	f.nothing("a destroyed VM")
	v, _ := f.machines("name")
	count := len(f.all())
	if err := v.Destroy(l.ctx); err != nil {
		t.Fatal(err)
	}
	left := f.all()
	for _, u := range left {
		if u.Kind != types.ObjectUpdateKindLeave {
			t.Errorf("%+v", u)
		}
	}
	if len(left) != count || count != len(l.vms()) {
		t.Errorf("%d of %d VMs left with their view", len(left), count)
	}
	f.version = ""
	if _, err := f.ask("", 0, 0); !isFault[*types.ManagedObjectNotFound](err) {
		t.Errorf("a filter on what is gone: %v", err)
	}
}

func TestALostAnswerIsToldAgainAndOtherVersionsAreRefused(t *testing.T) {
	l := start(t, Config{})
	f := l.follow(l.admin)
	if _, err := f.ask("0", 0, 0); !isFault[*types.InvalidCollectorVersion](err) {
		t.Errorf("a version that was never given: %v", err)
	}
	f.machines("name")
	first := f.poll(0, 0)
	vm := l.vms()[0]
	l.change(vm, to("name", "a"))
	second := f.poll(60, 0)
	l.change(vm, to("name", "b"))
	again, err := f.ask(first.Version, 60, 0)
	if err != nil || !reflect.DeepEqual(again, second) {
		t.Errorf("told %+v, then %+v, %v", second, again, err)
	}
	f.version = again.Version
	if got := only(t, f.all(), types.ObjectUpdateKindModify, vm); got["name"] != "b" {
		t.Errorf("told %v", got)
	}
	for _, version := range []string{first.Version, second.Version, "1000", "nonsense"} {
		if set, err := f.ask(version, 0, 0); !isFault[*types.InvalidCollectorVersion](err) {
			t.Errorf("version %s: %+v, %v", version, set, err)
		}
	}
	f.nothing("after refused versions")
}

func TestACheckDoesNotWait(t *testing.T) {
	l := start(t, Config{})
	f := l.follow(l.admin)
	f.machines("name")
	version := f.poll(0, 0).Version
	check := func() *types.UpdateSet {
		t.Helper()
		answer, err := methods.CheckForUpdates(l.ctx, l.admin, &types.CheckForUpdates{This: f.collector.Reference(), Version: version})
		if err != nil {
			t.Fatal(err)
		}
		return answer.Returnval
	}
	if set := check(); set != nil {
		t.Errorf("told %+v", set)
	}
	l.change(l.vms()[0], to("name", "a"))
	if set := check(); set == nil || len(set.FilterSet) != 1 {
		t.Errorf("told %+v", set)
	}
}

func TestWaitsEndWhenCanceledOrFollowedByAnother(t *testing.T) {
	l := start(t, Config{})
	f := l.follow(l.admin)
	f.machines("name")
	f.all()
	ended := make(chan error, 2)
	wait := func() {
		_, err := f.ask(f.version, 600, 0)
		ended <- err
	}
	go wait()
	go wait()
	if err := <-ended; !isFault[*types.RequestCanceled](err) {
		t.Errorf("the older wait ended with %v", err)
	}
	if err := f.collector.CancelWaitForUpdates(l.ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !isFault[*types.RequestCanceled](err) {
		t.Errorf("the canceled wait ended with %v", err)
	}
	l.change(l.vms()[0], to("name", "new"))
	only(t, f.all(), types.ObjectUpdateKindModify, l.vms()[0])
}

func TestEachFilterOfACollectorIsToldOfItsOwn(t *testing.T) {
	l := start(t, Config{})
	f := l.follow(l.admin)
	_, names := f.machines("name")
	vm := l.vms()[0]
	f.all()
	told := f.later()
	// As govmomi's WaitFilter makes it: a specification of properties for each object.
	spec := objectSpec([]string{"config.annotation"}, vm, l.vms()[1])
	spec.PropSet = append(spec.PropSet, spec.PropSet...)
	notes := f.filter(spec)
	if list := <-told; len(list) != 2 || list[0].Kind != types.ObjectUpdateKindEnter {
		t.Errorf("a filter that came during a wait: %+v", list)
	}
	l.change(vm, to("config.annotation", "x"))
	set := f.poll(60, 0)
	if len(set.FilterSet) != 1 || set.FilterSet[0].Filter != notes.Reference() {
		t.Fatalf("told %+v", set)
	}
	only(t, set.FilterSet[0].ObjectSet, types.ObjectUpdateKindModify, vm)
	l.change(vm, to("config.annotation", "y"), to("name", "n"))
	if set := f.poll(60, 0); len(set.FilterSet) != 2 {
		t.Errorf("told %+v", set)
	}
	l.change(vm, to("config.annotation", "z"), to("name", "m"))
	if set := f.poll(60, 1); set.Truncated == nil || len(set.FilterSet) != 1 || set.FilterSet[0].Filter != names.Reference() {
		t.Errorf("a page of one: %+v", set)
	}
	if err := notes.Destroy(l.ctx); err != nil {
		t.Fatal(err)
	}
	if set := f.poll(0, 1); set == nil || set.Truncated != nil || len(set.FilterSet) != 0 {
		t.Errorf("the rest of a destroyed filter: %+v", set)
	}
	l.change(vm, to("config.annotation", "again"))
	f.nothing("after the filter was destroyed")
}

func TestOtherSelectionsAreFollowedToo(t *testing.T) {
	l := start(t, Config{})
	var parent mo.VirtualMachine
	if err := l.admin.RetrieveOne(l.ctx, l.vms()[0], []string{"parent"}, &parent); err != nil {
		t.Fatal(err)
	}
	f := l.follow(l.admin)
	f.filter(types.PropertyFilterSpec{
		PropSet: []types.PropertySpec{{Type: "ManagedEntity", PathSet: []string{"name"}}},
		ObjectSet: []types.ObjectSpec{{Obj: *parent.Parent, Skip: types.NewBool(true),
			SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{Type: "Folder", Path: "childEntity"}}}},
	})
	if count := len(f.all()); count < 2 {
		t.Errorf("%d children", count)
	}
	vm := l.clone("child")
	if got := only(t, f.all(), types.ObjectUpdateKindEnter, vm.Reference()); got["name"] != "child" {
		t.Errorf("enters as %v", got)
	}
	l.change(vm.Reference(), to("name", "grown"))
	if got := only(t, f.all(), types.ObjectUpdateKindModify, vm.Reference()); got["name"] != "grown" {
		t.Errorf("told %v", got)
	}
	l.destroy(vm)
	only(t, f.all(), types.ObjectUpdateKindLeave, vm.Reference())
}

func TestTheDefaultCollectorsOfTwoSessionsAreBothTold(t *testing.T) {
	l := start(t, Config{})
	vm := l.vms()[0]
	var all []*follower
	for range 2 {
		client := l.login(adminName, adminPass)
		f := l.followByDefault(client)
		f.machines("name")
		f.all()
		all = append(all, f)
	}
	l.change(vm, to("name", "new"))
	for _, f := range all {
		only(t, f.all(), types.ObjectUpdateKindModify, vm)
	}
}

func TestWhatAUserCannotSeeIsNeverTold(t *testing.T) {
	l := start(t, Config{})
	shown, hidden := l.clone("shown"), l.clone("hidden")
	l.grant(shown.Reference(), true)
	client := l.login(userName, userPass)
	f := l.follow(client)
	f.machines("name", "runtime.powerState")
	for f.version == "" {
		set := f.poll(60, 1)
		if len(set.FilterSet) == 1 {
			only(t, set.FilterSet[0].ObjectSet, types.ObjectUpdateKindEnter, shown.Reference())
		}
	}
	for _, vm := range []*object.VirtualMachine{hidden, shown} {
		l.change(vm.Reference(), to("name", "new"))
	}
	only(t, f.all(), types.ObjectUpdateKindModify, shown.Reference())
	l.destroy(hidden)
	l.destroy(shown)
	only(t, f.all(), types.ObjectUpdateKindLeave, shown.Reference())
}

// handlers is how many are told about changes of the inventory.
func (l *lab) handlers() int { return reflect.ValueOf(l.vim).Elem().FieldByName("handlers").Len() }

func TestNobodyIsToldAfterTheCollectorOrTheSessionEnded(t *testing.T) {
	l := start(t, Config{})
	before := l.handlers()
	f := l.follow(l.admin)
	spec := objectSpec([]string{"name"}, l.vms()...)
	filter := f.filter(spec)
	f.all()
	if l.handlers() != before+1 {
		t.Errorf("%d handlers for one collector", l.handlers()-before)
	}
	ended := make(chan error)
	go func() {
		_, err := f.ask(f.version, 600, 0)
		ended <- err
	}()
	if err := filter.Destroy(l.ctx); err != nil {
		t.Fatal(err)
	}
	f.filter(spec)
	if err := f.collector.Destroy(l.ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !isFault[*types.RequestCanceled](err) && !isFault[*types.ManagedObjectNotFound](err) && err != nil {
		t.Errorf("the wait ended with %v", err)
	}
	if _, err := f.ask("", 0, 0); !isFault[*types.ManagedObjectNotFound](err) {
		t.Errorf("a destroyed collector says %v", err)
	}
	if l.handlers() != before {
		t.Errorf("%d handlers are left", l.handlers()-before)
	}

	client := l.login(adminName, adminPass)
	for _, f := range []*follower{l.followByDefault(client), l.follow(client)} {
		f.machines("name")
		f.all()
		go func() {
			_, err := f.ask(f.version, 600, 0)
			ended <- err
		}()
	}
	if err := client.Logout(l.ctx); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-ended; !isFault[*types.RequestCanceled](err) && !isFault[*types.NotAuthenticated](err) {
			t.Errorf("after the logout: %v", err)
		}
	}
	if l.handlers() != before {
		t.Errorf("%d handlers are left after the logout", l.handlers()-before)
	}
}

func TestNoChangeIsLostUnderLoad(t *testing.T) {
	l := start(t, Config{})
	f := l.follow(l.admin)
	f.machines("name", "config.annotation")
	last := "change 99"
	for _, vm := range l.vms() {
		go func() {
			for i := range 100 {
				l.change(vm, to("config.annotation", "change "+[]string{"", "0", "1"}[i%3]))
			}
			l.change(vm, to("config.annotation", last))
		}()
	}
	known := map[types.ManagedObjectReference]any{}
	finished := func() bool {
		return len(known) == len(l.vms()) && !slices.ContainsFunc(slices.Collect(maps.Values(known)), func(v any) bool { return v != last })
	}
	for !finished() {
		set := f.poll(60, 2)
		if set == nil {
			t.Fatalf("nothing more is told, and the last is %v", known)
		}
		for _, u := range set.FilterSet {
			for _, o := range u.ObjectSet {
				for _, c := range o.ChangeSet {
					if c.Name == "config.annotation" {
						known[o.Obj] = c.Val
					}
				}
			}
		}
	}
}
