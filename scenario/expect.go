package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/report"
)

// expectCmd is an `expect` line: facts about a job, a queue, a user or a whole variant, in each
// selected variant.
type expectCmd struct {
	choice
	run     *runCmd
	subject string // job, queue, user or "" for the variant
	name    string
	at      cluster.Time
	timed   bool
	facts   []arg
}

// kindOfValue is the type of a fact's value.
type kindOfValue uint8

const (
	aDuration kindOfValue = iota // or never
	aNumber
	aText // = and != only; "rejected" searches for a part of the text
	aList // = and != only
)

type factDef struct {
	name string
	kind kindOfValue
	at   int8 // 1: at= is required, 0: not allowed, 2: optional
}

var factDefs = map[string][]factDef{
	"job": {{"start", aDuration, 0}, {"end", aDuration, 0}, {"wait", aDuration, 0}, {"jct", aDuration, 0},
		{"ran", aDuration, 0},
		{"lost", aDuration, 0}, {"preempted", aNumber, 0}, {"stops", aNumber, 0}, {"outcome", aText, 0},
		{"rejected", aText, 0},
		{"gpus", aNumber, 2}, {"nodes", aList, 2}, {"state", aText, 1}, {"why", aText, 1}, {"expected", aDuration, 1},
		{"class", aNumber, 1}, {"shift", aDuration, 1}},
	"queue": {{"used", aNumber, 1}, {"max", aNumber, 0}},
	"user":  {{"used", aNumber, 1}, {"max", aNumber, 0}},
	"": {{"util", aNumber, 0}, {"goodput", aNumber, 0}, {"makespan", aDuration, 0}, {"mean-jct", aDuration, 0},
		{"max-jct", aDuration, 0},
		{"mean-wait", aDuration, 0}, {"max-wait", aDuration, 0}, {"preempted", aNumber, 0}, {"completed", aNumber, 0},
		{"unfinished", aNumber, 0}, {"used", aNumber, 1}, {"max", aNumber, 0}, {"order", aList, 0},
		{"never", aList, 0}},
}

var subjects = []string{"job", "queue", "user"}

func (p *parser) expect(args []string) error {
	if p.last == nil {
		return errors.New("there is no run above it")
	}
	x := &expectCmd{run: p.last}
	for _, f := range args {
		a := parseArg(f)
		switch {
		case a.op == "" || a.value == "":
			return fmt.Errorf("%q is not a fact such as wait<=10m", f)
		case a.op == "=" && x.put(a.key, a.value):
		case within(subjects, a.key) && a.op == "=":
			if x.subject != "" {
				return fmt.Errorf("one of %s at a time", strings.Join(subjects, ", "))
			}
			x.subject, x.name = a.key, a.value
		case a.key == "at" && a.op == "=":
			var err error
			if x.at, err = parseTime(a.value); err != nil {
				return err
			}
			x.timed = true
		default:
			x.facts = append(x.facts, a)
		}
	}
	if err := x.check(); err != nil {
		return err
	}
	p.cmds = append(p.cmds, command{line: p.line, expect: x})
	return nil
}

// check looks up every name and reads every value.
func (x *expectCmd) check() error {
	if err := x.choice.check(x.run); err != nil {
		return err
	}
	set := x.run.set
	switch x.subject {
	case "job":
		if _, err := set.lookup(x.name); err != nil {
			return err
		}
	case "queue":
		var have []string
		for i := range set.spec.Queues {
			have = append(have, set.spec.Queues[i].Name)
		}
		for i := range set.jobs {
			if q := set.jobs[i].entry.Job.Queue; q != "" && !within(have, q) {
				have = append(have, q)
			}
		}
		if !within(have, x.name) {
			return cluster.Unknown("queue", x.name, have)
		}
	case "user":
		var have []string
		for i := range set.jobs {
			if u := set.jobs[i].entry.Job.User; u != "" && !within(have, u) {
				have = append(have, u)
			}
		}
		if !within(have, x.name) {
			return cluster.Unknown("user", x.name, have)
		}
	}
	if len(x.facts) == 0 {
		return errors.New("no fact is given")
	}
	for i := range x.facts {
		if err := x.checkFact(&x.facts[i]); err != nil {
			return err
		}
	}
	return nil
}

func (x *expectCmd) def(name string) *factDef {
	for i := range factDefs[x.subject] {
		if d := &factDefs[x.subject][i]; d.name == name {
			return d
		}
	}
	return nil
}

