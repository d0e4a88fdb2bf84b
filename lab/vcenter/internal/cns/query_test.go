package cns

import (
	"fmt"
	"slices"
	"testing"

	govcns "github.com/vmware/govmomi/cns"
	cnsmethods "github.com/vmware/govmomi/cns/methods"
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

func (l *lab) find(filter cnstypes.BaseCnsQueryFilter) []string {
	l.Helper()
	result, err := l.cns.QueryVolume(l.ctx, filter)
	l.must(err)
	return idsOf(result.Volumes)
}

func idsOf(volumes []cnstypes.CnsVolume) []string {
	ids := []string{}
	for _, v := range volumes {
		ids = append(ids, v.VolumeId.Id)
	}
	return ids
}

func TestEveryFilterOfAQueryCounts(t *testing.T) {
	table := policies{}
	l := newLab(t, options{release: "9.1", config: func(c *Config) { c.Policies = table }})
	table["gold"] = l.datastores
	spec := withPolicy(l.blockSpec("a", 1024), "gold")
	spec.Datastores = l.datastores[:1]
	spec.Metadata.EntityMetadata = []cnstypes.BaseCnsEntityMetadata{
		pv("pv-a", "c1", "app", "db"), claim("pvc-a", "ns1", "c1"), pod("pod-a", "ns1", "c1"),
	}
	a := l.result(l.create(spec)).GetCnsVolumeOperationResult().VolumeId.Id
	spec = l.blockSpec("b", 1024)
	spec.Datastores = l.datastores[1:2]
	spec.Metadata.ContainerCluster = cluster("c2")
	spec.Metadata.ContainerClusterArray = []cnstypes.CnsContainerCluster{cluster("c2"), cluster("c3")}
	spec.Metadata.EntityMetadata = []cnstypes.BaseCnsEntityMetadata{pv("pv-b", "c2", "app", "web"), claim("pvc-b", "ns2", "c2")}
	b := l.result(l.create(spec)).GetCnsVolumeOperationResult().VolumeId.Id
	l.must(l.cns.SetVolumeControlFlags(l.ctx, []cnstypes.CnsVolumeControlFlagsSpec{{VolumeId: cnstypes.CnsVolumeId{Id: b}, ControlFlags: []string{"enableChangedBlockTracking"}}}))

	kube := func(f cnstypes.CnsKubernetesQueryFilter) cnstypes.BaseCnsQueryFilter { return &f }
	plain := func(f cnstypes.CnsQueryFilter) cnstypes.BaseCnsQueryFilter { return &f }
	cases := map[string]struct {
		filter cnstypes.BaseCnsQueryFilter
		want   []string
	}{
		"nothing":                    {plain(cnstypes.CnsQueryFilter{}), []string{a, b}},
		"ids":                        {plain(cnstypes.CnsQueryFilter{VolumeIds: volumeIDs(b, "nope")}), []string{b}},
		"names":                      {plain(cnstypes.CnsQueryFilter{Names: []string{"a", "x"}}), []string{a}},
		"the first cluster":          {plain(cnstypes.CnsQueryFilter{ContainerClusterIds: []string{"c1"}}), []string{a}},
		"a cluster of the array":     {plain(cnstypes.CnsQueryFilter{ContainerClusterIds: []string{"c3"}}), []string{b}},
		"a policy":                   {plain(cnstypes.CnsQueryFilter{StoragePolicyId: "gold"}), []string{a}},
		"datastores":                 {plain(cnstypes.CnsQueryFilter{Datastores: l.datastores[1:]}), []string{b}},
		"labels":                     {plain(cnstypes.CnsQueryFilter{Labels: []types.KeyValue{{Key: "app", Value: "web"}}}), []string{b}},
		"compliance":                 {plain(cnstypes.CnsQueryFilter{ComplianceStatus: "nonCompliant"}), []string{}},
		"accessibility":              {plain(cnstypes.CnsQueryFilter{DatastoreAccessibilityStatus: "accessible"}), []string{a, b}},
		"health":                     {plain(cnstypes.CnsQueryFilter{HealthStatus: "red"}), []string{}},
		"changed block tracking":     {plain(cnstypes.CnsQueryFilter{ChangedBlockTracking: "ENABLED"}), []string{b}},
		"two at once":                {plain(cnstypes.CnsQueryFilter{Names: []string{"a"}, ContainerClusterIds: []string{"c2"}}), []string{}},
		"a namespace":                {kube(cnstypes.CnsKubernetesQueryFilter{Namespaces: []string{"ns2"}}), []string{b}},
		"a pod":                      {kube(cnstypes.CnsKubernetesQueryFilter{PodNames: []string{"pod-a"}}), []string{a}},
		"a claim in its namespace":   {kube(cnstypes.CnsKubernetesQueryFilter{PvcNames: []string{"pvc-b"}, Namespaces: []string{"ns2"}}), []string{b}},
		"a claim in another":         {kube(cnstypes.CnsKubernetesQueryFilter{PvcNames: []string{"pvc-b"}, Namespaces: []string{"ns1"}}), []string{}},
		"a persistent volume":        {kube(cnstypes.CnsKubernetesQueryFilter{PvNames: []string{"pv-a"}}), []string{a}},
		"plain fields in it as well": {kube(cnstypes.CnsKubernetesQueryFilter{CnsQueryFilter: cnstypes.CnsQueryFilter{Names: []string{"b"}}, PvNames: []string{"pv-a"}}), []string{}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := l.find(c.filter); !slices.Equal(got, c.want) {
				t.Errorf("found %v, want %v", got, c.want)
			}
			if filter, ok := c.filter.(*cnstypes.CnsQueryFilter); ok {
				all, err := l.cns.QueryAllVolume(l.ctx, *filter, cnstypes.CnsQuerySelection{})
				l.must(err)
				if got := idsOf(all.Volumes); !slices.Equal(got, c.want) {
					t.Errorf("query all found %v, want %v", got, c.want)
				}
				if got := idsOf(l.async(*filter, nil).Volumes); !slices.Equal(got, c.want) {
					t.Errorf("query async found %v, want %v", got, c.want)
				}
			}
		})
	}
}

