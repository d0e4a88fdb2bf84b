package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
)

// The pinned source. A new release of pyVmomi means a new pair, a new table and a look at the report.
const (
	wheelVersion = "9.1.1.0"
	wheelSHA256  = "76af3cba85573769daf4e6760aace32e7af34e1bbf343895b8c4798b6bc0e2d2"
)

// tables are the files of the wheel that describe the services we serve.
var tables = []string{"core", "query", "vim", "pbm", "vslm", "vsanhealth"}

// load reads the model from a wheel file.
func load(path string) (*model, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the wheel: %w; get it with pip download --no-deps pyvmomi==%s", err, wheelVersion)
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != wheelSHA256 {
		return nil, fmt.Errorf("the wheel's SHA-256 is %x, pinned is %s", sum, wheelSHA256)
	}
	archive, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return nil, fmt.Errorf("open the wheel: %w", err)
	}
	m := newModel()
	for _, name := range tables {
		file := "pyVmomi/_typeinfo_" + name + ".py"
		f, err := archive.Open(file)
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if err := m.read(string(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return m, nil
}
