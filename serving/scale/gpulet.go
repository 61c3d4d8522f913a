package scale

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/knobs"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/serving"
)

var gpuletKind = kind{knobs.Kind{Name: "gpulet",
	About: "gpulet: all services together on parts of GPUs of fixed sizes, each at the size where it does most",
	Knobs: append(planKnobs("20s", "0.2"), knobs.Knob{Name: "interference", Default: "",
		About: "weights of the uses of two services on a GPU, such as 0.1/0.2/0.3/0.4/1; none: they do not disturb each other"})},
	newGpulet}

// gpulet follows gpulet (Choi et al., ATC 2022): a rate that saturates the most efficient size of a GPU gets parts of
// that size, the rest the smallest part that keeps the goal; two parts share a GPU, and what they use of it may slow
// both down. Services that take turns on a part get replicas of their own, each with its part of the time as a part of
// the GPU, and as much more as it needs to keep its goal there. Which two replicas meet on a GPU the scheduler decides.
type gpulet struct{ options serving.ShareOptions }

func newGpulet(k *knobs.Set) (Policy, error) {
	g := &gpulet{options: serving.ShareOptions{Tight: true}}
	if text := k.Text("interference"); text != "" {
		var l perf.Linear
		words := strings.Split(text, "/")
		if len(words) != len(l) {
			return nil, fmt.Errorf("interference=%s: want %d weights, such as 0.1/0.2/0.3/0.4/1", text, len(l))
		}
		for i, word := range words {
			v, err := strconv.ParseFloat(word, 64)
			if err != nil || !(v >= -1e3 && v <= 1e3) {
				return nil, fmt.Errorf("interference=%s: %q is not a weight from -1000 to 1000", text, word)
			}
			l[i] = v
		}
		g.options.Slower = func(own, beside serving.Use, share, besideShare float64) float64 {
			return l.At(ppm(own), ppm(beside), share, besideShare)
		}
	}
	return newPlanner("gpulet", "", k, g)
}

func ppm(u serving.Use) perf.Use {
	return perf.Use{Compute: int64(u.Compute * perf.Million), Memory: int64(u.Memory * perf.Million)}
}

// needs is the least measured size up to one that sustains a rate: what is left of a GPU goes to a service as a whole
// in gpulet, however little that needs; here it stays free for others.
func (*gpulet) needs(d *demand, rate float64, size cluster.Milli) cluster.Milli {
	for _, percent := range serving.GpuletSizes() {
		s := cluster.Milli(percent) * cluster.Whole / 100
		if s < size && s >= d.profile[0].Share && d.sustained(s) >= rate {
			return s
		}
	}
	return size
}

func (g *gpulet) sizes(list []demand, m *cluster.GPUModel) (shares [][]cluster.Milli, gpus int, err error) {
	services := make([]serving.Service, len(list))
	for i := range list {
		d := &list[i]
		s := serving.Service{Name: d.service.Name, Rate: d.rate, Latency: d.service.Goal.Latency}
		for _, x := range d.profile {
			s.Points = append(s.Points, serving.Point{Batch: x.Batch, Processes: 1, Latency: x.Latency,
				Rate: float64(x.Batch) / x.Latency.Seconds(), Percent: int(x.Share * 100 / cluster.Whole)})
		}
		if u := &d.variant.Use; u.Compute > 0 || u.Memory > 0 {
			s.Uses = []serving.Use{{Batch: d.profile.MaxBatch(), Compute: u.Compute, Memory: u.Memory}}
		}
		services[i] = s
	}
	plan, err := serving.MakeShares(m, services, g.options)
	if err != nil {
		return nil, 0, err
	}
	shares = make([][]cluster.Milli, len(list))
	sum := cluster.Milli(0)
	for i := range plan.Gpulets {
		part := &plan.Gpulets[i]
		size := cluster.Milli(part.Percent) * cluster.Whole / 100
		all := time.Duration(0)
		for t := range part.Turns {
			all += part.Turns[t].Takes
		}
		for t := range part.Turns {
			turn := &part.Turns[t]
			share := g.needs(&list[turn.Service], turn.Rate, size)
			if len(part.Turns) > 1 {
				of := float64(turn.Takes) / float64(all) * float64(size) / float64(cluster.Whole)
				share = list[turn.Service].enough(of, turn.Rate)
			}
			shares[turn.Service] = append(shares[turn.Service], share)
			sum += share
		}
	}
	return shares, max(plan.GPUs, int((sum+cluster.Whole-1)/cluster.Whole)), nil
}
