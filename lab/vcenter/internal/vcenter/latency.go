package vcenter

import (
	"context"
	"slices"
	"strings"
	"time"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
	vslmtypes "github.com/vmware/govmomi/vslm/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
	"vsphere-drivers.example/lab/vcenter/internal/cns"
	"vsphere-drivers.example/lab/vcenter/internal/latency"
)

// workKey is where a request's context keeps what its task has to do.
type workKey struct{}

// linger lets a call take its time, and notes what its task will take. A refused call never comes to that.
func (v *VCenter) linger(ctx *simulator.Context, m *simulator.Method) {
	if !v.Latency.On() {
		return
	}
	parts := v.parts(m)
	if parts != nil {
		ctx.Context = context.WithValue(ctx.Context, workKey{}, parts)
	}
	v.Traffic.Pause(v.Latency.Call(callOperation(m.Name, parts != nil)))
}

// lingerREST does the same for REST, where all tasks are other people's.
func (v *VCenter) lingerREST(verb, path string) {
	if !v.Latency.On() {
		return
	}
	operation := latency.Read
	if verb == "POST" && (path == "/api/session" || path == "/rest/com/vmware/cis/session") {
		operation = latency.LoginREST
	}
	v.Traffic.Pause(v.Latency.Call(operation))
}

// callOperation is what a call does until it answers.
func callOperation(method string, startsTask bool) latency.Operation {
	switch {
	case startsTask:
		return latency.Call
	case method == "Login" || method == "LoginByToken" || method == "RequestSecurityToken":
		return latency.LoginSOAP
	case method == "CnsQueryVolume" || method == "CnsQueryAllVolume":
		return latency.Query
	case strings.HasPrefix(method, "PbmCheck"):
		return latency.Policies
	}
	return latency.Read
}

// taskOperations are those of the tasks that do one thing. Tasks that are not listed here or in parts are the library's.
var taskOperations = map[string]latency.Operation{
	"CnsUpdateVolumeMetadata":               latency.Metadata,
	"CnsConfigureVolumeACLs":                latency.Metadata,
	"CnsDeleteVolume":                       latency.Delete,
	"CnsUnregisterVolume":                   latency.Delete,
	"CnsExtendVolume":                       latency.Extend,
	"CnsCreateSnapshots":                    latency.Snapshot,
	"CnsDeleteSnapshots":                    latency.DeleteSnapshot,
	"CnsQueryAsync":                         latency.Query,
	"CnsQueryVolumeInfo":                    latency.Query,
	"CnsQuerySnapshots":                     latency.QuerySnapshots,
	"CnsReconfigVolumePolicy":               latency.ChangePolicy,
	"CnsUpdateVolumeCrypto":                 latency.ChangePolicy,
	"CnsSyncVolume":                         latency.Query,
	"CnsSyncDatastore":                      latency.Query,
	"CreateDisk_Task":                       latency.Create,
	"DeleteVStorageObject_Task":             latency.Delete,
	"ExtendDisk_Task":                       latency.Extend,
	"VStorageObjectCreateSnapshot_Task":     latency.Snapshot,
	"DeleteSnapshot_Task":                   latency.DeleteSnapshot,
	"VslmCreateDisk_Task":                   latency.Create,
	"VslmCloneVStorageObject_Task":          latency.Restore,
	"VslmCreateDiskFromSnapshot_Task":       latency.Restore,
	"VslmInflateDisk_Task":                  latency.Restore,
	"VslmDeleteVStorageObject_Task":         latency.Delete,
	"VslmExtendDisk_Task":                   latency.Extend,
	"VslmCreateSnapshot_Task":               latency.Snapshot,
	"VslmDeleteSnapshot_Task":               latency.DeleteSnapshot,
	"VslmUpdateVStorageObjectMetadata_Task": latency.Metadata,
	"VslmUpdateVstorageObjectPolicy_Task":   latency.ChangePolicy,
	"VslmReconcileDatastoreInventory_Task":  latency.Query,
}

