package control

import (
	"context"
	"errors"
	"time"

	"github.com/muster-gpu/muster/gateway"
)

// Known is what was measured of a service. It is kept while the service is.
type Known struct {
	Times   map[string][]gateway.Size `json:"times,omitempty"` // of batches, by variant
	Returns Returns                   `json:"returns,omitzero"`
}

// times are the times of a variant's batches.
func (k *Known) times(variant string) times {
	t := times{}
	for _, x := range k.Times[variant] {
		t[x.Requests] = &x
	}
	return t
}

// keptEvery is how often what is known of a service is stored.
const keptEvery = time.Minute

// keep stores what is known of services, what was given back at once.
func (c *Controller) keep(ctx context.Context, now time.Time) (err error) {
	for _, name := range c.names() {
		s := c.services[name]
		returned := s.Known.Returns.Number != s.keptReturns
		if s.deleted || !returned && now.Sub(s.keptAt) < keptEvery {
			continue
		}
		s.keptAt, s.keptReturns = now, s.Known.Returns.Number
		s.Known.Times = map[string][]gateway.Size{}
		for i := range s.Variants {
			for _, x := range s.times[i] {
				s.Known.Times[s.Variants[i].Name] = append(s.Known.Times[s.Variants[i].Name], *x)
			}
		}
		err = errors.Join(err, c.opt.Store.PutKnown(ctx, name, &s.Known))
	}
	return err
}
