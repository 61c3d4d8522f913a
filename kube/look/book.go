package look

import (
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/show"
)

// What is remembered for people: the scheduler itself decides nothing by it, and a successor begins without it.
const (
	mostPast    = 10_000 // gangs that are over
	mostMoments = 50     // of a gang
	mostHours   = 24 * 35
	sampleEvery = 5 * time.Second
	mostSamples = int(time.Hour / sampleEvery)
)

// Book is what is remembered of a gang: its row, but for what that is at a moment.
type Book struct {
	Row
	Over    bool
	Outcome engine.StopReason // how its last run ended
}

// AsRow is a row of the book as it is now.
func (b *Book) AsRow() *Row {
	r := b.Row
	return &r
}

// Tell adds a moment to a gang's history, unless it is the last one again.
func (b *Book) Tell(at cluster.Time, state, text string) {
	if n := len(b.Moments); n > 0 && b.Moments[n-1].State == state && b.Moments[n-1].Text == text {
		return
	}
	from := max(0, len(b.Moments)+1-mostMoments)
	b.Moments = append(b.Moments[from:len(b.Moments):len(b.Moments)], Moment{At: at, State: state, Text: text})
}

// Begin notes the start of a run.
func (b *Book) Begin(at cluster.Time, gpus int, nodes []string) {
	if b.WaitingSince > 0 {
		b.Waited += max(0, at.Sub(b.WaitingSince))
	}
	b.WaitingSince, b.Started, b.GPUs, b.Outcome, b.Nodes = 0, at, gpus, engine.WasCancelled, nodes
	if b.Runs++; b.First == 0 {
		b.First = at
	}
}

// Resize notes that a running gang holds other places than before: what is held at the end counts from the start on.
func (b *Book) Resize(now cluster.Time, gpus int, nodes []string) {
	b.GPUTime -= max(0, now.Sub(b.Started)) * time.Duration(gpus-b.GPUs)
	b.GPUs, b.Nodes = gpus, nodes
}

// End notes the end of a run: the gang is over, or waits again.
func (b *Book) End(now cluster.Time) {
	ran := max(0, now.Sub(b.Started))
	b.Ran, b.GPUTime = b.Ran+ran, b.GPUTime+ran*time.Duration(b.GPUs)
	b.WaitingSince = now
}

// Close closes a book, and returns as what, and why.
func (b *Book) Close(now cluster.Time, text string) (state, why string) {
	b.Over = true
	state = show.StateCancelled
	if b.Runs > 0 {
		switch b.Outcome {
		case engine.Completed:
			state = show.StateCompleted
		case engine.Failed:
			state = show.StateFailed
		case engine.Preempted:
			state, text = show.StatePreempted, "its pods had to leave; their owner has not made others yet"
		}
	}
	if b.WaitingSince > 0 {
		b.Waited, b.WaitingSince = b.Waited+max(0, now.Sub(b.WaitingSince)), 0
	}
	b.Tell(now, state, text)
	return state, text
}

// Records are the books of all gangs together.
type Records struct {
	held    int // GPUs that gangs hold now
	total   int // GPUs that are healthy
	numbers int
	past    []*Row // gangs that are over, in the order of their ends; never changed in place
	since   cluster.Time
	upTo    cluster.Time // hours are counted up to there
	hours   []Hour
	series  []show.Sample
}

// Open opens a gang's book; or goes on with that of pods which had to leave and whose owner made others, by the gang's
// key. created is when the first of its pods was, or now.
func (r *Records) Open(key string, created, now cluster.Time) Book {
	i := slices.IndexFunc(r.past, func(p *Row) bool { return p.Key == key && p.State == show.StatePreempted })
	if i >= 0 {
		was := r.past[i]
		b := Book{Outcome: engine.Preempted, Row: Row{Number: was.Number, Spec: was.Spec, Submit: was.Submit,
			WaitingSince: now, First: was.First, Started: was.Started, Waited: was.Waited, Ran: was.Ran, Runs: was.Runs,
			Evicted: was.Evicted, GPUs: was.GPUs, GPUTime: was.GPUTime, Nodes: was.Nodes, Moments: was.Moments}}
		r.past = slices.Concat(r.past[:i], r.past[i+1:])
		b.Tell(now, show.StatePending, "its pods are there again")
		return b
	}
	r.numbers++
	b := Book{Row: Row{Number: r.numbers, Submit: created, WaitingSince: created}}
	b.Tell(created, show.StatePending, "")
	return b
}

// Keep remembers a gang that is over.
func (r *Records) Keep(row *Row) {
	list := r.past[max(0, len(r.past)+1-mostPast):]
	r.past = append(list[:len(list):len(list)], row)
}

// Held counts the GPUs that gangs hold now.
func (r *Records) Held() int { return r.held }

// Hold notes that gangs hold so many more GPUs from now on.
func (r *Records) Hold(now cluster.Time, more int) {
	r.count(now)
	r.held += more
}

// count counts the GPUs' time up to now, hour by hour.
func (r *Records) count(now cluster.Time) {
	if r.upTo == 0 {
		r.upTo, r.since = now, now
	}
	for r.upTo < now {
		at := r.upTo - r.upTo%cluster.Time(time.Hour)
		if n := len(r.hours); n == 0 || r.hours[n-1].At != at {
			r.hours = append(r.hours[max(0, n+1-mostHours):n:n], Hour{At: at})
		}
		end := min(now, at.Add(time.Hour))
		h := r.hours[len(r.hours)-1]
		h.Total += end.Sub(r.upTo) * time.Duration(r.total)
		h.Held += end.Sub(r.upTo) * time.Duration(r.held)
		r.hours[len(r.hours)-1] = h
		r.upTo = end
	}
}

// Due reports whether it is time for the next sample.
func (r *Records) Due(now cluster.Time) bool {
	n := len(r.series)
	return n == 0 || time.Unix(0, int64(now)).Sub(r.series[n-1].At) >= sampleEvery
}

// Sample keeps the cluster's state for the last hour; total is how many of its GPUs are healthy from now on.
func (r *Records) Sample(now cluster.Time, total int, s show.Sample) {
	r.count(now)
	r.total = total
	n := len(r.series)
	r.series = append(r.series[max(0, n+1-mostSamples):n:n], s)
}

// Sight is the cluster at an instant, as far as it is in the books; s is its state then.
func (r *Records) Sight(at cluster.Time, s show.Sample) Sight {
	r.count(at)
	n := len(r.series)
	return Sight{At: at, Since: r.since, Past: r.past, Most: mostPast, Hours: slices.Clone(r.hours),
		Series: append(r.series[:n:n], s)}
}
