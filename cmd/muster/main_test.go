package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/policy"
)

// muster runs the command line in process.
func muster(t *testing.T, ctx context.Context, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	root := newRoot()
	var out, errw bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&errw)
	root.SetArgs(args)
	err = root.ExecuteContext(ctx)
	return out.String(), errw.String(), err
}

func ok(t *testing.T, args ...string) string {
	t.Helper()
	out, errw, err := muster(t, context.Background(), args...)
	if err != nil {
		t.Fatalf("muster %s: %v\n%s", strings.Join(args, " "), err, errw)
	}
	return out
}

// TestFirstScreen does what the README's first screen says, on the demo.
func TestFirstScreen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	page, js, jr := filepath.Join(dir, "r.html"), filepath.Join(dir, "r.json"), filepath.Join(dir, "las.journal")
	out := ok(t, "sim", "--demo", "--policies", "fifo,las", "--html", page, "--json", js, "--csv",
		filepath.Join(dir, "r.csv"),
		"--jobs-csv", filepath.Join(dir, "jobs.csv"))
	if !strings.Contains(out, "fifo") || !strings.Contains(out, "las") || !strings.Contains(out, "p99") {
		t.Errorf("the table lacks policies or figures:\n%s", out)
	}
	for _, f := range []string{page, js, "jobs-fifo-best-fit.csv", "jobs-las-best-fit.csv"} {
		if !filepath.IsAbs(f) {
			f = filepath.Join(dir, f)
		}
		if info, err := os.Stat(f); err != nil || info.Size() < 200 {
			t.Errorf("%s: %v, %v", f, info, err)
		}
	}
	ok(t, "sim", "--demo", "--policies", "las", "--journal", jr)
	if _, said, err := muster(t, context.Background(), "sim", "--demo", "--limit", "20", "--policies",
		"fifo"); err != nil || !strings.Contains(said, ": 20 jobs,") {
		t.Errorf("the first 20 jobs of the demo: %v\n%s", err, said)
	}
	if out = ok(t, "replay", jr); !strings.Contains(out, "every decision the same") {
		t.Errorf("replay: %s", out)
	}
	if out = ok(t, "explain", jr, "--job", "5", "--at", "3d"); !strings.HasPrefix(out, "job 5 ") {
		t.Errorf("explain: %s", out)
	}
	wl := filepath.Join(dir, "w.jsonl.zst")
	ok(t, "trace", "synth", "preset=philly-like,jobs=200,gpus=64,load=0.9,seed=7", wl)
	if out = ok(t, "trace", "inspect", wl); !strings.Contains(out, "200") {
		t.Errorf("inspect: %s", out)
	}
	ok(t, "sim", "--trace", wl, "--load", "0.9", "--policies", "all", "--place", "topology", "--backfill", "easy")
	if out = ok(t, "policy", "list"); !strings.Contains(out, "multifactor") || !strings.Contains(out, "consolidate") {
		t.Errorf("policy list: %s", out)
	}
}

// Two runs of every policy give equal hashes, on one core too; under MUSTER_SOAK with several placers.
func TestHashes(t *testing.T) {
	placers := shared.Soak("topology", "best-fit,topology")
	hashes := func() []string {
		out := ok(t, "sim", "--demo", "--policies", "all", "--place", placers, "--node-mtbf", "20d",
			"--estimates", "noise:0.5", "--json", "-")
		var r struct {
			Runs []struct{ Policy, Hash string }
		}
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(err)
		}
		var h []string
		for _, x := range r.Runs {
			h = append(h, x.Policy+" "+x.Hash)
		}
		return h
	}
	a := hashes()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	b := hashes()
	if len(a) < 20 || strings.Join(a, "\n") != strings.Join(b, "\n") {
		t.Errorf("hashes differ, or there are none:\n%v\n%v", a, b)
	}
}

