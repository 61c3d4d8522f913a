package scale

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/internal/knobs"
	"github.com/muster-gpu/muster/service"
)

var cocktailKind = kind{knobs.Kind{Name: "cocktail",
	About: "Cocktail: several variants answer each request and vote, the cheapest that are accurate enough together",
	Knobs: []knobs.Knob{
		{Name: "together", Default: "0.8", About: "part of the requests on which variants do not err independently"},
		{Name: "over", Default: "0.1", About: "part by which the forecast is exceeded on purpose"},
		{Name: "window", Default: "2m", About: "replicas leave when none of this time needed them"}}}, newCocktail}

// Ensembler is a policy under which all variants that run answer each request, and vote.
type Ensembler interface {
	Policy
	// Accuracy is that of the answers of some of a service's variants, given as bits.
	Accuracy(s *service.Service, members uint64) float64
	// Check reports as an error why a service's variants cannot vote.
	Check(s *service.Service) error
}

// cocktail follows Cocktail (Gunasekaran et al., NSDI 2022): of the variants that keep the latency, those that are
// cheapest for the forecast rate while their weighted majority is accurate enough. The paper drops members one by one
// while the others agree often enough; the accuracies are known here, so all combinations are compared.
type cocktail struct {
	together, over float64
	rate           forecast
	recent         peak
	known          map[uint64]float64 // accuracies, by members
}

// mostMembers bounds the combinations that are compared.
const mostMembers = 10

func newCocktail(k *knobs.Set) (Policy, error) {
	c := &cocktail{known: map[uint64]float64{}}
	var err error
	if c.together, err = k.Number("together", 0, 1); err != nil {
		return nil, err
	}
	if c.over, err = k.Number("over", 0, 10); err != nil {
		return nil, err
	}
	c.recent.window, err = k.Duration("window")
	return c, err
}

func (c *cocktail) Check(s *service.Service) error {
	switch n := len(s.Variants); {
	case s.Language():
		return errors.New("cocktail: language models do not vote: their answers are text")
	case n > mostMembers:
		return fmt.Errorf("cocktail: at most %d variants vote, and there are %d", mostMembers, n)
	}
	for i := range s.Variants {
		if v := &s.Variants[i]; v.Accuracy == 0 {
			return fmt.Errorf("cocktail: variant %s states no accuracy", v.Name)
		}
	}
	if a := c.Accuracy(s, c.most(s)); a < s.Budget.Accuracy && s.Budget.Gives != service.Accuracy {
		return fmt.Errorf("budget: no ensemble has an accuracy of %g or more; the best has %.4f", s.Budget.Accuracy, a)
	}
	return nil
}

// Accuracy is that of a weighted majority, where each variant's vote counts as the logarithm of its odds. On a part of
// the requests variants err independently. On the others they err together: the more accurate one only where the less
// accurate one does, too.
func (c *cocktail) Accuracy(s *service.Service, members uint64) float64 {
	if a, ok := c.known[members]; ok {
		return a
	}
	var list []float64
	for i := range s.Variants {
		if members>>i&1 == 1 {
			list = append(list, s.Variants[i].Accuracy)
		}
	}
	slices.SortFunc(list, func(a, b float64) int { return cmp.Compare(b, a) })
	a := (1-c.together)*majority(list) + c.together*nested(list)
	c.known[members] = a
	return a
}

// Vote is what the vote of a variant with an accuracy weighs; it is at least a little.
func Vote(accuracy float64) float64 { return max(1e-6, weight(accuracy)) }

// weight is what the vote of a variant counts.
func weight(accuracy float64) float64 {
	a := min(max(accuracy, 1e-6), 1-1e-6)
	return math.Log(a / (1 - a))
}

// majority is the accuracy of the vote of variants that err independently; a tie is right half of the time.
func majority(accuracies []float64) (right float64) {
	for set := range 1 << len(accuracies) {
		p, balance := 1.0, 0.0
		for i, a := range accuracies {
			if set>>i&1 == 1 {
				p, balance = p*a, balance+weight(a)
			} else {
				p, balance = p*(1-a), balance-weight(a)
			}
		}
		right += p * carried(balance)
	}
	return right
}

// carried is how often the vote is right, given by how much the right votes outweigh the others.
func carried(balance float64) float64 {
	switch {
	case balance > 1e-9:
		return 1
	case balance > -1e-9:
		return 0.5
	}
	return 0
}

