package cns

import (
	"reflect"
	"slices"
	"time"

	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// CNS answers queries from a database that follows the disks with a delay. A shadow is where the two differ.

// staleQueries is how many queries a shadow by count outlasts.
const staleQueries = 2

// lagging are the methods after which queries may be stale; a new volume has its own assumption. Those that are true make a
// number of queries stale, all of them make queries stale for a time.
var lagging = map[string]bool{
	"CnsDeleteVolume": true, "CnsRelocateVolume": true, "CnsExtendVolume": true,
	"CnsUpdateVolumeMetadata": false, "CnsUnregisterVolume": false, "CnsReconfigVolumePolicy": false, "CnsUpdateVolumeCrypto": false,
}

// lags reports whether queries are stale after a method.
func (m *Manager) lags(method string) bool {
	counted, known := lagging[method]
	if !known {
		return false
	}
	return assume.StaleSeconds.In(m.assumed) > 0 || counted && assume.StaleQueries.In(m.assumed)
}

// lagged is a shadow that begins now: it lasts for a time, or for a number of queries.
func (m *Manager) lagged(s shadow) shadow {
	if seconds := assume.StaleSeconds.In(m.assumed); seconds > 0 {
		s.until = m.now().Add(time.Duration(seconds) * time.Second)
	} else {
		s.left = staleQueries
	}
	return s
}

// entry is a volume as a query shows it.
type entry struct {
	CnsVolume
	at       types.ManagedObjectReference
	sequence int64
}

// clone is a copy whose metadata may be changed.
func (e *entry) clone() *entry {
	made := *e
	metadata := *e.Metadata
	metadata.EntityMetadata = slices.Clone(metadata.EntityMetadata)
	made.Metadata = &metadata
	return &made
}

// shadow is what queries show instead of a volume. Manager.mu guards it.
type shadow struct {
	absent bool      // nothing
	noURL  bool      // the volume without its datastore
	was    *entry    // the volume as it was
	left   int       // queries that still see it; 0: it does not go by queries
	until  time.Time // when it passes; zero: not by time
}

func (s *shadow) passed(now time.Time) bool { return !s.until.IsZero() && !now.Before(s.until) }

// over is what a query is shown for a volume; nil for nothing.
func (s *shadow) over(real *entry) *entry {
	switch {
	case s.absent:
		return nil
	case s.was != nil:
		return s.was.clone()
	}
	shown := *real
	shown.DatastoreUrl = ""
	return &shown
}

// asked counts a query that the volume concerned.
func (m *Manager) asked(id string, s *shadow) {
	if s.left == 0 {
		return
	}
	if s.left--; s.left == 0 {
		delete(m.shadows, id)
	}
}

// shadowOf is the shadow that still lies on a volume. The caller holds mu.
func (m *Manager) shadowOf(id string) *shadow {
	s := m.shadows[id]
	if s != nil && s.passed(m.now()) {
		delete(m.shadows, id)
		return nil
	}
	return s
}

// shadeFresh decides how the first queries show a new volume. The caller holds mu.
func (m *Manager) shadeFresh(v *volume) {
	delete(m.shadows, v.id)
	choice := assume.FreshVolume.In(m.assumed)
	if choice != "complete" {
		fresh := m.lagged(shadow{absent: choice == "absent", noURL: choice == "noDatastoreUrl"})
		m.shadows[v.id] = &fresh
	}
}

// recollection is what CNS has and shows of a volume at one moment.
type recollection struct {
	record *volume
	copy   volume
	shown  entry
}

// recall notes what CNS has and shows of a volume; nil when it has none. The caller holds mu.
func (m *Manager) recall(id string) *recollection {
	v, ok := m.volumes[id]
	if !ok {
		return nil
	}
	at, _ := m.datastore(v.datastore())
	return &recollection{record: v, copy: *v, shown: m.entryOf(v, at)}
}

func (m *Manager) recallAll() map[string]*recollection {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]*recollection{}
	for id := range m.volumes {
		all[id] = m.recall(id)
	}
	return all
}

