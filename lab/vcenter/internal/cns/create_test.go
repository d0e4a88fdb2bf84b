package cns

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// policies is a table of which datastores satisfy which policy.
type policies map[string][]types.ManagedObjectReference

func (p policies) Compatible(id string) ([]types.ManagedObjectReference, bool) {
	list, known := p[id]
	return list, known
}

func withPolicy(spec cnstypes.CnsVolumeCreateSpec, id string) cnstypes.CnsVolumeCreateSpec {
	spec.Profile = []types.BaseVirtualMachineProfileSpec{&types.VirtualMachineDefinedProfileSpec{ProfileId: id}}
	return spec
}

func TestACreatedVolumeIsOnTheEmptiestDatastoreAndTakesItsSpace(t *testing.T) {
	l := newLab(t, options{inventory: func(r *simulator.Registry) {
		for i, ref := range r.AllReference("Datastore") {
			ref.(*simulator.Datastore).Summary.FreeSpace = int64(10+i) * gib
		}
	}})
	best := l.datastores[0]
	for _, ref := range l.datastores {
		if l.manager.mustDatastore(ref).free > l.manager.mustDatastore(best).free {
			best = ref
		}
	}
	before := l.manager.mustDatastore(best).free
	result := l.result(l.create(l.blockSpec("pvc-a", 2048))).(*cnstypes.CnsVolumeCreateResult)
	if result.Name != "pvc-a" || len(result.PlacementResults) != 3 {
		t.Fatalf("result %+v", result)
	}
	if first := result.PlacementResults[0]; first.Datastore != best || len(first.PlacementFaults) != 0 {
		t.Errorf("placed on %+v, want %s", first, best.Value)
	}
	for _, other := range result.PlacementResults[1:] {
		if len(other.PlacementFaults) != 1 {
			t.Errorf("no reason against %s", other.Datastore.Value)
		}
	}
	if after := l.free(best); before-after != 2*gib {
		t.Errorf("the volume took %d bytes", before-after)
	}
	v := l.volume(result.VolumeId.Id)
	backing, ok := v.BackingObjectDetails.(*cnstypes.CnsBlockBackingDetails)
	if !ok || backing.CapacityInMb != 2048 || backing.BackingDiskId != v.VolumeId.Id || !strings.Contains(backing.BackingDiskPath, v.VolumeId.Id) {
		t.Errorf("backing is %T %+v", v.BackingObjectDetails, v.BackingObjectDetails)
	}
	l.result(l.delete(v.VolumeId.Id))
	if after := l.free(best); after != before {
		t.Errorf("deleting gave back %d of %d bytes", after-before+2*gib, 2*gib)
	}
}

func (m *Manager) mustDatastore(ref types.ManagedObjectReference) place {
	p, _ := m.datastore(ref)
	return p
}

