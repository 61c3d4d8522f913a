package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/gateway"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/scale"
)

// world is a scheduler whose jobs are HTTP servers in this process, a store in memory, and a gateway that says what the
// test wants.
type world struct {
	t    *testing.T
	dir  context.Context
	mu   sync.Mutex
	now  time.Time
	gpus int            // jobs beyond as many wait
	most map[string]int // likewise of a variant, where it is there
	next int
	jobs map[int]*worldJob
	kept map[string]Service
	told *gateway.Config
	said *gateway.Report
	// what goes wrong
	refuses error  // submissions
	metrics string // that replicas publish
	mute    bool   // what is started does not listen
	foreign bool   // what listens is not the job
	// what is lent
	lent     []int // jobs that would make room
	wouldAdd int   // for so many replicas
	lentBy   map[int]string
	lenders  [][]Lender      // as they were told
	slowed   map[int]float64 // by job: what is left of its speed
}

type worldJob struct {
	Job
	server *http.Server
	sick   bool
}

func newWorld(t *testing.T, gpus int) *world {
	w := &world{t: t, now: time.Unix(1_800_000_000, 0), gpus: gpus, jobs: map[int]*worldJob{},
		kept: map[string]Service{}, slowed: map[int]float64{},
		said: &gateway.Report{}}
	t.Cleanup(func() {
		for _, j := range w.jobs {
			w.end(j, "", false)
		}
	})
	return w
}

func (w *world) controller() *Controller {
	c, err := New(context.Background(), Options{Scheduler: w, Store: w, Gateway: w, First: 24000, Last: 24999,
		Now: func() time.Time { w.mu.Lock(); defer w.mu.Unlock(); return w.now }})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) Submit(_ context.Context, s *Service, k scale.Kind, port, inPlaceOf int) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuses != nil {
		return 0, w.refuses
	}
	w.next++
	w.jobs[w.next] = &worldJob{Job: Job{ID: w.next, Service: s.Name, Variant: s.Variants[k.Variant].Name,
		Share: k.Share, Port: port, InPlaceOf: inPlaceOf,
		Generation: s.Generation, State: Waits, Submitted: w.now, User: s.Owner}}
	w.start()
	return w.next, nil
}

// start starts jobs that wait while there are GPUs; the lock is held.
func (w *world) start() {
	ids := []int{}
	running, of := 0, map[string]int{}
	for id, j := range w.jobs {
		ids = append(ids, id)
		if j.State == Starts {
			running++
			of[j.Variant]++
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		j := w.jobs[id]
		most, bounded := w.most[j.Variant]
		if j.State != Waits || running >= w.gpus || bounded && of[j.Variant] >= most {
			continue
		}
		running++
		of[j.Variant]++
		j.State, j.Started = Starts, w.now
		if w.mute {
			continue
		}
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(j.Port))
		if err != nil {
			w.t.Error(err)
			continue
		}
		j.server = &http.Server{Handler: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			w.mu.Lock()
			defer w.mu.Unlock()
			switch {
			case j.sick:
				out.WriteHeader(http.StatusInternalServerError)
			case r.URL.Path == metricsPath:
				fmt.Fprint(out, w.metrics)
			}
		})}
		go j.server.Serve(l) //nolint:errcheck // it ends with the job
	}
}

// end ends a job; the lock is held.
func (w *world) end(j *worldJob, outcome string, failed bool) {
	if j.server != nil {
		_ = j.server.Close()
		j.server = nil
	}
	if j.State != Over {
		j.State, j.Outcome, j.Failed = Over, outcome, failed
	}
}

func (w *world) Cancel(_ context.Context, id int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end(w.jobs[id], "cancelled", false)
	w.start()
	return nil
}

func (w *world) Test(*service.Service, Caller) error { return nil }

func (w *world) Replicas(context.Context) (list []Job, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.jobs {
		if j.State != Over {
			list = append(list, j.Job)
		}
	}
	return list, nil
}

func (w *world) Replica(_ context.Context, id int) (Job, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.jobs[id].Job, nil
}

func (w *world) Check(*Job) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.foreign {
		return ErrTaken
	}
	return nil
}

func (w *world) GPUs() []scale.GPUs { return []scale.GPUs{{Model: "A100", Number: w.gpus}} }

