package cns

import (
	"cmp"
	"slices"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// candidate is a datastore that create considers; fault says why it cannot be used.
type candidate struct {
	place
	fault types.BaseMethodFault
}

// wanted is what a new volume asks of its datastore.
type wanted struct {
	user   string
	among  []types.ManagedObjectReference // empty: any
	policy string
	bytes  int64
	file   bool
	only   *types.ManagedObjectReference // a restored volume stays with its source
	reach  []hostGroup                   // each must have a host that mounts the datastore
}

// placePrivilege is what a user needs on a datastore to make disks there.
const placePrivilege = "Datastore.FileManagement"

// hostGroup is a host or the hosts of a cluster.
type hostGroup struct {
	ref   types.ManagedObjectReference
	name  string
	hosts []types.ManagedObjectReference
}

// mounts tells whether some host of the group mounts the datastore.
func (g hostGroup) mounts(p place) bool {
	return slices.ContainsFunc(g.hosts, func(host types.ManagedObjectReference) bool { return slices.Contains(p.hosts, host) })
}

// unreached names the first group that cannot use the datastore.
func unreached(groups []hostGroup, p place) (name string, found bool) {
	for _, group := range groups {
		if !group.mounts(p) {
			return group.name, true
		}
	}
	return "", false
}

// candidates judges the datastores, best first: usable ones by free space as CNS ranks them, then the others.
func (m *Manager) candidates(want wanted) ([]candidate, types.BaseMethodFault) {
	refs := want.among
	if len(refs) == 0 {
		refs = m.datastores()
	}
	var suitable []types.ManagedObjectReference
	if want.policy != "" && m.policies != nil {
		known := false
		if suitable, known = m.policies.Compatible(want.policy); !known {
			return nil, cnsFault(nil, "Fault cause: %s\n", qualified(&types.InvalidArgument{}))
		}
	}
	list := make([]candidate, 0, len(refs))
	for _, ref := range refs {
		p, ok := m.datastore(ref)
		if !ok {
			return nil, &types.ManagedObjectNotFound{Obj: ref}
		}
		c := candidate{place: p}
		away, remote := unreached(want.reach, p)
		switch {
		case m.mayPlace != nil && !m.mayPlace(want.user, ref):
			c.fault = &CnsMissingPrivilegeFault{
				CnsFault:   cnstypes.CnsFault{Reason: "User " + want.user + " may not create disks on datastore " + p.name},
				Privileges: []string{placePrivilege},
			}
		case want.policy != "" && m.policies != nil && !slices.Contains(suitable, ref):
			c.fault = &CnsInCompatibleFault{CnsFault: cnstypes.CnsFault{Reason: "Datastore " + p.name + " does not satisfy the storage policy"}}
		case want.only != nil && *want.only != ref:
			c.fault = &CnsPlacementFault{CnsFault: cnstypes.CnsFault{Reason: "Datastore " + p.name + " does not hold the snapshot"}}
		case remote && assume.ActiveClustersMustReach.In(m.assumed):
			c.fault = &CnsPlacementFault{CnsFault: cnstypes.CnsFault{Reason: "Datastore " + p.name + " is not mounted by " + away}}
		case want.file && assume.FileSharesNeedVSAN.In(m.assumed) && !p.vsan:
			c.fault = &CnsPlacementFault{CnsFault: cnstypes.CnsFault{Reason: "Datastore " + p.name + " is not a vSAN datastore"}}
		case want.file && m.fileService != nil && !m.fileService(ref):
			c.fault = &CnsPlacementFault{CnsFault: cnstypes.CnsFault{Reason: "vSAN file service is not enabled for datastore " + p.name}}
		case !p.accessible && assume.UnusableDatastore.In(m.assumed) == "passed over":
			c.fault = &CnsPlacementFault{CnsFault: cnstypes.CnsFault{Reason: "Datastore " + p.name + " is not accessible or in maintenance"}}
		case p.free < want.bytes:
			c.fault = &types.NoDiskSpace{Datastore: p.name}
		}
		list = append(list, c)
	}
	slices.SortStableFunc(list, func(a, b candidate) int {
		if (a.fault == nil) != (b.fault == nil) {
			if a.fault == nil {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.free, a.free), compareRefs(a.ref, b.ref))
	})
	return list, nil
}

// chosenPlace is a datastore with room reserved on it.
type chosenPlace struct {
	place
	taken int64 // for giveBack
}

// choose reserves room on the best datastore. The placement results tell of every candidate why it was not taken, and of the
// chosen one from where it can be used if the request named clusters or hosts.
func (m *Manager) choose(want wanted) (chosenPlace, []cnstypes.CnsPlacementResult, types.BaseMethodFault) {
	if fault := m.policyService(want.policy); fault != nil {
		return chosenPlace{}, nil, fault
	}
	list, fault := m.candidates(want)
	if fault != nil {
		return chosenPlace{}, nil, fault
	}
	if len(list) > 0 && list[0].fault == nil && !list[0].accessible {
		return chosenPlace{}, nil, failedTo(toCreate, &types.InvalidDatastoreState{DatastoreName: list[0].name})
	}
	var chosen *chosenPlace
	var results []cnstypes.CnsPlacementResult
	for i := range list {
		c := &list[i]
		if c.fault == nil && chosen == nil {
			taken, enough := m.take(c.ref, want.bytes)
			if enough {
				chosen = &chosenPlace{place: c.place, taken: taken}
				results = append(results, want.placed(c.place))
				continue
			}
			c.fault = &types.NoDiskSpace{Datastore: c.name}
		}
		if shown := m.against(c); shown != nil {
			results = append(results, cnstypes.CnsPlacementResult{Datastore: c.ref, PlacementFaults: []*types.LocalizedMethodFault{localized(shown)}})
		}
	}
	if !m.since("7.0U2") {
		results = nil // the field is newer than the release
	}
	if chosen == nil {
		return chosenPlace{}, results, m.noPlace(want.policy, list)
	}
	return *chosen, results, nil
}

// against is what the placement results have against a datastore that was not taken; nil for nothing.
func (m *Manager) against(c *candidate) types.BaseMethodFault {
	lower := &CnsRankedLowerFault{CnsFault: cnstypes.CnsFault{Reason: "Datastore " + c.name + " has less free space"}}
	if c.fault == nil {
		return lower
	}
	if _, full := c.fault.(*types.NoDiskSpace); full && m.since("7.0U2") {
		switch assume.FullInPlacement.In(m.assumed) {
		case "no entry":
			return nil
		case "CnsRankedLowerFault":
			return lower
		}
	}
	return c.fault
}

// placed is the placement on a datastore.
func (w wanted) placed(at place) cnstypes.CnsPlacementResult {
	result := cnstypes.CnsPlacementResult{Datastore: at.ref}
	for _, group := range w.reach {
		switch {
		case !group.mounts(at):
		case group.ref.Type == "HostSystem" && result.Host == nil:
			result.Host = &group.ref
		case group.ref.Type != "HostSystem":
			result.Clusters = append(result.Clusters, group.ref)
		}
	}
	return result
}

// noPlace names the reason that most likely is the user's: a full datastore that is otherwise right.
func (m *Manager) noPlace(policy string, list []candidate) types.BaseMethodFault {
	for _, c := range list {
		if _, full := c.fault.(*types.NoDiskSpace); full {
			return m.outOfSpace("create", c.name)
		}
	}
	return cnsFault(nil, "No compatible datastore found for storagePolicy: %s", policy)
}

// policyID reads the one policy of a spec. vCenter takes a list, but uses a single entry.
func policyID(profiles []types.BaseVirtualMachineProfileSpec) (string, types.BaseMethodFault) {
	id := ""
	for _, p := range profiles {
		if defined, ok := p.(*types.VirtualMachineDefinedProfileSpec); ok {
			if id != "" || defined.ProfileId == "" {
				return "", invalid("profile")
			}
			id = defined.ProfileId
		}
	}
	return id, nil
}
