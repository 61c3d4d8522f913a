package queues

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/quota"
)

// statusAgain is how long a status that was written may not be seen before it is written again.
const statusAgain = 10 * time.Second

// Figures are what a queue has and what waits there, those of queues below
// it included.
type Figures struct {
	Name, Parent     string
	Guarantee, Used  cluster.Milli // the guarantee that is in force
	Running, Pending int           // gangs
	PendingGPUs      cluster.Milli
	Oldest           time.Time // creation of the pod that waits longest; zero: none does
}

// Status is what Muster writes into a Queue object. Amounts are GPUs.
type Status struct {
	Guarantee float64 `json:"guarantee"` // in force: less than the spec's where the cluster is too small
	Used      float64 `json:"used"`
	Borrowed  float64 `json:"borrowed"` // used beyond the guarantee
	Share     string  `json:"share"`    // of the cluster's GPUs, used
	// gangs (a single pod is one, too), those of queues below included
	Running       int          `json:"running"`
	Pending       int          `json:"pending"`
	PendingGPUs   float64      `json:"pendingGPUs"`
	OldestPending *metav1.Time `json:"oldestPending,omitempty"`
	Observed      int64        `json:"observedGeneration"`
	// the last spec that could be used, as JSON: a merge of objects would keep what it does not have
	InForce    string             `json:"inForce,omitempty"`
	Conditions []metav1.Condition `json:"conditions"`
}

// The conditions of a Queue object.
const (
	Ready      = "Ready"      // its spec is in force
	Guaranteed = "Guaranteed" // the cluster has what is guaranteed in all
)

// Tell has the status of each object written that is another than it should be: write is told, and says whether it can.
// It returns whether some have to be looked at again soon.
func (q *Set) Tell(figures []Figures, total cluster.Milli, now cluster.Time,
	write func(name string, s *Status) bool) (again bool) {
	for _, name := range slices.Sorted(maps.Keys(q.objects)) {
		o, f := q.objects[name], Figures{}
		if i := slices.IndexFunc(figures, func(f Figures) bool { return f.Name == name }); i >= 0 {
			f = figures[i]
		}
		s := q.statusFor(o, &f, total, now)
		switch {
		case sameStatus(&s, &o.status):
		case sameStatus(&s, &o.sent) && now < o.sentAt.Add(statusAgain), !write(name, &s):
			again = true
		default:
			o.sent, o.sentAt = s, now
		}
	}
	return again
}

func inGPUs(m cluster.Milli) float64 { return float64(m) / float64(cluster.Whole) }

// statusFor is the status of a Queue object as it should be.
func (q *Set) statusFor(o *object, f *Figures, total cluster.Milli, now cluster.Time) Status {
	s := Status{Guarantee: inGPUs(f.Guarantee), Used: inGPUs(f.Used), Borrowed: inGPUs(max(0, f.Used-f.Guarantee)),
		Share:   "0%",
		Running: f.Running, Pending: f.Pending, PendingGPUs: inGPUs(f.PendingGPUs), Observed: o.generation,
		InForce: q.tree.specs[o.name]}
	if total > 0 {
		s.Share = fmt.Sprintf("%d%%", (f.Used*100+total/2)/total)
	}
	if f.Pending > 0 {
		s.OldestPending = &metav1.Time{Time: f.Oldest.UTC()}
	}
	at := metav1.NewTime(time.Unix(0, int64(now)).UTC().Truncate(time.Second))
	s.Conditions = slices.Clone(o.status.Conditions)
	set := func(kind string, status metav1.ConditionStatus, reason, text string) {
		meta.SetStatusCondition(&s.Conditions,
			metav1.Condition{Type: kind, Status: status, Reason: reason, Message: text,
				ObservedGeneration: o.generation, LastTransitionTime: at})
	}
	why, rule := q.tree.bad[o.name], q.tree.rules[o.name]
	switch {
	case why == "":
		set(Ready, metav1.ConditionTrue, "InForce", "the spec is in force")
	case rule != nil:
		set(Ready, metav1.ConditionFalse, "Unusable",
			why+". The spec that was in force before still is (status.inForce).")
	default:
		set(Ready, metav1.ConditionFalse, "Unusable", why)
	}
	switch {
	case rule == nil || rule.Guarantee == 0:
		meta.RemoveStatusCondition(&s.Conditions, Guaranteed)
	case f.Guarantee < rule.Guarantee:
		set(Guaranteed, metav1.ConditionFalse, "ClusterTooSmall", fmt.Sprintf(
			"%s GPUs are guaranteed, %s of them count: all queues together are guaranteed more than the %s GPUs of the cluster",
			quota.FormatGPUs(rule.Guarantee), quota.FormatGPUs(f.Guarantee), quota.FormatGPUs(total)))
	default:
		set(Guaranteed, metav1.ConditionTrue, "Kept", "the cluster has what all queues together are guaranteed")
	}
	return s
}

// sameStatus compares what is to be seen; a condition's time counts with its state only.
func sameStatus(a, b *Status) bool {
	text := func(s *Status) string {
		t := *s
		t.Conditions, t.OldestPending = nil, nil
		line, err := json.Marshal(t)
		if err != nil {
			panic(err) // of numbers and texts
		}
		var rest strings.Builder
		for _, c := range s.Conditions {
			fmt.Fprintf(&rest, " %s %s %s %s %d", c.Type, c.Status, c.Reason, c.Message, c.ObservedGeneration)
		}
		if s.OldestPending != nil {
			fmt.Fprint(&rest, s.OldestPending.Unix())
		}
		return string(line) + rest.String()
	}
	return text(a) == text(b)
}

// statusPart: no more than a fiftieth of the time goes into looking at the status.
const statusPart = 50

// StatusChanged notes that the status of the objects may be another.
func (q *Set) StatusChanged() { q.statusDirty = true }

// NextStatus is when the status is to be looked at, so long after the last time at least; Never: nothing changed.
func (q *Set) NextStatus(every time.Duration) cluster.Time {
	if !q.statusDirty {
		return cluster.Never
	}
	return q.statusAt.Add(max(every, statusPart*q.statusTook))
}

// StatusSeen notes that the status is looked at now, StatusTook how long that took.
func (q *Set) StatusSeen(now cluster.Time) { q.statusDirty, q.statusAt = false, now }

// StatusTook notes how long it took to look at the status.
func (q *Set) StatusTook(took time.Duration) { q.statusTook = took }
