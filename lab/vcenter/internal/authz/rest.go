package authz

import (
	"github.com/vmware/govmomi/simulator"

	"vsphere-drivers.example/lab/vcenter/internal/authz/directory"
	"vsphere-drivers.example/lab/vcenter/internal/authz/sso"
)

// LoginPassword checks credentials for the REST interface and answers the user's name. Unlike a SOAP login it does not
// want any permission.
func (a *Authz) LoginPassword(user, password string) (string, error) {
	id, err := a.dir.Login(directory.REST, user, password)
	if err != nil {
		return "", err
	}
	return id.UPN(), nil
}

// LoginToken checks a SAML token for the REST interface.
func (a *Authz) LoginToken(assertion []byte) (string, error) {
	id, err := sso.RedeemXML(a.dir, assertion)
	if err != nil {
		return "", err
	}
	return id.UPN(), nil
}

// SessionUser finds the user of an open SOAP session by its key.
func (a *Authz) SessionUser(key string) (string, bool) {
	// The session list is filled only in the copy that a session is given of the manager, so one is made up here.
	reader := simulator.Session{Registry: simulator.NewRegistry(), Map: a.vim}
	sessions, ok := reader.Get(*contentOf(a.vim).SessionManager).(*simulator.SessionManager)
	if !ok {
		return "", false
	}
	for _, s := range sessions.SessionList {
		if s.Key == key {
			return s.UserName, true
		}
	}
	return "", false
}
