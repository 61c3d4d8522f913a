// Package guard watches a newly set policy, with the previous one as its shadow.
//
// The jobs that were submitted since the change and have ended are replayed under both policies,
// from an empty cluster, as in muster tune. Both are replayed, not compared with what really ran,
// so that only the policy differs.
package guard

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/journal"
	"github.com/muster-gpu/muster/report"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/sim"
	"github.com/muster-gpu/muster/trace"
	"github.com/muster-gpu/muster/tune"
)

// Machine is the daemon with the guarded policy.
type Machine interface {
	// Guarded returns the current policy with its guard; nil: it has none.
	Guarded() (now show.PolicyChoice, since time.Time, by *show.PolicyWatch)
	// GuardChecked stores the result of a check; over: the guard ends with it.
	GuardChecked(ctx context.Context, of *show.PolicyWatch, text string, over bool) error
	SetPolicy(ctx context.Context, r *ask.PolicyRequest, by string) (show.PolicyChange, error)
}

// Journal is the daemon's journal.
type Journal interface {
	Segments(ctx context.Context) ([]cluster.Time, error)      // their start times
	Write(ctx context.Context, segment int, w io.Writer) error // numbered from 1
}

// Replay configures replays: the costs of jobs and what is known of them.
type Replay struct {
	Base    sim.Setup
	Prepare func(*trace.Workload, *cluster.Spec) ([]trace.Entry, error)
	Clock   func() time.Duration
}

// Guard returns to the previous policy if that would have done better.
type Guard struct {
	Machine Machine
	Journal Journal
	Replay  Replay
	Log     *slog.Logger
	Now     func() time.Time
}

// Run checks periodically until the context ends.
func (g *Guard) Run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var next time.Time
	var of show.PolicyChoice // the policy of the next check
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, since, w := g.Machine.Guarded()
		switch {
		case w == nil:
			continue
		case of != now:
			of, next = now, since.Add(time.Duration(w.Every))
		}
		t := g.Now()
		if t.Before(next) && t.Before(w.Until) {
			continue
		}
		next = t.Add(time.Duration(w.Every))
		if err := g.look(ctx, now, since, w, !t.Before(w.Until)); err != nil && ctx.Err() == nil {
			g.Log.Warn("the guard of the policy cannot look", "error", err)
		}
	}
}

// look evaluates both policies and returns to the previous one if necessary.
func (g *Guard) look(ctx context.Context, now show.PolicyChoice, since time.Time, w *show.PolicyWatch,
	last bool) error {
	text, worse, err := g.judge(ctx, now, since, w)
	if err != nil {
		return err
	}
	if !worse {
		return g.Machine.GuardChecked(ctx, w, text, last)
	}
	_, err = g.Machine.SetPolicy(ctx, &ask.PolicyRequest{Policy: w.Against.Policy, Place: w.Against.Place,
		Backfill: cmp.Or(w.Against.Backfill, "own")}, "the guard ("+text+")")
	return err
}

// judge replays the jobs submitted since the change under both policies.
func (g *Guard) judge(ctx context.Context, now show.PolicyChoice, since time.Time, w *show.PolicyWatch) (text string,
	worse bool, err error) {
	objective, err := tune.ParseObjective(w.Objective)
	if err != nil {
		return "", false, err
	}
	entries, spec, err := g.endedSince(ctx, since)
	if err != nil {
		return "", false, err
	}
	if len(entries) < w.Jobs {
		return fmt.Sprintf("%d jobs have been submitted and ended since; it is judged from %d on", len(entries),
			w.Jobs), false, nil
	}
	var setups []sim.Setup
	for _, c := range []show.PolicyChoice{now, w.Against} {
		s := g.Replay.Base
		s.Policy, s.Placer = c.Policy, c.Place
		if c.Backfill != "" {
			if err := s.SetBackfill(c.Backfill); err != nil {
				return "", false, err
			}
		}
		setups = append(setups, s)
	}
	var runs []report.Run
	for _, out := range sim.RunAll(ctx, spec, entries, setups, g.Replay.Clock) {
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

// verdictOf describes the result of a replay; worse: the previous policy is better beyond the
// bound.
func verdictOf(r *tune.Result, now *show.PolicyChoice, w *show.PolicyWatch, jobs int) (text string, worse bool) {
	i := slices.IndexFunc(r.Rows, func(row tune.Row) bool { return row.Policy == w.Against.Text() })
	if i < 0 || r.Rows[i].Out != "" || r.Rows[i].Gain == nil {
		return fmt.Sprintf("%d jobs say nothing of %s", jobs, r.Objective), false
	}
	gain := *r.Rows[i].Gain
	word, by := "less", gain
	if gain < 0 {
		word, by = "more", -gain
	}
	text = fmt.Sprintf("%s over %d jobs would have been %.1f %% %s under %s than under %s", r.Objective, jobs, 100*by,
		word, w.Against.Policy, now.Policy)
	return text, gain > w.Bound
}

// endedSince gathers the jobs that were submitted since the change and have ended.
func (g *Guard) endedSince(ctx context.Context, since time.Time) ([]trace.Entry, *cluster.Spec, error) {
	began, err := g.Journal.Segments(ctx)
	if err != nil {
		return nil, nil, err
	}
	h := tune.NewHistory()
	for n := range began {
		if n+1 < len(began) && began[n+1] <= cluster.Time(since.UnixNano()) {
			continue // the segment ended before
		}
		var text bytes.Buffer
		if err := g.Journal.Write(ctx, n+1, &text); err != nil {
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
	entries, err := g.Replay.Prepare(wl, spec)
	if err == nil {
		h.Costs.Fill(entries, func(string) bool { return false })
	}
	return entries, spec, err
}
