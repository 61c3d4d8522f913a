// Package oldkeys is the only place that knows earlier names of keys in stored JSON: in records of a state's
// database, lines of a journal, and annotations on pods. What an earlier version wrote is translated when it is
// read.
//
// To rename a key: give the Go field its new JSON name, add a line to renamed with Current+1, and raise Current.
package oldkeys

import (
	"bytes"
	"encoding/json"
	"errors"
)

// Current is the number of the names that this program writes. A state's database, a journal's header and a plan
// on a pod carry it under Key; where it is missing, it is 1.
const Current = 3

// Key is the key of that number.
const Key = "names"

// Kind is a kind of record.
type Kind string

// The kinds of records.
const (
	Job      Kind = "job"      // of the engine (job.Record)
	Alloc    Kind = "alloc"    // what a job holds of a node
	Node     Kind = "node"     // of a cluster
	Cluster  Kind = "cluster"  // with its nodes
	Snapshot Kind = "snapshot" // of the engine
	Given    Kind = "given"    // what a job received under other numbers; also on waiting pods
	Event    Kind = "event"
	Step     Kind = "step"     // a line of a journal: a batch of events, and its hash
	Header   Kind = "header"   // of a journal
	Info     Kind = "info"     // what a machine stores about a job besides its submission
	Array    Kind = "array"    // ... about elements of an array
	Usage    Kind = "usage"    // ... about what a job was measured to use
	Pace     Kind = "pace"     // how fast a job runs by its own reports
	Progress Kind = "progress" // of a job, as it reported it last
	Plan     Kind = "plan"     // of a gang, on its pods
)

// key is a renamed key.
type key struct {
	in       Kind
	old, new string
	since    int // the first Current with the new name
}

var renamed = []key{
	{Job, "asleep", "suspended_work", 2},
	{Job, "warm", "resident_on_gpu", 2},
	{Job, "lined", "eligible_since", 2},
	{Job, "hungry", "starving_since", 2},
	{Job, "deaf", "ignores_checkpoint", 2},
	{Job, "beside", "guest_of", 2},
	{Job, "before", "served_before", 2},
	{Job, "singles", "singletons_ahead", 2},
	{Job, "slow", "too_slow_since", 2},
	{Job, "solo", "unshared_speed", 2},
	{Job, "among", "measured_among", 2},
	{Job, "acc", "accrued_until", 2},
	{Alloc, "beside", "guest", 2},
	{Node, "asleep", "wake_time", 2},
	{Snapshot, "given", "given_back", 2},
	{Snapshot, "fresh", "pass_due", 2},
	{Snapshot, "looked", "defrag_round", 2},
	{Given, "before", "served_before", 2},
	{Info, "hearing", "signal_response", 2},
	{Info, "back", "giving_back", 2},
	{Info, "over", "over_memory", 2},
	{Info, "guessed", "estimate_from_history", 2},
	{Usage, "told", "memory_reported", 2},
	{Usage, "still", "idle_streak", 2},
	{Pace, "heard", "reported_at", 2},
	{Pace, "with", "company", 2},
	{Pace, "told", "predicted_run", 2},
	{Pace, "said", "speed_reported", 2},
	{Pace, "said_of", "speed_reported_run", 2},
	{Progress, "foretold", "predicted", 3},
	{Plan, "before", "given_before", 2},
	{Plan, "alone", "joined_late", 2},
}

// within lists the values of a record that are records, or lists of them.
var within = map[Kind]map[string]Kind{
	Job:      {"allocs": Alloc, "home": Alloc, "frozen": Alloc, "leaving": Alloc, "dest": Alloc, "plan": Alloc},
	Cluster:  {"nodes": Node},
	Snapshot: {"nodes": Node, "jobs": Job},
	Event:    {"given": Given, "spare": Node},
	Step:     {"events": Event},
	Header:   {"spec": Cluster, "snapshot": Snapshot},
	Info:     {"record": Job, "on": Alloc, "pace": Pace, "progress": Progress},
	Array:    {"info": Info},
	Plan:     {"before": Given, "given_before": Given},
}

// ErrNewer is returned for data of a newer version of this program.
var ErrNewer = errors.New("a newer version of this program wrote it: use that one")

// Of reads the number in a record; 1 if it has none.
func Of(text []byte) (names int, err error) {
	var n struct {
		Names int `json:"names"`
	}
	err = json.Unmarshal(text, &n)
	return max(n.Names, 1), err
}

// Unmarshal reads a record that contains its number. Data of a newer version is read as far as its keys are
// known.
func Unmarshal(kind Kind, text []byte, into any) error {
	names, err := Of(text)
	if err != nil {
		return err
	}
	return UnmarshalAs(kind, names, text, into)
}

// UnmarshalAs reads a record that was written with the given number.
func UnmarshalAs(kind Kind, names int, text []byte, into any) error {
	text, err := Translate(kind, names, text)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// Translate returns a record, or a list of them, with the keys that this program reads; names is the number with
// which it was written. A text without old keys is returned unchanged.
func Translate(kind Kind, names int, text []byte) ([]byte, error) {
	if names >= Current {
		return text, nil
	}
	out, _, err := translate(kind, max(names, 1), text)
	return out, err
}

func translate(kind Kind, names int, text []byte) (out []byte, changed bool, err error) {
	text = bytes.TrimSpace(text)
	switch {
	case len(text) == 0:
		return text, false, nil
	case text[0] == '[':
		return list(kind, names, text)
	case text[0] != '{':
		return text, false, nil // null, or an error that the reader will report
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, false, err
	}
	for name, inner := range within[kind] {
		if fields[name] == nil {
			continue
		}
		v, other, err := translate(inner, names, fields[name])
		if err != nil {
			return nil, false, err
		}
		fields[name], changed = v, changed || other
	}
	for i := range renamed {
		k := &renamed[i]
		if v, ok := fields[k.old]; ok && k.in == kind && names < k.since {
			delete(fields, k.old)
			fields[k.new], changed = v, true
		}
	}
	if !changed {
		return text, false, nil
	}
	out, err = json.Marshal(fields)
	return out, true, err
}

func list(kind Kind, names int, text []byte) (out []byte, changed bool, err error) {
	var of []json.RawMessage
	if err := json.Unmarshal(text, &of); err != nil {
		return nil, false, err
	}
	for i := range of {
		v, other, err := translate(kind, names, of[i])
		if err != nil {
			return nil, false, err
		}
		of[i], changed = v, changed || other
	}
	if !changed {
		return text, false, nil
	}
	out, err = json.Marshal(of)
	return out, true, err
}
