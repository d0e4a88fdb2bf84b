package authz

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/sts"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

func TestLoginChecksThePassword(t *testing.T) {
	l := start(t, Config{})
	if _, err := l.try(adminName, "wrong"); !isFault[*types.InvalidLogin](err) {
		t.Errorf("wrong password: %v", err)
	}
	if _, err := l.try("nobody@vsphere.local", "Secret1!"); !isFault[*types.InvalidLogin](err) {
		t.Errorf("unknown user: %v", err)
	}
}

func TestSessionsCarryTheUserInVCentersForm(t *testing.T) {
	l := start(t, Config{})
	for _, name := range []string{adminName, `VSPHERE.LOCAL\Administrator`, "administrator"} {
		c := l.login(name, adminPass)
		s, err := c.SessionManager.UserSession(l.ctx)
		if err != nil || s == nil || s.UserName != `VSPHERE.LOCAL\Administrator` {
			t.Errorf("%s: session %+v, %v", name, s, err)
		}
	}
}

func TestUserWithoutAnyPermissionIsToldSoAtLogin(t *testing.T) {
	l := start(t, Config{})
	_, err := l.try(userName, userPass)
	wantDenied(t, err, l.root(), "System.View")
}

func TestLockedAccountLooksLikeAWrongPassword(t *testing.T) {
	l := start(t, Config{})
	l.grant(l.root(), false)
	for range 5 {
		_, _ = l.try(userName, "wrong")
	}
	if _, err := l.try(userName, userPass); !isFault[*types.InvalidLogin](err) {
		t.Errorf("locked: %v", err)
	}
	l.clock.Advance(5 * time.Minute)
	if _, err := l.try(userName, userPass); err != nil {
		t.Errorf("after the unlock time: %v", err)
	}
}

// anonymous is a client without a session.
func (l *lab) anonymous() *vim25.Client {
	u := *l.url
	u.User = nil
	vc, err := vim25.NewClient(l.ctx, soap.NewClient(&u, true))
	if err != nil {
		l.t.Fatal(err)
	}
	return vc
}

func (l *lab) token(user, password string) (*sts.Signer, error) {
	tokens, err := sts.NewClient(l.ctx, l.anonymous())
	if err != nil {
		l.t.Fatal(err)
	}
	return tokens.Issue(l.ctx, sts.TokenRequest{Userinfo: url.UserPassword(user, password)})
}

func (l *lab) byToken(signer *sts.Signer) (*govmomi.Client, error) {
	vc := l.anonymous()
	m := session.NewManager(vc)
	err := m.LoginByToken(vc.WithHeader(l.ctx, soap.Header{Security: signer}))
	return &govmomi.Client{Client: vc, SessionManager: m}, err
}

func TestTokensNameTheRightUserAndAreUnexpired(t *testing.T) {
	l := start(t, Config{})
	l.grant(l.root(), false)
	signer, err := l.token(userName, userPass)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(signer.Token, "csi@VSPHERE.LOCAL") || !signer.Lifetime.Expires.After(time.Now()) {
		t.Errorf("token for %s, expires %v", signer.Token, signer.Lifetime.Expires)
	}
	c, err := l.byToken(signer)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := c.SessionManager.UserSession(l.ctx); err != nil || s == nil || s.UserName != `VSPHERE.LOCAL\csi` {
		t.Errorf("session %+v, %v", s, err)
	}
}

func TestTokenServiceRefusesWrongAndLockedCredentials(t *testing.T) {
	l := start(t, Config{})
	if _, err := l.token(userName, "wrong"); err == nil || !strings.Contains(err.Error(), "Invalid credentials") {
		t.Errorf("wrong password: %v", err)
	}
	if err := l.authz.Directory().Lock(userName); err != nil {
		t.Fatal(err)
	}
	if _, err := l.token(userName, userPass); err == nil || !strings.Contains(err.Error(), "locked") {
		t.Errorf("locked: %v", err)
	}
}

func TestForgedAndExpiredTokensAreInvalidLogins(t *testing.T) {
	l := start(t, Config{})
	l.grant(l.root(), false)
	signer, err := l.token(userName, userPass)
	if err != nil {
		t.Fatal(err)
	}
	forged := *signer
	forged.Token = strings.Replace(signer.Token, "csi@VSPHERE.LOCAL", "Administrator@VSPHERE.LOCAL", 1)
	if _, err := l.byToken(&forged); !isFault[*types.InvalidLogin](err) {
		t.Errorf("forged: %v", err)
	}
	l.clock.Advance(time.Hour)
	if _, err := l.byToken(signer); !isFault[*types.InvalidLogin](err) {
		t.Errorf("expired: %v", err)
	}
}

func TestTokenRenewalGivesAFreshToken(t *testing.T) {
	l := start(t, Config{})
	l.grant(l.root(), false)
	signer, err := l.token(userName, userPass)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := sts.NewClient(l.ctx, l.anonymous())
	if err != nil {
		t.Fatal(err)
	}
	renewed, err := tokens.Renew(l.ctx, sts.TokenRequest{Token: signer.Token, Userinfo: url.User("x")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.byToken(renewed); err != nil {
		t.Error(err)
	}
}

func TestTokenServiceRefusesAClientWhoseClockIsOff(t *testing.T) {
	l := start(t, Config{})
	l.clock.Advance(time.Hour)
	if _, err := l.token(userName, userPass); err == nil || !strings.Contains(err.Error(), "clock") {
		t.Errorf("%v", err)
	}
}

func TestSessionsAndPermissionsBearParallelUse(t *testing.T) {
	l := start(t, Config{})
	vm := l.find("/DC0/vm/DC0_H0_VM0")
	l.grant(vm, false)
	c := l.login(userName, userPass)
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for round := range 10 {
				var m mo.VirtualMachine
				if err := property.DefaultCollector(c.Client).RetrieveOne(l.ctx, vm, []string{"name"}, &m); err != nil {
					t.Errorf("worker %d round %d: %v", worker, round, err)
				}
				if _, err := l.manager().AddRole(l.ctx, fmt.Sprintf("role-%d-%d", worker, round), nil); err != nil {
					t.Error(err)
				}
				if err := l.manager().SetEntityPermissions(l.ctx, vm, []types.Permission{{Principal: userName, RoleId: -2}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	roles, err := l.manager().RoleList(l.ctx)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[int32]bool{}
	for _, role := range roles {
		ids[role.RoleId] = true
	}
	if len(ids) != len(roles) {
		t.Errorf("%d roles share %d ids", len(roles), len(ids))
	}
}
