package engine_test

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// dumb is the engine's twin: the documented rules and nothing else. It keeps no
// index, no list and no memory: what is free is added up for every question,
// what-if is a copy, every order is a sort. It knows whole GPUs, CPU, gangs of
// one task set, GPU types, tiers, priorities, fifo, sjf, srtf and las, three
// placers, strict order and skip.
type dumb struct {
	policy, placer string
	strict         bool
	now            cluster.Time
	nodes          []cluster.Node
	jobs           []*dumbJob
	booked         int
	preempts       []string
	others         []string
}

type dumbJob struct {
	*cluster.Job
	state      engine.State
	allocs     []engine.Alloc
	waits      []cluster.JobID
	turn       int // when it was placed
	reason     engine.StopReason
	started    cluster.Time
	firstStart cluster.Time
	acc        cluster.Time
	attained   int64
	done       time.Duration
	saved      time.Duration
	computes   bool
	falling    int64 // srtf: remaining + now when it was listed
}

func (j *dumbJob) milli() int64 {
	return int64(j.Tasks[0].Count*j.Tasks[0].Request.GPUs) * 1000
}

func (j *dumbJob) holds() bool {
	return j.state == engine.Starting || j.state == engine.Running || j.state == engine.Stopping
}

func (j *dumbJob) inBooks() bool {
	return j.state == engine.Placed || j.state == engine.Starting || j.state == engine.Running
}

// accrue counts service and work up to now.
func (d *dumb) accrue(j *dumbJob) {
	if j.holds() {
		j.attained += j.milli() * int64(d.now.Sub(j.acc)/time.Millisecond)
		if j.computes {
			j.done += d.now.Sub(j.acc)
		}
	}
	j.acc = d.now
}

func (d *dumb) remaining(j *dumbJob) int64 {
	d.accrue(j)
	if j.Estimate == 0 {
		return int64(cluster.MaxDuration)
	}
	return int64(max(0, j.Estimate-j.done))
}

// key is the policy's: lower first.
func (d *dumb) key(j *dumbJob) [2]int64 {
	switch d.policy {
	case "fifo":
		return [2]int64{-j.Priority}
	case "sjf", "srtf":
		return [2]int64{d.remaining(j)}
	}
	d.accrue(j) // las:base=1m: levels end at 1, 2, 4 ... GPU-minutes
	level := int64(0)
	for end := int64(60_000_000); level < 15 && j.attained >= end; end *= 2 {
		level++
	}
	return [2]int64{level, int64(j.firstStart)}
}

func (d *dumb) preempting() bool { return d.policy == "srtf" || d.policy == "las" }

// listed is the first key element of a job with devices, as of its last change.
func (d *dumb) listed(j *dumbJob) int64 {
	if d.policy == "srtf" {
		return j.falling
	}
	return d.key(j)[0]
}

// free is what the books leave free, added up anew.
type free struct {
	gpus []uint64
	cpu  []int64
}

func (d *dumb) free() free {
	f := free{make([]uint64, len(d.nodes)), make([]int64, len(d.nodes))}
	for i := range d.nodes {
		f.gpus[i], f.cpu[i] = uint64(1)<<d.nodes[i].GPUs-1, d.nodes[i].CPU
	}
	for _, j := range d.jobs {
		if j != nil && j.inBooks() {
			f.take(j.allocs)
		}
	}
	return f
}

func (f *free) take(allocs []engine.Alloc) {
	for _, a := range allocs {
		f.gpus[a.Node] &^= a.GPUs
		f.cpu[a.Node] -= a.CPU
	}
}

func (f *free) give(allocs []engine.Alloc) {
	for _, a := range allocs {
		f.gpus[a.Node] |= a.GPUs
		f.cpu[a.Node] += a.CPU
	}
}

func (f *free) clone() free { return free{slices.Clone(f.gpus), slices.Clone(f.cpu)} }

// kind is what no job can tell apart: model and size of a node.
func (d *dumb) kind(i int) string { return fmt.Sprintf("%s/%d", d.nodes[i].Model, d.nodes[i].GPUs) }

// suits reports whether a task of the job can ever run on nodes like this.
func (d *dumb) suits(j *dumbJob, i int) bool {
	r := j.Tasks[0].Request
	n := &d.nodes[i]
	cpu := int64(0)
	for k := range d.nodes {
		if d.kind(k) == d.kind(i) {
			cpu = max(cpu, d.nodes[k].CPU)
		}
	}
	return n.GPUs >= r.GPUs && cpu >= r.CPU && (len(j.GPUTypes) == 0 || slices.Contains(j.GPUTypes, n.Model))
}

