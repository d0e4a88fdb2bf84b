package cns

import (
	"fmt"

	"github.com/vmware/govmomi/vim25/types"
)

// noDatastore is the fault of a call about a volume whose disk cannot be found: CNS looks for its datastore to check
// privileges, before it makes a task.
func (m *Manager) noDatastore(id string) types.BaseMethodFault {
	text := "Received SOAP response fault from [<cs p:00007f5724006bf0, TCP:localhost:443>]: retrieveVStorageObject\n"
	if m.since("7.0U3") {
		text = noDatastoreText(id)
	}
	return &worded{fault: &types.NotFound{}, text: text}
}

func noDatastoreText(id string) string {
	return fmt.Sprintf("CNS: Failed to retrieve datastore for vol %s. (vim.fault.NotFound) {\n   faultCause = (vmodl.MethodFault) null, \n"+
		"   faultMessage = <unset>\n   msg = \"The vStorageObject (vim.vslm.ID) {\n   dynamicType = null,\n   dynamicProperty = null,\n"+
		"   id = %s\n} was not found\"\n}", id, id)
}
