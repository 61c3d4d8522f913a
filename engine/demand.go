package engine

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
)

// Demand is what tasks ask for, as the jobs have it that were submitted last:
// those that wait, that run, and that are over. It is a function of the jobs
// alone, so that a restart and a replay know it without a record of it.

const (
	mostDemand = 1000 // jobs that are looked at
	mostKinds  = 64   // of tasks that are told apart
	mostWeight = 1000 // tasks of one set that count
	covered    = 95   // per cent of the tasks that the kinds must cover (FGD's simulator, 2)
)

// demandUpto is the job at which demand was last estimated when n are known:
// anew with each job at first, later when an eighth of them are new, at the
// latest after 128.
func demandUpto(n int) int {
	step := 1
	if n >= 16 {
		step = min(128, 1<<(bits.Len(uint(n))-4))
	}
	return n - n%step
}

// demandNow returns the demand in force.
func (e *Engine) demandNow() *inventory.Demand {
	d := &e.demand
	if upto := demandUpto(len(e.jobs)); d.Rev == 0 || d.Stale || d.Upto != upto {
		d.Rev++
		e.countDemand(d, upto)
	}
	return d
}

// countDemand counts the tasks of the last jobs up to one by kind and keeps the
// most frequent kinds. Tasks without GPUs are left out: no free GPU is of use to them.
func (e *Engine) countDemand(d *inventory.Demand, upto int) {
	was := d.Upto
	d.Upto = upto
	if d.Stale || d.At == nil || len(d.All) > 4*mostDemand || upto < was {
		d.Stale, d.All, d.At, was = false, nil, map[string]int{}, 0
	}
	from := func(upto int) int { return max(0, upto-mostDemand) }
	e.addDemand(d, from(was), min(was, from(upto)), -1)
	e.addDemand(d, max(was, from(upto)), upto, 1)
	kinds := make([]*inventory.TaskKind, 0, len(d.All))
	total := int64(0)
	for i := range d.All {
		if k := &d.All[i]; k.Weight > 0 && !k.Suits.Empty() {
			kinds = append(kinds, k)
			total += k.Weight
		}
	}
	slices.SortFunc(kinds, func(a, b *inventory.TaskKind) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), bytes.Compare(a.Key, b.Key))
	})
	d.Kinds, d.Weight = nil, 0
	for _, k := range kinds {
		if len(d.Kinds) == mostKinds || d.Weight*100 >= total*covered {
			break
		}
		d.Kinds = append(d.Kinds, *k)
		d.Weight += k.Weight
	}
	d.Group(e.st.Classes())
}

// addDemand counts the tasks of jobs from number a to b, or takes them back.
func (e *Engine) addDemand(d *inventory.Demand, a, b int, sign int64) {
	for _, j := range e.jobs[min(a, b):b] {
		if j == nil || CheckTasks(j.Spec) != "" {
			continue
		}
		for i := range j.Spec.Tasks {
			t := &j.Spec.Tasks[i]
			if t.Request.GPUs == 0 {
				continue
			}
			e.scratch.key = kindKey(e.scratch.key[:0], j.Spec, &t.Request, e.sharer(j.Spec, &t.Request))
			k, ok := d.At[string(e.scratch.key)]
			if !ok {
				k = len(d.All)
				d.All = append(d.All, inventory.TaskKind{Request: t.Request, User: e.sharer(j.Spec, &t.Request), Key: bytes.Clone(e.scratch.key), Suits: e.shapes.SuitsOf(j.Spec, &t.Request)})
				d.At[string(d.All[k].Key)] = k
			}
			d.All[k].Weight += sign * int64(min(t.Count, mostWeight))
		}
	}
}

// sharer is whose shares tasks are, where those of several users keep apart.
func (e *Engine) sharer(j *cluster.Job, r *cluster.Request) string {
	if e.cfg.Spec.Sharing != cluster.MPS || !r.Fractional() || r.Profile != "" {
		return ""
	}
	return j.User
}

// kindKey writes what makes up a kind into buf.
func kindKey(buf []byte, j *cluster.Job, r *cluster.Request, user string) []byte {
	for _, v := range []int64{int64(r.GPUs), r.Share, r.Memory, r.CPU, r.RAM} {
		buf = binary.BigEndian.AppendUint64(buf, uint64(v))
	}
	for _, list := range [][]string{{r.Profile, user}, j.GPUTypes, j.Partitions} {
		buf = binary.AppendVarint(buf, int64(len(list)))
		for _, s := range list {
			buf = append(binary.AppendVarint(buf, int64(len(s))), s...)
		}
	}
	return buf
}
