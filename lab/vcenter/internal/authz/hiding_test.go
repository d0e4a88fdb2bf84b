package authz

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// oneVM is a user who may read one virtual machine and nothing else.
func oneVM(t *testing.T, cfg Config) (*lab, *govmomi.Client, types.ManagedObjectReference) {
	l := start(t, cfg)
	vm := l.find("/DC0/vm/DC0_H0_VM0")
	l.grant(vm, false)
	return l, l.login(userName, userPass), vm
}

func TestSearchesHideWhatTheUserMayNotSee(t *testing.T) {
	l, c, vm := oneVM(t, Config{})
	index := object.NewSearchIndex(c.Client)
	for path, visible := range map[string]bool{"/DC0/vm/DC0_H0_VM0": true, "/DC0/vm/DC0_H0_VM1": false, "/DC1": false, "/DC0": true} {
		ref, err := index.FindByInventoryPath(l.ctx, path)
		if err != nil || (ref != nil) != visible {
			t.Errorf("%s: %v, %v", path, ref, err)
		}
	}
	other := l.find("/DC0/vm/DC0_H0_VM1")
	for _, ref := range []types.ManagedObjectReference{vm, other} {
		var m mo.VirtualMachine
		if err := property.DefaultCollector(l.admin.Client).RetrieveOne(l.ctx, ref, []string{"config.uuid"}, &m); err != nil {
			t.Fatal(err)
		}
		found, err := index.FindByUuid(l.ctx, nil, m.Config.Uuid, true, nil)
		if err != nil || (found != nil) != (ref == vm) {
			t.Errorf("uuid of %v: %v, %v", ref, found, err)
		}
	}
}

func TestSearchStaysInsideTheDatacenter(t *testing.T) {
	l := start(t, Config{})
	vm := l.find("/DC0/vm/DC0_H0_VM0")
	var m mo.VirtualMachine
	if err := property.DefaultCollector(l.admin.Client).RetrieveOne(l.ctx, vm, []string{"config.uuid"}, &m); err != nil {
		t.Fatal(err)
	}
	index := object.NewSearchIndex(l.admin.Client)
	for path, want := range map[string]bool{"/DC0": true, "/DC1": false} {
		found, err := index.FindByUuid(l.ctx, object.NewDatacenter(l.admin.Client, l.find(path)), m.Config.Uuid, true, nil)
		if err != nil || (found != nil) != want {
			t.Errorf("in %s: %v, %v", path, found, err)
		}
	}
}

