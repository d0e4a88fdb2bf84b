// Command chart renders a Helm chart as `helm template` does: chart RELEASE NAMESPACE DIRECTORY, values as YAML on standard
// input, the manifests on standard output.
package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: chart RELEASE NAMESPACE DIRECTORY < values.yaml")
		os.Exit(2)
	}
	if err := render(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func render(release, namespace, directory string) error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return fmt.Errorf("read the values: %w", err)
	}
	given, err := chartutil.ReadValues(text)
	if err != nil {
		return fmt.Errorf("read the values: %w", err)
	}
	chart, err := loader.Load(directory)
	if err != nil {
		return err
	}
	options := chartutil.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	values, err := chartutil.ToRenderValues(chart, given, options, chartutil.DefaultCapabilities)
	if err != nil {
		return err
	}
	files, err := engine.Render(chart, values)
	if err != nil {
		return err
	}
	var names []string
	for name := range files {
		if !strings.HasSuffix(name, "NOTES.txt") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Printf("---\n# %s\n%s\n", name, files[name])
	}
	return nil
}
