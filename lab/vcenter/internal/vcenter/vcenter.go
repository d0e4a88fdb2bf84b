// Package vcenter runs one simulated vCenter: the inventory of a description behind the real protocol, with its own
// certificate, port, sessions and clock. Several can run in one process.
package vcenter

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"

	cnsclient "github.com/vmware/govmomi/cns"
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/simulator/vpx"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
	"vsphere-drivers.example/lab/vcenter/internal/inventory"
	"vsphere-drivers.example/lab/vcenter/internal/latency"
	"vsphere-drivers.example/lab/vcenter/internal/profile"
	"vsphere-drivers.example/lab/vcenter/internal/traffic"
	"vsphere-drivers.example/lab/vcenter/internal/world"
)

// Options say how to serve a world.
type Options struct {
	// Listen is ADDRESS:PORT; empty is a free port on the loopback addresses of both families.
	Listen string
	// Authority signs the certificate; without one the certificate is self-signed.
	Authority *Authority
	// Names are further names and addresses for the certificate.
	Names []string
	// Home keeps the files on datastores. vSphere's URLs make the simulator use paths that are relative to the working
	// directory, so whoever wants methods that write files (CreateVM_Task, FileManager) must work in Home. Empty: none.
	Home string
}

// VCenter is a running vCenter.
type VCenter struct {
	World     *world.World
	Profile   *profile.Profile
	Assumed   *assume.Settings
	Inventory *inventory.Inventory
	Traffic   *traffic.Traffic
	Latency   *latency.Schedule
	Clock     *Clock
	Service   *simulator.Service
	Vim       *simulator.Registry

	URL  *url.URL // https://127.0.0.1:PORT/sdk
	URL6 *url.URL // the same over IPv6; nil where that is not served

	services    services
	cookies     *cookies
	certificate tls.Certificate
	server      *http.Server
	expiry      *expiry

	mu          sync.Mutex
	connections map[net.Conn]bool
	sessions    map[string]*simulator.Registry // what each session made: collectors, filters, views
	idle        idleSessions
	halfDead    map[string]bool // sessions that services other than vim25 do not know
	allowed     Limits
}

// Start builds the world and serves it. The vCenter is ready when Start returns.
func Start(w *world.World, options Options) (*VCenter, error) {
	release, err := profile.Lookup(w.Release)
	if err != nil {
		return nil, err
	}
	assumed, err := assume.For(release)
	if err != nil {
		return nil, err
	}
	if err := assumed.Set(w.Assumptions); err != nil {
		return nil, fmt.Errorf("assumptions: %w", err)
	}
	times, err := latency.Lookup(w.Latency)
	if err != nil {
		return nil, err
	}
	v := &VCenter{
		World: w, Profile: release, Assumed: assumed, Traffic: traffic.New(), Latency: latency.New(times), Clock: new(Clock),
		connections: map[net.Conn]bool{}, sessions: map[string]*simulator.Registry{},
		halfDead: map[string]bool{}, allowed: UsualLimits,
	}
	if options.Listen == "" {
		options.Listen = "127.0.0.1:0"
	}
	open, err := listeners(options.Listen)
	if err != nil {
		return nil, err
	}
	handler, err := v.build(open, options)
	if err != nil {
		for _, l := range open {
			err = errors.Join(err, l.Close())
		}
		return nil, fmt.Errorf("vCenter %s: %w", w.Name, err)
	}
	v.serve(open, handler)
	return v, nil
}

// build makes everything up to the handler that answers requests.
func (v *VCenter) build(open []net.Listener, options Options) (http.Handler, error) {
	v.URL = sdkURL(open[0])
	if len(open) > 1 {
		v.URL6 = sdkURL(open[1])
	}
	hosts := append([]string{"localhost", "127.0.0.1", "::1", v.World.Name}, options.Names...)
	if at := v.URL.Hostname(); !slices.Contains(hosts, at) {
		hosts = append(hosts, at)
	}
	var err error
	if v.cookies, err = newCookies(); err != nil {
		return nil, err
	}
	if v.certificate, err = newCertificate(v.World.Name, hosts, options.Authority); err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}

	content := vpx.ServiceContent
	content.About = about(content.About, v.Profile, v.World.InstanceUUID)
	ctx, instance := simulator.NewServiceInstance(simulator.NewContext(), content, vpx.RootFolder)
	v.Vim = ctx.Map
	v.Service = simulator.New(ctx, instance)
	v.Service.Listen = &url.URL{Scheme: "https", Host: v.URL.Host, Path: v.URL.Path, User: url.User("described")}
	v.settings(options.Home)
	if v.Inventory, err = inventory.Build(ctx, v.World, v.Profile, v.Assumed); err != nil {
		return nil, err
	}
	if err := v.datastoreDirectories(options.Home); err != nil {
		return nil, err
	}
	v.Traffic.Resolve = v.Inventory.Named
	v.Vim.AddHandler(v.Traffic.Tasks())
	v.Vim.AddHandler(&diskUUIDFlag{})
	v.expiry = newExpiry(v)
	v.Vim.AddHandler(v.expiry)

	v.Service.RegisterSDK(v.Vim, "/sdk/vimService")
	if err := v.serveVersions(v.Service.ServeMux); err != nil {
		return nil, err
	}
	v.Service.ServeMux.HandleFunc("/folder/", v.Service.ServeDatastore)
	if err := v.install(options.Home); err != nil {
		return nil, err
	}
	installHostClocks(v.Vim, v.Clock)
	v.Vim.Put(newStandIn(v))
	guarded, err := v.protect(v.Service.ServeMux)
	if err != nil {
		return nil, err
	}
	return v.Traffic.HTTP(guarded), nil
}

