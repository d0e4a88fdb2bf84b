package vcenter

import (
	"context"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/vmware/govmomi"
	cnsclient "github.com/vmware/govmomi/cns"
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/pbm"
	pbmtypes "github.com/vmware/govmomi/pbm/types"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/ssoadmin"
	"github.com/vmware/govmomi/sts"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vsan"

	"vsphere-drivers.example/lab/vcenter/internal/profile"
	"vsphere-drivers.example/lab/vcenter/internal/world"
)

const (
	csiUser     = "csi@vsphere.local"
	csiPassword = "Lab-csi-1!"
	gold        = "9f6e1c3a-5eed-4000-8000-00000000000a"
	nowhere     = "9f6e1c3a-5eed-4000-8000-00000000000c"
)

func loginAs(t *testing.T, vc *VCenter, user, password string) *govmomi.Client {
	t.Helper()
	address := *vc.URL
	address.User = url.UserPassword(user, password)
	client, err := govmomi.NewClient(context.Background(), &address, true)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func volumes(t *testing.T, client *govmomi.Client) *cnsclient.Client {
	t.Helper()
	made, err := cnsclient.NewClient(context.Background(), client.Client)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// result waits for a CNS task of one volume and gives its result.
func result(t *testing.T, task *object.Task, err error) cnstypes.BaseCnsVolumeOperationResult {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	info, err := cnsclient.GetTaskInfo(context.Background(), task)
	if err != nil {
		t.Fatal(err)
	}
	one, err := cnsclient.GetTaskResult(context.Background(), info)
	if err != nil {
		t.Fatal(err)
	}
	return one
}

// createSpec is a request for a volume on one of two datastores that the driver's user may use.
func createSpec(vc *VCenter, name, policy string) []cnstypes.CnsVolumeCreateSpec {
	return []cnstypes.CnsVolumeCreateSpec{{
		Name:       name,
		VolumeType: string(cnstypes.CnsVolumeTypeBlock),
		Datastores: []types.ManagedObjectReference{*vc.Inventory.At("/dc-1/datastore/shared-1"), *vc.Inventory.At("/dc-1/datastore/vsan-1")},
		Metadata: cnstypes.CnsVolumeMetadata{ContainerCluster: cnstypes.CnsContainerCluster{
			ClusterType: "KUBERNETES", ClusterId: "cluster", VSphereUser: csiUser, ClusterFlavor: "VANILLA",
		}},
		BackingObjectDetails: &cnstypes.CnsBlockBackingDetails{
			CnsBackingObjectDetails: cnstypes.CnsBackingObjectDetails{CapacityInMb: 64},
		},
		Profile: []types.BaseVirtualMachineProfileSpec{&types.VirtualMachineDefinedProfileSpec{ProfileId: policy}},
	}}
}

func TestTheDescribedCSIUserCanDoWhatTheDriverDoes(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := loginAs(t, vc, csiUser, csiPassword)
	ctx := context.Background()
	cns := volumes(t, client)

	task, err := cns.CreateVolume(ctx, createSpec(vc, "pvc-1", gold))
	created := result(t, task, err).GetCnsVolumeOperationResult()
	if created.Fault != nil {
		t.Fatalf("create: %T %s", created.Fault.Fault, created.Fault.LocalizedMessage)
	}
	node := one(t, client, "VirtualMachine", "node-1", nil, nil)
	task, err = cns.AttachVolume(ctx, []cnstypes.CnsVolumeAttachDetachSpec{{VolumeId: created.VolumeId, Vm: node}})
	attached, ok := result(t, task, err).(*cnstypes.CnsVolumeAttachResult)
	if !ok || attached.Fault != nil || attached.DiskUUID == "" {
		t.Fatalf("attach: %+v", attached)
	}
	var vm mo.VirtualMachine
	if err := client.RetrieveOne(ctx, node, []string{"config.hardware.device"}, &vm); err != nil {
		t.Fatal(err)
	}
	if disks := object.VirtualDeviceList(vm.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil)); len(disks) != 2 {
		t.Errorf("the VM has %d disks", len(disks))
	}
	found, err := cns.QueryVolume(ctx, &cnstypes.CnsQueryFilter{VolumeIds: []cnstypes.CnsVolumeId{created.VolumeId}})
	if err != nil || len(found.Volumes) != 1 || found.Volumes[0].StoragePolicyId != gold {
		t.Errorf("query: %v %+v", err, found)
	}
	task, err = cns.DetachVolume(ctx, []cnstypes.CnsVolumeAttachDetachSpec{{VolumeId: created.VolumeId, Vm: node}})
	if detached := result(t, task, err).GetCnsVolumeOperationResult(); detached.Fault != nil {
		t.Errorf("detach: %T", detached.Fault.Fault)
	}
	task, err = cns.DeleteVolume(ctx, []cnstypes.CnsVolumeId{created.VolumeId}, true)
	if deleted := result(t, task, err).GetCnsVolumeOperationResult(); deleted.Fault != nil {
		t.Errorf("delete: %T", deleted.Fault.Fault)
	}
}

func TestAPolicyWithoutDatastoresTakesNoVolume(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	task, err := volumes(t, loginAs(t, vc, csiUser, csiPassword)).CreateVolume(context.Background(), createSpec(vc, "pvc-1", nowhere))
	if created := result(t, task, err).GetCnsVolumeOperationResult(); created.Fault == nil {
		t.Error("the volume was made")
	}
}

func TestAUserWithoutPermissionsCannotEnter(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	address := *vc.URL
	address.User = url.UserPassword("nobody@vsphere.local", "Lab-nobody-1!")
	if _, err := govmomi.NewClient(context.Background(), &address, true); err == nil {
		t.Error("the login succeeded")
	}
}

func TestAReaderMayNotPowerOff(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := loginAs(t, vc, "cpi@vsphere.local", "Lab-cpi-1!")
	node := object.NewVirtualMachine(client.Client, one(t, client, "VirtualMachine", "node-1", nil, nil))
	_, err := node.PowerOff(context.Background())
	if err == nil || !soap.IsSoapFault(err) {
		t.Fatal(err)
	}
	fault, ok := soap.ToSoapFault(err).VimFault().(types.NoPermission)
	if !ok || fault.PrivilegeId != "VirtualMachine.Interact.PowerOff" {
		t.Errorf("got %+v", soap.ToSoapFault(err).VimFault())
	}
}

func TestPoliciesFitTheDescribedDatastores(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := loginAs(t, vc, csiUser, csiPassword)
	ctx := context.Background()
	policies, err := pbm.NewClient(ctx, client.Client)
	if err != nil {
		t.Fatal(err)
	}
	id, err := policies.ProfileIDByName(ctx, "gold")
	if err != nil || id != gold {
		t.Fatalf("gold is %s, %v", id, err)
	}
	var hubs []pbmtypes.PbmPlacementHub
	for _, path := range []string{"/dc-1/datastore/vsan-1", "/dc-1/datastore/shared-1"} {
		hubs = append(hubs, pbmtypes.PbmPlacementHub{HubType: "Datastore", HubId: vc.Inventory.At(path).Value})
	}
	answer, err := policies.CheckRequirements(ctx, hubs, nil, []pbmtypes.BasePbmPlacementRequirement{
		&pbmtypes.PbmPlacementCapabilityProfileRequirement{ProfileId: pbmtypes.PbmProfileId{UniqueId: gold}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if fit := answer.CompatibleDatastores(); len(fit) != 1 || fit[0].HubId != hubs[0].HubId {
		t.Errorf("got %+v", fit)
	}
}

func TestDescribedTagsAreServed(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	ctx := context.Background()
	client := rest.NewClient(login(t, vc.URL).Client)
	if err := client.Login(ctx, url.UserPassword(admin, adminPassword)); err != nil {
		t.Fatal(err)
	}
	manager := tags.NewManager(client)
	for path, want := range map[string]string{
		"/dc-1": "region-1", "/europe/dc-2": "region-2", "/dc-1/host/cluster-1": "zone-1", "/dc-1/datastore/fast": "fast",
	} {
		attached, err := manager.GetAttachedTags(ctx, vc.Inventory.At(path))
		if err != nil || len(attached) != 1 || attached[0].Name != want {
			t.Errorf("%s: %v %v", path, attached, err)
		}
	}
}

func TestTokensOpenSessions(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	ctx := context.Background()
	client, err := vim25.NewClient(ctx, soap.NewClient(vc.URL, true))
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := sts.NewClient(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := tokens.Issue(ctx, sts.TokenRequest{Userinfo: url.UserPassword(admin, adminPassword)})
	if err != nil {
		t.Fatal(err)
	}
	header := soap.Header{Security: signer}
	if err := session.NewManager(client).LoginByToken(client.WithHeader(ctx, header)); err != nil {
		t.Fatal(err)
	}
	directory, err := ssoadmin.NewClient(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	if err := directory.Login(directory.WithHeader(ctx, header)); err != nil {
		t.Fatal(err)
	}
	people, err := directory.FindPersonUsers(ctx, "csi")
	if err != nil || len(people) != 1 {
		t.Errorf("found %v, %v", people, err)
	}
}

func TestEveryEndpointIsCounted(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client := login(t, vc.URL)
	ctx := context.Background()
	if _, err := volumes(t, client).QueryVolume(ctx, &cnstypes.CnsQueryFilter{}); err != nil {
		t.Fatal(err)
	}
	policies, err := pbm.NewClient(ctx, client.Client)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := policies.QueryProfile(ctx, pbmtypes.PbmProfileResourceType{ResourceType: "STORAGE"}, ""); err != nil {
		t.Fatal(err)
	}
	api := rest.NewClient(client.Client)
	if err := api.Login(ctx, url.UserPassword(admin, adminPassword)); err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, call := range vc.Traffic.Calls() {
		seen[call.Method] = call.User
	}
	for _, method := range []string{"CnsQueryVolume", "PbmQueryProfile"} {
		if seen[method] != admin {
			t.Errorf("%s was counted for %q", method, seen[method])
		}
	}
	if _, ok := seen["POST /rest/com/vmware/cis/session"]; !ok {
		t.Errorf("the REST login was not counted: %v", seen)
	}
}

func TestClustersSayWhetherTheyServeFiles(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	client, err := vsan.NewClient(context.Background(), login(t, vc.URL).Client)
	if err != nil {
		t.Fatal(err)
	}
	with, err := client.VsanClusterGetConfig(context.Background(), *vc.Inventory.At("/dc-1/host/cluster-1"))
	if err != nil || !*with.Enabled || with.FileServiceConfig == nil || !with.FileServiceConfig.Enabled {
		t.Errorf("cluster-1: %+v, %v", with, err)
	}
	without, err := client.VsanClusterGetConfig(context.Background(), *vc.Inventory.At("/europe/dc-2/host/cluster-2"))
	if err != nil || *without.Enabled || without.FileServiceConfig != nil {
		t.Errorf("cluster-2: %+v, %v", without, err)
	}
	if _, err := client.VsanClusterGetConfig(context.Background(), types.ManagedObjectReference{Type: "ClusterComputeResource", Value: "domain-c9999"}); err == nil {
		t.Error("a cluster that is not there has a configuration")
	}
}

func TestAReleaseWithoutTheFileServiceDoesNotNameIt(t *testing.T) {
	w := defaultWorld(t)
	w.Release = "6.7U3"
	vc := start(t, w, Options{})
	client, err := vsan.NewClient(context.Background(), login(t, vc.URL).Client)
	if err != nil {
		t.Fatal(err)
	}
	config, err := client.VsanClusterGetConfig(context.Background(), *vc.Inventory.At("/dc-1/host/cluster-1"))
	if err != nil || !*config.Enabled || config.FileServiceConfig != nil {
		t.Errorf("got %+v, %v", config, err)
	}
}

func TestAnAttachedDiskAppearsOnTheLabNode(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: loop devices and links on nodes were not tested")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("this machine has no loop devices")
	}
	w := defaultWorld(t)
	links := t.TempDir()
	w.Datacenters[0].VMs[0].Node = &world.Node{Disks: links}
	vc := start(t, w, Options{Home: t.TempDir()})
	client := login(t, vc.URL)
	ctx := context.Background()
	cns := volumes(t, client)
	spec := createSpec(vc, "pvc-1", gold)
	spec[0].Metadata.ContainerCluster.VSphereUser = admin
	task, err := cns.CreateVolume(ctx, spec)
	created := result(t, task, err).GetCnsVolumeOperationResult()
	if created.Fault != nil {
		t.Fatalf("create: %T %s", created.Fault.Fault, created.Fault.LocalizedMessage)
	}
	pair := []cnstypes.CnsVolumeAttachDetachSpec{{VolumeId: created.VolumeId, Vm: *vc.Inventory.At("/dc-1/vm/k8s/node-1")}}
	task, err = cns.AttachVolume(ctx, pair)
	attached := result(t, task, err).(*cnstypes.CnsVolumeAttachResult)
	if attached.Fault != nil {
		t.Fatalf("attach: %T %s", attached.Fault.Fault, attached.Fault.LocalizedMessage)
	}
	entries, err := os.ReadDir(links)
	if err != nil || len(entries) != 1 || entries[0].Name() != "wwn-0x"+strings.ToLower(strings.ReplaceAll(attached.DiskUUID, "-", "")) {
		t.Errorf("the node has %v, %v; the disk is %s", entries, err, attached.DiskUUID)
	}
	task, err = cns.DetachVolume(ctx, pair)
	if detached := result(t, task, err).GetCnsVolumeOperationResult(); detached.Fault != nil {
		t.Errorf("detach: %T", detached.Fault.Fault)
	}
	if entries, err := os.ReadDir(links); err != nil || len(entries) != 0 {
		t.Errorf("after detach the node has %v, %v", entries, err)
	}
}

func TestVolumesCanBeMadeOnEveryRelease(t *testing.T) {
	for _, release := range profile.All {
		t.Run(release.Name, func(t *testing.T) {
			w := defaultWorld(t)
			w.Release = release.Name
			vc := start(t, w, Options{})
			client := loginAs(t, vc, csiUser, csiPassword)
			ctx := context.Background()
			if err := client.UseServiceVersion("vsan"); err != nil {
				t.Fatal(err)
			}
			cns := volumes(t, client)
			task, err := cns.CreateVolume(ctx, createSpec(vc, "pvc-1", gold))
			created := result(t, task, err).GetCnsVolumeOperationResult()
			if created.Fault != nil {
				t.Fatalf("create: %T %s", created.Fault.Fault, created.Fault.LocalizedMessage)
			}
			task, err = cns.AttachVolume(ctx, []cnstypes.CnsVolumeAttachDetachSpec{{
				VolumeId: created.VolumeId, Vm: *vc.Inventory.At("/dc-1/vm/k8s/node-2"),
			}})
			if attached := result(t, task, err).GetCnsVolumeOperationResult(); attached.Fault != nil {
				t.Errorf("attach: %T %s", attached.Fault.Fault, attached.Fault.LocalizedMessage)
			}
		})
	}
}
