// Package tuner runs a hyper-parameter search as jobs of a daemon: it reads the file that describes one,
// submits, promotes and stops trials, and sums up the results. The decisions are package search's.
package tuner

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/search"
)

// File is the content of a search file (docs/howto/search.md).
type File struct {
	Path     string
	Text     []byte
	Name     string
	Spec     string // fingerprint of the search
	Method   search.Method
	Params   []search.Parameter
	Metric   string
	Maximise bool
	AtOnce   int
	Job      api.Submission
	Model    Model
	widths   []search.Value // of the full-size model
	seed     uint64
	fusion   fusion
}

// fusion determines how many trials fit into one process.
type fusion struct {
	By       string // parameter that trials of one process must share
	Memory   int64  // of a GPU, MiB
	One, Two int64  // what one trial and two fused ones take, MiB
	Profiles []fusionProfile
	lines    int
}

// fusionProfile is the memory of trials with one value of the parameter.
type fusionProfile struct {
	value    string
	line     int
	One, Two int64
}

// Model is how the simulator plays trials (docs/howto/search.md, In the simulator).
type Model struct {
	Step, Begin   string
	Spread, Noise float64
	Scaled, Fused float64
}

// searchName matches the names of searches, which are part of jobs' names.
var searchName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Read reads a search file; - is standard input. A given name replaces the file's.
func Read(path, name string, in io.Reader) (*File, error) {
	text, err := []byte(nil), error(nil)
	if path == "-" {
		path = "standard input"
		text, err = io.ReadAll(io.LimitReader(in, 1<<20))
	} else {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, err
	}
	return parse(path, name, text)
}

// parse reads the text of a search file; a given name replaces the file's.
func parse(path, name string, text []byte) (*File, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s: a search is described by fields such as method: asha (docs/howto/search.md)", path)
	}
	f := &File{Path: path, Text: text, AtOnce: 1, seed: 1,
		Name: strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))}
	f.Method = search.Method{Name: search.ASHA, Eta: 3, Min: 1}
	f.Model = Model{Step: "1m", Begin: "0s", Noise: 0.02, Scaled: 0.25, Fused: 0.15}
	goal, eager, given := "", 0.5, map[string]int{} // lines of the keys
	err := f.fields(doc.Content[0], map[string]func(*yaml.Node) error{
		"name": f.scalar(&f.Name), "method": f.scalar(&f.Method.Name), "trials": f.scalar(&f.Method.Trials),
		"eta":  f.scalar(&f.Method.Eta),
		"skip": f.scalar(&f.Method.Skip), "stopping": f.scalar(&f.Method.Stopping), "metric": f.scalar(&f.Metric),
		"goal":    f.scalar(&goal),
		"at_once": f.scalar(&f.AtOnce), "seed": f.scalar(&f.seed), "scale": f.scalar(&f.Method.Scale),
		"eager": f.scalar(&eager),
		"budget": func(n *yaml.Node) error {
			return f.fields(n, map[string]func(*yaml.Node) error{
				"min": f.scalar(&f.Method.Min), "max": f.scalar(&f.Method.Max)}, nil)
		},
		"parameters": f.parameters, "fusion": f.readFusion, "widths": f.readWidths,
		"simulate": func(n *yaml.Node) error {
			return f.fields(n, map[string]func(*yaml.Node) error{
				"step": f.scalar(&f.Model.Step), "begin": f.scalar(&f.Model.Begin), "spread": f.scalar(&f.Model.Spread),
				"noise":  f.scalar(&f.Model.Noise),
				"scaled": f.scalar(&f.Model.Scaled), "fused": f.scalar(&f.Model.Fused)}, nil)
		},
		"job": func(n *yaml.Node) error {
			if n.Kind != yaml.MappingNode {
				return fmt.Errorf("%s:%d: job: give the fields of a submission, such as command: [python, train.py]",
					path, n.Line)
			}
			return config.Submission(path, n, &f.Job)
		},
	}, given)
	if err != nil {
		return nil, err
	}
	f.Name = cmp.Or(name, f.Name)
	if err := f.complete(goal, eager, given); err != nil {
		return nil, err
	}
	if f.Spec, err = f.fingerprint(); err != nil {
		return nil, fmt.Errorf("%s: parameters: %w", path, err)
	}
	return f, nil
}

