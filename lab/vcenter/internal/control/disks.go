package control

// volumeRequest says what happens to a volume without any call to CNS.
type volumeRequest struct {
	Volume   string `json:"volume"`
	Record   *bool  `json:"record"`
	Disk     *bool  `json:"disk"`
	Tracking *bool  `json:"tracking"`
	Held     *bool  `json:"held"`

	Compliance string `json:"compliance"`
	Health     string `json:"health"`
}

func (c *Control) volume(r volumeRequest) (done, error) {
	if r.Volume == "" {
		return done{}, wrong("volume", "is missing; give the id of a volume")
	}
	var change func(string) error
	volumes := c.vc.CNS()
	given := 0
	for field, set := range map[string]struct {
		value *bool
		on    func(string) error
		off   func(string) error
	}{
		"record":   {r.Record, nil, volumes.ForgetRecord},
		"disk":     {r.Disk, volumes.FindDisk, volumes.LoseDisk},
		"tracking": {r.Tracking, c.track(true), c.track(false)},
		"held":     {r.Held, nil, volumes.FreeStale},
	} {
		if set.value == nil {
			continue
		}
		given++
		change = set.off
		if *set.value {
			change = set.on
		}
		if change == nil {
			return done{}, wrong(field, "can only be false")
		}
	}
	shown := r.Compliance != "" || r.Health != ""
	switch {
	case given == 0 && shown:
		return done{true}, c.status(r)
	case given != 1 || shown:
		return done{}, wrong("record", "give exactly one of record, disk, tracking and held, or compliance and health")
	}
	if err := change(r.Volume); err != nil {
		return done{}, wrong("volume", "%s", err)
	}
	return done{true}, nil
}

func (c *Control) track(on bool) func(string) error {
	return func(id string) error { return c.vc.CNS().SetTracking(id, on) }
}

type vmBusyRequest struct {
	VM   string `json:"vm"`
	Busy *bool  `json:"busy"`
}

func (c *Control) vmBusy(r vmBusyRequest) (done, error) {
	vm, err := c.vc.Inventory.FindVM("vm", r.VM)
	if err != nil {
		return done{}, err
	}
	if r.Busy == nil {
		return done{}, wrong("busy", "is missing; give true or false")
	}
	c.vc.CNS().SetBusy(vm.Self, *r.Busy)
	return done{true}, nil
}

type vmSnapshotRequest struct {
	VM     string `json:"vm"`
	Name   string `json:"name"`
	Remove bool   `json:"remove_all"`
}

func (c *Control) vmSnapshot(r vmSnapshotRequest) (done, error) {
	vm, err := c.vc.Inventory.FindVM("vm", r.VM)
	if err != nil {
		return done{}, err
	}
	if !r.Remove {
		return done{true}, c.vc.Inventory.TakeSnapshot(vm, r.Name)
	}
	if r.Name != "" {
		return done{}, wrong("name", "remove_all deletes all snapshots, so it takes no name")
	}
	return done{true}, c.vc.Inventory.RemoveSnapshots(vm)
}

type vmTrackingRequest struct {
	VM       string `json:"vm"`
	Tracking *bool  `json:"tracking"`
}

func (c *Control) vmTracking(r vmTrackingRequest) (done, error) {
	vm, err := c.vc.Inventory.FindVM("vm", r.VM)
	if err != nil {
		return done{}, err
	}
	if r.Tracking == nil {
		return done{}, wrong("tracking", "is missing; give true or false")
	}
	c.vc.Inventory.SetTracking(vm, *r.Tracking)
	return done{true}, nil
}

func (c *Control) vmRestart(r vmHostRequest) (done, error) {
	vm, err := c.vc.Inventory.FindVM("vm", r.VM)
	if err != nil {
		return done{}, err
	}
	host, err := c.vc.Inventory.FindHost("host", r.Host)
	if err != nil {
		return done{}, err
	}
	return done{true}, c.vc.Inventory.RestartOn(vm, host)
}
