package engine_test

import (
	"strings"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// partOf has a job ask for part of a GPU.
func partOf(share int64, memory cluster.MiB) func(*cluster.Job) {
	return func(j *cluster.Job) { j.Tasks[0].Request.Share, j.Tasks[0].Request.Memory = share, memory }
}

func profile(name string) func(*cluster.Job) {
	return func(j *cluster.Job) { j.Tasks[0].Request.Profile = name }
}

func of(user string) func(*cluster.Job) { return func(j *cluster.Job) { j.User = user } }

// A job that gets part of a GPU waits for jobs that leave that GPU only as far as it needs what
// they have: share, memory, compute slices, clients of MPS; memory slices and media engines that
// are its own; the GPU's mode, its server's user. It is said for which.
func TestLeavers(t *testing.T) {
	mps := func(c *engine.Config) { c.Spec.Sharing = cluster.MPS }
	two := func(c *engine.Config) {
		mps(c)
		m, _ := cluster.FindModel("A100-80GB")
		m.Clients = 2
		c.Spec.Models = []cluster.GPUModel{m}
	}
	type is []func(*cluster.Job)
	for _, c := range []struct {
		what   string
		change func(*engine.Config)
		leaves is // the first job
		stays  is // the second
		comes  is // the third
		waits  bool
	}{
		{"what is free is enough", nil, is{partOf(250, 0)}, is{partOf(250, 0)}, is{partOf(500, 0)}, false},
		{"the share is not free", nil, is{partOf(500, 0)}, is{partOf(250, 0)}, is{partOf(500, 0)}, true},
		{"the memory is not free", nil, is{partOf(100, 50_000)}, is{partOf(100, 10_000)}, is{partOf(100, 30_000)},
			true},
		{"the memory is free", nil, is{partOf(100, 50_000)}, is{partOf(100, 10_000)}, is{partOf(100, 20_000)}, false},
		{"MPS takes no more clients", two, is{partOf(100, 0)}, is{partOf(100, 0)}, is{partOf(100, 0)}, true},
		{"the server is another user's", mps, is{partOf(100, 0)}, nil, is{partOf(100, 0), of("v")}, true},
		{"the server is the user's own", mps, is{partOf(100, 0)}, nil, is{partOf(100, 0)}, false},
		{"other slices", nil, is{profile("1g.10gb")}, is{profile("3g.40gb")}, is{profile("2g.20gb")}, false},
		{"the same slices", nil, is{profile("4g.40gb")}, is{profile("3g.40gb")}, is{profile("2g.20gb")}, true},
		{"a slice where shares are", nil, is{partOf(100, 0)}, nil, is{profile("1g.10gb")}, true},
		{"a share where slices are", nil, is{profile("1g.10gb")}, nil, is{partOf(100, 0)}, true},
		{"a share of a GPU that was whole", nil, is{}, nil, is{partOf(100, 0)}, true},
		{"the whole GPU", nil, is{partOf(100, 0)}, nil, is{}, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			var cfg engine.Config
			h := newHand(t, "1x1xA100-80GB", "fifo", func(to *engine.Config) {
				if c.change != nil {
					c.change(to)
				}
				cfg = *to
			})
			h.want(0, "start 0", submit(job(0, 1, 100, c.leaves...)))
			h.want(1, "", ev(engine.Started, 0))
			if c.stays != nil {
				h.want(2, "start 1", submit(job(1, 1, 100, c.stays...)))
			}
			h.want(3, "preempt 0", ev(engine.Cancelled, 0))
			want := "start 2"
			if c.waits {
				want = ""
			}
			if h.want(4, want, submit(job(2, 1, 100, c.comes...))); !c.waits {
				return
			}
			text := strings.Join(h.e.Why(2).Blockers, ", ")
			if !strings.Contains(text, "waits for job 0 to leave GPU 0") {
				t.Errorf("why: %q", text)
			}
			for _, h := range h.andRestored(cfg) {
				if got := strings.Join(h.e.Why(2).Blockers, ", "); got != text {
					t.Errorf("why, restored: %q, not %q", got, text)
				}
				h.want(5, "start 2", stopped(0, engine.WasCancelled))
			}
		})
	}
}

// Of jobs that leave a GPU a share waits for as few as it takes, and none counts on what
// another one counts on already.
func TestLeaversAreCounted(t *testing.T) {
	h := newHand(t, "1x1xA100-80GB", "fifo", nil)
	h.want(0, "start 0, start 1", submit(job(0, 1, 100, partOf(500, 0))), submit(job(1, 1, 100, partOf(400, 0))))
	h.want(1, "", ev(engine.Started, 0), ev(engine.Started, 1))
	h.want(2, "preempt 0, preempt 1", ev(engine.Cancelled, 0), ev(engine.Cancelled, 1))
	h.want(3, "start 2", submit(job(2, 1, 100, partOf(100, 0)))) // the tenth that no job had
	h.want(4, "", submit(job(3, 1, 100, partOf(400, 0))), submit(job(4, 1, 100, partOf(200, 0))),
		submit(job(5, 1, 100, partOf(300, 0))))
	for id, want := range map[int]string{3: "waits for job 0 to leave GPU 0",
		4: "waits for job 0 to leave GPU 0, job 1 to leave GPU 0", 5: "waits for job 1 to leave GPU 0"} {
		if list := h.e.Why(cluster.JobID(id)).Blockers; len(list) != 1 || list[0] != want {
			t.Errorf("job %d: %q, want %q", id, list, want)
		}
	}
	h.want(5, "start 5", stopped(1, engine.WasCancelled))
	h.want(6, "start 3, start 4", stopped(0, engine.WasCancelled))
}
