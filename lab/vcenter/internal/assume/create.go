package assume

// Create and delete.

var NameLimit = number(Row{
	Name:     "NameLimit",
	About:    "longest volume name in characters; longer ones are an InvalidArgument",
	Evidence: "csi.md §3.12",
	Choices:  []any{80, 255},
	Since:    map[string]any{"": 80},
})

var SessionUserOnly = toggle(Row{
	Name:     "SessionUserOnly",
	About:    "containerCluster.vSphereUser must be the user of the session, as user@domain or DOMAIN\\user",
	Evidence: "csi.md §6.4, §3.3 step 9",
	Since:    map[string]any{"": true},
})

var Transactions = toggle(Row{
	Name:     "Transactions",
	About:    "the release has client-chosen volume and snapshot ids, unregister and volume sync; else NotSupported",
	Evidence: "pyVmomi's tables: vsan 9.1.0.0; csi.md §3.0",
	Since:    map[string]any{"": false, "9.1": true},
})

var ThinTakesFullSize = toggle(Row{
	Name:     "ThinTakesFullSize",
	About:    "a new volume takes its whole size from the datastore's free space, so that tests can fill one; false counts thin disks as nothing but still refuses what does not fit",
	Evidence: "ours: real thin disks grow with use, which needs guests that write",
	Since:    map[string]any{"": true},
})

var OutOfSpaceFault = text(Row{
	Name:     "OutOfSpaceFault",
	About:    "per-volume fault of create and extend when no candidate has room; CnsFault carries NoDiskSpace as its cause",
	Evidence: "csi.md §3.14; the text follows vsphere-csi-driver issue 1444",
	Choices:  []any{"CnsFault", "NoDiskSpace"},
	Since:    map[string]any{"": "CnsFault"},
})

var MaxVolumeMB = number(Row{
	Name:     "MaxVolumeMB",
	About:    "largest block volume in MiB",
	Evidence: "VMware configuration maximums: 62 TiB per virtual disk",
	Choices:  []any{62 * 1024 * 1024, 16 * 1024 * 1024},
	Since:    map[string]any{"": 62 * 1024 * 1024},
})

var DeleteWithSnapshots = text(Row{
	Name:     "DeleteWithSnapshots",
	About:    "per-volume fault for deleting a disk that has snapshots; CnsFault is InvalidState below CNS",
	Evidence: "unknown; form D3, vsphere-csi-driver issue 1335 for ResourceInUse",
	Choices:  []any{"CnsFault", "InvalidState", "ResourceInUse"},
	Since:    map[string]any{"": "CnsFault"},
	ShownBy:  "cns.TestADiskWithSnapshotsIsNotDeleted",
})

var UnregisterAttached = toggle(Row{
	Name:     "UnregisterAttached",
	About:    "deleting with deleteDisk=false is allowed while the disk is attached; else ResourceInUse",
	Evidence: "unknown; losing a disk that is in use is the worse mistake",
	Since:    map[string]any{"": false},
	ShownBy:  "cns.TestAnAttachedVolumeIsNeitherDeletedNorUnregistered",
})

var ActiveClustersMustReach = toggle(Row{
	Name:     "ActiveClustersMustReach",
	About:    "a block volume is placed on a datastore that some host of each active cluster, and each named host, mounts",
	Evidence: "csi.md §7.1 names the fields; what vCenter does with them is our guess",
	Since:    map[string]any{"": true},
})

var RestoreAnyDatastore = toggle(Row{
	Name:     "RestoreAnyDatastore",
	About:    "a volume from a snapshot may be placed on another datastore than its source",
	Evidence: "csi.md §17.5",
	Since:    map[string]any{"": false},
})

var RestoreLarger = toggle(Row{
	Name:     "RestoreLarger",
	About:    "a volume from a snapshot may be larger than its source",
	Evidence: "csi.md §3.3 step 2: upstream demands the same size",
	Since:    map[string]any{"": false},
})
