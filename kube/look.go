package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/power"
	"github.com/muster-gpu/muster/show"
)

// Those who look at the cluster ask the loop for a copy, small rows without
// text, of which it makes at most one at a time; what becomes of it - selecting,
// writing, sending - costs the loop nothing. A copy serves all who ask within
// some multiple of the time that it took to make.
const (
	lookSoonest = 100 * time.Millisecond
	lookLatest  = 2 * time.Second
	lookShare   = 20
	// Of so many jobs at the head of the line a copy says when they are expected
	// to start, and of so many that were not told yet why they wait; both take the
	// engine's time, so in a long line of fewer. muster why says it of any.
	lookAhead, lookAheadLong = 20, 4
	lookWhy, lookWhyLong     = 20, 2
	longLine                 = 1000
)

var (
	// ErrNotLeading is returned where this scheduler does not schedule.
	ErrNotLeading = errors.New("this scheduler does not lead, or has not seen the whole cluster yet; ask again in a moment")
	// ErrNoJob is returned for a number that no gang has.
	ErrNoJob = errors.New("no such job")
)

// row is a gang as it is looked at. It does not change.
type row struct {
	book
	key, name, user string
	state, reason   string
	sharing         string // how it shares GPUs
	promise, answer string // what the policy says of its deadline, for programs and for people
	position        int
	expected        cluster.Time   // Never: not known
	ended           cluster.Time   // 0: it has not
	progress        *show.Progress // that it told last; nil: nothing
	metrics         []show.Metrics
	steps, samples  float64      // that it reported as done since its first report
	end             cluster.Time // that its progress lets expect; Never: nothing does
}

// seenNode is a node as it is looked at.
type seenNode struct {
	cluster.Node
	memory  int64  // MiB of a GPU, as a label says; 0: none does
	reason  string // why nothing starts there
	foreign int    // GPUs that pods of other schedulers hold
	usable  int64  // milli-GPU that are of use to the tasks submitted last
	holders []holder
}

// holder is a job on a node.
type holder struct {
	gpus   uint64
	share  int32 // milli-GPU; 0: all of them
	number int
}

// sight is the cluster at an instant. It does not change.
type sight struct {
	at     cluster.Time
	keep   time.Duration
	rows   []*row // by number, the latest first
	past   []*row
	nodes  []seenNode
	queues []engine.QueueUse
	since  cluster.Time
	hours  []hour
	series []show.Sample
}

// looks are those who look.
type looks struct {
	mu   sync.Mutex
	last *sight

	watchMu sync.Mutex
	watch   map[chan struct{}]bool
	over    chan struct{} // closed when the driver's Run has returned
}

// ask runs f on the loop.
func (d *Driver) ask(ctx context.Context, f func()) error {
	if !d.Ready() {
		return ErrNotLeading
	}
	done := make(chan struct{})
	d.inbox.Put(func() { f(); close(done) })
	select {
	case <-done:
		return nil
	case <-d.looks.over:
		return ErrNotLeading
	case <-ctx.Done():
		return ctx.Err()
	}
}

// look is the cluster as it is now, or was a moment ago.
func (d *Driver) look(ctx context.Context) (*sight, error) {
	d.looks.mu.Lock()
	defer d.looks.mu.Unlock()
	if l := d.looks.last; l != nil && d.Ready() && d.opt.Now().UnixNano()-int64(l.at) < int64(l.keep) {
		return l, nil
	}
	made := make(chan *sight, 1)
	if err := d.ask(ctx, func() { made <- d.see() }); err != nil {
		return nil, err
	}
	d.looks.last = <-made
	return d.looks.last, nil
}

