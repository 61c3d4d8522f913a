package control

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/serving/scale"
	"github.com/muster-gpu/muster/show"
)

// What a service may run and does not is lent: other jobs hold it until the service needs it. The engine decides
// which these are, and which make room; here it is asked ahead, and what became of it is kept.

// lentEvery is how often it is asked which jobs would make room, and lentPart the part of the time that this may take.
const (
	lentEvery = 2 * time.Second
	lentPart  = 0.02
)

// lend says which services lend, finds out which jobs hold what they lend, and tells these jobs.
func (c *Controller) lend(now time.Time) {
	by := map[int]string{}
	var lenders []Lender
	for _, name := range c.names() {
		s := c.services[name]
		if s.Lend.Within == 0 || s.deleted {
			continue
		}
		lenders = append(lenders, Lender{&s.Service, s.first(), s.bounds().Max})
		switch {
		case c.idle(s) == 0:
			s.lent = nil
		case !now.Before(s.lentNext):
			c.askLent(s, now)
		}
		for _, id := range s.lent {
			by[id] = fmt.Sprintf("service %s lends it GPUs until it needs them; then it has to leave within %s", name,
				cluster.FormatDuration(s.Lend.Within))
		}
	}
	c.tellLenders(lenders)
	if !maps.Equal(by, c.lent) {
		c.lent = by
		c.opt.Scheduler.SetLent(by)
	}
}

// tellLenders tells the scheduler which services lend, if that is something else than before.
func (c *Controller) tellLenders(list []Lender) {
	same := slices.EqualFunc(list, c.lenders, func(a, b Lender) bool {
		return a.Service.Name == b.Service.Name && a.Service.Applied.Equal(b.Service.Applied) && a.Kind == b.Kind &&
			a.Replicas == b.Replicas
	})
	if c.told && same {
		return
	}
	c.lenders, c.told = list, true
	if err := c.opt.Scheduler.SetLenders(list); err != nil {
		c.opt.Log.Warn("what services lend is not kept for jobs that make room", "error", err)
	}
}

// askLent asks which jobs hold what a service lends.
func (c *Controller) askLent(s *running, now time.Time) {
	var err error
	if s.lent, err = c.opt.Scheduler.Lent(&s.Service, s.first(), c.idle(s)); err != nil {
		c.opt.Log.Warn("what a service lends is not known", "service", s.Name, "error", err)
	}
	s.lentNext = now.Add(max(lentEvery, time.Duration(float64(c.opt.Now().Sub(now))/lentPart)))
}

// idle is how many more replicas a service may have than it has.
func (c *Controller) idle(s *running) int {
	have := 0
	for _, r := range c.of(s) {
		if r.leaves.IsZero() {
			have++
		}
	}
	return max(0, s.bounds().Max-have)
}

// first is the kind of the replica that would be added next.
func (s *running) first() scale.Kind {
	for _, w := range s.want {
		if w.Replicas > 0 {
			return w.Kind
		}
	}
	return s.want[0].Kind
}

// back is when a replica got what its service had lent; zero: it got nothing of that kind.
func back(j *Job) time.Time {
	if j.Loan == nil {
		return time.Time{}
	}
	return j.Loan.Back
}

// Returns is how long it took until a service had what it lent.
type Returns struct {
	Number  int           `json:"number"`
	Late    int           `json:"late"` // later than was promised
	Took    time.Duration `json:"took_ns"`
	Longest time.Duration `json:"longest_ns"`
	Last    time.Duration `json:"last_ns"`
	Counted time.Time     `json:"counted"` // up to then
	Jobs    []int         `json:"jobs"`    // replicas that got something at that time
}

// add counts what a replica got back, once: replicas come in the order in which they got it.
func (r *Returns) add(l *show.Loan, job int) {
	if l.Back.Before(r.Counted) || l.Back.Equal(r.Counted) && slices.Contains(r.Jobs, job) {
		return
	}
	if l.Back.After(r.Counted) {
		r.Jobs = nil
	}
	r.Counted, r.Jobs = l.Back, append(r.Jobs, job)
	r.Number++
	r.Last = l.Back.Sub(l.Asked)
	r.Took += r.Last
	r.Longest = max(r.Longest, r.Last)
	if r.Last > l.Within {
		r.Late++
	}
}

// showLoans shows what a service lends; nil: it says nothing of that.
func (c *Controller) showLoans(s *running) *show.ServiceLoans {
	if s.Lend.Within == 0 {
		return nil
	}
	r := &s.Known.Returns
	v := &show.ServiceLoans{Replicas: c.idle(s), Jobs: append([]int{}, s.lent...), Within: s.Lend.Within.Seconds(),
		Returns: r.Number, Late: r.Late, Longest: r.Longest.Seconds(), Last: r.Last.Seconds()}
	if r.Number > 0 {
		v.Mean = (r.Took / time.Duration(r.Number)).Seconds()
	}
	return v
}

// loansText says what a service lends, to which jobs, until when, and how it got it back so far.
func loansText(l *show.ServiceLoans) []string {
	within := cluster.FormatDuration(time.Duration(l.Within * float64(time.Second)))
	text := fmt.Sprintf("what %d more replicas would hold is lent until it is needed, and is back %s later", l.Replicas,
		within)
	switch {
	case l.Replicas == 0:
		text = "it lends nothing: it has as many replicas as it may have"
	case len(l.Jobs) == 0:
		text += "; no job has it now"
	default:
		var jobs []string
		for _, id := range l.Jobs {
			jobs = append(jobs, fmt.Sprint(id))
		}
		text += ": job " + strings.Join(jobs, ", ") + " would make room"
	}
	list := []string{text}
	if l.Returns > 0 {
		list = append(list, fmt.Sprintf("given back so far: %d times, after %.3gs in the mean and %.3gs at most; later than promised: %d",
			l.Returns, l.Mean, l.Longest, l.Late))
	}
	return list
}
