package foresight

import (
	"context"
	"slices"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// offUpTo are the steps in which a report counts how far expected starts were off.
var offUpTo = []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 0}

// ScoreSince compares what was said of jobs since a time with what happened.
func ScoreSince(ctx context.Context, st *store.Store, since time.Time) (show.Score, error) {
	starts, err := st.Predictions(ctx, since.UnixNano())
	if err != nil {
		return show.Score{}, err
	}
	ends, err := st.Ends(ctx, since.UnixNano())
	return score(starts, ends), err
}

// score compares when jobs were said to start, and to end by their own account, with what happened.
func score(starts, ends []store.Prediction) (s show.Score) {
	s.Off = []show.Off{}
	for _, d := range offUpTo {
		s.Off = append(s.Off, show.Off{UpTo: ask.Duration(d)})
	}
	var errs, later []int64
	for _, p := range starts {
		off := p.Happened - p.Expected
		if p.Later {
			if s.Later++; p.Happened != 0 {
				later = append(later, max(off, -off))
			}
			continue
		}
		s.Predicted++
		if p.Happened == 0 {
			continue
		}
		s.Started++
		if off < 0 {
			s.Early++
		}
		off = max(off, -off)
		errs = append(errs, off)
		s.Off[slices.IndexFunc(offUpTo, func(d time.Duration) bool { return d == 0 || off <= int64(d) })].Jobs++
		if p.High > 0 {
			s.Intervals++
			if p.Low <= p.Happened && p.Happened <= p.High {
				s.Within++
			}
		}
	}
	s.Median, s.Ninety = spread(errs)
	s.LaterMedian, s.LaterNinety = spread(later)
	scoreEnds(ends, &s)
	return s
}

func scoreEnds(ends []store.Prediction, s *show.Score) {
	var errs []int64
	for _, p := range ends {
		s.EndsPredicted++
		if p.Happened != 0 {
			s.Ended++
			errs = append(errs, max(p.Happened-p.Expected, p.Expected-p.Happened))
		}
	}
	s.EndMedian, s.EndNinety = spread(errs)
}

// spread is the median of errors, and what nine of ten are not beyond.
func spread(errs []int64) (median, ninety ask.Duration) {
	if slices.Sort(errs); len(errs) == 0 {
		return 0, 0
	}
	return ask.Duration(errs[len(errs)/2]), ask.Duration(errs[len(errs)*9/10])
}
