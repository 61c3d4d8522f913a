package slurm

import (
	"fmt"
	"strconv"

	"github.com/muster-gpu/muster/api"
)

// sprio's formats, verbatim. As in Slurm, the default ones leave out factors that never count here, and those of
// weight 0.
var sprioDefault = []string{"%.15i %9r %.10Y %.10S", "%.10A", "%.10F", "%.10J", "%.10P"}

var sprioOptions = []option{
	{name: "clusters", short: 'M', arg: needs, use: refused, note: "there is one cluster"},
	{name: "federation", use: warned, note: "there is one cluster"},
	{name: "format", short: 'o', arg: needs},
	{name: "help"},
	{name: "jobs", short: 'j', arg: optional},
	{name: "local", use: warned, note: "there is one cluster"},
	{name: "long", short: 'l'},
	{name: "noheader", short: 'h'},
	{name: "norm", short: 'n'},
	{name: "partition", short: 'p', arg: needs},
	{name: "sort", short: 'S', arg: needs, use: warned, note: "the order is that of the line; sort(1) knows others"},
	{name: "usage"},
	{name: "user", short: 'u', arg: needs},
	{name: "verbose", short: 'v'},
	{name: "version", short: 'V'},
	{name: "weights", short: 'w'},
}

// rated is a waiting job with the components of its priority.
type rated struct {
	row
	api.Priority
	weights *api.Factors
	only    bool // the weights themselves, without a job
}

// sprio shows the components of priorities, under a policy that adds up factors.
func (c *command) sprio() (int, error) {
	l, rest, done, err := c.common(sprioOptions, "sprio [OPTIONS]")
	if done || err != nil {
		return 0, err
	}
	if len(rest) > 0 {
		return 1, says("Unrecognized option: %s", rest[0])
	}
	fair, err := c.svc.Fair()
	if err != nil {
		return 1, err
	}
	if fair.Weights == nil {
		return 1, fmt.Errorf("the policy here is %s, whose order is no sum of factors (multifactor's is): squeue -O jobid,jobposition shows the line, muster why JOB everything that keeps a job waiting", fair.Policy)
	}
	v, err := c.view(c.svc.Jobs())
	if err != nil {
		return 1, err
	}
	var rows []rated
	if l.set.has("weights") {
		rows = []rated{{row: row{Job: &api.Job{}}, weights: fair.Weights, only: true}}
	} else {
		rows = ratedRows(v, &l.filter, &fair)
	}
	t, err := parseFormat(c.sprioFormat(&l.set, fair.Weights), sprioFields(l.set.has("norm")))
	if err != nil {
		return 1, err
	}
	return 0, t.print(c.out, v, rows, !l.set.has("noheader"))
}

// ratedRows are the waiting jobs in the line, in its order.
func ratedRows(v *view, f *filter, fair *api.Fair) []rated {
	points := map[int]api.Priority{}
	for _, p := range fair.Jobs {
		points[p.Job] = p
	}
	f.states = []string{"PENDING"}
	var out []rated
	for _, r := range v.rows(f, false) {
		p, ok := points[r.ID]
		if !ok && r.Array != 0 { // waiting elements of an array are one entry, under the first of them
			p, ok = points[r.Array]
		}
		if ok {
			out = append(out, rated{row: r, Priority: p, weights: fair.Weights})
		}
	}
	return out
}

func (c *command) sprioFormat(s *settings, w *api.Factors) string {
	if s.has("format") {
		return s.get("format")
	}
	if env, ok := lookupEnv(c.env, "SPRIO_FORMAT"); ok && env != "" {
		return env
	}
	format := sprioDefault[0]
	if s.has("long") || s.has("user") {
		format = "%.15i %9r %.8u %.10Y %.10S"
	}
	for i, weight := range []float64{w.Age, w.FairShare, w.Size, w.Partition} {
		if weight > 0 || s.has("long") {
			format += " " + sprioDefault[i+1]
		}
	}
	if s.has("long") {
		format += " %.10Q %.11N %.20T"
	}
	return format
}

// sprioFields are sprio's; with norm the weighted letters show factors, as with Slurm's --norm.
func sprioFields(norm bool) []field[rated] {
	job := func(get func(v *view, r rated) string) func(*view, rated) string {
		return func(v *view, r rated) string {
			if r.only {
				return ""
			}
			return get(v, r)
		}
	}
	var out []field[rated]
	add := func(letter byte, header string, get func(v *view, r rated) string) {
		out = append(out, field[rated]{letter: letter, header: header, get: get})
	}
	for _, f := range []struct {
		small, large byte
		header       string
		of           func(*api.Factors) float64
	}{{'a', 'A', "AGE", func(f *api.Factors) float64 {
		return f.Age
	}}, {'f', 'F', "FAIRSHARE", func(f *api.Factors) float64 { return f.FairShare }},
		{'j', 'J', "JOBSIZE", func(f *api.Factors) float64 {
			return f.Size
		}}, {'p', 'P', "PARTITION", func(f *api.Factors) float64 { return f.Partition }}} {
		factor := func(_ *view, r rated) string {
			if r.only {
				return whole(f.of(r.weights))
			}
			return fmt.Sprintf("%.7f", f.of(&r.Factors))
		}
		weighted := func(_ *view, r rated) string {
			if r.only {
				return whole(f.of(r.weights))
			}
			return whole(f.of(r.weights) * f.of(&r.Factors))
		}
		if norm {
			weighted = factor
		}
		add(f.small, f.header, factor)
		add(f.large, f.header, weighted)
	}
	nothing := func(*view, rated) string { return "0" }
	for _, f := range []struct {
		small, large byte
		header       string
	}{{'b', 'B', "ASSOC"}, {'q', 'Q', "QOS"}, {'t', 'T', "TRES"}} {
		add(f.small, f.header, nothing)
		add(f.large, f.header, nothing)
	}
	add('c', "CLUSTER", job(func(*view, rated) string { return "muster" }))
	add('i', "JOBID", job(func(_ *view, r rated) string { return r.idText() }))
	add('N', "NICE", job(func(_ *view, r rated) string { return strconv.FormatInt(nice(r.row.Job), 10) }))
	add('r', "PARTITION", job(func(v *view, r rated) string { return v.partitionText(r.row.Job) }))
	add('S', "SITE", job(func(_ *view, r rated) string { return strconv.FormatInt(max(r.Own, 0), 10) }))
	add('u', "USER", job(func(_ *view, r rated) string { return r.User }))
	add('Y', "PRIORITY", job(func(_ *view, r rated) string { return whole(r.Points) }))
	add('y', "PRIORITY", job(func(_ *view, r rated) string { return fmt.Sprintf("%.14f", r.Points/(1<<32)) }))
	return out
}

// whole formats a number of points, rounded to the nearest integer.
func whole(f float64) string { return strconv.FormatInt(int64(f+0.5), 10) }