// stages are the sets of nodes to try one after the other: by preferred GPU
// type, and for gangs by model.
func (d *dumb) stages(j *dumbJob, blocked map[string]bool) (list [][]int) {
	types := j.GPUTypes
	if len(types) == 0 && j.Tasks[0].Count > 1 {
		for i := range d.nodes {
			if !slices.Contains(types, d.nodes[i].Model) {
				types = append(slices.Clone(types), d.nodes[i].Model)
			}
		}
	}
	if len(types) == 0 {
		types = []string{""}
	}
	for _, typ := range types {
		var nodes []int
		for i := range d.nodes {
			if d.nodes[i].State == cluster.Up && d.suits(j, i) && !blocked[d.kind(i)] && (typ == "" || d.nodes[i].Model == typ) {
				nodes = append(nodes, i)
			}
		}
		list = append(list, nodes)
	}
	return list
}

// place finds devices for the whole gang, or nothing.
func (d *dumb) place(j *dumbJob, f free, blocked map[string]bool) []engine.Alloc {
	for _, nodes := range d.stages(j, blocked) {
		if allocs := d.placeOn(j, f.clone(), nodes); allocs != nil {
			return allocs
		}
	}
	return nil
}

func (d *dumb) placeOn(j *dumbJob, f free, nodes []int) (allocs []engine.Alloc) {
	r := j.Tasks[0].Request
	room := func(i int) int {
		n := bits.OnesCount64(f.gpus[i]) / r.GPUs
		if r.CPU > 0 {
			n = min(n, int(f.cpu[i]/r.CPU))
		}
		return n
	}
	// find is the best node with room for n tasks; sign 1: the fullest, -1: the
	// emptiest, 0: the first.
	find := func(n, sign int) int {
		fit := slices.DeleteFunc(slices.Clone(nodes), func(i int) bool { return room(i) < n })
		slices.SortStableFunc(fit, func(a, b int) int {
			c := cmp.Compare(bits.OnesCount64(f.gpus[a]), bits.OnesCount64(f.gpus[b]))
			if c == 0 && r.CPU > 0 {
				c = cmp.Compare(f.cpu[a], f.cpu[b])
			}
			return c * sign
		})
		if len(fit) == 0 {
			return -1
		}
		return fit[0]
	}
	for left := j.Tasks[0].Count; left > 0; {
		node, n := -1, left
		switch d.placer {
		case "best-fit": // as many as fit on one node, on the fullest
			for ; n > 0 && node < 0; n-- {
				node = find(n, 1)
			}
			n++
		case "first-fit": // all on the first that holds them, if all are still to be placed
			if left == j.Tasks[0].Count {
				node = find(left, 0)
			}
			if node < 0 {
				if node = find(1, 0); node >= 0 {
					n = min(left, room(node))
				}
			}
		case "worst-fit":
			node, n = find(1, -1), 1
		}
		if node < 0 {
			return nil
		}
		a := engine.Alloc{Node: int32(node), Tasks: int32(n), CPU: r.CPU * int64(n)}
		for range n * r.GPUs {
			a.GPUs |= f.gpus[node] &^ a.GPUs & -(f.gpus[node] &^ a.GPUs)
		}
		f.take([]engine.Alloc{a})
		allocs = append(allocs, a)
		left -= n
	}
	return allocs
}

// book gives devices to a job; it starts when nobody is on them any more.
func (d *dumb) book(j *dumbJob, allocs []engine.Alloc) {
	d.booked++
	j.allocs, j.state, j.turn, j.waits = allocs, engine.Placed, d.booked, nil
	j.falling = d.remaining(j) + int64(d.now)
	for _, v := range d.jobs {
		if v != nil && v.state == engine.Stopping && overlap(v.allocs, allocs) {
			j.waits = append(j.waits, v.ID)
		}
	}
	if len(j.waits) == 0 {
		d.start(j)
	}
}

func overlap(a, b []engine.Alloc) bool {
	for _, x := range a {
		for _, y := range b {
			if x.Node == y.Node && (x.GPUs&y.GPUs != 0 || x.CPU > 0 && y.CPU > 0) {
				return true
			}
		}
	}
	return false
}

func (d *dumb) start(j *dumbJob) {
	j.state, j.started, j.firstStart, j.acc, j.computes = engine.Starting, d.now, min(j.firstStart, d.now), d.now, false
	j.falling = d.remaining(j) + int64(d.now)
	s := fmt.Sprintf("start %d", j.ID)
	for _, a := range j.allocs {
		s += fmt.Sprintf(" n%d:%b", a.Node, a.GPUs)
	}
	d.others = append(d.others, s)
}

