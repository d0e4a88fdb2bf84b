package assume

// Attach and detach.

var AttachSameVM = text(Row{
	Name:     "AttachSameVM",
	About:    "answer to attaching a volume to the VM that already has it: the fault, or success with the disk's UUID",
	Evidence: "csi.md §3.5: upstream looks at the VM's devices after ResourceInUse; vsphere-csi-driver issues 93 and 570",
	Choices:  []any{"ResourceInUse", "success"},
	Since:    map[string]any{"": "ResourceInUse"},
})

var DetachNotAttached = text(Row{
	Name:     "DetachNotAttached",
	About:    "per-volume fault for detaching a disk that the VM does not have",
	Evidence: "csi.md §17.1, §3.6",
	Choices:  []any{"NotFound", "CnsFault", "InvalidArgument"},
	Since:    map[string]any{"": "NotFound"},
})

var UnknownVM = text(Row{
	Name:     "UnknownVM",
	About:    "where an unknown VM moref in attach or detach is refused with ManagedObjectNotFound: the call itself, or the volume's result",
	Evidence: "pyVmomi's method table declares the fault for the call; csi.md §3.6",
	Choices:  []any{"call", "volume"},
	Since:    map[string]any{"": "call"},
})

var BatchAttach = toggle(Row{
	Name:     "BatchAttach",
	About:    "attach and detach take several specs in one call, also for one VM; each has its own result",
	Evidence: "csi.md §17.2",
	Since:    map[string]any{"": true},
})

var BusyVM = text(Row{
	Name:     "BusyVM",
	About:    "a second attach or detach on a VM while one runs: waits, or per-volume fault TaskInProgress",
	Evidence: "vsphere-api.md §6.3",
	Choices:  []any{"wait", "TaskInProgress"},
	Since:    map[string]any{"": "wait"},
})

var MultiWriter = toggle(Row{
	Name:     "MultiWriter",
	About:    "attach with sharing=sharingMultiWriter lets several VMs hold one volume when all of them ask for it",
	Evidence: "csi.md §17.6",
	Since:    map[string]any{"": true},
})

var NoSlotFault = text(Row{
	Name:     "NoSlotFault",
	About:    "per-volume fault when every controller slot of the VM is taken",
	Evidence: "csi.md §3.14; the second fault is in pyVmomi's tables since vsan 8.0.0.3",
	Choices:  []any{"CnsFault", "CnsMissingControllerFault"},
	Since:    map[string]any{"": "CnsFault"},
})

var AddControllers = toggle(Row{
	Name:     "AddControllers",
	About:    "attach adds a paravirtual SCSI controller when all present ones are full and fewer than four exist",
	Evidence: "csi.md §3.12",
	Since:    map[string]any{"": true},
})

var WidePVSCSI = toggle(Row{
	Name:     "WidePVSCSI",
	About:    "paravirtual SCSI controllers have 64 slots from release 8.0 and the hardware version WidePVSCSIHardware; false is vCenter's state before its advanced option is set",
	Evidence: "csi.md §3.12 (vsphere-csi-driver issue 2800)",
	Since:    map[string]any{"": true},
})

var WidePVSCSIHardware = number(Row{
	Name:     "WidePVSCSIHardware",
	About:    "first virtual hardware version with 64 slots on a paravirtual SCSI controller",
	Evidence: "VMware configuration maximums: 64 targets since ESXi 6.7, which brought hardware version 14",
	Choices:  []any{14, 21},
	Since:    map[string]any{"": 14},
})

var MinHardware = number(Row{
	Name:     "MinHardware",
	About:    "lowest virtual hardware version that can attach a first class disk; lower ones get CnsFault with NotSupported as its cause",
	Evidence: "csi.md §3.14, vsphere-csi-driver issue 519; first class disks came with vSphere 6.5 and its hardware version 13",
	Choices:  []any{13, 15},
	Since:    map[string]any{"": 13},
})

var DatastoreMustReachVM = toggle(Row{
	Name:     "DatastoreMustReachVM",
	About:    "attach fails when the VM's host does not mount the volume's datastore",
	Evidence: "csi.md §14.11: candidates must be shared by the nodes' hosts",
	Since:    map[string]any{"": true},
})

var LinkNeedsEnableUUID = toggle(Row{
	Name:     "LinkNeedsEnableUUID",
	About:    "the guest sees no wwn link unless the VM has disk.EnableUUID=TRUE",
	Evidence: "csi.md §5.2",
	Since:    map[string]any{"": true},
})
