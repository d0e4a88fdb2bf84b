package control

import (
	"context"
	"fmt"
	"testing"

	"github.com/vmware/govmomi"
	cnsclient "github.com/vmware/govmomi/cns"
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/pbm"
	pbmtypes "github.com/vmware/govmomi/pbm/types"
	sessions "github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"
)

// sessionKey is that of a client's session.
func (l *lab) sessionKey(client *govmomi.Client) string {
	l.t.Helper()
	own, err := sessions.NewManager(client.Client).UserSession(l.ctx)
	if err != nil || own == nil {
		l.t.Fatalf("no session: %v", err)
	}
	return own.Key
}

func (l *lab) setHalfDead(key string, halfDead bool) {
	l.t.Helper()
	l.must("POST", "/session", fmt.Sprintf(`{"key":%q,"half_dead":%t}`, key, halfDead))
}

// wantShutOut expects a service not to know a half-dead session, for good, while it knows others; what heals it is a new
// login, or the end of that state.
func (l *lab) wantShutOut(use func(context.Context, *govmomi.Client) error, refused func(error) bool) {
	l.t.Helper()
	half, other := l.client, l.login("administrator@vsphere.local", "Lab-admin-1!")
	works := func(when string, client *govmomi.Client) {
		l.t.Helper()
		if err := use(l.ctx, client); err != nil {
			l.t.Errorf("%s: %v", when, err)
		}
	}
	works("before", half)
	l.setHalfDead(l.sessionKey(half), true)
	for range 2 {
		if err := use(l.ctx, half); err == nil || !refused(err) {
			l.t.Errorf("half-dead: %v", err)
		}
	}
	works("another session of the user", other)
	works("a new login", l.login("administrator@vsphere.local", "Lab-admin-1!"))
	l.setHalfDead(l.sessionKey(half), false)
	works("afterwards", half)
}

func notAuthenticated(err error) bool { return kind(fault(err)) == "types.NotAuthenticated" }

func TestAHalfDeadSessionIsUnknownToCNS(t *testing.T) {
	start(t).wantShutOut(func(ctx context.Context, client *govmomi.Client) error {
		volumes, err := cnsclient.NewClient(ctx, client.Client)
		if err == nil {
			_, err = volumes.QueryVolume(ctx, &cnstypes.CnsQueryFilter{})
		}
		return err
	}, notAuthenticated)
}

func TestAHalfDeadSessionIsUnknownToThePolicyService(t *testing.T) {
	start(t).wantShutOut(func(ctx context.Context, client *govmomi.Client) error {
		policies, err := pbm.NewClient(ctx, client.Client)
		if err == nil {
			_, err = policies.QueryProfile(ctx, pbmtypes.PbmProfileResourceType{ResourceType: "STORAGE"}, "")
		}
		return err
	}, notAuthenticated)
}

func TestAHalfDeadSessionIsUnknownToVSLM(t *testing.T) {
	start(t).wantShutOut(func(ctx context.Context, client *govmomi.Client) error {
		disks, err := vslm.NewClient(ctx, client.Client)
		if err == nil {
			_, err = vslm.NewGlobalObjectManager(disks).List(ctx)
		}
		return err
	}, notAuthenticated)
}

func TestAHalfDeadSessionIsUnknownToREST(t *testing.T) {
	start(t).wantShutOut(func(ctx context.Context, client *govmomi.Client) error {
		api := rest.NewClient(client.Client)
		api.SessionID(client.SessionCookie().Value)
		known, err := api.Session(ctx)
		if err == nil && known == nil {
			err = errUnknown
		}
		return err
	}, func(err error) bool { return err == errUnknown })
}

var errUnknown = fmt.Errorf("REST does not know the session")

func TestAHalfDeadSessionReadsPropertiesAndRunsTasksOfVim25(t *testing.T) {
	l := start(t)
	l.setHalfDead(l.sessionKey(l.client), true)
	if _, err := l.vm("node-1").PowerState(l.ctx); err != nil {
		t.Errorf("properties: %v", err)
	}
	task, err := l.vm("node-1").Reconfigure(l.ctx, types.VirtualMachineConfigSpec{Annotation: "changed"})
	if err != nil {
		t.Fatal(err)
	}
	if err := object.NewTask(l.client.Client, task.Reference()).Wait(l.ctx); err != nil { // waits for updates
		t.Errorf("a task: %v", err)
	}
}