// fields reads a mapping: each field once, and no unknown ones. given records their lines.
func (f *File) fields(n *yaml.Node, known map[string]func(*yaml.Node) error, given map[string]int) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: give fields, such as %s", f.Path, n.Line, sortedKeys(known)[0])
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, line := n.Content[i].Value, n.Content[i].Line
		read := known[name]
		switch {
		case read == nil:
			return fmt.Errorf("%s:%d: %w", f.Path, line, cluster.Unknown("field", name, sortedKeys(known)))
		case seen[name]:
			return fmt.Errorf("%s:%d: %s is given twice", f.Path, line, name)
		}
		if seen[name] = true; given != nil {
			given[name] = line
		}
		if err := read(n.Content[i+1]); err != nil {
			if strings.HasPrefix(err.Error(), f.Path) {
				return err
			}
			return fmt.Errorf("%s:%d: %s: %w", f.Path, line, name, err)
		}
	}
	return nil
}

func sortedKeys[V any](m map[string]V) (list []string) {
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}

// scalar reads one value.
func (f *File) scalar(to any) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		if n.Kind != yaml.ScalarNode {
			return errors.New("give one value")
		}
		if err := config.DecodeNode(n, to); err != nil {
			kinds := map[string]string{"*int": "a whole number", "*int64": "a whole number",
				"*uint64": "a whole number, 0 or more", "*float64": "a number", "*bool": "true or false"}
			return fmt.Errorf("%q is not %s", n.Value, cmp.Or(kinds[fmt.Sprintf("%T", to)], "a text"))
		}
		return nil
	}
}

// paramName matches the names of parameters, which are used in {braces} in the command.
var paramName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// parameters reads the search space, in the order of the file.
func (f *File) parameters(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return errors.New("give parameters, such as lr: {log-uniform: [1e-4, 1e-1]}")
	}
	kinds := map[string]search.Kind{"uniform": search.Uniform, "log-uniform": search.LogUniform,
		"choice": search.Choice, "int": search.Int, "grid": search.Grid}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, line, v := n.Content[i].Value, n.Content[i].Line, n.Content[i+1]
		fail := func(err error) error { return fmt.Errorf("%s:%d: %s: %w", f.Path, line, name, err) }
		switch {
		case !paramName.MatchString(name) || slices.Contains(ownNames, name):
			return fail(fmt.Errorf("a parameter's name is letters, digits and _, begins with no digit, and is not %s",
				orList(ownNames)))
		case slices.ContainsFunc(f.Params, func(p search.Parameter) bool { return p.Name == name }):
			return fail(errors.New("it is given twice"))
		case v.Kind != yaml.MappingNode || len(v.Content) != 2:
			return fail(fmt.Errorf("say how it is drawn, such as {uniform: [0, 1]} (there are %s)",
				strings.Join(sortedKeys(kinds), ", ")))
		}
		how, list := v.Content[0].Value, v.Content[1]
		kind, ok := kinds[how]
		if !ok {
			return fail(cluster.Unknown("way to draw", how, sortedKeys(kinds)))
		}
		p := search.Parameter{Name: name, Kind: kind}
		if list.Kind != yaml.SequenceNode {
			return fail(fmt.Errorf("%s: give a list in [ ]", how))
		}
		if err := fillParameter(&p, list); err != nil {
			return fail(fmt.Errorf("%s: %w", how, err))
		}
		f.Params = append(f.Params, p)
	}
	return nil
}

// ownNames are the other names in {braces}, for properties of a run.
var ownNames = []string{"trial", "budget", "scale"}