// shade lets queries show what was, if it is not so any more. A shadow that lies there already stays. The caller holds mu.
func (m *Manager) shade(was *recollection, s shadow) {
	id := was.copy.id
	if now := m.recall(id); now != nil && reflect.DeepEqual(now.shown, was.shown) {
		return
	}
	if old := m.shadowOf(id); old != nil && old.was != nil {
		s.was = old.was
	} else {
		s.was = &was.shown
	}
	m.shadows[id] = &s
}

// shadeQueries makes the next queries stale for volumes that changed.
func (m *Manager) shadeQueries(before map[string]*recollection, ids []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		if was := before[id]; was != nil {
			m.shade(was, m.lagged(shadow{}))
		}
	}
}

// undoRecords gives CNS the records that it had before, where the disks are changed: that is work half done.
func (m *Manager) undoRecords(before map[string]*recollection, ids []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		was := before[id]
		if was == nil {
			delete(m.volumes, id)
			delete(m.shadows, id)
			continue
		}
		if m.reenter(was) {
			continue
		}
		was.record.name, was.record.policy, was.record.metadata = was.copy.name, was.copy.policy, was.copy.metadata
		m.shade(was, shadow{}) // until CNS looks
	}
}

// reenter gives CNS the record of a volume back that is deleted; false says that it has one. The caller holds mu.
func (m *Manager) reenter(was *recollection) bool {
	if _, still := m.volumes[was.copy.id]; still {
		return false
	}
	m.volumes[was.copy.id] = was.record
	if d := was.record.disk; d != nil {
		d.taken, d.filled = 0, false
	}
	return true
}

// outside notes that a disk was changed by others than CNS, which notices later. The caller holds mu.
func (m *Manager) outside(was *recollection) {
	if was == nil {
		return
	}
	if m.reenter(was) {
		return
	}
	m.shade(was, shadow{until: m.now().Add(m.outsideLag())})
}

func (m *Manager) outsideLag() time.Duration {
	return time.Duration(assume.OutsideLagSeconds.In(m.assumed)) * time.Second
}

// dropOrphans forgets volumes whose disks have been gone for long enough.
func (m *Manager) dropOrphans() {
	var due []*volume
	m.mu.Lock()
	present := map[string]bool{}
	m.withCatalogue(func(all catalogue) {
		for _, objects := range all {
			for id := range objects {
				present[id.Id] = true
			}
		}
	})
	for id, v := range m.volumes {
		if v.disk == nil || v.disk.lost || v.unnoticed || present[id] {
			v.missing = time.Time{}
			continue
		}
		if v.missing.IsZero() {
			v.missing = m.now()
		}
		if m.now().Sub(v.missing) >= m.outsideLag() {
			due = append(due, v)
		}
	}
	m.mu.Unlock()
	for _, v := range due {
		if unlock, free := m.volumeOps.tryLock(v.id); free {
			m.reconcile(v)
			unlock()
		}
	}
}

// Sync lets queries, and VSLM's catalogue, show how things are, at once.
func (m *Manager) Sync() {
	m.syncCatalogue(func(types.ManagedObjectReference) bool { return true })
	m.mu.Lock()
	clear(m.shadows)
	volumes := m.ordered()
	m.mu.Unlock()
	for _, v := range volumes {
		unlock := m.volumeOps.lock(v.id)
		m.reconcile(v)
		unlock()
	}
}

// Status is what queries are made to show of a volume; "" leaves a field as it is, "real" shows what is the case.
type Status struct{ Compliance, Health string }

// The values of a Status.
var (
	Compliances = []string{"real", "compliant", "nonCompliant", "unknown", "notApplicable", "outOfDate"}
	Healths     = []string{"real", "green", "yellow", "red", "unknown"}
)

// SetStatus changes what queries show of a volume; false says that there is no such volume.
func (m *Manager) SetStatus(id string, status Status) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.volumes[id]
	if !ok {
		return false
	}
	set := func(field *string, value string) {
		switch value {
		case "":
		case "real":
			*field = ""
		default:
			*field = value
		}
	}
	set(&v.compliance, status.Compliance)
	set(&v.health, status.Health)
	return true
}