func (w *world) Services(context.Context) (list []Service, err error) {
	for _, s := range w.kept {
		list = append(list, s)
	}
	return list, nil
}

func (w *world) PutService(_ context.Context, s *Service) error { w.kept[s.Name] = *s; return nil }

func (w *world) DeleteService(_ context.Context, name string) error { delete(w.kept, name); return nil }

func (w *world) PutKnown(_ context.Context, name string, k *Known) error {
	data, err := json.Marshal(k)
	if err != nil {
		return err
	}
	s := w.kept[name]
	s.Known = Known{}
	err = json.Unmarshal(data, &s.Known)
	w.kept[name] = s
	return err
}

func (w *world) Lent(_ *Service, _ scale.Kind, replicas int) ([]int, error) {
	w.wouldAdd = replicas
	return w.lent, nil
}

func (w *world) SetLenders(list []Lender) error {
	w.lenders = append(w.lenders, list)
	return nil
}

func (w *world) Slowed(job int, part float64) { w.slowed[job] = part }

func (w *world) SetLent(by map[int]string) { w.lentBy = by }

func (w *world) Counts(context.Context) (*gateway.Report, error) { return w.said, nil }

func (w *world) Write(c *gateway.Config) error {
	if err := c.Check(); err != nil {
		w.t.Errorf("the gateway takes over nothing: %v", err)
	}
	w.told = c
	return nil
}

func (w *world) Former() (*gateway.Config, error) {
	if w.told == nil {
		return nil, nil
	}
	c := *w.told
	return &c, nil
}

// pass lets time pass in steps of a second.
func (w *world) pass(c *Controller, d time.Duration) {
	w.t.Helper()
	for range d / time.Second {
		w.mu.Lock()
		w.now = w.now.Add(time.Second)
		w.mu.Unlock()
		c.mu.Lock()
		c.report, c.silent = w.said, nil
		c.mu.Unlock()
		if err := c.step(context.Background()); err != nil {
			w.t.Fatal(err)
		}
		w.settle(c)
	}
}

// settle waits for probes.
func (w *world) settle(c *Controller) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		c.mu.Lock()
		asking := false
		for _, r := range c.replicas {
			asking = asking || r.asking
		}
		c.mu.Unlock()
		if !asking {
			return
		}
	}
	w.t.Fatal("a probe does not end")
}

// states are the replicas' states for a service, by job.
func (w *world) states(c *Controller, name string) string {
	s, err := c.Service(name)
	if err != nil {
		return err.Error()
	}
	var list []string
	for _, r := range s.Replicas {
		list = append(list, fmt.Sprint(r.Job, " ", r.State))
	}
	return strings.Join(list, ", ")
}

func (w *world) expect(c *Controller, name, want string) {
	w.t.Helper()
	if got := w.states(c, name); got != want {
		s, _ := c.Service(name)
		w.t.Fatalf("%s: %s, not %s; %q", name, got, want, s.Why)
	}
}

func text(command string, least, most int) string {
	return fmt.Sprintf(`
name: vision
latency: 50ms
replicas: {min: %d, max: %d}
scaling: static
variants:
  - {name: a, command: [%s], profile: [{batch: 1, latency: 5ms}, {batch: 8, latency: 8ms}]}
`, least, most, command)
}

func (w *world) apply(c *Controller, text string) {
	w.t.Helper()
	if _, err := c.Apply(context.Background(), &ask.ServiceFile{Text: text}, Caller{User: "ann"}); err != nil {
		w.t.Fatal(err)
	}
}

