package kube

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
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

// View is the cluster as the interface shows it: what muster queue, why,
// nodes, usage, top and the dashboard read. Jobs are gangs, their users are
// namespaces, and their numbers count from the scheduler's start.
type View struct{ d *Driver }

// View returns what there is to see of the driver's cluster, from any goroutine.
func (d *Driver) View() View { return View{d} }

// Now is the scheduler's clock.
func (v View) Now() time.Time { return v.d.opt.Now() }

// Scheduling names the policy and the placer.
func (v View) Scheduling(context.Context) (policy, placer string, err error) {
	return v.d.opt.Rules.Policy, v.d.opt.Rules.Placer, nil
}

// Jobs lists gangs, the latest first.
func (v View) Jobs(ctx context.Context, f ask.Filter) ([]show.Job, error) {
	l, err := v.d.look(ctx)
	if err != nil {
		return nil, err
	}
	rows := l.choose(f)
	list := make([]show.Job, len(rows))
	for i, r := range rows {
		list[i] = r.listed(l.at)
	}
	return list, nil
}

// Job is a gang with its pods.
func (v View) Job(ctx context.Context, id int) (show.Job, error) {
	w, err := v.tell(ctx, id, false)
	return w.Job, err
}

// Why explains a gang: from the engine as it is at this moment.
func (v View) Why(ctx context.Context, id int) (show.Why, error) { return v.tell(ctx, id, true) }

func (v View) tell(ctx context.Context, id int, why bool) (w show.Why, err error) {
	w.Blockers = []string{}
	l, err := v.d.look(ctx)
	if err != nil {
		return w, err
	}
	type answer struct {
		row  *row
		why  show.Why
		live int // gangs, if it waits and is whole
	}
	got := make(chan answer, 1)
	err = v.d.ask(ctx, func() {
		g := v.d.find(id)
		if g == nil {
			got <- answer{}
			return
		}
		a := answer{row: v.d.rowOf(g)}
		a.row.sharing = v.d.sharingOf(g)
		a.why.Job.Tasks = tasksOf(g)
		if why && g.phase == waiting {
			if g.id != cluster.NoJob {
				a.live = len(v.d.byID)
			}
			y := v.d.explain(g, v.d.clock())
			if more := v.d.migTold(g); more != "" {
				y.Blockers = append(y.Blockers, more)
			}
			a.why.Blockers, a.why.Holders, a.why.Text, a.why.Job.Rough, a.row.expected = y.Blockers, y.Holders, y.Text, y.Rough, y.Expected
		}
		got <- a
	})
	if err != nil {
		return w, err
	}
	a := <-got
	if a.row == nil { // it is over, or never was
		r, err := l.one(id)
		if err != nil {
			return w, err
		}
		w.Job, w.Text = r.job(l.at), r.reason
		return w, nil
	}
	tasks := a.why.Job.Tasks
	if i := slices.IndexFunc(l.rows, func(r *row) bool { return r.number == id }); i >= 0 && a.row.position == 0 {
		a.row.position = l.rows[i].position
	}
	w = a.why
	rough := w.Job.Rough
	w.Job = a.row.job(cluster.Time(v.d.opt.Now().UnixNano()))
	w.Job.Tasks, w.Job.Rough = tasks, rough && w.Job.Expected != nil
	if w.Blockers == nil {
		w.Blockers = []string{}
	}
	if len(w.Blockers) == 0 && w.Job.State == show.StatePending && w.Job.Reason != "" {
		w.Blockers = append(w.Blockers, w.Job.Reason)
	}
	if w.Job.State != show.StatePending && w.Text == "" {
		w.Text = whereText(a.row)
		if a.row.answer != "" {
			w.Text = strings.TrimPrefix(w.Text+"; "+a.row.answer, "; ")
		}
	}
	if a.live > 0 {
		w.Moves, err = v.wouldHelp(ctx, id, a.live)
	}
	return w, err
}

func whereText(r *row) string {
	if len(r.nodes) == 0 {
		return r.reason
	}
	text := "on " + strings.Join(r.nodes[:min(len(r.nodes), 8)], ", ")
	if len(r.nodes) > 8 {
		text += ", ..."
	}
	return text
}

// explain is the engine's own explanation, with the numbers that people know; it
// runs on the loop.
func (d *Driver) explain(g *gang, now cluster.Time) engine.Why {
	d.eng.Look(now)
	y := d.eng.Why(g.id)
	for _, list := range [][]string{y.Blockers, y.Holders} {
		for i := range list {
			list[i] = d.numbered(list[i])
		}
	}
	y.Text = d.numbered(y.Text)
	return y
}

