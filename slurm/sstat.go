package slurm

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-gpu/muster/api"
)

const sstatDefault = "JobID,MaxRSS,AveRSS,AveCPU,NTasks,ConsumedEnergy,TRESUsageInMax%50"

var sstatOptions = []option{
	{name: "allsteps", short: 'a'},
	{name: "format", short: 'o', arg: needs},
	{name: "fields", arg: needs},
	{name: "help", short: 'h'},
	{name: "helpformat", short: 'e'},
	{name: "jobs", short: 'j', arg: needs},
	{name: "noconvert"},
	{name: "noheader", short: 'n'},
	{name: "parsable", short: 'p'},
	{name: "parsable2", short: 'P'},
	{name: "pidformat", short: 'i', use: refused, note: "muster exec JOB ps shows a job's processes"},
	{name: "usage"},
	{name: "verbose", short: 'v'},
	{name: "version", short: 'V'},
}

// stat is a line of sstat: a running job with its measurements.
type stat struct {
	*api.Job
	*api.Samples
}

// sstat shows what running jobs use: of the whole job, as its step "batch".
func (c *command) sstat() (int, error) {
	l, rest, done, err := c.common(sstatOptions, "sstat [OPTIONS] -j JOB[,JOB...]")
	if done || err != nil {
		return 0, err
	}
	if l.set.has("helpformat") {
		c.printf("%s", acctNames(sstatFields()))
		return 0, nil
	}
	for _, word := range rest { // sstat accepts jobs without -j, too
		more, err := parseRefs(word)
		if err != nil {
			return 1, err
		}
		l.ids = append(l.ids, more...)
	}
	if len(l.ids) == 0 {
		return 1, argError{"No jobs are named: sstat -j JOB[,JOB...]"}
	}
	format := cmpOr(l.set.get("format"), cmpOr(l.set.get("fields"), sstatDefault))
	cols, err := acctColumns(format, sstatFields())
	if err != nil {
		return 1, err
	}
	v, err := c.view(c.svc.Jobs())
	if err != nil {
		return 1, err
	}
	code := 0
	var rows []stat
	for _, ref := range l.ids {
		found := false
		for i := range v.jobs {
			j := &v.jobs[i]
			if !ref.is(j) || j.State == api.StatePending {
				continue
			}
			s, err := c.svc.Samples(j.ID)
			if err != nil {
				return 1, err
			}
			found = true
			rows = append(rows, stat{j, &s})
		}
		if !found {
			code = 1
			c.errorf("sstat: error: no steps running for job %d\n", ref.id)
		}
	}
	if len(rows) > 0 || code == 0 {
		c.printf("%s", acctText(&l.set, v, cols, rows))
	}
	return code, nil
}

// cpuTime is the use of the present run, by its samples, plus that of earlier runs.
func (s *stat) cpuTime() time.Duration {
	cores := 0.0
	for _, p := range s.Points {
		cores += p.CPU
	}
	return time.Duration(s.Measured.CPU) +
		time.Duration(cores/float64(max(1, len(s.Points)))*s.Measured.Seconds*float64(time.Second))
}

func (s *stat) last() (p api.Point) {
	if n := len(s.Points); n > 0 {
		p = s.Points[n-1]
	}
	return p
}

func kib(mib int64) string {
	if mib == 0 {
		return "0"
	}
	return strconv.FormatInt(mib*1024, 10) + "K"
}

func (s *stat) most() string {
	parts := []string{"cpu=" + longClock(s.cpuTime())}
	if m := s.Measured.MemoryMost; m != nil {
		parts = append(parts, fmt.Sprintf("gres/gpumem=%dM", *m))
	}
	if u := s.Measured.Most; u != nil {
		parts = append(parts, fmt.Sprintf("gres/gpuutil=%.0f", *u))
	}
	return strings.Join(append(parts, fmt.Sprintf("mem=%dM", s.Measured.RAM)), ",")
}

func (s *stat) mean() string {
	parts := []string{"cpu=" + longClock(s.cpuTime())}
	if m := s.last().Memory; m != nil {
		parts = append(parts, fmt.Sprintf("gres/gpumem=%dM", *m))
	}
	if u := s.Measured.Utilisation; u != nil {
		parts = append(parts, fmt.Sprintf("gres/gpuutil=%.0f", *u))
	}
	return strings.Join(append(parts, fmt.Sprintf("mem=%dM", s.last().RAM)), ",")
}

func notMeasured(*view, stat) string { return "" }

// sstatFields are sstat's fields that have a meaning here.
var sstatFields = sync.OnceValue(func() []acctField[stat] {
	return []acctField[stat]{
		{"AveCPU", 10, false, func(_ *view, r stat) string { return longClock(r.cpuTime()) }},
		{"AveCPUFreq", 10, false, notMeasured},
		{"AveDiskRead", 14, false, notMeasured},
		{"AveDiskWrite", 14, false, notMeasured},
		{"AvePages", 10, false, notMeasured},
		{"AveRSS", 10, false, func(_ *view, r stat) string { return kib(r.last().RAM) }},
		{"AveVMSize", 10, false, notMeasured},
		{"ConsumedEnergy", 14, false, func(_ *view, r stat) string {
			if r.Measured.Energy == nil {
				return ""
			}
			return whole(*r.Measured.Energy)
		}},
		{"JobID", 12, true, func(_ *view, r stat) string { return (&row{Job: r.Job}).idText() + ".batch" }},
		{"MaxDiskRead", 12, false, notMeasured},
		{"MaxDiskWrite", 12, false, notMeasured},
		{"MaxPages", 8, false, notMeasured},
		{"MaxRSS", 10, false, func(_ *view, r stat) string { return kib(r.Measured.RAM) }},
		{"MaxRSSNode", 10, false, func(_ *view, r stat) string { return r.Node }},
		{"MaxRSSTask", 10, false, func(*view, stat) string { return "0" }},
		{"MaxVMSize", 10, false, notMeasured},
		{"MinCPU", 10, false, func(_ *view, r stat) string { return longClock(r.cpuTime()) }},
		{"NTasks", 8, false, func(*view, stat) string { return "1" }},
		{"Nodelist", 15, false, func(_ *view, r stat) string { return r.Node }},
		{"TRESUsageInAve", 14, false, func(_ *view, r stat) string { return r.mean() }},
		{"TRESUsageInMax", 14, false, func(_ *view, r stat) string { return r.most() }},
	}
})
