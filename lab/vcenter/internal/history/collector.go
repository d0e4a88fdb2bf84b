package history

import (
	"context"
	"math"
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// The limits of vCenter: collectors of one session, tasks of one page, and the latest page at the start.
const (
	mostCollectors = 32
	mostInPage     = 1000
	firstPage      = 10
)

const kind = "TaskHistoryCollector"

// TaskHistoryCollector walks through the tasks that its session's user sees. It belongs to the session and ends with
// it. The library names objects by their type, hence this one's name.
type TaskHistoryCollector struct {
	mo.TaskHistoryCollector

	tasks   *Tasks
	session string // its key
	user    string
	spec    types.TaskFilterSpec
	page    int
	after   int // the number of the task behind which the next page begins
}

// Create makes a collector for a session, at the oldest task.
func (t *Tasks) Create(ctx *simulator.Context, req *types.CreateCollectorForTasks) soap.HasFault {
	body := new(methods.CreateCollectorForTasksBody)
	if of := req.Filter.Entity; of != nil && t.vim.Get(of.Entity) == nil {
		body.Fault_ = simulator.Fault("", &types.ManagedObjectNotFound{Obj: of.Entity})
		return body
	}
	if len(ctx.Session.Registry.AllReference(kind)) >= mostCollectors {
		body.Fault_ = simulator.Fault("The operation is not allowed in the current state.", new(types.InvalidState))
		return body
	}
	made := &TaskHistoryCollector{
		tasks: t, session: ctx.Session.Key, user: ctx.Session.UserName, spec: req.Filter, page: firstPage,
	}
	made.Filter = req.Filter
	body.Res = &types.CreateCollectorForTasksResponse{Returnval: ctx.Session.Put(made).Reference()}
	t.keep(made)
	return body
}

// keep remembers a collector that is told of changes, and forgets those whose sessions ended.
func (t *Tasks) keep(made *TaskHistoryCollector) {
	t.mu.Lock()
	known := slices.Clone(t.collectors)
	t.mu.Unlock()
	ended := map[string]bool{}
	for _, c := range known {
		if _, asked := ended[c.session]; !asked {
			ended[c.session] = !t.cfg.Open(c.session)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.collectors = slices.DeleteFunc(t.collectors, func(c *TaskHistoryCollector) bool { return ended[c.session] })
	t.collectors = append(t.collectors, made)
}

// tell lets those who wait for the latest page of a collector know that a task came, or that its state changed. Both
// records are copies; before is nil for a new task.
func (t *Tasks) tell(before, now *record) {
	t.mu.Lock()
	known := slices.Clone(t.collectors)
	t.mu.Unlock()
	for _, c := range known {
		if !t.sees(c.user, now) || !now.matches(&c.spec) && (before == nil || !before.matches(&c.spec)) {
			continue
		}
		ctx := &simulator.Context{Context: context.Background(), Map: t.vim}
		ctx.WithLock(c, func() {
			if c.newer(now.number) < c.page {
				// The value is read when it is told; what is kept in the object does not count.
				ctx.Update(c, []types.PropertyChange{{Name: "latestPage"}})
			}
		})
	}
}

// newer counts the tasks of a collector that came after another, up to a page of them.
func (c *TaskHistoryCollector) newer(number int) int {
	t := c.tasks
	t.mu.Lock()
	var later []record
	for _, known := range slices.Backward(t.records) {
		if known.number <= number || len(later) >= mostInPage {
			break
		}
		if known.matches(&c.spec) {
			later = append(later, *known)
		}
	}
	t.mu.Unlock()
	count := 0
	for i := range later {
		if count == c.page {
			break
		}
		if t.sees(c.user, &later[i]) {
			count++
		}
	}
	return count
}

// ReadNextTasks gives the tasks behind the position, oldest first, and moves it behind them.
func (c *TaskHistoryCollector) ReadNextTasks(req *types.ReadNextTasks) soap.HasFault {
	body := new(methods.ReadNextTasksBody)
	if body.Fault_ = outOfRange(req.MaxCount); body.Fault_ != nil {
		return body
	}
	body.Res = new(types.ReadNextTasksResponse)
	for _, one := range c.tasks.page(c.user, &c.spec, c.after, int(req.MaxCount), false) {
		body.Res.Returnval = append(body.Res.Returnval, one.info)
		c.after = one.number
	}
	return body
}

// ReadPreviousTasks gives the tasks before the position, newest first, and moves it before them.
func (c *TaskHistoryCollector) ReadPreviousTasks(req *types.ReadPreviousTasks) soap.HasFault {
	body := new(methods.ReadPreviousTasksBody)
	if body.Fault_ = outOfRange(req.MaxCount); body.Fault_ != nil {
		return body
	}
	body.Res = new(types.ReadPreviousTasksResponse)
	for _, one := range c.tasks.page(c.user, &c.spec, c.after, int(req.MaxCount), true) {
		body.Res.Returnval = append(body.Res.Returnval, one.info)
		c.after = one.number - 1
	}
	return body
}

// RewindCollector moves the position before the oldest task.
func (c *TaskHistoryCollector) RewindCollector(*types.RewindCollector) soap.HasFault {
	c.after = 0
	return &methods.RewindCollectorBody{Res: new(types.RewindCollectorResponse)}
}

// ResetCollector moves the position to where the latest page begins.
func (c *TaskHistoryCollector) ResetCollector(*types.ResetCollector) soap.HasFault {
	c.after = 0
	if latest := c.latest(); len(latest) > 0 {
		c.after = latest[len(latest)-1].number - 1
	}
	return &methods.ResetCollectorBody{Res: new(types.ResetCollectorResponse)}
}

// SetCollectorPageSize says how long the latest page is.
func (c *TaskHistoryCollector) SetCollectorPageSize(req *types.SetCollectorPageSize) soap.HasFault {
	body := new(methods.SetCollectorPageSizeBody)
	if body.Fault_ = outOfRange(req.MaxCount); body.Fault_ == nil {
		c.page = int(req.MaxCount)
		body.Res = new(types.SetCollectorPageSizeResponse)
	}
	return body
}

// DestroyCollector ends it before its session does.
func (c *TaskHistoryCollector) DestroyCollector(ctx *simulator.Context, req *types.DestroyCollector) soap.HasFault {
	c.tasks.mu.Lock()
	c.tasks.collectors = slices.DeleteFunc(c.tasks.collectors, func(other *TaskHistoryCollector) bool { return other == c })
	c.tasks.mu.Unlock()
	ctx.Session.Remove(ctx, req.This)
	return &methods.DestroyCollectorBody{Res: new(types.DestroyCollectorResponse)}
}

// Get is what a property collector reads.
func (c *TaskHistoryCollector) Get() mo.Reference {
	read := &TaskHistoryCollector{TaskHistoryCollector: c.TaskHistoryCollector}
	for _, one := range c.latest() {
		read.LatestPage = append(read.LatestPage, one.info)
	}
	return read
}

// latest is the latest page, newest first.
func (c *TaskHistoryCollector) latest() []record {
	return c.tasks.page(c.user, &c.spec, math.MaxInt, c.page, true)
}

func outOfRange(count int32) *soap.Fault {
	if count < 1 || count > mostInPage {
		return simulator.Fault("", &types.InvalidArgument{InvalidProperty: "maxCount"})
	}
	return nil
}
