package strict

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/cns"
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	vsanfstypes "github.com/vmware/govmomi/vsan/vsanfs/types"
)

// cnsObjects are what the calls are about.
type cnsObjects struct {
	vm, datastore types.ManagedObjectReference
}

func cnsMetadata() cnstypes.CnsVolumeMetadata {
	cluster := cnstypes.CnsContainerCluster{
		ClusterType: string(cnstypes.CnsClusterTypeKubernetes), ClusterId: "c", VSphereUser: "u",
		ClusterFlavor: string(cnstypes.CnsClusterFlavorVanilla), ClusterDistribution: "OpenShift",
	}
	return cnstypes.CnsVolumeMetadata{
		ContainerCluster:      cluster,
		ContainerClusterArray: []cnstypes.CnsContainerCluster{cluster},
		EntityMetadata: []cnstypes.BaseCnsEntityMetadata{&cnstypes.CnsKubernetesEntityMetadata{
			CnsEntityMetadata: cnstypes.CnsEntityMetadata{EntityName: "pv", ClusterID: "c", Labels: []types.KeyValue{{Key: "k", Value: "v"}}},
			EntityType:        string(cnstypes.CnsKubernetesEntityTypePV),
			Namespace:         "n",
			ReferredEntity:    []cnstypes.CnsKubernetesEntityReference{{EntityType: "POD", EntityName: "p", Namespace: "n", ClusterID: "c"}},
		}},
	}
}

