package speed

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
)

// Jobs of one model do the same steps, so how fast one does them on GPUs of some model,
// with some number of tasks, tells how fast the others would. What is measured so takes
// the place of what the table of speeds says (Speeds), which is relative to a job's own
// reference: the measurements of a job model are scaled so that their geometric mean is
// that of the table's entries for the same GPUs and sizes. So one measurement alone
// changes nothing; a second one says how the two compare.

// PaceRecord is how fast jobs of one model were measured to go.
type PaceRecord struct {
	Model string        `json:"model"` // of the jobs
	Per   cluster.Milli `json:"per"`   // GPUs of each task, in thousandths
	GPU   string        `json:"gpu"`   // model
	Tasks int           `json:"tasks"` // that it ran with
	Pace  int64         `json:"pace"`  // millionths of a unit of work per second
	Unit  job.PaceUnit  `json:"unit"`  // what is counted
	Runs  int           `json:"runs"`  // that were measured, the present ones too
	Last  cluster.JobID `json:"last"`  // the job that was measured last
	Began cluster.Time  `json:"began"` // ... and in which run
}

// Completer is a Speeds that estimates speeds on GPU models on which a job model was not
// measured from those on which it was.
type Completer interface {
	// Completes returns such estimates for a job model that has these speeds (ppm,
	// by GPU model), by GPU model; those that are known are not in it. It must not keep the map.
	Completes(model string, known map[string]int64) map[string]int64
}

// paceKey is a group of jobs whose measurements can be compared: of one model, with equally
// many GPUs per task.
type paceKey struct {
	model string
	per   cluster.Milli
	unit  job.PaceUnit
}

// paces is what was measured of such groups.
type paces struct {
	list      map[paceKey][]PaceRecord       // by GPU model and tasks; looked up only
	completed map[paceAsked]map[string]int64 // what is estimated from the list, since it changed last; looked up only
	revision  int32                          // changes with every measurement that does
}

// paceAsked is a job model's measurements as jobs see them that ask for so many tasks.
type paceAsked struct {
	paceKey
	tasks int
}

// pacer is the key of a job whose speed says something of others of its model: it has
// whole GPUs and is one gang of equal tasks.
func pacer(j *job.State, unit job.PaceUnit) (k paceKey, ok bool) {
	if j.Spec.Model == "" || len(j.Spec.Tasks) != 1 {
		return k, false
	}
	r := &j.Spec.Tasks[0].Request
	if r.GPUs == 0 || r.Fractional() || r.Profile != "" {
		return k, false
	}
	return paceKey{j.Spec.Model, cluster.Milli(r.GPUs) * cluster.Whole, unit}, true
}

// paceChange is the least change of a pace that counts, a fiftieth: measurements are not
// better than that, and each change that counts makes plans due.
const paceChange = 50

// Pace books how fast a job goes by its own account on what it holds. Others on its GPUs,
// or more nodes than it needs, would make it slower than its GPUs are. changed: speeds may be others now.
func (b *Book) Pace(j *job.State, pace int64, unit job.PaceUnit) (changed bool) {
	k, ok := pacer(j, unit)
	if !ok || pace <= 0 || pace > math.MaxInt64/1000 || j.State != job.Running || j.Resizing || j.Hosted() ||
		len(j.Guests) > 0 || len(j.Allocs) == 0 {
		return false
	}
	c := &b.World.Store.Classes()[b.World.Store.Nodes()[j.Allocs[0].Node].Class()]
	each, tasks := c.GPUs()/j.Spec.Tasks[0].Request.GPUs, int(j.Tasks)
	var nodes []int32 // a gang that has grown may have several parts of one
	for i := range j.Allocs {
		if id := j.Allocs[i].Node; !slices.Contains(nodes, id) {
			nodes = append(nodes, id)
		}
	}
	if each == 0 || len(nodes) > (tasks+each-1)/each {
		return false
	}
	r := PaceRecord{Model: k.model, Per: k.per, GPU: c.Model().Name, Tasks: tasks, Pace: pace, Unit: unit, Runs: 1,
		Last: j.Spec.ID, Began: j.Started}
	list := b.paces.list[k]
	at, ok := slices.BinarySearchFunc(list, &r, comparePaces)
	switch {
	case !ok:
		list = slices.Insert(list, at, r)
	case list[at].Last == r.Last && list[at].Began == r.Began: // the same run again: it knows better by now
		was := &list[at]
		if d := pace - was.Pace; max(d, -d) < was.Pace/paceChange {
			return false
		}
		was.Pace = pace
	default:
		was := &list[at]
		was.Last, was.Began, was.Runs = r.Last, r.Began, was.Runs+1
		d := (pace - was.Pace) / int64(min(was.Runs, 5)) // the mean of the first ones, then of the last ones
		if max(d, -d) < was.Pace/paceChange {
			return false
		}
		was.Pace += d
	}
	if b.paces.list == nil {
		b.paces.list = map[paceKey][]PaceRecord{}
	}
	b.paces.list[k] = list
	b.paces.revision++
	b.paces.completed = nil
	return len(list) > 1
}

