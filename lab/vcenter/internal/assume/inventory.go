package assume

// The inventory: properties, records of tasks, guests.

var SilentProperties = toggle(Row{
	Name: "SilentProperties",
	About: "recentTask, overallStatus, triggeredAlarmState, configIssue and configStatus change without an update to those who wait; " +
		"reading them anew, also by a wait without version, shows them",
	Evidence: "X22, P6",
	Since:    map[string]any{"": true},
	ShownBy:  "vcenter.TestSomePropertiesChangeWithoutAnUpdate",
})

var InaccessibleSummary = text(Row{
	Name: "InaccessibleSummary",
	About: "what a datastore that no host reaches shows in summary and info: what was last known of it, or nothing, so that " +
		"each of these properties is missing with the fault InaccessibleDatastore",
	Evidence: "C21, seen on 6.0; which properties, and with which fault, is unknown",
	Choices:  []any{"last known", "missing"},
	Since:    map[string]any{"": "last known"},
	ShownBy:  "control.TestAnInaccessibleDatastoreShowsWhatWasLastKnown",
})

var InaccessibleConfig = text(Row{
	Name:     "InaccessibleConfig",
	About:    "config of a VM whose files are not accessible, devices and options included: not set, or as it last was but for the UUID",
	Evidence: "the reference of the API: config is unavailable if the server cannot read the VM's files",
	Choices:  []any{"unset", "last known"},
	Since:    map[string]any{"": "unset"},
	ShownBy:  "control.TestAVMWhoseFilesAreGoneHasNoConfiguration",
})

var OfflineDevices = text(Row{
	Name:     "OfflineDevices",
	About:    "devices of a VM whose host is not connected: as they last were, or an empty list, which does not mean that it has no disks",
	Evidence: "vsphere-csi-driver pull request 2548: seen while a host was powered off, when and for how long is unknown",
	Choices:  []any{"last known", "empty"},
	Since:    map[string]any{"": "last known"},
	ShownBy:  "control.TestAVMWhoseHostIsAwayShowsItsLastDevices",
})

var VanishedObject = text(Row{
	Name:     "VanishedObject",
	About:    "an object that leaves the inventory while a read goes on: the whole read fails with ManagedObjectNotFound, or the object is left out",
	Evidence: "P2, seen on 6.x",
	Choices:  []any{"fault", "left out"},
	Since:    map[string]any{"": "fault"},
	ShownBy:  "control.TestAReadFailsWhenOneOfItsObjectsVanishes",
})

var UpdatesPerAnswer = number(Row{
	Name:     "UpdatesPerAnswer",
	About:    "most objects in one answer of WaitForUpdatesEx when the client does not say; there are more when it is truncated",
	Evidence: "P4",
	Choices:  []any{100, 2},
	Since:    map[string]any{"": 100},
	ShownBy:  "vcenter.TestAnAnswerHasAHundredObjects",
})

var DuplicateUUID = text(Row{
	Name:     "DuplicateUUID",
	About:    "which VM FindByUuid gives when several have the UUID; FindAllByUuid gives all of them",
	Evidence: "P7, P8: one of them; which one is unknown",
	Choices:  []any{"oldest", "newest"},
	Since:    map[string]any{"": "oldest"},
	ShownBy:  "vcenter.TestFindByUuidGivesOneOfSeveral",
})

var GoneTasksSeenFrom = text(Row{
	Name:     "GoneTasksSeenFrom",
	About:    "who sees the record of a task whose entity is gone: those who see what the entity was in, or those who may read the root folder",
	Evidence: "unknown; P9 has the records",
	Choices:  []any{"container", "root"},
	Since:    map[string]any{"": "container"},
	ShownBy:  "vcenter.TestTasksAreToldToThoseWhoSeeTheirEntity",
})

var ManyInterfaces = text(Row{
	Name:     "ManyInterfaces",
	About:    "a guest with more than 16 interfaces, such as a node with many pods: its addresses are lost, or the first 16 interfaces are reported",
	Evidence: "W9, P12, P15; open-vm-tools issue 128: hosts refuse a report of more than 16 interfaces, the tools as VMware ships them send no more",
	Choices:  []any{"lost", "cut"},
	Since:    map[string]any{"": "lost"},
	ShownBy:  "control.TestAGuestWithVeryManyInterfacesLosesItsAddresses",
})

var CreatesPerSecond = number(Row{
	Name:     "CreatesPerSecond",
	About:    "with a latency profile, how many creates of volumes begin within a second in all; 0 is no ceiling",
	Evidence: "W14, L1",
	Choices:  []any{4, 1},
	Since:    map[string]any{"": 4},
	ShownBy:  "vcenter.TestCreatesHaveACeiling",
})
