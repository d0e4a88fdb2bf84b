package world

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheDefaultWorldHasTheLabNodes(t *testing.T) {
	w, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	if len(w.Datacenters) != 2 {
		t.Fatalf("got %d datacenters", len(w.Datacenters))
	}
	for i, want := range []struct{ name, uuid, address string }{
		{"node-1", "4230b1a0-5eed-4000-8000-000000000001", "10.99.0.11/24"},
		{"node-2", "4230b1a0-5eed-4000-8000-000000000002", "10.99.0.12/24"},
	} {
		vm := w.Datacenters[0].VMs[i]
		if vm.Name != want.name || vm.UUID != want.uuid || vm.NICs[0].Addresses[0] != want.address {
			t.Errorf("VM %d is %+v", i, vm)
		}
		if vm.HardwareVersion != "vmx-19" || !vm.DiskEnableUUID.On() || vm.Power != "on" {
			t.Errorf("VM %s: version %s, disk UUID %v, power %s", vm.Name, vm.HardwareVersion, vm.DiskEnableUUID.On(), vm.Power)
		}
	}
}

const small = `
datacenters:
  - name: dc
    hosts: [{name: esx-1}]
    datastores: [{name: ds}]
`

func TestMistakesAreReportedWithLineAndField(t *testing.T) {
	tests := map[string]struct {
		text string
		want []string
	}{
		"an unknown field gets the nearest name": {
			"name: x\nreleas: 8.0U3\n" + small[1:],
			[]string{`2: releas: unknown field; did you mean "release"?`},
		},
		"an unknown field far from any name gets the list": {
			small[1:] + "zzzzzzzzzz: 1\n",
			[]string{"5: zzzzzzzzzz: unknown field; known are assumptions, categories, datacenters"},
		},
		"an unknown field deep inside": {
			"datacenters:\n  - name: dc\n    vms:\n      - name: a\n        uiid: x\n",
			[]string{`5: datacenters[0].vms[0].uiid: unknown field; did you mean "uuid"?`},
		},
		"all problems come at once and in order of lines": {
			"release: 5.5\ndatacenters:\n  - name: dc\n    hosts: [{name: esx-1}]\n    datastores:\n      - {name: ds, type: FAT}\n    vms:\n      - name: a\n        uuid: nonsense\n        host: esx-2\n",
			[]string{
				`1: release: unknown vCenter release "5.5"`,
				`6: datacenters[0].datastores[0].type: "FAT" is unknown`,
				`9: datacenters[0].vms[0].uuid: "nonsense" is no UUID`,
				`10: datacenters[0].vms[0].host: there is no host "esx-2" in this datacenter; did you mean "esx-1"?`,
			},
		},
		"an unknown latency profile": {
			"latency: slow\n" + small[1:],
			[]string{`1: latency: latency profile "slow" is unknown; known are none, fast-lab, idle, loaded`},
		},
		"a list where a word belongs": {
			"name: [a]\n" + small[1:],
			[]string{"1: name: must be one word, not a list"},
		},
		"a word where a list belongs": {
			"datacenters: dc\n",
			[]string{`1: datacenters: must be a list, not "dc"`},
		},
		"a number that is none": {
			small[1:] + "generate: {vms: many}\n",
			[]string{`5: generate.vms: must be a whole number, not "many"`},
		},
		"a switch that is neither on nor off": {
			"datacenters:\n  - name: dc\n    hosts: [{name: h, maintenance: maybe}]\n",
			[]string{`3: datacenters[0].hosts[0].maintenance: must be true or false, not "maybe"`},
		},
		"a size without sense": {
			"datacenters:\n  - name: dc\n    datastores: [{name: ds, capacity: big}]\n",
			[]string{`3: datacenters[0].datastores[0].capacity: must be a size such as 500GiB or 2TiB, not "big"`},
		},
		"no YAML at all": {
			"name: [\n",
			[]string{": description: is no YAML"},
		},
		"an empty file": {"", []string{"1: description: is empty"}},
		"no datacenter": {"name: x\n", []string{"datacenters: is missing"}},
		"a tag on nothing": {
			small[1:] + "categories:\n  - name: zone\n    tags: [{name: a, on: [/dcx]}]\n",
			[]string{`7: categories[0].tags[0].on[0]: there is nothing at /dcx; did you mean "/dc"?`},
		},
		"a tag on the wrong type": {
			small[1:] + "categories:\n  - name: zone\n    types: [HostSystem]\n    tags: [{name: a, on: [/dc]}]\n",
			[]string{"8: categories[0].tags[0].on[0]: /dc is a Datacenter; the category allows HostSystem"},
		},
		"two tags of a single-cardinality category": {
			small[1:] + "categories:\n  - name: zone\n    cardinality: single\n    tags: [{name: a, on: [/dc]}, {name: b, on: [/dc]}]\n",
			[]string{`8: categories[0].tags[1].on[0]: /dc has tag "a" of this category already`},
		},
		"a policy on something that is no datastore": {
			small[1:] + "policies: [{name: p, datastores: [/dc]}]\n",
			[]string{"5: policies[0].datastores[0]: /dc is a Datacenter, not a Datastore"},
		},
		"a user without domain, password and known role": {
			small[1:] + "users:\n  - name: joe\n    permissions: [{role: Adminn, on: /}]\n",
			[]string{`users[0].name: "joe" must have the form name@domain`, "users[0].password: is missing", `users[0].permissions[0].role: "Adminn" is unknown; did you mean "Admin"?`},
		},
		"the same UUID twice": {
			small[1:] + "    vms:\n      - {name: a, uuid: 4230b1a0-5eed-4000-8000-000000000001}\n      - {name: b, uuid: 4230B1A0-5eed-4000-8000-000000000001}\n",
			[]string{"7: datacenters[0].vms[1].uuid: 4230B1A0-5eed-4000-8000-000000000001 is the UUID of datacenters[0].vms[0] too"},
		},
		"a local datastore on two hosts": {
			"datacenters:\n  - name: dc\n    hosts: [{name: a}, {name: b}]\n    datastores: [{name: ds, local: true, hosts: [a, b]}]\n",
			[]string{"4: datacenters[0].datastores[0].hosts: a local datastore is on exactly one host, not on 2"},
		},
		"a VM on a datastore its host does not mount": {
			"datacenters:\n  - name: dc\n    hosts: [{name: a}, {name: b}]\n    datastores: [{name: x, hosts: [a]}, {name: y, hosts: [b]}]\n    vms: [{name: v, host: a, datastore: y}]\n",
			[]string{`5: datacenters[0].vms[0].datastore: the host of the VM does not mount "y"; it mounts x`},
		},
		"a bad address and a bad MAC": {
			small[1:] + "    vms: [{name: v, nics: [{mac: x, addresses: [300.1.1.1]}]}]\n",
			[]string{"datacenters[0].vms[0].nics[0].mac", "datacenters[0].vms[0].nics[0].addresses[0]"},
		},
		"two vCenters of the same name": {
			"name: a\n" + small[1:] + "---\nname: a\n" + small[1:],
			[]string{`7: name: "a" is the name of the vCenter in line 1 too`},
		},
		"file service without vSAN": {
			"datacenters:\n  - name: dc\n    clusters: [{name: c, hosts: [{name: h}], vsan_file_service: true}]\n    datastores: [{name: ds}]\n",
			[]string{"3: datacenters[0].clusters[0].vsan_file_service: no host of the cluster mounts a vSAN datastore"},
		},
		"a privilege vCenter does not know": {
			small[1:] + "roles: [{name: r, privileges: [Datastore.FileManagment]}]\n",
			[]string{`5: roles[0].privileges[0]: "Datastore.FileManagment" is unknown; did you mean "Datastore.FileManagement"?`},
		},
		"an assumption nobody makes": {
			small[1:] + "assumptions: {NameLimitt: 80}\n",
			[]string{"5: assumptions.NameLimitt: "},
		},
		"a field given twice": {
			"name: a\nname: b\n" + small[1:],
			[]string{"2: name: is given twice; the first is in line 1"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(strings.NewReader(test.text))
			var problems Problems
			if !errors.As(err, &problems) {
				t.Fatalf("got %v, want problems", err)
			}
			lines := problems.Lines("")
			if len(lines) != len(test.want) {
				t.Fatalf("got %d problems, want %d:\n%s", len(lines), len(test.want), err)
			}
			for i, want := range test.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("got  %s\nwant %s", lines[i], want)
				}
			}
		})
	}
}

