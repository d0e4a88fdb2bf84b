// Package rest serves the parts of vCenter's REST interface that drivers use: sessions and tagging, under the old paths
// (/rest/com/vmware/cis/…) and the newer ones (/api/session, /api/cis/tagging/…). Both families work on one state and log
// in against the same users as SOAP. It replaces govmomi's vapi simulator completely, which has no /api sessions and
// tagging, checks neither existence nor cardinality nor rights, and panics on requests without an object.
package rest

import (
	"net/http"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/profile"
)

// Access is what this package asks of the users and their rights; package authz implements it.
type Access interface {
	// LoginPassword checks credentials and answers the user's name in its canonical form.
	LoginPassword(user, password string) (string, error)
	// LoginToken checks a SAML token.
	LoginToken(assertion []byte) (string, error)
	// SessionUser finds the user of an open SOAP session.
	SessionUser(key string) (string, bool)
	// Allowed tells whether a user has a privilege on an object.
	Allowed(user string, object types.ManagedObjectReference, privilege string) bool
	// Root is where privileges that concern no object are checked.
	Root() types.ManagedObjectReference
}

// Config is what the interface needs.
type Config struct {
	Release *profile.Profile
	Access  Access
	Now     func() time.Time
	// Idle is how long an unused session lives; 5 minutes when nil, which is what vCenter's users report.
	Idle func() time.Duration
	// MaxPerUser is how many sessions a user may have; 550 when nil.
	MaxPerUser func() int
	// Before sees every request that reached a known path, with the user's name (empty when there is no session) and may
	// answer it itself by returning true. The assembly hangs counters and armed faults here.
	Before func(user, method, path, action string, w http.ResponseWriter) bool
}

// Service is the state: sessions and tags.
type Service struct {
	*Tags
	cfg      Config
	vim      *simulator.Registry
	sessions *sessions
}

// Install serves /rest and, from 7.0 on, /api. It must run before the service listens, and govmomi's vapi simulator must
// not be registered on the same service.
func Install(service *simulator.Service, vim *simulator.Registry, cfg Config) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Idle == nil {
		cfg.Idle = func() time.Duration { return 5 * time.Minute }
	}
	if cfg.MaxPerUser == nil {
		cfg.MaxPerUser = func() int { return UsualSessions }
	}
	s := &Service{cfg: cfg, vim: vim, Tags: newTags(vim), sessions: newSessions(cfg)}
	// The mux exists only once a registry is there, and Handle links tagging to the registry (it looks for the methods of
	// Tags), so the vim registry must be registered first; doing it again is harmless.
	service.RegisterSDK(vim, vim.Path+"/vimService")
	service.Handle("/rest/", s)
	if cfg.Release == nil || cfg.Release.AtLeast("7.0U2") {
		service.Handle("/api/", s)
	}
	return s
}

// ServeHTTP answers one request.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := parse(r)
	if c == nil {
		http.NotFound(w, r)
		return
	}
	session := s.session(r)
	if session != nil {
		c.user = session.User
	}
	if s.cfg.Before != nil && s.cfg.Before(c.user, r.Method, r.URL.Path, c.action, w) {
		return
	}
	if c.resource == "session" {
		s.serveSession(w, c, session)
		return
	}
	if session == nil {
		c.refuse(w, unauthenticated())
		return
	}
	serve, ok := map[string]func(*call) (any, error){
		"category": s.category, "tag": s.tag, "tag-association": s.association,
	}[c.resource]
	if !ok {
		http.NotFound(w, r)
		return
	}
	result, err := serve(c)
	if err == errMethod {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	c.reply(w, result, err)
}

// errMethod marks a path that exists with a method or action that does not.
var errMethod = refuse("invalid_request", "com.vmware.vapi.rest.unsupported", "Method is not supported")

// need refuses a call whose user lacks a privilege on the root folder.
func (s *Service) need(c *call, privilege string) error {
	return s.needOn(c, s.cfg.Access.Root(), privilege)
}

func (s *Service) needOn(c *call, object types.ManagedObjectReference, privilege string) error {
	if s.cfg.Access.Allowed(c.user, object, privilege) {
		return nil
	}
	return refuse("unauthorized", "cis.tagging.unauthorized.error", "User %s lacks privilege %s on %s", c.user, privilege, object)
}
