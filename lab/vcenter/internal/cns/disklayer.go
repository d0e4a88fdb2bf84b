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
	toCreate = "create disk."
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
	uniform := m.since("7.0U3")
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
	name := reflect.TypeOf(localized(fault).Fault).Elem().Name()
	if _, runtime := fault.(types.BaseRuntimeFault); runtime {
		return "vmodl.fault." + name
	}
	return "vim.fault." + name
}

// worded is a fault with a text of its own. localized takes it apart, so that no client sees it.
type worded struct {
	types.MethodFault
	fault types.BaseMethodFault
	text  string
}
