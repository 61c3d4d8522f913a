package results

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/experiments/compat"
	"github.com/muster-gpu/muster/network/traffic"
)

// cruxCases is how many small cases Crux' paper has (section 6.2).
const cruxCases = 1500

// The parts of Crux, and what is set beside them, as keys of shares.
const (
	partPaths     = "paths"
	partPathsIn   = "paths, the window's factors"
	partAnyPaths  = "any paths"
	partOrder     = "order"
	partOrderIn   = "order, the window's factors"
	partIntensity = "intensity"
	partClipped   = "clipped"
	partPairs     = "pairs"
	partFair      = "fair"
	partAnyOrder  = "any order"
	partTwo       = "two"
	partTwoPlain  = "two by intensity"
	partClasses   = "classes"
	partFirsts    = "firsts"
	partNoClasses = "no classes"
	partAnyMap    = "any map"
	partFull      = "full"
)

// cruxShares are the GPU-seconds of computing of one case, as parts of those of the best choice.
func cruxShares(number int) map[string]float64 {
	c := compat.NewCruxCase(number)
	crux := traffic.NewCrux(traffic.Published)
	share := map[string]float64{}

	f := traffic.Fabric{Links: compat.Unit{}, Classes: len(c.Paths)}
	ts := crux.Treat(f, c.Paths)
	in, priority := crux.Priorities(f, c.Paths)
	share[partPaths], share[partAnyPaths] = pathShares(c, ts, priority)
	share[partPathsIn], _ = pathShares(c, ts, compat.PrioritiesIn(c.Paths, in))

	most, mean := compat.Best(c.OneLink, func(try func([]cluster.Treatment)) {
		compat.EveryOrder(len(c.OneLink), func(place []int) { try(compat.Classed(place)) })
	})
	ordered := func(place []int) float64 { return compat.Computed(c.OneLink, compat.Classed(place)) / most }
	in, priority = crux.Priorities(f, c.OneLink)
	_, clipped := traffic.NewCrux(2).Priorities(f, c.OneLink)
	share[partOrder], share[partIntensity] = ordered(compat.ByKey(priority)), ordered(compat.ByKey(in))
	share[partClipped], share[partPairs] = ordered(compat.ByKey(clipped)), ordered(compat.ByPairs(c.OneLink, in))
	share[partOrderIn] = ordered(compat.ByKey(compat.PrioritiesIn(c.OneLink, in)))
	share[partFair] = compat.Computed(c.OneLink, make([]cluster.Treatment, len(ts))) / most
	share[partAnyOrder] = mean / most

	n := 0.0
	for i := range c.OneLink {
		for k := range i {
			two := []traffic.Job{c.OneLink[i], c.OneLink[k]}
			in, priority := crux.Priorities(f, two)
			played := func(place []int) float64 { return compat.Computed(two, compat.Classed(place)) }
			most := max(played([]int{0, 1}), played([]int{1, 0}))
			share[partTwo] += played(compat.ByKey(priority)) / most
			share[partTwoPlain] += played(compat.ByKey(in)) / most
			n++
		}
	}
	share[partTwo] /= n
	share[partTwoPlain] /= n

	f.Classes = c.Classes
	_, priority = crux.Priorities(f, c.Classify)
	most, anyMap := 0.0, 0.0
	compat.EveryMap(len(c.Classify), c.Classes, func(class []int) {
		v := compat.Computed(c.Classify, compat.Classed(class))
		anyMap = max(anyMap, v)
		if keepsOrder(c.Classify, priority, class) {
			most = max(most, v)
		}
	})
	place := compat.ByKey(priority)
	firsts := make([]int, len(place))
	for i, p := range place {
		firsts[i] = min(p, c.Classes-1)
	}
	got := compat.Computed(c.Classify, crux.Treat(f, c.Classify))
	share[partClasses], share[partAnyMap] = got/most, got/anyMap
	share[partFirsts] = compat.Computed(c.Classify, compat.Classed(firsts)) / most
	share[partNoClasses] = compat.Computed(c.Classify, make([]cluster.Treatment, len(place))) / most
	share[partFull] = got / compat.Computed(c.Classify, compat.Classed(place))
	return share
}

