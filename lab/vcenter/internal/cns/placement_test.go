package cns

import (
	"testing"

	"github.com/google/uuid"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// reachedLab is a lab in which only the first datastore, which has the least room, is mounted by the cluster and its host.
func reachedLab(t *testing.T, release string) (l *lab, cluster, host types.ManagedObjectReference) {
	t.Helper()
	l = newLab(t, options{release: release, inventory: func(r *simulator.Registry) {
		cluster = r.Any("ClusterComputeResource").Reference()
		host = r.Any("HostSystem").Reference()
	}})
	for _, ref := range l.datastores[1:] {
		l.model.Map().Get(ref).(*simulator.Datastore).Host = nil
	}
	l.model.Map().Get(l.datastores[0]).(*simulator.Datastore).Summary.FreeSpace = 50 * gib
	return l, cluster, host
}

// narrowed are requests for a volume that a cluster or a host must reach.
func (l *lab) narrowed(cluster, host types.ManagedObjectReference) map[string]cnstypes.CnsVolumeCreateSpec {
	byCluster, byHost := l.blockSpec("a", 1024), l.blockSpec("a", 1024)
	byCluster.ActiveClusters = []types.ManagedObjectReference{cluster}
	byHost.Hosts = []types.ManagedObjectReference{host}
	return map[string]cnstypes.CnsVolumeCreateSpec{"clusters": byCluster, "hosts": byHost}
}

func TestAVolumeIsPlacedWhereItsClustersAndHostsReachIt(t *testing.T) {
	l, cluster, host := reachedLab(t, "9.1")
	for name, spec := range l.narrowed(cluster, host) {
		result := l.result(l.create(spec)).(*cnstypes.CnsVolumeCreateResult)
		if result.PlacementResults[0].Datastore != l.datastores[0] {
			t.Errorf("%s: placed on %s", name, result.PlacementResults[0].Datastore.Value)
		}
		spec.Datastores = l.datastores[1:]
		task, err := l.create(spec)
		l.wantVolumeFault(&cnstypes.CnsFault{Reason: "No compatible datastore found"}, task, err)

		l.assume(map[string]any{"ActiveClustersMustReach": false})
		l.result(l.create(spec))
		l.assume(map[string]any{"ActiveClustersMustReach": true})
	}
	for _, spec := range l.narrowed(l.datastores[0], l.datastores[0]) {
		task, err := l.create(spec)
		l.wantRefusal(&types.ManagedObjectNotFound{}, "ManagedObjectNotFound", task, err)
	}
}

func TestFrom91ClustersOrHostsTakeThePlaceOfDatastores(t *testing.T) {
	l, cluster, host := reachedLab(t, "9.1")
	for name, spec := range l.narrowed(cluster, host) {
		spec.Datastores = nil
		placed := l.result(l.create(spec)).(*cnstypes.CnsVolumeCreateResult).PlacementResults[0]
		byCluster := len(placed.Clusters) == 1 && placed.Clusters[0] == cluster
		byHost := placed.Host != nil && *placed.Host == host
		if placed.Datastore != l.datastores[0] || byCluster != (name == "clusters") || byHost != (name == "hosts") {
			t.Errorf("%s: placement %+v", name, placed)
		}
	}
	spec := l.blockSpec("a", 1024)
	spec.Datastores = nil
	task, err := l.create(spec)
	l.wantRefusal(&types.InvalidArgument{}, "createSpecs.datastores is empty", task, err)

	l, cluster, host = reachedLab(t, "9.0")
	for _, spec := range l.narrowed(cluster, host) {
		spec.Datastores = nil
		task, err := l.create(spec)
		l.wantRefusal(&types.InvalidArgument{}, "createSpecs.datastores is empty", task, err)
	}
}

func TestDatastoresInMaintenanceOrInaccessibleAreNotUsed(t *testing.T) {
	for name, spoil := range map[string]func(*types.DatastoreSummary){
		"inaccessible": func(s *types.DatastoreSummary) { s.Accessible = false },
		"maintenance":  func(s *types.DatastoreSummary) { s.MaintenanceMode = "inMaintenance" },
	} {
		l := newLab(t, options{})
		spoilt := l.model.Map().Get(l.datastores[0]).(*simulator.Datastore)
		spoil(&spoilt.Summary)
		spoilt.Summary.FreeSpace, spoilt.Summary.Capacity = 200*gib, 200*gib // it would be chosen
		result := l.result(l.create(l.blockSpec("a", 1024))).(*cnstypes.CnsVolumeCreateResult)
		if result.PlacementResults[0].Datastore == l.datastores[0] || len(placementOf(result.PlacementResults, l.datastores[0]).PlacementFaults) != 1 {
			t.Errorf("%s: placements %+v", name, result.PlacementResults)
		}
		alone := l.blockSpec("a", 1024)
		alone.Datastores = l.datastores[:1]
		task, err := l.create(alone)
		l.wantVolumeFault(&cnstypes.CnsFault{Reason: "No compatible datastore found"}, task, err)

		l.assume(map[string]any{"UnusableDatastore": "tried"})
		task, err = l.create(l.blockSpec("a", 1024))
		l.wantVolumeFault(&cnstypes.CnsFault{Reason: "VSLM task failed"}, task, err)
	}
}

func TestHostsThatAreTooOldFailACreate(t *testing.T) {
	reasons := map[string]string{"6.7U3": "CNS: Failed to create disk.:Fault cause: vmodl.fault.NotSupported\n", "9.1": "VSLM task failed"}
	for release, reason := range reasons {
		l := newLab(t, options{release: release})
		plain, chosen := l.blockSpec("a", 1024), l.blockSpec("a", 1024)
		chosen.VolumeId = &cnstypes.CnsVolumeId{Id: uuid.NewString()}
		wantFault := func(spec cnstypes.CnsVolumeCreateSpec) {
			t.Helper()
			task, err := l.create(spec)
			fault := l.wantVolumeFault(&cnstypes.CnsFault{}, task, err).Fault.(*cnstypes.CnsFault)
			if fault.Reason != reason || fault.FaultCause == nil {
				t.Fatalf("%s: fault %+v", release, fault)
			}
			l.sameFault(fault.FaultCause.Fault, &types.NotSupported{})
		}
		l.result(l.create(plain))
		l.assume(map[string]any{"OldHosts": "without first class disks"})
		wantFault(plain)
		if release != "9.1" {
			continue
		}
		l.assume(map[string]any{"OldHosts": "without chosen ids"})
		wantFault(chosen)
		l.result(l.create(plain))
		l.assume(map[string]any{"OldHosts": "none"})
		l.result(l.create(chosen))
	}
	l := newLab(t, options{release: "9.1"})
	spec := l.blockSpec("a", 1024)
	spec.VolumeId = &cnstypes.CnsVolumeId{Id: uuid.NewString()}
	l.result(l.create(spec))
}
