package cns

import (
	"context"
	"slices"
	"sync"
	"time"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"
	vsanfs "github.com/vmware/govmomi/vsan/vsanfs/types"
)

var background = context.Background()

const (
	typeBlock = string(cnstypes.CnsVolumeTypeBlock)
	typeFile  = string(cnstypes.CnsVolumeTypeFile)

	mib = int64(1) << 20
)

// volume is what CNS adds to a disk or file share: a name, a policy and Kubernetes' view of it.
// All of it is guarded by Manager.mu; entities and clusters in metadata are never changed in place.
type volume struct {
	id       string
	sequence int64 // order of creation, which queries keep
	name     string
	kind     string
	policy   string
	metadata cnstypes.CnsVolumeMetadata
	disk     *disk  // block volumes
	share    *share // file volumes
	breach   bool   // the policy is not satisfied

	compliance string    // what tests want queries to show; "" is what is the case
	health     string    // the same
	missing    time.Time // when CNS first saw that its disk is gone
	unnoticed  bool      // CNS does not see that its disk is gone
}

// disk is an FCD. It outlives its volume when that is only unregistered.
type disk struct {
	id          string
	name        string
	datastore   types.ManagedObjectReference
	path        string // [datastore] fcd/id.vmdk
	capacityMB  int64
	uuid        string // what the guest sees
	objectID    string
	created     time.Time
	keep        bool   // survives the VM it is attached to
	pinned      bool   // may not be relocated
	tracking    bool   // changed block tracking
	filled      bool   // Disks has its content
	beside      bool   // lies in the folder of a VM, where no file stands for it
	lost        bool   // storage vMotion took it from CNS: no catalogue has it any more
	taken       int64  // what it has of its datastore's space
	relocating  bool   // its path is about to change on its VMs
	policy      string // given through VSLM; that of a volume goes before it
	thick       bool   // its whole size is allocated
	family      string // the disk that a linked clone comes from
	key         *types.CryptoKeyId
	epoch       string // of changed block tracking: when it is switched on anew, older change ids mean nothing
	snapshots   []snapshot
	deleted     []deletedSnapshot
	late        lateness // what VSLM's catalogue does not know yet
	attachments []attachment
}

type snapshot struct {
	id          string
	description string
	created     time.Time
	objectID    string
	changeID    string
}

// deletedSnapshot is one that queries may still show.
type deletedSnapshot struct {
	snapshot
	at time.Time
}

type attachment struct {
	vm      types.ManagedObjectReference
	sharing string
	stale   bool // the VM is gone, and vCenter does not know it
}

// share is a vSAN file share.
type share struct {
	fileID      string
	datastore   types.ManagedObjectReference
	capacityMB  int64
	taken       int64 // what it has of its datastore's space
	permissions []vsanfs.VsanFileShareNetPermission
}

func (v *volume) datastore() types.ManagedObjectReference {
	if v.disk != nil {
		return v.disk.datastore
	}
	return v.share.datastore
}

func (v *volume) capacityMB() int64 {
	if v.disk != nil {
		return v.disk.capacityMB
	}
	return v.share.capacityMB
}

// lookup finds a registered volume.
func (m *Manager) lookup(id string) *volume {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.volumes[id]
}

// enter adds a volume; the caller holds mu.
func (m *Manager) enter(v *volume) {
	m.sequence++
	v.sequence = m.sequence
	m.volumes[v.id] = v
	m.noteCluster(v)
	m.shadeFresh(v)
}

// keyedLocks serialises operations on the same object and lets others pass.
type keyedLocks struct {
	mu    sync.Mutex
	locks map[string]*keyedLock
}

type keyedLock struct {
	sync.Mutex
	users int
}

func (k *keyedLocks) lock(key string) (unlock func()) {
	lock := k.enter(key)
	lock.Lock()
	return func() { k.leave(key, lock) }
}

// lockAll locks several objects in an order that cannot deadlock.
func (k *keyedLocks) lockAll(keys []string) (unlock func()) {
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	unlocks := make([]func(), 0, len(keys))
	for _, key := range keys {
		unlocks = append(unlocks, k.lock(key))
	}
	return func() {
		for _, unlock := range unlocks {
			unlock()
		}
	}
}

// tryLockAll gives ok=false, and locks nothing, when one of the objects is busy.
func (k *keyedLocks) tryLockAll(keys []string) (unlock func(), ok bool) {
	var unlocks []func()
	free := func() {
		for _, unlock := range unlocks {
			unlock()
		}
	}
	for _, key := range slices.Compact(slices.Sorted(slices.Values(keys))) {
		unlock, ok := k.tryLock(key)
		if !ok {
			free()
			return nil, false
		}
		unlocks = append(unlocks, unlock)
	}
	return free, true
}

// tryLock gives ok=false when the object is busy.
func (k *keyedLocks) tryLock(key string) (unlock func(), ok bool) {
	lock := k.enter(key)
	if !lock.TryLock() {
		k.mu.Lock()
		lock.users--
		k.mu.Unlock()
		return nil, false
	}
	return func() { k.leave(key, lock) }, true
}

func (k *keyedLocks) enter(key string) *keyedLock {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.locks == nil {
		k.locks = map[string]*keyedLock{}
	}
	lock, ok := k.locks[key]
	if !ok {
		lock = &keyedLock{}
		k.locks[key] = lock
	}
	lock.users++
	return lock
}

func (k *keyedLocks) leave(key string, lock *keyedLock) {
	lock.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	lock.users--
	if lock.users == 0 {
		delete(k.locks, key)
	}
}
