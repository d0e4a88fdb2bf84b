package cns

import (
	"strings"
	"testing"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// showCauses makes failures of the disk layer show what they are.
var showCauses = map[string]any{"DiskFaultCause": true}

// wantDiskFault expects a failure of the disk layer, and its cause if the lab shows causes.
func (l *lab) wantDiskFault(cause types.BaseMethodFault, task *object.Task, err error) {
	l.Helper()
	fault := l.wantVolumeFault(&cnstypes.CnsFault{}, task, err)
	got := fault.Fault.(*cnstypes.CnsFault)
	if got.Reason != "VSLM task failed" || fault.LocalizedMessage != "CnsFault error: VSLM task failed" {
		l.Fatalf("reason %q, text %q", got.Reason, fault.LocalizedMessage)
	}
	if got.FaultCause == nil {
		l.Fatalf("no cause, want %T", cause)
	}
	l.sameFault(got.FaultCause.Fault, cause)
}

// everywhere changes every object of a kind in the inventory, after the lab was made.
func everywhere[T any](l *lab, kind string, change func(*T)) {
	for _, ref := range l.model.Map().AllReference(kind) {
		l.model.Map().WithLock(l.manager.inventory(), ref, func() { change(ref.(any).(*T)) })
	}
}

func (l *lab) reachDatastores(accessible bool) {
	everywhere(l, "Datastore", func(d *simulator.Datastore) { d.Summary.Accessible = accessible })
}

func (l *lab) setHosts(state types.HostSystemConnectionState, maintenance bool) {
	everywhere(l, "HostSystem", func(h *simulator.HostSystem) {
		h.Runtime.ConnectionState, h.Runtime.InMaintenanceMode = state, maintenance
	})
}

func TestFailuresOfTheDiskLayerReadAsInTheRelease(t *testing.T) {
	for release, causes := range map[string]bool{"6.7U3": false, "7.0U3": false, "8.0U3": false, "9.0": false, "9.1": true} {
		t.Run(release, func(t *testing.T) {
			l := newLab(t, options{release: release})
			id := l.newVolume("a")
			l.reachDatastores(false)
			for step, call := range map[string]func() (*object.Task, error){
				"attach disk when calling AttachDisk": func() (*object.Task, error) { return l.attach(id, l.vms[0]) },
				"delete disk":                         func() (*object.Task, error) { return l.delete(id) },
				"extend disk.":                        func() (*object.Task, error) { return l.extend(id, 2048) },
			} {
				task, err := call()
				fault := l.wantVolumeFault(&cnstypes.CnsFault{}, task, err)
				want := "VSLM task failed"
				if release == "6.7U3" {
					want = "CNS: Failed to " + step + ":Fault cause: vim.fault.InvalidDatastoreState\n"
				}
				got := fault.Fault.(*cnstypes.CnsFault)
				// The XML decoder of the client takes the end of the line off.
				if strings.TrimSpace(got.Reason) != strings.TrimSpace(want) || strings.TrimSpace(fault.LocalizedMessage) != "CnsFault error: "+strings.TrimSpace(want) {
					t.Errorf("%s: reason %q, text %q", step, got.Reason, fault.LocalizedMessage)
				}
				if (got.FaultCause != nil) != causes {
					t.Errorf("%s: cause %+v", step, got.FaultCause)
				}
			}
			l.reachDatastores(true)
			l.result(l.delete(id))
		})
	}
}

func TestTheReasonOfAnOldFaultEndsTheLine(t *testing.T) {
	l := newLab(t, options{release: "6.7U3"})
	for _, c := range []struct {
		cause types.BaseMethodFault
		want  string
	}{
		{&types.SystemError{}, "CNS: Failed to delete disk:Fault cause: vmodl.fault.SystemError\n"},
		{&types.InvalidState{}, "CNS: Failed to delete disk:Fault cause: vim.fault.InvalidState\n"},
		{malformed("x"), "CNS: Failed to delete disk:Fault cause: vmodl.fault.InvalidArgument\n"},
	} {
		if got := l.manager.wrap(failedTo(toDelete, c.cause)).(*cnstypes.CnsFault).Reason; got != c.want {
			t.Errorf("%q", got)
		}
	}
}

// onAttached are the operations on an attached disk.
func (l *lab) onAttached(id, snapshot string) map[string]func() (*object.Task, error) {
	return map[string]func() (*object.Task, error){
		"detach":          func() (*object.Task, error) { return l.detach(id, l.vms[0]) },
		"extend":          func() (*object.Task, error) { return l.extend(id, 4096) },
		"snapshot":        func() (*object.Task, error) { return l.snapshot(id, "") },
		"delete snapshot": func() (*object.Task, error) { return l.cns.DeleteSnapshots(l.ctx, l.deleteSnapshot(id, snapshot)) },
	}
}

func TestADisconnectedHostChangesNoDisks(t *testing.T) {
	for name, c := range map[string]struct {
		state       types.HostSystemConnectionState
		maintenance bool
		want        types.BaseMethodFault
		text        string
	}{
		"disconnected": {types.HostSystemConnectionStateDisconnected, false, &types.HostNotConnected{}, "Unable to communicate with the remote host, since it is disconnected."},
		"no answer":    {types.HostSystemConnectionStateNotResponding, false, &types.HostNotConnected{}, "Unable to communicate with the remote host, since it is disconnected."},
		"in maintenance": {types.HostSystemConnectionStateConnected, true, &types.InvalidHostState{},
			"The operation is not allowed in the current state of the host."},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, options{assumptions: map[string]any{"ExtendWithSnapshots": "always"}})
			id, moving, other := l.newVolume("a"), l.volumeOn(l.datastores[0]), l.newVolume("c")
			snapshot := l.newSnapshot(id)
			l.result(l.attach(id, l.vms[0]))
			l.result(l.attach(moving, l.vms[0]))
			calls := l.onAttached(id, snapshot)
			calls["attach"] = func() (*object.Task, error) { return l.attach(other, l.vms[0]) }
			calls["relocate"] = func() (*object.Task, error) { return l.relocate(moving, l.datastores[1]) }
			l.setHosts(c.state, c.maintenance)
			for call, run := range calls {
				task, err := run()
				if fault := l.wantVolumeFault(c.want, task, err); fault.LocalizedMessage != c.text {
					t.Errorf("%s: %q", call, fault.LocalizedMessage)
				}
			}
			if l.diskOf(l.vms[0], id) == nil || len(l.snapshotIDs(id)) != 1 {
				t.Error("a refused call had an effect")
			}
			l.setHosts(types.HostSystemConnectionStateConnected, false)
			l.result(l.detach(id, l.vms[0]))
		})
	}
}

func TestNothingHappensToDisksOnAnInaccessibleDatastore(t *testing.T) {
	l := newLab(t, options{assumptions: showCauses})
	id := l.newVolume("a")
	snapshot := l.newSnapshot(id)
	calls := l.onAttached(id, snapshot)
	delete(calls, "detach")
	calls["attach"] = func() (*object.Task, error) { return l.attach(id, l.vms[0]) }
	calls["delete"] = func() (*object.Task, error) { return l.delete(id) }
	l.reachDatastores(false)
	for _, call := range calls {
		task, err := call()
		l.wantDiskFault(&types.InvalidDatastoreState{}, task, err)
	}
	task, err := l.global().ExtendDisk(l.ctx, types.ID{Id: id}, 2048)
	l.wantVSLMFault(&types.InvalidDatastoreState{}, task, err)
	l.reachDatastores(true)
	if got := l.snapshotIDs(id); len(got) != 1 {
		t.Errorf("snapshots %v", got)
	}
}
