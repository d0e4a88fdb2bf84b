package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"net/url"

	"github.com/vmware/govmomi/cns"
	"github.com/vmware/govmomi/pbm"
	pbmmethods "github.com/vmware/govmomi/pbm/methods"
	pbmtypes "github.com/vmware/govmomi/pbm/types"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/ssoadmin"
	ssomethods "github.com/vmware/govmomi/ssoadmin/methods"
	ssotypes "github.com/vmware/govmomi/ssoadmin/types"
	"github.com/vmware/govmomi/sts"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"
	vslmmethods "github.com/vmware/govmomi/vslm/methods"
	vslmtypes "github.com/vmware/govmomi/vslm/types"
)

// The user of every request.
const (
	user     = "csi@vsphere.local"
	password = "secret & <more>"
)

// A token as short as the libraries accept.
const token = `<saml2:Assertion xmlns:saml2="urn:oasis:names:tc:SAML:2.0:assertion" ID="_token"></saml2:Assertion>`

// The clients of all services, with a session.
type clients struct {
	vim  *vim25.Client
	cns  *cns.Client
	pbm  *pbm.Client
	vslm *vslm.GlobalObjectManager
	sso  *ssoadmin.Client
	sts  *sts.Client
	rest *rest.Client
	tags *tags.Manager
	// Holds the key of holder-of-key tokens. Nothing reads its certificate.
	certificate *tls.Certificate
}

func connect(ctx context.Context, at *url.URL) (*clients, error) {
	session.Locale = "en_US"
	client, err := vim25.NewClient(ctx, soap.NewClient(at, true))
	if err != nil {
		return nil, err
	}
	c := &clients{vim: client, rest: rest.NewClient(client)}
	c.tags = tags.NewManager(c.rest)
	if err := session.NewManager(client).Login(ctx, url.UserPassword(user, password)); err != nil {
		return nil, err
	}
	if c.cns, err = cns.NewClient(ctx, client); err != nil {
		return nil, err
	}
	if c.pbm, err = pbm.NewClient(ctx, client); err != nil {
		return nil, err
	}
	disks, err := vslm.NewClient(ctx, client)
	if err != nil {
		return nil, err
	}
	c.vslm = vslm.NewGlobalObjectManager(disks)
	if c.sso, err = ssoadmin.NewClient(ctx, client); err != nil {
		return nil, err
	}
	if c.sts, err = sts.NewClient(ctx, client); err != nil {
		return nil, err
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	c.certificate = &tls.Certificate{Certificate: [][]byte{[]byte("certificate")}, PrivateKey: key}
	return c, nil
}

func ref(kind, value string) types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: kind, Value: value}
}

func pointer[T any](value T) *T { return &value }

// What libraries must know before they can go on, by path and method.
var answers = map[string]any{
	"/sdk RetrieveServiceContent": &methods.RetrieveServiceContentBody{Res: &types.RetrieveServiceContentResponse{
		Returnval: types.ServiceContent{
			RootFolder:           ref("Folder", "group-d1"),
			PropertyCollector:    ref("PropertyCollector", "propertyCollector"),
			ViewManager:          pointer(ref("ViewManager", "ViewManager")),
			About:                types.AboutInfo{ApiType: "VirtualCenter", ApiVersion: "9.1.0.0"},
			SessionManager:       pointer(ref("SessionManager", "SessionManager")),
			AuthorizationManager: pointer(ref("AuthorizationManager", "AuthorizationManager")),
			SearchIndex:          pointer(ref("SearchIndex", "SearchIndex")),
		},
	}},
	"/sdk Login": &methods.LoginBody{Res: &types.LoginResponse{}},
	// A first page, and a first update without objects: the libraries ask for what follows.
	"/sdk RetrievePropertiesEx": &methods.RetrievePropertiesExBody{Res: &types.RetrievePropertiesExResponse{
		Returnval: &types.RetrieveResult{Token: "token-1"},
	}},
	"/sdk WaitForUpdatesEx": &methods.WaitForUpdatesExBody{Res: &types.WaitForUpdatesExResponse{
		Returnval: &types.UpdateSet{Version: "1"},
	}},
	"/pbm PbmRetrieveServiceContent": &pbmmethods.PbmRetrieveServiceContentBody{Res: &pbmtypes.PbmRetrieveServiceContentResponse{
		Returnval: pbmtypes.PbmServiceInstanceContent{
			ProfileManager:  ref("PbmProfileProfileManager", "ProfileManager"),
			PlacementSolver: ref("PbmPlacementSolver", "placementSolver"),
		},
	}},
	"/vslm/sdk RetrieveContent": &vslmmethods.RetrieveContentBody{Res: &vslmtypes.RetrieveContentResponse{
		Returnval: vslmtypes.VslmServiceInstanceContent{
			VStorageObjectManager: ref("VslmVStorageObjectManager", "VStorageObjectManager"),
		},
	}},
	"/sso-adminserver/sdk SsoAdminServiceInstance": &ssomethods.SsoAdminServiceInstanceBody{
		Res: &ssotypes.SsoAdminServiceInstanceResponse{Returnval: ssotypes.AdminServiceContent{
			SessionManager:             ref("SsoAdminSessionManager", "sessionManager"),
			PrincipalDiscoveryService:  ref("SsoAdminPrincipalDiscoveryService", "principalDiscoveryService"),
			PrincipalManagementService: ref("SsoAdminPrincipalManagementService", "principalManagementService"),
			PasswordPolicyService:      ref("SsoAdminPasswordPolicyService", "passwordPolicyService"),
		}},
	},
	"/sso-adminserver/sdk SsoGroupcheckServiceInstance": &ssomethods.SsoGroupcheckServiceInstanceBody{
		Res: &ssotypes.SsoGroupcheckServiceInstanceResponse{},
	},
}
