package directory

import (
	"fmt"
	"sort"
)

type group struct {
	id          Principal
	description string
	members     map[Principal]bool // keys of users and groups
}

func newGroup(id Principal, description string) *group {
	return &group{id: id, description: description, members: map[Principal]bool{}}
}

// GroupEntry is a group as front ends show it.
type GroupEntry struct {
	ID          Principal
	Description string
}

// CreateGroup adds an empty group to the system domain.
func (d *Directory) CreateGroup(name, description string) error {
	id := Principal{name, d.domain}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.groups[id.key()] != nil || d.people[id.key()] != nil {
		return fmt.Errorf("group %s: %w", id, ErrExists)
	}
	d.groups[id.key()] = newGroup(id, description)
	return nil
}

// DescribeGroup replaces a group's description.
func (d *Directory) DescribeGroup(name, description string) error {
	id := d.Parse(name)
	d.mu.Lock()
	defer d.mu.Unlock()
	g := d.groups[id.key()]
	if g == nil {
		return fmt.Errorf("group %s: %w", id, ErrNotFound)
	}
	g.description = description
	return nil
}

// FindGroup returns a group.
func (d *Directory) FindGroup(id Principal) (GroupEntry, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	g := d.groups[id.key()]
	if g == nil {
		return GroupEntry{}, false
	}
	return GroupEntry{g.id, g.description}, true
}

// Groups lists the groups whose name contains search, in the given domain when it is not empty.
func (d *Directory) Groups(domain, search string) []GroupEntry {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var found []GroupEntry
	for _, g := range d.groups {
		if matches(g.id, domain, search) {
			found = append(found, GroupEntry{g.id, g.description})
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].ID.String() < found[j].ID.String() })
	return found
}

// AddMember puts a user or group into a group; false means it was in already.
func (d *Directory) AddMember(groupName string, member Principal) (bool, error) {
	id := d.Parse(groupName)
	d.mu.Lock()
	defer d.mu.Unlock()
	g := d.groups[id.key()]
	if g == nil {
		return false, fmt.Errorf("group %s: %w", id, ErrNotFound)
	}
	if d.people[member.key()] == nil && d.groups[member.key()] == nil {
		return false, fmt.Errorf("%s: %w", member, ErrNotFound)
	}
	added := !g.members[member.key()]
	g.members[member.key()] = true
	return added, nil
}

// RemoveMember takes a user or group out of a group; false means it was not in.
func (d *Directory) RemoveMember(groupName string, member Principal) (bool, error) {
	id := d.Parse(groupName)
	d.mu.Lock()
	defer d.mu.Unlock()
	g := d.groups[id.key()]
	if g == nil {
		return false, fmt.Errorf("group %s: %w", id, ErrNotFound)
	}
	removed := g.members[member.key()]
	delete(g.members, member.key())
	return removed, nil
}

// Members splits a group's direct members into users and groups.
func (d *Directory) Members(id Principal) (users []Person, groups []GroupEntry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g := d.groups[id.key()]
	if g == nil {
		return nil, nil
	}
	for member := range g.members {
		if p := d.people[member]; p != nil {
			users = append(users, d.copy(p))
		} else if sub := d.groups[member]; sub != nil {
			groups = append(groups, GroupEntry{sub.id, sub.description})
		}
	}
	sort.Slice(users, func(i, j int) bool { return users[i].ID.String() < users[j].ID.String() })
	sort.Slice(groups, func(i, j int) bool { return groups[i].ID.String() < groups[j].ID.String() })
	return users, groups
}

// GroupsOf lists all groups a principal belongs to, also through other groups.
func (d *Directory) GroupsOf(id Principal) []Principal {
	d.mu.RLock()
	defer d.mu.RUnlock()
	seen := map[Principal]bool{}
	var found []Principal
	pending := []Principal{id.key()}
	for len(pending) > 0 {
		member := pending[0]
		pending = pending[1:]
		for key, g := range d.groups {
			if g.members[member] && !seen[key] {
				seen[key] = true
				found = append(found, g.id)
				pending = append(pending, key)
			}
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].String() < found[j].String() })
	return found
}

// IsAdministrator tells whether a user may manage the directory itself.
func (d *Directory) IsAdministrator(id Principal) bool {
	admins := Principal{AdministratorsGroup, d.domain}
	for _, g := range d.GroupsOf(id) {
		if g.Same(admins) {
			return true
		}
	}
	return false
}
