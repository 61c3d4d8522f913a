package serving

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// naive searches exhaustively: no growing sizes, no order, no best fit.
type naive struct {
	*carrier
	best int
}

// possible reports whether services can take turns on a size: whether for some batches there is a cycle in which
// all are computed and that is short enough for each batch to hold what arrives in it and for no request to be
// late.
func (d *naive) possible(group []int, z int) bool {
	batches := make([]int, len(group))
	var from func(i int) bool
	from = func(i int) bool {
		if i < len(group) {
			for b := range d.takes[group[i]][z] {
				batches[i] = b + 1
				if from(i + 1) {
					return true
				}
			}
			return false
		}
		least, most := time.Duration(0), time.Duration(math.MaxInt64)
		for j, k := range group {
			takes := d.takes[k][z][batches[j]-1]
			least += takes
			most = min(most, d.services[k].Latency-takes, time.Duration(float64(batches[j])/d.services[k].Rate*1e9))
		}
		return least <= most
	}
	return from(0)
}

// fewest is the fewest GPUs on which services fit undivided: all ways to group them, all sizes of each group,
// all ways to put these on GPUs.
func (d *naive) fewest() int {
	d.best = math.MaxInt
	d.group(0, nil)
	return d.best
}

func (d *naive) group(k int, groups [][]int) {
	if k == len(d.services) {
		d.size(groups, nil)
		return
	}
	for i := range groups {
		old := groups[i]
		groups[i] = append(append([]int{}, old...), k)
		d.group(k+1, groups)
		groups[i] = old
	}
	d.group(k+1, append(append([][]int{}, groups...), []int{k}))
}

func (d *naive) size(groups [][]int, chosen []int) {
	if len(chosen) == len(groups) {
		d.pair(chosen, 0)
		return
	}
	for z := range d.sizes {
		if d.possible(groups[len(chosen)], z) {
			d.size(groups, append(append([]int{}, chosen...), d.sizes[z]))
			return // a larger size is no better for the others
		}
	}
}

// pair puts parts on GPUs, at most two on each.
func (d *naive) pair(parts []int, gpus int) {
	if len(parts) == 0 {
		d.best = min(d.best, gpus)
		return
	}
	d.pair(parts[1:], gpus+1)
	for i := 1; i < len(parts); i++ {
		if parts[0]+parts[i] <= 100 {
			d.pair(append(append([]int{}, parts[1:i]...), parts[i+1:]...), gpus+1)
		}
	}
}

// Few services, small batches: the planner calls possible exactly what is possible, and hardly ever takes more
// than the fewest GPUs of all ways with undivided services; it may take fewer, because it may divide them.
func TestGpuletTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	m := model(t, "A100-80GB")
	plans, above := 0, 0
	for range 2000 {
		var services []Service
		for range 1 + r.IntN(4) {
			s := Service{Name: "s", Rate: 5 + 60*r.Float64(), Latency: time.Duration(40+r.IntN(200)) * time.Millisecond}
			base, each, bend := 0.5+8*r.Float64(), 1+6*r.Float64(), 0.3+0.7*r.Float64()
			for _, p := range GpuletSizes() {
				for b := 1; b <= 5; b++ {
					ms := (base + each*float64(b)) / min(1, float64(p)/100/bend)
					s.Points = append(s.Points,
						Point{Percent: p, Batch: b, Processes: 1, Rate: float64(b) / ms * 1000,
							Latency: time.Duration(ms * 1e6)})
				}
			}
			services = append(services, s)
		}
		o := ShareOptions{Headroom: 1, Enough: 1}
		c, err := newCarrier(m, services, &o)
		if err != nil {
			continue
		}
		d := &naive{carrier: c}
		l := c.lay(nil, 0, false)
		var all []int
		var turns []Turn
		for k := range services {
			all, turns = append(all, k), append(turns, Turn{Service: k, Rate: services[k].Rate})
		}
		for z := range c.sizes {
			_, ok := l.fit(append([]Turn{}, turns...), z, time.Hour)
			if is := d.possible(all, z); is != ok {
				t.Errorf("%d services on %d %%: the planner says %v, but it is %v", len(services), c.sizes[z], ok, is)
			}
		}
		fewest := d.fewest()
		if fewest == math.MaxInt {
			continue // one of them has to be divided
		}
		plans++
		if p, _ := c.plan(c.ways()); p.GPUs > fewest {
			above++
		}
	}
	t.Logf("%d plans: %d take more GPUs than the fewest of undivided services", plans, above)
	if plans < 500 || above*20 > plans {
		t.Error("too many")
	}
}
