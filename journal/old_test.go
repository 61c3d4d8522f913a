package journal

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

// Journals that earlier versions wrote open, and are decided again hash for hash; their headers are written as they were.
func TestOldJournals(t *testing.T) {
	files, err := filepath.Glob("testdata/*.journal")
	if err != nil || len(files) < 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := NewReader(name, bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, steps, err := Replay(r, cluster.Never); err != nil || steps < 10 {
			t.Errorf("%s: %d steps, %v", name, steps, err)
		}
		var again bytes.Buffer
		w, err := NewWriter(&again, r.Header)
		if err == nil {
			err = w.Flush()
		}
		if err != nil {
			t.Fatal(err)
		}
		header, _, _ := bytes.Cut(text, []byte("\n"))
		if got := bytes.TrimRight(again.Bytes(), "\n"); !bytes.Equal(got, header) {
			t.Errorf("%s: the header is now\n%s\nand was\n%s", name, got, header)
		}
	}
}
