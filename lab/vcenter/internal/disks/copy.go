package disks

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// Linux's way to walk the parts of a sparse file that hold data; package io has no names for these.
const (
	seekData = 3
	seekHole = 4
)

// copySparse fills an empty file with another's content and keeps its holes, so that a snapshot of an unused
// terabyte takes no time and no space.
func copySparse(to *os.File, fromPath string) error {
	from, err := os.Open(fromPath)
	if err != nil {
		return fmt.Errorf("copy content: %w", err)
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return fmt.Errorf("copy content: %w", err)
	}
	for offset := int64(0); offset < info.Size(); {
		start, err := from.Seek(offset, seekData)
		if errors.Is(err, syscall.ENXIO) {
			break // only a hole is left
		}
		if err != nil {
			return fmt.Errorf("copy content: %w", err)
		}
		end, err := from.Seek(start, seekHole)
		if err != nil {
			return fmt.Errorf("copy content: %w", err)
		}
		source := io.NewSectionReader(from, start, end-start)
		if _, err := io.Copy(io.NewOffsetWriter(to, start), source); err != nil {
			return fmt.Errorf("copy content: %w", err)
		}
		offset = end
	}
	return to.Truncate(info.Size())
}
