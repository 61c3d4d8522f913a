package tuner

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/search"
	"github.com/muster-gpu/muster/show"
)

// Tuner submits, promotes and stops the trials of a search. All that it knows comes from the daemon's jobs, so
// it may be killed at any moment and started again.
type Tuner struct {
	cl    *client.Client
	f     *File
	s     *search.Search
	spec  string
	user  string
	jobs  map[int]*api.Job // its trials' jobs by number, as last seen
	last  map[[2]int]int   // by trial, and 1 for the full size: its last job
	saved map[int]int      // by trial: the last job that ran to its budget
	full  map[int]int      // by trial: how many jobs at full size it had
	tell  func(format string, args ...any)
	state func(text string) // progress line
	best  search.Result
	known bool              // best holds
	todo  []search.Decision // stops decided at the start or at a submission
}

// New starts a search, or continues it. say is called with each line of news; progress with a line that replaces
// the one before.
func New(ctx context.Context, cl *client.Client, f *File, say, progress func(text string)) (*Tuner, error) {
	s, err := search.New(f.Method)
	if err != nil {
		return nil, err
	}
	t := &Tuner{cl: cl, f: f, s: s, spec: f.Spec, jobs: map[int]*api.Job{}, last: map[[2]int]int{},
		saved: map[int]int{}, full: map[int]int{},
		tell: func(format string, args ...any) { say(fmt.Sprintf(format, args...)) }, state: progress}
	var me api.Me
	if err := t.cl.Do(ctx, http.MethodGet, "/v1/me", nil, &me); err != nil {
		return nil, err
	}
	t.user = me.User
	return t, t.find(ctx)
}

// mine reports whether a job is a run of this search.
func (t *Tuner) mine(j *api.Job) bool {
	s := j.Submission.Trial
	return s != nil && !s.Tuner && s.Search == t.f.Name && j.User == t.user
}

// find reads the existing runs of the search.
func (t *Tuner) find(ctx context.Context) error {
	list, err := t.cl.List(ctx, url.Values{"search": {t.f.Name}, "brief": {"true"}})
	if err != nil {
		return err
	}
	slices.Reverse(list) // oldest first
	var found []*api.Job
	own := t.ownJob(list)
	for i := range list {
		j := &list[i]
		if t.rival(j, own) {
			return fmt.Errorf("search %s has a tuner already, job %d: muster search show %s says how far it is, muster search cancel %s ends it", t.f.Name, j.ID, t.f.Name, t.f.Name)
		}
		if !t.mine(j) {
			continue
		}
		if j.Submission.Trial.Spec != t.spec {
			return fmt.Errorf("%s: there is a search %s that searches something else (job %d): give this one another name, or the other's settings", t.f.Path, t.f.Name, j.ID)
		}
		found = append(found, j)
	}
	if len(found) > 0 {
		t.tell("search %s continues: %d runs of trials exist", t.f.Name, len(found))
	}
	t.todo, err = t.hear(found)
	return err
}

// ownJob is the job of this tuner itself; 0: it is not a job.
func (t *Tuner) ownJob(list []api.Job) int {
	for i := range list {
		if strconv.Itoa(list[i].ID) == os.Getenv("MUSTER_JOB_ID") && t.tunes(&list[i]) {
			return list[i].ID
		}
	}
	return 0
}

// tunes reports whether a job is a tuner of this search.
func (t *Tuner) tunes(j *api.Job) bool {
	s := j.Submission.Trial
	return s != nil && s.Tuner && s.Search == t.f.Name && j.User == t.user
}

// rival reports whether a job is a tuner that takes precedence over this one: the one submitted first.
func (t *Tuner) rival(j *api.Job, own int) bool {
	return t.tunes(j) && !Over(j) && (own == 0 || j.ID < own)
}

