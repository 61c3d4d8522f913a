package results

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/muster-gpu/muster/experiments/compat"
	"github.com/muster-gpu/muster/internal/csvfile"
)

// fgdLists are the lists of pods with published figures.
var fgdLists = []string{"default", "cpu050", "gpushare100", "gpushare40", "gpuspec10", "multigpu20"}

// fgdSeeds are those of the published runs.
var fgdSeeds = []int64{42, 43, 44, 45, 46, 47, 48, 49, 50, 51}

const fgdRandom = "theirs depends on the timing of its threads: equal in distribution only"

const roomsReason = "a rule of our own: it preserves what still fits, also by cores, instead of avoiding fragments"

// FGD replays the openb lists in the world of its simulator.
func FGD(ctx context.Context, traces string) (Table, error) {
	return fgdOn(ctx, traces, fgdLists, compat.OpenbPolicies())
}

// fgdOn plays some of the lists of pods under some of the policies.
func fgdOn(ctx context.Context, traces string, lists []string, policies []compat.OpenbPolicy) (Table, error) {
	t := Table{Title: "FGD: openb, 1,213 nodes with 6,212 GPUs", Tolerance: 1e-8,
		About: "GPUs allocated, in per cent, when the given per cent of the cluster's GPUs have been requested; means of ten seeds, as published " +
			"(ATC'23). No pod leaves: pods are drawn until they request 130 %, and a pod that does not fit is lost. The world is that of the published " +
			"simulator (`experiments/compat`): its order of arrivals, its scores of 0 to 100 and its random ranks for ties. The placers `fgd`, `weighted-fit`, " +
			"`dot-product`, `gpu-packing` and `gpu-clustering` are the same rules without the rounding (docs/reference/policies/README.md). " +
			"Rooms is ours; it does not know future arrivals. Nine tenths of what FGD leaves free are parts of GPUs, three fifths of all of it the 0.19 that pods of 0.81 " +
			"leave (default, seed 42: 2.95 of 4.86 points), which almost no pod requests: a placer that rejects no pod has to leave them."}
	dir := filepath.Join(traces, "openb-v2023")
	head, published, err := readAllocated(filepath.Join(dir, "expected_gpu_alloc_pct_mean_of_10_seeds.csv"))
	if err != nil {
		return t, err
	}
	fgd, own := 0.0, 0.0 // means over the lists
	differ := make([]int, len(policies))
	for _, list := range lists {
		o, err := ReadOpenb(dir, list)
		if err != nil {
			return t, err
		}
		for i, p := range policies {
			at := slices.IndexFunc(compat.OpenbPolicies(), func(x compat.OpenbPolicy) bool { return x.Name == p.Name })
			name := fmt.Sprintf("openb_pod_list_%s/%02d-%s", list, at+1, p.Name)
			want, ok := published[name]
			if !ok {
				return t, fmt.Errorf("%s: no row for %s", dir, name)
			}
			runs, err := fgdRuns(ctx, o, p.Score)
			if err != nil {
				return t, fmt.Errorf("%s, %s: %w", list, p.Name, err)
			}
			reason := ""
			if p.Score == nil {
				reason = fgdRandom
			}
			for c, column := range head {
				ours := meanOf(runs, column)
				if math.Abs(ours-want[c]) > 1e-9 {
					differ[i]++
				}
				if column == 100 && p.Name == "FGD" {
					fgd += ours / float64(len(lists))
				}
				if column == 100 {
					t.Rows = append(t.Rows, Row{list + ", " + p.Name, "allocated at 100 %", want[c], ours, reason})
				}
			}
		}
	}
	for _, list := range lists {
		o, err := ReadOpenb(dir, list)
		if err != nil {
			return t, err
		}
		runs, err := fgdRuns(ctx, o, compat.Rooms)
		if err != nil {
			return t, fmt.Errorf("%s, Rooms: %w", list, err)
		}
		want, ours := published["openb_pod_list_"+list+"/06-FGD"], meanOf(runs, 100)
		t.Rows = append(t.Rows,
			Row{list + ", FGD (ours: Rooms)", "allocated at 100 %", want[slices.Index(head, 100)], ours, roomsReason})
		own += ours / float64(len(lists))
	}
	t.Rows = append(t.Rows, Row{"mean of the lists, FGD (ours: Rooms)", "allocated at 100 %", fgd, own, roomsReason})
	for i, p := range policies {
		if p.Score != nil {
			t.Rows = append(t.Rows,
				Row{"all lists, " + p.Name, fmt.Sprintf("means that differ, at %v %%", head), 0, float64(differ[i]),
					""})
		}
	}
	return t, nil
}

