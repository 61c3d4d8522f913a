//go:build linux

package local

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
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
		var s struct{ Events []struct{ Elements string } }
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
	e := replayed(t, m, end)
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
