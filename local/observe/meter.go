//go:build linux

package observe

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

const (
	idleBelow  = 1.0 // percent
	holdsAbove = 512 // MiB of GPU memory: a context without data has less
)

// Meter is what was measured of one job; it is stored as it is.
type Meter struct {
	Samples  int                `json:"samples"`
	Seconds  float64            `json:"seconds"`
	Util     float64            `json:"util"` // percent x GPU-seconds
	GPU      float64            `json:"gpu"`  // GPU-seconds with known utilisation
	Most     map[string]float64 `json:"most,omitempty"`
	Memory   *int64             `json:"memory,omitempty"`
	Reported int64              `json:"memory_reported,omitempty"` // MiB of a GPU that the policy knows of
	Energy   *float64           `json:"energy,omitempty"`
	Idle     float64            `json:"idle,omitempty"`
	Holding  float64            `json:"holding,omitempty"`
	Every    int                `json:"every"`
	Points   []show.Point       `json:"points,omitempty"`
	Began    cluster.Time       `json:"began,omitempty"` // the run that Still is of
	// seconds for which its GPUs have been below the threshold
	Still float64       `json:"idle_streak,omitempty"`
	cpu   time.Duration // of the run, at the last sample
	run   int
}

// Measured is a meter as the interface shows it.
func (v *Meter) Measured() show.Measured {
	out := show.Measured{Samples: v.Samples, Seconds: v.Seconds, MemoryMost: v.Memory, Energy: v.Energy, Idle: v.Idle,
		Holding: v.Holding}
	if v.GPU > 0 {
		mean := v.Util / v.GPU
		out.Utilisation = &mean
	}
	for _, most := range v.Most {
		if out.Most == nil || most > *out.Most {
			out.Most = &most
		}
		if most < idleBelow {
			out.Unused++
		}
	}
	return out
}

// book adds what one GPU did.
func (v *Meter) book(uuid string, util float64, memory *int64, dt float64) {
	if v.Most == nil {
		v.Most = map[string]float64{}
	}
	v.Most[uuid] = max(v.Most[uuid], util)
	v.Util += util * dt
	v.GPU += dt
	if util < idleBelow {
		v.Idle += dt
		if memory != nil && *memory > holdsAbove {
			v.Holding += dt
		}
	}
}

// copied is a meter of its own.
func (v *Meter) copied() *Meter {
	c := *v
	c.Points, c.Most = slices.Clone(v.Points), maps.Clone(v.Most)
	return &c
}

// plus adds what is known; nil: nothing is.
func plus[T int64 | float64](a, b *T) *T {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	v := *a + *b
	return &v
}

// MeterOf is what was stored of a job; a job of which nothing was measured has an empty meter.
func MeterOf(ctx context.Context, st *store.Store, id int) (*Meter, error) {
	v := &Meter{}
	text, err := st.Usage(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return v, nil
	}
	if err != nil {
		return nil, err
	}
	return v, json.Unmarshal(text, v)
}

// Show is what was measured of a job; each is the price of a GPU-hour.
func (v *Meter) Show(j *show.Job, each float64) show.Samples {
	s := show.Samples{Measured: v.Measured(), Every: max(1, v.Every), Points: v.Points, Cost: costOf(j.GPUHours, each)}
	s.Measured.CPU, s.Measured.RAM = j.CPUTime, j.RAMPeak
	if s.Points == nil {
		s.Points = []show.Point{}
	}
	for i := range s.Points {
		s.Measured.RAM = max(s.Measured.RAM, s.Points[i].RAM)
	}
	return s
}
