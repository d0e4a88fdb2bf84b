package traffic

import (
	"fmt"
	"log"
	"reflect"
	"runtime"
	"time"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// pendingTask is a rule that waits for the task of the call it matched.
type pendingTask struct {
	rule    *CallRule
	session *simulator.Session // of the request: the simulator makes a new one for each
	this    types.ManagedObjectReference
	since   time.Time
}

// expectTask notes that the next task of this call is the rule's. Calls that fail make no task: what they left is
// dropped after a minute.
func (t *Traffic) expectTask(rule *CallRule, m *simulator.Method, ctx *simulator.Context) {
	now := time.Now()
	kept := t.pending[:0]
	for _, p := range t.pending {
		if now.Sub(p.since) < time.Minute {
			kept = append(kept, p)
		}
	}
	t.pending = append(kept, pendingTask{rule, ctx.Session, m.This, now})
}

// Tasks returns the watcher that changes how tasks end. Put it into the vim25 registry with AddHandler: the registry
// tells it about every new task before the task runs.
func (t *Traffic) Tasks() simulator.RegisterObject { return &taskWatcher{traffic: t} }

type taskWatcher struct{ traffic *Traffic }

func (w *taskWatcher) Reference() types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: "SimulatorTraffic", Value: "tasks"}
}

func (w *taskWatcher) UpdateObject(*simulator.Context, mo.Reference, []types.PropertyChange) {}

func (w *taskWatcher) RemoveObject(*simulator.Context, types.ManagedObjectReference) {}

func (w *taskWatcher) PutObject(_ *simulator.Context, object mo.Reference) {
	task, ok := object.(*simulator.Task)
	if !ok || task.Execute == nil {
		return
	}
	work := survive(task.Execute)
	task.Execute = work
	ctx := contextOf(task)
	rule, stop := w.traffic.claim(task, ctx)
	if rule == nil {
		return
	}
	fault := rule.fault()
	switch rule.At {
	case AtTask:
		task.Execute = func(*simulator.Task) (types.AnyType, types.BaseMethodFault) { return nil, fault }
	case AtTaskDone:
		task.Execute = func(task *simulator.Task) (types.AnyType, types.BaseMethodFault) {
			_, _ = work(task)
			return nil, fault
		}
	case AtResult, AtResultDone:
		task.Execute = func(task *simulator.Task) (types.AnyType, types.BaseMethodFault) {
			if rule.At == AtResultDone {
				_, _ = work(task)
			}
			return VolumeFault(fault), nil
		}
	case AtNever:
		task.Execute = func(task *simulator.Task) (types.AnyType, types.BaseMethodFault) {
			result, err := work(task)
			if ctx == nil {
				return result, err
			}
			hang(ctx, *task.Info.Entity, stop)
			return nil, nil
		}
	}
}

// survive turns a panic of a task into a fault. The library trusts the references in requests, and a wrong one must not
// end the simulator.
func survive(work func(*simulator.Task) (types.AnyType, types.BaseMethodFault)) func(*simulator.Task) (types.AnyType, types.BaseMethodFault) {
	return func(task *simulator.Task) (result types.AnyType, fault types.BaseMethodFault) {
		defer func() {
			if problem := recover(); problem != nil {
				log.Printf("task %s panicked: %v", task.Info.Name, problem)
				result, fault = nil, &types.SystemError{Reason: fmt.Sprint(problem)}
			}
		}()
		return work(task)
	}
}

// claim finds the rule that waits for this task.
func (t *Traffic) claim(task *simulator.Task, ctx *simulator.Context) (*CallRule, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := t.take(func(p pendingTask) bool { return ctx != nil && p.of(ctx) })
	if found == nil {
		found = t.take(func(p pendingTask) bool { return task.Info.Entity != nil && *task.Info.Entity == p.this })
	}
	if found == nil {
		return nil, nil
	}
	return found.rule, t.stop
}

// of tells whether the rule matched the request with this context.
func (p *pendingTask) of(ctx *simulator.Context) bool {
	return p.session != nil && p.session == ctx.Session
}

func (t *Traffic) take(fits func(pendingTask) bool) *pendingTask {
	for i, p := range t.pending {
		if fits(p) {
			t.pending = append(t.pending[:i:i], t.pending[i+1:]...)
			return &p
		}
	}
	return nil
}

// Fate is how a task must end that a rule waits for.
type Fate struct {
	At    string
	Fault types.BaseMethodFault
}

// Claim gives the fate of a request's task, for services whose tasks are their own and not the simulator's.
func (t *Traffic) Claim(ctx *simulator.Context) (Fate, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := t.take(func(p pendingTask) bool { return p.of(ctx) })
	if found == nil {
		return Fate{}, false
	}
	return Fate{found.rule.At, found.rule.fault()}, true
}

// contextOf is the context a task runs in. The simulator does not export it, and nothing else ties a task to the request
// that made it. Reading the pointer is safe: the task is not running yet.
func contextOf(task *simulator.Task) *simulator.Context {
	if ctx := hidden[*simulator.Context](reflect.ValueOf(task).Elem(), "ctx"); ctx != nil {
		return *ctx
	}
	return nil
}

// hang ends the goroutine of a task without ending the task. The simulator holds the entity's lock while a task works
// and would keep it; a task that never ends must not block its entity, so the lock is given back first: once for the
// acquisition made here, once for the simulator's.
func hang(ctx *simulator.Context, entity types.ManagedObjectReference, stop <-chan struct{}) {
	unlock := ctx.Map.AcquireLock(ctx, entity)
	unlock()
	unlock()
	<-stop
	runtime.Goexit()
}

// FailTask lets the task of a call fail without any work.
func (t *Traffic) FailTask(ctx *simulator.Context, m *simulator.Method, fault types.BaseMethodFault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expectTask(&CallRule{At: AtTask, made: fault}, m, ctx)
}

// VolumeFault is the result of a CNS task that succeeded without its volume.
func VolumeFault(fault types.BaseMethodFault) types.AnyType {
	text := Text(fault)
	if _, own := fault.(*cnstypes.CnsFault); own {
		text = "CnsFault error: " + text
	}
	return cnstypes.CnsVolumeOperationBatchResult{VolumeResults: []cnstypes.BaseCnsVolumeOperationResult{
		&cnstypes.CnsVolumeOperationResult{Fault: &types.LocalizedMethodFault{Fault: fault, LocalizedMessage: text}},
	}}
}
