package scenario

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

const head = "# What this shows and what is expected of it.\n"

// A mistake is reported with file, line and, for a name, the nearest valid one.
func TestMistakes(t *testing.T) {
	const base = head + "cluster nodes=2 gpus=4\nqueue alpha\njobs\n0m big queue=alpha gpus=1 run=10m\n0m s[1..3] gpus=1 run=1m queue=alpha\n"
	for _, c := range []struct{ text, want string }{
		{"cluster nodes=1\n", "x.scn:1: a scenario begins with a comment"},
		{"# short\ncluster nodes=1\n", "x.scn:2: a scenario begins with a comment"},
		{head, "nothing is run"},
		{head + "run\n", "x.scn:2: no cluster"},
		{head + "cluster\nrun\n", "x.scn:3: no jobs"},
		{base + "rum policies=fifo\n", `x.scn:7: unknown command "rum": did you mean "run"?`},
		{base + "run polices=fifo\n", `did you mean "policies"`},
		{base + "run policies=ffio\n", `unknown policy "ffio": did you mean "fifo"`},
		{base + "run policies=las:bse=1h\n", `did you mean "base"`},
		{base + "run place=bestfit\n", `did you mean "best-fit"`},
		{base + "run backfill=eazy\n", `did you mean "easy"`},
		{base + "run until=soon\n", "x.scn:7: until:"},
		{base + "run policies=\n", "the value is missing"},
		{base + "run policies\n", "write policies=VALUE"},
		{base + "run seed=1 seed=2\n", "seed is given twice"},
		{base + "run show=all\n", "unknown form"},
		{base + "1m big gpus=1 run=1m\n", `x.scn:7: job "big" already exists`},
		{base + "1m s[7..9] gpus=1 run=1m\n", `a series "s" already exists`},
		{base + "1m j gpu=1 run=1m\n", `did you mean "gpus"`},
		{base + "1m j gpus=1\n", "run= is missing"},
		{base + "1m j[1..x] gpus=1 run=1m\n", "not a job's name, nor a series"},
		{base + "1m j gpus=1 run=1m every=1m\n", "are for series"},
		{base + "1m j gpus=1 run=1m tier=crtical\n", `did you mean "critical"`},
		{base + "1m j gpus=1 run=1m after=bug\nrun\n", `x.scn:7: unknown job "bug": did you mean "big"`},
		{base + "1m j gpus=1 run=1m queue=alhpa\nrun\n", `x.scn:7: unknown queue "alhpa": did you mean "alpha"`},
		{base + "1m j tasks=2 elastic=1..2 run=1m\n", "leave tasks= out"},
		{base + "1m j share=2 run=1m\n", "share of a GPU"},
		{base + "1m j within=room run=1m\n", "unknown topology level"},
		{base + "queue alpha\n", "already exists"},
		{base + "queue beta garantee=4\n", `did you mean "guarantee"`},
		{base + "queue beta no_reclaim=1\n", "takes no value"},
		{base + "event 1m drian n1\n", `did you mean "drain"`},
		{base + "event 1m drain n9\n", `unknown node "n9"`},
		{base + "event 1m gpu-bad n1\n", "say which: gpu=3"},
		{base + "event 1m cancel bog\n", `unknown job "bog"`},
		{base + "event 1m queue beta limit=1\n", `unknown queue "beta"`},
		{base + "event 1m drain n1 now\n", "takes no arguments"},
		{base + "event 1m node-resize n1\n", "say what is another"},
		{base + "event 1m node-resize n1 gpus=2\n", `unknown argument "gpus"`},
		{base + "event 1m node-change n1 mig=9:*\n", "mig=: "},
		{base + "event 1m node-change n9 gpus=2\n", `unknown node "n9"`},
		{base + "event 1m reshape big\n", "without=n2"},
		{base + "event 1m reshape big without=n9\n", `x.scn:7: unknown node "n9"`},
		{base + "event 1m update big\n", "say what is another"},
		{base + "event 1m update big gpus=2\n", `unknown argument "gpus"`},
		{base + "expect util=1\n", "no run above"},
		{base + "run\nexpect utl=1\n", `x.scn:8: unknown fact "utl": did you mean "util"`},
		{base + "run\nexpect job=bgi start=1m\n", `unknown job "bgi"`},
		{base + "run\nexpect policy=las util=1\n", "policy of this run"},
		{base + "run\nexpect job=big used=1\n", "unknown fact"},
		{base + "run\nexpect job=big state=running\n", "say at=30m"},
		{base + "run\nexpect job=big at=1m wait=1m\n", "leave at= out"},
		{base + "run\nexpect job=big outcome<completed\n", "= and != only"},
		{base + "run\nexpect job=big start=noon\n", "not a duration"},
		{base + "run\nexpect util=much\n", "not a number"},
		{base + "run\nexpect order=(big,bag)\n", `unknown job "bag"`},
		{base + "run\nexpect job=big\n", "no fact is given"},
		{base + "run policies=(fifo,las)\nexplain job=big at=1m\n----\n", "the run has 2 matching variants"},
		{base + "run\nexplain job=s at=1m\n----\n", `"s" is 3 jobs`},
		{base + "run\nexplain job=big\n----\n", "say when"},
		{base + "run\nexplain job=big at=1m\n", "expected output must follow"},
		{base + "run\nshow node at=1m\n----\n", `did you mean "nodes"`},
		{base + "----\n", "---- follows a run"},
		{head + "0m big gpus=1 run=1m\n", "outside of a jobs block"},
		{head + "cluster nodes=1 model=h1000\n", "unknown GPU model"},
		{head + "cluster nodes=2 racks=3\n", "at most one per node"},
		{head + "cluster yaml\n  nods: []\n", `x.scn:3: unknown key "nods": did you mean "nodes"`},
		{head + "cluster yaml\nrun\n", "indented lines"},
		{head + "cluster nodes=(1\n", "not closed"},
	} {
		_, err := parse("x.scn", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "x.scn:") {
			t.Errorf("%q:\n got %v\nwant %q", strings.TrimPrefix(c.text, head), err, c.want)
		}
	}
}

