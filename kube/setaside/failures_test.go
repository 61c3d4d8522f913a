package setaside

import (
	"fmt"
	"testing"
)

// Failures come to an end: at no single gang, or at too many.
func TestFailures(t *testing.T) {
	var f *Failures
	one := func(n int) *Failure { return &Failure{Cause: "x", Culprits: []Culprit{{Pod: fmt.Sprint(n)}}} }
	for n := 1; ; n++ {
		after, useful := f.After(&Failure{Cause: "x"})
		if !useful {
			if n != 3 {
				t.Errorf("given up at failure %d", n)
			}
			break
		}
		f = &after
	}
	f = &Failures{}
	for n := 1; ; n++ {
		after, useful := f.After(one(n))
		if !useful {
			if n != mostCulprits+1 {
				t.Errorf("given up at gang %d", n)
			}
			break
		}
		f = &after
	}
	many := one(1)
	many.Culprits = append(many.Culprits, one(2).Culprits...)
	after, useful := (&Failures{Culprits: one(0).Culprits}).After(many)
	if !useful || len(after.Culprits) != 1 || after.Blameless != 1 {
		t.Errorf("after a failure at two gangs: %+v %v", after, useful)
	}
}
