// Package disks plays the hypervisor's part: it keeps the content of first class disks and shows attached ones to
// the lab's nodes.
//
// A disk is a sparse file below one configured directory. Attaching it to a VM that is a lab node makes a loop
// device and the link wwn-0x<uuid> in the directory that the node sees as its /dev/disk/by-id, which is all a
// guest's udev would leave there. Attaching to any other VM needs neither root nor a device. Without a directory
// nothing is stored at all, and a disk is just a size in vCenter's books.
package disks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
)

// Config says where content is kept and which VMs are lab nodes.
type Config struct {
	// Dir holds the backing files; it must exist. Empty means that no content is kept.
	Dir string
	// Nodes maps a VM, by managed object id (vm-42) or by BIOS UUID, to the node's by-id directory.
	Nodes map[string]string
}

// Disks is one vCenter's store of disk content. It is safe for concurrent use; operations on one volume must not
// overlap, which CNS sees to.
type Disks struct {
	dir string

	mu       sync.Mutex
	nodes    map[string]string
	files    map[string]struct{}
	attached map[place]loop
}

// place is a volume on one VM.
type place struct{ volume, vm string }

// New prepares the store and frees loop devices that a killed simulator left on files below the directory.
func New(cfg Config) (*Disks, error) {
	d := &Disks{nodes: map[string]string{}, files: map[string]struct{}{}, attached: map[place]loop{}}
	if cfg.Dir != "" {
		dir, err := filepath.Abs(cfg.Dir)
		if err != nil {
			return nil, fmt.Errorf("disk directory %s: %w", cfg.Dir, err)
		}
		if dir, err = filepath.EvalSymlinks(dir); err != nil {
			return nil, fmt.Errorf("disk directory %s: %w; create it first", cfg.Dir, err)
		}
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("disk directory %s is not a directory", cfg.Dir)
		}
		d.dir = dir
		if err := freeLeftovers(dir); err != nil {
			return nil, err
		}
	}
	for vm, byID := range cfg.Nodes {
		if err := d.SetNode(vm, byID); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// SetNode makes a VM, named by managed object id or BIOS UUID, a lab node whose by-id directory is byID.
// It has no effect on disks that are attached already. Links that a killed simulator left are removed: they may lead to a
// device that by now shows another disk.
func (d *Disks) SetNode(vm, byID string) error {
	if d.dir == "" {
		return fmt.Errorf("VM %s cannot be a node: disks for nodes need a directory for their content", vm)
	}
	if info, err := os.Stat(byID); err != nil || !info.IsDir() {
		return fmt.Errorf("by-id directory %s of node %s is not a directory; create it first", byID, vm)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nodes[nodeKey(vm)] = byID
	return d.removeStaleLinks(byID)
}

// Create makes an empty disk of the given size.
func (d *Disks) Create(volume string, bytes int64) error {
	return d.create(volume, bytes, func(file *os.File) error { return nil })
}

// CreateFromSnapshot makes a disk that starts with the content of a snapshot of another.
func (d *Disks) CreateFromSnapshot(volume string, bytes int64, source, snapshot string) error {
	return d.create(volume, bytes, func(file *os.File) error {
		from, err := d.path(source, snapshot)
		if err != nil {
			return err
		}
		return copySparse(file, from)
	})
}

func (d *Disks) create(volume string, bytes int64, fill func(*os.File) error) error {
	path, err := d.path(volume, "")
	if err != nil || path == "" {
		return err
	}
	return d.write(path, bytes, fill)
}

// write makes a new file or leaves nothing behind.
func (d *Disks) write(path string, bytes int64, fill func(*os.File) error) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("create backing file: %w", err)
	}
	err = fill(file)
	if err == nil && bytes >= 0 {
		err = file.Truncate(bytes)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(fmt.Errorf("fill backing file %s: %w", path, err), os.Remove(path))
	}
	d.mu.Lock()
	d.files[path] = struct{}{}
	d.mu.Unlock()
	return nil
}

// Delete removes a disk's content. It refuses while a node has the disk.
func (d *Disks) Delete(volume string) error {
	path, err := d.path(volume, "")
	if err != nil || path == "" {
		return err
	}
	d.mu.Lock()
	for at := range d.attached {
		if at.volume == volume {
			d.mu.Unlock()
			return fmt.Errorf("disk %s is attached to %s; detach it first", volume, at.vm)
		}
	}
	d.mu.Unlock()
	return d.remove(path)
}

func (d *Disks) remove(path string) error {
	d.mu.Lock()
	delete(d.files, path)
	d.mu.Unlock()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove backing file: %w", err)
	}
	return nil
}

// Extend grows a disk, and the devices that show it, to the given size.
func (d *Disks) Extend(volume string, bytes int64) error {
	path, err := d.path(volume, "")
	if err != nil || path == "" {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("extend disk %s: %w", volume, err)
	}
	if bytes < info.Size() {
		return fmt.Errorf("extend disk %s: %d bytes is less than its size %d", volume, bytes, info.Size())
	}
	if err := os.Truncate(path, bytes); err != nil {
		return fmt.Errorf("extend disk %s: %w", volume, err)
	}
	var failed []error
	for _, device := range d.devices(volume) {
		failed = append(failed, device.refreshSize())
	}
	return errors.Join(failed...)
}

// Snapshot keeps a copy of a disk's present content. Of an attached disk it has what the node has written to the
// device, not what its file system still holds in memory, as with a snapshot of a running VM.
func (d *Disks) Snapshot(volume, snapshot string) error {
	from, err := d.path(volume, "")
	if err != nil || from == "" {
		return err
	}
	to, err := d.path(volume, snapshot)
	if err != nil {
		return err
	}
	return d.write(to, -1, func(file *os.File) error { return copySparse(file, from) })
}

// DeleteSnapshot removes a snapshot's copy.
func (d *Disks) DeleteSnapshot(volume, snapshot string) error {
	path, err := d.path(volume, snapshot)
	if err != nil || path == "" {
		return err
	}
	return d.remove(path)
}

// Close frees every loop device, link and backing file this store made.
func (d *Disks) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var failed []error
	for at, device := range d.attached {
		failed = append(failed, device.free())
		delete(d.attached, at)
	}
	for path := range d.files {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			failed = append(failed, fmt.Errorf("remove backing file: %w", err))
		}
		delete(d.files, path)
	}
	return errors.Join(failed...)
}

// fileName keeps ids that clients choose from leaving the directory.
var fileName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_-]*$`)

// path is the backing file of a volume, or of its snapshot; empty when no content is kept.
func (d *Disks) path(volume, snapshot string) (string, error) {
	if d.dir == "" {
		return "", nil
	}
	name := volume + ".img"
	if snapshot != "" {
		name = volume + "." + snapshot + ".snapshot"
	}
	if !fileName.MatchString(volume) || (snapshot != "" && !fileName.MatchString(snapshot)) {
		return "", fmt.Errorf("disk %q snapshot %q: ids may hold letters, digits, - and _ only", volume, snapshot)
	}
	return filepath.Join(d.dir, name), nil
}
