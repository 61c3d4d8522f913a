package driver

import (
	"cmp"
	"slices"

	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/show"
)

// Fair says what fair shares and the priorities of waiting jobs are made of.
func Fair(e *engine.Engine, policy string) show.Fair {
	list, counted := e.FairShares()
	v := show.Fair{Policy: policy, Counted: counted, Shares: []show.Share{}}
	type family struct{ queue, user string } // siblings: queues below one, or users in one
	sum := map[family]int64{}
	of := func(s *engine.FairShare) family {
		if s.User != "" {
			return family{s.Queue, "user"}
		}
		return family{s.Parent, ""}
	}
	for i := range list {
		sum[of(&list[i])] += list[i].Shares
	}
	for i := range list {
		s := &list[i]
		row := show.Share{Queue: s.Queue, Parent: s.Parent, User: s.User, Shares: s.Shares,
			Usage: float64(s.Usage) / 1e6, Factor: float64(s.Factor) / 1e6}
		row.Part = float64(s.Shares) / float64(max(1, sum[of(s)]))
		row.UsagePart = float64(s.Usage) / float64(max(1, s.Of))
		v.Shares = append(v.Shares, row)
	}
	weights, jobs := e.Factors()
	if weights == nil {
		return v
	}
	w := factors(weights, 1)
	v.Weights = &w
	for id, f := range jobs {
		p := show.Priority{Job: int(id), Own: f.Own / 1e6, Factors: factors(&f, 1e6)}
		p.Points = w.Age*p.Factors.Age + w.FairShare*p.Factors.FairShare + w.Size*p.Factors.Size +
			w.Partition*p.Factors.Partition + float64(p.Own)
		v.Jobs = append(v.Jobs, p)
	}
	slices.SortFunc(v.Jobs, func(a, b show.Priority) int { return cmp.Compare(a.Job, b.Job) })
	return v
}

func factors(f *engine.Factors, unit float64) show.Factors {
	return show.Factors{Age: float64(f.Age) / unit, FairShare: float64(f.FairShare) / unit,
		Size: float64(f.Size) / unit, Partition: float64(f.Partition) / unit}
}
