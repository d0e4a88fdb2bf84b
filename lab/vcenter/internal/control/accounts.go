package control

import (
	"time"

	"vsphere-drivers.example/lab/vcenter/internal/authz/directory"
	"vsphere-drivers.example/lab/vcenter/internal/inventory"
)

type userRequest struct {
	User     string  `json:"user"`
	Password *string `json:"password"`
	Locked   *bool   `json:"locked"`
	Disabled *bool   `json:"disabled"`
	Expired  *bool   `json:"expired"`
}

// user changes an account. Open sessions go on.
func (c *Control) user(r userRequest) (done, error) {
	dir := c.vc.Access().Directory()
	if r.User == "" || r.Password == nil && r.Locked == nil && r.Disabled == nil && r.Expired == nil {
		return done{}, wrong("user", "is missing, or what to change: password, locked, disabled or expired")
	}
	change := func(wanted bool, do func() error) error {
		if !wanted {
			return nil
		}
		return do()
	}
	set := func(value *bool) bool { return value != nil && *value }
	for _, err := range []error{
		change(r.Password != nil, func() error { return dir.SetPassword(r.User, *r.Password) }),
		change(r.Disabled != nil, func() error { return dir.SetDisabled(r.User, set(r.Disabled)) }),
		change(r.Expired != nil, func() error { return dir.SetExpired(r.User, set(r.Expired)) }),
		change(set(r.Locked), func() error { return dir.Lock(r.User) }),
		change(r.Locked != nil && !*r.Locked, func() error { return dir.Unlock(r.User) }),
	} {
		if err != nil {
			return done{}, wrong("user", "%s", err)
		}
	}
	return done{true}, nil
}

type lockoutRequest struct {
	MaxFailed int   `json:"max_failed"`
	Window    int64 `json:"window_ms"`
	Unlock    int64 `json:"unlock_ms"`
}

// lockout changes the lock-out policy; what is left out is vCenter's default, and a negative number of logins is none.
func (c *Control) lockout(r lockoutRequest) (done, error) {
	dir := c.vc.Access().Directory()
	policy := directory.Defaults(directory.Lockout{
		MaxFailed: r.MaxFailed,
		Window:    time.Duration(r.Window) * time.Millisecond,
		Unlock:    time.Duration(r.Unlock) * time.Millisecond,
	})
	dir.SetLockoutPolicy(policy)
	return done{true}, nil
}

// maxTasks is what the records hold.
const maxTasks = 50_000

type tasksRequest struct {
	Count  int    `json:"count"`
	Object string `json:"object"`
}

// tasks adds records of tasks that ended well.
func (c *Control) tasks(r tasksRequest) (done, error) {
	if r.Count < 1 || r.Count > maxTasks {
		return done{}, wrong("count", "must be between 1 and %d", maxTasks)
	}
	entity, err := c.vc.Inventory.Find("object", r.Object, "")
	if err != nil {
		return done{}, err
	}
	c.vc.Tasks().Fill(r.Count, entity.Reference())
	return done{true}, nil
}

type vmCloneRequest struct {
	VM          string `json:"vm"`
	Name        string `json:"name"`
	KeepUUID    bool   `json:"keep_uuid"`
	ExtraConfig bool   `json:"extra_config"`
	Power       string `json:"power"`
}

func (c *Control) vmClone(r vmCloneRequest) (done, error) {
	vm, err := c.vc.Inventory.FindVM("vm", r.VM)
	if err != nil {
		return done{}, err
	}
	if r.Power == "" {
		r.Power = "off"
	}
	return done{true}, c.vc.Inventory.Clone(vm, inventory.Clone{
		Name: r.Name, KeepUUID: r.KeepUUID, ExtraConfig: r.ExtraConfig, Power: r.Power,
	})
}
