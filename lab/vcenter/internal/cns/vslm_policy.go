package cns

import (
	"reflect"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm/methods"
	vslmtypes "github.com/vmware/govmomi/vslm/types"
)

// govmomi's request has room for the kind of profile without fields only, and would lose the policy's id. See wire.go for
// why this is an init.
func init() {
	types.Add("vslm:VslmUpdateVstorageObjectPolicy_Task", reflect.TypeOf((*VslmUpdateVstorageObjectPolicy)(nil)).Elem())
}

// VslmUpdateVstorageObjectPolicy is the request with profiles of every kind.
type VslmUpdateVstorageObjectPolicy struct {
	This    types.ManagedObjectReference          `xml:"_this"`
	Id      types.ID                              `xml:"id"`
	Profile []types.BaseVirtualMachineProfileSpec `xml:"profile,omitempty,typeattr"`
}

// VslmUpdateVstorageObjectPolicyTask changes the storage policy of an FCD, and of the CNS volume it may be.
func (s *fcdManager) VslmUpdateVstorageObjectPolicyTask(ctx *simulator.Context, req *VslmUpdateVstorageObjectPolicy) soap.HasFault {
	task := s.onDisk(ctx, "VslmUpdateVstorageObjectPolicy_Task", req.Id, func(_ *disk, d disk) (types.AnyType, types.BaseMethodFault) {
		policy, fault := policyID(req.Profile)
		if fault == nil && policy == "" {
			fault = invalid("profile")
		}
		if fault != nil {
			return nil, fault
		}
		return nil, s.m.setPolicy(d.id, d.datastore, policy)
	})
	return &methods.VslmUpdateVstorageObjectPolicy_TaskBody{Res: &vslmtypes.VslmUpdateVstorageObjectPolicy_TaskResponse{Returnval: task}}
}
