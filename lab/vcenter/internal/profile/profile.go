// Package profile names the vCenter releases the simulator can pretend to be.
package profile

import (
	"fmt"
	"strings"
)

// Profile is what a release says about itself. Releases are ordered by Rank.
type Profile struct {
	Name string // as users write it: 8.0U3
	Rank int

	APIVersion  string // About.apiVersion, and the version in a vim25 SOAPAction
	Version     string // About.version
	Build       string // About.build
	VSANVersion string // what vsanServiceVersions.xml offers first
}

// All releases, oldest first. 7.0U1 and 7.0U2 are there because each has only a part of what 7.0U3 has. Builds are those of the vCenter appliance at general availability; that of 9.1 is made
// up. pyVmomi's tables end with 9.1, which brought client-chosen volume ids, unregister and volume sync.
var All = []*Profile{
	{Name: "6.7U3", Rank: 1, APIVersion: "6.7.3", Version: "6.7.0", Build: "14367737", VSANVersion: "vSAN 6.7U3"},
	{Name: "7.0U1", Rank: 2, APIVersion: "7.0.1.0", Version: "7.0.1", Build: "16860138", VSANVersion: "vSAN 7.0U1"},
	{Name: "7.0U2", Rank: 3, APIVersion: "7.0.2.0", Version: "7.0.2", Build: "17694817", VSANVersion: "vSAN 7.0U2"},
	{Name: "7.0U3", Rank: 4, APIVersion: "7.0.3.0", Version: "7.0.3", Build: "18700403", VSANVersion: "vSAN 7.0U3"},
	{Name: "8.0U3", Rank: 5, APIVersion: "8.0.3.0", Version: "8.0.3", Build: "24022515", VSANVersion: "8.0.3.0"},
	{Name: "9.0", Rank: 6, APIVersion: "9.0.0.0", Version: "9.0.0", Build: "24755230", VSANVersion: "9.0.0.0"},
	{Name: "9.1", Rank: 7, APIVersion: "9.1.0.0", Version: "9.1.0", Build: "25000000", VSANVersion: "9.1.0.0"},
}

// Default is the release a description gets that names none.
const Default = "8.0U3"

// Lookup finds a release by its name.
func Lookup(name string) (*Profile, error) {
	names := make([]string, 0, len(All))
	for _, p := range All {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return nil, fmt.Errorf("unknown vCenter release %q; known are %s", name, strings.Join(names, ", "))
}

// AtLeast tells whether this release is name or newer; name must be a known one.
func (p *Profile) AtLeast(name string) bool {
	other, err := Lookup(name)
	return err == nil && p.Rank >= other.Rank
}
