package assume

// Create, register and delete.

var SpecCountLevel = text(Row{
	Name:     "SpecCountLevel",
	About:    "where a create call with other than one spec is refused with InvalidArgument InputSpec: the task that it starts, or the call",
	Evidence: "G7; the level is unknown",
	Choices:  []any{"task", "call"},
	Since:    map[string]any{"": "task"},
	ShownBy:  "cns.TestCreateTakesOneSpec",
})

var NoDatastores = text(Row{
	Name:     "NoDatastores",
	About:    "answer to creating a volume without candidate datastores: a fault of the call with the text seen, whose type is unknown, or any datastore will do",
	Evidence: "X6, C2",
	Choices:  []any{"InvalidArgument", "CnsFault", "any datastore"},
	Since:    map[string]any{"": "InvalidArgument"},
	ShownBy:  "cns.TestCreateNeedsDatastores",
})

var ClustersInsteadOfDatastores = toggle(Row{
	Name:     "ClustersInsteadOfDatastores",
	About:    "the release takes activeClusters or hosts in place of datastores",
	Evidence: "X6, C13",
	Since:    map[string]any{"": false, "9.1": true},
	ShownBy:  "cns.TestFrom91ClustersOrHostsTakeThePlaceOfDatastores",
})

var DatastorePrivilege = text(Row{
	Name: "DatastorePrivilege",
	About: "a listed datastore on which the user lacks Datastore.FileManagement: fails the call with NoPermission, even if the policy excludes it; " +
		"is passed over, and the call fails when none is left; or is passed over and named in the placement results, also when none is left",
	Evidence: "X7, C3, C4",
	Choices:  []any{"call", "call when none is left", "placement"},
	Since:    map[string]any{"": "call", "7.0U2": "placement"},
	ShownBy:  "cns.TestADatastoreWithoutPrivilegeFailsTheCallOrIsPassedOver",
})

var UnusableDatastore = text(Row{
	Name:     "UnusableDatastore",
	About:    "a listed datastore that is inaccessible or in maintenance: passed over in placement, or chosen by its free space, which fails in the disk layer",
	Evidence: "C20, C21: creating there fails; whether others in the list are taken instead is unknown",
	Choices:  []any{"passed over", "tried"},
	Since:    map[string]any{"": "passed over"},
	ShownBy:  "cns.TestDatastoresInMaintenanceOrInaccessibleAreNotUsed",
})

var UnknownPolicy = text(Row{
	Name:     "UnknownPolicy",
	About:    "where an unknown storage policy in create is refused: the call with InvalidArgument, or the volume's result with the CnsFault for arguments that are wrong below CNS",
	Evidence: "X4, C15; for an unknown policy nothing was seen",
	Choices:  []any{"call", "volume"},
	Since:    map[string]any{"": "call"},
	ShownBy:  "cns.TestAnUnknownPolicyIsRefused",
})

var OldHosts = text(Row{
	Name:     "OldHosts",
	About:    "whether hosts that are older than vCenter share the datastores: none; they know no client-chosen ids; they know no first class disks. The volume's fault is then a CnsFault with NotSupported as its cause",
	Evidence: "C10, C18",
	Choices:  []any{"none", "without chosen ids", "without first class disks"},
	Unusable: []any{"without first class disks"},
	Since:    map[string]any{"": "none"},
	ShownBy:  "cns.TestHostsThatAreTooOldFailACreate",
})

var ChosenIDExists = text(Row{
	Name: "ChosenIDExists",
	About: "creating a volume with a client-chosen id that a volume has: success with that volume if it lies within the requested datastores, clusters and hosts, " +
		"else CnsVolumeAlreadyExistsFault; or always the fault",
	Evidence: "X10, C11, C12",
	Choices:  []any{"by scope", "fault"},
	Since:    map[string]any{"": "by scope"},
	ShownBy:  "cns.TestAChosenIDThatExistsIsJudgedByTheRequestedScope",
})

var ChosenIDOfPlainDisk = text(Row{
	Name:     "ChosenIDOfPlainDisk",
	About:    "creating a volume with a client-chosen id within whose scope a first class disk that is not a CNS volume has it: CnsVolumeAlreadyExistsFault, or it becomes the volume",
	Evidence: "unknown",
	Choices:  []any{"fault", "becomes the volume"},
	Since:    map[string]any{"": "fault"},
	ShownBy:  "cns.TestAChosenIDMayBeThatOfADiskWithoutARecord",
})

var RegisterUnknown = text(Row{
	Name:     "RegisterUnknown",
	About:    "registering a disk id or path that leads nowhere: a fault of the call, NotFound for an id and InvalidArgument dsDiskUrl for a path; or NotFound in the volume's result",
	Evidence: "X8, R1, R2",
	Choices:  []any{"call", "volume"},
	Since:    map[string]any{"": "call"},
	ShownBy:  "cns.TestRegisteringWhatIsNotThereIsRefusedInTheCall",
})

