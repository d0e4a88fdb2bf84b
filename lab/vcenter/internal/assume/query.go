package assume

// Queries.

var QueryAllIgnoresCursor = toggle(Row{
	Name:     "QueryAllIgnoresCursor",
	About:    "CnsQueryAllVolume returns everything whatever the cursor says",
	Evidence: "csi.md §3.9, §17.4: upstream never pages it",
	Since:    map[string]any{"": true},
})

var EmptySelection = text(Row{
	Name:     "EmptySelection",
	About:    "what CnsQueryAllVolume gives for a selection without names: only the ids, or every field",
	Evidence: "unknown; upstream reads the ids first, details after",
	Choices:  []any{"ids", "all"},
	Since:    map[string]any{"": "ids"},
	ShownBy:  "cns.TestASelectionLeavesOutTheOtherFields",
})

var MaxQueryIDs = number(Row{
	Name:     "MaxQueryIDs",
	About:    "most volume ids in one query filter; more are an InvalidArgument",
	Evidence: "csi.md §3.12, §17.4",
	Choices:  []any{1000, 100},
	Since:    map[string]any{"": 1000},
})

var MaxSnapshotPage = number(Row{
	Name:     "MaxSnapshotPage",
	About:    "most snapshots in one page of CnsQuerySnapshots",
	Evidence: "unknown",
	Choices:  []any{128, 16},
	Since:    map[string]any{"": 128},
	ShownBy:  "cns.TestAPageOfSnapshotsHasALargestSize",
})

var LabelsMatch = text(Row{
	Name:     "LabelsMatch",
	About:    "a query with several labels finds volumes with any or with all of them",
	Evidence: "unknown; govmomi's simulator matches any",
	Choices:  []any{"any", "all"},
	Since:    map[string]any{"": "any"},
	ShownBy:  "cns.TestSeveralLabelsFindVolumesWithAnyOfThem",
})