func (l *lab) async(filter cnstypes.CnsQueryFilter, selection *cnstypes.CnsQuerySelection) cnstypes.CnsQueryResult {
	l.Helper()
	return l.results(l.cns.QueryVolumeAsync(l.ctx, filter, selection))[0].(*cnstypes.CnsAsyncQueryResult).QueryResult
}

func TestPagesAreStableAndTheCursorLeadsToTheNext(t *testing.T) {
	l := newLab(t, options{})
	var made []string
	for range 25 {
		made = append(made, l.quickVolume())
	}
	ask := map[string]func(cnstypes.CnsQueryFilter) *cnstypes.CnsQueryResult{
		"query": func(f cnstypes.CnsQueryFilter) *cnstypes.CnsQueryResult {
			result, err := l.cns.QueryVolume(l.ctx, &f)
			l.must(err)
			return result
		},
		"query async": func(f cnstypes.CnsQueryFilter) *cnstypes.CnsQueryResult {
			result := l.async(f, nil)
			return &result
		},
	}
	for name, query := range ask {
		t.Run(name, func(t *testing.T) {
			var seen []string
			filter := cnstypes.CnsQueryFilter{Cursor: &cnstypes.CnsCursor{Limit: 10}}
			for range 3 {
				result := query(filter)
				seen = append(seen, idsOf(result.Volumes)...)
				if result.Cursor.TotalRecords != 25 || result.Cursor.Limit != 10 || result.Cursor.Offset != int64(len(seen)) {
					t.Fatalf("cursor %+v after %d", result.Cursor, len(seen))
				}
				filter.Cursor = &result.Cursor
			}
			if !slices.Equal(seen, made) {
				t.Error("pages do not give the volumes in order")
			}
			if rest := query(filter); len(rest.Volumes) != 0 {
				t.Errorf("%d volumes after the last", len(rest.Volumes))
			}
			if all := query(cnstypes.CnsQueryFilter{}); len(all.Volumes) != 25 || all.Cursor.Offset != 25 || all.Cursor.Limit != 100 {
				t.Errorf("without a cursor: %d, %+v", len(all.Volumes), all.Cursor)
			}
		})
	}
	all, err := l.cns.QueryAllVolume(l.ctx, cnstypes.CnsQueryFilter{Cursor: &cnstypes.CnsCursor{Limit: 1}}, cnstypes.CnsQuerySelection{})
	l.must(err)
	if len(all.Volumes) != 25 {
		t.Errorf("query all gave %d", len(all.Volumes))
	}
	_, err = l.cns.QueryVolume(l.ctx, &cnstypes.CnsQueryFilter{Cursor: &cnstypes.CnsCursor{Offset: -1}})
	l.wantCallFault(invalid("cursor"), nil, err)
}

