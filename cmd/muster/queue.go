package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/show"
)

// column is one of muster queue's.
type column struct {
	name, head string
	text       func(*api.Job) string
	number     func(*api.Job) float64 // sorts by it; nil: by the text
}

func instant(at *time.Time) string {
	if at == nil {
		return ""
	}
	return at.Local().Format("2006-01-02T15:04:05")
}

// expectedText is when a waiting job is expected to start: "from" where that is at the earliest, "by" where
// those ahead would run to their time limits.
func expectedText(j *api.Job) string {
	switch {
	case j.Expected == nil:
		return ""
	case j.AtEarliest && j.Earliest != nil:
		return "from " + instant(j.Earliest)
	case j.AtEarliest:
		return "from " + instant(j.Expected)
	case j.ByLimits:
		return "by " + instant(j.Expected)
	}
	return instant(j.Expected)
}

func seconds(at *time.Time) float64 {
	if at == nil {
		return 0
	}
	return float64(at.Unix())
}

// span is how long a job ran, or waited if it waits.
func span(j *api.Job) api.Duration {
	if j.State == api.StatePending {
		return j.Waited
	}
	return j.Ran
}

func spanText(d api.Duration) string {
	return cluster.FormatDuration(time.Duration(d).Round(time.Second))
}

func limitText(d api.Duration) string {
	if d == 0 {
		return ""
	}
	return spanText(d)
}

// where says where a job runs, or what keeps it from running.
func where(j *api.Job) string {
	if j.State != api.StatePending && j.Ended == nil && (len(j.Devices) > 0 || j.Reason == "") {
		if text := idleText(j); text != "" {
			return deviceText(j) + "; " + text
		}
		return deviceText(j)
	}
	return j.Reason
}

func gpus(j *api.Job) float64 {
	n, err := strconv.ParseFloat(gpuCount(j), 64)
	if err != nil {
		return 0
	}
	return n
}

// columns are what muster queue -o can show.
var columns = []column{
	{"job", "JOB", func(j *api.Job) string {
		return strconv.Itoa(j.ID)
	}, func(j *api.Job) float64 { return float64(j.ID) }},
	{"name", "NAME", func(j *api.Job) string { return j.Submission.Name }, nil},
	{"user", "USER", func(j *api.Job) string { return j.User }, nil},
	{"queue", "QUEUE", func(j *api.Job) string { return j.Submission.Queue }, nil},
	{"gpus", "GPUS", func(j *api.Job) string { return gpuCount(j) }, gpus},
	{"state", "STATE", func(j *api.Job) string { return j.State }, nil},
	{"time", "TIME", func(j *api.Job) string {
		return spanText(span(j))
	}, func(j *api.Job) float64 { return float64(span(j)) }},
	{"where", "WHERE OR WHY", where, nil},
	{"waited", "WAITED", func(j *api.Job) string {
		return spanText(j.Waited)
	}, func(j *api.Job) float64 { return float64(j.Waited) }},
	{"ran", "RAN", func(j *api.Job) string {
		return spanText(j.Ran)
	}, func(j *api.Job) float64 { return float64(j.Ran) }},
	{"limit", "LIMIT", func(j *api.Job) string {
		return limitText(j.Submission.Limit)
	}, func(j *api.Job) float64 { return float64(j.Submission.Limit) }},
	{"estimate", "ESTIMATE", func(j *api.Job) string {
		return limitText(j.Submission.Estimate)
	}, func(j *api.Job) float64 { return float64(j.Submission.Estimate) }},
	{"submitted", "SUBMITTED", func(j *api.Job) string {
		return instant(&j.Submitted)
	}, func(j *api.Job) float64 { return seconds(&j.Submitted) }},
	{"started", "STARTED", func(j *api.Job) string {
		return instant(j.Started)
	}, func(j *api.Job) float64 { return seconds(j.Started) }},
	{"ended", "ENDED", func(j *api.Job) string {
		return instant(j.Ended)
	}, func(j *api.Job) float64 { return seconds(j.Ended) }},
	{"expected", "EXPECTED", func(j *api.Job) string {
		return expectedText(j)
	}, func(j *api.Job) float64 { return seconds(j.Expected) }},
	{"end", "EXPECTED END", func(j *api.Job) string {
		return instant(j.ExpectedEnd)
	}, func(j *api.Job) float64 { return seconds(j.ExpectedEnd) }},
	{"position", "POSITION", func(j *api.Job) string {
		return strconv.Itoa(j.Position)
	}, func(j *api.Job) float64 { return float64(j.Position) }},
	{"priority", "PRIORITY", func(j *api.Job) string {
		return strconv.FormatInt(j.Submission.Priority, 10)
	}, func(j *api.Job) float64 { return float64(j.Submission.Priority) }},
	{"tier", "TIER", func(j *api.Job) string { return cmp.Or(j.Submission.Tier, "standard") }, nil},
	{"kind", "KIND", func(j *api.Job) string { return cmp.Or(j.Submission.Kind, "training") }, nil},
	{"node", "NODE", func(j *api.Job) string { return j.Node }, nil},
	{"code", "CODE", func(j *api.Job) string { return j.Code }, nil},
	{"exit", "EXIT", func(j *api.Job) string { return fmt.Sprintf("%d:%d", j.ExitCode, j.ExitSignal) }, nil},
	{"restarts", "RESTARTS", func(j *api.Job) string {
		return strconv.Itoa(j.Restarts)
	}, func(j *api.Job) float64 { return float64(j.Restarts) }},
	{"preemptions", "PREEMPTIONS", func(j *api.Job) string {
		return strconv.Itoa(j.Preemptions)
	}, func(j *api.Job) float64 { return float64(j.Preemptions) }},
	{"gpu-hours", "GPU-HOURS", func(j *api.Job) string {
		return strconv.FormatFloat(j.GPUHours, 'f', 3, 64)
	}, func(j *api.Job) float64 { return j.GPUHours }},
	{"array", "ARRAY", func(j *api.Job) string {
		return strconv.Itoa(j.Array)
	}, func(j *api.Job) float64 { return float64(j.Array) }},
	{"index", "INDEX", func(j *api.Job) string {
		return strconv.Itoa(j.Index)
	}, func(j *api.Job) float64 { return float64(j.Index) }},
	{"comment", "COMMENT", func(j *api.Job) string { return j.Submission.Comment }, nil},
}

