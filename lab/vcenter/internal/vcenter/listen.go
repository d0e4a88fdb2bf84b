package vcenter

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strconv"
)

// listeners opens the address, and for the IPv4 loopback address the same port of the IPv6 one, so that clients of both
// families reach the same vCenter. The second is left out on machines without IPv6.
func listeners(address string) ([]net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("listen address %q: %w; give ADDRESS:PORT, port 0 for any", address, err)
	}
	for range 20 { // a port that is free in one family may be taken in the other
		first, err := net.Listen("tcp", address)
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w", address, err)
		}
		if host != "127.0.0.1" {
			return []net.Listener{first}, nil
		}
		port := first.Addr().(*net.TCPAddr).Port
		second, err := net.Listen("tcp6", net.JoinHostPort("::1", strconv.Itoa(port)))
		if err == nil {
			return []net.Listener{first, second}, nil
		}
		var missing *net.AddrError
		if errors.As(err, &missing) || !inUse(err) {
			return []net.Listener{first}, nil
		}
		_ = first.Close()
	}
	return nil, fmt.Errorf("listen on %s: found no port that is free for IPv4 and IPv6", address)
}

// serve answers HTTPS on all listeners. HTTP/2 is off: rules that break connections need one request per connection.
func (v *VCenter) serve(open []net.Listener, handler http.Handler) {
	config := &tls.Config{Certificates: []tls.Certificate{v.certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	v.server = &http.Server{
		Handler:   handler,
		ConnState: v.noteConnection,
		ErrorLog:  log.New(discard{}, "", 0), // clients that refuse our certificate are part of the tests
	}
	for _, l := range open {
		go func() { _ = v.server.Serve(tls.NewListener(l, config)) }()
	}
}

type discard struct{}

func (discard) Write(data []byte) (int, error) { return len(data), nil }

func (v *VCenter) noteConnection(conn net.Conn, state http.ConnState) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch state {
	case http.StateNew:
		v.connections[conn] = true
	case http.StateClosed, http.StateHijacked:
		delete(v.connections, conn)
	}
}

// dropConnections cuts every client off, as a restart does.
func (v *VCenter) dropConnections() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for conn := range v.connections {
		_ = conn.Close()
	}
	clear(v.connections)
}
