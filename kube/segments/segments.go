// Package segments keeps a journal in files: the present segment under the name itself, earlier ones as name.1 (the
// latest) to name.20.
package segments

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/journal"
)

// keep is how many earlier segments there are.
const keep = 20

// File is the present segment.
type File struct {
	f *os.File
	w *journal.Writer
}

// Begin begins a segment.
func Begin(name string, h journal.Header) (*File, error) {
	for i := keep - 1; i >= 0; i-- {
		from := name
		if i > 0 {
			from = fmt.Sprintf("%s.%d", name, i)
		}
		if err := os.Rename(from, fmt.Sprintf("%s.%d", name, i+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	w, err := journal.NewWriter(f, h)
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &File{f, w}, nil
}

// Record writes a step out at once: a scheduler may be killed.
func (s *File) Record(b *engine.Batch, d *engine.Decision) error {
	return errors.Join(s.w.Record(b, d), s.w.Flush())
}

// Close ends the segment.
func (s *File) Close() error { return errors.Join(s.w.Flush(), s.f.Close()) }
