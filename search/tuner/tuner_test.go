package tuner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/client/tcp"
	"github.com/muster-gpu/muster/search"
)

// answering is a daemon with answers given by a test: it keeps jobs, submissions and cancellations.
type answering struct {
	t         *testing.T
	jobs      []api.Job // the latest first
	sent      []api.Submission
	cancelled []string
	// of the n-th submission; refused: the field and why
	answer func(n int, s *api.Submission) (job api.Job, refused string)
}

func (a *answering) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	say := func(v any) {
		if err := json.NewEncoder(w).Encode(v); err != nil {
			a.t.Error(err)
		}
	}
	switch {
	case r.URL.Path == "/v1/me":
		say(api.Me{User: "me"})
	case strings.HasSuffix(r.URL.Path, "/cancel"):
		a.cancelled = append(a.cancelled, r.URL.Path)
		say(api.Job{})
	case r.URL.Path == "/v1/jobs" && r.Method == http.MethodGet:
		list := a.jobs
		if r.URL.Query().Get("state") == "active" {
			list = slices.DeleteFunc(slices.Clone(list), func(j api.Job) bool { return Over(&j) })
		}
		say(map[string]any{"jobs": list})
	case r.URL.Path == "/v1/jobs":
		var s api.Submission
		if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
			a.t.Error(err)
		}
		a.sent = append(a.sent, s)
		j, refused := a.answer(len(a.sent), &s)
		if field, text, _ := strings.Cut(refused, ": "); refused != "" {
			w.WriteHeader(http.StatusUnprocessableEntity)
			say(map[string]any{"status": 422, "detail": refused,
				"errors": []map[string]string{{"message": text, "location": "body." + field}}})
			return
		}
		say(client.Submitted{Job: j})
	default:
		a.t.Errorf("%s %s", r.Method, r.URL)
	}
}

