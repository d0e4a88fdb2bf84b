package control

import (
	"time"

	"github.com/vmware/govmomi/simulator"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
	"vsphere-drivers.example/lab/vcenter/internal/inventory"
	"vsphere-drivers.example/lab/vcenter/internal/latency"
)

// Times in a request are kept sane: an hour down, a year of skew.
const (
	maxDown = 3_600_000
	maxSkew = 366 * 24 * 3_600_000
)

type clockRequest struct {
	Skew *int64 `json:"skew_ms"`
}

func (c *Control) setClock(r clockRequest) (done, error) {
	switch {
	case r.Skew == nil:
		return done{}, wrong("skew_ms", "is missing")
	case *r.Skew < -maxSkew || *r.Skew > maxSkew:
		return done{}, wrong("skew_ms", "must be between -%d and %d", int64(maxSkew), int64(maxSkew))
	}
	c.vc.Clock.SetSkew(time.Duration(*r.Skew) * time.Millisecond)
	return done{true}, nil
}

func (c *Control) assumptions() []assume.Item { return c.vc.Assumed.List() }

func (c *Control) setAssumptions(changes map[string]any) (done, error) {
	for name, value := range changes {
		if err := assume.Check(name, value); err != nil {
			return done{}, wrong(name, "%s", err)
		}
	}
	if err := c.vc.Assumed.Set(changes); err != nil {
		return done{}, wrong("body", "%s", err)
	}
	return done{true}, nil
}

// latencySettings say how long calls and tasks take.
type latencySettings struct {
	Profile string `json:"profile"`
	Seed    int64  `json:"seed"`
}

func (c *Control) latency() latencySettings {
	return latencySettings{c.vc.Latency.Profile().Name, c.vc.Latency.Seed()}
}

type latencyRequest struct {
	Profile string `json:"profile"`
	Seed    *int64 `json:"seed"`
}

func (c *Control) setLatency(r latencyRequest) (done, error) {
	profile, err := latency.Lookup(r.Profile)
	switch {
	case r.Profile == "":
		return done{}, wrong("profile", "is missing; none takes no time")
	case err != nil:
		return done{}, wrong("profile", "%s", err)
	}
	seed := int64(latency.Seed)
	if r.Seed != nil {
		seed = *r.Seed
	}
	c.vc.Latency.Set(profile, seed)
	return done{true}, nil
}

type expired struct {
	Expired int `json:"expired"`
}

func (c *Control) expireAll(nothing) (expired, error) { return expired{c.vc.ExpireAll()}, nil }

func (c *Control) expireOne(key string) (expired, error) {
	if err := c.vc.ExpireSession(key); err != nil {
		return expired{}, wrong("key", "%s", err)
	}
	return expired{1}, nil
}

type vmHostRequest struct {
	VM   string `json:"vm"`
	Host string `json:"host"`
}

func (c *Control) vmHost(r vmHostRequest) (done, error) {
	vm, err := c.vc.Inventory.FindVM("vm", r.VM)
	if err != nil {
		return done{}, err
	}
	host, err := c.vc.Inventory.FindHost("host", r.Host)
	if err != nil {
		return done{}, err
	}
	return done{true}, c.vc.Inventory.MoveToHost(vm, host)
}

type vmDatastoreRequest struct {
	VM        string `json:"vm"`
	Datastore string `json:"datastore"`
}

func (c *Control) vmDatastore(r vmDatastoreRequest) (done, error) {
	vm, err := c.vc.Inventory.FindVM("vm", r.VM)
	if err != nil {
		return done{}, err
	}
	store, err := c.vc.Inventory.FindDatastore("datastore", r.Datastore)
	if err != nil {
		return done{}, err
	}
	return done{true}, c.vc.Inventory.MoveToDatastore(vm, store)
}

type vmPowerRequest struct {
	VM    string `json:"vm"`
	Power string `json:"power"`
}

func (c *Control) vmPower(r vmPowerRequest) (done, error) {
	vm, err := c.vc.Inventory.FindVM("vm", r.VM)
	if err != nil {
		return done{}, err
	}
	return done{true}, c.vc.Inventory.SetPower(vm, r.Power)
}

type vmGuestRequest struct {
	VM string `json:"vm"`
	inventory.GuestChange
}

func (c *Control) vmGuest(r vmGuestRequest) (done, error) {
	vm, err := c.vc.Inventory.FindVM("vm", r.VM)
	if err != nil {
		return done{}, err
	}
	return done{true}, c.vc.Inventory.ChangeGuest(vm, r.GuestChange)
}

func (c *Control) vmVanish(r vmRequest) (done, error) {
	vm, err := c.vc.Inventory.FindVM("vm", r.VM)
	if err != nil {
		return done{}, err
	}
	c.vc.Inventory.Vanish(vm)
	return done{true}, nil
}

type vmAccessibleRequest struct {
	VM         string `json:"vm"`
	Accessible bool   `json:"accessible"`
}

