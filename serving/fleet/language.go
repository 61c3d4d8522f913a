package fleet

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/llm"
)

// language is the work of a replica of a language model.
type language struct {
	instance *llm.Instance
	due      cluster.Time // of the event for its next step
	counted  int64        // preemptions that are in the tally
	service  *served      // for what the instance hands out
	slower   float64      // factor by which steps take longer than alone
	accuracy float64
	spec     *service.Language
	handOver func(q *llm.Sequence) bool // what is left of a request of which it computes the prompt only
	holds    int                        // requests whose keys and values others fetch
}

func newLanguage(s *served, variant int, p Place) (*language, error) {
	v := &s.spec.Variants[variant]
	timer, e, err := v.Language.On(p.GPU, v.Request.GPUs)
	if err != nil {
		return nil, err
	}
	l := &language{service: s, spec: v.Language, accuracy: v.Accuracy, slower: p.Slower, due: cluster.Never}
	takes := func(t *llm.Step) time.Duration {
		if l.slower == 1 {
			return timer(t)
		}
		return time.Duration(float64(timer(t)) * l.slower)
	}
	l.instance = llm.NewInstance(e, takes, l)
	return l, nil
}

// Token books the first token of a request, or one that does not follow one of the step before.
func (l *language) Token(q *llm.Sequence, now cluster.Time) {
	t := &l.service.since
	t.Tokens++
	if q.First == 0 {
		t.TTFT.Add(now.Sub(q.Arrived), 1)
	} else {
		t.ITL.Add(now.Sub(q.Last), 1)
	}
}

// Tokens books the next tokens of n requests.
func (l *language) Tokens(n int, gap time.Duration) {
	l.service.since.Tokens += int64(n)
	l.service.since.ITL.Add(gap, int64(n))
}

// Done books an answered request.
func (l *language) Done(q *llm.Sequence) {
	if l.spec.Phase == llm.Prefill && l.handOver(q) {
		return
	}
	t, goal := &l.service.since, &l.service.spec.Goal
	t.Prompts += int64(q.Prompt)
	t.Outputs += int64(q.Output)
	l.service.right += l.accuracy
	first, each := q.First.Sub(q.Arrived), time.Duration(0)
	if q.Output > 1 {
		each = q.Last.Sub(q.First) / time.Duration(q.Output-1)
		t.TPOT.Add(each, 1)
	}
	t.Answer(q.Last.Sub(q.Arrived), (goal.TTFT == 0 || first <= goal.TTFT) && (goal.TPOT == 0 || each <= goal.TPOT) &&
		(goal.Latency == 0 || q.Last.Sub(q.Arrived) <= goal.Latency))
}

// finish ends the step that ends now, if one does.
func (l *language) finish(s *served) {
	l.due = cluster.Never
	s.since.Busy += l.instance.Finish()
	s.since.Preemptions += l.instance.Preemptions - l.counted
	l.counted = l.instance.Preemptions
}

// route gives what waits to the replica with the fewest requests; those that no replica can hold are refused.
func (f *Fleet) route(s *served) {
	for s.queue.Len() > 0 && len(s.taking) > 0 {
		it := s.queue.At(0)
		q := llm.Sequence{Arrived: it.At, Prompt: it.Prompt, Output: it.Output}
		best := int32(-1)
		if s.spec.Phased() {
			q = llm.Head(q)
		}
		if len(s.decoding) == 0 || f.fewest(s.decoding, it.Prompt, it.Output) >= 0 {
			best = f.fewest(s.taking, q.Prompt, q.Output)
		}
		s.queue.Pop(1)
		if best < 0 || it.Prompt < 1 || it.Output < 1 {
			s.since.Refused++
			continue
		}
		f.replicas[best].language.instance.Add(q)
		f.step(best)
	}
}

// step begins a step of an instance whose first stage is free.
func (f *Fleet) step(id int32) {
	l := f.replicas[id].language
	l.instance.Begin(f.now)
	if end := l.instance.End(); end != l.due {
		l.due = end
		f.at(id, end)
	}
}