// tunerOf is a tuner of a search that talks to a daemon.
func tunerOf(t *testing.T, a *answering, text string) *Tuner {
	t.Helper()
	f, err := parse("f.yaml", "", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for i := range a.jobs {
		if s := a.jobs[i].Submission.Trial; !s.Tuner {
			s.Search, s.Spec = f.Name, f.Spec
		}
	}
	a.t = t
	srv := httptest.NewServer(a)
	t.Cleanup(srv.Close)
	tn, err := New(t.Context(), tcp.New(client.Login{Host: srv.URL}), f, func(string) {}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	return tn
}

func searchOf(method string) string {
	return "name: good\n" + method +
		"\nparameters: {x: {uniform: [0, 1]}}\nmetric: loss\nat_once: 9\njob: {command: [train, \"{x}\"]}\n"
}

func metricsOf(marks ...float64) (list []api.Metrics) {
	for i := 0; i+1 < len(marks); i += 2 {
		list = append(list, api.Metrics{Mark: int64(marks[i]), Step: marks[i], At: time.Unix(100, 0),
			Of: map[string]*float64{"loss": &marks[i+1]}})
	}
	return list
}

// A tuner that is started again stops the runs that its predecessor should have stopped.
func TestTunerStopsAtOnce(t *testing.T) {
	run := func(id, trial int, m ...float64) api.Job {
		return api.Job{ID: id, User: "me", State: api.StateRunning, Submitted: time.Unix(int64(id), 0),
			Metrics:    metricsOf(m...),
			Submission: api.Submission{Trial: &api.Trial{Number: trial, Marks: []int64{1, 3, 9}}}}
	}
	a := &answering{jobs: []api.Job{run(8, 1, 1, 5, 3, 5), run(7, 0, 1, 1)}}
	tn := tunerOf(t, a, searchOf("method: asha\nstopping: true\ntrials: 2\nbudget: {min: 1, max: 9}"))
	if _, err := tn.turn(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.cancelled, []string{"/v1/jobs/8/cancel"}) || len(a.sent) != 0 {
		t.Errorf("cancelled %v, submitted %d", a.cancelled, len(a.sent))
	}
}

// A submission may be answered with a job that is already over: its outcome counts, and is not waited for.
func TestTunerAnsweredWithTheEnd(t *testing.T) {
	a := &answering{answer: func(n int, s *api.Submission) (api.Job, string) {
		j := api.Job{ID: n, User: "me", State: api.StateCompleted, Submission: *s, Metrics: metricsOf(3, float64(n))}
		if n == 2 {
			j.State, j.Metrics = api.StateRejected, nil
		}
		return j, ""
	}}
	tn := tunerOf(t, a, searchOf("method: random\ntrials: 3\nbudget: {max: 3}"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := tn.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if r, ok := tn.s.Best(); !ok || r.Trial != 0 || r.Metric != 1 || len(a.sent) != 3 {
		t.Errorf("%+v, %d submitted", r, len(a.sent))
	}
}

// A trial whose checkpoints are gone starts from the beginning, and so does such a trial of a fused group; a
// refusal for another reason ends the tuner.
func TestTunerStartsOver(t *testing.T) {
	f, err := parse("f.yaml", "",
		[]byte(searchOf("method: hydro\nscale: 1\nfusion: {memory: 9GiB, one: 1GiB, two: 2GiB}\ntrials: 4\neta: 2\nbudget: {min: 1, max: 4}")))
	if err != nil {
		t.Fatal(err)
	}
	refusals := []string{"trial.fused[1].from: job 12 has no checkpoint folder of trial 3",
		"checkpoint_of: job 11 has no checkpoint folder", "gpus: there are none"}
	a := &answering{t: t, answer: func(n int, s *api.Submission) (api.Job, string) {
		if n <= len(refusals) && n != 2 {
			return api.Job{}, refusals[n-1]
		}
		return api.Job{ID: n, User: "me", State: api.StatePending, Submission: *s}, ""
	}}
	srv := httptest.NewServer(a)
	defer srv.Close()
	s, err := search.New(f.Method)
	if err != nil {
		t.Fatal(err)
	}
	told := ""
	tn := &Tuner{cl: tcp.New(client.Login{Host: srv.URL}), f: f, s: s, jobs: map[int]*api.Job{}, last: map[[2]int]int{},
		saved: map[int]int{2: 11, 3: 12}, full: map[int]int{},
		tell: func(format string, args ...any) { told += fmt.Sprintf(format, args...) + "\n" }}
	d := search.Decision{Trials: []int{2, 3}, Rung: 1, From: 1, Budget: 2, Marks: []int64{2}}
	if err := tn.submit(t.Context(), &d); err != nil {
		t.Fatal(err)
	}
	if x := a.sent[1].Trial.Fused; len(a.sent) != 2 || a.sent[0].Trial.Fused[1].From != 12 || x[0].From != 11 ||
		x[1].From != 0 || !strings.Contains(told, "starts from the beginning") {
		t.Errorf("%+v\n%s", x, told)
	}
	if err := tn.submit(t.Context(), &d); err == nil || !strings.Contains(err.Error(), "there are none") ||
		len(a.sent) != 3 {
		t.Errorf("%v, %d submissions", err, len(a.sent))
	}
	a.sent, refusals = nil, refusals[1:2]
	f.Method.Fusion = nil
	if err := tn.submit(t.Context(),
		&search.Decision{Trials: []int{2}, Rung: 1, From: 1, Budget: 2, Marks: []int64{2}}); err != nil {
		t.Fatal(err)
	}
	if len(a.sent) != 2 || a.sent[0].CheckpointOf != 11 || a.sent[1].CheckpointOf != 0 {
		t.Errorf("%d submissions", len(a.sent))
	}
}

// Temporary errors are those of the connection, and of a daemon in trouble.
func TestPassing(t *testing.T) {
	_, nan := json.Marshal(map[string]any{"x": func() {}})
	for _, c := range []struct {
		err  error
		want bool
	}{{client.ErrNoServer, true}, {&url.Error{Op: "Get", Err: io.EOF}, true},
		{&client.BrokenError{Method: "GET", Err: errors.New("connection reset")}, true}, {io.ErrUnexpectedEOF, true},
		{&client.Error{Status: 503}, true}, {&client.Error{Status: 409, Detail: "the daemon is ending"}, true},
		{&client.Error{Status: 422}, false}, {&client.Error{Status: 409}, false}, {nan, false},
		{errors.New("something else"), false}} {
		if passing(c.err) != c.want {
			t.Errorf("%v: %v", c.err, !c.want)
		}
	}
}

// Of two tuners submitted at once the first one runs; one that is started while another runs does not.
func TestTunerRivals(t *testing.T) {
	tn := &Tuner{f: &File{Name: "a"}, user: "me"}
	list := []api.Job{{ID: 5}, {ID: 6}, {ID: 7}}
	for i := range list {
		list[i].User, list[i].State, list[i].Submission.Trial = "me", api.StateRunning,
			&api.Trial{Search: "a", Tuner: true}
	}
	list[2].Submission.Trial.Search = "b"
	for _, c := range []struct {
		own  string
		want []bool
	}{{"", []bool{true, true, false}}, {"5", []bool{false, false, false}}, {"6", []bool{true, false, false}},
		{"7", []bool{true, true, false}}} {
		t.Setenv("MUSTER_JOB_ID", c.own)
		own := tn.ownJob(list)
		for i := range list {
			if got := tn.rival(&list[i], own); got != c.want[i] {
				t.Errorf("tuner in job %q: job %d is a rival: %v", c.own, list[i].ID, got)
			}
		}
	}
	if a, b := client.Unix("/a").Server(), client.Unix("/b").Server(); a == b {
		t.Error("the lock is the same for two daemons")
	}
}
