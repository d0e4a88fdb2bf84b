package strict

import (
	"errors"
	"net/http"
	"strings"

	"vsphere-drivers.example/lab/vcenter/internal/strict/schema"
)

const sessionCookie = "vmware_soap_session"

// service is one SOAP endpoint.
type service struct {
	types *schema.Types
	// namespaces a SOAPAction may name, without urn:, and with it the namespaces of the method's element.
	actions map[string][]string
	// sessions says that calls need a vCenter login; SSO has logins of its own.
	sessions bool
	// headerSession says that the login may also be named in the SOAP header.
	headerSession bool
	// bareFaults says that a fault of the service itself has the name of its type for a text.
	bareFaults bool
	// qualifiedHeaders says that a header element without namespace is refused.
	qualifiedHeaders bool
}

// gate is a configured middleware.
type gate struct {
	table              *schema.Table
	services           map[string]*service
	hasSession         func(string) bool
	shutOut            func(path, key string) bool
	refuseNewerVersion bool
	maxBody            int64

	release     schema.Release // what the simulated vCenter knows
	apiVersion  string
	vsanVersion string
}

func newGate(config Config) (*gate, error) {
	if config.Profile == nil {
		return nil, errors.New("strict mode needs the profile of a release")
	}
	table, err := schema.Shared()
	if err != nil {
		return nil, err
	}
	g := &gate{
		table:              table,
		hasSession:         config.HasSession,
		shutOut:            config.ShutOut,
		refuseNewerVersion: config.RefuseNewerVersion,
		maxBody:            config.MaxBody,
		apiVersion:         config.Profile.APIVersion,
		vsanVersion:        config.Profile.VSANVersion,
	}
	if g.maxBody <= 0 {
		g.maxBody = DefaultMaxBody
	}
	g.release.Vim = table.Rank(schema.Vim, g.apiVersion)
	if g.release.Vim == 0 {
		g.release.Vim = table.Newest(schema.Vim, g.apiVersion)
	}
	g.release.VSAN = table.Rank(schema.VSAN, g.vsanVersion)
	if g.release.VSAN == 0 {
		g.release.VSAN = table.Newest(schema.VSAN, g.vsanVersion)
	}

	// CNS results hang on vim25 tasks. Its clients read those at /sdk in the name of urn:vsan, so that the server
	// has the types to write them with.
	vim := &service{
		types:    schema.NewTypes(table, "vim25"),
		actions:  map[string][]string{"vim25": {"urn:vim25"}, "vsan": {"urn:vim25", "urn:vsan"}},
		sessions: true,
	}
	// The table does not describe SSO, and some of its names are vim25's.
	sso := &service{
		types: schema.NewTypes(&schema.Table{}, "sso"), actions: map[string][]string{"sso": {"urn:sso"}}, qualifiedHeaders: true,
	}
	policies := &service{
		types:    schema.NewTypes(table, "pbm"),
		actions:  map[string][]string{"pbm": {"urn:pbm"}},
		sessions: true, headerSession: true,
	}
	g.services = map[string]*service{
		"/sdk":            vim,
		"/sdk/vimService": vim,
		"/vsanHealth": {
			types:    schema.NewTypes(table, "vsan"),
			actions:  map[string][]string{"vsan": {"urn:vsan"}},
			sessions: true, bareFaults: true,
		},
		"/pbm":     policies, // govmomi's client
		"/pbm/sdk": policies, // VMware's own
		"/vslm/sdk": {
			types:    schema.NewTypes(table, "vslm"),
			actions:  map[string][]string{"vslm": {"urn:vslm"}},
			sessions: true, headerSession: true,
		},
		"/sso-adminserver/sdk":        sso,
		"/sso-adminserver/system-sdk": sso,
	}
	return g, nil
}

// serviceAt finds the endpoint of a path. SSO's has the name of its domain behind it.
func (g *gate) serviceAt(path string) *service {
	path = strings.TrimSuffix(path, "/")
	if s := g.services[path]; s != nil {
		return s
	}
	if strings.HasPrefix(path, "/sso-adminserver/sdk/") {
		return g.services["/sso-adminserver/sdk"]
	}
	return nil
}

// action reads the SOAPAction: which service it names, and how much of the API the request may use.
func (g *gate) action(s *service, header http.Header) (namespaces []string, release schema.Release, refused *refusal) {
	raw := strings.Trim(strings.TrimSpace(header.Get("SOAPAction")), `"`)
	unsupported := func() *refusal {
		r := refuse("Unsupported version URI %q", clip(raw))
		r.code = "VersionMismatchFaultCode"
		return r
	}
	namespace, version, found := strings.Cut(strings.TrimPrefix(raw, "urn:"), "/")
	namespaces = s.actions[namespace]
	if !found || namespaces == nil || !strings.HasPrefix(raw, "urn:") {
		return nil, release, unsupported()
	}
	ok := false
	release, ok = g.offered(namespace, version)
	if !ok {
		return nil, release, unsupported()
	}
	return namespaces, release, nil
}

// offered finds out what a request in the name of a version may use. ok is false if the release has no such version.
func (g *gate) offered(namespace, version string) (release schema.Release, ok bool) {
	release = g.release
	switch namespace {
	case "sso":
		// Its versions have names of their own and nothing we know depends on them.
		return release, strings.HasPrefix(version, "version")
	case "vsan":
		if version == "" || version == g.vsanVersion {
			return release, true
		}
		rank := g.table.Rank(schema.VSAN, version)
		if rank > 0 && rank <= g.release.VSAN {
			release.VSAN = rank
			return release, true
		}
		newer := rank > g.release.VSAN ||
			schema.Dotted(version) && schema.Dotted(g.vsanVersion) && schema.CompareDotted(version, g.vsanVersion) > 0
		return release, newer && !g.refuseNewerVersion
	case "vim25":
		if version == g.apiVersion {
			return release, true
		}
		rank := g.table.Rank(schema.Vim, version)
		if rank > 0 && rank <= g.release.Vim {
			release.Vim = rank
			return release, true
		}
	case "pbm", "vslm":
		// govmomi's clients of these two send no version at all.
		if version == "" || schema.Dotted(version) && schema.CompareDotted(version, g.apiVersion) <= 0 {
			return release, true
		}
	}
	newer := schema.Dotted(version) && schema.CompareDotted(version, g.apiVersion) > 0
	return release, newer && !g.refuseNewerVersion
}

// needsSession tells whether a call is refused without a login. vCenter marks the others with the privilege
// System.Anonymous. The property collector's calls have that mark too, because each property is checked by itself;
// without a login nothing is readable and the call fails.
func needsSession(table *schema.Table, method string) bool {
	on, anonymous := table.Anonymous(method)
	return !anonymous || on == "PropertyCollector"
}

// NeedsSession is a test for those that check the session behind the middleware: whether a call is refused without a
// login. It knows the calls of vim25, CNS, PBM and VSLM; any other name needs one.
func NeedsSession() (func(method string) bool, error) {
	table, err := schema.Shared()
	if err != nil {
		return nil, err
	}
	return func(method string) bool { return needsSession(table, method) }, nil
}
