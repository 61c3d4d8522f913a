package fleet

import (
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/batch"
	"github.com/muster-gpu/muster/serving/tally"
)

// item is a request that waits.
type item = batch.Item

// served is a service while it is played.
type served struct {
	spec     *service.Service
	rule     string // of batches, if the service names none
	queue    batch.Queue
	taking   []int32  // replicas that take requests, or their prompts
	decoding []int32  // replicas that make the tokens after the first, where others compute prompts
	done     []moving // prompts whose keys and values those have not begun to fetch
	moving   []moving // from these to those
	moved    int64
	idle     []int32     // of those that take requests the ones that compute nothing, if they compute batches
	room     int         // requests that may wait
	total    tally.Tally // up to the last Observe
	since    tally.Tally // since then
	seen     tally.Tally // what the last Observe returned
	right    float64     // sum of the accuracies of all answers

	ensemble *ensemble // nil: a request is answered by one variant
	of       int32     // the service to which it belongs: itself, unless it is a member of an ensemble
	member   bool
	canary   *canary // nil: it has none
	partOf   *canary // nil: it is no part of a service with a canary
}

// Batching sets the rule of batches of a service that names none.
func (f *Fleet) Batching(svc int, rule string) {
	f.services[svc].rule = rule
	for _, k := range f.parts(int32(svc)) {
		f.services[k].rule = rule
	}
}

// Accuracy is that of a service's answers so far, in the mean; 0 without any, or if its variants state none.
func (f *Fleet) Accuracy(svc int) float64 {
	right := f.services[svc].right
	for _, k := range f.parts(int32(svc)) {
		right += f.services[k].right
	}
	return right / float64(max(1, f.Total(svc).Answered))
}

// limit sets how many requests of a service may wait.
func (f *Fleet) limit(svc int32) {
	s := &f.services[f.services[svc].of]
	n := len(s.taking)
	if s.ensemble != nil {
		for _, k := range s.ensemble.members {
			n += len(f.services[k].taking)
		}
	}
	each := s.spec.Batching.Waiting
	if each == 0 {
		each = 1000
	}
	s.room = each * max(1, n)
}

// Waiting is how many requests of a service wait.
func (f *Fleet) Waiting(svc int) int {
	s := &f.services[svc]
	n := s.queue.Len()
	for _, k := range f.parts(int32(svc)) {
		n += f.Waiting(int(k))
	}
	if s.ensemble != nil {
		longest := 0
		for _, k := range s.ensemble.members {
			longest = max(longest, f.services[k].queue.Len())
		}
		return n + longest
	}
	if !s.spec.Language() {
		return n
	}
	for _, id := range s.taking {
		if l := f.replicas[id].language; l != nil {
			n += l.instance.Waiting()
		}
	}
	for _, id := range s.decoding {
		n += f.replicas[id].language.instance.Waiting()
	}
	return n + len(s.done) + len(s.moving)
}

// Memory is the part of their memory for keys and values that the replicas of a language model use now, in the mean,
// and how many replicas these are.
func (f *Fleet) Memory(svc int) (part float64, n int) {
	s := &f.services[svc]
	for _, id := range s.taking {
		if l := f.replicas[id].language; l != nil {
			n++
			part += (l.instance.Used() - part) / float64(n)
		}
	}
	return part, n
}

// Observe returns what became of a service's requests since the last call; it is valid until the next.
func (f *Fleet) Observe(svc int) *tally.Tally {
	s := &f.services[svc]
	for _, k := range f.parts(int32(svc)) {
		s.since.Merge(f.Observe(int(k)))
	}
	s.seen, s.since = s.since, s.seen
	s.total.Merge(&s.seen)
	s.since.Reset()
	return &s.seen
}

// Total is what became of a service's requests so far.
func (f *Fleet) Total(svc int) *tally.Tally {
	f.Observe(svc)
	return &f.services[svc].total
}
