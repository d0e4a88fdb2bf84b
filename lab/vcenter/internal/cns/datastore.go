package cns

import (
	"reflect"
	"slices"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// place is what we need to know of a datastore, read at one moment.
type place struct {
	ref        types.ManagedObjectReference
	name       string
	url        string
	dir        string // the files' directory, if the URL is one on this machine
	vsan       bool
	accessible bool // and not in maintenance
	reachable  bool // also in maintenance
	free       int64
	hosts      []types.ManagedObjectReference
}

// datastore reads a datastore; ok is false for an unknown reference.
func (m *Manager) datastore(ref types.ManagedObjectReference) (place, bool) {
	object, ok := m.vim.Get(ref).(*simulator.Datastore)
	if !ok {
		return place{}, false
	}
	var p place
	m.vim.WithLock(m.inventory(), object, func() {
		p = place{
			ref:        ref,
			name:       object.Name,
			url:        object.Summary.Url,
			dir:        strings.TrimPrefix(object.Summary.Url, "file://"),
			vsan:       strings.HasPrefix(strings.ToLower(object.Summary.Type), "vsan"),
			accessible: object.Summary.Accessible && !inMaintenance(object.Summary.MaintenanceMode),
			reachable:  object.Summary.Accessible,
			free:       object.Summary.FreeSpace,
		}
		if object.Info != nil {
			p.url = object.Info.GetDatastoreInfo().Url
		}
		for _, mount := range object.Host {
			if mount.MountInfo.Accessible == nil || *mount.MountInfo.Accessible {
				p.hosts = append(p.hosts, mount.Key)
			}
		}
	})
	return p, true
}

func inMaintenance(mode string) bool {
	return mode != "" && mode != string(types.DatastoreSummaryMaintenanceModeStateNormal)
}

// datastores are all there are, in a stable order.
func (m *Manager) datastores() []types.ManagedObjectReference {
	var refs []types.ManagedObjectReference
	for _, object := range m.vim.AllReference("Datastore") {
		refs = append(refs, object.Reference())
	}
	slices.SortFunc(refs, compareRefs)
	return refs
}

func compareRefs(a, b types.ManagedObjectReference) int { return strings.Compare(a.Value, b.Value) }

// take reserves space for a thin disk or a share. It says how much, for giveBack, and whether there was enough.
func (m *Manager) take(ref types.ManagedObjectReference, bytes int64) (taken int64, enough bool) {
	return m.reserve(ref, bytes, assume.ThinTakesFullSize.In(m.assumed))
}

// takeFor is take for a disk that may be thick, which always has all of its space.
func (m *Manager) takeFor(d disk, ref types.ManagedObjectReference, bytes int64) (taken int64, enough bool) {
	return m.reserve(ref, bytes, d.thick || assume.ThinTakesFullSize.In(m.assumed))
}

// reserve looks for room, and takes it if it is to be kept.
func (m *Manager) reserve(ref types.ManagedObjectReference, bytes int64, keep bool) (taken int64, enough bool) {
	object, ok := m.vim.Get(ref).(*simulator.Datastore)
	if !ok {
		return 0, false
	}
	m.vim.WithLock(m.inventory(), object, func() {
		enough = object.Summary.FreeSpace >= bytes
		if enough && keep {
			taken = bytes
			m.setFree(object, object.Summary.FreeSpace-bytes)
		}
	})
	return taken, enough
}

// giveBack frees space that take reserved.
func (m *Manager) giveBack(ref types.ManagedObjectReference, taken int64) {
	object, ok := m.vim.Get(ref).(*simulator.Datastore)
	if !ok || taken == 0 {
		return
	}
	m.vim.WithLock(m.inventory(), object, func() {
		m.setFree(object, min(object.Summary.FreeSpace+taken, object.Summary.Capacity))
	})
}

// setFree keeps both places that tell a datastore's free space alike; the caller holds the datastore's lock.
func (m *Manager) setFree(object *simulator.Datastore, free int64) {
	changes := []types.PropertyChange{{Name: "summary.freeSpace", Val: free}}
	if object.Info != nil {
		// A copy, of whatever kind it is: an answer with the old one may be on its way to a client.
		own := reflect.New(reflect.TypeOf(object.Info).Elem())
		own.Elem().Set(reflect.ValueOf(object.Info).Elem())
		info := own.Interface().(types.BaseDatastoreInfo)
		info.GetDatastoreInfo().FreeSpace = free
		changes = append(changes, types.PropertyChange{Name: "info", Val: info})
	}
	m.vim.Update(m.inventory(), object, changes)
}
