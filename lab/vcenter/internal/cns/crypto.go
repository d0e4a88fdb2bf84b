package cns

import (
	"github.com/vmware/govmomi/cns/methods"
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// CnsUpdateVolumeCrypto encrypts volumes, changes their keys, or decrypts them. It came with 9.1.
func (s *volumeManager) CnsUpdateVolumeCrypto(ctx *simulator.Context, req *cnstypes.CnsUpdateVolumeCrypto) soap.HasFault {
	if !s.m.since("9.1") {
		return refuse(&types.NotSupported{})
	}
	task := s.m.start(ctx, "CnsUpdateVolumeCrypto", func() (types.AnyType, types.BaseMethodFault) { return s.m.updateCrypto(req.UpdateSpecs) })
	return &methods.CnsUpdateVolumeCryptoBody{Res: &cnstypes.CnsUpdateVolumeCryptoResponse{Returnval: task}}
}

func (m *Manager) updateCrypto(specs []cnstypes.CnsVolumeCryptoUpdateSpec) (types.AnyType, types.BaseMethodFault) {
	if len(specs) == 0 {
		return nil, invalid("updateSpecs")
	}
	result := batch()
	for _, spec := range specs {
		result.VolumeResults = append(result.VolumeResults, outcome(spec.VolumeId.Id, m.updateVolumeCrypto(spec)))
	}
	return result, nil
}

func (m *Manager) updateVolumeCrypto(spec cnstypes.CnsVolumeCryptoUpdateSpec) types.BaseMethodFault {
	id := spec.VolumeId.Id
	defer m.volumeOps.lock(id)()
	d, fault := m.blockDisk(id)
	if _, gone := fault.(*cnstypes.CnsVolumeNotFoundFault); gone {
		return &types.NotFound{}
	}
	if fault != nil {
		return fault
	}
	if spec.DisksCrypto == nil {
		return invalid("updateSpecs.disksCrypto")
	}
	key, fault := rekeyed(d.key, spec.DisksCrypto.Crypto)
	if fault != nil {
		return fault
	}
	policy, fault := policyID(spec.Profile)
	if fault == nil && policy != "" {
		fault = m.setPolicy(id, d.datastore, policy)
	}
	if fault != nil {
		return fault
	}
	live, _ := m.fcd(id)
	if live == nil {
		return &types.NotFound{}
	}
	holders := m.holders(live)
	m.mu.Lock()
	live.key = key
	m.publish(live)
	m.mu.Unlock()
	m.redraw(id, holders, func(device *types.VirtualDisk) {
		if backing, ok := device.Backing.(*types.VirtualDiskFlatVer2BackingInfo); ok {
			changed := *backing
			changed.KeyId = key
			device.Backing = &changed
		}
	})
	return nil
}

// rekeyed is the key after a change; nil is none. Content stays as it is: nobody reads it but through vCenter.
func rekeyed(key *types.CryptoKeyId, change types.BaseCryptoSpec) (*types.CryptoKeyId, types.BaseMethodFault) {
	var wanted types.CryptoKeyId
	encrypted := true // what the disk has to be
	switch spec := change.(type) {
	case *types.CryptoSpecNoOp:
		return key, nil
	case *types.CryptoSpecDecrypt:
		if key == nil {
			return nil, &types.InvalidState{}
		}
		return nil, nil
	case *types.CryptoSpecEncrypt:
		wanted, encrypted = spec.CryptoKeyId, false
	case *types.CryptoSpecDeepRecrypt:
		wanted = spec.NewKeyId
	case *types.CryptoSpecShallowRecrypt:
		wanted = spec.NewKeyId
	default:
		return nil, invalid("updateSpecs.disksCrypto.crypto")
	}
	switch {
	case wanted.KeyId == "":
		return nil, invalid("updateSpecs.disksCrypto.crypto.keyId")
	case encrypted != (key != nil):
		return nil, &types.InvalidState{}
	}
	return &wanted, nil
}
