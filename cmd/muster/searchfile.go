package main

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

// searchFile is what a search file says (docs/howto/search.md).
type searchFile struct {
	path     string
	text     []byte
	name     string
	spec     string // fingerprint
	method   search.Method
	params   []search.Parameter
	widths   []search.Value // of the full-size model
	metric   string
	maximise bool
	atOnce   int
	seed     uint64
	job      api.Submission
	fusion   fusion
	model    searchModel
}

// fusion says how many trials fit into one process.
type fusion struct {
	By       string // parameter that trials of one process have in common
	Memory   int64  // of a GPU, MiB
	One, Two int64  // what one trial and two fused ones take, MiB
	Profiles []fusionProfile
	lines    int
}

// fusionProfile is what trials with one value of the parameter take.
type fusionProfile struct {
	value    string
	line     int
	One, Two int64
}

// searchModel is how the simulator plays trials (docs/howto/search.md, Simulated).
type searchModel struct {
	Step, Begin   string
	Spread, Noise float64
	Scaled, Fused float64
}

// searchName is what a search may be called: it is part of jobs' names.
var searchName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// readSearch reads a search file; - is standard input. A name that is given counts
// instead of the file's.
func readSearch(path, name string, in io.Reader) (*searchFile, error) {
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
	return parseNamed(path, name, text)
}

// parseSearch reads the text of a search file.
func parseSearch(path string, text []byte) (*searchFile, error) { return parseNamed(path, "", text) }

// parseNamed reads the text of a search file; name, if it is given, counts instead
// of the file's.
func parseNamed(path, name string, text []byte) (*searchFile, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s: a search is described by fields such as method: asha (docs/howto/search.md)", path)
	}
	f := &searchFile{path: path, text: text, atOnce: 1, seed: 1, name: strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))}
	f.method = search.Method{Name: search.ASHA, Eta: 3, Min: 1}
	f.model = searchModel{Step: "1m", Begin: "0s", Noise: 0.02, Scaled: 0.25, Fused: 0.15}
	goal, eager, given := "", 0.5, map[string]int{} // given: the lines
	err := f.fields(doc.Content[0], map[string]func(*yaml.Node) error{
		"name": f.scalar(&f.name), "method": f.scalar(&f.method.Name), "trials": f.scalar(&f.method.Trials), "eta": f.scalar(&f.method.Eta),
		"skip": f.scalar(&f.method.Skip), "stopping": f.scalar(&f.method.Stopping), "metric": f.scalar(&f.metric), "goal": f.scalar(&goal),
		"at_once": f.scalar(&f.atOnce), "seed": f.scalar(&f.seed), "scale": f.scalar(&f.method.Scale), "eager": f.scalar(&eager),
		"budget": func(n *yaml.Node) error {
			return f.fields(n, map[string]func(*yaml.Node) error{"min": f.scalar(&f.method.Min), "max": f.scalar(&f.method.Max)}, nil)
		},
		"parameters": f.parameters, "fusion": f.readFusion, "widths": f.readWidths,
		"simulate": func(n *yaml.Node) error {
			return f.fields(n, map[string]func(*yaml.Node) error{"step": f.scalar(&f.model.Step), "begin": f.scalar(&f.model.Begin), "spread": f.scalar(&f.model.Spread), "noise": f.scalar(&f.model.Noise),
				"scaled": f.scalar(&f.model.Scaled), "fused": f.scalar(&f.model.Fused)}, nil)
		},
		"job": func(n *yaml.Node) error {
			if n.Kind != yaml.MappingNode {
				return fmt.Errorf("%s:%d: job: give the fields of a submission, such as command: [python, train.py]", path, n.Line)
			}
			return submissionFields(path, n, &f.job)
		},
	}, given)
	if err != nil {
		return nil, err
	}
	f.name = cmp.Or(name, f.name)
	if err := f.complete(goal, eager, given); err != nil {
		return nil, err
	}
	if f.spec, err = f.fingerprint(); err != nil {
		return nil, fmt.Errorf("%s: parameters: %w", path, err)
	}
	return f, nil
}

