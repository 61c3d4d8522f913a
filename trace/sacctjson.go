package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// sacctJSONFormat is Slurm's accounting as printed by sacct --json, from
// Slurm 21.08 (plain numbers and strings) to 24 (numbers as {set, infinite,
// number}, states as lists). Times are Unix seconds, limits minutes.
var sacctJSONFormat = Format{
	Name:  "sacct-json",
	About: "Slurm: sacct --json",
	Detect: func(head []byte, _ string) bool {
		head = bytes.TrimSpace(head)
		return bytes.HasPrefix(head, []byte("{")) && !bytes.Contains(head, []byte(`"muster_trace"`)) &&
			(bytes.Contains(head, []byte(`"jobs"`)) || bytes.Contains(head, []byte(`"meta"`)))
	},
	Read: readSacctJSON,
}

// slurmNumber is a number in any of the forms that Slurm prints.
type slurmNumber struct {
	set bool
	n   float64
}

func (s *slurmNumber) UnmarshalJSON(b []byte) error {
	var form struct {
		Set      bool    `json:"set"`
		Infinite bool    `json:"infinite"`
		Number   float64 `json:"number"`
	}
	if len(b) > 0 && b[0] == '{' {
		if err := json.Unmarshal(b, &form); err != nil {
			return err
		}
		s.set, s.n = form.Set && !form.Infinite, form.Number
		return nil
	}
	if string(b) == "null" {
		return nil
	}
	s.set = true
	return json.Unmarshal(b, &s.n)
}

// slurmWords is a string or a list of strings.
type slurmWords []string

func (s *slurmWords) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		return json.Unmarshal(b, (*[]string)(s))
	}
	*s = slurmWords{""}
	return json.Unmarshal(b, &(*s)[0])
}

// slurmJob is the part of a job object that is used.
type slurmJob struct {
	ID    slurmNumber `json:"job_id"`
	Array struct {
		TaskID slurmNumber `json:"task_id"`
		JobID  slurmNumber `json:"job_id"`
	} `json:"array"`
	Name      string `json:"name"`
	User      string `json:"user"`
	Account   string `json:"account"`
	Partition string `json:"partition"`
	Time      struct {
		Submission slurmNumber `json:"submission"`
		Eligible   slurmNumber `json:"eligible"`
		Start      slurmNumber `json:"start"`
		End        slurmNumber `json:"end"`
		Elapsed    slurmNumber `json:"elapsed"`
		Limit      slurmNumber `json:"limit"`
	} `json:"time"`
	State struct {
		Current slurmWords `json:"current"`
	} `json:"state"`
	Association struct {
		User    string `json:"user"`
		Account string `json:"account"`
	} `json:"association"`
	Tres struct {
		Requested []slurmTres `json:"requested"`
		Allocated []slurmTres `json:"allocated"`
	} `json:"tres"`
}

type slurmTres struct {
	Type  string      `json:"type"`
	Name  string      `json:"name"`
	Count slurmNumber `json:"count"`
}

// lineCounter converts an offset of the stream to a line number.
type lineCounter struct {
	in    io.Reader
	read  int64
	ends  []int64 // offsets of line ends that were not passed yet
	lines int     // number of line ends passed
}

func (l *lineCounter) Read(p []byte) (int, error) {
	n, err := l.in.Read(p)
	for i, c := range p[:n] {
		if c == '\n' {
			l.ends = append(l.ends, l.read+int64(i))
		}
	}
	l.read += int64(n)
	return n, err
}

// line returns the line number, from 1, of an offset; offsets must not decrease.
func (l *lineCounter) line(at int64) int {
	k := 0
	for k < len(l.ends) && l.ends[k] < at {
		k++
	}
	l.ends, l.lines = l.ends[k:], l.lines+k
	return l.lines + 1
}

