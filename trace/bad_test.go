package trace

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

// Each case has one malformed row; the message must name the row and the valid form.

func TestBadSimpleLists(t *testing.T) {
	const tir = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
	checkBad(t, "tiresias", []badRow{
		{"gpus", tir + "1,-2,0,1,m,5,0\n", `x:2: num_gpu "-2": must be a whole number from 1 to 1048576`},
		{"time", tir + "1,2,soon,1,m,5,0\n",
			`submit_time "soon": must be a number of seconds from 0 to 3153600000 (100 years)`},
		{"inf", tir + "1,2,0,1,m,+Inf,0\n", `duration "+Inf"`},
	})
	const muri = "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,resource_time_0,resource_time_1,resource_time_2,priority\n"
	checkBad(t, "muri", []badRow{
		{"stage", muri + "0,1,0,1,m,1,5,0,1,1,-1,1,0\n", `resource_time_1 "-1": must be a number of milliseconds`},
		{"priority", muri + "0,1,0,1,m,1,5,0,1,1,1,1,2\n", `priority "2": must be a whole number from 0 to 1`},
	})
	const chr = "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,expect_value_list,best_effort,job_type\n"
	checkBad(t, "chronus", []badRow{
		{"deadline", chr + "0,vc_a,1,0,1,m,5,0,x-9,1,0,strict\n",
			`expect_time_list "x-9": must be deadlines in minutes`},
		{"minutes", chr + "0,vc_a,1,0,1,m,1e12,0,9,1,0,strict\n", `duration "1e12": must be a number of minutes`},
	})
	checkBad(t, "itp", []badRow{
		{"gpus", "job_id,submission_time,duration,num_gpu\na,1,2,3.5\n", `num_gpu "3.5": must be a whole number`},
		{"no time", "job_id,duration,num_gpu\na,1,2\n", `no column "submission_time"`},
	})
	const rub = "name,submission_time,duration,application,num_gpus,num_cpus,bandwidth,exec_plan,steps,is_sla\n"
	checkBad(t, "rubick",
		[]badRow{{"steps", rub + "a,0,1,m,1,1,0,p,NaN,0\n", `steps "NaN": must be a number from 0 to 1e+15`}})
	checkBad(t, "csv", []badRow{
		{"kind", "submit_s,run_s,gpus,kind\n1,2,3,trainin\n", `kind: unknown kind "trainin": did you mean "training"?`},
		{"share", "submit_s,run_s,gpus,gpu_milli\n1,2,3,0\n", `gpu_milli "0": must be a whole number from 1 to 1000`},
		{"column", "submit_s,run_s,gpus,usr\n1,2,3,x\n", `unknown column "usr": did you mean "user"?`},
		{"twice", "submit_s,run_s,gpus,gpus\n1,2,3,4\n", `column "gpus" occurs twice`},
	})
}

func TestBadOpenb(t *testing.T) {
	const head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
	checkBad(t, "openb", []badRow{
		{"share", head + "p,1,1,1,1001,,LS,Running,0,1,0\n", `gpu_milli "1001": must be a whole number from 0 to 1000`},
		{"share of none", head + "p,1,1,0,500,,LS,Running,0,1,0\n",
			`gpu_milli "500": must be 0 for a pod without GPUs`},
		{"none of one", head + "p,1,1,1,0,,LS,Running,0,1,0\n", `gpu_milli "0": must be 1 to 1000 for a pod with GPUs`},
		{"qos", head + "p,1,1,1,500,,XX,Running,0,1,0\n", `qos "XX": must be LS, BE, Burstable or Guaranteed`},
		{"order", head + "p,1,1,1,500,,BE,Running,5,9,1\n", `deletion_time "9": must be after creation and scheduling`},
		{"spec", head + "p,1,1,1,500,T4||P100,BE,Running,0,1,0\n",
			`gpu_spec "T4||P100": must be GPU models joined by "|"`},
		{"gpus", head + "p,1,1,65,1000,,BE,Running,0,1,0\n", `num_gpu "65": must be a whole number from 0 to 64`},
		{"node model", "sn,cpu_milli,memory_mib,gpu,model\na,1,1,2,\n",
			`model "": must be the GPU model of a node with GPUs`},
		{"node twice", "sn,cpu_milli,memory_mib,gpu,model\na,1,1,0,\na,1,1,0,\n",
			`x:3: sn "a": must be a name of its own`},
	})
	if _, err := Open(filepath.Join("testdata", "openb-pods.csv"), Options{Nodes: "testdata/none.csv"}); err == nil ||
		!strings.Contains(err.Error(), "node list") {
		t.Errorf("missing node list: %v", err)
	}
}

