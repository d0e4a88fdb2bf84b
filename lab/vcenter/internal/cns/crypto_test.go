package cns

import (
	"testing"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
)

func (l *lab) crypto(id string, change types.BaseCryptoSpec) (*object.Task, error) {
	return l.cns.UpdateVolumeCrypto(l.ctx, []cnstypes.CnsVolumeCryptoUpdateSpec{{
		VolumeId: cnstypes.CnsVolumeId{Id: id}, DisksCrypto: &types.DiskCryptoSpec{Crypto: change},
	}})
}

func TestVolumesGetKeys(t *testing.T) {
	l := newLab(t, options{release: "9.1"})
	id := l.newVolume("a")
	l.result(l.attach(id, l.vms[0]))
	key := func(name string) types.CryptoKeyId {
		return types.CryptoKeyId{KeyId: name, ProviderId: &types.KeyProviderId{Id: "kms"}}
	}
	wantKey := func(want string) {
		t.Helper()
		info := l.result(l.cns.QueryVolumeInfo(l.ctx, volumeIDs(id))).(*cnstypes.CnsQueryVolumeInfoResult).VolumeInfo.(*cnstypes.CnsBlockVolumeInfo)
		keys := map[string]*types.CryptoKeyId{
			"volume": info.VStorageObject.Config.Backing.(*types.BaseConfigInfoDiskFileBackingInfo).KeyId,
			"disk":   l.fileBacking(types.ID{Id: id}).KeyId,
			"device": l.diskOf(l.vms[0], id).Backing.(*types.VirtualDiskFlatVer2BackingInfo).KeyId,
		}
		for where, got := range keys {
			if want == "" && got != nil || want != "" && (got == nil || got.KeyId != want || got.ProviderId.Id != "kms") {
				t.Errorf("key of the %s is %+v, want %q", where, got, want)
			}
		}
	}
	wantKey("")
	task, err := l.crypto(id, &types.CryptoSpecShallowRecrypt{NewKeyId: key("k0")})
	l.wantVolumeFault(&types.InvalidState{}, task, err)
	l.result(l.crypto(id, &types.CryptoSpecEncrypt{CryptoKeyId: key("k1")}))
	wantKey("k1")
	l.result(l.crypto(id, &types.CryptoSpecShallowRecrypt{NewKeyId: key("k2")}))
	wantKey("k2")
	l.result(l.crypto(id, &types.CryptoSpecDeepRecrypt{NewKeyId: key("k3")}))
	l.result(l.crypto(id, &types.CryptoSpecNoOp{}))
	wantKey("k3")
	task, err = l.crypto(id, &types.CryptoSpecEncrypt{CryptoKeyId: key("k4")})
	l.wantVolumeFault(&types.InvalidState{}, task, err)
	task, err = l.crypto(id, &types.CryptoSpecDeepRecrypt{})
	l.wantVolumeFault(invalid("keyId"), task, err)
	l.result(l.crypto(id, &types.CryptoSpecDecrypt{}))
	wantKey("")

	task, err = l.crypto("nope", &types.CryptoSpecEncrypt{CryptoKeyId: key("k1")})
	l.wantVolumeFault(&types.NotFound{}, task, err)
	task, err = l.cns.UpdateVolumeCrypto(l.ctx, []cnstypes.CnsVolumeCryptoUpdateSpec{{VolumeId: cnstypes.CnsVolumeId{Id: id}}})
	l.wantVolumeFault(invalid("disksCrypto"), task, err)
	task, err = l.cns.UpdateVolumeCrypto(l.ctx, nil)
	l.wantTaskFault(invalid("updateSpecs"), task, err)

	l = newLab(t, options{release: "9.0"})
	_, err = l.crypto(l.newVolume("a"), &types.CryptoSpecEncrypt{CryptoKeyId: key("k1")})
	l.wantCallFault(&types.NotSupported{}, nil, err)
}
