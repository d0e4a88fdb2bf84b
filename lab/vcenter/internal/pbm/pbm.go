// Package pbm is the storage policy service of one vCenter: profiles from a description or created by clients, and the
// answer to the question which datastores fit a profile. The stock simulator says "all" to that; here a datastore
// fits when the description lists it, or when it satisfies the rules a client created the profile with.
package pbm

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	pbm "github.com/vmware/govmomi/pbm"
	"github.com/vmware/govmomi/pbm/types"
	"github.com/vmware/govmomi/simulator"
	vim "github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/profile"
)

// Policy is a storage policy as a description gives it.
type Policy struct {
	Name        string
	ID          string // a UUID; derived from the name when empty
	Description string
	Datastores  []vim.ManagedObjectReference // those it matches
	K8sName     string                       // derived from the name when empty
}

// Tag is a tag on a datastore.
type Tag struct{ Category, Name string }

// Config is what the service needs.
type Config struct {
	Release  *profile.Profile
	Policies []Policy
	// Tags reads the tags of a datastore, for policies with tag rules that clients create; nil means none.
	Tags func(datastore vim.ManagedObjectReference) []Tag
	Now  func() time.Time
}

// policy is a profile and what it matches: a fixed list, or rules when the list is nil.
type policy struct {
	profile types.PbmCapabilityProfile
	matches func(datastore vim.ManagedObjectReference) bool
}

// Policies is the state of the service. All methods are safe for concurrent use.
type Policies struct {
	cfg      Config
	vim      *simulator.Registry
	registry *simulator.Registry

	mu           sync.RWMutex
	policies     []*policy
	associations map[types.PbmServerObjectRef]string // entity -> profile id
}

// Ids of policies every vCenter has.
const (
	vsanDefaultID = "aa6d5a82-1c88-45da-85d3-3d74b91a5bad"
	vvolDefaultID = "f4e5bade-15a2-4805-bf8e-52318c4ce443"
	encryptionID  = "4d5f673c-536f-11e6-beb8-9e71128cae77"
)

// Install serves the policies at /pbm and /pbm/sdk. It must run before the service listens; the caller hangs its checks
// into Registry().Handler.
func Install(service *simulator.Service, vimRegistry *simulator.Registry, cfg Config) (*Policies, error) {
	p := &Policies{cfg: cfg, vim: vimRegistry, associations: map[types.PbmServerObjectRef]string{}}
	if p.cfg.Now == nil {
		p.cfg.Now = time.Now
	}
	if err := p.fill(); err != nil {
		return nil, err
	}
	r := simulator.NewRegistry()
	r.Namespace, r.Path, r.Cookie = pbm.Namespace, pbm.Path, sessionCookie
	r.Put(&serviceInstance{pbm.ServiceInstance})
	r.Put(&profileManager{content.ProfileManager, p})
	r.Put(&placementSolver{content.PlacementSolver, p})
	r.Put(&complianceManager{content.ComplianceManager, p})
	service.RegisterSDK(r, pbm.Path+"/sdk")
	p.registry = r
	return p, nil
}

// sessionCookie takes the session from the SOAP header, where PBM clients put it, or from the HTTP cookie.
func sessionCookie(ctx *simulator.Context) string {
	if key := strings.Trim(simulator.SOAPCookie(ctx), `"`); key != "" {
		return key
	}
	return simulator.HTTPCookie(ctx)
}

// Registry is where the assembly hangs its per-call checks.
func (p *Policies) Registry() *simulator.Registry { return p.registry }

func (p *Policies) fill() error {
	built := []struct {
		policy  Policy
		matches func(vim.ManagedObjectReference) bool
	}{
		{Policy{Name: "vSAN Default Storage Policy", ID: vsanDefaultID, Description: "Storage policy used as default for vSAN datastores"}, p.ofType("vsan")},
		{Policy{Name: "VVol No Requirements Policy", ID: vvolDefaultID, Description: "Allow the datastore to determine the best placement strategy for storage objects"}, p.ofType("VVOL")},
		{Policy{Name: "VM Encryption Policy", ID: encryptionID, Description: "Sample storage policy for VMware's VM and virtual disk encryption"}, func(vim.ManagedObjectReference) bool { return true }},
	}
	for _, b := range built {
		named := func(own Policy) bool { return own.Name == b.policy.Name }
		if !slices.ContainsFunc(p.cfg.Policies, named) {
			p.policies = append(p.policies, p.make(b.policy, b.matches))
		}
	}
	for _, own := range p.cfg.Policies {
		if own.Name == "" {
			return fmt.Errorf("storage policy without a name; give it one")
		}
		if own.ID == "" {
			own.ID = derivedID(own.Name)
		}
		if p.find(own.ID) != nil || p.byName(own.Name) != nil {
			return fmt.Errorf("storage policy %q (id %s) is given twice; remove one", own.Name, own.ID)
		}
		for _, ds := range own.Datastores {
			if _, ok := p.vim.Get(ds).(*simulator.Datastore); !ok {
				return fmt.Errorf("storage policy %q: %s is no datastore", own.Name, ds)
			}
		}
		datastores := slices.Clone(own.Datastores)
		p.policies = append(p.policies, p.make(own, func(ds vim.ManagedObjectReference) bool { return slices.Contains(datastores, ds) }))
	}
	return nil
}

