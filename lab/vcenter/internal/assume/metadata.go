package assume

// Metadata of volumes.

var OmittedClustersStay = toggle(Row{
	Name:     "OmittedClustersStay",
	About:    "an update whose containerClusterArray lacks a known cluster leaves that cluster alone",
	Evidence: "csi.md §17.3",
	Since:    map[string]any{"": true},
})

var OneEntityPerType = toggle(Row{
	Name:     "OneEntityPerType",
	About:    "a block volume has at most one entity of each type in each cluster; a second one is the fault Duplicated entity",
	Evidence: "csi.md §6.2, vsphere-csi-driver issue 1186",
	Since:    map[string]any{"": true},
})
