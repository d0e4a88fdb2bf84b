package inventory

import (
	"fmt"
	"path"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// network is what a VM's card needs to know about the network it is plugged into.
type network struct {
	ref     types.ManagedObjectReference
	name    string
	backing types.BaseVirtualDeviceBackingInfo
}

func (s *site) networking() error {
	folder, err := s.folder("network", "")
	if err != nil {
		return err
	}
	for _, ref := range s.dc.Network { // the standard network that every datacenter has
		if standard, ok := s.ctx.Map.Get(ref).(*mo.Network); ok {
			s.remember(standard)
		}
	}
	for _, d := range s.description.Networks {
		if d.Switch != "" {
			if err := s.portGroup(folder, d.Switch, d.Name); err != nil {
				return fmt.Errorf("network %s: %w", d.Name, err)
			}
			continue
		}
		if _, ok := s.networks[d.Name]; ok {
			continue
		}
		standard := &mo.Network{Name: d.Name}
		standard.Self.Type = "Network"
		standard.ManagedEntity.Name = d.Name
		s.adopt(&folder.Folder, standard, path.Join(s.path, "network", d.Name))
		standard.Summary = &types.NetworkSummary{Network: &standard.Self, Name: d.Name, Accessible: true}
		s.dc.Network = append(s.dc.Network, standard.Self)
		for _, host := range s.hosts {
			host.Network = append(host.Network, standard.Self)
			standard.Host = append(standard.Host, host.Self)
			if owner := s.parentOf(host); simulator.FindReference(owner.Network, standard.Self) == nil {
				owner.Network = append(owner.Network, standard.Self)
			}
		}
		s.remember(standard)
	}
	return nil
}

func (s *site) remember(standard *mo.Network) {
	ref := standard.Self
	s.paths[path.Join(s.path, "network", standard.Name)] = ref
	s.networks[standard.Name] = network{ref: ref, name: standard.Name, backing: &types.VirtualEthernetCardNetworkBackingInfo{
		VirtualDeviceDeviceBackingInfo: types.VirtualDeviceDeviceBackingInfo{DeviceName: standard.Name},
		Network:                        &ref,
	}}
}

// portGroup makes a distributed port group, and its switch with all hosts of the datacenter when that is not there yet.
func (s *site) portGroup(folder *simulator.Folder, dvsName, name string) error {
	dvs, err := s.distributedSwitch(folder, dvsName)
	if err != nil {
		return fmt.Errorf("switch %s: %w", dvsName, err)
	}
	answer := dvs.AddDVPortgroupTask(s.ctx, &types.AddDVPortgroup_Task{This: dvs.Self, Spec: []types.DVPortgroupConfigSpec{{
		Name: name, Type: string(types.DistributedVirtualPortgroupPortgroupTypeEarlyBinding), NumPorts: 8,
	}}})
	if _, err := s.finish(answer.(*methods.AddDVPortgroup_TaskBody).Res.Returnval); err != nil {
		return err
	}
	group, ok := s.ctx.Map.FindByName(name, dvs.Portgroup).(*simulator.DistributedVirtualPortgroup)
	if !ok {
		return fmt.Errorf("the simulator did not make the port group")
	}
	s.paths[path.Join(s.path, "network", name)] = group.Self
	s.networks[name] = network{ref: group.Self, name: name, backing: &types.VirtualEthernetCardDistributedVirtualPortBackingInfo{
		Port: types.DistributedVirtualSwitchPortConnection{SwitchUuid: dvs.Uuid, PortgroupKey: group.Key},
	}}
	return nil
}

func (s *site) distributedSwitch(folder *simulator.Folder, name string) (*simulator.DistributedVirtualSwitch, error) {
	at := path.Join(s.path, "network", name)
	if ref, ok := s.paths[at]; ok {
		return s.ctx.Map.Get(ref).(*simulator.DistributedVirtualSwitch), nil
	}
	spec := &types.VMwareDVSConfigSpec{}
	spec.Name = name
	answer := folder.CreateDVSTask(s.ctx, &types.CreateDVS_Task{This: folder.Self, Spec: types.DVSCreateSpec{ConfigSpec: spec}})
	result, err := s.finish(answer.(*methods.CreateDVS_TaskBody).Res.Returnval)
	if err != nil {
		return nil, err
	}
	s.settle() // the library adds the uplink ports in a task that nobody is told about
	dvs := s.ctx.Map.Get(result.(types.ManagedObjectReference)).(*simulator.DistributedVirtualSwitch)
	s.paths[at] = dvs.Self
	members := &types.DVSConfigSpec{}
	for _, host := range s.hosts {
		members.Host = append(members.Host, types.DistributedVirtualSwitchHostMemberConfigSpec{
			Operation: string(types.ConfigSpecOperationAdd), Host: host.Self,
		})
	}
	joined := dvs.ReconfigureDvsTask(s.ctx, &types.ReconfigureDvs_Task{This: dvs.Self, Spec: members})
	_, err = s.finish(joined.(*methods.ReconfigureDvs_TaskBody).Res.Returnval)
	return dvs, err
}
