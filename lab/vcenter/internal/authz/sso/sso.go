// Package sso serves the single sign-on endpoints of one vCenter on a directory: the administration API
// that creates users and groups (namespace sso), and the security token service that exchanges credentials
// for SAML tokens. Unlike the stock simulator it keeps sessions of its own, checks tokens, and lets only
// members of Administrators change anything.
package sso

import (
	"errors"
	"net/http"
	"sync"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/ssoadmin"
	"github.com/vmware/govmomi/ssoadmin/types"
	"github.com/vmware/govmomi/sts"
	"github.com/vmware/govmomi/vim25/soap"
	vim "github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/authz/directory"
)

// Config is what the endpoints need besides the directory.
type Config struct {
	// Before sees every administration call with the caller's name (empty before login) and may refuse it.
	// The assembly hangs counters and armed faults here, because these calls do not pass a simulator.Registry.
	Before func(user string, m *simulator.Method) vim.BaseMethodFault
	// Certificates are the trusted certificates (base64 of the DER) that GetTrustedCertificates answers.
	Certificates func() []string
}

// Endpoint holds the sessions of the administration API.
type Endpoint struct {
	dir *directory.Directory
	cfg Config

	mu       sync.Mutex
	sessions map[string]directory.Principal
}

// Install serves the administration API and the token service on the service's mux. It must run before
// the service starts to listen.
func Install(service *simulator.Service, vimRegistry *simulator.Registry, dir *directory.Directory, cfg Config) *Endpoint {
	e := &Endpoint{dir: dir, cfg: cfg, sessions: map[string]directory.Principal{}}
	// The mux exists only once a registry is there; registering the vim one again is harmless.
	service.RegisterSDK(vimRegistry, vimRegistry.Path+"/vimService")
	for _, path := range []string{ssoadmin.Path, ssoadmin.Path + "/", ssoadmin.SystemPath} {
		service.Handle(path, http.HandlerFunc(e.serveAdmin))
	}
	tokens := &tokenService{dir: dir}
	for _, path := range []string{sts.Path, sts.Path + "/", sts.SystemPath} {
		service.Handle(path, tokens)
	}
	return e
}

// Reset forgets all sessions, as a restart of vCenter does.
func (e *Endpoint) Reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.sessions)
}

// Sessions lists the users of the open administration sessions.
func (e *Endpoint) Sessions() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var users []string
	for _, user := range e.sessions {
		users = append(users, user.String())
	}
	return users
}

func (e *Endpoint) serveAdmin(w http.ResponseWriter, r *http.Request) {
	data, ok := readRequest(w, r)
	if !ok {
		return
	}
	m, err := decode(data)
	if err != nil {
		writeFault(w, refuse("InvalidRequest", &vim.InvalidRequest{}, "%s", err))
		return
	}
	key, user, known := e.session(r)
	if e.cfg.Before != nil {
		name := ""
		if known {
			name = user.String()
		}
		if f := e.cfg.Before(name, m); f != nil {
			writeFault(w, vimFault(f))
			return
		}
	}
	reply, err := e.call(w, m, key, user, known)
	if err != nil {
		writeFault(w, asFault(err))
		return
	}
	writeReply(w, m.Name, reply)
}

// session finds the caller's session among all cookies: a client that is also logged in to vim sends two of one name.
func (e *Endpoint) session(r *http.Request) (string, directory.Principal, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range r.Cookies() {
		if c.Name != soap.SessionCookieName {
			continue
		}
		if user, ok := e.sessions[c.Value]; ok {
			return c.Value, user, true
		}
	}
	return "", directory.Principal{}, false
}

func (e *Endpoint) call(w http.ResponseWriter, m *simulator.Method, key string, user directory.Principal, known bool) (any, error) {
	if m.This != serviceOf(m.Name) {
		return nil, refuse("ManagedObjectNotFound", &vim.ManagedObjectNotFound{Obj: m.This}, "%s is not the service for %s", m.This.Value, m.Name)
	}
	switch m.Body.(type) {
	case *types.SsoAdminServiceInstance:
		return &types.SsoAdminServiceInstanceResponse{Returnval: content}, nil
	case *types.SsoGroupcheckServiceInstance:
		return &types.SsoGroupcheckServiceInstanceResponse{Returnval: groupcheckContent}, nil
	case *types.GetTrustedCertificates:
		reply := &types.GetTrustedCertificatesResponse{}
		if e.cfg.Certificates != nil {
			reply.Returnval = e.cfg.Certificates()
		}
		return reply, nil
	case *types.Login:
		return e.login(w, m)
	}
	if !known {
		return nil, refuse("SsoFaultNotAuthenticated", &vim.NotAuthenticated{
			NoPermission: vim.NoPermission{Object: &m.This, PrivilegeId: "System.View"},
		}, "The session is not authenticated.")
	}
	if _, ok := m.Body.(*types.Logout); ok {
		e.mu.Lock()
		delete(e.sessions, key)
		e.mu.Unlock()
		return &types.LogoutResponse{}, nil
	}
	for _, serve := range []func(any, directory.Principal) (any, error){e.own, e.find} {
		if reply, err := serve(m.Body, user); reply != nil || err != nil {
			return reply, err
		}
	}
	if !e.dir.IsAdministrator(user) {
		return nil, refuse("SsoFaultNoPermission", &vim.NoPermission{Object: &m.This, PrivilegeId: "Administrator"},
			"Access not authorized: %s is not in %s", user, directory.AdministratorsGroup)
	}
	for _, serve := range []func(any) (any, error){e.changeUser, e.changeGroup} {
		if reply, err := serve(m.Body); reply != nil || err != nil {
			return reply, err
		}
	}
	return nil, refuse("MethodNotFound", &vim.MethodNotFound{Receiver: m.This, Method: m.Name},
		"%s does not implement %s", m.This.Value, m.Name)
}

func (e *Endpoint) login(w http.ResponseWriter, m *simulator.Method) (any, error) {
	user, err := Redeem(e.dir, m.Header.Security)
	if err != nil {
		return nil, refuse("SsoFaultInvalidCredentials", &vim.InvalidLogin{}, "Invalid credentials: %s", err)
	}
	key := uuid.NewString()
	e.mu.Lock()
	e.sessions[key] = user
	e.mu.Unlock()
	// The path keeps this cookie apart from the vim session's, which has the same name.
	http.SetCookie(w, &http.Cookie{Name: soap.SessionCookieName, Value: key, Path: "/sso-adminserver", HttpOnly: true})
	return &types.LoginResponse{}, nil
}

// Redeem checks the SAML assertion in a SOAP security header.
func Redeem(dir *directory.Directory, security any) (directory.Principal, error) {
	var header struct {
		Assertion assertion `xml:"Assertion"`
	}
	if element, ok := security.(*simulator.Element); ok {
		// The element holds its content without the closing tag, so decoding always ends in an error;
		// what was not read stays empty and is refused below.
		_ = element.Decode(&header)
	}
	return header.Assertion.redeem(dir)
}

func asFault(err error) *fault {
	var f *fault
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, directory.ErrNotFound):
		return refuse("NotFound", &vim.NotFound{}, "%s", err)
	case errors.Is(err, directory.ErrExists):
		return refuse("DuplicateName", &vim.DuplicateName{}, "%s", err)
	case errors.Is(err, directory.ErrPassword):
		return refuse("InvalidArgument", &vim.InvalidArgument{InvalidProperty: "password"}, "%s", err)
	}
	return refuse("RuntimeFault", &vim.RuntimeFault{}, "%s", err)
}
