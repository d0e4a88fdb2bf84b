// Package storage holds Kubernetes' own storage suite as one program.
//
// Upstream's e2e.test carries every suite of Kubernetes; this one imports only what an external CSI
// driver needs. It is built with `go test -c` because the suite wants a *testing.T.
package storage

import (
	"flag"
	"os"
	"testing"

	"k8s.io/kubernetes/test/e2e"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	testingmanifests "k8s.io/kubernetes/test/e2e/testing-manifests"

	// Defines the External.Storage specs from the file given by -storage.testdriver.
	_ "k8s.io/kubernetes/test/e2e/storage/external"
)

func TestMain(m *testing.M) {
	// The suite reads some manifests by name; without a source it panics in the middle of a run.
	testfiles.AddFileSource(testingmanifests.GetE2ETestingManifestsFS())
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	framework.AfterReadingAllFlags(&framework.TestContext)
	os.Exit(m.Run())
}

func TestStorage(t *testing.T) {
	e2e.RunE2ETests(t)
}