// stop tells a job to leave.
func (d *dumb) stop(j *dumbJob, why engine.StopReason, whom cluster.JobID) {
	d.accrue(j)
	j.state, j.reason = engine.Stopping, why
	d.preempts = append(d.preempts, fmt.Sprintf("preempt %d %s for %d", j.ID, why, whom))
}

// step is Step.
func (d *dumb) step(b engine.Batch) (others, preempts []string) {
	d.now, d.others, d.preempts = b.Now, nil, nil
	var ready []*dumbJob
	for _, ev := range b.Events {
		if ev.Type == engine.Stopped || ev.Type == engine.StartFailed {
			ready = append(ready, d.left(&ev)...)
		}
	}
	for _, ev := range b.Events {
		if ev.Type == engine.NodeDown || ev.Type == engine.NodeUp {
			d.node(&ev)
		}
	}
	for _, ev := range b.Events {
		d.event(&ev)
	}
	for _, j := range ready {
		if j.state == engine.Placed && len(j.waits) == 0 {
			d.start(j)
		}
	}
	d.pass()
	slices.Sort(d.preempts)
	return d.others, d.preempts
}

// left books that a job is off its devices; it returns the placed jobs that
// nobody keeps from their devices any more.
func (d *dumb) left(ev *engine.Event) (ready []*dumbJob) {
	j := d.jobs[ev.Job]
	if !j.holds() {
		return nil
	}
	d.accrue(j)
	if ev.Type == engine.Stopped {
		j.done = ev.Done
		j.saved = j.done
	}
	reason := ev.Reason
	if j.state == engine.Stopping && (ev.Type == engine.StartFailed || reason == engine.Preempted || reason == engine.NodeLost && j.reason != engine.Preempted) {
		reason = j.reason
	} else if ev.Type == engine.StartFailed {
		reason = engine.Preempted
	}
	if j.state = engine.Done; reason == engine.Preempted || reason == engine.NodeLost {
		j.state = engine.Pending
	}
	j.allocs, j.computes = nil, false
	var placed []*dumbJob
	for _, w := range d.jobs {
		if w != nil && w.state == engine.Placed && slices.Contains(w.waits, j.ID) {
			placed = append(placed, w)
		}
	}
	slices.SortFunc(placed, func(a, b *dumbJob) int { return cmp.Compare(a.turn, b.turn) })
	for _, w := range placed {
		w.waits = slices.DeleteFunc(w.waits, func(id cluster.JobID) bool { return id == j.ID })
		if len(w.waits) == 0 {
			ready = append(ready, w)
		}
	}
	return ready
}

func (d *dumb) node(ev *engine.Event) {
	for i := range d.nodes {
		if d.nodes[i].Name != ev.Node {
			continue
		}
		if ev.Type == engine.NodeUp {
			d.nodes[i].State = cluster.Up
			return
		}
		d.nodes[i].State = cluster.Down
		for _, j := range d.jobs {
			if j == nil || !j.inBooks() || !slices.ContainsFunc(j.allocs, func(a engine.Alloc) bool { return int(a.Node) == i }) {
				continue
			}
			if j.state == engine.Placed {
				j.state, j.allocs = engine.Pending, nil
			} else {
				d.stop(j, engine.NodeLost, cluster.NoJob)
			}
		}
	}
}

func (d *dumb) event(ev *engine.Event) {
	switch ev.Type {
	case engine.Submitted:
		for len(d.jobs) <= int(ev.Job) {
			d.jobs = append(d.jobs, nil)
		}
		d.jobs[ev.Job] = &dumbJob{Job: ev.Spec, firstStart: cluster.Never}
	case engine.Started:
		if j := d.jobs[ev.Job]; j.holds() {
			d.accrue(j)
			if j.state == engine.Starting {
				j.state = engine.Running
			}
			if j.computes = true; j.state == engine.Running {
				j.falling = d.remaining(j) + int64(d.now)
			}
		}
	case engine.Cancelled:
		switch j := d.jobs[ev.Job]; j.state {
		case engine.Pending, engine.Placed:
			j.state, j.allocs = engine.Done, nil
		case engine.Starting, engine.Running:
			d.stop(j, engine.WasCancelled, cluster.NoJob)
		case engine.Stopping:
			j.reason = engine.WasCancelled
		}
	}
}

// order compares pending jobs: tier, key, submission, number.
func (d *dumb) order(a, b *dumbJob) int {
	ka, kb := d.key(a), d.key(b)
	return cmp.Or(cmp.Compare(a.Tier, b.Tier), slices.Compare(ka[:], kb[:]), cmp.Compare(a.Submit, b.Submit), cmp.Compare(a.ID, b.ID))
}

