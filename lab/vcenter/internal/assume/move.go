package assume

// Storage vMotion.

var VMotionLosesVolumes = toggle(Row{
	Name:     "VMotionLosesVolumes",
	About:    "storage vMotion of a VM takes its volumes from CNS: attach, detach, delete and all else then say NotFound; if not, CNS follows them to the VM's folder",
	Evidence: "X16, V1, V2, U8: lost up to 7.0U2",
	Since:    map[string]any{"": true, "7.0U3": false},
	ShownBy:  "vcenter.TestStorageVMotionTakesVolumesIntoTheVMsFolder",
})
