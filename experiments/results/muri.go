package results

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/muster-gpu/muster/experiments/compat"
	"github.com/muster-gpu/muster/trace"
)

// muriPolicy is a published row, and our policy for it. The slow ones take minutes.
type muriPolicy struct {
	theirs, ours string
	slow         bool
	world        func() compat.Profile
	reason       string
}

var muriPolicies = []muriPolicy{
	{"SRTF", "srtf", false, compat.Muri, ""},
	{"SRSF", "srsf", false, compat.Muri, ""},
	{"Tiresias_L", "tiresias-l:thresholds=3250/7200", false, compat.MuriLevels, ""},
	{"Tiresias_L", "tiresias-l:thresholds=3250/7200, its own order", false, func() compat.Profile {
		p := compat.MuriLevels()
		p.Lists = false
		return p
	}, "the paper's order within a level, by first start; theirs leaves running jobs alone"},
	{"antman", ", its rules and no policy of ours", true, func() compat.Profile {
		return compat.MuriAntMan(false)
	}, ""},
	{"antman", "antman:guests=1", true, func() compat.Profile { return compat.MuriAntMan(true) },
		"our rules: best-effort jobs leave when others need their GPUs, and share with only one job of their size; no job holds GPUs before it can start"},
	{"themis", ", its rules in rounds and no policy of ours", true, func() compat.Profile {
		return compat.MuriThemis(true)
	}, muriShares},
	{"themis", ", its rules as last published and no policy of ours", true, func() compat.Profile {
		return compat.MuriThemis(false)
	}, muriOther},
	{"themis", "themis", true, compat.Muri,
		"our rules: the paper's auctions and leases, evaluated at the world's events"},
	{"Muri_S", "muri:order=s,keep=0", true, func() compat.Profile { return compat.MuriGroups(false, true) }, ""},
	{"Muri_L", "muri:order=l,keep=0", true, func() compat.Profile { return compat.MuriGroups(true, true) }, ""},
	{"Muri_S", "muri:order=s,keep=0, its own pairs", true, func() compat.Profile {
		return compat.MuriGroups(false, false)
	}, muriTies},
	{"Muri_L", "muri:order=l,keep=0, its own pairs", true, func() compat.Profile {
		return compat.MuriGroups(true, false)
	}, muriTies},
}

// muriTies is why muri by itself is not exact, muriMixed why one cell cannot be, muriShares and
// muriOther why Themis' are not.
const (
	muriShares = "the program that gives shares has no unique optimum: theirs are by its solver's last bits, ours at the end of its path"
	muriOther  = "the figures are not of these rules: they have two decimals, and with a factor of 1.015 on every iteration a makespan has more"
	muriTies   = "many pairs are equally efficient; ours are compared in integers, theirs by rounding errors of doubles"
	muriMixed  = "the published row is of two runs: its mean JCT with \"unpack\" on, the rest with it off; with it off the mean is 89025.2295, as ours"
)

// Muri replays the traces of Muri in the world of its simulator.
func Muri(ctx context.Context, traces string) (Table, error) {
	return muriOn(ctx, traces, func(string, *muriPolicy) bool { return true })
}

// muriOn replays those rows of traces that plays says.
func muriOn(ctx context.Context, traces string, plays func(trace string, p *muriPolicy) bool) (Table, error) {
	t := Table{Title: "Muri: Figures 9 and 10, 64 GPUs", Tolerance: 1e-8,
		About: "Mean JCT, makespan and 99th percentile in seconds, as published (SIGCOMM'22); ours are equal to the last printed digit, except for the rows with a reason. " +
			"Our engine and policies decide; the world is that of the published simulator, a profile of `experiments/compat`: every iteration takes 1.5 % longer; " +
			"at each cluster event every running job loses 4 to 46 seconds of progress, moved or not; jobs that end within a relative 1e-9 end " +
			"together; the scheduler runs at arrivals, ends and demotions only; stopping and moving are free, GPUs are counted and not placed; the " +
			"percentile is the one at floor(0.99 n). Tiresias-L's levels are those of our `tiresias-l`; service is summed up in doubles, and the order inside a level is that " +
			"simulator's, whose lists put running jobs before waiting ones, whichever started first. The rows \"its own order\" show what the paper's order, which " +
			"`tiresias-l` has by itself, gives in the same world. Under Muri-S and Muri-L our `muri` decides the order, the groups and the GPUs; the world " +
			"has the speed of groups (Muri's cycle of stages, and factors of 1.33, 1.5 and 1.37 for two, three and four jobs) and, in the rows without \"its own pairs\", that " +
			"efficiencies are compared in doubles: many are equal, and their last bits decide which are paired. AntMan's " +
			"rules in that simulator cannot be those of a policy of ours (they spread a job over GPUs of several others, and loads summed up in doubles decide): the world has them, " +
			"and the engine books the running jobs; the figures of our `antman` in the same world are next to it. Themis there is a convex program that gives " +
			"every job a share of the time, and the job that ran least for its share goes first; the world has these rules, too. As last published they run at each event, and the figures " +
			"cannot be from them: iterations did not take 1.5 % longer. In rounds of 360 s, without stalls, and with speeds in iterations per second, all of which have left traces in the program, " +
			"they give the published makespans; our `themis` is next to them."}
	dir := filepath.Join(traces, "muri")
	published, err := readFigures(filepath.Join(dir, "expected_fig9_fig10.csv"))
	if err != nil {
		return t, err
	}
	for _, name := range []string{"trace1", "trace3", "trace3_pr", "trace4"} {
		wl, err := trace.Open(filepath.Join(dir, name+".csv"), trace.Options{})
		if err != nil {
			return t, err
		}
		for i := range muriPolicies {
			p := &muriPolicies[i]
			if !plays(name, p) {
				continue
			}
			pol, _, _ := strings.Cut(p.ours, ", ")
			f, err := compat.Run(ctx, p.world(), wl.Jobs, 64, pol)
			if err != nil {
				return t, fmt.Errorf("%s, %s: %w", name, p.theirs, err)
			}
			if f.Jobs != len(wl.Jobs) {
				return t, fmt.Errorf("%s, %s: %d of %d jobs completed", name, p.theirs, f.Jobs, len(wl.Jobs))
			}
			for _, r := range []struct {
				figure, key string
				ours        float64
			}{{"mean JCT", "avg_jct", f.JCT}, {"makespan", "makespan", f.Makespan}, {"p99 JCT", "p99_jct", f.P99}} {
				want, ok := published[p.theirs+"/"+r.key+"/"+name]
				if !ok {
					return t, fmt.Errorf("%s: no row for %s %s %s", dir, p.theirs, r.key, name)
				}
				reason := p.reason
				switch {
				case reason != "":
				case p.theirs == "Muri_L" && name == "trace3" && r.key == "avg_jct":
					reason = muriMixed
				}
				t.Rows = append(t.Rows,
					Row{Case: fmt.Sprintf("%s, %s (ours: %s)", name, p.theirs, strings.TrimPrefix(p.ours, ", ")),
						Figure: r.figure, Published: want, Ours: r.ours, Reason: reason})
			}
		}
	}
	return t, nil
}
