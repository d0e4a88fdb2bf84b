package cns

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"
	vsanfs "github.com/vmware/govmomi/vsan/vsanfs/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// admitShare checks what a file volume is made of.
func (m *Manager) admitShare(c *creation) types.BaseMethodFault {
	switch c.BackingObjectDetails.(type) {
	case *cnstypes.CnsVsanFileShareBackingDetails, *cnstypes.CnsFileBackingDetails:
	default:
		return invalid("createSpecs.backingObjectDetails")
	}
	if _, ok := c.CreateSpec.(*cnstypes.CnsVSANFileCreateSpec); c.CreateSpec != nil && !ok {
		return invalid("createSpecs.createSpec")
	}
	capacityMB, permissions := c.share()
	if capacityMB <= 0 {
		return invalid("createSpecs.backingObjectDetails.capacityInMb")
	}
	return checkPermissions(permissions)
}

// share is the size of a file volume and who may mount it.
func (c *creation) share() (capacityMB int64, permissions []vsanfs.VsanFileShareNetPermission) {
	capacityMB = c.BackingObjectDetails.GetCnsBackingObjectDetails().CapacityInMb
	if details, ok := c.CreateSpec.(*cnstypes.CnsVSANFileCreateSpec); ok {
		permissions = details.Permission
		capacityMB = max(capacityMB, details.SoftQuotaInMb)
	}
	return capacityMB, permissions
}

// createShare makes a vSAN file share.
func (m *Manager) createShare(spec *creation) types.AnyType {
	if !m.since("7.0U1") || spec.VolumeSource != nil {
		return m.notCreated(spec, nil, &types.NotSupported{})
	}
	capacityMB, permissions := spec.share()
	at, placements, fault := m.choose(wanted{user: spec.user, among: spec.Datastores, policy: spec.policy, bytes: capacityMB * mib, file: true})
	if fault != nil {
		return m.notCreated(spec, placements, fault)
	}
	fileID := uuid.NewString()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.enter(&volume{
		id: "file:" + fileID, name: spec.Name, kind: typeFile, policy: spec.policy, metadata: spec.metadata,
		share: &share{fileID: fileID, datastore: at.ref, capacityMB: capacityMB, taken: at.taken, permissions: slices.Clone(permissions)},
	})
	return created(spec, "file:"+fileID, placements)
}

func checkPermissions(list []vsanfs.VsanFileShareNetPermission) types.BaseMethodFault {
	for _, p := range list {
		switch p.Permissions {
		case vsanfs.VsanFileShareAccessTypeREAD_ONLY, vsanfs.VsanFileShareAccessTypeREAD_WRITE, vsanfs.VsanFileShareAccessTypeNO_ACCESS:
		default:
			return invalid("permission.permissions")
		}
		if p.Ips == "" {
			return invalid("permission.ips")
		}
	}
	return nil
}

// showShare tells how to mount a share. The server's name is in the range kept for documentation: nothing serves it.
func (m *Manager) showShare(v *volume) cnstypes.BaseCnsBackingObjectDetails {
	return &CnsVsanFileShareBackingDetails{
		CnsFileBackingDetails: cnstypes.CnsFileBackingDetails{
			CnsBackingObjectDetails: cnstypes.CnsBackingObjectDetails{CapacityInMb: v.share.capacityMB},
			BackingFileId:           v.share.fileID,
		},
		Name: v.name,
		AccessPoints: []types.KeyValue{
			{Key: "NFSv3", Value: "192.0.2.10:/" + v.share.fileID},
			{Key: "NFSv4.1", Value: fmt.Sprintf("192.0.2.10:/vsanfs/%s", v.share.fileID)},
		},
		Permission: slices.Clone(v.share.permissions),
	}
}

func (m *Manager) extendShare(v *volume, capacityMB int64) types.BaseMethodFault {
	if !assume.ExtendFileShares.In(m.assumed) {
		return &types.NotSupported{}
	}
	m.mu.Lock()
	grow := capacityMB - v.share.capacityMB
	m.mu.Unlock()
	if grow < 0 {
		return invalid("extendSpecs.capacityInMb")
	}
	taken, enough := m.take(v.share.datastore, grow*mib)
	if !enough {
		return m.outOfSpace("extend", v.share.datastore.Value)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v.share.capacityMB = capacityMB
	v.share.taken += taken
	return nil
}

// configureACLs is CnsConfigureVolumeACLs.
func (m *Manager) configureACLs(specs []cnstypes.CnsVolumeACLConfigureSpec) (types.AnyType, types.BaseMethodFault) {
	if len(specs) == 0 {
		return nil, invalid("ACLConfigSpecs")
	}
	result := batch()
	for _, spec := range specs {
		result.VolumeResults = append(result.VolumeResults, outcome(spec.VolumeId.Id, m.configureACL(spec)))
	}
	return result, nil
}

// configureACL merges by address: a new entry replaces the one for the same clients, delete removes it.
func (m *Manager) configureACL(spec cnstypes.CnsVolumeACLConfigureSpec) types.BaseMethodFault {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.volumes[spec.VolumeId.Id]
	if !ok {
		return &types.NotFound{}
	}
	if v.share == nil {
		return &types.NotSupported{}
	}
	permissions := slices.Clone(v.share.permissions)
	for _, access := range spec.AccessControlSpecList {
		if fault := checkPermissions(access.Permission); fault != nil && !access.Delete {
			return fault
		}
		for _, p := range access.Permission {
			permissions = slices.DeleteFunc(permissions, func(old vsanfs.VsanFileShareNetPermission) bool { return old.Ips == p.Ips })
			if !access.Delete {
				permissions = append(permissions, p)
			}
		}
	}
	v.share.permissions = permissions
	return nil
}
