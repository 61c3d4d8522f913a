package mig

import (
	"fmt"
	"maps"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/gpus"
)

// ask is the question which of these nodes to change, and the names of its hosts.
func (l *look) ask(wants []*Waiter, base *world, can []*candidate) (*question, []string) {
	r := l.room
	q, what := &question{Left: &l.work}, map[string]int{"": 0}
	for _, w := range wants {
		want := want{}
		for _, s := range w.Job.Tasks {
			if s.Request.GPUs == 0 {
				continue
			}
			set := taskSet{Each: s.Request.GPUs, Count: s.Count}
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
	ways := map[string]*candidate{}
	for _, c := range can {
		ways[c.obj.Name] = c
	}
	free := base.free(l.Order)
	var names []string
	for _, name := range l.Order {
		n := r.nodes[name]
		if n == nil ||
			r.opt.GPUs.Model(n.obj) == gpus.UnknownModel && ways[name] == nil && len(free[name]) == 0 {
			continue
		}
		x := host{Model: r.opt.GPUs.Model(n.obj), Free: vector(free[name])}
		if c := ways[name]; c != nil {
			x.Cost, x.Whole = c.Cost, r.whole(n)
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
			ok := w.MayBeOn(n.obj)
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
func (r *Room) milliOf(q *cluster.Request, can []*candidate) int64 {
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
