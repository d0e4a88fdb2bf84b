package vcenter

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi"
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/pbm"
	pbmtypes "github.com/vmware/govmomi/pbm/types"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"

	"vsphere-drivers.example/lab/vcenter/internal/traffic"
)

// The tests of this file go through the whole vCenter, with strict mode on. Stock vcsim can do none of it.

// send posts a request as it is, with the session of the client if there is one.
func send(t *testing.T, vc *VCenter, client *govmomi.Client, path, action, body string) (int, string) {
	t.Helper()
	text := `<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><Body>` + body + `</Body></Envelope>`
	request, err := http.NewRequest(http.MethodPost, "https://"+vc.URL.Host+path, bytes.NewBufferString(text))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("SOAPAction", action)
	if client != nil {
		for _, cookie := range client.Jar.Cookies(client.URL()) {
			request.AddCookie(cookie)
		}
	}
	plain := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer plain.CloseIdleConnections()
	answer, err := plain.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(got)
}

func TestStrictModeIsOnByDefault(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := login(t, vc.URL)
	const this, vim = `<_this type="PropertyCollector">propertyCollector</_this>`, "urn:vim25/8.0.3.0"
	read := `<RetrievePropertiesEx xmlns="urn:vim25">` + this + `<specSet><propSet><type>Folder</type><pathSet>name</pathSet></propSet>` +
		`<objectSet><obj type="Folder">group-d1</obj></objectSet></specSet><options></options></RetrievePropertiesEx>`
	for name, c := range map[string]struct {
		client             *govmomi.Client
		path, action, body string
		want               string // in the fault; empty: accepted
	}{
		"a right request":     {client, "/sdk", vim, read, ""},
		"no session":          {nil, "/sdk", vim, read, "NotAuthenticated"},
		"a wrong order":       {client, "/sdk", vim, strings.Replace(read, "<type>Folder</type><pathSet>name</pathSet>", "<pathSet>name</pathSet><type>Folder</type>", 1), "InvalidRequest"},
		"an unknown element":  {client, "/sdk", vim, strings.Replace(read, "<options>", "<colour>red</colour><options>", 1), "InvalidRequest"},
		"a missing xsi:type":  {client, "/sdk", vim, strings.Replace(read, "</objectSet>", `<selectSet xsi:type="TraversalSpec"><name>a</name><type>Folder</type><path>childEntity</path><selectSet><name>a</name></selectSet></selectSet></objectSet>`, 1), ""},
		"a wrong namespace":   {client, "/sdk", "urn:sms/2.0", read, "VersionMismatchFaultCode"},
		"an unknown method":   {client, "/sdk", vim, `<Explode xmlns="urn:vim25">` + this + `</Explode>`, "InvalidRequest"},
		"Fetch, no session":   {nil, "/sdk", vim, `<Fetch xmlns="urn:vim25"><_this type="Folder">group-d1</_this><prop>name</prop></Fetch>`, "NotAuthenticated"},
		"CNS without a type":  {client, "/vsanHealth", "urn:vsan/8.0.3.0", `<CnsQueryVolume xmlns="urn:vsan"><_this type="CnsVolumeManager">cns-volume-manager</_this><filter></filter></CnsQueryVolume>`, ""},
		"an abstract type":    {client, "/vsanHealth", "urn:vsan/8.0.3.0", `<CnsCreateVolume xmlns="urn:vsan"><_this type="CnsVolumeManager">cns-volume-manager</_this><createSpecs><name>a</name><volumeType>BLOCK</volumeType><volumeSource></volumeSource></createSpecs></CnsCreateVolume>`, "InvalidRequest"},
		"CNS without session": {nil, "/vsanHealth", "urn:vsan/8.0.3.0", `<CnsQueryVolume xmlns="urn:vsan"><_this type="CnsVolumeManager">cns-volume-manager</_this><filter xsi:type="CnsQueryFilter"></filter></CnsQueryVolume>`, "NotAuthenticated"},
		"newer than 8.0U3": {client, "/vsanHealth", "urn:vsan/8.0.3.0",
			`<CnsUnregisterVolume xmlns="urn:vsan"><_this type="CnsVolumeManager">cns-volume-manager</_this></CnsUnregisterVolume>`, "InvalidRequest"},
	} {
		status, got := send(t, vc, c.client, c.path, c.action, c.body)
		if c.want == "" {
			if status != http.StatusOK {
				t.Errorf("%s: %d %s", name, status, got)
			}
			continue
		}
		if status != http.StatusInternalServerError || !strings.Contains(got, c.want) {
			t.Errorf("%s: %d %s, want %s", name, status, got, c.want)
		}
	}
}

