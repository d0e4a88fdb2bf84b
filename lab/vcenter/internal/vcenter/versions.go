package vcenter

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/profile"
	"vsphere-drivers.example/lab/vcenter/internal/strict/schema"
)

// about is what the release says about itself, with the UUID that tells two vCenters apart.
func about(base types.AboutInfo, p *profile.Profile, instanceUUID string) types.AboutInfo {
	base.Version, base.Build, base.ApiVersion = p.Version, p.Build, p.APIVersion
	base.FullName = fmt.Sprintf("VMware vCenter Server %s build-%s", p.Version, p.Build)
	base.LicenseProductVersion = strings.Join(strings.SplitN(p.Version, ".", 3)[:2], ".")
	base.InstanceUuid = instanceUUID
	return base
}

// versionFile answers with the versions of a namespace: the release's own first, then all older ones. A client takes the
// first one that it knows, so that a gap would make it fall back too far.
func versionFile(namespace, version string, older []string) http.HandlerFunc {
	var text strings.Builder
	fmt.Fprintf(&text, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<namespaces version=\"1.0\"><namespace><name>urn:%s</name><version>%s</version><priorVersions>",
		namespace, version)
	for _, prior := range older {
		if prior != version {
			fmt.Fprintf(&text, "<version>%s</version>", prior)
		}
	}
	text.WriteString("</priorVersions></namespace></namespaces>\n")
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/xml")
		_, _ = fmt.Fprint(w, text.String())
	}
}

func (v *VCenter) serveVersions(mux *http.ServeMux) error {
	table, err := schema.Shared()
	if err != nil {
		return err
	}
	vim := table.Until(schema.Vim, v.Profile.APIVersion)
	// vCenter 8.0 names 4.0 as the oldest (pyVmomi's fixture smart_connection).
	vim = slices.DeleteFunc(vim, func(version string) bool { return schema.CompareDotted(version, "4.0") < 0 })
	mux.HandleFunc("/sdk/vimServiceVersions.xml", versionFile("vim25", v.Profile.APIVersion, vim))
	mux.HandleFunc("/sdk/vsanServiceVersions.xml",
		versionFile("vsan", v.Profile.VSANVersion, table.Until(schema.VSAN, v.Profile.VSANVersion)))
	return nil
}