func TestCreateRefusesWrongRequestsAsATask(t *testing.T) {
	cases := map[string]struct {
		change func(*cnstypes.CnsVolumeCreateSpec)
		want   types.BaseMethodFault
	}{
		"no name":         {func(s *cnstypes.CnsVolumeCreateSpec) { s.Name = "" }, invalid("name")},
		"81 characters":   {func(s *cnstypes.CnsVolumeCreateSpec) { s.Name = strings.Repeat("ä", 81) }, invalid("name")},
		"an unknown type": {func(s *cnstypes.CnsVolumeCreateSpec) { s.VolumeType = "TAPE" }, invalid("volumeType")},
		"no size":         {func(s *cnstypes.CnsVolumeCreateSpec) { s.BackingObjectDetails = &cnstypes.CnsBlockBackingDetails{} }, invalid("capacityInMb")},
		"a size over 62 TiB": {func(s *cnstypes.CnsVolumeCreateSpec) {
			s.BackingObjectDetails.GetCnsBackingObjectDetails().CapacityInMb = 62<<20 + 1
		}, invalid("capacityInMb")},
		"a file's backing": {func(s *cnstypes.CnsVolumeCreateSpec) {
			s.BackingObjectDetails = &cnstypes.CnsVsanFileShareBackingDetails{}
		}, invalid("backingObjectDetails")},
		"no cluster id":        {func(s *cnstypes.CnsVolumeCreateSpec) { s.Metadata.ContainerCluster.ClusterId = "" }, invalid("clusterId")},
		"a wrong cluster type": {func(s *cnstypes.CnsVolumeCreateSpec) { s.Metadata.ContainerCluster.ClusterType = "NOMAD" }, invalid("clusterType")},
		"another user":         {func(s *cnstypes.CnsVolumeCreateSpec) { s.Metadata.ContainerCluster.VSphereUser = "eve" }, invalid("vSphereUser")},
		"an unknown datastore": {func(s *cnstypes.CnsVolumeCreateSpec) {
			s.Datastores = []types.ManagedObjectReference{{Type: "Datastore", Value: "datastore-x"}}
		}, &types.ManagedObjectNotFound{}},
		"an unknown policy": {func(s *cnstypes.CnsVolumeCreateSpec) { *s = withPolicy(*s, "unknown") }, invalid("profileId")},
	}
	l := newLab(t, options{config: func(c *Config) { c.Policies = policies{} }})
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			spec := l.blockSpec("pvc", 1024)
			c.change(&spec)
			task, err := l.create(spec)
			l.wantTaskFault(c.want, task, err)
		})
	}
	task, err := l.create(l.blockSpec("a", 1), l.blockSpec("b", 1))
	l.wantTaskFault(invalid("InputSpec"), task, err)
	task, err = l.create()
	l.wantTaskFault(invalid("InputSpec"), task, err)
	l.result(l.create(l.blockSpec(strings.Repeat("x", 80), 1024)))
	if got := len(l.manager.Volumes()); got != 1 {
		t.Errorf("%d volumes exist", got)
	}
}

func TestCreateRespectsPolicyAndCandidates(t *testing.T) {
	table := policies{}
	l := newLab(t, options{config: func(c *Config) { c.Policies = table }})
	table["gold"] = l.datastores[:1]
	result := l.result(l.create(withPolicy(l.blockSpec("a", 1024), "gold"))).(*cnstypes.CnsVolumeCreateResult)
	if result.PlacementResults[0].Datastore != l.datastores[0] {
		t.Errorf("placed on %s", result.PlacementResults[0].Datastore.Value)
	}
	if got := l.volume(result.VolumeId.Id).StoragePolicyId; got != "gold" {
		t.Errorf("policy is %q", got)
	}
	spec := withPolicy(l.blockSpec("b", 1024), "gold")
	spec.Datastores = l.datastores[1:]
	task, err := l.create(spec)
	l.wantVolumeFault(&cnstypes.CnsFault{Reason: "No compatible datastore"}, task, err)

	spec = l.blockSpec("c", 1024)
	spec.Datastores = l.datastores[2:]
	result = l.result(l.create(spec)).(*cnstypes.CnsVolumeCreateResult)
	if len(result.PlacementResults) != 1 || result.PlacementResults[0].Datastore != l.datastores[2] {
		t.Errorf("placements %+v", result.PlacementResults)
	}
	spec.Datastores = nil
	l.result(l.create(spec))
}

