package trace

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Common code of the Slurm exports (and of logs of clusters with Slurm).

// slurmState translates a state such as "CANCELLED by 1000". Ended is false
// for jobs that were still pending or running when the log was taken.
func slurmState(s []byte) (o Outcome, ended, ok bool) {
	word, _, _ := bytes.Cut(bytes.TrimSpace(s), []byte(" "))
	switch string(bytes.TrimSuffix(word, []byte("+"))) {
	case "COMPLETED":
		return Succeeded, true, true
	case "FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "OUT_OF_ME", "LAUNCH_FAILED", "TIMEOUT":
		return Failed, true, true
	case "CANCELLED", "REVOKED", "DEADLINE", "PREEMPTED":
		return Cancelled, true, true
	case "PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING", "COMPLETING", "CONFIGURING", "REQUEUE_HOLD",
		"STOPPED":
		return 0, false, true
	}
	return 0, false, false
}

const slurmStates = "a Slurm job state such as COMPLETED, FAILED, TIMEOUT or CANCELLED by 1000"

// state reads a job state column.
func (t *table) state(i int) (o Outcome, ended bool) {
	o, ended, ok := slurmState(t.raw(i))
	if !ok {
		t.fail(i, slurmStates)
	}
	return o, ended
}

// tres is a job's allocation, from a list of trackable resources.
type tres struct {
	gpus    int
	types   []string // GPU types or MIG profiles, in the site's names
	typed   int      // number of GPUs with a type
	profile string   // MIG profile, if the type is one
	cpu     cluster.Milli
	ram     cluster.MiB
}

// add takes one resource: "cpu", "mem" (MiB), "gres/gpu" or "gres/gpu:a100".
func (r *tres) add(name string, n int64) {
	kind, model, typed := strings.Cut(name, ":")
	switch {
	case kind == "cpu":
		r.cpu = n * 1000
	case kind == "mem":
		r.ram = n
	case kind == "gres/gpu" && !typed:
		r.gpus = int(n)
	case kind == "gres/gpu" && n > 0:
		r.typed += int(n)
		if migType(model) {
			r.profile = model
		} else if !slices.Contains(r.types, model) {
			r.types = append(r.types, model)
		}
	}
}

// migType reports whether a GPU type is a MIG profile ("1g.10gb").
func migType(s string) bool {
	return len(s) > 3 && s[0] >= '1' && s[0] <= '7' && s[1] == 'g' && (s[2] == '.' || s[2] == '_')
}

// parseTRES reads "billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1".
func parseTRES(s []byte) (tres, bool) {
	var r tres
	for part := range bytes.SplitSeq(s, []byte(",")) {
		if len(part) == 0 {
			continue
		}
		name, value, ok := strings.Cut(string(part), "=")
		if !ok {
			return r, false
		}
		var n int64
		switch {
		case name == "mem":
			n, ok = parseMem(value)
		case name == "cpu" || strings.HasPrefix(name, "gres/gpu:") || name == "gres/gpu":
			v, err := strconv.ParseInt(value, 10, 64)
			n, ok = v, err == nil && v >= 0 && v <= cluster.MaxTasks
		default:
			continue // node, billing, energy, licences, gres/gpuutil, ...
		}
		if !ok {
			return r, false
		}
		r.add(name, n)
	}
	return r, true
}

// parseMem reads Slurm memory ("64G", "512000M", "1.5T", "4096K") as MiB.
func parseMem(s string) (cluster.MiB, bool) {
	scale := 1.0
	if s != "" {
		switch s[len(s)-1] {
		case 'K':
			scale = 1.0 / 1024
		case 'M':
		case 'G':
			scale = 1024
		case 'T':
			scale = 1024 * 1024
		case 'P':
			scale = 1024 * 1024 * 1024
		default:
			s += "M"
		}
		s = s[:len(s)-1]
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v >= 0) || v*scale > float64(cluster.MaxMiB) {
		return 0, false
	}
	return cluster.MiB(v * scale), true
}

