package authz

import (
	"slices"
	"strings"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// watch notes which objects change between two answers of a collector. The registry tells it under the locks of the
// objects, so it keeps names only; values are read later.
//
// It lives in the session's registry beside its collector: what ends a session takes the objects found there off the
// list of those who are told. The collector itself cannot be on that list, because the default collectors of all
// sessions have the same reference and the list would keep only one of them.
type watch struct {
	mo.PropertyCollector

	wake  chan struct{} // has room for one
	ended chan struct{} // closed when the session ends

	mu    sync.Mutex
	noted map[types.ManagedObjectReference]*change
	order []*change
	over  bool
}

// change is what happened to one object since the last answer.
type change struct {
	ref   types.ManagedObjectReference
	paths []string
	put   bool // it came into the inventory, maybe again
	gone  bool
}

func newWatch() *watch {
	w := &watch{
		wake: make(chan struct{}, 1), ended: make(chan struct{}), noted: map[types.ManagedObjectReference]*change{},
	}
	w.Self.Type = "PropertyCollectorWatch"
	return w
}

// signal lets the pending wait look again.
func (w *watch) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watch) note(ref types.ManagedObjectReference, happened func(*change)) {
	w.mu.Lock()
	c := w.noted[ref]
	if c == nil {
		c = &change{ref: ref}
		w.noted[ref] = c
		w.order = append(w.order, c)
	}
	happened(c)
	w.mu.Unlock()
	w.signal()
}

// take hands over what was noted, in the order in which the objects first changed.
func (w *watch) take() []*change {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.order
	if len(taken) > 0 {
		w.order, w.noted = nil, map[types.ManagedObjectReference]*change{}
	}
	return taken
}

// PutObject notes an object that comes into the inventory.
func (w *watch) PutObject(_ *simulator.Context, object mo.Reference) {
	w.note(object.Reference(), func(c *change) { c.put, c.gone = true, false })
}

// UpdateObject notes changed properties.
func (w *watch) UpdateObject(_ *simulator.Context, object mo.Reference, changes []types.PropertyChange) {
	w.note(object.Reference(), func(c *change) {
		for _, changed := range changes {
			if !slices.Contains(c.paths, changed.Name) {
				c.paths = append(c.paths, changed.Name)
			}
		}
	})
}

// RemoveObject notes an object that leaves the inventory, before it is gone. A logout removes the watch itself.
func (w *watch) RemoveObject(_ *simulator.Context, ref types.ManagedObjectReference) {
	if ref == w.Self {
		w.end()
		return
	}
	w.note(ref, func(c *change) { c.put, c.gone = false, true })
}

// CancelWaitForUpdates is what the end of a session from outside calls on everything that can wait.
func (w *watch) CancelWaitForUpdates(*types.CancelWaitForUpdates) soap.HasFault {
	w.end()
	return &methods.CancelWaitForUpdatesBody{Res: new(types.CancelWaitForUpdatesResponse)}
}

// end lets the pending wait and all later ones end.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.over = true
		close(w.ended)
	}
}

// touches tells whether a change of one property may change another: they are the same, or one is part of the other.
func touches(changed, wanted string) bool {
	return changed == wanted || partOf(changed, wanted) || partOf(wanted, changed)
}

func partOf(path, whole string) bool {
	rest, ok := strings.CutPrefix(path, whole)
	return ok && rest != "" && (rest[0] == '.' || rest[0] == '[')
}

// wanted lists the paths of a specification that changes touch. Who asks for everything gets whole properties.
func wanted(spec types.PropertySpec, changed []string) []string {
	var paths []string
	for _, name := range changed {
		if isTrue(spec.All) {
			paths = append(paths, name[:len(name)-len(strings.TrimLeftFunc(name, inName))])
			continue
		}
		for _, path := range spec.PathSet {
			if touches(name, path) {
				paths = append(paths, path)
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

func inName(r rune) bool { return r != '.' && r != '[' }