// pathShares are the part of the best of all paths that treatments reach, with a class for each job by its priority,
// and that of the mean of all paths.
func pathShares(c *compat.CruxCase, chosen []cluster.Treatment, priority []float64) (share, chance float64) {
	ts := slices.Clone(chosen)
	for i, place := range compat.ByKey(priority) { // jobs that share no link on these paths may share one on others
		ts[i].Class = place + 1
	}
	most, mean := compat.Best(c.Paths, func(try func([]cluster.Treatment)) {
		compat.EveryMap(len(ts), c.Spines, func(at []int) {
			other := slices.Clone(ts)
			for i, s := range at {
				other[i].Path = []uint8{uint8(s)}
			}
			try(other)
		})
	})
	return compat.Computed(c.Paths, ts) / most, mean / most
}

// keepsOrder reports whether no job is in a later class than one of less priority that it shares a link with.
func keepsOrder(jobs []traffic.Job, priority []float64, class []int) bool {
	for a := range jobs {
		for b := range jobs {
			if priority[a] <= priority[b] || class[a] <= class[b] {
				continue
			}
			for _, l := range jobs[a].Demand.Parts[0].Paths[0] {
				if slices.Contains(jobs[b].Demand.Parts[0].Paths[0], l) {
					return false
				}
			}
		}
	}
	return true
}

// crux compares the parts of Crux with the best of all choices on small cases.
func (t *Table) crux(ctx context.Context, cases int) {
	all := make([]map[string]float64, cases)
	var wait sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		wait.Go(func() {
			for n := w; n < cases && ctx.Err() == nil; n += workers {
				all[n] = cruxShares(n)
			}
		})
	}
	wait.Wait()
	mean := func(part string) float64 {
		sum := 0.0
		for _, c := range all {
			sum += 100 * c[part] / float64(cases)
		}
		return sum
	}
	best := func(part string) (n int) {
		for _, c := range all {
			if c[part] > 1-1e-9 {
				n++
			}
		}
		return n
	}
	worst := func(part string) (at int) {
		for n, c := range all {
			if c[part] < all[at][part] {
				at = n
			}
		}
		return at
	}
	s := Section{Title: fmt.Sprintf("Crux' parts on %d small cases", cases), About: "GPU-seconds of computing in 240 s, as a part of those of the best of all choices: three to five jobs that compute and transmit for 1 to 8 s an iteration, on 1 to 32 GPUs, half of them with overlap. " +
		"Paths: three leaves, two or three spines. Order: all jobs on one link. Classes: four to six jobs on three links, two or three classes; the best of all maps that keep the order. " +
		"A program apart: another one, written from the same description of cases and rules. It computes k over the 240 s, and of gains below one transfer, too; Muster over 128 iterations of the longer job, and k is 1 where both gain less than a transfer. " +
		"That is all of the difference: with k as there (the rows that say so), paths and order are the same within 0.1 %, worst cases, too; tried with them, the classes have 98.57 % and 68.1 % in the worst case. A transfer that the end of the 240 s cuts off is up to 8 s of what a job gains, which may be all of it: so over longer windows the worst case of the order is less bad, by 12 points.",
		Head: []string{"part", "decided by", "published", "a program apart", "share of the best", "the best itself in",
			"worst case", "there: the best itself in", "worst case"}}
	reason := "the paper's cases are not published; these are drawn"
	for _, p := range []struct {
		part, title, by, apart, apartBest, apartWorst string
		published                                     float64
	}{{partPaths, "paths", "Crux", "99.77 %", "84.3 %", "87.7 %", 97.69},
		{partPathsIn, "", "k as there", "99.77 %", "84.3 %", "87.7 %", 0},
		{partAnyPaths, "", "chance (mean of all)", "96.15 %", "", "", 0},
		{partOrder, "order", "Crux: k times intensity", "98.83 %", "71.7 %", "30.8 %", 97.24},
		{partOrderIn, "", "k as there, times intensity", "98.83 %", "71.7 %", "30.8 %", 0},
		{partIntensity, "", "intensity alone", "99.62 %", "", "89.7 %", 0},
		{partClipped, "", "k within 1/2 and 2", "99.49 %", "", "78.5 %", 0},
		{partPairs, "", "k of each pair, by most wins", "", "", "", 0},
		{partFair, "", "none: equal shares", "66.2 %", "", "", 0},
		{partAnyOrder, "", "chance (mean of all)", "61.6 %", "", "", 0},
		{partTwo, "order of two", "Crux: k times intensity", "", "", "", 0},
		{partTwoPlain, "", "intensity alone", "", "", "", 0},
		{partClasses, "classes", "Crux", "98.57 %", "62.5 %", "68.0 %", 97.12},
		{partAnyMap, "", "Crux, against all maps", "98.15 %", "", "", 0},
		{partFirsts, "", "first jobs a class each, the rest the last one", "95.9 %", "", "", 0},
		{partNoClasses, "", "one class", "75.1 %", "", "", 0},
		{partFull, "", "Crux, against a class for each job", "97.3 %", "", "", 0}} {
		text := ""
		if p.published > 0 {
			text = fmt.Sprintf("%.2f %%", p.published)
			t.Rows = append(t.Rows, Row{"Crux, " + p.title, "share of the best, %", p.published, mean(p.part), reason})
		}
		s.Cells = append(s.Cells, []string{p.title, p.by, text, p.apart, fmt.Sprintf("%.2f %%", mean(p.part)),
			fmt.Sprintf("%.1f %%", 100*float64(best(p.part))/float64(cases)),
			fmt.Sprintf("%.1f %%", 100*all[worst(p.part)][p.part]), p.apartBest, p.apartWorst})
	}
	t.Sections = append(t.Sections, s, ruined(worst(partOrder)))
}

