package kube

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/look"
	"github.com/muster-gpu/muster/kube/notices"
)

// Every waiting pod says why it waits: in the condition PodScheduled, which
// autoscalers read, too, and in an event. A second of waiting is not spoken of;
// then a gang is looked at less and less often, and written to only when what
// blocks it is another.
const (
	tellAfter = time.Second
	tellFirst = 5 * time.Second
	tellLast  = 5 * time.Minute
	// tellRefresh is from which distance of looks on a gang is written to, too, when the holders of what it needs, or
	// when it is expected to start, is another: that is no news, and need not be told at once.
	tellRefresh = time.Minute
)

// teller is what is remembered of what a gang was told.
type teller struct {
	nextTell cluster.Time
	every    time.Duration
	text     string
	toldTo   []types.UID
	wrote    string // the condition, in full
	unheard  bool   // a pod changed just when it was to be told
}

func (t *teller) since(now cluster.Time, after time.Duration) {
	t.nextTell, t.every = now.Add(after), tellFirst
}

// nextTell is when gangs are to be told again.
func (d *Driver) nextTell(now cluster.Time) cluster.Time {
	if d.opt.Tell == nil {
		return cluster.Never
	}
	for _, g := range d.gangs {
		if g.waits() || g.waking {
			return max(d.tellAt, now)
		}
	}
	return cluster.Never
}

func (g *gang) waits() bool { return g.phase == waiting || g.phase == gathering && g.refused != "" }

// tell tells gangs that wait what they wait for.
func (d *Driver) tell(now cluster.Time) {
	if d.opt.Tell == nil || now < d.tellAt {
		return
	}
	d.tellAt = now.Add(d.opt.TellAfter)
	var due []*gang
	for _, g := range d.gangs {
		if !g.waits() && !g.waking {
			continue
		}
		if g.every == 0 {
			g.since(now, d.opt.TellAfter)
		}
		if g.nextTell <= now {
			due = append(due, g)
		}
	}
	slices.SortFunc(due, func(a, b *gang) int {
		if a, b := len(a.toldTo) > 0, len(b.toldTo) > 0; a != b { // those that nothing was said to yet come first
			if b {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.nextTell, b.nextTell), strings.Compare(a.key, b.key))
	})
	found := look.NewExplanations(d.opt.Now)
	for _, g := range due {
		if found.Late() {
			return
		}
		if d.tellGang(g, now, found) {
			g.nextTell, g.every = now.Add(g.every), min(2*g.every, tellLast)
		}
	}
}

// tellGang writes to the pods of a gang what it waits for, if that is news; false: what that is, is not known yet.
func (d *Driver) tellGang(g *gang, now cluster.Time, found *look.Explanations) bool {
	stem := d.besides(g, g.refused)
	text := stem
	switch {
	case g.phase == waiting:
		y, ok := found.Of(g.spec, func() engine.Why { return d.explain(g, now) })
		if !ok {
			return false
		}
		stem, text = d.whyText(g, &y, now)
	case g.waking:
		stem, text = g.wakingText(d.nodes, now)
	}
	pods := slices.DeleteFunc(g.sorted(), func(p *pod) bool { return !p.waits() })
	to := uids(pods)
	knows := func(p *pod) bool { return notices.Unscheduled(p.Obj) == g.wrote }
	missed := (g.waking || g.unheard) && !all(pods, knows) // a pod changed just then: it was nominated, for example
	dated := g.every >= tellRefresh && text != g.wrote
	if stem == g.text && slices.Equal(to, g.toldTo) && !missed && !dated {
		return true
	}
	fresh := stem != g.text
	// a scheduler before this one said so
	if g.text == "" && all(pods, func(p *pod) bool { return strings.HasPrefix(notices.Unscheduled(p.Obj), stem) }) {
		g.text, g.toldTo, g.wrote, g.unheard = stem, to, notices.Unscheduled(pods[0].Obj), false
		return true
	}
	if !fresh && !dated {
		text = g.wrote
		pods = slices.DeleteFunc(pods, knows)
	}
	g.text, g.toldTo, g.wrote, g.unheard = stem, to, text, false
	for i, p := range pods {
		d.notices.Put(&notices.Letter{Pod: p.Obj, Text: text, At: time.Unix(0, int64(now)), News: fresh,
			Changed: func() { d.inbox.Put(func() { d.missed(g) }) }})
		if i == 0 && fresh { // one event for a gang
			d.notices.Event(p.Obj, v1.EventTypeWarning, "FailedScheduling", text)
		}
	}
	return true
}

// missed looks at a gang again soon, because a pod of it could not be told why it waits.
func (d *Driver) missed(g *gang) {
	if g.waits() || g.waking {
		g.unheard, g.nextTell = true, min(g.nextTell, d.now.Add(d.opt.TellAfter))
	}
}

// all reports whether there are pods and something holds for each of them.
func all(pods []*pod, so func(*pod) bool) bool {
	return len(pods) > 0 && !slices.ContainsFunc(pods, func(p *pod) bool { return !so(p) })
}

// why is what blocks a gang; stem is that part of it that is news when it is another.
func (d *Driver) why(g *gang, now cluster.Time) (stem, text string) {
	y := d.explain(g, now)
	return d.whyText(g, &y, now)
}

// whyText says in words what blocks a gang.
func (d *Driver) whyText(g *gang, y *engine.Why, now cluster.Time) (stem, text string) {
	stem = strings.Join(y.Blockers, "; ")
	if stem == "" {
		stem = strings.TrimSpace("waits for its turn " + y.Text)
	}
	if g.keptOff != "" {
		stem += fmt.Sprintf(" (of %d nodes, %s)", len(d.nodes.Objects()), g.keptOff)
	}
	stem = g.withAnswer(d.eng, d.besides(g, stem))
	text = stem
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
	return stem, text
}
