package vcenter

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/profile"
)

// about is what the release says about itself, with the UUID that tells two vCenters apart.
func about(base types.AboutInfo, p *profile.Profile, instanceUUID string) types.AboutInfo {
	base.Version, base.Build, base.ApiVersion = p.Version, p.Build, p.APIVersion
	base.FullName = fmt.Sprintf("VMware vCenter Server %s build-%s", p.Version, p.Build)
	base.LicenseProductVersion = strings.Join(strings.SplitN(p.Version, ".", 3)[:2], ".")
	base.InstanceUuid = instanceUUID
	return base
}

// versionFile answers with the versions of a namespace: the release's own first, then all older ones.
func versionFile(namespace string, p *profile.Profile, version func(*profile.Profile) string, oldest ...string) http.HandlerFunc {
	var older []string
	for _, other := range profile.All {
		if other.Rank < p.Rank {
			older = append([]string{version(other)}, older...)
		}
	}
	older = append(older, oldest...)
	var text strings.Builder
	fmt.Fprintf(&text, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<namespaces version=\"1.0\"><namespace><name>urn:%s</name><version>%s</version><priorVersions>",
		namespace, version(p))
	for _, prior := range older {
		fmt.Fprintf(&text, "<version>%s</version>", prior)
	}
	text.WriteString("</priorVersions></namespace></namespaces>\n")
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/xml")
		_, _ = fmt.Fprint(w, text.String())
	}
}

func (v *VCenter) serveVersions(mux *http.ServeMux) {
	mux.HandleFunc("/sdk/vimServiceVersions.xml", versionFile("vim25", v.Profile,
		func(p *profile.Profile) string { return p.APIVersion }, "6.5", "6.0", "5.5"))
	mux.HandleFunc("/sdk/vsanServiceVersions.xml", versionFile("vsan", v.Profile,
		func(p *profile.Profile) string { return p.VSANVersion }, "6.7", "6.6"))
}
