package cns

import (
	"net/url"
	"path"
	"strings"

	"github.com/google/uuid"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// admitBacking refuses to register a disk that is not there.
func (m *Manager) admitBacking(details *cnstypes.CnsBlockBackingDetails) types.BaseMethodFault {
	var fault types.BaseMethodFault
	if details.BackingDiskId != "" {
		if live, _ := m.catalogued(details.BackingDiskId); live == nil {
			fault = &types.NotFound{}
		}
	} else if _, _, _, missing := m.locate(details.BackingDiskUrlPath); missing != nil && m.since("7.0U1") {
		fault = invalid("dsDiskUrl")
	}
	if fault == nil || assume.RegisterUnknown.In(m.assumed) == "volume" {
		return nil
	}
	return fault
}

// registerFCD makes an existing FCD a volume, as for static provisioning.
func (m *Manager) registerFCD(spec *creation, id string) types.AnyType {
	defer m.volumeOps.lock(id)()
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.findDisk(id)
	if d == nil || m.unreadable(id) {
		return m.notCreated(spec, nil, &types.NotFound{})
	}
	return m.register(spec, d)
}

// register enters a volume for a disk; the caller holds mu.
func (m *Manager) register(spec *creation, d *disk) types.AnyType {
	if _, known := m.volumes[d.id]; known {
		if assume.RegisterKnown.In(m.assumed) == "fault" {
			return m.notCreated(spec, nil, m.alreadyRegistered(d.id))
		}
		return created(spec, d.id, m.placedAt(d.datastore))
	}
	m.publish(d)
	m.enter(&volume{id: d.id, name: spec.Name, kind: typeBlock, policy: spec.policy, metadata: spec.metadata, disk: d})
	return created(spec, d.id, m.placedAt(d.datastore))
}

func (m *Manager) alreadyRegistered(id string) types.BaseMethodFault {
	reason := "Volume " + id + " is already registered"
	if !m.since("7.0U1") {
		return cnsFault(nil, "%s", reason)
	}
	return &cnstypes.CnsAlreadyRegisteredFault{CnsFault: cnstypes.CnsFault{Reason: reason}, VolumeId: cnstypes.CnsVolumeId{Id: id}}
}

// registerPath makes a plain vmdk an FCD and a volume, as for volumes of the in-tree driver. 6.7U3 cannot.
func (m *Manager) registerPath(spec *creation, link string) types.AnyType {
	if !m.since("7.0U1") {
		return m.notCreated(spec, nil, &types.NotSupported{})
	}
	at, filePath, capacityMB, fault := m.locate(link)
	if fault != nil {
		return m.notCreated(spec, nil, &types.NotFound{})
	}
	defer m.volumeOps.lock(filePath)()
	if id := m.fcdOf(filePath); id != "" {
		return m.registerFCD(spec, id)
	}
	d := m.newFCD(&disk{name: spec.Name, datastore: at.ref, path: filePath, capacityMB: capacityMB, keep: m.since("8.0U3"), late: m.lateOfCNS()})
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.register(spec, d)
}

// newFCD makes an FCD of a vmdk that no FCD has. The caller holds the operation lock of the path.
func (m *Manager) newFCD(d *disk) *disk {
	d.id, d.uuid, d.objectID, d.created = uuid.NewString(), newDiskUUID(), uuid.NewString(), m.now()
	m.claim(d)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.disks[d.id] = d
	m.publish(d)
	return d
}

// claim marks the device of a VM that already uses the vmdk, which happens when volumes migrate under running pods.
func (m *Manager) claim(d *disk) {
	for _, reference := range m.vim.AllReference("VirtualMachine") {
		vm, ok := reference.(*simulator.VirtualMachine)
		if !ok {
			continue
		}
		ctx := m.inventory()
		m.vim.WithLock(ctx, vm, func() {
			if vm.Config == nil {
				return
			}
			devices := newDeviceList(vm.Config.Hardware.Device)
			used := devices.findDisk(func(v *types.VirtualDisk) bool { return backingFile(v) == d.path })
			if used == nil {
				return
			}
			claimed := *used
			claimed.VDiskId = &types.ID{Id: d.id}
			if backing, ok := used.Backing.(*types.VirtualDiskFlatVer2BackingInfo); ok && backing.Uuid != "" {
				d.uuid = backing.Uuid
			}
			devices.replace(&claimed)
			devices.store(ctx, vm)
			d.attachments = append(d.attachments, attachment{vm: vm.Self})
		})
	}
}

// locate finds the file of a link such as https://vc/folder/dir/disk.vmdk?dcPath=Folder/DC0&dsName=LocalDS_0.
func (m *Manager) locate(link string) (at place, datastorePath string, capacityMB int64, fault types.BaseMethodFault) {
	u, err := url.Parse(link)
	if err != nil || !strings.HasPrefix(u.Path, "/folder/") || !strings.HasSuffix(u.Path, ".vmdk") || strings.Contains(u.Path, "..") {
		return at, "", 0, invalid("path")
	}
	file := strings.TrimPrefix(u.Path, "/folder/")
	datacenter := m.datacenter(u.Query().Get("dcPath"))
	if datacenter == nil {
		return at, "", 0, &types.NotFound{}
	}
	found := false
	for _, ref := range datacenter.Datastore {
		if p, ok := m.datastore(ref); ok && p.name == u.Query().Get("dsName") {
			at, found = p, true
		}
	}
	if !found {
		return at, "", 0, &types.NotFound{}
	}
	datastorePath = (&object.DatastorePath{Datastore: at.name, Path: file}).String()
	ctx := m.inventory()
	descriptor, _, missing := m.vim.FileManager().DiskDescriptor(ctx, &datacenter.Self, datastorePath)
	if missing == nil && descriptor != nil {
		return at, datastorePath, (descriptor.Capacity() + mib - 1) / mib, nil
	}
	// A vmdk that a described VM has is there, even if no file stands for it.
	for _, reference := range m.vim.AllReference("VirtualMachine") {
		if vm, ok := reference.(*simulator.VirtualMachine); ok {
			if used := m.diskWith(vm, datastorePath); used != nil {
				return at, datastorePath, (used.CapacityInKB + 1023) / 1024, nil
			}
		}
	}
	return at, "", 0, &types.NotFound{}
}

// diskWith is a VM's disk with this vmdk; nil when it has none.
func (m *Manager) diskWith(vm *simulator.VirtualMachine, datastorePath string) (used *types.VirtualDisk) {
	m.vim.WithLock(m.inventory(), vm, func() {
		if vm.Config != nil {
			used = newDeviceList(vm.Config.Hardware.Device).findDisk(func(v *types.VirtualDisk) bool { return backingFile(v) == datastorePath })
		}
	})
	return used
}

// datacenter finds one by its inventory path, folders included.
func (m *Manager) datacenter(wanted string) *simulator.Datacenter {
	for _, entity := range m.vim.All("Datacenter") {
		if m.inventoryPath(entity) == strings.Trim(wanted, "/") {
			datacenter, _ := entity.(*simulator.Datacenter)
			return datacenter
		}
	}
	return nil
}

// inventoryPath leaves out the root folder, as vCenter does.
func (m *Manager) inventoryPath(entity mo.Entity) string {
	names := ""
	for entity != nil && entity.Entity().Parent != nil {
		names = path.Join(entity.Entity().Name, names)
		entity, _ = m.vim.Get(*entity.Entity().Parent).(mo.Entity)
	}
	return names
}
