package assume

// Extend, snapshots, relocation, policies and file shares.

var OnlineExtend = toggle(Row{
	Name:     "OnlineExtend",
	About:    "the release extends an attached disk; else InvalidState below CNS",
	Evidence: "vsphere-csi-driver: online expansion needs more than 7.0U1",
	Since:    map[string]any{"": false, "7.0U2": true},
	ShownBy:  "cns.TestExtendDependsOnTheRelease",
})

var ExtendSameSize = toggle(Row{
	Name:     "ExtendSameSize",
	About:    "in this release extending to the present size succeeds; else InvalidArgument",
	Evidence: "unknown",
	Since:    map[string]any{"": false, "8.0U3": true},
	ShownBy:  "cns.TestExtendDependsOnTheRelease",
})

var ExtendSmaller = text(Row{
	Name:     "ExtendSmaller",
	About:    "answer to a size below the present one: a fault, as it is or below CNS, or success that changes nothing",
	Evidence: "unknown",
	Choices:  []any{"InvalidArgument", "CnsFault", "success"},
	Since:    map[string]any{"": "InvalidArgument"},
	ShownBy:  "cns.TestADiskDoesNotShrink",
})

var ExtendWithSnapshots = text(Row{
	Name:     "ExtendWithSnapshots",
	About:    "disks with snapshots that can be extended; some is a half of them, by their ids",
	Evidence: "E1, E2, E3",
	Choices:  []any{"never", "always", "detached", "some"},
	Since:    map[string]any{"": "never"},
	ShownBy:  "cns.TestDisksWithSnapshotsDoNotGrow",
})

var Snapshots = toggle(Row{
	Name:     "Snapshots",
	About:    "the release has CNS snapshots and CnsQueryAsync",
	Evidence: "N1",
	Since:    map[string]any{"": false, "7.0U3": true},
	ShownBy:  "cns.TestSnapshotsBeginWithSevenU3",
})

var SnapshotLimit = number(Row{
	Name:     "SnapshotLimit",
	About:    "most snapshots of one volume; one more fails below CNS with LimitExceeded",
	Evidence: "unknown; the number is VMware's for first class disks",
	Choices:  []any{32, 3},
	Since:    map[string]any{"": 32},
	ShownBy:  "cns.TestSnapshotsHaveALimitAPageAndAnOrder",
})

var SnapshotDetailsLagMS = number(Row{
	Name:     "SnapshotDetailsLagMS",
	About:    "milliseconds after its creation in which VSLM knows no details of a snapshot: InvalidArgument on snapshotId",
	Evidence: "W13, N5 for 6.7U3 and 7.0; later: unknown",
	Choices:  []any{0, 1000},
	Since:    map[string]any{"": 1000, "8.0U3": 0},
	ShownBy:  "cns.TestDetailsOfASnapshotComeLateInOldReleases",
})

var DeletedSnapshotShownMS = number(Row{
	Name:     "DeletedSnapshotShownMS",
	About:    "milliseconds in which CnsQuerySnapshots still shows a deleted snapshot",
	Evidence: "N9",
	Choices:  []any{0, 90000},
	Since:    map[string]any{"": 0},
	ShownBy:  "cns.TestADeletedSnapshotIsGoneFromQueries",
})

var DeleteMissingSnapshot = text(Row{
	Name:     "DeleteMissingSnapshot",
	About:    "per-volume fault for deleting a snapshot that does not exist",
	Evidence: "N6, N7",
	Choices:  []any{"NotFound", "InvalidArgument", "CnsSnapshotNotFoundFault"},
	Since:    map[string]any{"": "NotFound"},
	ShownBy:  "cns.TestDeletingAMissingSnapshotIsNotFound",
})

var RelocateAttached = toggle(Row{
	Name:     "RelocateAttached",
	About:    "an attached volume can be relocated; its VM's device then shows the new path; else ResourceInUse",
	Evidence: "V3",
	Since:    map[string]any{"": false, "7.0U3": true},
	ShownBy:  "cns.TestAnAttachedDiskIsRelocatedFromSevenU3",
})

var ReconfigIncompatible = text(Row{
	Name:     "ReconfigIncompatible",
	About:    "changing to a policy that the volume's datastore does not satisfy: fault, or done and nonCompliant",
	Evidence: "unknown; V5",
	Choices:  []any{"fault", "nonCompliant"},
	Since:    map[string]any{"": "fault"},
	ShownBy:  "cns.TestAPolicyTheDatastoreDoesNotSatisfyIsRefused",
})

var ExtendFileShares = toggle(Row{
	Name:     "ExtendFileShares",
	About:    "CnsExtendVolume grows the quota of a file share",
	Evidence: "F3",
	Since:    map[string]any{"": false},
	ShownBy:  "cns.TestAFileShareDoesNotGrow",
})

var FileSharesNeedVSAN = toggle(Row{
	Name:     "FileSharesNeedVSAN",
	About:    "file volumes are placed on vSAN datastores only",
	Evidence: "F2",
	Since:    map[string]any{"": true},
	ShownBy:  "cns.TestFileVolumesNeedAVSANDatastore",
})
