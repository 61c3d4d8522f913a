// Package succession says which pods come in place of others that had to leave, and remembers what gangs that left
// leave to those that come: their turn, and what they received and saved.
package succession

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/plans"
)

// Parting is a gang that was told to leave, for those that come in its place.
type Parting struct {
	Owner string    // what the next pods have in common with these (Owners); "": none are made
	Began time.Time // whole seconds, as of creation timestamps
}

// Of is the parting of a gang that leaves, or left, with these pods.
func Of(gang string, pods []*v1.Pod, now cluster.Time) Parting {
	return Parting{Owners(gang, pods), time.Unix(0, int64(now)).Truncate(time.Second)}
}

// Precedes reports whether all of some pods were made since.
func (p *Parting) Precedes(pods []*v1.Pod) bool {
	return !slices.ContainsFunc(pods, func(q *v1.Pod) bool { return q.CreationTimestamp.Time.Before(p.Began) })
}

// Owners is what the pods that are made in place of others have in common with these, as text: the gang's key, where
// it has a name, and what makes them; of a StatefulSet and of an indexed Job, which pod it is as well.
func Owners(gang string, pods []*v1.Pod) string {
	var list []string
	single := strings.HasPrefix(gang, "pod/")
	if !single {
		list = append(list, gang)
	}
	for _, p := range pods {
		ref := metav1.GetControllerOf(p)
		if ref == nil {
			return ""
		}
		switch {
		case !single && !strings.HasPrefix(gang, "gang/"):
			continue // its key is of what made it; that makes what makes its pods, perhaps again
		case single && ref.Kind == "StatefulSet":
			list = append(list, string(ref.UID)+" "+p.Name)
		case single && fit.Index(p) != fit.NoIndex:
			list = append(list, fmt.Sprintf("%s %d", ref.UID, fit.Index(p)))
		default:
			list = append(list, string(ref.UID))
		}
	}
	slices.Sort(list)
	return strings.Join(slices.Compact(list), "\n")
}

// Inheritance is what a gang that has left leaves to the next.
type Inheritance struct {
	Parting
	At      cluster.Time
	Carried bool // its pods say so, not the scheduler's own memory
	plans.Before
}

// KnownWork is how much work the gang is, as its progress told before; 0: that is not known, or nothing is inherited.
func (l *Inheritance) KnownWork() time.Duration {
	if l == nil {
		return 0
	}
	return l.Work
}

const (
	kept = 24 * time.Hour // as long as pods may take to be made again: their owner may be suspended
	most = 10_000         // gangs
)

// Memory is what gangs have left for which none came yet.
type Memory struct{ list []Inheritance }

// Keep remembers an inheritance, and forgets those that no gang came for.
func (m *Memory) Keep(l *Inheritance, now cluster.Time) {
	isOld := func(o Inheritance) bool { return now.Sub(o.At) > kept }
	m.list = slices.DeleteFunc(m.list, isOld)
	if len(m.list) == most {
		m.list = m.list[1:]
	}
	m.list = append(m.list, *l)
}

// Take is what is left to these pods, which is given once; nil: nothing.
func (m *Memory) Take(owner string, pods []*v1.Pod) *Inheritance {
	i := slices.IndexFunc(m.list, func(l Inheritance) bool { return l.Owner == owner && l.Precedes(pods) })
	if i < 0 {
		return nil
	}
	l := m.list[i]
	m.list = slices.Delete(m.list, i, i+1)
	return &l
}

// Kept lists what is remembered, the oldest first. It must not be changed.
func (m *Memory) Kept() []Inheritance { return m.list }
