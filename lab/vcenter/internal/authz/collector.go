package authz

import (
	"slices"
	"sync"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// propertyCollector is a session's twin of the PropertyCollector. It lets the stock one read and then removes what the
// user may not see. Waiting is its own: see WaitForUpdatesEx.
type propertyCollector struct {
	simulator.PropertyCollector
	a *Authz

	pageLock sync.Mutex
	pages    map[string]page

	waits waits
}

// page is the rest of a filtered read, waiting for ContinueRetrievePropertiesEx.
type page struct {
	objects []types.ObjectContent
	size    int32
}

func newPropertyCollector(a *Authz, self types.ManagedObjectReference) *propertyCollector {
	c := &propertyCollector{a: a, pages: map[string]page{}}
	c.waits.watch = newWatch()
	c.Self = self
	return c
}

// CreatePropertyCollector makes another filtering collector for the same session.
func (c *propertyCollector) CreatePropertyCollector(ctx *simulator.Context, _ *types.CreatePropertyCollector) soap.HasFault {
	created := newPropertyCollector(c.a, types.ManagedObjectReference{Type: "PropertyCollector"})
	return &methods.CreatePropertyCollectorBody{Res: &types.CreatePropertyCollectorResponse{
		Returnval: ctx.Session.Put(created).Reference(),
	}}
}

func restricted(s *scope) bool { return s != nil && !s.all }

func namedObjects(specs ...types.PropertyFilterSpec) map[types.ManagedObjectReference]bool {
	named := map[types.ManagedObjectReference]bool{}
	for _, spec := range specs {
		for _, o := range spec.ObjectSet {
			named[o.Obj] = true
		}
	}
	return named
}

// RetrievePropertiesEx reads, filters and pages. Pages are cut after filtering, so that they stay full.
func (c *propertyCollector) RetrievePropertiesEx(ctx *simulator.Context, req *types.RetrievePropertiesEx) soap.HasFault {
	s := c.a.sessionScope(ctx)
	whole := *req
	whole.Options.MaxObjects = 0
	body, ok := c.PropertyCollector.RetrievePropertiesEx(ctx, &whole).(*methods.RetrievePropertiesExBody)
	if !ok || body.Res == nil || body.Res.Returnval == nil {
		return body
	}
	objects := c.withoutUnreachable(ctx, body.Res.Returnval.Objects)
	if restricted(s) {
		objects = s.filterContent(objects, namedObjects(req.SpecSet...))
	}
	objects, body.Fault_ = c.noteRead(objects, req.SpecSet)
	if body.Fault_ != nil {
		body.Res = nil
		return body
	}
	objects, token := c.cut(objects, req.Options.MaxObjects)
	body.Res.Returnval = &types.RetrieveResult{Token: token, Objects: objects}
	if len(objects) == 0 {
		body.Res.Returnval = nil
	}
	return body
}

func (c *propertyCollector) cut(objects []types.ObjectContent, size int32) ([]types.ObjectContent, string) {
	if size <= 0 || len(objects) <= int(size) {
		return objects, ""
	}
	token := uuid.NewString()
	c.pageLock.Lock()
	c.pages[token] = page{objects[size:], size}
	c.pageLock.Unlock()
	return objects[:size], token
}

// OpenPages is the number of reads that the client neither finished nor cancelled.
func (c *propertyCollector) OpenPages() int {
	c.pageLock.Lock()
	defer c.pageLock.Unlock()
	return len(c.pages)
}

func (c *propertyCollector) takePage(token string) (page, bool) {
	c.pageLock.Lock()
	defer c.pageLock.Unlock()
	p, ok := c.pages[token]
	delete(c.pages, token)
	return p, ok
}

// ContinueRetrievePropertiesEx hands out the next page.
func (c *propertyCollector) ContinueRetrievePropertiesEx(ctx *simulator.Context, req *types.ContinueRetrievePropertiesEx) soap.HasFault {
	p, ok := c.takePage(req.Token)
	if !ok {
		return c.PropertyCollector.ContinueRetrievePropertiesEx(ctx, req)
	}
	objects, token := c.cut(p.objects, p.size)
	return &methods.ContinueRetrievePropertiesExBody{Res: &types.ContinueRetrievePropertiesExResponse{
		Returnval: types.RetrieveResult{Token: token, Objects: objects},
	}}
}

// CancelRetrievePropertiesEx forgets the pages that are left.
func (c *propertyCollector) CancelRetrievePropertiesEx(req *types.CancelRetrievePropertiesEx) soap.HasFault {
	c.takePage(req.Token)
	return &methods.CancelRetrievePropertiesExBody{Res: &types.CancelRetrievePropertiesExResponse{}}
}

// RetrieveProperties is the older call without pages.
func (c *propertyCollector) RetrieveProperties(ctx *simulator.Context, req *types.RetrieveProperties) soap.HasFault {
	s := c.a.sessionScope(ctx)
	body, ok := c.PropertyCollector.RetrieveProperties(ctx, req).(*methods.RetrievePropertiesBody)
	if !ok || body.Res == nil {
		return body
	}
	body.Res.Returnval = c.withoutUnreachable(ctx, body.Res.Returnval)
	if restricted(s) {
		body.Res.Returnval = s.filterContent(body.Res.Returnval, namedObjects(req.SpecSet...))
	}
	if body.Res.Returnval, body.Fault_ = c.noteRead(body.Res.Returnval, req.SpecSet); body.Fault_ != nil {
		body.Res = nil
	}
	return body
}

// noteRead tells what was read to those who want to know, and leaves out what is gone by now, or fails for it.
func (c *propertyCollector) noteRead(objects []types.ObjectContent, specs []types.PropertyFilterSpec) ([]types.ObjectContent, *soap.Fault) {
	if c.a.cfg.Reads == nil {
		return objects, nil
	}
	guests := slices.ContainsFunc(specs, func(spec types.PropertyFilterSpec) bool { return readsGuest(spec.PropSet) })
	var kept []types.ObjectContent // once one is gone
	for i, o := range objects {
		if c.a.cfg.Reads.Vanishes(o.Obj) {
			if !slices.ContainsFunc(specs, func(spec types.PropertyFilterSpec) bool { return isTrue(spec.ReportMissingObjectsInResults) }) &&
				assume.VanishedObject.In(c.a.cfg.Assumptions) == "fault" {
				return nil, notFound(o.Obj)
			}
			if kept == nil {
				kept = slices.Clone(objects[:i])
			}
			continue
		}
		if guests && o.Obj.Type == "VirtualMachine" {
			c.a.cfg.Reads.GuestRead(o.Obj)
		}
		if kept != nil {
			kept = append(kept, o)
		}
	}
	if kept != nil {
		return kept, nil
	}
	return objects, nil
}

// readsGuest tells whether addresses of guests are among the properties that are asked for.
func readsGuest(specs []types.PropertySpec) bool {
	return slices.ContainsFunc(specs, func(spec types.PropertySpec) bool {
		return isTrue(spec.All) || slices.ContainsFunc(spec.PathSet, ofGuest)
	})
}

func ofGuest(path string) bool {
	return touches(path, "guest.net") || touches(path, "guest.ipAddress") || touches(path, "summary.guest.ipAddress")
}
