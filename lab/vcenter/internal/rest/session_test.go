package rest

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/sts"
	"github.com/vmware/govmomi/vapi/rest"
)

func TestLoginChecksTheUserStoreUnderBothPaths(t *testing.T) {
	l := start(t, "8.0U3")
	c := rest.NewClient(l.soap())
	if err := c.Login(l.ctx, url.UserPassword(userName, "wrong")); err == nil {
		t.Error("/rest takes a wrong password")
	}
	if err := c.Login(l.ctx, url.UserPassword(userName, userPass)); err != nil {
		t.Error(err)
	}
	if s, err := c.Session(l.ctx); err != nil || s == nil || s.User != "csi@VSPHERE.LOCAL" {
		t.Errorf("%+v, %v", s, err)
	}
	req, _ := http.NewRequest(http.MethodPost, l.url.Scheme+"://"+l.url.Host+"/api/session", nil)
	req.SetBasicAuth(userName, "wrong")
	res, err := http.DefaultClient.Do(req)
	if err != nil || res.StatusCode != http.StatusUnauthorized {
		t.Errorf("/api takes a wrong password: %v, %v", res, err)
	}
	var s Session
	if status := l.api(userName, userPass).do(http.MethodGet, "/api/session", nil, &s); status != http.StatusOK || s.User != "csi@VSPHERE.LOCAL" {
		t.Errorf("%d %+v", status, s)
	}
}

func TestFailedRestLoginsLockTheAccountForAll(t *testing.T) {
	l := start(t, "8.0U3")
	c := rest.NewClient(l.soap())
	for range 5 {
		_ = c.Login(l.ctx, url.UserPassword(userName, "wrong"))
	}
	if err := session.NewManager(l.soap()).Login(l.ctx, url.UserPassword(userName, userPass)); err == nil {
		t.Error("SOAP login works for the locked account")
	}
}

func TestMissingSessionIsAnsweredInTheFormOfThePath(t *testing.T) {
	l := start(t, "8.0U3")
	nobody := &api{l: l}
	var old struct {
		Type  string
		Value struct{ Messages []message }
	}
	status := nobody.do(http.MethodGet, "/rest/com/vmware/cis/tagging/category", nil, &old)
	if status != http.StatusUnauthorized || old.Type != "com.vmware.vapi.std.errors.unauthenticated" || len(old.Value.Messages) != 1 {
		t.Errorf("/rest: %d %+v", status, old)
	}
	var fresh struct {
		ErrorType string `json:"error_type"`
		Messages  []message
	}
	status = nobody.do(http.MethodGet, "/api/cis/tagging/category", nil, &fresh)
	if status != http.StatusUnauthorized || fresh.ErrorType != "UNAUTHENTICATED" || len(fresh.Messages) != 1 {
		t.Errorf("/api: %d %+v", status, fresh)
	}
}

func TestSessionsExpireWhenIdle(t *testing.T) {
	l := start(t, "8.0U3")
	a := l.api(adminName, adminPass)
	for range 3 {
		l.clock.Advance(4 * time.Minute)
		if status := a.do(http.MethodGet, "/api/cis/tagging/category", nil, nil); status != http.StatusOK {
			t.Fatalf("a session in use: %d", status)
		}
	}
	l.clock.Advance(5 * time.Minute)
	if status := a.do(http.MethodGet, "/api/cis/tagging/category", nil, nil); status != http.StatusUnauthorized {
		t.Errorf("an idle session: %d", status)
	}
}

func TestAUserHasAtMost550Sessions(t *testing.T) {
	l := start(t, "8.0U3")
	c := rest.NewClient(l.soap())
	for i := range 550 {
		if err := c.Login(l.ctx, url.UserPassword(userName, userPass)); err != nil {
			t.Fatalf("session %d: %v", i+1, err)
		}
	}
	var refused struct {
		Type  string
		Value struct{ Messages []message }
	}
	status := (&api{l: l}).login("/rest/com/vmware/cis/session", userName, userPass, &refused)
	if status != http.StatusServiceUnavailable || len(refused.Value.Messages) != 1 {
		t.Fatalf("session 551: %d %+v", status, refused)
	}
	said := refused.Value.Messages[0]
	if said.ID != "com.vmware.vapi.endpoint.failedToLoginMaxUserSessionCountReached" || !strings.HasPrefix(said.Default, "User session count is limited to 550. Existing session count is 550 for user ") {
		t.Errorf("message %+v", said)
	}
	l.api(adminName, adminPass) // others are not concerned
	l.clock.Advance(5 * time.Minute)
	if err := c.Login(l.ctx, url.UserPassword(userName, userPass)); err != nil {
		t.Errorf("when the sessions have idled: %v", err)
	}
}

