package config

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
)

// Validate builds an engine for the cluster, which checks everything that a run would check: names, sums of
// guarantees, windows, reservations.
func Validate(spec *cluster.Spec) error {
	p, err := policy.New("fifo")
	if err != nil {
		return err
	}
	pl, err := place.New("best-fit")
	if err != nil {
		return err
	}
	_, err = engine.New(engine.Config{Spec: *spec, Policy: p, Placer: pl})
	return err
}
