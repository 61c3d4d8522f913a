package driver

import (
	"errors"
	"fmt"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/show"
)

// ErrProtected is returned for moves in a protected time.
var ErrProtected = errors.New("no job is moved now")

// MayMove says why no moves are made at an instant of the calendar (Unix nanoseconds), even on request; nil:
// they may be.
func MayMove(d *engine.Defrag, at cluster.Time) error {
	if text := d.Protected.Says(int64(at / cluster.Time(time.Second))); text != "" {
		return fmt.Errorf("%w: %s", ErrProtected, text)
	}
	return nil
}

// Asked is the goal for which nodes are to be emptied, if the request is for that and not for moves that let a
// job start; an error is a *ask.FieldError.
func Asked(r *ask.MovesRequest) (by engine.Compact, err error) {
	switch {
	case r.Compact == "":
		return engine.NoCompact, nil
	case r.Job != 0:
		return by, &ask.FieldError{Field: "compact",
			Text: "job and compact exclude each other: nodes are not emptied for a particular job"}
	}
	if by, err = engine.ParseCompact(r.Compact); err != nil {
		return by, &ask.FieldError{Field: "compact", Text: err.Error()}
	}
	return by, nil
}

// Moves converts the engine's moves for people and programs; number is the number of a job as they know it.
func Moves(list []engine.Moves, number func(cluster.JobID) int) []show.Moves {
	out := make([]show.Moves, 0, len(list))
	for i := range list {
		p := &list[i]
		v := show.Moves{Name: p.Name, Empties: p.Empties, GPUs: p.GPUs, Part: p.Part, Milli: p.Milli, On: p.On,
			Cost: p.Cost.Seconds(), Without: instant(p.Without), Start: instant(p.Start), Saved: ask.Duration(p.Saved),
			Weight: float64(p.Weight) / 1000, Benefit: p.Benefit.Seconds(), Worth: p.Worth, Made: p.Made, Text: p.Text}
		if p.Job != cluster.NoJob {
			v.Job = number(p.Job)
		}
		for k := range p.Moves {
			x := &p.Moves[k]
			v.Moves = append(v.Moves,
				show.Move{Job: number(x.Job), Name: x.Name, GPUs: x.GPUs, Part: x.Part, From: x.From, To: x.To,
					Stop: ask.Duration(x.Stop), Restart: ask.Duration(x.Restart),
					Lost: ask.Duration(x.Lost), Wait: ask.Duration(x.Wait), Cost: x.Cost.Seconds(),
					Replaced: x.Replaced})
			for _, id := range x.After {
				v.Moves[k].After = append(v.Moves[k].After, number(id))
			}
		}
		out = append(out, v)
	}
	return out
}

// instant is a time as shown; nil: never.
func instant(t cluster.Time) *time.Time {
	if t == cluster.Never {
		return nil
	}
	v := time.Unix(0, int64(t)).UTC()
	return &v
}
