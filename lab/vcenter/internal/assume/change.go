package assume

// Extend, snapshots, relocation, policies and file shares.

var OnlineExtend = toggle(Row{
	Name:     "OnlineExtend",
	About:    "the release extends an attached disk",
	Evidence: "csi.md §3.0: online expand needs more than 7.0U1",
	Since:    map[string]any{"": false, "7.0U3": true},
})

var ExtendSameSize = toggle(Row{
	Name:     "ExtendSameSize",
	About:    "in this release extending to the present size succeeds; else InvalidArgument",
	Evidence: "csi.md §3.7: upstream calls extend unconditionally from 8.0",
	Since:    map[string]any{"": false, "8.0U3": true},
})

var ExtendWithSnapshots = toggle(Row{
	Name:     "ExtendWithSnapshots",
	About:    "the release extends a disk with snapshots",
	Evidence: "csi.md §3.7: upstream refuses for all releases",
	Since:    map[string]any{"": false},
})

var Snapshots = toggle(Row{
	Name:     "Snapshots",
	About:    "the release has CNS snapshots and CnsQueryAsync",
	Evidence: "csi.md §3.0 version gates",
	Since:    map[string]any{"": false, "7.0U3": true},
})

var SnapshotLimit = number(Row{
	Name:     "SnapshotLimit",
	About:    "most snapshots of one volume",
	Evidence: "csi.md §3.12",
	Choices:  []any{32, 3},
	Since:    map[string]any{"": 32},
})

var DeleteMissingSnapshot = text(Row{
	Name:     "DeleteMissingSnapshot",
	About:    "per-volume fault for deleting a snapshot that does not exist",
	Evidence: "csi.md §3.10: upstream accepts the first two as done",
	Choices:  []any{"NotFound", "InvalidArgument", "CnsSnapshotNotFoundFault"},
	Since:    map[string]any{"": "NotFound"},
})

var RelocateAttached = toggle(Row{
	Name:     "RelocateAttached",
	About:    "an attached volume can be relocated; its VM's device then shows the new path",
	Evidence: "csi.md §13.7; vSphere 8 documents online volume migration",
	Since:    map[string]any{"": true},
})

var ReconfigIncompatible = text(Row{
	Name:     "ReconfigIncompatible",
	About:    "changing to a policy that the volume's datastore does not satisfy: fault, or done and nonCompliant",
	Evidence: "csi.md §17.9",
	Choices:  []any{"fault", "nonCompliant"},
	Since:    map[string]any{"": "fault"},
})

var ExtendFileShares = toggle(Row{
	Name:     "ExtendFileShares",
	About:    "CnsExtendVolume grows the quota of a file share",
	Evidence: "vsphere-csi-driver issue 3497 asks for it, so it is not there",
	Since:    map[string]any{"": false},
})

var FileSharesNeedVSAN = toggle(Row{
	Name:     "FileSharesNeedVSAN",
	About:    "file volumes are placed on vSAN datastores only",
	Evidence: "csi.md §3.3 file algorithm",
	Since:    map[string]any{"": true},
})
