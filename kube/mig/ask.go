package mig

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/gpus"
)

// Waiter is a gang for which nodes may be changed.
type Waiter struct {
	Job   *cluster.Job        // as the engine has it, or would
	Suits func(*v1.Node) bool // labels and taints of a node let all of its pods be there, whatever it has
}

// Ask is the question which of these nodes to change, and the names of its hosts; left is what may be counted.
func (r *Room) Ask(wants []Waiter, base *World, order []string, can []*Candidate, left *int64) (*Question, []string) {
	q, what := &Question{Left: left}, map[string]int{"": 0}
	for _, w := range wants {
		want := Want{}
		for _, s := range w.Job.Tasks {
			if s.Request.GPUs == 0 {
				continue
			}
			set := Set{Each: s.Request.GPUs, Count: s.Count}
			if s.Request.Profile != "" {
				set.Each = 1
			}
			if _, ok := what[s.Request.Profile]; !ok {
				what[s.Request.Profile] = len(what)
			}
			set.What = what[s.Request.Profile]
			want.Sets = append(want.Sets, set)
			want.Milli += int64(s.Count) * r.milliOf(&s.Request, can)
		}
		if e := w.Job.Elastic; e.Min > 0 && len(want.Sets) > 0 {
			want.Sets[0].Count -= max(0, e.Max-e.Min)
		}
		q.Wants = append(q.Wants, want)
	}
	vector := func(o map[string]int) []int {
		list := make([]int, len(what))
		for p, n := range o {
			if k, ok := what[p]; ok {
				list[k] = n
			}
		}
		return list
	}
	ways := map[string]*Candidate{}
	for _, c := range can {
		ways[c.Name()] = c
	}
	free := base.Free(order)
	var names []string
	for _, name := range order {
		n := r.nodes[name]
		if n == nil ||
			r.opt.GPUs.Model(n.obj) == gpus.UnknownModel && ways[name] == nil && len(free[name]) == 0 {
			continue
		}
		x := Host{Model: r.opt.GPUs.Model(n.obj), Free: vector(free[name])}
		if c := ways[name]; c != nil {
			x.Cost, x.Whole = c.Cost, r.Whole(n)
			for _, o := range c.Offers {
				all := maps.Clone(o.Slices)
				all[""] = o.Whole
				x.To = append(x.To, vector(all))
			}
		}
		if ways[name] == nil && !slices.ContainsFunc(x.Free, func(n int) bool { return n > 0 }) { // for no gang
			continue
		}
		suits := ""
		for i, w := range wants {
			ok := w.Suits(n.obj)
			q.Wants[i].Suits = append(q.Wants[i].Suits, ok)
			suits += fmt.Sprint(ok, " ")
		}
		x.Kind = fmt.Sprint(n.rule, x.Model, x.Free, x.To, x.Whole, x.Cost, suits)
		if c := ways[name]; c != nil {
			x.Kind += fmt.Sprint(c.Configs)
		}
		q.Nodes, names = append(q.Nodes, x), append(names, name)
	}
	return q, names
}

// milliOf is how much of a GPU a task asks for.
func (r *Room) milliOf(q *cluster.Request, can []*Candidate) int64 {
	if q.Profile == "" {
		return int64(q.GPUs) * cluster.Whole
	}
	for _, c := range can {
		model, _ := cluster.FindModel(r.opt.GPUs.Model(c.obj))
		if p, ok := model.Profile(q.Profile); ok {
			return int64(p.Compute) * cluster.Whole / int64(model.Compute)
		}
	}
	return 0
}
