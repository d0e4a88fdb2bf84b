package strict

import (
	"context"
	"testing"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/event"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/pbm"
	pbmtypes "github.com/vmware/govmomi/pbm/types"
	"github.com/vmware/govmomi/performance"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/ssoadmin"
	ssotypes "github.com/vmware/govmomi/ssoadmin/types"
	"github.com/vmware/govmomi/sts"
	"github.com/vmware/govmomi/task"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"
)

// step is one thing to do with a client. Faults of the stock simulator behind do not count: many methods it does not
// have. What counts is that the middleware lets the request through.
type step struct {
	name string
	do   func() error
}

func run(t *testing.T, v *vc, steps []step) {
	t.Helper()
	for _, s := range steps {
		err := s.do()
		v.passes(t, s.name)
		if err != nil && !soap.IsSoapFault(err) {
			t.Errorf("%s: %v", s.name, err)
		}
	}
}

func wait(ctx context.Context) func(*object.Task, error) error {
	return func(task *object.Task, err error) error {
		if err != nil {
			return err
		}
		// How the task ends is the simulator's affair.
		_ = task.Wait(ctx)
		return nil
	}
}

func TestInventoryClientsPassUnchangedOnEveryRelease(t *testing.T) {
	for _, name := range []string{"6.7U3", "7.0U3", "8.0U3", "9.0", "9.1"} {
		t.Run(name, func(t *testing.T) {
			v := start(t, Config{Profile: release(t, name)})
			ctx, c := login(t, v)
			run(t, v, inventorySteps(ctx, t, c))
			if err := c.Client.UseServiceVersion(); err != nil {
				t.Fatal(err)
			}
			run(t, v, []step{
				{"list with the server's own version", func() error { _, err := find.NewFinder(c.Client).VirtualMachineList(ctx, "*"); return err }},
				{"keep alive", func() error { _, err := methods.GetCurrentTime(ctx, c); return err }},
				{"logout", func() error { return c.Logout(ctx) }},
			})
		})
	}
}