func TestBadGavelAndPollux(t *testing.T) {
	const head = "job_id,job_type,scale_factor,duration_s_on_v100,total_steps,arrival_unit_exponential\n"
	checkBad(t, "gavel", []badRow{
		{"arrival", head + "0,T,1,5,5,-1\n", `arrival_unit_exponential "-1": must be a number from 0`},
		{"type", "Nope\tpython3\t-n\t1\t5\t0\t1\n", `job_type "Nope": must be a job type with a throughput on v100`},
		{"steps", "Loner\tpython3\t-n\t1\t1e14\t0\t1\n",
			`total_steps "1e14": must be a number of steps that takes less than 100 years`},
	})
	_, err := readText(t, "x", "Loner\tpython3\t-n\t1\t5\t0\t1\n", Options{})
	if err == nil || !strings.Contains(err.Error(), "give the throughput table (simulation_throughputs.json)") {
		t.Errorf("no table: %v", err)
	}
	if _, err := readText(t, "x", head+"0,T,1,5,5,0\n", Options{Rate: -1}); err == nil ||
		!strings.Contains(err.Error(), "rate -1") {
		t.Errorf("negative rate: %v", err)
	}
	const pollux = "name,time,application,num_replicas,batch_size\n"
	checkBad(t, "pollux", []badRow{
		{"application", pollux + "a,0,nope,1,16\n", `application "nope": must be an application with measurements`},
		{"escape", pollux + "a,0,../aux,1,16\n",
			`application "../aux": must be an application with measurements: a plain name`},
		{"batch", pollux + "a,0,toy,1,65\n", `batch_size "65": must be a batch size from 16 to 64`},
		{"size", pollux + "a,0,toy,128,17\n", `batch_size "17": must be a batch size that 128 GPUs can share`},
	})
	if _, err := readText(t, "x", pollux, Options{}); err == nil ||
		!strings.Contains(err.Error(), "give the directory with the measured step times") {
		t.Errorf("no profiles: %v", err)
	}
}

func TestBadLogs(t *testing.T) {
	const hel = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
	checkBad(t, "helios", []badRow{
		{"state", hel + "1,u,v,1,1,1,DONE,2020-01-01 00:00:00,2020-01-01 00:00:00,2020-01-01 00:00:00,1,0\n",
			`state "DONE": must be a Slurm job state`},
		{"date", hel + "1,u,v,1,1,1,FAILED,1969-01-01 00:00:00,2020-01-01 00:00:00,2020-01-01 00:00:00,1,0\n",
			`submit_time "1969-01-01 00:00:00"`},
	})
	const acme = "job_id,user,gpu_num,type,state,submit_time,start_time,end_time\n"
	checkBad(t, "acme", []badRow{
		{"end", acme + "1,u,1,SFT,FAILED,2020-01-01 00:00:00,2020-01-01 00:00:09,2020-01-01 00:00:08\n",
			`end_time "2020-01-01 00:00:08": must be at or after start_time "2020-01-01 00:00:09"`},
		{"zone", acme + "1,u,1,SFT,FAILED,2020-01-01 00:00:00+99:00,2020-01-01 00:00:07,2020-01-01 00:00:08\n",
			`submit_time "2020-01-01 00:00:00+99:00"`},
	})
	checkBad(t, "pai", []badRow{
		{"status", "j,t,1.0,Gone,1,2,100,1,100,T4\n", `x:1: status "Gone": must be Terminated, Failed`},
		{"order", "j,t,1.0,Failed,3,2,100,1,100,T4\n", `end_time "2": must be at or after the start`},
		{"percent", "j,t,1.0,Failed,1,2,100,1,100000,T4\n", `plan_gpu "100000": must be a number from 0 to 6400`},
	})
	const swf = "  100  10   60   8 -1 -1   8  120 -1  1  3 1 -1 2 -1 -1 -1\n"
	checkBad(t, "swf", []badRow{
		{"fields", "1 2 3\n", `x:1: has 3 fields, must be 18 numbers`},
		{"time", "1 -5" + swf[6:], `submit time "-5": must be a number of seconds from 0 to 3153600000 (100 years)`},
		{"status", "; c\n1" + strings.Replace(swf, "-1  1  3", "-1  9  3", 1),
			`x:2: status "9": must be a whole number from -1 to 5`},
	})
}

