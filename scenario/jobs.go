package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/trace"
)

type duration = time.Duration

// draft is a job line: one job, or a series of them.
type draft struct {
	entry         trace.Entry
	line          int
	series        string // "small" of small[3]; empty: a single job
	first         int    // index in the setup of the series' first job
	tasks, gpus   int
	sets          []cluster.TaskSet
	req           cluster.Request
	every         duration
	array         bool
	cap           int
	after         []ref
	grouped       bool // gpus= without tasks=: as few nodes as possible
	fail, gpusSet bool
}

// ref is a dependency by name.
type ref struct {
	typ   cluster.DependencyType
	name  string
	delay time.Duration
}

const (
	maxSeries = 10_000
	maxJobs   = 100_000
)

var jobKeys = []key[draft]{
	text("queue", func(d *draft) *string { return &d.entry.Job.Queue }),
	text("user", func(d *draft) *string { return &d.entry.Job.User }),
	{name: "tier", set: func(d *draft, v string) error { return d.entry.Job.Tier.UnmarshalText([]byte(v)) }},
	{name: "kind", set: func(d *draft, v string) error { return d.entry.Job.Kind.UnmarshalText([]byte(v)) }},
	long("priority", func(d *draft) *int64 { return &d.entry.Job.Priority }),
	{name: "gpus", set: func(d *draft, v string) error {
		d.gpusSet = true
		return whole("gpus", 0, 1<<16, func(d *draft) *int { return &d.gpus }).set(d, v)
	}},
	{name: "tasks", set: setTasks},
	{name: "share", set: func(d *draft, v string) error {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || !(f > 0) || f > 1 {
			return fmt.Errorf("%q is not a share of a GPU between 0.001 and 1", v)
		}
		d.req.Share = max(1, cluster.Milli(f*1000+0.5))
		return nil
	}},
	memory("mem", func(d *draft) *cluster.MiB { return &d.req.Memory }),
	memory("uses", func(d *draft) *cluster.MiB { return &d.entry.Memory }),
	memory("resident", func(d *draft) *cluster.MiB { return &d.req.Resident }),
	text("profile", func(d *draft) *string { return &d.req.Profile }),
	cores("cpu", func(d *draft) *cluster.Milli { return &d.req.CPU }),
	memory("ram", func(d *draft) *cluster.MiB { return &d.req.RAM }),
	words("type", func(d *draft) *[]string { return &d.entry.Job.GPUTypes }),
	words("partition", func(d *draft) *[]string { return &d.entry.Job.Partitions }),
	text("reservation", func(d *draft) *string { return &d.entry.Job.Reservation }),
	{name: "within", set: func(d *draft, v string) error { return d.topology(v, true) }},
	{name: "prefer", set: func(d *draft, v string) error { return d.topology(v, false) }},
	whole("pernode", 1, cluster.MaxTasks, func(d *draft) *int { return &d.entry.Job.PerNode }),
	{name: "onnode", set: setNodeLimits},
	{name: "elastic", set: setElastic},
	span("limit", func(d *draft) *duration { return &d.entry.Job.Limit }),
	span("estimate", func(d *draft) *duration { return &d.entry.Job.Estimate }),
	span("run", func(d *draft) *duration { return &d.entry.Run }),
	instant("end", func(d *draft) *cluster.Time { return &d.entry.End }),
	toggle("fail", func(d *draft) *bool { return &d.fail }),
	{name: "checkpoint", set: setCheckpoint},
	toggle("nockpt", func(d *draft) *bool { return &d.entry.Job.Checkpoint.None }),
	instant("deadline", func(d *draft) *cluster.Time { return &d.entry.Job.Deadline }),
	{name: "after", set: func(d *draft, v string) error { return d.depend(cluster.AfterOK, v) }},
	{name: "afterany", set: func(d *draft, v string) error { return d.depend(cluster.AfterAny, v) }},
	{name: "afterstart", set: func(d *draft, v string) error { return d.depend(cluster.AfterStart, v) }},
	toggle("anyof", func(d *draft) *bool { return &d.entry.Job.AnyOf }),
	{name: "afternotok", set: func(d *draft, v string) error { return d.depend(cluster.AfterNotOK, v) }},
	{name: "singleton", flag: true, set: func(d *draft, _ string) error {
		d.entry.Job.After = append(d.entry.Job.After, cluster.Dependency{Type: cluster.Singleton})
		return nil
	}},
	toggle("array", func(d *draft) *bool { return &d.array }),
	whole("cap", 1, maxSeries, func(d *draft) *int { return &d.cap }),
	instant("begin", func(d *draft) *cluster.Time { return &d.entry.Job.Begin }),
	toggle("hold", func(d *draft) *bool { return &d.entry.Job.Hold }),
	toggle("nopreempt", func(d *draft) *bool { return &d.entry.Job.NoPreempt }),
	toggle("norequeue", func(d *draft) *bool { return &d.entry.Job.NoRequeue }),
	{name: "skew", set: func(d *draft, v string) error {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || !(f >= 0) || f > 1 {
			return fmt.Errorf("%q is not a skew between 0 and 1", v)
		}
		d.entry.Job.Skew = max(1, cluster.Milli(f*1000+0.5))
		return nil
	}},
	text("model", func(d *draft) *string { return &d.entry.Job.Model }),
	text("service", func(d *draft) *string { return &d.entry.Job.Service }),
	{name: "minspeed", set: func(d *draft, v string) error {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || !(f > 0) || f > 1 {
			return fmt.Errorf("%q is not a part of its speed between 0 and 1", v)
		}
		d.entry.Job.MinSpeed = max(1, int64(f*1_000_000+0.5))
		return nil
	}},
	{name: "isolation", set: func(d *draft, v string) (err error) {
		d.entry.Job.Isolation, err = cluster.ParseIsolation(v)
		return err
	}},
	text("name", func(d *draft) *string { return &d.entry.Job.Name }),
	span("every", func(d *draft) *duration { return &d.every }),
}