func inventorySteps(ctx context.Context, t *testing.T, c *govmomi.Client) []step {
	t.Helper()
	finder := find.NewFinder(c.Client)
	dc, err := finder.DefaultDatacenter(ctx)
	if err != nil {
		t.Fatal(err)
	}
	finder.SetDatacenter(dc)
	vms, err := finder.VirtualMachineList(ctx, "*")
	if err != nil {
		t.Fatal(err)
	}
	vm := vms[0]
	devices, err := vm.Device(ctx)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := finder.ResourcePoolList(ctx, "*")
	if err != nil {
		t.Fatal(err)
	}
	ds, err := finder.DefaultDatastore(ctx)
	if err != nil {
		t.Fatal(err)
	}
	folders, err := dc.Folders(ctx)
	if err != nil {
		t.Fatal(err)
	}
	done := wait(ctx)
	controller, err := devices.FindDiskController("")
	if err != nil {
		t.Fatal(err)
	}
	disk := devices.CreateDisk(controller, ds.Reference(), ds.Path("new/disk.vmdk"))
	poolRef := pool[0].Reference()
	authz := object.NewAuthorizationManager(c.Client)
	collector := property.DefaultCollector(c.Client)
	return []step{
		{"all properties", func() error {
			var out []mo.VirtualMachine
			return collector.Retrieve(ctx, []types.ManagedObjectReference{vm.Reference()}, nil, &out)
		}},
		{"container view", func() error {
			m, err := view.NewManager(c.Client).CreateContainerView(ctx, c.ServiceContent.RootFolder, []string{"VirtualMachine"}, true)
			if err != nil {
				return err
			}
			var out []mo.VirtualMachine
			if err := m.Retrieve(ctx, []string{"VirtualMachine"}, []string{"name", "config.uuid"}, &out); err != nil {
				return err
			}
			return m.Destroy(ctx)
		}},
		{"list view", func() error {
			l, err := view.NewManager(c.Client).CreateListView(ctx, []types.ManagedObjectReference{vm.Reference()})
			if err != nil {
				return err
			}
			if _, err := l.Add(ctx, []types.ManagedObjectReference{dc.Reference()}); err != nil {
				return err
			}
			return l.Destroy(ctx)
		}},
		{"wait for updates", func() error {
			return property.Wait(ctx, collector, vm.Reference(), []string{"runtime.powerState"}, func([]types.PropertyChange) bool { return true })
		}},
		{"task history", func() error {
			h, err := task.NewManager(c.Client).CreateCollectorForTasks(ctx, types.TaskFilterSpec{})
			if err == nil {
				err = h.Destroy(ctx)
			}
			return err
		}},
		{"power off", func() error { return done(vm.PowerOff(ctx)) }},
		{"power on", func() error { return done(vm.PowerOn(ctx)) }},
		{"reconfigure", func() error {
			return done(vm.Reconfigure(ctx, types.VirtualMachineConfigSpec{
				Annotation:  "note",
				NumCPUs:     2,
				MemoryMB:    512,
				ExtraConfig: []types.BaseOptionValue{&types.OptionValue{Key: "disk.EnableUUID", Value: "TRUE"}},
			}))
		}},
		{"add a disk", func() error {
			change, err := object.VirtualDeviceList{disk}.ConfigSpec(types.VirtualDeviceConfigSpecOperationAdd)
			if err != nil {
				return err
			}
			return done(vm.Reconfigure(ctx, types.VirtualMachineConfigSpec{DeviceChange: change}))
		}},
		{"snapshot", func() error { return done(vm.CreateSnapshot(ctx, "s", "d", false, false)) }},
		{"clone", func() error {
			return done(vm.Clone(ctx, folders.VmFolder, "copy", types.VirtualMachineCloneSpec{
				Location: types.VirtualMachineRelocateSpec{Pool: &poolRef},
			}))
		}},
		{"upgrade hardware", func() error { return done(vm.UpgradeVM(ctx, "vmx-15")) }},
		{"search", func() error {
			_, err := object.NewSearchIndex(c.Client).FindByUuid(ctx, dc, "265104de-1472-547c-b873-6dc7883fb6cb", true, nil)
			return err
		}},
		{"roles", func() error { _, err := authz.RoleList(ctx); return err }},
		{"role life", func() error {
			id, err := authz.AddRole(ctx, "strict", []string{"System.Read"})
			if err != nil {
				return err
			}
			if err := authz.UpdateRole(ctx, id, "strict", []string{"System.View"}); err != nil {
				return err
			}
			permission := types.Permission{Principal: "user", RoleId: id, Propagate: true}
			if err := authz.SetEntityPermissions(ctx, vm.Reference(), []types.Permission{permission}); err != nil {
				return err
			}
			if _, err := authz.RetrieveEntityPermissions(ctx, vm.Reference(), true); err != nil {
				return err
			}
			if _, err := authz.FetchUserPrivilegeOnEntities(ctx, []types.ManagedObjectReference{vm.Reference()}, "user"); err != nil {
				return err
			}
			if _, err := authz.HasPrivilegeOnEntity(ctx, vm.Reference(), "key", []string{"System.Read"}); err != nil {
				return err
			}
			if _, err := authz.HasUserPrivilegeOnEntities(ctx, []types.ManagedObjectReference{vm.Reference()}, "user", []string{"System.Read"}); err != nil {
				return err
			}
			if err := authz.RemoveEntityPermission(ctx, vm.Reference(), "user", false); err != nil {
				return err
			}
			return authz.RemoveRole(ctx, id, true)
		}},
		{"events", func() error {
			_, err := event.NewManager(c.Client).QueryEvents(ctx, types.EventFilterSpec{
				Entity: &types.EventFilterSpecByEntity{Entity: vm.Reference(), Recursion: types.EventFilterSpecRecursionOptionAll},
			})
			return err
		}},
		{"counters", func() error { _, err := performance.NewManager(c.Client).CounterInfo(ctx); return err }},
		{"host time", func() error {
			hosts, err := finder.HostSystemList(ctx, "*")
			if err != nil {
				return err
			}
			dt, err := hosts[0].ConfigManager().DateTimeSystem(ctx)
			if err == nil {
				_, err = dt.Query(ctx)
			}
			return err
		}},
		{"browse a datastore", func() error {
			b, err := ds.Browser(ctx)
			if err != nil {
				return err
			}
			return done(b.SearchDatastore(ctx, ds.Path(""), &types.HostDatastoreBrowserSearchSpec{
				Query: []types.BaseFileQuery{&types.VmDiskFileQuery{}}, MatchPattern: []string{"*"},
			}))
		}},
		{"create a folder", func() error { _, err := folders.VmFolder.CreateFolder(ctx, "strict"); return err }},
		{"custom field", func() error {
			m, err := object.GetCustomFieldsManager(c.Client)
			if err == nil {
				_, err = m.Add(ctx, "field", "VirtualMachine", nil, nil)
			}
			return err
		}},
		{"sessions", func() error { _, err := session.NewManager(c.Client).UserSession(ctx); return err }},
	}
}