// denied expects NoPermission with this privilege.
func denied(t *testing.T, what string, err error, privilege string) {
	t.Helper()
	var refused *types.NoPermission
	if _, ok := fault.As(err, &refused); !ok || refused.PrivilegeId != privilege || refused.Object == nil {
		t.Errorf("%s: %v %+v, want NoPermission for %s", what, err, refused, privilege)
	}
}

func TestPrivilegesAreCheckedByEveryService(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	ctx := context.Background()
	reader := loginAs(t, vc, "cpi@vsphere.local", "Lab-cpi-1!")
	_, err := volumes(t, reader).QueryVolume(ctx, &cnstypes.CnsQueryFilter{})
	denied(t, "CNS", err, "Cns.Searchable")
	policies, err := pbm.NewClient(ctx, reader.Client)
	if err != nil {
		t.Fatal(err)
	}
	_, err = policies.QueryProfile(ctx, pbmtypes.PbmProfileResourceType{ResourceType: "STORAGE"}, "")
	denied(t, "PBM", err, "StorageProfile.View")
	disks, err := vslm.NewClient(ctx, reader.Client)
	if err != nil {
		t.Fatal(err)
	}
	spec := types.VslmCreateSpec{Name: "fcd", CapacityInMB: 1, BackingSpec: &types.VslmCreateSpecDiskFileBackingSpec{
		VslmCreateSpecBackingSpec: types.VslmCreateSpecBackingSpec{Datastore: *vc.Inventory.At("/dc-1/datastore/shared-1")},
	}}
	_, err = vslm.NewGlobalObjectManager(disks).CreateDisk(ctx, spec)
	denied(t, "VSLM", err, "Datastore.FileManagement")
	_, err = vslm.NewObjectManager(reader.Client).CreateDisk(ctx, spec)
	denied(t, "FCDs of vim25", err, "Datastore.FileManagement")
	_, err = object.NewAuthorizationManager(reader.Client).AddRole(ctx, "mine", nil)
	denied(t, "roles", err, "Authorization.ModifyRoles")
	api := rest.NewClient(reader.Client)
	if err := api.Login(ctx, url.UserPassword("cpi@vsphere.local", "Lab-cpi-1!")); err != nil {
		t.Fatal(err)
	}
	if _, err := tags.NewManager(api).CreateCategory(ctx, &tags.Category{Name: "mine", Cardinality: "SINGLE"}); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("tags: %v", err)
	}

	driver := loginAs(t, vc, csiUser, csiPassword)
	create := createSpec(vc, "pvc", gold)
	create[0].Profile, create[0].Datastores = nil, []types.ManagedObjectReference{*vc.Inventory.At("/dc-1/datastore/nfs-1")}
	task, err := volumes(t, driver).CreateVolume(ctx, create)
	placed := result(t, task, err).(*cnstypes.CnsVolumeCreateResult).PlacementResults
	if len(placed) != 1 || !strings.Contains(fmt.Sprintf("%T", placed[0].PlacementFaults[0].Fault), "CnsMissingPrivilegeFault") {
		t.Errorf("a datastore that is not the driver's: %+v", placed)
	}
	if len(vc.CNS().Volumes()) != 0 {
		t.Error("something was made all the same")
	}
}

func TestOn67OneDatastoreWithoutPrivilegeFailsACreate(t *testing.T) {
	w := defaultWorld(t)
	w.Release = "6.7U3"
	vc := start(t, w, Options{})
	client := loginAs(t, vc, csiUser, csiPassword)
	if err := client.UseServiceVersion("vsan"); err != nil {
		t.Fatal(err)
	}
	create := createSpec(vc, "pvc", gold) // whose datastores the other one is not among
	create[0].Datastores = append(create[0].Datastores, *vc.Inventory.At("/dc-1/datastore/nfs-1"))
	_, err := volumes(t, client).CreateVolume(context.Background(), create)
	denied(t, "a datastore that is not the driver's", err, "Datastore.FileManagement")
	if got := err.Error(); got != "ServerFaultCode: NoPermission" {
		t.Errorf("the text is %s", got)
	}
}