// ruined shows the case in which Crux' order loses most.
func ruined(number int) Section {
	c := compat.NewCruxCase(number)
	f := traffic.Fabric{Links: compat.Unit{}, Classes: len(c.OneLink)}
	in, priority := traffic.NewCrux(traffic.Published).Priorities(f, c.OneLink)
	byCrux, byIntensity := compat.ByKey(priority), compat.ByKey(in)
	var order []int
	most := 0.0
	compat.EveryOrder(len(c.OneLink), func(place []int) {
		if v := compat.Computed(c.OneLink, compat.Classed(place)); v > most {
			order, most = slices.Clone(place), v
		}
	})
	reference := 0
	for i := range c.OneLink {
		if c.OneLink[i].Demand.Parts[0].Bytes > c.OneLink[reference].Demand.Parts[0].Bytes {
			reference = i
		}
	}
	s := Section{Title: fmt.Sprintf("Why plain intensity does better: case %d, the worst", number),
		About: fmt.Sprintf("Crux computes k of each job against one reference (here job %d, with the most traffic): the seconds of transmission that the job gains by going before the reference, by those that the reference gains. That says which of these two should go first, and does so well: between two jobs, k times intensity nearly always finds the better order, and intensity alone does not (above). "+
			"It says nothing about any other pair. A job that the reference hardly delays gets a k near 0, and then goes after all others, too, however much those delay it together: with two jobs ahead of it there are no gaps. The last column is what each job gains in an hour by going before another one, if these two are alone. "+
			"GPU-seconds in 240 s: %.0f by k times intensity, %.0f by intensity alone, %.0f at best. Comparing every pair by its own k (most wins first) is better than one reference, but not as good as intensity alone: what two jobs lose to each other is small where they fall into step, and a third one takes the gaps in which they do. "+
			"Intensity alone assumes that a job which waits does so in full: among three and more on one link that is closer to what happens.",
			reference+1, compat.Computed(c.OneLink, compat.Classed(byCrux)),
			compat.Computed(c.OneLink, compat.Classed(byIntensity)), most),
		Head: []string{"job", "computes, s", "transmits, s", "from, s", "GPUs", "intensity", "k", "k times intensity",
			"place by that", "by intensity", "best", "gains before each other job, s an hour"}}
	for i := range c.OneLink {
		j := &c.OneLink[i]
		gains := ""
		for k := range c.OneLink {
			if k != i {
				g, _ := compat.Gains(j, &c.OneLink[k], compat.GainsWindow)
				gains += fmt.Sprintf("%s%d: %.0f", some(gains != "", "%s", ", "), k+1, g)
			}
		}
		k := priority[i] / in[i]
		text := fmt.Sprintf("%.3f", k)
		if k > 1e9 || math.IsInf(k, 1) {
			text = "∞"
		}
		s.Cells = append(s.Cells, []string{strconv.Itoa(i + 1), whole(j.Compute.Seconds()),
			whole(float64(j.Demand.Parts[0].Bytes) / 1e9), fmt.Sprintf("%g", j.Release.Seconds()),
			strconv.Itoa(int(j.GPUs)), fmt.Sprintf("%.2f", in[i]), text,
			some(text != "∞", "%.3f", priority[i]), strconv.Itoa(byCrux[i] + 1), strconv.Itoa(byIntensity[i] + 1),
			strconv.Itoa(order[i] + 1), gains})
	}
	return s
}
