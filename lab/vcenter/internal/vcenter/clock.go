package vcenter

import (
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// Clock is the time a vCenter believes it is: the real one plus a skew that tests set.
type Clock struct{ skew atomic.Int64 }

// Now is the vCenter's time.
func (c *Clock) Now() time.Time { return time.Now().Add(c.Skew()).UTC() }

// Skew is how far the clock is ahead.
func (c *Clock) Skew() time.Duration { return time.Duration(c.skew.Load()) }

// SetSkew puts the clock ahead, or back with a negative skew.
func (c *Clock) SetSkew(skew time.Duration) { c.skew.Store(int64(skew)) }

// hostDateTimeSystem is a host's clock; the simulator has none. All hosts share vCenter's clock: tests skew the site.
type hostDateTimeSystem struct {
	mo.HostDateTimeSystem
	clock *Clock
}

// QueryDateTime is the host's time.
func (s *hostDateTimeSystem) QueryDateTime(*types.QueryDateTime) soap.HasFault {
	return &methods.QueryDateTimeBody{Res: &types.QueryDateTimeResponse{Returnval: s.clock.Now()}}
}

// installHostClocks gives every host a clock.
func installHostClocks(vim *simulator.Registry, clock *Clock) {
	for _, entity := range vim.All("HostSystem") {
		host, ok := entity.(*simulator.HostSystem)
		if !ok {
			continue
		}
		ref := types.ManagedObjectReference{Type: "HostDateTimeSystem", Value: "dateTimeSystem-" + host.Self.Value}
		system := &hostDateTimeSystem{clock: clock}
		system.Self = ref
		system.DateTimeInfo.TimeZone = types.HostDateTimeSystemTimeZone{Key: "UTC", Name: "UTC", Description: "UTC"}
		vim.Put(system)
		host.ConfigManager.DateTimeSystem = &ref
	}
}