// TestLife: a service gets its replicas, the gateway those that answer; one that ends is replaced; another controller
// finds them again; a deleted service drains.
func TestLife(t *testing.T) {
	w := newWorld(t, 4)
	c := w.controller()
	w.apply(c, text("serve", 2, 2))
	w.pass(c, 3*time.Second)
	w.expect(c, "vision", "1 answers, 2 answers")
	if r := w.told.Services[0]; len(r.Replicas) != 2 || r.Batch != 8 || r.TakesMS[0] != 5 || r.Replicas[0].Draining {
		t.Fatalf("the gateway has %+v", r)
	}
	w.mu.Lock()
	w.end(w.jobs[1], "exit code 3", true)
	w.mu.Unlock()
	w.pass(c, time.Second)
	w.expect(c, "vision", "2 answers")
	if s, _ := c.Service("vision"); !strings.Contains(strings.Join(s.Why, "\n"), "job 1: exit code 3") {
		t.Errorf("why: %q", s.Why)
	}
	w.pass(c, 3*time.Second)
	w.expect(c, "vision", "2 answers, 3 answers")
	if w.jobs[3].Port == w.jobs[1].Port {
		t.Error("the port of a job that ended a moment ago was given to another")
	}
	c = w.controller()
	w.pass(c, 2*time.Second)
	w.expect(c, "vision", "2 answers, 3 answers")
	if err := c.Delete(context.Background(), "vision", Caller{User: "bob"}); !errors.Is(err, ErrForeign) {
		t.Errorf("another user's deletion: %v", err)
	}
	if err := c.Delete(context.Background(), "vision", Caller{User: "ann"}); err != nil {
		t.Fatal(err)
	}
	w.pass(c, time.Second)
	w.expect(c, "vision", "2 leaves, 3 leaves")
	if len(w.told.Services) != 0 {
		t.Errorf("the gateway has %+v", w.told.Services)
	}
	w.pass(c, 3*time.Second)
	if _, err := c.Service("vision"); !errors.Is(err, ErrUnknown) || w.jobs[2].State != Over ||
		w.jobs[3].State != Over {
		t.Errorf("%v; job 2 %s, job 3 %s", err, w.jobs[2].State, w.jobs[3].State)
	}
}

// TestReplace: replicas of a former form leave once new ones answer; where GPUs are short, all but the last make room.
func TestReplace(t *testing.T) {
	w := newWorld(t, 4)
	c := w.controller()
	w.apply(c, text("one", 2, 2))
	w.pass(c, 3*time.Second)
	w.apply(c, text("two", 2, 2))
	w.pass(c, time.Second)
	w.expect(c, "vision", "1 answers, 2 answers, 3 waits, 4 waits")
	w.pass(c, 4*time.Second)
	w.expect(c, "vision", "3 answers, 4 answers")

	w.gpus = 2
	w.apply(c, text("three", 2, 2))
	w.pass(c, 20*time.Second)
	w.expect(c, "vision", "3 answers, 4 answers, 5 waits, 6 waits")
	w.pass(c, 25*time.Second)
	w.expect(c, "vision", "5 answers, 6 answers")

	w.gpus = 1
	w.apply(c, text("four", 1, 1))
	w.pass(c, 90*time.Second)
	w.expect(c, "vision", "6 answers, 7 waits")
}

// TestMoves: in the place of a replica that is moved another one comes, for which it waits, also under another
// controller.
func TestMoves(t *testing.T) {
	w := newWorld(t, 4)
	c := w.controller()
	w.apply(c, text("serve", 2, 2))
	w.pass(c, 3*time.Second)
	w.expect(c, "vision", "1 answers, 2 answers")
	w.mu.Lock()
	w.jobs[1].Moves, w.mute = true, true
	w.mu.Unlock()
	w.pass(c, 20*time.Second)
	w.expect(c, "vision", "1 answers, 2 answers, 3 starts")
	if w.jobs[3].InPlaceOf != 1 {
		t.Errorf("job 3 came in the place of %d", w.jobs[3].InPlaceOf)
	}
	c = w.controller()
	w.pass(c, 5*time.Second)
	w.expect(c, "vision", "1 answers, 2 answers, 3 starts")
	w.mu.Lock()
	w.end(w.jobs[3], "exit code 1", true)
	w.mute = false
	w.mu.Unlock()
	w.pass(c, time.Second)
	w.expect(c, "vision", "1 answers, 2 answers")
	w.pass(c, 4*time.Second)
	if w.jobs[4].InPlaceOf != 1 || w.jobs[1].State != Starts && w.jobs[4].State == Waits {
		t.Errorf("job 4 came in the place of %d", w.jobs[4].InPlaceOf)
	}
	w.pass(c, 4*time.Second)
	w.expect(c, "vision", "2 answers, 4 answers")
	if w.jobs[1].State != Over {
		t.Errorf("job 1 is %s", w.jobs[1].State)
	}
}