func TestAPageHasAHundredVolumesUnlessAskedAndAtMostAThousand(t *testing.T) {
	l := newLab(t, options{})
	const made = 1005
	for range made {
		l.quickVolume()
	}
	for name, c := range map[string]struct {
		cursor *cnstypes.CnsCursor
		want   int64
	}{
		"without a cursor":   {nil, 100},
		"without a limit":    {&cnstypes.CnsCursor{}, 100},
		"with a small limit": {&cnstypes.CnsCursor{Limit: 7}, 7},
		"with a large limit": {&cnstypes.CnsCursor{Limit: 1500}, 1000},
	} {
		page, err := l.cns.QueryVolume(l.ctx, &cnstypes.CnsQueryFilter{Cursor: c.cursor})
		l.must(err)
		next := cnstypes.CnsCursor{Offset: c.want, Limit: c.want, TotalRecords: made}
		if int64(len(page.Volumes)) != c.want || page.Cursor != next {
			t.Errorf("%s: %d volumes, cursor %+v; want %d", name, len(page.Volumes), page.Cursor, c.want)
		}
		rest, err := l.cns.QueryVolume(l.ctx, &cnstypes.CnsQueryFilter{Cursor: &page.Cursor})
		l.must(err)
		if len(rest.Volumes) == 0 || rest.Volumes[0].VolumeId == page.Volumes[0].VolumeId {
			t.Errorf("%s: the cursor leads to %d volumes", name, len(rest.Volumes))
		}
		async := l.async(cnstypes.CnsQueryFilter{Cursor: c.cursor}, nil)
		if int64(len(async.Volumes)) != c.want || async.Cursor != next {
			t.Errorf("%s, as a task: %d volumes, cursor %+v", name, len(async.Volumes), async.Cursor)
		}
	}
	all, err := l.cns.QueryAllVolume(l.ctx, cnstypes.CnsQueryFilter{}, cnstypes.CnsQuerySelection{})
	l.must(err)
	if len(all.Volumes) != made {
		t.Errorf("query all gave %d", len(all.Volumes))
	}
}

func TestAFilterHasAtMostAThousandIDs(t *testing.T) {
	l := newLab(t, options{})
	made := l.quickVolume()
	ids := make([]cnstypes.CnsVolumeId, 999, 1001)
	ids = append(ids, cnstypes.CnsVolumeId{Id: made})
	if found := l.find(&cnstypes.CnsQueryFilter{VolumeIds: ids}); !slices.Equal(found, []string{made}) {
		t.Errorf("found %v", found)
	}
	_, err := l.cns.QueryVolume(l.ctx, &cnstypes.CnsQueryFilter{VolumeIds: append(ids, cnstypes.CnsVolumeId{Id: "x"})})
	l.wantCallFault(invalid("volumeIds"), nil, err)
}

func TestASelectionLeavesOutTheOtherFields(t *testing.T) {
	l := newLab(t, options{})
	l.newVolume("a")
	ask := func(names ...string) cnstypes.CnsVolume {
		result, err := l.cns.QueryAllVolume(l.ctx, cnstypes.CnsQueryFilter{}, cnstypes.CnsQuerySelection{Names: names})
		l.must(err)
		return result.Volumes[0]
	}
	if v := ask(); v.Name != "" || v.VolumeId.Id == "" || v.BackingObjectDetails != nil || v.DatastoreUrl != "" {
		t.Errorf("an empty selection gives %+v", v)
	}
	if v := ask("VOLUME_NAME", "DATASTORE_URL"); v.Name != "a" || v.DatastoreUrl == "" || v.VolumeType != "" || v.Metadata.ContainerCluster.ClusterId != "" {
		t.Errorf("a selection gives %+v", v)
	}
	if v := ask("VOLUME_METADATA", "BACKING_OBJECT_DETAILS"); v.Metadata.ContainerCluster.ClusterId != "c1" || v.BackingObjectDetails == nil || v.Name != "" {
		t.Errorf("a selection gives %+v", v)
	}
	if v := l.async(cnstypes.CnsQueryFilter{}, nil).Volumes[0]; v.Name != "a" || v.BackingObjectDetails.(*cnstypes.CnsBlockBackingDetails).BackingDiskId == "" {
		t.Errorf("query async gives %+v", v)
	}
	selection := &cnstypes.CnsQuerySelection{Names: []string{"HEALTH_STATUS"}}
	if v := l.async(cnstypes.CnsQueryFilter{}, selection).Volumes[0]; v.HealthStatus != "green" || v.Name != "" {
		t.Errorf("query async gives %+v", v)
	}
	_, err := l.cns.QueryAllVolume(l.ctx, cnstypes.CnsQueryFilter{}, cnstypes.CnsQuerySelection{Names: []string{"COLOUR"}})
	l.wantCallFault(invalid("selection"), nil, err)
}

