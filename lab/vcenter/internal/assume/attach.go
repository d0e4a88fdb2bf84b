package assume

// Attach and detach.

var AttachSameVM = text(Row{
	Name:     "AttachSameVM",
	About:    "answer to attaching a volume to the VM that already has it: the fault, or success with the disk's UUID",
	Evidence: "X1, A1, A2",
	Choices:  []any{"ResourceInUse", "success"},
	Since:    map[string]any{"": "ResourceInUse", "9.1": "success"},
	ShownBy:  "cns.TestAttachingTwiceToOneVMSucceedsFromNineOne",
})

var DetachNotAttached = text(Row{
	Name:     "DetachNotAttached",
	About:    "fault for detaching a disk that the VM does not have: of the volume, or NotFound for the call",
	Evidence: "unknown; T1 for NotFound",
	Choices:  []any{"NotFound", "CnsFault", "InvalidArgument", "call"},
	Since:    map[string]any{"": "NotFound"},
	ShownBy:  "cns.TestDetachFromAVMThatHasNotTheDiskIsNotFound",
})

var UnknownVM = text(Row{
	Name:     "UnknownVM",
	About:    "where an unknown VM moref in attach or detach is refused with ManagedObjectNotFound: the call itself, or the volume's result",
	Evidence: "A13, T4",
	Choices:  []any{"call", "volume"},
	Since:    map[string]any{"": "call"},
	ShownBy:  "cns.TestAnUnknownVMIsAFaultAndNeverAPanic",
})

var BatchAttach = toggle(Row{
	Name:     "BatchAttach",
	About:    "attach and detach take several specs in one call, also for one VM; each has its own result",
	Evidence: "X3, A4",
	Since:    map[string]any{"": false, "9.1": true},
	ShownBy:  "cns.TestSeveralVolumesInOneAttachNeedNineOne",
})

var BatchTime = text(Row{
	Name:     "BatchTime",
	About:    "with a latency profile, how long a task takes that attaches several volumes to one VM, or detaches them: the sum of their times, or one time for all, as one reconfiguration",
	Evidence: "unknown; A4 and L9 have no time of a single batch",
	Choices:  []any{"sum", "one"},
	Since:    map[string]any{"": "sum"},
	ShownBy:  "vcenter.TestABatchTakesTheTimesOfAllItsVolumes",
})

var BusyVM = text(Row{
	Name:     "BusyVM",
	About:    "an attach or detach on a VM while something else happens to it: waits, or per-volume fault TaskInProgress",
	Evidence: "X20, B1",
	Choices:  []any{"wait", "TaskInProgress"},
	Since:    map[string]any{"": "wait"},
	ShownBy:  "cns.TestAttachesToABusyVMQueue",
})

var BusySnapshot = text(Row{
	Name:     "BusySnapshot",
	About:    "a snapshot of an attached disk is made or deleted while its VM is busy: InvalidState or FileLocked, both below CNS, InvalidState or TaskInProgress for the volume, or it waits",
	Evidence: "X20, B3, B4: the faults of VSLM's own tasks; what CNS makes of them is inferred from G6, and G13 has both types for volumes",
	Choices:  []any{"CnsFault", "InvalidState", "TaskInProgress", "FileLocked", "wait"},
	Since:    map[string]any{"": "CnsFault"},
	ShownBy:  "cns.TestSnapshotsOfABusyVMsDiskFail",
})

var BusyMetadata = text(Row{
	Name:     "BusyMetadata",
	About:    "metadata of an attached volume is updated while its VM is busy with something that is not CNS: CnsFault about a file lock, or success",
	Evidence: "B5",
	Choices:  []any{"CnsFault", "success"},
	Since:    map[string]any{"": "CnsFault"},
	ShownBy:  "cns.TestMetadataOfABusyVMsDiskCannotBeUpdated",
})

var MultiWriter = toggle(Row{
	Name:     "MultiWriter",
	About:    "attach with sharing=sharingMultiWriter lets several VMs hold one volume when all of them ask for it; else the second is ResourceInUse",
	Evidence: "A5 for 9.1; older: unknown",
	Since:    map[string]any{"": false, "9.1": true},
	ShownBy:  "cns.TestSeveralVMsShareADiskOnlyWhenAllAskForIt",
})

var SharedDiskMode = text(Row{
	Name:     "SharedDiskMode",
	About:    "disk modes of an attach: any, or independent_persistent for sharingMultiWriter and for nothing else",
	Evidence: "A5b",
	Choices:  []any{"any", "independent"},
	Since:    map[string]any{"": "any"},
	ShownBy:  "cns.TestDiskModeAndSharingAreIndependentOfEachOther",
})

var NoSlotFault = text(Row{
	Name:     "NoSlotFault",
	About:    "per-volume fault when every controller slot of the VM is taken; the second has no text",
	Evidence: "A8, A9",
	Choices:  []any{"CnsFault", "CnsMissingControllerFault"},
	Since:    map[string]any{"": "CnsFault", "8.0U3": "CnsMissingControllerFault"},
	ShownBy:  "cns.TestAFullVMLacksAController",
})

