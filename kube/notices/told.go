package notices

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
)

const (
	tellFirst = 5 * time.Second
	tellLast  = 5 * time.Minute
	// tellRefresh is from which distance of looks on pods are written to, too, when the holders of what their gang
	// needs, or when it is expected to start, is another: that is no news, and need not be told at once.
	tellRefresh = time.Minute
)

// Told is what the pods of a gang were told of why it waits, and when that is looked at again: less and less often. The
// zero value is nothing yet.
type Told struct {
	Next  cluster.Time
	every time.Duration
	// What was said, but for what changes without being news; to which pods, all of them in full, and whether one of
	// them changed just when it was to be told.
	text    string
	to      []types.UID
	wrote   string
	unheard bool
}

// Since has it looked at as if the gang waited since now; after is how long a gang waits before it is told.
func (t *Told) Since(now cluster.Time, after time.Duration) {
	t.Next, t.every = now.Add(after), tellFirst
}

// Began reports whether it was looked at, or is to be.
func (t *Told) Began() bool { return t.every != 0 }

// Any reports whether any pod was told.
func (t *Told) Any() bool { return len(t.to) > 0 }

// Text is what was said.
func (t *Told) Text() string { return t.text }

// Again has it looked at again after longer than the last time.
func (t *Told) Again(now cluster.Time) { t.Next, t.every = now.Add(t.every), min(2*t.every, tellLast) }

// Missed has it looked at again by then, because a pod could not be told.
func (t *Told) Missed(by cluster.Time) { t.unheard, t.Next = true, min(t.Next, by) }

// Say says which of the pods that wait are to be told, and what: text, of which stem is news when it is another. Those
// that missed it are told again; careful: as if one had.
func (t *Told) Say(stem, text string, pods []*v1.Pod, careful bool) (letters []*Letter) {
	to := uids(pods)
	knows := func(p *v1.Pod) bool { return Unscheduled(p) == t.wrote }
	missed := (careful || t.unheard) && !all(pods, knows)
	dated := t.every >= tellRefresh && text != t.wrote
	if stem == t.text && slices.Equal(to, t.to) && !missed && !dated {
		return nil
	}
	fresh := stem != t.text
	// a scheduler before this one said so
	if t.text == "" && all(pods, func(p *v1.Pod) bool { return strings.HasPrefix(Unscheduled(p), stem) }) {
		t.text, t.to, t.wrote, t.unheard = stem, to, Unscheduled(pods[0]), false
		return nil
	}
	if !fresh && !dated {
		text = t.wrote
		pods = slices.DeleteFunc(slices.Clone(pods), knows)
	}
	t.text, t.to, t.wrote, t.unheard = stem, to, text, false
	for _, p := range pods {
		letters = append(letters, &Letter{Pod: p, Text: text, News: fresh})
	}
	return letters
}

func uids(pods []*v1.Pod) []types.UID {
	list := make([]types.UID, len(pods))
	for i, p := range pods {
		list[i] = p.UID
	}
	slices.Sort(list)
	return list
}

// all reports whether there are pods and something holds for each of them.
func all(pods []*v1.Pod, so func(*v1.Pod) bool) bool {
	return len(pods) > 0 && !slices.ContainsFunc(pods, func(p *v1.Pod) bool { return !so(p) })
}
