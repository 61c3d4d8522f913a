package placement

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
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

// Demand returns the demand in force.
func (f *Finder) Demand() *inventory.Demand {
	d := &f.demand
	if upto := demandUpto(len(f.Around.Jobs())); d.Rev == 0 || d.Stale || d.Upto != upto {
		d.Rev++
		f.countDemand(d, upto)
	}
	return d
}

// countDemand counts the tasks of the last jobs up to one by kind and keeps the
// most frequent kinds. Tasks without GPUs are left out: no free GPU is of use to them.
func (f *Finder) countDemand(d *inventory.Demand, upto int) {
	was := d.Upto
	d.Upto = upto
	if d.Stale || d.At == nil || len(d.All) > 4*mostDemand || upto < was {
		d.Stale, d.All, d.At, was = false, nil, map[string]int{}, 0
	}
	from := func(upto int) int { return max(0, upto-mostDemand) }
	f.addDemand(d, from(was), min(was, from(upto)), -1)
	f.addDemand(d, max(was, from(upto)), upto, 1)
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
	d.Group(f.World.Store.Classes())
}

// addDemand counts the tasks of jobs from number a to b, or takes them back.
func (f *Finder) addDemand(d *inventory.Demand, a, b int, sign int64) {
	for _, j := range f.Around.Jobs()[min(a, b):b] {
		if j == nil || job.CheckTasks(j.Spec) != "" {
			continue
		}
		for i := range j.Spec.Tasks {
			t := &j.Spec.Tasks[i]
			if t.Request.GPUs == 0 {
				continue
			}
			f.key = kindKey(f.key[:0], j.Spec, &t.Request, f.Sharer(j.Spec, &t.Request))
			k, ok := d.At[string(f.key)]
			if !ok {
				k = len(d.All)
				d.All = append(d.All, inventory.TaskKind{Request: t.Request, User: f.Sharer(j.Spec, &t.Request), Key: bytes.Clone(f.key), Suits: f.World.Shapes.SuitsOf(j.Spec, &t.Request)})
				d.At[string(d.All[k].Key)] = k
			}
			d.All[k].Weight += sign * int64(min(t.Count, mostWeight))
		}
	}
}

// Sharer is whose shares tasks are, where those of several users keep apart.
func (f *Finder) Sharer(j *cluster.Job, r *cluster.Request) string {
	if f.Sharing != cluster.MPS || !r.Fractional() || r.Profile != "" {
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

// Recount has the demand counted again: nodes came, or changed, so that other tasks may have use for them.
func (f *Finder) Recount() { f.demand.Stale = true }

// CheckFragments compares what is remembered of fragments with what it stands for.
func (f *Finder) CheckFragments() error { return f.World.Store.CheckFragments(&f.demand) }
