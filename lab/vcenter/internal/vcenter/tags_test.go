package vcenter

import (
	"context"
	"net/url"
	"testing"

	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25/mo"

	"vsphere-drivers.example/lab/vcenter/internal/world"
)

func TestEveryKindOfObjectCanBearTags(t *testing.T) {
	w := defaultWorld(t)
	paths := []string{
		"/", "/europe", "/dc-1", "/dc-1/vm/k8s", "/dc-1/host/cluster-1", "/dc-1/host/cluster-1/esx-1.lab.example", "/dc-1/host/cluster-1/Resources/k8s",
		"/dc-1/datastore/shared-1", "/dc-1/datastore/fast", "/dc-1/network/nodes", "/dc-1/vm/k8s/node-1",
	}
	w.Categories = append(w.Categories, world.Category{Name: "all", Cardinality: "multiple", Tags: []world.Tag{{Name: "everywhere", On: paths}}})
	vc := start(t, w, Options{})
	ctx := context.Background()
	client := rest.NewClient(login(t, vc.URL).Client)
	if err := client.Login(ctx, url.UserPassword(admin, adminPassword)); err != nil {
		t.Fatal(err)
	}
	var refs []mo.Reference
	for _, path := range paths {
		refs = append(refs, *vc.Inventory.At(path))
	}
	attached, err := tags.NewManager(client).GetAttachedTagsOnObjects(ctx, refs)
	if err != nil || len(attached) != len(paths) {
		t.Fatalf("%d objects, %v", len(attached), err)
	}
	for _, one := range attached {
		found := false
		for _, tag := range one.Tags {
			found = found || tag.Name == "everywhere"
		}
		if !found {
			t.Errorf("%v has %v", one.ObjectID, one.Tags)
		}
	}
}