func TestThePBMClientPassesUnchanged(t *testing.T) {
	for _, name := range []string{"6.7U3", "8.0U3"} {
		t.Run(name, func(t *testing.T) {
			v := start(t, Config{Profile: release(t, name)})
			ctx, c := login(t, v)
			p, err := pbm.NewClient(ctx, c.Client)
			v.passes(t, "new client")
			if err != nil {
				t.Fatal(err)
			}
			storage := pbmtypes.PbmProfileResourceType{ResourceType: string(pbmtypes.PbmProfileResourceTypeEnumSTORAGE)}
			hub := pbmtypes.PbmPlacementHub{HubType: "Datastore", HubId: "datastore-1"}
			run(t, v, []step{
				{"profiles", func() error {
					ids, err := p.QueryProfile(ctx, storage, string(pbmtypes.PbmProfileCategoryEnumREQUIREMENT))
					if err != nil {
						return err
					}
					_, err = p.RetrieveContent(ctx, ids)
					return err
				}},
				{"details", func() error { _, err := p.QueryProfileDetails(ctx, "REQUIREMENT", true); return err }},
				{"by name", func() error { _, err := p.ProfileIDByName(ctx, "vSAN Default Storage Policy"); return err }},
				{"requirements", func() error {
					_, err := p.CheckRequirements(ctx, []pbmtypes.PbmPlacementHub{hub}, nil, []pbmtypes.BasePbmPlacementRequirement{
						&pbmtypes.PbmPlacementCapabilityProfileRequirement{ProfileId: pbmtypes.PbmProfileId{UniqueId: "x"}},
					})
					return err
				}},
				{"create, update, delete", func() error {
					spec, err := pbm.CreateCapabilityProfileSpec(pbm.CapabilityProfileCreateSpec{
						Name: "p", Description: "d", Category: "REQUIREMENT",
						CapabilityList: []pbm.Capability{{ID: "hostFailuresToTolerate", Namespace: "VSAN", PropertyList: []pbm.Property{{ID: "hostFailuresToTolerate", Operator: "", Value: "2", DataType: "int"}}}},
					})
					if err != nil {
						return err
					}
					id, err := p.CreateProfile(ctx, *spec)
					if err != nil {
						return err
					}
					if err := p.UpdateProfile(ctx, *id, pbmtypes.PbmCapabilityProfileUpdateSpec{Name: "q", Constraints: spec.Constraints}); err != nil && !soap.IsSoapFault(err) {
						return err
					}
					_, err = p.DeleteProfile(ctx, []pbmtypes.PbmProfileId{*id})
					return err
				}},
				{"associations", func() error {
					_, err := p.QueryAssociatedEntity(ctx, pbmtypes.PbmProfileId{UniqueId: "x"}, "datastore")
					return err
				}},
				{"associated profiles", func() error {
					_, err := p.QueryAssociatedProfiles(ctx, []pbmtypes.PbmServerObjectRef{{ObjectType: "virtualMachine", Key: "vm-1"}})
					return err
				}},
			})
		})
	}
}

