package inventory

import (
	"context"
	"crypto/tls"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/simulator/vpx"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
	"vsphere-drivers.example/lab/vcenter/internal/profile"
	"vsphere-drivers.example/lab/vcenter/internal/world"
)

// lab is a built world behind a plain server, read by govmomi's client.
type lab struct {
	t      *testing.T
	ctx    context.Context
	inv    *Inventory
	client *govmomi.Client
}

func build(t *testing.T, text string) *lab {
	t.Helper()
	worlds, err := world.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	release, err := profile.Lookup(worlds[0].Release)
	if err != nil {
		t.Fatal(err)
	}
	ctx, instance := simulator.NewServiceInstance(simulator.NewContext(), vpx.ServiceContent, vpx.RootFolder)
	service := simulator.New(ctx, instance)
	assumed, err := assume.For(release)
	if err != nil {
		t.Fatal(err)
	}
	inv, err := Build(ctx, worlds[0], release, assumed)
	if err != nil {
		t.Fatal(err)
	}
	service.TLS = new(tls.Config)
	server := service.NewServer()
	t.Cleanup(server.Close)
	client, err := govmomi.NewClient(context.Background(), server.URL, true)
	if err != nil {
		t.Fatal(err)
	}
	return &lab{t: t, ctx: context.Background(), inv: inv, client: client}
}

func (l *lab) read(path string, properties []string, into any) types.ManagedObjectReference {
	l.t.Helper()
	ref := l.inv.At(path)
	if ref == nil {
		l.t.Fatalf("nothing was built at %s", path)
	}
	if err := l.client.RetrieveOne(l.ctx, *ref, properties, into); err != nil {
		l.t.Fatal(err)
	}
	return *ref
}

func TestEveryDescribedObjectIsAtItsPath(t *testing.T) {
	l := build(t, string(world.DefaultYAML()))
	w, err := world.Default()
	if err != nil {
		t.Fatal(err)
	}
	finder := find.NewFinder(l.client.Client)
	for path, kind := range w.Paths() {
		if path == "/" {
			continue
		}
		list, err := finder.ManagedObjectList(l.ctx, path)
		if err != nil || len(list) != 1 {
			t.Errorf("%s: %d objects, %v", path, len(list), err)
			continue
		}
		ref := list[0].Object.Reference()
		if got := strings.Replace(ref.Type, "DistributedVirtualSwitch", "VmwareDistributedVirtualSwitch", 1); ref.Type != kind && got != kind {
			t.Errorf("%s is a %s, not a %s", path, ref.Type, kind)
		}
		if at := l.inv.At(path); at == nil || *at != ref {
			t.Errorf("At(%s) is %v, the client finds %s", path, at, ref)
		}
		if back := l.inv.Path(ref); back != path {
			t.Errorf("%s says it is at %s", path, back)
		}
	}
}

