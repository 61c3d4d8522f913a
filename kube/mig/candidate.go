package mig

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
)

// candidate is a node that may be changed now.
type candidate struct {
	*Node
	GPUs    int
	Configs []string
	Offers  []*config.MIGOffer
	Cost    int64 // of emptying it, in GPU-seconds; 0: it is empty
}

// candidates lists the nodes that may be changed, in order; of those that it looks at, up says which are in use and
// not about to go off, and published how many of their GPUs a driver of dynamic resource allocation published.
func (r *Room) candidates(now cluster.Time, order []string, up func(string) bool,
	published func(string) int) (list []*candidate) {
	for _, name := range order {
		n := r.nodes[name]
		if n == nil || n.rule == 0 {
			continue
		}
		c, why := r.candidate(n, now, up, published)
		if why != "" {
			if key := name + " " + why; !r.said[key] {
				r.said[key] = true
				r.opt.Log.Warn("a node is not partitioned otherwise", "node", name, "why", why)
			}
			continue
		}
		if c != nil {
			list = append(list, c)
		}
	}
	return list
}

// candidate says how a node may be partitioned; nil: not now. why is what people have to see to.
func (r *Room) candidate(n *Node, now cluster.Time, up func(string) bool,
	published func(string) int) (c *candidate, why string) {
	l := n.obj.Labels
	rule := &r.opt.Rules[n.rule-1]
	file := r.maps[rule.Key()]
	state := l[r.opt.Labels.State]
	switch {
	case file == nil || file.configs == nil, n.step != "" || n.busy || n.asked, !up(n.obj.Name),
		state == statePending || state == stateRebooting:
		return nil, ""
	case n.note.Config != "" && time.Unix(0, int64(now)).Sub(n.note.Since) < rule.Keep:
		return nil, ""
	case time.Unix(0, int64(now)).Before(n.again):
		return nil, ""
	}
	if s := l[r.opt.Labels.Strategy]; s != "" && s != "mixed" {
		return nil, fmt.Sprintf("label %s is %s: only with mixed its slices have names of their own",
			r.opt.Labels.Strategy, s)
	}
	if r.opt.GPUs.ReplicasOn(n.obj).Name != "" || published(n.obj.Name) > 0 {
		return nil, "its GPUs are shared by replicas, or published by a driver"
	}
	name := r.opt.GPUs.Model(n.obj)
	model, ok := cluster.FindModel(name)
	if !ok || len(model.Profiles) == 0 {
		return nil, fmt.Sprintf("its GPUs (%s) cannot be partitioned, or Muster does not know how", name)
	}
	have := r.offer(n.raw)
	if !have.Equal(r.offer(n.obj.Status.Capacity)) {
		return nil, "not all of its devices are healthy"
	}
	c = &candidate{Node: n, GPUs: r.gpus(n, &model)}
	if c.GPUs == 0 {
		return nil, fmt.Sprintf("how many GPUs it has is not known: %s with %s is not what its slices come from, and label %s does not say",
			r.opt.Labels.Config, l[r.opt.Labels.Config], r.opt.Labels.Count)
	}
	if r.waysOfRule(c, rule, file, &model, have); len(c.Configs) == 0 {
		return nil, ""
	}
	return c, ""
}

// waysOfRule finds what a rule's configurations make of a node, besides what it has.
func (r *Room) waysOfRule(c *candidate, rule *Rule, file *ways, model *cluster.GPUModel, have config.MIGOffer) {
	names := rule.Configs
	if len(names) == 0 {
		names = file.configs.Names()
	}
	f := r.failures(c.Node)
	for _, name := range names {
		// mig-manager goes by changes of the label: it would do nothing
		if name == c.obj.Labels[r.opt.Labels.Config] {
			continue
		}
		o, err := file.configs.Offer(name, model, c.GPUs)
		if err != nil {
			if len(rule.Configs) > 0 {
				r.sayMap(rule, file, model.Name, err)
			}
			continue
		}
		if o.Equal(have) || f != nil && f.Why[name] != "" ||
			slices.ContainsFunc(c.Offers, func(x *config.MIGOffer) bool { return x.Equal(o) }) {
			continue
		}
		c.Configs, c.Offers = append(c.Configs, name), append(c.Offers, &o)
	}
}

// sayMap says once of a configuration that the file names why it cannot be: in the log, and as an event of the
// ConfigMap.
func (r *Room) sayMap(rule *Rule, file *ways, model string, err error) {
	if key := fmt.Sprint(rule.Key(), model, err); !r.said[key] {
		r.said[key] = true
		r.opt.Log.Error("a configuration cannot be", "configmap", rule.Key(), "model", model, "error", err)
		r.opt.Writer.MapEvent(file.object, v1.EventTypeWarning, "NotPossible",
			fmt.Sprintf("on nodes with %s: %v", model, err))
	}
}

// noteFor is what is written down of a node that is to be changed in a way, but for which gangs.
func (r *Room) noteFor(c *candidate, way int) Note {
	return Note{Config: c.Configs[way], From: c.obj.Labels[r.opt.Labels.Config], GPUs: c.GPUs, Offer: c.Offers[way],
		Failed: r.failures(c.Node)}
}

// gpus is how many GPUs a node has, in slices or not; 0: it is not known. Slices alone do not tell: it is what makes of
// its configuration what it has, or what was noted if some configuration makes what it has of so many (it may have lost
// one since), or what a label says.
func (r *Room) gpus(n *Node, m *cluster.GPUModel) int {
	have := r.offer(n.raw)
	if len(have.Slices) == 0 {
		return have.Whole
	}
	if f := r.maps[r.opt.Rules[n.rule-1].Key()]; f != nil && f.configs != nil {
		makes := func(name string) bool {
			o, err := f.configs.Offer(name, m, n.note.GPUs)
			return err == nil && o.Equal(have)
		}
		if n.note.GPUs > 0 && slices.ContainsFunc(f.configs.Names(), makes) {
			return n.note.GPUs
		}
		for gpus := have.Whole + 1; gpus <= cluster.MaxGPUsPerNode; gpus++ {
			if o, err := f.configs.Offer(n.obj.Labels[r.opt.Labels.Config], m, gpus); err == nil && o.Equal(have) {
				return gpus
			}
		}
	}
	gpus := 0
	if _, err := fmt.Sscan(n.obj.Labels[r.opt.Labels.Count], &gpus); err != nil || gpus < 0 ||
		gpus > cluster.MaxGPUsPerNode {
		return 0
	}
	return gpus
}
