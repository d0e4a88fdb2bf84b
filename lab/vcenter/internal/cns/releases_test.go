package cns

import (
	"strings"
	"testing"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"
)

// The releases between 6.7U3 and 7.0U3 have each a part of what is new, which a driver must not take for all of it.
func TestTheReleasesOf70HaveEachAPartOfWhatIsNew(t *testing.T) {
	for release, has := range map[string]struct{ paths, placements, uniform, online, snapshots bool }{
		"6.7U3": {},
		"7.0U1": {paths: true},
		"7.0U2": {paths: true, placements: true, uniform: true, online: true},
		"7.0U3": {paths: true, placements: true, uniform: true, online: true, snapshots: true},
	} {
		t.Run(release, func(t *testing.T) {
			l := newLab(t, options{release: release})
			made := l.result(l.create(l.blockSpec("a", 1024))).(*cnstypes.CnsVolumeCreateResult)
			id, other := made.VolumeId.Id, l.newVolume("b")
			if got := len(made.PlacementResults) > 0; got != has.placements {
				t.Errorf("placements %+v", made.PlacementResults)
			}
			l.result(l.attach(id, l.vms[0]))
			grown := l.results(l.extend(id, 2048))[0].GetCnsVolumeOperationResult().Fault
			if (grown == nil) != has.online {
				t.Errorf("growing an attached volume: %+v", grown)
			}
			_, link := l.vmdk("a.vmdk")
			registered := l.results(l.create(l.linkSpec(link)))[0].GetCnsVolumeOperationResult().Fault
			if (registered == nil) != has.paths {
				t.Errorf("registering a vmdk: %+v", registered)
			}
			_, err := l.snapshot(id, "s")
			if has.snapshots {
				l.must(err)
			} else {
				l.wantCallFault(&types.MethodNotFound{}, nil, err)
			}
			l.reachDatastores(false)
			fault := l.results(l.attach(other, l.vms[1]))[0].GetCnsVolumeOperationResult().Fault
			if fault == nil || strings.Contains(fault.LocalizedMessage, "VSLM task failed") != has.uniform {
				t.Errorf("a failure of the disk layer: %+v", fault)
			}
		})
	}
}