// hear reports the outcome of jobs to the search, and returns its decisions to stop.
func (t *Tuner) hear(jobs []*api.Job) ([]search.Decision, error) {
	// reported before
	jobs = slices.DeleteFunc(slices.Clone(jobs), func(j *api.Job) bool {
		return t.jobs[j.ID] != nil && Over(t.jobs[j.ID])
	})
	var list []result
	for _, j := range jobs {
		s, old := j.Submission.Trial, t.jobs[j.ID]
		if t.jobs[j.ID] = j; old != nil {
			continue
		}
		for _, n := range trialsOf(s) {
			t.note(n, j)
			list = append(list, result{j.Submitted,
				search.Event{Type: search.Started, Trial: n, Rung: s.Rung, Target: s.Target}})
		}
	}
	for _, j := range jobs {
		s := j.Submission.Trial
		for _, n := range trialsOf(s) {
			if j.State == api.StateCompleted && !s.Target {
				t.saved[n] = j.ID
			}
			list = append(list, t.results(j, n)...)
		}
	}
	slices.SortStableFunc(list, func(a, b result) int { return a.at.Compare(b.at) })
	var events []search.Event
	for _, r := range list {
		events = append(events, r.ev)
	}
	return t.s.Step(events, 0)
}

// note records that a job is a run of a trial.
func (t *Tuner) note(trial int, j *api.Job) {
	s := j.Submission.Trial
	t.last[lastKey(trial, s.Target)] = j.ID
	if s.Target {
		t.full[trial]++
	}
}

func lastKey(trial int, target bool) [2]int {
	if target {
		return [2]int{trial, 1}
	}
	return [2]int{trial, 0}
}

// trialsOf are the trials of a run.
func trialsOf(s *api.Trial) (list []int) {
	for i := range s.Fused {
		list = append(list, s.Fused[i].Number)
	}
	if list == nil {
		list = []int{s.Number}
	}
	return list
}

// result is an event of a trial, with its time.
type result struct {
	at time.Time
	ev search.Event
}

// Over reports whether a job has ended for good.
func Over(j *api.Job) bool { return !slices.Contains(show.Live, j.State) }

// results are the events that a job implies for one of its trials. The metric of a run to a rung counts when the
// run, and with it its checkpoint, is complete; where trials run on through the rungs, at once.
func (t *Tuner) results(j *api.Job, trial int) (list []result) {
	s := j.Submission.Trial
	ended := Over(j)
	if !ended && !t.f.Method.Stopping || s.Target && t.last[lastKey(trial, true)] != j.ID {
		return nil
	}
	at := j.Submitted
	if j.Ended != nil {
		at = *j.Ended
	}
	ok := j.State == api.StateCompleted
	for i, mark := range s.Marks {
		ev := search.Event{Type: search.Failed, Trial: trial, Rung: s.Rung + i, Target: s.Target,
			Fused: j.State == api.StateFailed && len(s.Fused) > 1}
		m := metricsAt(j, trial, mark)
		if m == nil && ok { // it succeeded: its last report counts
			m, ok = metricsAt(j, trial, 0), false
		}
		v, named := (*float64)(nil), false
		if m != nil && (j.State == api.StateCompleted || t.f.Method.Stopping) {
			v, named = m.Of[t.f.Metric]
		}
		switch {
		case named:
			ev.Type, ev.Metric = search.Reported, t.cost(v)
			if t.f.Method.Stopping && m.Mark != 0 {
				list = append(list, result{m.At, ev})
				continue
			}
		case !ended:
			return list
		}
		list = append(list, result{at, ev})
		if ev.Type == search.Failed {
			if s.Target && j.State == api.StateCancelled {
				list[len(list)-1].ev.Type = search.Left
			}
			return list
		}
	}
	return list
}

// cost converts a metric so that less is better.
func (t *Tuner) cost(v *float64) float64 {
	switch {
	case v == nil:
		return math.Inf(1)
	case t.f.Maximise:
		return -*v
	}
	return *v
}

// metricsAt are a job's metrics of a trial at a mark; 0: the last ones.
func metricsAt(j *api.Job, trial int, mark int64) *api.Metrics {
	if len(j.Submission.Trial.Fused) == 0 {
		trial = 0
	}
	for i := range j.Metrics {
		if m := &j.Metrics[i]; m.Trial == trial && m.Mark == mark {
			return m
		}
	}
	return nil
}

// live is the number of unfinished runs.
func (t *Tuner) live() (n int) {
	for _, j := range t.jobs {
		if !Over(j) {
			n++ // the order of addition does not matter
		}
	}
	return n
}

// The tuner polls soon after something happened, then less often.
const (
	lookSoon = 50 * time.Millisecond
	lookSlow = time.Second
)

