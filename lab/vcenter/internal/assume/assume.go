// Package assume holds what we believe about a real vCenter but could not check on one.
//
// Every belief is a named field of Assumptions with the evidence we have, so that a test can switch it and see
// whether a driver survives the other answer, and so that the first real vCenter can correct it in one place.
package assume

// Assumptions are the switchable beliefs. The tags are read by List and Set: about says what the value means,
// source where the belief comes from, oneof what a text may be.
type Assumptions struct {
	// Attach and detach.

	AttachSameVM string `about:"answer to attaching a volume to the VM that already has it: the fault, or success with the disk's UUID" oneof:"ResourceInUse,success" source:"csi.md §3.5: upstream looks at the VM's devices after ResourceInUse; vsphere-csi-driver issues 93 and 570"`

	DetachNotAttached string `about:"per-volume fault for detaching a disk that the VM does not have" oneof:"NotFound,CnsFault,InvalidArgument" source:"csi.md §17.1, §3.6"`

	UnknownVM string `about:"where an unknown VM moref in attach or detach is refused with ManagedObjectNotFound: the call itself, or the volume's result" oneof:"call,volume" source:"pyVmomi's method table declares the fault for the call; csi.md §3.6"`

	BatchAttach bool `about:"attach and detach take several specs in one call, also for one VM; each has its own result" source:"csi.md §17.2"`

	BusyVM string `about:"a second attach or detach on a VM while one runs: waits, or per-volume fault TaskInProgress" oneof:"wait,TaskInProgress" source:"vsphere-api.md §6.3"`

	MultiWriter bool `about:"attach with sharing=sharingMultiWriter lets several VMs hold one volume when all of them ask for it" source:"csi.md §17.6"`

	NoSlotFault string `about:"per-volume fault when every controller slot of the VM is taken" oneof:"CnsFault,CnsMissingControllerFault" source:"csi.md §3.14; the second fault is in pyVmomi's tables since vsan 8.0.0.3"`

	AddControllers bool `about:"attach adds a paravirtual SCSI controller when all present ones are full and fewer than four exist" source:"csi.md §3.12"`

	WidePVSCSI bool `about:"paravirtual SCSI controllers have 64 slots from release 8.0 and the hardware version WidePVSCSIHardware; false is vCenter's state before its advanced option is set" source:"csi.md §3.12 (vsphere-csi-driver issue 2800)"`

	WidePVSCSIHardware int `about:"first virtual hardware version with 64 slots on a paravirtual SCSI controller" source:"VMware configuration maximums: 64 targets since ESXi 6.7, which brought hardware version 14"`

	MinHardware int `about:"lowest virtual hardware version that can attach a first class disk; lower ones get CnsFault with NotSupported as its cause" source:"csi.md §3.14, vsphere-csi-driver issue 519; first class disks came with vSphere 6.5 and its hardware version 13"`

	DatastoreMustReachVM bool `about:"attach fails when the VM's host does not mount the volume's datastore" source:"csi.md §14.11: candidates must be shared by the nodes' hosts"`

	LinkNeedsEnableUUID bool `about:"the guest sees no wwn link unless the VM has disk.EnableUUID=TRUE" source:"csi.md §5.2"`

	// Create and delete.

	NameLimit int `about:"longest volume name in characters; longer ones are an InvalidArgument" source:"csi.md §3.12"`

	SessionUserOnly bool `about:"containerCluster.vSphereUser must be the user of the session, as user@domain or DOMAIN\\user" source:"csi.md §6.4, §3.3 step 9"`

	TransactionsSince string `about:"first release with client-chosen volume and snapshot ids, unregister and volume sync; older ones answer NotSupported" oneof:"never,6.7U3,7.0U3,8.0U3,9.0,9.1" source:"pyVmomi's tables: vsan 9.1.0.0; csi.md §3.0"`

	ThinTakesFullSize bool `about:"a new volume takes its whole size from the datastore's free space, so that tests can fill one; false counts thin disks as nothing but still refuses what does not fit" source:"ours: real thin disks grow with use, which needs guests that write"`

	OutOfSpaceFault string `about:"per-volume fault of create and extend when no candidate has room; CnsFault carries NoDiskSpace as its cause" oneof:"CnsFault,NoDiskSpace" source:"csi.md §3.14; the text follows vsphere-csi-driver issue 1444"`

	MaxVolumeMB int `about:"largest block volume in MiB" source:"VMware configuration maximums: 62 TiB per virtual disk"`

	DeleteWithSnapshots string `about:"per-volume fault for deleting a disk that has snapshots" oneof:"CnsFault,InvalidState" source:"csi.md §3.4: upstream refuses before it asks vCenter"`

	UnregisterAttached bool `about:"deleting with deleteDisk=false is allowed while the disk is attached" source:"ours: losing a disk that is in use is the worse mistake"`

	ActiveClustersMustReach bool `about:"a block volume is placed on a datastore that some host of each active cluster, and each named host, mounts" source:"csi.md §7.1 names the fields; what vCenter does with them is our guess"`

	RestoreAnyDatastore bool `about:"a volume from a snapshot may be placed on another datastore than its source" source:"csi.md §17.5"`

	RestoreLarger bool `about:"a volume from a snapshot may be larger than its source" source:"csi.md §3.3 step 2: upstream demands the same size"`

	// Query.

	QueryAllIgnoresCursor bool `about:"CnsQueryAllVolume returns everything whatever the cursor says" source:"csi.md §3.9, §17.4: upstream never pages it"`

	EmptySelection string `about:"what CnsQueryAllVolume gives for a selection without names: only the ids, or every field" oneof:"ids,all" source:"csi.md §3.9: upstream reads the ids first, details after"`

	MaxQueryIDs int `about:"most volume ids in one query filter; more are an InvalidArgument" source:"csi.md §3.12, §17.4"`

	MaxSnapshotPage int `about:"most snapshots in one page of CnsQuerySnapshots" source:"csi.md §3.12"`

	LabelsMatch string `about:"a query with several labels finds volumes with any or with all of them" oneof:"any,all" source:"govmomi's simulator matches any"`

	// Metadata.

	OmittedClustersStay bool `about:"an update whose containerClusterArray lacks a known cluster leaves that cluster alone" source:"csi.md §17.3"`

	OneEntityPerType bool `about:"a block volume has at most one entity of each type in each cluster; a second one is the fault Duplicated entity" source:"csi.md §6.2, vsphere-csi-driver issue 1186"`

	// Extend, snapshots, relocate, policies, file shares.

	OnlineExtendSince string `about:"first release that extends an attached disk" oneof:"never,6.7U3,7.0U3,8.0U3,9.0,9.1" source:"csi.md §3.0: online expand needs more than 7.0U1"`

	ExtendSameSizeSince string `about:"first release where extending to the present size succeeds; older ones say InvalidArgument" oneof:"never,6.7U3,7.0U3,8.0U3,9.0,9.1" source:"csi.md §3.7: upstream calls extend unconditionally from 8.0"`

	ExtendWithSnapshotsSince string `about:"first release that extends a disk with snapshots" oneof:"never,6.7U3,7.0U3,8.0U3,9.0,9.1" source:"csi.md §3.7: upstream refuses for all releases"`

	SnapshotsSince string `about:"first release with CNS snapshots and CnsQueryAsync" oneof:"never,6.7U3,7.0U3,8.0U3,9.0,9.1" source:"csi.md §3.0 version gates"`

	SnapshotLimit int `about:"most snapshots of one volume" source:"csi.md §3.12"`

	DeleteMissingSnapshot string `about:"per-volume fault for deleting a snapshot that does not exist" oneof:"NotFound,InvalidArgument,CnsSnapshotNotFoundFault" source:"csi.md §3.10: upstream accepts the first two as done"`

	RelocateAttached bool `about:"an attached volume can be relocated; its VM's device then shows the new path" source:"csi.md §13.7; vSphere 8 documents online volume migration"`

	ReconfigIncompatible string `about:"changing to a policy that the volume's datastore does not satisfy: fault, or done and nonCompliant" oneof:"fault,nonCompliant" source:"csi.md §17.9"`

	ExtendFileShares bool `about:"CnsExtendVolume grows the quota of a file share" source:"vsphere-csi-driver issue 3497 asks for it, so it is not there"`

	FileSharesNeedVSAN bool `about:"file volumes are placed on vSAN datastores only" source:"csi.md §3.3 file algorithm"`
}