// see copies what there is to see; it runs on the loop.
func (d *Driver) see() *sight {
	began := d.opt.Now()
	now := d.clock()
	d.sample(now)
	d.countHours(now)
	l := &sight{at: now, since: d.records.since, past: d.records.past, hours: slices.Clone(d.records.hours), series: d.records.series, queues: d.eng.QueueUse()}
	l.series = append(l.series[:len(l.series):len(l.series)], d.present(now))
	for _, g := range d.gangs {
		if g.number == 0 || g.over && g.asks() {
			d.note(g, now)
		}
		if g.phase >= waiting || !g.over && g.asks() {
			l.rows = append(l.rows, d.rowOf(g))
		}
	}
	slices.SortFunc(l.rows, func(a, b *row) int { return b.number - a.number })
	d.seeLine(l)
	d.seeNodes(l)
	l.keep = min(max(lookShare*d.opt.Now().Sub(began), lookSoonest), lookLatest)
	return l
}

// rowOf is a gang as it is now.
func (d *Driver) rowOf(g *gang) *row {
	r := &row{book: g.book, key: g.key, name: g.name, expected: cluster.Never, reason: d.besides(g, g.refused), progress: g.last, metrics: g.metrics, steps: g.pace.Steps, samples: g.pace.Sample, end: d.endOf(g)}
	r.user, _, _ = strings.Cut(g.name, "/")
	if a := d.answerOf(g); a != engine.DeadlineUnanswered {
		r.promise, r.answer = answers[a], a.String()
	}
	if r.spec == nil {
		r.spec = d.sketch(g)
	}
	switch g.phase {
	case gathering:
		r.state = show.StatePending
	case waiting:
		r.state, r.reason = show.StatePending, g.text
	case starting, unwinding:
		if r.state = show.StateStarting; g.waking {
			r.reason = g.text
		}
	case running:
		r.state, r.reason = show.StateRunning, ""
	case stopping:
		r.state, r.reason = show.StateStopping, "told to leave for others"
		if g.passage != nil {
			r.reason = g.passage.text()
		}
	case moving:
		r.state, r.reason = show.StateStarting, g.passage.text()
	}
	return r
}

// sketch is what is known of a gang that was never submitted.
func (d *Driver) sketch(g *gang) *cluster.Job {
	j := &cluster.Job{Name: g.name, Tier: cluster.Standard}
	if pods := g.sorted(); len(pods) > 0 {
		j.User, j.Queue, j.Priority, j.Tasks = pods[0].obj.Namespace, d.queueOf(g, pods[0].obj), priority(pods[0].obj), taskSets(pods)
	}
	return j
}

// seeLine says of those that wait where in the line they are, and of some why.
func (d *Driver) seeLine(l *sight) {
	rows := make(map[int]*row, len(l.rows))
	for _, r := range l.rows {
		rows[r.number] = r
	}
	d.eng.Look(l.at)
	ahead, why := lookAhead, lookWhy
	if len(l.rows) > longLine {
		ahead, why = lookAheadLong, lookWhyLong
	}
	for i, w := range d.eng.Line(ahead) {
		g := d.byID[w.Job]
		if g == nil || rows[g.number] == nil {
			continue
		}
		r := rows[g.number]
		r.position, r.expected = i+1, w.Expected
		if r.reason == "" && g.phase == waiting && why > 0 {
			why--
			r.reason, _ = d.why(g, l.at)
		}
	}
}

// seeNodes copies the nodes, and who holds them.
func (d *Driver) seeNodes(l *sight) {
	list := d.eng.Nodes()
	l.nodes = make([]seenNode, len(list))
	left := d.eng.FragmentationByNode()
	for i := range list {
		s := &l.nodes[i]
		s.Node, s.usable = list[i], left[i].Usable
		if n := d.nodes[s.Name]; n != nil && n.obj != nil {
			s.reason, s.foreign = n.reason(), int(n.other.gpus)
			if d.eng.IsGivenBack(s.Name) {
				s.reason = cmp.Or(s.reason, "given back to who lends it")
			}
			s.memory = memoryLabel(n.obj.Labels[d.opt.Labels.Memory])
		} else {
			s.reason = "it is not in the cluster any more"
		}
	}
	for _, b := range d.eng.Beliefs() {
		if g := d.byID[b.Job]; g != nil {
			for _, a := range b.Allocs {
				l.nodes[a.Node].holders = append(l.nodes[a.Node].holders, holder{a.GPUs, a.Share, g.number})
			}
		}
	}
	l.nodes = slices.DeleteFunc(l.nodes, func(s seenNode) bool { return s.State == cluster.Down && len(s.holders) == 0 })
}