func (c *Control) vmAccessible(r vmAccessibleRequest) (done, error) {
	vm, err := c.vc.Inventory.FindVM("vm", r.VM)
	if err != nil {
		return done{}, err
	}
	return done{true}, c.vc.Inventory.SetVMAccessible(vm, r.Accessible)
}

type vmRequest struct {
	VM string `json:"vm"`
}

func (c *Control) vmUnregister(r vmRequest) (done, error) {
	vm, err := c.vc.Inventory.FindVM("vm", r.VM)
	if err != nil {
		return done{}, err
	}
	return done{true}, c.vc.Inventory.Unregister(vm)
}

type hostRequest struct {
	Host        string `json:"host"`
	State       string `json:"state"`
	Maintenance *bool  `json:"maintenance"`
}

func (c *Control) hostState(r hostRequest) (done, error) {
	host, err := c.vc.Inventory.FindHost("host", r.Host)
	if err != nil {
		return done{}, err
	}
	if r.State == "" && r.Maintenance == nil {
		return done{}, wrong("state", "is missing; give connected, disconnected or notResponding, or maintenance")
	}
	if r.State != "" {
		if err := c.vc.Inventory.SetHostState(host, r.State); err != nil {
			return done{}, err
		}
	}
	if r.Maintenance != nil {
		c.vc.Inventory.SetMaintenance(host, *r.Maintenance)
	}
	return done{true}, nil
}

type accessibleRequest struct {
	Datastore  string `json:"datastore"`
	Host       string `json:"host"`
	Accessible *bool  `json:"accessible"`
}

func (c *Control) datastoreAccessible(r accessibleRequest) (done, error) {
	store, err := c.vc.Inventory.FindDatastore("datastore", r.Datastore)
	if err != nil {
		return done{}, err
	}
	if r.Accessible == nil {
		return done{}, wrong("accessible", "is missing; give true or false")
	}
	var host *simulator.HostSystem
	if r.Host != "" {
		if host, err = c.vc.Inventory.FindHost("host", r.Host); err != nil {
			return done{}, err
		}
	}
	return done{true}, c.vc.Inventory.SetAccessible(store, host, *r.Accessible)
}

type datastoreStateRequest struct {
	Datastore   string `json:"datastore"`
	Maintenance *bool  `json:"maintenance"`
	Suspended   *bool  `json:"suspended"`
}

func (c *Control) datastoreState(r datastoreStateRequest) (done, error) {
	store, err := c.vc.Inventory.FindDatastore("datastore", r.Datastore)
	if err != nil {
		return done{}, err
	}
	if r.Maintenance == nil && r.Suspended == nil {
		return done{}, wrong("maintenance", "is missing; give maintenance or suspended")
	}
	if r.Maintenance != nil {
		c.vc.Inventory.SetDatastoreMaintenance(store, *r.Maintenance)
	}
	if r.Suspended != nil {
		return done{true}, c.vc.Inventory.SetSuspended(store, *r.Suspended)
	}
	return done{true}, nil
}

type freeRequest struct {
	Datastore string `json:"datastore"`
	Free      *int64 `json:"free"`
}

func (c *Control) datastoreFree(r freeRequest) (done, error) {
	store, err := c.vc.Inventory.FindDatastore("datastore", r.Datastore)
	if err != nil {
		return done{}, err
	}
	if r.Free == nil {
		return done{}, wrong("free", "is missing; give the free space in bytes")
	}
	return done{true}, c.vc.Inventory.SetFreeSpace(store, *r.Free)
}

type renameRequest struct {
	Object string `json:"object"`
	To     string `json:"to"`
}

func (c *Control) rename(r renameRequest) (done, error) {
	entity, err := c.vc.Inventory.Find("object", r.Object, "")
	if err != nil {
		return done{}, err
	}
	return done{true}, c.vc.Inventory.Rename(entity, r.To)
}

type objectRequest struct {
	Object string `json:"object"`
}

func (c *Control) remove(r objectRequest) (done, error) {
	entity, err := c.vc.Inventory.Find("object", r.Object, "")
	if err != nil {
		return done{}, err
	}
	return done{true}, c.vc.Inventory.Delete(entity)
}

type tagRequest struct {
	Category string `json:"category"`
	Tag      string `json:"tag"`
	Object   string `json:"object"`
}

func (c *Control) tag(r tagRequest) (done, error) { return c.changeTag(r, true) }

func (c *Control) untag(r tagRequest) (done, error) { return c.changeTag(r, false) }

func (c *Control) changeTag(r tagRequest, on bool) (done, error) {
	entity, err := c.vc.Inventory.Find("object", r.Object, "")
	if err != nil {
		return done{}, err
	}
	if err := c.vc.SetTag(r.Category, r.Tag, entity.Reference(), on); err != nil {
		return done{}, wrong("tag", "%s", err)
	}
	return done{true}, nil
}
