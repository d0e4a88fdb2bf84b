package authz

import (
	"slices"
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/authz/directory"
)

func TestNewRoleHasItsRealIDAndTheSystemPrivileges(t *testing.T) {
	l := start(t, Config{})
	id, err := l.manager().AddRole(l.ctx, "cns-datastore", []string{"Datastore.FileManagement"})
	if err != nil {
		t.Fatal(err)
	}
	roles, err := l.manager().RoleList(l.ctx)
	if err != nil {
		t.Fatal(err)
	}
	role := roles.ById(id)
	if id == 0 || role == nil || role.Name != "cns-datastore" {
		t.Fatalf("id %d is %+v", id, role)
	}
	want := []string{"Datastore.FileManagement", "System.Anonymous", "System.Read", "System.View"}
	if !slices.Equal(role.Privilege, want) {
		t.Errorf("privileges %v, want %v", role.Privilege, want)
	}
}

func TestRoleChangesAreRefusedAsVCenterDoes(t *testing.T) {
	l := start(t, Config{})
	m := l.manager()
	id, err := m.AddRole(l.ctx, "one", []string{"Cns.Searchable"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.AddRole(l.ctx, "two", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := m.AddRole(l.ctx, "one", nil); !isFault[*types.AlreadyExists](err) {
		t.Errorf("same name: %v", err)
	}
	if _, err := m.AddRole(l.ctx, "", nil); !isFault[*types.InvalidName](err) {
		t.Errorf("no name: %v", err)
	}
	if _, err := m.AddRole(l.ctx, "three", []string{"No.Such"}); !isFault[*types.InvalidArgument](err) {
		t.Errorf("unknown privilege: %v", err)
	}
	if err := m.UpdateRole(l.ctx, id, "two", nil); !isFault[*types.AlreadyExists](err) {
		t.Errorf("renamed to a taken name: %v", err)
	}
	if err := m.UpdateRole(l.ctx, 4711, "four", nil); !isFault[*types.NotFound](err) {
		t.Errorf("unknown role: %v", err)
	}
	if err := m.UpdateRole(l.ctx, -1, "root", nil); !isFault[*types.InvalidArgument](err) {
		t.Errorf("system role: %v", err)
	}
}

func TestUpdateRoleReplacesNameAndPrivileges(t *testing.T) {
	l := start(t, Config{})
	id, err := l.manager().AddRole(l.ctx, "one", []string{"Cns.Searchable"})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.manager().UpdateRole(l.ctx, id, "uno", []string{"StorageProfile.View"}); err != nil {
		t.Fatal(err)
	}
	roles, _ := l.manager().RoleList(l.ctx)
	role := roles.ById(id)
	if role == nil || role.Name != "uno" || slices.Contains(role.Privilege, "Cns.Searchable") || !slices.Contains(role.Privilege, "StorageProfile.View") {
		t.Errorf("%+v", role)
	}
	if err := l.manager().UpdateRole(l.ctx, id, "uno", nil); err != nil {
		t.Fatal(err)
	}
	roles, _ = l.manager().RoleList(l.ctx)
	if role := roles.ById(id); role == nil || len(role.Privilege) != 3 {
		t.Errorf("an empty list leaves %+v", role)
	}
}

func TestRemoveRoleHonoursFailIfUsed(t *testing.T) {
	l := start(t, Config{})
	m := l.manager()
	id, err := m.AddRole(l.ctx, "one", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.SetEntityPermissions(l.ctx, l.root(), []types.Permission{{Principal: userName, RoleId: id}}); err != nil {
		t.Fatal(err)
	}
	if err := m.RemoveRole(l.ctx, id, true); !isFault[*types.RemoveFailed](err) {
		t.Errorf("used role: %v", err)
	}
	if err := m.RemoveRole(l.ctx, id, false); err != nil {
		t.Fatal(err)
	}
	list, err := m.RetrieveEntityPermissions(l.ctx, l.root(), false)
	if err != nil || len(list) != 2 {
		t.Errorf("the role's permissions stay: %v, %v", list, err)
	}
}

func TestSetEntityPermissionsMergesPerPrincipal(t *testing.T) {
	l := start(t, Config{})
	m := l.manager()
	for _, role := range []int32{-2, -5} {
		if err := m.SetEntityPermissions(l.ctx, l.root(), []types.Permission{{Principal: `VSPHERE.LOCAL\csi`, RoleId: role, Propagate: true}}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := m.RetrieveEntityPermissions(l.ctx, l.root(), false)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 3 || list[2].RoleId != -5 || list[2].Principal != `VSPHERE.LOCAL\csi` {
		t.Errorf("Administrator, Administrators and one csi expected: %+v", list)
	}
}

func TestPermissionChangesAreRefusedAsVCenterDoes(t *testing.T) {
	l := start(t, Config{})
	m := l.manager()
	set := func(p types.Permission) error { return m.SetEntityPermissions(l.ctx, l.root(), []types.Permission{p}) }
	if err := set(types.Permission{Principal: "nobody", RoleId: -2}); !isFault[*types.UserNotFound](err) {
		t.Errorf("unknown user: %v", err)
	}
	if err := set(types.Permission{Principal: "csi", Group: true, RoleId: -2}); !isFault[*types.UserNotFound](err) {
		t.Errorf("user as group: %v", err)
	}
	if err := set(types.Permission{Principal: "csi", RoleId: 4711}); !isFault[*types.NotFound](err) {
		t.Errorf("unknown role: %v", err)
	}
	if err := set(types.Permission{Principal: "csi", RoleId: -3}); !isFault[*types.InvalidArgument](err) {
		t.Errorf("role that cannot be granted: %v", err)
	}
	gone := types.ManagedObjectReference{Type: "Folder", Value: "group-gone"}
	if err := m.SetEntityPermissions(l.ctx, gone, nil); !isFault[*types.ManagedObjectNotFound](err) {
		t.Errorf("unknown entity: %v", err)
	}
	if err := m.RemoveEntityPermission(l.ctx, l.root(), "csi", false); !isFault[*types.NotFound](err) {
		t.Errorf("no such permission: %v", err)
	}
	if err := m.RemoveEntityPermission(l.ctx, l.root(), "Administrators", true); err != nil {
		t.Errorf("one of two administrators: %v", err)
	}
	if err := m.RemoveEntityPermission(l.ctx, l.root(), adminName, false); !isFault[*types.AuthMinimumAdminPermission](err) {
		t.Errorf("the last administrator: %v", err)
	}
}

func TestInheritedPermissionsHonourPropagation(t *testing.T) {
	l := start(t, Config{Directory: directory.Config{Users: []directory.User{{Name: "ann", Password: "x"}}}})
	dc := l.find("/DC0")
	folder := l.find("/DC0/vm")
	vm := l.find("/DC0/vm/DC0_H0_VM0")
	l.grantTo("csi", false, dc, true)
	l.grantTo("ann", false, folder, false)
	list, err := l.manager().RetrieveEntityPermissions(l.ctx, vm, true)
	if err != nil {
		t.Fatal(err)
	}
	var holders []string
	for _, p := range list {
		holders = append(holders, p.Principal)
	}
	slices.Sort(holders)
	if want := []string{`VSPHERE.LOCAL\Administrator`, `VSPHERE.LOCAL\Administrators`, `VSPHERE.LOCAL\csi`}; !slices.Equal(holders, want) {
		t.Errorf("%v reach the VM, want %v", holders, want)
	}
	if list, _ := l.manager().RetrieveEntityPermissions(l.ctx, vm, false); len(list) != 0 {
		t.Errorf("nothing is defined on the VM: %+v", list)
	}
}

// has asks as the administrator what a user may do.
func (l *lab) has(user string, entity types.ManagedObjectReference, privilege string) bool {
	l.t.Helper()
	res, err := methods.HasUserPrivilegeOnEntities(l.ctx, l.admin, &types.HasUserPrivilegeOnEntities{
		This: *l.admin.ServiceContent.AuthorizationManager, Entities: []types.ManagedObjectReference{entity},
		UserName: user, PrivId: []string{privilege},
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return res.Returnval[0].PrivAvailability[0].IsGranted
}

func TestNearestPermissionWinsAndUserBeatsGroups(t *testing.T) {
	l := start(t, Config{Directory: directory.Config{
		Users: []directory.User{{Name: "ann", Password: "x", Groups: []string{"files", "power"}}},
	}})
	dc, folder, vm := l.find("/DC0"), l.find("/DC0/vm"), l.find("/DC0/vm/DC0_H0_VM0")
	l.grantTo("files", true, dc, true, "Datastore.FileManagement")
	l.grantTo("power", true, dc, true, "VirtualMachine.Interact.PowerOn")
	if !l.has("ann", vm, "Datastore.FileManagement") || !l.has("ann", vm, "VirtualMachine.Interact.PowerOn") {
		t.Error("groups on one entity do not unite")
	}
	l.grantTo("ann", false, dc, true, "Cns.Searchable")
	if l.has("ann", vm, "VirtualMachine.Interact.PowerOn") || !l.has("ann", vm, "Cns.Searchable") {
		t.Error("the user's own permission does not beat those of groups on the same entity")
	}
	l.grantTo("files", true, folder, true, "Datastore.Browse")
	if l.has("ann", folder, "Cns.Searchable") || !l.has("ann", folder, "Datastore.Browse") {
		t.Error("a nearer permission does not beat a farther one")
	}
	if !l.has("ann", vm, "Cns.Searchable") || !l.has("ann", vm, "Datastore.Browse") {
		t.Error("a VM does not unite what comes through its folder and through its pool")
	}
	if err := l.manager().SetEntityPermissions(l.ctx, vm, []types.Permission{{Principal: "ann", RoleId: -5}}); err != nil {
		t.Fatal(err)
	}
	if l.has("ann", vm, "System.View") {
		t.Error("NoAccess on the VM does not hide it")
	}
}

func TestPermissionThatDoesNotPropagateStaysOnItsEntity(t *testing.T) {
	l := start(t, Config{})
	l.grant(l.root(), false, "Cns.Searchable")
	if !l.has(userName, l.root(), "Cns.Searchable") || l.has(userName, l.find("/DC0"), "Cns.Searchable") {
		t.Error("propagation is ignored")
	}
}

func hasOnEntities(l *lab, c *vim25.Client, entities []types.ManagedObjectReference, key string, ids []string) ([]types.EntityPrivilege, error) {
	res, err := methods.HasPrivilegeOnEntities(l.ctx, c, &types.HasPrivilegeOnEntities{
		This: *c.ServiceContent.AuthorizationManager, Entity: entities, SessionId: key, PrivId: ids,
	})
	if err != nil {
		return nil, err
	}
	return res.Returnval, nil
}

func TestPrivilegesOfASessionAreComputed(t *testing.T) {
	l := start(t, Config{})
	dc := l.find("/DC0")
	l.grant(dc, true, "Datastore.FileManagement")
	c := l.login(userName, userPass)
	s, err := c.SessionManager.UserSession(l.ctx)
	if err != nil {
		t.Fatal(err)
	}
	answers, err := object.NewAuthorizationManager(c.Client).HasPrivilegeOnEntity(l.ctx, dc, s.Key, []string{"Datastore.FileManagement", "Cns.Searchable"})
	if err != nil || !slices.Equal(answers, []bool{true, false}) {
		t.Errorf("%v, %v", answers, err)
	}
	m := object.NewAuthorizationManager(c.Client)
	many, err := hasOnEntities(l, c.Client, []types.ManagedObjectReference{dc}, s.Key, []string{"System.Read", "Cns.Searchable"})
	if err != nil || !many[0].PrivAvailability[0].IsGranted || many[0].PrivAvailability[1].IsGranted {
		t.Errorf("%+v, %v", many, err)
	}
	if _, err := hasOnEntities(l, c.Client, []types.ManagedObjectReference{l.find("/DC1")}, s.Key, []string{"System.Read"}); err == nil {
		t.Error("asking about an entity that cannot be read is allowed")
	}
	fetched, err := m.FetchUserPrivilegeOnEntities(l.ctx, []types.ManagedObjectReference{dc}, userName)
	want := []string{"Datastore.FileManagement", "System.Anonymous", "System.Read", "System.View"}
	if err != nil || !slices.Equal(fetched[0].Privileges, want) {
		t.Errorf("%+v, %v", fetched, err)
	}
}
