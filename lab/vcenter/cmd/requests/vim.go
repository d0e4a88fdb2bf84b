package main

import (
	"context"
	"net/url"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/sts"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

var (
	root      = ref("Folder", "group-d1")
	machine   = ref("VirtualMachine", "vm-1")
	machine2  = ref("VirtualMachine", "vm-2")
	host      = ref("HostSystem", "host-1")
	datastore = ref("Datastore", "datastore-1")
)

var sessionOperations = []operation{
	{"RetrieveServiceContent", "RetrieveServiceContent", func(ctx context.Context, c *clients) error {
		_, err := methods.GetServiceContent(ctx, c.vim)
		return err
	}},
	{"CurrentTime", "CurrentTime", func(ctx context.Context, c *clients) error {
		_, err := methods.GetCurrentTime(ctx, c.vim)
		return err
	}},
	{"Login", "Login", func(ctx context.Context, c *clients) error {
		return session.NewManager(c.vim).Login(ctx, url.UserPassword(user, password))
	}},
	{"LoginByToken", "LoginByToken", func(ctx context.Context, c *clients) error {
		signer := &sts.Signer{Token: token}
		return session.NewManager(c.vim).LoginByToken(c.vim.WithHeader(ctx, soap.Header{Security: signer}))
	}},
	{"LoginByToken-holder-of-key", "LoginByToken", func(ctx context.Context, c *clients) error {
		signer := &sts.Signer{Token: token, Certificate: c.certificate}
		return session.NewManager(c.vim).LoginByToken(c.vim.WithHeader(ctx, soap.Header{Security: signer}))
	}},
	{"CloneSession", "CloneSession", func(ctx context.Context, c *clients) error {
		return session.NewManager(c.vim).CloneSession(ctx, "cst-VCT-1")
	}},
	{"Logout", "Logout", func(ctx context.Context, c *clients) error {
		return session.NewManager(c.vim).Logout(ctx)
	}},
}

// Everything in a container view, through a traversal: VMs with name and power state, hosts with name.
var viewed = types.PropertyFilterSpec{
	PropSet: []types.PropertySpec{
		{Type: "VirtualMachine", All: types.NewBool(false), PathSet: []string{"name", "runtime.powerState"}},
		{Type: "HostSystem", All: types.NewBool(false), PathSet: []string{"name"}},
	},
	ObjectSet: []types.ObjectSpec{{
		Obj:  ref("ContainerView", "view-1"),
		Skip: types.NewBool(true),
		SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{
			SelectionSpec: types.SelectionSpec{Name: "view"},
			Type:          "ContainerView",
			Path:          "view",
			Skip:          types.NewBool(false),
		}},
	}},
	ReportMissingObjectsInResults: types.NewBool(true),
}

func retrieve(ctx context.Context, c *clients) error {
	spec := types.RetrieveProperties{SpecSet: []types.PropertyFilterSpec{viewed}}
	_, err := property.DefaultCollector(c.vim).RetrieveProperties(ctx, spec, 100)
	return err
}