var jobNumber = regexp.MustCompile(`\bjob (\d+)\b`)

// numbered puts the numbers that people know in place of the engine's, which are
// others after each time that a gang is submitted.
func (d *Driver) numbered(text string) string {
	return jobNumber.ReplaceAllStringFunc(text, func(m string) string {
		if id, err := strconv.Atoi(m[len("job "):]); err == nil {
			if g := d.byID[cluster.JobID(id)]; g != nil && g.number > 0 {
				return fmt.Sprintf("job %d", g.number)
			}
		}
		return m
	})
}

// tasksOf lists the pods of a gang.
func tasksOf(g *gang) (list []show.Task) {
	for _, p := range g.sorted() {
		list = append(list, show.Task{Name: p.obj.Name, State: taskState(p), Node: p.node, GPUs: p.request.GPUs})
	}
	return list
}

// History says what happened to a gang since this scheduler leads.
func (v View) History(ctx context.Context, id int) ([]show.Moment, error) {
	l, err := v.d.look(ctx)
	if err != nil {
		return nil, err
	}
	r, err := l.one(id)
	if err != nil {
		return nil, err
	}
	list := []show.Moment{}
	for _, m := range r.moments {
		list = append(list, show.Moment{At: *instant(m.at), State: m.state, Text: m.text})
	}
	return list, nil
}

// Samples are empty: what pods use, the cluster's own monitoring measures.
func (v View) Samples(ctx context.Context, id int) (show.Samples, error) {
	l, err := v.d.look(ctx)
	if err == nil {
		_, err = l.one(id)
	}
	return show.Samples{Every: 1, Points: []show.Point{}}, err
}

// Speeds is what gangs' progress told of their speeds, since this scheduler leads.
func (v View) Speeds(ctx context.Context) (s show.Speeds, err error) {
	got := make(chan show.Speeds, 1)
	if err := v.d.ask(ctx, func() { got <- progress.Speeds(v.d.eng) }); err != nil {
		return s, err
	}
	return <-got, nil
}

// Nodes lists the nodes.
func (v View) Nodes(ctx context.Context) ([]show.Node, error) {
	l, err := v.d.look(ctx)
	if err != nil {
		return nil, err
	}
	return l.listNodes(), nil
}

func (l *sight) listNodes() []show.Node {
	list := make([]show.Node, 0, len(l.nodes))
	known := map[string]int64{}
	for i := range l.nodes {
		s := &l.nodes[i]
		memory, ok := known[s.Model]
		if !ok {
			m, _ := cluster.FindModel(s.Model)
			memory = m.Memory
			known[s.Model] = memory
		}
		memory = cmp.Or(s.memory, memory)
		n := show.Node{Name: s.Name, State: s.State.String(), Reason: s.reason, CPU: s.CPU, RAM: s.RAM, GPUs: make([]show.GPU, s.GPUs), Usable: &s.usable}
		foreign := s.foreign
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
		for _, h := range s.holders {
			for k := range n.GPUs {
				if h.gpus>>k&1 != 0 {
					g := &n.GPUs[k]
					g.Jobs, g.Free = append(g.Jobs, h.number), max(0, g.Free-cmp.Or(int64(h.share), cluster.Whole))
				}
			}
		}
		list = append(list, n)
	}
	return list
}

// Queues lists the queues with what they hold.
func (v View) Queues(ctx context.Context) ([]show.Queue, error) {
	l, err := v.d.look(ctx)
	if err != nil {
		return nil, err
	}
	return l.listQueues(), nil
}

