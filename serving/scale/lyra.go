package scale

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/knobs"
)

var lyraKind = kind{knobs.Kind{Name: "lyra",
	About: "Lyra: whole servers for the highest rate of a while or of the forecast; the rest is lent",
	Knobs: []knobs.Knob{
		{Name: "headroom", Default: "0.2", About: "part of that rate for which there is more"},
		{Name: "window", Default: "10m", About: "servers are lent when none of this time needed them"},
		{Name: "unit", Default: "0", About: "GPUs that are lent together; 0: all of a server (on one machine: one)"}}}, newLyra}

// lyra follows Lyra (Li et al., EuroSys 2023, section 4): what inference does not need for its predicted peak, headroom
// included, is lent as whole servers. What runs there yields when a service wants servers back: jobs of a lower tier,
// elastic ones by shrinking.
type lyra struct {
	headroom float64
	unit     int
	rate     forecast
	recent   peak
}

func newLyra(k *knobs.Set) (Policy, error) {
	l := &lyra{}
	var err error
	if l.headroom, err = k.Number("headroom", 0, 10); err != nil {
		return nil, err
	}
	unit, err := k.Number("unit", 0, 64)
	if err != nil {
		return nil, err
	}
	l.unit = int(unit)
	l.recent.window, err = k.Duration("window")
	return l, err
}

func (l *lyra) Decide(v *View) []int {
	l.rate.see(v)
	if len(v.options(true)) == 0 {
		return only(v, 0, max(1, v.Replicas()))
	}
	need := l.recent.highest(v.Now, l.rate.expected(v, 1)*(1+l.headroom))
	if v.Waiting > 0 {
		need = max(need, trickle)
	}
	want, _ := v.cheapest(need, 1)
	room := v.Service.Replicas.Max
	for _, n := range want {
		room -= n
	}
	for i, n := range want {
		milli := max(1, v.Service.Variants[i].Request.Milli())
		each := max(1, int(int64(l.server(v))*int64(cluster.Whole)/int64(milli)))
		more := min((each-n%each)%each, max(0, room))
		want[i], room = n+more, room-more
	}
	return want
}

// server is how many GPUs are lent together: of several models the fewest.
func (l *lyra) server(v *View) (n int) {
	if l.unit > 0 {
		return l.unit
	}
	for _, g := range v.GPUs {
		if n == 0 || g.Server < n {
			n = g.Server
		}
	}
	return max(1, n)
}