func TestAVMHasEverythingTheDriversRead(t *testing.T) {
	l := build(t, string(world.DefaultYAML()))
	var vm mo.VirtualMachine
	ref := l.read("/dc-1/vm/k8s/node-1", nil, &vm)
	for what, got := range map[string]struct{ got, want any }{
		"config.uuid":                {vm.Config.Uuid, "4230b1a0-5eed-4000-8000-000000000001"},
		"summary.config.uuid":        {vm.Summary.Config.Uuid, vm.Config.Uuid},
		"config.version":             {vm.Config.Version, "vmx-19"},
		"flags.diskUuidEnabled":      {*vm.Config.Flags.DiskUuidEnabled, true},
		"runtime.powerState":         {vm.Runtime.PowerState, types.VirtualMachinePowerStatePoweredOn},
		"runtime.host":               {*vm.Runtime.Host, *l.inv.At("/dc-1/host/cluster-1/esx-1.lab.example")},
		"resourcePool":               {*vm.ResourcePool, *l.inv.At("/dc-1/host/cluster-1/Resources/k8s")},
		"datastore":                  {vm.Datastore[0], *l.inv.At("/dc-1/datastore/shared-1")},
		"network":                    {vm.Network[0], *l.inv.At("/dc-1/network/nodes")},
		"guest.hostName":             {vm.Guest.HostName, "node-1"},
		"guest.ipAddress":            {vm.Guest.IpAddress, "10.99.0.11"},
		"guest.net.network":          {vm.Guest.Net[0].Network, "nodes"},
		"guest.net.ipAddress":        {vm.Guest.Net[0].IpAddress[0], "10.99.0.11"},
		"guest.net.macAddress":       {vm.Guest.Net[0].MacAddress, "00:50:56:99:00:01"},
		"guest.net.ipConfig.prefix":  {vm.Guest.Net[0].IpConfig.IpAddress[0].PrefixLength, int32(24)},
		"guest.toolsRunningStatus":   {vm.Guest.ToolsRunningStatus, "guestToolsRunning"},
		"summary.guest.ipAddress":    {vm.Summary.Guest.IpAddress, "10.99.0.11"},
		"parent":                     {*vm.Parent, *l.inv.At("/dc-1/vm/k8s")},
		"disk.EnableUUID":            {object.OptionValueList(vm.Config.ExtraConfig).Map()["disk.EnableUUID"], "TRUE"},
		"config.datastoreUrl":        {vm.Config.DatastoreUrl[0].Url, "ds:///vmfs/volumes/5eed0001-00000001-0001-000000000001/"},
		"summary.config.numEthernet": {vm.Summary.Config.NumEthernetCards, int32(1)},
	} {
		if got.got != got.want {
			t.Errorf("%s is %v, want %v", what, got.got, got.want)
		}
	}
	devices := object.VirtualDeviceList(vm.Config.Hardware.Device)
	card := devices.FindByKey(vm.Guest.Net[0].DeviceConfigId)
	if card == nil || card.(types.BaseVirtualEthernetCard).GetVirtualEthernetCard().MacAddress != "00:50:56:99:00:01" {
		t.Errorf("the guest's card is not in the hardware: %v", card)
	}
	for _, device := range devices {
		d := device.GetVirtualDevice()
		if d.DeviceInfo == nil {
			t.Errorf("%T has no label", device)
		}
		if _, isController := device.(types.BaseVirtualController); !isController && (d.ControllerKey == 0 || d.UnitNumber == nil) {
			t.Errorf("%s has no slot", devices.Name(device))
		}
	}
	byUUID, err := object.NewSearchIndex(l.client.Client).FindByUuid(l.ctx, nil, vm.Config.Uuid, true, nil)
	if err != nil || byUUID == nil || byUUID.Reference() != ref {
		t.Errorf("FindByUuid: %v, %v", byUUID, err)
	}
	byName, err := object.NewSearchIndex(l.client.Client).FindAllByDnsName(l.ctx, nil, "node-1", true)
	if err != nil || len(byName) != 1 {
		t.Errorf("FindAllByDnsName: %v, %v", byName, err)
	}
}

// emptyEnums finds enumerations that are written without a value. Clients that read whole objects stumble over them.
func emptyEnums(v reflect.Value, at string) []string {
	var found []string
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return emptyEnums(v.Elem(), at)
		}
	case reflect.Slice:
		for i := range v.Len() {
			found = append(found, emptyEnums(v.Index(i), at)...)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			_, isEnum := f.Type.MethodByName("Strings")
			if isEnum && f.Type.Kind() == reflect.String && v.Field(i).IsZero() && !strings.Contains(f.Tag.Get("xml")+f.Tag.Get("json"), "omitempty") {
				found = append(found, at+"."+f.Name)
			} else if f.IsExported() {
				found = append(found, emptyEnums(v.Field(i), at+"."+f.Name)...)
			}
		}
	}
	return found
}

