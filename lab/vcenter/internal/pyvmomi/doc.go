// Package pyvmomi replays sessions that were recorded with VMware's Python client: what its client sends, vCenter takes.
//
// It is a package of its own because it starts whole vCenters, whose types would take the place of the library's in the
// tests of strict mode.
package pyvmomi