func orList(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// fillParameter reads the bounds of a parameter, or its values.
func fillParameter(p *search.Parameter, list *yaml.Node) error {
	if p.Kind == search.Choice || p.Kind == search.Grid {
		for _, e := range list.Content {
			var v any
			if err := e.Decode(&v); err != nil || e.Kind != yaml.ScalarNode {
				return fmt.Errorf("line %d: give numbers or words", e.Line)
			}
			switch x := v.(type) {
			case int:
				v = int64(x)
			case time.Time: // JSON has no dates: as it is written
				v = e.Value
			case float64:
				if math.IsNaN(x) || math.IsInf(x, 0) {
					return fmt.Errorf("line %d: programs are given values as JSON, which has no %s: give a number, or a text in quotes", e.Line, e.Value)
				}
			}
			p.Values = append(p.Values, v)
		}
		return p.Check()
	}
	var bounds []float64
	if err := list.Decode(&bounds); err != nil || len(bounds) != 2 {
		return errors.New("give the least and the most, such as [0.1, 0.9]")
	}
	p.Low, p.High = bounds[0], bounds[1]
	return p.Check()
}

// readWidths reads the widths of the full-size model, which the scale divides.
func (f *File) readWidths(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return errors.New("give the widths of the full-size model, such as {hidden: 512}")
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		var w int64
		name := n.Content[i].Value
		fail := func(format string, args ...any) error {
			return fmt.Errorf("%s:%d: widths.%s: %w", f.Path, n.Content[i].Line, name, fmt.Errorf(format, args...))
		}
		switch err := config.DecodeNode(n.Content[i+1], &w); {
		case !paramName.MatchString(name) || slices.Contains(ownNames, name):
			return fail("a width's name is letters, digits and _, begins with no digit, and is not %s",
				orList(ownNames))
		case err != nil || w < 1:
			return fail("give a whole number, 1 or more")
		case slices.ContainsFunc(f.widths, func(v search.Value) bool { return v.Name == name }):
			return fail("it is given twice")
		}
		f.widths = append(f.widths, search.Value{Name: name, V: w})
	}
	return nil
}

// memoryField reads an amount of memory.
func memoryField(to *int64) func(*yaml.Node) error {
	return func(n *yaml.Node) (err error) {
		*to, err = config.ParseMemory(n.Value)
		return err
	}
}

// readFusion reads the memory that trials of a process need.
func (f *File) readFusion(n *yaml.Node) error {
	x := &f.fusion
	x.lines = n.Line
	return f.fields(n, map[string]func(*yaml.Node) error{
		"by": f.scalar(&x.By), "memory": memoryField(&x.Memory), "one": memoryField(&x.One), "two": memoryField(&x.Two),
		"profiles": func(n *yaml.Node) error {
			if n.Kind != yaml.MappingNode {
				return errors.New("give what trials take by value, such as {32: {one: 6GiB, two: 8GiB}}")
			}
			for i := 0; i+1 < len(n.Content); i += 2 {
				p := fusionProfile{value: n.Content[i].Value, line: n.Content[i].Line}
				var v float64
				if n.Content[i].Decode(&v) == nil { // 1e-3 is 0.001
					p.value = fmt.Sprint(v)
				}
				if slices.ContainsFunc(x.Profiles, func(q fusionProfile) bool { return q.value == p.value }) {
					return fmt.Errorf("%s:%d: fusion.profiles: %s is given twice", f.Path, p.line, p.value)
				}
				if err := f.fields(n.Content[i+1], map[string]func(*yaml.Node) error{
					"one": memoryField(&p.One), "two": memoryField(&p.Two)}, nil); err != nil {
					return err
				}
				x.Profiles = append(x.Profiles, p)
			}
			return nil
		}}, nil)
}