func TestNoEnumerationIsWrittenWithoutAValue(t *testing.T) {
	l := build(t, string(world.DefaultYAML()))
	v, err := view.NewManager(l.client.Client).CreateContainerView(l.ctx, l.client.ServiceContent.RootFolder, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	var members []types.ManagedObjectReference
	if members, err = v.Find(l.ctx, nil, nil); err != nil {
		t.Fatal(err)
	}
	if len(members) < 40 {
		t.Fatalf("only %d objects", len(members))
	}
	var content []types.ObjectContent
	if err := l.client.Retrieve(l.ctx, members, nil, &content); err != nil {
		t.Fatal(err)
	}
	for _, object := range content {
		for _, property := range object.PropSet {
			for _, at := range emptyEnums(reflect.ValueOf(property.Val), property.Name) {
				t.Errorf("%s: %s", object.Obj, at)
			}
		}
	}
}

func TestBuildingLeavesNoTasks(t *testing.T) {
	l := build(t, string(world.DefaultYAML()))
	var manager mo.TaskManager
	if err := l.client.RetrieveOne(l.ctx, *l.client.ServiceContent.TaskManager, []string{"recentTask"}, &manager); err != nil {
		t.Fatal(err)
	}
	var cluster mo.ClusterComputeResource
	l.read("/dc-1/host/cluster-1", []string{"recentTask"}, &cluster)
	if len(manager.RecentTask) != 0 || len(cluster.RecentTask) != 0 {
		t.Errorf("tasks %v and %v", manager.RecentTask, cluster.RecentTask)
	}
}

func TestAVMThatIsOffReportsNoGuest(t *testing.T) {
	l := build(t, string(world.DefaultYAML()))
	var vm mo.VirtualMachine
	l.read("/europe/dc-2/vm/old-vm", nil, &vm)
	if *vm.Config.Flags.DiskUuidEnabled || vm.Config.Version != "vmx-13" || vm.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOff {
		t.Errorf("version %s, power %s", vm.Config.Version, vm.Runtime.PowerState)
	}
	if len(vm.Guest.Net) != 0 || vm.Guest.HostName != "" || vm.Guest.ToolsRunningStatus != "guestToolsNotRunning" {
		t.Errorf("guest %+v", vm.Guest)
	}
}

func TestDatastoresHaveTypeSizeURLAndHosts(t *testing.T) {
	l := build(t, string(world.DefaultYAML()))
	for _, test := range []struct {
		path, kind, info string
		hosts            int
		capacity, free   int64
	}{
		{"/dc-1/datastore/shared-1", "VMFS", "*types.VmfsDatastoreInfo", 2, 2 << 40, 1500 << 30},
		{"/dc-1/datastore/vsan-1", "vsan", "*types.VsanDatastoreInfo", 2, 8 << 40, 6 << 40},
		{"/dc-1/datastore/nfs-1", "NFS", "*types.NasDatastoreInfo", 1, 1 << 40, 1 << 40},
		{"/dc-1/datastore/local-1", "VMFS", "*types.VmfsDatastoreInfo", 1, 500 << 30, 500 << 30},
		{"/dc-1/datastore/fast/pod-1", "VMFS", "*types.VmfsDatastoreInfo", 2, 1 << 40, 1 << 40},
	} {
		var ds mo.Datastore
		l.read(test.path, nil, &ds)
		if ds.Summary.Type != test.kind || len(ds.Host) != test.hosts || ds.Summary.Capacity != test.capacity || ds.Summary.FreeSpace != test.free {
			t.Errorf("%s: %+v on %d hosts", test.path, ds.Summary, len(ds.Host))
		}
		if got := fmt.Sprintf("%T", ds.Info); got != test.info {
			t.Errorf("%s has a %s", test.path, got)
		}
		if !strings.HasPrefix(ds.Summary.Url, "ds:///vmfs/volumes/") || ds.Info.GetDatastoreInfo().Url != ds.Summary.Url {
			t.Errorf("%s is at %s", test.path, ds.Summary.Url)
		}
		if *ds.Summary.MultipleHostAccess != (test.hosts > 1) {
			t.Errorf("%s: multiple host access is %v", test.path, *ds.Summary.MultipleHostAccess)
		}
	}
	var local mo.Datastore
	l.read("/dc-1/datastore/local-1", []string{"info"}, &local)
	if !*local.Info.(*types.VmfsDatastoreInfo).Vmfs.Local {
		t.Error("local-1 is not local")
	}
	var pod mo.StoragePod
	l.read("/dc-1/datastore/fast", nil, &pod)
	if len(pod.ChildEntity) != 2 || pod.Summary.Capacity != 2<<40 {
		t.Errorf("the datastore cluster has %v and %+v", pod.ChildEntity, pod.Summary)
	}
	var host mo.HostSystem
	l.read("/dc-1/host/cluster-1/esx-2.lab.example", []string{"datastore"}, &host)
	if len(host.Datastore) != 5 {
		t.Errorf("esx-2 mounts %d datastores", len(host.Datastore))
	}
}

func TestHostsTakeTheirDescribedState(t *testing.T) {
	l := build(t, `
datacenters:
  - name: dc
    clusters: [{name: c, folder: a/b, hosts: [{name: one, state: notResponding}, {name: two, maintenance: true}], pools: [x/y]}]
    datastores: [{name: ds}]
`)
	var host mo.HostSystem
	l.read("/dc/host/a/b/c/one", []string{"runtime", "summary.runtime"}, &host)
	if host.Runtime.ConnectionState != types.HostSystemConnectionStateNotResponding || host.Summary.Runtime.ConnectionState != host.Runtime.ConnectionState {
		t.Errorf("got %s", host.Runtime.ConnectionState)
	}
	l.read("/dc/host/a/b/c/two", []string{"runtime"}, &host)
	if !host.Runtime.InMaintenanceMode {
		t.Error("two is not in maintenance")
	}
	var pool mo.ResourcePool
	l.read("/dc/host/a/b/c/Resources/x/y", []string{"name", "summary", "owner"}, &pool)
	if pool.Summary.GetResourcePoolSummary().Name != "y" || pool.Owner != *l.inv.At("/dc/host/a/b/c") {
		t.Errorf("got %+v", pool)
	}
}

func TestIPv6OnlyGuestsHaveAnAddress(t *testing.T) {
	l := build(t, `
datacenters:
  - name: dc
    hosts: [{name: h}]
    datastores: [{name: ds}]
    vms: [{name: v, nics: [{addresses: ["fe80::1", "fd00::5/64"]}, {addresses: ["fd00::6"]}]}]
`)
	var vm mo.VirtualMachine
	l.read("/dc/vm/v", []string{"guest"}, &vm)
	if vm.Guest.IpAddress != "fd00::5" || len(vm.Guest.Net) != 2 || vm.Guest.Net[0].DeviceConfigId != 4000 {
		t.Errorf("got %+v", vm.Guest)
	}
}

func TestMovingToAnotherClusterChangesThePool(t *testing.T) {
	l := build(t, `
datacenters:
  - name: dc
    clusters: [{name: a, hosts: [{name: one}], pools: [k8s]}, {name: b, hosts: [{name: two}]}]
    datastores: [{name: ds}]
    vms: [{name: v, host: one, pool: k8s}]
`)
	vm, err := l.inv.FindVM("vm", "v")
	if err != nil {
		t.Fatal(err)
	}
	host, err := l.inv.FindHost("host", "two")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.inv.MoveToHost(vm, host); err != nil {
		t.Fatal(err)
	}
	var state mo.VirtualMachine
	l.read("/dc/vm/v", []string{"resourcePool", "runtime.host"}, &state)
	if *state.ResourcePool != *l.inv.At("/dc/host/b/Resources") || *state.Runtime.Host != *l.inv.At("/dc/host/b/two") {
		t.Errorf("the VM is in %v on %v", state.ResourcePool, state.Runtime.Host)
	}
	var pool mo.ResourcePool
	l.read("/dc/host/a/Resources/k8s", []string{"vm"}, &pool)
	if len(pool.Vm) != 0 {
		t.Errorf("the old pool still has %v", pool.Vm)
	}
}

func TestAVMMayHaveAnNVMeController(t *testing.T) {
	l := build(t, `
name: vc
datacenters:
  - name: dc
    clusters: [{name: c, hosts: [{name: h}]}]
    datastores: [{name: d}]
    vms: [{name: plain}, {name: fast, nvme: true}]
`)
	for path, want := range map[string]int{"/dc/vm/plain": 0, "/dc/vm/fast": 1} {
		var vm mo.VirtualMachine
		l.read(path, []string{"config.hardware.device"}, &vm)
		devices := object.VirtualDeviceList(vm.Config.Hardware.Device)
		found := devices.SelectByType((*types.VirtualNVMEController)(nil))
		if len(found) != want {
			t.Errorf("%s has %d NVMe controllers", path, len(found))
		}
		for _, controller := range found {
			if name := devices.Name(controller); name != "nvme-31000" {
				t.Errorf("the controller is %s", name)
			}
		}
	}
}
