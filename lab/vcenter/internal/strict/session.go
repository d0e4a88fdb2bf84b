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
	open := func(value string) bool {
		return g.hasSession(value) && (g.shutOut == nil || !g.shutOut(r.URL.Path, value))
	}
	if cookie, err := r.Cookie(sessionCookie); err == nil && open(cookie.Value) {
		return true
	}
	if s.headerSession && call.session != "" && open(call.session) {
		return true
	}
	return readsForAll(call.method.Name, body)
}

// propertyRead is what a client reads with a property collector, or by the name of one property.
type propertyRead struct {
	Plain []readSpec `xml:"Body>RetrieveProperties>specSet"`
	Paged []readSpec `xml:"Body>RetrievePropertiesEx>specSet"`
	One   struct {
		Object struct {
			Type string `xml:"type,attr"`
		} `xml:"_this"`
		Property string `xml:"prop"`
	} `xml:"Body>Fetch"`
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

// readsForAll tells the reads that need no session: whether there is one, and what a vCenter has. VMware's Python client reads
// both by name before it logs in.
func readsForAll(method string, body []byte) bool {
	if method != "RetrieveProperties" && method != "RetrievePropertiesEx" && method != "Fetch" {
		return false
	}
	var read propertyRead
	if err := xml.Unmarshal(body, &read); err != nil {
		return false
	}
	switch method + " " + read.One.Object.Type + "." + read.One.Property {
	case "Fetch ServiceInstance.content", "Fetch SessionManager.currentSession":
		return true
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
