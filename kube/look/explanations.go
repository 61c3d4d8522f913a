package look

import (
	"fmt"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/patch"
)

const (
	// explainMost is how many gangs are explained one by one each time; what is found out of one holds for all that
	// ask for the same.
	explainMost = 16
	// explainTime is how long the loop may take each time to find out, and as long again to say it to others
	// like those.
	explainTime = 50 * time.Millisecond
)

// likeness is all that decides what blocks a gang besides its place in the line: gangs of the same likeness wait for
// the same.
type likeness struct {
	User, Queue, Reservation string
	Kind                     cluster.Kind
	Tier                     cluster.Tier
	Tasks                    []cluster.TaskSet
	GPUTypes, Partitions     []string
	Nodes                    string
	Topology                 cluster.Topology
	Elastic                  cluster.Elastic
	PerNode                  int
	NodeLimits               []cluster.NodeLimit
	Isolation                cluster.Isolation
	MinSpeed                 int64
	NoPreempt                bool
	Model                    string
}

func likenessOf(j *cluster.Job) string {
	return string(patch.JSON(likeness{j.User, j.Queue, j.Reservation, j.Kind, j.Tier, j.Tasks, j.GPUTypes, j.Partitions,
		j.Nodes, j.Topology, j.Elastic, j.PerNode, j.NodeLimits, j.Isolation, j.MinSpeed, j.NoPreempt, j.Model}))
}

// Explanations are why gangs wait, as found out within one look at them.
type Explanations struct {
	now   func() time.Time
	began time.Time
	spent time.Duration // of the time since then, in finding out
	left  int           // to be explained one by one
	like  map[string]engine.Why
}

// NewExplanations begins a look.
func NewExplanations(now func() time.Time) *Explanations {
	return &Explanations{now: now, began: now(), left: explainMost, like: map[string]engine.Why{}}
}

// Late reports whether the rest has to wait for the next look. Where ten thousand gangs wait, finding out of one takes
// longer than telling a hundred others, so that does not count. One is found out of in any case.
func (x *Explanations) Late() bool {
	return x.left < explainMost && x.now().Sub(x.began)-x.spent > explainTime
}

// Of is why a job waits, which find finds out; false: that has to wait for the next look.
func (x *Explanations) Of(j *cluster.Job, find func() engine.Why) (engine.Why, bool) {
	key := likenessOf(j)
	y, known := x.like[key]
	if x.spent > explainTime || known && x.left <= 0 {
		return y, known
	}
	from := x.now()
	y = find()
	x.spent += x.now().Sub(from)
	x.left--
	if y.Ahead != 0 && len(y.Blockers) > 0 { // what the first in line waits for is not what those behind it do
		shared := y
		shared.Expected = cluster.Never // each has its own
		x.like[key] = shared
	}
	return y, true
}

// Stem is that part of what blocks a job which is news when it is another; keptOff is what keeps it off some of so many
// nodes, besides want of room.
func Stem(y *engine.Why, keptOff string, nodes int) string {
	stem := strings.Join(y.Blockers, "; ")
	if stem == "" {
		stem = strings.TrimSpace("waits for its turn " + y.Text)
	}
	if keptOff != "" {
		stem += fmt.Sprintf(" (of %d nodes, %s)", nodes, keptOff)
	}
	return stem
}

// Full adds to the stem who holds what the job needs, and when it is expected to start.
func Full(stem string, y *engine.Why, now cluster.Time) string {
	text := stem
	if n := min(len(y.Holders), 3); n > 0 {
		text += ". Held by " + strings.Join(y.Holders[:n], "; ")
		if len(y.Holders) > n {
			text += fmt.Sprintf("; and %d more", len(y.Holders)-n)
		}
	}
	switch {
	case y.Expected == cluster.Never || y.Expected <= now:
	case y.Rough:
		text += ". Expected to start at the earliest about " +
			time.Unix(0, int64(y.Expected)).UTC().Format(time.RFC3339)
	default:
		text += ". Expected to start at the earliest " + time.Unix(0, int64(y.Expected)).UTC().Format(time.RFC3339)
	}
	return text
}