func TestBadSlurm(t *testing.T) {
	const head = "JobID|Submit|Start|Elapsed|State|ReqTRES|Timelimit\n"
	const ok = "1|2024-01-01T00:00:00|2024-01-01T00:00:00|"
	checkBad(t, "sacct", []badRow{
		{"tres", head + ok + "00:01:00|COMPLETED|cpu=x|\n",
			`reqtres "cpu=x": must be resources such as "cpu=8,gres/gpu=2`},
		{"many", head + ok + "00:01:00|COMPLETED|gres/gpu=99999999|\n", `reqtres "gres/gpu=99999999"`},
		{"elapsed", head + ok + "one|COMPLETED|cpu=1|\n", `elapsed "one": must be a Slurm duration`},
		{"limit", head + ok + "00:01:00|COMPLETED|cpu=1|1:2:3:4\n", `timelimit "1:2:3:4": must be a Slurm duration`},
		{"state", head + ok + "00:01:00|OK|cpu=1|\n", `state "OK": must be a Slurm job state`},
		{"pipe in name", head + ok + "00:01:00|COMPLETED|cpu=1||x\n", `has 8 fields, must be 7`},
		{"no tres", "JobID|Submit|Start|Elapsed|State\n", `no column "AllocTRES" or "ReqTRES"`},
		{"no run", "JobID|Submit|Start|State|ReqTRES\n", `no column "ElapsedRaw", "Elapsed" or "End"`},
	})
	const job = `{"job_id":1,"time":{"submission":5,"start":6,"elapsed":%},"state":{"current":["FAILED"]},"tres":{"allocated":[]}}`
	in := func(elapsed string) string { return "{\"jobs\":[\n" + strings.Replace(job, "%", elapsed, 1) + "]}" }
	checkBad(t, "sacct-json", []badRow{
		{"negative", in("-1"), `x:2: time.elapsed -1: must be a number of seconds from 0 to 3153600000 (100 years)`},
		{"type", in(`"long"`), `x:2: json: cannot unmarshal string`},
		{"state", strings.Replace(in("1"), "FAILED", "OK", 1), `state.current "OK": must be a Slurm job state`},
		{"cut", in("1")[:60], `not readable as JSON: the file ends in the middle`},
		{"no jobs", `{"meta":{}}`, `no list "jobs"`},
		{"no list", `{"jobs":{}}`, `"jobs" must be a list`},
		{"no object", `[]`, `must be a JSON object`},
	})
}

