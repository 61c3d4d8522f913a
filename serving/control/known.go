package control

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/muster-gpu/muster/gateway"
)

// Known is what was measured of a service. It is kept while the service is.
type Known struct {
	Times   map[string][]gateway.Size `json:"times,omitempty"` // of batches, by variant
	Beside  []Beside                  `json:"beside,omitempty"`
	Returns Returns                   `json:"returns,omitzero"`
}

// Beside is how long batches of a variant took while a replica of another computed on the same GPU, or none.
type Beside struct {
	Variant string         `json:"variant"`
	Other   string         `json:"other,omitempty"` // SERVICE/VARIANT; "": it was alone
	Times   []gateway.Size `json:"times"`
}

func timesOf(list []gateway.Size) times {
	t := times{}
	for _, x := range list {
		t[x.Requests] = &x
	}
	return t
}

// list is what timesOf reads.
func (t times) list() (list []gateway.Size) {
	for _, n := range slices.Sorted(maps.Keys(t)) {
		list = append(list, *t[n])
	}
	return list
}

func (k *Known) besides(variant string) besides {
	b := besides{}
	for _, x := range k.Beside {
		if x.Variant == variant {
			b[x.Other] = timesOf(x.Times)
		}
	}
	return b
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
		s.Known.Times, s.Known.Beside = map[string][]gateway.Size{}, nil
		for i := range s.Variants {
			name := s.Variants[i].Name
			s.Known.Times[name] = s.times[i].list()
			for _, other := range slices.Sorted(maps.Keys(s.beside[i])) {
				s.Known.Beside = append(s.Known.Beside, Beside{name, other, s.beside[i][other].list()})
			}
		}
		err = errors.Join(err, c.opt.Store.PutKnown(ctx, name, &s.Known))
	}
	return err
}
