package vcenter

import (
	"net/http"
	"sync"
	"time"

	"github.com/vmware/govmomi/vim25/soap"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// idleSessions knows when SOAP sessions were last used, and ends those that nobody used for long.
type idleSessions struct {
	mu   sync.Mutex
	uses map[string]use
}

type use struct {
	open int       // requests that are not answered yet, such as a wait for updates
	last time.Time // when the last one was answered, in vCenter's time
}

// endIdle ends a session that comes back after it was idle for too long, so that its request finds none.
func (v *VCenter) endIdle(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := ""
		if cookie, err := r.Cookie(soap.SessionCookieName); err == nil {
			key = v.cookies.key(cookie.Value)
		}
		if key == "" || !v.hasSession(key) {
			next.ServeHTTP(w, r)
			return
		}
		if v.idle.begin(key, v.Clock.Now(), v.idleLimit) {
			_ = v.ExpireSession(key) // another request may have ended it
		}
		defer func() { v.idle.end(key, v.Clock.Now()) }()
		next.ServeHTTP(w, r)
	})
}

// idleLimit is how long a SOAP session may be idle.
func (v *VCenter) idleLimit() time.Duration {
	return time.Duration(assume.SOAPIdleMinutes.In(v.Assumed)) * time.Minute
}

// begin notes that a request uses a session, and returns whether the session was idle for too long until now.
func (s *idleSessions) begin(key string, now time.Time, limit func() time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.uses == nil {
		s.uses = map[string]use{}
	}
	u, known := s.uses[key]
	idle := now.Sub(u.last)
	u.open++
	s.uses[key] = u
	return known && u.open == 1 && idle >= fresh && idle >= limit()
}

func (s *idleSessions) end(key string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.uses[key]
	s.uses[key] = use{open: u.open - 1, last: now}
}
