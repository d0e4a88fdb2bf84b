package assume

// Failures of the disk layer below CNS.

var DiskFaultCause = toggle(Row{
	Name:     "DiskFaultCause",
	About:    "a failure of the disk layer has the real fault as faultCause of the CnsFault",
	Evidence: "X12, A5c, C10 for 9.1; older: unknown",
	Since:    map[string]any{"": false, "9.1": true},
	ShownBy:  "cns.TestAFailureOfTheDiskLayerReadsAsTheReleaseSaysIt",
})
