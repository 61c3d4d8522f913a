package engine_test

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/inventory"
)

// TestRandomFacts is TestRandom for seeds in which drivers find out about running jobs and about nodes, often enough to
// tell.
func TestRandomFacts(t *testing.T) {
	t.Parallel()
	found := map[engine.EventType]int{}
	for _, pol := range []string{"fifo", "srtf", "multifactor"} {
		for seed := uint64(1); seed < 14; seed += 4 {
			for typ, n := range randomRun(t, pol, seed).found {
				found[typ] += n
			}
		}
	}
	for _, typ := range []engine.EventType{engine.JobReshaped, engine.Adopted, engine.NodeChanged} {
		if t.Logf("%s: %d", typ, found[typ]); found[typ] < 30 {
			t.Errorf("%s: too few to tell", typ)
		}
	}
}

// finder makes up what a driver could find: tasks on random devices, whether they are free or not.
type finder struct {
	r     *rand.Rand
	nodes []cluster.Node
}

// anywhere has a job's tasks on random nodes and devices.
func (f finder) anywhere(tasks []cluster.TaskSet, user string) (list []engine.Alloc) {
	for set := range tasks {
		for range tasks[set].Count {
			list = append(list, f.oneAnywhere(&tasks[set].Request, set, user)...)
		}
	}
	return list
}

// oneAnywhere has one task on a random node; user is that of shares where they are of one user.
func (f finder) oneAnywhere(q *cluster.Request, set int, user string) (list []engine.Alloc) {
	node := f.r.IntN(len(f.nodes))
	n := &f.nodes[node]
	a := engine.Alloc{Node: int32(node), Set: int32(set), Tasks: 1, CPU: q.CPU, RAM: q.RAM}
	if !partial(q) || n.GPUs == 0 {
		for bits.OnesCount64(a.GPUs) < min(q.GPUs, n.GPUs) {
			a.GPUs |= 1 << f.r.IntN(n.GPUs)
		}
		return []engine.Alloc{a}
	}
	first := f.r.IntN(n.GPUs)
	for k := range min(q.GPUs, n.GPUs) {
		a.GPUs, a.Share, a.Mem = 1<<((first+k)%n.GPUs), int32(q.Share), q.Memory
		if q.Profile == "" {
			a.User = user
		} else if !f.instance(&a, q, modelOf(n)) {
			return nil
		}
		list = append(list, a)
		a.Tasks, a.CPU, a.RAM = 0, 0, 0
	}
	return list
}

// instance makes an allocation one of a random instance; false: the model has no such profile.
func (f finder) instance(a *engine.Alloc, q *cluster.Request, m *cluster.GPUModel) bool {
	p, ok := m.Profile(q.Profile)
	if !ok {
		return false
	}
	a.Slots, a.Compute, a.Media = p.Mask(p.Starts[f.r.IntN(len(p.Starts))]), uint8(p.Compute), p.Media()
	a.Share, a.Mem = int32(p.Compute*1000/m.Compute), min(p.Memory, m.Memory)
	return true
}

// reshape makes a random change to what a job has: fewer tasks, more, others, elsewhere. add finds room for one more
// task, request draws what else it could ask for.
func (f finder) reshape(tasks []cluster.TaskSet, allocs []engine.Alloc, user string,
	add func(q cluster.Request) []engine.Alloc, request func() cluster.Request) *engine.Reshape {
	r := f.r
	to := &engine.Reshape{Tasks: slices.Clone(tasks), Allocs: slices.Clone(allocs)}
	set := r.IntN(len(to.Tasks))
	s := &to.Tasks[set]
	switch k := r.IntN(10); {
	case k < 3 && s.Count > 1: // it lost one
		s.Count--
		loseTask(to, set)
	case k < 5:
		s.Count++
		more := add(s.Request)
		if more == nil || chance(r, 20) {
			more = f.oneAnywhere(&s.Request, set, user)
		}
		for _, a := range more {
			a.Set = int32(set)
			to.Allocs = append(to.Allocs, a)
		}
	case k < 7: // other CPU and RAM
		s.Request.CPU, s.Request.RAM = pick[int64](r, 0, 1000, 3000, 8000), pick[int64](r, 0, 4096, 20000)
		for i := range to.Allocs {
			if a := &to.Allocs[i]; int(a.Set) == set {
				a.CPU, a.RAM = s.Request.CPU*int64(a.Tasks), s.Request.RAM*int64(a.Tasks)
			}
		}
	case k < 8 && len(to.Tasks) == 1: // all of it is elsewhere
		s.Request = request()
		to.Allocs = f.anywhere(to.Tasks, user)
	case k < 9 && len(to.Allocs) > 0: // one of its devices is another
		a := &to.Allocs[r.IntN(len(to.Allocs))]
		if n := &f.nodes[a.Node]; bits.OnesCount64(a.GPUs) == 1 {
			a.GPUs = 1 << r.IntN(n.GPUs)
		}
	default: // it is as it was, or on a node that there is not
		if len(to.Allocs) > 0 && chance(r, 20) {
			to.Allocs[0].Node = int32(len(f.nodes))
		}
	}
	return to
}

