package assume

// Volumes that CNS does not know, or knows half, and failures of the disk layer below it.

var UnknownVolume = text(Row{
	Name:     "UnknownVolume",
	About:    "answer to attach and detach of a volume of which there is neither a disk nor a record: NotFound for the call, NotFound or CnsFault for the volume",
	Evidence: "X13, U1, U2, T6; later than 2023: unknown",
	Choices:  []any{"call", "NotFound", "CnsFault"},
	Since:    map[string]any{"": "call"},
	ShownBy:  "cns.TestAVolumeWithoutDiskAndRecordRefusesTheCall",
})

var DeleteUnknown = text(Row{
	Name:     "DeleteUnknown",
	About:    "where deleting a volume of which there is neither a disk nor a record is NotFound: the call, or the volume",
	Evidence: "X13, D2, U2",
	Choices:  []any{"call", "volume"},
	Since:    map[string]any{"": "call", "8.0U3": "volume"},
	ShownBy:  "cns.TestDeletingAnUnknownVolumeIsNotFound",
})

var NotRegisteredFault = text(Row{
	Name:     "NotRegisteredFault",
	About:    "per-volume fault for a disk that CNS has no record of",
	Evidence: "X13, U3, U4, U6",
	Choices:  []any{"CnsFault", "CnsNotRegisteredFault"},
	Since:    map[string]any{"": "CnsFault", "7.0U3": "CnsNotRegisteredFault"},
	ShownBy:  "cns.TestADiskWithoutARecordIsNotACNSVolume",
})

var NotRegisteredText = text(Row{
	Name:     "NotRegisteredText",
	About:    "text of CnsNotRegisteredFault: a sentence, or the key of one that was not translated",
	Evidence: "U4, U5",
	Choices:  []any{"sentence", "key"},
	Since:    map[string]any{"": "sentence"},
	ShownBy:  "cns.TestADiskWithoutARecordIsNotACNSVolume",
})

var DetachUnregistered = text(Row{
	Name:     "DetachUnregistered",
	About:    "answer to detaching a disk that CNS has no record of, also when the VM has it: as for attach, or NotFound for the volume or for the call",
	Evidence: "T2, U3, U4",
	Choices:  []any{"notRegistered", "NotFound", "call"},
	Since:    map[string]any{"": "notRegistered", "7.0U1": "NotFound", "8.0U3": "notRegistered"},
	ShownBy:  "cns.TestDetachOfAnUnregisteredDiskMayBeNotFoundWhileItIsAttached",
})

var LostDisk = text(Row{
	Name:     "LostDisk",
	About:    "where attach and detach of a volume whose disk is gone are NotFound: the volume, or the call",
	Evidence: "X13, U1, U8",
	Choices:  []any{"volume", "call"},
	Since:    map[string]any{"": "volume", "7.0U3": "call"},
	ShownBy:  "cns.TestAVolumeWhoseDiskIsGoneIsNotFound",
})

var UnknownDisk = text(Row{
	Name:     "UnknownDisk",
	About:    "answer of VSLM to an id that no disk has",
	Evidence: "U1 shows VSLM's NotFound inside a fault of CNS; InvalidArgument is what govmomi's simulator answers",
	Choices:  []any{"NotFound", "InvalidArgument"},
	Since:    map[string]any{"": "NotFound"},
	ShownBy:  "cns.TestVSLMDoesNotFindAnUnknownDisk",
})

var DiskCatalogue = text(Row{
	Name: "DiskCatalogue",
	About: "when VSLM's catalogue, by which it lists disks and CNS finds those without a record, has a disk that others than VSLM made, or not any more one that they deleted: at once; " +
		"late for vim25's, by OutsideLagSeconds; besides, lists are late by StaleSeconds, or 5 s, for those of CNS; or CNS's new ones cannot be read by their id until then either. " +
		"VslmSyncDatastore and POST /cns/sync bring it up to date",
	Evidence: "Q6, U1 for vim25's; the vendor's reference of VslmSyncFault: disks may be unrecognised, and lists stale, until a sync in the background; " +
		"vsphere-csi-driver issue 147: that fault below a create of CNS on 6.7U3. Whether the catalogue is late without a fault is unknown",
	Choices: []any{"late outside", "fresh", "late list", "late"},
	Since:   map[string]any{"": "late outside"},
	ShownBy: "cns.TestVSLMKnowsDisksOfCNSAtOnceAndThoseOfVim25Late",
})

var DiskOfInaccessibleDatastore = text(Row{
	Name:     "DiskOfInaccessibleDatastore",
	About:    "answer of VSLM to reading a disk whose datastore no host reaches: a fault of the call, or the disk from the catalogue",
	Evidence: "unknown; vim25 declares InvalidDatastore for the calls that read a disk",
	Choices:  []any{"InvalidDatastore", "SystemError", "shown"},
	Since:    map[string]any{"": "InvalidDatastore"},
	ShownBy:  "cns.TestADiskCannotBeReadWhileNoHostReachesItsDatastore",
})

var DiskFaultCause = toggle(Row{
	Name:     "DiskFaultCause",
	About:    "a failure of the disk layer has the real fault as faultCause of the CnsFault",
	Evidence: "X12, A5c, C10 for 9.1; older: unknown",
	Since:    map[string]any{"": false, "9.1": true},
	ShownBy:  "cns.TestFailuresOfTheDiskLayerReadAsInTheRelease",
})
