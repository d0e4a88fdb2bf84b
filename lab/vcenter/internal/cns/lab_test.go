package cns

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi"
	govcns "github.com/vmware/govmomi/cns"
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
	"vsphere-drivers.example/lab/vcenter/internal/profile"
)

const gib = 1 << 30

// lab is a stock govmomi inventory with our CNS, driven by govmomi's own clients.
type lab struct {
	*testing.T
	ctx        context.Context
	model      *simulator.Model
	manager    *Manager
	vim        *govmomi.Client
	cns        *govcns.Client
	datastores []types.ManagedObjectReference
	vms        []types.ManagedObjectReference
}

// options of a lab; the zero value is the default release on three datastores of 100 GiB.
type options struct {
	release     string
	machines    int
	assumptions map[string]any
	config      func(*Config)
	inventory   func(*simulator.Registry)
}

func newLab(t *testing.T, o options) *lab {
	t.Helper()
	l := &lab{T: t, ctx: context.Background(), model: simulator.VPX()}
	l.model.Datastore, l.model.Host, l.model.ClusterHost, l.model.Machine = 3, 0, 1, 3
	if o.machines > 0 {
		l.model.Machine = o.machines
	}
	if o.release == "" {
		o.release = profile.Default
	}
	release, err := profile.Lookup(o.release)
	l.must(err)
	l.model.ServiceContent.About.ApiVersion = release.APIVersion
	l.must(l.model.Create())
	t.Cleanup(l.model.Remove)

	registry := l.model.Map()
	for _, ref := range registry.AllReference("Datastore") {
		datastore := ref.(*simulator.Datastore)
		datastore.Summary.Capacity, datastore.Summary.FreeSpace = 100*gib, 100*gib
		l.datastores = append(l.datastores, datastore.Self)
	}
	for _, ref := range registry.AllReference("VirtualMachine") {
		l.vms = append(l.vms, ref.Reference())
	}
	slices.SortFunc(l.datastores, compareRefs)
	slices.SortFunc(l.vms, compareRefs)
	if o.inventory != nil {
		o.inventory(registry)
	}

	assumed, err := assume.For(release)
	l.must(err)
	l.must(assumed.Set(o.assumptions))
	cfg := Config{Profile: release, Assumptions: assumed}
	if o.config != nil {
		o.config(&cfg)
	}
	l.manager, err = Install(l.model.Service, registry, cfg)
	l.must(err)
	server := l.model.Service.NewServer()
	t.Cleanup(server.Close)
	server.Config.Handler = l.manager.Correct(server.Config.Handler)
	l.vim, err = govmomi.NewClient(l.ctx, server.URL, true)
	l.must(err)
	l.cns, err = govcns.NewClient(l.ctx, l.vim.Client)
	l.must(err)
	return l
}

// assume switches assumptions.
func (l *lab) assume(changes map[string]any) {
	l.Helper()
	l.must(l.manager.Assumptions().Set(changes))
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// ended reads a task until it has ended. Waiting for updates would be right for a client, but vcsim collects those for
// 20 ms, which hundreds of tasks make long.
func (l *lab) ended(task *object.Task, err error) types.TaskInfo {
	l.Helper()
	l.must(err)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		var got mo.Task
		l.must(property.DefaultCollector(task.Client()).RetrieveOne(l.ctx, task.Reference(), []string{"info"}, &got))
		if got.Info.State == types.TaskInfoStateSuccess || got.Info.State == types.TaskInfoStateError {
			return got.Info
		}
	}
	l.Fatalf("%s did not end", task.Reference().Value)
	return types.TaskInfo{}
}

// results waits for a task that must succeed.
func (l *lab) results(task *object.Task, err error) []cnstypes.BaseCnsVolumeOperationResult {
	l.Helper()
	info := l.ended(task, err)
	if info.Error != nil {
		l.Fatalf("task failed: %s %+v", info.Error.LocalizedMessage, info.Error.Fault)
	}
	list, err := govcns.GetTaskResultArray(l.ctx, &info)
	l.must(err)
	return list
}

