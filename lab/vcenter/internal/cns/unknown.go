package cns

import (
	"fmt"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// presence is what there is of a volume.
type presence int

const (
	nowhere    presence = iota // neither a disk nor a record
	diskOnly                   // CNS has no record of the disk
	recordOnly                 // the disk of the record is gone
	complete
)

// presenceOf gives a volume, if CNS has a record of it, and tells what there is. A file share is complete without a disk.
func (m *Manager) presenceOf(id string) (*volume, presence) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, recorded := m.volumes[id]
	if recorded && v.share != nil {
		return v, complete
	}
	exists := m.findDisk(id) != nil && (recorded || !m.unreadable(id)) // CNS has a disk that it does not know from VSLM
	switch {
	case recorded && exists:
		return v, complete
	case recorded:
		return v, recordOnly
	case exists:
		return nil, diskOnly
	}
	return nil, nowhere
}

// notRegistered is the fault for a disk that CNS has no record of.
func (m *Manager) notRegistered(id string) types.BaseMethodFault {
	if assume.NotRegisteredFault.In(m.assumed) == "CnsFault" {
		return cnsFault(nil, "CNS: The input volume %s is not a CNS volume.", id)
	}
	fault := &cnstypes.CnsNotRegisteredFault{
		CnsFault: cnstypes.CnsFault{Reason: "The input volume " + id + " is not registered as a CNS volume."},
		VolumeId: cnstypes.CnsVolumeId{Id: id},
	}
	text := "fault.CnsNotRegisteredFault.summary"
	if assume.NotRegisteredText.In(m.assumed) == "sentence" {
		text = fmt.Sprintf("Volume with ID %s is not registered as CNS Volume. Error message: %s", id, fault.Reason)
	}
	return &worded{fault: fault, text: text}
}

// noDatastore is the fault of a call about a volume whose disk cannot be found: CNS looks for its datastore to check
// privileges, before it makes a task.
func (m *Manager) noDatastore(id string) types.BaseMethodFault {
	text := "Received SOAP response fault from [<cs p:00007f5724006bf0, TCP:localhost:443>]: retrieveVStorageObject\n"
	if m.since("7.0U1") {
		text = noDatastoreText(id)
	}
	return &worded{fault: &types.NotFound{}, text: text}
}

func noDatastoreText(id string) string {
	return fmt.Sprintf("CNS: Failed to retrieve datastore for vol %s. (vim.fault.NotFound) {\n   faultCause = (vmodl.MethodFault) null, \n"+
		"   faultMessage = <unset>\n   msg = \"%s\"\n}", id, noObjectText(id))
}

// noObjectText is what VSLM says of an id that no disk has.
func noObjectText(id string) string {
	return fmt.Sprintf("The vStorageObject (vim.vslm.ID) {\n   dynamicType = null,\n   dynamicProperty = null,\n   id = %s\n} was not found", id)
}

// refuseUnknown refuses an attach or detach call for what there is, or is not, of a volume.
func (m *Manager) refuseUnknown(id string) types.BaseMethodFault {
	_, present := m.presenceOf(id)
	if (present == nowhere && assume.UnknownVolume.In(m.assumed) == "call") ||
		(present == recordOnly && assume.LostDisk.In(m.assumed) == "call") {
		return m.noDatastore(id)
	}
	return nil
}

// unusable is the volume's fault of an operation, for what there is of the volume; nil if it is complete.
func (m *Manager) unusable(id string, present presence) types.BaseMethodFault {
	switch present {
	case diskOnly:
		return m.notRegistered(id)
	case recordOnly:
		return &types.NotFound{}
	case nowhere:
		if assume.UnknownVolume.In(m.assumed) == "CnsFault" {
			return cnsFault(&types.NotFound{}, "%s", noDatastoreText(id))
		}
		return &types.NotFound{}
	}
	return nil
}
