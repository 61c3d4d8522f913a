// Package gangs says whose pods belong together, with how many of them a gang
// starts, and on which terms: a file for each kind of owner or group.
package gangs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
)

// sources say whose gang a pod is; the first that knows it decides. What no source
// knows, is a gang of one.
var sources = []source{
	{gang: labelled},
	{nativeGroup, []*Kind{podGroupKind, priorityKind}},
	{kueueGroup, []*Kind{localQueueKind, kueuePriorityKind, TopologyKind}},
	{volcanoGroup, []*Kind{volcanoKind}},
	{kaiGroup, []*Kind{kaiKind}},
	{jobSetGang, []*Kind{jobSetKind, trainJobKind}},
	{lwsGang, []*Kind{lwsKind}},
	{kubeflowGang, kubeflowKinds},
	{rayGang, []*Kind{rayClusterKind, rayJobKind, rayServiceKind}},
	{sparkOne, []*Kind{sparkKind}},
	{gang: jobGang},
	{gang: serviceOne},
}

// source is one of them, with the kinds of object that it reads.
type source struct {
	gang  func(*Objects, *v1.Pod) *Claim
	kinds []*Kind
}

// Claim is what a source says of a pod: the gang that it belongs to.
type Claim struct {
	Key, Name string
	// Need says what the gang has to be now; it is asked again whenever one of
	// its pods or its object changed.
	Need func(Gang) (Membership, error)
	// Object is what made the gang and says how large it is; nothing: it is not known.
	Object Key
	Kind   cluster.Kind
	// Of is the gang that a pod that is alone belongs to nevertheless: one
	// beyond those that it needs.
	Of string
}

// Gang is what a source may look at of a gang.
type Gang interface {
	ID() string         // its claim's key
	Members() []*v1.Pod // pods that still exist, in their order
	// Ahead counts its pods that a scheduler had bound when it died, and that came to their end before the next one
	// was there, if the others are what is left of that start of so many.
	Ahead(size int) int
}

// Of finds out whose gang a pod is.
func (all *Objects) Of(pod *v1.Pod) *Claim {
	for i := range sources {
		if c := sources[i].gang(all, pod); c != nil {
			return c
		}
	}
	return Alone(pod, Key{}, cluster.Training)
}

// Alone is the claim of a pod that is a gang of one.
func Alone(obj *v1.Pod, object Key, kind cluster.Kind) *Claim {
	return &Claim{Key: "pod/" + string(obj.UID), Name: obj.Namespace + "/" + obj.Name, Object: object, Kind: kind,
		Need: func(Gang) (Membership, error) { return Membership{Size: 1}, nil }}
}

// Membership says what a gang has to be.
type Membership struct {
	Size   int       // pods that it starts with
	Submit time.Time // since when it counts as waiting; zero: since its first pod was created
	// Roles are how many pods of each kind it starts with, if they are not all
	// of one kind, the most important first; Size is their sum. Role says which
	// a pod has.
	Roles []Role
	Role  func(*v1.Pod) string
	// Open: pods beyond these start too, one by one, once the gang runs.
	Open bool
	// How many pods the gang is said to have in all, at most of which it may start with; 0: that is not said.
	stated int
}

// Role is how many pods are of one kind.
type Role struct {
	Name  string
	Count int
}

// roled is a membership of pods of several kinds.
func roled(roles []Role, of func(*v1.Pod) string) Membership {
	m := Membership{Roles: roles, Role: of}
	for _, r := range roles {
		m.Size += r.Count
	}
	return m
}

// lower lets the gang start with fewer pods; those that are beyond, the least
// important ones, follow one by one.
func (m *Membership) lower(to int) {
	if to >= m.Size {
		return
	}
	for i := len(m.Roles) - 1; i >= 0; i-- {
		r := &m.Roles[i]
		cut := min(r.Count, m.Size-to)
		r.Count -= cut
		m.Size -= cut
	}
	m.Size, m.Open = to, true
}

// Pick chooses the pods that the gang starts with of those that are ready, by
// number and in their order; they are fewer than Size while they are not all there,
// and then it says what lacks of which role.
func (m *Membership) Pick(ready []*v1.Pod) (list []int, lacks string) {
	have := make([]int, len(m.Roles))
	for at, p := range ready {
		if m.Role == nil {
			if len(list) < max(1, m.Size) {
				list = append(list, at)
			}
			continue
		}
		name := m.Role(p)
		i := slices.IndexFunc(m.Roles, func(r Role) bool { return r.Name == name })
		if i >= 0 && have[i] < m.Roles[i].Count {
			have[i]++
			list = append(list, at)
		}
	}
	if m.Role == nil {
		return list, ""
	}
	var text []string
	for i, r := range m.Roles {
		if have[i] < r.Count {
			text = append(text, fmt.Sprintf("%s: %d of %d", r.Name, have[i], r.Count))
		}
	}
	return list, strings.Join(text, ", ")
}

// suspendedError is why a gang does not want to run.
type suspendedError struct{ what string }

func (e *suspendedError) Error() string { return e.what + " is suspended (spec.suspend)" }

// Suspended reports whether a gang's need failed because it was suspended.
func Suspended(err error) bool {
	var s *suspendedError
	return errors.As(err, &s)
}
