package strict

import (
	"regexp"
	"strings"
	"testing"
)

var namedType = regexp.MustCompile(` \S+:type="([^"]+)"`)

// TestEveryElementMayLeaveOutItsTypeUnlessThatIsAbstract takes the type off one element of each declared type of all
// services, as VMware's Python client does wherever a value has the declared type.
func TestEveryElementMayLeaveOutItsTypeUnlessThatIsAbstract(t *testing.T) {
	g := gateOf(t, "next")
	type declared struct{ path, name string }
	accepted := make(map[declared]bool)
	for _, r := range everyRequest(t, g) {
		for _, at := range namedType.FindAllStringSubmatchIndex(r.xml, -1) {
			key := declared{r.path, r.xml[at[2]:at[3]]}
			if _, tried := accepted[key]; tried {
				continue
			}
			call, refused := g.read(r.service, r.header, []byte(r.xml[:at[0]]+r.xml[at[1]:]))
			accepted[key] = refused == nil
			if refused != nil && !strings.Contains(refused.text, "has no xsi:type") {
				t.Errorf("%s %s without %s: %s", r.path, r.name, key.name, refused.message())
			}
			if refused != nil || key.name == "ManagedObjectReference" {
				continue
			}
			// What passes gets its type back, unless the library knows it without.
			for _, element := range call.untyped {
				if element.name != key.name {
					t.Errorf("%s %s: %s was passed on as %s", r.path, r.name, key.name, element.name)
				}
			}
		}
	}
	abstract := 0
	for key, ok := range accepted {
		if _, simple := strings.CutPrefix(key.name, "xsd:"); simple {
			if ok {
				t.Errorf("%s: %s may be left out of what can hold anything", key.path, key.name)
			}
			continue
		}
		if !ok {
			abstract++
		}
	}
	for key, want := range map[declared]bool{
		{"/sdk", "SelectionSpec"}:                    true,
		{"/sdk", "OptionValue"}:                      true,
		{"/sdk", "VirtualDevice"}:                    true,
		{"/sdk", "VirtualDeviceConfigSpec"}:          true,
		{"/sdk", "FileQuery"}:                        true, // without fields, but not abstract
		{"/sdk", "VirtualMachineProfileSpec"}:        false,
		{"/sdk", "VirtualDeviceBackingInfo"}:         false,
		{"/sdk", "CustomizationIpGenerator"}:         false,
		{"/vsanHealth", "CnsBackingObjectDetails"}:   true,
		{"/vsanHealth", "CnsEntityMetadata"}:         true,
		{"/vsanHealth", "CnsQueryFilter"}:            true,
		{"/vsanHealth", "CnsVolumeSource"}:           false,
		{"/vsanHealth", "CnsBaseCreateSpec"}:         false,
		{"/vsanHealth", "CnsNFSAccessControlSpec"}:   false, // CnsAccessControlSpec is declared
		{"/vsanHealth", "VirtualMachineProfileSpec"}: false,
		{"/pbm", "PbmPlacementRequirement"}:          false,
		{"/pbm", "PbmCapabilityConstraints"}:         false,
		{"/vslm/sdk", "VslmCreateSpecBackingSpec"}:   true,
	} {
		if got, tried := accepted[key]; !tried || got != want {
			t.Errorf("%s at %s: tried %v, accepted %v", key.name, key.path, tried, got)
		}
	}
	if len(accepted) < 100 || abstract < 40 {
		t.Errorf("only %d types tried, %d of them abstract", len(accepted), abstract)
	}
}
