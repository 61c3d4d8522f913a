//go:build linux

package segment

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/oldkeys"
)

// Batch is a batch as it is stored.
type Batch struct {
	Seq    int64        `json:"seq"`
	Now    cluster.Time `json:"now"`
	Events []Event      `json:"events,omitempty"`
}

// Event is an event, or several of elements of an array.
type Event struct {
	engine.Event
	Elements string `json:"elements,omitempty"` // indices of an array, of which the event's job is the first
}

// Array is an array that is submitted: the number of its first element, and the indices of all.
type Array struct {
	First   cluster.JobID
	Indices []int
}

// EncodeBatch writes the batch in which arrays were submitted.
func EncodeBatch(b *engine.Batch, arrived []Array) ([]byte, error) {
	if len(arrived) == 0 {
		return json.Marshal(b)
	}
	of := map[cluster.JobID][]int{}
	for _, a := range arrived {
		of[a.First] = a.Indices
	}
	s := Batch{Seq: b.Seq, Now: b.Now}
	for i := 0; i < len(b.Events); i++ {
		ev := &b.Events[i]
		indices := of[ev.Job]
		if ev.Type != engine.Submitted || indices == nil {
			s.Events = append(s.Events, Event{Event: *ev})
			continue
		}
		for k := 0; k < len(indices); { // events of an array follow each other
			n := 1
			for k+n < len(indices) && slices.Equal(b.Events[i+k].Spec.After, b.Events[i+k+n].Spec.After) {
				n++
			}
			e := Event{Event: b.Events[i+k]}
			if n > 1 {
				e.Elements = ask.Ranges(indices[k : k+n])
			}
			s.Events = append(s.Events, e)
			k += n
		}
		i += len(indices) - 1
	}
	return json.Marshal(&s)
}

// decodeBatch reads a batch as it was, whose keys have the names of a version (oldkeys).
func decodeBatch(text []byte, names int) (b engine.Batch, err error) {
	var s Batch
	if err := oldkeys.UnmarshalAs(oldkeys.Step, names, text, &s); err != nil {
		return b, err
	}
	b.Seq, b.Now = s.Seq, s.Now
	for i := range s.Events {
		ev := &s.Events[i]
		if ev.Elements == "" {
			b.Events = append(b.Events, ev.Event)
			continue
		}
		list, err := ask.ParseArray(ev.Elements)
		if err != nil {
			return b, fmt.Errorf("event %d: %w", i, err)
		}
		if ev.Spec == nil || ev.Spec.Array == nil {
			return b, fmt.Errorf("event %d has the elements %s of no array", i, ev.Elements)
		}
		for k, index := range list.Indices {
			one := ev.Event
			one.Spec = Element(ev.Spec, ev.Spec.ID+cluster.JobID(k), index)
			one.Job = one.Spec.ID
			b.Events = append(b.Events, one)
		}
	}
	return b, nil
}