// TestPhilly replays the whole list under one policy, and its first days under all others; under MUSTER_SOAK
// every policy that only orders has the whole list.
func TestPhilly(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	path := shared.Path(t, "traces/philly/philly_pollux.csv")
	// Planners weigh all jobs at each event, which takes minutes over the whole list (docs/performance.md).
	whole := []string{"las"}
	var orders, others []string
	for _, name := range policy.Names() {
		p, err := policy.New(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := p.(sched.Planner); !ok && shared.Soak(slices.Contains(whole, name), true) {
			orders = append(orders, name)
		} else {
			others = append(others, name)
		}
	}
	replayed(t, path, strings.Join(orders, ","), 82247)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	jobs := shared.Soak(600, 4000)
	lines := strings.SplitAfterN(string(text), "\n", jobs+2)
	days := filepath.Join(t.TempDir(), "days.csv")
	if err := os.WriteFile(days, []byte(strings.Join(lines[:jobs+1], "")), 0o600); err != nil {
		t.Fatal(err)
	}
	replayed(t, days, strings.Join(others, ","), jobs)
}

// replayed checks that every job completes under each policy.
func replayed(t *testing.T, path, policies string, jobs int) {
	t.Helper()
	out := ok(t, "sim", "--trace", path, "--cluster", "48x8xV100-32GB", "--policies", policies, "--json", "-")
	var r struct {
		Runs []struct {
			Policy               string
			Jobs, Completed      int
			Unfinished, Rejected int
		}
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Runs) != len(strings.Split(policies, ",")) {
		t.Errorf("only %d policies ran", len(r.Runs))
	}
	for _, x := range r.Runs {
		if x.Jobs != jobs || x.Completed != jobs {
			t.Errorf("%+v: not every job completed", x)
		}
	}
}

// Ctrl-C: what was computed is shown and marked partial, files are whole.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	out, _, err := muster(t, ctx, "sim", "--demo", "--json", "-")
	if !errors.Is(err, errInterrupted) {
		t.Fatalf("error %v, want an interruption", err)
	}
	if !strings.Contains(out, `"partial": true`) && !strings.Contains(out, `"partial":true`) {
		t.Errorf("not marked partial: %s", out)
	}
}

