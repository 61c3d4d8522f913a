//go:build linux

package local

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/oldkeys"
	"github.com/muster-gpu/muster/local/segment"
	"github.com/muster-gpu/muster/show"
)

// An array of which nothing was touched is one record of a segment's snapshot, and many of the exported one,
// which is what a snapshot with a record for each says, and from which the segment replays to the same hash.
func TestSnapshotOfArrays(t *testing.T) {
	opt := twoGPUs(t)
	m, end := running(t, opt)
	u := self(t)
	var ids [][]int
	for _, s := range []ask.Submission{{Array: "0-998:2%7", Hold: true}, {Hold: true},
		{Array: "990-1200", Hold: true, After: []ask.After{{Type: "aftercorr", Job: 1}}},
		{Array: "3,9,11-400", GPUs: 3, Hold: true}} {
		s.Command, s.Dir, s.Output = []string{"true"}, "/", "/dev/null"
		if s.GPUs == 3 {
			s.GPUs = 1
		}
		list, err := m.Submit(t.Context(), u, &s, "")
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, list)
	}
	name := "renamed"
	if err := m.Update(t.Context(), ids[0][100], &ask.Update{Name: &name}, &u); err != nil {
		t.Fatal(err)
	}
	if err := m.Act(t.Context(), ids[0][200], "cancel", u.Name); err != nil {
		t.Fatal(err)
	}
	end()
	m, end = running(t, opt)
	segments, err := m.store.Segments(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	snap, err := m.facts(t.Context())
	m.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	each, err := json.Marshal(snap)
	if err != nil {
		t.Fatal(err)
	}
	text, err := segment.EncodeSnapshot(snap)
	if err != nil {
		t.Fatal(err)
	}
	if stored := len(segments[len(segments)-1].Snapshot); stored > len(each)/20 || len(text) > len(each)/20 {
		t.Errorf("the snapshot is stored in %d bytes; %d with a record for each, %d with one for many", stored,
			len(each), len(text))
	}
	var want engine.Snapshot
	if err := json.Unmarshal(each, &want); err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string][]byte{"a record for many": text, "a record for each": each} {
		if got, err := segment.DecodeSnapshot(text, oldkeys.Current); err != nil || !reflect.DeepEqual(got, &want) {
			t.Errorf("%s: it is read otherwise than it was (%v)", what, err)
		}
	}
	if err := m.Act(t.Context(), ids[3][50], "release", u.Name); err != nil {
		t.Fatal(err)
	}
	until(t, m, ids[3][50], show.StateCompleted)
	e := replayed(t, m, end)
	if got := e.Record(cluster.JobID(ids[3][1])).Spec; got.Array.Index != 9 || got.ID != cluster.JobID(ids[3][1]) {
		t.Errorf("an element of the journal is %+v", got)
	}
	if got := e.Record(cluster.JobID(ids[0][100])).Spec; got.Name != name {
		t.Errorf("an element that was changed is %+v", got)
	}
}