// Try asks the daemon whether it would accept a trial of the search.
func (t *Tuner) Try(ctx context.Context) error {
	s, err := search.New(t.f.Method)
	if err != nil {
		return err
	}
	list, err := s.Step(nil, 1)
	if err != nil || len(list) == 0 {
		return err
	}
	sub := t.submission(&list[0])
	if _, err := t.cl.Test(ctx, sub); err != nil {
		return fmt.Errorf("%s could not be submitted: %w", runText(sub.Trial), err)
	}
	return nil
}

// Run continues until the search is done, or the context ends. It waits for a daemon that does not answer.
func (t *Tuner) Run(ctx context.Context) error {
	pause, silent := lookSoon, false
	for {
		changed, err := t.turn(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !passing(err):
			return err
		case err != nil && !silent:
			t.tell("waiting for the daemon: %v", err)
		case err == nil && t.live() == 0 && t.s.Done():
			t.state("")
			return nil
		}
		silent = err != nil
		if pause = min(pause*3/2, lookSlow); changed {
			pause = lookSoon
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick(pause):
		}
	}
}

// passing reports whether an error is temporary: no answer, or a daemon that is ending or cannot write now.
func passing(err error) bool {
	var e *client.Error
	if errors.As(err, &e) {
		return e.Status >= 500 || e.Status == http.StatusConflict && strings.Contains(e.Detail, "ending")
	}
	var wrong *tls.CertificateVerificationError
	if errors.As(err, &wrong) {
		return false
	}
	var way *url.Error // of a request that was sent, or a broken answer; not of one that could not be written
	var broken *client.BrokenError
	var conn net.Error
	return errors.Is(err, client.ErrNoServer) || errors.As(err, &way) || errors.As(err, &broken) ||
		errors.As(err, &conn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// turn reads the jobs once and acts on the news.
func (t *Tuner) turn(ctx context.Context) (changed bool, err error) {
	news, err := t.look(ctx)
	if err != nil {
		return false, err
	}
	list, err := t.hear(news)
	if err != nil {
		return false, err
	}
	t.say(news)
	t.todo = append(t.todo, list...)
	if err := t.stops(ctx); err != nil {
		return true, err
	}
	for t.live() < t.f.AtOnce {
		list, err := t.s.Step(nil, 1)
		if err != nil {
			return true, err
		}
		if len(list) == 0 {
			break
		}
		changed = true
		for _, d := range list {
			if d.Type == search.Stop {
				err = t.stop(ctx, &d)
			} else {
				err = t.submit(ctx, &d)
			}
			if err != nil {
				return true, err
			}
		}
		if err := t.stops(ctx); err != nil {
			return true, err
		}
	}
	t.count()
	return changed || len(news) > 0, nil
}

// stops ends the runs that are to stop.
func (t *Tuner) stops(ctx context.Context) error {
	for len(t.todo) > 0 {
		if err := t.stop(ctx, &t.todo[0]); err != nil {
			return err
		}
		t.todo = t.todo[1:]
	}
	return nil
}

// look returns the jobs that have changed.
func (t *Tuner) look(ctx context.Context) (news []*api.Job, err error) {
	list, err := t.cl.List(ctx, url.Values{"search": {t.f.Name}, "state": {"active"}, "brief": {"true"}})
	if err != nil {
		return nil, err
	}
	seen := map[int]bool{}
	for i := range list {
		j := &list[i]
		if !t.mine(j) {
			continue
		}
		seen[j.ID] = true
		old := t.jobs[j.ID]
		if old == nil || old.State != j.State || len(old.Metrics) != len(j.Metrics) {
			news = append(news, j)
		}
	}
	for _, id := range sortedJobs(t.jobs) {
		if Over(t.jobs[id]) || seen[id] {
			continue
		}
		j, err := t.cl.Job(ctx, id)
		if err != nil {
			return nil, err
		}
		news = append(news, &j)
	}
	slices.SortFunc(news, func(a, b *api.Job) int { return a.ID - b.ID })
	return news, nil
}

func sortedJobs(m map[int]*api.Job) (ids []int) {
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// submit starts a trial, or a fused group, towards a rung. The idempotency key identifies the run: submitting it
// again returns the existing job.
func (t *Tuner) submit(ctx context.Context, d *search.Decision) error {
	s := t.submission(d)
	kind := "rung"
	if d.Target {
		kind = fmt.Sprintf("full-%d", t.full[d.Trials[0]])
	}
	key := fmt.Sprintf("search/%s/%s/%dx%d/%s/%d", t.f.Name, t.spec, d.Trials[0], len(d.Trials), kind, d.Rung)
	out, err := t.cl.Submit(ctx, s, key)
	for err != nil && ctx.Err() == nil {
		switch {
		case passing(err): // it may have arrived: it is sent again until there is an answer
			select {
			case <-ctx.Done():
			case <-tick(lookSlow):
			}
		case fromScratch(s, err):
			t.tell("%s: a trial starts from the beginning: %v", runText(s.Trial), err)
		default:
			return fmt.Errorf("%s cannot be submitted: %w", runText(s.Trial), err)
		}
		out, err = t.cl.Submit(ctx, s, key)
	}
	if err != nil {
		return err
	}
	j := out.Job
	if Over(&j) { // it was submitted before, or refused at once: its end is news
		t.tell("job %d: %s: %s %s", j.ID, runText(s.Trial), j.State, j.Reason)
		list, err := t.hear([]*api.Job{&j})
		t.todo = append(t.todo, list...)
		return err
	}
	t.jobs[j.ID] = &j
	for _, n := range d.Trials {
		t.note(n, &j)
	}
	t.tell("job %d: %s to step %d: %s", j.ID, runText(s.Trial), d.Budget, t.configsText(s.Trial))
	return nil
}

// fusedFrom matches the field of a refused checkpoint of a fused trial.
var fusedFrom = regexp.MustCompile(`trial\.fused\[(\d+)\]\.from$`)

// fromScratch removes the checkpoint from a submission that the daemon refused because of it, so that its trial,
// or that trial of a fused group, starts from the beginning: steps are lost, the search is not. False: the error
// is another one.
func fromScratch(s *api.Submission, err error) bool {
	var e *client.Error
	if !errors.As(err, &e) {
		return false
	}
	for _, d := range e.Errors {
		if s.CheckpointOf != 0 && strings.HasSuffix(d.Location, "body.checkpoint_of") {
			s.CheckpointOf = 0
			return true
		}
		if m := fusedFrom.FindStringSubmatch(d.Location); m != nil {
			if i, _ := strconv.Atoi(m[1]); i < len(s.Trial.Fused) && s.Trial.Fused[i].From != 0 {
				s.Trial.Fused[i].From = 0
				return true
			}
		}
	}
	return false
}

// runText names a run.
func runText(s *api.Trial) string {
	switch {
	case s.Target:
		return fmt.Sprintf("trial %d at full size", s.Number)
	case len(s.Fused) > 1:
		return fmt.Sprintf("trials %s in one process", strings.Join(texts(trialsOf(s)), ", "))
	}
	return fmt.Sprintf("trial %d", s.Number)
}

func texts(list []int) (out []string) {
	for _, n := range list {
		out = append(out, strconv.Itoa(n))
	}
	return out
}

func (t *Tuner) configsText(s *api.Trial) string {
	if len(s.Fused) > 1 {
		return fmt.Sprintf("%d configurations", len(s.Fused))
	}
	return ConfigText(s.Config)
}

// submission is the job of a run.
func (t *Tuner) submission(d *search.Decision) *api.Submission {
	s := t.f.Job
	scale := t.f.Method.Scale
	if d.Target || scale == 0 {
		scale = 1
	}
	first := d.Trials[0]
	c := t.f.Config(first, scale)
	s.Trial = &api.Trial{Search: t.f.Name, Spec: t.spec, Method: t.f.Method.Name, Metric: t.f.Metric,
		Maximise: t.f.Maximise, Trials: t.s.Trials(),
		Number: first, Rung: d.Rung, Budget: d.Budget, Marks: d.Marks, Scale: scale, Target: d.Target, Config: c}
	fused := len(t.f.Method.Fusion) > 0 && !d.Target
	if before := t.jobs[t.last[lastKey(first, true)]]; d.Target && before != nil && before.Started != nil &&
		Over(before) {
		s.CheckpointOf = before.ID // it was overtaken, and is the best again
	}
	for _, n := range d.Trials {
		from := 0
		if d.From > 0 {
			from = t.saved[n]
		}
		if fused {
			s.Trial.Fused = append(s.Trial.Fused, api.FusedTrial{Number: n, Config: t.f.Config(n, scale), From: from})
		} else if !d.Target {
			s.CheckpointOf = from
		}
	}
	s.Name = t.f.Name + "." + strings.Join(texts(d.Trials[:1]), "")
	if s.Kind == "" {
		s.Kind = "trial"
	}
	if s.Output == "" {
		s.Output = fmt.Sprintf("%s.trial-%d.out", t.f.Name, first)
	}
	values := map[string]string{"trial": strconv.Itoa(first), "budget": strconv.FormatInt(d.Budget, 10),
		"scale": strconv.Itoa(scale)}
	for k, v := range c {
		values[k] = valueText(v)
	}
	s.Command, s.Args = fill(s.Command, values), fill(s.Args, values)
	return &s
}

// fill inserts values into arguments.
func fill(args []string, values map[string]string) (out []string) {
	for _, a := range args {
		out = append(out, placeholder.ReplaceAllStringFunc(a, func(m string) string {
			if v, ok := values[strings.Trim(m, "{}")]; ok && m[0] != '$' {
				return v
			}
			return m
		}))
	}
	return out
}

// stop ends a run that is not worth its budget.
func (t *Tuner) stop(ctx context.Context, d *search.Decision) error {
	id := t.last[lastKey(d.Trials[0], d.Target)]
	j := t.jobs[id]
	if j == nil || Over(j) {
		return nil
	}
	t.tell("job %d: %s is stopped: others are better", id, runText(j.Submission.Trial))
	for {
		_, err := t.cl.Act(ctx, id, "cancel")
		var e *client.Error
		if err == nil || errors.As(err, &e) && !passing(err) { // it has ended by itself meanwhile
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick(lookSlow):
		}
	}
}

// say prints the news.
func (t *Tuner) say(news []*api.Job) {
	for _, j := range news {
		if !Over(j) {
			continue
		}
		for _, n := range trialsOf(j.Submission.Trial) {
			name := fmt.Sprintf("trial %d", n)
			if j.Submission.Trial.Target {
				name += " at full size"
			}
			m := metricsAt(j, n, 0)
			if m == nil || j.State != api.StateCompleted {
				t.tell("job %d: %s: %s %s", j.ID, name, j.State, j.Reason)
				continue
			}
			t.tell("job %d: %s: %s %s at step %g", j.ID, name, t.f.Metric, MetricText(m.Of[t.f.Metric]), m.Step)
		}
	}
	if r, ok := t.s.Best(); ok && (!t.known || r != t.best) {
		t.best, t.known = r, true
		t.tell("best so far: trial %d, %s %s at step %d", r.Trial, t.f.Metric, t.costText(r.Metric), r.Budget)
	}
}

// count updates the progress line.
func (t *Tuner) count() {
	ended := 0
	for _, j := range t.jobs {
		if Over(j) {
			ended++ // the order of addition does not matter
		}
	}
	text := fmt.Sprintf("%s: %d runs over, %d not", t.f.Name, ended, len(t.jobs)-ended)
	if t.known {
		text += fmt.Sprintf(", best %s %s (trial %d, step %d)", t.f.Metric, t.costText(t.best.Metric), t.best.Trial,
			t.best.Budget)
	}
	t.state(text)
}

func (t *Tuner) costText(v float64) string {
	if t.f.Maximise {
		v = -v
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

// MetricText formats a metric; nil: it was not a number.
func MetricText(v *float64) string {
	if v == nil {
		return "not a number"
	}
	return strconv.FormatFloat(*v, 'g', 6, 64)
}

// Conclude prints the result.
func (t *Tuner) Conclude(w io.Writer) error {
	r, ok := t.s.Best()
	if !ok {
		return fmt.Errorf("search %s: no trial reported %s: muster search show %s says what became of them", t.f.Name,
			t.f.Metric, t.f.Name)
	}
	id := t.last[lastKey(r.Trial, r.Target)]
	if done := t.saved[r.Trial]; done > 0 && !r.Target {
		id = done
	}
	size := ""
	if r.Target {
		size = ", at full size"
	}
	scale := max(1, t.f.Method.Scale)
	if r.Target {
		scale = 1
	}
	_, err := fmt.Fprintf(w, "best: trial %d, %s %s at step %d%s (job %d): %s\n", r.Trial, t.f.Metric,
		t.costText(r.Metric), r.Budget, size, id, ConfigText(t.f.Config(r.Trial, scale)))
	return err
}

// tick is a channel that fires after a pause.
func tick(d time.Duration) <-chan time.Time { return time.NewTimer(d).C }