// fgdRuns plays a list with each seed.
func fgdRuns(ctx context.Context, o *compat.Openb, score compat.Scorer) ([]compat.Cells, error) {
	var runs []compat.Cells
	for _, seed := range fgdSeeds {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		cells, err := o.Run(score, seed)
		if err != nil {
			return nil, fmt.Errorf("seed %d: %w", seed, err)
		}
		runs = append(runs, cells)
	}
	return runs, nil
}

// meanOf is the mean of a column over the seeds, to three decimals as published.
func meanOf(runs []compat.Cells, column int) float64 {
	sum := 0.0
	for i := range runs {
		sum += runs[i][column]
	}
	return math.Round(sum/float64(len(runs))*1000) / 1000
}

// readAllocated reads the published table: the columns, and the rows by list and policy.
func readAllocated(path string) (head []int, rows map[string][]float64, err error) {
	all, err := csvfile.Read(path)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range all[0][2:] {
		k, err := strconv.Atoi(c)
		if err != nil || k < 0 || k > 130 {
			return nil, nil, fmt.Errorf("%s: column %q: not a whole number from 0 to 130", path, c)
		}
		head = append(head, k)
	}
	rows = map[string][]float64{}
	for _, r := range all[1:] {
		var v []float64
		for _, c := range r[2:] {
			x, err := strconv.ParseFloat(c, 64)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: row %v: %q is not a number", path, r, c)
			}
			v = append(v, x)
		}
		rows[r[0]+"/"+r[1]] = v
	}
	return head, rows, nil
}

// ReadOpenb reads a list of pods and the machines with GPUs.
func ReadOpenb(dir, list string) (*compat.Openb, error) {
	podFile, nodeFile := filepath.Join(dir, "openb_pod_list_"+list+".csv"),
		filepath.Join(dir, "openb_node_list_gpu_node.csv")
	var pods []compat.Pod
	err := eachOpenb(podFile, []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"}, "gpu_spec",
		func(text []string, n []int64) {
			pods = append(pods, compat.Pod{Name: text[0], CPU: n[0], Memory: n[1], GPUs: int(n[2]), Milli: n[3],
				Spec: text[1]})
		})
	if err != nil {
		return nil, err
	}
	var machines []compat.Machine
	err = eachOpenb(nodeFile, []string{"sn", "cpu_milli", "memory_mib", "gpu"}, "model",
		func(text []string, n []int64) {
			machines = append(machines,
				compat.Machine{Name: text[0], CPU: n[0], Memory: n[1], GPUs: int(n[2]), Model: text[1]})
		})
	if err != nil {
		return nil, err
	}
	o, err := compat.NewOpenb(pods, machines)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", podFile, err)
	}
	return o, nil
}

// eachOpenb calls f for each row with a name, numbers, and an optional text.
func eachOpenb(path string, columns []string, extra string, f func(text []string, n []int64)) error {
	rows, err := csvfile.Read(path)
	if err != nil {
		return err
	}
	var at []int
	for _, c := range columns {
		i := slices.Index(rows[0], c)
		if i < 0 {
			return fmt.Errorf("%s: no column %q; there are %v", path, c, rows[0])
		}
		at = append(at, i)
	}
	last := slices.Index(rows[0], extra)
	for i, r := range rows[1:] {
		text, n := []string{r[at[0]], ""}, make([]int64, len(at)-1)
		if last >= 0 {
			text[1] = r[last]
		}
		for k := range n {
			if n[k], err = strconv.ParseInt(r[at[k+1]], 10, 64); err != nil || n[k] < 0 {
				return fmt.Errorf("%s: line %d: %s is %q, not a whole number of 0 or more", path, i+2, columns[k+1],
					r[at[k+1]])
			}
		}
		f(text, n)
	}
	return nil
}