var RegisterKnown = text(Row{
	Name:     "RegisterKnown",
	About:    "registering a disk that is a CNS volume: CnsAlreadyRegisteredFault (a CnsFault before 7.0), or success without changing the volume",
	Evidence: "X9, R3, R4, R5",
	Choices:  []any{"fault", "success"},
	Since:    map[string]any{"": "fault", "9.1": "success"},
	ShownBy:  "cns.TestRegisteringAVolumeAgainDependsOnTheRelease",
})

var NameLimit = number(Row{
	Name:     "NameLimit",
	About:    "longest volume name in characters; longer ones are an InvalidArgument",
	Evidence: "unknown",
	Choices:  []any{80, 255},
	Since:    map[string]any{"": 80},
	ShownBy:  "cns.TestNamesHaveALimit",
})

var SessionUserOnly = toggle(Row{
	Name:     "SessionUserOnly",
	About:    "containerCluster.vSphereUser must be the user of the session, as user@domain or DOMAIN\\user",
	Evidence: "unknown",
	Since:    map[string]any{"": true},
	ShownBy:  "cns.TestTheUserOfAClusterIsThatOfTheSession",
})

var Transactions = toggle(Row{
	Name:     "Transactions",
	About:    "the release has client-chosen volume and snapshot ids, unregister and volume sync; else NotSupported",
	Evidence: "1.2: TransactionsSince 9.1, C10, C11; pyVmomi's tables: vsan 9.1.0.0",
	Since:    map[string]any{"": false, "9.1": true},
	ShownBy:  "cns.TestClientsMayChooseTheVolumesIdWhereTheReleaseHasIt",
})

var ThinTakesFullSize = toggle(Row{
	Name:     "ThinTakesFullSize",
	About:    "a new volume takes its whole size from the datastore's free space, so that tests can fill one; false counts thin disks as nothing but still refuses what does not fit",
	Evidence: "ours: real thin disks grow with use, which needs guests that write; nothing found",
	Since:    map[string]any{"": true},
	ShownBy:  "cns.TestACreatedVolumeIsOnTheEmptiestDatastoreAndTakesItsSpace",
})

var OutOfSpaceFault = text(Row{
	Name:     "OutOfSpaceFault",
	About:    "per-volume fault of create, extend and relocate when no candidate has room: CnsFault with NoDiskSpace as its cause, NoDiskSpace itself, or what every failure of the disk layer looks like from 7.0U2 on",
	Evidence: "unknown: no dump of a full datastore was found; X12, G5, G6 for the forms",
	Choices:  []any{"CnsFault", "NoDiskSpace", "VSLM task failed"},
	Since:    map[string]any{"": "CnsFault", "7.0U2": "VSLM task failed"},
	ShownBy:  "cns.TestAFullDatastoreIsAVolumesFault",
})

var FullInPlacement = text(Row{
	Name:     "FullInPlacement",
	About:    "what the placement results of a create have for a listed datastore without room: no entry, CnsRankedLowerFault, or NoDiskSpace",
	Evidence: "unknown: C4 has no fault for it, and no dump of a full datastore was found",
	Choices:  []any{"no entry", "CnsRankedLowerFault", "NoDiskSpace"},
	Since:    map[string]any{"": "no entry"},
	ShownBy:  "cns.TestAFullDatastoreIsNotAmongThePlacements",
})

var MaxVolumeMB = number(Row{
	Name:     "MaxVolumeMB",
	About:    "largest block volume in MiB",
	Evidence: "VMware configuration maximums: 62 TiB per virtual disk; no report",
	Choices:  []any{62 * 1024 * 1024, 16 * 1024 * 1024},
	Since:    map[string]any{"": 62 * 1024 * 1024},
	ShownBy:  "cns.TestVolumesHaveALargestSize",
})

var DeleteWithSnapshots = text(Row{
	Name:     "DeleteWithSnapshots",
	About:    "per-volume fault for deleting a disk that has snapshots; CnsFault is InvalidState below CNS, with success the snapshots go too",
	Evidence: "unknown; form D3, vsphere-csi-driver issue 1335 for ResourceInUse; the Go driver asks for snapshots before it deletes",
	Choices:  []any{"CnsFault", "InvalidState", "ResourceInUse", "success"},
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
	Evidence: "unknown; C13 only shows that the fields are taken",
	Since:    map[string]any{"": true},
	ShownBy:  "cns.TestAVolumeIsPlacedWhereItsClustersAndHostsReachIt",
})

var RestoreAnyDatastore = toggle(Row{
	Name:     "RestoreAnyDatastore",
	About:    "a volume from a snapshot may be placed on another datastore than its source",
	Evidence: "unknown: vendor tests restore on the same datastore",
	Since:    map[string]any{"": false},
	ShownBy:  "cns.TestARestoreStaysOnTheSourcesDatastoreAndHasItsSize",
})

var RestoreLarger = toggle(Row{
	Name:     "RestoreLarger",
	About:    "a volume from a snapshot may be larger than its source; else InvalidArgument of the call",
	Evidence: "unknown: vendor tests restore the same size, and upstream demands it",
	Since:    map[string]any{"": false},
	ShownBy:  "cns.TestARestoreStaysOnTheSourcesDatastoreAndHasItsSize",
})