func TestTheVSLMClientPassesUnchanged(t *testing.T) {
	v := start(t, Config{Profile: release(t, "8.0U3")})
	ctx, c := login(t, v)
	client, err := vslm.NewClient(ctx, c.Client)
	v.passes(t, "new client")
	if err != nil {
		t.Fatal(err)
	}
	ds, err := find.NewFinder(c.Client).DatastoreList(ctx, "/...")
	if err != nil {
		t.Fatal(err)
	}
	m := vslm.NewGlobalObjectManager(client)
	var id types.ID
	run(t, v, []step{
		{"create", func() error {
			task, err := m.CreateDisk(ctx, types.VslmCreateSpec{
				Name: "disk", CapacityInMB: 10,
				BackingSpec: &types.VslmCreateSpecDiskFileBackingSpec{
					VslmCreateSpecBackingSpec: types.VslmCreateSpecBackingSpec{Datastore: ds[0].Reference()},
					ProvisioningType:          string(types.BaseConfigInfoDiskFileBackingInfoProvisioningTypeThin),
				},
			})
			if err != nil {
				return err
			}
			result, err := task.WaitNonDefault(ctx, 0, 0, true, 0)
			if object, ok := result.(types.VStorageObject); ok {
				id = object.Config.Id
			}
			return err
		}},
		{"retrieve", func() error { _, err := m.Retrieve(ctx, id); return err }},
		{"list", func() error { _, err := m.ListObjectsForSpec(ctx, nil, 100); return err }},
		{"rename", func() error { return m.Rename(ctx, id, "other") }},
		{"extend", func() error { _, err := m.ExtendDisk(ctx, id, 20); return err }},
		{"snapshot", func() error { _, err := m.CreateSnapshot(ctx, id, "s"); return err }},
		{"delete", func() error { _, err := m.Delete(ctx, id); return err }},
		{"register", func() error {
			_, err := m.RegisterDisk(ctx, "https://vc/folder/a.vmdk?dcPath=DC0&dsName=ds", "r")
			return err
		}},
	})
	// The older way, through vim25.
	old := vslm.NewObjectManager(c.Client)
	run(t, v, []step{
		{"list through vim25", func() error { _, err := old.List(ctx, ds[0]); return err }},
		{"register through vim25", func() error { _, err := old.RegisterDisk(ctx, "https://vc/folder/b.vmdk", "b"); return err }},
	})
}

func TestTheSSOAndSTSClientsPassUnchanged(t *testing.T) {
	v := start(t, Config{Profile: release(t, "8.0U3")})
	ctx, c := login(t, v)
	tokens, err := sts.NewClient(ctx, c.Client)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := tokens.Issue(ctx, sts.TokenRequest{Userinfo: v.url.User})
	if err != nil {
		t.Fatal(err)
	}
	admin, err := ssoadmin.NewClient(ctx, c.Client)
	v.passes(t, "new client")
	if err != nil {
		t.Fatal(err)
	}
	run(t, v, []step{
		{"login", func() error { return admin.Login(admin.WithHeader(ctx, soap.Header{Security: signer})) }},
		{"create a user", func() error {
			return admin.CreatePersonUser(ctx, "someone", ssotypes.AdminPersonDetails{EmailAddress: "a@b.c"}, "Passw0rd!")
		}},
		{"find", func() error { _, err := admin.FindUser(ctx, "someone"); return err }},
		{"find people", func() error { _, err := admin.FindPersonUsers(ctx, ""); return err }},
		{"change the password", func() error { return admin.ResetPersonPassword(ctx, "someone", "Passw0rd?") }},
		{"create a group", func() error { return admin.CreateGroup(ctx, "group", ssotypes.AdminGroupDetails{Description: "d"}) }},
		{"groups", func() error { _, err := admin.FindGroups(ctx, ""); return err }},
		{"join", func() error {
			return admin.AddUsersToGroup(ctx, "group", ssotypes.PrincipalId{Name: "someone", Domain: "vsphere.local"})
		}},
		{"parents", func() error {
			_, err := admin.FindParentGroups(ctx, ssotypes.PrincipalId{Name: "someone", Domain: "vsphere.local"})
			return err
		}},
		{"role", func() error {
			_, err := admin.SetRole(ctx, ssotypes.PrincipalId{Name: "someone", Domain: "vsphere.local"}, "RegularUser")
			return err
		}},
		{"policy", func() error { _, err := admin.GetLocalPasswordPolicy(ctx); return err }},
		{"delete", func() error { return admin.DeletePrincipal(ctx, "someone") }},
		{"sources", func() error { _, err := admin.IdentitySources(ctx); return err }},
		{"logout", func() error { return admin.Logout(ctx) }},
	})
	// A token also opens a vCenter session.
	fresh, err := vim25.NewClient(ctx, soap.NewClient(v.url, true))
	if err != nil {
		t.Fatal(err)
	}
	run(t, v, []step{{"login by token", func() error {
		return session.NewManager(fresh).LoginByToken(fresh.WithHeader(ctx, soap.Header{Security: signer}))
	}}})
}
