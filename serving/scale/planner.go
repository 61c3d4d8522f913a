package scale

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/knobs"
	"github.com/muster-gpu/muster/service"
)

// sizer is a published rule that decides how large the replicas of services are.
type sizer interface {
	// sizes returns the shares of each service's replicas, and on how many GPUs the rule has all of them.
	sizes(list []demand, m *cluster.GPUModel) (shares [][]cluster.Milli, gpus int, err error)
}

// demand is a service for which replicas are planned.
type demand struct {
	service *service.Service
	variant *service.Variant
	profile service.Profile // with the batches that the service allows
	rate    float64         // requests per second
}

// sustained is the rate that a replica with a share sustains.
func (d *demand) sustained(share cluster.Milli) float64 {
	_, rate := d.profile.Sustained(share, d.profile.MaxBatch(), d.service.Goal.Latency)
	return rate
}

// shareStep is by how much shares differ that are not a rule's own.
const shareStep = 50 * cluster.Whole / 1000

// enough is a share, or the next larger one on which a replica alone sustains a rate: where a rule lets services take
// turns on a GPU, each of them computes on all of it for a part of the time, but replicas have a part all of the time.
func (d *demand) enough(share float64, rate float64) cluster.Milli {
	s := cluster.Milli(math.Ceil(share*float64(cluster.Whole/shareStep)-1e-6)) * shareStep
	for s = max(s, shareStep); s < cluster.Whole && d.sustained(s) < rate*(1-1e-9); {
		s += shareStep
	}
	return min(s, cluster.Whole)
}

// whole is replicas on whole GPUs for a rate.
func (d *demand) whole(rate float64) (list []cluster.Milli) {
	n := 1
	if r := d.sustained(cluster.Whole); r > 0 {
		n = max(1, int(math.Ceil(rate/r-1e-9)))
	}
	return slices.Repeat([]cluster.Milli{cluster.Whole}, min(n, d.service.Replicas.Max))
}

// planner is a Planner with a published rule. A plan holds until a rate has left it by a tenth (InSS' hysteresis), and
// at least for a while; rates that have fallen count only when none of the window's was higher. Where a plan takes more
// GPUs than there are, all services are planned for the same part of their rates.
type planner struct {
	sizer
	name   string
	rule   string // of batches, which goes with it; "": the default
	hold   time.Duration
	over   float64 // part by which rates are exceeded on purpose
	window time.Duration
	idle   time.Duration

	at       cluster.Time // of the plan
	services map[string]*planned
}

// planned is what a planner knows of a service.
type planned struct {
	peak
	learnt forecast
	used   bool         // it had a request
	last   cluster.Time // with a request
	demand demand
	rate   float64 // for which it was planned; 0: for none
	shares []cluster.Milli
}

const leastRate = 0.1 // requests per second for which a service is planned of which hardly any come

const drift = 0.1 // part by which a rate may change until it is planned again

// planKnobs are the knobs that all planners have.
func planKnobs(hold, over string) []knobs.Knob {
	return []knobs.Knob{{Name: "hold", Default: hold, About: "for which a plan stays at least"},
		{Name: "over", Default: over, About: "part by which rates are exceeded on purpose"},
		{Name: "window", Default: "2m", About: "shares shrink when none of this time needed them"},
		{Name: "idle", Default: "5m",
			About: "without requests for so long nothing runs, where the service allows it"}}
}

func newPlanner(name, rule string, k *knobs.Set, s sizer) (Policy, error) {
	p := &planner{sizer: s, name: name, rule: rule, services: map[string]*planned{}}
	var err error
	if p.over, err = k.Number("over", 0, 10); err != nil {
		return nil, err
	}
	if p.hold, err = k.Duration("hold"); err != nil {
		return nil, err
	}
	if p.window, err = k.Duration("window"); err != nil {
		return nil, err
	}
	p.idle, err = k.Duration("idle")
	return p, err
}

// Batching is the rule that goes with it.
func (p *planner) Batching() string { return p.rule }