func TestARestartForgetsViewsFiltersAndRunningTasks(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := login(t, vc.URL)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	made, err := view.NewManager(client.Client).CreateContainerView(ctx, client.ServiceContent.RootFolder, []string{"VirtualMachine"}, true)
	if err != nil {
		t.Fatal(err)
	}
	collector, err := property.DefaultCollector(client.Client).Create(ctx)
	if err != nil {
		t.Fatal(err)
	}
	filter, err := collector.CreateFilter(ctx, types.CreateFilter{Spec: new(property.WaitFilter).Add(made.Reference(), "VirtualMachine", []string{"name"}, made.TraversalSpec()).Spec})
	if err != nil {
		t.Fatal(err)
	}
	vc.Traffic.AddCall(traffic.CallRule{Method: "PowerOffVM_Task", At: traffic.AtNever, Chance: traffic.Chance{Count: 1, Probability: 1}}, nil)
	task, err := object.NewVirtualMachine(client.Client, *vc.Inventory.At("/dc-1/vm/k8s/node-1")).PowerOff(ctx)
	if err != nil {
		t.Fatal(err)
	}
	vc.Restart(0)

	again := login(t, vc.URL)
	for what, call := range map[string]func() error{
		"the view": func() error {
			var view mo.ContainerView
			return again.RetrieveOne(ctx, made.Reference(), []string{"view"}, &view)
		},
		"the task": func() error {
			var state mo.Task
			return again.RetrieveOne(ctx, task.Reference(), []string{"info"}, &state)
		},
		"the collector": func() error {
			_, err := methods.WaitForUpdatesEx(ctx, again, &types.WaitForUpdatesEx{This: collector.Reference()})
			return err
		},
		"the filter": func() error {
			_, err := methods.DestroyPropertyFilter(ctx, again, &types.DestroyPropertyFilter{This: filter.Reference()})
			return err
		},
	} {
		var gone *types.ManagedObjectNotFound
		if _, ok := fault.As(call(), &gone); !ok {
			t.Errorf("%s is still there: %v", what, call())
		}
	}
}

