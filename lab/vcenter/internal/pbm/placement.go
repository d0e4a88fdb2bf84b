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

// placementSolver answers which hubs (datastores and datastore clusters) fit a profile.
type placementSolver struct {
	vim.ManagedObjectReference
	p *Policies
}

func invalid(property string) *soap.Fault {
	return simulator.Fault("A specified parameter was not correct: "+property, &vim.InvalidArgument{InvalidProperty: property})
}

// hubs are those a request names, or all.
func (p *Policies) hubs(asked []types.PbmPlacementHub) ([]types.PbmPlacementHub, *soap.Fault) {
	if len(asked) > 0 {
		for _, hub := range asked {
			if p.vim.Get(hubRef(hub)) == nil {
				return nil, invalid("hubsToSearch")
			}
		}
		return asked, nil
	}
	var all []types.PbmPlacementHub
	for _, kind := range []string{"Datastore", "StoragePod"} {
		for _, e := range p.vim.All(kind) {
			all = append(all, types.PbmPlacementHub{HubType: kind, HubId: e.Reference().Value})
		}
	}
	slices.SortFunc(all, func(a, b types.PbmPlacementHub) int {
		return strings.Compare(a.HubType+a.HubId, b.HubType+b.HubId)
	})
	return all, nil
}

func hubRef(hub types.PbmPlacementHub) vim.ManagedObjectReference {
	return vim.ManagedObjectReference{Type: hub.HubType, Value: hub.HubId}
}

// fits judges a datastore, or a datastore cluster by all its members.
func (p *Policies) fits(known *policy, hub types.PbmPlacementHub) bool {
	if pod, ok := p.vim.Get(hubRef(hub)).(*simulator.StoragePod); ok {
		return len(pod.ChildEntity) > 0 && !slices.ContainsFunc(pod.ChildEntity, func(ds vim.ManagedObjectReference) bool { return !known.matches(ds) })
	}
	return known.matches(hubRef(hub))
}

// judge checks every hub against all profiles; a hub without an error fits.
func (p *Policies) judge(asked []types.PbmPlacementHub, wanted []*policy) ([]types.PbmPlacementCompatibilityResult, *soap.Fault) {
	hubs, fault := p.hubs(asked)
	if fault != nil {
		return nil, fault
	}
	var results []types.PbmPlacementCompatibilityResult
	for _, hub := range hubs {
		result := types.PbmPlacementCompatibilityResult{Hub: hub}
		for _, known := range wanted {
			if !p.fits(known, hub) {
				result.Error = append(result.Error, p.reasons(known, hub)...)
			}
		}
		results = append(results, result)
	}
	return results, nil
}

func matching(results []types.PbmPlacementCompatibilityResult) []types.PbmPlacementHub {
	var hubs []types.PbmPlacementHub
	for _, r := range results {
		if len(r.Error) == 0 {
			hubs = append(hubs, r.Hub)
		}
	}
	return hubs
}

// one checks a single stored profile.
func (p *Policies) one(asked []types.PbmPlacementHub, id types.PbmProfileId) ([]types.PbmPlacementCompatibilityResult, *soap.Fault) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	known := p.find(id.UniqueId)
	if known == nil {
		return nil, invalid("profileId")
	}
	return p.judge(asked, []*policy{known})
}

// spec checks a profile that is described, not stored.
func (p *Policies) spec(asked []types.PbmPlacementHub, spec types.PbmCapabilityProfileCreateSpec) ([]types.PbmPlacementCompatibilityResult, *soap.Fault) {
	described := &policy{
		profile: types.PbmCapabilityProfile{PbmProfile: types.PbmProfile{Name: spec.Name}, Constraints: spec.Constraints},
		matches: p.byRules(spec.Constraints),
	}
	return p.judge(asked, []*policy{described})
}

// PbmCheckCompatibility tells for each hub whether it fits a profile.
func (s *placementSolver) PbmCheckCompatibility(req *types.PbmCheckCompatibility) soap.HasFault {
	results, fault := s.p.one(req.HubsToSearch, req.Profile)
	if fault != nil {
		return &methods.PbmCheckCompatibilityBody{Fault_: fault}
	}
	return &methods.PbmCheckCompatibilityBody{Res: &types.PbmCheckCompatibilityResponse{Returnval: results}}
}

// PbmCheckCompatibilityWithSpec does it for a described profile.
func (s *placementSolver) PbmCheckCompatibilityWithSpec(req *types.PbmCheckCompatibilityWithSpec) soap.HasFault {
	results, fault := s.p.spec(req.HubsToSearch, req.ProfileSpec)
	if fault != nil {
		return &methods.PbmCheckCompatibilityWithSpecBody{Fault_: fault}
	}
	return &methods.PbmCheckCompatibilityWithSpecBody{Res: &types.PbmCheckCompatibilityWithSpecResponse{Returnval: results}}
}

// PbmQueryMatchingHub lists the hubs that fit a profile.
func (s *placementSolver) PbmQueryMatchingHub(req *types.PbmQueryMatchingHub) soap.HasFault {
	results, fault := s.p.one(req.HubsToSearch, req.Profile)
	if fault != nil {
		return &methods.PbmQueryMatchingHubBody{Fault_: fault}
	}
	return &methods.PbmQueryMatchingHubBody{Res: &types.PbmQueryMatchingHubResponse{Returnval: matching(results)}}
}

// PbmQueryMatchingHubWithSpec does it for a described profile.
func (s *placementSolver) PbmQueryMatchingHubWithSpec(req *types.PbmQueryMatchingHubWithSpec) soap.HasFault {
	results, fault := s.p.spec(req.HubsToSearch, req.CreateSpec)
	if fault != nil {
		return &methods.PbmQueryMatchingHubWithSpecBody{Fault_: fault}
	}
	return &methods.PbmQueryMatchingHubWithSpecBody{Res: &types.PbmQueryMatchingHubWithSpecResponse{Returnval: matching(results)}}
}

// PbmCheckRequirements tells for each hub whether it fits all requirements.
func (s *placementSolver) PbmCheckRequirements(req *types.PbmCheckRequirements) soap.HasFault {
	body := &methods.PbmCheckRequirementsBody{}
	s.p.mu.RLock()
	defer s.p.mu.RUnlock()
	var wanted []*policy
	for _, requirement := range req.PlacementSubjectRequirement {
		switch r := requirement.(type) {
		case *types.PbmPlacementCapabilityProfileRequirement:
			known := s.p.find(r.ProfileId.UniqueId)
			if known == nil {
				body.Fault_ = invalid("profileId")
				return body
			}
			wanted = append(wanted, known)
		case *types.PbmPlacementCapabilityConstraintsRequirement:
			wanted = append(wanted, &policy{
				profile: types.PbmCapabilityProfile{Constraints: r.Constraints}, matches: s.p.byRules(r.Constraints),
			})
		default:
			body.Fault_ = invalid("placementSubjectRequirement")
			return body
		}
	}
	results, fault := s.p.judge(req.HubsToSearch, wanted)
	if body.Fault_ = fault; fault == nil {
		body.Res = &types.PbmCheckRequirementsResponse{Returnval: results}
	}
	return body
}