// complete checks the fields together, and fills in defaults.
func (f *File) complete(goal string, eager float64, given map[string]int) error {
	fail := func(field string, err error) error {
		if line := given[field]; line > 0 {
			return fmt.Errorf("%s:%d: %w", f.Path, line, err)
		}
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	switch goal {
	case "", "minimise", "minimize":
	case "maximise", "maximize":
		f.Maximise = true
	default:
		return fail("goal", cluster.Unknown("goal", goal, []string{"minimise", "maximise"}))
	}
	switch {
	case !searchName.MatchString(f.Name):
		return fail("name", fmt.Errorf("name: %q: give up to 64 letters, digits, dots, - and _", f.Name))
	case f.Metric == "":
		return fail("metric", errors.New("metric: say which one trials are compared by, such as loss"))
	case len(f.Metric) > api.MaxMetric:
		return fail("metric",
			fmt.Errorf("metric: %q has %d letters; names of metrics have at most %d", f.Metric, len(f.Metric),
				api.MaxMetric))
	case f.AtOnce < 1 || f.AtOnce > search.MaxTrials:
		return fail("at_once", fmt.Errorf("at_once: %d is not between 1 and %d", f.AtOnce, search.MaxTrials))
	case len(f.Params) == 0:
		return fail("parameters", errors.New("parameters: there is nothing to search"))
	case f.Job.Array != "" || f.Job.CheckpointOf != 0 || f.Job.Trial != nil || f.Job.Attached || f.Job.Pty ||
		f.Job.Stdin:
		return fail("job", errors.New("job: array, checkpoint_of, trial, attached, pty and stdin are not for trials"))
	case f.Job.Tasks > 1 && given["fusion"] > 0:
		return fail("fusion", errors.New("fusion: trials of several tasks cannot be fused"))
	}
	for _, w := range f.widths {
		if slices.Contains(paramNames(f.Params), w.Name) {
			return fail("widths",
				fmt.Errorf("widths.%s: there is a parameter of this name: leave one of them out", w.Name))
		}
	}
	if err := f.knobs(eager, given, fail); err != nil {
		return err
	}
	return f.program(fail)
}

// knobs checks the method's knobs, and fills in defaults.
func (f *File) knobs(eager float64, given map[string]int, fail func(string, error) error) error {
	m := &f.Method
	if grid := search.GridSize(f.Params); m.Trials == 0 && grid > 1 && m.Name != search.Band {
		m.Trials = grid
	} else if given["trials"] > 0 && m.Name == search.Band {
		return fail("trials", errors.New("trials: with hyperband it follows from the budgets; leave it out"))
	}
	if !slices.Contains(search.Names(), m.Name) {
		return fail("method", cluster.Unknown("method", m.Name, search.Names()))
	}
	if m.Name == search.Hydro {
		if given["scale"] == 0 {
			m.Scale = 8
		}
		if !(eager > 0 && eager <= 1) {
			return fail("eager", fmt.Errorf("eager: %g: give a part of the trials above 0, at most 1", eager))
		}
		m.Eager = max(1, int(math.Round(eager*1000)))
	} else if given["eager"] > 0 || given["fusion"] > 0 || given["widths"] > 0 {
		return fail(firstGiven(given, "eager", "fusion", "widths"),
			fmt.Errorf("%s: a knob of hydro, not of %s", firstGiven(given, "eager", "fusion", "widths"), m.Name))
	}
	if err := f.fuse(); err != nil {
		if strings.HasPrefix(err.Error(), f.Path) {
			return err
		}
		return fmt.Errorf("%s:%d: %w", f.Path, f.fusion.lines, err)
	}
	if m.Name == search.Hydro && m.Scale == 0 { // the plain tuner: neither narrower models nor fused groups
		m.Scale, m.Fusion, m.Group = 1, nil, nil
	}
	err := m.Check()
	switch { // random ignores them, but they must be valid all the same
	case err != nil:
	case m.Eta < 2:
		err = fmt.Errorf("eta: %d is less than 2", m.Eta)
	case given["budget"] > 0 && m.Min > m.Max || m.Min < 1:
		err = fmt.Errorf("budget.min: %d is not between 1 and budget.max, which is %d", m.Min, m.Max)
	}
	if err != nil {
		field, _, _ := strings.Cut(err.Error(), ":")
		field, _, _ = strings.Cut(field, ".")
		return fail(firstGiven(given, strings.Split(field, ", ")...), err)
	}
	for _, w := range f.widths {
		n, _ := w.V.(int64)
		if _, err := search.Narrow(n, m.Scale); err != nil {
			return fail("widths", fmt.Errorf("widths.%s: %w, the scale", w.Name, err))
		}
	}
	return nil
}

func firstGiven(given map[string]int, names ...string) string {
	for _, n := range names {
		if given[n] > 0 {
			return n
		}
	}
	return ""
}

// fuse computes how many trials fit into a process, for each value of the parameter that they must share.
func (f *File) fuse() error {
	x := &f.fusion
	if x.lines == 0 {
		return nil
	}
	if x.Memory == 0 {
		return errors.New("fusion.memory: say how much memory the GPU has")
	}
	at := -1
	if x.By != "" {
		if at = slices.IndexFunc(f.Params, func(p search.Parameter) bool { return p.Name == x.By }); at < 0 {
			return fmt.Errorf("fusion.by: %w", cluster.Unknown("parameter", x.By, paramNames(f.Params)))
		}
		if p := &f.Params[at]; p.Kind != search.Choice && p.Kind != search.Grid {
			return fmt.Errorf("fusion.by: %s must be a choice or a grid", x.By)
		}
	} else if len(x.Profiles) > 0 {
		return errors.New("fusion.by: name the parameter whose values the profiles are for")
	}
	values := []any{nil}
	if at >= 0 {
		values = f.Params[at].Values
	}
	for i := range x.Profiles {
		p := &x.Profiles[i]
		if !slices.ContainsFunc(values, func(v any) bool { return profileKey(v) == p.value }) {
			return fmt.Errorf("%s:%d: fusion.profiles: %s is none of the values of %s", f.Path, p.line, p.value, x.By)
		}
	}
	for _, v := range values {
		one, two := x.One, x.Two
		if k := slices.IndexFunc(x.Profiles, func(p fusionProfile) bool { return p.value == profileKey(v) }); k >= 0 {
			one, two = x.Profiles[k].One, x.Profiles[k].Two
		} else if len(x.Profiles) > 0 && one == 0 {
			return fmt.Errorf("fusion.profiles: there is none for %s: %v", x.By, v)
		}
		n, err := search.FuseSize(x.Memory, one, two)
		if err != nil {
			return fmt.Errorf("fusion: in MiB, %w", err)
		}
		f.Method.Fusion = append(f.Method.Fusion, n)
	}
	if at >= 0 {
		f.Method.Group = func(trial int) int {
			v := search.Config(f.Params, f.seed, trial)[at].V
			return slices.Index(values, v)
		}
	}
	return nil
}

// profileKey is a parameter's value as profiles write it.
func profileKey(v any) string {
	if n, ok := v.(int64); ok {
		v = float64(n)
	}
	return fmt.Sprint(v)
}

func paramNames(list []search.Parameter) (names []string) {
	for i := range list {
		names = append(names, list[i].Name)
	}
	return names
}

// placeholder is a name in braces; with a $ before it, it is the shell's.
var placeholder = regexp.MustCompile(`\$?\{[A-Za-z_][A-Za-z0-9_]*\}`)

// program checks the job of a trial: that it can be submitted, and that names in braces are not misspelt.
func (f *File) program(fail func(string, error) error) error {
	s := f.Job
	if _, err := s.Job(); err != nil {
		return fail("job", fmt.Errorf("job: %w", err))
	}
	names := append(paramNames(f.Params), ownNames...)
	for _, w := range f.widths {
		names = append(names, w.Name)
	}
	args := slices.Concat(f.Job.Command, f.Job.Args)
	var used []string
	for _, arg := range args {
		used = append(used, placeholder.FindAllString(arg, -1)...)
	}
	unused := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(used, "{"+n+"}") })
	for _, m := range used { // {print} may belong to awk
		word := strings.Trim(m, "{}")
		if near := cluster.Nearest(word, unused); m[0] != '$' && !slices.Contains(names, word) && near != "" &&
			near[0] == word[0] {
			return fail("job", fmt.Errorf("job: command: there is no parameter {%s}: did you mean {%s}?", word, near))
		}
	}
	return nil
}