func TestAVolumeIsPlacedWhereItsClustersAndHostsReachIt(t *testing.T) {
	var cluster, host types.ManagedObjectReference
	mount := func(r *simulator.Registry) {
		cluster = r.Any("ClusterComputeResource").Reference()
		host = r.Any("HostSystem").Reference()
	}
	l := newLab(t, options{release: "9.1", inventory: mount})
	for _, ref := range l.datastores[1:] {
		l.model.Map().Get(ref).(*simulator.Datastore).Host = nil
	}
	reached := l.model.Map().Get(l.datastores[0]).(*simulator.Datastore)
	reached.Summary.FreeSpace = 50 * gib // the others would be chosen
	for name, narrow := range map[string]func(*cnstypes.CnsVolumeCreateSpec, types.ManagedObjectReference){
		"clusters": func(s *cnstypes.CnsVolumeCreateSpec, ref types.ManagedObjectReference) {
			s.ActiveClusters = []types.ManagedObjectReference{ref}
		},
		"hosts": func(s *cnstypes.CnsVolumeCreateSpec, ref types.ManagedObjectReference) {
			s.Hosts = []types.ManagedObjectReference{ref}
		},
	} {
		from := cluster
		if name == "hosts" {
			from = host
		}
		spec := l.blockSpec("a", 1024)
		narrow(&spec, from)
		result := l.result(l.create(spec)).(*cnstypes.CnsVolumeCreateResult)
		if result.PlacementResults[0].Datastore != l.datastores[0] {
			t.Errorf("%s: placed on %s", name, result.PlacementResults[0].Datastore.Value)
		}
		spec.Datastores = l.datastores[1:]
		task, err := l.create(spec)
		l.wantVolumeFault(&cnstypes.CnsFault{Reason: "No compatible datastore"}, task, err)
		narrow(&spec, l.datastores[0])
		task, err = l.create(spec)
		l.wantTaskFault(&types.ManagedObjectNotFound{}, task, err)

		l.assume(map[string]any{"ActiveClustersMustReach": false})
		l.result(l.create(spec))
		l.assume(map[string]any{"ActiveClustersMustReach": true})
	}
}

func TestDatastoresThatTheUserMayNotUseAreNoCandidates(t *testing.T) {
	allowed := map[types.ManagedObjectReference]bool{}
	l := newLab(t, options{config: func(c *Config) {
		c.MayPlace = func(user string, datastore types.ManagedObjectReference) bool {
			return user == "user" && allowed[datastore]
		}
	}})
	task, err := l.create(l.blockSpec("a", 1024))
	fault := l.wantVolumeFault(&cnstypes.CnsFault{Reason: "NoPermission"}, task, err)
	l.sameFault(fault.Fault.(*cnstypes.CnsFault).FaultCause.Fault, &types.NoPermission{})
	allowed[l.datastores[1]] = true
	result := l.result(l.create(l.blockSpec("a", 1024))).(*cnstypes.CnsVolumeCreateResult)
	if result.PlacementResults[0].Datastore != l.datastores[1] {
		t.Errorf("placed on %s", result.PlacementResults[0].Datastore.Value)
	}
}

func TestAFullDatastoreIsAVolumesFault(t *testing.T) {
	l := newLab(t, options{})
	spec := l.blockSpec("a", 60*1024)
	spec.Datastores = l.datastores[:1]
	l.result(l.create(spec))
	task, err := l.create(spec)
	fault := l.wantVolumeFault(&cnstypes.CnsFault{Reason: "NoDiskSpace"}, task, err)
	cause := fault.Fault.(*cnstypes.CnsFault).FaultCause
	if cause == nil {
		t.Fatal("no cause")
	}
	l.sameFault(cause.Fault, &types.NoDiskSpace{})
	if got := l.free(l.datastores[0]); got != 40*gib {
		t.Errorf("a failed create left %d bytes free", got)
	}
	l.assume(map[string]any{"OutOfSpaceFault": "NoDiskSpace"})
	task, err = l.create(spec)
	l.wantVolumeFault(&types.NoDiskSpace{}, task, err)
}

func TestDatastoresInMaintenanceOrInaccessibleAreNotUsed(t *testing.T) {
	l := newLab(t, options{inventory: func(r *simulator.Registry) {
		for _, ref := range r.AllReference("Datastore") {
			ref.(*simulator.Datastore).Summary.Accessible = false
		}
	}})
	task, err := l.create(l.blockSpec("a", 1024))
	l.wantVolumeFault(&cnstypes.CnsFault{}, task, err)
}