// apply sets the entry's tasks. GPUs without a type count by gres/gpu.
func (r *tres) apply(b *Builder, e *Entry) {
	gpus := max(r.gpus, r.typed)
	b.gang(e, gpus, r.cpu, r.ram)
	if r.profile != "" && gpus > 0 {
		e.Flexible = false
		e.Job.Tasks[0].Request.GPUs, e.Job.Tasks[0].Request.Profile = 0, b.text([]byte(r.profile))
		return
	}
	for _, m := range r.types {
		for _, name := range b.family(m) {
			if !slices.Contains(e.Job.GPUTypes, name) {
				e.Job.GPUTypes = append(e.Job.GPUTypes, name)
			}
		}
	}
}

// family maps a site's name of a GPU type to the models that it may mean: "a100" is A100-40GB or
// A100-80GB, "nvidia_a100_80gb_pcie" only the latter. An unknown name is returned unchanged.
func (b *Builder) family(name string) []string {
	want := strings.ToUpper(strings.NewReplacer("_", "-", " ", "-").Replace(name))
	for _, prefix := range []string{"NVIDIA-", "TESLA-", "GEFORCE-"} {
		want = strings.TrimPrefix(want, prefix)
	}
	var out []string
	for _, m := range cluster.Models() {
		have := strings.ToUpper(m.Name)
		if want == have || strings.HasPrefix(want, have+"-") {
			return []string{b.model(m.Name)}
		}
		if strings.HasPrefix(have, want+"-") {
			out = append(out, b.model(m.Name))
		}
	}
	if out == nil {
		return []string{b.model(name)}
	}
	return out
}

// slurmDuration reads "[days-]hours:minutes:seconds[.fraction]" and "minutes:seconds". "Unlimited"
// and the like mean no limit: 0.
func slurmDuration(s []byte) (time.Duration, bool) {
	switch strings.ToLower(string(s)) {
	case "", "unlimited", "partition_limit", "invalid", "unknown":
		return 0, true
	}
	days, rest, hasDays := bytes.Cut(s, []byte("-"))
	if !hasDays {
		days, rest = []byte("0"), s
	}
	d := digits(days)
	parts := bytes.Split(rest, []byte(":"))
	if d < 0 || d > 36500 || len(days) == 0 || len(parts) > 3 || len(parts) < 2 && !hasDays {
		return 0, false
	}
	units := []time.Duration{time.Hour, time.Minute, time.Second}
	if !hasDays && len(parts) == 2 {
		units = units[1:]
	}
	total := time.Duration(d) * 24 * time.Hour
	for i, p := range parts {
		v, ok := parseAmount(p, units[i])
		if !ok || v > cluster.MaxDuration-total {
			return 0, false
		}
		total += v
	}
	return total, true
}

// unusable counts rows that are well-formed but describe no finished job.
type unusable struct{ waiting, open, steps int }

// ran reports whether a row is of a job that ran to its end; start and end are -1 where the log does not
// have them.
func (u *unusable) ran(t *table, e *Entry, state, start, end int) bool {
	o, ended := t.state(state)
	e.Outcome = o
	switch {
	case t.reason != "":
	case start >= 0 && t.missing(start):
		u.waiting++
		return false
	case !ended || end >= 0 && t.missing(end):
		u.open++
		return false
	}
	return true
}

func (u unusable) note(b *Builder) {
	for _, c := range []struct {
		n    int
		what string
	}{
		{u.waiting, "jobs that never started"},
		{u.open, "jobs that had not ended when the log was taken"},
		{u.steps, "job steps, which are parts of jobs"},
	} {
		if c.n > 0 {
			b.note("left out: %d %s", c.n, c.what)
		}
	}
}

// between reads a run time from start and end stamps.
func (t *table) between(start, end int) time.Duration {
	from, to := t.stamp(start), t.stamp(end)
	if to < from && t.reason == "" {
		t.fail(end, fmt.Sprintf("at or after %s %s", t.header[start], quote(t.raw(start))))
	}
	return to.Sub(from)
}
