package inventory

import (
	"net"
	"net/netip"
	"slices"

	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
	"vsphere-drivers.example/lab/vcenter/internal/world"
)

// guestOf is what vCenter knows of the guest. Only a running guest with tools reports its name and addresses.
func guestOf(d *world.VM, special report, running bool, assumed *assume.Settings) *types.GuestInfo {
	guest := &types.GuestInfo{
		ToolsStatus:         types.VirtualMachineToolsStatusToolsNotRunning,
		ToolsRunningStatus:  string(types.VirtualMachineToolsRunningStatusGuestToolsNotRunning),
		ToolsVersionStatus:  string(types.VirtualMachineToolsVersionStatusGuestToolsUnmanaged),
		ToolsVersionStatus2: string(types.VirtualMachineToolsVersionStatusGuestToolsUnmanaged),
		ToolsVersion:        "12352",
		GuestId:             d.Guest.ID,
		GuestFullName:       d.Guest.ID,
		GuestFamily:         string(types.VirtualMachineGuestOsFamilyLinuxGuest),
		GuestState:          string(types.VirtualMachineGuestStateNotRunning),
	}
	if d.Guest.NoTools {
		guest.ToolsStatus = types.VirtualMachineToolsStatusToolsNotInstalled
		guest.ToolsVersionStatus = string(types.VirtualMachineToolsVersionStatusGuestToolsNotInstalled)
		guest.ToolsVersionStatus2 = guest.ToolsVersionStatus
		guest.ToolsVersion = "0"
		return guest
	}
	if !running {
		return guest
	}
	guest.ToolsStatus = types.VirtualMachineToolsStatusToolsOk
	guest.ToolsRunningStatus = string(types.VirtualMachineToolsRunningStatusGuestToolsRunning)
	guest.GuestState = string(types.VirtualMachineGuestStateRunning)
	guest.GuestOperationsReady = types.NewBool(true)
	guest.HostName = d.Guest.HostName
	for i, nic := range d.NICs {
		if len(nic.Addresses) > 0 { // every interface with an address has a link-local one too
			nic.Addresses = append(slices.Clone(nic.Addresses), linkLocal(nic.MAC))
		}
		guest.Net = append(guest.Net, guestNIC(nic, int32(keyCard+i)))
	}
	guest.IpAddress = firstAddress(d.NICs)
	guest.IpStack = []types.GuestStackInfo{{
		DnsConfig: &types.NetDnsConfigInfo{HostName: d.Guest.HostName, DomainName: "", IpAddress: []string{}},
	}}
	special.apply(guest, assumed)
	return guest
}

// linkLocal is the address that an interface makes from its hardware address.
func linkLocal(mac string) string {
	hardware, err := net.ParseMAC(mac)
	if err != nil || len(hardware) != 6 {
		return "fe80::1/64" // descriptions are checked, so this is for none of them
	}
	address := netip.AddrFrom16([16]byte{
		0: 0xfe, 1: 0x80, 8: hardware[0] ^ 2, 9: hardware[1], 10: hardware[2], 11: 0xff,
		12: 0xfe, 13: hardware[3], 14: hardware[4], 15: hardware[5],
	})
	return netip.PrefixFrom(address, 64).String()
}

func guestNIC(nic world.NIC, key int32) types.GuestNicInfo {
	card := types.GuestNicInfo{Network: nic.Network, MacAddress: nic.MAC, Connected: true, DeviceConfigId: key}
	config := &types.NetIpConfigInfo{}
	for _, text := range nic.Addresses {
		prefix := parsePrefix(text)
		card.IpAddress = append(card.IpAddress, prefix.Addr().String())
		config.IpAddress = append(config.IpAddress, types.NetIpConfigInfoIpAddress{
			IpAddress: prefix.Addr().String(), PrefixLength: int32(prefix.Bits()), State: "preferred",
		})
	}
	if len(nic.Addresses) > 0 {
		card.IpConfig = config
	}
	return card
}

// parsePrefix reads a checked address; one without prefix length gets the usual one of its family.
func parsePrefix(text string) netip.Prefix {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		return prefix
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}
	}
	if address.Is4() {
		return netip.PrefixFrom(address, 24)
	}
	return netip.PrefixFrom(address, 64)
}

// firstAddress is the guest's primary address. vCenter prefers IPv4.
func firstAddress(nics []world.NIC) string {
	first := ""
	for _, nic := range nics {
		for _, text := range nic.Addresses {
			address := parsePrefix(text).Addr()
			if address.Is4() {
				return address.String()
			}
			if first == "" && !address.IsLinkLocalUnicast() {
				first = address.String()
			}
		}
	}
	return first
}