var AddControllers = toggle(Row{
	Name:     "AddControllers",
	About:    "attach adds a paravirtual SCSI controller when all present ones are full and fewer than four exist",
	Evidence: "A8",
	Since:    map[string]any{"": true},
	ShownBy:  "cns.TestSlotsEndAtFifteenOrSixtyFourOnEachOfFourControllers",
})

var AddChosenController = toggle(Row{
	Name:     "AddChosenController",
	About:    "attach to a controller key from 1000 to 1003 that the VM lacks adds that controller; else InvalidArgument",
	Evidence: "A5 for 9.1; older: unknown",
	Since:    map[string]any{"": false, "9.1": true},
	ShownBy:  "cns.TestAChosenControllerIsAddedFromNineOne",
})

var NVMeControllers = text(Row{
	Name:     "NVMeControllers",
	About:    "attach skips the NVMe controllers of a VM unless one is chosen, or fills them first",
	Evidence: "vsphere-csi-driver issue 1723: CNS attaches to paravirtual SCSI controllers only",
	Choices:  []any{"skipped", "used"},
	Since:    map[string]any{"": "skipped"},
	ShownBy:  "cns.TestNVMeControllersAreUsedOnlyWhenChosen",
})

var WidePVSCSI = toggle(Row{
	Name:     "WidePVSCSI",
	About:    "paravirtual SCSI controllers have 64 slots from release 8.0 and the hardware version WidePVSCSIHardware; true is vCenter's state after its advanced option was set",
	Evidence: "A8, A9 for 15 slots; vsphere-csi-driver issue 2800 names the option",
	Since:    map[string]any{"": false},
	ShownBy:  "cns.TestSlotsEndAtFifteenOrSixtyFourOnEachOfFourControllers",
})

var WidePVSCSIHardware = number(Row{
	Name:     "WidePVSCSIHardware",
	About:    "first virtual hardware version with 64 slots on a paravirtual SCSI controller",
	Evidence: "VMware configuration maximums: 64 targets since ESXi 6.7, which brought hardware version 14",
	Choices:  []any{14, 21},
	Since:    map[string]any{"": 14},
	ShownBy:  "cns.TestSlotsEndAtFifteenOrSixtyFourOnEachOfFourControllers",
})

var MinHardware = number(Row{
	Name:     "MinHardware",
	About:    "lowest virtual hardware version that can attach a first class disk; lower ones fail below CNS with NotSupported",
	Evidence: "A11",
	Choices:  []any{13, 15},
	Since:    map[string]any{"": 13},
	ShownBy:  "cns.TestOldVirtualHardwareCannotAttach",
})

var DatastoreMustReachVM = toggle(Row{
	Name:     "DatastoreMustReachVM",
	About:    "attach fails below CNS when the VM's host does not mount the volume's datastore",
	Evidence: "A14; the cause is unknown",
	Since:    map[string]any{"": true},
	ShownBy:  "cns.TestAHostThatDoesNotMountTheDatastoreCannotAttach",
})

var SuspendedVM = text(Row{
	Name:     "SuspendedVM",
	About:    "attach to and detach from a suspended VM: InvalidPowerState below CNS, or success",
	Evidence: "unknown",
	Choices:  []any{"InvalidPowerState", "success"},
	Since:    map[string]any{"": "InvalidPowerState"},
	ShownBy:  "cns.TestASuspendedVMKeepsItsDisks",
})

var TrackingMismatch = toggle(Row{
	Name:     "TrackingMismatch",
	About:    "a disk with changed block tracking cannot be attached to a VM without it: InvalidState below CNS",
	Evidence: "W1, A10",
	Since:    map[string]any{"": true},
	ShownBy:  "cns.TestADiskThatTracksChangesNeedsAVMThatDoes",
})

var StaleAttachment = text(Row{
	Name:     "StaleAttachment",
	About:    "a VM is deleted while it holds a disk: the disk is freed, or held for ever and every operation on it fails with InvalidState below CNS or ResourceInUse",
	Evidence: "W2, A7, T5 for 6.7U3; later: unknown",
	Choices:  []any{"freed", "InvalidState", "ResourceInUse"},
	Since:    map[string]any{"": "InvalidState", "7.0U3": "freed"},
	ShownBy:  "cns.TestADeletedVMMayHoldItsDisksForEver",
})

var DetachWithVMSnapshot = text(Row{
	Name:     "DetachWithVMSnapshot",
	About:    "fault for detaching a disk that a snapshot of its VM contains: as it is, or below CNS",
	Evidence: "W3, T3: the text, up to 7.0; that later releases hide it is inferred from G6, where no detach was seen",
	Choices:  []any{"InvalidDeviceSpec", "CnsFault"},
	Since:    map[string]any{"": "InvalidDeviceSpec", "7.0U2": "CnsFault"},
	ShownBy:  "cns.TestASnapshotOfAVMLocksItsDisks",
})

var LinkNeedsEnableUUID = toggle(Row{
	Name:     "LinkNeedsEnableUUID",
	About:    "the guest sees no link to a disk by its UUID unless the VM has disk.EnableUUID=TRUE",
	Evidence: "vsphere-csi-driver issues 27, 92 and 943",
	Since:    map[string]any{"": true},
	ShownBy:  "cns.TestAGuestWithoutDiskUUIDsSeesNoLink",
})
