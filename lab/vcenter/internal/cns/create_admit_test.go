package cns

import (
	"strings"
	"testing"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// wantRefusal expects a call to be refused with this fault and exactly this text.
func (l *lab) wantRefusal(want types.BaseMethodFault, text string, task *object.Task, err error) {
	l.Helper()
	l.wantCallFault(want, task, err)
	if got := soap.ToSoapFault(err).String; got != text {
		l.Errorf("text is %q, want %q", got, text)
	}
}

// wantArgument expects a call to be refused for an argument, which the fault and the text name in full.
func (l *lab) wantArgument(path string, task *object.Task, err error) {
	l.Helper()
	l.wantRefusal(invalid(path), "A specified parameter was not correct: "+path, task, err)
	if got := soap.ToSoapFault(err).VimFault().(types.InvalidArgument).InvalidProperty; got != path {
		l.Errorf("the property is %q, want %q", got, path)
	}
}

func TestCreateRefusesWrongRequestsInTheCall(t *testing.T) {
	backing := func(s *cnstypes.CnsVolumeCreateSpec) *cnstypes.CnsBackingObjectDetails {
		return s.BackingObjectDetails.GetCnsBackingObjectDetails()
	}
	cases := map[string]struct {
		change func(*cnstypes.CnsVolumeCreateSpec)
		path   string
	}{
		"no name":         {func(s *cnstypes.CnsVolumeCreateSpec) { s.Name = "" }, "createSpecs.name"},
		"an unknown type": {func(s *cnstypes.CnsVolumeCreateSpec) { s.VolumeType = "TAPE" }, "createSpecs.volumeType"},
		"no size":         {func(s *cnstypes.CnsVolumeCreateSpec) { backing(s).CapacityInMb = 0 }, "createSpecs.backingObjectDetails.capacityInMb"},
		"a file's backing": {func(s *cnstypes.CnsVolumeCreateSpec) {
			s.BackingObjectDetails = &cnstypes.CnsVsanFileShareBackingDetails{}
		}, "createSpecs.backingObjectDetails"},
		"two policies": {func(s *cnstypes.CnsVolumeCreateSpec) {
			one := withPolicy(*s, "gold").Profile
			s.Profile = append(one, one...)
		}, "createSpecs.profile"},
		"no share's size": {func(s *cnstypes.CnsVolumeCreateSpec) {
			s.VolumeType, s.BackingObjectDetails = "FILE", &cnstypes.CnsVsanFileShareBackingDetails{}
		}, "createSpecs.backingObjectDetails.capacityInMb"},
	}
	for _, release := range []string{"6.7U3", "8.0U3", "9.1"} {
		l := newLab(t, options{release: release})
		for name, c := range cases {
			spec := l.blockSpec("pvc", 1024)
			c.change(&spec)
			task, err := l.create(spec)
			if err == nil {
				t.Errorf("%s: %s: there is a task", release, name)
				continue
			}
			l.wantArgument(c.path, task, err)
		}
		spec := l.blockSpec("pvc", 1024)
		spec.Datastores = append(spec.Datastores, types.ManagedObjectReference{Type: "Datastore", Value: "datastore-x"})
		task, err := l.create(spec)
		l.wantRefusal(&types.ManagedObjectNotFound{}, "ManagedObjectNotFound", task, err)
		if got := l.manager.Volumes(); len(got) != 0 {
			t.Errorf("%s: volumes %v", release, got)
		}
	}
}

func TestADatastoreThatTheUserDoesNotSeeIsNotFound(t *testing.T) {
	var hidden types.ManagedObjectReference
	l := newLab(t, options{config: func(c *Config) {
		c.Sees = func(user string, datastore types.ManagedObjectReference) bool {
			return user == "user" && datastore != hidden
		}
	}})
	l.result(l.create(l.blockSpec("a", 1024)))
	hidden = l.datastores[1]
	task, err := l.create(l.blockSpec("a", 1024))
	l.wantRefusal(&types.ManagedObjectNotFound{}, "ManagedObjectNotFound", task, err)
	if got := soap.ToSoapFault(err).VimFault().(types.ManagedObjectNotFound).Obj; got != hidden {
		t.Errorf("not found is %s", got.Value)
	}
}

func TestCreateTakesOneSpec(t *testing.T) {
	l := newLab(t, options{})
	for _, specs := range [][]cnstypes.CnsVolumeCreateSpec{nil, {l.blockSpec("a", 1), l.blockSpec("b", 1)}} {
		task, err := l.create(specs...)
		l.wantTaskFault(invalid("InputSpec"), task, err)
	}
	l.assume(map[string]any{"SpecCountLevel": "call"})
	task, err := l.create()
	l.wantArgument("InputSpec", task, err)
}

func TestNamesHaveALimit(t *testing.T) {
	l := newLab(t, options{})
	task, err := l.create(l.blockSpec(strings.Repeat("ä", 81), 1024))
	l.wantArgument("createSpecs.name", task, err)
	l.result(l.create(l.blockSpec(strings.Repeat("ä", 80), 1024)))
}

func TestVolumesHaveALargestSize(t *testing.T) {
	l := newLab(t, options{})
	task, err := l.create(l.blockSpec("a", 62<<20+1))
	l.wantArgument("createSpecs.backingObjectDetails.capacityInMb", task, err)
	task, err = l.create(l.blockSpec("a", 62<<20))
	l.wantVolumeFault(&cnstypes.CnsFault{}, task, err) // no datastore has so much room
}

func TestTheUserOfAClusterIsThatOfTheSession(t *testing.T) {
	for _, pair := range [][2]string{{"user@vsphere.local", `VSPHERE.LOCAL\User`}, {"User", "user"}} {
		if !sameUser(pair[0], pair[1]) {
			t.Errorf("%v differ", pair)
		}
	}
	if sameUser("user@a", "user@b") {
		t.Error("users of two domains are the same")
	}
	l := newLab(t, options{})
	spec := l.blockSpec("a", 1024)
	spec.Metadata.ContainerCluster.VSphereUser = "eve"
	task, err := l.create(spec)
	l.wantArgument("createSpecs.metadata.containerCluster.vSphereUser", task, err)
	l.assume(map[string]any{"SessionUserOnly": false})
	l.result(l.create(spec))
}

func TestCreateNeedsDatastores(t *testing.T) {
	l := newLab(t, options{})
	spec := l.blockSpec("a", 1024)
	spec.Datastores = nil
	task, err := l.create(spec)
	l.wantRefusal(&types.InvalidArgument{}, "createSpecs.datastores is empty", task, err)
	l.assume(map[string]any{"NoDatastores": "CnsFault"})
	task, err = l.create(spec)
	l.wantRefusal(&cnstypes.CnsFault{}, "createSpecs.datastores is empty", task, err)
	l.assume(map[string]any{"NoDatastores": "any datastore"})
	l.result(l.create(spec))
}

func TestRegisteringNeedsNoDatastores(t *testing.T) {
	l := newLab(t, options{})
	id := l.newVolume("a")
	l.result(l.cns.DeleteVolume(l.ctx, volumeIDs(id), false))
	spec := l.blockSpec("again", 0)
	spec.Datastores = nil
	spec.BackingObjectDetails = &cnstypes.CnsBlockBackingDetails{BackingDiskId: id}
	l.result(l.create(spec))
}

func TestADatastoreWithoutPrivilegeFailsTheCallOrIsPassedOver(t *testing.T) {
	allowed := map[types.ManagedObjectReference]bool{}
	restricted := func(release string) *lab {
		table := policies{}
		l := newLab(t, options{release: release, config: func(c *Config) {
			c.Policies = table
			c.MayPlace = func(user string, datastore types.ManagedObjectReference) bool {
				return user == "user" && allowed[datastore]
			}
		}})
		table["gold"] = l.datastores[:1]
		return l
	}

	l := restricted("6.7U3")
	allowed[l.datastores[0]], allowed[l.datastores[1]] = true, true
	task, err := l.create(withPolicy(l.blockSpec("a", 1024), "gold")) // excludes the one without privilege
	l.wantRefusal(&types.NoPermission{}, "NoPermission", task, err)
	if fault := soap.ToSoapFault(err).VimFault().(types.NoPermission); *fault.Object != l.datastores[2] || fault.PrivilegeId != "Datastore.FileManagement" {
		t.Errorf("fault %+v", fault)
	}
	allowed[l.datastores[2]] = true
	l.result(l.create(withPolicy(l.blockSpec("a", 1024), "gold")))

	clear(allowed)
	l = restricted("7.0U3")
	allowed[l.datastores[0]] = true
	wantFaults := func(results []cnstypes.CnsPlacementResult, forbidden ...types.ManagedObjectReference) {
		t.Helper()
		for _, ref := range forbidden {
			faults := placementOf(results, ref).PlacementFaults
			if len(faults) != 1 {
				t.Fatalf("placement on %s: %+v", ref.Value, faults)
			}
			if missing, ok := faults[0].Fault.(*CnsMissingPrivilegeFault); !ok || len(missing.Privileges) != 1 {
				t.Errorf("placement on %s: %T", ref.Value, faults[0].Fault)
			}
		}
	}
	result := l.result(l.create(l.blockSpec("a", 1024))).(*cnstypes.CnsVolumeCreateResult)
	if len(placementOf(result.PlacementResults, l.datastores[0]).PlacementFaults) != 0 {
		t.Errorf("placements %+v", result.PlacementResults)
	}
	wantFaults(result.PlacementResults, l.datastores[1], l.datastores[2])
	clear(allowed)
	task, err = l.create(l.blockSpec("a", 1024))
	failed := l.results(task, err)[0].(*cnstypes.CnsVolumeCreateResult)
	l.sameFault(failed.Fault.Fault, &cnstypes.CnsFault{Reason: "No compatible datastore found for storagePolicy: "})
	wantFaults(failed.PlacementResults, l.datastores...)

	l.assume(map[string]any{"DatastorePrivilege": "call when none is left"})
	task, err = l.create(l.blockSpec("a", 1024))
	l.wantRefusal(&types.NoPermission{}, "NoPermission", task, err)
	allowed[l.datastores[0]] = true
	l.result(l.create(l.blockSpec("a", 1024)))
}

func placementOf(results []cnstypes.CnsPlacementResult, datastore types.ManagedObjectReference) cnstypes.CnsPlacementResult {
	for _, result := range results {
		if result.Datastore == datastore {
			return result
		}
	}
	return cnstypes.CnsPlacementResult{}
}

func TestAnUnknownPolicyIsRefused(t *testing.T) {
	l := newLab(t, options{config: func(c *Config) { c.Policies = policies{} }})
	spec := withPolicy(l.blockSpec("a", 1024), "unknown")
	task, err := l.create(spec)
	l.wantArgument("createSpecs.profile.profileId", task, err)
	l.assume(map[string]any{"UnknownPolicy": "volume"})
	task, err = l.create(spec)
	fault := l.wantVolumeFault(&cnstypes.CnsFault{}, task, err)
	if fault.Fault.(*cnstypes.CnsFault).Reason != "Fault cause: vmodl.fault.InvalidArgument\n" {
		t.Errorf("fault %+v", fault)
	}
}

func TestAFailureOfTheDiskLayerReadsAsTheReleaseSaysIt(t *testing.T) {
	const old = "CNS: Failed to create disk.:Fault cause: vmodl.fault.SystemError\n"
	for release, reason := range map[string]string{"6.7U3": old, "7.0U3": "VSLM task failed", "8.0U3": "VSLM task failed", "9.1": "VSLM task failed"} {
		l := newLab(t, options{release: release, config: func(c *Config) { c.Disks = brokenDisks{map[string]bool{"create": true}} }})
		task, err := l.create(l.blockSpec("a", 1024))
		fault := l.wantVolumeFault(&cnstypes.CnsFault{}, task, err)
		if got := fault.Fault.(*cnstypes.CnsFault).Reason; got != reason || fault.LocalizedMessage != "CnsFault error: "+reason {
			t.Errorf("%s: reason %q, text %q", release, got, fault.LocalizedMessage)
		}
		if cause := fault.Fault.(*cnstypes.CnsFault).FaultCause; (cause != nil) != (release == "9.1") {
			t.Errorf("%s: cause %+v", release, cause)
		}
		if got := l.free(l.datastores[0]); got != 100*gib {
			t.Errorf("%s: %d bytes are free after a failure", release, got)
		}
	}
}

func TestAFullDatastoreIsAVolumesFault(t *testing.T) {
	const old = "CNS: Failed to create disk.:Fault cause: vim.fault.NoDiskSpace\n"
	full := func(release string) *lab {
		l := newLab(t, options{release: release})
		spec := l.blockSpec("a", 60*1024)
		spec.Datastores = l.datastores[:1]
		l.result(l.create(spec))
		return l
	}
	again := func(l *lab) (*object.Task, error) {
		spec := l.blockSpec("a", 60*1024)
		spec.Datastores = l.datastores[:1]
		return l.create(spec)
	}
	for release, reason := range map[string]string{"6.7U3": old, "7.0U3": "VSLM task failed", "9.0": "VSLM task failed"} {
		l := full(release)
		task, err := again(l)
		fault := l.wantVolumeFault(&cnstypes.CnsFault{}, task, err)
		if got := fault.Fault.(*cnstypes.CnsFault).Reason; got != reason {
			t.Errorf("%s: reason %q", release, got)
		}
		if got := l.free(l.datastores[0]); got != 40*gib {
			t.Errorf("a failed create left %d bytes free", got)
		}
	}
	l := full("8.0U3")
	l.assume(map[string]any{"OutOfSpaceFault": "NoDiskSpace"})
	task, err := again(l)
	l.wantVolumeFault(&types.NoDiskSpace{}, task, err)
	l.assume(map[string]any{"OutOfSpaceFault": "CnsFault"})
	task, err = again(l)
	fault := l.wantVolumeFault(&cnstypes.CnsFault{Reason: old}, task, err)
	l.sameFault(fault.Fault.(*cnstypes.CnsFault).FaultCause.Fault, &types.NoDiskSpace{})
}

func TestAFullDatastoreIsNotAmongThePlacements(t *testing.T) {
	l := newLab(t, options{})
	everywhere(l, "Datastore", func(d *simulator.Datastore) {
		if d.Self != l.datastores[0] {
			d.Summary.FreeSpace = gib
		}
	})
	made := l.result(l.create(l.blockSpec("a", 2*1024))).(*cnstypes.CnsVolumeCreateResult)
	if len(made.PlacementResults) != 1 || made.PlacementResults[0].Datastore != l.datastores[0] {
		t.Errorf("placements %+v", made.PlacementResults)
	}
	task, err := l.create(l.blockSpec("b", 200*1024))
	failed := l.results(task, err)[0].(*cnstypes.CnsVolumeCreateResult)
	if failed.Fault == nil || len(failed.PlacementResults) != 0 {
		t.Errorf("fault %+v, placements %+v", failed.Fault, failed.PlacementResults)
	}
}

func TestPlacementsMayNameAFullDatastore(t *testing.T) {
	l := newLab(t, options{})
	for choice, want := range map[string]types.BaseMethodFault{"CnsRankedLowerFault": &CnsRankedLowerFault{}, "NoDiskSpace": &types.NoDiskSpace{}} {
		l.assume(map[string]any{"FullInPlacement": choice})
		task, err := l.create(l.blockSpec("a", 200*1024))
		failed := l.results(task, err)[0].(*cnstypes.CnsVolumeCreateResult)
		if len(failed.PlacementResults) != 3 {
			t.Fatalf("%s: placements %+v", choice, failed.PlacementResults)
		}
		for _, placement := range failed.PlacementResults {
			l.sameFault(placement.PlacementFaults[0].Fault, want)
		}
	}
}
