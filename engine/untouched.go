package engine

import (
	"reflect"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/order"
)

// Untouched is all that the engine knows, besides its spec, of a job that has only waited so far: elements of an array
// of which it is the same can be written down as one.
type Untouched struct {
	Parked   Parked
	Eligible bool
	Since    cluster.Time
	Lined    cluster.Time
	Hungry   cluster.Time
	Start    cluster.Time // the first; Never: there was none
	Weight   int64
	Tasks    int32
	Key      order.Key
	// Predicted is how long such jobs ran.
	Predicted time.Duration
}

// Untouched returns what is known of a job that has only waited so far; false: something happened to it.
func (r *JobRecord) Untouched() (Untouched, bool) {
	u := Untouched{Parked: r.Parked, Eligible: r.Eligible, Since: r.Since, Lined: r.Lined, Hungry: r.Hungry, Weight: r.Weight, Tasks: r.Tasks,
		Key: r.Key, Predicted: r.Predicted, Start: r.FirstStart}
	rest := *r
	rest.Spec, rest.Parked, rest.Eligible, rest.Since, rest.Lined, rest.Hungry, rest.Weight = nil, 0, false, 0, 0, 0, 0
	rest.Tasks, rest.Key, rest.Predicted, rest.FirstStart = 0, order.Key{}, 0, 0
	return u, reflect.ValueOf(&rest).Elem().IsZero() // so that a field that is new counts as something that happened
}