// pass considers each pending job once, in order. Jobs of a shape that was
// refused are passed over; a tier in which nothing was waiting, or in which all
// have been looked at, is done with.
func (d *dumb) pass() {
	var last *dumbJob
	closed, blocked := map[string]bool{}, map[string]bool{}
	var done [3]bool
	for t := range done {
		done[t] = !slices.ContainsFunc(d.jobs, func(j *dumbJob) bool { return j != nil && j.state == engine.Pending && int(j.Tier) == t })
	}
	for {
		var next *dumbJob
		var any [3]bool
		for _, j := range d.jobs {
			if j == nil || j.state != engine.Pending || done[j.Tier] || closed[shapeText(j)] || last != nil && d.order(j, last) <= 0 {
				continue
			}
			any[j.Tier] = true
			if next == nil || d.order(j, next) < 0 {
				next = j
			}
		}
		for t := range done {
			done[t] = done[t] || !any[t]
		}
		if next == nil {
			return
		}
		before := *next
		if !d.try(next, blocked) {
			closed[shapeText(next)] = true
			if d.strict && d.block(next, blocked) {
				return
			}
		}
		last = &before
	}
}

func shapeText(j *dumbJob) string { return fmt.Sprint(j.Tier, j.Tasks, j.GPUTypes) }

// block closes the kinds of node on which a blocked job could run; true: none
// is left open.
func (d *dumb) block(j *dumbJob, blocked map[string]bool) bool {
	all := true
	for i := range d.nodes {
		if d.suits(j, i) {
			blocked[d.kind(i)] = true
		}
	}
	for i := range d.nodes {
		all = all && blocked[d.kind(i)]
	}
	return all
}

func (d *dumb) try(j *dumbJob, blocked map[string]bool) bool {
	f := d.free()
	if allocs := d.place(j, f, blocked); allocs != nil {
		d.book(j, allocs)
		return true
	}
	open := false
	for i := range d.nodes {
		open = open || d.suits(j, i) && !blocked[d.kind(i)]
	}
	return open && d.preempt(j, f, blocked)
}

// preempt takes victims, best first, until the job fits; those who need not
// leave after all stay, the last chosen first.
func (d *dumb) preempt(j *dumbJob, f free, blocked map[string]bool) bool {
	var gone []*dumbJob
	var allocs []engine.Alloc
	for _, v := range d.victims(j) {
		f.give(v.allocs)
		gone = append(gone, v)
		if allocs = d.place(j, f, blocked); allocs != nil {
			break
		}
	}
	if allocs == nil {
		return false
	}
	f.take(allocs)
	for i := len(gone) - 1; i >= 0; i-- {
		back, then := true, f.clone()
		for k, a := range gone[i].allocs {
			back = back && then.gpus[a.Node]&a.GPUs == a.GPUs && then.cpu[a.Node] >= a.CPU
			then.take(gone[i].allocs[k : k+1])
		}
		if back {
			f, gone = then, slices.Delete(gone, i, i+1)
		}
	}
	for _, v := range gone {
		if v.state == engine.Placed {
			v.state, v.allocs, v.waits = engine.Pending, nil, nil
		} else {
			d.stop(v, engine.Preempted, j.ID)
		}
	}
	d.book(j, allocs)
	return true
}

// victims are the jobs that come strictly after: of a lower tier, or of the
// same and later in the order of a policy that preempts; only those on nodes
// that suit. Best first: the lowest tier, the last in the order, the least
// lost work, the youngest, the highest number.
func (d *dumb) victims(j *dumbJob) (list []*dumbJob) {
	mine := d.key(j)[0]
	if d.policy == "srtf" {
		mine += int64(d.now)
	}
	for _, v := range d.jobs {
		if v == nil || !v.inBooks() || v.Tier == cluster.Critical || v.Tier < j.Tier ||
			v.Tier == j.Tier && !(d.preempting() && mine < d.listed(v)) ||
			!slices.ContainsFunc(v.allocs, func(a engine.Alloc) bool { return d.suits(j, int(a.Node)) }) {
			continue
		}
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b *dumbJob) int {
		c := cmp.Compare(b.Tier, a.Tier)
		if c == 0 && d.preempting() {
			c = cmp.Compare(d.listed(b), d.listed(a))
		}
		return cmp.Or(c, cmp.Compare(d.lost(a), d.lost(b)), cmp.Compare(b.started, a.started), cmp.Compare(b.ID, a.ID))
	})
	return list
}

// lost is the work that a stop wastes: standard jobs write a checkpoint, which
// costs nothing here; best-effort jobs are killed.
func (d *dumb) lost(v *dumbJob) int64 {
	d.accrue(v)
	if v.state == engine.Placed || v.Tier != cluster.BestEffort && !v.Checkpoint.None {
		return 0
	}
	return v.milli() * int64((v.done-v.saved)/time.Millisecond)
}
