package pbm

import (
	"slices"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/pbm/methods"
	"github.com/vmware/govmomi/pbm/types"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	vim "github.com/vmware/govmomi/vim25/types"
)

func ref(kind, value string) vim.ManagedObjectReference {
	return vim.ManagedObjectReference{Type: kind, Value: value}
}

// content names the services; the ids are vCenter's.
var content = types.PbmServiceInstanceContent{
	AboutInfo:                 types.PbmAboutInfo{Name: "PBM", Version: "2.0", InstanceUuid: "9ac57d0b-4c8f-4f7d-9d0b-2f6a3a0f6c11"},
	SessionManager:            ref("PbmSessionManager", "SessionManager"),
	CapabilityMetadataManager: ref("PbmCapabilityMetadataManager", "CapabilityMetadataManager"),
	ProfileManager:            ref("PbmProfileProfileManager", "ProfileManager"),
	ComplianceManager:         ref("PbmComplianceManager", "complianceManager"),
	PlacementSolver:           ref("PbmPlacementSolver", "placementSolver"),
}

type serviceInstance struct{ vim.ManagedObjectReference }

// PbmRetrieveServiceContent names the services.
func (serviceInstance) PbmRetrieveServiceContent(*types.PbmRetrieveServiceContent) soap.HasFault {
	return &methods.PbmRetrieveServiceContentBody{Res: &types.PbmRetrieveServiceContentResponse{Returnval: content}}
}

// profileManager answers vSphere's profile manager.
type profileManager struct {
	vim.ManagedObjectReference
	p *Policies
}

func (p *Policies) list(keep func(*types.PbmCapabilityProfile) bool) []types.PbmCapabilityProfile {
	p.mu.RLock()
	defer p.mu.RUnlock()
	var found []types.PbmCapabilityProfile
	for _, known := range p.policies {
		if keep(&known.profile) {
			found = append(found, known.profile)
		}
	}
	return found
}

// PbmFetchResourceType lists what profiles can be about: storage.
func (m *profileManager) PbmFetchResourceType(*types.PbmFetchResourceType) soap.HasFault {
	return &methods.PbmFetchResourceTypeBody{Res: &types.PbmFetchResourceTypeResponse{
		Returnval: []types.PbmProfileResourceType{{ResourceType: string(types.PbmProfileResourceTypeEnumSTORAGE)}},
	}}
}

// PbmQueryProfile lists the ids of profiles of a resource type and category.
func (m *profileManager) PbmQueryProfile(req *types.PbmQueryProfile) soap.HasFault {
	res := &types.PbmQueryProfileResponse{}
	for _, profile := range m.p.list(func(p *types.PbmCapabilityProfile) bool {
		return p.ResourceType == req.ResourceType && (req.ProfileCategory == "" || p.ProfileCategory == req.ProfileCategory)
	}) {
		res.Returnval = append(res.Returnval, profile.ProfileId)
	}
	return &methods.PbmQueryProfileBody{Res: res}
}

// PbmQueryProfileDetails lists whole profiles of a category.
func (m *profileManager) PbmQueryProfileDetails(req *types.PbmQueryProfileDetails) soap.HasFault {
	res := &types.PbmQueryProfileDetailsResponse{}
	for _, profile := range m.p.list(func(p *types.PbmCapabilityProfile) bool {
		return req.ProfileCategory == "" || p.ProfileCategory == req.ProfileCategory
	}) {
		res.Returnval = append(res.Returnval, types.PbmProfileDetails{Profile: &profile})
	}
	return &methods.PbmQueryProfileDetailsBody{Res: res}
}

// PbmRetrieveContent reads profiles by id; one unknown id fails the call.
func (m *profileManager) PbmRetrieveContent(req *types.PbmRetrieveContent) soap.HasFault {
	body := &methods.PbmRetrieveContentBody{}
	if len(req.ProfileIds) == 0 {
		body.Fault_ = invalid("profileIds")
		return body
	}
	m.p.mu.RLock()
	defer m.p.mu.RUnlock()
	res := &types.PbmRetrieveContentResponse{}
	for _, id := range req.ProfileIds {
		known := m.p.find(id.UniqueId)
		if known == nil {
			body.Fault_ = invalid("profileIds")
			return body
		}
		profile := known.profile
		res.Returnval = append(res.Returnval, &profile)
	}
	body.Res = res
	return body
}

