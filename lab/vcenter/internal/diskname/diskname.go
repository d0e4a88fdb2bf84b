// Package diskname names the files of disks that move into the folder of a VM.
package diskname

import (
	"fmt"
	"path"
	"strings"

	"github.com/vmware/govmomi/vim25/types"
)

// Next is the file that a first class disk gets when it moves to a datastore together with a VM: it leaves the folder of
// such disks and goes beside the VM's configuration file, as [store] folder/vm_1.vmdk. The number is the first that no
// device of the VM has.
func Next(configFile, store string, devices []types.BaseVirtualDevice) string {
	taken := map[string]bool{}
	for _, device := range devices {
		if backing, ok := device.GetVirtualDevice().Backing.(types.BaseVirtualDeviceFileBackingInfo); ok {
			_, file, _ := strings.Cut(backing.GetVirtualDeviceFileBackingInfo().FileName, "] ")
			taken[file] = true
		}
	}
	_, file, _ := strings.Cut(configFile, "] ")
	base := strings.TrimSuffix(file, path.Ext(file))
	for n := 1; ; n++ {
		if name := fmt.Sprintf("%s_%d.vmdk", base, n); !taken[name] {
			return fmt.Sprintf("[%s] %s", store, name)
		}
	}
}