// loseTask takes a task of a set out of a job's devices, if they tell which.
func loseTask(to *engine.Reshape, set int) {
	for i := len(to.Allocs) - 1; i >= 0; i-- {
		a, q := &to.Allocs[i], &to.Tasks[set].Request
		switch {
		case int(a.Set) != set:
			continue
		case a.Tasks == 1 && (!partial(q) || q.GPUs == 1):
			to.Allocs = slices.Delete(to.Allocs, i, i+1)
		case partial(q):
			continue
		default:
			for range q.GPUs {
				a.GPUs &= a.GPUs - 1
			}
			a.Tasks--
			a.CPU, a.RAM = a.CPU-q.CPU, a.RAM-q.RAM
		}
		return
	}
}

// withFacts adds what drivers find out about jobs that run and about nodes. What exactly is found is drawn when it
// happens.
func withFacts(seed uint64, list []stimulus, spec *cluster.Spec, jobs []*cluster.Job) (more []stimulus) {
	r := rand.New(rand.NewPCG(seed, 0x6661637473))
	next := cluster.JobID(len(jobs))
	for _, s := range list {
		if more = append(more, s); len(jobs) == 0 {
			continue
		}
		n := spec.Nodes[r.IntN(len(spec.Nodes))]
		switch k := r.IntN(100); {
		case k < 25:
			id := cluster.JobID(max(r.IntN(len(jobs)), r.IntN(len(jobs))))
			more = append(more, stimulus{s.at, engine.Event{Type: engine.JobReshaped, Job: id}})
		case k < 35:
			j := *jobs[r.IntN(len(jobs))]
			j.ID, j.Array, j.After, j.Elastic = next, nil, nil, cluster.Elastic{}
			next++
			more = append(more, stimulus{s.at, engine.Event{Type: engine.Adopted, Job: j.ID, Spec: &j}})
		case k < 40:
			size := &engine.NodeSize{CPU: pick[int64](r, 8000, 16000, 32000, 0), RAM: pick[int64](r, 65536, 131072, 0)}
			more = append(more, stimulus{s.at, engine.Event{Type: engine.NodeResized, Node: n.Name, Size: size}})
		case k < 47:
			n.Rack, n.Fabric, n.Islands = pick(r, "r1", "r2"), pick(r, "f1", "f2"), pick(r, 0, 2)
			if chance(r, 60) && n.GPUs > 0 {
				n.GPUs, n.MIG, n.Bad = pick(r, 2, 4, 8), "", uint64(r.IntN(2))
			}
			if n.Model != "" && n.Model != "T4-16GB" && n.MIG == "" && chance(r, 30) {
				n.MIG = randomGeometry(r, &n)
			}
			more = append(more, stimulus{s.at, engine.Event{Type: engine.NodeChanged, Node: n.Name, Spare: &n}})
		}
	}
	return more
}

// find is what a driver reports of a job that runs: what it is made of now, or that it is there.
func (w *randomWorld) find(ev *engine.Event) engine.Event {
	now, r := *ev, w.draw(ev.Job, uint32(w.seq), 11)
	w.seq++
	f := finder{r, w.specs}
	user := func(j *cluster.Job) string {
		if w.sc.cfg.Spec.Sharing == cluster.MPS {
			return j.User
		}
		return ""
	}
	add := func(q cluster.Request) []engine.Alloc { return f.oneAnywhere(&q, 0, "") }
	if ev.Type == engine.Adopted {
		rec := &engine.JobRecord{Spec: ev.Spec}
		for range 30 { // mostly where nothing else is
			if rec.Allocs = f.anywhere(ev.Spec.Tasks, user(ev.Spec)); w.e.CheckAdopted(adoptable(rec, w.now, r)) == "" {
				break
			}
		}
		now.Spec, now.Record = nil, rec
		return now
	}
	rec := w.e.Record(ev.Job)
	for range 10 {
		now.Reshape = f.reshape(rec.Spec.Tasks, w.jobs[ev.Job].allocs, user(rec.Spec), add, (&generator{r: r}).request)
		if w.e.CheckReshape(ev.Job, now.Reshape) == "" {
			break
		}
	}
	return now
}

// someRunning is the first job from a number on that has devices; NoJob: none has.
func (w *randomWorld) someRunning(from cluster.JobID) cluster.JobID {
	for i := range w.jobs {
		id := (int(from) + i) % len(w.jobs)
		if j := w.jobs[id]; j != nil && (j.phase == starts || j.phase == runs) {
			return cluster.JobID(id)
		}
	}
	return cluster.NoJob
}

// adoptable says since when a job has run, and what it did.
func adoptable(rec *engine.JobRecord, now cluster.Time, r *rand.Rand) *engine.JobRecord {
	rec.State, rec.Rate, rec.Speed = engine.Running, 1_000_000, 1_000_000
	if chance(r, 20) {
		rec.State, rec.Rate, rec.Speed = engine.Starting, 0, 0
	}
	rec.Started = now - min(now, cluster.Time(seconds(r.IntN(100))))
	rec.FirstStart, rec.Since, rec.Acc, rec.Ran = rec.Started, rec.Started, now, now.Sub(rec.Started)
	rec.LimitAt, rec.StarvingSince = cluster.Never, cluster.Never
	if rec.Spec.Limit > 0 {
		rec.LimitAt = rec.Started.Add(rec.Spec.Limit)
	}
	rec.Attained = int64(r.IntN(100_000_000))
	return rec
}

