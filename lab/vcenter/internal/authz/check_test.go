package authz

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	vim "github.com/vmware/govmomi/vim25/types"
	vslm "github.com/vmware/govmomi/vslm/types"

	"vsphere-drivers.example/lab/vcenter/internal/profile"
)

func TestPowerNeedsItsPrivilegeOnTheVirtualMachine(t *testing.T) {
	l := start(t, Config{})
	vm := l.find("/DC0/vm/DC0_H0_VM0")
	l.grant(l.root(), true)
	c := l.login(userName, userPass)
	_, err := object.NewVirtualMachine(c.Client, vm).PowerOff(l.ctx)
	wantDenied(t, err, vm, "VirtualMachine.Interact.PowerOff")
	l.grant(vm, false, "VirtualMachine.Interact.PowerOff")
	if _, err := object.NewVirtualMachine(c.Client, vm).PowerOff(l.ctx); err != nil {
		t.Errorf("with the privilege: %v", err)
	}
}

func TestReconfigurationNeedsThePrivilegesOfItsParts(t *testing.T) {
	l := start(t, Config{})
	vm := l.find("/DC0/vm/DC0_H0_VM0")
	l.grant(l.root(), true)
	c := l.login(userName, userPass)
	add := func(device vim.BaseVirtualDevice, create vim.VirtualDeviceConfigSpecFileOperation) vim.VirtualMachineConfigSpec {
		return vim.VirtualMachineConfigSpec{DeviceChange: []vim.BaseVirtualDeviceConfigSpec{&vim.VirtualDeviceConfigSpec{
			Operation: vim.VirtualDeviceConfigSpecOperationAdd, FileOperation: create, Device: device,
		}}}
	}
	for privilege, spec := range map[string]vim.VirtualMachineConfigSpec{
		"VirtualMachine.Config.AdvancedConfig":         {ExtraConfig: []vim.BaseOptionValue{&vim.OptionValue{Key: "disk.EnableUUID", Value: "TRUE"}}},
		"VirtualMachine.Config.Rename":                 {Name: "new"},
		"VirtualMachine.Config.Memory":                 {MemoryMB: 512},
		"VirtualMachine.Config.CPUCount":               {NumCPUs: 2},
		"VirtualMachine.Config.UpgradeVirtualHardware": {Version: "vmx-15"},
		"VirtualMachine.Config.AddExistingDisk":        add(&vim.VirtualDisk{}, ""),
		"VirtualMachine.Config.AddNewDisk":             add(&vim.VirtualDisk{}, vim.VirtualDeviceConfigSpecFileOperationCreate),
		"VirtualMachine.Config.AddRemoveDevice":        add(&vim.ParaVirtualSCSIController{}, ""),
	} {
		_, err := object.NewVirtualMachine(c.Client, vm).Reconfigure(l.ctx, spec)
		wantDenied(t, err, vm, privilege)
	}
}

func TestRolesAndPermissionsNeedTheirPrivileges(t *testing.T) {
	l := start(t, Config{})
	l.grant(l.root(), true)
	m := object.NewAuthorizationManager(l.login(userName, userPass).Client)
	_, err := m.AddRole(l.ctx, "mine", nil)
	wantDenied(t, err, l.root(), "Authorization.ModifyRoles")
	err = m.SetEntityPermissions(l.ctx, l.root(), []vim.Permission{{Principal: userName, RoleId: -1, Propagate: true}})
	wantDenied(t, err, l.root(), "Authorization.ModifyPermissions")
}

func TestDestroyAndRenameNeedThePrivilegeOfTheKind(t *testing.T) {
	l := start(t, Config{})
	l.grant(l.root(), true)
	c := l.login(userName, userPass)
	for path, privileges := range map[string][2]string{
		"/DC0/vm/DC0_H0_VM0": {"VirtualMachine.Config.Rename", "VirtualMachine.Inventory.Delete"},
		"/DC0":               {"Datacenter.Rename", "Datacenter.Delete"},
		"/DC0/vm":            {"Folder.Rename", "Folder.Delete"},
	} {
		entity := l.find(path)
		_, err := object.NewCommon(c.Client, entity).Rename(l.ctx, "new")
		wantDenied(t, err, entity, privileges[0])
		_, err = object.NewCommon(c.Client, entity).Destroy(l.ctx)
		wantDenied(t, err, entity, privileges[1])
	}
}

// ask runs the check alone, for registries that are not in this test.
func (l *lab) ask(m *simulator.Method) vim.BaseMethodFault {
	l.t.Helper()
	ctx := &simulator.Context{Context: l.ctx, Map: l.vim, Session: &simulator.Session{
		UserSession: vim.UserSession{Key: "test", UserName: userName}, Registry: simulator.NewRegistry(), Map: l.vim,
	}}
	return l.authz.Check(ctx, m)
}

