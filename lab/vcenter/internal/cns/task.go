package cns

import (
	"fmt"
	"log"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/vmware/govmomi/cns"
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// work is what a task does; the fault is the task's own, not that of one volume in its result.
type work func() (types.AnyType, types.BaseMethodFault)

// start runs work as a vim25 task on the root folder.
func (m *Manager) start(ctx *simulator.Context, method string, work work) types.ManagedObjectReference {
	return m.startOn(ctx, method, m.root, work)
}

// startOn runs work as a vim25 task. We do not use simulator.CreateTask: it holds the lock of the task's entity while the
// task runs, which would put all of CNS behind one slow task.
func (m *Manager) startOn(ctx *simulator.Context, method string, entity types.ManagedObjectReference, work work) types.ManagedObjectReference {
	j := &job{
		method: method, work: work, entity: m.taskEntity(method, entity), user: sessionUser(ctx), service: serviceOf(method),
		decided: make(chan Extent, 1), idle: make(chan struct{}),
	}
	j.task = m.newTask(j, descriptionOf(method))
	if j.service != ofCNS {
		j.task.Info.Name = method
	}
	if id := ctx.Header.ID; id != "" && j.service != ofCNS {
		j.task.Info.ActivationId = id
	}
	m.putTask(j.task)
	if m.fate != nil {
		j.fate = m.fate(ctx, method)
	}
	m.jobs.add(j)
	go m.run(j)
	return j.task.Self
}

// newTask describes a task as CNS does: without a name, and with an id of its own, whatever the client sends.
func (m *Manager) newTask(j *job, description string) *simulator.Task {
	task := &simulator.Task{}
	task.Info.DescriptionId = description
	task.Info.Entity = &j.entity
	task.Info.EntityName = m.nameOf(j.entity)
	task.Info.State = types.TaskInfoStateQueued
	task.Info.QueueTime = m.now()
	task.Info.Reason = &types.TaskReasonUser{UserName: j.user}
	task.Info.ActivationId = uuid.NewString()[:8]
	return task
}

// putTask makes a task known and lets it run. The library adds it to the entity's recent tasks, for which the entity
// must be locked.
func (m *Manager) putTask(task *simulator.Task) {
	if entity, ok := m.vim.Get(*task.Info.Entity).(mo.Entity); ok {
		m.vim.WithLock(m.inventory(), entity, func() { m.vim.Put(task) })
	} else {
		m.vim.Put(task)
	}
	ref := task.Self
	m.update(task, map[string]any{"info.key": ref.Value, "info.task": ref, "info.state": types.TaskInfoStateRunning, "info.startTime": m.now()})
}

// Services whose tasks these are. A restart of CNS ends those of CNS.
const (
	ofCNS  = "cns"
	ofVSLM = "vslm"
	ofVim  = "vim25"
)

func serviceOf(method string) string {
	switch {
	case strings.HasPrefix(method, "Cns"):
		return ofCNS
	case strings.HasPrefix(method, "Vslm"):
		return ofVSLM
	}
	return ofVim
}

// descriptionOf is a task's descriptionId. Those of CNS drop the plural of some methods' names.
func descriptionOf(method string) string {
	switch serviceOf(method) {
	case ofCNS:
		if method == "CnsUpdateVolumeMetadata" {
			return "com.vmware.cns.tasks.updatevolume"
		}
		return "com.vmware.cns.tasks." + strings.TrimSuffix(strings.ToLower(strings.TrimPrefix(method, "Cns")), "s")
	case ofVSLM:
		return "vslm.vcenter.VStorageObjectManager." + lowerFirst(strings.TrimPrefix(method, "Vslm"))
	}
	if method == "AttachDisk_Task" || method == "DetachDisk_Task" {
		return "VirtualMachine." + lowerFirst(method)
	}
	return "vslm.vcenter.VStorageObjectManager." + lowerFirst(strings.TrimPrefix(method, "VStorageObject"))
}

// lowerFirst is the name of a vmodl method, from that of its SOAP method.
func lowerFirst(method string) string {
	name := strings.TrimSuffix(method, "_Task")
	return strings.ToLower(name[:1]) + name[1:]
}

// taskEntity is what a CNS task is said to be about.
func (m *Manager) taskEntity(method string, entity types.ManagedObjectReference) types.ManagedObjectReference {
	if serviceOf(method) != ofCNS {
		return entity
	}
	switch choice := assume.CnsTaskEntity.In(m.assumed); {
	case choice == "manager":
		return cns.CnsVolumeManagerInstance
	case choice == "attach" && method != "CnsAttachVolume":
		return m.root
	}
	return entity
}

func (m *Manager) nameOf(ref types.ManagedObjectReference) (name string) {
	entity, ok := m.vim.Get(ref).(mo.Entity)
	if !ok {
		return ref.Value
	}
	m.vim.WithLock(m.inventory(), entity, func() { name = entity.Entity().Name })
	return name
}

func (m *Manager) run(j *job) {
	defer m.jobs.leave(j)
	if j.fate.Late {
		m.end(j, j.fate.Result, j.fate.Fault)
	}
	extent, goOn := j.await()
	if !goOn {
		return
	}
	result, fault := m.perform(j, extent)
	switch {
	case j.fate.Hang:
		return
	case j.fate.Gone:
		m.vanish(j)
		return
	}
	if j.fate.Fault != nil {
		result, fault = nil, j.fate.Fault
	}
	if j.fate.Result != nil && fault == nil {
		result = j.fate.Result
	}
	if j.fate.Blame != nil && fault == nil {
		result = m.blame(result, j.fate.Blame)
	}
	m.end(j, result, fault)
}

// end writes how a task ended, unless something else ended it before.
func (m *Manager) end(j *job, result types.AnyType, fault types.BaseMethodFault) {
	if m.jobs.end(j) {
		m.conclude(j.task, result, fault)
	}
}

func (m *Manager) conclude(task *simulator.Task, result types.AnyType, fault types.BaseMethodFault) {
	end := map[string]any{"info.completeTime": m.now(), "info.state": types.TaskInfoStateSuccess}
	if fault != nil {
		end["info.state"] = types.TaskInfoStateError
		end["info.error"] = *localized(fault)
	} else if result != nil {
		end["info.result"] = result
	}
	m.update(task, end)
}

// vanish takes a task away that did its work. Only its record then tells how it ended.
func (m *Manager) vanish(j *job) {
	if m.jobs.end(j) {
		m.vim.Remove(m.inventory(), j.task.Self)
		m.conclude(j.task, nil, nil)
	}
}

// perform does as much of the work as it is let.
func (m *Manager) perform(j *job, extent Extent) (types.AnyType, types.BaseMethodFault) {
	switch {
	case extent == None:
		return nil, nil
	case extent == Half:
		before := m.recallAll()
		result, fault := m.below(j)
		m.undoRecords(before, succeeded(result))
		return result, fault
	case m.lags(j.method):
		before := m.recallAll()
		result, fault := m.below(j)
		m.shadeQueries(before, succeeded(result))
		return result, fault
	}
	return m.below(j)
}

// underlying are the tasks by which CNS has its work done.
var underlying = map[string]string{
	"CnsAttachVolume": "VirtualMachine.attachDisk",
	"CnsDetachVolume": "VirtualMachine.detachDisk",
	"CnsExtendVolume": "vslm.vcenter.VStorageObjectManager.extendDisk",
}

// below does the work of a task, with the second task that vCenter shows for it.
func (m *Manager) below(j *job) (types.AnyType, types.BaseMethodFault) {
	description, ok := underlying[j.method]
	if !ok {
		return survive(j.method, j.work)
	}
	task := m.newTask(j, description)
	m.putTask(task)
	result, fault := survive(j.method, j.work)
	below := fault
	if below == nil {
		below = failure(result)
	}
	m.conclude(task, nil, below)
	return result, fault
}

// failure is the first fault of a volume in a result, without what CNS wraps around it.
func failure(result types.AnyType) types.BaseMethodFault {
	if all, ok := result.(*cnstypes.CnsVolumeOperationBatchResult); ok {
		for _, one := range all.VolumeResults {
			if fault := one.GetCnsVolumeOperationResult().Fault; fault != nil {
				return cause(fault.Fault)
			}
		}
	}
	return nil
}

// succeeded are the volumes of a result that have no fault.
func succeeded(result types.AnyType) []string {
	var ids []string
	if all, ok := result.(*cnstypes.CnsVolumeOperationBatchResult); ok {
		for _, one := range all.VolumeResults {
			if base := one.GetCnsVolumeOperationResult(); base.Fault == nil {
				ids = append(ids, base.VolumeId.Id)
			}
		}
	}
	return ids
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

// await waits as long as the fate wants, and tells how much of the work is then done; false says that nobody is there to do
// it any more.
func (j *job) await() (extent Extent, goOn bool) {
	usual := Whole
	switch {
	case j.fate.SkipWork:
		usual = None
	case j.fate.Half:
		usual = Half
	}
	passed := make(chan bool, 1)
	switch {
	case j.fate.Hold || j.fate.Late: // never by itself
	case j.fate.Delay > 0 || j.fate.Wait != nil:
		go func() {
			time.Sleep(j.fate.Delay)
			passed <- j.fate.Wait == nil || j.fate.Wait(j.task)
		}()
	default:
		return usual, true
	}
	select {
	case decided := <-j.decided:
		return decided, true
	case goOn := <-passed:
		return usual, goOn
	}
}