// Config is a trial's configuration by name, with the widths of its model.
func (f *File) Config(trial, scale int) map[string]any {
	c := map[string]any{}
	for _, v := range search.Config(f.Params, f.seed, trial) {
		c[v.Name] = v.V
	}
	for _, w := range f.widths {
		n, _ := w.V.(int64)
		c[w.Name], _ = search.Narrow(n, scale)
	}
	return c
}

// fingerprint identifies the search space and method. How many runs there are at once, and what a trial's job
// may use, may change while a search runs.
func (f *File) fingerprint() (string, error) {
	m := f.Method
	m.Group = nil
	text, err := json.Marshal(
		[]any{m.Name, m.Trials, m.Min, m.Max, m.Eta, m.Skip, m.Stopping, m.Scale, m.Eager, m.Fusion, f.fusion.By,
			f.Params, f.widths, f.Metric, f.Maximise, f.seed, f.Job.Command, f.Job.Script, f.Job.Args})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6]), err
}

// valueText formats a parameter's value: given ones with all their digits (drawn ones have six).
func valueText(v any) string {
	switch v := v.(type) {
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case string:
		return v
	case nil:
		return "null"
	}
	return fmt.Sprint(v)
}

// ConfigText formats a configuration in the order of its names.
func ConfigText(c map[string]any) string {
	var parts []string
	for _, k := range sortedKeys(c) {
		parts = append(parts, k+"="+valueText(c[k]))
	}
	return strings.Join(parts, " ")
}

