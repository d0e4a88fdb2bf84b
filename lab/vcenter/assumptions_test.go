package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

func TestAssumptionsArePrintedForPeopleAndForPrograms(t *testing.T) {
	printed := func(arguments ...string) string {
		var stdout, stderr bytes.Buffer
		if code := run(arguments, strings.NewReader(""), &stdout, &stderr); code != 0 || stderr.Len() != 0 {
			t.Fatalf("code %d, %s", code, stderr.String())
		}
		return stdout.String()
	}
	if text := printed("-assumptions"); text != assume.Table() {
		t.Error(text)
	}
	var rows []struct {
		Name    string         `json:"name"`
		Values  map[string]any `json:"values"`
		Choices []any          `json:"choices"`
	}
	if err := json.Unmarshal([]byte(printed("-assumptions", "-json")), &rows); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Name == "Snapshots" && r.Values["6.7U3"] == false && r.Values["8.0U3"] == true && len(r.Choices) == 2 {
			return
		}
	}
	t.Errorf("Snapshots is not there with its values: %v", rows)
}
