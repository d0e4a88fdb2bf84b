// Command cnsctl works on volumes of a vCenter with govmomi's own client: the independent judge of the simulator in
// tests of whole labs, and a hand tool beside `make lab`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/cns"
	"github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	sessions "github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
	vim "github.com/vmware/govmomi/vim25/types"
)

const usage = `cnsctl -url URL [-user NAME] [-ca FILE] COMMAND

  create NAME MB DATASTORE   makes a block volume on the datastore of this inventory path, prints its id
  attach ID VM-UUID          attaches it, prints the disk's UUID as the guest sees it
  detach ID VM-UUID          detaches it
  extend ID MB               grows it
  delete ID                  deletes it with its disk
  snapshot ID                takes a snapshot of it
  list                       prints id, name, size and datastore of every volume
  measure COUNT DATASTORE    makes volumes and prints how long one takes, as JSON
  swing COUNT ID VM-UUID     attaches and detaches a volume and prints how long an attach takes, as JSON
  rush COUNT VMS DATASTORE   attaches many volumes to a few VMs at once and prints what came of it, as JSON
  ticket                     prints a ticket for one clone of this session

The password is taken from CNSCTL_PASSWORD. Without -ca any certificate is accepted.
`

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "cnsctl:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	address := flag.String("url", "", "")
	user := flag.String("user", "administrator@vsphere.local", "")
	ca := flag.String("ca", "", "")
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flag.Parse()
	target, err := soap.ParseURL(*address)
	if err != nil || target == nil || flag.NArg() == 0 {
		flag.Usage()
		return errors.New("URL or command is missing")
	}
	target.User = url.UserPassword(*user, os.Getenv("CNSCTL_PASSWORD"))
	client, err := connect(ctx, target, *ca)
	if err != nil {
		return fmt.Errorf("%s: %w", target.Host, err)
	}
	defer func() { _ = client.Logout(ctx) }()
	volumes, err := cns.NewClient(ctx, client.Client)
	if err != nil {
		return err
	}
	return (&session{vim: client.Client, volumes: volumes}).run(ctx, flag.Arg(0), flag.Args()[1:])
}

func connect(ctx context.Context, target *url.URL, ca string) (*govmomi.Client, error) {
	transport := soap.NewClient(target, ca == "")
	if ca != "" {
		if err := transport.SetRootCAs(ca); err != nil {
			return nil, err
		}
	}
	plain, err := vim25.NewClient(ctx, transport)
	if err != nil {
		return nil, err
	}
	client := &govmomi.Client{Client: plain, SessionManager: sessions.NewManager(plain)}
	return client, client.Login(ctx, target.User)
}

type session struct {
	vim     *vim25.Client
	volumes *cns.Client
}

func (s *session) run(ctx context.Context, command string, arguments []string) error {
	wanted := map[string]int{"create": 3, "attach": 2, "detach": 2, "extend": 2, "delete": 1, "snapshot": 1, "list": 0, "measure": 2, "swing": 3, "rush": 3, "ticket": 0}
	count, known := wanted[command]
	if !known || len(arguments) != count {
		flag.Usage()
		return fmt.Errorf("%s: unknown command, or not %d arguments", command, count)
	}
	switch command {
	case "create":
		return s.create(ctx, arguments[0], arguments[1], arguments[2])
	case "attach":
		return s.attach(ctx, arguments[0], arguments[1])
	case "detach":
		return s.detach(ctx, arguments[0], arguments[1])
	case "extend":
		return s.extend(ctx, arguments[0], arguments[1])
	case "delete":
		task, err := s.volumes.DeleteVolume(ctx, []types.CnsVolumeId{{Id: arguments[0]}}, true)
		_, err = s.result(ctx, task, err)
		return err
	case "snapshot":
		spec := types.CnsSnapshotCreateSpec{VolumeId: types.CnsVolumeId{Id: arguments[0]}, Description: "by hand"}
		task, err := s.volumes.CreateSnapshots(ctx, []types.CnsSnapshotCreateSpec{spec})
		_, err = s.result(ctx, task, err)
		return err
	case "measure":
		return s.measure(ctx, arguments[0], arguments[1])
	case "swing":
		return s.swing(ctx, arguments[0], arguments[1], arguments[2])
	case "rush":
		return s.rush(ctx, arguments[0], arguments[1], arguments[2])
	case "ticket":
		ticket, err := sessions.NewManager(s.vim).AcquireCloneTicket(ctx)
		fmt.Println(ticket)
		return err
	}
	return s.list(ctx)
}

func (s *session) create(ctx context.Context, name, size, datastore string) error {
	megabytes, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return fmt.Errorf("size %q: %w", size, err)
	}
	_, id, err := s.make(ctx, name, megabytes, datastore)
	if err != nil {
		return err
	}
	fmt.Println(id)
	return nil
}