// fields reads a mapping; each field once, and none that is unknown. given notes
// the lines.
func (f *searchFile) fields(n *yaml.Node, known map[string]func(*yaml.Node) error, given map[string]int) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: give fields, such as %s", f.path, n.Line, sortedKeys(known)[0])
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, line := n.Content[i].Value, n.Content[i].Line
		read := known[name]
		switch {
		case read == nil:
			return fmt.Errorf("%s:%d: %w", f.path, line, cluster.Unknown("field", name, sortedKeys(known)))
		case seen[name]:
			return fmt.Errorf("%s:%d: %s is given twice", f.path, line, name)
		}
		if seen[name] = true; given != nil {
			given[name] = line
		}
		if err := read(n.Content[i+1]); err != nil {
			if strings.HasPrefix(err.Error(), f.path) {
				return err
			}
			return fmt.Errorf("%s:%d: %s: %w", f.path, line, name, err)
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
func (f *searchFile) scalar(to any) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		if n.Kind != yaml.ScalarNode {
			return errors.New("give one value")
		}
		if err := config.DecodeNode(n, to); err != nil {
			kinds := map[string]string{"*int": "a whole number", "*int64": "a whole number", "*uint64": "a whole number, 0 or more", "*float64": "a number", "*bool": "true or false"}
			return fmt.Errorf("%q is not %s", n.Value, cmp.Or(kinds[fmt.Sprintf("%T", to)], "a text"))
		}
		return nil
	}
}

// paramName is what a parameter may be called: it stands in {braces} in the command.
var paramName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// parameters reads the space that is searched, in the order of the file.
func (f *searchFile) parameters(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return errors.New("give parameters, such as lr: {log-uniform: [1e-4, 1e-1]}")
	}
	kinds := map[string]search.Kind{"uniform": search.Uniform, "log-uniform": search.LogUniform, "choice": search.Choice, "int": search.Int, "grid": search.Grid}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, line, v := n.Content[i].Value, n.Content[i].Line, n.Content[i+1]
		fail := func(err error) error { return fmt.Errorf("%s:%d: %s: %w", f.path, line, name, err) }
		switch {
		case !paramName.MatchString(name) || slices.Contains(ownNames, name):
			return fail(fmt.Errorf("a parameter's name is letters, digits and _, begins with no digit, and is not %s", orList(ownNames)))
		case slices.ContainsFunc(f.params, func(p search.Parameter) bool { return p.Name == name }):
			return fail(errors.New("it is given twice"))
		case v.Kind != yaml.MappingNode || len(v.Content) != 2:
			return fail(fmt.Errorf("say how it is drawn, such as {uniform: [0, 1]} (there are %s)", strings.Join(sortedKeys(kinds), ", ")))
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
		f.params = append(f.params, p)
	}
	return nil
}

// ownNames stand in {braces} for what the search knows of a run.
var ownNames = []string{"trial", "budget", "scale"}

func orList(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// fillParameter reads the bounds of a parameter, or what there is to choose from.
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

// readWidths reads the widths of the full-size model that a scale divides.
func (f *searchFile) readWidths(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return errors.New("give the widths of the full-size model, such as {hidden: 512}")
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		var w int64
		name := n.Content[i].Value
		fail := func(format string, args ...any) error {
			return fmt.Errorf("%s:%d: widths.%s: %w", f.path, n.Content[i].Line, name, fmt.Errorf(format, args...))
		}
		switch err := config.DecodeNode(n.Content[i+1], &w); {
		case !paramName.MatchString(name) || slices.Contains(ownNames, name):
			return fail("a width's name is letters, digits and _, begins with no digit, and is not %s", orList(ownNames))
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

// readFusion reads how many trials fit into a process.
func (f *searchFile) readFusion(n *yaml.Node) error {
	x := &f.fusion
	x.lines = n.Line
	return f.fields(n, map[string]func(*yaml.Node) error{"by": f.scalar(&x.By), "memory": memoryField(&x.Memory), "one": memoryField(&x.One), "two": memoryField(&x.Two),
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
					return fmt.Errorf("%s:%d: fusion.profiles: %s is given twice", f.path, p.line, p.value)
				}
				if err := f.fields(n.Content[i+1], map[string]func(*yaml.Node) error{"one": memoryField(&p.One), "two": memoryField(&p.Two)}, nil); err != nil {
					return err
				}
				x.Profiles = append(x.Profiles, p)
			}
			return nil
		}}, nil)
}

