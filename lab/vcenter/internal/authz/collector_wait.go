package authz

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

const (
	largestPage = 500 // objects in an answer; more are not given, whatever the client says

	// settle is how long a wait goes on after the first change, so that changes made together are told together.
	settle = 10 * time.Millisecond
)

// waits is the part of a collector that tells changes. The stock collector reads everything again for every change;
// this one notes what changes (watch) and reads only that.
type waits struct {
	watch *watch

	mu        sync.Mutex
	filters   []*propertyFilter
	cancel    context.CancelFunc // ends the newest wait
	listening bool               // the registry tells the watch
	destroyed bool

	// turn is held by the one wait that goes on; what follows belongs to it, as does the state inside the filters.
	turn    sync.Mutex
	version int              // of the last answer
	asked   string           // the version that the client had when it got the last answer
	last    *types.UpdateSet // the last answer, until the client shows that it has it
}

// request is a wait as the client asks for it.
type request struct {
	version string
	once    bool // tell what there is, wait for nothing
	page    int  // most objects in the answer; 0 when the client does not say
}

func (r *request) read(options *types.WaitOptions) (context.Context, context.CancelFunc) {
	if options == nil {
		return context.WithCancel(context.Background())
	}
	if options.MaxObjectUpdates > 0 {
		r.page = min(int(options.MaxObjectUpdates), largestPage)
	}
	if options.MaxWaitSeconds == nil || *options.MaxWaitSeconds <= 0 {
		r.once = options.MaxWaitSeconds != nil && *options.MaxWaitSeconds == 0
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), time.Duration(*options.MaxWaitSeconds)*time.Second)
}

// WaitForUpdatesEx tells what changed after a version, with values as they are now. Without a version everything enters.
// One wait goes on at a time: a newer one ends it.
func (c *propertyCollector) WaitForUpdatesEx(ctx *simulator.Context, req *types.WaitForUpdatesEx) soap.HasFault {
	r := request{version: req.Version}
	wait, cancel := r.read(req.Options)
	defer cancel()
	c.cancelWait(cancel)
	c.waits.turn.Lock()
	defer c.waits.turn.Unlock()
	set, fault := c.wait(ctx, wait, r)
	if fault != nil {
		return &methods.WaitForUpdatesExBody{Fault_: fault}
	}
	return &methods.WaitForUpdatesExBody{Res: &types.WaitForUpdatesExResponse{Returnval: set}}
}

// cancelWait ends the wait that goes on and notes how to end the next one.
func (c *propertyCollector) cancelWait(next context.CancelFunc) {
	c.waits.mu.Lock()
	defer c.waits.mu.Unlock()
	if c.waits.cancel != nil {
		c.waits.cancel()
	}
	c.waits.cancel = next
}

func canceled() *soap.Fault { return simulator.Fault("", new(types.RequestCanceled)) }

func (c *propertyCollector) wait(ctx *simulator.Context, wait context.Context, r request) (*types.UpdateSet, *soap.Fault) {
	w := &c.waits
	if wait.Err() == context.Canceled {
		return nil, canceled()
	}
	owed := false // a truncated answer promises another one
	switch {
	case r.version == "":
		c.startOver(ctx)
	case w.version > 0 && r.version == strconv.Itoa(w.version):
		owed = w.last != nil && w.last.Truncated != nil
		w.last = nil
	case w.last != nil && r.version == w.asked: // the answer was lost on the way
		return w.last, nil
	default:
		return nil, simulator.Fault("", new(types.InvalidCollectorVersion))
	}
	for wait.Err() == nil {
		set, fault := c.next(ctx, r.page)
		if fault != nil {
			return nil, fault
		}
		if len(set.FilterSet) > 0 || owed {
			w.version++
			set.Version = strconv.Itoa(w.version)
			w.asked, w.last = r.version, set
			return set, nil
		}
		if r.once {
			return nil, nil
		}
		select {
		case <-wait.Done():
		case <-w.watch.ended:
			return nil, canceled()
		case <-w.watch.wake:
			select {
			case <-wait.Done():
			case <-time.After(settle):
			}
		}
	}
	if wait.Err() == context.Canceled {
		return nil, canceled()
	}
	return nil, nil
}

// startOver forgets what the client was told. The watch begins before anything is read, so that no change falls between.
func (c *propertyCollector) startOver(ctx *simulator.Context) {
	w := &c.waits
	w.mu.Lock()
	if !w.listening && !w.destroyed {
		ctx.Session.Put(w.watch)
		c.a.vim.AddHandler(w.watch)
		w.listening = true
	}
	w.mu.Unlock()
	w.watch.take()
	for _, f := range c.filters() {
		f.forget()
	}
	w.version++ // what the client has from before is void
	w.last = nil
}

func (c *propertyCollector) filters() []*propertyFilter {
	c.waits.mu.Lock()
	defer c.waits.mu.Unlock()
	return slices.Clone(c.waits.filters)
}