// nested is the accuracy of the vote of variants, by falling accuracy, of which each is right on a part of the requests
// on which the one before is.
func nested(falling []float64) (right float64) {
	balance := 0.0
	for _, a := range falling {
		balance -= weight(a)
	}
	for i, a := range falling { // the first i+1 are right, and no other
		balance += 2 * weight(a)
		next := 0.0
		if i+1 < len(falling) {
			next = falling[i+1]
		}
		right += (a - next) * carried(balance)
	}
	return right
}

// most is the most accurate ensemble within the latency.
func (c *cocktail) most(s *service.Service) (best uint64) {
	can := uint64(0)
	for i := range s.Variants {
		if x := &s.Variants[i]; x.Measure || x.Profile.Takes(x.Share(), 1) <= s.Goal.Latency {
			can |= 1 << i
		}
	}
	for set := can; set > 0; set = (set - 1) & can {
		if best == 0 || c.Accuracy(s, set) > c.Accuracy(s, best) {
			best = set
		}
	}
	return best
}

func (c *cocktail) Decide(v *View) []int {
	c.rate.see(v)
	list := v.options(true)
	if len(list) == 0 {
		return only(v, 0, max(1, v.Replicas()))
	}
	need := c.recent.highest(v.Now, c.rate.expected(v, 1)*(1+c.over))
	if need < trickle && v.Service.Replicas.Min == 0 && v.Waiting == 0 {
		return make([]int, len(v.Service.Variants))
	}
	for range 50 { // what neither budget nor replicas allow is not covered
		if best := c.choose(v, list, max(need, trickle)); best != nil {
			return best.want
		}
		need *= 0.9
	}
	return only(v, list[0].Variant, 1)
}

// voters is an ensemble with replicas for a rate.
type voters struct {
	members        int
	runs           bool // these are the variants that run now
	want           []int
	cost, accuracy float64
}

// choose returns the cheapest ensemble that is accurate enough, within the budget; among equally cheap ones that with
// fewer members, then the more accurate. What runs stays if it is hardly dearer. nil: there is none.
func (c *cocktail) choose(v *View, list []option, rate float64) (best *voters) {
	b := &v.Service.Budget
	var runs, accurate *voters
	for set := uint64(1); set < 1<<len(list); set++ {
		e := c.covering(v, list, set, rate)
		if e == nil || b.PerHour > 0 && e.cost > b.PerHour && b.Gives != service.Cost {
			continue
		}
		if accurate == nil || e.accuracy > accurate.accuracy {
			accurate = e
		}
		if e.accuracy < b.Accuracy {
			continue
		}
		if e.runs {
			runs = e
		}
		if best == nil || e.before(best) {
			best = e
		}
	}
	switch {
	case best == nil && b.Gives == service.Accuracy:
		return accurate
	case best != nil && runs != nil && runs.cost <= best.cost*1.05:
		return runs
	}
	return best
}

// before reports whether an ensemble is to be preferred.
func (e *voters) before(o *voters) bool {
	switch {
	case math.Abs(e.cost-o.cost) > 1e-9:
		return e.cost < o.cost
	case e.members != o.members:
		return e.members < o.members
	}
	return e.accuracy > o.accuracy
}

// covering lets each of some options serve a rate; nil: that takes too many replicas.
func (c *cocktail) covering(v *View, list []option, set uint64, rate float64) *voters {
	e := &voters{members: bits.OnesCount64(set), runs: true}
	n, total, members := make([]int, len(list)), 0, uint64(0)
	for k := range list {
		o := &list[k]
		if set>>k&1 == 1 {
			n[k] = int(math.Ceil(rate/o.rate - 1e-9))
			members |= 1 << o.Variant
			total += n[k]
		}
		e.runs = e.runs && (n[k] > 0) == (v.Ready[o.Variant]+v.Coming[o.Variant] > 0)
	}
	if total > v.Service.Replicas.Max {
		return nil
	}
	e.accuracy = c.Accuracy(v.Service, members)
	e.want = make([]int, len(v.Service.Variants))
	for k := range list {
		e.want[list[k].Variant] = n[k]
		e.cost += float64(n[k]) * list[k].cost
	}
	for k := range list {
		if n[k] > 0 { // the least that the service has are of its first member
			e.want[list[k].Variant] += max(0, v.Service.Replicas.Min-total)
			break
		}
	}
	return e
}
