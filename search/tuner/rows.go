package tuner

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
)

// Jobs are the runs of a search, in order; name "": of all searches.
func Jobs(ctx context.Context, cl *client.Client, name string) ([]api.Job, error) {
	q := url.Values{"brief": {"true"}}
	if name != "" {
		q.Set("search", name)
	}
	list, err := cl.List(ctx, q)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(j api.Job) bool {
		return j.Submission.Trial == nil || name != "" && j.Submission.Trial.Search != name
	})
	slices.Reverse(list)
	if name == "" {
		return list, nil
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("there is no search %s: muster search list lists them", name)
	}
	// of several users: the caller's own
	if user := list[0].User; slices.ContainsFunc(list, func(j api.Job) bool { return j.User != user }) {
		var me api.Me
		if err := cl.Do(ctx, http.MethodGet, "/v1/me", nil, &me); err != nil {
			return nil, err
		}
		list = slices.DeleteFunc(list, func(j api.Job) bool { return j.User != me.User })
		if len(list) == 0 {
			return nil, fmt.Errorf("several people have a search %s, and none of them is yours", name)
		}
	}
	return list, nil
}

// TrialRow is the line of a trial.
type TrialRow struct {
	Trial  int            `json:"trial"`
	Job    int            `json:"job"`
	State  string         `json:"state"`
	Reason string         `json:"reason,omitempty"`
	Rung   int            `json:"rung"`
	Step   float64        `json:"step"`
	Metric *float64       `json:"metric"`
	Target bool           `json:"target,omitempty"`
	Config map[string]any `json:"config"`
}

// Trials are the trials of a search, the best first.
func Trials(list []api.Job) (rows []TrialRow) {
	at := map[[2]int]int{}
	maximise := false
	for i := range list {
		j := &list[i]
		s := j.Submission.Trial
		if s.Tuner {
			continue
		}
		maximise = s.Maximise
		for k, n := range trialsOf(s) {
			row := TrialRow{Trial: n, Job: j.ID, State: j.State, Reason: j.Reason, Rung: s.Rung, Target: s.Target,
				Config: s.Config}
			if len(s.Fused) > 0 {
				row.Config = s.Fused[k].Config
			}
			if m := metricsAt(j, n, 0); m != nil {
				row.Step, row.Metric = m.Step, m.Of[s.Metric]
			}
			pos, again := at[lastKey(n, s.Target)]
			if !again {
				at[lastKey(n, s.Target)] = len(rows)
				rows = append(rows, row)
				continue
			}
			if row.Metric == nil { // it has just started its next rung
				row.Metric, row.Step = rows[pos].Metric, rows[pos].Step
			}
			rows[pos] = row
		}
	}
	slices.SortStableFunc(rows, func(a, b TrialRow) int {
		if a.Target != b.Target {
			return map[bool]int{true: -1, false: 1}[a.Target]
		}
		if (a.Metric == nil) != (b.Metric == nil) {
			return map[bool]int{true: 1, false: -1}[a.Metric == nil]
		}
		if a.Metric == nil {
			return a.Trial - b.Trial
		}
		c := cmp.Compare(*a.Metric, *b.Metric)
		if maximise {
			c = -c
		}
		return cmp.Or(c, a.Trial-b.Trial)
	})
	return rows
}

// Begun is how many trials have started. Each full-size run is of one of these.
func Begun(rows []TrialRow) (n int) {
	for i := range rows {
		if !rows[i].Target {
			n++
		}
	}
	return n
}

// SearchRow is the line of a search.
type SearchRow struct {
	Name   string   `json:"name"`
	User   string   `json:"user"`
	Method string   `json:"method"`
	Trials int      `json:"trials"`
	Begun  int      `json:"begun"`
	Live   int      `json:"live"`
	Metric string   `json:"metric"`
	Best   *float64 `json:"best"`
	Trial  int      `json:"trial"`
	Tuner  int      `json:"tuner,omitempty"`
}

// Searches sums up the runs of each search, in the order in which these began.
func Searches(list []api.Job) []SearchRow {
	rows := []SearchRow{}
	jobs := map[[2]string][]api.Job{}
	for i := range list {
		key := [2]string{list[i].User, list[i].Submission.Trial.Search}
		if jobs[key] == nil {
			rows = append(rows, SearchRow{Name: key[1], User: key[0]})
		}
		jobs[key] = append(jobs[key], list[i])
	}
	for k := range rows {
		r := &rows[k]
		own := jobs[[2]string{r.User, r.Name}]
		for i := range own {
			s := own[i].Submission.Trial
			r.Method, r.Metric, r.Trials = s.Method, s.Metric, max(r.Trials, s.Trials)
			switch {
			case Over(&own[i]):
			case s.Tuner:
				r.Tuner = own[i].ID
			default:
				r.Live++
			}
		}
		trials := Trials(own)
		r.Begun = Begun(trials)
		if i := slices.IndexFunc(trials, func(t TrialRow) bool { return t.Metric != nil }); i >= 0 {
			r.Best, r.Trial = trials[i].Metric, trials[i].Trial
		}
	}
	return rows
}
