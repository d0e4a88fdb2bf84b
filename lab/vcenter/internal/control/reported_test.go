package control

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"
)

// TestFaultsOfCreateThatWereReportedCanBeMade has the requests that the README shows for failures below CNS.
func TestFaultsOfCreateThatWereReportedCanBeMade(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, found := strings.Cut(string(readme), "<!-- reported faults -->")
	shown, _, closed := strings.Cut(shown, "<!-- end of reported faults -->")
	if !found || !closed {
		t.Fatal("README.md has lost the marks around the reported faults")
	}
	cases := map[string]struct {
		text  string
		cause types.BaseMethodFault
	}{
		"C14": {"CnsFault error: CNS: Failed to initialize FcdService :Operation timed out", nil},
		"C15": {"CnsFault error: Fault cause: vmodl.fault.InvalidArgument\n", nil},
		"C16": {"CnsFault error: CNS: Failed to create disk.:Fault cause: vmodl.fault.SystemError\n", &types.SystemError{}},
		"C17": {"CnsFault error: VSLM task failed", nil},
		"R6":  {"The object or item referred to could not be found.", nil},
	}
	l := start(t)
	for _, line := range strings.Split(shown, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		row := strings.TrimSpace(cells[1])
		want, known := cases[row]
		body := strings.Trim(strings.TrimSpace(cells[3]), "`")
		if !known || !json.Valid([]byte(body)) {
			continue
		}
		delete(cases, row)
		l.must("POST", "/faults", body)
		task, err := l.create("pvc-" + row)
		if err != nil {
			t.Fatal(err)
		}
		info, err := task.WaitForResult(l.ctx)
		if err != nil {
			t.Fatal(err)
		}
		got := info.Result.(cnstypes.CnsVolumeOperationBatchResult).VolumeResults[0].GetCnsVolumeOperationResult().Fault
		if got == nil || got.LocalizedMessage != want.text {
			t.Errorf("%s: %+v", row, got)
			continue
		}
		below, _ := got.Fault.(*cnstypes.CnsFault)
		if want.cause != nil && (below == nil || below.FaultCause == nil || below.FaultCause.Fault.(*types.SystemError).Reason == "") {
			t.Errorf("%s: the cause is missing in %+v", row, below)
		}
	}
	for row := range cases {
		t.Errorf("README.md has no request for %s", row)
	}
	if got := l.vc.CNS().Volumes(); len(got) != 0 {
		t.Errorf("volumes %v", got)
	}
}
