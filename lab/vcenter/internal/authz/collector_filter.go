package authz

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// propertyFilter is one filter of a collector, with what the client knows of its objects.
type propertyFilter struct {
	mo.PropertyFilter
	c     *propertyCollector
	views map[types.ManagedObjectReference]bool // those whose members are selected
	named map[types.ManagedObjectReference]bool // those the specification names
	wide  bool                                  // selects in another way: any change may change what is selected

	// What follows belongs to the wait that goes on.
	resolved bool
	round    int // counts resolutions
	members  map[types.ManagedObjectReference]*member
	todo     []types.ManagedObjectReference // members that may have something to tell, in this order
}

// member is an object that a filter selects, or that left and whose leaving was not told yet.
type member struct {
	selected bool
	told     bool // the client knows it
	queued   bool
	gone     bool // from the inventory; a view may list it still
	round    int  // when it was last found selected
	whole    bool // all properties may have changed
	changed  []string
}

func newPropertyFilter(c *propertyCollector, req *types.CreateFilter) *propertyFilter {
	f := &propertyFilter{c: c, views: map[types.ManagedObjectReference]bool{}, named: namedObjects(req.Spec)}
	f.Self.Type = "PropertyFilter"
	f.Spec, f.PartialUpdates = req.Spec, req.PartialUpdates
	for _, o := range req.Spec.ObjectSet {
		switch {
		case throughView(o.SelectSet):
			f.views[o.Obj] = true
		case len(o.SelectSet) > 0:
			f.wide = true
		}
	}
	f.forget()
	return f
}

func isTrue(b *bool) bool { return b != nil && *b }

// throughView tells whether a selection is the members of a view and nothing else.
func throughView(selection []types.BaseSelectionSpec) bool {
	if len(selection) != 1 {
		return false
	}
	step, ok := selection[0].(*types.TraversalSpec)
	return ok && step.Path == "view" && len(step.SelectSet) == 0 && !isTrue(step.Skip)
}

// forget makes the filter as new, so that everything enters.
func (f *propertyFilter) forget() {
	f.resolved, f.members, f.todo = false, map[types.ManagedObjectReference]*member{}, nil
}

// DestroyPropertyFilter removes the filter.
func (f *propertyFilter) DestroyPropertyFilter(ctx *simulator.Context, _ *types.DestroyPropertyFilter) soap.HasFault {
	f.c.drop(f)
	ctx.Session.Remove(ctx, f.Self)
	return &methods.DestroyPropertyFilterBody{Res: new(types.DestroyPropertyFilterResponse)}
}

func (f *propertyFilter) queue(ref types.ManagedObjectReference, m *member) {
	if !m.queued {
		m.queued = true
		f.todo = append(f.todo, ref)
	}
}

// note takes changes in: it marks members that may have something to tell.
func (f *propertyFilter) note(ctx *simulator.Context, changes []*change) *soap.Fault {
	stale := !f.resolved || f.wide && len(changes) > 0
	for ref := range f.views { // nobody is told when a view is destroyed
		stale = stale || ctx.Session.Get(ref) == nil
	}
	for _, c := range changes {
		stale = f.noteOne(c) || stale
	}
	if !stale {
		return nil
	}
	refs, fault := f.resolve(ctx)
	if fault == nil {
		f.resolved = true
		f.reselect(refs)
	}
	return fault
}

// noteOne tells whether the change may change what is selected.
func (f *propertyFilter) noteOne(c *change) (stale bool) {
	if f.views[c.ref] && slices.Contains(c.paths, "view") {
		stale = true
	}
	m := f.members[c.ref]
	switch {
	case m == nil:
		return stale || c.put && f.named[c.ref]
	case c.gone:
		m.gone, m.selected = true, false
		f.queue(c.ref, m)
		return stale
	case c.put:
		stale = stale || m.gone
		m.gone, m.whole = false, true
		f.queue(c.ref, m)
		return stale
	}
	paths := f.loud(c)
	if slices.ContainsFunc(f.Spec.PropSet, func(spec types.PropertySpec) bool { return len(wanted(spec, paths)) > 0 }) {
		m.changed = append(m.changed, paths...)
		f.queue(c.ref, m)
	}
	return stale
}

// loud are the changed properties of which vCenter tells those who wait.
func (f *propertyFilter) loud(c *change) []string {
	asked := slices.ContainsFunc(c.paths, func(path string) bool {
		return silent(c.ref, path) && slices.ContainsFunc(f.Spec.PropSet, func(spec types.PropertySpec) bool { return len(wanted(spec, []string{path})) > 0 })
	})
	if !asked || !assume.SilentProperties.In(f.c.a.cfg.Assumptions) {
		return c.paths
	}
	return slices.DeleteFunc(slices.Clone(c.paths), func(path string) bool { return silent(c.ref, path) })
}

