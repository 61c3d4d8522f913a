package config

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// KubePower is a rule by which nodes of a Kubernetes cluster are switched off. If the file names no buffer, it
// is negative: the default for the number of nodes.
type KubePower struct {
	Rule            cluster.Power
	Selector        map[string]string
	Timeout         time.Duration
	Suspend, Resume string
}

type kubePowerFile struct {
	powerFile `yaml:",inline"`
	Selector  map[string]string `yaml:"selector"`
	Timeout   *Duration         `yaml:"resume_timeout"`
	Suspend   string            `yaml:"suspend_program"`
	Resume    string            `yaml:"resume_program"`
}

// power reads the rules.
func (f *kubeFile) power() (list []KubePower, err error) {
	for i := range f.Power {
		p, err := f.Power[i].power()
		if err != nil {
			return nil, fmt.Errorf("%d: %w", i, err)
		}
		for k := range list {
			if err := apart(p.Selector, list[k].Selector, k); err != nil {
				return nil, fmt.Errorf("%d: %w", i, err)
			}
		}
		list = append(list, p)
	}
	return list, nil
}

// apart checks that a selector leaves nodes to a later one, whose number the error names.
func apart(after, first map[string]string, number int) error {
	switch {
	case maps.Equal(after, first):
		return fmt.Errorf("selector: the nodes are those of %d", number)
	case within(after, first):
		return fmt.Errorf("selector: the nodes are those of %d (%s), and a node is of the first: name the narrower selector first", number, selectorText(first))
	}
	return nil
}

// awake checks that each power rule has nodes that are not lent: nodes of a loan stay awake.
func awake(power []KubePower, loans []KubeLoan) error {
	for i := range power {
		for k := range loans {
			if within(power[i].Selector, loans[k].Selector) {
				return fmt.Errorf("%d: selector: the nodes are those of loans: %d (%s), and nodes that are lent never sleep", i, k, selectorText(loans[k].Selector))
			}
		}
	}
	return nil
}

// within reports whether every node that the one selector selects is also selected by the other.
func within(one, of map[string]string) bool {
	for k, v := range of {
		if have, ok := one[k]; !ok || have != v {
			return false
		}
	}
	return true
}

func (f *kubePowerFile) power() (KubePower, error) {
	p := KubePower{Selector: f.Selector, Suspend: f.Suspend, Resume: f.Resume}
	switch {
	case f.Partition != "":
		return p, errors.New("partition: on Kubernetes nodes are chosen by their labels: selector: {pool: batch}")
	case f.Watts != wattsFile{}:
		return p, errors.New("watts: only muster sim computes with what nodes draw")
	case len(f.Selector) == 0:
		return p, errors.New(
			"selector: which nodes may be switched off? Name a label that they have, such as {pool: batch}")
	}
	for _, v := range []struct{ name, program string }{{"suspend_program", f.Suspend}, {"resume_program", f.Resume}} {
		if v.program != "" && !filepath.IsAbs(v.program) {
			return p, fmt.Errorf("%s: %q is not an absolute path", v.name, v.program)
		}
	}
	var err error
	if p.Rule, err = f.rule(1); err != nil {
		return p, err
	}
	if f.Buffer == nil {
		p.Rule.Buffer = -1
	}
	p.Timeout = max(15*time.Minute, 3*p.Rule.Wake)
	if f.Timeout != nil {
		p.Timeout = time.Duration(*f.Timeout)
	}
	if p.Timeout < p.Rule.Wake {
		return p, fmt.Errorf("resume_timeout: %s; at least resume_time (%s) is possible",
			cluster.FormatDuration(p.Timeout), cluster.FormatDuration(p.Rule.Wake))
	}
	return p, nil
}

// text is the rule as a line.
func (p *KubePower) text() string {
	var w words
	w.add("selector", selectorText(p.Selector))
	r := &p.Rule
	if r.Buffer >= 0 {
		w.add("buffer", fmt.Sprint(r.Buffer))
	}
	for _, v := range []struct {
		name string
		d    time.Duration
	}{{"every", r.Every}, {"history", r.History}, {"future", r.Future}, {"keep", r.Keep}, {"suspend_time", r.Settled},
		{"resume_time", r.Wake}, {"resume_timeout", p.Timeout}} {
		w.add(v.name, cluster.FormatDuration(v.d))
	}
	w.add("fell", number(float64(r.Fell)/1000))
	w.add("falls", number(float64(r.Falls)/1000))
	w.add("least", fmt.Sprint(r.Least))
	if len(r.Except) > 0 {
		w.add("suspend_exc_nodes", strings.Join(r.Except, ","))
	}
	if p.Suspend != "" {
		w.add("suspend_program", p.Suspend)
	}
	if p.Resume != "" {
		w.add("resume_program", p.Resume)
	}
	return w.text()
}