// setTasks reads "4" (a number of tasks of gpus= GPUs each) or "2x8+1x4".
func setTasks(d *draft, v string) error {
	if n, err := strconv.Atoi(v); err == nil && n > 0 && n <= cluster.MaxTasks {
		d.tasks = n
		return nil
	}
	for part := range strings.SplitSeq(v, "+") {
		count, gpus, ok := strings.Cut(part, "x")
		n, err1 := strconv.Atoi(count)
		g, err2 := strconv.Atoi(gpus)
		if !ok || err1 != nil || err2 != nil || n < 1 || n > cluster.MaxTasks || g < 0 || g > cluster.MaxGPUsPerNode {
			return fmt.Errorf("%q is neither a number of tasks nor TASKSxGPUS such as 2x8+1x4", v)
		}
		d.sets = append(d.sets, cluster.TaskSet{Count: n, Request: cluster.Request{GPUs: g}})
	}
	return nil
}

func setElastic(d *draft, v string) error {
	lo, hi, ok := strings.Cut(v, "..")
	a, err1 := strconv.Atoi(lo)
	b, err2 := strconv.Atoi(hi)
	if !ok || err1 != nil || err2 != nil || a < 1 || b < a || b > cluster.MaxTasks {
		return fmt.Errorf("%q is not LEAST..MOST tasks such as 1..4", v)
	}
	d.entry.Job.Elastic = cluster.Elastic{Min: a, Max: b}
	return nil
}

// setCheckpoint reads interval/cost/restart/suspend; an interval of 0 means only when asked.
func setCheckpoint(d *draft, v string) error {
	f := strings.Split(v, "/")
	if len(f) > 4 {
		return fmt.Errorf("%q is not INTERVAL/COST/RESTART/SUSPEND such as 30m/1m/2m/1s", v)
	}
	c := &d.entry.Job.Checkpoint
	for i, into := range []*duration{&c.Interval, &c.Cost, &c.Restart, &c.Suspend}[:len(f)] {
		var err error
		if *into, err = cluster.ParseDuration(f[i]); err != nil {
			return err
		}
	}
	return nil
}

