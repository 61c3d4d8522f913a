// Package amount reads quantities of Kubernetes.
package amount

import (
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-gpu/muster/cluster"
)

// Quantities are written by tenants and kubelets. One that does not fit into 64 bits reads as 0 or as a negative
// number in the API's own conversion, so every quantity is read through these functions: what is too large stays
// large, what is negative counts as nothing, and thousands of them can be added up.
const (
	mostMilli = 4 * cluster.MaxMilli // more than one request may ask for, so that the engine refuses it
	mostMiB   = 4 * cluster.MaxMiB
	mostBytes = int64(1) << 62
	mostCount = int64(1) << 52 // of anything else
)

// Count is a quantity in whole units, rounded up.
func Count(q *resource.Quantity) int64 { return within(q, mostCount) }

// Bytes is an amount of storage in bytes.
func Bytes(q *resource.Quantity) int64 { return within(q, mostBytes) }

func within(q *resource.Quantity, most int64) int64 {
	switch {
	case q.Sign() <= 0:
		return 0
	case q.CmpInt64(most) >= 0:
		return most
	}
	return q.Value()
}

// Milli is an amount of CPU in milli-cores, rounded up.
func Milli(q *resource.Quantity) cluster.Milli {
	switch {
	case q.Sign() <= 0:
		return 0
	case q.CmpInt64(mostMilli/1000) >= 0:
		return mostMilli
	}
	return q.MilliValue()
}

// MiB is an amount of memory in MiB; up: what is asked for is rounded up, what
// is there down.
func MiB(q *resource.Quantity, up bool) cluster.MiB {
	v := within(q, mostMiB<<20-1<<20)
	if up {
		v += 1<<20 - 1
	}
	return v >> 20
}
