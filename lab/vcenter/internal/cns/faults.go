package cns

import (
	"fmt"
	"reflect"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

func invalid(property string) types.BaseMethodFault {
	return &types.InvalidArgument{InvalidProperty: property}
}

// cnsFault is CNS's own fault with what went wrong below it; cause may be nil.
func cnsFault(cause types.BaseMethodFault, reason string, values ...any) types.BaseMethodFault {
	fault := &cnstypes.CnsFault{Reason: fmt.Sprintf(reason, values...)}
	if cause != nil {
		fault.FaultCause = localized(cause)
	}
	return fault
}

// localized adds the message a person reads. vCenter's texts name the fault's type first, and upstream's users
// search for exactly that.
func localized(fault types.BaseMethodFault) *types.LocalizedMethodFault {
	name := reflect.TypeOf(fault).Elem().Name()
	message := name
	switch f := fault.(type) {
	case *worded:
		return &types.LocalizedMethodFault{Fault: f.fault, LocalizedMessage: f.text}
	case *diskFailure:
		return localized(f.cause)
	case *cnstypes.CnsFault:
		message = name + " error: " + f.Reason
	case *types.InvalidArgument:
		message = "A specified parameter was not correct: " + f.InvalidProperty
	case *types.ResourceInUse:
		message = fmt.Sprintf("The resource '%s' is in use.", f.Name)
	case *types.NotFound:
		message = "The object or item referred to could not be found."
	case *types.AlreadyExists:
		message = fmt.Sprintf("The specified key, name, or identifier '%s' already exists.", f.Name)
	case *types.HostNotConnected:
		message = "Unable to communicate with the remote host, since it is disconnected."
	case *types.InvalidHostState:
		message = "The operation is not allowed in the current state of the host."
	case *types.InvalidState:
		message = "The operation is not allowed in the current state."
	case *types.TaskInProgress:
		message = "Another task is already in progress."
	case *types.InvalidDeviceSpec:
		message = fmt.Sprintf("Invalid configuration for device '%d'.", f.DeviceIndex)
	case *types.SystemError:
		message = "A general system error occurred: " + f.Reason
	}
	return &types.LocalizedMethodFault{Fault: fault, LocalizedMessage: message}
}

// failed is the result of one volume of a batch; the task around it still succeeds.
func failed(id string, fault types.BaseMethodFault) *cnstypes.CnsVolumeOperationResult {
	return &cnstypes.CnsVolumeOperationResult{VolumeId: cnstypes.CnsVolumeId{Id: id}, Fault: localized(fault)}
}

func done(id string) *cnstypes.CnsVolumeOperationResult {
	return &cnstypes.CnsVolumeOperationResult{VolumeId: cnstypes.CnsVolumeId{Id: id}}
}

// outcome is done or failed, for operations that have nothing else to tell.
func outcome(id string, fault types.BaseMethodFault) *cnstypes.CnsVolumeOperationResult {
	if fault != nil {
		return failed(id, fault)
	}
	return done(id)
}

func batch(results ...cnstypes.BaseCnsVolumeOperationResult) *cnstypes.CnsVolumeOperationBatchResult {
	return &cnstypes.CnsVolumeOperationBatchResult{VolumeResults: results}
}

// outOfSpace is the fault when a disk does not fit.
func (m *Manager) outOfSpace(operation, datastore string) types.BaseMethodFault {
	return failedTo(operation+" disk.", &types.NoDiskSpace{FileFault: types.FileFault{File: ""}, Datastore: datastore})
}

// VolumeFault is the result of a task that succeeded without its volume.
func VolumeFault(fault types.BaseMethodFault) types.AnyType { return batch(failed("", fault)) }

// refusal refuses a call as a whole, before there is a task.
type refusal struct {
	Reason *soap.Fault `xml:"http://schemas.xmlsoap.org/soap/envelope/ Fault,omitempty"`
}

// Fault is for soap.HasFault.
func (r *refusal) Fault() *soap.Fault { return r.Reason }

func refuse(fault types.BaseMethodFault) soap.HasFault {
	said := localized(fault)
	return &refusal{Reason: simulator.Fault(said.LocalizedMessage, said.Fault)}
}
