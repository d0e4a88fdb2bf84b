package pbm

import (
	"slices"
	"strings"

	"github.com/vmware/govmomi/pbm/methods"
	"github.com/vmware/govmomi/pbm/types"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	vim "github.com/vmware/govmomi/vim25/types"
)

// plain is an entity without the server's UUID, which clients may or may not give.
func plain(entity types.PbmServerObjectRef) types.PbmServerObjectRef {
	return types.PbmServerObjectRef{ObjectType: entity.ObjectType, Key: entity.Key}
}

func (p *Policies) profilesOf(entity types.PbmServerObjectRef) []types.PbmProfileId {
	if id, ok := p.associations[plain(entity)]; ok {
		return []types.PbmProfileId{{UniqueId: id}}
	}
	return nil
}

func (p *Policies) entitiesOf(id, kind string) []types.PbmServerObjectRef {
	var found []types.PbmServerObjectRef
	for entity, other := range p.associations {
		if other == id && (kind == "" || entity.ObjectType == kind) {
			found = append(found, entity)
		}
	}
	slices.SortFunc(found, func(a, b types.PbmServerObjectRef) int {
		return strings.Compare(a.ObjectType+a.Key, b.ObjectType+b.Key)
	})
	return found
}

// PbmQueryAssociatedProfile lists the profiles an entity uses.
func (m *profileManager) PbmQueryAssociatedProfile(req *types.PbmQueryAssociatedProfile) soap.HasFault {
	m.p.mu.RLock()
	defer m.p.mu.RUnlock()
	return &methods.PbmQueryAssociatedProfileBody{Res: &types.PbmQueryAssociatedProfileResponse{Returnval: m.p.profilesOf(req.Entity)}}
}

// PbmQueryAssociatedProfiles does it for many entities.
func (m *profileManager) PbmQueryAssociatedProfiles(req *types.PbmQueryAssociatedProfiles) soap.HasFault {
	m.p.mu.RLock()
	defer m.p.mu.RUnlock()
	res := &types.PbmQueryAssociatedProfilesResponse{}
	for _, entity := range req.Entities {
		res.Returnval = append(res.Returnval, types.PbmQueryProfileResult{Object: entity, ProfileId: m.p.profilesOf(entity)})
	}
	return &methods.PbmQueryAssociatedProfilesBody{Res: res}
}

// PbmQueryAssociatedEntity lists the entities that use a profile.
func (m *profileManager) PbmQueryAssociatedEntity(req *types.PbmQueryAssociatedEntity) soap.HasFault {
	m.p.mu.RLock()
	defer m.p.mu.RUnlock()
	if m.p.find(req.Profile.UniqueId) == nil {
		return &methods.PbmQueryAssociatedEntityBody{Fault_: invalid("profile")}
	}
	return &methods.PbmQueryAssociatedEntityBody{Res: &types.PbmQueryAssociatedEntityResponse{
		Returnval: m.p.entitiesOf(req.Profile.UniqueId, req.EntityType),
	}}
}

// PbmQueryAssociatedEntities lists the entities of many profiles.
func (m *profileManager) PbmQueryAssociatedEntities(req *types.PbmQueryAssociatedEntities) soap.HasFault {
	m.p.mu.RLock()
	defer m.p.mu.RUnlock()
	res := &types.PbmQueryAssociatedEntitiesResponse{}
	for _, id := range req.Profiles {
		for _, entity := range m.p.entitiesOf(id.UniqueId, "") {
			res.Returnval = append(res.Returnval, types.PbmQueryProfileResult{Object: entity, ProfileId: []types.PbmProfileId{id}})
		}
	}
	return &methods.PbmQueryAssociatedEntitiesBody{Res: res}
}

// PbmQueryDefaultRequirementProfile names the default profile of a datastore: vSAN and VVol datastores have one.
func (m *profileManager) PbmQueryDefaultRequirementProfile(req *types.PbmQueryDefaultRequirementProfile) soap.HasFault {
	ds, ok := m.p.vim.Get(hubRef(req.Hub)).(*simulator.Datastore)
	if !ok {
		return &methods.PbmQueryDefaultRequirementProfileBody{Fault_: invalid("hub")}
	}
	res := &types.PbmQueryDefaultRequirementProfileResponse{}
	switch strings.ToLower(ds.Summary.Type) {
	case "vsan":
		res.Returnval = &types.PbmProfileId{UniqueId: vsanDefaultID}
	case "vvol":
		res.Returnval = &types.PbmProfileId{UniqueId: vvolDefaultID}
	}
	return &methods.PbmQueryDefaultRequirementProfileBody{Res: res}
}

// complianceManager tells whether entities satisfy their profiles; here they do as long as their profile exists.
type complianceManager struct {
	vim.ManagedObjectReference
	p *Policies
}

func (m *complianceManager) results(entities []types.PbmServerObjectRef) []types.PbmComplianceResult {
	m.p.mu.RLock()
	defer m.p.mu.RUnlock()
	var results []types.PbmComplianceResult
	for _, entity := range entities {
		result := types.PbmComplianceResult{
			CheckTime: m.p.cfg.Now(), Entity: entity, ComplianceStatus: string(types.PbmComplianceStatusNotApplicable),
		}
		if ids := m.p.profilesOf(entity); len(ids) > 0 {
			result.Profile = &ids[0]
			result.ComplianceStatus = string(types.PbmComplianceStatusCompliant)
			if m.p.find(ids[0].UniqueId) == nil {
				result.ComplianceStatus = string(types.PbmComplianceStatusUnknown)
			}
		}
		results = append(results, result)
	}
	return results
}

// PbmCheckCompliance checks entities now.
func (m *complianceManager) PbmCheckCompliance(req *types.PbmCheckCompliance) soap.HasFault {
	return &methods.PbmCheckComplianceBody{Res: &types.PbmCheckComplianceResponse{Returnval: m.results(req.Entities)}}
}

// PbmFetchComplianceResult reads the last check.
func (m *complianceManager) PbmFetchComplianceResult(req *types.PbmFetchComplianceResult) soap.HasFault {
	return &methods.PbmFetchComplianceResultBody{Res: &types.PbmFetchComplianceResultResponse{Returnval: m.results(req.Entities)}}
}