// settle takes over into the world what the engine took over, and checks that it can be so: first nodes, then jobs.
func (w *randomWorld) settle(b *engine.Batch) error {
	reshaped := map[cluster.JobID]bool{} // looked up only
	for i := range b.Events {
		if ev := &b.Events[i]; ev.Type == engine.JobReshaped {
			reshaped[ev.Job] = true
		}
	}
	for i := range b.Events {
		if ev := &b.Events[i]; ev.Type == engine.NodeChanged {
			if err := w.settleNode(ev, reshaped); err != nil {
				return fmt.Errorf("%s: %w", ev.Type, err)
			}
		}
	}
	for i := range b.Events {
		if ev := &b.Events[i]; ev.Type == engine.JobReshaped {
			w.settleReshape(ev)
		}
	}
	for i := range b.Events {
		if ev := &b.Events[i]; ev.Type == engine.Adopted {
			if err := w.settleAdopted(ev); err != nil {
				return fmt.Errorf("%s: %w", ev.Type, err)
			}
		}
	}
	if w.sc.facts {
		return w.checkFound()
	}
	return nil
}

func (w *randomWorld) settleReshape(ev *engine.Event) {
	j, rec := w.jobs[ev.Job], w.e.Record(ev.Job)
	if j.phase != starts && j.phase != runs {
		return
	}
	have := slices.Clone(rec.Allocs)
	for i := range have {
		have[i].Tenant = 0
	}
	want := slices.Clone(ev.Reshape.Allocs)
	for i := range want {
		want[i].Tenant = 0
	}
	if !slices.Equal(have, want) || !reflect.DeepEqual(rec.Spec.Tasks, ev.Reshape.Tasks) {
		return // it did not fit, or another report followed
	}
	w.found[ev.Type]++
	w.serve(j)
	j.allocs, j.milli = rec.Allocs, milliOf(rec.Allocs)
}

func (w *randomWorld) settleAdopted(ev *engine.Event) error {
	rec := w.e.Record(ev.Job)
	if rec == nil {
		return nil
	}
	for len(w.jobs) <= int(ev.Job) {
		w.jobs = append(w.jobs, nil)
	}
	if w.jobs[ev.Job] != nil {
		return fmt.Errorf("job %d was there already", ev.Job)
	}
	w.found[ev.Type]++
	left := seconds(10 + w.draw(ev.Job, 0, 1).IntN(400))
	j := &worldJob{spec: ev.Record.Spec, phase: runs, attempt: 1, step: 1, allocs: rec.Allocs,
		milli: milliOf(rec.Allocs), served: ev.Record.Attained, since: w.now, left: left}
	w.jobs[ev.Job] = j
	next := report{at: w.now.Add(j.left), job: ev.Job, step: j.step, typ: engine.Stopped}
	if ev.Record.State == engine.Starting {
		j.phase, next.at, next.typ = starts, w.now.Add(w.delay(w.draw(ev.Job, 1, 2))), engine.Started
	}
	w.push(next)
	return nil
}

// checkFound checks that what jobs have is there, and nothing is on a device twice.
func (w *randomWorld) checkFound() error {
	for id, j := range w.jobs {
		if j == nil {
			continue
		}
		for i := range j.allocs {
			a := &j.allocs[i]
			if a.Share > 0 && a.Slots == 0 && cutAt(&w.specs[a.Node], bits.TrailingZeros64(a.GPUs)) {
				return fmt.Errorf("job %d has a share of a GPU of node %d that is in MIG mode", id, a.Node)
			}
		}
	}
	return w.checkDevices(&engine.Action{}, false) // whether devices are good changes at the same instant
}

// settleNode takes over what a node is now; reshaped jobs may have left it, or come to it, at this instant.
func (w *randomWorld) settleNode(ev *engine.Event, reshaped map[cluster.JobID]bool) error {
	i := w.nodes[ev.Node]
	was, is := w.specs[i], w.e.Nodes()[i]
	if is.Rack != ev.Spare.Rack || is.GPUs != ev.Spare.GPUs || is.MIG != ev.Spare.MIG {
		return nil
	}
	w.found[ev.Type]++
	w.specs[i], w.bad[i] = is, is.Bad
	if inventory.SameHardware(&was, &is) {
		return nil
	}
	for id, j := range w.jobs {
		if j != nil && !reshaped[cluster.JobID(id)] && (j.phase == starts || j.phase == runs || j.phase == leaves) &&
			slices.ContainsFunc(slices.Concat(j.allocs, j.held), func(a engine.Alloc) bool {
				return int(a.Node) == i && a.GPUs != 0
			}) {
			return fmt.Errorf("%s has other GPUs, and job %d is on them", ev.Node, id)
		}
	}
	return nil
}
