package vcenter

import (
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/authz"
	"vsphere-drivers.example/lab/vcenter/internal/cns"
	"vsphere-drivers.example/lab/vcenter/internal/history"
	"vsphere-drivers.example/lab/vcenter/internal/inventory"
)

// standIn answers the methods that the library's objects answer wrongly. The objects themselves cannot be replaced,
// because the library insists on their types. It is built on a managed object because searches panic on anything else
// in the registry.
type standIn struct {
	mo.ServiceInstance
	clock *Clock
	vim   *simulator.Registry
	site  *inventory.Inventory
	cns   *cns.Manager
	tasks *history.Tasks
	users *authz.Authz
}

var standInRef = types.ManagedObjectReference{Type: "SimulatorStandIn", Value: "stand-in"}

func newStandIn(v *VCenter) *standIn {
	return &standIn{mo.ServiceInstance{Self: standInRef}, v.Clock, v.Vim, v.Inventory, v.services.cns, v.services.tasks, v.services.access}
}

// redirect sends a call to the stand-in where that is needed. The library looks the object up again after the hook, by
// the method's reference, so that is what changes; the request still names the real object.
func (v *VCenter) redirect(ctx *simulator.Context, m *simulator.Method) mo.Reference {
	if ctx.Map != v.Vim {
		return nil
	}
	switch {
	case m.Name == "CurrentTime" && m.This == vim25.ServiceInstance:
	case ctx.Session == nil && (m.Name == "RetrieveProperties" || m.Name == "RetrievePropertiesEx" || m.Name == "Fetch"):
	case m.Name == "CreateCollectorForTasks" && m.This.Type == "TaskManager":
	case m.Name == "RefreshDatastore" && m.This.Type == "Datastore":
	case m.This.Type == "VirtualMachine" && v.Vim.Get(m.This) != nil && onMachine(m):
	default:
		return nil
	}
	m.This = standInRef
	return v.Vim.Get(standInRef)
}

// CurrentTime is vCenter's time, with its skew.
func (s *standIn) CurrentTime(*types.CurrentTime) soap.HasFault {
	return &methods.CurrentTimeBody{Res: &types.CurrentTimeResponse{Returnval: s.clock.Now()}}
}

// RetrieveProperties answers who has no session. Strict mode lets one read through, of the current session: it is unset.
func (s *standIn) RetrieveProperties(req *types.RetrieveProperties) soap.HasFault {
	return &methods.RetrievePropertiesBody{Res: &types.RetrievePropertiesResponse{Returnval: withoutProperties(req.SpecSet)}}
}

// RetrievePropertiesEx is the same.
func (s *standIn) RetrievePropertiesEx(req *types.RetrievePropertiesEx) soap.HasFault {
	return &methods.RetrievePropertiesExBody{Res: &types.RetrievePropertiesExResponse{
		Returnval: &types.RetrieveResult{Objects: withoutProperties(req.SpecSet)},
	}}
}

// Fetch is the same for one property.
func (s *standIn) Fetch(request any) soap.HasFault { return s.users.FetchWithoutSession(request) }

func withoutProperties(specs []types.PropertyFilterSpec) []types.ObjectContent {
	var objects []types.ObjectContent
	for _, spec := range specs {
		for _, o := range spec.ObjectSet {
			objects = append(objects, types.ObjectContent{Obj: o.Obj})
		}
	}
	return objects
}

// RefreshDatastore finds everything up to date. The library's would set capacity and free space to figures of its own.
func (s *standIn) RefreshDatastore(req *types.RefreshDatastore) soap.HasFault {
	body := new(methods.RefreshDatastoreBody)
	if s.vim.Get(req.This) == nil {
		body.Fault_ = simulator.Fault("", &types.ManagedObjectNotFound{Obj: req.This})
		return body
	}
	body.Res = new(types.RefreshDatastoreResponse)
	return body
}

// CreateCollectorForTasks makes a collector that tells each user what he may see.
func (s *standIn) CreateCollectorForTasks(ctx *simulator.Context, req *types.CreateCollectorForTasks) soap.HasFault {
	return s.tasks.Create(ctx, req)
}