// silent tells properties of entities for which vCenter may send no updates.
func silent(of types.ManagedObjectReference, path string) bool {
	switch path {
	case "recentTask":
		return of.Type != "TaskManager"
	case "overallStatus", "summary.overallStatus", "configStatus", "configIssue", "triggeredAlarmState":
		return true
	}
	return false
}

// resolve finds what the filter selects now.
func (f *propertyFilter) resolve(ctx *simulator.Context) ([]types.ManagedObjectReference, *soap.Fault) {
	if f.wide {
		return f.traverse(ctx)
	}
	var refs []types.ManagedObjectReference
	for _, o := range f.Spec.ObjectSet {
		object := ctx.Session.Get(o.Obj)
		if object == nil {
			if !f.resolved && !isTrue(f.Spec.ReportMissingObjectsInResults) {
				return nil, notFound(o.Obj)
			}
			continue
		}
		if len(o.SelectSet) == 0 || !isTrue(o.Skip) {
			refs = append(refs, o.Obj)
		}
		if !f.views[o.Obj] {
			continue
		}
		switch view := object.(type) {
		case *simulator.ContainerView:
			ctx.WithLock(view, func() { refs = append(refs, view.View...) })
		case *simulator.ListView:
			ctx.WithLock(view, func() { refs = append(refs, view.View...) })
		}
	}
	return refs, nil
}

// traverse lets the stock collector select, without reading properties.
func (f *propertyFilter) traverse(ctx *simulator.Context) ([]types.ManagedObjectReference, *soap.Fault) {
	spec := f.Spec
	spec.PropSet = nil
	for _, p := range f.Spec.PropSet {
		spec.PropSet = append(spec.PropSet, types.PropertySpec{Type: p.Type})
	}
	if f.resolved {
		spec.ReportMissingObjectsInResults = types.NewBool(true)
	}
	objects, fault := f.c.collect(ctx, spec)
	var refs []types.ManagedObjectReference
	for _, o := range objects {
		refs = append(refs, o.Obj)
	}
	return refs, fault
}

// reselect compares what is selected now with the members.
func (f *propertyFilter) reselect(refs []types.ManagedObjectReference) {
	f.round++
	for _, ref := range refs {
		m := f.members[ref]
		if m == nil {
			m = new(member)
			f.members[ref] = m
		}
		m.round = f.round
		if !m.selected && !m.gone {
			m.selected = true
			f.queue(ref, m)
		}
	}
	for ref, m := range f.members {
		switch {
		case m.round == f.round:
		case m.told:
			m.selected = false
			f.queue(ref, m)
		case !m.queued:
			delete(f.members, ref)
		default:
			m.selected = false
		}
	}
}

// tell gives up to so many updates of objects from the front of the list, those that the user may see.
func (f *propertyFilter) tell(ctx *simulator.Context, s *scope, room int) []types.ObjectUpdate {
	var all []types.ObjectUpdate
	for len(all) < room && len(f.todo) > 0 {
		batch := f.todo[:min(room-len(all), len(f.todo))]
		f.todo = f.todo[len(batch):]
		updates := f.updates(ctx, batch)
		if restricted(s) {
			updates = s.filterUpdates(updates, f.named)
		}
		for _, u := range updates {
			f.members[u.Obj].told = u.Kind != types.ObjectUpdateKindLeave
			f.noteGuest(u)
		}
		for _, ref := range batch {
			if m := f.members[ref]; !m.selected && !m.gone {
				delete(f.members, ref)
			}
		}
		all = append(all, updates...)
	}
	return all
}

// noteGuest says that the client is told what a guest reports.
func (f *propertyFilter) noteGuest(u types.ObjectUpdate) {
	if f.c.a.cfg.Reads == nil || u.Obj.Type != "VirtualMachine" {
		return
	}
	if u.Kind == types.ObjectUpdateKindEnter && readsGuest(f.Spec.PropSet) || u.Kind == types.ObjectUpdateKindModify &&
		slices.ContainsFunc(u.ChangeSet, func(c types.PropertyChange) bool { return ofGuest(c.Name) }) {
		f.c.a.cfg.Reads.GuestRead(u.Obj)
	}
}

