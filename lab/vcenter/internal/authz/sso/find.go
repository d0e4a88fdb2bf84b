package sso

import (
	"github.com/vmware/govmomi/ssoadmin/types"

	"vsphere-drivers.example/lab/vcenter/internal/authz/directory"
)

func id(p directory.Principal) types.PrincipalId {
	return types.PrincipalId{Name: p.Name, Domain: p.Domain}
}

func principal(p types.PrincipalId) directory.Principal {
	return directory.Principal{Name: p.Name, Domain: p.Domain}
}

func person(p directory.Person) types.AdminPersonUser {
	return types.AdminPersonUser{
		Id: id(p.ID), Disabled: p.Disabled, Locked: p.Locked,
		Details: types.AdminPersonDetails{
			Description: p.Description, EmailAddress: p.Email, FirstName: p.FirstName, LastName: p.LastName,
		},
	}
}

func solution(p directory.Person) types.AdminSolutionUser {
	return types.AdminSolutionUser{
		Id: id(p.ID), Disabled: p.Disabled,
		Details: types.AdminSolutionDetails{Description: p.Description, Certificate: p.Certificate},
	}
}

func anyUser(p directory.Person) types.AdminUser {
	kind := "person"
	if p.Solution {
		kind = "solution"
	}
	return types.AdminUser{Id: id(p.ID), Kind: kind, Description: p.Description}
}

func groupEntry(g directory.GroupEntry) types.AdminGroup {
	return types.AdminGroup{Id: id(g.ID), Details: types.AdminGroupDetails{Description: g.Description}}
}

// some converts the accounts of one kind and stops at the caller's limit; zero and less mean no limit.
func some[T any](people []directory.Person, solutions bool, limit int32, convert func(directory.Person) T) []T {
	var found []T
	for _, p := range people {
		if p.Solution != solutions {
			continue
		}
		if limit > 0 && len(found) >= int(limit) {
			break
		}
		found = append(found, convert(p))
	}
	return found
}

// find answers the reading calls, which every authenticated user may make. It returns nil for other calls.
func (e *Endpoint) find(body any, _ directory.Principal) (any, error) {
	switch req := body.(type) {
	case *types.FindUser:
		reply := &types.FindUserResponse{}
		if p, ok := e.dir.Find(principal(req.UserId)); ok {
			u := anyUser(p)
			reply.Returnval = &u
		}
		return reply, nil
	case *types.FindPersonUser:
		reply := &types.FindPersonUserResponse{}
		if p, ok := e.dir.Find(principal(req.UserId)); ok && !p.Solution {
			u := person(p)
			reply.Returnval = &u
		}
		return reply, nil
	case *types.FindSolutionUser:
		reply := &types.FindSolutionUserResponse{}
		if p, ok := e.dir.Find(e.dir.Parse(req.UserName)); ok && p.Solution {
			u := solution(p)
			reply.Returnval = &u
		}
		return reply, nil
	case *types.FindPersonUsers:
		people := e.dir.People(req.Criteria.Domain, req.Criteria.SearchString)
		return &types.FindPersonUsersResponse{Returnval: some(people, false, req.Limit, person)}, nil
	case *types.FindSolutionUsers:
		people := e.dir.People("", req.SearchString)
		return &types.FindSolutionUsersResponse{Returnval: some(people, true, req.Limit, solution)}, nil
	case *types.FindGroup:
		reply := &types.FindGroupResponse{}
		if g, ok := e.dir.FindGroup(principal(req.GroupId)); ok {
			entry := groupEntry(g)
			reply.Returnval = &entry
		}
		return reply, nil
	case *types.FindGroups:
		reply := &types.FindGroupsResponse{}
		for _, g := range e.dir.Groups(req.Criteria.Domain, req.Criteria.SearchString) {
			reply.Returnval = append(reply.Returnval, groupEntry(g))
		}
		return reply, nil
	case *types.FindUsersInGroup:
		users, _ := e.dir.Members(principal(req.GroupId))
		reply := &types.FindUsersInGroupResponse{}
		for _, u := range users {
			reply.Returnval = append(reply.Returnval, anyUser(u))
		}
		return reply, nil
	case *types.FindPersonUsersInGroup:
		users, _ := e.dir.Members(principal(req.GroupId))
		return &types.FindPersonUsersInGroupResponse{Returnval: some(users, false, req.Limit, person)}, nil
	case *types.FindGroupsInGroup:
		_, groups := e.dir.Members(principal(req.GroupId))
		reply := &types.FindGroupsInGroupResponse{}
		for _, g := range groups {
			reply.Returnval = append(reply.Returnval, groupEntry(g))
		}
		return reply, nil
	case *types.FindAllParentGroups:
		if _, ok := e.dir.Find(principal(req.UserId)); !ok {
			return nil, directory.ErrNotFound
		}
		reply := &types.FindAllParentGroupsResponse{}
		for _, g := range e.dir.GroupsOf(principal(req.UserId)) {
			reply.Returnval = append(reply.Returnval, id(g))
		}
		return reply, nil
	}
	return e.policies(body)
}

// policies answers what the directory enforces.
func (e *Endpoint) policies(body any) (any, error) {
	switch body.(type) {
	case *types.GetLocalPasswordPolicy:
		p := e.dir.Policy()
		return &types.GetLocalPasswordPolicyResponse{Returnval: types.AdminPasswordPolicy{
			Description: p.Description, ProhibitedPreviousPasswordsCount: int32(p.ProhibitedReuses),
			PasswordLifetimeDays: int32(p.LifetimeDays),
			PasswordFormat: types.AdminPasswordFormat{
				LengthRestriction: types.AdminPasswordFormatLengthRestriction{MinLength: int32(p.MinLength), MaxLength: int32(p.MaxLength)},
				AlphabeticRestriction: types.AdminPasswordFormatAlphabeticRestriction{
					MinAlphabeticCount: int32(p.MinAlphabetic), MinUppercaseCount: int32(p.MinUpper), MinLowercaseCount: int32(p.MinLower),
				},
				MinNumericCount: int32(p.MinNumeric), MinSpecialCharCount: int32(p.MinSpecial),
				MaxIdenticalAdjacentCharacters: int32(p.MaxIdenticalAdjacent),
			},
		}}, nil
	case *types.GetLockoutPolicy:
		l := e.dir.LockoutPolicy()
		return &types.GetLockoutPolicyResponse{Returnval: types.AdminLockoutPolicy{
			Description: "lock-out policy of " + e.dir.Domain(), MaxFailedAttempts: int32(l.MaxFailed),
			FailedAttemptIntervalSec: int64(l.Window.Seconds()), AutoUnlockIntervalSec: int64(max(l.Unlock, 0).Seconds()),
		}}, nil
	case *types.Get:
		system := types.IdentitySource{Name: e.dir.Domain(), Domains: []types.Domain{{Name: e.dir.Domain()}}}
		local := types.IdentitySource{Name: "localos", Domains: []types.Domain{{Name: "localos"}}}
		return &types.GetResponse{Returnval: types.IdentitySources{
			All: []types.IdentitySource{system, local}, System: system, LocalOS: &local,
		}}, nil
	case *types.GetDefaultDomains:
		return &types.GetDefaultDomainsResponse{Returnval: []string{e.dir.Domain()}}, nil
	}
	return nil, nil
}