func TestSessionsEndAfterADayWhateverTheirUse(t *testing.T) {
	l := start(t, "8.0U3")
	a := l.api(adminName, adminPass)
	for lived := time.Duration(0); lived < 24*time.Hour; lived += 4 * time.Minute {
		if status := a.do(http.MethodGet, "/api/session", nil, nil); status != http.StatusOK {
			t.Fatalf("after %s: %d", lived, status)
		}
		l.clock.Advance(4 * time.Minute)
	}
	if status := a.do(http.MethodGet, "/api/session", nil, nil); status != http.StatusUnauthorized {
		t.Errorf("after a day: %d", status)
	}
}

func TestSessionsEndByLogoutAndByControl(t *testing.T) {
	l := start(t, "8.0U3")
	a, b, c := l.api(adminName, adminPass), l.api(adminName, adminPass), l.api(adminName, adminPass)
	if len(l.service.Sessions()) != 3 {
		t.Errorf("%+v", l.service.Sessions())
	}
	if status := a.do(http.MethodDelete, "/api/session", nil, nil); status != http.StatusNoContent {
		t.Errorf("logout: %d", status)
	}
	if !l.service.Expire(b.id) || l.service.Expire("none") {
		t.Error("expire one")
	}
	l.service.ExpireAll()
	for _, s := range []*api{a, b, c} {
		if status := s.do(http.MethodGet, "/api/session", nil, nil); status != http.StatusUnauthorized {
			t.Errorf("ended session: %d", status)
		}
	}
}

func TestTokenOpensARestSession(t *testing.T) {
	l := start(t, "8.0U3")
	tokens, err := sts.NewClient(l.ctx, l.soap())
	if err != nil {
		t.Fatal(err)
	}
	signer, err := tokens.Issue(l.ctx, sts.TokenRequest{Userinfo: url.UserPassword(userName, userPass)})
	if err != nil {
		t.Fatal(err)
	}
	c := rest.NewClient(l.soap())
	if err := c.LoginByToken(c.WithSigner(l.ctx, signer)); err != nil {
		t.Fatal(err)
	}
	if s, err := c.Session(l.ctx); err != nil || s == nil || s.User != "csi@VSPHERE.LOCAL" {
		t.Errorf("%+v, %v", s, err)
	}
	signer.Token = string(bytes.Replace([]byte(signer.Token), []byte("csi@"), []byte("Administrator@"), 1))
	if err := c.LoginByToken(c.WithSigner(l.ctx, signer)); err == nil {
		t.Error("a forged token is taken")
	}
}

func TestSoapSessionServesForRestFrom80U3On(t *testing.T) {
	for release, want := range map[string]int{"7.0U3": http.StatusUnauthorized, "8.0U3": http.StatusOK} {
		l := start(t, release)
		vc := l.soap()
		m := session.NewManager(vc)
		if err := m.Login(l.ctx, url.UserPassword(userName, userPass)); err != nil {
			t.Fatal(err)
		}
		s, err := m.UserSession(l.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if status := (&api{l, s.Key}).do(http.MethodGet, "/api/session", nil, nil); status != want {
			t.Errorf("%s: %d, want %d", release, status, want)
		}
	}
}

func TestOldReleaseHasNoAPI(t *testing.T) {
	l := start(t, "6.7U3")
	if status := (&api{l: l}).do(http.MethodPost, "/api/session", nil, nil); status != http.StatusNotFound {
		t.Errorf("/api/session: %d", status)
	}
	if _, err := l.tags(adminName, adminPass).ListCategories(l.ctx); err != nil {
		t.Errorf("/rest: %v", err)
	}
}

func TestUnknownPathsAreNotFound(t *testing.T) {
	l := start(t, "8.0U3")
	a := l.api(adminName, adminPass)
	for _, path := range []string{"/rest/com/vmware/cis/tagging/nothing", "/rest/com/vmware/cis/tagging/tag/x", "/api/cis/tagging/nothing", "/api/other", "/rest/"} {
		if status := a.do(http.MethodGet, path, nil, nil); status != http.StatusNotFound {
			t.Errorf("%s: %d", path, status)
		}
	}
	if status := a.do(http.MethodPut, "/api/cis/tagging/tag", nil, nil); status != http.StatusMethodNotAllowed {
		t.Errorf("PUT: %d", status)
	}
}
