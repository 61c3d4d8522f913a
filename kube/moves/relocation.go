package moves

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/succession"
)

// Relocation is the way of a gang that is moved: its pods leave, and its place elsewhere is kept for those that come
// instead.
type Relocation struct {
	succession.Parting
	Job   cluster.JobID
	Name  string       // of the gang that leaves
	To    string       // nodes
	Until cluster.Time // then the place is let go
	Spec  *cluster.Job
	Pods  []*nodes.Pod   // that leave, or have left
	Start *engine.Action // the engine says: now; nil: not yet
}

// Outcomes of a relocation.
const (
	Done    = "done"    // others took the place
	Late    = "late"    // none came in time, or the pods did not go
	Differs = "differs" // what came asks for something else
	Lost    = "lost"    // the place was lost meanwhile
	Over    = "over"    // the gang came to its end when it was to leave
)

// Names lists the nodes of allocations for people, each once.
func Names(allocs []engine.Alloc, order []string) string {
	var names []string
	for i := range allocs {
		if name := order[allocs[i].Node]; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// Text says for people where the gang goes.
func (r *Relocation) Text() string {
	return "moved to " + r.To + ": its place there is kept until " +
		time.Unix(0, int64(r.Until)).UTC().Format("15:04:05 MST") + " for the pods that its owner makes"
}

// Ended reports whether a Job has what it wanted of one of the pods that left: it makes no other for that.
func (r *Relocation) Ended() bool {
	return slices.ContainsFunc(r.Pods, func(p *nodes.Pod) bool {
		return p.Obj.Status.Phase == v1.PodSucceeded && gangs.Owner(p.Obj, "batch", "Job") != nil
	})
}

// Like reports whether pods ask for what those asked for that are moved, and may be where these may be.
func (r *Relocation) Like(pods []*nodes.Pod) bool {
	if len(pods) != len(r.Pods) {
		return false
	}
	sets := slices.Clone(r.Spec.Tasks)
	for _, p := range pods {
		i := holds.SetOf(sets, &p.Request)
		if i < 0 || sets[i].Count == 0 || p.Needs != nil || p.Replica.Name != "" ||
			p.Signature != r.Pods[0].Signature {
			return false
		}
		sets[i].Count--
	}
	return true
}