// selectingBody asks CnsQueryVolume with a selection, which govmomi's client cannot.
type selectingBody struct {
	Req    *CnsQueryVolume                  `xml:"urn:vsan CnsQueryVolume,omitempty"`
	Res    *cnstypes.CnsQueryVolumeResponse `xml:"urn:vsan CnsQueryVolumeResponse,omitempty"`
	Fault_ *soap.Fault                      `xml:"http://schemas.xmlsoap.org/soap/envelope/ Fault,omitempty"`
}

func (b *selectingBody) Fault() *soap.Fault { return b.Fault_ }

func TestQueryVolumeHasASelectionToo(t *testing.T) {
	l := newLab(t, options{})
	l.newVolume("a")
	request := selectingBody{Req: &CnsQueryVolume{
		This: govcns.CnsVolumeManagerInstance, Filter: &cnstypes.CnsQueryFilter{}, Selection: &cnstypes.CnsQuerySelection{Names: []string{"VOLUME_TYPE"}},
	}}
	var answer selectingBody
	l.must(l.cns.RoundTrip(l.ctx, &request, &answer))
	if v := answer.Res.Returnval.Volumes[0]; v.VolumeType != "BLOCK" || v.Name != "" {
		t.Errorf("volume %+v", v)
	}
	_, err := cnsmethods.CnsQueryVolume(l.ctx, l.cns, &cnstypes.CnsQueryVolume{This: govcns.CnsVolumeManagerInstance})
	if err == nil {
		t.Error("a query without a filter succeeded")
	}
}

func TestAnInaccessibleDatastoreShowsInItsVolumes(t *testing.T) {
	l := newLab(t, options{})
	id := l.newVolume("a")
	for _, ref := range l.datastores {
		datastore := l.model.Map().Get(ref).(*simulator.Datastore)
		l.model.Map().WithLock(l.manager.inventory(), datastore, func() { datastore.Summary.Accessible = false })
	}
	if v := l.volume(id); v.HealthStatus != "red" || v.DatastoreAccessibilityStatus != "notAccessible" {
		t.Errorf("volume %+v", v)
	}
	task, err := l.attach(id, l.vms[0])
	l.wantVolumeFault(&cnstypes.CnsFault{Reason: "VSLM task failed"}, task, err)
}

func TestQueryVolumeInfoDescribesTheDisk(t *testing.T) {
	l := newLab(t, options{})
	id := l.newVolume("a")
	l.result(l.attach(id, l.vms[0]))
	results := l.results(l.cns.QueryVolumeInfo(l.ctx, volumeIDs(id, "nope")))
	info := results[0].(*cnstypes.CnsQueryVolumeInfoResult).VolumeInfo.(*cnstypes.CnsBlockVolumeInfo).VStorageObject
	if info.Config.Name != "a" || info.Config.CapacityInMB != 1024 || len(info.Config.ConsumerId) != 1 || !*info.Config.KeepAfterDeleteVm {
		t.Errorf("disk %+v", info.Config)
	}
	l.sameFault(results[1].GetCnsVolumeOperationResult().Fault.Fault, &types.NotFound{})
}

func Test67ShowsNoNewerFields(t *testing.T) {
	l := newLab(t, options{release: "6.7U3"})
	spec := l.blockSpec("a", 1024)
	spec.Metadata.EntityMetadata = []cnstypes.BaseCnsEntityMetadata{pv("pv-a", "c1", "app", "db")}
	result := l.result(l.create(spec)).(*cnstypes.CnsVolumeCreateResult)
	if len(result.PlacementResults) != 0 {
		t.Error("placement results")
	}
	v := l.volume(result.VolumeId.Id)
	entity := v.Metadata.EntityMetadata[0].(*cnstypes.CnsKubernetesEntityMetadata)
	if v.HealthStatus != "" || len(v.Metadata.ContainerClusterArray) != 0 || v.Metadata.ContainerCluster.ClusterFlavor != "" || entity.ClusterID != "" {
		t.Errorf("volume %+v", v)
	}
	if v.BackingObjectDetails.(*cnstypes.CnsBlockBackingDetails).BackingDiskPath != "" {
		t.Error("backing path")
	}
	_, err := l.cns.QueryVolumeAsync(l.ctx, cnstypes.CnsQueryFilter{}, nil)
	l.wantCallFault(&types.MethodNotFound{}, nil, err)
	if fmt.Sprint(l.find(&cnstypes.CnsQueryFilter{ContainerClusterIds: []string{"c1"}})) != fmt.Sprint([]string{v.VolumeId.Id}) {
		t.Error("the cluster filter does not work")
	}
}
