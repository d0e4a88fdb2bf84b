package schema

import (
	"slices"
	"strings"
	"testing"
)

func shared(t *testing.T) *Table {
	t.Helper()
	table, err := Shared()
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func (o *Object) names() []string {
	var names []string
	for _, f := range o.Fields {
		names = append(names, f.Name)
	}
	return names
}

func TestTheCommittedTableIsReadable(t *testing.T) {
	table := shared(t)
	if len(table.types) < 1000 || len(table.methods) < 1000 || len(table.managed) < 150 {
		t.Errorf("%d types, %d methods, %d managed", len(table.types), len(table.methods), len(table.managed))
	}
}

func TestABrokenLineIsAnErrorWithItsNumber(t *testing.T) {
	for _, line := range []string{
		"foo", "type A", "managed A b", "type A b vim:1.0", "type A b - field", "type A b - field=vim:1.0", "fields Missing a=vim:2.0",
		"method A b C vsan:9", "versions vim",
	} {
		_, err := parse("versions vim 2.0\n" + line)
		if err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func TestFieldsAreInTheOrderOfTheWireWithTheBaseFirst(t *testing.T) {
	s := NewTypes(shared(t), "vim25")
	disk, ok := s.Named("VirtualDisk")
	if !ok {
		t.Fatal("no VirtualDisk")
	}
	got := s.Object(disk).names()
	if got[0] != "key" || slices.Index(got, "backing") > slices.Index(got, "capacityInKB") {
		t.Errorf("order is %v", got)
	}
}

func TestPyVmomisOrderWinsWhereTheSourcesDiffer(t *testing.T) {
	s := NewTypes(shared(t), "vsan")
	details, ok := s.Named("CnsBlockBackingDetails")
	if !ok {
		t.Fatal("no CnsBlockBackingDetails")
	}
	want := []string{"capacityInMb", "backingDiskId", "backingDiskUrlPath", "backingDiskPath", "backingDiskObjectId", "usedCapacityInMb", "aggregatedSnapshotCapacityInMb"}
	if got := s.Object(details).names(); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestVersionsOfFieldsAgreeWithWhatGovmomisCNSClientDrops(t *testing.T) {
	table := shared(t)
	s := NewTypes(table, "vsan")
	for _, test := range []struct{ kind, field, since string }{
		{"CnsContainerCluster", "clusterFlavor", "7.0"},
		{"CnsContainerCluster", "clusterDistribution", "vSAN 7.0U2"},
		{"CnsBlockBackingDetails", "backingDiskUrlPath", "7.2"},
		{"CnsEntityMetadata", "clusterId", "7.0"},
		{"CnsKubernetesEntityMetadata", "referredEntity", "7.0"},
		{"CnsKubernetesEntityMetadata", "clusterId", "7.0"}, // inherited
		{"CnsVolumeCreateSpec", "volumeId", "9.1.0.0"},
		{"CnsVolumeCreateSpec", "name", ""},
	} {
		kind, ok := s.Named(test.kind)
		if !ok {
			t.Errorf("no %s", test.kind)
			continue
		}
		o := s.Object(kind)
		got := o.Fields[o.Index(test.field)].Since
		if want := (Since{Line: VSAN, Rank: table.Rank(VSAN, test.since)}); got != want && (test.since != "" || got != Since{}) {
			t.Errorf("%s.%s: %v, want %v", test.kind, test.field, got, want)
		}
	}
}

func TestDottedVersionsCompareByNumber(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"8.0.3.0", "8.0.3.0", 0}, {"8.0", "8.0.0.0", 0}, {"7.0.3.2", "8.0.0.0", -1}, {"10.0", "9.1.1.0", 1}, {"8.0.3.1", "8.0.3.0", 1},
		{"99999999999999999999", "9", 1},
	} {
		if got := CompareDotted(test.a, test.b); got != test.want {
			t.Errorf("%s and %s: %d", test.a, test.b, got)
		}
	}
	for version, want := range map[string]bool{"8.0.3.0": true, "7": true, "": false, ".": false, "8.": false, "vSAN 7.0U3": false, "m5CA1EF4D": false, "8..0": false} {
		if Dotted(version) != want {
			t.Errorf("%q: %v", version, !want)
		}
	}
}

func TestAVersionTheHistoryLacksTakesThePlaceOfTheOneBefore(t *testing.T) {
	table := shared(t)
	if got, want := table.Newest(VSAN, "8.0.3.0"), table.Rank(VSAN, "8.0.0.4"); got != want || want == 0 {
		t.Errorf("got %d, want %d", got, want)
	}
}

func TestKindsOfManagedObjectsInherit(t *testing.T) {
	table := shared(t)
	for _, test := range []struct {
		name, base string
		want       bool
	}{
		{"VirtualMachine", "ManagedEntity", true}, {"ClusterComputeResource", "ComputeResource", true}, {"Folder", "Folder", true},
		{"Folder", "VirtualMachine", false}, {"Nothing", "Folder", false},
	} {
		if got := table.Descends(test.name, test.base); got != test.want {
			t.Errorf("%s from %s: %v", test.name, test.base, got)
		}
	}
}
