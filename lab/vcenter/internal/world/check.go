package world

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/simulator/esx"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
	"vsphere-drivers.example/lab/vcenter/internal/latency"
	"vsphere-drivers.example/lab/vcenter/internal/profile"
)

// checker looks for everything in a description that vCenter could not hold.
type checker struct {
	*source
	world *World
	paths map[string]string // inventory path -> vSphere type
	roles []string
	uuids map[string]string // VM UUID -> field that has it
}

var (
	datastoreTypes  = []string{"VMFS", "vSAN", "NFS", "NFS41", "VVOL"}
	powerStates     = []string{"on", "off", "suspended"}
	hostStates      = []string{"connected", "disconnected", "notResponding"}
	cardinalities   = []string{"single", "multiple"}
	folderKinds     = []string{"vm", "host", "datastore", "network"}
	hardwareVersion = regexp.MustCompile(`^vmx-\d{2}$`)
)

// builtIn gives the names of vCenter's own roles and every privilege it knows: those of its Admin role.
func builtIn() (roles, privileges []string) {
	for _, role := range esx.RoleList {
		roles = append(roles, role.Name)
		if role.Name == "Admin" {
			privileges = role.Privilege
		}
	}
	return roles, privileges
}

// defaultNetwork is the network that vCenter's hosts have before anybody configures one.
const defaultNetwork = "VM Network"

func (c *checker) check() {
	w := c.world
	c.paths = w.Paths()
	c.uuids = map[string]string{}
	if w.Release != "" {
		if _, err := profile.Lookup(w.Release); err != nil {
			c.complain("release", "%s", err)
		}
	}
	c.uuid("instance_uuid", w.InstanceUUID)
	for name, value := range w.Assumptions {
		if err := assume.Check(name, value); err != nil {
			c.complain("assumptions."+name, "%s", err)
		}
	}
	if _, err := latency.Lookup(w.Latency); err != nil {
		c.complain("latency", "%s", err)
	}
	if len(w.Datacenters) == 0 && w.Generate.VMs == 0 {
		c.complain("datacenters", "is missing; a vCenter needs at least one datacenter")
	}
	c.unique("datacenters", len(w.Datacenters), func(i int) string { return w.Datacenters[i].Path() })
	for i := range w.Datacenters {
		c.datacenter(fmt.Sprintf("datacenters[%d]", i), &w.Datacenters[i])
	}
	c.access()
	c.categories()
	c.policies()
	for _, number := range []struct {
		field string
		value int
	}{{"vms", w.Generate.VMs}, {"vms_per_host", w.Generate.VMsPerHost}, {"vms_per_datastore", w.Generate.VMsPerStore}} {
		if number.value < 0 {
			c.complain("generate."+number.field, "must not be negative")
		}
	}
}

func (c *checker) access() {
	w := c.world
	own, privileges := builtIn()
	c.roles = slices.Clone(own)
	c.unique("roles", len(w.Roles), func(i int) string { return w.Roles[i].Name })
	for i, role := range w.Roles {
		if slices.Contains(own, role.Name) {
			c.complain(fmt.Sprintf("roles[%d].name", i), "%q is built in and cannot be described again", role.Name)
		}
		c.roles = append(c.roles, role.Name)
		for j, privilege := range role.Privileges {
			c.oneOf(fmt.Sprintf("roles[%d].privileges[%d]", i, j), privilege, privileges)
		}
	}
	c.unique("users", len(w.Users), func(i int) string { return strings.ToLower(w.Users[i].Name) })
	for i, user := range w.Users {
		field := fmt.Sprintf("users[%d]", i)
		if name, domain, ok := strings.Cut(user.Name, "@"); !ok || name == "" || domain == "" {
			c.complain(field+".name", "%q must have the form name@domain, such as csi@vsphere.local", user.Name)
		}
		if user.Password == "" {
			c.complain(field+".password", "is missing; vCenter has no users without password")
		}
		for j, permission := range user.Permissions {
			at := fmt.Sprintf("%s.permissions[%d]", field, j)
			if permission.Role == "View" || permission.Role == "Anonymous" {
				c.complain(at+".role", "vCenter has the role %s but does not let it be granted", permission.Role)
			} else {
				c.oneOf(at+".role", permission.Role, c.roles)
			}
			c.object(at+".on", permission.On, "")
		}
	}
}

