package cns

import (
	"fmt"
	"log"
	"runtime/debug"
	"time"

	"github.com/google/uuid"

	"github.com/vmware/govmomi/cns"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// work is what a task does; the fault is the task's own, not that of one volume in its result.
type work func() (types.AnyType, types.BaseMethodFault)

// start runs work as a vim25 task. We do not use simulator.CreateTask: it holds the lock of the task's entity while the
// task runs, which would put all of CNS behind one slow task.
func (m *Manager) start(ctx *simulator.Context, method string, work work) types.ManagedObjectReference {
	entity := cns.CnsVolumeManagerInstance
	task := &simulator.Task{}
	task.Info.Name = method
	task.Info.DescriptionId = "com.vmware.cns.tasks." + method
	task.Info.Entity = &entity
	task.Info.EntityName = entity.Value
	task.Info.State = types.TaskInfoStateQueued
	task.Info.QueueTime = m.now()
	task.Info.Reason = &types.TaskReasonUser{UserName: sessionUser(ctx)}
	task.Info.ActivationId = ctx.Header.ID
	if task.Info.ActivationId == "" {
		task.Info.ActivationId = uuid.NewString()[:8]
	}
	m.vim.Put(task)
	ref := task.Self
	m.update(task, map[string]any{"info.key": ref.Value, "info.task": ref, "info.state": types.TaskInfoStateRunning, "info.startTime": m.now()})
	var fate Fate
	if m.fate != nil {
		fate = m.fate(ctx, method)
	}
	go m.run(task, method, work, fate)
	return ref
}

func (m *Manager) run(task *simulator.Task, method string, work work, fate Fate) {
	if fate.Delay > 0 {
		time.Sleep(fate.Delay)
	}
	if fate.Wait != nil && !fate.Wait(task) {
		return
	}
	var result types.AnyType
	var fault types.BaseMethodFault
	if !fate.SkipWork {
		result, fault = survive(method, work)
	}
	if fate.Hang {
		return
	}
	if fate.Fault != nil {
		result, fault = nil, fate.Fault
	}
	if fate.Result != nil && fault == nil {
		result = fate.Result
	}
	if fate.Blame != nil && fault == nil {
		result = m.blame(result, fate.Blame)
	}
	end := map[string]any{"info.completeTime": m.now(), "info.state": types.TaskInfoStateSuccess}
	if fault != nil {
		end["info.state"] = types.TaskInfoStateError
		end["info.error"] = *localized(fault)
	} else if result != nil {
		end["info.result"] = result
	}
	m.update(task, end)
}

// survive turns a mistake of ours into a fault: one bad request must not end the simulator.
func survive(method string, work work) (result types.AnyType, fault types.BaseMethodFault) {
	defer func() {
		if problem := recover(); problem != nil {
			log.Printf("cns: %s panicked: %v\n%s", method, problem, debug.Stack())
			result, fault = nil, &types.SystemError{Reason: fmt.Sprint(problem)}
		}
	}()
	return work()
}

func (m *Manager) update(task *simulator.Task, values map[string]any) {
	changes := make([]types.PropertyChange, 0, len(values))
	for name, value := range values {
		changes = append(changes, types.PropertyChange{Name: name, Val: value})
	}
	m.vim.AtomicUpdate(m.inventory(), task, changes)
}

func sessionUser(ctx *simulator.Context) string {
	if ctx.Session == nil {
		return ""
	}
	return ctx.Session.UserName
}
