package slurm

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/ask"
)

// view is the data of the listings.
type view struct {
	now   time.Time
	jobs  []api.Job
	parts []api.Partition
	nodes []api.Node
}

// row is a line of squeue: a job, or the waiting elements of an array.
type row struct {
	*api.Job
	indices []int // of an array's waiting elements; nil: one job
}

func (c *command) view(jobs []api.Job, err error) (*view, error) {
	if err != nil {
		return nil, err
	}
	v := &view{now: c.svc.Now(), jobs: jobs}
	if v.parts, err = c.svc.Partitions(); err != nil {
		return nil, err
	}
	v.nodes, err = c.svc.Nodes()
	return v, err
}

// filter picks jobs. Empty lists pick all.
type filter struct {
	users, parts, names, states, accounts, nodes []string
	ids                                          []jobRef
	qos                                          []string
}

// jobRef is a job as people write it: 12, 12_3 or 12_[1-3].
type jobRef struct {
	id      int
	indices []int // nil: the job, or all of the array
}

func parseRef(s string) (jobRef, error) {
	id, idx, isArray := strings.Cut(s, "_")
	id = strings.SplitN(id, ".", 2)[0]
	n, ok := number(id, 1<<31-1)
	if !ok || n == 0 {
		return jobRef{}, says("Invalid job id %s", s)
	}
	r := jobRef{id: int(n)}
	if isArray && idx != "*" {
		a, err := ask.ParseArray(strings.SplitN(idx, ".", 2)[0])
		if err != nil {
			return jobRef{}, says("Invalid job id %s", s)
		}
		r.indices = a.Indices
	}
	return r, nil
}

func parseRefs(s string) ([]jobRef, error) {
	var out []jobRef
	for _, p := range splitOutside(s) {
		if p = strings.TrimSpace(p); p == "" {
			continue
		}
		r, err := parseRef(p)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// is reports whether the reference means the job. The number of an array means all its elements, including the
// one with the same number.
func (r jobRef) is(j *api.Job) bool {
	if r.indices != nil {
		return j.Array == r.id && slices.Contains(r.indices, j.Index)
	}
	return j.ID == r.id || j.Array == r.id && r.id != 0
}

func (v *view) match(f *filter, j *api.Job) bool {
	in := func(list []string, s string) bool { return len(list) == 0 || slices.Contains(list, s) }
	if !in(f.users, j.User) || !in(f.names, j.Submission.Name) || !in(f.states, stateOf(j).name) ||
		!in(f.accounts, j.Submission.Queue) ||
		!in(f.nodes, j.Node) || !in(f.qos, j.Submission.Tier) {
		return false
	}
	if len(f.ids) > 0 && !slices.ContainsFunc(f.ids, func(r jobRef) bool { return r.is(j) }) {
		return false
	}
	if len(f.parts) == 0 {
		return true
	}
	for _, p := range strings.Split(v.partitionText(j), ",") {
		if slices.Contains(f.parts, p) {
			return true
		}
	}
	return false
}

// rows are the jobs that f selects, in squeue's order: partition, state, place in the line, number. Unless each
// is set, the waiting elements of an array are one row.
func (v *view) rows(f *filter, each bool) []row {
	var out []row
	for i := range v.jobs {
		if j := &v.jobs[i]; v.match(f, j) {
			out = append(out, row{Job: j})
		}
	}
	slices.SortFunc(out, func(a, b row) int {
		return cmp.Or(cmp.Compare(v.partIndex(a.Job), v.partIndex(b.Job)),
			cmp.Compare(stateIndex(a.Job), stateIndex(b.Job)),
			cmp.Compare(linePlace(a.Job), linePlace(b.Job)), cmp.Compare(a.ID, b.ID))
	})
	if each {
		return out
	}
	type key struct {
		array int
		code  string
	}
	first := map[key]int{}
	n := 0
	for _, r := range out {
		if r.Array == 0 || r.State != api.StatePending {
			out[n] = r
			n++
			continue
		}
		k := key{r.Array, r.Code}
		if at, ok := first[k]; ok {
			out[at].indices = append(out[at].indices, r.Index)
			continue
		}
		first[k] = n
		r.indices = []int{r.Index}
		out[n] = r
		n++
	}
	for i := range out[:n] {
		slices.Sort(out[i].indices)
	}
	return out[:n]
}

func stateIndex(j *api.Job) int {
	s := stateOf(j)
	return slices.IndexFunc(states, func(k state) bool { return k.name == s.name })
}

// linePlace sorts jobs that are not in the line last.
func linePlace(j *api.Job) int {
	if j.Position == 0 && j.State == api.StatePending {
		return 1 << 30
	}
	return j.Position
}

func (v *view) partIndex(j *api.Job) int {
	first := strings.SplitN(v.partitionText(j), ",", 2)[0]
	if i := slices.IndexFunc(v.parts, func(p api.Partition) bool { return p.Name == first }); i >= 0 {
		return i
	}
	return len(v.parts)
}

// idText is the job's number as squeue shows it: 12, 12_3, 12_[1-3%2].
func (r *row) idText() string {
	switch {
	case r.Array == 0:
		return strconv.Itoa(r.ID)
	case r.indices != nil:
		return fmt.Sprintf("%d_[%s]", r.Array, ask.Array{Indices: r.indices, Cap: arrayCap(r.Job)}.String())
	}
	return fmt.Sprintf("%d_%d", r.Array, r.Index)
}

func (r *row) indexText() string {
	switch {
	case r.Array == 0:
		return "N/A"
	case r.indices != nil:
		return ask.Array{Indices: r.indices, Cap: arrayCap(r.Job)}.String()
	}
	return strconv.Itoa(r.Index)
}

func arrayCap(j *api.Job) int {
	a, err := ask.ParseArray(j.Submission.Array)
	if err != nil {
		return 0
	}
	return a.Cap
}
