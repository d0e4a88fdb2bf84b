package disks

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const mib = 1 << 20

func newDisks(t *testing.T, cfg Config) *Disks {
	t.Helper()
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, err error, part string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Fatalf("error %v does not say %q", err, part)
	}
}

func TestWithoutADirectoryNothingIsStored(t *testing.T) {
	d := newDisks(t, Config{})
	must(t, d.Create("a", mib))
	must(t, d.Snapshot("a", "s"))
	must(t, d.CreateFromSnapshot("b", mib, "a", "s"))
	must(t, d.Extend("a", 2*mib))
	must(t, d.Attach("a", "vm-1", "u", LinkName("6000c29")))
	must(t, d.Detach("a", "vm-1"))
	must(t, d.DeleteSnapshot("a", "s"))
	must(t, d.Delete("a"))
	refused(t, d.SetNode("vm-1", t.TempDir()), "directory")
}

func TestADiskIsASparseFileOfItsSize(t *testing.T) {
	dir := t.TempDir()
	d := newDisks(t, Config{Dir: dir})
	must(t, d.Create("a", 1<<40))
	info, err := os.Stat(filepath.Join(dir, "a.img"))
	must(t, err)
	if info.Size() != 1<<40 {
		t.Errorf("size is %d", info.Size())
	}
	if used := info.Sys().(*syscall.Stat_t).Blocks * 512; used > mib {
		t.Errorf("an empty disk takes %d bytes", used)
	}
	refused(t, d.Create("a", mib), "exists")
	refused(t, d.Extend("a", mib), "less than its size")
	must(t, d.Extend("a", 2<<40))
	must(t, d.Delete("a"))
	if _, err := os.Stat(filepath.Join(dir, "a.img")); !os.IsNotExist(err) {
		t.Error("the file is still there")
	}
	must(t, d.Delete("a"))
}

func TestARestoredDiskHasTheSnapshotsContentAndNotLaterWrites(t *testing.T) {
	dir := t.TempDir()
	d := newDisks(t, Config{Dir: dir})
	must(t, d.Create("a", 64*mib))
	write := func(name string, at int64, text string) {
		file, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0)
		must(t, err)
		defer file.Close()
		_, err = file.WriteAt([]byte(text), at)
		must(t, err)
	}
	read := func(name string, at int64, length int) string {
		file, err := os.Open(filepath.Join(dir, name))
		must(t, err)
		defer file.Close()
		content := make([]byte, length)
		_, err = file.ReadAt(content, at)
		must(t, err)
		return string(content)
	}
	write("a.img", 40*mib+7, "before")
	must(t, d.Snapshot("a", "s1"))
	write("a.img", 40*mib+7, "after!")
	must(t, d.CreateFromSnapshot("b", 96*mib, "a", "s1"))
	if got := read("b.img", 40*mib+7, 6); got != "before" {
		t.Errorf("restored disk has %q", got)
	}
	if got := read("b.img", 0, 4); !bytes.Equal([]byte(got), make([]byte, 4)) {
		t.Errorf("a hole became %q", got)
	}
	info, err := os.Stat(filepath.Join(dir, "b.img"))
	must(t, err)
	if used := info.Sys().(*syscall.Stat_t).Blocks * 512; info.Size() != 96*mib || used > mib {
		t.Errorf("size %d, used %d", info.Size(), used)
	}
	must(t, d.DeleteSnapshot("a", "s1"))
	refused(t, d.CreateFromSnapshot("c", mib, "a", "s1"), "no such file")
	if _, err := os.Stat(filepath.Join(dir, "c.img")); !os.IsNotExist(err) {
		t.Error("a failed restore left a file")
	}
}

func TestIdsCannotLeaveTheDirectory(t *testing.T) {
	d := newDisks(t, Config{Dir: t.TempDir()})
	for _, id := range []string{"../a", "a/b", "", ".", "..", "a.b", "-rf", "a\x00b", "a b"} {
		refused(t, d.Create(id, mib), "letters")
	}
	refused(t, d.Snapshot("a", "../b"), "letters")
}

func TestCloseRemovesEveryFile(t *testing.T) {
	dir := t.TempDir()
	d, err := New(Config{Dir: dir})
	must(t, err)
	must(t, d.Create("a", mib))
	must(t, d.Snapshot("a", "s"))
	must(t, d.Close())
	left, err := os.ReadDir(dir)
	must(t, err)
	if len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestWrongConfigurationIsRefused(t *testing.T) {
	_, err := New(Config{Dir: filepath.Join(t.TempDir(), "missing")})
	refused(t, err, "create it first")
	_, err = New(Config{Nodes: map[string]string{"vm-1": t.TempDir()}})
	refused(t, err, "need a directory")
	_, err = New(Config{Dir: t.TempDir(), Nodes: map[string]string{"vm-1": "missing"}})
	refused(t, err, "not a directory")
}

func TestLinksOfAKilledSimulatorAreRemoved(t *testing.T) {
	node := t.TempDir()
	for name, target := range map[string]string{"wwn-0x6000c29a": "/dev/loop7", "wwn-0x5000": "/dev/sda", "other": "/dev/loop7"} {
		must(t, os.Symlink(target, filepath.Join(node, name)))
	}
	newDisks(t, Config{Dir: t.TempDir(), Nodes: map[string]string{"vm-1": node}})
	left, err := os.ReadDir(node)
	must(t, err)
	if len(left) != 2 || left[0].Name() != "other" || left[1].Name() != "wwn-0x5000" {
		t.Errorf("left: %v", left)
	}
}

func TestLinkNamesAreLowerCaseWithoutDashes(t *testing.T) {
	if got := LinkName("6000C298-595b-f457-5739-e9105b2c0c2d"); got != "wwn-0x6000c298595bf4575739e9105b2c0c2d" {
		t.Error(got)
	}
}

func TestAnNVMeLinkHasVMwaresOUIInTheMiddle(t *testing.T) {
	if got := NVMeLinkName("6000C298-595b-f457-5739-e9105b2c0c2d"); got != "nvme-eui.5739e9105b2c0c2d000c2968595bf457" {
		t.Error(got)
	}
}
