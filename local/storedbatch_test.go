//go:build linux

package local

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/oldkeys"
	"github.com/muster-gpu/muster/journal"
	"github.com/muster-gpu/muster/show"
)

// An array is one event of the stored journal, and many of the exported one, which replays to the same hash.
func TestJournalOfArrays(t *testing.T) {
	m, end := running(t, twoGPUs(t))
	u := self(t)
	first := 0
	for _, s := range []ask.Submission{{Array: "0-998:2%7", Hold: true}, {},
		{Array: "997-1200", Hold: true, After: []ask.After{{Type: "aftercorr", Job: 1}}}, {Array: "3,9,11", GPUs: 1}} {
		s.Command, s.Dir, s.Output = []string{"true"}, "/", "/dev/null"
		ids, err := m.Submit(t.Context(), u, &s, "")
		if err != nil {
			t.Fatal(err)
		}
		first = max(first, ids[0])
	}
	until(t, m, first+2, show.StateCompleted)
	var stored int
	var elements []string
	if err := m.store.Steps(t.Context(), 0, 1<<40, func(batch []byte, _ string) error {
		var s storedBatch
		stored += len(batch)
		err := json.Unmarshal(batch, &s)
		for i := range s.Events {
			elements = append(elements, s.Events[i].Elements)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(elements, " ")
	// 998 waits for an element that there is
	for _, want := range []string{ask.Ranges(must(t, "0-998:2").Indices), "3,9,11", "999-1200"} {
		if !strings.Contains(text, want) {
			t.Errorf("no event has the elements %.40s", want)
		}
	}
	var out bytes.Buffer
	if err := m.Journal(t.Context(), 0, &out); err != nil {
		t.Fatal(err)
	}
	end()
	r, err := journal.NewReader("journal", &out)
	if err != nil {
		t.Fatal(err)
	}
	e, _, err := journal.Replay(r, cluster.Never)
	if err != nil {
		t.Fatal(err)
	}
	if got := e.Record(cluster.JobID(first + 1)).Spec.Array; got == nil || got.Index != 9 ||
		got.ID != cluster.JobID(first) {
		t.Errorf("an element of the journal is %+v", got)
	}
}

func must(t *testing.T, text string) ask.Array {
	t.Helper()
	a, err := ask.ParseArray(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// What is damaged is an error, not elements that there never were.
func TestDecodeBatch(t *testing.T) {
	for text, want := range map[string]string{
		`{"events":[{"type":"submitted","job":3,"spec":{"id":3,"array":{"id":3,"index":1},"tasks":[]},"elements":"1-x"}]}`: "event 0",
		`{"events":[{"type":"submitted","job":3,"spec":{"id":3,"tasks":[]},"elements":"1-3"}]}`:                            "of no array",
		`{"events":[{"type":"cancelled","job":3,"elements":"1-3"}]}`:                                                       "of no array",
	} {
		if _, err := decodeBatch([]byte(text), oldkeys.Current); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	b, err := decodeBatch([]byte(`{"seq":4,"now":5,"events":[{"type":"submitted","job":3,`+
		`"spec":{"id":3,"array":{"id":3,"index":1},"tasks":[]},"elements":"1,7"}]}`), oldkeys.Current)
	if err != nil || len(b.Events) != 2 || b.Events[1].Job != 4 || b.Events[1].Type != engine.Submitted ||
		b.Events[1].Spec.Array.Index != 7 {
		t.Errorf("%+v, %v", b, err)
	}
}
