package sso

import (
	"github.com/vmware/govmomi/ssoadmin/types"

	"vsphere-drivers.example/lab/vcenter/internal/authz/directory"
)

// own answers the calls by which users change themselves. It returns nil for other calls.
func (e *Endpoint) own(body any, user directory.Principal) (any, error) {
	switch req := body.(type) {
	case *types.ResetSelfLocalPersonUserPassword:
		return &types.ResetSelfLocalPersonUserPasswordResponse{}, e.dir.SetPassword(user.UPN(), req.NewPassword)
	case *types.HasAdministratorRole:
		return &types.HasAdministratorRoleResponse{Returnval: e.dir.IsAdministrator(principal(req.UserId))}, nil
	}
	return nil, nil
}

// changeUser answers the calls that change accounts. It returns nil for other calls.
func (e *Endpoint) changeUser(body any) (any, error) {
	switch req := body.(type) {
	case *types.CreateLocalPersonUser:
		return &types.CreateLocalPersonUserResponse{}, e.dir.Create(personDetails(req.UserName, req.UserDetails), req.Password)
	case *types.UpdateLocalPersonUserDetails:
		return &types.UpdateLocalPersonUserDetailsResponse{}, e.dir.Describe(req.UserName, personDetails(req.UserName, req.UserDetails))
	case *types.ResetLocalPersonUserPassword:
		return &types.ResetLocalPersonUserPasswordResponse{}, e.dir.SetPassword(req.UserName, req.NewPassword)
	case *types.CreateLocalSolutionUser:
		return &types.CreateLocalSolutionUserResponse{}, e.createSolution(req)
	case *types.UpdateLocalSolutionUserDetails:
		return &types.UpdateLocalSolutionUserDetailsResponse{}, e.dir.Describe(req.UserName, solutionDetails(req.UserName, req.UserDetails))
	case *types.DeleteLocalPrincipal:
		return &types.DeleteLocalPrincipalResponse{}, e.dir.Delete(req.PrincipalName)
	case *types.UnlockUserAccount:
		return &types.UnlockUserAccountResponse{Returnval: true}, e.dir.Unlock(principal(req.UserId).UPN())
	case *types.DisableUserAccount:
		return &types.DisableUserAccountResponse{Returnval: true}, e.dir.SetDisabled(principal(req.UserId).UPN(), true)
	case *types.EnableUserAccount:
		return &types.EnableUserAccountResponse{Returnval: true}, e.dir.SetDisabled(principal(req.UserId).UPN(), false)
	case *types.SetRole:
		return e.setRole(req)
	case *types.GrantWSTrustRole:
		return &types.GrantWSTrustRoleResponse{Returnval: true}, e.known(req.UserId)
	case *types.RevokeWSTrustRole:
		return &types.RevokeWSTrustRoleResponse{Returnval: true}, e.known(req.UserId)
	}
	return nil, nil
}

func personDetails(name string, d types.AdminPersonDetails) directory.Person {
	return directory.Person{
		ID: directory.Principal{Name: name}, Description: d.Description, Email: d.EmailAddress,
		FirstName: d.FirstName, LastName: d.LastName,
	}
}

func solutionDetails(name string, d types.AdminSolutionDetails) directory.Person {
	return directory.Person{
		ID: directory.Principal{Name: name}, Description: d.Description, Certificate: bareCertificate(d.Certificate), Solution: true,
	}
}

func (e *Endpoint) createSolution(req *types.CreateLocalSolutionUser) error {
	return e.dir.Create(solutionDetails(req.UserName, req.UserDetails), "")
}

func (e *Endpoint) known(user types.PrincipalId) error {
	if _, ok := e.dir.Find(principal(user)); !ok {
		return directory.ErrNotFound
	}
	return nil
}

// setRole moves a user in or out of Administrators, which is what the role is.
func (e *Endpoint) setRole(req *types.SetRole) (any, error) {
	if err := e.known(req.UserId); err != nil {
		return nil, err
	}
	var changed bool
	var err error
	if req.Role == types.RoleAdministrator {
		changed, err = e.dir.AddMember(directory.AdministratorsGroup, principal(req.UserId))
	} else {
		changed, err = e.dir.RemoveMember(directory.AdministratorsGroup, principal(req.UserId))
	}
	return &types.SetRoleResponse{Returnval: changed}, err
}

// changeGroup answers the calls that change groups. It returns nil for other calls.
func (e *Endpoint) changeGroup(body any) (any, error) {
	switch req := body.(type) {
	case *types.CreateLocalGroup:
		return &types.CreateLocalGroupResponse{}, e.dir.CreateGroup(req.GroupName, req.GroupDetails.Description)
	case *types.UpdateLocalGroupDetails:
		return &types.UpdateLocalGroupDetailsResponse{}, e.dir.DescribeGroup(req.GroupName, req.GroupDetails.Description)
	case *types.AddUserToLocalGroup:
		added, err := e.dir.AddMember(req.GroupName, principal(req.UserId))
		return &types.AddUserToLocalGroupResponse{Returnval: added}, err
	case *types.AddUsersToLocalGroup:
		results, err := each(req.UserIds, req.GroupName, e.dir.AddMember)
		return &types.AddUsersToLocalGroupResponse{Returnval: results}, err
	case *types.AddGroupToLocalGroup:
		added, err := e.dir.AddMember(req.GroupName, principal(req.GroupId))
		return &types.AddGroupToLocalGroupResponse{Returnval: added}, err
	case *types.AddGroupsToLocalGroup:
		results, err := each(req.GroupIds, req.GroupName, e.dir.AddMember)
		return &types.AddGroupsToLocalGroupResponse{Returnval: results}, err
	case *types.RemoveFromLocalGroup:
		removed, err := e.dir.RemoveMember(req.GroupName, principal(req.PrincipalId))
		return &types.RemoveFromLocalGroupResponse{Returnval: removed}, err
	case *types.RemovePrincipalsFromLocalGroup:
		results, err := each(req.PrincipalsIds, req.GroupName, e.dir.RemoveMember)
		return &types.RemovePrincipalsFromLocalGroupResponse{Returnval: results}, err
	}
	return nil, nil
}

func each(ids []types.PrincipalId, group string, apply func(string, directory.Principal) (bool, error)) ([]bool, error) {
	var results []bool
	for _, member := range ids {
		changed, err := apply(group, principal(member))
		if err != nil {
			return nil, err
		}
		results = append(results, changed)
	}
	return results, nil
}