// make makes a block volume and returns its task and id.
func (s *session) make(ctx context.Context, name string, megabytes int64, datastore string) (*vim.TaskInfo, string, error) {
	found, err := find.NewFinder(s.vim).Datastore(ctx, datastore)
	if err != nil {
		return nil, "", err
	}
	task, err := s.volumes.CreateVolume(ctx, []types.CnsVolumeCreateSpec{{
		Name:       name,
		VolumeType: string(types.CnsVolumeTypeBlock),
		Datastores: []vim.ManagedObjectReference{found.Reference()},
		Metadata: types.CnsVolumeMetadata{ContainerCluster: types.CnsContainerCluster{
			ClusterType: string(types.CnsClusterTypeKubernetes), ClusterId: "lab",
			VSphereUser: "administrator@vsphere.local", ClusterFlavor: string(types.CnsClusterFlavorVanilla),
		}},
		BackingObjectDetails: &types.CnsBlockBackingDetails{
			CnsBackingObjectDetails: types.CnsBackingObjectDetails{CapacityInMb: megabytes},
		},
	}})
	if err != nil {
		return nil, "", err
	}
	done, result, err := s.wait(ctx, task)
	if err != nil {
		return nil, "", err
	}
	return done, result.GetCnsVolumeOperationResult().VolumeId.Id, nil
}

func (s *session) attach(ctx context.Context, id, uuid string) error {
	spec, err := s.pair(ctx, id, uuid)
	if err != nil {
		return err
	}
	task, err := s.volumes.AttachVolume(ctx, spec)
	result, err := s.result(ctx, task, err)
	if err != nil {
		return err
	}
	attached, ok := result.(*types.CnsVolumeAttachResult)
	if !ok {
		return fmt.Errorf("the answer to an attach is a %T", result)
	}
	fmt.Println(attached.DiskUUID)
	return nil
}

func (s *session) detach(ctx context.Context, id, uuid string) error {
	spec, err := s.pair(ctx, id, uuid)
	if err != nil {
		return err
	}
	task, err := s.volumes.DetachVolume(ctx, spec)
	_, err = s.result(ctx, task, err)
	return err
}

// pair names a volume and the VM with this UUID.
func (s *session) pair(ctx context.Context, id, uuid string) ([]types.CnsVolumeAttachDetachSpec, error) {
	vm, err := object.NewSearchIndex(s.vim).FindByUuid(ctx, nil, uuid, true, nil)
	if err != nil {
		return nil, err
	}
	if vm == nil {
		return nil, fmt.Errorf("no VM has the UUID %s", uuid)
	}
	return []types.CnsVolumeAttachDetachSpec{{VolumeId: types.CnsVolumeId{Id: id}, Vm: vm.Reference()}}, nil
}

func (s *session) extend(ctx context.Context, id, size string) error {
	megabytes, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return fmt.Errorf("size %q: %w", size, err)
	}
	task, err := s.volumes.ExtendVolume(ctx, []types.CnsVolumeExtendSpec{{VolumeId: types.CnsVolumeId{Id: id}, CapacityInMb: megabytes}})
	_, err = s.result(ctx, task, err)
	return err
}

func (s *session) list(ctx context.Context) error {
	found, err := s.volumes.QueryVolume(ctx, &types.CnsQueryFilter{})
	if err != nil {
		return err
	}
	for _, volume := range found.Volumes {
		size := volume.BackingObjectDetails.GetCnsBackingObjectDetails().CapacityInMb
		fmt.Println(strings.Join([]string{volume.VolumeId.Id, volume.Name, strconv.FormatInt(size, 10), volume.DatastoreUrl}, "\t"))
	}
	return nil
}

func (s *session) collector() *property.Collector { return property.DefaultCollector(s.vim) }

// result waits for a task of one volume that was just started.
func (s *session) result(ctx context.Context, task *object.Task, err error) (types.BaseCnsVolumeOperationResult, error) {
	if err != nil {
		return nil, err
	}
	_, result, err := s.wait(ctx, task)
	return result, err
}

// wait waits for a task of one volume. A batch that succeeds may hold a volume that failed.
func (s *session) wait(ctx context.Context, task *object.Task) (*vim.TaskInfo, types.BaseCnsVolumeOperationResult, error) {
	done, err := task.WaitForResult(ctx)
	if err != nil {
		return nil, nil, err
	}
	batch, ok := done.Result.(types.CnsVolumeOperationBatchResult)
	if !ok || len(batch.VolumeResults) != 1 {
		return nil, nil, fmt.Errorf("the task answered with %T", done.Result)
	}
	result := batch.VolumeResults[0]
	if fault := result.GetCnsVolumeOperationResult().Fault; fault != nil {
		return nil, nil, fmt.Errorf("%T: %s", fault.Fault, fault.LocalizedMessage)
	}
	return done, result, nil
}