// Default is what we believe most likely true.
func Default() Assumptions {
	return Assumptions{
		AttachSameVM:         "ResourceInUse",
		DetachNotAttached:    "NotFound",
		UnknownVM:            "call",
		BatchAttach:          true,
		BusyVM:               "wait",
		MultiWriter:          true,
		NoSlotFault:          "CnsFault",
		AddControllers:       true,
		WidePVSCSI:           true,
		WidePVSCSIHardware:   14,
		MinHardware:          13,
		DatastoreMustReachVM: true,
		LinkNeedsEnableUUID:  true,

		NameLimit:           80,
		SessionUserOnly:     true,
		TransactionsSince:   "9.1",
		ThinTakesFullSize:   true,
		OutOfSpaceFault:     "CnsFault",
		MaxVolumeMB:         62 * 1024 * 1024,
		DeleteWithSnapshots: "CnsFault",

		ActiveClustersMustReach: true,

		QueryAllIgnoresCursor: true,
		EmptySelection:        "ids",
		MaxQueryIDs:           1000,
		MaxSnapshotPage:       128,
		LabelsMatch:           "any",

		OmittedClustersStay: true,
		OneEntityPerType:    true,

		OnlineExtendSince:        "7.0U3",
		ExtendSameSizeSince:      "8.0U3",
		ExtendWithSnapshotsSince: "never",
		SnapshotsSince:           "7.0U3",
		SnapshotLimit:            32,
		DeleteMissingSnapshot:    "NotFound",
		RelocateAttached:         true,
		ReconfigIncompatible:     "fault",
		FileSharesNeedVSAN:       true,
	}
}
