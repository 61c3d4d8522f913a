// Package policy holds the scheduling policies, one file each: the order of jobs and which may
// preempt which. A policy reads the engine's view and keeps no state. A new policy is one file and
// one line in list.
package policy

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
)

// Info describes a policy that can be selected by name.
type Info struct {
	Name   string
	About  string // one line: the order, and whether it preempts
	Source string // the paper or system that it is from
	Needs  string // what it must know about jobs
	Trials []Trial
	Knobs  []Knob
	New    func(k *Knobs) sched.Policy
}

// Knob is a parameter of a policy.
type Knob struct {
	Name, Default, About string
}

// list is every policy, in the order in which "all" runs them.
var list = []Info{
	fifo,
	yarn,
	sjf,
	sjfGPU,
	ssf,
	srtf,
	srsf,
	wfp3,
	las,
	tiresiasL,
	tiresiasG,
	gittinsNear,
	eLAS,
	qssf,
	lucid,
	antman,
	salus,
	miso,
	edf,
	multifactor,
	drf,
	proportional,
	afs,
	optimus,
	hesrpt,
	lyra,
	pollux,
	sia,
	themis,
	astraea,
	gavel,
	gandiva,
	gandivaFair,
	muri,
	allox,
	elasticflow,
	chronus,
	hypersched,
	sched2,
}

// List returns every policy.
func List() []Info { return append([]Info(nil), list...) }

// Names returns the names of all policies.
func Names() []string {
	var names []string
	for _, p := range list {
		names = append(names, p.Name)
	}
	return names
}

// Aliases are other names of policies, in pairs: the other name, then ours.
var Aliases = [][2]string{{"tiresias", "tiresias-l"}}

// New makes a policy from its name and knobs: "las" or "las:base=1h,levels=8".
func New(text string) (sched.Policy, error) {
	name, args, _ := strings.Cut(text, ":")
	names := Names()
	for _, a := range Aliases {
		names = append(names, a[0])
		if a[0] == name {
			name = a[1]
		}
	}
	for _, info := range list {
		if info.Name != name {
			continue
		}
		k := &Knobs{info: info, set: map[string]string{}}
		for _, f := range strings.FieldsFunc(args, func(r rune) bool { return r == ',' || r == ';' }) {
			key, value, ok := strings.Cut(f, "=")
			if !ok {
				return nil, fmt.Errorf("policy %s: %q is not knob=value", name, f)
			}
			if err := k.put(key, value); err != nil {
				return nil, err
			}
		}
		p := info.New(k)
		if k.err != nil {
			return nil, fmt.Errorf("policy %s: %w", name, k.err)
		}
		return p, nil
	}
	return nil, cluster.Unknown("policy", name, names)
}

// Knobs holds the values of a policy's parameters. The first one that is no valid value is an error of New; its
// reader returns zero.
type Knobs struct {
	info Info
	set  map[string]string
	err  error
}

// check records why a value cannot be used, if err says so; the first reason counts.
func (k *Knobs) check(err error) {
	if k.err == nil {
		k.err = err
	}
}

func (k *Knobs) fail(format string, args ...any) { k.check(fmt.Errorf(format, args...)) }

// Split splits a list of policies at commas, but leaves knobs with their policy:
// "fifo,las:base=1h,levels=8" is two policies. "all" is every policy.
func Split(text string) []string {
	if text == "all" {
		return Names()
	}
	var out []string
	for part := range strings.SplitSeq(text, ",") {
		before, _, knob := strings.Cut(part, "=") // a value follows "=" and may have a ":"
		if knob && !strings.Contains(before, ":") && len(out) > 0 {
			out[len(out)-1] += "," + part
			continue
		}
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// fileKnobs are the knobs that name files.
var fileKnobs = []string{"weights", "samples"}

// Files lists the files that a policy's text names, for programs that read them before they create
// the policy.
func Files(text string) (names []string) {
	_, args, _ := strings.Cut(text, ":")
	for _, f := range strings.FieldsFunc(args, func(r rune) bool { return r == ',' || r == ';' }) {
		if key, value, _ := strings.Cut(f, "="); value != "" && slices.Contains(fileKnobs, key) {
			names = append(names, value)
		}
	}
	return names
}

// Pinned is a policy with a longer name that also identifies its weights, by their digest.
type Pinned interface{ Pinned() string }

func (k *Knobs) put(key, value string) error {
	var names []string
	for _, n := range k.info.Knobs {
		names = append(names, n.Name)
		if n.Name == key {
			k.set[key] = value
			return nil
		}
	}
	if names == nil {
		return fmt.Errorf("policy %s has no knobs; got %q", k.info.Name, key)
	}
	return fmt.Errorf("policy %s: %w", k.info.Name, cluster.Unknown("knob", key, names))
}

func (k *Knobs) text(name string) string {
	if v, ok := k.set[name]; ok {
		return v
	}
	for _, n := range k.info.Knobs {
		if n.Name == name {
			return n.Default
		}
	}
	panic("policy: undeclared knob " + name)
}

// choice reads one of several words.
func (k *Knobs) choice(name string, words ...string) string {
	v := k.text(name)
	if !slices.Contains(words, v) {
		k.check(cluster.Unknown(name, v, words))
	}
	return v
}

// duration reads a duration of at least that long.
func (k *Knobs) duration(name string, least time.Duration) time.Duration {
	d, err := cluster.ParseDuration(k.text(name))
	if err != nil {
		k.fail("%s: %w", name, err)
	} else if d < least {
		k.fail("%s=%s: at least %s", name, k.text(name), cluster.FormatDuration(least))
	}
	return d
}

func (k *Knobs) int(name string, least, most int64) int64 {
	v, err := strconv.ParseInt(k.text(name), 10, 64)
	if err != nil || v < least || v > most {
		k.fail("%s=%q: want a whole number from %d to %d", name, k.text(name), least, most)
		return 0
	}
	return v
}

func (k *Knobs) float(name string, least, most float64) float64 {
	v, err := strconv.ParseFloat(k.text(name), 64)
	if err != nil || !(v >= least && v <= most) {
		k.fail("%s=%q: want a number from %s to %s", name, k.text(name), strconv.FormatFloat(least, 'f', -1, 64),
			strconv.FormatFloat(most, 'f', -1, 64))
		return 0
	}
	return v
}

func (k *Knobs) bool(name string) bool {
	v, err := strconv.ParseBool(k.text(name))
	if err != nil {
		k.fail("%s=%q is neither true nor false", name, k.text(name))
	}
	return v
}

// label is the policy's name with the knobs that differ from their defaults.
func (k *Knobs) label() string {
	var parts []string
	for key, v := range k.set { // sorted below
		parts = append(parts, key+"="+v)
	}
	if parts == nil {
		return k.info.Name
	}
	sort.Strings(parts)
	return k.info.Name + ":" + strings.Join(parts, ",")
}

// basic is a policy that needs nothing but a key function.
type basic struct {
	name   string
	traits sched.Traits
	key    func(v sched.View, j sched.JobView) sched.Key
}

func (b *basic) Name() string                                { return b.name }
func (b *basic) Traits() sched.Traits                        { return b.traits }
func (b *basic) Key(v sched.View, j sched.JobView) sched.Key { return b.key(v, j) }