func TestClientsMayChooseTheVolumesIdWhereTheReleaseHasIt(t *testing.T) {
	id := uuid.NewString()
	spec := func(l *lab, id string) cnstypes.CnsVolumeCreateSpec {
		s := l.blockSpec("a", 1024)
		s.VolumeId = &cnstypes.CnsVolumeId{Id: id}
		return s
	}
	t.Run("9.1", func(t *testing.T) {
		l := newLab(t, options{release: "9.1"})
		if got := l.result(l.create(spec(l, id))).GetCnsVolumeOperationResult().VolumeId.Id; got != id {
			t.Errorf("id is %s", got)
		}
		task, err := l.create(spec(l, id))
		l.wantVolumeFault(&cnstypes.CnsVolumeAlreadyExistsFault{}, task, err)
		task, err = l.create(spec(l, "../../etc"))
		l.wantTaskFault(invalid("volumeId"), task, err)
	})
	t.Run("8.0U3", func(t *testing.T) {
		l := newLab(t, options{})
		task, err := l.create(spec(l, id))
		l.wantVolumeFault(&types.NotSupported{}, task, err)
	})
}

func TestTheUserMayBeWrittenInBothForms(t *testing.T) {
	for _, pair := range [][2]string{{"user@vsphere.local", `VSPHERE.LOCAL\User`}, {"User", "user"}} {
		if !sameUser(pair[0], pair[1]) {
			t.Errorf("%v differ", pair)
		}
	}
	if sameUser("user@a", "user@b") {
		t.Error("users of two domains are the same")
	}
	l := newLab(t, options{assumptions: map[string]any{"SessionUserOnly": false}})
	spec := l.blockSpec("a", 1024)
	spec.Metadata.ContainerCluster.VSphereUser = "eve"
	l.result(l.create(spec))
}

func TestDeleteKeepsTheDiskUnlessAskedAndItCanBeRegisteredAgain(t *testing.T) {
	l := newLab(t, options{})
	id := l.newVolume("a")
	snapshot := l.newSnapshot(id)
	l.result(l.cns.DeleteVolume(l.ctx, volumeIDs(id), false))
	if l.exists(id) {
		t.Fatal("the volume is still there")
	}
	spec := l.blockSpec("again", 0)
	spec.BackingObjectDetails = &cnstypes.CnsBlockBackingDetails{BackingDiskId: id}
	if got := l.result(l.create(spec)).GetCnsVolumeOperationResult().VolumeId.Id; got != id {
		t.Errorf("registered as %s", got)
	}
	if v := l.volume(id); v.Name != "again" || v.BackingObjectDetails.GetCnsBackingObjectDetails().CapacityInMb != 1024 {
		t.Errorf("volume %+v", v)
	}
	if got := l.snapshotIDs(id); len(got) != 1 || got[0] != snapshot {
		t.Errorf("snapshots %v", got)
	}
	task, err := l.create(spec)
	fault := l.results(task, err)[0].GetCnsVolumeOperationResult().Fault
	registered, ok := fault.Fault.(*cnstypes.CnsAlreadyRegisteredFault)
	if !ok || registered.VolumeId.Id != id {
		t.Errorf("fault %T %+v", fault.Fault, fault.Fault)
	}
	spec.BackingObjectDetails = &cnstypes.CnsBlockBackingDetails{BackingDiskId: uuid.NewString()}
	task, err = l.create(spec)
	l.wantVolumeFault(&types.NotFound{}, task, err)
}

func TestDeleteRefusesAttachedVolumesAndThoseWithSnapshots(t *testing.T) {
	l := newLab(t, options{})
	id := l.newVolume("a")
	l.result(l.attach(id, l.vms[0]))
	task, err := l.delete(id)
	l.wantVolumeFault(&types.ResourceInUse{}, task, err)
	l.result(l.detach(id, l.vms[0]))
	snapshot := l.newSnapshot(id)
	task, err = l.delete(id)
	l.wantVolumeFault(&cnstypes.CnsFault{Reason: "VSLM task failed"}, task, err)
	l.result(l.cns.DeleteSnapshots(l.ctx, []cnstypes.CnsSnapshotDeleteSpec{{VolumeId: cnstypes.CnsVolumeId{Id: id}, SnapshotId: cnstypes.CnsSnapshotId{Id: snapshot}}}))
	l.result(l.delete(id))
	task, err = l.delete(id)
	l.wantVolumeFault(&types.NotFound{}, task, err)
	task, err = l.cns.DeleteVolume(l.ctx, volumeIDs("a", "b"), true)
	l.wantTaskFault(invalid("InputSpec"), task, err)
}
