package authz

import (
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/types"
)

// viewable lists the properties that System.View is enough for; all others of entities need System.Read.
// The facts are those of pyVmomi's type tables.
var viewable = map[string][]string{
	"ManagedEntity": {"parent", "customValue", "effectiveRole", "name", "declaredAlarmState", "triggeredAlarmState", "tag",
		"value", "availableField"},
	"Folder":                 {"childType", "childEntity", "namespace"},
	"StoragePod":             {"childType", "childEntity", "namespace", "summary"},
	"Datacenter":             {"vmFolder", "hostFolder", "datastoreFolder", "networkFolder", "configuration"},
	"ComputeResource":        {"resourcePool", "host", "datastore", "network", "environmentBrowser", "lifecycleManaged"},
	"ClusterComputeResource": {"resourcePool", "host", "datastore", "network", "environmentBrowser", "lifecycleManaged"},
	"HostSystem":             {"datastore", "network", "datastoreBrowser"},
	"ResourcePool":           {"owner", "resourcePool", "vm", "namespace"},
	"VirtualApp":             {"owner", "resourcePool", "vm", "namespace", "parentFolder", "datastore", "network"},
	"VirtualMachine":         {"datastore", "network"},
}

// guarded lists the properties of objects outside the inventory that need more than a session.
var guarded = map[string]string{
	"SessionManager.sessionList":    "Sessions.TerminateSession",
	"ServiceManager.service":        "Global.ServiceManagers",
	"CustomizationSpecManager.info": "VirtualMachine.Provisioning.ReadCustSpecs",
}

func propertyPrivilege(kind, path string) string {
	head := path
	if i := strings.IndexAny(path, ".["); i >= 0 {
		head = path[:i]
	}
	if privilege, ok := guarded[kind+"."+head]; ok {
		return privilege
	}
	if slices.Contains(viewable["ManagedEntity"], head) || slices.Contains(viewable[kind], head) {
		return privView
	}
	return privRead
}

func missing(object types.ManagedObjectReference, path, privilege string) types.MissingProperty {
	return types.MissingProperty{Path: path, Fault: types.LocalizedMethodFault{
		Fault:            noPermission(object, privilege),
		LocalizedMessage: "Permission to perform this operation was denied.",
	}}
}

// filterContent leaves of a read object what the user may read. Objects the user cannot see are dropped when a
// traversal led to them; named in the request they stay, with every property reported missing.
func (s *scope) filterContent(objects []types.ObjectContent, named map[types.ManagedObjectReference]bool) []types.ObjectContent {
	var kept []types.ObjectContent
	for _, o := range objects {
		if !s.allows(o.Obj, privView) && !named[o.Obj] {
			continue
		}
		var readable []types.DynamicProperty
		for _, p := range o.PropSet {
			if privilege := propertyPrivilege(o.Obj.Type, p.Name); !s.allows(o.Obj, privilege) {
				o.MissingSet = append(o.MissingSet, missing(o.Obj, p.Name, privilege))
				continue
			}
			p.Val = s.filterValue(o.Obj, p.Name, p.Val)
			readable = append(readable, p)
		}
		o.PropSet = readable
		kept = append(kept, o)
	}
	return kept
}

// filterUpdates does the same for one filter's share of an update.
func (s *scope) filterUpdates(updates []types.ObjectUpdate, named map[types.ManagedObjectReference]bool) []types.ObjectUpdate {
	var kept []types.ObjectUpdate
	for _, u := range updates {
		if u.Kind == types.ObjectUpdateKindLeave {
			kept = append(kept, u)
			continue
		}
		if !s.allows(u.Obj, privView) && !named[u.Obj] {
			continue
		}
		unreadable := len(u.MissingSet) > 0 // by anybody
		var readable []types.PropertyChange
		for _, c := range u.ChangeSet {
			if privilege := propertyPrivilege(u.Obj.Type, c.Name); !s.allows(u.Obj, privilege) {
				u.MissingSet = append(u.MissingSet, missing(u.Obj, c.Name, privilege))
				continue
			}
			c.Val = s.filterValue(u.Obj, c.Name, c.Val)
			readable = append(readable, c)
		}
		u.ChangeSet = readable
		if u.Kind == types.ObjectUpdateKindModify && len(u.ChangeSet) == 0 && !unreadable {
			continue
		}
		kept = append(kept, u)
	}
	return kept
}

// filterValue takes invisible objects out of lists of references, such as a folder's children or a view's members.
func (s *scope) filterValue(object types.ManagedObjectReference, path string, value types.AnyType) types.AnyType {
	if path == "effectiveRole" {
		return types.ArrayOfInt{Int: s.effective(object)}
	}
	switch list := value.(type) {
	case types.ArrayOfManagedObjectReference:
		return types.ArrayOfManagedObjectReference{ManagedObjectReference: s.seen(list.ManagedObjectReference)}
	case *types.ArrayOfManagedObjectReference:
		return &types.ArrayOfManagedObjectReference{ManagedObjectReference: s.seen(list.ManagedObjectReference)}
	}
	return value
}

func (s *scope) seen(refs []types.ManagedObjectReference) []types.ManagedObjectReference {
	var kept []types.ManagedObjectReference
	for _, ref := range refs {
		if s.allows(ref, privView) {
			kept = append(kept, ref)
		}
	}
	return kept
}