func TestUsage(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.csv")
	if err := os.WriteFile(bad,
		[]byte("timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,a\n2017-10-09 06:13:03,-3,1,1,b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"sim", "--trace FILE or --demo is needed"},
		{"sim --demo --polices fifo", "did you mean --policies?"},
		{"sim --demo --policies fifi", `did you mean "fifo"?`},
		{"sim --demo --place packed", "unknown placer"},
		{"sim --demo --place compatible", "--place: placer compatible: it rates places by the links of a network"},
		{"sim --demo --backfill easi", `did you mean "easy"?`},
		{"sim --demo --cluster 8xA100", "is not NODESxGPUSxMODEL"},
		{"sim --demo --cluster 8x8xA1000", "unknown GPU model"},
		{"sim --demo --load -1", "--load -1"},
		{"sim --demo --startup -5s", "--startup"},
		{"sim --demo --estimates sometimes", "--estimates"},
		{"sim --demo --gang rack", "--gang"},
		{"sim --demo --queues many", "--queues"},
		{"sim --demo --preempt maybe", `unknown way to preempt "maybe"`},
		{"sim --demo --backfill-depth 0", "at least 1"},
		{"sim --trace " + bad + " --cluster 1x1", "bad.csv:3"},
		{"sim --trace " + filepath.Join(dir, "none.csv") + " --cluster 1x1", "none.csv"},
		{"replay " + bad, "not a journal"},
		{"explain " + bad, "job"},
		{"trace synth presett=x out.jsonl", "presett"},
		{"simm", "unknown command"},
	} {
		_, _, err := muster(t, context.Background(), strings.Fields(c.args)...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("muster %s: %v, want ... %s", c.args, err, c.want)
		}
	}
	out, errw, err := muster(t, context.Background(), "sim", "--trace", bad, "--cluster", "1x1", "--skip-bad",
		"--policies", "fifo")
	if err != nil || !strings.Contains(errw, "1 malformed rows skipped") {
		t.Errorf("--skip-bad: %v\n%s\n%s", err, out, errw)
	}
}

// A job that can never run is rejected with what it asked and the most there is.
func TestRejected(t *testing.T) {
	dir := t.TempDir()
	wl, jobs := filepath.Join(dir, "w.csv"), filepath.Join(dir, "jobs.csv")
	if err := os.WriteFile(wl,
		[]byte("timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,a\n2017-10-09 07:02:00,60,99,1,b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errw, err := muster(t, context.Background(), "sim", "--trace", wl, "--cluster", "2x8", "--policies", "fifo",
		"--jobs-csv", jobs)
	if err != nil || !strings.Contains(errw, "asks for 99 GPUs") || !strings.Contains(errw, "16 suitable GPUs") {
		t.Errorf("the reason does not say what was asked and the most there is: %v\n%s", err, errw)
	}
	if !strings.Contains(out, "rejected") {
		t.Errorf("the table does not say that a job was rejected:\n%s", out)
	}
}

// writer returns a folder and what writes a file there.
func writer(t *testing.T) (dir string, write func(name, text string)) {
	dir = t.TempDir()
	return dir, func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// muster mig plan --slo: services on instances, requests played; mistakes say what
// is wrong.
func TestMIGServices(t *testing.T) {
	t.Parallel()
	dir, write := writer(t)
	write("slo.csv", "service,rate,latency_ms\nchat,90,200\nvision,150,100\n")
	write("chat.csv", "slices,batch,processes,rate,seconds\n1,4,1,40,0.1\n2,4,1,100,0.04\n3,8,1,0,0\n")
	write("prof_data_vision.csv", "slices,batch,processes,rate,seconds\n3,8,1,160,0.05\n3,8,2,90,0.08\n")
	write("two.csv", "service,rate,latency_ms\npair,150,100\n")
	write("pair.csv", "slices,batch,processes,rate,seconds\n3,8,2,90,0.04\n")
	write("one.csv", "service,rate,latency_ms\nchat,90,200\n")
	write("bad.csv", "service,rate,latency_ms\nchat,90,20\n")
	write("worse.csv", "service,rate\nchat,90\n")
	write("none.csv", "service,rate,latency_ms\nsong,90,20\n")
	write("part.csv", "service,rate,latency_ms\nhalf,90,200\n")
	write("half.csv", "percent,batch,processes,rate,seconds\n50,4,1,100,0.04\n")
	for args, want := range map[string]string{
		"--slo slo.csv --measured .":              `mig: "0:3g.40gb@0,1g.10gb@4,1g.10gb@5,1g.10gb@6"`,
		"--slo slo.csv --measured . --play 2s":    "0 of 180",
		"--slo slo.csv --measured . --play 0s":    "2 services in 4 instances on 1 of its GPUs; no fewer would do",
		"--slo slo.csv --measured . --headroom 2": "2 of its GPUs",
		"--slo slo.csv --measured . --seed 3":     "ith Poisson arrivals at most 1 % of each service's requests are late",
		"--slo two.csv --measured .":              "pair's: muster submit --kind service --gpus 3g.40gb -- sh -c 'export CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d)",
		"--slo two.csv --measured . --seed 2":     "for i in 1 2; do ./pair & done; wait'",
		"--slo one.csv --measured . --model A30":  "are taken as those of A30-24GB: they do not say on which model they were made",
		"--slo one.csv --measured .":              "chat's: muster submit --kind service --gpus 1g.10gb -- ./chat",
		"--slo bad.csv --measured .":              "no measured batch takes half of 20ms or less",
		"--slo worse.csv --measured .":            "want the columns service, rate and latency_ms",
		"--slo none.csv --measured .":             "service song: open",
		"--slo part.csv --measured .":             "service half: it was measured by per cent of a GPU, not on MIG instances",
		"--slo slo.csv":                           "--slo needs --measured",
		"--slo slo.csv --fit 1g":                  "one of them",
		"--slo slo.csv --measured . --headroom 0": "1 to 100 are possible",
	} {
		rates := "--headroom 1 " // for the rates alone, unless it is about headroom
		if strings.Contains(args, "--seed 3") {
			rates = ""
		}
		if out := printedIn(dir, "mig plan --model A100-80GB "+rates+args); !strings.Contains(out, want) {
			t.Errorf("%s: %q is missing in\n%s", args, want, out)
		}
	}
}

// printedIn is what a command prints, and its error; its files and "." are those of a directory.
func printedIn(dir, line string) string {
	words := strings.Fields(line)
	for i, w := range words {
		if strings.HasSuffix(w, ".csv") || strings.HasSuffix(w, ".json") || w == "." {
			words[i] = filepath.Join(dir, w)
		}
	}
	var out strings.Builder
	root := newRoot()
	root.SetOut(&out)
	root.SetArgs(words)
	if err := root.Execute(); err != nil {
		out.WriteString(err.Error())
	}
	return out.String()
}

// muster mig plan --from: the steps from a plan that was written to the next one, what is
// short without a spare GPU, and what is wrong with a file.
func TestMIGChange(t *testing.T) {
	dir, write := writer(t)
	write("a.csv", "service,rate,latency_ms\nchat,90,200\nvision,150,100\n")
	write("b.csv", "service,rate,latency_ms\nchat,170,200\nvision,140,100\n")
	write("chat.csv", "slices,batch,processes,rate,seconds\n1,4,1,40,0.1\n2,4,1,100,0.04\n")
	write("vision.csv", "slices,batch,processes,rate,seconds\n3,8,1,160,0.05\n")
	for _, c := range []struct{ args, want string }{
		{"--slo a.csv --out plan.json", "2 services in 4 instances on 1 of its GPUs"},
		{"--slo a.csv --from plan.json",
			"0 steps, one after the other; spare GPUs: 0; instances that stay as they are: 4"},
		{"--slo b.csv --from plan.json", "spare GPUs: 1; "},
		{"--slo b.csv --from plan.json --spare 0", "by 140 requests/s"},
		{"--slo b.csv --from plan.json --out b.json",
			"migrate      1    3g.40gb@4                                vision   GPU 0 3g.40gb@0"},
		{"--slo b.csv --from b.json", `mig: "1:1g.10gb@0,1g.10gb@1,2g.20gb@2,3g.40gb@4"`},
		{"--slo b.csv --spare 0", "--spare needs --from"},
		{"--slo b.csv --from plan.json --spare -2", "0 to 1000 are possible"},
		{"--slo b.csv --from chat.csv", "want a plan that --out wrote"},
	} {
		if out := printedIn(dir,
			"mig plan --model A100-80GB --headroom 1 --play 0s --measured . "+c.args); !strings.Contains(out, c.want) {
			t.Errorf("%s: %q is missing in\n%s", c.args, c.want, out)
		}
	}
}

// muster mps plan: services on parts of GPUs, some of which take turns; what they do to each
// other; mistakes say what is wrong.
func TestMPSPlan(t *testing.T) {
	t.Parallel()
	dir, write := writer(t)
	write("slo.csv", "service,rate,latency_ms\nchat,90,200\nvision,150,100\nrare,1,100\n")
	write("chat.csv", "percent,batch,processes,rate,seconds,use_compute,use_memory\n40,8,1,100,0.08,0,0\n60,8,1,130,0.061,0,0\n100,8,1,150,0.053,0.9,0.5\n")
	write("vision.csv", "percent,batch,processes,rate,seconds,use_compute,use_memory\n40,4,1,100,0.04,0,0\n60,4,1,200,0.02,0,0\n100,4,1,210,0.019,0.8,0.6\n")
	write("rare.csv", "slices,batch,processes,rate,seconds\n1,1,1,50,0.02\n7,1,1,100,0.01\n")
	write("pair.csv", "service,rate,latency_ms\nchat,90,200\nvision,150,100\n")
	write("bad.csv", "service,rate,latency_ms\nchat,90,20\n")
	write("many.csv", "service,rate,latency_ms\nquick,3e6,200\n")
	write("quick.csv", "percent,batch,processes,rate,seconds\n100,8,1,4e6,0.000002\n")
	write("two.csv", "service,rate,latency_ms\nchat,90,200\nchat,90,200\n")
	for args, want := range map[string]string{
		"--slo slo.csv --measured .":                                  "A100-80GB: 3 services in 2 gpulets on 1 of its GPUs; no fewer would do",
		"--slo slo.csv --measured . --seed 2":                         "Estimated from MIG instances, not measured under MPS: rare.",
		"--slo slo.csv --measured . --play 2s":                        "0 of 299",
		"--slo slo.csv --measured . --sizes 40,60":                    "muster submit --kind service --name chat --gpu-type A100-80GB --gpus 0.4 -- ./chat\n",
		"--slo slo.csv --measured . --sizes 40,60 --seed 2":           "muster submit --kind service --name rare+vision --gpu-type A100-80GB --gpus 0.6 -- sh -c '(./rare; kill $$) & (./vision; kill $$) & wait'",
		"--slo pair.csv --measured . --play 0s --sizes 40,60":         "vision   150   200       100ms",
		"--slo pair.csv --measured . --interference 0,0,0,0,1 --json": `"slower": 1,`,
		"--slo pair.csv --measured . --interference 0,0,0,0,2 --json": `"gpus": 2,`,
		"--slo pair.csv --measured . --interference 1,1,1,1,1 --json": `"rounds": 2,`,
		"--slo pair.csv --measured . --headroom 1.5":                  "on 2 of its GPUs",
		"--slo pair.csv --measured . --sizes 100":                     "on 2 of its GPUs",
		"--slo pair.csv --measured . --sizes 30,60":                   "size 30 leaves 70 of a GPU",
		"--slo pair.csv --measured . --sizes 30,x":                    `"x" is not a whole number`,
		"--slo slo.csv --measured . --interference 1,1,1,1,1":         "service rare: --interference needs the columns use_compute and use_memory",
		"--slo slo.csv --measured . --interference 1,1,1":             "want 5 weights",
		"--slo slo.csv --measured . --interference 1,1,1,1,x":         `"x" is not a weight`,
		"--slo slo.csv --measured . --enough 2":                       "above 0, up to 1",
		"--slo slo.csv --measured . --ignore -1":                      "0 or more requests",
		"--slo slo.csv --measured . --ignore 15":                      "rare: 1 of its 1 requests/s were left out (--ignore 15)",
		"--slo many.csv --measured . --sizes 100":                     "--play 1m0s: 3.6e+08 requests would be played; up to 2e+08",
		"--slo many.csv --measured . --sizes 100 --commands":          "muster submit --kind service --name quick --gpu-type A100-80GB --gpus 1 -- ./quick",
		"--slo slo.csv --measured . --headroom 0":                     "1 to 100 are possible",
		"--slo slo.csv":                                "--slo and --measured are needed",
		"--slo bad.csv --measured .":                   "no measured batch takes half of 20ms or less on a whole A100-80GB",
		"--slo two.csv --measured .":                   "line 3: service chat is listed twice",
		"--slo slo.csv --measured . --model A1":        "--model: unknown GPU model",
		"--slo slo.csv --measured . --model V100-16GB": "service rare: it was not measured on",
	} {
		if out := printedIn(dir, "mps plan "+args); !strings.Contains(out, want) {
			t.Errorf("%s: %q is missing in\n%s", args, want, out)
		}
	}
}

// What muster mps plan prints for a shell says the same to it, whatever services are called.
func TestMPSCommands(t *testing.T) {
	dir, write := writer(t)
	write("slo.csv", "service,rate,latency_ms\na b's $x,1,100\nplain,1,100\n")
	write("a b's $x.csv", "percent,batch,processes,rate,seconds\n100,1,1,100,0.01\n")
	write("plain.csv", "percent,batch,processes,rate,seconds\n100,1,1,100,0.01\n")
	out, errw, err := muster(t, context.Background(), "mps", "plan", "--slo", filepath.Join(dir, "slo.csv"),
		"--measured", dir, "--sizes", "100", "--play", "0", "--start", "echo [{service}] {batch}", "--commands")
	if err != nil {
		t.Fatal(err, errw)
	}
	said, err := exec.Command("sh", "-c",
		`muster() { while [ "$1" != -- ]; do echo "$1"; shift; done; shift; "$1" "$2" "kill() { :; }; $3"; }; `+
			out).CombinedOutput()
	if err != nil || !strings.Contains(string(said), "\na b's $x+plain\n--gpu-type\nA100-80GB\n--gpus\n1\n") ||
		!strings.Contains(string(said), "[a b's $x] 1\n") || !strings.Contains(string(said), "[plain] 1\n") {
		t.Errorf("%s gives\n%s%v", out, said, err)
	}
}

// muster mig plan: layouts, and instances laid out; mistakes say what there is.
func TestMIGPlan(t *testing.T) {
	for args, want := range map[string]string{
		"--model A100-80GB --profiles 1g,2g,3g,4g,7g":     "298 layouts, of which nothing can be added to 19",
		"--model A30 --fit 4x1g,2g":                       `mig: "0:1g.6gb@0,1g.6gb@1,2g.12gb@2;1:1g.6gb@2,1g.6gb@3"`,
		"--model A100-80GB --fit 3g.40gb,3g.40gb,1g.10gb": "3 instances on 2 of its GPUs, no fewer would do",
		"--model T4":          "valid: A30-24GB",
		"--fit 5g.10gb":       `did you mean "1g.10gb"`,
		"--fit 0x1g.10gb":     "want PROFILE or NxPROFILE",
		"--profiles 1g,9g":    `unknown MIG profile of H100-80GB "9g"`,
		"--fit 900x1g,101x2g": "1 to 1000 are possible",
	} {
		var out strings.Builder
		root := newRoot()
		root.SetOut(&out)
		root.SetArgs(append([]string{"mig", "plan"}, strings.Fields(args)...))
		if err := root.Execute(); err != nil {
			if !errors.Is(err, errUsage) {
				t.Errorf("%s: %v is no mistake of the caller", args, err)
			}
			out.WriteString(err.Error())
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: %q is missing in\n%s", args, want, out.String())
		}
	}
}

// Whether deadlines were kept: of what is accepted everything, and each job's by itself.
func TestSimDeadlines(t *testing.T) {
	dir, write := writer(t)
	write("w.csv", "name,user,submit_s,run_s,gpus,deadline_s\na,u,0,600,4,900\nb,u,0,600,4,900\nc,u,10,600,1,0\n")
	jobs := filepath.Join(dir, "jobs.csv")
	out, errw, err := muster(t, context.Background(), "sim", "--trace", filepath.Join(dir, "w.csv"), "--cluster", "1x4",
		"--policies", "elasticflow", "--jobs-csv", jobs)
	if err != nil {
		t.Fatalf("%v\n%s", err, errw)
	}
	for _, want := range []string{`deadlines met +1/2`, `deadlines accepted +1/2`, `accepted, but late +0/1`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	text, err := os.ReadFile(jobs)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{",deadline,deadline_answer,deadline_met", ",900,accepted,true", ",900,declined,false",
		",,,"} {
		if line := strings.Split(string(text), "\n")[i]; !strings.HasSuffix(line, want) {
			t.Errorf("%s: want %s", line, want)
		}
	}
}