var inventoryOperations = []operation{
	{"CreateContainerView", "CreateContainerView", func(ctx context.Context, c *clients) error {
		_, err := view.NewManager(c.vim).CreateContainerView(ctx, root, []string{"VirtualMachine", "HostSystem"}, true)
		return err
	}},
	{"CreateListView", "CreateListView", func(ctx context.Context, c *clients) error {
		_, err := view.NewManager(c.vim).CreateListView(ctx, []types.ManagedObjectReference{machine, host})
		return err
	}},
	{"ModifyListView", "ModifyListView", func(ctx context.Context, c *clients) error {
		_, err := methods.ModifyListView(ctx, c.vim, &types.ModifyListView{
			This:   ref("ListView", "view-2"),
			Add:    []types.ManagedObjectReference{machine},
			Remove: []types.ManagedObjectReference{machine2},
		})
		return err
	}},
	{"DestroyView", "DestroyView", func(ctx context.Context, c *clients) error {
		return view.NewContainerView(c.vim, ref("ContainerView", "view-1")).Destroy(ctx)
	}},
	{"CreatePropertyCollector", "CreatePropertyCollector", func(ctx context.Context, c *clients) error {
		_, err := property.DefaultCollector(c.vim).Create(ctx)
		return err
	}},
	{"CreateFilter", "CreateFilter", func(ctx context.Context, c *clients) error {
		_, err := property.DefaultCollector(c.vim).CreateFilter(ctx, types.CreateFilter{Spec: viewed, PartialUpdates: false})
		return err
	}},
	{"RetrievePropertiesEx", "RetrievePropertiesEx", retrieve},
	{"ContinueRetrievePropertiesEx", "ContinueRetrievePropertiesEx", retrieve},
	{"WaitForUpdatesEx", "WaitForUpdatesEx", func(ctx context.Context, c *clients) error {
		// The first wait has no version yet. We want the second.
		options := property.WaitOptions{Options: &types.WaitOptions{MaxWaitSeconds: pointer[int32](60), MaxObjectUpdates: 100}}
		return property.DefaultCollector(c.vim).WaitForUpdatesEx(ctx, &options, func([]types.ObjectUpdate) bool { return false })
	}},
	{"FindByUuid", "FindByUuid", func(ctx context.Context, c *clients) error {
		dc := object.NewDatacenter(c.vim, ref("Datacenter", "datacenter-1"))
		uuid := "4230b1a0-5eed-4000-8000-000000000001"
		_, err := object.NewSearchIndex(c.vim).FindByUuid(ctx, dc, uuid, true, types.NewBool(false))
		return err
	}},
	{"FindAllByUuid", "FindAllByUuid", func(ctx context.Context, c *clients) error {
		dc := object.NewDatacenter(c.vim, ref("Datacenter", "datacenter-1"))
		uuid := "4230b1a0-5eed-4000-8000-000000000001"
		_, err := object.NewSearchIndex(c.vim).FindAllByUuid(ctx, dc, uuid, true, types.NewBool(true))
		return err
	}},
	{"FindAllByDnsName", "FindAllByDnsName", func(ctx context.Context, c *clients) error {
		dc := object.NewDatacenter(c.vim, ref("Datacenter", "datacenter-1"))
		_, err := object.NewSearchIndex(c.vim).FindAllByDnsName(ctx, dc, "node-1", true)
		return err
	}},
	{"FindAllByIp", "FindAllByIp", func(ctx context.Context, c *clients) error {
		dc := object.NewDatacenter(c.vim, ref("Datacenter", "datacenter-1"))
		_, err := object.NewSearchIndex(c.vim).FindAllByIp(ctx, dc, "10.99.0.11", true)
		return err
	}},
	{"FindByInventoryPath", "FindByInventoryPath", func(ctx context.Context, c *clients) error {
		_, err := object.NewSearchIndex(c.vim).FindByInventoryPath(ctx, "/dc-1/vm/k8s/node-1")
		return err
	}},
}

var machineOperations = []operation{
	{"ReconfigVM_Task", "ReconfigVM_Task", func(ctx context.Context, c *clients) error {
		_, err := object.NewVirtualMachine(c.vim, machine).Reconfigure(ctx, types.VirtualMachineConfigSpec{
			ChangeVersion: "2026-01-01T00:00:00.000000Z",
			ExtraConfig:   []types.BaseOptionValue{&types.OptionValue{Key: "disk.EnableUUID", Value: "TRUE"}},
		})
		return err
	}},
	{"UpgradeVM_Task", "UpgradeVM_Task", func(ctx context.Context, c *clients) error {
		_, err := object.NewVirtualMachine(c.vim, machine).UpgradeVM(ctx, "vmx-15")
		return err
	}},
	{"PowerOnVM_Task", "PowerOnVM_Task", func(ctx context.Context, c *clients) error {
		_, err := object.NewVirtualMachine(c.vim, machine).PowerOn(ctx)
		return err
	}},
	{"PowerOffVM_Task", "PowerOffVM_Task", func(ctx context.Context, c *clients) error {
		_, err := object.NewVirtualMachine(c.vim, machine).PowerOff(ctx)
		return err
	}},
	{"ShutdownGuest", "ShutdownGuest", func(ctx context.Context, c *clients) error {
		return object.NewVirtualMachine(c.vim, machine).ShutdownGuest(ctx)
	}},
	{"QueryDateTime", "QueryDateTime", func(ctx context.Context, c *clients) error {
		_, err := object.NewHostDateTimeSystem(c.vim, ref("HostDateTimeSystem", "dateTimeSystem-1")).Query(ctx)
		return err
	}},
	{"CancelTask", "CancelTask", func(ctx context.Context, c *clients) error {
		return object.NewTask(c.vim, ref("Task", "task-1")).Cancel(ctx)
	}},
	{"CreateCollectorForTasks", "CreateCollectorForTasks", func(ctx context.Context, c *clients) error {
		begin := time.Date(2026, 11, 16, 4, 0, 0, 0, time.UTC)
		_, err := methods.CreateCollectorForTasks(ctx, c.vim, &types.CreateCollectorForTasks{
			This: ref("TaskManager", "TaskManager"),
			Filter: types.TaskFilterSpec{
				Time:  &types.TaskFilterSpecByTime{TimeType: types.TaskFilterSpecTimeOptionCompletedTime, BeginTime: &begin},
				State: []types.TaskInfoState{types.TaskInfoStateSuccess},
			},
		})
		return err
	}},
	{"ReadNextTasks", "ReadNextTasks", func(ctx context.Context, c *clients) error {
		_, err := methods.ReadNextTasks(ctx, c.vim, &types.ReadNextTasks{This: ref("TaskHistoryCollector", "collector-1"), MaxCount: 500})
		return err
	}},
	{"DestroyCollector", "DestroyCollector", func(ctx context.Context, c *clients) error {
		_, err := methods.DestroyCollector(ctx, c.vim, &types.DestroyCollector{This: ref("TaskHistoryCollector", "collector-1")})
		return err
	}},
}

