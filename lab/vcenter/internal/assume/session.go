package assume

// Sessions.

var SOAPIdleMinutes = number(Row{
	Name:     "SOAPIdleMinutes",
	About:    "minutes of vCenter's time after which an unused SOAP session ends; a request that waits for updates is a use",
	Evidence: "S1",
	Choices:  []any{30, 120},
	Since:    map[string]any{"": 30},
	ShownBy:  "vcenter.TestASOAPSessionEndsWhenIdle",
})

var RESTIdleMinutes = number(Row{
	Name:     "RESTIdleMinutes",
	About:    "minutes of vCenter's time after which an unused REST session ends; whatever its use, it ends after 24 hours",
	Evidence: "X21, S3; five minutes are what users report, nothing contradicts them",
	Choices:  []any{5, 30},
	Since:    map[string]any{"": 5},
	ShownBy:  "vcenter.TestARESTSessionEndsWhenIdleAndAfterADayWhateverItsUse",
})
