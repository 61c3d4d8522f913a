package forward

import (
	"maps"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/splitmix"
)

// Bounds of the history of run times.
const (
	runsKept  = 64
	kindsKept = 20_000
	leastSame = 3  // runs needed of one user, name and size
	leastLike = 8  // runs needed of a wider kind
	usualRuns = 50 // latest runs on which a guessed estimate rests
)

// kind is what earlier runs have in common with a job; levels go from narrow to wide. Ratios to
// stated times have kinds of their own.
type kind struct {
	level             uint8
	user, name, queue string
	milli             cluster.Milli
	profile           string
}

// The levels of a kind.
const (
	sameJob uint8 = iota // user, name and size
	sameUserAndSize
	sameQueueAndSize
	sameSize
	anyJob
	estimateOfUser // ratios of run times to estimates, in ppm
	estimateOfAny
	limitOfUser // ... to time limits
	limitOfAny
)

// Runs predicts run times from those of completed jobs. The zero value is empty.
type Runs struct {
	kinds map[kind]*runsOf
	order []kind        // kinds in the order in which they are candidates for removal
	used  map[kind]bool // kinds that got a run since they were last a candidate
}

// runsOf holds the latest runs of a kind. It is immutable, so that clones may share it.
type runsOf struct {
	latest []int64 // the latest last
	sorted []int64
}

func (r *runsOf) with(v int64) *runsOf {
	latest := make([]int64, 0, len(r.latest)+1)
	latest = append(append(latest, r.latest[max(0, len(r.latest)+1-runsKept):]...), v)
	sorted := slices.Clone(latest)
	slices.Sort(sorted)
	return &runsOf{latest: latest, sorted: sorted}
}

// over returns a quantile, in per mille, of the runs that are longer than done; false: there are
// none.
func (r *runsOf) over(done int64, perMille int) (int64, bool) {
	from, _ := slices.BinarySearch(r.sorted, done+1)
	left := r.sorted[from:]
	if len(left) == 0 {
		return 0, false
	}
	return left[((len(left)-1)*perMille+500)/1000], true
}

// Clone returns a read-only copy that later runs do not change.
func (r *Runs) Clone() Runs { return Runs{kinds: maps.Clone(r.kinds)} }

func sizeOf(spec *cluster.Job) (milli cluster.Milli, profile string) {
	if len(spec.Tasks) > 0 {
		profile = spec.Tasks[0].Request.Profile
	}
	return spec.GPUMilli(), profile
}

// jobKind is the narrowest kind of a job.
func jobKind(spec *cluster.Job) kind {
	milli, profile := sizeOf(spec)
	return kind{level: sameJob, user: spec.User, name: spec.Name, milli: milli, profile: profile}
}

// kindsOf lists the kinds of a job for predicting run times, the narrowest first.
func kindsOf(spec *cluster.Job) []kind {
	milli, profile := sizeOf(spec)
	list := make([]kind, 0, 5)
	if spec.Name != "" {
		list = append(list, jobKind(spec))
	}
	if spec.User != "" {
		list = append(list, kind{level: sameUserAndSize, user: spec.User, milli: milli, profile: profile})
	}
	return append(list, kind{level: sameQueueAndSize, queue: spec.Queue, milli: milli, profile: profile},
		kind{level: sameSize, milli: milli, profile: profile}, kind{level: anyJob})
}

// Add records the useful work of a completed job.
func (r *Runs) Add(spec *cluster.Job, work time.Duration) {
	if work <= 0 {
		return
	}
	for _, k := range kindsOf(spec) {
		r.add(k, int64(work))
	}
	if spec.Name == "" && spec.User != "" { // jobs without a name are only assumed to be alike
		r.add(jobKind(spec), int64(work))
	}
	if spec.Estimate > 0 {
		r.addRatio(estimateOfUser, spec.User, work, spec.Estimate)
	}
	if spec.Limit > 0 {
		r.addRatio(limitOfUser, spec.User, work, spec.Limit)
	}
}

func (r *Runs) addRatio(level uint8, user string, work, stated time.Duration) {
	ratio := int64(float64(work) / float64(stated) * million)
	r.add(kind{level: level, user: user}, ratio)
	r.add(kind{level: level + 1}, ratio)
}

