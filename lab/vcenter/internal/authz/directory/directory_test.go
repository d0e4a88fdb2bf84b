package directory

import (
	"errors"
	"testing"
	"time"

	"vsphere-drivers.example/lab/vcenter/internal/handclock"
)

func open(t *testing.T, cfg Config) (*Directory, *handclock.Clock) {
	t.Helper()
	c := handclock.At(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	cfg.Now = c.Now
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d, c
}

func TestNamesAreUnderstoodInAllSpellings(t *testing.T) {
	d, _ := open(t, Config{Users: []User{{Name: "ann@example.com", Password: "x"}}})
	for text, want := range map[string]string{
		"bob":                    `VSPHERE.LOCAL\bob`,
		"bob@vsphere.local":      `VSPHERE.LOCAL\bob`,
		`VSPHERE.LOCAL\bob`:      `VSPHERE.LOCAL\bob`,
		`vsphere.local\bob`:      `VSPHERE.LOCAL\bob`,
		"ann@EXAMPLE.com":        `EXAMPLE.COM\ann`,
		`EXAMPLE\ann`:            `EXAMPLE.COM\ann`,
		"first@last@example.com": `EXAMPLE.COM\first@last`,
	} {
		if got := d.Parse(text).String(); got != want {
			t.Errorf("%s reads as %s, want %s", text, got, want)
		}
	}
}

func TestLoginChecksPasswordAndIgnoresCaseOfTheName(t *testing.T) {
	d, _ := open(t, Config{Users: []User{{Name: "csi@vsphere.local", Password: "Secret1!"}}})
	for _, name := range []string{"csi@vsphere.local", "CSI@VSPHERE.LOCAL", `VSPHERE.LOCAL\csi`, "csi"} {
		if id, err := d.Login(SOAP, name, "Secret1!"); err != nil || id.String() != `VSPHERE.LOCAL\csi` {
			t.Errorf("%s: %v, %v", name, id, err)
		}
	}
	if _, err := d.Login(SOAP, "csi", "secret1!"); !errors.Is(err, ErrCredentials) {
		t.Errorf("wrong password: %v", err)
	}
	if _, err := d.Login(SOAP, "nobody", "Secret1!"); !errors.Is(err, ErrCredentials) {
		t.Errorf("unknown user: %v", err)
	}
}

func TestFailedLoginsWithinTheWindowLockUntilTheClockUnlocks(t *testing.T) {
	d, c := open(t, Config{Users: []User{{Name: "csi", Password: "Secret1!"}}})
	for range 5 {
		if _, err := d.Login(SOAP, "csi", "wrong"); !errors.Is(err, ErrCredentials) {
			t.Fatal(err)
		}
	}
	if _, err := d.Login(SOAP, "csi", "Secret1!"); !errors.Is(err, ErrLocked) {
		t.Fatalf("after five failures: %v", err)
	}
	if p, _ := d.Find(d.Parse("csi")); !p.Locked {
		t.Error("account does not show as locked")
	}
	c.Advance(299 * time.Second)
	if _, err := d.Login(SOAP, "csi", "Secret1!"); !errors.Is(err, ErrLocked) {
		t.Errorf("a second early: %v", err)
	}
	c.Advance(time.Second)
	if _, err := d.Login(SOAP, "csi", "Secret1!"); err != nil {
		t.Errorf("after the unlock time: %v", err)
	}
}

func TestFailedLoginsSpreadOverTimeDoNotLock(t *testing.T) {
	d, c := open(t, Config{Users: []User{{Name: "csi", Password: "Secret1!"}}})
	for range 20 {
		_, _ = d.Login(SOAP, "csi", "wrong")
		c.Advance(61 * time.Second)
	}
	if _, err := d.Login(SOAP, "csi", "Secret1!"); err != nil {
		t.Errorf("three failures per window of 180 s locked: %v", err)
	}
}

func TestAdministratorIsNeverLockedOut(t *testing.T) {
	d, _ := open(t, Config{})
	for range 20 {
		_, _ = d.Login(SOAP, "Administrator", "wrong")
	}
	if _, err := d.Login(SOAP, "Administrator@vsphere.local", DefaultPassword); err != nil {
		t.Error(err)
	}
}

func TestLockByHandIgnoresTheClock(t *testing.T) {
	d, c := open(t, Config{Users: []User{{Name: "csi", Password: "Secret1!"}}})
	if err := d.Lock("csi"); err != nil {
		t.Fatal(err)
	}
	c.Advance(24 * time.Hour)
	if _, err := d.Login(SOAP, "csi", "Secret1!"); !errors.Is(err, ErrLocked) {
		t.Errorf("a day later: %v", err)
	}
	if err := d.Unlock("csi"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Login(SOAP, "csi", "Secret1!"); err != nil {
		t.Error(err)
	}
}

func TestPasswordsMustFollowThePolicy(t *testing.T) {
	d, _ := open(t, Config{})
	for password, ok := range map[string]bool{
		"Secret1!": true, "short1!": false, "nouppercase1!": false, "NOLOWERCASE1!": false,
		"NoDigits!!": false, "NoSpecial11": false, "Aaaaa1!aaaab": false, "Sixteen-chars-and-more1": false,
	} {
		if err := d.CheckPassword(password); (err == nil) != ok {
			t.Errorf("%s: %v", password, err)
		}
	}
}

func TestTokensAreBoundToUserSignatureAndTime(t *testing.T) {
	d, c := open(t, Config{Users: []User{{Name: "csi", Password: "Secret1!"}}})
	token := d.Issue(d.Parse("csi"), time.Minute)
	if id, err := d.Redeem(token.ID, token.User.UPN(), token.Signature); err != nil || id.Name != "csi" {
		t.Fatalf("%v %v", id, err)
	}
	if _, err := d.Redeem(token.ID, "Administrator@vsphere.local", token.Signature); !errors.Is(err, ErrToken) {
		t.Errorf("other user: %v", err)
	}
	if _, err := d.Redeem(token.ID, token.User.UPN(), "forged"); !errors.Is(err, ErrToken) {
		t.Errorf("other signature: %v", err)
	}
	c.Advance(time.Minute)
	if _, err := d.Redeem(token.ID, token.User.UPN(), token.Signature); !errors.Is(err, ErrToken) {
		t.Errorf("expired: %v", err)
	}
}

func TestGroupsOfGroupsAreFound(t *testing.T) {
	d, _ := open(t, Config{
		Users:  []User{{Name: "csi", Password: "x", Groups: []string{"drivers"}}},
		Groups: []Group{{Name: "robots", Members: []string{"drivers"}}, {Name: "drivers"}},
	})
	if got := d.GroupsOf(d.Parse("csi")); len(got) != 2 {
		t.Errorf("groups of csi: %v", got)
	}
}
