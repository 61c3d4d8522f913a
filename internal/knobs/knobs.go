// Package knobs reads the texts by which something is chosen from a list with its settings: NAME or
// NAME:knob=value,knob=value.
package knobs

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Knob is a setting of a choice.
type Knob struct{ Name, Default, About string }

// Kind is what every choice of a list has.
type Kind struct {
	Name, About string
	Knobs       []Knob
}

// Set is the settings that a text gives, and the defaults of the others.
type Set struct {
	kind  *Kind
	given map[string]string
}

// Choose returns the number of the choice that a text names, and its settings; what says what is chosen, in errors.
func Choose(what, text string, list []Kind) (int, *Set, error) {
	name, args, _ := strings.Cut(text, ":")
	var names []string
	for i := range list {
		k := &list[i]
		names = append(names, k.Name)
		if k.Name != name {
			continue
		}
		s := &Set{k, map[string]string{}}
		for f := range strings.FieldsFuncSeq(args, func(r rune) bool { return r == ',' || r == ';' }) {
			key, value, ok := strings.Cut(f, "=")
			if !ok {
				return 0, nil, fmt.Errorf("%s %s: %q is not knob=value", what, name, f)
			}
			if err := s.put(key, value); err != nil {
				return 0, nil, fmt.Errorf("%s %s: %w", what, name, err)
			}
		}
		return i, s, nil
	}
	return 0, nil, cluster.Unknown(what, name, names)
}

func (s *Set) put(key, value string) error {
	var names []string
	for _, k := range s.kind.Knobs {
		names = append(names, k.Name)
		if k.Name == key {
			s.given[key] = value
			return nil
		}
	}
	if names == nil {
		return fmt.Errorf("has no knobs; got %q", key)
	}
	return cluster.Unknown("knob", key, names)
}

// Text is a setting as it was written.
func (s *Set) Text(name string) string {
	if v, ok := s.given[name]; ok {
		return v
	}
	for _, k := range s.kind.Knobs {
		if k.Name == name {
			return k.Default
		}
	}
	panic("undeclared knob " + name)
}

// Number is a setting that is a number within bounds.
func (s *Set) Number(name string, least, most float64) (float64, error) {
	v, err := strconv.ParseFloat(s.Text(name), 64)
	if err != nil || !(v >= least && v <= most) {
		return 0, fmt.Errorf("%s=%s: want a number from %g to %g", name, s.Text(name), least, most)
	}
	return v, nil
}

// Duration is a setting that is a time.
func (s *Set) Duration(name string) (time.Duration, error) {
	d, err := cluster.ParseDuration(s.Text(name))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return d, nil
}

// Label is the name with the knobs that were given.
func (s *Set) Label() string {
	if len(s.given) == 0 {
		return s.kind.Name
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(s.given)) {
		parts = append(parts, k+"="+s.given[k])
	}
	return s.kind.Name + ":" + strings.Join(parts, ",")
}
