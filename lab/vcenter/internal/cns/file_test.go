package cns

import (
	"strings"
	"testing"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
	vsanfs "github.com/vmware/govmomi/vsan/vsanfs/types"
)

// makeVSAN makes all datastores vSAN ones.
func makeVSAN(r *simulator.Registry) {
	for _, ref := range r.AllReference("Datastore") {
		ref.(*simulator.Datastore).Summary.Type = "vsan"
	}
}

func (l *lab) fileSpec(name string, capacityMB int64) cnstypes.CnsVolumeCreateSpec {
	spec := l.blockSpec(name, capacityMB)
	spec.VolumeType = "FILE"
	spec.BackingObjectDetails = &cnstypes.CnsVsanFileShareBackingDetails{CnsFileBackingDetails: cnstypes.CnsFileBackingDetails{
		CnsBackingObjectDetails: cnstypes.CnsBackingObjectDetails{CapacityInMb: capacityMB},
	}}
	spec.CreateSpec = &cnstypes.CnsVSANFileCreateSpec{SoftQuotaInMb: capacityMB, Permission: []vsanfs.VsanFileShareNetPermission{
		{Ips: "*", Permissions: vsanfs.VsanFileShareAccessTypeREAD_WRITE, AllowRoot: true},
	}}
	return spec
}

// permissions of a share are not in govmomi's type, so this reads our state.
func (l *lab) permissions(id string) []vsanfs.VsanFileShareNetPermission {
	l.manager.mu.Lock()
	defer l.manager.mu.Unlock()
	return l.manager.volumes[id].share.permissions
}

func TestAFileVolumeHasAccessPoints(t *testing.T) {
	l := newLab(t, options{inventory: makeVSAN})
	id := l.result(l.create(l.fileSpec("share", 2048))).GetCnsVolumeOperationResult().VolumeId.Id
	if !strings.HasPrefix(id, "file:") {
		t.Errorf("id is %s", id)
	}
	v := l.volume(id)
	backing, ok := v.BackingObjectDetails.(*cnstypes.CnsVsanFileShareBackingDetails)
	if !ok || v.VolumeType != "FILE" || backing.CapacityInMb != 2048 || len(backing.AccessPoints) != 2 || "file:"+backing.BackingFileId != id {
		t.Fatalf("volume %+v, backing %+v", v, v.BackingObjectDetails)
	}
	points := map[string]string{}
	for _, point := range backing.AccessPoints {
		points[point.Key] = point.Value
	}
	if points["NFSv3"] == "" || points["NFSv4.1"] == "" {
		t.Errorf("access points %v", points)
	}
	for _, refused := range []func() (types.BaseMethodFault, error){
		func() (types.BaseMethodFault, error) { return l.fault(l.attach(id, l.vms[0])) },
		func() (types.BaseMethodFault, error) { return l.fault(l.snapshot(id, "")) },
	} {
		fault, err := refused()
		l.must(err)
		l.sameFault(fault, &types.NotSupported{})
	}
	l.result(l.delete(id))
	if l.exists(id) {
		t.Error("the share is still there")
	}
}

func TestFileVolumesNeedAVSANDatastore(t *testing.T) {
	l := newLab(t, options{})
	task, err := l.create(l.fileSpec("share", 1024))
	l.wantVolumeFault(&cnstypes.CnsFault{}, task, err)
}

func TestFileVolumesNeedTheFileService(t *testing.T) {
	l := newLab(t, options{inventory: makeVSAN, config: func(c *Config) {
		c.FileService = func(types.ManagedObjectReference) bool { return false }
	}})
	task, err := l.create(l.fileSpec("share", 1024))
	l.wantVolumeFault(&cnstypes.CnsFault{}, task, err)

	l = newLab(t, options{release: "6.7U3", inventory: makeVSAN})
	task, err = l.create(l.fileSpec("share", 1024))
	l.wantVolumeFault(&types.NotSupported{}, task, err)
}

func TestAccessToSharesIsMergedByAddress(t *testing.T) {
	l := newLab(t, options{inventory: makeVSAN})
	id := l.result(l.create(l.fileSpec("share", 1024))).GetCnsVolumeOperationResult().VolumeId.Id
	change := func(remove bool, ips string, access vsanfs.VsanFileShareAccessType) cnstypes.CnsVolumeACLConfigureSpec {
		return cnstypes.CnsVolumeACLConfigureSpec{VolumeId: cnstypes.CnsVolumeId{Id: id}, AccessControlSpecList: []cnstypes.CnsNFSAccessControlSpec{{
			Permission: []vsanfs.VsanFileShareNetPermission{{Ips: ips, Permissions: access}}, Delete: remove,
		}}}
	}
	l.result(l.cns.ConfigureVolumeACLs(l.ctx, change(false, "10.0.0.1", vsanfs.VsanFileShareAccessTypeREAD_ONLY)))
	l.result(l.cns.ConfigureVolumeACLs(l.ctx, change(false, "10.0.0.1", vsanfs.VsanFileShareAccessTypeREAD_WRITE)))
	l.result(l.cns.ConfigureVolumeACLs(l.ctx, change(true, "*", vsanfs.VsanFileShareAccessTypeREAD_WRITE)))
	if got := l.permissions(id); len(got) != 1 || got[0].Ips != "10.0.0.1" || got[0].Permissions != vsanfs.VsanFileShareAccessTypeREAD_WRITE {
		t.Errorf("permissions %+v", got)
	}
	task, err := l.cns.ConfigureVolumeACLs(l.ctx, change(false, "", vsanfs.VsanFileShareAccessTypeREAD_ONLY))
	l.wantVolumeFault(invalid("ips"), task, err)
	block := l.newVolume("a")
	spec := change(false, "*", vsanfs.VsanFileShareAccessTypeREAD_ONLY)
	spec.VolumeId.Id = block
	task, err = l.cns.ConfigureVolumeACLs(l.ctx, spec)
	l.wantVolumeFault(&types.NotSupported{}, task, err)
	spec.VolumeId.Id = "nope"
	task, err = l.cns.ConfigureVolumeACLs(l.ctx, spec)
	l.wantVolumeFault(&types.NotFound{}, task, err)
}

func TestAFileShareDoesNotGrow(t *testing.T) {
	l := newLab(t, options{inventory: makeVSAN})
	id := l.result(l.create(l.fileSpec("share", 1024))).GetCnsVolumeOperationResult().VolumeId.Id
	task, err := l.extend(id, 2048)
	l.wantVolumeFault(&types.NotSupported{}, task, err)
	l.assume(map[string]any{"ExtendFileShares": true})
	l.result(l.extend(id, 2048))
	if got := l.volume(id).BackingObjectDetails.GetCnsBackingObjectDetails().CapacityInMb; got != 2048 {
		t.Errorf("size is %d", got)
	}
}
