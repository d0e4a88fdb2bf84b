package assume

// Metadata of volumes.

var MetadataPaths = text(Row{
	Name:     "MetadataPaths",
	About:    "how InvalidArgument names a wrong field of metadata: from the call's parameter on (createSpecs.metadata.…), or from the metadata on",
	Evidence: "X5, C1, G3",
	Choices:  []any{"full", "short"},
	Since:    map[string]any{"": "full"},
	ShownBy:  "cns.TestWrongMetadataIsNamedByItsFullPath",
})

var DistributionLimit = number(Row{
	Name:     "DistributionLimit",
	About:    "longest clusterDistribution in bytes; longer ones are an InvalidArgument",
	Evidence: "C1; the vendor's API reference says 128 bytes",
	Choices:  []any{128, 64},
	Since:    map[string]any{"": 128},
	ShownBy:  "cns.TestAClusterDistributionHasALimit",
})

var ClusterArrayMandatory = toggle(Row{
	Name:     "ClusterArrayMandatory",
	About:    "from 7.0 on, metadata with a containerCluster but without containerClusterArray is an InvalidArgument",
	Evidence: "M4 says mandatory; the vendor's test creates volumes without it",
	Since:    map[string]any{"": false},
	ShownBy:  "cns.TestTheArrayOfClustersMayBeLeftOut",
})

var OmittedClustersStay = toggle(Row{
	Name:     "OmittedClustersStay",
	About:    "clusters of a volume that an update does not name stay with their entities; else those that it names take their place",
	Evidence: "M2, M4: clusters have a delete flag of their own; M5 for 6.7U3; else unknown",
	Since:    map[string]any{"": false, "7.0U1": true},
	ShownBy:  "cns.TestAnUpdateWithANewClusterKeepsTheOthersFrom70On",
})

var OneEntityPerType = toggle(Row{
	Name:     "OneEntityPerType",
	About:    "two entities of one type and cluster in one spec for a block volume are refused with the text Duplicated entity …",
	Evidence: "X14, M1",
	Since:    map[string]any{"": true},
	ShownBy:  "cns.TestTwoEntitiesOfATypeInOneSpecAreRefusedInTheCall",
})

var DeletedEntitiesCount = toggle(Row{
	Name:     "DeletedEntitiesCount",
	About:    "entities marked for deletion count for OneEntityPerType",
	Evidence: "X14, M1: inferred from upstream, which sends deletions in an update of their own",
	Since:    map[string]any{"": true},
	ShownBy:  "cns.TestEntitiesMarkedForDeletionCountAsDuplicates",
})

var DuplicatedEntityFault = text(Row{
	Name:     "DuplicatedEntityFault",
	About:    "type of the call's fault with the text Duplicated entity …",
	Evidence: "M1 has the text and the level; the type is unknown",
	Choices:  []any{"CnsFault", "InvalidArgument"},
	Since:    map[string]any{"": "CnsFault"},
	ShownBy:  "cns.TestTwoEntitiesOfATypeInOneSpecAreRefusedInTheCall",
})

var UpdateWithoutChange = text(Row{
	Name: "UpdateWithoutChange",
	About: "metadata updates that are refused with InvalidArgument of the call: those without entities and without a new, changed or deleted cluster; " +
		"besides those that leave everything as it is; or none",
	Evidence: "X15, M3: an empty spec is documented to fail, how is unknown",
	Choices:  []any{"empty fails", "unchanged fails", "succeeds"},
	Since:    map[string]any{"": "empty fails"},
	ShownBy:  "cns.TestAnUpdateWithoutAChangeIsRefused",
})

var UpdateUnknown = text(Row{
	Name:     "UpdateUnknown",
	About:    "where a metadata update of a volume without a disk is NotFound: the call, which reads the disk before it makes a task, or the volume",
	Evidence: "M6; U1 and U2 for the texts, seen with attach",
	Choices:  []any{"call", "volume"},
	Since:    map[string]any{"": "call"},
	ShownBy:  "cns.TestAnUpdateReadsTheDiskBeforeThereIsATask",
})

var DiskMetadata = text(Row{
	Name:     "DiskMetadata",
	About:    "key under which VSLM shows of a disk the cluster that CNS made it for, among others of the same prefix; absent is none",
	Evidence: "the vendor's test of its Velero plugin demands these keys, by release; whether every list of disks has them is unknown",
	Choices:  []any{"cns.containerCluster.clusterId", "cns.clusterID", "absent"},
	Since:    map[string]any{"": "cns.clusterID", "7.0U3": "cns.containerCluster.clusterId"},
	ShownBy:  "cns.TestADiskNamesTheClusterOfItsVolume",
})