func TestBadMuster(t *testing.T) {
	const head = `{"muster_trace":1,"name":"x"}` + "\n"
	job := func(s string) string {
		return head + `{"job":{"tasks":[{"count":1,"request":{"gpus":1}}]},` + s + "}\n"
	}
	checkBad(t, "muster", []badRow{
		{"version", `{"muster_trace":9,"name":"x"}`, `muster_trace 9: this program reads version 1`},
		{"header", `{"muster_trace":1,"nam":"x"}`, `header: json: unknown field "nam"`},
		{"node", `{"muster_trace":1,"name":"x","nodes":[{"name":"a","gpus":65}]}`,
			`node 0 ("a"): must have a name, 0 to 64 GPUs`},
		{"field", job(`"runn":1`), `x:2: json: unknown field "runn"`},
		{"negative", job(`"run":-1`), `x:2: run -1 ns: must be between 0 and 100 years`},
		{"no tasks", head + `{"job":{"tasks":[]},"run":1}` + "\n", `a job needs at least one task`},
		{"tasks", head + `{"job":{"tasks":[{"count":0,"request":{}}]},"run":1}` + "\n", `0 tasks: must be 1 to`},
		{"outcome", job(`"run":1,"outcome":"fail"`), `unknown outcome "fail": did you mean "failed"?`},
		{"cut", head + `{"job":{` + "\n", `not a complete JSON object`},
		{"two", job(`"run":1} {`), `more than one JSON value`},
		{"waits for an unknown job",
			head + `{"job":{"tasks":[{"count":1,"request":{}}],"after":[{"type":"afterok","job":5}]},"run":1}` + "\n",
			`waits for job 5, which is not in the trace`},
	})
}

func TestBadFiles(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
		o                Options
	}{
		{"x", "", "x: is empty", Options{}},
		{"x", "\n\n", "x: is empty", Options{}},
		{"x", "a,b,c\n1,2,3\n",
			`x:1: no known trace format has this first line: "a,b,c"; name the format (one of muster, csv, philly,`,
			Options{}},
		{"x", "a\n", `unknown trace format "pilly": did you mean "philly"?`, Options{Format: "pilly"}},
		{"x", "a\n", "limit -1: must be 0", Options{Limit: -1}},
		{"x.gz", "\x1f\x8bnope", "not a readable gzip file", Options{}},
		{"x.zst", "\x28\xb5\x2f\xfdnope", "x.zst: ", Options{}},
	} {
		if _, err := readText(t, c.name, c.text, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q", c.text, err, c.want)
		}
	}
	if _, err := Open(t.TempDir(), Options{}); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("directory: %v", err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none"), Options{}); !os.IsNotExist(err) {
		t.Errorf("missing file: %v", err)
	}
}

// A truncated compressed file must not pass for a shorter trace.
func TestCutFiles(t *testing.T) {
	wl := &Workload{Name: "long", Format: "muster"}
	for i := range 6000 {
		wl.Jobs = append(wl.Jobs,
			Entry{Run: 1, Job: cluster.Job{ID: cluster.JobID(i), Name: strconv.Itoa(i * 7919), Submit: cluster.Time(i),
				Tasks: []cluster.TaskSet{{Count: 1}}}})
	}
	dir := t.TempDir()
	for _, ext := range []string{".gz", ".zst"} {
		path := filepath.Join(dir, "long.jsonl"+ext)
		if err := Create(path, wl); err != nil {
			t.Fatal(err)
		}
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{20, len(whole) / 2, len(whole) - 1} {
			if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
				t.Fatal(err)
			}
			for _, skip := range []bool{false, true} {
				if _, err := Open(path, Options{SkipBad: skip}); err == nil ||
					!strings.Contains(err.Error(), "ends in the middle") {
					t.Errorf("%s cut at %d of %d: %v", ext, n, len(whole), err)
				}
			}
		}
	}
}

// A stray quote costs its own row, not the rows after it.
func TestStrayQuote(t *testing.T) {
	text := "submit_s,run_s,gpus,name\n1,2,3,\"a\n2,2,3,b\n3,2,3,\"c\nd\"\n4,2,3,\"e\"x\n"
	wl, err := readText(t, "x", text, Options{SkipBad: true})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range wl.Jobs {
		names = append(names, wl.Jobs[i].Job.Name)
	}
	equal(t, "kept", strings.Join(names, " "), "b c\nd")
	equal(t, "bad", wl.BadAll, 2)
	equal(t, "bad lines", wl.Bad[0].Line*10+wl.Bad[1].Line, 26)
}
