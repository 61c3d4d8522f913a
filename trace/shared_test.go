package trace

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

// The recorded traces beside the repository, against published counts (the
// traces' README files) or, where there are none, against a plain reading of
// the file with other tools.

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance {
		t.Errorf("%s: %.4f, want %.4f", what, got, want)
	}
}

func TestTiresiasShared(t *testing.T) {
	wl := openShared(t, "tiresias/60_job.csv", Options{})
	equal(t, "jobs", len(wl.Jobs), 60)
	sizes := map[int]int{}
	for i := range wl.Jobs {
		sizes[wl.Jobs[i].Job.GPUs()]++
	}
	for g, n := range map[int]int{1: 30, 2: 10, 4: 10, 8: 10} {
		equal(t, "jobs of one size", sizes[g], n)
	}
	checkRoundTrip(t, wl)
}

func TestOpenbShared(t *testing.T) {
	nodes := shared(t, "openb-v2023/openb_node_list_gpu_node.csv")
	wl := openShared(t, "openb-v2023/openb_pod_list_default.csv", Options{Nodes: nodes})
	equal(t, "pods", len(wl.Jobs), 8152)
	equal(t, "GPU nodes", len(wl.Nodes), 1213)
	equal(t, "GPUs", Inspect(wl).NodeGPUs, 6212)
	services := 0
	for i := range wl.Jobs {
		if wl.Jobs[i].Job.Kind == cluster.Service {
			services++
		}
	}
	equal(t, "latency-sensitive pods", services, 203+454+3837+153)
	equal(t, "without GPUs", Inspect(wl).CPUOnly, 1088)
	checkRoundTrip(t, wl)
	equal(t, "all nodes", len(openShared(t, "openb-v2023/openb_node_list_all_node.csv", Options{}).Nodes), 1523)
	for name, n := range map[string]int{"cpu050": 7439, "gpushare40": 8152, "gpushare100": 8152, "gpuspec10": 8152,
		"multigpu20": 8324} {
		equal(t, name, len(openShared(t, "openb-v2023/openb_pod_list_"+name+".csv", Options{}).Jobs), n)
	}
}

func TestITPShared(t *testing.T) {
	hours, jobs := 0.0, 0
	for _, c := range []string{"01", "02", "03", "05", "06", "10"} {
		raw := openShared(t, "elasticflow-itp/raw/cluster"+c+".csv", Options{})
		dead := openShared(t, "elasticflow-itp/deadline/cluster"+c+".csv", Options{})
		equal(t, "jobs with deadlines", len(dead.Jobs), len(raw.Jobs))
		near(t, "GPU-hours", gpuHours(dead), gpuHours(raw), 1e-6)
		equal(t, "deadlines", Inspect(dead).Deadlines, len(dead.Jobs))
		hours += gpuHours(raw)
		jobs += len(raw.Jobs)
	}
	equal(t, "jobs", jobs, 16669)
	// 1,632,719.7 are all ten clusters; these six sum to this.
	near(t, "GPU-hours", hours, 454136.3, 0.1)
}

func TestChronusShared(t *testing.T) {
	for _, name := range []string{"SLO", "MIX1", "MIX2"} {
		wl := openShared(t, "chronus/trace_job_Philly_"+name+".csv.gz", Options{})
		equal(t, "jobs", len(wl.Jobs), 30940)
		s := Inspect(wl)
		near(t, "last submission, minutes", wl.Jobs[len(wl.Jobs)-1].Job.Submit.Sub(0).Minutes(), 20151, 20)
		near(t, "longest, minutes", s.Run.Max/60, 4317, 0)
		if name == "MIX1" {
			equal(t, "best effort", s.Tiers[1].Jobs, 9216)
			equal(t, "deadlines", s.Deadlines, 21724)
		}
	}
}

func TestMuriShared(t *testing.T) {
	for name, n := range map[string]int{"trace1.csv": 1494, "trace3.csv": 992, "trace3_pr.csv": 992, "trace4.csv": 2638,
		"cluster_exp/cluster_trace.csv": 400} {
		wl := openShared(t, "muri/"+name, Options{})
		equal(t, name, len(wl.Jobs), n)
		equal(t, "stages", len(wl.Jobs[0].Work.Stages), 3)
		if name == "trace3_pr.csv" {
			equal(t, "all at 0", Inspect(wl).Span, 0)
		}
		checkRoundTrip(t, wl)
	}
}

func TestGavelShared(t *testing.T) {
	for _, name := range []string{"single_seed0", "single_seed1", "multi_seed0", "multi_seed1"} {
		wl := openShared(t, "gavel/continuous_"+name+".csv.gz", Options{Rate: 4})
		equal(t, name, len(wl.Jobs), 12000)
		near(t, "rate", 3600/Inspect(wl).Arrivals.MeanGap, 4, 0.1)
	}
	one := openShared(t, "gavel/continuous_single_seed0.csv.gz", Options{})
	near(t, "second arrival", one.Jobs[1].Job.Submit.Sub(0).Seconds(), 0.27176230323366835*900, 1e-6)
	near(t, "first duration", one.Jobs[0].Run.Seconds(), 68344.35010595087, 1e-6)
	files, _ := filepath.Glob(shared(t, "gavel/msr") + "/*.gz") // the pattern is valid
	for _, f := range files {
		wl, err := Open(f, Options{})
		if err != nil {
			t.Fatal(err)
		}
		checkWorkload(t, wl)
		if len(wl.Jobs) > 2000 {
			t.Errorf("%s: %d jobs, at most 2000 were kept per cluster", f, len(wl.Jobs))
		}
	}
	equal(t, "clusters", len(files), 15)
	equal(t, "makespan jobs", len(openShared(t, "gavel/physical_cluster/minimize_makespan.trace", Options{}).Jobs), 100)
}

func TestPolluxShared(t *testing.T) {
	for dir, n := range map[string]int{"workloads": 160, "workloads-0.5": 80, "workloads-1.5": 240} {
		for _, k := range []string{"1", "2", "3", "4"} {
			equal(t, dir, len(openShared(t, "pollux/"+dir+"/workload-"+k+".csv", Options{}).Jobs), n)
		}
	}
	// The published simulator's completion times of jobs that started at once
	// and were never stopped are the run time, 30 s for the start, and at most
	// one round of 60 s.
	wl := openShared(t, "pollux/workloads/workload-1.csv", Options{})
	for name, jct := range map[string]float64{"cifar10-0": 953, "deepspeech2-1": 4182, "ncf-2": 122,
		"deepspeech2-3": 2545, "cifar10-4": 516} {
		for i := range wl.Jobs {
			if wl.Jobs[i].Job.Name == name {
				wait := jct - wl.Jobs[i].Run.Seconds() - 30
				if wait < 0 || wait > 60 {
					t.Errorf("%s: %s computed, completed after %g s", name, wl.Jobs[i].Run, jct)
				}
			}
		}
	}
}

func TestRubickShared(t *testing.T) {
	for _, name := range []string{"base", "bp", "mt"} {
		equal(t, name, len(openShared(t, "profiles-misc/Rubick_workload-"+name+".csv", Options{}).Jobs), 406)
	}
}
