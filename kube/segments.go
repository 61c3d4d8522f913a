package kube

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/journal"
)

// keepSegments is how many earlier segments of a journal are kept.
const keepSegments = 20

// Segments keeps a journal in files: the present segment under the name itself,
// earlier ones as name.1 (the latest) to name.20.
func Segments(name string) func(journal.Header) (Recorder, error) {
	return func(h journal.Header) (Recorder, error) {
		for i := keepSegments - 1; i >= 0; i-- {
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
		return &segment{f, w}, nil
	}
}

type segment struct {
	f *os.File
	w *journal.Writer
}

// Record writes a step out at once: a scheduler may be killed.
func (s *segment) Record(b *engine.Batch, d *engine.Decision) error {
	return errors.Join(s.w.Record(b, d), s.w.Flush())
}

func (s *segment) Close() error { return errors.Join(s.w.Flush(), s.f.Close()) }
