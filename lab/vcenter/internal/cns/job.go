package cns

import (
	"sync"
	"time"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// Extent is how much of a task's work is done.
type Extent string

// The extents. Of work that is half done the disks are as wanted and the records of CNS as before: a new disk is not a
// volume, a deleted one still is.
const (
	Whole Extent = "done"
	Half  Extent = "half"
	None  Extent = "none"
)

// Extents lists them.
var Extents = []string{string(Whole), string(Half), string(None)}

// job is a task of ours that has not ended, or whose work has not.
type job struct {
	task    *simulator.Task
	method  string
	service string
	entity  types.ManagedObjectReference
	user    string
	work    work
	fate    Fate
	decided chan Extent   // what becomes of work that waits; has room for one
	idle    chan struct{} // closed when nothing works any more
	ended   bool          // guarded by jobs.mu
}

func (j *job) decide(extent Extent) {
	select {
	case j.decided <- extent:
	default: // decided already
	}
}

// jobs are those of one vCenter.
type jobs struct {
	mu  sync.Mutex
	all map[*job]bool
}

func (js *jobs) add(j *job) {
	js.mu.Lock()
	defer js.mu.Unlock()
	if js.all == nil {
		js.all = map[*job]bool{}
	}
	js.all[j] = true
}

// end marks a job as ended; false says that it was so already.
func (js *jobs) end(j *job) bool {
	js.mu.Lock()
	defer js.mu.Unlock()
	first := !j.ended
	j.ended = true
	return first
}

// leave forgets a job whose work is over, unless its task is still running.
func (js *jobs) leave(j *job) {
	js.mu.Lock()
	if j.ended {
		delete(js.all, j)
	}
	js.mu.Unlock()
	close(j.idle)
}

func (js *jobs) list(of func(*job) bool) []*job {
	js.mu.Lock()
	defer js.mu.Unlock()
	var list []*job
	for j := range js.all {
		if of(j) {
			list = append(list, j)
		}
	}
	return list
}

func (js *jobs) drop(j *job) {
	js.mu.Lock()
	defer js.mu.Unlock()
	delete(js.all, j)
}

// Restart is a restart of CNS alone: its running tasks fail. Work that has not begun is done to the given extent, work
// that goes on is finished. Restart returns when all that is over.
func (m *Manager) Restart(extent Extent) {
	m.settleJobs(extent, func(j *job) bool { return j.service == ofCNS }, func(j *job) { m.end(j, nil, m.restarted()) })
}

// Abandon is what a restart of vCenter does to tasks: nobody hears how they end.
func (m *Manager) Abandon(extent Extent) {
	m.settleJobs(extent, func(*job) bool { return true }, func(j *job) { m.jobs.end(j) })
}

// Release lets work begin that a fate holds back, and tells how many pieces there were.
func (m *Manager) Release() int {
	held := m.jobs.list(func(j *job) bool { return j.fate.Hold || j.fate.Late })
	for _, j := range held {
		j.decide(Whole)
	}
	awaitIdle(held)
	return len(held)
}

func (m *Manager) settleJobs(extent Extent, of func(*job) bool, end func(*job)) {
	open := m.jobs.list(of)
	for _, j := range open {
		end(j)
		j.decide(extent)
	}
	awaitIdle(open)
	for _, j := range open {
		m.jobs.drop(j)
	}
}

// awaitIdle waits until nothing works any more, so that whoever asked sees the outcome. Work that itself waits, such as
// for a busy VM, is given up on.
func awaitIdle(list []*job) {
	enough := time.After(10 * time.Second)
	for _, j := range list {
		select {
		case <-j.idle:
		case <-enough:
			return
		}
	}
}

// restarted is the error of a task that CNS forgot.
func (m *Manager) restarted() types.BaseMethodFault {
	const reason = "The CNS service was restarted while the task was running"
	if assume.RestartedTaskFault.In(m.assumed) == "SystemError" {
		return &types.SystemError{Reason: reason}
	}
	return &cnstypes.CnsFault{Reason: reason}
}
