// Package look is what people see of a cluster: rows of gangs and nodes as they were at
// an instant, and what is listed, added up and explained from these. Nothing here is the
// loop's: what is seen does not change.
package look

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/progress"
	"github.com/muster-gpu/muster/show"
)

// AtOnce is how many of those at the head of the line are told when they are expected to start.
const AtOnce = 20

// ErrNoJob is returned for a number that no gang has.
var ErrNoJob = errors.New("no such job")

// Row is a gang as it is looked at.
type Row struct {
	Key, Name, User string
	Number          int // for people
	State, Reason   string
	Sharing         string // how it shares GPUs
	Promise, Answer string // what the policy says of its deadline, for programs and for people
	Spec            *cluster.Job
	Submit          cluster.Time
	WaitingSince    cluster.Time // since when it waits; 0: it does not
	First, Started  cluster.Time // of its first run, and the present or last; 0: never
	Ended           cluster.Time // 0: it has not
	Expected        cluster.Time // to start; Never: not known
	End             cluster.Time // that its progress lets expect; Never: nothing does
	Waited, Ran     time.Duration
	Runs, Evicted   int
	GPUs            int           // that it holds, or held last
	GPUTime         time.Duration // of all its runs that are over: GPUs times time
	Nodes           []string      // ... where
	Moments         []Moment
	Position        int            // in the line; 0: it is not in it
	Progress        *show.Progress // that it told last; nil: nothing
	Metrics         []show.Metrics
	Steps, Samples  float64 // that it reported as done since its first report
}

// Moment is when something happened to a gang.
type Moment struct {
	At          cluster.Time
	State, Text string
}

// Node is a node as it is looked at.
type Node struct {
	cluster.Node
	Memory  int64  // MiB of a GPU, as a label says; 0: none does
	Reason  string // why nothing starts there
	Foreign int    // GPUs that pods of other schedulers hold
	Usable  int64  // milli-GPU that are of use to the tasks submitted last
	Holders []Holder
}

// Holder is a gang on a node.
type Holder struct {
	GPUs   uint64
	Share  int32 // milli-GPU; 0: all of them
	Number int
}

// Hour is what became of the GPUs within an hour, in GPU time.
type Hour struct {
	At          cluster.Time
	Total, Held time.Duration
}

// Sight is the cluster at an instant.
type Sight struct {
	At     cluster.Time
	Rows   []*Row // by number, the latest first
	Past   []*Row // gangs that are over, in the order of their ends
	Most   int    // ... so many are remembered
	Nodes  []Node
	Queues []engine.QueueUse
	Since  cluster.Time
	Hours  []Hour
	Series []show.Sample
	Links  []show.Link // of the network, the busiest first
}

// matches reports whether a filter chooses a row.
func (r *Row) matches(f *ask.Filter) bool {
	short := r.Name[strings.IndexByte(r.Name, '/')+1:]
	switch {
	case f.User != "" && r.User != f.User, f.Queue != "" && r.Spec.Queue != f.Queue, f.Name != "" && r.Name != f.Name &&
		short != f.Name,
		f.Before > 0 && r.Number >= f.Before, len(f.States) > 0 && !slices.Contains(f.States, r.State), r.Ended > 0 &&
			int64(r.Ended) < f.Since:
		return false
	case f.Search == "" || f.Search == strconv.Itoa(r.Number):
		return true
	}
	s := strings.ToLower(f.Search)
	return strings.Contains(strings.ToLower(r.Name), s) || strings.Contains(strings.ToLower(r.Spec.Queue), s)
}

// Choose lists the rows that a filter chooses, the latest first.
func (l *Sight) Choose(f ask.Filter) (list []*Row) {
	live, past := l.Rows, slices.Clone(l.Past)
	if len(f.States) > 0 &&
		!slices.ContainsFunc(f.States, func(s string) bool { return !slices.Contains(show.Live, s) }) {
		past = nil
	}
	slices.SortFunc(past, func(a, b *Row) int { return b.Number - a.Number })
	for len(live)+len(past) > 0 && (f.Limit == 0 || len(list) < f.Limit) {
		from := &live
		if len(live) == 0 || len(past) > 0 && past[0].Number > live[0].Number {
			from = &past
		}
		if r := (*from)[0]; r.matches(&f) {
			list = append(list, r)
		}
		*from = (*from)[1:]
	}
	return list
}

// One finds a row by its number.
func (l *Sight) One(number int) (*Row, error) {
	for _, list := range [][]*Row{l.Rows, l.Past} {
		if i := slices.IndexFunc(list, func(r *Row) bool { return r.Number == number }); i >= 0 {
			return list[i], nil
		}
	}
	return nil, fmt.Errorf("%w: %d (numbers count from the scheduler's start; a name such as NAMESPACE/NAME holds)",
		ErrNoJob, number)
}