// updates says what there is to tell about some members. Changes from here on are noted again.
func (f *propertyFilter) updates(ctx *simulator.Context, refs []types.ManagedObjectReference) []types.ObjectUpdate {
	entering := f.entering(ctx, refs)
	var list []types.ObjectUpdate
	for _, ref := range refs {
		m := f.members[ref]
		update := types.ObjectUpdate{Obj: ref}
		switch {
		case m.selected && !m.told:
			if content, ok := entering[ref]; ok {
				update.Kind = types.ObjectUpdateKindEnter
				update.ChangeSet, update.MissingSet = assign(nil, content), content.MissingSet
			}
		case m.selected:
			update.ChangeSet, update.MissingSet = f.changes(ctx, ref, m)
			if len(update.ChangeSet) > 0 || len(update.MissingSet) > 0 {
				update.Kind = types.ObjectUpdateKindModify
			}
		case m.told:
			update.Kind = types.ObjectUpdateKindLeave
		}
		m.queued, m.whole, m.changed = false, false, nil
		if update.Kind != "" {
			list = append(list, update)
		}
	}
	return list
}

// entering reads those of some members that the client does not know.
func (f *propertyFilter) entering(ctx *simulator.Context, refs []types.ManagedObjectReference) map[types.ManagedObjectReference]types.ObjectContent {
	var unknown []types.ManagedObjectReference
	for _, ref := range refs {
		if m := f.members[ref]; m.selected && !m.told {
			unknown = append(unknown, ref)
		}
	}
	found := map[types.ManagedObjectReference]types.ObjectContent{}
	for _, content := range f.c.values(ctx, f.Spec.PropSet, unknown...) {
		found[content.Obj] = content
	}
	return found
}

// changes reads the changed properties that the client asked for. One that is not set any more has no value, one that
// cannot be read is missing.
func (f *propertyFilter) changes(ctx *simulator.Context, ref types.ManagedObjectReference, m *member) ([]types.PropertyChange, []types.MissingProperty) {
	var list []types.PropertyChange
	var missing []types.MissingProperty
	for _, spec := range f.Spec.PropSet {
		ask := spec
		if !m.whole {
			ask.All, ask.PathSet = nil, wanted(spec, m.changed)
		}
		ask.PathSet = slices.DeleteFunc(slices.Clone(ask.PathSet), func(path string) bool { // the one before had it
			return slices.ContainsFunc(list, func(c types.PropertyChange) bool { return c.Name == path })
		})
		if len(ask.PathSet) == 0 && !isTrue(ask.All) {
			continue
		}
		for _, content := range f.c.values(ctx, []types.PropertySpec{ask}, ref) {
			list, missing = assign(list, content), append(missing, content.MissingSet...)
			for _, path := range ask.PathSet {
				if !has(content, path) {
					list = append(list, types.PropertyChange{Name: path, Op: types.PropertyChangeOpAssign})
				}
			}
		}
	}
	return list, missing
}

// has tells whether a property is among those read, or among those that cannot be.
func has(content types.ObjectContent, path string) bool {
	return slices.ContainsFunc(content.PropSet, func(p types.DynamicProperty) bool { return p.Name == path }) ||
		slices.ContainsFunc(content.MissingSet, func(p types.MissingProperty) bool { return p.Path == path })
}

// assign adds the properties that were read, each once: specifications may ask for the same.
func assign(list []types.PropertyChange, content types.ObjectContent) []types.PropertyChange {
	for _, p := range content.PropSet {
		if !slices.ContainsFunc(list, func(c types.PropertyChange) bool { return c.Name == p.Name }) {
			list = append(list, types.PropertyChange{Name: p.Name, Op: types.PropertyChangeOpAssign, Val: p.Val})
		}
	}
	return list
}

// values reads properties of objects as they are now; objects that are gone are left out.
func (c *propertyCollector) values(ctx *simulator.Context, props []types.PropertySpec, refs ...types.ManagedObjectReference) []types.ObjectContent {
	spec := types.PropertyFilterSpec{PropSet: props, ReportMissingObjectsInResults: types.NewBool(true)}
	for _, ref := range refs {
		spec.ObjectSet = append(spec.ObjectSet, types.ObjectSpec{Obj: ref})
	}
	objects, _ := c.collect(ctx, spec) // fails only when objects are missing and must not be
	return objects
}

func (c *propertyCollector) collect(ctx *simulator.Context, spec types.PropertyFilterSpec) ([]types.ObjectContent, *soap.Fault) {
	req := &types.RetrievePropertiesEx{SpecSet: []types.PropertyFilterSpec{spec}}
	body, ok := c.PropertyCollector.RetrievePropertiesEx(ctx, req).(*methods.RetrievePropertiesExBody)
	if !ok || body.Res == nil || body.Res.Returnval == nil {
		return nil, body.Fault()
	}
	return c.withoutUnreachable(ctx, body.Res.Returnval.Objects), nil
}