func (x *expectCmd) checkFact(a *arg) error {
	d := x.def(a.key)
	if d == nil {
		have := slices.Concat(choiceNames, subjects, []string{"at"})
		for _, f := range factDefs[x.subject] {
			have = append(have, f.name)
		}
		return cluster.Unknown("fact", a.key, have)
	}
	if d.at == 1 && !x.timed || d.at == 0 && x.timed {
		return fmt.Errorf("%s is about %s", a.key,
			[...]string{"the whole run: leave at= out", "an instant: say at=30m"}[d.at])
	}
	if d.kind >= aText && a.op != "=" && a.op != "!=" {
		return fmt.Errorf("%s can be compared with = and != only", a.key)
	}
	switch d.kind {
	case aDuration:
		if _, err := parseWhen(a.value); err != nil {
			return err
		}
	case aNumber:
		if _, err := strconv.ParseFloat(a.value, 64); err != nil {
			return fmt.Errorf("%q is not a number", a.value)
		}
	case aList:
		if x.subject == "" {
			for _, n := range list(a.value) {
				if _, err := x.run.set.lookup(n); err != nil {
					return err
				}
			}
		} else {
			for _, n := range list(a.value) {
				if _, err := x.run.set.node(n); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// parseWhen reads a duration or "never".
func parseWhen(s string) (float64, error) {
	if s == "never" {
		return float64(cluster.Never), nil
	}
	t, err := parseTime(s)
	return float64(t), err
}

// failures describes the facts that do not hold, a line each.
func (x *expectCmd) failures(all []*played) ([]string, error) {
	var out []string
	for _, p := range all {
		if !x.meets(&p.variant) {
			continue
		}
		jobs := []int{-1}
		if x.subject == "job" {
			var err error
			if jobs, err = p.set.lookup(x.name); err != nil {
				return nil, err
			}
		}
		for _, i := range jobs {
			for _, a := range x.facts {
				got, ok, err := x.holds(p, i, a)
				if err != nil {
					return nil, err
				}
				if !ok {
					out = append(out, fmt.Sprintf("%s: %s%s is %s, not %s%s", p.label, x.prefix(p, i), a.key, got,
						opText(a.op), a.value))
				}
			}
		}
	}
	return out, nil
}

// prefix names the subject of a failure: a job, queue or user, and the instant.
func (x *expectCmd) prefix(p *played, i int) string {
	s := ""
	switch {
	case i >= 0:
		s = "job " + p.set.names[i] + ": "
	case x.subject != "":
		s = x.subject + " " + x.name + ": "
	}
	if x.timed {
		s += "at " + clock(x.at) + " "
	}
	return s
}

func opText(op string) string {
	if op == "=" {
		return ""
	}
	return op
}

// holds evaluates one fact; got is the value as shown to people.
func (x *expectCmd) holds(p *played, i int, a arg) (got string, ok bool, err error) {
	d := x.def(a.key)
	switch d.kind {
	case aDuration, aNumber:
		v, err := x.number(p, i, a.key)
		if err != nil {
			return "", false, err
		}
		want, got := 0.0, strconv.FormatFloat(v, 'g', 4, 64)
		if d.kind == aDuration {
			want, err = parseWhen(a.value)
			if got = "never"; v < float64(cluster.Never) {
				got = clock(cluster.Time(v))
			}
		} else {
			want, err = strconv.ParseFloat(a.value, 64)
		}
		c := compare(v, want, d.kind, a.value)
		return got, satisfied(c, a.op), err
	case aList:
		v, ok := x.list(p, i, a)
		return v, ok == (a.op == "="), nil
	}
	v, err := x.text(p, i, a.key)
	same := v == a.value || (a.key == "rejected" || a.key == "why") && strings.Contains(v, a.value)
	return strconv.Quote(v), same == (a.op == "="), err
}

// compare compares durations to the millisecond, and numbers to as many decimals as the text has.
func compare(v, want float64, kind kindOfValue, text string) int {
	tolerance := 0.5e6 // nanoseconds
	if kind == aNumber {
		tolerance = 0.5
		if _, frac, ok := strings.Cut(text, "."); ok {
			for range frac {
				tolerance /= 10
			}
		} else {
			tolerance = 0.0005
		}
	}
	if d := v - want; d <= tolerance && d >= -tolerance {
		return 0
	}
	return cmp.Compare(v, want)
}

func satisfied(c int, op string) bool {
	switch op {
	case "=":
		return c == 0
	case "!=":
		return c != 0
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}

// number evaluates a duration (in nanoseconds) or a number.
func (x *expectCmd) number(p *played, i int, name string) (float64, error) {
	switch x.subject {
	case "job":
		return x.jobNumber(p, i, name)
	case "queue", "user":
		if name == "used" {
			return p.heldBy(x.mine(p), x.at), nil
		}
		return p.most(x.mine(p)), nil
	}
	s := &p.sum
	const sec = 1e9
	switch name {
	case "util":
		return s.Utilisation, nil
	case "goodput":
		return s.Goodput, nil
	case "makespan":
		return s.Makespan * sec, nil
	case "mean-jct":
		return s.JCT.Mean * sec, nil
	case "max-jct":
		return s.JCT.Max * sec, nil
	case "mean-wait":
		return s.Delay.Mean * sec, nil
	case "max-wait":
		return s.Delay.Max * sec, nil
	case "preempted":
		return float64(s.Preemptions), nil
	case "completed":
		return float64(s.Completed), nil
	case "unfinished":
		return float64(s.Unfinished), nil
	case "used":
		return p.heldBy(func(int) bool { return true }, x.at), nil
	}
	return p.most(func(int) bool { return true }), nil
}

func (x *expectCmd) jobNumber(p *played, i int, name string) (float64, error) {
	id := p.ids[i]
	rec, st := &p.run.Records[id], &p.stories[id]
	switch name {
	case "start":
		return float64(rec.FirstStart), nil
	case "end":
		return float64(rec.End), nil
	case "wait":
		return float64(rec.Waited), nil
	case "jct":
		if rec.End == cluster.Never {
			return float64(cluster.Never), nil
		}
		return float64(rec.End.Sub(rec.Submit)), nil
	case "ran":
		return float64(rec.Ran), nil
	case "lost":
		return float64(gpuTime(rec.Lost)), nil
	case "preempted":
		return float64(rec.Preemptions), nil
	case "stops":
		return float64(rec.Preemptions + rec.Losses), nil
	case "gpus":
		if s := x.stay(st); s != nil {
			return float64(milli(s.allocs)) / 1000, nil
		}
		return 0, nil
	}
	e, err := p.at(x.at)
	if err != nil {
		return 0, err
	}
	if name == "expected" {
		return float64(e.Why(id).Expected), nil
	}
	t := e.Record(id).Treatment
	if t == nil {
		return 0, nil
	}
	if name == "class" {
		return float64(t.Class), nil
	}
	return float64(t.Shift), nil
}

// stay is what the job holds at at=, or held last.
func (x *expectCmd) stay(st *story) *stay {
	if x.timed {
		return st.heldAt(x.at)
	}
	if len(st.stays) == 0 {
		return nil
	}
	return &st.stays[len(st.stays)-1]
}

func (x *expectCmd) text(p *played, i int, name string) (string, error) {
	id := p.ids[i]
	switch name {
	case "outcome":
		return p.run.Records[id].Outcome.String(), nil
	case "rejected":
		if p.run.Records[id].Outcome != report.Rejected {
			return p.run.Records[id].Outcome.String(), nil
		}
		return p.stories[id].text, nil
	}
	e, err := p.at(x.at)
	if err != nil {
		return "", err
	}
	y := e.Why(id)
	if name == "state" {
		return y.State, nil
	}
	return strings.Join(append(y.Blockers, y.Text), "; "), nil
}

func (x *expectCmd) list(p *played, i int, a arg) (string, bool) {
	want := list(a.value)
	switch a.key {
	case "nodes":
		s := x.stay(&p.stories[p.ids[i]])
		if s == nil {
			return "none", len(want) == 0
		}
		have := p.nodesOf(s.allocs)
		got := strings.Join(have, ",")
		slices.Sort(have)
		slices.Sort(want)
		return got, slices.Equal(have, want)
	case "never":
		var started []string
		p.each(want, func(i int) {
			if len(p.stories[p.ids[i]].stays) > 0 {
				started = append(started, p.set.names[i])
			}
		})
		return "not so for " + strings.Join(started, ","), started == nil
	}
	var jobs []int // order: of first starts
	p.each(want, func(i int) { jobs = append(jobs, i) })
	turn := func(i int) int {
		if s := p.stories[p.ids[i]].stays; len(s) > 0 {
			return s[0].turn
		}
		return 1 << 30
	}
	ok := slices.IsSortedFunc(jobs, func(a, b int) int { return cmp.Compare(turn(a), turn(b)) })
	slices.SortStableFunc(jobs, func(a, b int) int { return cmp.Compare(turn(a), turn(b)) })
	var got []string
	for _, i := range jobs {
		got = append(got, p.set.names[i])
	}
	return strings.Join(got, ","), ok
}

// each calls f for the named jobs; the names were checked.
func (p *played) each(names []string, f func(i int)) {
	for _, n := range names {
		jobs, err := p.set.lookup(n)
		if err != nil {
			panic("scenario: a job that was found is lost: " + err.Error())
		}
		for _, i := range jobs {
			f(i)
		}
	}
}

// mine selects the jobs of the queue or user.
func (x *expectCmd) mine(p *played) func(i int) bool {
	return func(i int) bool {
		j := &p.set.jobs[i].entry.Job
		if x.subject == "user" {
			return j.User == x.name
		}
		return p.set.inQueue(j.Queue, x.name)
	}
}

// heldBy is the number of GPUs that the selected jobs hold at an instant.
func (p *played) heldBy(mine func(int) bool, t cluster.Time) float64 {
	var m cluster.Milli
	for i := range p.set.jobs {
		if !mine(i) {
			continue
		}
		if s := p.stories[p.ids[i]].heldAt(t); s != nil {
			m += milli(s.allocs)
		}
	}
	return float64(m) / 1000
}

// most is the maximum number of GPUs that the selected jobs hold at once.
func (p *played) most(mine func(int) bool) float64 {
	type change struct {
		at cluster.Time
		m  cluster.Milli
	}
	var all []change
	for i := range p.set.jobs {
		if !mine(i) {
			continue
		}
		for k := range p.stories[p.ids[i]].stays {
			s := &p.stories[p.ids[i]].stays[k]
			all = append(all, change{s.from, milli(s.allocs)}, change{s.to, -milli(s.allocs)})
		}
	}
	slices.SortStableFunc(all, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.m, b.m)) })
	var now, top cluster.Milli
	for _, c := range all {
		now += c.m
		top = max(top, now)
	}
	return float64(top) / 1000
}