// A failure is reported in a form that an operator understands.
func TestFailures(t *testing.T) {
	text := head + "cluster nodes=1 gpus=1\njobs\n0m a gpus=1 run=10m\nrun\n----\nfifo: all is well\n  b: gone\n\nexpect job=a start=5m\nexpect order=(a) util>2\n"
	res, err := Run(context.Background(), "x.scn", []byte(text), Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := res.String()
	for _, want := range []string{"x.scn:5: the output differs", "- fifo: all is well", "+   a: 0s-10m on n1:0",
		"x.scn:10: fifo: job a: start is 0s, not 5m", "x.scn:11: fifo: util is 1, not >2"} {
		if !strings.Contains(got, want) {
			t.Errorf("missing %q in:\n%s", want, got)
		}
	}
	if res.OK() || len(res.Failures) != 3 {
		t.Errorf("%d failures", len(res.Failures))
	}
	fixed, err := Run(context.Background(), "x.scn", []byte(text), Options{Rewrite: true})
	if err != nil || !fixed.Changed {
		t.Fatal(err, fixed.Changed)
	}
	again, err := Run(context.Background(), "x.scn", fixed.Text, Options{Rewrite: true})
	if err != nil || again.Changed {
		t.Errorf("a rewritten text changes again: %v\n%s", err, again.Text)
	}
}

// An output that includes the next command gets a hint.
func TestHint(t *testing.T) {
	text := head + "cluster nodes=1 gpus=1\njobs\n0m a gpus=1 run=10m\nrun\n----\nexpect job=a start=0s\n"
	res, err := Run(context.Background(), "x.scn", []byte(text), Options{})
	if err != nil || !strings.Contains(res.String(), "is one missing above") {
		t.Errorf("%v %s", err, res.String())
	}
}

// README.md names every command and every key.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, v := range verbs() {
		words = append(words, v.name)
	}
	words = append(words, names(clusterKeys)...)
	words = append(words, names(queueKeys)...)
	words = append(words, names(jobKeys)...)
	words = append(words, names(runKeys)...)
	for _, h := range happenings {
		words = append(words, h.name)
	}
	for _, subject := range append(subjects, "") {
		for _, d := range factDefs[subject] {
			words = append(words, d.name)
		}
	}
	for _, w := range words {
		if s := string(text); !strings.Contains(s, "`"+w+"`") && !strings.Contains(s, "`"+w+"=") &&
			!strings.Contains(s, w+" ") {
			t.Errorf("README.md does not explain %q", w)
		}
	}
}

func TestFields(t *testing.T) {
	got, err := fields(`1m s[1..3] type=(a, b) x="y # z"   flag # comment (`)
	if want := []string{"1m", "s[1..3]", "type=(a, b)", `x="y # z"`, "flag"}; err != nil ||
		strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("%q %v", got, err)
	}
	if l := list("(a,x[1,2], b)"); strings.Join(l, "|") != "a|x[1,2]|b" {
		t.Errorf("%q", l)
	}
	if m, err := parseDevices("0-2,5"); m != 0b100111 || err != nil || devices(m) != "0-2,5" {
		t.Errorf("%b %v", m, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, path := range scenarios(f) {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		sc, err := parse("x.scn", []byte(text))
		if err != nil {
			if !IsMistake(err) {
				t.Fatalf("not a mistake in the text: %v", err)
			}
			return
		}
		same := make([][]string, len(sc.cmds))
		for i := range sc.cmds {
			if o := sc.cmds[i].out; o != nil {
				same[i] = sc.lines[o.from:o.to]
			}
			if r := sc.cmds[i].run; r != nil && len(r.set.jobs) < 1000 {
				wl, ids := r.set.workload()
				r.set.script(ids, wl.Jobs)
				for k := range wl.Jobs {
					if j := &wl.Jobs[k].Job; int(j.ID) != k || k > 0 && j.Submit < wl.Jobs[k-1].Job.Submit ||
						j.NumTasks() < 1 || j.NumTasks() > 2*cluster.MaxTasks*len(j.Tasks) {
						t.Fatalf("job %d of the workload: %+v", k, j)
					}
				}
			}
		}
		if got := sc.rewrite(same); got != strings.ReplaceAll(text, "\r\n", "\n") {
			t.Fatalf("rewritten with its own outputs:\n%q\n%q", got, text)
		}
	})
}
