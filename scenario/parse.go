package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/perf"
)

// file is a parsed scenario.
type file struct {
	name  string
	about string // the first comment
	lines []string
	cmds  []command
}

// command is something that runs or checks; its references are already resolved.
type command struct {
	line   int // from 1
	run    *runCmd
	look   *lookCmd   // explain, show
	expect *expectCmd // one or more facts
	out    *output    // the expected output; nil: none is stated
}

// output is a block of expected output: the lines after "----" up to the
// first empty line or the end of the file.
type output struct {
	from, to int // indices into lines
}

// setup is everything that the previous lines described.
type setup struct {
	file    string
	spec    cluster.Spec
	racks   int // number of racks and fabrics named so far
	fabrics int
	jobs    []draft
	names   []string
	byName  map[string]int // looked up, never iterated
	series  map[string]int // base name → first job; looked up, never iterated
	events  []scripted
	perf    *perf.Table // speeds; nil: as recorded everywhere
	belief  *perf.Table // what the scheduler knows of them; nil: all of it
}

type parser struct {
	name  string
	lines []string
	at    int // next line
	line  int // of the command being read, from 1
	set   *setup
	last  *runCmd // subject of explain, show and expect
	cmds  []command
	jobs  bool // a jobs block is open
}

// verb is a command of the language.
type verb struct {
	name  string
	about string
	read  func(p *parser, args []string) error
}

// verbs is every command, in the order in which README.md explains them.
func verbs() []verb {
	return []verb{
		{"cluster", "nodes, or a whole cluster file", (*parser).cluster},
		{"queue", "a queue", (*parser).queue},
		{"perf", "a performance table follows", (*parser).perf},
		{"believed", "another performance table follows, which the scheduler knows", (*parser).believed},
		{"jobs", "job lines follow", (*parser).jobsBlock},
		{"event", "what happens to nodes, jobs and queues meanwhile", (*parser).event},
		{"run", "replay it", (*parser).run},
		{"expect", "facts that must hold of the last run", (*parser).expect},
		{"explain", "why a job waits, or where it runs", (*parser).explain},
		{"moves", "which moves would let a waiting job start", (*parser).moves},
		{"show", "nodes or queues at an instant", (*parser).show},
		{"clear", "forget everything above", (*parser).clear},
	}
}

// maxText bounds the text of a scenario.
const maxText = 4 << 20

// parse reads a scenario. Every mistake is an *Error.
func parse(name string, text []byte) (*file, error) {
	if len(text) > maxText {
		return nil, &Error{name, 1, fmt.Errorf("longer than %d bytes", maxText)}
	}
	p := &parser{name: name, lines: strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n"),
		set: &setup{file: name}}
	about, err := p.about()
	if err != nil {
		return nil, err
	}
	for p.at < len(p.lines) {
		p.line = p.at + 1
		f, err := fields(p.lines[p.at])
		p.at++
		if err == nil && len(f) > 0 {
			err = p.command(f)
		}
		if err != nil {
			var placed *Error
			if errors.As(err, &placed) {
				return nil, placed
			}
			return nil, &Error{name, p.line, err}
		}
	}
	if p.last == nil {
		return nil, &Error{name, len(p.lines), errors.New("nothing is run: a scenario has at least one `run`")}
	}
	return &file{name: name, about: about, lines: p.lines, cmds: p.cmds}, nil
}

// about reads the first comment, which states the scenario's purpose.
func (p *parser) about() (string, error) {
	var words []string
	for i, l := range p.lines {
		rest, comment := strings.CutPrefix(strings.TrimSpace(l), "#")
		switch {
		case comment:
			words = append(words, strings.Fields(rest)...)
			continue
		case strings.TrimSpace(l) == "" && words == nil:
			continue
		case len(words) < 4:
			return "", &Error{p.name, i + 1,
				errors.New("a scenario begins with a comment that says what it shows and what is expected")}
		}
		break
	}
	return strings.Join(words, " "), nil
}

func (p *parser) command(f []string) error {
	if p.jobs && f[0][0] >= '0' && f[0][0] <= '9' {
		return p.job(f)
	}
	var have []string
	for _, v := range verbs() {
		if v.name == f[0] {
			p.jobs = p.jobs && v.name == "event" // events may occur among the jobs
			return v.read(p, f[1:])
		}
		have = append(have, v.name)
	}
	if f[0] == "----" {
		return errors.New("---- follows a run, explain, moves or show")
	}
	if c := f[0][0]; c >= '0' && c <= '9' {
		return errors.New("a job line outside of a jobs block: write `jobs` above it")
	}
	return cluster.Unknown("command", f[0], have)
}

func (p *parser) jobsBlock(args []string) error {
	p.jobs = true
	if len(args) > 0 {
		return errors.New("jobs takes no arguments; a job per line follows")
	}
	return nil
}

func (p *parser) clear(args []string) error {
	if len(args) > 0 {
		return errors.New("clear takes no arguments")
	}
	p.set, p.last = &setup{file: p.name}, nil
	return nil
}

// block finds the expected output that follows, if any.
func (p *parser) block() *output {
	if p.at == len(p.lines) || strings.TrimSpace(p.lines[p.at]) != "----" {
		return nil
	}
	o := &output{from: p.at + 1, to: p.at + 1}
	for o.to < len(p.lines) && strings.TrimSpace(p.lines[o.to]) != "" {
		o.to++
	}
	p.at = o.to
	return o
}

// freeze copies the setup: a run sees what is above it.
func (s *setup) freeze() *setup {
	c := *s
	c.spec.Nodes, c.spec.Queues = slices.Clone(s.spec.Nodes), slices.Clone(s.spec.Queues)
	c.jobs, c.names, c.events = slices.Clone(s.jobs), slices.Clone(s.names), slices.Clone(s.events)
	c.byName, c.series = map[string]int{}, map[string]int{}
	for i, n := range c.names {
		c.byName[n] = i
		if b := c.jobs[i].series; b != "" {
			if _, ok := c.series[b]; !ok {
				c.series[b] = i
			}
		}
	}
	return &c
}
