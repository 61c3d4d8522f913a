//go:build linux

package segment

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/oldkeys"
)

type storedSnapshot struct {
	engine.Snapshot
	Jobs []storedRecord `json:"jobs,omitempty"`
}

type storedRecord struct {
	engine.JobRecord
	Elements string `json:"elements,omitempty"` // indices of an array, of which the record's job is the first
}

// EncodeSnapshot writes the snapshot with which a segment begins: with one record for the elements of an array that
// follow each other, have only waited so far and differ in their numbers only.
func EncodeSnapshot(snap *engine.Snapshot) ([]byte, error) {
	s := storedSnapshot{Snapshot: *snap}
	for i := 0; i < len(snap.Jobs); {
		r := storedRecord{JobRecord: snap.Jobs[i]}
		n := likeFirst(snap.Jobs[i:])
		if n > 1 {
			var indices []int
			for k := range n {
				indices = append(indices, snap.Jobs[i+k].Spec.Array.Index)
			}
			r.Elements = ask.Ranges(indices)
		}
		s.Jobs = append(s.Jobs, r)
		i += n
	}
	return json.Marshal(&s)
}

// likeFirst counts the records at the beginning of a list that differ from the first one as elements of one
// array do: in numbers and indices, which both rise.
func likeFirst(list []engine.JobRecord) int {
	first := &list[0]
	was, ok := first.Untouched()
	if !ok || first.Spec == nil || first.Spec.Array == nil {
		return 1
	}
	n := 1
	for ; n < len(list); n++ {
		spec, before := list[n].Spec, list[n-1].Spec
		if spec == nil || spec.Array == nil || spec.ID != before.ID+1 || spec.Array.Index <= before.Array.Index {
			break
		}
		if u, ok := list[n].Untouched(); !ok || u != was || !sameElement(spec, first.Spec) {
			break
		}
	}
	return n
}

// sameElement reports whether two elements ask for the same.
func sameElement(a, b *cluster.Job) bool {
	x, y := *a, *b
	of, other := *a.Array, *b.Array
	x.ID, y.ID, x.Array, y.Array, of.Index, other.Index = 0, 0, nil, nil, 0, 0
	return of == other && reflect.DeepEqual(&x, &y)
}

// DecodeSnapshot reads a snapshot as it was, whose keys have the names of a version (oldkeys).
func DecodeSnapshot(text []byte, names int) (*engine.Snapshot, error) {
	var s storedSnapshot
	if err := oldkeys.UnmarshalAs(oldkeys.Snapshot, names, text, &s); err != nil {
		return nil, err
	}
	snap := &s.Snapshot
	for i := range s.Jobs {
		r := &s.Jobs[i]
		if r.Elements == "" {
			snap.Jobs = append(snap.Jobs, r.JobRecord)
			continue
		}
		list, err := ask.ParseArray(r.Elements)
		if err != nil {
			return nil, fmt.Errorf("job %d of the snapshot: %w", i, err)
		}
		if r.Spec == nil || r.Spec.Array == nil {
			return nil, fmt.Errorf("job %d of the snapshot has the elements %s of no array", i, r.Elements)
		}
		for k, index := range list.Indices {
			one := r.JobRecord
			one.Spec = Element(r.Spec, r.Spec.ID+cluster.JobID(k), index)
			snap.Jobs = append(snap.Jobs, one)
		}
	}
	return snap, nil
}

// Element is what an element asks for, made of what another one of its array does.
func Element(like *cluster.Job, id cluster.JobID, index int) *cluster.Job {
	spec, of := *like, *like.Array
	spec.ID, of.Index, spec.Array = id, index, &of
	return &spec
}
