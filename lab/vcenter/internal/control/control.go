// Package control is the endpoint by which tests drive a simulated vCenter: JSON over HTTP on a loopback port of its own.
// A wrong request is answered with 400, names the field that is wrong, and changes nothing. README.md lists the calls.
package control

import (
	"fmt"
	"net"
	"net/http"

	"vsphere-drivers.example/lab/vcenter/internal/vcenter"
)

// Control is the endpoint of one vCenter.
type Control struct {
	URL string // http://127.0.0.1:PORT

	vc     *vcenter.VCenter
	server *http.Server
}

// Serve opens the endpoint on the address; empty is a free port of the loopback address. Whoever reaches the endpoint
// commands the vCenter, so only loopback addresses are allowed.
func Serve(vc *vcenter.VCenter, address string) (*Control, error) {
	if address == "" {
		address = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("control endpoint: listen on %s: %w", address, err)
	}
	if at, ok := listener.Addr().(*net.TCPAddr); !ok || !at.IP.IsLoopback() {
		_ = listener.Close()
		return nil, fmt.Errorf("control endpoint: %s is no loopback address; use 127.0.0.1 or [::1]", address)
	}
	c := &Control{URL: "http://" + listener.Addr().String(), vc: vc}
	c.server = &http.Server{Handler: c.routes()}
	go func() { _ = c.server.Serve(listener) }()
	return c, nil
}

// Close stops the endpoint.
func (c *Control) Close() error { return c.server.Close() }

// routes is the list of calls.
func (c *Control) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, handler := range map[string]http.HandlerFunc{
		"GET /state":       read(c.state),
		"GET /inventory":   read(c.inventory),
		"GET /sessions":    read(c.sessions),
		"GET /logins":      read(c.failedLogins),
		"GET /volumes":     read(c.volumes),
		"GET /attachments": read(c.attachments),
		"GET /calls":       read(c.calls),
		"GET /rules":       read(c.rules),
		"GET /assumptions": read(c.assumptions),
		"GET /latency":     read(c.latency),

		"POST /faults": act(c.addFault),
		"POST /delays": act(c.addDelay),
		"POST /http":   act(c.addHTTP),

		"DELETE /rules":          act(c.removeRules),
		"DELETE /rules/{id}":     actOn("id", c.removeRule),
		"DELETE /calls":          act(c.resetCalls),
		"DELETE /sessions":       act(c.expireAll),
		"DELETE /sessions/{key}": actOn("key", c.expireOne),

		"POST /restart":     act(c.restart),
		"POST /cns/restart": act(c.restartCNS),
		"POST /cns/sync":    act(c.syncCNS),
		"POST /sps":         act(c.policyService),
		"POST /limits":      act(c.limits),
		"POST /session":     act(c.session),
		"POST /clock":       act(c.setClock),
		"POST /assumptions": actFree(c.setAssumptions),
		"POST /latency":     act(c.setLatency),

		"POST /user":    act(c.user),
		"POST /lockout": act(c.lockout),
		"POST /tasks":   act(c.tasks),

		"POST /tasks/release": act(c.releaseTasks),
		"DELETE /tasks":       act(c.forgetTasks),

		"POST /volume":        act(c.volume),
		"POST /vm/busy":       act(c.vmBusy),
		"POST /vm/snapshot":   act(c.vmSnapshot),
		"POST /vm/tracking":   act(c.vmTracking),
		"POST /vm/restart":    act(c.vmRestart),
		"POST /vm/clone":      act(c.vmClone),
		"POST /vm/host":       act(c.vmHost),
		"POST /vm/datastore":  act(c.vmDatastore),
		"POST /vm/power":      act(c.vmPower),
		"POST /vm/guest":      act(c.vmGuest),
		"POST /vm/accessible": act(c.vmAccessible),
		"POST /vm/unregister": act(c.vmUnregister),
		"POST /vm/vanish":     act(c.vmVanish),

		"POST /host/state":           act(c.hostState),
		"POST /datastore/accessible": act(c.datastoreAccessible),
		"POST /datastore/free":       act(c.datastoreFree),
		"POST /datastore/state":      act(c.datastoreState),

		"POST /rename": act(c.rename),
		"POST /delete": act(c.remove),
		"POST /tag":    act(c.tag),
		"POST /untag":  act(c.untag),
	} {
		mux.HandleFunc(pattern, handler)
	}
	return unknownRoutes(mux)
}
