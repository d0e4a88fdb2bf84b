package cns

import (
	"context"
	"regexp"
	"slices"
	"testing"
	"time"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/profile"
)

func (l *lab) taskInfo(task *object.Task) types.TaskInfo {
	l.Helper()
	var got mo.Task
	l.must(property.DefaultCollector(l.vim.Client).RetrieveOne(l.ctx, task.Reference(), []string{"info"}, &got))
	return got.Info
}

func TestATaskTellsItsNameUserAndOperation(t *testing.T) {
	l := newLab(t, options{})
	task, err := l.create(l.blockSpec("a", 1024))
	l.result(task, err)
	info := l.taskInfo(task)
	reason, _ := info.Reason.(*types.TaskReasonUser)
	if info.Key != task.Reference().Value || info.Task != task.Reference() || info.ActivationId == "" || reason == nil || reason.UserName != "user" {
		t.Errorf("task %+v", info)
	}
	if info.StartTime == nil || info.CompleteTime == nil || info.State != types.TaskInfoStateSuccess {
		t.Errorf("task %+v", info)
	}
}

func TestTheEntityOfATaskIsTheVMOrTheRootFolder(t *testing.T) {
	l := newLab(t, options{})
	root := l.vim.ServiceContent.RootFolder
	about := func(entity types.ManagedObjectReference, name, description string, task *object.Task, err error) cnstypes.BaseCnsVolumeOperationResult {
		l.Helper()
		result := l.result(task, err)
		info := l.taskInfo(task)
		if *info.Entity != entity || info.EntityName != name || info.DescriptionId != "com.vmware.cns.tasks."+description {
			l.Errorf("task of %v called %q, %s; want %v, %q, %s", info.Entity, info.EntityName, info.DescriptionId, entity, name, description)
		}
		if info.Name != "" || info.Description != nil || info.Cancelable || !regexp.MustCompile("^[0-9a-f]{8}$").MatchString(info.ActivationId) {
			l.Errorf("task %+v", info)
		}
		return result
	}
	vm, machine := l.vms[0], l.manager.nameOf(l.vms[0])
	l.ctx = context.WithValue(l.ctx, types.ID{}, "an id of the client's")
	task, err := l.create(l.blockSpec("a", 1024))
	id := about(root, "Datacenters", "createvolume", task, err).GetCnsVolumeOperationResult().VolumeId.Id
	task, err = l.attach(id, vm)
	about(vm, machine, "attachvolume", task, err)
	task, err = l.detach(id, vm)
	about(vm, machine, "detachvolume", task, err)
	task, err = l.extend(id, 2048)
	about(root, "Datacenters", "extendvolume", task, err)
	task, err = l.snapshot(id, "s")
	about(root, "Datacenters", "createsnapshot", task, err)
	task, err = l.cns.UpdateVolumeMetadata(l.ctx, []cnstypes.CnsVolumeMetadataUpdateSpec{{
		VolumeId: cnstypes.CnsVolumeId{Id: id}, Metadata: cnstypes.CnsVolumeMetadata{
			ContainerCluster: cluster("c1"), ContainerClusterArray: []cnstypes.CnsContainerCluster{cluster("c1")},
			EntityMetadata: []cnstypes.BaseCnsEntityMetadata{pv("pv-a", "c1", "app", "db")},
		},
	}})
	about(root, "Datacenters", "updatevolume", task, err)
}

func TestTheWorkOfAnAttachIsASecondTask(t *testing.T) {
	l := newLab(t, options{})
	id := l.newVolume("a")
	tasks := func() (seen []string) {
		for _, ref := range l.model.Map().AllReference("Task") {
			if info := l.taskInfo(object.NewTask(l.vim.Client, ref.Reference())); *info.Entity == l.vms[0] {
				seen = append(seen, info.DescriptionId+" "+string(info.State))
			}
		}
		slices.Sort(seen)
		return seen
	}
	before := tasks()
	l.result(l.attach(id, l.vms[0]))
	want := append(before, "VirtualMachine.attachDisk success", "com.vmware.cns.tasks.attachvolume success")
	slices.Sort(want)
	if got := tasks(); !slices.Equal(got, want) {
		t.Errorf("tasks %v, want %v", got, want)
	}
	task, err := l.attach(id, l.vms[1])
	l.wantVolumeFault(&types.ResourceInUse{}, task, err)
	for _, ref := range l.model.Map().AllReference("Task") {
		info := l.taskInfo(object.NewTask(l.vim.Client, ref.Reference()))
		if *info.Entity == l.vms[1] && info.DescriptionId == "VirtualMachine.attachDisk" && info.State != types.TaskInfoStateError {
			t.Errorf("the second task of a failed attach ended with %s", info.State)
		}
	}
}

