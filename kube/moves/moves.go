// Package moves finds out, with a second engine, which gangs are to be moved so that others fit, or nodes are empty,
// and which of them disruption budgets keep where they are; and knows how far a gang is that is moved. It changes
// nothing.
package moves

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/show"
)

// Question is what a second engine is asked, and what it has to know.
type Question struct {
	By       engine.Compact
	Job      cluster.JobID
	Snapshot engine.Snapshot
	Config   engine.Config
	Numbers  map[cluster.JobID]int // as people know them
	Names    map[cluster.JobID]string
	Pods     map[cluster.JobID][]*v1.Pod // of those that it may move
}

// Answer is what was found. Moves that are to be made are of these jobs.
type Answer struct {
	*Question
	Jobs  []cluster.JobID // none: no job is to be moved
	Shown []show.Moves    // then: what people are told
}

// mostTries bounds how often moves are looked for again without those that a disruption budget keeps where they are.
const mostTries = 5

// Find looks for moves that are worth it and that disruption budgets allow. gather makes the question; kept are gangs
// that are not to be moved, and why.
func Find(ctx context.Context, gather func(kept map[cluster.JobID]string) (*Question, error),
	budgets Budgets) (*Answer, error) {
	kept := map[cluster.JobID]string{}
	for try := 0; ; try++ {
		q, err := gather(kept)
		if err != nil {
			return nil, err
		}
		list, err := q.Look()
		if err != nil {
			return nil, err
		}
		jobs := worth(list)
		refused, err := budgets.refuse(ctx, jobs, q)
		if err != nil {
			return nil, err
		}
		maps.Copy(kept, refused)
		switch {
		case len(jobs) == 0 || len(refused) > 0 && try+1 == mostTries:
			return &Answer{Question: q, Shown: q.show(list, kept)}, nil
		case len(refused) == 0:
			return &Answer{Question: q, Jobs: jobs}, nil
		}
	}
}

// Look asks a second engine.
func (q *Question) Look() ([]engine.Moves, error) {
	e, err := engine.Restore(q.Config, &q.Snapshot)
	if err != nil {
		return nil, fmt.Errorf("a second engine cannot be made: %w", err)
	}
	if q.By != engine.NoCompact {
		return e.LookForEmptying(q.By), nil
	}
	return e.LookForMoves(q.Job), nil
}

// Plan says which moves there are, worth it or not.
func (q *Question) Plan() ([]show.Moves, error) {
	list, err := q.Look()
	return driver.Moves(list, q.number), err
}

// Line is the first moves that are worth it, in one line, with the numbers that people know; "": none are.
func (q *Question) Line() (string, error) {
	list, err := q.Look()
	i := slices.IndexFunc(list, func(m engine.Moves) bool { return m.Worth })
	if i < 0 {
		return "", err
	}
	c := list[i]
	c.Moves = slices.Clone(c.Moves)
	known := func(id cluster.JobID) cluster.JobID { return cluster.JobID(q.number(id)) }
	for i := range c.Moves {
		x := &c.Moves[i]
		x.Job, x.After = known(x.Job), slices.Clone(x.After)
		for k := range x.After {
			x.After[k] = known(x.After[k])
		}
	}
	return c.String(), nil
}

func (q *Question) number(id cluster.JobID) int { return q.Numbers[id] }

// worth lists the jobs that are moved, by what is worth it.
func worth(list []engine.Moves) (ids []cluster.JobID) {
	for i := range list {
		for k := range list[i].Moves {
			if id := list[i].Moves[k].Job; list[i].Worth && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// show is what was found, where no job is moved.
func (q *Question) show(list []engine.Moves, kept map[cluster.JobID]string) []show.Moves {
	out := driver.Moves(list, q.number)
	text := ""
	for _, id := range slices.Sorted(maps.Keys(kept)) {
		text += fmt.Sprintf("; %s stays: %s", q.Names[id], kept[id])
	}
	for i := range out {
		if out[i].Text += text; out[i].Text == text {
			out[i].Text = strings.TrimPrefix(text, "; ")
		}
		out[i].Worth = out[i].Worth && text == ""
	}
	return out
}