// complete checks what the fields say together, and fills what they leave open.
func (f *searchFile) complete(goal string, eager float64, given map[string]int) error {
	fail := func(field string, err error) error {
		if line := given[field]; line > 0 {
			return fmt.Errorf("%s:%d: %w", f.path, line, err)
		}
		return fmt.Errorf("%s: %w", f.path, err)
	}
	switch goal {
	case "", "minimise", "minimize":
	case "maximise", "maximize":
		f.maximise = true
	default:
		return fail("goal", cluster.Unknown("goal", goal, []string{"minimise", "maximise"}))
	}
	switch {
	case !searchName.MatchString(f.name):
		return fail("name", fmt.Errorf("name: %q: give up to 64 letters, digits, dots, - and _", f.name))
	case f.metric == "":
		return fail("metric", errors.New("metric: say which one trials are compared by, such as loss"))
	case len(f.metric) > api.MaxMetric:
		return fail("metric", fmt.Errorf("metric: %q has %d letters; names of metrics have at most %d", f.metric, len(f.metric), api.MaxMetric))
	case f.atOnce < 1 || f.atOnce > search.MaxTrials:
		return fail("at_once", fmt.Errorf("at_once: %d is not between 1 and %d", f.atOnce, search.MaxTrials))
	case len(f.params) == 0:
		return fail("parameters", errors.New("parameters: there is nothing to search"))
	case f.job.Array != "" || f.job.CheckpointOf != 0 || f.job.Trial != nil || f.job.Attached || f.job.Pty || f.job.Stdin:
		return fail("job", errors.New("job: array, checkpoint_of, trial, attached, pty and stdin are not for trials"))
	case f.job.Tasks > 1 && given["fusion"] > 0:
		return fail("fusion", errors.New("fusion: trials of several tasks cannot be fused"))
	}
	for _, w := range f.widths {
		if slices.Contains(paramNames(f.params), w.Name) {
			return fail("widths", fmt.Errorf("widths.%s: there is a parameter of this name: leave one of them out", w.Name))
		}
	}
	if err := f.knobs(eager, given, fail); err != nil {
		return err
	}
	return f.program(fail)
}

