// Package schema describes the types and methods of vCenter's SOAP services: the fields in the order of the wire, what
// they may hold and since when they exist. The structure is read from govmomi's structs; versions, VMODL names and the
// kinds of managed objects come from table.txt, which internal/strict/gen extracts from pyVmomi, and from overlay.txt
// for what neither says.
//
// A line of these files is one of
//
//	versions LINE VERSION...                        a history, oldest first; blanks in versions are written _
//	managed WSDL VMODL PARENT SINCE                 a kind of managed object; PARENT is - for none
//	method WSDL VMODL MANAGED[!] SINCE FIELD...     a method; ! marks those that need no login
//	type WSDL VMODL SINCE FIELD...                  a data type that can occur in a request
//	fields TYPE FIELD...                            more about a type named before
//	concrete TYPE                                   a type without fields that is used by itself
//
// SINCE is vim:VERSION, vsan:VERSION or - for "not newer than vCenter 6.7U3". A FIELD appears only if there is something
// to say: NAME, then ? if it may be left out though govmomi always writes it, ! if it must be there though govmomi may
// leave it out, ~ if it is single though govmomi has an array, =SINCE, @MANAGED for the kind of object it refers to,
// ^TYPE for a declared type that govmomi lacks, +OTHER if it follows another field than in govmomi, and +OTHER:TYPE if
// govmomi does not have it.
package schema