// reason says why nothing starts on a node; "": something may.
func (n *node) reason() string {
	switch {
	case n.obj.DeletionTimestamp != nil:
		return "it is being deleted"
	case n.sleeps():
		return map[string]string{power.Suspending: "it goes off", power.Off: "it is off until it is needed", power.Resuming: "it is waking"}[n.powerState()]
	case n.mig.step == migClosed:
		return "it is emptied, to be partitioned as " + n.mig.note.Config
	case n.mig.step == migChanging:
		return "it is being partitioned as " + n.mig.note.Config
	case n.obj.Spec.Unschedulable:
		return "cordoned"
	}
	for i := range n.obj.Spec.Taints {
		if t := &n.obj.Spec.Taints[i]; fit.Passing(t) && t.Effect != v1.TaintEffectPreferNoSchedule {
			return "taint " + t.Key
		}
	}
	if n.state() != cluster.Up {
		return "not ready"
	}
	return ""
}

// find finds a gang that is not over, by number; it runs on the loop.
func (d *Driver) find(number int) *gang {
	for _, g := range d.gangs {
		if g.number == number && (g.phase >= waiting || !g.over) {
			return g
		}
	}
	return nil
}

// matches reports whether a filter chooses a row.
func (r *row) matches(f *ask.Filter) bool {
	short := r.name[strings.IndexByte(r.name, '/')+1:]
	switch {
	case f.User != "" && r.user != f.User, f.Queue != "" && r.spec.Queue != f.Queue, f.Name != "" && r.name != f.Name && short != f.Name,
		f.Before > 0 && r.number >= f.Before, len(f.States) > 0 && !slices.Contains(f.States, r.state), r.ended > 0 && int64(r.ended) < f.Since:
		return false
	case f.Search == "" || f.Search == strconv.Itoa(r.number):
		return true
	}
	s := strings.ToLower(f.Search)
	return strings.Contains(strings.ToLower(r.name), s) || strings.Contains(strings.ToLower(r.spec.Queue), s)
}

// choose lists the rows that a filter chooses, the latest first.
func (l *sight) choose(f ask.Filter) (list []*row) {
	live, past := l.rows, slices.Clone(l.past)
	if len(f.States) > 0 && !slices.ContainsFunc(f.States, func(s string) bool { return !slices.Contains(show.Live, s) }) {
		past = nil
	}
	slices.SortFunc(past, func(a, b *row) int { return b.number - a.number })
	for len(live)+len(past) > 0 && (f.Limit == 0 || len(list) < f.Limit) {
		from := &live
		if len(live) == 0 || len(past) > 0 && past[0].number > live[0].number {
			from = &past
		}
		if r := (*from)[0]; r.matches(&f) {
			list = append(list, r)
		}
		*from = (*from)[1:]
	}
	return list
}

// one finds a row by its number.
func (l *sight) one(number int) (*row, error) {
	for _, list := range [][]*row{l.rows, l.past} {
		if i := slices.IndexFunc(list, func(r *row) bool { return r.number == number }); i >= 0 {
			return list[i], nil
		}
	}
	return nil, fmt.Errorf("%w: %d (numbers count from the scheduler's start; a name such as NAMESPACE/NAME holds)", ErrNoJob, number)
}

// watchers tells those who watch that something changed.
func (d *Driver) watchers() {
	d.looks.watchMu.Lock()
	defer d.looks.watchMu.Unlock()
	for c := range d.looks.watch {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
