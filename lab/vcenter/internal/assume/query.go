package assume

// Queries.

var QueryAllIgnoresCursor = toggle(Row{
	Name:     "QueryAllIgnoresCursor",
	About:    "CnsQueryAllVolume returns everything whatever the cursor says",
	Evidence: "unknown; upstream never pages it",
	Since:    map[string]any{"": true},
	ShownBy:  "cns.TestPagesAreStableAndTheCursorLeadsToTheNext",
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
	Evidence: "Q2; that more are refused is inferred",
	Choices:  []any{1000, 100},
	Since:    map[string]any{"": 1000},
	ShownBy:  "cns.TestAFilterHasAtMostAThousandIDs",
})

var FilterValues = number(Row{
	Name:     "FilterValues",
	About:    "most values in any other list of a query filter; a longer list fails with InvalidArgument; 0 means no limit",
	Evidence: "Q2: more than about ten may be slow or fail; the fault is unknown",
	Choices:  []any{10, 0},
	Since:    map[string]any{"": 10},
	ShownBy:  "cns.TestAFilterHasAtMostTenValuesInAList",
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

var FreshVolume = text(Row{
	Name:     "FreshVolume",
	About:    "how the first two queries after its creation, or those of StaleSeconds, show a volume: complete, without datastoreUrl, or not at all",
	Evidence: "W7, Q4, Q5: seen now and then",
	Choices:  []any{"complete", "noDatastoreUrl", "absent"},
	Since:    map[string]any{"": "complete"},
	ShownBy:  "cns.TestAQueryRightAfterCreateShowsTheWholeVolume",
})

var StaleQueries = toggle(Row{
	Name:     "StaleQueries",
	About:    "the first two queries after CNS deleted, relocated or extended a volume show it as it was before",
	Evidence: "Q3, D5, N9: vendor's tests wait for the query to agree",
	Since:    map[string]any{"": false},
	ShownBy:  "cns.TestAQueryRightAfterAChangeShowsIt",
})

var StaleSeconds = number(Row{
	Name:     "StaleSeconds",
	About:    "seconds of vCenter's time for which queries show a volume as it was before CNS changed its record in any way, however many they are; a walk tries few",
	Evidence: "Q3, D5, N9: vendor's tests wait up to 90 or 300 s",
	Choices:  []any{0, 5},
	Since:    map[string]any{"": 0},
	ShownBy:  "cns.TestAQueryRightAfterAChangeShowsIt",
})

var OutsideLagSeconds = number(Row{
	Name:     "OutsideLagSeconds",
	About:    "seconds of vCenter's time until queries show that a volume's disk was moved, extended or deleted outside CNS; POST /cns/sync makes them show it at once",
	Evidence: "W8, Q6",
	Choices:  []any{90, 0},
	Since:    map[string]any{"": 90},
	ShownBy:  "cns.TestWhatHappensToADiskOutsideCNSShowsLater",
})
