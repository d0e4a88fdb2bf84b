// Package history keeps what vCenter's database keeps of tasks, and serves it through collectors.
//
// The library's collectors are not used: they answer everybody with everything, count the collectors of all sessions
// together, never forget those of a session that ended, and know one kind of time only. Records outlive a restart and
// the objects they are about, as they do on vCenter.
package history

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// most is how many tasks are remembered; the oldest go first.
const most = 50_000

// Config says what the records depend on.
type Config struct {
	// Now is vCenter's time: the library dates tasks by the real one.
	Now func() time.Time
	// Root is the root folder. Who sees it sees the tasks of what is not in the inventory.
	Root types.ManagedObjectReference
	// Sees tells whether a user sees an object.
	Sees func(user string, ref types.ManagedObjectReference) bool
	// ReadsRoot tells whether a user may read the root folder.
	ReadsRoot func(user string) bool
	// Open tells whether the session with this key goes on.
	Open func(session string) bool

	Assumptions *assume.Settings
}

// Tasks are the recorded tasks of one vCenter, in the order in which they were queued.
type Tasks struct {
	cfg Config
	vim *simulator.Registry

	mu      sync.Mutex
	number  int
	records []*record

	collectors []*TaskHistoryCollector
}

// record is one task.
type record struct {
	number int
	info   types.TaskInfo
	above  []types.ManagedObjectReference // where the entity was when the task was queued, nearest first
}

// Install begins to record. What was done before is not known.
func Install(vim *simulator.Registry, cfg Config) *Tasks {
	t := &Tasks{cfg: cfg, vim: vim}
	vim.AddHandler(t)
	return t
}

// Reference is the handler's name in the registry.
func (t *Tasks) Reference() types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: "SimulatorWatcher", Value: "task-history"}
}

// PutObject records a new task.
func (t *Tasks) PutObject(_ *simulator.Context, object mo.Reference) {
	task, ok := object.(*simulator.Task)
	if !ok || task.Info.Entity == nil {
		return
	}
	made := &record{info: task.Info, above: t.ancestors(*task.Info.Entity)}
	made.info.Key, made.info.Task, made.info.QueueTime = task.Self.Value, task.Self, t.cfg.Now()
	if made.info.DescriptionId == "VirtualMachine.destroy" {
		made.info.Name = "Destroy_Task" // the library has the word only
	}
	if entity, ok := t.vim.Get(*task.Info.Entity).(mo.Entity); ok {
		made.info.EntityName = entity.Entity().Name
	}
	t.mu.Lock()
	t.number++
	made.number = t.number
	t.records = append(t.records, made)
	if len(t.records) > most {
		t.records = slices.Delete(t.records, 0, len(t.records)-most)
	}
	now := *made
	t.mu.Unlock()
	t.tell(nil, &now)
}

// UpdateObject records how a task goes on.
func (t *Tasks) UpdateObject(_ *simulator.Context, object mo.Reference, _ []types.PropertyChange) {
	task, ok := object.(*mo.Task)
	if !ok {
		return
	}
	if before, now := t.follow(task); now != nil && before.info.State != now.info.State { // progress is not told
		t.tell(before, now)
	}
}

// follow records a task as it is, and gives copies of its record before and after.
func (t *Tasks) follow(task *mo.Task) (before, now *record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, known := range slices.Backward(t.records) {
		if known.info.Key == task.Self.Value {
			old := *known
			known.follow(&task.Info, t.cfg.Now())
			changed := *known
			return &old, &changed
		}
	}
	return nil, nil
}

func (r *record) follow(info *types.TaskInfo, now time.Time) {
	if r.info.StartTime == nil && info.StartTime != nil {
		r.info.StartTime = &now
	}
	if r.info.CompleteTime == nil && info.CompleteTime != nil {
		r.info.CompleteTime = &now
	}
	r.info.State, r.info.Cancelled, r.info.Result, r.info.Error = info.State, info.Cancelled, info.Result, info.Error
}

// RemoveObject does nothing: a record outlives its task.
func (*Tasks) RemoveObject(*simulator.Context, types.ManagedObjectReference) {}