// result waits for a task with one volume, which must have succeeded.
func (l *lab) result(task *object.Task, err error) cnstypes.BaseCnsVolumeOperationResult {
	l.Helper()
	list := l.results(task, err)
	if fault := list[0].GetCnsVolumeOperationResult().Fault; fault != nil {
		l.Fatalf("unexpected fault: %s %+v", fault.LocalizedMessage, fault.Fault)
	}
	return list[0]
}

// wantVolumeFault expects the fault of one volume in a task that succeeds.
func (l *lab) wantVolumeFault(fault types.BaseMethodFault, task *object.Task, err error) *types.LocalizedMethodFault {
	l.Helper()
	got := l.results(task, err)[0].GetCnsVolumeOperationResult().Fault
	if got == nil {
		l.Fatalf("no fault, want %T", fault)
	}
	l.sameFault(got.Fault, fault)
	return got
}

// wantTaskFault expects the task itself to fail.
func (l *lab) wantTaskFault(fault types.BaseMethodFault, task *object.Task, err error) {
	l.Helper()
	info := l.ended(task, err)
	if info.Error == nil {
		l.Fatalf("task succeeded, want %T", fault)
	}
	l.sameFault(info.Error.Fault, fault)
}

// wantCallFault expects the call to be refused before there is a task.
func (l *lab) wantCallFault(fault types.BaseMethodFault, _ *object.Task, err error) {
	l.Helper()
	if !soap.IsSoapFault(err) {
		l.Fatalf("call gave %v, want %T", err, fault)
	}
	l.sameFault(soap.ToSoapFault(err).VimFault(), fault)
}

// sameFault compares types, and the field that names the mistake.
func (l *lab) sameFault(got any, want types.BaseMethodFault) {
	l.Helper()
	gotValue := reflect.Indirect(reflect.ValueOf(got))
	if !gotValue.IsValid() || gotValue.Type() != reflect.TypeOf(want).Elem() {
		l.Fatalf("fault is %T %+v, want %T", got, got, want)
	}
	if wanted, ok := want.(*types.InvalidArgument); ok {
		if property := gotValue.FieldByName("InvalidProperty").String(); !strings.Contains(property, wanted.InvalidProperty) {
			l.Fatalf("invalid property is %s, want %s", property, wanted.InvalidProperty)
		}
	}
	if wanted, ok := want.(*cnstypes.CnsFault); ok && wanted.Reason != "" {
		if reason := gotValue.FieldByName("Reason").String(); !strings.Contains(reason, wanted.Reason) {
			l.Fatalf("reason is %q, want %q", reason, wanted.Reason)
		}
	}
}

func cluster(id string) cnstypes.CnsContainerCluster {
	return cnstypes.CnsContainerCluster{
		ClusterType: "KUBERNETES", ClusterId: id, VSphereUser: "user", ClusterFlavor: "VANILLA", ClusterDistribution: "vanilla",
	}
}

func (l *lab) blockSpec(name string, capacityMB int64) cnstypes.CnsVolumeCreateSpec {
	return cnstypes.CnsVolumeCreateSpec{
		Name: name, VolumeType: "BLOCK", Datastores: l.datastores,
		Metadata: cnstypes.CnsVolumeMetadata{
			ContainerCluster: cluster("c1"), ContainerClusterArray: []cnstypes.CnsContainerCluster{cluster("c1")},
		},
		BackingObjectDetails: &cnstypes.CnsBlockBackingDetails{CnsBackingObjectDetails: cnstypes.CnsBackingObjectDetails{CapacityInMb: capacityMB}},
	}
}

func (l *lab) create(specs ...cnstypes.CnsVolumeCreateSpec) (*object.Task, error) {
	return l.cns.CreateVolume(l.ctx, specs)
}

// newVolume makes a block volume of 1 GiB and gives its id.
func (l *lab) newVolume(name string) string {
	l.Helper()
	return l.result(l.create(l.blockSpec(name, 1024))).GetCnsVolumeOperationResult().VolumeId.Id
}

// quickVolume makes a volume without the client, for tests that need many.
func (l *lab) quickVolume() string {
	l.Helper()
	work, fault := l.manager.planCreate("user", []cnstypes.CnsVolumeCreateSpec{l.blockSpec("pvc", 1)})
	if fault != nil {
		l.Fatalf("create: %+v", fault)
	}
	result, _ := work()
	return result.(*cnstypes.CnsVolumeOperationBatchResult).VolumeResults[0].GetCnsVolumeOperationResult().VolumeId.Id
}