var permissionOperations = []operation{
	{"AddAuthorizationRole", "AddAuthorizationRole", func(ctx context.Context, c *clients) error {
		_, err := object.NewAuthorizationManager(c.vim).AddRole(ctx, "CNS-DATASTORE", []string{"Datastore.FileManagement", "System.Read"})
		return err
	}},
	{"UpdateAuthorizationRole", "UpdateAuthorizationRole", func(ctx context.Context, c *clients) error {
		return object.NewAuthorizationManager(c.vim).UpdateRole(ctx, 7, "CNS-DATASTORE", []string{"Datastore.FileManagement", "System.Read"})
	}},
	{"RemoveAuthorizationRole", "RemoveAuthorizationRole", func(ctx context.Context, c *clients) error {
		return object.NewAuthorizationManager(c.vim).RemoveRole(ctx, 7, true)
	}},
	{"RetrieveEntityPermissions", "RetrieveEntityPermissions", func(ctx context.Context, c *clients) error {
		_, err := object.NewAuthorizationManager(c.vim).RetrieveEntityPermissions(ctx, datastore, true)
		return err
	}},
	{"RetrieveAllPermissions", "RetrieveAllPermissions", func(ctx context.Context, c *clients) error {
		_, err := object.NewAuthorizationManager(c.vim).RetrieveAllPermissions(ctx)
		return err
	}},
	{"SetEntityPermissions", "SetEntityPermissions", func(ctx context.Context, c *clients) error {
		return object.NewAuthorizationManager(c.vim).SetEntityPermissions(ctx, datastore, []types.Permission{
			{Entity: &datastore, Principal: `VSPHERE.LOCAL\csi`, Group: false, RoleId: 7, Propagate: true},
			{Principal: `VSPHERE.LOCAL\Operators`, Group: true, RoleId: -2, Propagate: false},
		})
	}},
	{"RemoveEntityPermission", "RemoveEntityPermission", func(ctx context.Context, c *clients) error {
		return object.NewAuthorizationManager(c.vim).RemoveEntityPermission(ctx, datastore, `VSPHERE.LOCAL\csi`, false)
	}},
	{"HasPrivilegeOnEntities", "HasPrivilegeOnEntities", func(ctx context.Context, c *clients) error {
		_, err := methods.HasPrivilegeOnEntities(ctx, c.vim, &types.HasPrivilegeOnEntities{
			This:      ref("AuthorizationManager", "AuthorizationManager"),
			Entity:    []types.ManagedObjectReference{datastore, root},
			SessionId: "session-1",
			PrivId:    []string{"Datastore.FileManagement", "System.Read"},
		})
		return err
	}},
	{"HasUserPrivilegeOnEntities", "HasUserPrivilegeOnEntities", func(ctx context.Context, c *clients) error {
		entities := []types.ManagedObjectReference{datastore, root}
		privileges := []string{"Datastore.FileManagement", "System.Read"}
		_, err := object.NewAuthorizationManager(c.vim).HasUserPrivilegeOnEntities(ctx, entities, `VSPHERE.LOCAL\csi`, privileges)
		return err
	}},
	{"FetchUserPrivilegeOnEntities", "FetchUserPrivilegeOnEntities", func(ctx context.Context, c *clients) error {
		entities := []types.ManagedObjectReference{datastore, root}
		_, err := object.NewAuthorizationManager(c.vim).FetchUserPrivilegeOnEntities(ctx, entities, `VSPHERE.LOCAL\csi`)
		return err
	}},
}
