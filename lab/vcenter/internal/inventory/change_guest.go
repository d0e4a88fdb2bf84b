package inventory

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/world"
)

// mostExtra bounds what one request may add to a guest.
const mostExtra = 10_000

// GuestChange says what a guest is to report from now on; what is nil stays.
type GuestChange struct {
	NIC       int       `json:"nic"` // whose addresses, counted from 0
	Addresses *[]string `json:"addresses"`
	HostName  *string   `json:"host_name"`
	Tools     *bool     `json:"tools"`

	Net             *bool        `json:"net"`        // false: guest.net is not set, guest.ipAddress is
	IPAddress       *string      `json:"ip_address"` // guest.ipAddress, whatever the cards have; empty takes it back
	Interfaces      *[]Interface `json:"interfaces"` // beside the cards
	InterfacesFirst *bool        `json:"interfaces_first"`
	PodInterfaces   *int         `json:"pod_interfaces"`
	BlankReads      *int         `json:"blank_reads"` // so many looks at the guest find no address at all
}

// ChangeGuest changes what the guest of a described VM reports, all in one.
func (inv *Inventory) ChangeGuest(vm *simulator.VirtualMachine, change GuestChange) error {
	if change == (GuestChange{NIC: change.NIC}) {
		return wrong("addresses", "is missing; give addresses, host_name, tools or another thing that the guest reports")
	}
	if err := change.check(); err != nil {
		return err
	}
	inv.mu.Lock()
	d := inv.vms[vm.Self]
	switch {
	case d == nil:
		inv.mu.Unlock()
		return wrong("vm", "the VM was not described, so its guest is unknown")
	case change.Addresses != nil && (change.NIC < 0 || change.NIC >= len(d.NICs)):
		inv.mu.Unlock()
		return wrong("nic", "the VM has no card %d", change.NIC)
	}
	changed, special := *d, inv.reports[vm.Self]
	change.describe(&changed)
	change.report(&special)
	inv.vms[vm.Self] = &changed
	inv.setReport(vm.Self, special)
	inv.mu.Unlock()
	inv.showGuest(vm)
	return nil
}

func (c *GuestChange) check() error {
	if c.Addresses != nil {
		if i := slices.IndexFunc(*c.Addresses, notAnAddress); i >= 0 {
			return wrong(fmt.Sprintf("addresses[%d]", i), "%q is not a valid IP address", (*c.Addresses)[i])
		}
	}
	if c.IPAddress != nil && *c.IPAddress != "" {
		if _, err := netip.ParseAddr(*c.IPAddress); err != nil {
			return wrong("ip_address", "%q is not a valid IP address", *c.IPAddress)
		}
	}
	if c.BlankReads != nil && *c.BlankReads < 0 {
		return wrong("blank_reads", "must not be negative")
	}
	if c.PodInterfaces != nil && (*c.PodInterfaces < 0 || *c.PodInterfaces > mostExtra) {
		return wrong("pod_interfaces", "must be between 0 and %d", mostExtra)
	}
	if c.Interfaces == nil {
		return nil
	}
	for i, one := range *c.Interfaces {
		if j := slices.IndexFunc(one.Addresses, notAnAddress); j >= 0 {
			return wrong(fmt.Sprintf("interfaces[%d].addresses[%d]", i, j), "%q is not a valid IP address", one.Addresses[j])
		}
	}
	return nil
}

func notAnAddress(text string) bool { return !parsePrefix(text).IsValid() }

// describe changes what a description has, too.
func (c *GuestChange) describe(d *world.VM) {
	if c.Addresses != nil {
		d.NICs = slices.Clone(d.NICs)
		d.NICs[c.NIC].Addresses = slices.Clone(*c.Addresses)
	}
	if c.HostName != nil {
		d.Guest.HostName = *c.HostName
	}
	if c.Tools != nil {
		d.Guest.NoTools = !*c.Tools
	}
}

// report changes what only a request can change.
func (c *GuestChange) report(r *report) {
	if c.Net != nil {
		r.noNet = !*c.Net
	}
	if c.IPAddress != nil {
		r.ipAddress = *c.IPAddress
	}
	if c.Interfaces != nil {
		r.interfaces = slices.Clone(*c.Interfaces)
	}
	if c.InterfacesFirst != nil {
		r.first = *c.InterfacesFirst
	}
	if c.PodInterfaces != nil {
		r.pods = *c.PodInterfaces
	}
	if c.BlankReads != nil {
		r.blankReads = *c.BlankReads
	}
}

// setReport stores a report; the caller holds the lock.
func (inv *Inventory) setReport(vm types.ManagedObjectReference, special report) {
	switch before := inv.reports[vm].blankReads > 0; {
	case before && special.blankReads == 0:
		inv.armed.Add(-1)
	case !before && special.blankReads > 0:
		inv.armed.Add(1)
	}
	inv.reports[vm] = special
}

// showGuest brings the guest's properties up to date.
func (inv *Inventory) showGuest(vm *simulator.VirtualMachine) {
	ctx := inv.newContext()
	ctx.WithLock(vm, func() {
		if guest := inv.guest(&vm.VirtualMachine); guest != nil {
			ctx.Update(vm, guestChanges(guest))
		}
	})
}

// guest is what a described VM's guest reports now; nil of other VMs. The caller holds the VM's lock.
func (inv *Inventory) guest(vm *mo.VirtualMachine) *types.GuestInfo {
	inv.mu.Lock()
	d, special := inv.vms[vm.Self], inv.reports[vm.Self]
	inv.mu.Unlock()
	if d == nil {
		return nil
	}
	return guestOf(d, special, vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn, inv.assumed)
}

// guestChanges lists the properties one by one: a client that waits for guest.net does not hear of a change to guest.
func guestChanges(guest *types.GuestInfo) []types.PropertyChange {
	return []types.PropertyChange{
		set("guest.net", guest.Net), set("guest.ipStack", guest.IpStack), set("guest.ipAddress", guest.IpAddress),
		set("guest.hostName", guest.HostName), set("guest.guestState", guest.GuestState),
		set("guest.toolsStatus", guest.ToolsStatus), set("guest.toolsRunningStatus", guest.ToolsRunningStatus),
		set("summary.guest.ipAddress", guest.IpAddress), set("summary.guest.hostName", guest.HostName),
		set("summary.guest.toolsStatus", guest.ToolsStatus), set("summary.guest.toolsRunningStatus", guest.ToolsRunningStatus),
	}
}