// next is one page of what there is to tell, of vCenter's own size when room is 0.
func (c *propertyCollector) next(ctx *simulator.Context, room int) (*types.UpdateSet, *soap.Fault) {
	changes := c.waits.watch.take()
	filters := c.filters()
	var fault *soap.Fault
	waiting := 0
	for _, f := range filters {
		if problem := f.note(ctx, changes); problem != nil && fault == nil {
			fault = problem // the other filters must hear of the changes all the same
		}
		waiting += len(f.todo)
	}
	set := new(types.UpdateSet)
	if fault != nil || waiting == 0 {
		return set, fault
	}
	if room == 0 {
		if room = 1; waiting > 1 {
			room = assume.UpdatesPerAnswer.In(c.a.cfg.Assumptions)
		}
	}
	s := c.a.sessionScope(ctx)
	for _, f := range filters {
		if updates := f.tell(ctx, s, room); len(updates) > 0 {
			set.FilterSet = append(set.FilterSet, types.PropertyFilterUpdate{Filter: f.Self, ObjectSet: updates})
			room -= len(updates)
		}
		if len(f.todo) > 0 {
			set.Truncated = types.NewBool(true)
		}
	}
	return set, nil
}

// WaitForUpdates is the older call without options.
func (c *propertyCollector) WaitForUpdates(ctx *simulator.Context, req *types.WaitForUpdates) soap.HasFault {
	body, ok := c.WaitForUpdatesEx(ctx, &types.WaitForUpdatesEx{This: req.This, Version: req.Version}).(*methods.WaitForUpdatesExBody)
	if !ok || body.Fault_ != nil || body.Res == nil || body.Res.Returnval == nil {
		return &methods.WaitForUpdatesBody{Fault_: body.Fault_, Res: &types.WaitForUpdatesResponse{}}
	}
	return &methods.WaitForUpdatesBody{Res: &types.WaitForUpdatesResponse{Returnval: *body.Res.Returnval}}
}

// CheckForUpdates is the old form without a wait.
func (c *propertyCollector) CheckForUpdates(ctx *simulator.Context, req *types.CheckForUpdates) soap.HasFault {
	waited := c.WaitForUpdatesEx(ctx, &types.WaitForUpdatesEx{This: req.This, Version: req.Version, Options: &types.WaitOptions{
		MaxWaitSeconds: types.NewInt32(0),
	}}).(*methods.WaitForUpdatesExBody)
	body := &methods.CheckForUpdatesBody{Fault_: waited.Fault_}
	if waited.Fault_ == nil {
		body.Res = &types.CheckForUpdatesResponse{Returnval: waited.Res.Returnval}
	}
	return body
}

// CancelWaitForUpdates ends the wait that goes on with RequestCanceled.
func (c *propertyCollector) CancelWaitForUpdates(*types.CancelWaitForUpdates) soap.HasFault {
	c.cancelWait(nil)
	return &methods.CancelWaitForUpdatesBody{Res: new(types.CancelWaitForUpdatesResponse)}
}

// CreateFilter adds a filter; a wait that goes on tells its objects.
func (c *propertyCollector) CreateFilter(ctx *simulator.Context, req *types.CreateFilter) soap.HasFault {
	f := newPropertyFilter(c, req)
	ref := ctx.Session.Put(f).Reference()
	c.waits.mu.Lock()
	c.waits.filters = append(c.waits.filters, f)
	c.Filter = append(slices.Clone(c.Filter), ref)
	c.waits.mu.Unlock()
	c.waits.watch.signal()
	return &methods.CreateFilterBody{Res: &types.CreateFilterResponse{Returnval: ref}}
}

func (c *propertyCollector) drop(f *propertyFilter) {
	c.waits.mu.Lock()
	defer c.waits.mu.Unlock()
	c.waits.filters = slices.DeleteFunc(c.waits.filters, func(other *propertyFilter) bool { return other == f })
	c.Filter = slices.DeleteFunc(slices.Clone(c.Filter), func(ref types.ManagedObjectReference) bool { return ref == f.Self })
}

// DestroyPropertyCollector ends the wait that goes on and removes the collector with its filters.
func (c *propertyCollector) DestroyPropertyCollector(ctx *simulator.Context, req *types.DestroyPropertyCollector) soap.HasFault {
	c.cancelWait(nil)
	for _, f := range c.filters() {
		f.DestroyPropertyFilter(ctx, nil)
	}
	c.waits.mu.Lock()
	c.waits.destroyed = true
	c.waits.watch.end()
	if c.waits.listening {
		c.a.vim.RemoveHandler(c.waits.watch)
		ctx.Session.Remove(ctx, c.waits.watch.Self)
	}
	c.waits.mu.Unlock()
	ctx.Session.Remove(ctx, req.This)
	return &methods.DestroyPropertyCollectorBody{Res: new(types.DestroyPropertyCollectorResponse)}
}
