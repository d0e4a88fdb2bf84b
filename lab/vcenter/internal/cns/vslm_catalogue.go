package cns

import (
	"cmp"
	"slices"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm/methods"
	vslmtypes "github.com/vmware/govmomi/vslm/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// VSLM finds disks in a catalogue of its own, which follows those of the datastores. What VSLM itself does is there at
// once; what others do comes later.

// catalogueSeconds is how long the catalogue lacks what CNS did, unless StaleSeconds has another time.
const catalogueSeconds = 5

// lateness is until when VSLM's catalogue does not have a disk; the zero value is not late.
type lateness struct {
	until    time.Time
	listOnly bool // it can be read by its id all the same
}

// ghost is a deleted disk that VSLM's catalogue still has.
type ghost struct {
	object simulator.VStorageObject
	until  time.Time
}

// lateOutside is when the catalogue hears of what vim25 does now.
func (m *Manager) lateOutside() lateness {
	if assume.DiskCatalogue.In(m.assumed) == "fresh" {
		return lateness{}
	}
	return lateness{until: m.now().Add(m.outsideLag())}
}

// lateOfCNS is when the catalogue hears of what CNS does now.
func (m *Manager) lateOfCNS() lateness {
	choice := assume.DiskCatalogue.In(m.assumed)
	if choice != "late list" && choice != "late" {
		return lateness{}
	}
	seconds := cmp.Or(assume.StaleSeconds.In(m.assumed), catalogueSeconds)
	return lateness{until: m.now().Add(time.Duration(seconds) * time.Second), listOnly: choice == "late list"}
}

// linger lets the catalogue list a disk that is deleted.
func (m *Manager) linger(was *simulator.VStorageObject, late lateness) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if was != nil && m.now().Before(late.until) {
		m.ghosts[was.Config.Id.Id] = ghost{*was, late.until}
	}
}

// unlisted reports whether the catalogue does not list a disk yet. The caller holds mu.
func (m *Manager) unlisted(id string) bool {
	d, ok := m.disks[id]
	return ok && m.now().Before(d.late.until)
}

// unreadable reports whether VSLM does not find a disk by its id yet. The caller holds mu.
func (m *Manager) unreadable(id string) bool { return m.unlisted(id) && !m.disks[id].late.listOnly }

// catalogued is fcd for those who find disks by VSLM's catalogue.
func (m *Manager) catalogued(id string) (*disk, disk) {
	live, d := m.fcd(id)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unreadable(id) {
		return nil, disk{}
	}
	return live, d
}

// known is object for those who find disks by VSLM's catalogue.
func (m *Manager) known(id types.ID) *simulator.VStorageObject {
	object := m.object(id)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unreadable(id.Id) {
		return nil
	}
	return object
}

// listed are the FCDs that the catalogue lists, in the order of their ids.
func (m *Manager) listed() []simulator.VStorageObject {
	list := m.objects()
	m.mu.Lock()
	defer m.mu.Unlock()
	list = slices.DeleteFunc(list, func(object simulator.VStorageObject) bool { return m.unlisted(object.Config.Id.Id) })
	for id, gone := range m.ghosts {
		if !m.now().Before(gone.until) {
			delete(m.ghosts, id)
			continue
		}
		if _, again := m.disks[id]; !again {
			list = append(list, gone.object)
		}
	}
	slices.SortFunc(list, func(a, b simulator.VStorageObject) int { return cmp.Compare(a.Config.Id.Id, b.Config.Id.Id) })
	return list
}

// syncCatalogue lets the catalogue have what some datastores have.
func (m *Manager) syncCatalogue(of func(types.ManagedObjectReference) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.disks {
		if of(d.datastore) {
			d.late = lateness{}
		}
	}
	for id, gone := range m.ghosts {
		if of(adopt(&gone.object).datastore) {
			delete(m.ghosts, id)
		}
	}
}

// lifecycleManager is the managed object VslmStorageLifecycleManager.
type lifecycleManager struct {
	types.ManagedObjectReference
	m *Manager
}

// VslmSyncDatastore brings the catalogue up to date with a datastore.
func (s *lifecycleManager) VslmSyncDatastore(_ *simulator.Context, req *vslmtypes.VslmSyncDatastore) soap.HasFault {
	wanted := map[types.ManagedObjectReference]bool{}
	for _, ref := range s.m.datastores() {
		if at, ok := s.m.datastore(ref); ok && at.url == req.DatastoreUrl {
			wanted[ref] = true
		}
	}
	if len(wanted) == 0 {
		return refuse(&types.NotFound{})
	}
	s.m.syncCatalogue(func(ref types.ManagedObjectReference) bool { return wanted[ref] })
	return &methods.VslmSyncDatastoreBody{Res: &vslmtypes.VslmSyncDatastoreResponse{}}
}