// knobs checks the method's knobs, and fills what the file leaves open.
func (f *searchFile) knobs(eager float64, given map[string]int, fail func(string, error) error) error {
	m := &f.method
	if grid := search.GridSize(f.params); m.Trials == 0 && grid > 1 && m.Name != search.Band {
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
		return fail(firstGiven(given, "eager", "fusion", "widths"), fmt.Errorf("%s: a knob of hydro, not of %s", firstGiven(given, "eager", "fusion", "widths"), m.Name))
	}
	if err := f.fuse(); err != nil {
		if strings.HasPrefix(err.Error(), f.path) {
			return err
		}
		return fmt.Errorf("%s:%d: %w", f.path, f.fusion.lines, err)
	}
	if m.Name == search.Hydro && m.Scale == 0 { // plain: neither narrower models nor fused groups
		m.Scale, m.Fusion, m.Group = 1, nil, nil
	}
	err := m.Check()
	switch { // random does not read them: what is given must make sense all the same
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

// fuse finds how many trials fit into a process: for each value of the parameter
// that they have in common.
func (f *searchFile) fuse() error {
	x := &f.fusion
	if x.lines == 0 {
		return nil
	}
	if x.Memory == 0 {
		return errors.New("fusion.memory: say how much memory the GPU has")
	}
	at := -1
	if x.By != "" {
		if at = slices.IndexFunc(f.params, func(p search.Parameter) bool { return p.Name == x.By }); at < 0 {
			return fmt.Errorf("fusion.by: %w", cluster.Unknown("parameter", x.By, paramNames(f.params)))
		}
		if p := &f.params[at]; p.Kind != search.Choice && p.Kind != search.Grid {
			return fmt.Errorf("fusion.by: %s must be a choice or a grid", x.By)
		}
	} else if len(x.Profiles) > 0 {
		return errors.New("fusion.by: say whose values the profiles are for")
	}
	values := []any{nil}
	if at >= 0 {
		values = f.params[at].Values
	}
	for i := range x.Profiles {
		p := &x.Profiles[i]
		if !slices.ContainsFunc(values, func(v any) bool { return profileKey(v) == p.value }) {
			return fmt.Errorf("%s:%d: fusion.profiles: %s is none of the values of %s", f.path, p.line, p.value, x.By)
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
		f.method.Fusion = append(f.method.Fusion, n)
	}
	if at >= 0 {
		f.method.Group = func(trial int) int {
			v := search.Config(f.params, f.seed, trial)[at].V
			return slices.Index(values, v)
		}
	}
	return nil
}

// profileKey is a parameter's value as profiles name it.
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

// placeholder is a name in braces; a $ before it makes it the shell's.
var placeholder = regexp.MustCompile(`\$?\{[A-Za-z_][A-Za-z0-9_]*\}`)

// program checks the job of a trial: that it can be submitted, and that names in
// braces are not misspelt.
func (f *searchFile) program(fail func(string, error) error) error {
	s := f.job
	if _, err := s.Job(); err != nil {
		return fail("job", fmt.Errorf("job: %w", err))
	}
	names := append(paramNames(f.params), ownNames...)
	for _, w := range f.widths {
		names = append(names, w.Name)
	}
	args := slices.Concat(f.job.Command, f.job.Args)
	var used []string
	for _, arg := range args {
		used = append(used, placeholder.FindAllString(arg, -1)...)
	}
	unused := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(used, "{"+n+"}") })
	for _, m := range used { // {print} may be awk's
		word := strings.Trim(m, "{}")
		if near := cluster.Nearest(word, unused); m[0] != '$' && !slices.Contains(names, word) && near != "" && near[0] == word[0] {
			return fail("job", fmt.Errorf("job: command: there is no parameter {%s}: did you mean {%s}?", word, near))
		}
	}
	return nil
}

// config is a trial's configuration by name, with the widths of its model.
func (f *searchFile) config(trial, scale int) map[string]any {
	c := map[string]any{}
	for _, v := range search.Config(f.params, f.seed, trial) {
		c[v.Name] = v.V
	}
	for _, w := range f.widths {
		n, _ := w.V.(int64)
		c[w.Name], _ = search.Narrow(n, scale)
	}
	return c
}

// fingerprint says what is searched and how. How many run at once, and what a
// trial's job may use, may change while a search goes on.
func (f *searchFile) fingerprint() (string, error) {
	m := f.method
	m.Group = nil
	text, err := json.Marshal([]any{m.Name, m.Trials, m.Min, m.Max, m.Eta, m.Skip, m.Stopping, m.Scale, m.Eager, m.Fusion, f.fusion.By,
		f.params, f.widths, f.metric, f.maximise, f.seed, f.job.Command, f.job.Script, f.job.Args})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6]), err
}

// valueText writes a parameter's value: one that was given with all its digits (what
// is drawn has six).
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

// configText writes a configuration in the order of its names.
func configText(c map[string]any) string {
	var parts []string
	for _, k := range sortedKeys(c) {
		parts = append(parts, k+"="+valueText(c[k]))
	}
	return strings.Join(parts, " ")
}
