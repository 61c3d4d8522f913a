package slurm

import (
	"fmt"
	"slices"
	"strings"
)

// layer is where an option was given; a higher layer wins.
type layer uint8

const (
	fromScript layer = iota + 1
	fromEnv
	fromLine
)

type setting struct {
	text  string
	layer layer
}

// settings are the options of a submission after precedence is applied.
type settings struct {
	of       map[string]setting // looked up, never ranged over
	warnings []string
}

// options reads a command line that has no other source of settings. With first it stops at the first other word.
func (c *command) options(table []option, first bool) (s settings, rest []string, err error) {
	opts, rest, err := parseArgs(c.args, table, first)
	if err == nil {
		err = s.apply(opts, fromLine, "")
	}
	return s, rest, err
}

// begin reads the options of a command that lists; done: nothing is left to do.
func (c *command) begin(table []option, usage string) (s settings, rest []string, done bool, err error) {
	if s, rest, err = c.options(table, false); err != nil {
		return s, nil, true, err
	}
	c.warn(s.warnings)
	switch {
	case s.has("help") || s.has("usage"):
		c.help(usage, table)
		return s, nil, true, nil
	case s.has("version"):
		c.printf("%s\n", version)
		return s, nil, true, nil
	}
	return s, rest, false, nil
}

// rivals exclude each other: within a layer that is an error, across layers the higher one overrides the lower.
var rivals = [][]string{
	{"mem", "mem-per-cpu", "mem-per-gpu"},
	{"cpus-per-task", "cpus-per-gpu"},
}

func (s *settings) has(name string) bool { _, ok := s.of[name]; return ok }

func (s *settings) get(name string) string { return s.of[name].text }

// apply lays the options of one layer over those below.
func (s *settings) apply(opts []found, l layer, where string) error {
	if s.of == nil {
		s.of = map[string]setting{}
	}
	for _, o := range opts {
		switch o.opt.use {
		case refused:
			if o.opt.name == "get-user-env" && l == fromEnv {
				continue
			}
			return fmt.Errorf("%s--%s is not supported: %s", where, o.opt.name, o.opt.note)
		case warned:
			if w := fmt.Sprintf("%s--%s is ignored: %s", where, o.opt.name, o.opt.note); !slices.Contains(s.warnings,
				w) {
				s.warnings = append(s.warnings, w)
			}
			continue
		}
		name, text := o.opt.name, o.text
		switch name {
		case "no-requeue":
			name, text = "requeue", "no"
		case "requeue":
			if text != "" && text != "expedite" {
				return fmt.Errorf("%s--requeue=%s: only expedite may follow", where, text)
			}
			text = "yes"
		case "oversubscribe":
			delete(s.of, "exclusive")
		}
		for _, group := range rivals {
			if !slices.Contains(group, name) {
				continue
			}
			for _, other := range group {
				if have, ok := s.of[other]; ok && other != name {
					if have.layer == l {
						return fmt.Errorf("%s--%s are mutually exclusive", where, strings.Join(group, ", --"))
					}
					delete(s.of, other)
				}
			}
		}
		s.of[name] = setting{text, l}
	}
	return nil
}

// applyEnv takes the options that variables set.
func (s *settings) applyEnv(env []string, table []option) error {
	for i := range table {
		o := &table[i]
		if o.env == "" {
			continue
		}
		text, ok := lookupEnv(env, o.env)
		if !ok {
			continue
		}
		if err := s.apply([]found{{o, text}}, fromEnv, o.env+": "); err != nil {
			return err
		}
	}
	return nil
}

func lookupEnv(env []string, name string) (string, bool) {
	for i := len(env) - 1; i >= 0; i-- {
		if n, v, ok := strings.Cut(env[i], "="); ok && n == name {
			return v, true
		}
	}
	return "", false
}