const usualColumns = "job,name,user,queue,gpus,state,time,where"

func columnNames() (names []string) {
	for i := range columns {
		names = append(names, columns[i].name)
	}
	return names
}

// chosen finds columns by their names.
func chosen(list string) (out []column, err error) {
	for _, name := range strings.Split(list, ",") {
		i := slices.IndexFunc(columns, func(c column) bool { return c.name == strings.TrimSpace(name) })
		if i < 0 {
			return nil, cluster.Unknown("column", name, columnNames())
		}
		out = append(out, columns[i])
	}
	return out, nil
}

// compare orders jobs by a column.
func (c *column) compare(a, b *api.Job) int {
	if c.number != nil {
		return cmp.Compare(c.number(a), c.number(b))
	}
	return cmp.Compare(c.text(a), c.text(b))
}

// sortJobs orders jobs by columns, each backwards with a minus before it.
func sortJobs(list []api.Job, by string) error {
	var keys []column
	var sign []int
	for _, name := range strings.Split(by, ",") {
		plain, down := strings.CutPrefix(strings.TrimSpace(name), "-")
		c, err := chosen(plain)
		if err != nil {
			return err
		}
		keys, sign = append(keys, c[0]), append(sign, 1)
		if down {
			sign[len(sign)-1] = -1
		}
	}
	orderJobs(list, func(a, b *api.Job) int {
		for i := range keys {
			if n := keys[i].compare(a, b); n != 0 {
				return sign[i] * n
			}
		}
		return a.ID - b.ID
	})
	return nil
}

// orderJobs sorts jobs. They are large, so pointers are moved about, and each
// job once.
func orderJobs(list []api.Job, compare func(a, b *api.Job) int) {
	order := make([]*api.Job, len(list))
	for i := range list {
		order[i] = &list[i]
	}
	slices.SortStableFunc(order, compare)
	sorted := make([]api.Job, len(list))
	for i, j := range order {
		sorted[i] = *j
	}
	copy(list, sorted)
}

// queueFlags are the options of muster queue.
type queueFlags struct {
	all, asJSON, mine, noHeader, watch, elements bool
	states, names, queues                        []string
	user, columns, sort                          string
}

func newQueue() *cobra.Command {
	f := &queueFlags{}
	c := &cobra.Command{
		Annotations: onCluster,
		Use:         "queue", Aliases: []string{"ls"}, Args: cobra.NoArgs,
		Short:   "List the jobs that run and wait",
		Long:    "Columns for -o and --sort: " + strings.Join(columnNames(), ", ") + ".",
		Example: "  muster queue --mine\n  muster queue --state pending --sort -gpus,waited\n  muster queue -o job,name,gpus,expected",
		RunE:    func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	fl := c.Flags()
	fl.BoolVarP(&f.all, "all", "a", false, "also those that are over")
	fl.BoolVarP(&f.mine, "mine", "m", false, "only mine")
	fl.StringVarP(&f.user, "user", "u", "", "only this user's")
	fl.StringSliceVarP(&f.states, "state", "s", nil, "only those in these states")
	fl.StringSliceVarP(&f.queues, "queue", "q", nil, "only those in these queues")
	fl.StringSliceVar(&f.names, "name", nil, "only those with these names")
	fl.StringVarP(&f.columns, "columns", "o", usualColumns, "columns to show")
	fl.StringVar(&f.sort, "sort", "job", "columns to sort by; -gpus: the most first")
	fl.BoolVarP(&f.elements, "elements", "r", false, "a line for each waiting element of an array")
	fl.BoolVarP(&f.watch, "watch", "w", false, "show it again every two seconds until Ctrl-C")
	fl.BoolVar(&f.noHeader, "no-header", false, "without the line of headings")
	fl.BoolVar(&f.asJSON, "json", false, "JSON")
	for flag, list := range map[string][]string{"columns": columnNames(), "sort": columnNames(), "state": jobStates} {
		if err := c.RegisterFlagCompletionFunc(flag,
			cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)); err != nil {
			panic(err) // the flags are defined above
		}
	}
	return c
}

