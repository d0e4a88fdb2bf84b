package cns

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm/methods"
	vslmtypes "github.com/vmware/govmomi/vslm/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// VslmRetrieveSnapshotDetails tells where a snapshot is, and its change id if changes were tracked.
func (s *fcdManager) VslmRetrieveSnapshotDetails(_ *simulator.Context, req *vslmtypes.VslmRetrieveSnapshotDetails) soap.HasFault {
	d, i, fault := s.snapshotOf(req.Id, req.SnapshotId)
	if fault != nil {
		return refuse(fault)
	}
	lag := time.Duration(assume.SnapshotDetailsLagMS.In(s.m.assumed)) * time.Millisecond
	if s.m.now().Before(d.snapshots[i].created.Add(lag)) {
		return refuse(invalid("snapshotId"))
	}
	return &methods.VslmRetrieveSnapshotDetailsBody{Res: &vslmtypes.VslmRetrieveSnapshotDetailsResponse{
		Returnval: types.VStorageObjectSnapshotDetails{Path: d.path, ChangedBlockTrackingId: d.snapshots[i].changeID},
	}}
}

// snapshotOf gives a disk and the place of one of its snapshots.
func (s *fcdManager) snapshotOf(id, snapshotID types.ID) (disk, int, types.BaseMethodFault) {
	live, d := s.m.catalogued(id.Id)
	if live == nil {
		return d, 0, s.m.unknownFCD(id.Id)
	}
	if !isUUID(snapshotID.Id) {
		return d, 0, malformed(snapshotID.Id)
	}
	i := slices.IndexFunc(d.snapshots, func(made snapshot) bool { return made.id == snapshotID.Id })
	if i < 0 {
		return d, 0, invalid("snapshotId")
	}
	return d, i, nil
}

// VslmCreateDiskFromSnapshotTask makes an FCD with the content of another's snapshot, on the same datastore.
func (s *fcdManager) VslmCreateDiskFromSnapshotTask(ctx *simulator.Context, req *vslmtypes.VslmCreateDiskFromSnapshot_Task) soap.HasFault {
	if !isUUID(req.SnapshotId.Id) {
		return refuse(malformed(req.SnapshotId.Id))
	}
	user := sessionUser(ctx)
	task := s.onDisk(ctx, "VslmCreateDiskFromSnapshot_Task", req.Id, func(_ *disk, source disk) (types.AnyType, types.BaseMethodFault) {
		switch {
		case req.Name == "":
			return nil, invalid("name")
		case !source.hasSnapshot(req.SnapshotId.Id):
			return nil, invalid("snapshotId")
		}
		return s.m.restoreFCD(user, source, req.SnapshotId.Id, req.Name)
	})
	return &methods.VslmCreateDiskFromSnapshot_TaskBody{Res: &vslmtypes.VslmCreateDiskFromSnapshot_TaskResponse{Returnval: task}}
}

// restoreFCD is for a caller that holds the operation lock of the source.
func (m *Manager) restoreFCD(user string, source disk, snapshotID, name string) (types.AnyType, types.BaseMethodFault) {
	at, _, fault := m.choose(wanted{user: user, among: []types.ManagedObjectReference{source.datastore}, bytes: source.capacityMB * mib})
	if fault != nil {
		return nil, cause(fault)
	}
	d := &disk{
		id: uuid.NewString(), name: name, datastore: at.ref, capacityMB: source.capacityMB, uuid: newDiskUUID(), objectID: uuid.NewString(),
		created: m.now(), taken: at.taken,
	}
	m.mu.Lock()
	d.path = m.fcdPath(at.place, d.id)
	m.mu.Unlock()
	err := writeDescriptor(at.dir, d.path, d.capacityMB)
	if err == nil && m.content != nil && source.filled {
		err = m.content.CreateFromSnapshot(d.id, d.capacityMB*mib, source.id, snapshotID)
		d.filled = true
	}
	if err != nil {
		removeDescriptor(at.dir, d.path)
		m.giveBack(at.ref, at.taken)
		return nil, &types.SystemError{Reason: err.Error()}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.disks[d.id] = d
	m.publish(d)
	described := m.describe(d)
	return &described, nil
}

// VslmQueryChangedDiskAreas tells what changed up to a snapshot since a change id, or with * what the snapshot has at all.
// Nothing here tracks blocks, so all of a disk counts as changed unless nothing can be: a backup that relies on it reads too
// much, never too little.
func (s *fcdManager) VslmQueryChangedDiskAreas(_ *simulator.Context, req *vslmtypes.VslmQueryChangedDiskAreas) soap.HasFault {
	d, i, fault := s.snapshotOf(req.Id, req.SnapshotId)
	if fault != nil {
		return refuse(fault)
	}
	size := d.capacityMB * mib
	if req.StartOffset < 0 || req.StartOffset >= size {
		return refuse(invalid("startOffset"))
	}
	since := slices.IndexFunc(d.snapshots, func(made snapshot) bool { return made.changeID != "" && made.changeID == req.ChangeId })
	if fault := untracked(d.snapshots[i], req.ChangeId, since, i); fault != nil {
		return refuse(fault)
	}
	changes := types.DiskChangeInfo{StartOffset: req.StartOffset, Length: size - req.StartOffset}
	if unwritten := s.m.content != nil && !d.filled; !unwritten && since != i {
		changes.ChangedArea = []types.DiskChangeExtent{{Start: req.StartOffset, Length: size - req.StartOffset}}
	}
	return &methods.VslmQueryChangedDiskAreasBody{Res: &vslmtypes.VslmQueryChangedDiskAreasResponse{Returnval: changes}}
}

// untracked is the fault of asking for changes that nobody tracked.
func untracked(up snapshot, changeID string, since, i int) types.BaseMethodFault {
	if changeID == "*" {
		return nil
	}
	epoch, number, ok := strings.Cut(changeID, "/")
	if _, err := strconv.Atoi(number); !ok || err != nil {
		return invalid("changeId")
	}
	upTo, _, _ := strings.Cut(up.changeID, "/")
	switch {
	case up.changeID == "":
		return trackingFault("noTrack", "Change tracking is not active on the disk.")
	case epoch != upTo:
		return trackingFault("noEpoch", "Change tracking was started anew since the change id.")
	case since < 0 || since > i:
		return trackingFault("cannotGetChanges", "The changes cannot be read.")
	}
	return nil
}

func trackingFault(key, text string) types.BaseMethodFault {
	fault := &types.FileFault{}
	fault.FaultMessage = []types.LocalizableMessage{{Key: "vim.hostd.vmsvc.cbt." + key, Message: text}}
	return fault
}

// changeID is that of a snapshot made now: an epoch of tracking and a number that grows.
func (d *disk) changeID(now time.Time) string { return fmt.Sprintf("%s/%d", d.epoch, now.UnixNano()) }
