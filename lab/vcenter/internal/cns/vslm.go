package cns

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"
	"github.com/vmware/govmomi/vslm/methods"
	vslmtypes "github.com/vmware/govmomi/vslm/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// We do not use govmomi's simulator of VSLM: it reads the catalogue without the lock under which vim25 changes it.

// newVSLM makes the objects at /vslm/sdk. VSLM takes the session from a SOAP header.
func newVSLM(m *Manager) *simulator.Registry {
	registry := simulator.NewRegistry()
	registry.Namespace = vslm.Namespace
	registry.Path = vslm.Path
	registry.Cookie = simulator.SOAPCookie
	manager := types.ManagedObjectReference{Type: "VslmVStorageObjectManager", Value: "VStorageObjectManager"}
	lifecycle := types.ManagedObjectReference{Type: "VslmStorageLifecycleManager", Value: "StorageLifecycleManager"}
	registry.Put(&vslmInstance{
		ManagedObjectReference: vslm.ServiceInstance,
		content: vslmtypes.VslmServiceInstanceContent{
			AboutInfo: vslmtypes.VslmAboutInfo{
				Name: "VMware Virtual Storage Lifecycle Manager Service", Vendor: "VMware, Inc.", ApiVersion: "1.0.0",
			},
			SessionManager:          types.ManagedObjectReference{Type: "VslmSessionManager", Value: "SessionManager"},
			VStorageObjectManager:   manager,
			StorageLifecycleManager: lifecycle,
		},
	})
	registry.Put(&lifecycleManager{ManagedObjectReference: lifecycle, m: m})
	registry.Put(&fcdManager{ManagedObjectReference: manager, m: m})
	return registry
}

// vslmInstance is the managed object VslmServiceInstance.
type vslmInstance struct {
	types.ManagedObjectReference
	content vslmtypes.VslmServiceInstanceContent
}

// RetrieveContent names the other objects.
func (s *vslmInstance) RetrieveContent(*vslmtypes.RetrieveContent) soap.HasFault {
	return &methods.RetrieveContentBody{Res: &vslmtypes.RetrieveContentResponse{Returnval: s.content}}
}

// fcdManager is the managed object VslmVStorageObjectManager, the catalogue of all FCDs.
type fcdManager struct {
	types.ManagedObjectReference
	m *Manager
}

// Lock is for the registry, see volumeManager.
func (*fcdManager) Lock() {}

// Unlock is for the registry, see volumeManager.
func (*fcdManager) Unlock() {}

// objects are all FCDs in the order of their ids, which VSLM's paging needs.
func (m *Manager) objects() []simulator.VStorageObject {
	var list []simulator.VStorageObject
	m.withCatalogue(func(all catalogue) {
		for _, objects := range all {
			for _, object := range objects {
				list = append(list, *object)
			}
		}
	})
	slices.SortFunc(list, func(a, b simulator.VStorageObject) int { return cmp.Compare(a.Config.Id.Id, b.Config.Id.Id) })
	return list
}

// object is one FCD as vim25 has it; nil when there is none.
func (m *Manager) object(id types.ID) *simulator.VStorageObject {
	var found *simulator.VStorageObject
	m.withCatalogue(func(all catalogue) {
		for _, objects := range all {
			if object, ok := objects[id]; ok {
				one := *object
				found = &one
			}
		}
	})
	return found
}

// unknownFCD is VSLM's answer to an id that no disk has.
func (m *Manager) unknownFCD(id string) types.BaseMethodFault {
	if assume.UnknownDisk.In(m.assumed) == "InvalidArgument" {
		return invalid("VolumeId")
	}
	return &worded{fault: &types.NotFound{}, text: noObjectText(id)}
}

// readFCD gives one FCD to a call that reads it from its datastore.
func (m *Manager) readFCD(id types.ID) (*simulator.VStorageObject, types.BaseMethodFault) {
	object := m.known(id)
	if object == nil {
		return nil, m.unknownFCD(id.Id)
	}
	at, known := m.datastore(adopt(object).datastore)
	if !known || at.reachable {
		return object, nil
	}
	switch assume.DiskOfInaccessibleDatastore.In(m.assumed) {
	case "InvalidDatastore":
		return nil, &types.InvalidDatastore{Datastore: &at.ref, Name: at.name}
	case "SystemError":
		return nil, &types.SystemError{Reason: "Failed to open the disk"}
	}
	return object, nil
}

// VslmRetrieveVStorageObject describes one FCD.
func (s *fcdManager) VslmRetrieveVStorageObject(_ *simulator.Context, req *vslmtypes.VslmRetrieveVStorageObject) soap.HasFault {
	object, fault := s.m.readFCD(req.Id)
	if fault != nil {
		return refuse(fault)
	}
	return &methods.VslmRetrieveVStorageObjectBody{Res: &vslmtypes.VslmRetrieveVStorageObjectResponse{Returnval: object.VStorageObject}}
}

// VslmRetrieveSnapshotInfo lists the snapshots of one FCD.
func (s *fcdManager) VslmRetrieveSnapshotInfo(_ *simulator.Context, req *vslmtypes.VslmRetrieveSnapshotInfo) soap.HasFault {
	object, fault := s.m.readFCD(req.Id)
	if fault != nil {
		return refuse(fault)
	}
	return &methods.VslmRetrieveSnapshotInfoBody{Res: &vslmtypes.VslmRetrieveSnapshotInfoResponse{Returnval: object.VStorageObjectSnapshotInfo}}
}

