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
	fault := l.wantVolumeFault(&cnstypes.CnsFault{}, task, err)
	if want := "No compatible datastore found for storagePolicy: gold"; fault.Fault.(*cnstypes.CnsFault).Reason != want || fault.LocalizedMessage != "CnsFault error: "+want {
		t.Errorf("fault %+v", fault)
	}

	spec = l.blockSpec("c", 1024)
	spec.Datastores = l.datastores[2:]
	result = l.result(l.create(spec)).(*cnstypes.CnsVolumeCreateResult)
	if len(result.PlacementResults) != 1 || result.PlacementResults[0].Datastore != l.datastores[2] {
		t.Errorf("placements %+v", result.PlacementResults)
	}
}

func TestNamesAndClusterIdsNeedNotBeUnique(t *testing.T) {
	l := newLab(t, options{})
	if a, b := l.newVolume("pvc"), l.newVolume("pvc"); a == b {
		t.Error("the second request found the first volume by its name")
	}
	spec := l.blockSpec("pvc", 1024)
	spec.Metadata.ContainerCluster.ClusterDistribution = "another cluster with the same id"
	spec.Metadata.ContainerClusterArray = []cnstypes.CnsContainerCluster{spec.Metadata.ContainerCluster}
	l.result(l.create(spec))
	if got := l.find(&cnstypes.CnsQueryFilter{Names: []string{"pvc"}, ContainerClusterIds: []string{"c1"}}); len(got) != 3 {
		t.Errorf("volumes %v", got)
	}
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
	l.wantCallFault(&types.NotFound{}, task, err)
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
