package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/mo"
	vim "github.com/vmware/govmomi/vim25/types"
)

// creation says how long it takes to make a volume: by the task's own clock, and for a client that waits for it.
type creation struct {
	TaskMillis float64 `json:"task_ms"`
	CallMillis float64 `json:"call_ms"`
}

// measure makes volumes one after the other and prints the medians.
func (s *session) measure(ctx context.Context, count, datastore string) error {
	volumes, err := strconv.Atoi(count)
	if err != nil || volumes < 1 {
		return fmt.Errorf("%q is no number of volumes", count)
	}
	var task, call []float64
	for number := range volumes {
		started := time.Now()
		made, _, err := s.make(ctx, fmt.Sprintf("measured-%d", number), 10, datastore)
		if err != nil {
			return err
		}
		call = append(call, time.Since(started).Seconds()*1000)
		task = append(task, made.CompleteTime.Sub(*made.StartTime).Seconds()*1000)
	}
	return json.NewEncoder(os.Stdout).Encode(creation{TaskMillis: median(task), CallMillis: median(call)})
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// swing attaches and detaches a volume again and again and prints how long an attach task takes by its own clock. In a
// lab the disk is on its node when the task has ended.
func (s *session) swing(ctx context.Context, count, id, uuid string) error {
	rounds, err := strconv.Atoi(count)
	if err != nil || rounds < 1 {
		return fmt.Errorf("%q is no number of rounds", count)
	}
	spec, err := s.pair(ctx, id, uuid)
	if err != nil {
		return err
	}
	var times []float64
	for range rounds {
		task, err := s.volumes.AttachVolume(ctx, spec)
		if err != nil {
			return err
		}
		done, _, err := s.wait(ctx, task)
		if err != nil {
			return err
		}
		times = append(times, done.CompleteTime.Sub(done.QueueTime).Seconds()*1000)
		task, err = s.volumes.DetachVolume(ctx, spec)
		if _, err = s.result(ctx, task, err); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]float64{"task_ms": median(times)})
}

// rush is what came of many attach calls at once.
type rush struct {
	Volumes int     `json:"volumes"`
	VMs     int     `json:"vms"`
	Seconds float64 `json:"seconds"`
	Lost    int     `json:"lost"`
	Doubled int     `json:"doubled"`
}

// rush attaches many volumes to a few VMs, all at once, and counts what the VMs have afterwards.
func (s *session) rush(ctx context.Context, volumeCount, vmCount, datastore string) error {
	count, err := strconv.Atoi(volumeCount)
	if err != nil || count < 1 {
		return fmt.Errorf("%q is no number of volumes", volumeCount)
	}
	machines, err := s.machines(ctx, vmCount, datastore)
	if err != nil {
		return err
	}
	ids := make([]string, count)
	for number := range ids {
		if _, ids[number], err = s.make(ctx, fmt.Sprintf("rush-%d", number), 10, datastore); err != nil {
			return err
		}
	}
	started := time.Now()
	if err := s.attachAll(ctx, ids, machines); err != nil {
		return err
	}
	seconds := time.Since(started).Seconds()
	seen, err := s.attached(ctx, machines)
	if err != nil {
		return err
	}
	result := rush{Volumes: count, VMs: len(machines), Seconds: seconds}
	for _, id := range ids {
		switch {
		case seen[id] == 0:
			result.Lost++
		case seen[id] > 1:
			result.Doubled++
		}
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

func (s *session) attachAll(ctx context.Context, ids []string, machines []vim.ManagedObjectReference) error {
	failures := make(chan error, len(ids))
	var group sync.WaitGroup
	for number, id := range ids {
		group.Add(1)
		go func() {
			defer group.Done()
			spec := []types.CnsVolumeAttachDetachSpec{{VolumeId: types.CnsVolumeId{Id: id}, Vm: machines[number%len(machines)]}}
			task, err := s.volumes.AttachVolume(ctx, spec)
			if _, err = s.result(ctx, task, err); err != nil {
				failures <- fmt.Errorf("attach %s: %w", id, err)
			}
		}()
	}
	group.Wait()
	close(failures)
	return <-failures
}

// machines are the first VMs on hosts that mount the datastore.
func (s *session) machines(ctx context.Context, vmCount, datastore string) ([]vim.ManagedObjectReference, error) {
	count, err := strconv.Atoi(vmCount)
	if err != nil || count < 1 {
		return nil, fmt.Errorf("%q is no number of VMs", vmCount)
	}
	found, err := find.NewFinder(s.vim).Datastore(ctx, datastore)
	if err != nil {
		return nil, err
	}
	var read mo.Datastore
	if err := found.Properties(ctx, found.Reference(), []string{"host"}, &read); err != nil {
		return nil, err
	}
	all, err := view.NewManager(s.vim).CreateContainerView(ctx, s.vim.ServiceContent.RootFolder, []string{"VirtualMachine"}, true)
	if err != nil {
		return nil, err
	}
	defer func() { _ = all.Destroy(ctx) }()
	var vms []mo.VirtualMachine
	if err := all.Retrieve(ctx, []string{"VirtualMachine"}, []string{"runtime.host"}, &vms); err != nil {
		return nil, err
	}
	var chosen []vim.ManagedObjectReference
	for _, vm := range vms {
		mounts := func(mount vim.DatastoreHostMount) bool {
			return vm.Runtime.Host != nil && mount.Key == *vm.Runtime.Host
		}
		if slices.ContainsFunc(read.Host, mounts) {
			chosen = append(chosen, vm.Self)
		}
	}
	if len(chosen) < count {
		return nil, fmt.Errorf("%d VMs are on hosts that mount %s, not %d", len(chosen), datastore, count)
	}
	return chosen[:count], nil
}

// attached counts on how many disks of the VMs each volume is.
func (s *session) attached(ctx context.Context, machines []vim.ManagedObjectReference) (map[string]int, error) {
	var read []mo.VirtualMachine
	if err := s.collector().Retrieve(ctx, machines, []string{"config.hardware.device"}, &read); err != nil {
		return nil, err
	}
	seen := map[string]int{}
	for _, vm := range read {
		for _, device := range object.VirtualDeviceList(vm.Config.Hardware.Device).SelectByType((*vim.VirtualDisk)(nil)) {
			if disk, ok := device.(*vim.VirtualDisk); ok && disk.VDiskId != nil {
				seen[disk.VDiskId.Id]++
			}
		}
	}
	return seen, nil
}
