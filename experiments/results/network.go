package results

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/muster-gpu/muster/experiments/compat"
)

// Network sets what is published of traffic policies beside ours.
func Network(ctx context.Context, traces string) (Table, error) {
	t := Table{Title: "The network: coflows, the parts of Crux, and every policy on the same mixes", Tolerance: 1e-5,
		About: "What publications say of scheduling communication, computed again."}
	if err := t.coflows(traces, compat.CoflowOrders); err != nil {
		return t, err
	}
	t.crux(ctx, cruxCases)
	if err := errors.Join(t.fabrics(ctx, traces, fabricCases, 1), t.cassini()); err != nil {
		return t, err
	}
	return t, t.traffic(ctx, cruxCases, 300)
}

// publishedCoflows are mean completion times that the simulator published with Sincronia prints for coflow500.txt,
// under greedy rates and under MADD.
var publishedCoflows = map[string][2]float64{"PD": {2122.95, 2372.25}, "SEBF": {2235.54, 2435.65},
	"TCF": {2318.38, 2482.83}, "SCF": {3772.88, 2511.52}, "NCF": {8456, 4214.79}}

// coflowRate is the rate of a port when coflows come one after the other, in MB a second.
const coflowRate = 64

// coflows plays 500 coflows in some orders, of which the first is PD: all at once and, but for PD, as they come.
func (t *Table) coflows(traces string, orders []string) error {
	ports, list, err := compat.ReadCoflows(filepath.Join(traces, "coflow", "coflow500.txt"))
	if err != nil {
		return err
	}
	s := Section{Title: "500 coflows at once", About: "Completion times in units of a MB on a port; the switch has 150. " +
		"PD is BSSI in the arithmetic of the simulator that was published with Sincronia (32 bits), BSSI that of `--traffic sincronia`. The published means are what that simulator prints for the same file; " +
		"where there is none, it does not have the order. Weighted is the mean by the coflows' weights.",
		Head: []string{"order", "rates", "published mean", "mean", "weighted", "p95", "p99", "makespan"}}
	row := func(order, rates string, got compat.CoflowTimes, published string) []string {
		sum, weights := got.Weighted()
		return []string{order, rates, published, fmt.Sprintf("%.3f", got.Sum()/float64(len(list))),
			fmt.Sprintf("%.3f", sum/weights), whole(got.Percentile(95)), whole(got.Percentile(99)), whole(got.Makespan)}
	}
	add := func(order, rates string, got compat.CoflowTimes, published float64) {
		text := ""
		if published > 0 {
			text = fmt.Sprintf("%.2f", published)
			t.Rows = append(t.Rows, Row{"500 coflows, " + order + ", " + rates, "mean completion time", published,
				got.Sum() / float64(len(list)), ""})
		}
		s.Cells = append(s.Cells, row(order, rates, got, text))
	}
	for _, order := range orders {
		add(order, "greedy", compat.GreedyCoflows(order, ports, list, 0), publishedCoflows[order][0])
	}
	for _, order := range orders {
		if p, is := publishedCoflows[order]; is {
			add(order, "MADD", compat.MADDCoflows(order, ports, list), p[1])
		}
	}
	online := Section{Title: "500 coflows as they come", About: fmt.Sprintf("The same, released at their times, with %d MB a second on a port; what is left is ordered again whenever a coflow comes or ends. "+
		"Slowdown is the mean of completion time by what the coflow takes alone. BSSI's guarantee is for the worst case, and for coflows that are there at once: here SEBF is better by 1 %%."+
		" NCF is not as in the program that this table was compared with, which has the sum 868719, so that ours is 55 %% more (weighted mean 1883.815: 55 %%, p95 10818: 84 %%, p99 29563: 46 %%); all other rows are. It was not found by the smaller or the larger of the numbers of sources and destinations, by their sum, by either, or by the number of flows, of the whole coflow or of what is left of it, with ties by number (ascending or descending), size, weight or width, ordered again at releases and completions, at either of them, or at every event; nor, at releases and completions, with ties by what is left on the busiest port, of the largest flow or of all flows, or by the order before. Nearest is 867686: the smaller of all sources and of the destinations left, at releases only.", coflowRate),
		Head: []string{"order", "sum", "mean", "weighted", "p95", "p99", "makespan", "slowdown"}}
	for _, order := range orders[1:] {
		got := compat.GreedyCoflows(order, ports, list, coflowRate)
		cells := row(order, strconv.Itoa(int(got.Sum())), got, "")
		online.Cells = append(online.Cells, append(slices.Delete(cells, 2, 3), fmt.Sprintf("%.4f", got.Slowdown())))
	}
	t.Sections = append(t.Sections, s, online)
	return nil
}
