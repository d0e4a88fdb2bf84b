package vcenter

import (
	"net/http"
	"strings"
	"time"

	cnsclient "github.com/vmware/govmomi/cns"
	"github.com/vmware/govmomi/pbm"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"

	"vsphere-drivers.example/lab/vcenter/internal/authz"
	"vsphere-drivers.example/lab/vcenter/internal/cns"
	"vsphere-drivers.example/lab/vcenter/internal/rest"
	"vsphere-drivers.example/lab/vcenter/internal/traffic"
)

// RestartCNS restarts CNS alone: its endpoint is down for the given time and its running tasks fail, while vim25 with all
// sessions goes on. Work that has not begun is done to the given extent.
func (v *VCenter) RestartCNS(down time.Duration, extent cns.Extent) {
	v.Traffic.Down(cnsclient.Path, down)
	v.services.cns.Restart(extent)
}

// longest is longer than any test.
const longest = 1000 * time.Hour

// SetPolicyService starts or stops the storage policy service (SPS), which serves PBM and which CNS asks about policies.
func (v *VCenter) SetPolicyService(running bool) {
	down := longest
	if running {
		down = 0
	}
	v.Traffic.Down(pbm.Path, down)
	v.services.cns.SetPolicyService(running)
}

// Limits are how many sessions vCenter lets be open.
type Limits struct {
	SOAPSessions int `json:"soap_sessions"` // in all
	RESTSessions int `json:"rest_sessions"` // of one user
}

// UsualLimits are those of a vCenter that nobody tuned.
var UsualLimits = Limits{SOAPSessions: 2000, RESTSessions: rest.UsualSessions}

// SetLimits changes how many sessions may be open. Those that are open stay.
func (v *VCenter) SetLimits(limits Limits) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.allowed = limits
}

// Limits are the present ones.
func (v *VCenter) Limits() Limits {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.allowed
}

// limitSessions answers 503 to requests at /sdk that would need a new session when there are too many.
func (v *VCenter) limitSessions(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, vim25.Path) {
			cookie, err := r.Cookie(soap.SessionCookieName)
			if (err != nil || !v.hasSession(v.cookies.key(cookie.Value))) && len(v.Sessions()) >= v.Limits().SOAPSessions {
				traffic.Unavailable(w, http.StatusServiceUnavailable)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// HalveSession lets every service but vim25 forget a session, or know it again; false says that there is no such session.
func (v *VCenter) HalveSession(key string, halfDead bool) bool {
	if !v.hasSession(key) {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if halfDead {
		v.halfDead[key] = true
	} else {
		delete(v.halfDead, key)
	}
	return true
}

// isHalfDead tells whether the service at a path does not know a session.
func (v *VCenter) isHalfDead(path, key string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.halfDead[key] && !strings.HasPrefix(path, vim25.Path)
}

// restAccess is what REST asks about users.
type restAccess struct {
	*authz.Authz
	v *VCenter
}

// SessionUser finds the user of an open SOAP session, which REST knows by its cookie.
func (a restAccess) SessionUser(cookie string) (string, bool) {
	key := a.v.cookies.key(cookie)
	if a.v.isHalfDead("/rest", key) {
		return "", false
	}
	return a.Authz.SessionUser(key)
}
