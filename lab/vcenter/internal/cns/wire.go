package cns

import (
	"reflect"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vim25/xml"
	vsanfs "github.com/vmware/govmomi/vsan/vsanfs/types"
)

// The types of this file are on the wire what vCenter writes but govmomi's types do not: xsi:type on the backing of a
// volume, without which a client cannot tell its kind, fields that govmomi lacks, and faults it does not know.
// Their names are those of vCenter, because the encoder takes xsi:type from them.

// govmomi finds types by name in a table of its own, which can only be filled before anything is decoded. Its
// CnsQueryVolume has no selection, which the method has had since 7.0. The faults are not in it, and the property collector,
// which copies values by encoding and decoding them, would lose them.
func init() {
	types.Add("vsan:CnsQueryVolume", reflect.TypeOf((*CnsQueryVolume)(nil)).Elem())
	types.Add("vsan:CnsQueryAsync", reflect.TypeOf((*CnsQueryAsync)(nil)).Elem())
	types.Add("vsan:BaseCnsQueryFilter", reflect.TypeOf((*cnstypes.CnsQueryFilter)(nil)).Elem()) // of a filter that names no type
	types.Add("CnsPlacementFault", reflect.TypeOf((*CnsPlacementFault)(nil)).Elem())
	types.Add("CnsInCompatibleFault", reflect.TypeOf((*CnsInCompatibleFault)(nil)).Elem())
	types.Add("CnsMissingPrivilegeFault", reflect.TypeOf((*CnsMissingPrivilegeFault)(nil)).Elem())
	types.Add("CnsRankedLowerFault", reflect.TypeOf((*CnsRankedLowerFault)(nil)).Elem())
	types.Add("CnsMissingControllerFault", reflect.TypeOf((*CnsMissingControllerFault)(nil)).Elem())
}

// CnsQueryVolume is the request with all of its parameters.
type CnsQueryVolume struct {
	This      types.ManagedObjectReference `xml:"_this"`
	Filter    cnstypes.BaseCnsQueryFilter  `xml:"filter,typeattr"`
	Selection *cnstypes.CnsQuerySelection  `xml:"selection,omitempty"`
}

// CnsQueryAsync is the request with a filter of any kind. govmomi's type holds the base of all filters, so that the names
// of a Kubernetes filter would get lost.
type CnsQueryAsync struct {
	This      types.ManagedObjectReference `xml:"_this"`
	Filter    cnstypes.BaseCnsQueryFilter  `xml:"filter,typeattr"`
	Selection *cnstypes.CnsQuerySelection  `xml:"selection,omitempty"`
}

// CnsVolume is a volume in an answer.
type CnsVolume struct {
	VolumeId                     cnstypes.CnsVolumeId                 `xml:"volumeId"`
	DatastoreUrl                 string                               `xml:"datastoreUrl,omitempty"`
	Name                         string                               `xml:"name,omitempty"`
	VolumeType                   string                               `xml:"volumeType,omitempty"`
	StoragePolicyId              string                               `xml:"storagePolicyId,omitempty"`
	Metadata                     *cnstypes.CnsVolumeMetadata          `xml:"metadata,omitempty"`
	BackingObjectDetails         cnstypes.BaseCnsBackingObjectDetails `xml:"backingObjectDetails,omitempty,typeattr"`
	ComplianceStatus             string                               `xml:"complianceStatus,omitempty"`
	DatastoreAccessibilityStatus string                               `xml:"datastoreAccessibilityStatus,omitempty"`
	HealthStatus                 string                               `xml:"healthStatus,omitempty"`
	ChangedBlockTracking         cnstypes.CnsVolumeCBTStatus          `xml:"changedBlockTracking,omitempty"`
}

// CnsQueryResult is a page of volumes.
type CnsQueryResult struct {
	Volumes []CnsVolume        `xml:"volumes,omitempty"`
	Cursor  cnstypes.CnsCursor `xml:"cursor"`
}

