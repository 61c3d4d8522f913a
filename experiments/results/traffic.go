package results

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/experiments/compat"
	"github.com/muster-gpu/muster/network"
	"github.com/muster-gpu/muster/network/flow"
	"github.com/muster-gpu/muster/network/traffic"
)

// mix is jobs that run together.
type mix struct {
	f    traffic.Fabric
	jobs []traffic.Job
}

// closMix draws up to nine jobs of two to five nodes on a small Clos network.
func closMix(seed uint64) mix {
	r := rand.New(rand.NewPCG(seed, 9))
	leaves, spines := 2+r.IntN(3), 1+r.IntN(3)
	spec := &cluster.Spec{}
	c := network.Clos{NodesPerLeaf: 4, Cards: 1, Spines: spines, CardRate: 8e9, SpineRate: int64(4e9 * (1 + r.IntN(2)))}
	for i := range 4 * leaves {
		name := fmt.Sprintf("n%d", i)
		spec.Nodes, c.Nodes = append(spec.Nodes, cluster.Node{Name: name}), append(c.Nodes, name)
	}
	spec.Network = &cluster.Network{Links: c.Links()}
	f := network.New(spec.Nodes, spec.Network)
	m := mix{f: traffic.Fabric{Links: f, Classes: []int{2, 4, 8}[r.IntN(3)]}}
	patterns := []cluster.Pattern{cluster.Ring, cluster.Hierarchical, cluster.AllToAll, cluster.Tree, cluster.Pipeline}
	for nodes := r.Perm(4 * leaves); len(nodes) > 1 && len(m.jobs) < 9; {
		n := min(len(nodes), 2+r.IntN(4))
		var held []network.Held
		for _, node := range nodes[:n] {
			held = append(held, network.Held{Node: int32(node), Ranks: 8})
		}
		nodes = nodes[n:]
		t := cluster.Traffic{Pattern: patterns[r.IntN(len(patterns))], Bytes: int64(1e7 + r.IntN(4e8)),
			Compute: time.Duration(50+r.IntN(500)) * time.Millisecond, Overlap: []cluster.Milli{0, 500, 667}[r.IntN(3)]}
		id := cluster.JobID(len(nodes))
		if d := f.Demand(id, t, held); len(d.Parts) > 0 {
			m.jobs = append(m.jobs, traffic.NewJob(f, id, int64(8*n), t, d, time.Duration(r.IntN(1e9)),
				cluster.Treatment{}))
		}
	}
	return m
}

// crowdMix draws 26, 42, 58 … jobs of two to sixteen nodes on 22 leaf switches of 16 nodes at 4:1, where nearly all
// share links.
func crowdMix(n int) mix {
	r := rand.New(rand.NewPCG(7000+uint64(n), 9))
	spec := &cluster.Spec{}
	c := network.Clos{NodesPerLeaf: 16, Cards: 1, CardRate: 200e9, Spines: 4, SpineRate: 200e9}
	for i := range 22 * 16 {
		name := fmt.Sprintf("n%d", i)
		spec.Nodes, c.Nodes = append(spec.Nodes, cluster.Node{Name: name}), append(c.Nodes, name)
	}
	spec.Network = &cluster.Network{Links: c.Links()}
	f := network.New(spec.Nodes, spec.Network)
	m := mix{f: traffic.Fabric{Links: f, Classes: 8}}
	models := network.Models()
	for id := range 26 + 16*n {
		var held []network.Held
		for _, node := range r.Perm(len(spec.Nodes))[:[]int{2, 2, 2, 4, 4, 8, 8, 16}[r.IntN(8)]] {
			held = append(held, network.Held{Node: int32(node), Ranks: 8})
		}
		t := models[r.IntN(len(models))].Traffic
		id := cluster.JobID(id)
		m.jobs = append(m.jobs, traffic.NewJob(f, id, int64(8*len(held)), t, f.Demand(id, t, held),
			time.Duration(r.Int64N(1e12)), cluster.Treatment{}))
	}
	return m
}

// realMixes are those that were measured on a real link of 200 Mbit/s: computing in milliseconds, and MiB.
var realMixes = [][][2]int64{{{150, 2}, {150, 2}}, {{150, 2}, {150, 1}}, {{100, 2}, {300, 2}}, {{150, 2}, {200, 4}},
	{{50, 2}, {50, 2}}, {{150, 2}, {150, 2}, {150, 2}}}

func realMix(n int) mix {
	m := mix{f: traffic.Fabric{Links: compat.Unit{}, Classes: 8}}
	for i, j := range realMixes[n] {
		compute := time.Duration(j[0]+3) * time.Millisecond
		m.jobs = append(m.jobs, traffic.Job{ID: cluster.JobID(i), GPUs: 1, Compute: compute, Release: compute,
			Demand: network.Demand{Parts: []network.Part{{Bytes: j[1] * 46e6, Paths: []network.Path{{0}}}}}})
	}
	return m
}

