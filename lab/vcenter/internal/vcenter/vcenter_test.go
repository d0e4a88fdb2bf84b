package vcenter

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/profile"
	"vsphere-drivers.example/lab/vcenter/internal/world"
)

const (
	admin         = "administrator@vsphere.local"
	adminPassword = "Lab-admin-1!"
)

func start(t *testing.T, w *world.World, options Options) *VCenter {
	t.Helper()
	vc, err := Start(w, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := vc.Close(); err != nil {
			t.Error(err)
		}
	})
	return vc
}

func defaultWorld(t *testing.T) *world.World {
	t.Helper()
	w, err := world.Default()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func login(t *testing.T, at *url.URL) *govmomi.Client {
	t.Helper()
	address := *at
	address.User = url.UserPassword(admin, adminPassword)
	client, err := govmomi.NewClient(context.Background(), &address, true)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestTenThousandVMsAreServed(t *testing.T) {
	w := defaultWorld(t)
	w.Grow(10_000)
	vc := start(t, w, Options{})
	client := login(t, vc.URL)
	ctx := context.Background()
	vms, err := view.NewManager(client.Client).CreateContainerView(ctx, client.ServiceContent.RootFolder, []string{"VirtualMachine"}, true)
	if err != nil {
		t.Fatal(err)
	}
	var names []mo.VirtualMachine
	if err := vms.Retrieve(ctx, []string{"VirtualMachine"}, []string{"name"}, &names); err != nil {
		t.Fatal(err)
	}
	if len(names) != 10_003 {
		t.Errorf("a client sees %d VMs", len(names))
	}
	last := w.Datacenters[0].VMs[len(w.Datacenters[0].VMs)-1]
	found, err := object.NewSearchIndex(client.Client).FindByUuid(ctx, nil, last.UUID, true, nil)
	if err != nil || found == nil {
		t.Errorf("FindByUuid: %v, %v", found, err)
	}
}

func TestTheVersionsOfAReleaseHaveNoGaps(t *testing.T) {
	for release, want := range map[string]map[string]string{
		"6.7U3": {
			"vimServiceVersions.xml":  "6.7.3 6.7.2 6.7.1 6.7 6.5 6.0 5.5 5.1 5.0 4.1 4.0",
			"vsanServiceVersions.xml": "vSAN 6.7U3,6.8.7,vSAN 6.7U1,VMC M5,6.7,6.7.0,6.6.2,6.6.1,6.6",
		},
		"8.0U3": {
			// As a vCenter of 8.0 lists them, in pyVmomi's fixture smart_connection.
			"vimServiceVersions.xml": "8.0.3.0 8.0.2.0 8.0.1.0 8.0.0.2 8.0.0.1 8.0.0.0 7.0.3.2 7.0.3.1 7.0.3.0 7.0.2.1 7.0.2.0 7.0.1.1 7.0.1.0 " +
				"7.0.0.2 7.0.0.0 6.9.1 6.8.7 6.7.3 6.7.2 6.7.1 6.7 6.5 6.0 5.5 5.1 5.0 4.1 4.0",
			"vsanServiceVersions.xml": "8.0.3.0,8.0.0.4,8.0.0.3,8.0.0.2,8.0.0.1,7.4,vSAN 7.0U3,7.3,vSAN 7.0U2,vSAN 7.0U1,7.2,7.1,7.0," +
				"vSAN 6.7U3,6.8.7,vSAN 6.7U1,VMC M5,6.7,6.7.0,6.6.2,6.6.1,6.6",
		},
	} {
		w := defaultWorld(t)
		w.Release = release
		vc := start(t, w, Options{})
		for file, versions := range want {
			separator := " "
			if strings.Contains(versions, ",") {
				separator = ","
			}
			var got []string
			for _, match := range regexp.MustCompile("<version>(.*?)</version>").FindAllStringSubmatch(get(t, vc, "/sdk/"+file), -1) {
				got = append(got, match[1])
			}
			if strings.Join(got, separator) != versions {
				t.Errorf("%s of %s:\ngot  %v\nwant %s", file, release, got, versions)
			}
		}
	}
}

func TestEveryReleaseSaysWhatItIs(t *testing.T) {
	for _, release := range profile.All {
		t.Run(release.Name, func(t *testing.T) {
			w := defaultWorld(t)
			w.Release = release.Name
			vc := start(t, w, Options{})
			client := login(t, vc.URL)
			about := client.ServiceContent.About
			if about.ApiVersion != release.APIVersion || about.Build != release.Build || about.Version != release.Version {
				t.Errorf("got %+v", about)
			}
			if about.InstanceUuid != w.InstanceUUID || about.ApiType != "VirtualCenter" {
				t.Errorf("instance UUID %s, type %s", about.InstanceUuid, about.ApiType)
			}
			for file, want := range map[string]string{
				"vimServiceVersions.xml":  release.APIVersion,
				"vsanServiceVersions.xml": release.VSANVersion,
			} {
				text := get(t, vc, "/sdk/"+file)
				if first := strings.Index(text, "<version>"+want+"</version>"); first < 0 || first > strings.Index(text, "<priorVersions>") {
					t.Errorf("%s: %s", file, text)
				}
			}
			var host mo.HostSystem
			one(t, client, "HostSystem", "esx-1.lab.example", []string{"summary.config.product", "config.product"}, &host)
			if host.Summary.Config.Product.Version != release.Version || host.Config.Product.Version != release.Version {
				t.Errorf("host has version %s", host.Summary.Config.Product.Version)
			}
		})
	}
}

func get(t *testing.T, vc *VCenter, path string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	answer, err := client.Get("https://" + vc.URL.Host + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// one reads properties of the object with the given name.
func one(t *testing.T, client *govmomi.Client, kind, name string, properties []string, into any) types.ManagedObjectReference {
	t.Helper()
	ctx := context.Background()
	finder := find.NewFinder(client.Client)
	refs, err := finder.ManagedObjectListChildren(ctx, "/...")
	if err != nil {
		t.Fatal(err)
	}
	for _, element := range refs {
		ref := element.Object.Reference()
		if ref.Type == kind && strings.HasSuffix(element.Path, "/"+name) {
			if into != nil {
				if err := client.RetrieveOne(ctx, ref, properties, into); err != nil {
					t.Fatal(err)
				}
			}
			return ref
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return types.ManagedObjectReference{}
}

func TestSeveralVCentersRunSideBySide(t *testing.T) {
	first := start(t, defaultWorld(t), Options{})
	other := defaultWorld(t)
	other.Name, other.InstanceUUID, other.Release = "second", "11111111-5eed-4000-8000-000000000001", "7.0U3"
	second := start(t, other, Options{})
	a, b := login(t, first.URL), login(t, second.URL)
	if a.ServiceContent.About.InstanceUuid == b.ServiceContent.About.InstanceUuid || b.ServiceContent.About.ApiVersion != "7.0.3.0" {
		t.Error("the vCenters are not told apart")
	}
	ctx := context.Background()
	vm := object.NewVirtualMachine(a.Client, one(t, a, "VirtualMachine", "node-1", nil, nil))
	task, err := vm.PowerOff(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	var twin mo.VirtualMachine
	one(t, b, "VirtualMachine", "node-1", []string{"runtime.powerState"}, &twin)
	if twin.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOn {
		t.Error("powering off in one vCenter changed the other")
	}
	short, long := first.Thumbprints()
	otherShort, _ := second.Thumbprints()
	if short == otherShort || len(short) != 59 || len(long) != 95 {
		t.Errorf("thumbprints %s %s", short, otherShort)
	}
}

func TestBothLoopbackFamiliesReachTheSameVCenter(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	if vc.URL6 == nil {
		t.Skip("this machine has no IPv6")
	}
	if vc.URL6.Port() != vc.URL.Port() {
		t.Errorf("ports %s and %s", vc.URL.Port(), vc.URL6.Port())
	}
	if got := login(t, vc.URL6).ServiceContent.About.InstanceUuid; got != vc.World.InstanceUUID {
		t.Error(got)
	}
}

func TestTheCertificateComesFromTheGivenAuthority(t *testing.T) {
	authority, text, err := NewAuthority("test authority")
	if err != nil {
		t.Fatal(err)
	}
	vc := start(t, defaultWorld(t), Options{Authority: authority, Names: []string{"vc.lab.example"}})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	for _, name := range []string{"127.0.0.1", "::1", "localhost", "vc.lab.example"} {
		conn, err := tls.Dial("tcp", vc.URL.Host, &tls.Config{RootCAs: roots, ServerName: name})
		if err != nil {
			t.Errorf("%s: %s", name, err)
			continue
		}
		_ = conn.Close()
	}
	elsewhere := start(t, defaultWorld(t), Options{Authority: authority, Listen: "127.0.0.2:0"})
	if conn, err := tls.Dial("tcp", elsewhere.URL.Host, &tls.Config{RootCAs: roots}); err != nil {
		t.Errorf("the certificate lacks the address it listens on: %s", err)
	} else {
		_ = conn.Close()
	}
	selfSigned := start(t, defaultWorld(t), Options{})
	if conn, err := tls.Dial("tcp", selfSigned.URL.Host, &tls.Config{RootCAs: roots}); err == nil {
		_ = conn.Close()
		t.Error("a self-signed certificate passed for one of the authority")
	}
	short, _ := selfSigned.Thumbprints()
	client := soap.NewClient(selfSigned.URL, false)
	client.SetThumbprint(selfSigned.URL.Host, short)
	if _, err := vim25.NewClient(context.Background(), client); err != nil {
		t.Errorf("pinned by thumbprint: %s", err)
	}
}

func TestAWrongPasswordIsRefused(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	address := *vc.URL
	address.User = url.UserPassword(admin, "wrong")
	_, err := govmomi.NewClient(context.Background(), &address, true)
	if err == nil || !soap.IsSoapFault(err) {
		t.Fatal(err)
	}
	if _, ok := soap.ToSoapFault(err).VimFault().(types.InvalidLogin); !ok {
		t.Errorf("got %T", soap.ToSoapFault(err).VimFault())
	}
}

func TestEnablingDiskUUIDsShowsInTheFlags(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := login(t, vc.URL)
	ctx := context.Background()
	var vm mo.VirtualMachine
	ref := one(t, client, "VirtualMachine", "old-vm", []string{"config.flags"}, &vm)
	if *vm.Config.Flags.DiskUuidEnabled {
		t.Fatal("the description says it is off")
	}
	task, err := object.NewVirtualMachine(client.Client, ref).Reconfigure(ctx, types.VirtualMachineConfigSpec{
		ExtraConfig: []types.BaseOptionValue{&types.OptionValue{Key: "disk.EnableUUID", Value: "TRUE"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if err := client.RetrieveOne(ctx, ref, []string{"config.flags"}, &vm); err != nil {
		t.Fatal(err)
	}
	if !*vm.Config.Flags.DiskUuidEnabled {
		t.Error("config.flags.diskUuidEnabled did not follow disk.EnableUUID")
	}
}

func TestDestroyingTheRootFolderIsRefused(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := login(t, vc.URL)
	_, err := object.NewRootFolder(client.Client).Destroy(context.Background())
	if err == nil || !soap.IsSoapFault(err) {
		t.Fatal(err)
	}
	if _, ok := soap.ToSoapFault(err).VimFault().(types.NotSupported); !ok {
		t.Errorf("got %T", soap.ToSoapFault(err).VimFault())
	}
}

func TestATaskThatPanicsEndsInAFault(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := login(t, vc.URL)
	ctx := context.Background()
	folder := object.NewFolder(client.Client, *vc.Inventory.At("/dc-1/vm"))
	pool := object.NewResourcePool(client.Client, *vc.Inventory.At("/dc-1/host/cluster-1/Resources"))
	task, err := folder.CreateVM(ctx, types.VirtualMachineConfigSpec{
		Name: "x", Files: &types.VirtualMachineFileInfo{VmPathName: "[no such datastore]"},
	}, pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Wait(ctx); err == nil {
		t.Error("a VM was made on a datastore that is not there")
	}
	if _, err := methods.GetCurrentTime(ctx, client); err != nil {
		t.Errorf("afterwards: %s", err)
	}
}

// Reconfiguration is planned for a VM that is not there, which the library does not expect.
func TestACallThatPanicsEndsInAFaultAndBlocksNobody(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := login(t, vc.URL)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cluster := object.NewClusterComputeResource(client.Client, *vc.Inventory.At("/dc-1/host/cluster-1"))
	for range 2 {
		_, err := cluster.PlaceVm(ctx, types.PlacementSpec{
			PlacementType: string(types.PlacementSpecPlacementTypeReconfigure), ConfigSpec: new(types.VirtualMachineConfigSpec),
			Vm: &types.ManagedObjectReference{Type: "VirtualMachine", Value: "vm-none"},
		})
		if err == nil || !soap.IsSoapFault(err) {
			t.Fatal(err)
		}
		if fault, ok := soap.ToSoapFault(err).VimFault().(types.SystemError); !ok || fault.Reason == "" {
			t.Errorf("got %T", soap.ToSoapFault(err).VimFault())
		}
	}
	var got mo.ClusterComputeResource
	if err := login(t, vc.URL).RetrieveOne(ctx, cluster.Reference(), []string{"name"}, &got); err != nil || got.Name != "cluster-1" {
		t.Errorf("afterwards: %q, %v", got.Name, err)
	}
}

func TestRefreshingADatastoreKeepsItsSize(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := login(t, vc.URL)
	ctx := context.Background()
	ref := *vc.Inventory.At("/dc-1/datastore/shared-1")
	if _, err := methods.RefreshDatastore(ctx, client, &types.RefreshDatastore{This: ref}); err != nil {
		t.Fatal(err)
	}
	var store mo.Datastore
	if err := client.RetrieveOne(ctx, ref, []string{"summary"}, &store); err != nil {
		t.Fatal(err)
	}
	if store.Summary.Capacity != 2<<40 || store.Summary.FreeSpace != 1500<<30 {
		t.Errorf("got %+v", store.Summary)
	}
}

func TestTheClockCanBeSkewed(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := login(t, vc.URL)
	ctx := context.Background()
	vc.Clock.SetSkew(-2 * time.Hour)
	now, err := methods.GetCurrentTime(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	if behind := time.Since(*now); behind < 119*time.Minute || behind > 121*time.Minute {
		t.Errorf("vCenter is %s behind", behind)
	}
	host := object.NewHostSystem(client.Client, one(t, client, "HostSystem", "esx-1.lab.example", nil, nil))
	system, err := host.ConfigManager().DateTimeSystem(ctx)
	if err != nil {
		t.Fatal(err)
	}
	hostTime, err := system.Query(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if behind := time.Since(*hostTime); behind < 119*time.Minute || behind > 121*time.Minute {
		t.Errorf("the host is %s behind", behind)
	}
}

func TestARestartEndsSessionsAndTasksAndKeepsTheInventory(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := login(t, vc.URL)
	ctx := context.Background()
	ref := one(t, client, "VirtualMachine", "node-1", nil, nil)
	vm := object.NewVirtualMachine(client.Client, ref)
	task, err := vm.PowerOff(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if len(vc.Sessions()) != 1 {
		t.Fatalf("%d sessions", len(vc.Sessions()))
	}
	vc.Restart(0)
	if len(vc.Sessions()) != 0 {
		t.Errorf("%d sessions survived", len(vc.Sessions()))
	}
	var state mo.VirtualMachine
	err = retry(func() error { _, err := vm.PowerOn(ctx); return err })
	if err == nil || !soap.IsSoapFault(err) {
		t.Fatalf("a call with the old session gave %v", err)
	}
	if _, ok := soap.ToSoapFault(err).VimFault().(types.NotAuthenticated); !ok {
		t.Errorf("a call with the old session gave %T", soap.ToSoapFault(err).VimFault())
	}
	again := login(t, vc.URL)
	if err := again.RetrieveOne(ctx, ref, []string{"runtime.powerState"}, &state); err != nil {
		t.Fatal(err)
	}
	if state.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOff {
		t.Error("the restart undid a power off")
	}
	var gone mo.Task
	if err := again.RetrieveOne(ctx, task.Reference(), []string{"info"}, &gone); err == nil {
		t.Error("the task survived")
	}
}

// retry repeats a call that meets connections the restart has cut.
func retry(call func() error) error {
	var err error
	for range 5 {
		if err = call(); err == nil || soap.IsSoapFault(err) {
			return err
		}
	}
	return err
}

func TestARestartCancelsWaits(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := login(t, vc.URL)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	ref := one(t, client, "VirtualMachine", "node-1", nil, nil)
	go func() {
		done <- object.NewVirtualMachine(client.Client, ref).WaitForPowerState(ctx, types.VirtualMachinePowerStateSuspended)
	}()
	for !vc.waits() && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	vc.Restart(0)
	select {
	case err := <-done:
		if err == nil {
			t.Error("the wait ended well")
		}
	case <-ctx.Done():
		t.Error("the wait goes on")
	}
}

// waits tells whether some client has called WaitForUpdatesEx.
func (v *VCenter) waits() bool {
	for _, call := range v.Traffic.Calls() {
		if call.Method == "WaitForUpdatesEx" && call.Count > 1 {
			return true
		}
	}
	return false
}

func TestFilesCanBeWrittenToDatastores(t *testing.T) {
	home := t.TempDir()
	t.Chdir(home)
	vc := start(t, defaultWorld(t), Options{Home: home})
	client := login(t, vc.URL)
	ctx := context.Background()
	finder := find.NewFinder(client.Client)
	dc, err := finder.Datacenter(ctx, "/dc-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := object.NewFileManager(client.Client).MakeDirectory(ctx, "[shared-1] kubevols", dc, true); err != nil {
		t.Fatal(err)
	}
	task, err := object.NewVirtualDiskManager(client.Client).CreateVirtualDisk(ctx, "[shared-1] kubevols/a.vmdk", dc,
		&types.FileBackedVirtualDiskSpec{
			VirtualDiskSpec: types.VirtualDiskSpec{AdapterType: "lsiLogic", DiskType: "thin"}, CapacityKb: 1024,
		})
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}