// plain is the page in govmomi's types, for a task: the property collector knows no others. Correct puts back what gets lost.
func (r CnsQueryResult) plain() cnstypes.CnsQueryResult {
	plain := cnstypes.CnsQueryResult{Cursor: r.Cursor}
	for _, v := range r.Volumes {
		one := cnstypes.CnsVolume{
			VolumeId: v.VolumeId, DatastoreUrl: v.DatastoreUrl, Name: v.Name, VolumeType: v.VolumeType, StoragePolicyId: v.StoragePolicyId,
			BackingObjectDetails: typed(v.BackingObjectDetails), ComplianceStatus: v.ComplianceStatus,
			DatastoreAccessibilityStatus: v.DatastoreAccessibilityStatus, HealthStatus: v.HealthStatus, ChangedBlockTracking: v.ChangedBlockTracking,
		}
		if v.Metadata != nil {
			one.Metadata = *v.Metadata
		}
		plain.Volumes = append(plain.Volumes, one)
	}
	return plain
}

// typedBacking writes its own xsi:type, which the first copy needs to know what it reads.
type typedBacking struct {
	cnstypes.BaseCnsBackingObjectDetails
}

func typed(backing cnstypes.BaseCnsBackingObjectDetails) cnstypes.BaseCnsBackingObjectDetails {
	if backing == nil {
		return nil
	}
	return typedBacking{backing}
}

// MarshalXML is for the encoder.
func (t typedBacking) MarshalXML(encoder *xml.Encoder, start xml.StartElement) error {
	start.Attr = append(start.Attr, xml.Attr{
		Name:  xml.Name{Space: "http://www.w3.org/2001/XMLSchema-instance", Local: "type"},
		Value: reflect.TypeOf(t.BaseCnsBackingObjectDetails).Elem().Name(),
	})
	return encoder.EncodeElement(t.BaseCnsBackingObjectDetails, start)
}

// CnsVsanFileShareBackingDetails has the share's permissions, as vCenter has since 7.0U2.
type CnsVsanFileShareBackingDetails struct {
	cnstypes.CnsFileBackingDetails
	Name         string                              `xml:"name,omitempty"`
	AccessPoints []types.KeyValue                    `xml:"accessPoints,omitempty"`
	Permission   []vsanfs.VsanFileShareNetPermission `xml:"permission,omitempty"`
}

type queryResponse struct {
	Returnval CnsQueryResult `xml:"returnval"`
}

type queryVolumeBody struct {
	Res    *queryResponse `xml:"urn:vsan CnsQueryVolumeResponse,omitempty"`
	Fault_ *soap.Fault    `xml:"http://schemas.xmlsoap.org/soap/envelope/ Fault,omitempty"`
}

// Fault is for soap.HasFault.
func (b *queryVolumeBody) Fault() *soap.Fault { return b.Fault_ }

type queryAllVolumeBody struct {
	Res    *queryResponse `xml:"urn:vsan CnsQueryAllVolumeResponse,omitempty"`
	Fault_ *soap.Fault    `xml:"http://schemas.xmlsoap.org/soap/envelope/ Fault,omitempty"`
}

// Fault is for soap.HasFault.
func (b *queryAllVolumeBody) Fault() *soap.Fault { return b.Fault_ }

// CnsPlacementFault says why a datastore cannot hold a volume.
type CnsPlacementFault struct{ cnstypes.CnsFault }

// CnsInCompatibleFault says that a datastore does not satisfy the policy.
type CnsInCompatibleFault struct{ cnstypes.CnsFault }

// CnsMissingPrivilegeFault says that the user may not use a datastore.
type CnsMissingPrivilegeFault struct {
	cnstypes.CnsFault
	Privileges []string `xml:"privileges,omitempty"`
}

// CnsRankedLowerFault says that a datastore would do, but another is better.
type CnsRankedLowerFault struct{ cnstypes.CnsFault }

// CnsMissingControllerFault says that a VM has no controller with a free slot.
type CnsMissingControllerFault struct{ cnstypes.CnsFault }