// VslmRetrieveVStorageObjectMetadata lists an FCD's own keys and values.
func (s *fcdManager) VslmRetrieveVStorageObjectMetadata(_ *simulator.Context, req *vslmtypes.VslmRetrieveVStorageObjectMetadata) soap.HasFault {
	object, fault := s.m.readFCD(req.Id)
	if fault != nil {
		return refuse(fault)
	}
	response := &vslmtypes.VslmRetrieveVStorageObjectMetadataResponse{}
	for _, pair := range object.Metadata {
		if strings.HasPrefix(pair.Key, req.Prefix) {
			response.Returnval = append(response.Returnval, pair)
		}
	}
	return &methods.VslmRetrieveVStorageObjectMetadataBody{Res: response}
}

// VslmRetrieveVStorageObjectMetadataValue gives the value of one of an FCD's own keys.
func (s *fcdManager) VslmRetrieveVStorageObjectMetadataValue(_ *simulator.Context, req *vslmtypes.VslmRetrieveVStorageObjectMetadataValue) soap.HasFault {
	object, fault := s.m.readFCD(req.Id)
	if fault != nil {
		return refuse(fault)
	}
	i := slices.IndexFunc(object.Metadata, func(pair types.KeyValue) bool { return pair.Key == req.Key })
	if i < 0 {
		return refuse(&types.KeyNotFound{Key: req.Key})
	}
	return &methods.VslmRetrieveVStorageObjectMetadataValueBody{Res: &vslmtypes.VslmRetrieveVStorageObjectMetadataValueResponse{
		Returnval: object.Metadata[i].Value,
	}}
}

// VslmListVStorageObjectForSpec finds FCDs that satisfy all conditions, up to maxResult.
func (s *fcdManager) VslmListVStorageObjectForSpec(_ *simulator.Context, req *vslmtypes.VslmListVStorageObjectForSpec) soap.HasFault {
	if req.MaxResult <= 0 {
		return refuse(invalid("maxResult"))
	}
	result := &vslmtypes.VslmVsoVStorageObjectQueryResult{AllRecordsReturned: true}
	for _, object := range s.m.listed() {
		matches, fault := satisfiesAll(object, req.Query)
		if fault != nil {
			return refuse(fault)
		}
		if !matches {
			continue
		}
		if len(result.Id) == int(req.MaxResult) {
			result.AllRecordsReturned = false
			break
		}
		created := object.Config.CreateTime
		result.Id = append(result.Id, object.Config.Id)
		result.QueryResults = append(result.QueryResults, vslmtypes.VslmVsoVStorageObjectResult{
			Id: object.Config.Id, Name: object.Config.Name, CapacityInMB: object.Config.CapacityInMB, CreateTime: &created, DiskPath: adopt(&object).path,
			Metadata: object.Metadata,
		})
	}
	return &methods.VslmListVStorageObjectForSpecBody{Res: &vslmtypes.VslmListVStorageObjectForSpecResponse{Returnval: result}}
}

func satisfiesAll(object simulator.VStorageObject, query []vslmtypes.VslmVsoVStorageObjectQuerySpec) (bool, types.BaseMethodFault) {
	all := true
	for _, condition := range query {
		if len(condition.QueryValue) != 1 {
			return false, invalid("queryValue")
		}
		ok, fault := satisfies(object, condition)
		if fault != nil {
			return false, fault
		}
		all = all && ok
	}
	return all, nil
}

func satisfies(object simulator.VStorageObject, condition vslmtypes.VslmVsoVStorageObjectQuerySpec) (bool, types.BaseMethodFault) {
	operator, wanted := condition.QueryOperator, condition.QueryValue[0]
	switch condition.QueryField {
	case "id":
		return compareText(operator, object.Config.Id.Id, wanted)
	case "name":
		return compareText(operator, object.Config.Name, wanted)
	case "capacity":
		number, err := strconv.ParseInt(wanted, 10, 64)
		if err != nil {
			return false, invalid("queryValue")
		}
		return compareOrder(operator, cmp.Compare(object.Config.CapacityInMB, number))
	case "createTime":
		moment, err := time.Parse(time.RFC3339Nano, wanted)
		if err != nil {
			return false, invalid("queryValue")
		}
		return compareOrder(operator, object.Config.CreateTime.Compare(moment))
	case "datastoreMoId":
		return compareText(operator, adopt(&object).datastore.Value, wanted)
	case "metadataKey", "metadataValue":
		for _, pair := range object.Metadata {
			text := pair.Key
			if condition.QueryField == "metadataValue" {
				text = pair.Value
			}
			if ok, fault := compareText(operator, text, wanted); ok || fault != nil {
				return ok, fault
			}
		}
		return false, nil
	}
	return false, invalid("queryField")
}

func compareText(operator, value, wanted string) (bool, types.BaseMethodFault) {
	switch operator {
	case "contains":
		return strings.Contains(value, wanted), nil
	case "startsWith":
		return strings.HasPrefix(value, wanted), nil
	case "endsWith":
		return strings.HasSuffix(value, wanted), nil
	}
	return compareOrder(operator, strings.Compare(value, wanted))
}

func compareOrder(operator string, order int) (bool, types.BaseMethodFault) {
	switch operator {
	case "equals":
		return order == 0, nil
	case "notEquals":
		return order != 0, nil
	case "lessThan":
		return order < 0, nil
	case "greaterThan":
		return order > 0, nil
	case "lessThanOrEqual":
		return order <= 0, nil
	case "greaterThanOrEqual":
		return order >= 0, nil
	}
	return false, invalid("queryOperator")
}
