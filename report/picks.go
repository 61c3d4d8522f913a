package report

import "strings"

// A page of many runs opens with a few of them.
const (
	manyRuns = 8 // exceeds the number of colours
	fewRuns  = 5
)

// Runs that readers know: the default of muster serve, and the usual baseline.
const byDefault, baseline = "multifactor", "fifo"

// mainFigures are those whose best runs open a page, the most important first.
var mainFigures = []string{"jct.mean", "jct.p99", "goodput", "finish_time_ratio.p95"}

// pick is a run that is shown first, with the reason.
type pick struct {
	Run int    `json:"run"`
	Why string `json:"why"`
}

// picks are the runs with which a page of many opens: the default of muster serve, the baseline,
// and the best by each main figure; if some of these coincide, the runs with the next best mean
// completion times are added. None: the page shows all.
func picks(sums []Summary) []pick {
	if len(sums) < manyRuns {
		return nil
	}
	known := []pick{}
	for _, k := range []struct{ policy, why string }{{byDefault, "what muster serve runs by default"},
		{baseline, "the baseline"}} {
		for i := range sums {
			if name, _, _ := strings.Cut(sums[i].Policy, ":"); name == k.policy {
				known = append(known, pick{i, k.why})
				break
			}
		}
	}
	var chosen []pick
	figs := figures()
	for _, key := range mainFigures {
		for f := range figs {
			if figs[f].key != key {
				continue
			}
			if i := leader(&figs[f], sums, nil); i >= 0 {
				chosen = because(chosen, known, i, "best by "+figs[f].said())
			}
		}
	}
	for f := range figs {
		for place := 2; figs[f].key == mainFigures[0] && len(chosen)+len(known) < fewRuns; place++ {
			i := leader(&figs[f], sums, func(i int) bool { return holds(chosen, i) || holds(known, i) })
			if i < 0 {
				break
			}
			chosen = append(chosen, pick{i, "next by " + figs[f].said()})
		}
	}
	if room := fewRuns - len(known); len(chosen) > room {
		chosen = chosen[:room]
	}
	return append(chosen, known...)
}

// because adds a reason to a run that is already picked, or picks it.
func because(chosen, known []pick, run int, why string) []pick {
	for _, list := range [][]pick{chosen, known} {
		for k := range list {
			if list[k].Run == run {
				list[k].Why += "; " + why
				return chosen
			}
		}
	}
	return append(chosen, pick{run, why})
}

func holds(list []pick, run int) bool {
	for _, p := range list {
		if p.Run == run {
			return true
		}
	}
	return false
}

// said is the figure's name outside the table.
func (f *figure) said() string {
	if strings.Contains(f.key, ".") && f.group != groupFair {
		return strings.ToLower(f.group) + ", " + f.label
	}
	return f.label
}