// parts are what the task of a call has to do; nil when it has none of ours.
func (v *VCenter) parts(m *simulator.Method) []latency.Work {
	switch req := m.Body.(type) {
	case *cnstypes.CnsCreateVolume:
		parts := make([]latency.Work, 0, len(req.CreateSpecs))
		for i := range req.CreateSpecs {
			parts = append(parts, latency.Work{Operation: creation(&req.CreateSpecs[i])})
		}
		return parts
	case *cnstypes.CnsAttachVolume:
		return v.perVM(latency.Attach, req.AttachSpecs)
	case *cnstypes.CnsDetachVolume:
		return v.perVM(latency.Detach, req.DetachSpecs)
	case *types.AttachDisk_Task:
		return []latency.Work{{Operation: latency.Attach, VM: req.This.Value}}
	case *types.DetachDisk_Task:
		return []latency.Work{{Operation: latency.Detach, VM: req.This.Value}}
	case *vslmtypes.VslmAttachDisk_Task:
		return []latency.Work{{Operation: latency.Attach, VM: req.Vm.Value}}
	case *cnstypes.CnsRelocateVolume:
		var parts []latency.Work
		for _, spec := range req.RelocateSpecs {
			parts = append(parts, v.relocation(spec.GetCnsVolumeRelocateSpec().VolumeId.Id))
		}
		return parts
	case *vslmtypes.VslmRelocateVStorageObject_Task:
		return []latency.Work{v.relocation(req.Id.Id)}
	}
	if operation, known := taskOperations[m.Name]; known {
		return []latency.Work{{Operation: operation}}
	}
	return nil
}

func creation(spec *cnstypes.CnsVolumeCreateSpec) latency.Operation {
	if spec.VolumeType == string(cnstypes.CnsVolumeTypeFile) {
		return latency.CreateShare
	}
	if spec.VolumeSource != nil {
		return latency.Restore
	}
	if block, ok := spec.BackingObjectDetails.(*cnstypes.CnsBlockBackingDetails); ok && (block.BackingDiskId != "" || block.BackingDiskUrlPath != "") {
		return latency.Register
	}
	return latency.Create
}

// perVM is what a batch does to its VMs: something for each volume, or one thing for all volumes of a VM.
func (v *VCenter) perVM(operation latency.Operation, specs []cnstypes.CnsVolumeAttachDetachSpec) []latency.Work {
	parts := make([]latency.Work, 0, len(specs))
	for _, spec := range specs {
		parts = append(parts, latency.Work{Operation: operation, VM: spec.Vm.Value})
	}
	if len(parts) < 2 || assume.BatchTime.In(v.Assumed) == "sum" {
		return parts
	}
	slices.SortFunc(parts, func(a, b latency.Work) int { return strings.Compare(a.VM, b.VM) })
	return slices.Compact(parts)
}

func (v *VCenter) relocation(volume string) latency.Work {
	work := latency.Work{Operation: latency.Relocate}
	volumes := v.services.cns.Volumes()
	if i := slices.IndexFunc(volumes, func(known cns.Volume) bool { return known.ID == volume }); i >= 0 {
		work.GiB = float64(volumes[i].CapacityMB) / 1024
	}
	return work
}

// taskTime is how long the task of a call takes from now on.
func (v *VCenter) taskTime(ctx context.Context, now time.Time) time.Duration {
	if !v.Latency.On() {
		return 0
	}
	parts, _ := ctx.Value(workKey{}).([]latency.Work)
	ceiling := 0
	if slices.ContainsFunc(parts, latency.Work.Creates) {
		ceiling = assume.CreatesPerSecond.In(v.Assumed)
	}
	return v.Latency.Task(now, parts, ceiling)
}

// updatesOfATask is how many pieces the wait of a task has; between them its info is told, without progress.
const updatesOfATask = 3

// work lets a running task take its time. It tells whether the vCenter is still there to do the work.
func (v *VCenter) work(task *simulator.Task, takes time.Duration, pause func(time.Duration) bool) bool {
	for i := range updatesOfATask {
		if i > 0 {
			v.Vim.AtomicUpdate(v.ownContext(), task, []types.PropertyChange{{Name: "info.progress", Val: int32(0)}})
		}
		if !pause(takes / updatesOfATask) {
			break
		}
	}
	return !v.Traffic.Closed()
}