func (l *lab) newVolumes(count int) []string {
	l.Helper()
	var ids []string
	for i := range count {
		ids = append(ids, l.newVolume(fmt.Sprintf("pvc-%d", i)))
	}
	return ids
}

func volumeIDs(ids ...string) []cnstypes.CnsVolumeId {
	var list []cnstypes.CnsVolumeId
	for _, id := range ids {
		list = append(list, cnstypes.CnsVolumeId{Id: id})
	}
	return list
}

func (l *lab) attach(id string, vm types.ManagedObjectReference) (*object.Task, error) {
	return l.cns.AttachVolume(l.ctx, []cnstypes.CnsVolumeAttachDetachSpec{{VolumeId: cnstypes.CnsVolumeId{Id: id}, Vm: vm}})
}

func (l *lab) detach(id string, vm types.ManagedObjectReference) (*object.Task, error) {
	return l.cns.DetachVolume(l.ctx, []cnstypes.CnsVolumeAttachDetachSpec{{VolumeId: cnstypes.CnsVolumeId{Id: id}, Vm: vm}})
}

func (l *lab) delete(id string) (*object.Task, error) {
	return l.cns.DeleteVolume(l.ctx, volumeIDs(id), true)
}

func (l *lab) extend(id string, capacityMB int64) (*object.Task, error) {
	return l.cns.ExtendVolume(l.ctx, []cnstypes.CnsVolumeExtendSpec{{VolumeId: cnstypes.CnsVolumeId{Id: id}, CapacityInMb: capacityMB}})
}

func (l *lab) snapshot(id, description string) (*object.Task, error) {
	return l.cns.CreateSnapshots(l.ctx, []cnstypes.CnsSnapshotCreateSpec{{VolumeId: cnstypes.CnsVolumeId{Id: id}, Description: description}})
}

func (l *lab) newSnapshot(id string) string {
	l.Helper()
	return l.result(l.snapshot(id, "s")).(*cnstypes.CnsSnapshotCreateResult).Snapshot.SnapshotId.Id
}

// volume queries one volume that must be there.
func (l *lab) volume(id string) cnstypes.CnsVolume {
	l.Helper()
	found, err := l.cns.QueryVolume(l.ctx, &cnstypes.CnsQueryFilter{VolumeIds: volumeIDs(id)})
	l.must(err)
	if len(found.Volumes) != 1 {
		l.Fatalf("query of %s found %d volumes", id, len(found.Volumes))
	}
	return found.Volumes[0]
}

func (l *lab) exists(id string) bool {
	l.Helper()
	found, err := l.cns.QueryVolume(l.ctx, &cnstypes.CnsQueryFilter{VolumeIds: volumeIDs(id)})
	l.must(err)
	return len(found.Volumes) > 0
}

// devices reads a VM's devices with the property collector.
func (l *lab) devices(vm types.ManagedObjectReference) object.VirtualDeviceList {
	l.Helper()
	var got mo.VirtualMachine
	l.must(property.DefaultCollector(l.vim.Client).RetrieveOne(l.ctx, vm, []string{"config.hardware.device"}, &got))
	return object.VirtualDeviceList(got.Config.Hardware.Device)
}

// diskOf finds a volume's disk on a VM.
func (l *lab) diskOf(vm types.ManagedObjectReference, id string) *types.VirtualDisk {
	l.Helper()
	for _, device := range l.devices(vm) {
		if d, ok := device.(*types.VirtualDisk); ok && d.VDiskId != nil && d.VDiskId.Id == id {
			return d
		}
	}
	return nil
}

func (l *lab) free(datastore types.ManagedObjectReference) int64 {
	l.Helper()
	var got mo.Datastore
	l.must(property.DefaultCollector(l.vim.Client).RetrieveOne(l.ctx, datastore, []string{"summary", "info"}, &got))
	if got.Info.GetDatastoreInfo().FreeSpace != got.Summary.FreeSpace {
		l.Errorf("summary and info of %s disagree about free space", datastore.Value)
	}
	return got.Summary.FreeSpace
}
