package segments

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/journal"
)

// Each segment is a file, the present one under the name; the oldest are dropped. What is recorded is there at once.
func TestBegin(t *testing.T) {
	name := filepath.Join(t.TempDir(), "journal")
	for i := range keep + 3 {
		s, err := Begin(name, journal.Header{})
		if err != nil {
			t.Fatal(err)
		}
		empty, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		for seq := range i {
			b := &engine.Batch{Seq: int64(seq + 1)}
			if err := s.Record(b, &engine.Decision{}); err != nil {
				t.Fatal(err)
			}
		}
		if full, err := os.Stat(name); err != nil || (full.Size() > empty.Size()) != (i > 0) {
			t.Fatalf("%v: %d steps are recorded in %d bytes, the header has %d", err, i, full.Size(), empty.Size())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	before := int64(1 << 60)
	for i := range keep + 2 {
		file := name
		if i > 0 {
			file = fmt.Sprintf("%s.%d", name, i)
		}
		f, err := os.Stat(file)
		if i > keep {
			if err == nil {
				t.Errorf("%s is kept", file)
			}
			continue
		}
		if err != nil || f.Size() > before {
			t.Fatalf("%v: %s has %d bytes, the one after it %d", err, file, f.Size(), before)
		}
		before = f.Size()
	}
	if _, err := Begin(filepath.Join(name, "x"), journal.Header{}); err == nil {
		t.Error("a segment begins in a folder that is none")
	}
}
