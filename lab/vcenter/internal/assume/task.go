package assume

// Tasks of CNS, and a restart of CNS.

var CnsTaskEntity = text(Row{
	Name:     "CnsTaskEntity",
	About:    "entity of a CNS task: vm is the VM for attach and detach and the root folder for all others; attach is the VM for attach alone; manager is the volume manager, which pyVmomi cannot read",
	Evidence: "X18, G8, G9, G9b: seen for attach and for a snapshot; detach like attach and the rest like a snapshot are inferred",
	Choices:  []any{"vm", "attach", "manager"},
	Since:    map[string]any{"": "vm"},
	ShownBy:  "cns.TestTheEntityOfATaskIsTheVMOrTheRootFolder",
})

var FinishedTaskMinutes = number(Row{
	Name:     "FinishedTaskMinutes",
	About:    "minutes of vCenter's time that a task can be read after it ended; then it is ManagedObjectNotFound, though its record stays",
	Evidence: "W5, K1; the time is unknown, ten minutes is how long recentTask keeps a task",
	Choices:  []any{10, 60},
	Since:    map[string]any{"": 10},
	ShownBy:  "vcenter.TestAFinishedTaskCannotBeReadForEver",
})

var RestartedTaskFault = text(Row{
	Name:     "RestartedTaskFault",
	About:    "error of a task that was running when CNS restarted",
	Evidence: "W4, K2; the type is unknown",
	Choices:  []any{"CnsFault", "SystemError"},
	Since:    map[string]any{"": "CnsFault"},
	ShownBy:  "control.TestARestartOfCNSFailsRunningTasksWhateverBecomesOfTheirWork",
})

var TaskReadNeedsEntity = toggle(Row{
	Name:     "TaskReadNeedsEntity",
	About:    "reading a task needs System.Read on its entity, so that of most CNS tasks on the root folder; else the result is NoPermission although the work is done",
	Evidence: "W12, C5: seen on 6.7U3; that newer releases do the same is inferred",
	Since:    map[string]any{"": true},
	ShownBy:  "vcenter.TestATaskOfCNSIsReadByThoseWhoMayReadTheRootFolder",
})