func (l *sight) listQueues() []show.Queue {
	list, shares, at := []show.Queue{}, []int64{}, map[string]int{}
	for i, q := range l.queues {
		list = append(list, show.Queue{Name: q.Spec.Name, Parent: q.Spec.Parent, Guarantee: q.Spec.Guarantee, Limit: q.Spec.Limit, Used: q.Used})
		shares = append(shares, q.Spec.Shares)
		at[q.Spec.Name] = i
	}
	show.FairShares(list, shares)
	for _, r := range l.rows {
		i, ok := at[cmp.Or(r.spec.Queue, "default")]
		switch {
		case !ok:
		case r.state == show.StatePending:
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
func (v View) Overview(ctx context.Context) (show.Overview, error) {
	l, err := v.d.look(ctx)
	if err != nil {
		return show.Overview{}, err
	}
	o := show.Overview{At: *instant(l.at), Counts: map[string]int{}, Nodes: l.listNodes(), Queues: l.listQueues(), Running: []show.Job{}, Waiting: []show.Job{}, Series: l.series}
	o.Left = show.LeftOf(o.Nodes)
	o.Whole = whole(o.Nodes)
	slices.SortFunc(o.Nodes, func(a, b show.Node) int { return cmp.Or(worst(&a)-worst(&b), cmp.Compare(a.Name, b.Name)) })
	o.Nodes = o.Nodes[:min(len(o.Nodes), mostShown)]
	var line []*row
	for _, r := range slices.Backward(l.rows) {
		o.Counts[r.state]++
		switch {
		case r.state == show.StatePending && r.position > 0 && r.position <= lookAhead:
			line = append(line, r)
		case r.state != show.StatePending && len(o.Running) < mostShown:
			o.Running = append(o.Running, r.listed(l.at))
		}
	}
	slices.SortFunc(line, func(a, b *row) int { return a.position - b.position })
	for _, r := range line {
		o.Waiting = append(o.Waiting, r.listed(l.at))
	}
	return o, nil
}

// Watch begins to watch; which jobs changed is not said.
func (v View) Watch() (changed <-chan struct{}, take func() ([]int, bool), stop func()) {
	c, l := make(chan struct{}, 1), &v.d.looks
	l.watchMu.Lock()
	defer l.watchMu.Unlock()
	l.watch[c] = true
	return c, func() ([]int, bool) { return []int{}, true }, func() {
		l.watchMu.Lock()
		defer l.watchMu.Unlock()
		delete(l.watch, c)
	}
}

func instant(at cluster.Time) *time.Time {
	if at == 0 || at == cluster.Never {
		return nil
	}
	t := time.Unix(0, int64(at)).UTC()
	return &t
}

// job is a row as the interface has it, at an instant.
func (r *row) job(now cluster.Time) show.Job {
	s := r.spec
	j := show.Job{ID: r.number, User: r.user, State: r.state, Reason: r.reason, Sharing: r.sharing, Promise: r.promise, Submitted: *instant(r.submit), Started: instant(r.started), FirstStart: instant(r.first),
		Ended: instant(r.ended), Position: r.position, Progress: r.progress, Metrics: r.metrics, Restarts: max(0, r.runs-1), Preemptions: r.evicted}
	waited, ran, gpuTime := r.waited, r.ran, r.gpuTime
	if r.lined > 0 && r.ended == 0 {
		waited += max(0, now.Sub(r.lined))
	}
	if r.ended == 0 && r.state != show.StatePending {
		run := max(0, now.Sub(r.started))
		ran, gpuTime = ran+run, gpuTime+run*time.Duration(r.gpus)
		switch {
		case r.state != show.StateRunning:
		case r.end != cluster.Never:
			j.ExpectedEnd, j.EndBy = instant(r.end), show.EndByProgress
		case s.Estimate > 0:
			j.ExpectedEnd, j.EndBy = instant(r.started.Add(s.Estimate)), show.EndByEstimate
		}
	}
	j.Waited, j.Ran, j.GPUHours = ask.Duration(waited), ask.Duration(ran), gpuTime.Hours()
	j.StepRate, j.SampleRate = progress.PerHour(r.steps, j.GPUHours), progress.PerHour(r.samples, j.GPUHours)
	if r.state != show.StatePending {
		j.Node = strings.Join(r.nodes, ",")
	} else {
		switch r.position {
		case 0: // it is not in line: pods are missing, or gated
		case 1:
			j.Code = "Resources"
		default:
			j.Code = "Priority"
		}
		if r.expected > now {
			j.Expected = instant(r.expected)
			j.AtEarliest = j.Expected != nil // nothing is known of how such answers turn out
		}
	}
	j.Submission = ask.Submission{Name: r.name, Queue: cmp.Or(s.Queue, "default"), Tier: s.Tier.String(), Priority: s.Priority, Estimate: ask.Duration(s.Estimate), Deadline: instant(s.Deadline), GPUTypes: s.GPUTypes}
	if s.Topology.Level != 0 {
		j.Submission.Level, j.Submission.Required = s.Topology.Level.String(), s.Topology.Required
	}
	sizes(&j.Submission, s.Tasks)
	return j
}

// listed is a row of a list: without what not everybody sees, so that nobody need be asked whose it is.
func (r *row) listed(now cluster.Time) show.Job {
	j := r.job(now)
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
		s.GPUs, s.CPU, s.RAM = s.GPUs+t.Count*t.Request.GPUs, s.CPU+int64(t.Count)*t.Request.CPU, s.RAM+int64(t.Count)*t.Request.RAM
	}
}