// setNodeLimits reads "n1+n2:2,n3:0": at most two tasks on n1 and n2 together, none on n3.
func setNodeLimits(d *draft, v string) error {
	for _, part := range list(v) {
		name, most, ok := strings.Cut(part, ":")
		n, err := strconv.Atoi(most)
		if !ok || name == "" || err != nil || n < 0 || n > cluster.MaxTasks {
			return fmt.Errorf("%q is not NODE:TASKS, such as n1:2 or n1+n2:0", part)
		}
		d.entry.Job.NodeLimits = append(d.entry.Job.NodeLimits,
			cluster.NodeLimit{Nodes: strings.Split(name, "+"), Tasks: n})
	}
	return nil
}

func (d *draft) topology(level string, required bool) error {
	l, err := cluster.ParseLevel(level)
	if d.entry.Job.Topology.Level != cluster.LevelAny {
		return errors.New("within and prefer exclude each other")
	}
	d.entry.Job.Topology = cluster.Topology{Level: l, Required: required}
	return err
}

func (d *draft) depend(t cluster.DependencyType, v string) error {
	for _, name := range list(v) {
		r := ref{typ: t, name: name}
		if base, delay, ok := strings.Cut(name, "+"); ok && t == cluster.AfterStart {
			var err error
			if r.delay, err = cluster.ParseDuration(delay); err != nil {
				return err
			}
			r.name = base
		}
		d.after = append(d.after, r)
	}
	return nil
}

// job reads a job line: TIME NAME arguments.
func (p *parser) job(f []string) error {
	if len(f) < 2 || strings.Contains(f[1], "=") {
		return errors.New("a job's name must follow its time: 5m NAME gpus=1 run=10m")
	}
	at, err := parseTime(f[0])
	if err != nil {
		return err
	}
	d := draft{line: p.line, tasks: 0, gpus: 1,
		entry: trace.Entry{Job: cluster.Job{Tier: cluster.Standard, Submit: at}}}
	if err := apply(&d, jobKeys, f[2:]); err != nil {
		return err
	}
	if err := d.finish(); err != nil {
		return err
	}
	base, lo, hi, series, err := seriesOf(f[1])
	if err != nil {
		return err
	}
	if !series && (d.every > 0 || d.array || d.cap > 0) {
		return errors.New("every, array and cap are for series such as small[1..40]")
	}
	if len(p.set.jobs)+hi-lo+1 > maxJobs {
		return fmt.Errorf("more than %d jobs", maxJobs)
	}
	d.first = len(p.set.jobs)
	for i := lo; i <= hi; i++ {
		one, id := d, f[1]
		if series {
			id = fmt.Sprintf("%s[%d]", base, i)
			one.series = base
			one.entry.Job.Submit = at.Add(duration(i-lo) * d.every)
			if d.array || d.cap > 0 {
				one.entry.Job.Array = &cluster.Array{Index: i, Cap: d.cap}
			}
		}
		if err := p.set.add(id, one); err != nil {
			return err
		}
	}
	return nil
}

// seriesOf reads a name: "big", or "small[1..40]" for a series.
func seriesOf(s string) (base string, lo, hi int, series bool, err error) {
	base, rest, found := strings.Cut(s, "[")
	if !found {
		return s, 1, 1, false, nil
	}
	a, b, ok := strings.Cut(strings.TrimSuffix(rest, "]"), "..")
	lo, err1 := strconv.Atoi(a)
	hi, err2 := strconv.Atoi(b)
	if !ok || base == "" || !strings.HasSuffix(rest, "]") || err1 != nil || err2 != nil || lo < 0 || hi < lo ||
		hi-lo >= maxSeries {
		return "", 0, 0, false,
			fmt.Errorf("%q is not a job's name, nor a series such as small[1..40] of at most %d", s, maxSeries)
	}
	return base, lo, hi, true, nil
}