// Says is how its rule came to the last plan, in words; "": it has nothing to say.
func (p *planner) Says() string {
	if s, ok := p.sizer.(interface{ says() string }); ok {
		return s.says()
	}
	return ""
}

// Check reports as an error that no variant of a service was measured on parts of GPUs.
func (p *planner) Check(s *service.Service) error {
	if s.Language() {
		return fmt.Errorf("%s plans parts of GPUs, which language models do not run on", p.name)
	}
	if p.variant(s) < 0 {
		return fmt.Errorf("%s plans parts of GPUs, and no variant that is accurate enough was measured on some: "+
			"a variant with gpus: 1, without mig, needs a profile with a share besides that of the whole GPU, "+
			"such as {share: 0.5, batch: 1, latency: 9ms}", p.name)
	}
	return nil
}

// variant is the variant that runs: of those measured on parts of GPUs and accurate enough the one that costs least for
// each request on a whole GPU. -1: there is none.
func (p *planner) variant(s *service.Service) int {
	best, least := -1, math.Inf(1)
	for i := range s.Variants {
		v := &s.Variants[i]
		low := v.Accuracy < s.Budget.Accuracy && s.Budget.Gives != service.Accuracy
		if low || v.Request.GPUs != 1 || v.Request.Profile != "" || len(v.Profile) == 0 ||
			v.Profile[0].Share == cluster.Whole || v.Profile[len(v.Profile)-1].Share < cluster.Whole {
			continue
		}
		d := demand{service: s, variant: v, profile: allowed(s, v)}
		rate := d.sustained(cluster.Whole)
		if cost := v.PerHourOf(cluster.Whole) / rate; best < 0 || cost < least {
			best, least = i, cost
		}
	}
	return best
}

// First is the least share on which the service keeps its goal at all.
func (p *planner) First(s *service.Service) Kind {
	i := max(0, p.variant(s))
	v := &s.Variants[i]
	d := demand{s, v, allowed(s, v), leastRate}
	return Kind{i, d.enough(0, leastRate)}
}

// allowed is a variant's profile with the batches that its service allows.
func allowed(s *service.Service, v *service.Variant) service.Profile {
	most := s.MaxBatch(v)
	return slices.DeleteFunc(slices.Clone(v.Profile), func(x service.Point) bool { return x.Batch > most })
}

// Decide plans for one service alone, and returns its replicas by variant.
func (p *planner) Decide(v *View) []int {
	return byVariant(v.Service, p.Plan([]*View{v})[0])
}

// Plan plans services together.
func (p *planner) Plan(views []*View) [][]Want {
	var list []demand
	var of []*planned
	again := false
	now := map[string]*planned{}
	for _, v := range views {
		s := v.Service
		x := p.services[s.Name]
		if x == nil {
			x = &planned{peak: peak{window: p.window}}
		}
		now[s.Name] = x
		rate := p.needs(x, v)
		i := p.variant(s)
		if i < 0 || v.Period == 0 && len(v.Have) > 0 {
			rate = 0
		}
		again = again || (rate == 0) != (x.rate == 0) ||
			math.Abs(rate-x.rate) > drift*x.rate && v.Now.Sub(p.at) >= p.hold
		if rate > 0 {
			x.demand = demand{s, &s.Variants[i], allowed(s, &s.Variants[i]), rate}
			list, of = append(list, x.demand), append(of, x)
			continue
		}
		x.rate, x.shares = 0, nil
	}
	again = again || len(now) != len(p.services)
	p.services = now
	if again && len(list) > 0 {
		p.at = views[0].Now
		for i, shares := range p.fitting(list, views[0].GPUs) {
			of[i].rate, of[i].shares = list[i].rate, shares
		}
	}
	wants := make([][]Want, len(views))
	for k, v := range views {
		x := now[v.Service.Name]
		switch {
		case v.Period == 0 && len(v.Have) > 0:
			wants[k] = v.found()
			continue
		case slices.ContainsFunc(v.Have, func(r Replica) bool { return r.Stuck }):
			x.around(v.Have)
		}
		wants[k] = p.wants(v, x.shares)
	}
	return wants
}

