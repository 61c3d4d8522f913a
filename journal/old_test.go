package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/oldkeys"
)

// Journals that earlier versions wrote open, and are decided again hash for hash; their headers are written
// with what they said, under the names of now.
func TestOldJournals(t *testing.T) {
	files, err := filepath.Glob("testdata/*.journal")
	if err != nil || len(files) < 3 {
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
		if _, steps, err := Replay(r, cluster.Never); err != nil || steps < 5 {
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
		renamed, err := oldkeys.Translate(oldkeys.Header, 1, header)
		if err != nil {
			t.Fatal(err)
		}
		var is, was map[string]any
		if json.Unmarshal(again.Bytes(), &is) != nil || json.Unmarshal(renamed, &was) != nil {
			t.Fatal(name)
		}
		was["version"], was[oldkeys.Key] = Version, float64(oldkeys.Current)
		if !reflect.DeepEqual(is, was) {
			t.Errorf("%s: the header is now\n%s\nand was\n%s", name, again.Bytes(), header)
		}
	}
}

// A journal of a version to come is refused with words.
func TestNewerJournal(t *testing.T) {
	_, err := NewReader("j", strings.NewReader(`{"version":"muster.journal/v2","names":99,"policy":"fifo"}`))
	if !errors.Is(err, oldkeys.ErrNewer) {
		t.Errorf("names of a version to come: %v", err)
	}
	_, err = NewReader("j", strings.NewReader(`{"version":"muster.journal/v3"}`))
	if err == nil || !strings.Contains(err.Error(), "this program reads") {
		t.Errorf("a format to come: %v", err)
	}
}

// Steps that an earlier version wrote say what a gang was given before in words of then.
func TestOldSteps(t *testing.T) {
	const text = `{"version":"muster.journal/v1","spec":{"nodes":[{"name":"n"}]},"policy":"fifo","placer":"best-fit"}
{"seq":1,"now":5,"events":[{"type":"submitted","job":0,"spec":{"id":0,"tasks":[]},
"given":{"service":9,"before":7}}],"hash":"0"}
`
	r, err := NewReader("j", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	b, _, err := r.Next()
	if err != nil || len(b.Events) != 1 || b.Events[0].Carryover.Before != 7 {
		t.Errorf("%+v, %v", b, err)
	}
}