// finish makes task sets of a job line's request.
func (d *draft) finish() error {
	j := &d.entry.Job
	if d.fail {
		d.entry.Outcome = trace.Failed
	}
	if d.entry.Run == 0 && d.entry.End == 0 && j.Kind != cluster.Service {
		return errors.New("run= is missing: how long the job computes (a service may have end= or run for ever)")
	}
	if d.entry.Run == 0 {
		j.Kind = cluster.Service // runs until it is cancelled
	}
	if j.Elastic.Max > 0 && (d.tasks > 0 || d.sets != nil) {
		return errors.New("elastic= says how many tasks there are; leave tasks= out")
	}
	if d.sets != nil && d.gpusSet {
		return errors.New("tasks=2x8+1x4 says how many GPUs there are; leave gpus= out")
	}
	switch {
	case d.sets != nil:
		for i := range d.sets {
			r := d.req
			r.GPUs = d.sets[i].Request.GPUs
			d.sets[i].Request = r
		}
		j.Tasks = d.sets
		return nil
	case d.tasks == 0 && j.Elastic.Max == 0 && d.req.Profile == "":
		d.grouped = true
		return nil
	}
	if d.gpus > cluster.MaxGPUsPerNode {
		return fmt.Errorf("gpus: a task has at most %d GPUs", cluster.MaxGPUsPerNode)
	}
	d.req.GPUs = d.gpus
	j.Tasks = []cluster.TaskSet{{Count: max(1, d.tasks, j.Elastic.Max), Request: d.req}}
	return nil
}

// group makes tasks for a job that only states a number of GPUs: one if a node has that many,
// otherwise whole nodes and a remainder (cluster.GroupTasks).
func (d *draft) group(perNode int) []cluster.TaskSet {
	if d.gpus <= perNode || perNode == 0 {
		one := d.req
		one.GPUs = min(d.gpus, cluster.MaxGPUsPerNode)
		return []cluster.TaskSet{{Count: 1, Request: one}}
	}
	sets := cluster.GroupTasks(d.gpus, perNode, d.req)
	for i := range sets { // CPU and RAM are stated per task
		sets[i].Request.CPU, sets[i].Request.RAM = d.req.CPU, d.req.RAM
	}
	return sets
}

// add adds a job under its name.
func (s *setup) add(id string, d draft) error {
	if _, dup := s.byName[id]; dup {
		return fmt.Errorf("job %q already exists", id)
	}
	if other, ok := s.series[d.series]; d.series != "" && ok && other != d.first {
		return fmt.Errorf("a series %q already exists", d.series)
	}
	if s.byName == nil {
		s.byName, s.series = map[string]int{}, map[string]int{}
	}
	if d.series != "" {
		s.series[d.series] = d.first
	}
	s.byName[id] = len(s.jobs)
	s.names = append(s.names, id)
	if d.entry.Job.Name == "" {
		d.entry.Job.Name = id
	}
	s.jobs = append(s.jobs, d)
	return nil
}

// lookup finds the jobs with a name: one, or a whole series by its base name.
func (s *setup) lookup(name string) ([]int, error) {
	if i, ok := s.byName[name]; ok {
		return []int{i}, nil
	}
	if first, ok := s.series[name]; ok {
		var all []int
		for i := first; i < len(s.jobs) && s.jobs[i].series == name; i++ {
			all = append(all, i)
		}
		return all, nil
	}
	have := slices.Clone(s.names)
	if len(have) > 30 {
		have = append(have[:30], "...")
	}
	for i := range s.jobs {
		if b := s.jobs[i].series; b != "" && !slices.Contains(have, b) {
			have = append(have, b)
		}
	}
	return nil, cluster.Unknown("job", name, have)
}
