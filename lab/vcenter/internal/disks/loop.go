package disks

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// loop is a loop device and, when the node may see it, the link to it.
type loop struct {
	device   string
	linkPath string
}

func newLoop(path string) (loop, error) {
	if os.Geteuid() != 0 {
		return loop{}, fmt.Errorf("loop device for %s: needs root; run the simulator as root or without nodes", path)
	}
	out, err := losetup("--find", "--show", path)
	if err != nil {
		return loop{}, err
	}
	return loop{device: out}, nil
}

// link makes the link appear whole: a reader never sees a name without its target.
func (l *loop) link(byID, name string) error {
	path := filepath.Join(byID, name)
	temporary := filepath.Join(byID, "."+name+".new")
	if err := os.Remove(temporary); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("link %s: %w", path, err)
	}
	if err := os.Symlink(l.device, temporary); err != nil {
		return fmt.Errorf("link %s: %w", path, err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("link %s: %w", path, err)
	}
	l.linkPath = path
	return nil
}

func (l loop) refreshSize() error {
	_, err := losetup("--set-capacity", l.device)
	return err
}

func (l loop) free() error {
	if l.linkPath != "" {
		if err := os.Remove(l.linkPath); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove link: %w", err)
		}
	}
	_, err := losetup("--detach", l.device)
	return err
}

func joinFree(err error, l loop) error { return errors.Join(err, l.free()) }

// freeLeftovers detaches loop devices on files below dir. The kernel names the files of all loop devices in sysfs,
// so this needs no record of the run that made them.
func freeLeftovers(dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	backings, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return fmt.Errorf("list loop devices: %w", err)
	}
	var failed []error
	for _, backing := range backings {
		content, err := os.ReadFile(backing)
		if err != nil {
			continue // freed by somebody else in between
		}
		file := strings.TrimSuffix(strings.TrimSpace(string(content)), " (deleted)")
		if !strings.HasPrefix(file, dir+string(filepath.Separator)) {
			continue
		}
		device := "/dev/" + strings.Split(backing, "/")[3]
		_, err = losetup("--detach", device)
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

func losetup(arguments ...string) (string, error) {
	command := exec.Command("losetup", arguments...)
	var problem strings.Builder
	command.Stderr = &problem
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("losetup %s: %w: %s", strings.Join(arguments, " "), err, strings.TrimSpace(problem.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
