package rest

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io"
	"net/http"
	"regexp"
	"sort"
	"sync"
	"time"

	"github.com/google/uuid"
)

// sessionHeader names the header, and under /rest also the cookie, that carries a session.
const sessionHeader = "vmware-api-session-id"

// Session is one open session.
type Session struct {
	ID           string    `json:"-"`
	User         string    `json:"user"`
	Created      time.Time `json:"created_time"`
	LastAccessed time.Time `json:"last_accessed_time"`
}

const (
	// UsualSessions is how many sessions vCenter lets a user have.
	UsualSessions = 550
	// life is how long a session can be used.
	life = 24 * time.Hour
	// restless is how long a session is surely not idle, whatever the limit.
	restless = time.Minute
)

type sessions struct {
	now  func() time.Time
	idle func() time.Duration
	most func() int

	mu   sync.Mutex
	open map[string]*Session
}

func newSessions(cfg Config) *sessions {
	return &sessions{now: cfg.Now, idle: cfg.Idle, most: cfg.MaxPerUser, open: map[string]*Session{}}
}

// create opens a session, unless the user has too many.
func (s *sessions) create(user string) (*Session, error) {
	now := s.now()
	session := &Session{ID: uuid.NewString(), User: user, Created: now, LastAccessed: now}
	s.mu.Lock()
	defer s.mu.Unlock()
	count := 0
	for id, other := range s.open {
		switch {
		case s.over(other, now):
			delete(s.open, id)
		case other.User == user:
			count++
		}
	}
	if most := s.most(); count >= most {
		return nil, refuse("service_unavailable", "com.vmware.vapi.endpoint.failedToLoginMaxUserSessionCountReached",
			"User session count is limited to %d. Existing session count is %d for user %s.", most, count, user)
	}
	s.open[session.ID] = session
	return session, nil
}

// over tells whether a session idled too long or lived too long.
func (s *sessions) over(session *Session, now time.Time) bool {
	idle := now.Sub(session.LastAccessed)
	return now.Sub(session.Created) >= life || idle >= restless && idle >= s.idle()
}

// use finds a session, unless it is over, and keeps it from idling.
func (s *sessions) use(id string) *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	session := s.open[id]
	if session == nil {
		return nil
	}
	now := s.now()
	if s.over(session, now) {
		delete(s.open, id)
		return nil
	}
	session.LastAccessed = now
	found := *session
	return &found
}

// Sessions lists the open sessions.
func (s *Service) Sessions() []Session {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	var list []Session
	for _, session := range s.sessions.open {
		list = append(list, *session)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Created.Before(list[j].Created) })
	return list
}

// Expire ends one session; false means that there is none of that id.
func (s *Service) Expire(id string) bool {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	_, ok := s.sessions.open[id]
	delete(s.sessions.open, id)
	return ok
}

// ExpireAll ends all sessions, as a restart of vCenter does.
func (s *Service) ExpireAll() {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	clear(s.sessions.open)
}

func unauthenticated() error {
	return refuse("unauthenticated", "com.vmware.vapi.endpoint.method.authentication.required", "Authentication required.")
}

// session finds the caller's session by header or cookie. From 8.0U3 on the key of a SOAP session will do.
func (s *Service) session(r *http.Request) *Session {
	id := r.Header.Get(sessionHeader)
	if id == "" {
		if cookie, err := r.Cookie(sessionHeader); err == nil {
			id = cookie.Value
		}
	}
	if id == "" {
		return nil
	}
	if session := s.sessions.use(id); session != nil {
		return session
	}
	if s.cfg.Release == nil || s.cfg.Release.AtLeast("8.0U3") {
		if user, ok := s.cfg.Access.SessionUser(id); ok && user != "" {
			return &Session{ID: id, User: user, Created: s.cfg.Now(), LastAccessed: s.cfg.Now()}
		}
	}
	return nil
}

func (s *Service) serveSession(w http.ResponseWriter, c *call, session *Session) {
	switch {
	case c.method == http.MethodPost && c.action == "":
		s.login(w, c)
	case session == nil:
		c.refuse(w, unauthenticated())
	case c.method == http.MethodGet, c.method == http.MethodPost && c.action == "get" && !c.api:
		c.reply(w, session, nil)
	case c.method == http.MethodDelete:
		s.Expire(session.ID)
		c.reply(w, nothing{}, nil)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func (s *Service) login(w http.ResponseWriter, c *call) {
	user, err := s.authenticate(c.request)
	if err != nil {
		if !c.api {
			w.Header().Set("WWW-Authenticate", `Basic realm="VAPI endpoint"`)
		}
		c.refuse(w, unauthenticated())
		return
	}
	session, err := s.sessions.create(user)
	if err != nil {
		c.refuse(w, err)
		return
	}
	if !c.api && c.request.Header.Get("vmware-use-header-authn") == "" {
		http.SetCookie(w, &http.Cookie{Name: sessionHeader, Value: session.ID, Path: "/rest", HttpOnly: true})
	}
	c.reply(w, created(session.ID), nil)
}

// signedToken finds the token in "SIGN token="…", …"; it is gzipped and base64 coded.
var signedToken = regexp.MustCompile(`^SIGN .*?token="([^"]*)"`)

func (s *Service) authenticate(r *http.Request) (string, error) {
	if user, password, ok := r.BasicAuth(); ok {
		return s.cfg.Access.LoginPassword(user, password)
	}
	match := signedToken.FindStringSubmatch(r.Header.Get("Authorization"))
	if match == nil {
		return "", unauthenticated()
	}
	packed, err := base64.StdEncoding.DecodeString(match[1])
	if err != nil {
		return "", err
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "", err
	}
	token, err := io.ReadAll(io.LimitReader(unpacked, maxBody))
	if err != nil {
		return "", err
	}
	return s.cfg.Access.LoginToken(token)
}
