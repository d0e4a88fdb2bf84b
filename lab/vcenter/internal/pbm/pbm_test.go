package pbm

import (
	"context"
	"slices"
	"testing"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/fault"
	pbm "github.com/vmware/govmomi/pbm"
	"github.com/vmware/govmomi/pbm/methods"
	"github.com/vmware/govmomi/pbm/types"
	"github.com/vmware/govmomi/simulator"
	vim "github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/profile"
)

type lab struct {
	ctx        context.Context
	policies   *Policies
	vim        *simulator.Registry
	client     *pbm.Client
	datastores []vim.ManagedObjectReference
}

// start serves two policies: gold matches the first datastore, none matches nothing.
func start(t *testing.T, release string) *lab {
	t.Helper()
	model := simulator.VPX()
	model.Datastore, model.Pod = 3, 1
	if err := model.Create(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(model.Remove)
	l := &lab{ctx: context.Background(), vim: model.Service.Context.Map}
	for _, e := range l.vim.All("Datastore") {
		l.datastores = append(l.datastores, e.Reference())
	}
	slices.SortFunc(l.datastores, func(a, b vim.ManagedObjectReference) int { return slices.Compare([]byte(a.Value), []byte(b.Value)) })
	known, err := profile.Lookup(release)
	if err != nil {
		t.Fatal(err)
	}
	l.policies, err = Install(model.Service, l.vim, Config{
		Release: known,
		Policies: []Policy{
			{Name: "Gold Class", ID: "11111111-2222-3333-4444-555555555555", Datastores: l.datastores[:1]},
			{Name: "none"},
		},
		Tags: func(ds vim.ManagedObjectReference) []Tag {
			if ds == l.datastores[2] {
				return []Tag{{"tier", "fast"}}
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	server := model.Service.NewServer()
	t.Cleanup(server.Close)
	vc, err := govmomi.NewClient(l.ctx, server.URL, true)
	if err != nil {
		t.Fatal(err)
	}
	if l.client, err = pbm.NewClient(l.ctx, vc.Client); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lab) require(id string, hubs ...types.PbmPlacementHub) (pbm.PlacementCompatibilityResult, error) {
	return l.client.CheckRequirements(l.ctx, hubs, nil, []types.BasePbmPlacementRequirement{
		&types.PbmPlacementCapabilityProfileRequirement{ProfileId: types.PbmProfileId{UniqueId: id}},
	})
}

func TestProfilesAreFoundByName(t *testing.T) {
	l := start(t, "8.0U3")
	id, err := l.client.ProfileIDByName(l.ctx, "Gold Class")
	if err != nil || id != "11111111-2222-3333-4444-555555555555" {
		t.Errorf("%s, %v", id, err)
	}
	if name, err := l.client.GetProfileNameByID(l.ctx, vsanDefaultID); err != nil || name != "vSAN Default Storage Policy" {
		t.Errorf("%s, %v", name, err)
	}
	if _, err := l.client.ProfileIDByName(l.ctx, "unknown"); err == nil {
		t.Error("unknown name is found")
	}
}

func TestQueryHonoursCategoryAndResourceType(t *testing.T) {
	l := start(t, "8.0U3")
	storage := types.PbmProfileResourceType{ResourceType: "STORAGE"}
	for category, some := range map[string]bool{"REQUIREMENT": true, "RESOURCE": false, "": true} {
		ids, err := l.client.QueryProfile(l.ctx, storage, category)
		if err != nil || (len(ids) > 0) != some {
			t.Errorf("category %q: %v, %v", category, ids, err)
		}
	}
}

func TestUnknownProfileFailsTheRead(t *testing.T) {
	l := start(t, "8.0U3")
	_, err := l.client.RetrieveContent(l.ctx, []types.PbmProfileId{{UniqueId: vsanDefaultID}, {UniqueId: "gone"}})
	var argument *vim.InvalidArgument
	if _, ok := fault.As(err, &argument); !ok {
		t.Errorf("%v", err)
	}
	if _, err := l.require("gone"); err == nil {
		t.Error("check of an unknown profile succeeds")
	}
}

func TestOnlyDatastoresOfThePolicyAreCompatible(t *testing.T) {
	l := start(t, "8.0U3")
	results, err := l.require("11111111-2222-3333-4444-555555555555")
	if err != nil {
		t.Fatal(err)
	}
	good := results.CompatibleDatastores()
	if len(good) != 1 || good[0].HubId != l.datastores[0].Value || good[0].HubType != "Datastore" {
		t.Errorf("compatible: %v", good)
	}
	if bad := results.NonCompatibleDatastores(); len(bad) != len(l.datastores) { // the others and the empty cluster
		t.Errorf("incompatible: %v", bad)
	}
	refs, ok := l.policies.Compatible("11111111-2222-3333-4444-555555555555")
	if !ok || !slices.Equal(refs, l.datastores[:1]) {
		t.Errorf("%v %v", refs, ok)
	}
	if _, ok := l.policies.Compatible("gone"); ok {
		t.Error("unknown profile is known")
	}
}

func TestIncompatibleHubsComeWithAReason(t *testing.T) {
	l := start(t, "8.0U3")
	hub := types.PbmPlacementHub{HubType: "Datastore", HubId: l.datastores[1].Value}
	results, err := l.require("11111111-2222-3333-4444-555555555555", hub)
	if err != nil || len(results) != 1 || len(results[0].Error) != 1 {
		t.Fatalf("%+v, %v", results, err)
	}
	reason, ok := results[0].Error[0].Fault.(*types.PbmPropertyMismatchFault)
	if !ok || reason.Hub != hub || reason.CapabilityInstanceId.Id != "Gold Class" || results[0].Error[0].LocalizedMessage == "" {
		t.Errorf("%+v", results[0].Error[0])
	}
}

func TestMatchingHubsAndCheckAgree(t *testing.T) {
	l := start(t, "8.0U3")
	for _, id := range []string{"11111111-2222-3333-4444-555555555555", derivedID("none"), encryptionID} {
		profile := types.PbmProfileId{UniqueId: id}
		hubs, err := methods.PbmQueryMatchingHub(l.ctx, l.client, &types.PbmQueryMatchingHub{This: l.client.ServiceContent.PlacementSolver, Profile: profile})
		if err != nil {
			t.Fatal(err)
		}
		check, err := methods.PbmCheckCompatibility(l.ctx, l.client, &types.PbmCheckCompatibility{This: l.client.ServiceContent.PlacementSolver, Profile: profile})
		if err != nil {
			t.Fatal(err)
		}
		if good := pbm.PlacementCompatibilityResult(check.Returnval).CompatibleDatastores(); !slices.Equal(good, hubs.Returnval) {
			t.Errorf("%s: %v and %v", id, good, hubs.Returnval)
		}
	}
}

func TestUnknownHubIsRefused(t *testing.T) {
	l := start(t, "8.0U3")
	if _, err := l.require(encryptionID, types.PbmPlacementHub{HubType: "Datastore", HubId: "gone"}); err == nil {
		t.Error("unknown hub is accepted")
	}
}

func TestCreatedPolicyMatchesByItsTags(t *testing.T) {
	l := start(t, "8.0U3")
	spec := types.PbmCapabilityProfileCreateSpec{
		Name: "fast", ResourceType: types.PbmProfileResourceType{ResourceType: "STORAGE"}, Category: "REQUIREMENT",
		Constraints: &types.PbmCapabilitySubProfileConstraints{SubProfiles: []types.PbmCapabilitySubProfile{{
			Name: "tags", Capability: []types.PbmCapabilityInstance{{
				Id: types.PbmCapabilityMetadataUniqueId{Namespace: tagNamespace, Id: "tier"},
				Constraint: []types.PbmCapabilityConstraintInstance{{PropertyInstance: []types.PbmCapabilityPropertyInstance{{
					Id: propertyID("tier"), Value: types.PbmCapabilityDiscreteSet{Values: []vim.AnyType{"fast"}},
				}}}},
			}},
		}}},
	}
	id, err := l.client.CreateProfile(l.ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	if refs, _ := l.policies.Compatible(id.UniqueId); !slices.Equal(refs, l.datastores[2:3]) {
		t.Errorf("matches %v", refs)
	}
	var duplicate *types.PbmDuplicateName
	if _, err := l.client.CreateProfile(l.ctx, spec); err == nil {
		t.Error("second policy of that name is accepted")
	} else if _, ok := fault.As(err, &duplicate); !ok {
		t.Errorf("second policy of that name: %v", err)
	}
	if _, err := l.client.DeleteProfile(l.ctx, []types.PbmProfileId{*id}); err != nil {
		t.Fatal(err)
	}
	if _, ok := l.policies.Compatible(id.UniqueId); ok {
		t.Error("deleted policy is still there")
	}
}

func TestAssociationsAreReported(t *testing.T) {
	l := start(t, "8.0U3")
	l.policies.Associate("virtualDiskUUID", "disk-1", encryptionID)
	entity := types.PbmServerObjectRef{ObjectType: "virtualDiskUUID", Key: "disk-1"}
	ids, err := l.client.QueryAssociatedProfile(l.ctx, entity)
	if err != nil || len(ids) != 1 || ids[0].UniqueId != encryptionID {
		t.Errorf("%v, %v", ids, err)
	}
	entities, err := l.client.QueryAssociatedEntity(l.ctx, types.PbmProfileId{UniqueId: encryptionID}, "virtualDiskUUID")
	if err != nil || len(entities) != 1 || entities[0].Key != "disk-1" {
		t.Errorf("%v, %v", entities, err)
	}
	outcome, err := l.client.DeleteProfile(l.ctx, []types.PbmProfileId{{UniqueId: encryptionID}})
	if err != nil || len(outcome) != 1 || outcome[0].Fault == nil {
		t.Errorf("a used policy is deleted: %+v, %v", outcome, err)
	}
}

func TestAssociationsOfManyAreReported(t *testing.T) {
	l := start(t, "8.0U3")
	l.policies.Associate("virtualDiskUUID", "disk-1", encryptionID)
	manager := l.client.ServiceContent.ProfileManager
	disk := types.PbmServerObjectRef{ObjectType: "virtualDiskUUID", Key: "disk-1"}
	other := types.PbmServerObjectRef{ObjectType: "virtualDiskUUID", Key: "disk-2"}
	entities, err := methods.PbmQueryAssociatedEntities(l.ctx, l.client, &types.PbmQueryAssociatedEntities{
		This: manager, Profiles: []types.PbmProfileId{{UniqueId: encryptionID}, {UniqueId: vsanDefaultID}},
	})
	if err != nil || len(entities.Returnval) != 1 || entities.Returnval[0].Object != disk || entities.Returnval[0].ProfileId[0].UniqueId != encryptionID {
		t.Errorf("%+v, %v", entities, err)
	}
	profiles, err := methods.PbmQueryAssociatedProfiles(l.ctx, l.client, &types.PbmQueryAssociatedProfiles{
		This: manager, Entities: []types.PbmServerObjectRef{disk, other},
	})
	if err != nil || len(profiles.Returnval) != 2 || len(profiles.Returnval[0].ProfileId) != 1 || len(profiles.Returnval[1].ProfileId) != 0 {
		t.Errorf("%+v, %v", profiles, err)
	}
}

func TestK8sNamesAppearFromRelease9On(t *testing.T) {
	for release, want := range map[string]string{"8.0U3": "", "9.0": "gold-class"} {
		l := start(t, release)
		content, err := l.client.RetrieveContent(l.ctx, []types.PbmProfileId{{UniqueId: "11111111-2222-3333-4444-555555555555"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := content[0].(types.BasePbmCapabilityProfile).GetPbmCapabilityProfile().K8sCompliantName; got != want {
			t.Errorf("%s: %q, want %q", release, got, want)
		}
	}
	for name, want := range map[string]string{"A b": "a-b", "-x-": "0-x-0", "": "0", "Überall": "0-berall"} {
		if got := K8sName(name); got != want {
			t.Errorf("%q becomes %q, want %q", name, got, want)
		}
	}
}

func TestBadDescriptionsAreRefused(t *testing.T) {
	model := simulator.VPX()
	if err := model.Create(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(model.Remove)
	for name, policies := range map[string][]Policy{
		"no name":         {{}},
		"twice":           {{Name: "a"}, {Name: "a"}},
		"same id":         {{Name: "a", ID: "x"}, {Name: "b", ID: "x"}},
		"not a datastore": {{Name: "a", Datastores: []vim.ManagedObjectReference{{Type: "Datastore", Value: "gone"}}}},
	} {
		if _, err := Install(model.Service, model.Service.Context.Map, Config{Policies: policies}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