func TestVolumesNeedTheDocumentedPrivileges(t *testing.T) {
	l := start(t, Config{})
	ds, vm := l.find("/DC0/datastore/LocalDS_0"), l.find("/DC0/vm/DC0_H0_VM0")
	l.authz.SetVolumeDatastore(func(id string) (vim.ManagedObjectReference, bool) { return ds, id == "vol" })
	l.grant(l.root(), true)
	this := vim.ManagedObjectReference{Type: "CnsVolumeManager", Value: "cns-volume-manager"}
	id := types.CnsVolumeId{Id: "vol"}
	calls := []struct {
		name   string
		body   any
		object vim.ManagedObjectReference
		needs  string
	}{
		{"CnsQueryVolume", &types.CnsQueryVolume{This: this}, l.root(), "Cns.Searchable"},
		{"CnsQueryAllVolume", &types.CnsQueryAllVolume{This: this}, l.root(), "Cns.Searchable"},
		{"CnsCreateVolume", &types.CnsCreateVolume{This: this, CreateSpecs: []types.CnsVolumeCreateSpec{{Datastores: []vim.ManagedObjectReference{ds}}}}, ds, "Datastore.FileManagement"},
		{"CnsCreateVolume", &types.CnsCreateVolume{This: this, CreateSpecs: []types.CnsVolumeCreateSpec{{}}}, l.root(), "Datastore.FileManagement"},
		{"CnsDeleteVolume", &types.CnsDeleteVolume{This: this, VolumeIds: []types.CnsVolumeId{id}}, ds, "Datastore.FileManagement"},
		{"CnsExtendVolume", &types.CnsExtendVolume{This: this, ExtendSpecs: []types.CnsVolumeExtendSpec{{VolumeId: id}}}, ds, "Datastore.FileManagement"},
		{"CnsCreateSnapshots", &types.CnsCreateSnapshots{This: this, SnapshotSpecs: []types.CnsSnapshotCreateSpec{{VolumeId: id}}}, ds, "Datastore.FileManagement"},
		{"CnsUpdateVolumeCrypto", &types.CnsUpdateVolumeCrypto{This: this, UpdateSpecs: []types.CnsVolumeCryptoUpdateSpec{{VolumeId: id}}}, ds, "Datastore.FileManagement"},
		{"VslmCloneVStorageObject_Task", &vslm.VslmCloneVStorageObject_Task{Id: vim.ID{Id: "vol"}}, ds, "Datastore.FileManagement"},
		{"VslmRelocateVStorageObject_Task", &vslm.VslmRelocateVStorageObject_Task{Id: vim.ID{Id: "vol"}}, ds, "Datastore.FileManagement"},
		{"CnsAttachVolume", &types.CnsAttachVolume{This: this, AttachSpecs: []types.CnsVolumeAttachDetachSpec{{VolumeId: id, Vm: vm}}}, vm, "VirtualMachine.Config.AddExistingDisk"},
		{"CnsDetachVolume", &types.CnsDetachVolume{This: this, DetachSpecs: []types.CnsVolumeAttachDetachSpec{{VolumeId: id, Vm: vm}}}, vm, "VirtualMachine.Config.AddRemoveDevice"},
	}
	for _, c := range calls {
		denied, ok := l.ask(&simulator.Method{Name: c.name, This: this, Body: c.body}).(*vim.NoPermission)
		if !ok || *denied.Object != c.object || denied.PrivilegeId != c.needs {
			t.Errorf("%s without %s: %+v", c.name, c.needs, denied)
		}
	}
	l.grant(l.root(), true, "Cns.Searchable", "StorageProfile.View")
	l.grant(ds, false, "Datastore.FileManagement")
	l.grant(vm, false, "VirtualMachine.Config.AddExistingDisk", "VirtualMachine.Config.AddRemoveDevice")
	for _, c := range calls {
		if f := l.ask(&simulator.Method{Name: c.name, This: this, Body: c.body}); f != nil {
			t.Errorf("%s with the documented roles: %+v", c.name, f)
		}
	}
	candidates := []vim.ManagedObjectReference{l.find("/DC1/datastore/LocalDS_0"), ds}
	body := &types.CnsCreateVolume{This: this, CreateSpecs: []types.CnsVolumeCreateSpec{{Datastores: candidates}}}
	if f := l.ask(&simulator.Method{Name: "CnsCreateVolume", This: this, Body: body}); f != nil {
		t.Errorf("one of two candidates is usable: %+v", f)
	}
}

func TestPoliciesNeedStorageProfilePrivileges(t *testing.T) {
	l := start(t, Config{})
	l.grant(l.root(), true)
	this := vim.ManagedObjectReference{Type: "PbmProfileProfileManager", Value: "ProfileManager"}
	for name, privilege := range map[string]string{"PbmQueryProfile": "StorageProfile.View", "PbmCreate": "StorageProfile.Update"} {
		denied, ok := l.ask(&simulator.Method{Name: name, This: this}).(*vim.NoPermission)
		if !ok || denied.PrivilegeId != privilege {
			t.Errorf("%s without %s: %+v", name, privilege, denied)
		}
	}
}