func readSacctJSON(b *Builder) error {
	if head, _ := b.in.Peek(3); len(trimBOM(head)) == 0 {
		if _, err := b.in.Discard(len(head)); err != nil {
			return err // it was peeked
		}
	}
	lc := &lineCounter{in: b.in}
	d := json.NewDecoder(lc)
	broken := func(err error) error {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("the file ends in the middle")
		}
		return b.fatal(lc.line(d.InputOffset()), "not readable as JSON: %v", err)
	}
	if tok, err := d.Token(); err != nil || tok != json.Delim('{') {
		return b.fatal(1, `must be a JSON object with a list "jobs", as sacct --json prints it`)
	}
	b.calendar = true
	var left unusable
	found := false
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return broken(err)
		}
		if key != "jobs" || found {
			var skip json.RawMessage
			if err := d.Decode(&skip); err != nil {
				return broken(err)
			}
			continue
		}
		found = true
		if tok, err := d.Token(); err != nil || tok != json.Delim('[') {
			return b.fatal(lc.line(d.InputOffset()), `"jobs" must be a list`)
		}
		for d.More() {
			var raw json.RawMessage
			if err := d.Decode(&raw); err != nil {
				return broken(err)
			}
			if err := b.sacctJSONJob(raw, lc.line(d.InputOffset()-int64(len(raw))), &left); err != nil {
				return err
			}
		}
		if _, err := d.Token(); err != nil {
			return broken(err)
		}
	}
	if _, err := d.Token(); err != nil {
		return broken(err)
	}
	if !found {
		return b.fatal(0, `no list "jobs"; print the file with sacct --json`)
	}
	left.note(b)
	return nil
}

// sacctJSONJob reads one element of the list of jobs.
func (b *Builder) sacctJSONJob(raw []byte, line int, left *unusable) error {
	var s slurmJob
	if err := json.Unmarshal(raw, &s); err != nil {
		return b.bad(line, err.Error())
	}
	state := strings.Join(s.State.Current, " ")
	o, ended, ok := slurmState([]byte(state))
	switch {
	case !ok:
		return b.bad(line, fmt.Sprintf("state.current %q: must be %s", state, slurmStates))
	case s.Time.Start.n == 0:
		left.waiting++
		return nil
	case !ended:
		left.open++
		return nil
	}
	e := Entry{Outcome: o}
	if reason := b.slurmEntry(&s, &e); reason != "" {
		return b.bad(line, reason)
	}
	return b.add(&e, line)
}

// slurmEntry converts a job that ran; a reason says what is wrong with it.
func (b *Builder) slurmEntry(s *slurmJob, e *Entry) (reason string) {
	take := func(name string, v slurmNumber, unit time.Duration) time.Duration {
		if !(v.n >= 0) || v.n > float64(cluster.MaxDuration/unit) {
			reason = fmt.Sprintf("%s %g: must be a number of %s from 0 to %d (100 years)", name, v.n, unitName(unit),
				cluster.MaxDuration/unit)
			return 0
		}
		return time.Duration(v.n * float64(unit))
	}
	first := func(x, y string) string {
		if x == "" {
			x = y
		}
		return b.text([]byte(x))
	}
	j := &e.Job
	j.Tier = cluster.Standard
	id := fmt.Sprintf("%.0f", s.ID.n)
	if s.Array.TaskID.set && s.Array.JobID.n > 0 {
		id = fmt.Sprintf("%.0f_%.0f", s.Array.JobID.n, s.Array.TaskID.n)
	}
	j.Name = first(s.Name, id)
	j.User = first(s.User, s.Association.User)
	j.Queue = first(first(s.Account, s.Association.Account), s.Partition)
	if b.opt.Partitions && s.Partition != "" {
		j.Partitions = []string{b.text([]byte(s.Partition))}
	}
	j.Submit = cluster.Time(take("time.submission", s.Time.Submission, time.Second))
	if at := cluster.Time(take("time.eligible", s.Time.Eligible, time.Second)); at > j.Submit {
		j.Begin = at
	}
	e.Run = take("time.elapsed", s.Time.Elapsed, time.Second)
	if !s.Time.Elapsed.set && s.Time.End.n >= s.Time.Start.n {
		s.Time.End.n -= s.Time.Start.n
		e.Run = take("time.end - time.start", s.Time.End, time.Second)
	}
	if s.Time.Limit.set {
		j.Limit = take("time.limit", s.Time.Limit, time.Minute)
	}
	list := s.Tres.Allocated
	if len(list) == 0 {
		list = s.Tres.Requested
	}
	var res tres
	for _, r := range list {
		most := float64(cluster.MaxTasks)
		if r.Type == "mem" {
			most = float64(cluster.MaxMiB)
		}
		if r.Type != "gres" && r.Type != "cpu" && r.Type != "mem" ||
			r.Type == "gres" && r.Name != "gpu" && !strings.HasPrefix(r.Name, "gpu:") {
			continue
		}
		if !(r.Count.n >= 0 && r.Count.n <= most) {
			return fmt.Sprintf("tres %s %s %g: must be between 0 and %g", r.Type, r.Name, r.Count.n, most)
		}
		name := r.Type
		if r.Type == "gres" {
			name += "/" + r.Name
		}
		res.add(name, int64(r.Count.n))
	}
	res.apply(b, e)
	return reason
}