// needs is the rate that a service has to be planned for; 0: none.
func (p *planner) needs(x *planned, v *View) float64 {
	found := !x.used && v.Replicas() > 0 // what it finds running stays for a while
	if v.Arrived > 0 || v.Waiting > 0 || v.stated() > 0 || found {
		x.used, x.last = true, v.Now
	}
	x.learnt.see(v)
	rate := max(v.Rate(), x.learnt.trending(), v.stated()) // a moving mean changes plans more often than rates change
	if v.Period > 0 {
		rate += float64(v.Waiting) / v.Period.Seconds()
	}
	rate = x.highest(v.Now, rate*(1+p.over))
	if !x.used || v.Now.Sub(x.last) >= p.idle {
		if v.Service.Replicas.Min == 0 {
			return 0
		}
		return leastRate
	}
	return max(leastRate, rate)
}

// around keeps the replicas that answer where those that were to replace them find no room: what they do not sustain is
// for another one, which is smaller and fits where no larger one does.
func (x *planned) around(have []Replica) {
	var shares []cluster.Milli
	left := x.rate
	for _, r := range have {
		if r.Answers {
			shares = append(shares, r.Share)
			left -= x.demand.sustained(r.Share)
		}
	}
	if left > 0 && len(shares) > 0 {
		shares = append(shares, x.demand.enough(0, left))
	}
	if len(shares) > 0 {
		x.shares = shares
	}
}

// fitting is the shares of services' replicas for their rates, or for such a part of these that they fit on the GPUs.
func (p *planner) fitting(list []demand, gpus []GPUs) (shares [][]cluster.Milli) {
	m, number := cluster.GPUModel{}, 0
	for _, g := range gpus {
		if g.Number > number {
			number = g.Number
			if m, _ = cluster.FindModel(g.Model); m.Name == "" {
				m.Name = g.Model
			}
		}
	}
	shares = make([][]cluster.Milli, len(list))
	var can []demand
	var of []int
	for i := range list {
		if list[i].sustained(cluster.Whole) == 0 { // it is late on every GPU
			shares[i] = list[i].whole(list[i].rate)
			number = max(0, number-len(shares[i]))
			continue
		}
		can, of = append(can, list[i]), append(of, i)
	}
	for range 30 {
		sizes, used, err := p.sizes(can, &m)
		for k, i := range of {
			if err != nil { // there are no parts of such a GPU, or too many are needed
				shares[i] = can[k].whole(can[k].rate)
				continue
			}
			shares[i] = sizes[k]
		}
		if err != nil || used <= number || len(gpus) == 0 {
			break
		}
		for k := range can {
			can[k].rate *= 0.9
		}
	}
	return shares
}

// wants is a service's replicas within its bounds, by share, the largest first. Beyond the most the smallest are
// replaced by larger ones; up to the least there are more of the smallest.
func (p *planner) wants(v *View, shares []cluster.Milli) []Want {
	s := v.Service
	i := max(0, p.variant(s))
	shares = slices.Sorted(slices.Values(shares))
	for len(shares) > s.Replicas.Max {
		both := min(cluster.Whole, shares[0]+shares[1])
		shares = slices.Sorted(slices.Values(append(shares[2:], both)))
	}
	for len(shares) < s.Replicas.Min {
		least := p.First(s).Share
		if len(shares) > 0 {
			least = shares[0]
		}
		shares = append([]cluster.Milli{least}, shares...)
	}
	slices.Reverse(shares)
	list := []Want{}
	for _, share := range shares {
		if n := len(list); n == 0 || list[n-1].Share != share {
			list = append(list, Want{Kind: Kind{i, share}})
		}
		list[len(list)-1].Replicas++
	}
	if len(list) == 0 {
		list = append(list, Want{Kind: p.First(s)})
	}
	return list
}
