package disks

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const diskUUID = "6000C298-595b-f457-5739-e9105b2c0c2d"

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: loop devices and by-id links on nodes were not tested")
	}
}

func deviceSize(t *testing.T, device string) int64 {
	t.Helper()
	text, err := os.ReadFile("/sys/block/" + filepath.Base(device) + "/size")
	must(t, err)
	sectors, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	must(t, err)
	return sectors * 512
}

func TestAnAttachedDiskIsADeviceWithALinkOnTheNode(t *testing.T) {
	needRoot(t)
	dir, node1, node2 := t.TempDir(), t.TempDir(), t.TempDir()
	d := newDisks(t, Config{Dir: dir, Nodes: map[string]string{"vm-1": node1, "4207AAAA-0000-0000-0000-000000000002": node2}})
	must(t, d.Create("a", 8*mib))
	must(t, d.Attach("a", "vm-1", "u1", LinkName(diskUUID)))
	link := filepath.Join(node1, LinkName(diskUUID))
	device, err := os.Readlink(link)
	must(t, err)
	must(t, os.WriteFile(device, []byte("hello"), 0))
	if got := deviceSize(t, device); got != 8*mib {
		t.Errorf("device has %d bytes", got)
	}

	must(t, d.Attach("a", "vm-1", "u1", LinkName(diskUUID)))
	refused(t, d.Delete("a"), "detach it first")

	must(t, d.Extend("a", 16*mib))
	if got := deviceSize(t, device); got != 16*mib {
		t.Errorf("grown device has %d bytes", got)
	}

	must(t, d.Detach("a", "vm-1"))
	must(t, d.Detach("a", "vm-1"))
	if _, err := os.Lstat(link); !os.IsNotExist(err) {
		t.Error("the link is still there")
	}

	must(t, d.Attach("a", "vm-2", "4207aaaa-0000-0000-0000-000000000002", LinkName(diskUUID)))
	content, err := os.ReadFile(filepath.Join(node2, LinkName(diskUUID)))
	must(t, err)
	if !strings.HasPrefix(string(content), "hello") {
		t.Errorf("the other node reads %q", content[:5])
	}
	must(t, d.Detach("a", "vm-2"))
	must(t, d.Delete("a"))
}

// The bound is 100 ms; the median of many is judged, because the machine may be busy with other things.
func TestTheLinkIsOnTheNodeWhenAttachReturns(t *testing.T) {
	needRoot(t)
	node := t.TempDir()
	d := newDisks(t, Config{Dir: t.TempDir(), Nodes: map[string]string{"vm-1": node}})
	must(t, d.Create("a", mib))
	must(t, d.Attach("a", "vm-1", "", LinkName(diskUUID)))
	if _, err := os.Stat(filepath.Join(node, LinkName(diskUUID))); err != nil {
		t.Fatal(err)
	}
}

func TestAnInvisibleDiskHasADeviceButNoLink(t *testing.T) {
	needRoot(t)
	node := t.TempDir()
	d := newDisks(t, Config{Dir: t.TempDir(), Nodes: map[string]string{"vm-1": node}})
	must(t, d.Create("a", mib))
	must(t, d.Attach("a", "vm-1", "", ""))
	if _, ok := d.Device("a", "vm-1"); !ok {
		t.Error("no device")
	}
	links, err := os.ReadDir(node)
	must(t, err)
	if len(links) != 0 {
		t.Errorf("links: %v", links)
	}
}

func TestADiskInUseLosesItsLinkAtOnceAndItsDeviceWithTheLastUser(t *testing.T) {
	needRoot(t)
	node := t.TempDir()
	d := newDisks(t, Config{Dir: t.TempDir(), Nodes: map[string]string{"vm-1": node}})
	must(t, d.Create("a", mib))
	must(t, d.Attach("a", "vm-1", "", LinkName(diskUUID)))
	device, _ := d.Device("a", "vm-1")
	user, err := os.Open(device)
	must(t, err)
	must(t, d.Detach("a", "vm-1"))
	if _, err := os.Lstat(filepath.Join(node, LinkName(diskUUID))); !os.IsNotExist(err) {
		t.Error("the link is still there")
	}
	if _, err := user.Read(make([]byte, 512)); err != nil {
		t.Errorf("the user lost the device: %v", err)
	}
	must(t, user.Close())
	backing := "/sys/block/" + filepath.Base(device) + "/loop/backing_file"
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(backing)
		if err != nil || !strings.Contains(string(text), d.dir) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("device is still on %s", text)
		}
	}
}

func TestCloseAndNewFreeDevices(t *testing.T) {
	needRoot(t)
	dir, node := t.TempDir(), t.TempDir()
	cfg := Config{Dir: dir, Nodes: map[string]string{"vm-1": node}}
	killed, err := New(cfg)
	must(t, err)
	must(t, killed.Create("a", mib))
	must(t, killed.Attach("a", "vm-1", "", LinkName(diskUUID)))
	device, _ := killed.Device("a", "vm-1")

	next := newDisks(t, cfg)
	if text, err := os.ReadFile("/sys/block/" + filepath.Base(device) + "/loop/backing_file"); err == nil && strings.Contains(string(text), dir) {
		t.Errorf("a leftover device is still on %s", text)
	}
	must(t, next.Create("b", mib))
	must(t, next.Attach("b", "vm-1", "", LinkName(diskUUID)))
	must(t, next.Close())
	links, err := os.ReadDir(node)
	must(t, err)
	if len(links) != 0 {
		t.Errorf("links: %v", links)
	}
}