func TestProblemLinesStartWithTheFile(t *testing.T) {
	got := Problems{{Line: 3, Field: "name", Text: "is missing"}}.Lines("w.yaml")
	if got[0] != "w.yaml:3: name: is missing" {
		t.Error(got)
	}
}

func TestAFileMayHoldSeveralVCenters(t *testing.T) {
	worlds, err := Parse(strings.NewReader("name: a\n" + small[1:] + "---\n" + small[1:]))
	if err != nil {
		t.Fatal(err)
	}
	if len(worlds) != 2 || worlds[0].Name != "a" || worlds[1].Name != "vcenter-2" {
		t.Errorf("got %d worlds", len(worlds))
	}
	if worlds[0].InstanceUUID == worlds[1].InstanceUUID {
		t.Error("both have the same instance UUID")
	}
}

func TestLeftOutFieldsGetStableValues(t *testing.T) {
	text := small + "    vms: [{name: v, nics: [{}]}]\n"
	first, err := Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	second, _ := Parse(strings.NewReader(text))
	a, b := first[0].Datacenters[0], second[0].Datacenters[0]
	if a.VMs[0].UUID == "" || a.VMs[0].UUID != b.VMs[0].UUID || a.VMs[0].NICs[0].MAC == "" || a.VMs[0].NICs[0].Network != "VM Network" {
		t.Errorf("got %+v", a.VMs[0])
	}
	if a.Datastores[0].URL != b.Datastores[0].URL || a.Datastores[0].Free != a.Datastores[0].Capacity || len(a.Datastores[0].Hosts) != 1 {
		t.Errorf("got %+v", a.Datastores[0])
	}
}

