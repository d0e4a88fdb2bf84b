package authz

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"math/big"
	"testing"
	"time"

	"github.com/vmware/govmomi/ssoadmin"
	ssotypes "github.com/vmware/govmomi/ssoadmin/types"
	"github.com/vmware/govmomi/sts"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/authz/directory"
)

// admin opens an administration session as a user, by token, without any vim session.
func (l *lab) ssoAs(user, password string) *ssoadmin.Client {
	l.t.Helper()
	signer, err := l.token(user, password)
	if err != nil {
		l.t.Fatal(err)
	}
	c, err := ssoadmin.NewClient(l.ctx, l.anonymous())
	if err != nil {
		l.t.Fatal(err)
	}
	if err := c.Login(c.WithHeader(l.ctx, soap.Header{Security: signer})); err != nil {
		l.t.Fatal(err)
	}
	return c
}

func TestCreatedUserCanLogInAndADeletedOneCannot(t *testing.T) {
	l := start(t, Config{})
	c := l.ssoAs(adminName, adminPass)
	if err := c.CreatePersonUser(l.ctx, "bob", ssotypes.AdminPersonDetails{Description: "test"}, "Secret1!"); err != nil {
		t.Fatal(err)
	}
	found, err := c.FindPersonUser(l.ctx, "bob@vsphere.local")
	if err != nil || found == nil || found.Details.Description != "test" {
		t.Fatalf("%+v, %v", found, err)
	}
	l.grantTo("bob", false, l.root(), false)
	l.login("bob@vsphere.local", "Secret1!")
	if err := c.DeletePrincipal(l.ctx, "bob"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.try("bob@vsphere.local", "Secret1!"); !isFault[*types.InvalidLogin](err) {
		t.Errorf("deleted user: %v", err)
	}
}

func TestResetPasswordReallyChangesIt(t *testing.T) {
	l := start(t, Config{})
	l.grant(l.root(), false)
	c := l.ssoAs(adminName, adminPass)
	if err := c.ResetPersonPassword(l.ctx, "csi", "Changed1!"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.try(userName, userPass); !isFault[*types.InvalidLogin](err) {
		t.Errorf("old password: %v", err)
	}
	l.login(userName, "Changed1!")
}

func TestUsersAreRefusedAsVCenterDoes(t *testing.T) {
	l := start(t, Config{})
	c := l.ssoAs(adminName, adminPass)
	if err := c.CreatePersonUser(l.ctx, "csi", ssotypes.AdminPersonDetails{}, "Secret1!"); !isFault[*types.DuplicateName](err) {
		t.Errorf("second csi: %v", err)
	}
	if err := c.CreatePersonUser(l.ctx, "weak", ssotypes.AdminPersonDetails{}, "weak"); err == nil {
		t.Error("a weak password is accepted")
	}
	if err := c.ResetPersonPassword(l.ctx, "nobody", "Secret1!"); !isFault[*types.NotFound](err) {
		t.Errorf("unknown user: %v", err)
	}
	if err := c.DeletePrincipal(l.ctx, "nobody"); !isFault[*types.NotFound](err) {
		t.Errorf("unknown user: %v", err)
	}
}

func TestOnlyAdministratorsChangeUsers(t *testing.T) {
	l := start(t, Config{})
	c := l.ssoAs(userName, userPass)
	if _, err := c.FindPersonUsers(l.ctx, ""); err != nil {
		t.Errorf("reading: %v", err)
	}
	if err := c.CreatePersonUser(l.ctx, "bob", ssotypes.AdminPersonDetails{}, "Secret1!"); !isFault[*types.NoPermission](err) {
		t.Errorf("creating: %v", err)
	}
}

func TestAdministrationNeedsALogin(t *testing.T) {
	l := start(t, Config{})
	c, err := ssoadmin.NewClient(l.ctx, l.admin.Client) // brings a vim session, which is not one of single sign-on
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.FindPersonUsers(l.ctx, ""); !isFault[*types.NotAuthenticated](err) {
		t.Errorf("without login: %v", err)
	}
	if err := c.Login(l.ctx); !isFault[*types.InvalidLogin](err) {
		t.Errorf("login without a token: %v", err)
	}
	c = l.ssoAs(adminName, adminPass)
	if err := c.Logout(l.ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := c.FindPersonUsers(l.ctx, ""); !isFault[*types.NotAuthenticated](err) {
		t.Errorf("after logout: %v", err)
	}
}

func TestAdministrationSessionLeavesTheVimSessionAlone(t *testing.T) {
	l := start(t, Config{})
	signer, err := l.token(adminName, adminPass)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ssoadmin.NewClient(l.ctx, l.admin.Client)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Login(c.WithHeader(l.ctx, soap.Header{Security: signer})); err != nil {
		t.Fatal(err)
	}
	if _, err := c.FindPersonUsers(l.ctx, ""); err != nil {
		t.Error(err)
	}
	if s, err := l.admin.SessionManager.UserSession(l.ctx); err != nil || s == nil {
		t.Errorf("vim session: %v, %v", s, err)
	}
}

func TestGroupMembershipGivesRights(t *testing.T) {
	l := start(t, Config{})
	c := l.ssoAs(adminName, adminPass)
	if err := c.CreateGroup(l.ctx, "drivers", ssotypes.AdminGroupDetails{}); err != nil {
		t.Fatal(err)
	}
	l.grantTo("drivers", true, l.root(), true, "Cns.Searchable")
	id := ssotypes.PrincipalId{Name: "csi", Domain: "vsphere.local"}
	if err := c.AddUsersToGroup(l.ctx, "drivers", id); err != nil {
		t.Fatal(err)
	}
	if !l.has(userName, l.root(), "Cns.Searchable") {
		t.Error("member has no right")
	}
	if groups, err := c.FindParentGroups(l.ctx, id); err != nil || len(groups) != 1 || groups[0].Name != "drivers" {
		t.Errorf("%v, %v", groups, err)
	}
	if err := c.RemoveUsersFromGroup(l.ctx, "drivers", id); err != nil {
		t.Fatal(err)
	}
	if l.has(userName, l.root(), "Cns.Searchable") {
		t.Error("right stays after leaving")
	}
}

func TestPasswordPolicyAndRolesCanBeReadAndSet(t *testing.T) {
	l := start(t, Config{})
	c := l.ssoAs(adminName, adminPass)
	policy, err := c.GetLocalPasswordPolicy(l.ctx)
	if err != nil || policy.PasswordFormat.LengthRestriction.MinLength != 8 {
		t.Errorf("%+v, %v", policy, err)
	}
	id := ssotypes.PrincipalId{Name: "csi", Domain: "vsphere.local"}
	if changed, err := c.SetRole(l.ctx, id, ssotypes.RoleAdministrator); err != nil || !changed {
		t.Errorf("%v, %v", changed, err)
	}
	if !l.authz.Directory().IsAdministrator(directory.Principal{Name: "csi", Domain: "vsphere.local"}) {
		t.Error("role is not set")
	}
	if changed, err := c.GrantWSTrustRole(l.ctx, id, ssotypes.RoleActAsUser); err != nil || !changed {
		t.Errorf("%v, %v", changed, err)
	}
}

func TestSolutionUserGetsATokenByItsCertificate(t *testing.T) {
	l := start(t, Config{})
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	pair := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	tokens, err := sts.NewClient(l.ctx, l.anonymous())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.Issue(l.ctx, sts.TokenRequest{Certificate: pair}); err == nil {
		t.Error("an unknown certificate gets a token")
	}
	details := ssotypes.AdminSolutionDetails{Certificate: base64.StdEncoding.EncodeToString(der)}
	if err := l.ssoAs(adminName, adminPass).CreateSolutionUser(l.ctx, "robot", details); err != nil {
		t.Fatal(err)
	}
	l.grantTo("robot", false, l.root(), false)
	signer, err := tokens.Issue(l.ctx, sts.TokenRequest{Certificate: pair})
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.byToken(signer)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := c.SessionManager.UserSession(l.ctx); err != nil || s == nil || s.UserName != `VSPHERE.LOCAL\robot` {
		t.Errorf("%+v, %v", s, err)
	}
}