func TestAFateChangesATasksEnd(t *testing.T) {
	fates := map[string]Fate{}
	l := newLab(t, options{config: func(c *Config) { c.Fate = func(_ *simulator.Context, method string) Fate { return fates[method] } }})
	fates["CnsCreateVolume"] = Fate{Fault: &types.TaskInProgress{}, Delay: time.Millisecond}
	task, err := l.create(l.blockSpec("done all the same", 1))
	l.wantTaskFault(&types.TaskInProgress{}, task, err)
	if got := l.manager.Volumes(); len(got) != 1 {
		t.Errorf("volumes %v", got)
	}
	fates["CnsCreateVolume"] = Fate{Fault: &types.TaskInProgress{}, SkipWork: true}
	task, err = l.create(l.blockSpec("not done", 1))
	l.wantTaskFault(&types.TaskInProgress{}, task, err)
	if got := l.manager.Volumes(); len(got) != 1 {
		t.Errorf("volumes %v", got)
	}
	fates["CnsCreateVolume"] = Fate{SkipWork: true, Result: batch(failed("", &types.TaskInProgress{}))}
	task, err = l.create(l.blockSpec("failed inside", 1))
	l.wantVolumeFault(&types.TaskInProgress{}, task, err)
	fates["CnsCreateVolume"] = Fate{Hang: true}
	task, err = l.create(l.blockSpec("never ends", 1))
	l.must(err)
	for deadline := time.Now().Add(time.Minute); len(l.manager.Volumes()) != 2 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if state := l.taskInfo(task).State; state != types.TaskInfoStateRunning {
		t.Errorf("the hanging task is %s", state)
	}
	delete(fates, "CnsCreateVolume")
	l.newVolume("others go on")
}

func TestAPanicIsAFault(t *testing.T) {
	_, fault := survive("Test", func() (types.AnyType, types.BaseMethodFault) { panic("oops") })
	if system, ok := fault.(*types.SystemError); !ok || system.Reason != "oops" {
		t.Errorf("fault %+v", fault)
	}
}

func TestCNSNeedsALoginAndAKnownObject(t *testing.T) {
	l := newLab(t, options{})
	l.must(l.vim.Logout(l.ctx))
	_, err := l.cns.QueryVolume(l.ctx, &cnstypes.CnsQueryFilter{})
	l.wantCallFault(&types.NotAuthenticated{}, nil, err)
}

func TestInstallWantsAReleaseAndAVCenter(t *testing.T) {
	model := simulator.ESX()
	if err := model.Create(); err != nil {
		t.Fatal(err)
	}
	defer model.Remove()
	if _, err := Install(model.Service, model.Map(), Config{}); err == nil {
		t.Error("no release is accepted")
	}
	if _, err := Install(model.Service, model.Map(), Config{Profile: profile.All[0]}); err == nil {
		t.Error("a host is accepted")
	}
}

func TestTheDumpShowsVolumesAndAttachments(t *testing.T) {
	l := newLab(t, options{})
	id := l.newVolume("a")
	l.newSnapshot(id)
	l.result(l.attach(id, l.vms[0]))
	volumes, attachments := l.manager.Volumes(), l.manager.Attachments()
	if len(volumes) != 1 || volumes[0].Name != "a" || len(volumes[0].Snapshots) != 1 || volumes[0].VMs[0] != l.vms[0].Value || volumes[0].Clusters[0] != "c1" {
		t.Errorf("volumes %+v", volumes)
	}
	if at, ok := l.manager.VolumeDatastore(id); !ok || at.Value != volumes[0].Datastore {
		t.Errorf("the volume is on %v", at)
	}
	if _, ok := l.manager.VolumeDatastore("nope"); ok {
		t.Error("an unknown volume is somewhere")
	}
	if len(attachments) != 1 || attachments[0].Volume != id || attachments[0].DiskUUID != volumes[0].DiskUUID {
		t.Errorf("attachments %+v", attachments)
	}
}
