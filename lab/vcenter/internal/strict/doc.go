// Package strict makes the simulator refuse the requests vCenter refuses. govmomi's simulator decodes whatever it can
// and ignores the rest, so a client can send elements in any order, misspell them or use those of a newer release,
// pass all its tests and fail at the first real vCenter. The middleware of this package stands in front of the
// simulator, reads each SOAP request as vCenter would and answers with vCenter's fault or lets it through unchanged.
//
// # What is checked
//
// Well-formedness and the form of the envelope; the SOAPAction (service, version); the namespace and name of the
// method and whether the release has it; _this, first and of the right kind; order, names and number of elements, the
// fields of base types first; elements and types newer than the release or than the version in the SOAPAction;
// required elements; xsi:type where the declared type is abstract, known and a subtype of the declared one; values
// of booleans, numbers, dates, base64 and enumerations; the kind of object a reference names; attributes; size and
// depth; and, if asked to, the session.
//
// # Where the rules come from
//
// Order, requiredness, types and polymorphism come from govmomi's structs by reflection, because the simulator behind
// decodes with the same structs: what passes here is understood there. Versions, the names in messages, the kinds of
// references and what needs no login come from pyVmomi's type tables, which have them for every field and method;
// package schema holds an extract. The generator compared both for 2064 types and methods that can occur in a request:
// 2020 agree in fields and order, and govmomi's own 392 version notes agree with pyVmomi without exception. The rest is
// in gen/report.txt:
//
//   - One order differs: CnsBlockBackingDetails.backingDiskPath is last in govmomi and follows backingDiskUrlPath in
//     pyVmomi. pyVmomi is trusted: its tables are generated from the service's own definition, govmomi's CNS types
//     are maintained by hand, and the versions of the fields rise along pyVmomi's order. govmomi's client would fail
//     only if it set backingDiskPath together with backingDiskObjectId, which no known caller does.
//   - Fields that only one side has are accepted for CNS, from either (schema/overlay.txt dates those of govmomi).
//     Outside CNS those only pyVmomi has all came with 9.1 and are refused: the library behind would drop them unnoticed.
//   - Five fields that govmomi always writes may be left out according to pyVmomi (OptionValue.value among them): they
//     may. Nine that pyVmomi requires govmomi may leave out, arrays that must not be empty most of them: they may not.
//
// # Compared with the WSDL
//
// The tables were compared once with the WSDL and XSD of vSphere 9.1, in a public fork of vmware/vcf-api-specs: names, order, types, number
// and requiredness of the elements of all 1069 operations of vim, CNS, PBM and VSLM and of the 1201 types that can occur
// in a request. Of the 2164 that both have, 1963 agreed in everything; 2104 do now. No order differs. Found and mended:
//
//   - 142 arrays must not be empty, which strict mode did not ask for. vCenter does: "Required parameter querySpec is
//     missing" (vsphere-graphite issue 14, sexigraf 336).
//   - Three fields may be left out because they were added to their types later: FileQueryFlags.fileOwner,
//     ScheduledTaskInfo.taskObject and EVCMode.track.
//   - CnsNFSAccessControlSpec has one netPermission, and it inherits from CnsAccessControlSpec, which is what its place
//     declares; CnsVolumeMetadataUpdateSpec.metadata is required; CnsQueryAsync takes every kind of filter.
//   - CnsVolumeCreateSpec.hosts and CnsVolumeRelocateSpec.serviceLocator are in no public description and were accepted by
//     every release; they have first versions now.
//
// Left as it is: 44 fields and 7 methods that came with 9.1 and govmomi lacks; 15 fields that govmomi has and the WSDL
// has not; the methods that drivers call and no description has, CnsQueryAllVolume and CnsQuerySnapshots among them;
// types of vSAN's own management; 14 places outside CNS where a subtype may stand but govmomi decodes the declared type;
// two numbers of one byte that are not checked.
//
// # How faults read
//
// The texts and their trail of places follow faults that users of real vCenters reported: unexpected tags (rbvmomi issue
// 132), missing parameters (yavijava 267) and properties (knife-vsphere 39), <_this> (vsphere-connect 12), unknown
// methods (node-soap 668) and versions (govmomi 2305). Our own are the texts for missing and unfitting xsi:type, for
// bad values and for documents that are not well formed or too large; no report of them was found. vCenter's fault
// type for all of them is InvalidRequest.
//
// # Where this is stricter than vCenter, or laxer
//
// An element without xsi:type has its declared type, unless that is abstract: pyVmomi names a type only if it is not the
// declared one. No description marks abstract types; those without any field are taken for abstract, except the one that
// scripts are known to use, FileQuery. The request is passed on with the declared type written into it, because the
// library behind does not survive its absence everywhere. Laxer: values of enumerations are checked against all releases'
// values at once; requests in the name of an old vSAN version may use all vim25 fields of the release; elements that
// only vSAN's own management uses have no versions; SSO is checked for form only, as pyVmomi does not describe it.
package strict