var jobStates = []string{"active", api.StatePending, api.StateStarting, api.StateRunning, api.StateSuspended,
	api.StateStopping, api.StateCompleted,
	api.StateFailed, api.StateCancelled, api.StateTimeout, api.StatePreempted, api.StateLost, api.StateRejected}

// query is what the server is asked for.
func (f *queueFlags) query() (url.Values, error) {
	q := url.Values{}
	for _, s := range f.states {
		if !slices.Contains(jobStates, s) {
			return nil, usage(fmt.Errorf("--state: %w", cluster.Unknown("state", s, jobStates)))
		}
	}
	switch {
	case len(f.states) > 0:
		q["state"] = f.states
	case !f.all:
		q["state"] = []string{"active"}
	}
	if f.mine && kubeCluster.given() {
		return nil, usage(errors.New("--mine: on a cluster the user of a job is its namespace: give --user NAMESPACE"))
	}
	if f.mine {
		u, err := user.Current()
		if err != nil {
			return nil, err
		}
		q.Set("user", u.Username)
	}
	if f.user != "" {
		q.Set("user", f.user)
	}
	return q, nil
}

func (f *queueFlags) run(c *cobra.Command) error {
	cols, err := chosen(f.columns)
	if err == nil {
		err = sortJobs(nil, f.sort)
	}
	if err != nil {
		return usage(err)
	}
	q, err := f.query()
	if err != nil {
		return err
	}
	if !f.watch {
		return f.show(c.Context(), c.OutOrStdout(), q, cols)
	}
	again := time.NewTicker(2 * time.Second)
	defer again.Stop()
	for {
		if isTTY(c.OutOrStdout()) {
			fmt.Fprint(c.OutOrStdout(), "\x1b[H\x1b[2J") // home, clear
		}
		if err := f.show(c.Context(), c.OutOrStdout(), q, cols); err != nil && !errors.Is(err, client.ErrNoServer) {
			return err
		} else if err != nil {
			fmt.Fprintln(c.OutOrStdout(), err) // it may come back
		}
		select {
		case <-c.Context().Done():
			return nil
		case <-again.C:
		}
	}
}

func (f *queueFlags) show(ctx context.Context, w io.Writer, q url.Values, cols []column) error {
	q.Del("before")
	list, err := client.Connect().List(ctx, q)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(j api.Job) bool {
		return len(f.queues) > 0 && !slices.Contains(f.queues, j.Submission.Queue) || len(f.names) > 0 &&
			!slices.Contains(f.names, j.Submission.Name)
	})
	if err := sortJobs(list, f.sort); err != nil {
		return err
	}
	if f.asJSON {
		return json.NewEncoder(w).Encode(list)
	}
	rows := singleRows(list)
	if !f.elements {
		rows = show.Fold(list)
	}
	return printRows(w, rows, cols, !f.noHeader, f.columns == usualColumns)
}

// stateColours are shown on a terminal.
var stateColours = map[string]string{api.StateRunning: "\x1b[32m", api.StatePending: "\x1b[33m",
	api.StateFailed:  "\x1b[31m",
	api.StateTimeout: "\x1b[31m", api.StateLost: "\x1b[31m", api.StateRejected: "\x1b[31m",
	api.StateSuspended: "\x1b[36m"}

// singleRows is a row for each job.
func singleRows(list []api.Job) (rows []show.Row) {
	for i := range list {
		rows = append(rows, show.Row{Job: &list[i]})
	}
	return rows
}

// spareColumns are left out where the usual ones do not fit a terminal, the first ones first.
var spareColumns = []string{"QUEUE", "USER", "EXIT", "RAN", "WAITED", "TIME", "ENDED", "NAME", "GPU-HOURS"}

// printRows writes a table. A terminal's lines are not exceeded, unless more columns than fit were asked for:
// only where they are the usual ones are some left out.
func printRows(w io.Writer, list []show.Row, cols []column, header, usual bool) error {
	t := table{bare: !header}
	for i := range cols {
		t.heads = append(t.heads, cols[i].head)
	}
	for i := range list {
		var cells []string
		for k := range cols {
			if cols[k].name == "job" {
				cells = append(cells, list[i].ID())
				continue
			}
			cells = append(cells, cols[k].text(list[i].Job))
		}
		t.rows = append(t.rows, cells)
	}
	var spare []string
	if usual {
		spare = spareColumns
	}
	return t.show(w, func(head, text string) string {
		if c := stateColours[text]; c != "" && os.Getenv("NO_COLOR") == "" && head == "STATE" {
			return c + text + "\x1b[0m"
		}
		return text
	}, spare...)
}
