package assume

// Sessions.

var RESTIdleMinutes = number(Row{
	Name:     "RESTIdleMinutes",
	About:    "minutes of vCenter's time after which an unused REST session ends; whatever its use, it ends after 24 hours",
	Evidence: "X21, S3; five minutes are what users report, nothing contradicts them",
	Choices:  []any{5, 30},
	Since:    map[string]any{"": 5},
	ShownBy:  "vcenter.TestARESTSessionEndsWhenIdleAndAfterADayWhateverItsUse",
})
