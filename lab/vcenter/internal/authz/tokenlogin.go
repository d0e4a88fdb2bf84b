package authz

import (
	"github.com/google/uuid"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/authz/sso"
)

// tokenLogins opens sessions by token. The stock SessionManager names them after the token's subject (name@DOMAIN);
// vCenter shows the same DOMAIN\name as after a login by password.
type tokenLogins struct {
	types.ManagedObjectReference
	a *Authz
}

// Lock keeps the simulator from serialising logins.
func (*tokenLogins) Lock() {}

// Unlock is the other half.
func (*tokenLogins) Unlock() {}

// LoginByToken opens the session. Check has accepted the token; it is read again for the name.
func (l *tokenLogins) LoginByToken(ctx *simulator.Context, req *types.LoginByToken) soap.HasFault {
	user, err := sso.Redeem(l.a.dir, ctx.Header.Security)
	if err != nil {
		return &methods.LoginByTokenBody{Fault_: simulator.Fault(invalidLoginText, new(types.InvalidLogin))}
	}
	locale := req.Locale
	if locale == "" {
		locale = session.Locale
	}
	now := l.a.dir.Now().UTC()
	ctx.SetSession(simulator.Session{
		UserSession: types.UserSession{
			Key: uuid.NewString(), UserName: user.String(), FullName: user.String(),
			LoginTime: now, LastActiveTime: now, Locale: locale, MessageLocale: locale,
		},
		Registry: simulator.NewRegistry(), Map: ctx.Map,
	}, true)
	return &methods.LoginByTokenBody{Res: &types.LoginByTokenResponse{Returnval: ctx.Session.UserSession}}
}
