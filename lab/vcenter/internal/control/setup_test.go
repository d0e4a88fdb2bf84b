package control

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/vmware/govmomi"
	cnsclient "github.com/vmware/govmomi/cns"
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/vcenter"
	"vsphere-drivers.example/lab/vcenter/internal/world"
)

// patience bounds every wait for a condition.
const patience = time.Minute

// lab is a vCenter with the default world, its control endpoint and a client.
type lab struct {
	t      *testing.T
	ctx    context.Context
	vc     *vcenter.VCenter
	url    string
	client *govmomi.Client
}

func start(t *testing.T) *lab {
	t.Helper()
	w, err := world.Default()
	if err != nil {
		t.Fatal(err)
	}
	vc, err := vcenter.Start(w, vcenter.Options{})
	if err != nil {
		t.Fatal(err)
	}
	endpoint, err := Serve(vc, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(func() {
		cancel()
		_ = endpoint.Close()
		_ = vc.Close()
	})
	l := &lab{t: t, ctx: ctx, vc: vc, url: endpoint.URL}
	l.client = l.login("administrator@vsphere.local", "Lab-admin-1!")
	return l
}

func (l *lab) login(user, password string) *govmomi.Client {
	l.t.Helper()
	address := *l.vc.URL
	address.User = url.UserPassword(user, password)
	client, err := govmomi.NewClient(l.ctx, &address, true)
	if err != nil {
		l.t.Fatal(err)
	}
	return client
}

// call makes a control request and gives status and answer.
func (l *lab) call(verb, path, body string) (int, map[string]any) {
	l.t.Helper()
	request, err := http.NewRequestWithContext(l.ctx, verb, l.url+path, bytes.NewBufferString(body))
	if err != nil {
		l.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		l.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	answer := map[string]any{}
	if len(text) > 0 && text[0] == '{' {
		if err := json.Unmarshal(text, &answer); err != nil {
			l.t.Fatalf("%s %s answered %s", verb, path, text)
		}
	}
	return response.StatusCode, answer
}

// must makes a control request that succeeds.
func (l *lab) must(verb, path, body string) map[string]any {
	l.t.Helper()
	status, answer := l.call(verb, path, body)
	if status != http.StatusOK {
		l.t.Fatalf("%s %s %s: %d %v", verb, path, body, status, answer)
	}
	return answer
}

func (l *lab) vm(name string) *object.VirtualMachine {
	l.t.Helper()
	vm, err := l.vc.Inventory.FindVM("vm", name)
	if err != nil {
		l.t.Fatal(err)
	}
	return object.NewVirtualMachine(l.client.Client, vm.Self)
}

func (l *lab) read(ref types.ManagedObjectReference, properties []string, into any) {
	l.t.Helper()
	if err := l.client.RetrieveOne(l.ctx, ref, properties, into); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) ref(path string) types.ManagedObjectReference {
	l.t.Helper()
	ref := l.vc.Inventory.At(path)
	if ref == nil {
		l.t.Fatalf("there is nothing at %s", path)
	}
	return *ref
}

// watch makes a change and returns when a client that waits for the property sees it.
func (l *lab) watch(ref types.ManagedObjectReference, property_ string, change func(), seen func(any) bool) {
	l.t.Helper()
	changed := false
	err := property.Wait(l.ctx, property.DefaultCollector(l.client.Client), ref, []string{property_}, func(changes []types.PropertyChange) bool {
		if !changed {
			changed = true
			change()
			return false
		}
		for _, c := range changes {
			if seen(c.Val) {
				return true
			}
		}
		return false
	})
	if err != nil {
		l.t.Fatalf("%s of %s: %s", property_, ref.Value, err)
	}
}

func (l *lab) cns() *cnsclient.Client {
	l.t.Helper()
	client, err := cnsclient.NewClient(l.ctx, l.client.Client)
	if err != nil {
		l.t.Fatal(err)
	}
	return client
}

// create starts the creation of a volume.
func (l *lab) create(name string) (*object.Task, error) {
	return l.cns().CreateVolume(l.ctx, []cnstypes.CnsVolumeCreateSpec{{
		Name:       name,
		VolumeType: string(cnstypes.CnsVolumeTypeBlock),
		Datastores: []types.ManagedObjectReference{*l.vc.Inventory.At("/dc-1/datastore/shared-1"), *l.vc.Inventory.At("/dc-1/datastore/vsan-1")},
		Metadata: cnstypes.CnsVolumeMetadata{ContainerCluster: cnstypes.CnsContainerCluster{
			ClusterType: "KUBERNETES", ClusterId: "c1", VSphereUser: "administrator@vsphere.local", ClusterFlavor: "VANILLA",
		}},
		BackingObjectDetails: &cnstypes.CnsBlockBackingDetails{
			CnsBackingObjectDetails: cnstypes.CnsBackingObjectDetails{CapacityInMb: 16},
		},
	}})
}

// fault is the fault of a failed call or task.
func fault(err error) any {
	switch {
	case err == nil:
		return nil
	case soap.IsSoapFault(err):
		return soap.ToSoapFault(err).VimFault()
	case soap.IsVimFault(err):
		return soap.ToVimFault(err)
	}
	if task, ok := err.(interface{ Fault() types.BaseMethodFault }); ok {
		return task.Fault()
	}
	return err
}

func (l *lab) taskState(task *object.Task) mo.Task {
	l.t.Helper()
	var state mo.Task
	l.read(task.Reference(), []string{"info"}, &state)
	return state
}