func (r *Runs) add(k kind, v int64) {
	if r.kinds == nil {
		r.kinds, r.used = map[kind]*runsOf{}, map[kind]bool{}
	}
	of := r.kinds[k]
	if of == nil {
		if len(r.kinds) >= kindsKept {
			r.forget()
		}
		of = &runsOf{}
		r.order = append(r.order, k)
	} else {
		r.used[k] = true
	}
	r.kinds[k] = of.with(v)
}

// forget drops approximately the kind that got no run for the longest time, so that names that
// occur once do not push out kinds shared by all jobs.
func (r *Runs) forget() {
	for {
		k := r.order[0]
		r.order = r.order[1:]
		if !r.used[k] {
			delete(r.kinds, k)
			return
		}
		delete(r.used, k)
		r.order = append(r.order, k)
	}
}

// Usual is the median of the latest runs of jobs of the same user, name and size; 0: too few.
func (r *Runs) Usual(spec *cluster.Job) time.Duration {
	of := r.kinds[jobKind(spec)]
	if of == nil || len(of.latest) < leastSame {
		return 0
	}
	latest := slices.Clone(of.latest[max(0, len(of.latest)-usualRuns):])
	slices.Sort(latest)
	return time.Duration(latest[len(latest)/2])
}

// Work is the predicted total work of a job, of which done is complete: a quantile, in per mille,
// of the earlier runs that were longer. Stated times are scaled by how the user's earlier
// statements turned out.
func (r *Runs) Work(spec *cluster.Job, done time.Duration, perMille int) time.Duration {
	if spec.Estimate > 0 {
		if d := r.scaled(estimateOfUser, spec.User, spec.Estimate, done, perMille); d > 0 {
			return d
		}
		if done < spec.Estimate {
			return spec.Estimate
		}
		return done + max(time.Minute, done/20)
	}
	for _, k := range kindsOf(spec) {
		least := leastLike
		if k.level == sameJob {
			least = leastSame
		} else if spec.Limit > 0 { // wider kinds say less than the stated limit
			break
		}
		if d := r.quantile(k, int64(done), perMille, least); d > 0 {
			return time.Duration(d)
		}
	}
	if spec.Limit > 0 {
		return r.scaled(limitOfUser, spec.User, spec.Limit, done, perMille) // 0: it ends at its limit
	}
	for _, k := range kindsOf(spec) {
		if d := r.quantile(k, int64(done), perMille, leastLike); d > 0 {
			return time.Duration(d)
		}
	}
	if len(r.kinds) == 0 {
		return 0
	}
	return done + max(time.Minute, done/2) // longer than every known run
}

func (r *Runs) quantile(k kind, done int64, perMille, least int) int64 {
	of := r.kinds[k]
	if of == nil || len(of.latest) < least {
		return 0
	}
	v, _ := of.over(done, perMille)
	return v
}

// scaled is a stated time multiplied by the quantile of the user's earlier ratios, or of all users'
// ratios; 0: none is known.
func (r *Runs) scaled(level uint8, user string, stated, done time.Duration, perMille int) time.Duration {
	doneRatio := int64(float64(done) / float64(stated) * million)
	for _, k := range []kind{{level: level, user: user}, {level: level + 1}} {
		if ratio := r.quantile(k, doneRatio, perMille, leastLike); ratio > 0 {
			return max(done+time.Second,
				time.Duration(min(float64(ratio)/million*float64(stated), float64(cluster.MaxDuration))))
		}
	}
	return 0
}

// Draw is Work for one run ahead: each job gets another quantile, drawn from its number and the
// draw's, so that a few long jobs occur among many short ones, as in reality. Draw 0 takes each
// job's median. guessed is set when other draws may give another run time.
func (r *Runs) Draw(draw int, guessed *bool) func(id cluster.JobID, spec *cluster.Job,
	done time.Duration) time.Duration {
	return func(id cluster.JobID, spec *cluster.Job, done time.Duration) time.Duration {
		perMille := 500
		if draw > 0 {
			perMille = int(splitmix.Mix((uint64(id)<<8|uint64(draw))+splitmix.Step) % 1000)
		}
		d := r.Work(spec, done, perMille)
		*guessed = *guessed || draw == 0 && (d != r.Work(spec, done, 50) || d != r.Work(spec, done, 950))
		return d
	}
}