func TestAdministratorMayDoEverything(t *testing.T) {
	l := start(t, Config{})
	vm := object.NewVirtualMachine(l.admin.Client, l.find("/DC0/vm/DC0_H0_VM0"))
	task, err := vm.PowerOff(l.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Wait(l.ctx); err != nil {
		t.Fatal(err)
	}
}

func TestDenialsCarryVCentersTextAndAllLackingPrivileges(t *testing.T) {
	for release, listed := range map[string]int{"7.0U3": 0, "8.0U3": 2} {
		known, err := profile.Lookup(release)
		if err != nil {
			t.Fatal(err)
		}
		l := start(t, Config{Release: known})
		vm := l.find("/DC0/vm/DC0_H0_VM0")
		l.grant(l.root(), true)
		_, err = object.NewVirtualMachine(l.login(userName, userPass).Client, vm).Reconfigure(l.ctx, vim.VirtualMachineConfigSpec{MemoryMB: 1, NumCPUs: 1})
		var denied *vim.NoPermission
		if _, ok := fault.As(err, &denied); !ok || !strings.Contains(err.Error(), "Permission to perform this operation was denied.") {
			t.Fatalf("%v", err)
		}
		got := 0
		for _, e := range denied.MissingPrivileges {
			got += len(e.PrivilegeIds)
		}
		if got != listed {
			t.Errorf("%s lists %+v", release, denied.MissingPrivileges)
		}
	}
}

func TestRefusedLoginCarriesVCentersText(t *testing.T) {
	l := start(t, Config{})
	if _, err := l.try(userName, "wrong"); err == nil || !strings.Contains(err.Error(), "incorrect user name or password") {
		t.Errorf("%v", err)
	}
}

func TestPermissionsEndWithTheirEntity(t *testing.T) {
	l := start(t, Config{})
	folder, err := object.NewFolder(l.admin.Client, l.find("/DC0/vm")).CreateFolder(l.ctx, "short-lived")
	if err != nil {
		t.Fatal(err)
	}
	l.grant(folder.Reference(), true)
	l.login(userName, userPass)
	task, err := folder.Destroy(l.ctx)
	if err == nil {
		err = task.Wait(l.ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	list, err := l.manager().RetrieveAllPermissions(l.ctx)
	if err != nil || len(list) != 2 {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := l.try(userName, userPass); !isFault[*vim.NoPermission](err) {
		t.Errorf("login of a user without any permission left: %v", err)
	}
}

// fetch reads one property in the way of VMware's Python client.
func (l *lab) fetch(c *govmomi.Client, ref vim.ManagedObjectReference, property string) (status int, answer string) {
	l.t.Helper()
	body := `<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Body><Fetch xmlns="urn:vim25"><_this type="` +
		ref.Type + `">` + ref.Value + `</_this><prop>` + property + `</prop></Fetch></Body></Envelope>`
	req, err := http.NewRequest(http.MethodPost, l.url.String(), strings.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	req.URL.User = nil
	for _, cookie := range c.Jar.Cookies(req.URL) {
		req.AddCookie(cookie)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		l.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

func TestFetchIsCheckedToo(t *testing.T) {
	l := start(t, Config{})
	l.grant(l.find("/DC0/vm/DC0_H0_VM0"), false)
	c := l.login(userName, userPass)
	for path, ok := range map[string]bool{"/DC0/vm/DC0_H0_VM0": true, "/DC0/vm/DC0_H0_VM1": false} {
		status, answer := l.fetch(c, l.find(path), "config")
		if (status == http.StatusOK) != ok || !ok && !strings.Contains(answer, "NoPermission") {
			t.Errorf("%s: %d %.300s", path, status, answer)
		}
	}
}

func TestFetchAnswersWithTheValueAsItIs(t *testing.T) {
	l := start(t, Config{})
	root := l.admin.ServiceContent.RootFolder
	for _, test := range []struct {
		ref            vim.ManagedObjectReference
		property, want string
	}{
		{root, "name", `<FetchResponse xmlns="urn:vim25"><returnval`},
		{root, "parent", `<soapenv:Body><FetchResponse xmlns="urn:vim25"></FetchResponse></soapenv:Body>`},
		{vim25.ServiceInstance, "content", `<vStorageObjectManager type="VcenterVStorageObjectManager">`},
		{vim.ManagedObjectReference{Type: "ManagedEntity", Value: root.Value}, "name", ">Datacenters</returnval>"},
	} {
		status, answer := l.fetch(l.admin, test.ref, test.property)
		if status != http.StatusOK || !strings.Contains(answer, test.want) {
			t.Errorf("%s of %s: %d %s", test.property, test.ref, status, answer)
		}
	}
	status, answer := l.fetch(l.admin, vim.ManagedObjectReference{Type: "Folder", Value: "group-d99"}, "name")
	if status != http.StatusInternalServerError || !strings.Contains(answer, "ManagedObjectNotFound") {
		t.Errorf("of a missing object: %d %s", status, answer)
	}
}
