package main

import (
	"context"
	"net/url"

	"github.com/vmware/govmomi/ssoadmin/methods"
	"github.com/vmware/govmomi/ssoadmin/types"
	"github.com/vmware/govmomi/sts"
	"github.com/vmware/govmomi/vim25/soap"
)

var person = types.AdminPersonDetails{
	Description:  "user of the drivers",
	EmailAddress: "csi@example.com",
	FirstName:    "Container",
	LastName:     "Storage",
}

var ssoOperations = []operation{
	{"SsoLogin", "Login", func(ctx context.Context, c *clients) error {
		return c.sso.Login(c.sso.WithHeader(ctx, soap.Header{Security: &sts.Signer{Token: token}}))
	}},
	{"SsoLogout", "Logout", func(ctx context.Context, c *clients) error { return c.sso.Logout(ctx) }},
	{"SsoCreateLocalPersonUser", "CreateLocalPersonUser", func(ctx context.Context, c *clients) error {
		return c.sso.CreatePersonUser(ctx, "csi", person, password)
	}},
	{"SsoUpdateLocalPersonUserDetails", "UpdateLocalPersonUserDetails", func(ctx context.Context, c *clients) error {
		return c.sso.UpdatePersonUser(ctx, "csi", person)
	}},
	{"SsoResetLocalPersonUserPassword", "ResetLocalPersonUserPassword", func(ctx context.Context, c *clients) error {
		return c.sso.ResetPersonPassword(ctx, "csi", password)
	}},
	{"SsoFindPersonUser", "FindPersonUser", func(ctx context.Context, c *clients) error {
		_, err := c.sso.FindPersonUser(ctx, "csi@vsphere.local")
		return err
	}},
	{"SsoDeleteLocalPrincipal", "DeleteLocalPrincipal", func(ctx context.Context, c *clients) error {
		return c.sso.DeletePrincipal(ctx, "csi")
	}},
	{"SsoAddUserToLocalGroup", "AddUserToLocalGroup", func(ctx context.Context, c *clients) error {
		_, err := methods.AddUserToLocalGroup(ctx, c.sso, &types.AddUserToLocalGroup{
			This:      c.sso.ServiceContent.PrincipalManagementService,
			UserId:    types.PrincipalId{Name: "csi", Domain: "vsphere.local"},
			GroupName: "Operators",
		})
		return err
	}},
	{"SsoAddUsersToLocalGroup", "AddUsersToLocalGroup", func(ctx context.Context, c *clients) error {
		return c.sso.AddUsersToGroup(ctx, "Operators", types.PrincipalId{Name: "csi", Domain: "vsphere.local"})
	}},
	{"SsoGetLocalPasswordPolicy", "GetLocalPasswordPolicy", func(ctx context.Context, c *clients) error {
		_, err := c.sso.GetLocalPasswordPolicy(ctx)
		return err
	}},
}

var tokenOperations = []operation{
	{"StsIssue-bearer", "wst:RequestSecurityToken", func(ctx context.Context, c *clients) error {
		_, err := c.sts.Issue(ctx, sts.TokenRequest{Userinfo: url.UserPassword(user, password), Renewable: true, Delegatable: true})
		return err
	}},
	{"StsIssue-holder-of-key", "wst:RequestSecurityToken", func(ctx context.Context, c *clients) error {
		_, err := c.sts.Issue(ctx, sts.TokenRequest{Certificate: c.certificate, Renewable: true, Delegatable: true})
		return err
	}},
}