func comparePaces(a PaceRecord, b *PaceRecord) int {
	return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Tasks, b.Tasks))
}

// records lists what was measured, by job model.
func (p *paces) records() (all []PaceRecord) {
	for _, list := range p.list { // order does not matter: it is sorted
		all = append(all, list...)
	}
	slices.SortFunc(all, func(a, b PaceRecord) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Per, b.Per), cmp.Compare(a.Unit, b.Unit),
			comparePaces(a, &b))
	})
	return all
}

func (p *paces) restore(all []PaceRecord) {
	if len(all) == 0 {
		return
	}
	p.list, p.revision = map[paceKey][]PaceRecord{}, 1
	for _, r := range all {
		k := paceKey{r.Model, r.Per, r.Unit}
		p.list[k] = append(p.list[k], r)
	}
}

// stated is what the table of speeds says of a job (see Speeds): without one, as its tasks
// are to those that it asks for.
func (b *Book) stated(j *job.State, gpu string, tasks int) int64 {
	if s := b.World.Speeds; s != nil {
		return s.Speed(j.Spec, gpu, tasks)
	}
	if n := b.World.Shapes.Get(j.Base).Sets[0].Count; tasks != n {
		return job.Million * int64(tasks) / int64(n)
	}
	return job.Million
}

// Of is what is believed of a job's speed, in ppm: as it was measured, else what is stated.
func (b *Book) Of(j *job.State, gpu string, tasks int) int64 {
	stated := b.stated(j, gpu, tasks)
	if b.paces.revision == 0 {
		return stated
	}
	if j.Anchor.Revision != b.paces.revision {
		b.fasten(j)
	}
	a := &j.Anchor
	if a.Few {
		return stated
	}
	k, _ := pacer(j, a.Unit)
	nearest := -1
	for i, r := range b.paces.list[k] {
		if r.GPU == gpu && (nearest < 0 || farther(b.paces.list[k][nearest].Tasks, r.Tasks, tasks)) {
			nearest = i
		}
	}
	if nearest < 0 {
		if v := a.Guessed[gpu]; v > 0 {
			return max(1, stated*v/job.Million)
		}
		return stated
	}
	r := &b.paces.list[k][nearest]
	v := float64(r.Pace) * a.By
	if r.Tasks != tasks { // as the table goes on from there
		v *= float64(stated) / float64(max(1, b.stated(j, gpu, r.Tasks)))
	}
	return int64(math.Round(min(max(v, 1), 1e12)))
}

// farther reports whether size a is farther from the size in question than b is, as
// factors; of two that are equally far the smaller one is nearer.
func farther(a, b, from int) bool {
	x, y := max(a, from)*min(b, from), max(b, from)*min(a, from) // a/from against b/from, the greater above
	return x > y || x == y && b < a
}

// fasten finds what a job's measurements are multiplied with to be its speeds.
func (b *Book) fasten(j *job.State) {
	j.Anchor = job.Anchor{Revision: b.paces.revision, Few: true}
	for _, unit := range []job.PaceUnit{job.PaceSamples, job.PaceSteps} { // what counts samples knows more
		k, ok := pacer(j, unit)
		list := b.paces.list[k]
		if !ok || len(list) < 2 {
			continue
		}
		sum := 0.0
		for _, r := range list {
			sum += math.Log(float64(max(1, b.stated(j, r.GPU, r.Tasks))) / float64(r.Pace))
		}
		j.Anchor.Few, j.Anchor.Unit, j.Anchor.By = false, unit, math.Exp(sum/float64(len(list)))
		j.Anchor.Guessed = b.complete(j, k, list)
		return
	}
}

// complete estimates the speeds on GPU models on which the job's model was not measured, as
// factors on what is stated of them.
func (b *Book) complete(j *job.State, k paceKey, list []PaceRecord) map[string]int64 {
	t, ok := b.World.Speeds.(Completer)
	if !ok {
		return nil
	}
	count := j.Spec.Tasks[0].Count
	key := paceAsked{k, count}
	if v, ok := b.paces.completed[key]; ok {
		return v
	}
	known, from := map[string]int64{}, map[string]int{} // as the table has it: at the size that is asked for
	for _, r := range list {
		if at, ok := from[r.GPU]; ok && !farther(at, r.Tasks, count) {
			continue
		}
		v := float64(r.Pace) * j.Anchor.By * float64(b.stated(j, r.GPU, count)) / float64(
			max(1, b.stated(j, r.GPU, r.Tasks)))
		known[r.GPU], from[r.GPU] = max(1, int64(math.Round(v))), r.Tasks
	}
	guessed := map[string]int64{}
	if len(known) > 1 {
		for gpu, v := range t.Completes(j.Spec.Model, maps.Clone(known)) { // order does not matter: each is one entry
			guessed[gpu] = max(1, v*job.Million/max(1, b.stated(j, gpu, count)))
		}
	}
	if b.paces.completed == nil {
		b.paces.completed = map[paceAsked]map[string]int64{}
	}
	b.paces.completed[key] = guessed
	return guessed
}
