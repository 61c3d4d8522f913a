//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/journal"
	"github.com/muster-gpu/muster/local"
	"github.com/muster-gpu/muster/report"
	"github.com/muster-gpu/muster/sim"
	"github.com/muster-gpu/muster/trace"
	"github.com/muster-gpu/muster/tune"
)

// A policy that was set with a guard has the one before beside it as a shadow: what was
// submitted since and has ended is replayed under both, from an empty cluster, as
// muster tune does it. What really ran is not compared with what would have: both are
// replayed, so that they differ in the policy only.

// keepGuard looks until the daemon ends.
func keepGuard(ctx context.Context, m *local.Machine, log *slog.Logger, clock func() time.Time) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var next time.Time
	var of api.PolicyChoice // whom the next look is about
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, since, w := m.Guarded()
		switch {
		case w == nil:
			continue
		case of != now:
			of, next = now, since.Add(time.Duration(w.Every))
		}
		t := clock()
		if t.Before(next) && t.Before(w.Until) {
			continue
		}
		next = t.Add(time.Duration(w.Every))
		if err := lookOnce(ctx, m, now, since, w, !t.Before(w.Until)); err != nil && ctx.Err() == nil {
			log.Warn("the guard of the policy cannot look", "error", err)
		}
	}
}

// lookOnce judges by what there is, and goes back if that has to be.
func lookOnce(ctx context.Context, m *local.Machine, now api.PolicyChoice, since time.Time, w *api.PolicyWatch, last bool) error {
	text, worse, err := judge(ctx, m, now, since, w)
	if err != nil {
		return err
	}
	if !worse {
		return m.Looked(ctx, w, text, last)
	}
	_, err = m.SetPolicy(ctx, &api.PolicyRequest{Policy: w.Against.Policy, Place: w.Against.Place, Backfill: cmp.Or(w.Against.Backfill, "own")},
		"the guard ("+text+")")
	return err
}

// judge replays what was submitted since the change under both policies.
func judge(ctx context.Context, m *local.Machine, now api.PolicyChoice, since time.Time, w *api.PolicyWatch) (text string, worse bool, err error) {
	objective, err := tune.ParseObjective(w.Objective)
	if err != nil {
		return "", false, err
	}
	f := &tuneFlags{}
	f.flags(&cobra.Command{})
	entries, spec, err := endedSince(ctx, m, f, since)
	if err != nil {
		return "", false, err
	}
	if len(entries) < w.Jobs {
		return fmt.Sprintf("%d jobs have been submitted and ended since; it is judged from %d on", len(entries), w.Jobs), false, nil
	}
	base, err := f.baseSetup()
	if err != nil {
		return "", false, err
	}
	var setups []sim.Setup
	for _, c := range []api.PolicyChoice{now, w.Against} {
		s := base
		s.Policy, s.Placer = c.Policy, c.Place
		if c.Backfill != "" {
			if err := s.SetBackfill(c.Backfill); err != nil {
				return "", false, err
			}
		}
		setups = append(setups, s)
	}
	var runs []report.Run
	for _, out := range sim.RunAll(ctx, spec, entries, setups, wallClock()) {
		if out.Err != nil {
			return "", false, fmt.Errorf("%s: %w", out.Label, out.Err)
		}
		runs = append(runs, out.Run)
	}
	names := []string{now.Text(), w.Against.Text()}
	r, err := tune.Choose(names, runs, 0, tune.Options{Objective: objective})
	if err != nil {
		return "", false, err
	}
	text, worse = verdictOf(r, &now, w, len(entries))
	return text, worse, nil
}

// verdictOf says what a replay found; worse: the policy before is better beyond the
// bound.
func verdictOf(r *tune.Result, now *api.PolicyChoice, w *api.PolicyWatch, jobs int) (text string, worse bool) {
	i := slices.IndexFunc(r.Rows, func(row tune.Row) bool { return row.Policy == w.Against.Text() })
	if i < 0 || r.Rows[i].Out != "" || r.Rows[i].Gain == nil {
		return fmt.Sprintf("%d jobs say nothing of %s", jobs, r.Objective), false
	}
	gain := *r.Rows[i].Gain
	word, by := "less", gain
	if gain < 0 {
		word, by = "more", -gain
	}
	text = fmt.Sprintf("%s over %d jobs would have been %.1f %% %s under %s than under %s", r.Objective, jobs, 100*by, word, w.Against.Policy, now.Policy)
	return text, gain > w.Bound
}

// endedSince gathers the jobs that were submitted since, and ended.
func endedSince(ctx context.Context, m *local.Machine, f *tuneFlags, since time.Time) ([]trace.Entry, *cluster.Spec, error) {
	began, err := m.Segments(ctx)
	if err != nil {
		return nil, nil, err
	}
	h := tune.NewHistory()
	for n := range began {
		if n+1 < len(began) && began[n+1] <= cluster.Time(since.UnixNano()) {
			continue // it was over by then
		}
		var text bytes.Buffer
		if err := m.Journal(ctx, n+1, &text); err != nil {
			return nil, nil, err
		}
		j, err := journal.NewReader(fmt.Sprintf("segment %d", n+1), &text)
		if err == nil {
			err = h.Add(j)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	h.Since(cluster.Time(since.UnixNano()))
	wl, spec, err := h.Workload()
	if errors.Is(err, tune.ErrNoHistory) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	entries, err := f.prepare(wl, spec)
	if err == nil {
		h.Costs.Fill(entries, func(string) bool { return false })
	}
	return entries, spec, err
}
