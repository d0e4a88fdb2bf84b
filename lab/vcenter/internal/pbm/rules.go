package pbm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmware/govmomi/pbm/types"
	vim "github.com/vmware/govmomi/vim25/types"
)

// Namespaces of the rules this service can judge.
const (
	tagNamespace  = "http://www.vmware.com/storage/tag"
	vsanNamespace = "VSAN"
)

func propertyID(category string) string { return "com.vmware.storage.tag." + category + ".property" }

// byRules judges a datastore by the rules of a profile: one of its sub-profiles must hold entirely.
func (p *Policies) byRules(constraints types.BasePbmCapabilityConstraints) func(vim.ManagedObjectReference) bool {
	sub, ok := constraints.(*types.PbmCapabilitySubProfileConstraints)
	if !ok || len(sub.SubProfiles) == 0 {
		return func(vim.ManagedObjectReference) bool { return true }
	}
	profiles := slices.Clone(sub.SubProfiles)
	return func(ds vim.ManagedObjectReference) bool {
		return slices.ContainsFunc(profiles, func(s types.PbmCapabilitySubProfile) bool {
			return !slices.ContainsFunc(s.Capability, func(rule types.PbmCapabilityInstance) bool { return !p.holds(rule, ds) })
		})
	}
}

// holds judges one rule. Rules of services that the simulator does not have hold for every datastore.
func (p *Policies) holds(rule types.PbmCapabilityInstance, ds vim.ManagedObjectReference) bool {
	switch rule.Id.Namespace {
	case vsanNamespace:
		return p.ofType("vsan")(ds)
	case tagNamespace:
		var tags []Tag
		if p.cfg.Tags != nil {
			tags = p.cfg.Tags(ds)
		}
		return slices.ContainsFunc(tags, func(t Tag) bool {
			return t.Category == rule.Id.Id && slices.Contains(wantedTags(rule), t.Name)
		})
	}
	return true
}

func wantedTags(rule types.PbmCapabilityInstance) []string {
	var names []string
	for _, constraint := range rule.Constraint {
		for _, property := range constraint.PropertyInstance {
			switch v := property.Value.(type) {
			case types.PbmCapabilityDiscreteSet:
				for _, name := range v.Values {
					names = append(names, fmt.Sprint(name))
				}
			case *types.PbmCapabilityDiscreteSet:
				for _, name := range v.Values {
					names = append(names, fmt.Sprint(name))
				}
			case string:
				names = append(names, v)
			}
		}
	}
	return names
}

// reasons is why a hub does not fit: one fault per rule of the profile, as vCenter reports it.
func (p *Policies) reasons(known *policy, hub types.PbmPlacementHub) []vim.LocalizedMethodFault {
	var faults []vim.LocalizedMethodFault
	add := func(id types.PbmCapabilityMetadataUniqueId, property types.PbmCapabilityPropertyInstance) {
		faults = append(faults, vim.LocalizedMethodFault{
			Fault: &types.PbmPropertyMismatchFault{
				PbmCompatibilityCheckFault: types.PbmCompatibilityCheckFault{Hub: hub},
				CapabilityInstanceId:       id, RequirementPropertyInstance: property,
			},
			LocalizedMessage: fmt.Sprintf("Datastore does not match current VM policy: it does not satisfy rule %s of policy %s.",
				strings.TrimSuffix(property.Id, ".property"), known.profile.Name),
		})
	}
	sub, ok := known.profile.Constraints.(*types.PbmCapabilitySubProfileConstraints)
	if ok {
		for _, s := range sub.SubProfiles {
			for _, rule := range s.Capability {
				for _, constraint := range rule.Constraint {
					for _, property := range constraint.PropertyInstance {
						add(rule.Id, property)
					}
				}
			}
		}
	}
	if len(faults) == 0 {
		faults = append(faults, vim.LocalizedMethodFault{
			Fault:            &types.PbmCompatibilityCheckFault{Hub: hub},
			LocalizedMessage: fmt.Sprintf("Datastore does not match policy %s.", known.profile.Name),
		})
	}
	return faults
}