// derivedID gives a policy the same id in every run.
func derivedID(name string) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("storage-policy:"+name)).String()
}

func (p *Policies) make(own Policy, matches func(vim.ManagedObjectReference) bool) *policy {
	now := p.cfg.Now()
	rule := types.PbmCapabilityInstance{
		Id: types.PbmCapabilityMetadataUniqueId{Namespace: tagNamespace, Id: own.Name},
		Constraint: []types.PbmCapabilityConstraintInstance{{PropertyInstance: []types.PbmCapabilityPropertyInstance{{
			Id:    propertyID(own.Name),
			Value: types.PbmCapabilityDiscreteSet{Values: []vim.AnyType{own.Name}},
		}}}},
	}
	made := &policy{matches: matches, profile: types.PbmCapabilityProfile{
		PbmProfile: types.PbmProfile{
			ProfileId: types.PbmProfileId{UniqueId: own.ID}, Name: own.Name, Description: own.Description,
			CreationTime: now, LastUpdatedTime: now, CreatedBy: "Temporary user handle", LastUpdatedBy: "Temporary user handle",
		},
		ProfileCategory: string(types.PbmProfileCategoryEnumREQUIREMENT),
		ResourceType:    types.PbmProfileResourceType{ResourceType: string(types.PbmProfileResourceTypeEnumSTORAGE)},
		Constraints: &types.PbmCapabilitySubProfileConstraints{
			SubProfiles: []types.PbmCapabilitySubProfile{{Name: "sp-1", Capability: []types.PbmCapabilityInstance{rule}}},
		},
	}}
	p.setK8sName(made, own.K8sName)
	return made
}

// setK8sName fills the field that vCenter 9.0 introduced.
func (p *Policies) setK8sName(made *policy, name string) {
	if p.cfg.Release == nil || !p.cfg.Release.AtLeast("9.0") {
		return
	}
	if name == "" {
		name = K8sName(made.profile.Name)
	}
	made.profile.K8sCompliantName = name
	made.profile.OtherK8sCompliantNames = []string{name + "-latebinding"}
}

var notK8s = regexp.MustCompile(`[^a-z0-9.]+`)

// K8sName turns a policy's name into one that Kubernetes accepts for a StorageClass.
func K8sName(name string) string {
	name = notK8s.ReplaceAllString(strings.ToLower(name), "-")
	if name == "" || strings.ContainsAny(name[:1], "-.") {
		name = "0" + name
	}
	if strings.ContainsAny(name[len(name)-1:], "-.") {
		name += "0"
	}
	return name
}

func (p *Policies) ofType(kind string) func(vim.ManagedObjectReference) bool {
	return func(ref vim.ManagedObjectReference) bool {
		ds, ok := p.vim.Get(ref).(*simulator.Datastore)
		return ok && strings.EqualFold(ds.Summary.Type, kind)
	}
}

func (p *Policies) find(id string) *policy {
	for _, known := range p.policies {
		if known.profile.ProfileId.UniqueId == id {
			return known
		}
	}
	return nil
}

func (p *Policies) byName(name string) *policy {
	for _, known := range p.policies {
		if known.profile.Name == name {
			return known
		}
	}
	return nil
}

// Compatible lists the datastores a profile matches; false means that there is no such profile.
func (p *Policies) Compatible(profileID string) ([]vim.ManagedObjectReference, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	known := p.find(profileID)
	if known == nil {
		return nil, false
	}
	var found []vim.ManagedObjectReference
	for _, e := range p.vim.All("Datastore") {
		if known.matches(e.Reference()) {
			found = append(found, e.Reference())
		}
	}
	slices.SortFunc(found, func(a, b vim.ManagedObjectReference) int { return strings.Compare(a.Value, b.Value) })
	return found, true
}

// ID finds a profile by its name.
func (p *Policies) ID(name string) (string, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if known := p.byName(name); known != nil {
		return known.profile.ProfileId.UniqueId, true
	}
	return "", false
}

// Associate records that an entity (a disk, a virtual machine) uses a profile; an empty id forgets it.
// objectType is PBM's: virtualMachine, virtualDiskId, virtualDiskUUID or datastore.
func (p *Policies) Associate(objectType, key, profileID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	entity := types.PbmServerObjectRef{ObjectType: objectType, Key: key}
	if profileID == "" {
		delete(p.associations, entity)
		return
	}
	p.associations[entity] = profileID
}
