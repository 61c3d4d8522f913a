package engine_test

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
)

// holdDue: a job has been in line for so long that nodes are held for it.
func (d *dumb) holdDue(j *dumbJob) bool {
	return d.holdAfter > 0 && j.starvingSince.Add(d.holdAfter) <= d.now
}

// openEnded: what stands in the job's way is promised for a time that is not known.
func (d *dumb) openEnded(j *dumbJob) bool {
	return !slices.ContainsFunc(d.promises, func(p *promise) bool {
		return p.at < d.now.Add(cluster.MaxDuration/2) &&
			slices.ContainsFunc(d.indices(), func(i int) bool { return d.competes(p.job, i) && d.competes(j, i) })
	})
}

func (d *dumb) indices() (list []int) {
	for i := range d.nodes {
		list = append(list, i)
	}
	return list
}

// hold promises a job the nodes with the fewest busy GPUs, as few as suffice when they are
// empty: others may use of them only what the job leaves of what is free now.
func (d *dumb) hold(j *dumbJob) bool {
	now := d.books()
	busy := func(i int) int {
		n := &d.nodes[i]
		return n.GPUs - bits.OnesCount64(n.Bad&(1<<n.GPUs-1)) - bits.OnesCount64(now.free(i))
	}
	nodes := slices.DeleteFunc(d.indices(), func(i int) bool {
		return d.nodes[i].State != cluster.Up || !d.competes(j, i) ||
			slices.ContainsFunc(d.promises, func(p *promise) bool { _, takes := p.took[i]; return p.hold && takes })
	})
	used := func(i int) int64 {
		if d.nodes[i].CPU == 0 {
			return 0
		}
		return d.nodes[i].CPU - now.cpu(i)
	}
	slices.SortStableFunc(nodes, func(a, b int) int {
		return cmp.Or(cmp.Compare(busy(a), busy(b)), cmp.Compare(used(a), used(b)))
	})
	with := func(k int) []engine.Alloc {
		b := now.clone()
		for _, i := range nodes[:k] {
			b.held[i] = nil
		}
		return d.place(j, b, nil)
	}
	least, most := 0, min(1, len(nodes))
	for ; most < len(nodes) && with(most) == nil; most = min(2*most, len(nodes)) {
		least = most
	}
	k := least + sort.Search(most-least, func(n int) bool { return with(least+n) != nil })
	allocs := with(k)
	if allocs == nil {
		return false
	}
	p := &promise{job: j, hold: true, at: d.now, until: cluster.Never, took: map[int]amount{}, left: map[int]amount{}}
	for i := range d.nodes {
		if !slices.ContainsFunc(allocs, func(a engine.Alloc) bool { return int(a.Node) == i }) {
			continue
		}
		took := sum(allocs, i)
		left := amount{bits.OnesCount64(now.free(i)), now.cpu(i), now.ram(i)}.minus(took)
		p.took[i], p.left[i] = took, amount{max(0, left.gpus), max(0, left.cpu), max(0, left.ram)}
		if slices.Contains(nodes[:k], i) {
			p.at = max(p.at, d.freeAt(i, took, &now))
		}
	}
	j.promisedAt, j.plan = cluster.Never, nil
	d.promises = append(d.promises, p)
	return true
}

// freeAt is when a node can have so many free GPUs at the earliest: jobs of which no end is known
// may end at any time.
func (d *dumb) freeAt(i int, took amount, b *books) cluster.Time {
	lacks := took.gpus - bits.OnesCount64(b.free(i))
	ends := map[cluster.Time]int{}
	var times []cluster.Time
	for _, v := range d.jobs {
		for _, a := range v.allocs {
			if !v.inBooks() || int(a.Node) != i {
				continue
			}
			was := v.end
			d.expect(v)
			end := v.end
			v.end = was
			switch {
			case a.Share > 0 || b.cpu(i) < took.cpu || b.ram(i) < took.ram:
				return d.now
			case end >= d.now.Add(cluster.MaxDuration/2):
				lacks -= bits.OnesCount64(a.GPUs)
			default:
				ends[end] += bits.OnesCount64(a.GPUs)
				times = append(times, end)
			}
		}
	}
	slices.Sort(times)
	for _, at := range slices.Compact(times) {
		if lacks > 0 && lacks <= ends[at] {
			return at
		}
		lacks -= ends[at]
	}
	return d.now
}

// TestTwinHold is TestTwinBackfill where run times are seldom known, and nodes are held for jobs that
// have waited for some time.
func TestTwinHold(t *testing.T) {
	for _, pol := range []string{"fifo", "sjf-gpu", "multifactor"} {
		for _, mode := range []engine.Backfill{engine.EASY, engine.Conservative} {
			t.Run(fmt.Sprintf("%s/%s", pol, mode), func(t *testing.T) {
				t.Parallel()
				for seed, n := uint64(1), 0; n < shared.Soak(1, 2)*twinEvents(t); seed++ {
					n += twins(t, pol, []string{"best-fit", "first-fit", "worst-fit"}[seed%3], mode, seed+holding, nil)
				}
			})
		}
	}
}

// holding is a seed beyond which nodes are held after a minute, and few jobs state run times.
const holding = 1 << 33

func holdAfter(seed uint64) time.Duration {
	if seed > holding && seed < factual {
		return time.Minute
	}
	return 0
}
