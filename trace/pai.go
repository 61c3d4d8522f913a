package trace

import (
	"bytes"
	"math"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// paiFormat is pai_task_table of Alibaba's PAI 2020 trace. The published file
// has no header line; one with the names below is accepted. A job is all tasks
// of one job_name; plan_cpu and plan_gpu are percent (100 is one core, one
// GPU) and plan_mem is GB, all per instance. The table has no submission
// times: the start of the first task stands for it.
var paiFormat = Format{
	Name:   "pai",
	About:  "Alibaba PAI 2020, pai_task_table: job_name,task_name,inst_num,status,start_time,end_time,plan_...",
	Detect: detectPAI,
	Read:   readPAI,
}

var paiNames = []string{"job_name", "task_name", "inst_num", "status", "start_time", "end_time",
	"plan_cpu", "plan_mem", "plan_gpu", "gpu_type"}

const (
	paiJob, paiInst, paiStatus, paiStart, paiEnd = 0, 2, 3, 4, 5
	paiCPU, paiMem, paiGPU, paiType              = 6, 7, 8, 9
)

func detectPAI(head []byte, name string) bool {
	if columns(',', "job_name", "inst_num", "plan_gpu")(head, name) {
		return true
	}
	line, _, _ := bytes.Cut(head, []byte("\n"))
	f := bytes.Split(line, []byte(","))
	if len(f) != len(paiNames) {
		return false
	}
	switch string(f[paiStatus]) {
	case "Terminated", "Failed", "Running", "Waiting", "Interrupted":
		return true
	}
	return false
}

// paiGroup is a job under construction.
type paiGroup struct {
	e          Entry
	start, end cluster.Time
	line       int
	open, bad  bool // a task did not end; a row was malformed
}

func readPAI(b *Builder) error {
	t := b.plain(',', paiNames...)
	index := map[string]int{}
	var jobs []paiGroup
	first := true
	for t.next() {
		if header := string(t.raw(paiJob)) == "job_name"; header && first {
			first = false
			continue
		}
		first = false
		name := t.b.text(t.raw(paiJob))
		if name == "" {
			t.fail(paiJob, "a job name")
		}
		k, ok := index[name]
		if !ok {
			k = len(jobs)
			index[name] = k
			jobs = append(jobs, paiGroup{line: t.line, start: cluster.Never})
		}
		g := &jobs[k]
		g.e.Job.Name = name
		t.paiTask(g)
		if t.reason != "" {
			g.bad = true
			if t.err = b.bad(t.line, t.reason); t.err != nil {
				return t.err
			}
		}
	}
	if t.err != nil {
		return t.err
	}
	open, bad := 0, 0
	for k := range jobs {
		g := &jobs[k]
		switch {
		case g.bad:
			bad++
			continue
		case g.open:
			open++
			continue
		}
		g.e.Job.Tier = cluster.Standard
		g.e.Job.Submit, g.e.Run = g.start, g.end.Sub(g.start)
		if err := b.add(&g.e, g.line); err != nil {
			return err
		}
	}
	unusable{open: open}.note(b)
	if bad > 0 {
		b.note("left out: %d jobs that lost a task to a bad row", bad)
	}
	b.note("submission times are not in this table; the start of a job's first task stands for it")
	return nil
}

// paiTask adds the task of the current row to its job.
func (t *table) paiTask(g *paiGroup) {
	ended := true
	switch status := string(t.raw(paiStatus)); status {
	case "Terminated":
	case "Failed":
		g.e.Outcome = Failed
	case "Interrupted":
		g.e.Outcome = Cancelled
	case "Running", "Waiting":
		ended = false
	default:
		t.fail(paiStatus, "Terminated, Failed, Interrupted, Running or Waiting")
	}
	if !ended || t.missing(paiStart) || t.missing(paiEnd) {
		g.open = true
	} else {
		from, to := t.at(paiStart, time.Second), t.at(paiEnd, time.Second)
		if to < from {
			t.fail(paiEnd, "at or after the start")
		}
		g.start, g.end = min(g.start, from), max(g.end, to)
	}
	var r cluster.Request
	var count int64 = 1
	if !t.missing(paiInst) {
		count = t.num(paiInst, 1, cluster.MaxTasks)
	}
	if !t.missing(paiCPU) {
		r.CPU = cluster.Milli(math.Round(10 * t.real(paiCPU, 0, 1e9)))
	}
	if !t.missing(paiMem) {
		r.RAM = cluster.MiB(math.Round(1024 * t.real(paiMem, 0, 1e7)))
	}
	if !t.missing(paiGPU) {
		r.GPUs, r.Share = paiShare(t.real(paiGPU, 0, 100*cluster.MaxGPUsPerNode))
	}
	if r.GPUs > 0 && !t.missing(paiType) && string(t.raw(paiType)) != "MISC" && string(t.raw(paiType)) != "CPU" {
		// GPU types are per task; those of the first task with GPUs count.
		if g.e.Job.GPUTypes == nil {
			g.e.Job.GPUTypes = []string{t.b.model(string(t.raw(paiType)))}
		}
	}
	g.e.Job.Tasks = append(g.e.Job.Tasks, cluster.TaskSet{Count: int(count), Request: r})
}

// paiShare turns percent of a GPU into devices and a share of each.
func paiShare(percent float64) (gpus int, share cluster.Milli) {
	milli := cluster.Milli(math.Round(percent * 10))
	if milli == 0 {
		return 0, 0
	}
	gpus = int((milli + cluster.Whole - 1) / cluster.Whole)
	if milli%cluster.Whole != 0 {
		share = milli / int64(gpus)
	}
	return gpus, share
}