// cnsCalls are all calls of govmomi's CNS client, under the name of the method.
func cnsCalls(ctx context.Context, c *cns.Client, o cnsObjects) map[string]func() error {
	id := cnstypes.CnsVolumeId{Id: "2d0a8fc3-0a2d-4d1f-a51b-4a56d5a38ec3"}
	profiles := []types.BaseVirtualMachineProfileSpec{&types.VirtualMachineDefinedProfileSpec{ProfileId: "p"}}
	filter := cnstypes.CnsQueryFilter{
		VolumeIds: []cnstypes.CnsVolumeId{id}, Names: []string{"n"}, ContainerClusterIds: []string{"c"},
		Datastores: []types.ManagedObjectReference{o.datastore}, Cursor: &cnstypes.CnsCursor{Offset: 0, Limit: 10},
	}
	selection := cnstypes.CnsQuerySelection{Names: []string{string(cnstypes.QuerySelectionNameTypeVolumeName)}}
	attach := []cnstypes.CnsVolumeAttachDetachSpec{{VolumeId: id, Vm: o.vm}}
	only := func(_ *object.Task, err error) error { return err }
	return map[string]func() error{
		"CnsCreateVolume": func() error {
			return only(c.CreateVolume(ctx, []cnstypes.CnsVolumeCreateSpec{{
				Name: "pvc", VolumeType: string(cnstypes.CnsVolumeTypeBlock), Datastores: []types.ManagedObjectReference{o.datastore},
				Metadata: cnsMetadata(), Profile: profiles,
				BackingObjectDetails: &cnstypes.CnsBlockBackingDetails{CnsBackingObjectDetails: cnstypes.CnsBackingObjectDetails{CapacityInMb: 100}},
			}}))
		},
		"CnsUpdateVolumeMetadata": func() error {
			m := cnsMetadata()
			return only(c.UpdateVolumeMetadata(ctx, []cnstypes.CnsVolumeMetadataUpdateSpec{{VolumeId: id, Metadata: m}}))
		},
		"CnsDeleteVolume": func() error { return only(c.DeleteVolume(ctx, []cnstypes.CnsVolumeId{id}, true)) },
		"CnsExtendVolume": func() error {
			return only(c.ExtendVolume(ctx, []cnstypes.CnsVolumeExtendSpec{{VolumeId: id, CapacityInMb: 200}}))
		},
		"CnsAttachVolume":    func() error { return only(c.AttachVolume(ctx, attach)) },
		"CnsDetachVolume":    func() error { return only(c.DetachVolume(ctx, attach)) },
		"CnsQueryVolume":     func() error { _, err := c.QueryVolume(ctx, &filter); return err },
		"CnsQueryAllVolume":  func() error { _, err := c.QueryAllVolume(ctx, filter, selection); return err },
		"CnsQueryAsync":      func() error { return only(c.QueryVolumeAsync(ctx, filter, &selection)) },
		"CnsQueryVolumeInfo": func() error { return only(c.QueryVolumeInfo(ctx, []cnstypes.CnsVolumeId{id})) },
		"CnsRelocateVolume": func() error {
			return only(c.RelocateVolume(ctx, cnstypes.NewCnsBlockVolumeRelocateSpec(id.Id, o.datastore, profiles...)))
		},
		"CnsConfigureVolumeACLs": func() error {
			return only(c.ConfigureVolumeACLs(ctx, cnstypes.CnsVolumeACLConfigureSpec{
				VolumeId: id,
				AccessControlSpecList: []cnstypes.CnsNFSAccessControlSpec{{
					Permission: []vsanfstypes.VsanFileShareNetPermission{{Ips: "10.0.0.1", Permissions: vsanfstypes.VsanFileShareAccessTypeREAD_WRITE, AllowRoot: true}},
				}},
			}))
		},
		"CnsCreateSnapshots": func() error {
			return only(c.CreateSnapshots(ctx, []cnstypes.CnsSnapshotCreateSpec{{VolumeId: id, Description: "d"}}))
		},
		"CnsDeleteSnapshots": func() error {
			return only(c.DeleteSnapshots(ctx, []cnstypes.CnsSnapshotDeleteSpec{{VolumeId: id, SnapshotId: cnstypes.CnsSnapshotId{Id: "s"}}}))
		},
		"CnsQuerySnapshots": func() error {
			return only(c.QuerySnapshots(ctx, cnstypes.CnsSnapshotQueryFilter{
				SnapshotQuerySpecs: []cnstypes.CnsSnapshotQuerySpec{{VolumeId: id}}, Cursor: &cnstypes.CnsCursor{Limit: 10},
			}))
		},
		"CnsReconfigVolumePolicy": func() error {
			return only(c.ReconfigVolumePolicy(ctx, []cnstypes.CnsVolumePolicyReconfigSpec{{VolumeId: id, Profile: profiles}}))
		},
		"CnsSyncDatastore": func() error { return only(c.SyncDatastore(ctx, "ds:///vmfs/volumes/a/", true)) },
		"CnsSyncVolume": func() error {
			return only(c.SyncVolume(ctx, []cnstypes.CnsSyncVolumeSpec{{VolumeId: id, Datastore: &o.datastore}}))
		},
		"CnsUnregisterVolume": func() error {
			return only(c.UnregisterVolume(ctx, []cnstypes.CnsUnregisterVolumeSpec{{VolumeId: id}}))
		},
		"CnsSetVolumeControlFlags": func() error {
			return c.SetVolumeControlFlags(ctx, []cnstypes.CnsVolumeControlFlagsSpec{{VolumeId: id}})
		},
		"CnsClearVolumeControlFlags": func() error {
			return c.ClearVolumeControlFlags(ctx, []cnstypes.CnsVolumeControlFlagsSpec{{VolumeId: id}})
		},
		"CnsUpdateVolumeCrypto": func() error {
			return only(c.UpdateVolumeCrypto(ctx, []cnstypes.CnsVolumeCryptoUpdateSpec{{VolumeId: id, Profile: profiles}}))
		},
	}
}

func cnsSetup(t *testing.T, c *govmomi.Client, ctx context.Context) cnsObjects {
	t.Helper()
	finder := find.NewFinder(c.Client)
	vms, err := finder.VirtualMachineList(ctx, "/...")
	if err != nil {
		t.Fatal(err)
	}
	stores, err := finder.DatastoreList(ctx, "/...")
	if err != nil {
		t.Fatal(err)
	}
	return cnsObjects{vm: vms[0].Reference(), datastore: stores[0].Reference()}
}