// TestFailures: what cannot be submitted, ends, does not listen, hangs, or is another user's process, is told,
// and tried again ever more seldom.
func TestFailures(t *testing.T) {
	why := func(w *world, c *Controller) string {
		s, _ := c.Service("vision")
		return strings.Join(s.Why, "\n")
	}
	w := newWorld(t, 4)
	w.refuses = errors.New("queue: there is no queue of this name")
	c := w.controller()
	w.apply(c, text("serve", 1, 1))
	w.pass(c, 40*time.Second)
	if !strings.Contains(why(w, c), "there is no queue") || !strings.Contains(why(w, c), "in a row") {
		t.Errorf("why: %s", why(w, c))
	}
	w.refuses, w.mute = nil, true
	w.pass(c, 60*time.Second)
	before := w.next
	if !strings.Contains(why(w, c), "does not answer: ") {
		t.Errorf("why: %s", why(w, c))
	}
	w.pass(c, 5*time.Minute)
	if n := w.next - before; n < 2 || n > 5 {
		t.Errorf("%d submissions in 5 minutes, each of which does not listen for one", n)
	}
	w.mute, w.foreign = false, true
	w.pass(c, 3*time.Minute)
	if n := len(w.told.Services[0].Replicas); n != 0 || !strings.Contains(why(w, c), ErrTaken.Error()) {
		t.Errorf("%d replicas; why: %s", n, why(w, c))
	}
	w.foreign = false
	w.pass(c, 2*time.Minute)
	if n := len(w.told.Services[0].Replicas); n != 1 {
		t.Fatalf("%d replicas; why: %s", n, why(w, c))
	}
	last := w.next
	w.foreign = true
	w.pass(c, 2*time.Second)
	w.expect(c, "vision", fmt.Sprint(last, " hangs"))
	if n := len(w.told.Services[0].Replicas); n != 0 {
		t.Errorf("another user's process gets requests for longer than until the next probe: %d replicas", n)
	}
	w.foreign = false
	w.pass(c, 2*time.Second)
	w.expect(c, "vision", fmt.Sprint(last, " answers"))
	w.mu.Lock()
	w.jobs[last].sick = true
	w.mu.Unlock()
	w.pass(c, 2*time.Second)
	w.expect(c, "vision", fmt.Sprint(last, " answers"))
	w.pass(c, 3*time.Second)
	w.expect(c, "vision", fmt.Sprint(last, " hangs"))
	if n := len(w.told.Services[0].Replicas); n != 0 {
		t.Errorf("%d replicas", n)
	}
	w.pass(c, time.Minute)
	w.expect(c, "vision", fmt.Sprint(last+1, " answers"))
}

// TestZero: without requests nothing runs; one that waits starts a replica at once.
func TestZero(t *testing.T) {
	w := newWorld(t, 4)
	c := w.controller()
	spec := strings.Replace(text("serve", 0, 3), "static", "muster:idle=1m", 1)
	w.said = &gateway.Report{Services: []gateway.Served{{Name: "vision"}}}
	w.apply(c, spec)
	w.pass(c, 90*time.Second)
	w.expect(c, "vision", "")
	w.said.Services[0].Waiting = 1
	w.said.Services[0].Arrived = 1
	w.pass(c, 2*time.Second)
	w.said.Services[0].Waiting = 0
	w.pass(c, 20*time.Second)
	w.expect(c, "vision", "1 answers")
	w.pass(c, 3*time.Minute)
	w.expect(c, "vision", "")
}

