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

// Demand is the tasks of the jobs submitted last, whether they wait, run or have ended. It is a
// function of the jobs alone, so a restart and a replay arrive at the same demand without a record
// of it.

const (
	mostDemand = 1000 // number of last jobs considered
	mostKinds  = 64   // kinds of task kept
	mostWeight = 1000 // most tasks counted of one set
	covered    = 95   // percentage of the tasks that the kinds must cover (FGD's simulator, 2)
)

// demandUpto is the number of jobs from which demand is estimated when n are known. It is updated for
// each new job at first, later once about an eighth of them are new, at the latest after 128.
func demandUpto(n int) int {
	step := 1
	if n >= 16 {
		step = min(128, 1<<(bits.Len(uint(n))-4))
	}
	return n - n%step
}

// Demand returns the current demand.
func (f *Finder) Demand() *inventory.Demand {
	d := &f.demand
	if upto := demandUpto(len(f.Around.Jobs())); d.Rev == 0 || d.Stale || d.Upto != upto {
		d.Rev++
		f.countDemand(d, upto)
	}
	return d
}

// countDemand counts the tasks of the jobs before upto by kind and keeps the most frequent kinds.
// Tasks without GPUs are left out: they do not use free GPUs.
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

// addDemand adds (sign 1) or subtracts (-1) the tasks of jobs a to b-1.
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
				d.All = append(d.All,
					inventory.TaskKind{Request: t.Request, User: f.Sharer(j.Spec, &t.Request), Key: bytes.Clone(f.key),
						Suits: f.World.Shapes.SuitsOf(j.Spec, &t.Request)})
				d.At[string(d.All[k].Key)] = k
			}
			d.All[k].Weight += sign * int64(min(t.Count, mostWeight))
		}
	}
}

// Sharer is the user to whom shares belong if users' shares are kept apart.
func (f *Finder) Sharer(j *cluster.Job, r *cluster.Request) string {
	if f.Sharing != cluster.MPS || !r.Fractional() || r.Profile != "" {
		return ""
	}
	return j.User
}

// kindKey appends the fields that identify a kind to buf.
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

// Recount makes demand be counted again: nodes joined or changed, so different tasks may suit them.
func (f *Finder) Recount() { f.demand.Stale = true }

// CheckFragments compares the cached fragments with computed ones.
func (f *Finder) CheckFragments() error {
	if f.demand.Stale {
		return nil // they will not be used
	}
	return f.World.Store.CheckFragments(&f.demand)
}
