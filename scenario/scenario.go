package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Options say what to do with a scenario.
type Options struct {
	// Rewrite replaces the expected outputs by the actual ones. Accept an expectation only if you
	// can explain it.
	Rewrite bool
}

// Failure is behaviour of Muster that differs from the scenario.
type Failure struct {
	Line int
	Text string // may have several lines
}

// Result is the outcome of a scenario.
type Result struct {
	Name     string
	About    string // its first comment
	Runs     int    // replays, one for each combination of policy, placer and backfill
	Checks   int    // facts and outputs compared
	Failures []Failure
	Text     []byte // the scenario; with Options.Rewrite its new text
	Changed  bool   // whether Text differs from the input
}

// OK reports whether everything was as the scenario says.
func (r *Result) OK() bool { return len(r.Failures) == 0 }

// String describes the failures for people.
func (r *Result) String() string {
	var b strings.Builder
	for _, f := range r.Failures {
		fmt.Fprintf(&b, "%s:%d: %s\n", r.Name, f.Line, strings.ReplaceAll(f.Text, "\n", "\n    "))
	}
	return b.String()
}

// Run parses a scenario and runs it; name appears in messages. A mistake in the text is an error
// (*Error); behaviour that differs from the text is in the result.
func Run(ctx context.Context, name string, text []byte, opt Options) (Result, error) {
	res := Result{Name: name, Text: text}
	f, err := parse(name, text)
	if err != nil {
		return res, err
	}
	res.About = f.about
	played, err := f.play(ctx, &res)
	if err != nil {
		return res, err
	}
	edits := make([][]string, len(f.cmds)) // new outputs
	for i := range f.cmds {
		if edits[i], err = f.check(&f.cmds[i], played, &res, opt); err != nil {
			return res, err
		}
	}
	if opt.Rewrite {
		if now := f.rewrite(edits); now != string(text) {
			res.Text, res.Changed = []byte(now), true
		}
	}
	return res, nil
}

// play replays every run line.
func (f *file) play(ctx context.Context, res *Result) (map[*runCmd][]*played, error) {
	all := map[*runCmd][]*played{} // looked up, never iterated
	for i := range f.cmds {
		r := f.cmds[i].run
		if r == nil {
			continue
		}
		for _, v := range r.variants {
			p, err := r.play(ctx, v)
			if err != nil {
				return nil, &Error{f.name, r.line, fmt.Errorf("%s: %w", v.label, err)}
			}
			res.Runs++
			all[r] = append(all[r], p)
		}
	}
	return all, nil
}

// check compares one command's output or facts; it returns the actual output.
func (f *file) check(c *command, all map[*runCmd][]*played, res *Result, opt Options) (got []string, err error) {
	switch {
	case c.expect != nil:
		bad, err := c.expect.failures(all[c.expect.run])
		if err != nil {
			return nil, &Error{f.name, c.line, err}
		}
		res.Checks += len(c.expect.facts)
		for _, b := range bad {
			res.Failures = append(res.Failures, Failure{c.line, b})
		}
		return nil, nil
	case c.run != nil:
		got = c.run.render(all[c.run])
	default:
		if got, err = c.look.render(all[c.look.run]); err != nil {
			return nil, &Error{f.name, c.line, err}
		}
	}
	if c.out == nil || opt.Rewrite {
		return got, nil
	}
	want := f.lines[c.out.from:c.out.to]
	res.Checks++
	if d := diff(want, got); d != nil {
		res.Failures = append(res.Failures, Failure{c.line,
			"the output differs (- the scenario says, + Muster does)\n" + strings.Join(d, "\n") + hint(want)})
	}
	return got, nil
}

// hint reports the most likely mistake: no empty line after an output.
func hint(want []string) string {
	for _, l := range want {
		if word, _, _ := strings.Cut(l, " "); slices.ContainsFunc(verbs(), func(v verb) bool {
			return v.name == word
		}) {
			return fmt.Sprintf("\n(an output ends at the first empty line: is one missing above %q?)", l)
		}
	}
	return ""
}

// rewrite returns the text with new outputs.
func (f *file) rewrite(edits [][]string) string {
	var out []string
	next := 0
	for i := range f.cmds {
		if o := f.cmds[i].out; o != nil {
			out = append(append(out, f.lines[next:o.from]...), edits[i]...)
			next = o.to
		}
	}
	return strings.Join(append(out, f.lines[next:]...), "\n")
}

// diff compares two texts line by line: "  " common, "- " only in want, "+ " only in got; nil:
// equal. Trailing blanks are ignored.
func diff(want, got []string) []string {
	trim := func(l []string) []string {
		out := make([]string, len(l))
		for i := range l {
			out[i] = strings.TrimRight(l[i], " \t")
		}
		return out
	}
	want, got = trim(want), trim(got)
	if slices.Equal(want, got) {
		return nil
	}
	// common[i][j] is the length of the longest common subsequence of want[i:] and got[j:].
	common := make([][]int, len(want)+1)
	for i := range common {
		common[i] = make([]int, len(got)+1)
	}
	for i := len(want) - 1; i >= 0; i-- {
		for j := len(got) - 1; j >= 0; j-- {
			common[i][j] = max(common[i+1][j], common[i][j+1])
			if want[i] == got[j] {
				common[i][j] = 1 + common[i+1][j+1]
			}
		}
	}
	var out []string
	i, j := 0, 0
	for i < len(want) || j < len(got) {
		switch {
		case i < len(want) && j < len(got) && want[i] == got[j]:
			out = append(out, "  "+want[i])
			i, j = i+1, j+1
		case j == len(got) || i < len(want) && common[i+1][j] >= common[i][j+1]:
			out = append(out, "- "+want[i])
			i++
		default:
			out = append(out, "+ "+got[j])
			j++
		}
	}
	return out
}

// IsMistake reports whether an error is a mistake in a scenario's text.
func IsMistake(err error) bool {
	var e *Error
	return errors.As(err, &e)
}
