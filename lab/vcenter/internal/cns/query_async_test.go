package cns

import (
	"slices"
	"testing"

	govcns "github.com/vmware/govmomi/cns"
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/soap"
)

// asyncBody asks CnsQueryAsync with a filter of any kind, which govmomi's client cannot.
type asyncBody struct {
	Req    *CnsQueryAsync                  `xml:"urn:vsan CnsQueryAsync,omitempty"`
	Res    *cnstypes.CnsQueryAsyncResponse `xml:"urn:vsan CnsQueryAsyncResponse,omitempty"`
	Fault_ *soap.Fault                     `xml:"http://schemas.xmlsoap.org/soap/envelope/ Fault,omitempty"`
}

func (b *asyncBody) Fault() *soap.Fault { return b.Fault_ }

func TestAnAsyncQueryTakesAKubernetesFilter(t *testing.T) {
	l := newLab(t, options{})
	spec := l.blockSpec("a", 1024)
	spec.Metadata.EntityMetadata = []cnstypes.BaseCnsEntityMetadata{pv("pv-a", "c1", "app", "db")}
	created, err := l.create(spec)
	a := l.result(created, err).GetCnsVolumeOperationResult().VolumeId.Id
	l.newVolume("b")
	request := asyncBody{Req: &CnsQueryAsync{
		This: govcns.CnsVolumeManagerInstance, Filter: &cnstypes.CnsKubernetesQueryFilter{PvNames: []string{"pv-a"}},
	}}
	var answer asyncBody
	l.must(l.cns.RoundTrip(l.ctx, &request, &answer))
	results := l.results(object.NewTask(created.Client(), answer.Res.Returnval), nil)
	if found := idsOf(results[0].(*cnstypes.CnsAsyncQueryResult).QueryResult.Volumes); !slices.Equal(found, []string{a}) {
		t.Errorf("found %v, want %v", found, a)
	}
}

func TestVolumesHaveNoFieldThatThePublicDescriptionLacks(t *testing.T) {
	l := newLab(t, options{release: "9.1"})
	task, err := l.create(l.blockSpec("a", 1024))
	l.result(task, err)
	query, err := l.cns.QueryVolumeAsync(l.ctx, cnstypes.CnsQueryFilter{}, nil)
	l.results(query, err)
	l.wantText(l.answer(query), "<healthStatus>")
	l.wantNoText(l.answer(query), "changedBlockTracking")
}
