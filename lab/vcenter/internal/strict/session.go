package strict

import (
	"encoding/xml"
	"net/http"
	"slices"

	"github.com/vmware/govmomi/vim25/types"
)

// rootFolder is the object that vCenter names when a call on none of the inventory lacks a session.
var rootFolder = types.ManagedObjectReference{Type: "Folder", Value: "group-d1"}

// entities are the kinds of objects that have permissions of their own.
var entities = []string{
	"ClusterComputeResource", "ComputeResource", "Datacenter", "Datastore", "DistributedVirtualPortgroup", "DistributedVirtualSwitch",
	"Folder", "HostSystem", "Network", "OpaqueNetwork", "ResourcePool", "StoragePod", "VirtualApp", "VirtualMachine",
	"VmwareDistributedVirtualSwitch",
}

// unauthenticated is the fault of a call without a login. The vSAN endpoint has the bare type for its text.
func (s *service) unauthenticated(this types.ManagedObjectReference) *refusal {
	if !slices.Contains(entities, this.Type) {
		this = rootFolder
	}
	refused := notAuthenticated(this)
	if s.bareFaults {
		refused.text = "NotAuthenticated"
	}
	return refused
}

// admits tells whether a call has the session it needs.
func (g *gate) admits(s *service, r *http.Request, call *call, body []byte) bool {
	if g.hasSession == nil || !s.sessions || !needsSession(g.table, call.method.Name) {
		return true
	}
	open := func(key string) bool { return g.hasSession(key) && (g.shutOut == nil || !g.shutOut(r.URL.Path, key)) }
	if cookie, err := r.Cookie(sessionCookie); err == nil && open(cookie.Value) {
		return true
	}
	if s.headerSession && call.session != "" && open(call.session) {
		return true
	}
	return readsCurrentSession(call.method.Name, body)
}

// propertyRead is what a client reads with a property collector.
type propertyRead struct {
	Plain []readSpec `xml:"Body>RetrieveProperties>specSet"`
	Paged []readSpec `xml:"Body>RetrievePropertiesEx>specSet"`
}

type readSpec struct {
	Properties []struct {
		All   bool     `xml:"all"`
		Paths []string `xml:"pathSet"`
	} `xml:"propSet"`
	Objects []struct {
		Object struct {
			Type string `xml:"type,attr"`
		} `xml:"obj"`
	} `xml:"objectSet"`
}

// readsCurrentSession tells the one read that needs no session: whether there is one.
func readsCurrentSession(method string, body []byte) bool {
	if method != "RetrieveProperties" && method != "RetrievePropertiesEx" {
		return false
	}
	var read propertyRead
	if err := xml.Unmarshal(body, &read); err != nil {
		return false
	}
	specs := append(read.Plain, read.Paged...)
	for _, spec := range specs {
		for _, p := range spec.Properties {
			if p.All || !slices.Equal(p.Paths, []string{"currentSession"}) {
				return false
			}
		}
		for _, o := range spec.Objects {
			if o.Object.Type != "SessionManager" {
				return false
			}
		}
	}
	return len(specs) > 0
}