// done is what a policy gets done in a mix, of all its GPUs: the part of the time that they compute, and their speed,
// where the speed alone, on the paths that Crux chooses, is 1; none
// counts as faster, as in replays.
func (m *mix) done(p, alone traffic.Policy) (computing, speed float64) {
	list, gpus := make([]flow.Job, len(m.jobs)), 0.0
	for i, t := range p.Treat(m.f, m.jobs) {
		list[i] = m.jobs[i].As(&t)
		gpus += float64(m.jobs[i].GPUs)
	}
	times := flow.Steady(m.f, list)
	for i, t := range alone.Treat(m.f, m.jobs) {
		j := &m.jobs[i]
		alone := max(j.Compute, j.Release+network.Alone(m.f, j.Demand.On(&t)))
		part := float64(j.GPUs) / gpus / float64(max(times[i], alone))
		computing += part * float64(j.Compute)
		speed += part * float64(alone)
	}
	return computing, speed
}

// traffic compares all traffic policies by what they get done in mixes of jobs.
func (t *Table) traffic(ctx context.Context, cases, drawn int) error {
	s := Section{Title: "Every policy on the same mixes", About: "What `--traffic` gets done, in the model: the part of the time that GPUs compute (which Crux maximises), and their speed, of that alone on the network (no job counts as faster than that, as in replays); GPUs count alike, mixes too. " +
		"Then in how many of the mixes the policy is better than `muster` by more than 1 %, by either measure. `muster` maximises speed, and no other is faster in any mix; for it, it gives up computing where `crux` computes more: [why](../reference/network.md#policies). " +
		"One link, paths, classes: the cases above. Clos: up to nine jobs of two to five nodes, drawn, with and without overlap, on two to four leaves. Crowds: 26 to 106 jobs of two to sixteen nodes and all built-in models, drawn, on 22 leaves of 16 nodes at 4:1, far more than that network carries. Measured link: the six mixes for which jobs were measured on a real link.",
		Head: []string{"mixes", "policy", "computing", "speed", "computes more", "is faster"}}
	for _, k := range []struct {
		name string
		n    int
		get  func(n int) mix
	}{{"one link", cases, func(n int) mix {
		return mix{traffic.Fabric{Links: compat.Unit{}, Classes: 8}, compat.NewCruxCase(n).OneLink}
	}}, {"paths", cases, func(n int) mix {
		return mix{traffic.Fabric{Links: compat.Unit{}, Classes: 8}, compat.NewCruxCase(n).Paths}
	}}, {"classes", cases, func(n int) mix {
		c := compat.NewCruxCase(n)
		return mix{traffic.Fabric{Links: compat.Unit{}, Classes: c.Classes}, c.Classify}
	}}, {"Clos", drawn, func(n int) mix { return closMix(5000 + uint64(n)) }},
		{"crowds", drawn / 50, crowdMix}, // each takes a minute
		{"measured link", len(realMixes), realMix}} {
		if k.n == 0 {
			continue
		}
		cells, err := compareTraffic(ctx, k.name, k.n, k.get)
		if err != nil {
			return err
		}
		s.Cells = append(s.Cells, cells...)
	}
	t.Sections = append(t.Sections, s)
	return ctx.Err()
}

func compareTraffic(ctx context.Context, name string, n int, get func(n int) mix) (cells [][]string, err error) {
	names := traffic.Names()
	policy := func(name string) traffic.Policy {
		p, e := traffic.New(name)
		if e != nil {
			err = e
		}
		return p
	}
	got := make([][][2]float64, n)
	var wait sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		wait.Go(func() {
			for k := w; k < n && ctx.Err() == nil; k += workers {
				m := get(k)
				for _, p := range names {
					c, s := m.done(policy(p), policy("crux"))
					got[k] = append(got[k], [2]float64{c, s})
				}
			}
		})
	}
	wait.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	own := len(names) - 1 // muster
	for p, policy := range names {
		var mean [2]float64
		var better [2]int
		for _, g := range got {
			for k := range mean {
				mean[k] += g[p][k] / float64(n)
				if g[p][k] > 1.01*g[own][k] {
					better[k]++
				}
			}
		}
		cells = append(cells, []string{some(p == 0, "%s", fmt.Sprintf("%s, %d", name, n)), "`" + policy + "`",
			fmt.Sprintf("%.2f %%", 100*mean[0]), fmt.Sprintf("%.2f %%", 100*mean[1]),
			some(p != own, "%s", strconv.Itoa(better[0])), some(p != own, "%s", strconv.Itoa(better[1]))})
	}
	return cells, err
}