// PbmCreate stores a profile that matches by its rules.
func (m *profileManager) PbmCreate(ctx *simulator.Context, req *types.PbmCreate) soap.HasFault {
	body := &methods.PbmCreateBody{}
	spec := req.CreateSpec
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	switch {
	case spec.Name == "":
		body.Fault_ = invalid("createSpec.name")
		return body
	case m.p.byName(spec.Name) != nil:
		body.Fault_ = simulator.Fault("A profile with the name "+spec.Name+" already exists.", &types.PbmDuplicateName{Name: spec.Name})
		return body
	}
	made := m.p.make(Policy{Name: spec.Name, ID: uuid.NewString(), Description: spec.Description}, m.p.byRules(spec.Constraints))
	made.profile.CreatedBy, made.profile.LastUpdatedBy = caller(ctx), caller(ctx)
	made.profile.Constraints = spec.Constraints
	if spec.Category != "" {
		made.profile.ProfileCategory = spec.Category
	}
	made.profile.ResourceType = spec.ResourceType
	m.p.setK8sName(made, spec.K8sCompliantName)
	m.p.policies = append(m.p.policies, made)
	body.Res = &types.PbmCreateResponse{Returnval: made.profile.ProfileId}
	return body
}

func caller(ctx *simulator.Context) string {
	if ctx.Session == nil {
		return ""
	}
	return ctx.Session.UserName
}

// PbmUpdate changes a profile; new rules replace what it matched before.
func (m *profileManager) PbmUpdate(ctx *simulator.Context, req *types.PbmUpdate) soap.HasFault {
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	known := m.p.find(req.ProfileId.UniqueId)
	if known == nil {
		return &methods.PbmUpdateBody{Fault_: invalid("profileId")}
	}
	spec := req.UpdateSpec
	if other := m.p.byName(spec.Name); spec.Name != "" && other != nil && other != known {
		return &methods.PbmUpdateBody{Fault_: simulator.Fault("A profile with the name "+spec.Name+" already exists.", &types.PbmDuplicateName{Name: spec.Name})}
	}
	if spec.Name != "" {
		known.profile.Name = spec.Name
	}
	if spec.Description != "" {
		known.profile.Description = spec.Description
	}
	if spec.Constraints != nil {
		known.profile.Constraints, known.matches = spec.Constraints, m.p.byRules(spec.Constraints)
		known.profile.GenerationId++
	}
	known.profile.LastUpdatedTime, known.profile.LastUpdatedBy = m.p.cfg.Now(), caller(ctx)
	return &methods.PbmUpdateBody{Res: &types.PbmUpdateResponse{}}
}

// PbmDelete removes profiles; those that entities use stay, with the fault in their outcome.
func (m *profileManager) PbmDelete(req *types.PbmDelete) soap.HasFault {
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	res := &types.PbmDeleteResponse{}
	for _, id := range req.ProfileId {
		outcome := types.PbmProfileOperationOutcome{ProfileId: id}
		i := slices.IndexFunc(m.p.policies, func(p *policy) bool { return p.profile.ProfileId == id })
		switch {
		case i < 0:
			outcome.Fault = &vim.LocalizedMethodFault{Fault: &vim.InvalidArgument{InvalidProperty: "profileId"}, LocalizedMessage: "no such profile"}
		case m.p.used(id.UniqueId):
			outcome.Fault = &vim.LocalizedMethodFault{Fault: &types.PbmResourceInUse{}, LocalizedMessage: "entities use the profile"}
		default:
			m.p.policies = slices.Delete(m.p.policies, i, i+1)
		}
		if outcome.Fault != nil {
			res.Returnval = append(res.Returnval, outcome)
		}
	}
	return &methods.PbmDeleteBody{Res: res}
}

func (p *Policies) used(id string) bool {
	for _, other := range p.associations {
		if other == id {
			return true
		}
	}
	return false
}