func TestTheCNSClientPassesOnEveryReleaseWithTheCallsThatReleaseHas(t *testing.T) {
	from70 := []string{
		"CnsCreateSnapshots", "CnsDeleteSnapshots", "CnsQuerySnapshots", "CnsConfigureVolumeACLs", "CnsQueryAsync", "CnsRelocateVolume",
	}
	from80 := []string{"CnsReconfigVolumePolicy"}
	from91 := []string{"CnsSyncVolume", "CnsUnregisterVolume", "CnsUpdateVolumeCrypto"}
	for name, lacks := range map[string][]string{
		"6.7U3": slices.Concat(from70, from80, from91),
		"7.0U3": slices.Concat(from80, from91),
		"8.0U3": from91,
		"9.0":   from91,
		"next":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			v := start(t, Config{Profile: release(t, name)})
			ctx, c := login(t, v)
			o := cnsSetup(t, c, ctx)
			client, err := cns.NewClient(ctx, c.Client)
			if err != nil {
				t.Fatal(err)
			}
			for method, call := range cnsCalls(ctx, client, o) {
				err := call()
				if !slices.Contains(lacks, method) {
					v.passes(t, method)
					if err != nil && !soap.IsSoapFault(err) {
						t.Errorf("%s: %v", method, err)
					}
					continue
				}
				want := "Unable to resolve WSDL method name " + method + " for namespace name urn:vsan"
				if got := v.refusals(); len(got) != 1 || !strings.Contains(got[0], want) {
					t.Errorf("%s: got %q, want one fault with %q", method, got, want)
				}
			}
		})
	}
}

func TestACNSTaskIsReadAtTheVim25EndpointInTheNameOfVSAN(t *testing.T) {
	v := start(t, Config{Profile: release(t, "7.0U3")})
	ctx, c := login(t, v)
	o := cnsSetup(t, c, ctx)
	client, err := cns.NewClient(ctx, c.Client)
	if err != nil {
		t.Fatal(err)
	}
	task, err := client.CreateVolume(ctx, []cnstypes.CnsVolumeCreateSpec{{
		Name: "pvc", VolumeType: "BLOCK", Datastores: []types.ManagedObjectReference{o.datastore}, Metadata: cnsMetadata(),
		BackingObjectDetails: &cnstypes.CnsBlockBackingDetails{CnsBackingObjectDetails: cnstypes.CnsBackingObjectDetails{CapacityInMb: 100}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	info, err := cns.GetTaskInfo(ctx, task)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cns.GetTaskResult(ctx, info); err != nil {
		t.Fatal(err)
	}
	v.passes(t, "reading the task")
}

func TestElementsNewerThanTheReleaseAreRefusedOfTheCNSClientToo(t *testing.T) {
	for _, test := range []struct {
		name, release, tag string
		change             func(*cnstypes.CnsVolumeCreateSpec)
	}{
		{"client-chosen id", "9.0", "volumeId", func(s *cnstypes.CnsVolumeCreateSpec) { s.VolumeId = &cnstypes.CnsVolumeId{Id: "x"} }},
		{"volume source", "6.7U3", "volumeSource", func(s *cnstypes.CnsVolumeCreateSpec) {
			s.VolumeSource = &cnstypes.CnsSnapshotVolumeSource{VolumeId: cnstypes.CnsVolumeId{Id: "x"}, SnapshotId: cnstypes.CnsSnapshotId{Id: "s"}}
		}},
		{"active clusters", "9.0", "activeClusters", func(s *cnstypes.CnsVolumeCreateSpec) {
			s.ActiveClusters = []types.ManagedObjectReference{{Type: "ClusterComputeResource", Value: "domain-c1"}}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := start(t, Config{Profile: release(t, test.release)})
			ctx, c := login(t, v)
			client, err := cns.NewClient(ctx, c.Client)
			if err != nil {
				t.Fatal(err)
			}
			spec := cnstypes.CnsVolumeCreateSpec{
				Name: "pvc", VolumeType: "BLOCK", Metadata: cnsMetadata(),
				BackingObjectDetails: &cnstypes.CnsBlockBackingDetails{CnsBackingObjectDetails: cnstypes.CnsBackingObjectDetails{CapacityInMb: 100}},
			}
			test.change(&spec)
			_, err = client.CreateVolume(ctx, []cnstypes.CnsVolumeCreateSpec{spec})
			if err == nil || !soap.IsSoapFault(err) || !strings.Contains(err.Error(), `Unexpected element tag "`+test.tag+`" seen`) {
				t.Fatalf("got %v", err)
			}
			if _, ok := soap.ToSoapFault(err).VimFault().(types.InvalidRequest); !ok {
				t.Errorf("fault is %T", soap.ToSoapFault(err).VimFault())
			}
		})
	}
}