func (c *checker) categories() {
	categories := c.world.Categories
	c.unique("categories", len(categories), func(i int) string { return categories[i].Name })
	for i, category := range categories {
		field := fmt.Sprintf("categories[%d]", i)
		if category.Cardinality != "" {
			c.oneOf(field+".cardinality", category.Cardinality, cardinalities)
		}
		c.unique(field+".tags", len(category.Tags), func(i int) string { return category.Tags[i].Name })
		carriers := map[string]string{}
		for j, tag := range category.Tags {
			for k, path := range tag.On {
				at := fmt.Sprintf("%s.tags[%d].on[%d]", field, j, k)
				kind, ok := c.object(at, path, "")
				if ok && len(category.Types) > 0 && !slices.Contains(category.Types, kind) {
					c.complain(at, "%s is a %s; the category allows %s", path, kind, strings.Join(category.Types, ", "))
				}
				if other, taken := carriers[path]; taken && category.Cardinality == "single" {
					c.complain(at, "%s has tag %q of this category already, and the cardinality is single", path, other)
				}
				carriers[path] = tag.Name
			}
		}
	}
}

func (c *checker) policies() {
	policies := c.world.Policies
	c.unique("policies", len(policies), func(i int) string { return policies[i].Name })
	for i, policy := range policies {
		field := fmt.Sprintf("policies[%d]", i)
		c.uuid(field+".id", policy.ID)
		for j, path := range policy.Datastores {
			c.object(fmt.Sprintf("%s.datastores[%d]", field, j), path, "Datastore")
		}
	}
}

// object checks that the inventory has something at path, of the given type unless that is empty.
func (c *checker) object(field, path, kind string) (string, bool) {
	if path == "" {
		c.complain(field, "is missing; give an inventory path such as /dc-1/datastore/shared-1")
		return "", false
	}
	clean := "/" + strings.Join(splitPath(path), "/")
	found, ok := c.paths[clean]
	if !ok {
		known := make([]string, 0, len(c.paths))
		for candidate, k := range c.paths {
			if kind == "" || k == kind {
				known = append(known, candidate)
			}
		}
		hint := suggestion(clean, known)
		if !strings.Contains(hint, "did you mean") {
			hint = "; give an inventory path such as /dc-1/datastore/shared-1"
		}
		c.complain(field, "there is nothing at %s%s", path, hint)
		return "", false
	}
	if kind != "" && found != kind {
		c.complain(field, "%s is a %s, not a %s", path, found, kind)
		return found, false
	}
	return found, true
}

func (c *checker) unique(field string, count int, name func(int) string) {
	seen := map[string]int{}
	for i := range count {
		at := fmt.Sprintf("%s[%d].name", field, i)
		switch first, twice := seen[name(i)]; {
		case name(i) == "" || strings.HasSuffix(name(i), "/"):
			c.complain(at, "is missing")
		case twice:
			c.complain(at, "%q is taken by %s[%d]", name(i), field, first)
		default:
			seen[name(i)] = i
		}
	}
}

func (c *checker) oneOf(field, value string, known []string) {
	if value == "" {
		c.complain(field, "is missing; known are %s", strings.Join(known, ", "))
	} else if !slices.Contains(known, value) {
		hint := suggestion(value, known)
		if len(known) > 20 && !strings.Contains(hint, "did you mean") {
			hint = ""
		}
		c.complain(field, "%q is unknown%s", value, hint)
	}
}

// reference checks the name of something in the same datacenter; what says what kind of thing it is.
func (c *checker) reference(field, value, what string, known []string) {
	if value == "" || slices.Contains(known, value) {
		return
	}
	sort.Strings(known)
	if len(known) == 0 {
		c.complain(field, "there is no %s %q in this datacenter; it has none", what, value)
		return
	}
	c.complain(field, "there is no %s %q in this datacenter%s", what, value, suggestion(value, known))
}

func (c *checker) uuid(field, value string) {
	if value == "" {
		return
	}
	if _, err := uuid.Parse(value); err != nil || len(value) != 36 {
		c.complain(field, "%q is no UUID; it must look like 4230b1a0-5eed-4000-8000-000000000001", value)
	}
}

func validAddress(text string) bool {
	if _, err := netip.ParsePrefix(text); err == nil {
		return true
	}
	_, err := netip.ParseAddr(text)
	return err == nil
}

func validMAC(text string) bool {
	address, err := net.ParseMAC(text)
	return err == nil && len(address) == 6
}