// ListNodes lists the nodes.
func (l *Sight) ListNodes() []show.Node {
	list := make([]show.Node, 0, len(l.Nodes))
	known := map[string]int64{}
	for i := range l.Nodes {
		s := &l.Nodes[i]
		memory, ok := known[s.Model]
		if !ok {
			m, _ := cluster.FindModel(s.Model)
			memory = m.Memory
			known[s.Model] = memory
		}
		memory = cmp.Or(s.Memory, memory)
		n := show.Node{Name: s.Name, State: s.State.String(), Reason: s.Reason, CPU: s.CPU, RAM: s.RAM,
			GPUs: make([]show.GPU, s.GPUs), Usable: &s.Usable}
		foreign := s.Foreign
		for k := range n.GPUs {
			g := &n.GPUs[k]
			*g = show.GPU{Index: k, Model: s.Model, Memory: memory, Healthy: true, Free: cluster.Whole}
			if s.Bad>>k&1 != 0 {
				g.Free = 0
				if g.Healthy = foreign > 0; g.Healthy {
					g.Fault = "held by a pod of another scheduler"
				} else {
					g.Fault = "the device plugin does not offer it"
				}
				foreign--
			}
		}
		for _, h := range s.Holders {
			for k := range n.GPUs {
				if h.GPUs>>k&1 != 0 {
					g := &n.GPUs[k]
					g.Jobs, g.Free = append(g.Jobs, h.Number), max(0, g.Free-cmp.Or(int64(h.Share), cluster.Whole))
				}
			}
		}
		list = append(list, n)
	}
	return list
}

// ListQueues lists the queues with what they hold.
func (l *Sight) ListQueues() []show.Queue {
	list, shares, at := []show.Queue{}, []int64{}, map[string]int{}
	for i, q := range l.Queues {
		list = append(list, show.Queue{Name: q.Spec.Name, Parent: q.Spec.Parent, Guarantee: q.Spec.Guarantee,
			Limit: q.Spec.Limit, Used: q.Used})
		shares = append(shares, q.Spec.Shares)
		at[q.Spec.Name] = i
	}
	show.FairShares(list, shares)
	for _, r := range l.Rows {
		i, ok := at[cmp.Or(r.Spec.Queue, "default")]
		switch {
		case !ok:
		case r.State == show.StatePending:
			list[i].Pending++
		default:
			list[i].Running++
		}
	}
	return list
}

// mostShown bounds the lists of nodes and of what runs of an overview; of what
// waits it has the head of the line.
const mostShown = 100

// whole adds the nodes up.
func whole(nodes []show.Node) *show.Whole {
	w := &show.Whole{Nodes: len(nodes), Models: []string{}}
	for i := range nodes {
		n := &nodes[i]
		w.CPU, w.RAM, w.GPUs = w.CPU+n.CPU, w.RAM+n.RAM, w.GPUs+len(n.GPUs)
		if n.State != "up" {
			w.Off++
		}
		for k := range n.GPUs {
			g := &n.GPUs[k]
			w.Free += g.Free
			if !g.Healthy {
				w.Unhealthy++
			}
			if !slices.Contains(w.Models, g.Model) {
				w.Models = append(w.Models, g.Model)
			}
		}
	}
	return w
}

// worst is how much there is to see of a node: what is wrong comes first.
func worst(n *show.Node) int {
	switch {
	case n.State == "down":
		return 0
	case n.State != "up":
		return 1
	case slices.ContainsFunc(n.GPUs, func(g show.GPU) bool { return !g.Healthy }):
		return 2
	case len(n.GPUs) > 0:
		return 3
	}
	return 4 // no GPUs
}

// Overview is the whole cluster in one answer.
func (l *Sight) Overview() show.Overview {
	o := show.Overview{At: *Instant(l.At), Counts: map[string]int{}, Nodes: l.ListNodes(), Queues: l.ListQueues(),
		Running: []show.Job{}, Waiting: []show.Job{}, Series: l.Series, Links: l.Links}
	o.Left = show.LeftOf(o.Nodes)
	o.Whole = whole(o.Nodes)
	slices.SortFunc(o.Nodes, func(a, b show.Node) int {
		return cmp.Or(worst(&a)-worst(&b), cmp.Compare(a.Name, b.Name))
	})
	o.Nodes = o.Nodes[:min(len(o.Nodes), mostShown)]
	var line []*Row
	for _, r := range slices.Backward(l.Rows) {
		o.Counts[r.State]++
		switch {
		case r.State == show.StatePending && r.Position > 0 && r.Position <= AtOnce:
			line = append(line, r)
		case r.State != show.StatePending && len(o.Running) < mostShown:
			o.Running = append(o.Running, r.Listed(l.At))
		}
	}
	slices.SortFunc(line, func(a, b *Row) int { return a.Position - b.Position })
	for _, r := range line {
		o.Waiting = append(o.Waiting, r.Listed(l.At))
	}
	return o
}

