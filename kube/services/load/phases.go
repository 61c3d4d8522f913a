package load

import (
	"time"

	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/llm"
	"github.com/muster-gpu/muster/serving/tally"
)

// Where prompts and the tokens after are computed by different servers, a request is at two of them, and each counts
// it: one with a single token, the other with all of them. Each fact is taken from the phase that knows it.
//
// vLLM's routers (llm-d, Dynamo, the proxies of vLLM's examples) have a prefill server answer first, with max_tokens 1,
// and a decode server then, which fetches the keys and values: a time is the sum of both. SGLang's router sends a
// request to both at once: the decode server's times are those of users, and its prefill server says nothing of the
// first token. A time of a token after the first is 0 to a vLLM that computed one only.

// phased is what the servers of one phase counted in a period.
type phased struct {
	sums
	list     []rates
	there    float64 // requests that are at them now
	together bool    // a request comes to both phases at once
	took     float64 // seconds of the answered requests, all together
	first    float64 // ... until their first tokens
	firsts   float64 // of how many requests
}

func (p *phased) add(r *rates, t *tally.Tally, period time.Duration) {
	factor := p.sums.add(r, t, period)
	p.list = append(p.list, *r)
	p.there += r.inside()
	p.together = p.together || r.Together
	p.took += r.Took * factor
	p.first += r.First * factor
	p.firsts += r.TTFT.total() * factor
}

// mean is a mean time; 0 of nothing.
func mean(seconds, number float64) float64 {
	if number <= 0 {
		return 0
	}
	return seconds / number
}

// join counts the requests of which both phases tell. A request that comes to a decode server and to no prefill server,
// as routers do with short prompts, is one as well.
func (m *Meter) join(prompts, then *phased, t *tally.Tally, all *sums, goal *service.Goal) {
	m.between += prompts.arrived - then.arrived
	alone := max(0, -m.between)
	m.between = min(max(0, m.between), prompts.there+prompts.arrived) // others are lost
	all.arrived += prompts.arrived + alone
	all.answered += then.answered
	all.failed += max(prompts.failed, then.failed)
	all.outputs += then.outputs
	if prompts.answered > 0 { // as many as were answered: one that was computed may be answered in the next period
		all.prompts += then.answered * prompts.prompts / prompts.answered
	} else {
		all.prompts += then.prompts
	}
	first, before, after := prompts, mean(prompts.took, prompts.answered), mean(then.first, then.firsts)
	if prompts.firsts == 0 || then.together {
		first, after = then, 0
	}
	if then.together {
		before = 0
	}
	late := then.timed(func(r *rates) histogram { return r.latencies() }, &t.Latency, before, goal.Latency)
	late = max(late, first.timed(func(r *rates) histogram { return r.TTFT }, &t.TTFT, after, goal.TTFT))
	late = max(late, then.timed(func(r *rates) histogram { return r.TPOT }, &t.TPOT, 0, goal.TPOT))
	all.inTime += then.answered * (1 - late)
}

// timed adds durations, each with seconds more, and returns which part was longer than is promised.
func (p *phased) timed(of func(r *rates) histogram, to *tally.Histogram, more float64, promised time.Duration) float64 {
	late, n := 0.0, 0.0
	for i := range p.list {
		h := of(&p.list[i])
		h.spread(to, more)
		n += h.total()
		late += h.beyond(promised.Seconds() - more)
	}
	if promised == 0 {
		return 0
	}
	return mean(late, n)
}

// phases are the servers of both phases, by phase.
type phases [len(llm.PhaseNames)]phased
