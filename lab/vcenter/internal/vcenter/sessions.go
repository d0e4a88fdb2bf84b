package vcenter

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/cns"
)

// noteSession remembers what belongs to a session: the simulator itself forgets it when a session is ended by others.
func (v *VCenter) noteSession(ctx *simulator.Context) {
	if ctx.Session == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sessions[ctx.Session.Key] = ctx.Session.Registry
}

// ownContext is a context for our own work on the registry. Each piece of work needs its own: locks belong to contexts.
func (v *VCenter) ownContext() *simulator.Context {
	return &simulator.Context{
		Context: context.Background(),
		Session: &simulator.Session{Registry: simulator.NewRegistry(), Map: v.Vim},
		Map:     v.Vim,
	}
}

// Sessions are the open SOAP sessions, oldest first.
func (v *VCenter) Sessions() []types.UserSession {
	ctx := v.ownContext()
	manager, ok := ctx.Session.Get(v.Vim.SessionManager().Self).(*simulator.SessionManager)
	if !ok {
		return nil
	}
	list := manager.SessionList
	sort.Slice(list, func(i, j int) bool { return list[i].LoginTime.Before(list[j].LoginTime) })
	return list
}

// Objects are what a session made and did not destroy: views, collectors, filters, and reads that were not finished.
type Objects struct {
	ContainerViews     int `json:"container_views"`
	ListViews          int `json:"list_views"`
	PropertyCollectors int `json:"property_collectors"` // without the one that every session has
	PropertyFilters    int `json:"property_filters"`
	HistoryCollectors  int `json:"history_collectors"`
	OpenPages          int `json:"open_pages"`
}

// Made counts the objects of a SOAP session.
func (v *VCenter) Made(key string) Objects {
	v.mu.Lock()
	made := v.sessions[key]
	v.mu.Unlock()
	var count Objects
	if made == nil {
		return count
	}
	for _, object := range made.AllReference("") {
		if reader, ok := object.(interface{ OpenPages() int }); ok {
			count.OpenPages += reader.OpenPages()
		}
		switch ref := object.Reference(); ref.Type {
		case "ContainerView":
			count.ContainerViews++
		case "ListView":
			count.ListViews++
		case "PropertyFilter":
			count.PropertyFilters++
		case "TaskHistoryCollector", "EventHistoryCollector":
			count.HistoryCollectors++
		case "PropertyCollector":
			if ref != v.propertyCollector() {
				count.PropertyCollectors++
			}
		}
	}
	return count
}

func (v *VCenter) propertyCollector() types.ManagedObjectReference {
	if instance, ok := v.Vim.Get(vim25.ServiceInstance).(*simulator.ServiceInstance); ok {
		return instance.Content.PropertyCollector
	}
	return types.ManagedObjectReference{}
}

// hasSession tells whether a session with this key is open.
func (v *VCenter) hasSession(key string) bool {
	for _, session := range v.Sessions() {
		if session.Key == key {
			return true
		}
	}
	return false
}

// ExpireSession ends one session, SOAP or REST, with its collectors and views.
func (v *VCenter) ExpireSession(key string) error {
	if v.services.rest.Expire(key) {
		return nil
	}
	ctx := v.ownContext()
	answer := v.Vim.SessionManager().TerminateSession(ctx, &types.TerminateSession{SessionId: []string{key}})
	if answer.Fault() != nil {
		return fmt.Errorf("there is no session %q", key)
	}
	v.mu.Lock()
	made := v.sessions[key]
	delete(v.sessions, key)
	v.mu.Unlock()
	if made != nil {
		v.forget(made)
	}
	return nil
}

// ExpireAll ends every session and tells how many there were.
func (v *VCenter) ExpireAll() int {
	ended := 0
	for _, session := range v.Sessions() {
		if v.ExpireSession(session.Key) == nil {
			ended++
		}
	}
	return ended + v.services.expireAll()
}

// forget cancels the waits of a session's collectors and takes its filters and views off the registry's list of those
// who are told about changes.
func (v *VCenter) forget(made *simulator.Registry) {
	for _, object := range made.AllReference("") {
		if collector, ok := object.(interface {
			CancelWaitForUpdates(*types.CancelWaitForUpdates) soap.HasFault
		}); ok {
			collector.CancelWaitForUpdates(&types.CancelWaitForUpdates{This: object.Reference()})
		}
		if watcher, ok := object.(simulator.RegisterObject); ok {
			v.Vim.RemoveHandler(watcher)
		}
	}
}

// cancelWaits lets every client's wait end.
func (v *VCenter) cancelWaits() {
	v.mu.Lock()
	made := v.sessions
	v.sessions = map[string]*simulator.Registry{}
	v.mu.Unlock()
	for _, registry := range made {
		v.forget(registry)
	}
}

// Restart is RestartDoing with all work done.
func (v *VCenter) Restart(down time.Duration) { v.RestartDoing(down, cns.Whole) }

// RestartDoing does what a restart of vCenter does to clients: connections break, sessions with their views and filters are
// gone, and so are all tasks, also those that were running. Inventory, volumes, users and the port stay. For the given
// time every request is answered with 503. Work of CNS that has not begun is done to the given extent.
func (v *VCenter) RestartDoing(down time.Duration, extent cns.Extent) {
	v.services.cns.Abandon(extent) // first: the end of all waits would let the work begin
	v.Traffic.Interrupt(down)
	v.Latency.Forget()
	v.ExpireAll()
	v.cancelWaits()
	v.Inventory.ForgetTasks()
	v.dropConnections()
}
