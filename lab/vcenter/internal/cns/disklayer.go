package cns

import (
	"fmt"
	"reflect"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// What CNS was about to do with a disk, as old releases say it in the reason of a fault: with a dot or without.
const (
	toCreate         = "create disk."
	toAttach         = "attach disk when calling AttachDisk"
	toDetach         = "detach disk when calling DetachDisk"
	toDelete         = "delete disk"
	toExtend         = "extend disk."
	toRelocate       = "relocate disk."
	toSnapshot       = "create snapshot."
	toDeleteSnapshot = "delete snapshot."
)

// diskFailure is a failure of the disk layer below CNS. It never reaches a client as it is: VSLM and vim25 report the
// cause, CNS reports what wrap makes of it.
type diskFailure struct {
	types.MethodFault
	step  string
	cause types.BaseMethodFault
}

func failedTo(step string, cause types.BaseMethodFault) types.BaseMethodFault {
	return &diskFailure{step: step, cause: cause}
}

func brokenTo(step string, err error) types.BaseMethodFault {
	return failedTo(step, &types.SystemError{Reason: err.Error()})
}

// wrap is CNS's report of a fault. Releases before 7.0U2 name the type of the cause in the reason; later ones say the same
// of every failure.
func (m *Manager) wrap(fault types.BaseMethodFault) types.BaseMethodFault {
	failure, ok := fault.(*diskFailure)
	if !ok {
		return fault
	}
	uniform := m.since("7.0U2")
	if _, full := failure.cause.(*types.NoDiskSpace); full {
		switch assume.OutOfSpaceFault.In(m.assumed) {
		case "NoDiskSpace":
			return failure.cause
		case "CnsFault":
			return cnsFault(failure.cause, "%s", failure.named())
		}
		uniform = true
	}
	shown := &cnstypes.CnsFault{Reason: "VSLM task failed"}
	if !uniform {
		shown.Reason = failure.named()
	}
	if assume.DiskFaultCause.In(m.assumed) {
		shown.FaultCause = localized(failure.cause)
	}
	return shown
}

// named is the reason with the name of the cause.
func (f *diskFailure) named() string {
	return fmt.Sprintf("CNS: Failed to %s:Fault cause: %s\n", f.step, qualified(f.cause))
}

// qualified is the name of a fault's type with its package. Runtime faults belong to the base of the API.
func qualified(fault types.BaseMethodFault) string {
	fault = localized(fault).Fault
	name := reflect.TypeOf(fault).Elem().Name()
	if _, runtime := fault.(types.BaseRuntimeFault); runtime {
		return "vmodl.fault." + name
	}
	return "vim.fault." + name
}

// cause is the fault without what CNS wraps around it, which vim25 and VSLM do not know.
func cause(fault types.BaseMethodFault) types.BaseMethodFault {
	switch wrapped := fault.(type) {
	case *diskFailure:
		return wrapped.cause
	case *cnstypes.CnsFault:
		if wrapped.FaultCause != nil {
			return wrapped.FaultCause.Fault
		}
	}
	return fault
}

// worded is a fault with a text of its own. localized takes it apart, so that no client sees it.
type worded struct {
	types.MethodFault
	fault types.BaseMethodFault
	text  string
}

// inUse is the answer for a disk that a VM has; it does not name the disk.
func inUse() types.BaseMethodFault { return &types.ResourceInUse{Name: "volume"} }

// onDatastore refuses work on a disk whose datastore is gone or cannot be reached.
func (m *Manager) onDatastore(ref types.ManagedObjectReference, step string) (place, types.BaseMethodFault) {
	at, ok := m.datastore(ref)
	if !ok || !at.accessible {
		return at, failedTo(step, &types.InvalidDatastoreState{DatastoreName: at.name})
	}
	return at, nil
}