// Instant is a time for people; nil: there is none.
func Instant(at cluster.Time) *time.Time {
	if at == 0 || at == cluster.Never {
		return nil
	}
	t := time.Unix(0, int64(at)).UTC()
	return &t
}

// Job is a row as the interface has it, at an instant.
func (r *Row) Job(now cluster.Time) show.Job {
	s := r.Spec
	j := show.Job{ID: r.Number, User: r.User, State: r.State, Reason: r.Reason, Sharing: r.Sharing, Promise: r.Promise,
		Submitted: *Instant(r.Submit), Started: Instant(r.Started), FirstStart: Instant(r.First),
		Ended: Instant(r.Ended), Position: r.Position, Progress: r.Progress, Metrics: r.Metrics,
		Restarts: max(0, r.Runs-1), Preemptions: r.Evicted}
	waited, ran, gpuTime := r.Waited, r.Ran, r.GPUTime
	if r.WaitingSince > 0 && r.Ended == 0 {
		waited += max(0, now.Sub(r.WaitingSince))
	}
	if r.Ended == 0 && r.State != show.StatePending {
		run := max(0, now.Sub(r.Started))
		ran, gpuTime = ran+run, gpuTime+run*time.Duration(r.GPUs)
		switch {
		case r.State != show.StateRunning:
		case r.End != cluster.Never:
			j.ExpectedEnd, j.EndBy = Instant(r.End), show.EndByProgress
		case s.Estimate > 0:
			j.ExpectedEnd, j.EndBy = Instant(r.Started.Add(s.Estimate)), show.EndByEstimate
		}
	}
	j.Waited, j.Ran, j.GPUHours = ask.Duration(waited), ask.Duration(ran), gpuTime.Hours()
	j.StepRate, j.SampleRate = progress.PerHour(r.Steps, j.GPUHours), progress.PerHour(r.Samples, j.GPUHours)
	if r.State != show.StatePending {
		j.Node = strings.Join(r.Nodes, ",")
	} else {
		switch r.Position {
		case 0: // it is not in line: pods are missing, or gated
		case 1:
			j.Code = "Resources"
		default:
			j.Code = "Priority"
		}
		if r.Expected > now {
			j.Expected = Instant(r.Expected)
			j.AtEarliest = j.Expected != nil // nothing is known of how such answers turn out
		}
	}
	j.Submission = ask.Submission{Name: r.Name, Queue: cmp.Or(s.Queue, "default"), Tier: s.Tier.String(),
		Priority: s.Priority, Estimate: ask.Duration(s.Estimate), Deadline: Instant(s.Deadline), GPUTypes: s.GPUTypes}
	if s.Topology.Level != 0 {
		j.Submission.Level, j.Submission.Required = s.Topology.Level.String(), s.Topology.Required
	}
	sizes(&j.Submission, s.Tasks)
	return j
}

// Listed is a row of a list: without what not all people see, so that no one need be asked whose it is.
func (r *Row) Listed(now cluster.Time) show.Job {
	j := r.Job(now)
	j.Metrics, j.Progress = nil, j.Progress.Unplaced()
	return j
}

// sizes says what a gang asks for: tasks of one size; of several sizes, those
// that have GPUs, if these are of one, else one task of all.
func sizes(s *ask.Submission, sets []cluster.TaskSet) {
	withGPUs := slices.DeleteFunc(slices.Clone(sets), func(t cluster.TaskSet) bool { return t.Request.GPUs == 0 })
	if len(withGPUs) == 0 {
		withGPUs = sets
	}
	if len(withGPUs) == 1 {
		t := &withGPUs[0]
		s.Tasks, s.GPUs, s.Share, s.CPU, s.RAM = t.Count, t.Request.GPUs, t.Request.Share, t.Request.CPU, t.Request.RAM
		return
	}
	s.Tasks = 1
	for i := range sets {
		t := &sets[i]
		s.GPUs, s.CPU, s.RAM = s.GPUs+t.Count*t.Request.GPUs, s.CPU+int64(t.Count)*t.Request.CPU,
			s.RAM+int64(t.Count)*t.Request.RAM
	}
}

// Where says where it is, or why it is nowhere.
func (r *Row) Where() string {
	if len(r.Nodes) == 0 {
		return r.Reason
	}
	text := "on " + strings.Join(r.Nodes[:min(len(r.Nodes), 8)], ", ")
	if len(r.Nodes) > 8 {
		text += ", ..."
	}
	return text
}
