package cns

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
)

// answer reads a task's info as text from /sdk.
func (l *lab) answer(task *object.Task) string {
	l.Helper()
	request := `<?xml version="1.0"?><Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Body><RetrievePropertiesEx xmlns="urn:vim25">` +
		`<_this type="PropertyCollector">propertyCollector</_this><specSet><propSet><type>Task</type><pathSet>info</pathSet></propSet>` +
		`<objectSet><obj type="Task">` + task.Reference().Value + `</obj></objectSet></specSet><options/></RetrievePropertiesEx></Body></Envelope>`
	post, err := http.NewRequestWithContext(context.Background(), http.MethodPost, l.vim.URL().String(), bytes.NewReader([]byte(request)))
	l.must(err)
	post.Header.Set("SOAPAction", "urn:vsan/8.0.3.0")
	for _, cookie := range l.vim.Client.Jar.Cookies(l.vim.URL()) {
		post.AddCookie(cookie)
	}
	response, err := http.DefaultClient.Do(post)
	l.must(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	l.must(err)
	return string(text)
}

func (l *lab) wantText(text string, parts ...string) {
	l.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			l.Errorf("%q is not in %s", part, text)
		}
	}
}

func (l *lab) wantNoText(text string, parts ...string) {
	l.Helper()
	for _, part := range parts {
		if strings.Contains(text, part) {
			l.Errorf("%q is in %s", part, text)
		}
	}
}

func TestTaskResultsAreWrittenAsVCenterWritesThem(t *testing.T) {
	l := newLab(t, options{inventory: makeVSAN})
	id := l.newVolume("a")
	l.result(l.create(l.fileSpec("share", 1024)))

	task, err := l.cns.QueryVolumeAsync(l.ctx, cnstypes.CnsQueryFilter{}, nil)
	l.results(task, err)
	l.wantText(l.answer(task), `<backingObjectDetails xsi:type="CnsBlockBackingDetails"><capacityInMb>`, `<backingObjectDetails xsi:type="CnsVsanFileShareBackingDetails">`)
	l.wantNoText(l.answer(task), "<id></id>")

	task, err = l.create(l.blockSpec("too big", 200*1024))
	l.results(task, err)
	l.wantNoText(l.answer(task), "<id></id>")

	task, err = l.create(l.blockSpec("placed", 1))
	l.results(task, err)
	l.wantText(l.answer(task), "CnsRankedLowerFault")

	task, err = l.snapshot("nope", "")
	l.results(task, err)
	l.wantNoText(l.answer(task), "<snapshot>", "0001-01-01")

	task, err = l.cns.QuerySnapshots(l.ctx, ofOne("nope", ""))
	l.must(err)
	l.ended(task, nil)
	l.wantNoText(l.answer(task), "<snapshot>")
	l.wantText(l.answer(task), "CnsVolumeNotFoundFault")

	spec := l.blockSpec("again", 0)
	spec.BackingObjectDetails = &cnstypes.CnsBlockBackingDetails{BackingDiskId: id}
	task, err = l.create(spec)
	l.results(task, err)
	l.wantText(l.answer(task), `type="CnsAlreadyRegisteredFault"><reason>Volume `+id, "<volumeId><id>"+id)
}

func TestAClientThatWaitsForUpdatesGetsTheSameResult(t *testing.T) {
	slow := false
	l := newLab(t, options{config: func(c *Config) {
		c.Fate = func(*simulator.Context, string) Fate {
			if slow {
				return Fate{Delay: 100 * time.Millisecond}
			}
			return Fate{}
		}
	}})
	id := l.newVolume("a")
	slow = true
	task, err := l.cns.QueryVolumeAsync(l.ctx, cnstypes.CnsQueryFilter{}, nil)
	l.must(err)
	info, err := task.WaitForResult(l.ctx)
	l.must(err)
	result := info.Result.(cnstypes.CnsVolumeOperationBatchResult).VolumeResults[0].(*cnstypes.CnsAsyncQueryResult)
	if backing := result.QueryResult.Volumes[0].BackingObjectDetails.(*cnstypes.CnsBlockBackingDetails); backing.BackingDiskId != id {
		t.Errorf("backing %+v", backing)
	}
	task, err = l.create(l.blockSpec("b", 1))
	l.must(err)
	info, err = task.WaitForResult(l.ctx)
	l.must(err)
	made := info.Result.(cnstypes.CnsVolumeOperationBatchResult).VolumeResults[0].(*cnstypes.CnsVolumeCreateResult)
	if _, lower := made.PlacementResults[1].PlacementFaults[0].Fault.(*CnsRankedLowerFault); !lower {
		t.Errorf("placement %+v", made.PlacementResults[1].PlacementFaults[0])
	}
}

func TestCorrectingLeavesOtherTextAlone(t *testing.T) {
	for _, text := range []string{"", "<a/>", "<backingObjectDetails>", `x:type="CnsAlreadyRegisteredFault"><reason>x</reason></fault>`} {
		if got := string(correct([]byte(text))); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}
