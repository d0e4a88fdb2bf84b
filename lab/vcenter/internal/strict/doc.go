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
//     Outside CNS those only pyVmomi has are all newer than 9.0 and refused.
//   - Four fields that govmomi always writes may be left out according to pyVmomi (OptionValue.value among them): they
//     may. One that pyVmomi requires govmomi may leave out: it may, too.
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
// An element without xsi:type has its declared type, unless that has no field at all: pyVmomi names a type only if it is
// not the declared one. The request is passed on with the declared type written into it, because the library behind does not
// survive its absence everywhere. Laxer: values of enumerations are checked against all releases'
// values at once; requests in the name of an old vSAN version may use all vim25 fields of the release; elements that
// only vSAN's own management uses have no versions; SSO is checked for form only, as pyVmomi does not describe it.
package strict
