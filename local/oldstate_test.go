//go:build linux

package local

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/journal"
	"github.com/muster-gpu/muster/local/evidence"
	"github.com/muster-gpu/muster/local/record"
	"github.com/muster-gpu/muster/local/run"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// dumped makes the state that a dump holds.
func dumped(t *testing.T, opt Options, file string) {
	t.Helper()
	if err := os.MkdirAll(opt.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	dump, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", evidence.Database(opt.Dir))
	if err == nil {
		_, err = db.Exec(string(dump))
	}
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// jobsOf lists all jobs of a machine, the latest first.
func jobsOf(t *testing.T, m *Machine) (list []show.Job, text string) {
	t.Helper()
	list, err := m.Jobs(t.Context(), store.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for i := range list {
		v := &list[i]
		have = append(have, fmt.Sprintf("%d %d_%d %s %s", v.ID, v.Array, v.Index, v.State, v.Submission.Array))
	}
	return list, strings.Join(have, "\n")
}

// A state of the version before arrays had records opens, and its arrays are what they were.
func TestStateOfVersion1(t *testing.T) {
	opt := twoGPUs(t)
	dumped(t, opt, "testdata/state-v1.sql")
	m, end := running(t, opt)
	want := "7 2_11 pending 1-11:2%3\n6 2_9 pending 1-11:2%3\n5 2_7 pending 1-11:2%3\n4 2_5 cancelled 1-11:2%3\n3 2_3 pending 1-11:2%3\n2 2_1 pending 1-11:2%3\n1 0_0 pending "
	if _, got := jobsOf(t, m); got != want {
		t.Errorf("%s\nnot\n%s", got, want)
	}
	u := User{Name: "ann", UID: 1000, GID: 1000, Home: "/"}
	ids, err := m.Submit(t.Context(), u, &ask.Submission{Command: []string{"true"}, Dir: "/", Hold: true, Array: "1-3"},
		"")
	if err != nil || !slices.Equal(ids, []int{8, 9, 10}) {
		t.Errorf("%v, %v", ids, err)
	}
	was := allKnown(t, m, 10)
	end()
	m, end = running(t, opt)
	same(t, allKnown(t, m, 10), was)
	end()
}

// A state of November 2026 opens, its journal is decided again hash for hash, no fact of a job is lost, and it runs on:
// what it held waits, and what is submitted runs.
func TestOldState(t *testing.T) {
	opt := testOptions(t, &cluster.Spec{Nodes: []cluster.Node{{Name: "box", Model: "T4-16GB", GPUs: 4}}})
	opt.Rules.Policy = "multifactor"
	dumped(t, opt, "testdata/state-v2.sql")
	keepsFacts(t, opt)
	m, end := running(t, opt)
	list, got := jobsOf(t, m)
	want := "8 0_0 completed \n7 0_0 pending \n6 4_5 pending 1-5:2%2\n5 4_3 cancelled 1-5:2%2\n4 4_1 pending 1-5:2%2\n" +
		"3 0_0 pending \n2 0_0 failed \n1 0_0 completed "
	if got != want {
		t.Fatalf("%s\nnot\n%s", got, want)
	}
	saves := &list[0]
	if saves.Progress == nil || saves.Progress.Step != 5 || len(saves.Metrics) == 0 ||
		*saves.Metrics[0].Of["loss"] != 0.5 {
		t.Errorf("what job 8 reported is %+v, %+v", saves.Progress, saves.Metrics)
	}
	if a := list[1].Submission.After; len(a) != 1 || a[0].Job != 3 || list[5].Submission.Estimate == 0 ||
		list[6].ExitCode != 1 {
		t.Errorf("%+v", list)
	}
	var text bytes.Buffer
	if err := m.Journal().Write(t.Context(), 1, &text); err != nil {
		t.Fatal(err)
	}
	r, err := journal.NewReader("segment 1", &text)
	if err != nil {
		t.Fatal(err)
	}
	if _, steps, err := journal.Replay(r, cluster.Never); err != nil || steps < 5 {
		t.Errorf("%d steps, %v", steps, err)
	}
	job := &ask.Submission{Command: []string{"true"}, Dir: "/", Output: "/dev/null", Env: []string{"A=B"}, GPUs: 1}
	ids, err := m.Submit(t.Context(), self(t), job, "")
	if err != nil || !slices.Equal(ids, []int{9}) {
		t.Fatalf("%v, %v", ids, err)
	}
	until(t, m, 9, show.StateCompleted)
	was := allKnown(t, m, 9)
	end()
	m, end = running(t, opt)
	same(t, allKnown(t, m, 9), was)
	end()
}

// A state of that version opens in which jobs run, one beside another, and one is suspended: what the engine
// knew of them it knows under the names of now. Their processes are not there any more: they come back, and
// end.
func TestOldStateOfRunning(t *testing.T) {
	opt := testOptions(t, &cluster.Spec{Nodes: []cluster.Node{{Name: "box", Model: "T4-16GB", GPUs: 2}}})
	opt.Rules.Policy = "antman:throttle=true"
	opt.Rules.Perf = &perf.Table{Pairs: map[perf.Pair]int64{{"guest", "host"}: 900_000, {"host", "guest"}: 600_000}}
	dumped(t, opt, "testdata/state-v2-busy.sql")
	keepsFacts(t, opt)
	m, err := Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	host, guest, plain, twin := m.eng.Record(1), m.eng.Record(2), m.jobs[3].Info, m.eng.Record(6)
	if !host.IgnoresCheckpoint || host.EligibleSince == 0 || host.StarvingSince == 0 || host.Acc == 0 ||
		len(host.Guests) != 1 {
		t.Errorf("the host is %+v", host)
	}
	if guest.GuestOf != 2 || !guest.Allocs[0].Beside {
		t.Errorf("the guest is %+v", guest)
	}
	if r := &plain.Record; !r.ResidentOnGPU || r.Home == nil || plain.Hearing != run.IgnoresCheckpoint ||
		len(twin.Singles) != 1 {
		t.Errorf("the suspended job is %+v, and the one behind its twin %+v", plain, twin)
	}
	if p := &m.jobs[1].Info.Pace; p.Heard == 0 || p.PredictedIn != 1 || p.Reported == 0 || p.ReportedIn != 1 {
		t.Errorf("the pace of job 1 is %+v", p)
	}
	var text bytes.Buffer
	if err := m.Journal().Write(t.Context(), 2, &text); err != nil {
		t.Fatal(err)
	}
	r, err := journal.NewReader("segment 2", &text)
	if err != nil {
		t.Fatal(err)
	}
	if _, steps, err := journal.Replay(r, cluster.Never); err != nil || steps < 5 {
		t.Errorf("%d steps, %v", steps, err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	m, end := running(t, opt)
	defer end()
	for _, id := range []int{1, 2, 4} {
		until(t, m, id, show.StateCompleted)
	}
	until(t, m, 3, show.StateCancelled) // killed while it was suspended
}

// keepsFacts checks that nothing of what a state says of its jobs is dropped when it is read.
func keepsFacts(t *testing.T, opt Options) {
	t.Helper()
	st, err := store.Open(evidence.Database(opt.Dir))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	rows, err := st.Between(t.Context(), 1, 8)
	if err != nil || len(rows) < 6 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for i := range rows {
		for _, c := range []struct {
			text []byte
			into any
		}{{rows[i].Data, &record.Info{}}, {rows[i].Submission, &ask.Submission{}}} {
			if len(c.text) == 0 {
				continue // of an array's record
			}
			var before, after any
			if err := json.Unmarshal(c.text, c.into); err != nil {
				t.Fatal(err)
			}
			again, err := json.Marshal(c.into)
			if err != nil {
				t.Fatal(err)
			}
			if json.Unmarshal(c.text, &before) != nil || json.Unmarshal(again, &after) != nil ||
				!reflect.DeepEqual(before, after) {
				t.Errorf("job %d was\n%s\nand is read as\n%s", rows[i].ID, c.text, again)
			}
		}
	}
}
