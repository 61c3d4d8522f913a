package past

import (
	"fmt"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
)

// Helios, SC'21, test: user u ran train_a on one GPU for 100s and 200s, and on
// eight for 1000s.
func TestPredict(t *testing.T) {
	b := New(&sched.World{Traits: sched.Traits{Predicts: true}})
	for _, c := range []struct {
		user, name string
		gpus       int64
		ran        int
	}{{"u", "train_a", 1, 100}, {"u", "train_a", 1, 200}, {"u", "train_a", 8, 1000}, {"v", "eval", 1, 40}} {
		b.jobs = append(b.jobs,
			sched.Earlier{User: c.user, Name: c.name, Milli: c.gpus * 1000, Ran: time.Duration(c.ran) * time.Second})
	}
	for _, c := range []struct {
		user, name string
		gpus       int
		want       string
	}{
		{"u", "train_a", 1, "2m30s"},
		{"u", "train_a", 4, "7m13.333s"}, // no rows of its size: the mean of all three
		{"u", "train_b", 1, "2m30s"},     // a name like it: the same rows
		{"u", "train_b", 8, "16m40s"},
		{"w", "train_a", 1, "7m13.333s"}, // another user's
		{"v", "zzz", 1, "40s"},           // no such name: the user's mean
		{"v", "", 1, "40s"},
		{"w", "", 1, "5m35s"}, // no user's: the mean of all
	} {
		j := &cluster.Job{User: c.user, Name: c.name,
			Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: c.gpus}}}}
		if got := b.Predict(j).String(); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	none := New(&sched.World{Traits: sched.Traits{Predicts: true}})
	if d := none.Predict(&cluster.Job{Name: "x"}); d != 0 {
		t.Errorf("nothing is known and it predicts %v", d)
	}
}

func TestAlike(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"train_a", "train_b", 6}, {"abcd", "bcde", 3}, {"", "x", 0}, {"xaybz", "ab", 2}, {"tide", "diet", 1},
		{"diet", "tide", 2}, {"same", "same", 4}} {
		if got := matching(c.a, c.b); got != c.want {
			t.Errorf("%s and %s match in %d, want %d", c.a, c.b, got, c.want)
		}
	}
	var b Book
	for _, n := range []string{"bert-2", "resnet", "bert-1", "bert-large", "", "gpt", "bert-1"} {
		b.jobs = append(b.jobs, sched.Earlier{Name: n})
	}
	if got := fmt.Sprint(b.alike("bert-3"), b.alike("bert"), b.alike("gqt"),
		b.alike("llama")); got != "[bert-2 bert-1] [bert-2 bert-1] [gpt] []" {
		t.Errorf("alike are %s", got)
	}
}
