package cns

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/disks"
)

func enableUUIDs(r *simulator.Registry) {
	for _, ref := range r.AllReference("VirtualMachine") {
		vm := ref.(*simulator.VirtualMachine)
		vm.Config.ExtraConfig = append(vm.Config.ExtraConfig, &types.OptionValue{Key: "disk.EnableUUID", Value: "TRUE"})
	}
}

// contentLab is a lab whose first two VMs are nodes with the given by-id directories.
func contentLab(t *testing.T, nodes bool, inventory func(*simulator.Registry)) (l *lab, dir string, byID [2]string) {
	t.Helper()
	dir = t.TempDir()
	byID = [2]string{t.TempDir(), t.TempDir()}
	store, err := disks.New(disks.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	l = newLab(t, options{inventory: inventory, config: func(c *Config) { c.Disks = store }})
	if nodes {
		l.must(store.SetNode(l.vms[0].Value, byID[0]))
		second := l.model.Map().Get(l.vms[1]).(*simulator.VirtualMachine)
		l.must(store.SetNode(second.Config.Uuid, byID[1]))
	}
	return l, dir, byID
}

func TestContentFollowsTheVolume(t *testing.T) {
	l, dir, _ := contentLab(t, false, nil)
	id := l.result(l.create(l.blockSpec("a", 4))).GetCnsVolumeOperationResult().VolumeId.Id
	write := func(text string) {
		file, err := os.OpenFile(filepath.Join(dir, id+".img"), os.O_WRONLY, 0)
		l.must(err)
		defer file.Close()
		_, err = file.WriteString(text)
		l.must(err)
	}
	write("precious")
	snapshot := l.newSnapshot(id)
	write("spoiled!")
	restored := l.result(l.create(restoreSpec(l, id, snapshot, 4))).GetCnsVolumeOperationResult().VolumeId.Id
	content, err := os.ReadFile(filepath.Join(dir, restored+".img"))
	l.must(err)
	if !strings.HasPrefix(string(content), "precious") || len(content) != 4<<20 {
		t.Errorf("restored %q of %d bytes", content[:8], len(content))
	}
	l.result(l.attach(restored, l.vms[0])) // not a node: nothing to show, no root
	l.result(l.extend(restored, 8))
	if info, err := os.Stat(filepath.Join(dir, restored+".img")); err != nil || info.Size() != 8<<20 {
		t.Errorf("extended file: %v %v", info, err)
	}
	l.result(l.detach(restored, l.vms[0]))
	l.result(l.delete(restored))
	l.result(l.cns.DeleteSnapshots(l.ctx, l.deleteSnapshot(id, snapshot)))
	l.result(l.delete(id))
	left, err := os.ReadDir(dir)
	l.must(err)
	if len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// brokenDisks fails every operation that is named.
type brokenDisks struct{ fails map[string]bool }

func (b brokenDisks) try(name string) error {
	if b.fails[name] {
		return errors.New(name + " is broken")
	}
	return nil
}

func (b brokenDisks) Create(string, int64) error                             { return b.try("create") }
func (b brokenDisks) CreateFromSnapshot(string, int64, string, string) error { return b.try("restore") }
func (b brokenDisks) Delete(string) error                                    { return b.try("delete") }
func (b brokenDisks) Extend(string, int64) error                             { return b.try("extend") }
func (b brokenDisks) Snapshot(string, string) error                          { return b.try("snapshot") }
func (b brokenDisks) DeleteSnapshot(string, string) error                    { return b.try("delete snapshot") }
func (b brokenDisks) Attach(string, string, string, string) error            { return b.try("attach") }
func (b brokenDisks) Detach(string, string) error                            { return b.try("detach") }

func TestAFailureBelowLeavesNoTrace(t *testing.T) {
	broken := brokenDisks{fails: map[string]bool{}}
	l := newLab(t, options{config: func(c *Config) { c.Disks = broken }})
	id := l.volumeOn(l.datastores[0])
	snapshot := l.newSnapshot(id)
	only := l.blockSpec("b", 1024)
	only.Datastores = l.datastores[:1]
	cases := map[string]func() (*object.Task, error){
		"create":          func() (*object.Task, error) { return l.create(only) },
		"restore":         func() (*object.Task, error) { return l.create(restoreSpec(l, id, snapshot, 1024)) },
		"snapshot":        func() (*object.Task, error) { return l.snapshot(id, "") },
		"delete snapshot": func() (*object.Task, error) { return l.cns.DeleteSnapshots(l.ctx, l.deleteSnapshot(id, snapshot)) },
		"attach":          func() (*object.Task, error) { return l.attach(id, l.vms[0]) },
	}
	for name, call := range cases {
		broken.fails[name] = true
		task, err := call()
		l.wantVolumeFault(&cnstypes.CnsFault{}, task, err)
		delete(broken.fails, name)
	}
	if got := l.free(l.datastores[0]); got != 99*gib {
		t.Errorf("%d bytes are free", got)
	}
	if l.diskOf(l.vms[0], id) != nil || len(l.snapshotIDs(id)) != 1 || len(l.manager.Volumes()) != 1 {
		t.Error("a failed operation left something behind")
	}
	l.result(l.attach(id, l.vms[0]))
}

func needNodes(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: disks on nodes (loop devices, file systems) were not tested")
	}
}

func (l *lab) run(name string, arguments ...string) {
	l.Helper()
	if out, err := exec.Command(name, arguments...).CombinedOutput(); err != nil {
		l.Fatalf("%s %v: %v\n%s", name, arguments, err, out)
	}
}

func TestADiskCanBeFormattedGrownAndReadOnAnotherNode(t *testing.T) {
	needNodes(t)
	l, _, byID := contentLab(t, true, enableUUIDs)
	id := l.result(l.create(l.blockSpec("a", 64))).GetCnsVolumeOperationResult().VolumeId.Id
	began := time.Now()
	diskUUID := l.result(l.attach(id, l.vms[0])).(*cnstypes.CnsVolumeAttachResult).DiskUUID
	link := filepath.Join(byID[0], disks.LinkName(diskUUID))
	if _, err := os.Stat(link); err != nil {
		t.Fatalf("%v after the attach took %v", err, time.Since(began))
	}
	mounted := t.TempDir()
	t.Cleanup(func() { _ = syscall.Unmount(mounted, syscall.MNT_DETACH) }) // after a failure
	mount := func(link string) func() {
		device, err := filepath.EvalSymlinks(link)
		l.must(err)
		l.must(syscall.Mount(device, mounted, "ext4", 0, ""))
		return func() { l.must(syscall.Unmount(mounted, 0)) }
	}
	l.run("mkfs.ext4", "-q", link)
	unmount := mount(link)
	l.must(os.WriteFile(filepath.Join(mounted, "hello"), []byte("world"), 0o600))
	l.result(l.extend(id, 128)) // while it is mounted
	unmount()
	l.run("e2fsck", "-f", "-p", link) // a mounted one can only be grown with rights that not every root has
	l.run("resize2fs", link)
	unmount = mount(link)
	var space syscall.Statfs_t
	l.must(syscall.Statfs(mounted, &space))
	if size := int64(space.Blocks) * space.Bsize; size < 100<<20 {
		t.Errorf("the file system has %d bytes", size)
	}
	unmount()
	l.result(l.detach(id, l.vms[0]))
	if _, err := os.Lstat(link); !os.IsNotExist(err) {
		t.Error("the link is still on the first node")
	}
	l.result(l.attach(id, l.vms[1]))
	unmount = mount(filepath.Join(byID[1], disks.LinkName(diskUUID)))
	content, err := os.ReadFile(filepath.Join(mounted, "hello"))
	l.must(err)
	unmount()
	if string(content) != "world" {
		t.Errorf("the second node reads %q", content)
	}
}

func TestWithoutEnableUUIDTheNodeSeesNoLink(t *testing.T) {
	needNodes(t)
	l, _, byID := contentLab(t, true, nil)
	id := l.newVolume("a")
	l.result(l.attach(id, l.vms[0]))
	links, err := os.ReadDir(byID[0])
	l.must(err)
	if len(links) != 0 {
		t.Errorf("links %v", links)
	}
}

func TestTheDiskLeavesANodeThatIsDestroyed(t *testing.T) {
	needNodes(t)
	l, _, byID := contentLab(t, true, enableUUIDs)
	id := l.newVolume("a")
	l.result(l.attach(id, l.vms[0]))
	vm := object.NewVirtualMachine(l.vim.Client, l.vms[0])
	task, err := vm.PowerOff(l.ctx)
	l.must(err)
	l.must(task.Wait(l.ctx))
	task, err = vm.Destroy(l.ctx)
	l.must(err)
	l.must(task.Wait(l.ctx))
	links, err := os.ReadDir(byID[0])
	l.must(err)
	if len(links) != 0 {
		t.Errorf("links %v", links)
	}
	l.result(l.attach(id, l.vms[1]))
}
