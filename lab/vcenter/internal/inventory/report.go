package inventory

import (
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
	"vsphere-drivers.example/lab/vcenter/internal/world"
)

// mostInterfaces is how many interfaces a host takes from the tools of a guest.
const mostInterfaces = 16

// podMAC is the hardware address that the interfaces of pods share.
const podMAC = "ee:ee:ee:ee:ee:ee"

// noCard is the deviceConfigId of an interface that no card of the VM belongs to.
const noCard = -1

// report is what a guest reports beside, or instead of, the cards of its description. The zero value is nothing special.
type report struct {
	noNet      bool        // guest.net is not set, guest.ipAddress is
	ipAddress  string      // guest.ipAddress, whatever the cards have; empty is the one that vCenter would choose
	interfaces []Interface // of the guest alone
	first      bool        // these stand before the cards
	pods       int         // so many interfaces of pods besides
	blankReads int         // so many looks at the guest find no address at all
}

// Interface is one of the guest that belongs to no card of the VM, such as a bridge or a tunnel.
type Interface struct {
	Network   string   `json:"network"` // empty on vCenter
	MAC       string   `json:"mac"`     // none for tunnels
	Addresses []string `json:"addresses"`
}

// apply changes what a running guest reports.
func (r *report) apply(guest *types.GuestInfo, assumed *assume.Settings) {
	extra := make([]types.GuestNicInfo, 0, len(r.interfaces)+r.pods)
	for _, one := range r.interfaces {
		extra = append(extra, guestNIC(world.NIC{Network: one.Network, MAC: one.MAC, Addresses: one.Addresses}, noCard))
	}
	for range r.pods {
		extra = append(extra, guestNIC(world.NIC{MAC: podMAC, Addresses: []string{linkLocal(podMAC)}}, noCard))
	}
	if r.first {
		guest.Net = append(extra, guest.Net...)
	} else {
		guest.Net = append(guest.Net, extra...)
	}
	if r.ipAddress != "" {
		guest.IpAddress = r.ipAddress
	}
	if len(guest.Net) > mostInterfaces {
		if assume.ManyInterfaces.In(assumed) == "cut" {
			guest.Net = guest.Net[:mostInterfaces]
		} else {
			guest.Net, guest.IpStack, guest.IpAddress = nil, nil, ""
		}
	}
	if r.noNet {
		guest.Net, guest.IpStack = nil, nil
	}
	if r.blankReads > 0 {
		guest.Net, guest.IpStack, guest.IpAddress = nil, nil, ""
	}
}

// GuestRead counts a client's look at a VM's guest, be it a read or an update that told of it.
func (inv *Inventory) GuestRead(ref types.ManagedObjectReference) {
	if inv.armed.Load() == 0 {
		return
	}
	inv.mu.Lock()
	seen := inv.reports[ref]
	last := seen.blankReads == 1
	if seen.blankReads > 0 {
		seen.blankReads--
		inv.setReport(ref, seen)
	}
	inv.mu.Unlock()
	if vm, ok := inv.ctx.Map.Get(ref).(*simulator.VirtualMachine); ok && last {
		inv.showGuest(vm)
	}
}

// Vanish lets a VM leave the inventory in the middle of the next read that finds it.
func (inv *Inventory) Vanish(vm *simulator.VirtualMachine) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	if !inv.vanishing[vm.Self] {
		inv.vanishing[vm.Self] = true
		inv.armed.Add(1)
	}
}

// Vanishes is asked for every object that a read found, before the client gets it. It tells whether it is gone by now.
func (inv *Inventory) Vanishes(ref types.ManagedObjectReference) bool {
	if inv.armed.Load() == 0 {
		return false
	}
	inv.mu.Lock()
	gone := inv.vanishing[ref]
	if gone {
		delete(inv.vanishing, ref)
		inv.armed.Add(-1)
	}
	inv.mu.Unlock()
	vm, ok := inv.ctx.Map.Get(ref).(*simulator.VirtualMachine)
	return gone && (!ok || inv.Unregister(vm) == nil)
}