func TestBothRESTPathsAreServedAndARestartEndsTheirSessions(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	plain := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer plain.CloseIdleConnections()
	ask := func(verb, path, session string) (int, string) {
		request, err := http.NewRequest(verb, "https://"+vc.URL.Host+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if session == "" {
			request.SetBasicAuth(csiUser, csiPassword)
		} else {
			request.Header.Set("vmware-api-session-id", session)
		}
		answer, err := plain.Do(request)
		if err != nil { // a connection that the restart cut
			if answer, err = plain.Do(request); err != nil {
				t.Fatal(err)
			}
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	status, text := ask(http.MethodPost, "/api/session", "")
	if status != http.StatusCreated {
		t.Fatalf("%d %s", status, text)
	}
	session := strings.Trim(strings.TrimSpace(text), `"`)
	for _, path := range []string{"/api/cis/tagging/category", "/rest/com/vmware/cis/tagging/category"} {
		if status, text := ask(http.MethodGet, path, session); status != http.StatusOK || !strings.Contains(text, "InventoryServiceCategory") {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	vc.Restart(0)
	if status, _ := ask(http.MethodGet, "/api/cis/tagging/category", session); status != http.StatusUnauthorized {
		t.Errorf("after the restart: %d", status)
	}
}

func TestAClientCanMoveAVM(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := login(t, vc.URL)
	ctx := context.Background()
	vm := object.NewVirtualMachine(client.Client, *vc.Inventory.At("/dc-1/vm/k8s/node-1"))
	move := func(host string, state types.VirtualMachinePowerState) error {
		task, err := vm.Migrate(ctx, nil, object.NewHostSystem(client.Client, *vc.Inventory.At(host)), types.VirtualMachineMovePriorityDefaultPriority, state)
		if err != nil {
			t.Fatal(err)
		}
		return task.Wait(ctx)
	}
	if err := move("/dc-1/host/cluster-1/esx-2.lab.example", ""); err != nil {
		t.Fatal(err)
	}
	var state mo.VirtualMachine
	var host mo.HostSystem
	if err := client.RetrieveOne(ctx, vm.Reference(), []string{"runtime.host"}, &state); err != nil {
		t.Fatal(err)
	}
	if err := client.RetrieveOne(ctx, *vc.Inventory.At("/dc-1/host/cluster-1/esx-2.lab.example"), []string{"vm"}, &host); err != nil {
		t.Fatal(err)
	}
	if *state.Runtime.Host != host.Self || len(host.Vm) != 2 {
		t.Errorf("the VM is on %v, its new host has %v", state.Runtime.Host, host.Vm)
	}
	if err := move("/europe/dc-2/host/cluster-2/esx-3.lab.example", ""); !soapFault[*types.MigrationFault](err) {
		t.Errorf("to a host without its datastore: %v", err)
	}
	if err := move("/dc-1/host/cluster-1/esx-1.lab.example", types.VirtualMachinePowerStatePoweredOff); !soapFault[*types.InvalidPowerState](err) {
		t.Errorf("in another power state: %v", err)
	}
	_, err := object.NewVirtualMachine(loginAs(t, vc, "cpi@vsphere.local", "Lab-cpi-1!").Client, vm.Reference()).
		Migrate(ctx, nil, object.NewHostSystem(client.Client, host.Self), types.VirtualMachineMovePriorityDefaultPriority, "")
	denied(t, "by a reader", err, "Resource.HotMigrate")
	if _, err := vm.PowerState(ctx); err != nil { // its lock was given back
		t.Error(err)
	}
}

// soapFault tells whether an error is this fault, of a call or of a task.
func soapFault[F types.BaseMethodFault](err error) bool {
	var wanted F
	_, ok := fault.As(err, &wanted)
	return err != nil && (ok || soap.IsVimFault(err) && asFault[F](soap.ToVimFault(err)))
}

func asFault[F types.BaseMethodFault](got types.BaseMethodFault) bool {
	_, ok := got.(F)
	return ok
}

func TestADiskAttachedThroughVim25IsADevice(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := login(t, vc.URL)
	ctx := context.Background()
	spec := createSpec(vc, "pvc", gold)
	spec[0].Metadata.ContainerCluster.VSphereUser = admin
	task, err := volumes(t, client).CreateVolume(ctx, spec)
	id := result(t, task, err).GetCnsVolumeOperationResult().VolumeId.Id
	at, _ := vc.CNS().VolumeDatastore(id)
	vm := object.NewVirtualMachine(client.Client, *vc.Inventory.At("/dc-1/vm/k8s/node-1"))
	other := object.NewVirtualMachine(client.Client, *vc.Inventory.At("/dc-1/vm/k8s/node-2"))
	attach := func(vm *object.VirtualMachine, datastore types.ManagedObjectReference) error {
		return vm.AttachDisk(ctx, id, object.NewDatastore(client.Client, datastore), 0, nil)
	}
	if err := attach(vm, *vc.Inventory.At("/dc-1/datastore/nfs-1")); !soapFault[*types.InvalidDatastore](err) {
		t.Errorf("from another datastore: %v", err)
	}
	if err := attach(vm, at); err != nil {
		t.Fatal(err)
	}
	has := func() (found bool) {
		devices, err := vm.Device(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, device := range devices {
			if disk, ok := device.(*types.VirtualDisk); ok && disk.VDiskId != nil {
				found = disk.VDiskId.Id == id && disk.UnitNumber != nil
			}
		}
		return found
	}
	if !has() || len(vc.CNS().Attachments()) != 1 {
		t.Error("the VM has no such disk, or CNS does not know")
	}
	if err := attach(other, at); !soapFault[*types.ResourceInUse](err) {
		t.Errorf("to a second VM: %v", err)
	}
	if err := other.DetachDisk(ctx, id); !soapFault[*types.NotFound](err) {
		t.Errorf("detach from a VM without it: %v", err)
	}
	if err := vm.DetachDisk(ctx, id); err != nil || has() {
		t.Errorf("detach: %v, the VM has it: %v", err, has())
	}
	if err := vm.AttachDisk(ctx, "nope", object.NewDatastore(client.Client, at), 0, nil); !soapFault[*types.InvalidArgument](err) {
		t.Errorf("an unknown disk: %v", err)
	}
}

func TestSettingsOfAVMAreStoredAndCommandNothing(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := login(t, vc.URL)
	ctx := context.Background()
	vm := object.NewVirtualMachine(client.Client, *vc.Inventory.At("/dc-1/vm/k8s/node-1"))
	read := func() (settings map[string]any, guest, version string) {
		var state mo.VirtualMachine
		if err := client.RetrieveOne(ctx, vm.Reference(), []string{"config.extraConfig", "config.version", "guest.ipAddress"}, &state); err != nil {
			t.Fatal(err)
		}
		settings = map[string]any{}
		for _, option := range state.Config.ExtraConfig {
			settings[option.GetOptionValue().Key] = option.GetOptionValue().Value
		}
		return settings, state.Guest.IpAddress, state.Config.Version
	}
	set := func(value string) {
		var list []types.BaseOptionValue
		for _, key := range []string{"SET.guest.ipAddress", "SET.config.version", "ip0", "plain"} {
			list = append(list, &types.OptionValue{Key: key, Value: value})
		}
		task, err := vm.Reconfigure(ctx, types.VirtualMachineConfigSpec{ExtraConfig: list})
		if err == nil {
			err = task.Wait(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	set("10.0.0.1")
	set("10.0.0.2")
	settings, guest, version := read()
	if guest != "10.99.0.11" || version != "vmx-19" {
		t.Errorf("a setting changed the guest to %s or the hardware to %s", guest, version)
	}
	for _, key := range []string{"SET.guest.ipAddress", "SET.config.version", "ip0", "plain"} {
		if settings[key] != "10.0.0.2" {
			t.Errorf("%s is %v", key, settings[key])
		}
	}
	set("")
	if settings, _, _ = read(); settings["ip0"] != nil || settings["disk.EnableUUID"] != "TRUE" {
		t.Errorf("settings %v", settings)
	}
}