func sdkURL(l net.Listener) *url.URL {
	return &url.URL{Scheme: "https", Host: l.Addr().String(), Path: "/sdk"}
}

// settings gives this vCenter its own option list; the simulator's is shared by all in the process.
func (v *VCenter) settings(home string) {
	own := make([]types.BaseOptionValue, 0, len(vpx.Setting))
	for _, option := range vpx.Setting {
		value := *option.GetOptionValue()
		if text, ok := value.Value.(string); ok && strings.HasSuffix(value.Key, ".uri") {
			if endpoint, err := url.Parse(text); err == nil {
				endpoint.Host = v.URL.Host
				value.Value = endpoint.String()
			}
		}
		if value.Key == "VirtualCenter.InstanceName" {
			value.Value = v.World.Name
		}
		own = append(own, &value)
	}
	own = append(own,
		&types.OptionValue{Key: "vcsim.server.url", Value: v.URL.String()},
		&types.OptionValue{Key: "vcsim.home", Value: home})
	v.Vim.OptionManager().Setting = own
	sessions := v.Vim.SessionManager()
	sessions.ServiceHostName = v.URL.Host
	sessions.TLS = func() *tls.Config { return &tls.Config{Certificates: []tls.Certificate{v.certificate}} }
}

// datastoreDirectories makes the directories that the simulator looks for when it writes to a datastore.
func (v *VCenter) datastoreDirectories(home string) error {
	if home == "" {
		return nil
	}
	for _, dc := range v.World.Datacenters {
		for _, ds := range dc.Datastores {
			relative := strings.TrimPrefix(ds.URL, "ds:///")
			if err := os.MkdirAll(filepath.Join(home, "ds:", filepath.FromSlash(relative)), 0o700); err != nil {
				return fmt.Errorf("files of datastore %s: %w", ds.Name, err)
			}
		}
	}
	return nil
}

// handle is what every registry asks before it dispatches a call.
func (v *VCenter) handle(ctx *simulator.Context, m *simulator.Method) (mo.Reference, types.BaseMethodFault) {
	if internal(ctx) {
		return nil, nil
	}
	v.noteSession(ctx)
	v.expiry.sweep()
	if crashes(m) {
		return v.services.access.Refuse(ctx, m, new(types.NotSupported), "The operation is not supported on the object.")
	}
	if ctx.Map.Path == cnsclient.Path && ctx.Session != nil && ctx.Map.Get(m.This) == nil {
		fault := &types.ManagedObjectNotFound{Obj: m.This}
		return v.services.access.Refuse(ctx, m, fault, v.text(ctx, fault))
	}
	v.linger(ctx, m)
	if fault := v.Traffic.Check(ctx, m); fault != nil {
		return v.services.access.Refuse(ctx, m, fault, v.text(ctx, fault))
	}
	if object, fault := v.services.access.Handle(ctx, m); object != nil || fault != nil {
		return object, fault
	}
	v.refuseBusy(ctx, m)
	v.storeSettings(m)
	return v.redirect(ctx, m), nil
}

// text is what a client shows for a fault. The vSAN endpoint has the bare name of its type, unless CNS itself made it.
func (v *VCenter) text(ctx *simulator.Context, fault types.BaseMethodFault) string {
	if _, own := fault.(cnstypes.BaseCnsFault); ctx.Map.Path == cnsclient.Path && !own {
		return reflect.TypeOf(fault).Elem().Name()
	}
	return traffic.Text(fault)
}

// crashes names the calls that make the library panic: adding hosts of the newer releases, and destroying the root.
func crashes(m *simulator.Method) bool {
	switch m.Name {
	case "AddHost_Task", "AddStandaloneHost_Task":
		return true
	case "Destroy_Task":
		return m.This == vpx.RootFolder.Self
	}
	return false
}

// internal tells calls that the simulator makes to itself from those of clients: they have a session without user.
func internal(ctx *simulator.Context) bool {
	return ctx.Session != nil && ctx.Session.UserName == ""
}

// Close stops serving and ends everything that hangs.
func (v *VCenter) Close() error {
	v.Traffic.Close()
	err := v.server.Close()
	v.cancelWaits()
	return errors.Join(err, v.services.close())
}
