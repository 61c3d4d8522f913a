package engine

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// What jobs in shares of one GPU really do to each other is seen in the progress that
// they report (F-gpulet-interference, online correction): each report of a job beside
// one other moves what is believed of the pair by a fifth towards what it says, down to
// half and up to twice of what was stated or is estimated. A job that stays slower than it accepts has
// whoever came last leave, and what was measured then counts as it is, so that those
// two are not put together again.

// slowFor is how long a job has to be too slow until somebody leaves for it.
const slowFor = time.Minute

// slowBelow is the part of what it accepts, in ppm, below which a job counts as too
// slow: measurements are not better than that.
const slowBelow = 950_000

// PairRecord is what is left of the speed of jobs of one model beside those of another
// in shares of one GPU, as it was measured, in ppm.
type PairRecord struct {
	Model  string `json:"model"`
	Beside string `json:"beside"`
	Speed  int64  `json:"speed"`
}

func (b *between) records() (list []PairRecord) {
	for key, v := range b.measured { // order does not matter: it is sorted
		list = append(list, PairRecord{key[0], key[1], v})
	}
	slices.SortFunc(list, func(x, y PairRecord) int {
		return cmp.Or(cmp.Compare(x.Model, y.Model), cmp.Compare(x.Beside, y.Beside))
	})
	return list
}

func (b *between) restore(list []PairRecord) {
	for _, r := range list {
		b.learn([2]string{r.Model, r.Beside}, r.Speed)
	}
}

func (b *between) learn(key [2]string, v int64) {
	if b.measured == nil {
		b.measured = map[[2]string]int64{}
	}
	b.measured[key] = max(1, v)
	b.guessed, b.guess = nil, nil // it says something of others, too
}

// Measured lists what jobs in shares of one GPU were measured to do to each other.
func (e *Engine) Measured() []PairRecord { return e.between.records() }

// Company lists the other jobs that compute in shares of the GPUs of which a job has
// shares, also those that are told to leave, by number.
func (e *Engine) Company(id cluster.JobID) (ids []cluster.JobID) {
	j := e.job(id)
	if j == nil || !j.holding() || !j.spec.Shares() {
		return nil
	}
	found := map[cluster.JobID]bool{}
	for i := range j.allocs {
		a := &j.allocs[i]
		n := &e.st.nodes[a.Node]
		if a.Tenant == 0 {
			continue
		}
		for _, t := range n.tenants {
			if o := e.jobs[t.job-1]; a.GPUs>>t.device&1 == 1 && o != j && o.state == Running {
				found[o.spec.ID] = true
			}
		}
		for _, id := range n.stopping {
			if id != j.spec.ID && slices.ContainsFunc(e.jobs[id].allocs, func(b Alloc) bool {
				return b.Tenant != 0 && b.Node == a.Node && b.GPUs&a.GPUs != 0
			}) {
				found[id] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// listen books what a job with shares tells of its speed.
func (e *Engine) listen(j *jobState, ev *Event) {
	among := e.Company(j.spec.ID)
	switch {
	case len(among) == 0:
		j.solo, j.among, j.slow = j.rate, nil, 0
	case ev.Type == Progress && ev.Rate > 0:
		e.measure(j, among)
	}
}

// kept is what the job's speed is of that alone, in ppm; 0: nobody knows that.
func (e *Engine) kept(j *jobState) int64 {
	alone := j.solo
	if s := e.cfg.Speeds; alone == 0 && s != nil {
		alone = s.Speed(j.spec, e.gpuOf(j.allocs), int(j.tasks))
	}
	if alone <= 0 {
		return 0
	}
	return min(j.rate, 100*alone) * million / alone
}

// measure books what a job reports of its speed among others.
func (e *Engine) measure(j *jobState, among []cluster.JobID) {
	part := e.kept(j)
	if part == 0 || e.cfg.Unshared || j.state != Running {
		return
	}
	if len(among) == 1 {
		e.correct(j, e.jobs[among[0]], part)
	}
	switch {
	case part >= e.minSpeed(j)*slowBelow/million:
		j.slow = 0
	case j.slow == 0 || !slices.Equal(among, j.among):
		j.slow = e.now
		e.timers.push(timer{j.slow.Add(slowFor), timerSlow, int32(j.spec.ID), j.gen})
	}
	j.among = among
}

// correct moves what is believed of a pair towards what is measured. Differences of
// less than a hundredth are left alone: each has everybody who waits looked at again.
func (e *Engine) correct(j, o *jobState, part int64) {
	key := [2]string{j.spec.Model, o.spec.Model}
	if key[0] == "" || key[1] == "" {
		return
	}
	assumed := e.between.assumed(key)
	was, ok := e.between.measured[key]
	if !ok {
		was = assumed
	}
	v := min(max(was+(part-was)/5, min(was, assumed/2)), max(was, 2*assumed))
	if d := v - was; d >= million/100 || -d >= million/100 {
		e.between.learn(key, v)
		e.epoch++ // who was kept apart may fit now
	}
}

// stillSlow has somebody leave a job that is too slow among others.
func (e *Engine) stillSlow(j *jobState) {
	e.touch(j)
	among := e.Company(j.spec.ID)
	j.slow = 0
	if !slices.Equal(among, j.among) { // they came or went: it begins anew
		if len(among) > 0 {
			e.measure(j, among)
		}
		return
	}
	last := e.lastAmong(j, among)
	if last == nil {
		e.measure(j, among) // perhaps somebody may be stopped later
		return
	}
	e.blame(j, last, among)
	how := Checkpoint
	if last.spec.Checkpoint.None {
		how = Kill
	}
	e.stop(last, how, Preempted, j.spec.ID)
}

// lastAmong is who came last of a job and those beside it, of those who may be stopped;
// nil: nobody may, somebody leaves already, or nobody could say beside whom not to go.
func (e *Engine) lastAmong(j *jobState, among []cluster.JobID) (last *jobState) {
	for _, id := range append([]cluster.JobID{j.spec.ID}, among...) {
		v := e.jobs[id]
		switch {
		case v.state != Running || v.spec.Model == "":
			return nil
		case v.spec.Tier == cluster.Critical || v.spec.NoRequeue || v.resizing || !e.mayStop(v):
		case last == nil || cmp.Or(cmp.Compare(v.started, last.started), cmp.Compare(v.spec.ID, last.spec.ID)) > 0:
			last = v
		}
	}
	return last
}

// blame books why a job is slow: for whoever came last or, if that is the job itself,
// whoever is believed to slow it most. It is what the others do not account for.
func (e *Engine) blame(j, last *jobState, among []cluster.JobID) {
	if last == j {
		last = slices.MinFunc(e.jobsOf(among), func(a, b *jobState) int { return cmp.Compare(e.left(j, a), e.left(j, b)) })
	}
	rest := slices.DeleteFunc(e.jobsOf(among), func(o *jobState) bool { return o == last })
	part := e.kept(j) * million / max(1, e.speedAmong(j, rest...))
	e.between.learn([2]string{j.spec.Model, last.spec.Model}, min(part, e.left(j, last)))
}

func (e *Engine) jobsOf(ids []cluster.JobID) (list []*jobState) {
	for _, id := range ids {
		list = append(list, e.jobs[id])
	}
	return list
}
