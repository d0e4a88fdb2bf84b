package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/authz"
	"vsphere-drivers.example/lab/vcenter/internal/authz/directory"
	"vsphere-drivers.example/lab/vcenter/internal/handclock"
	"vsphere-drivers.example/lab/vcenter/internal/profile"
)

const (
	adminName = "Administrator@vsphere.local"
	adminPass = directory.DefaultPassword
	userName  = "csi@vsphere.local"
	userPass  = "Secret1!"
)

// lab is a stock inventory with our users and our REST interface. The user csi may read the first virtual machine.
type lab struct {
	t       *testing.T
	ctx     context.Context
	service *Service
	authz   *authz.Authz
	clock   *handclock.Clock
	url     url.URL
	vms     []types.ManagedObjectReference
}

func start(t *testing.T, release string) *lab {
	t.Helper()
	model := simulator.VPX()
	model.ClusterHost, model.Portgroup = 1, 0
	if err := model.Create(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(model.Remove)
	vim := model.Service.Context.Map
	l := &lab{t: t, ctx: context.Background(), clock: handclock.At(time.Now())}
	for _, e := range vim.All("VirtualMachine") {
		l.vms = append(l.vms, e.Reference())
	}
	var err error
	l.authz, err = authz.Install(model.Service, vim, authz.Config{
		Directory:   directory.Config{Now: l.clock.Now, Users: []directory.User{{Name: userName, Password: userPass}}},
		Permissions: []authz.Permission{{Entity: l.vms[0], Principal: userName, Role: "ReadOnly"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	vim.Handler = l.authz.Handle
	known, err := profile.Lookup(release)
	if err != nil {
		t.Fatal(err)
	}
	l.service = Install(model.Service, vim, Config{Release: known, Access: l.authz, Now: l.clock.Now})
	server := model.Service.NewServer()
	t.Cleanup(server.Close)
	l.url = *server.URL
	l.url.User = nil
	return l
}

func (l *lab) soap() *vim25.Client {
	l.t.Helper()
	u := l.url
	c, err := vim25.NewClient(l.ctx, soap.NewClient(&u, true))
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

// tags is govmomi's tags client, logged in under /rest.
func (l *lab) tags(user, password string) *tags.Manager {
	l.t.Helper()
	c := rest.NewClient(l.soap())
	if err := c.Login(l.ctx, url.UserPassword(user, password)); err != nil {
		l.t.Fatal(err)
	}
	return tags.NewManager(c)
}

// api is a session under /api, spoken by hand.
type api struct {
	l  *lab
	id string
}

func (l *lab) api(user, password string) *api {
	l.t.Helper()
	a := &api{l: l}
	req, err := http.NewRequest(http.MethodPost, l.url.Scheme+"://"+l.url.Host+"/api/session", nil)
	if err != nil {
		l.t.Fatal(err)
	}
	req.SetBasicAuth(user, password)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		l.t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&a.id); err != nil || res.StatusCode != http.StatusCreated {
		l.t.Fatalf("login: %s, %v", res.Status, err)
	}
	return a
}

// login asks for a session and reads the answer into out.
func (a *api) login(path, user, password string, out any) int {
	a.l.t.Helper()
	req, err := http.NewRequest(http.MethodPost, a.l.url.Scheme+"://"+a.l.url.Host+path, nil)
	if err != nil {
		a.l.t.Fatal(err)
	}
	req.SetBasicAuth(user, password)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		a.l.t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(out); err != nil {
		a.l.t.Fatal(err)
	}
	return res.StatusCode
}

// rest is a session under /rest, spoken by hand.
func (l *lab) rest(user, password string) *api {
	l.t.Helper()
	var answer struct{ Value string }
	a := &api{l: l}
	if status := a.login("/rest/com/vmware/cis/session", user, password, &answer); status != http.StatusOK {
		l.t.Fatalf("login: %d", status)
	}
	a.id = answer.Value
	return a
}

// do sends a request and reads the answer into out, when there is one.
func (a *api) do(method, path string, body, out any) int {
	a.l.t.Helper()
	var data []byte
	if text, ok := body.(string); ok {
		data = []byte(text)
	} else if body != nil {
		data, _ = json.Marshal(body)
	}
	req, err := http.NewRequest(method, a.l.url.Scheme+"://"+a.l.url.Host+path, bytes.NewReader(data))
	if err != nil {
		a.l.t.Fatal(err)
	}
	if a.id != "" {
		req.Header.Set("vmware-api-session-id", a.id)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		a.l.t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		a.l.t.Fatal(err)
	}
	if out != nil {
		if err := json.Unmarshal(answer, out); err != nil {
			a.l.t.Errorf("%s %s: %s: %q", method, path, err, answer)
		}
	}
	return res.StatusCode
}
