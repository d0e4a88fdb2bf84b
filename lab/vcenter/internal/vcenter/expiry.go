package vcenter

import (
	"slices"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// fresh is how long a finished task surely stays, whatever is assumed.
const fresh = time.Minute

// expiry forgets tasks some time after they ended, as vCenter does. Their records stay.
type expiry struct {
	v *VCenter

	mu    sync.Mutex
	ended []endedTask // oldest first
}

type endedTask struct {
	task, entity types.ManagedObjectReference
	at           time.Time
}

func newExpiry(v *VCenter) *expiry { return &expiry{v: v} }

// Reference is the handler's name in the registry.
func (*expiry) Reference() types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: "SimulatorWatcher", Value: "task-expiry"}
}

// PutObject is for simulator.RegisterObject.
func (*expiry) PutObject(*simulator.Context, mo.Reference) {}

// RemoveObject is for simulator.RegisterObject.
func (*expiry) RemoveObject(*simulator.Context, types.ManagedObjectReference) {}

// UpdateObject notes when a task ends.
func (e *expiry) UpdateObject(_ *simulator.Context, object mo.Reference, changes []types.PropertyChange) {
	task, ok := object.(*mo.Task)
	if !ok || task.Info.Entity == nil || !slices.ContainsFunc(changes, func(c types.PropertyChange) bool { return c.Name == "info.completeTime" }) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = append(e.ended, endedTask{task.Self, *task.Info.Entity, e.v.Clock.Now()})
}

// sweep forgets the tasks whose time has come.
func (e *expiry) sweep() {
	e.mu.Lock()
	now := e.v.Clock.Now()
	if len(e.ended) == 0 || now.Sub(e.ended[0].at) < fresh {
		e.mu.Unlock()
		return
	}
	stay := max(fresh, time.Duration(assume.FinishedTaskMinutes.In(e.v.Assumed))*time.Minute)
	due := 0
	for due < len(e.ended) && now.Sub(e.ended[due].at) >= stay {
		due++
	}
	gone := e.take(due)
	e.mu.Unlock()
	e.forget(gone)
}

// all forgets every task that ended and tells how many there were.
func (e *expiry) all() int {
	e.mu.Lock()
	gone := e.take(len(e.ended))
	e.mu.Unlock()
	return e.forget(gone)
}

func (e *expiry) take(count int) []endedTask {
	taken := slices.Clone(e.ended[:count])
	e.ended = slices.Delete(e.ended, 0, count)
	return taken
}

func (e *expiry) forget(gone []endedTask) int {
	count := 0
	for _, ended := range gone {
		if e.v.Vim.Get(ended.task) != nil {
			e.v.Vim.Remove(e.v.ownContext(), ended.task)
			count++
		}
	}
	if len(gone) > 0 {
		// An entity may be locked for as long as another task works on it. Nobody has to wait for that.
		go e.v.Inventory.DropRecent(entitiesOf(gone), func(task types.ManagedObjectReference) bool { return e.v.Vim.Get(task) == nil })
	}
	return count
}

func entitiesOf(gone []endedTask) []types.ManagedObjectReference {
	var refs []types.ManagedObjectReference
	for _, ended := range gone {
		if !slices.Contains(refs, ended.entity) {
			refs = append(refs, ended.entity)
		}
	}
	return refs
}

// ForgetFinishedTasks makes every task that ended unreadable and tells how many there were.
func (v *VCenter) ForgetFinishedTasks() int { return v.expiry.all() }
