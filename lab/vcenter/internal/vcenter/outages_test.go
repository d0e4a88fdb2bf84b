package vcenter

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi"
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/world"
)

func (d *driver) readTask(task *object.Task) error {
	var state mo.Task
	return property.DefaultCollector(d.vim).RetrieveOne(d.ctx, task.Reference(), []string{"info"}, &state)
}

func TestAFinishedTaskCannotBeReadForEver(t *testing.T) {
	d := operator(t, "8.0U3")
	spec := d.spec("a", "", "/dc-1/datastore/vsan-1")
	spec[0].Profile = nil
	made, err := d.cns.CreateVolume(d.ctx, spec)
	d.done("create", made, err)
	off, err := object.NewVirtualMachine(d.vim, d.at("/dc-1/vm/k8s/node-1")).PowerOff(d.ctx)
	if err == nil {
		err = off.Wait(d.ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	d.vc.Clock.SetSkew(9 * time.Minute)
	for _, task := range []*object.Task{made, off} {
		if err := d.readTask(task); err != nil {
			t.Errorf("after nine minutes: %v", err)
		}
	}
	d.vc.Clock.SetSkew(11 * time.Minute)
	for _, task := range []*object.Task{made, off} {
		var gone *types.ManagedObjectNotFound
		if _, ok := fault.As(d.readTask(task), &gone); !ok || gone.Obj != task.Reference() {
			t.Errorf("after eleven minutes: %v", d.readTask(task))
		}
	}
	if len(d.vc.CNS().Volumes()) != 1 {
		t.Error("the volume is gone with its task")
	}
}

func TestATaskOfCNSIsReadByThoseWhoMayReadTheRootFolder(t *testing.T) {
	for role, reads := range map[string]bool{"": false, "ReadOnly": true} {
		t.Run("role "+role, func(t *testing.T) {
			w := defaultWorld(t)
			user := world.User{Name: "tenant@vsphere.local", Password: "Tenant-1!"}
			user.Permissions = append(user.Permissions, world.Permission{Role: "CNS-DATASTORE", On: "/dc-1/datastore/vsan-1"})
			if role != "" {
				user.Permissions = append(user.Permissions, world.Permission{Role: role, On: "/"})
			}
			w.Users = append(w.Users, user)
			vc := start(t, w, Options{})
			client := loginAs(t, vc, user.Name, user.Password)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			d := &driver{t, ctx, vc, client.Client, volumes(t, client)}
			spec := d.spec("a", "", "/dc-1/datastore/vsan-1")
			spec[0].Profile = nil
			spec[0].Metadata.ContainerCluster.VSphereUser = user.Name
			task, err := d.cns.CreateVolume(ctx, spec)
			if err != nil {
				t.Fatal(err)
			}
			for len(vc.CNS().Volumes()) == 0 && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			var denied *types.NoPermission
			_, refused := fault.As(d.readTask(task), &denied)
			if refused == reads || refused && (denied.PrivilegeId != "System.Read" || *denied.Object != task.Reference() && denied.Object.Type != "Folder") {
				t.Errorf("reading the task: %v %+v", d.readTask(task), denied)
			}
		})
	}
}

func TestARESTSessionEndsWhenIdleAndAfterADayWhateverItsUse(t *testing.T) {
	d := operator(t, "8.0U3")
	api := rest.NewClient(d.vim)
	enter := func() {
		if err := api.Login(d.ctx, url.UserPassword(csiUser, csiPassword)); err != nil {
			t.Fatal(err)
		}
	}
	open := func() bool {
		session, err := api.Session(d.ctx)
		if err != nil {
			t.Fatal(err)
		}
		return session != nil
	}
	enter()
	for lived := time.Duration(0); lived <= 24*time.Hour; lived += 4 * time.Minute {
		d.vc.Clock.SetSkew(lived)
		if open() != (lived < 24*time.Hour) {
			t.Fatalf("a session in use after %s: open %v", lived, lived >= 24*time.Hour)
		}
	}
	enter()
	d.vc.Clock.SetSkew(24*time.Hour + 6*time.Minute)
	if open() {
		t.Error("a session that idled for six minutes is open")
	}
}

func TestASOAPSessionEndsWhenIdle(t *testing.T) {
	d := operator(t, "8.0U3")
	read := func() error {
		_, err := object.NewVirtualMachine(d.vim, d.at("/dc-1/vm/k8s/node-1")).PowerState(d.ctx)
		return err
	}
	for lived := time.Duration(0); lived <= 100*time.Minute; lived += 25 * time.Minute {
		d.vc.Clock.SetSkew(lived)
		if err := read(); err != nil {
			t.Fatalf("a session in use after %s: %v", lived, err)
		}
	}
	d.vc.Clock.SetSkew(130 * time.Minute)
	if err := read(); !soapFault[*types.NotAuthenticated](err) {
		t.Errorf("after thirty minutes: %v", err)
	}
	if got := len(d.vc.Sessions()); got != 0 {
		t.Errorf("%d sessions are open", got)
	}
}

func TestASOAPSessionThatWaitsForUpdatesIsNotIdle(t *testing.T) {
	var sessions idleSessions
	start, limit := time.Now(), func() time.Duration { return 30 * time.Minute }
	sessions.begin("a", start, limit) // a wait, which is not answered for an hour
	if sessions.begin("a", start.Add(time.Hour), limit) {
		t.Error("a session is idle while a request waits")
	}
	sessions.end("a", start.Add(time.Hour))
	sessions.end("a", start.Add(2*time.Hour))
	if sessions.begin("b", start, limit) || sessions.begin("a", start.Add(149*time.Minute), limit) {
		t.Error("a session is idle that was just used")
	}
	sessions.end("a", start.Add(149*time.Minute))
	if !sessions.begin("a", start.Add(179*time.Minute), limit) {
		t.Error("a session is not idle half an hour after the last answer")
	}
}

func TestFaultsOfTheVSANEndpointNameOnlyTheirType(t *testing.T) {
	d := operator(t, "8.0U3")
	text := func(err error) string {
		if !soap.IsSoapFault(err) {
			t.Fatalf("got %v", err)
		}
		return soap.ToSoapFault(err).String
	}
	reader := volumes(t, loginAs(t, d.vc, "cpi@vsphere.local", "Lab-cpi-1!"))
	_, err := reader.QueryVolume(d.ctx, &cnstypes.CnsQueryFilter{})
	denied(t, "without the privilege", err, "Cns.Searchable")
	if got := text(err); got != "NoPermission" {
		t.Errorf("without the privilege: %q", got)
	}
	_, err = d.cns.AttachVolume(d.ctx, []cnstypes.CnsVolumeAttachDetachSpec{{
		VolumeId: d.volume("a", "/dc-1/datastore/vsan-1", ""), Vm: types.ManagedObjectReference{Type: "VirtualMachine", Value: "vm-0"},
	}})
	if got := text(err); got != "ManagedObjectNotFound" {
		t.Errorf("an unknown VM: %q", got)
	}
	if err := session.NewManager(d.vim).Logout(d.ctx); err != nil {
		t.Fatal(err)
	}
	_, err = d.cns.QueryVolume(d.ctx, &cnstypes.CnsQueryFilter{})
	if got := text(err); got != "NotAuthenticated" || !sameType(soap.ToSoapFault(err).VimFault(), &types.NotAuthenticated{}) {
		t.Errorf("without a session: %q", got)
	}
	_, err = view.NewManager(d.vim).CreateContainerView(d.ctx, d.vim.ServiceContent.RootFolder, nil, true)
	if got := text(err); got != "The session is not authenticated." {
		t.Errorf("/sdk without a session: %q", got)
	}
}

func TestWithoutASessionOnlyItsAbsenceCanBeRead(t *testing.T) {
	d := operator(t, "8.0U3")
	manager := *d.vim.ServiceContent.SessionManager
	if err := session.NewManager(d.vim).Logout(d.ctx); err != nil {
		t.Fatal(err)
	}
	var sessions mo.SessionManager
	if err := property.DefaultCollector(d.vim).RetrieveOne(d.ctx, manager, []string{"currentSession"}, &sessions); err != nil || sessions.CurrentSession != nil {
		t.Errorf("current session %+v, %v", sessions.CurrentSession, err)
	}
	for what, call := range map[string]func() error{
		"the list of sessions": func() error {
			return property.DefaultCollector(d.vim).RetrieveOne(d.ctx, manager, []string{"sessionList"}, &sessions)
		},
		"both": func() error {
			return property.DefaultCollector(d.vim).RetrieveOne(d.ctx, manager, []string{"currentSession", "sessionList"}, &sessions)
		},
		"a view": func() error {
			_, err := view.NewManager(d.vim).CreateContainerView(d.ctx, d.vim.ServiceContent.RootFolder, nil, true)
			return err
		},
	} {
		var refused *types.NotAuthenticated
		_, ok := fault.As(call(), &refused)
		if !ok || refused.PrivilegeId != "System.View" || refused.Object == nil || *refused.Object != (types.ManagedObjectReference{Type: "Folder", Value: "group-d1"}) {
			t.Errorf("%s: %v %+v", what, call(), refused)
		}
	}
	node := d.at("/dc-1/vm/k8s/node-1")
	_, err := object.NewVirtualMachine(d.vim, node).PowerOff(d.ctx)
	var refused *types.NotAuthenticated
	if _, ok := fault.As(err, &refused); !ok || *refused.Object != node {
		t.Errorf("a VM: %v %+v", err, refused)
	}
}

func TestASessionMoreThanVCenterAllowsGets503(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	if got := vc.Limits(); got.SOAPSessions != 2000 || got.RESTSessions != 550 {
		t.Errorf("limits %+v", got)
	}
	first := login(t, vc.URL)
	vc.SetLimits(Limits{SOAPSessions: 2, RESTSessions: 2})
	second := login(t, vc.URL)
	address := *vc.URL
	address.User = url.UserPassword(admin, adminPassword)
	ctx := context.Background()
	if _, err := govmomi.NewClient(ctx, &address, true); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("a third session: %v", err)
	}
	if _, err := volumes(t, second).QueryVolume(ctx, &cnstypes.CnsQueryFilter{}); err != nil {
		t.Errorf("an open session: %v", err)
	}
	if err := second.Logout(ctx); err != nil {
		t.Fatal(err)
	}
	login(t, vc.URL)

	for i := range 3 {
		err := rest.NewClient(first.Client).Login(ctx, url.UserPassword(csiUser, csiPassword))
		if i < 2 && err != nil || i == 2 && (err == nil || !strings.Contains(err.Error(), "503")) {
			t.Errorf("REST session %d: %v", i+1, err)
		}
	}
	if err := rest.NewClient(first.Client).Login(ctx, url.UserPassword(admin, adminPassword)); err != nil {
		t.Errorf("another user: %v", err)
	}
}

func TestARestartMakesCachedTasksUnauthenticated(t *testing.T) {
	d := operator(t, "8.0U3")
	spec := d.spec("a", "", "/dc-1/datastore/vsan-1")
	spec[0].Profile = nil
	task, err := d.cns.CreateVolume(d.ctx, spec)
	d.done("create", task, err)
	d.vc.Restart(0)
	err = retry(func() error {
		err := d.readTask(task)
		if err != nil && !soap.IsSoapFault(err) {
			return err
		}
		if !sameType(soap.ToSoapFault(err).VimFault(), &types.NotAuthenticated{}) || soap.ToSoapFault(err).String != "The session is not authenticated." {
			t.Errorf("the task: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := session.NewManager(d.vim).Login(d.ctx, url.UserPassword(admin, adminPassword)); err != nil {
		t.Fatal(err)
	}
	var gone *types.ManagedObjectNotFound
	if _, ok := fault.As(d.readTask(task), &gone); !ok {
		t.Errorf("the task after a login: %v", d.readTask(task))
	}
}
