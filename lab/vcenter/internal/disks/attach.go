package disks

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const scsiPrefix = "wwn-0x"

// LinkName is the name under which a guest's udev offers a disk: the UUID of its backing without dashes.
func LinkName(diskUUID string) string {
	return scsiPrefix + strings.ToLower(strings.NewReplacer("-", "", " ", "").Replace(diskUUID))
}

// NVMeLinkName is the same for a disk on an NVMe controller. The guest sees the digits in another order there: a
// namespace's identifier has VMware's OUI in the middle, the UUID of a SCSI disk has it near the start.
func NVMeLinkName(diskUUID string) string {
	const prefix = "nvme-eui."
	id, err := hex.DecodeString(strings.TrimPrefix(LinkName(diskUUID), scsiPrefix))
	if err != nil || len(id) != 16 {
		return prefix
	}
	shifted := func(i int) byte { return id[i]<<4 | id[i+1]>>4 }
	head := []byte{shifted(0), shifted(1), shifted(2), id[3]&0xf | id[0]&0xf0}
	return prefix + hex.EncodeToString(slices.Concat(id[8:], head, id[4:8]))
}

// Attach shows a disk to a VM. If the VM, given by managed object id and BIOS UUID, is a lab node, a loop device
// appears there, under the name of the link; an empty one is for a guest that offers none, as without disk.EnableUUID.
func (d *Disks) Attach(volume, vm, biosUUID, link string) error {
	path, err := d.path(volume, "")
	if err != nil {
		return err
	}
	byID, isNode := d.node(vm, biosUUID)
	if !isNode {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	at := place{volume, vm}
	if _, already := d.attached[at]; already {
		return nil
	}
	device, err := newLoop(path)
	if err != nil {
		return fmt.Errorf("attach disk %s to %s: %w", volume, vm, err)
	}
	if link != "" {
		if err := device.link(byID, link); err != nil {
			return fmt.Errorf("attach disk %s to %s: %w", volume, vm, joinFree(err, device))
		}
	}
	d.attached[at] = device
	return nil
}

// Detach takes a disk away from a VM. The link goes first and at once. A device that somebody on the node still has
// open cannot be pulled out of the kernel: losetup marks it to go away with the last user. Until then that
// user still reads and writes the backing file, where a pulled disk would answer with I/O errors.
func (d *Disks) Detach(volume, vm string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := place{volume, vm}
	device, ok := d.attached[at]
	if !ok {
		return nil
	}
	if err := device.free(); err != nil {
		return fmt.Errorf("detach disk %s from %s: %w", volume, vm, err)
	}
	delete(d.attached, at)
	return nil
}

// Device is the device that shows a volume on a node, such as /dev/loop3.
func (d *Disks) Device(volume, vm string) (string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	device, ok := d.attached[place{volume, vm}]
	return device.device, ok
}

// removeStaleLinks removes the links to loop devices in a by-id directory that are not ours; the caller holds mu.
func (d *Disks) removeStaleLinks(byID string) error {
	live := map[string]bool{}
	for _, device := range d.attached {
		live[device.linkPath] = true
	}
	var links []string
	for _, prefix := range []string{LinkName(""), NVMeLinkName("")} {
		found, err := filepath.Glob(filepath.Join(byID, prefix+"*"))
		if err != nil {
			return fmt.Errorf("by-id directory %s: %w", byID, err)
		}
		links = append(links, found...)
	}
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil || live[link] || !strings.HasPrefix(target, "/dev/loop") {
			continue
		}
		if err := os.Remove(link); err != nil {
			return fmt.Errorf("remove stale link: %w", err)
		}
	}
	return nil
}

func (d *Disks) node(vm, biosUUID string) (string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if byID, ok := d.nodes[nodeKey(vm)]; ok {
		return byID, true
	}
	byID, ok := d.nodes[nodeKey(biosUUID)]
	return byID, ok && biosUUID != ""
}

func nodeKey(name string) string { return strings.ToLower(name) }

func (d *Disks) devices(volume string) []loop {
	d.mu.Lock()
	defer d.mu.Unlock()
	var devices []loop
	for at, device := range d.attached {
		if at.volume == volume {
			devices = append(devices, device)
		}
	}
	return devices
}