// Shortfall is a line that says that trials are not promoted to the whole budget; empty: they are.
func (f *File) Shortfall() string {
	m := &f.Method
	reached := m.Reached()
	if reached >= m.Max {
		return ""
	}
	why := fmt.Sprintf("%d trials are too few for more rungs", m.Trials)
	if next := reached * m.Eta; next > m.Max {
		why = fmt.Sprintf("the next rung would be at %d", next)
	}
	return fmt.Sprintf("no trial is promoted beyond step %d, though budget.max is %d: %s", reached, m.Max, why)
}

// Processes says in how many processes the trials of a rung run. Which trials reach a rung is not known before
// the first one is over, so for later ones it gives the most.
func (f *File) Processes(trials, rung int) string {
	if len(f.Method.Fusion) == 0 {
		return fmt.Sprint(trials)
	}
	if len(f.Method.Fusion) == 1 {
		return groupText(search.Even(trials, f.Method.Fusion[0]))
	}
	if rung > 0 {
		return fmt.Sprintf("by %s", f.fusion.By)
	}
	counts := make([]int, len(f.Method.Fusion))
	for t := range trials {
		counts[f.Method.Group(t)]++
	}
	var parts []string
	for g, n := range counts {
		if n > 0 {
			parts = append(parts, groupText(search.Even(n, f.Method.Fusion[g])))
		}
	}
	return strings.Join(parts, "; ")
}

func groupText(sizes []int) string {
	return fmt.Sprintf("%d (%s)", len(sizes), strings.Join(texts(sizes), ", "))
}

// MethodText names a method with the knobs that make it another one.
func MethodText(m *search.Method) string {
	text := m.Name
	if m.Stopping {
		text += ":stopping"
	}
	if m.Skip > 0 {
		text += fmt.Sprintf(":skip=%d", m.Skip)
	}
	if m.Name == search.Hydro {
		text += fmt.Sprintf(":scale=%d", m.Scale)
		if len(m.Fusion) == 0 {
			text += ",alone"
		}
	}
	return text
}

// As is the file's method, or another one with the same trials and budgets: asha:stopping; hydro:fused has
// models at full size, hydro:narrow no fusion.
func (f *File) As(name string) (search.Method, error) {
	if name == "" {
		return f.Method, nil
	}
	base, form, _ := strings.Cut(name, ":")
	m := search.Method{Name: base, Trials: f.Method.Trials, Min: f.Method.Min, Max: f.Method.Max, Eta: f.Method.Eta}
	switch {
	case base == search.Hydro && slices.Contains([]string{"", "fused", "narrow"}, form):
		m.Scale, m.Eager, m.Fusion, m.Group = max(1, f.Method.Scale), max(1, f.Method.Eager), f.Method.Fusion,
			f.Method.Group
		if f.Method.Name != search.Hydro {
			return m, fmt.Errorf("--methods %s: %s says nothing of scale and fusion: it is a file for %s", name, f.Path,
				f.Method.Name)
		}
		switch form {
		case "fused":
			m.Scale = 1
		case "narrow":
			m.Fusion, m.Group = nil, nil
		}
	case base == search.ASHA && (form == "" || form == "stopping"):
		m.Stopping = form != ""
	case form != "" || !slices.Contains(search.Names(), base):
		return m, fmt.Errorf("--methods: %w",
			cluster.Unknown("method", name, append(search.Names(), "asha:stopping", "hydro:fused", "hydro:narrow")))
	}
	if base != search.Band && m.Trials == 0 { // the file's is hyperband: as many trials
		of := f.Method
		for _, b := range of.Plan() {
			m.Trials += b.Trials()
		}
	}
	if base == search.Band {
		m.Trials = 0
	}
	return m, m.Check()
}