func TestSearchEntersDatastoreClusters(t *testing.T) {
	l := start(t, Config{})
	ds := l.find("/DC0/datastore/LocalDS_0")
	task, err := object.NewFolder(l.admin.Client, l.find("/DC0/datastore/DC0_POD0")).MoveInto(l.ctx, []types.ManagedObjectReference{ds})
	if err == nil {
		err = task.Wait(l.ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	found, err := object.NewSearchIndex(l.admin.Client).FindByInventoryPath(l.ctx, "/DC0/datastore/DC0_POD0/LocalDS_0")
	if err != nil || found == nil || found.Reference() != ds {
		t.Errorf("%v, %v", found, err)
	}
}

func TestPropertiesOfInvisibleObjectsAreMissingWithNoPermission(t *testing.T) {
	l, c, vm := oneVM(t, Config{})
	other := l.find("/DC0/vm/DC0_H0_VM1")
	res, err := property.DefaultCollector(c.Client).RetrieveProperties(l.ctx, types.RetrieveProperties{SpecSet: []types.PropertyFilterSpec{{
		PropSet:   []types.PropertySpec{{Type: "VirtualMachine", PathSet: []string{"name", "config.uuid"}}},
		ObjectSet: []types.ObjectSpec{{Obj: vm}, {Obj: other}},
	}}})
	if err != nil || len(res.Returnval) != 2 {
		t.Fatalf("%+v, %v", res, err)
	}
	for _, o := range res.Returnval {
		if o.Obj == vm {
			if len(o.PropSet) != 2 || len(o.MissingSet) != 0 {
				t.Errorf("readable VM: %+v", o)
			}
			continue
		}
		if len(o.PropSet) != 0 || len(o.MissingSet) != 2 {
			t.Errorf("invisible VM: %+v", o)
			continue
		}
		denied, ok := o.MissingSet[1].Fault.Fault.(*types.NoPermission)
		if !ok || *denied.Object != other || denied.PrivilegeId != "System.Read" {
			t.Errorf("missing with %+v", o.MissingSet[1].Fault.Fault)
		}
	}
}

func TestAncestorsOfAGrantedObjectShowTheirNamesOnly(t *testing.T) {
	l, c, _ := oneVM(t, Config{})
	var dc mo.Datacenter
	dcRef := l.find("/DC0")
	collector := property.DefaultCollector(c.Client)
	if err := collector.RetrieveOne(l.ctx, dcRef, []string{"name", "parent"}, &dc); err != nil || dc.Name != "DC0" {
		t.Errorf("name: %q, %v", dc.Name, err)
	}
	err := collector.RetrieveOne(l.ctx, dcRef, []string{"overallStatus"}, &dc)
	wantDenied(t, err, dcRef, "System.Read")
}

func TestAncestorsCanBeHidden(t *testing.T) {
	l, c, _ := oneVM(t, Config{HideAncestors: true})
	dcRef := l.find("/DC0")
	var dc mo.Datacenter
	err := property.DefaultCollector(c.Client).RetrieveOne(l.ctx, dcRef, []string{"name"}, &dc)
	wantDenied(t, err, dcRef, "System.View")
}

func TestListsOfReferencesHoldVisibleObjectsOnly(t *testing.T) {
	l, c, vm := oneVM(t, Config{})
	var folder mo.Folder
	if err := property.DefaultCollector(c.Client).RetrieveOne(l.ctx, l.find("/DC0/vm"), []string{"childEntity"}, &folder); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(folder.ChildEntity, []types.ManagedObjectReference{vm}) {
		t.Errorf("children %v", folder.ChildEntity)
	}
	list, err := find.NewFinder(c.Client).ManagedObjectListChildren(l.ctx, "/")
	if err != nil || len(list) != 1 {
		t.Errorf("datacenters: %v, %v", list, err)
	}
}

func TestContainerViewsListVisibleObjectsOnly(t *testing.T) {
	l, c, vm := oneVM(t, Config{})
	v, err := view.NewManager(c.Client).CreateContainerView(l.ctx, l.root(), []string{"VirtualMachine"}, true)
	if err != nil {
		t.Fatal(err)
	}
	var vms []mo.VirtualMachine
	if err := v.Retrieve(l.ctx, []string{"VirtualMachine"}, []string{"name"}, &vms); err != nil || len(vms) != 1 || vms[0].Self != vm {
		t.Errorf("%d VMs, %v", len(vms), err)
	}
	var members mo.ContainerView
	if err := property.DefaultCollector(c.Client).RetrieveOne(l.ctx, v.Reference(), []string{"view"}, &members); err != nil || len(members.View) != 1 {
		t.Errorf("view holds %v, %v", members.View, err)
	}
	_, err = view.NewManager(c.Client).CreateContainerView(l.ctx, l.find("/DC1"), nil, true)
	wantDenied(t, err, l.find("/DC1"), "System.View")
}

func TestPagesAreCutAfterHiding(t *testing.T) {
	l := start(t, Config{})
	for _, path := range []string{"/DC0/vm/DC0_H0_VM0", "/DC0/vm/DC0_H0_VM1", "/DC1/vm/DC1_H0_VM0"} {
		l.grant(l.find(path), false)
	}
	c := l.login(userName, userPass)
	v, err := view.NewManager(c.Client).CreateContainerView(l.ctx, l.root(), []string{"VirtualMachine"}, true)
	if err != nil {
		t.Fatal(err)
	}
	req := types.RetrievePropertiesEx{
		This:    c.ServiceContent.PropertyCollector,
		Options: types.RetrieveOptions{MaxObjects: 2},
		SpecSet: []types.PropertyFilterSpec{{
			PropSet: []types.PropertySpec{{Type: "VirtualMachine", PathSet: []string{"name"}}},
			ObjectSet: []types.ObjectSpec{{Obj: v.Reference(), Skip: types.NewBool(true), SelectSet: []types.BaseSelectionSpec{
				&types.TraversalSpec{Type: "ContainerView", Path: "view"},
			}}},
		}},
	}
	one, err := methods.RetrievePropertiesEx(l.ctx, c, &req)
	if err != nil || len(one.Returnval.Objects) != 2 || one.Returnval.Token == "" {
		t.Fatalf("%+v, %v", one, err)
	}
	two, err := methods.ContinueRetrievePropertiesEx(l.ctx, c, &types.ContinueRetrievePropertiesEx{This: req.This, Token: one.Returnval.Token})
	if err != nil || len(two.Returnval.Objects) != 1 || two.Returnval.Token != "" {
		t.Fatalf("%+v, %v", two, err)
	}
}

func TestWatchesReportVisibleChangesOnly(t *testing.T) {
	l, c, vm := oneVM(t, Config{})
	other := l.find("/DC0/vm/DC0_H0_VM1")
	v, err := view.NewManager(c.Client).CreateContainerView(l.ctx, l.root(), []string{"VirtualMachine"}, true)
	if err != nil {
		t.Fatal(err)
	}
	// govmomi makes a collector of its own for the wait, so this also covers CreatePropertyCollector.
	filter := new(property.WaitFilter).Add(v.Reference(), "VirtualMachine", []string{"name", "runtime.powerState"}, v.TraversalSpec())
	ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
	defer cancel()
	seen := map[types.ManagedObjectReference]int{}
	entered, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(done)
		<-entered
		for _, ref := range []types.ManagedObjectReference{other, vm} {
			task, err := object.NewVirtualMachine(l.admin.Client, ref).PowerOff(l.ctx)
			if err == nil {
				err = task.Wait(l.ctx)
			}
			if err != nil {
				t.Error(err)
				cancel()
			}
		}
	}()
	err = property.WaitForUpdatesEx(ctx, property.DefaultCollector(c.Client), filter, func(updates []types.ObjectUpdate) bool {
		off := false
		for _, u := range updates {
			seen[u.Obj]++
			for _, change := range u.ChangeSet {
				off = off || change.Val == types.VirtualMachinePowerStatePoweredOff
			}
		}
		select {
		case entered <- struct{}{}:
		default:
		}
		return off
	})
	if err != nil {
		t.Fatal(err)
	}
	<-done
	if len(seen) != 1 || seen[vm] < 2 {
		t.Errorf("updates of %v, want two or more of %v alone", seen, vm)
	}
}

func TestSessionListNeedsItsPrivilege(t *testing.T) {
	l, c, _ := oneVM(t, Config{})
	var sessions mo.SessionManager
	collector := property.DefaultCollector(c.Client)
	err := collector.RetrieveOne(l.ctx, *c.ServiceContent.SessionManager, []string{"sessionList"}, &sessions)
	wantDenied(t, err, *c.ServiceContent.SessionManager, "Sessions.TerminateSession")
	if err := collector.RetrieveOne(l.ctx, *c.ServiceContent.SessionManager, []string{"currentSession"}, &sessions); err != nil {
		t.Error(err)
	}
}

func TestAskingWhetherASessionIsActiveNeedsItsPrivilege(t *testing.T) {
	l := start(t, Config{})
	l.grant(l.root(), true)
	c := l.login(userName, userPass)
	session, err := c.SessionManager.UserSession(l.ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.SessionManager.SessionIsActive(l.ctx)
	wantDenied(t, err, l.root(), "Sessions.ValidateSession")
	l.grant(l.root(), true, "Sessions.ValidateSession")
	if active, err := c.SessionManager.SessionIsActive(l.ctx); err != nil || !active {
		t.Errorf("session %s with the privilege: %v, %v", session.Key, active, err)
	}
}

func TestUserDirectoryKnowsSingleSignOnUsers(t *testing.T) {
	l := start(t, Config{})
	res, err := methods.RetrieveUserGroups(l.ctx, l.admin, &types.RetrieveUserGroups{
		This: *l.admin.ServiceContent.UserDirectory, SearchStr: "cs", FindUsers: true,
	})
	if err != nil || len(res.Returnval) != 1 || res.Returnval[0].GetUserSearchResult().Principal != `VSPHERE.LOCAL\csi` {
		t.Errorf("%+v, %v", res, err)
	}
}
