package cns

import (
	"github.com/vmware/govmomi/cns/methods"
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// volumeManager is the managed object CnsVolumeManager: its methods are the SOAP methods, found by name.
// Lock and Unlock keep the simulator from serialising all calls to it; Manager has locks of its own.
type volumeManager struct {
	types.ManagedObjectReference
	m *Manager
}

// Lock is for the registry, see volumeManager.
func (*volumeManager) Lock() {}

// Unlock is for the registry, see volumeManager.
func (*volumeManager) Unlock() {}

// debugManager is the managed object CnsDebugManager.
type debugManager struct {
	types.ManagedObjectReference
	m *Manager
}

// Lock is for the registry, see volumeManager.
func (*debugManager) Lock() {}

// Unlock is for the registry, see volumeManager.
func (*debugManager) Unlock() {}

// unknown refuses a method that the release does not have; nil if it has it.
func (s *volumeManager) unknown(method string, known bool) soap.HasFault {
	if known {
		return nil
	}
	return refuse(&types.MethodNotFound{Receiver: s.ManagedObjectReference, Method: method})
}

// CnsCreateVolume makes or registers a volume.
func (s *volumeManager) CnsCreateVolume(ctx *simulator.Context, req *cnstypes.CnsCreateVolume) soap.HasFault {
	work, fault := s.m.planCreate(sessionUser(ctx), req.CreateSpecs)
	if fault != nil {
		return refuse(fault)
	}
	task := s.m.start(ctx, "CnsCreateVolume", work)
	return &methods.CnsCreateVolumeBody{Res: &cnstypes.CnsCreateVolumeResponse{Returnval: task}}
}

// CnsUpdateVolumeMetadata merges Kubernetes' view of volumes.
func (s *volumeManager) CnsUpdateVolumeMetadata(ctx *simulator.Context, req *cnstypes.CnsUpdateVolumeMetadata) soap.HasFault {
	work, fault := s.m.planUpdate(sessionUser(ctx), req.UpdateSpecs)
	if fault != nil {
		return refuse(fault)
	}
	task := s.m.start(ctx, "CnsUpdateVolumeMetadata", work)
	return &methods.CnsUpdateVolumeBody{Res: &cnstypes.CnsUpdateVolumeMetadataResponse{Returnval: task}}
}

// CnsDeleteVolume deletes or unregisters a volume.
func (s *volumeManager) CnsDeleteVolume(ctx *simulator.Context, req *cnstypes.CnsDeleteVolume) soap.HasFault {
	if fault := s.m.checkDelete(req.VolumeIds); fault != nil {
		return refuse(fault)
	}
	task := s.m.start(ctx, "CnsDeleteVolume", func() (types.AnyType, types.BaseMethodFault) {
		return s.m.deleteVolumes(req.VolumeIds, req.DeleteDisk)
	})
	return &methods.CnsDeleteVolumeBody{Res: &cnstypes.CnsDeleteVolumeResponse{Returnval: task}}
}

// CnsExtendVolume grows a volume.
func (s *volumeManager) CnsExtendVolume(ctx *simulator.Context, req *cnstypes.CnsExtendVolume) soap.HasFault {
	task := s.m.start(ctx, "CnsExtendVolume", func() (types.AnyType, types.BaseMethodFault) { return s.m.extendVolumes(req.ExtendSpecs) })
	return &methods.CnsExtendVolumeBody{Res: &cnstypes.CnsExtendVolumeResponse{Returnval: task}}
}

// CnsAttachVolume puts disks on VMs.
func (s *volumeManager) CnsAttachVolume(ctx *simulator.Context, req *cnstypes.CnsAttachVolume) soap.HasFault {
	if fault := s.m.checkSpecs(req.AttachSpecs); fault != nil {
		return refuse(fault)
	}
	task := s.m.startOn(ctx, "CnsAttachVolume", req.AttachSpecs[0].Vm, func() (types.AnyType, types.BaseMethodFault) { return s.m.attachVolumes(req.AttachSpecs) })
	return &methods.CnsAttachVolumeBody{Res: &cnstypes.CnsAttachVolumeResponse{Returnval: task}}
}

// CnsDetachVolume takes disks off VMs.
func (s *volumeManager) CnsDetachVolume(ctx *simulator.Context, req *cnstypes.CnsDetachVolume) soap.HasFault {
	if fault := s.m.checkDetach(req.DetachSpecs); fault != nil {
		return refuse(fault)
	}
	task := s.m.startOn(ctx, "CnsDetachVolume", req.DetachSpecs[0].Vm, func() (types.AnyType, types.BaseMethodFault) { return s.m.detachVolumes(req.DetachSpecs) })
	return &methods.CnsDetachVolumeBody{Res: &cnstypes.CnsDetachVolumeResponse{Returnval: task}}
}

// CnsQueryVolume finds volumes, page by page.
func (s *volumeManager) CnsQueryVolume(_ *simulator.Context, req *CnsQueryVolume) soap.HasFault {
	if req.Filter == nil {
		return refuse(invalid("filter"))
	}
	result, fault := s.m.query(req.Filter, req.Selection, true)
	if fault != nil {
		return refuse(fault)
	}
	return &queryVolumeBody{Res: &queryResponse{Returnval: result}}
}

// CnsQueryAllVolume finds volumes in one answer.
func (s *volumeManager) CnsQueryAllVolume(_ *simulator.Context, req *cnstypes.CnsQueryAllVolume) soap.HasFault {
	assumed := s.m.assumed
	selection := &req.Selection
	if len(selection.Names) == 0 && assume.EmptySelection.In(assumed) == "all" {
		selection = nil
	}
	result, fault := s.m.query(&req.Filter, selection, !assume.QueryAllIgnoresCursor.In(assumed))
	if fault != nil {
		return refuse(fault)
	}
	return &queryAllVolumeBody{Res: &queryResponse{Returnval: result}}
}

// CnsQueryAsync finds volumes as a task.
func (s *volumeManager) CnsQueryAsync(ctx *simulator.Context, req *CnsQueryAsync) soap.HasFault {
	if refused := s.unknown("CnsQueryAsync", assume.Snapshots.In(s.m.assumed)); refused != nil {
		return refused
	}
	task := s.m.start(ctx, "CnsQueryAsync", func() (types.AnyType, types.BaseMethodFault) {
		return s.m.queryAsync(req.Filter, req.Selection)
	})
	return &methods.CnsQueryAsyncBody{Res: &cnstypes.CnsQueryAsyncResponse{Returnval: task}}
}

// CnsQueryVolumeInfo tells of the disks behind volumes.
func (s *volumeManager) CnsQueryVolumeInfo(ctx *simulator.Context, req *cnstypes.CnsQueryVolumeInfo) soap.HasFault {
	if refused := s.unknown("CnsQueryVolumeInfo", s.m.since("7.0U1")); refused != nil {
		return refused
	}
	task := s.m.start(ctx, "CnsQueryVolumeInfo", func() (types.AnyType, types.BaseMethodFault) { return s.m.queryInfo(req.VolumeIds) })
	return &methods.CnsQueryVolumeInfoBody{Res: &cnstypes.CnsQueryVolumeInfoResponse{Returnval: task}}
}

// CnsCreateSnapshots makes snapshots.
func (s *volumeManager) CnsCreateSnapshots(ctx *simulator.Context, req *cnstypes.CnsCreateSnapshots) soap.HasFault {
	if refused := s.unknown("CnsCreateSnapshots", assume.Snapshots.In(s.m.assumed)); refused != nil {
		return refused
	}
	task := s.m.start(ctx, "CnsCreateSnapshots", func() (types.AnyType, types.BaseMethodFault) { return s.m.createSnapshots(req.SnapshotSpecs) })
	return &methods.CnsCreateSnapshotsBody{Res: &cnstypes.CnsCreateSnapshotsResponse{Returnval: task}}
}

// CnsDeleteSnapshots deletes snapshots.
func (s *volumeManager) CnsDeleteSnapshots(ctx *simulator.Context, req *cnstypes.CnsDeleteSnapshots) soap.HasFault {
	if refused := s.unknown("CnsDeleteSnapshots", assume.Snapshots.In(s.m.assumed)); refused != nil {
		return refused
	}
	task := s.m.start(ctx, "CnsDeleteSnapshots", func() (types.AnyType, types.BaseMethodFault) { return s.m.deleteSnapshots(req.SnapshotDeleteSpecs) })
	return &methods.CnsDeleteSnapshotBody{Res: &cnstypes.CnsDeleteSnapshotsResponse{Returnval: task}}
}

// CnsQuerySnapshots lists snapshots.
func (s *volumeManager) CnsQuerySnapshots(ctx *simulator.Context, req *cnstypes.CnsQuerySnapshots) soap.HasFault {
	if refused := s.unknown("CnsQuerySnapshots", assume.Snapshots.In(s.m.assumed)); refused != nil {
		return refused
	}
	task := s.m.start(ctx, "CnsQuerySnapshots", func() (types.AnyType, types.BaseMethodFault) { return s.m.querySnapshots(req.SnapshotQueryFilter) })
	return &methods.CnsQuerySnapshotsBody{Res: &cnstypes.CnsQuerySnapshotsResponse{Returnval: task}}
}

// CnsRelocateVolume moves volumes to other datastores.
func (s *volumeManager) CnsRelocateVolume(ctx *simulator.Context, req *cnstypes.CnsRelocateVolume) soap.HasFault {
	if refused := s.unknown("CnsRelocateVolume", s.m.since("7.0U1")); refused != nil {
		return refused
	}
	task := s.m.start(ctx, "CnsRelocateVolume", func() (types.AnyType, types.BaseMethodFault) { return s.m.relocateVolumes(req.RelocateSpecs) })
	return &methods.CnsRelocateVolumeBody{Res: &cnstypes.CnsRelocateVolumeResponse{Returnval: task}}
}

// CnsReconfigVolumePolicy changes the storage policy of volumes.
func (s *volumeManager) CnsReconfigVolumePolicy(ctx *simulator.Context, req *cnstypes.CnsReconfigVolumePolicy) soap.HasFault {
	if refused := s.unknown("CnsReconfigVolumePolicy", s.m.since("8.0U3")); refused != nil {
		return refused
	}
	task := s.m.start(ctx, "CnsReconfigVolumePolicy", func() (types.AnyType, types.BaseMethodFault) {
		return s.m.reconfigPolicies(req.VolumePolicyReconfigSpecs)
	})
	return &methods.CnsReconfigVolumePolicyBody{Res: &cnstypes.CnsReconfigVolumePolicyResponse{Returnval: task}}
}

// CnsConfigureVolumeACLs changes who may mount file shares.
func (s *volumeManager) CnsConfigureVolumeACLs(ctx *simulator.Context, req *cnstypes.CnsConfigureVolumeACLs) soap.HasFault {
	if refused := s.unknown("CnsConfigureVolumeACLs", s.m.since("7.0U2")); refused != nil {
		return refused
	}
	task := s.m.start(ctx, "CnsConfigureVolumeACLs", func() (types.AnyType, types.BaseMethodFault) { return s.m.configureACLs(req.ACLConfigSpecs) })
	return &methods.CnsConfigureVolumeACLsBody{Res: &cnstypes.CnsConfigureVolumeACLsResponse{Returnval: task}}
}

// CnsSyncVolume compares volumes with their disks.
func (s *volumeManager) CnsSyncVolume(ctx *simulator.Context, req *cnstypes.CnsSyncVolume) soap.HasFault {
	if refused := s.unknown("CnsSyncVolume", assume.Transactions.In(s.m.assumed)); refused != nil {
		return refused
	}
	task := s.m.start(ctx, "CnsSyncVolume", func() (types.AnyType, types.BaseMethodFault) { return s.m.syncVolumes(req.SyncSpecs) })
	return &methods.CnsSyncVolumeBody{Res: &cnstypes.CnsSyncVolumeResponse{Returnval: task}}
}

// CnsUnregisterVolume makes volumes plain disks again.
func (s *volumeManager) CnsUnregisterVolume(ctx *simulator.Context, req *cnstypes.CnsUnregisterVolume) soap.HasFault {
	if refused := s.unknown("CnsUnregisterVolume", assume.Transactions.In(s.m.assumed)); refused != nil {
		return refused
	}
	task := s.m.start(ctx, "CnsUnregisterVolume", func() (types.AnyType, types.BaseMethodFault) { return s.m.unregisterVolumes(req.UnregisterSpec) })
	return &methods.CnsUnregisterVolumeBody{Res: &cnstypes.CnsUnregisterVolumeResponse{Returnval: task}}
}

// CnsSetVolumeControlFlags switches flags on; it is no task.
func (s *volumeManager) CnsSetVolumeControlFlags(_ *simulator.Context, req *cnstypes.CnsSetVolumeControlFlags) soap.HasFault {
	if refused := s.unknown("CnsSetVolumeControlFlags", assume.Transactions.In(s.m.assumed)); refused != nil {
		return refused
	}
	if fault := s.m.setFlags(req.ControlFlagsSpecs, true); fault != nil {
		return refuse(fault)
	}
	return &methods.CnsSetVolumeControlFlagsBody{Res: &cnstypes.CnsSetVolumeControlFlagsResponse{}}
}

// CnsClearVolumeControlFlags switches flags off; it is no task.
func (s *volumeManager) CnsClearVolumeControlFlags(_ *simulator.Context, req *cnstypes.CnsClearVolumeControlFlags) soap.HasFault {
	if refused := s.unknown("CnsClearVolumeControlFlags", assume.Transactions.In(s.m.assumed)); refused != nil {
		return refused
	}
	if fault := s.m.setFlags(req.ControlFlagsSpecs, false); fault != nil {
		return refuse(fault)
	}
	return &methods.CnsClearVolumeControlFlagsBody{Res: &cnstypes.CnsClearVolumeControlFlagsResponse{}}
}

// CnsSyncDatastore compares all volumes of a datastore with their disks.
func (s *debugManager) CnsSyncDatastore(ctx *simulator.Context, req *cnstypes.CnsSyncDatastore) soap.HasFault {
	task := s.m.start(ctx, "CnsSyncDatastore", func() (types.AnyType, types.BaseMethodFault) { return s.m.syncDatastore(req.DatastoreUrl) })
	return &methods.CnsSyncDatastoreBody{Res: &cnstypes.CnsSyncDatastoreResponse{Returnval: task}}
}