func (t *Tasks) ancestors(ref types.ManagedObjectReference) []types.ManagedObjectReference {
	var above []types.ManagedObjectReference
	for len(above) < 100 {
		entity, ok := t.vim.Get(ref).(mo.Entity)
		if !ok || entity.Entity().Parent == nil {
			break
		}
		ref = *entity.Entity().Parent
		above = append(above, ref)
	}
	return above
}

// sees tells whether a user sees a task: if he sees its entity. Of an entity that is gone the nearest object above it
// counts that is still there, or the root folder.
func (t *Tasks) sees(user string, task *record) bool {
	nearest := t.cfg.Root
	for _, ref := range append([]types.ManagedObjectReference{*task.info.Entity}, task.above...) {
		if t.vim.Get(ref) != nil {
			nearest = ref
			break
		}
	}
	visible := t.cfg.Sees(user, nearest)
	if nearest == *task.info.Entity || visible == t.cfg.ReadsRoot(user) {
		return visible
	}
	return visible == (assume.GoneTasksSeenFrom.In(t.cfg.Assumptions) == "container")
}

// Fill records tasks that ended well on an object: other work of a busy vCenter.
func (t *Tasks) Fill(count int, on types.ManagedObjectReference) {
	name := ""
	if entity, ok := t.vim.Get(on).(mo.Entity); ok {
		name = entity.Entity().Name
	}
	above := t.ancestors(on)
	t.mu.Lock()
	defer t.mu.Unlock()
	for range count {
		now := t.cfg.Now()
		t.number++
		self := types.ManagedObjectReference{Type: "Task", Value: fmt.Sprintf("task-filled-%d", t.number)}
		t.records = append(t.records, &record{number: t.number, above: above, info: types.TaskInfo{
			Key: self.Value, Task: self, Name: "ReconfigVM_Task", DescriptionId: "VirtualMachine.reconfigure",
			Entity: &on, EntityName: name, State: types.TaskInfoStateSuccess, QueueTime: now, StartTime: &now, CompleteTime: &now,
		}})
	}
	if len(t.records) > most {
		t.records = slices.Delete(t.records, 0, len(t.records)-most)
	}
}

// page is at most so many of the tasks that a filter lets through and a user sees: forwards those behind a position,
// oldest first, backwards those up to it, newest first.
func (t *Tasks) page(user string, filter *types.TaskFilterSpec, position, size int, backwards bool) []record {
	t.mu.Lock()
	var kept []record
	for _, known := range t.records {
		if (known.number > position) != backwards && known.matches(filter) {
			kept = append(kept, *known)
		}
	}
	t.mu.Unlock()
	if backwards {
		slices.Reverse(kept)
	}
	var page []record
	for i := range kept {
		if len(page) == size {
			break
		}
		if t.sees(user, &kept[i]) {
			page = append(page, kept[i])
		}
	}
	return page
}

func (r *record) matches(filter *types.TaskFilterSpec) bool {
	if len(filter.State) > 0 && !slices.Contains(filter.State, r.info.State) {
		return false
	}
	if of := filter.Entity; of != nil && !r.isAbout(of) {
		return false
	}
	return filter.Time == nil || r.isWithin(filter.Time)
}

func (r *record) isAbout(of *types.TaskFilterSpecByEntity) bool {
	self, below := *r.info.Entity == of.Entity, slices.Contains(r.above, of.Entity)
	switch of.Recursion {
	case types.TaskFilterSpecRecursionOptionSelf:
		return self
	case types.TaskFilterSpecRecursionOptionChildren:
		return below
	}
	return self || below
}

func (r *record) isWithin(span *types.TaskFilterSpecByTime) bool {
	at := &r.info.QueueTime
	switch span.TimeType {
	case types.TaskFilterSpecTimeOptionStartedTime:
		at = r.info.StartTime
	case types.TaskFilterSpecTimeOptionCompletedTime:
		at = r.info.CompleteTime
	}
	if at == nil {
		return false
	}
	return (span.BeginTime == nil || !at.Before(*span.BeginTime)) && (span.EndTime == nil || !at.After(*span.EndTime))
}