// TestMeasured: how long batches take is found out while a service runs, of a variant without a profile too, and what
// replicas are needed follows from it.
func TestMeasured(t *testing.T) {
	w := newWorld(t, 8)
	c := w.controller()
	w.said = &gateway.Report{Services: []gateway.Served{{Name: "vision"}}}
	spec := strings.Replace(text("serve", 1, 8), "[{batch: 1, latency: 5ms}, {batch: 8, latency: 8ms}]", "measure", 1)
	w.apply(c, strings.Replace(strings.Replace(spec, "static", "muster", 1), "50ms", "100ms", 1))
	w.pass(c, 10*time.Second)
	w.expect(c, "vision", "1 answers")
	if r := w.told.Services[0]; r.Batch != 32 || r.TakesMS[0] != 0 {
		t.Errorf("the gateway has %+v", r)
	}
	for i := range 10 { // 40 requests a second, in batches of two, which take 40 ms
		each := gateway.Counted{ID: "1", Sizes: []gateway.Size{{Requests: 2, Batches: 20 * int64(i+1),
			Took: time.Duration(i+1) * 800 * time.Millisecond}}}
		w.said.Services[0].Arrived += 40
		w.said.Services[0].Answered += 40
		w.said.Services[0].InTime += 40
		w.said.Services[0].Each = []gateway.Counted{each}
		w.pass(c, time.Second)
	}
	s, _ := c.Service("vision")
	if m := s.Variants[0].Measured; len(m) != 1 || m[0].Requests != 2 || m[0].Seconds != 0.04 {
		t.Errorf("measured: %+v", m)
	}
	if s.Wanted < 1 || s.Wanted > 2 {
		t.Errorf("%d replicas for 40 requests a second, of which one can do 50", s.Wanted)
	}
	if r := w.told.Services[0]; r.TakesMS[0] != 40 || r.TakesMS[2] != 80 {
		t.Errorf("the gateway has %+v", r.TakesMS)
	}
}

// TestFault: a fault while services are looked at ends neither the daemon nor what it looks at afterwards.
func TestFault(t *testing.T) {
	w := newWorld(t, 1)
	c := w.controller()
	w.apply(c, text("serve", 1, 1))
	good := c.services["vision"].policy
	c.services["vision"].policy = nil
	w.said = &gateway.Report{Services: []gateway.Served{{Name: "vision"}}}
	c.report, c.silent = w.said, nil
	if err := c.guarded(t.Context()); err == nil || !strings.Contains(err.Error(), "a fault of Muster") {
		t.Errorf("%v", err)
	}
	c.services["vision"].policy = good
	w.pass(c, 10*time.Second)
	w.expect(c, "vision", "1 answers")
}

// TestWrongServices: what is wrong with a file is told, and nothing of it is kept.
func TestWrongServices(t *testing.T) {
	w := newWorld(t, 4)
	c := w.controller()
	good := text("serve", 1, 1)
	for change, want := range map[[2]string]string{
		{"name: vision", "name: ../x"}:       "name: ",
		{"latency: 50ms", "latency: 1ms"}:    "the nearest is a",
		{"command: [serve], ", ""}:           "command: what its replicas run is missing",
		{"scaling: static", "scaling: magi"}: "scaling",
		{"scaling: static", "path: v1"}:      "v1 and v2 are the protocols'",
		{"scaling: static", "colour: red"}:   "colour",
	} {
		_, err := c.Apply(context.Background(),
			&ask.ServiceFile{Text: strings.Replace(good, change[0], change[1], 1)}, Caller{User: "ann"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %s", change[1], err, want)
		}
	}
	if len(w.kept) != 0 || len(c.Services()) != 0 {
		t.Errorf("%d were kept", len(w.kept))
	}
	w.apply(c, good)
	if _, err := c.Apply(context.Background(), &ask.ServiceFile{Text: good}, Caller{User: "bob"}); !errors.Is(err,
		ErrForeign) {
		t.Errorf("another user's: %v", err)
	}
	if _, err := c.Apply(context.Background(), &ask.ServiceFile{Text: good},
		Caller{User: "root", Admin: true}); err != nil ||
		w.kept["vision"].Owner != "ann" {
		t.Errorf("an admin's: %v, owner %s", err, w.kept["vision"].Owner)
	}
	err := c.Scale(context.Background(), "vision", service.Replicas{Min: 3, Max: 2}, Caller{User: "ann"})
	if err == nil || !strings.Contains(err.Error(), "min") {
		t.Errorf("from 3 to 2: %v", err)
	}
}

// TestRestart: a controller that is started again leaves the replicas that answer alone, however long they have run,
// and does not tell the gateway that there are none.
func TestRestart(t *testing.T) {
	w := newWorld(t, 4)
	c := w.controller()
	w.apply(c, text("serve", 2, 2))
	w.pass(c, 10*time.Minute)
	c = w.controller()
	for range 5 {
		w.pass(c, time.Second)
		if n := len(w.told.Services[0].Replicas); n != 2 {
			t.Errorf("the gateway has %d replicas", n)
		}
	}
	w.expect(c, "vision", "1 answers, 2 answers")
}