func TestTheGeneratorSpreadsVMsOverHostsAndDatastores(t *testing.T) {
	worlds, err := Parse(strings.NewReader("generate: {vms: 250, vms_per_host: 100, vms_per_datastore: 200}\n"))
	if err != nil {
		t.Fatal(err)
	}
	dc := worlds[0].Datacenters[0]
	if len(dc.VMs) != 250 || len(dc.Clusters[0].Hosts) != 3 || len(dc.Datastores) != 2 {
		t.Errorf("%d VMs, %d hosts, %d datastores", len(dc.VMs), len(dc.Clusters[0].Hosts), len(dc.Datastores))
	}
	uuids, macs := map[string]bool{}, map[string]bool{}
	for _, vm := range dc.VMs {
		uuids[vm.UUID], macs[vm.NICs[0].MAC] = true, true
	}
	if len(uuids) != 250 || len(macs) != 250 {
		t.Errorf("%d UUIDs and %d MACs", len(uuids), len(macs))
	}
}

func FuzzAnyTextGivesAWorldOrProblems(f *testing.F) {
	f.Add(string(defaultYAML))
	f.Add("a: &x [*x]")
	f.Add("datacenters: [{name: &a b, folder: *a}]")
	f.Fuzz(func(t *testing.T, text string) {
		worlds, err := Parse(strings.NewReader(text))
		var problems Problems
		if err == nil && len(worlds) == 0 || err != nil && !errors.As(err, &problems) {
			t.Errorf("%d worlds, error %v", len(worlds), err)
		}
	})
}

func TestTheExampleIsTheDefaultDescription(t *testing.T) {
	path := filepath.Join(t.TempDir(), "world.yaml")
	if err := os.WriteFile(path, DefaultYAML(), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := Parse(file); err != nil {
		t.Error(err)
	}
}
