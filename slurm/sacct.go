package slurm

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-gpu/muster/api"
)

const (
	sacctDefault = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
	sacctBrief   = "JobID,State,ExitCode"
	sacctLong    = "JobID,JobIDRaw,JobName,Partition,MaxVMSize,MaxVMSizeNode,MaxRSS,AveCPU,AllocCPUS,State,ExitCode,ReqMem,Elapsed,Timelimit,AllocTRES"
)

var sacctOptions = []option{
	{name: "accounts", short: 'A', arg: needs},
	{name: "allocations", short: 'X'},
	{name: "allusers", short: 'a'},
	{name: "array"},
	{name: "brief", short: 'b'},
	{name: "completion", short: 'c', use: refused, note: "there is one history; leave it out"},
	{name: "delimiter", arg: needs},
	{name: "duplicates", short: 'D', use: warned, note: "a job that was requeued is one record"},
	{name: "endtime", short: 'E', arg: needs},
	{name: "format", short: 'o', arg: needs},
	{name: "help", short: 'h'},
	{name: "helpformat", short: 'e'},
	{name: "jobs", short: 'j', arg: needs},
	{name: "json"},
	{name: "long", short: 'l'},
	{name: "name", arg: needs},
	{name: "nodelist", short: 'N', arg: needs},
	{name: "noconvert"},
	{name: "noheader", short: 'n'},
	{name: "parsable", short: 'p'},
	{name: "parsable2", short: 'P'},
	{name: "partition", short: 'r', arg: needs},
	{name: "qos", short: 'q', arg: needs},
	{name: "starttime", short: 'S', arg: needs},
	{name: "state", short: 's', arg: needs},
	{name: "truncate", short: 'T'},
	{name: "uid", arg: needs},
	{name: "units", arg: needs, use: warned, note: "sizes are printed as they are"},
	{name: "user", short: 'u', arg: needs},
	{name: "usage"},
	{name: "verbose", short: 'v'},
	{name: "version", short: 'V'},
	{name: "yaml", use: refused, note: "--json says the same"},
}

// record is a line of sacct: a job, or its batch step.
type record struct {
	*api.Job
	step string // "batch"; empty: the job
}

func (c *command) sacct() (int, error) {
	l, rest, done, err := c.common(sacctOptions, "sacct [OPTIONS]")
	if done || err != nil {
		return 0, err
	}
	if len(rest) > 0 {
		return 1, says("Unrecognized option: %s", rest[0])
	}
	if l.set.has("helpformat") {
		c.printf("%s", acctNames(acctFields()))
		return 0, nil
	}
	cols, err := c.acctFormat(&l.set)
	if err != nil {
		return 1, err
	}
	since, until, err := c.span(&l)
	if err != nil {
		return 1, err
	}
	if err = c.acctFilter(&l); err != nil {
		return 1, err
	}
	v, err := c.view(c.svc.History(since, until))
	if err != nil {
		return 1, err
	}
	rows := v.rows(&l.filter, true)
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(arrayOrID(a.Job), arrayOrID(b.Job)), cmp.Compare(a.Index, b.Index),
			cmp.Compare(a.ID, b.ID))
	})
	if l.set.has("json") {
		return 0, c.json("jobs", jobsJSON(v, rows))
	}
	var out []record
	for _, r := range rows {
		out = append(out, record{r.Job, ""})
		if s := &r.Submission; !l.set.has("allocations") && s.Script != "" && r.Started != nil {
			out = append(out, record{r.Job, "batch"})
		}
	}
	c.printf("%s", acctText(&l.set, v, cols, out))
	return 0, nil
}

func arrayOrID(j *api.Job) int {
	if j.Array != 0 {
		return j.Array
	}
	return j.ID
}

// span is the time range of the request: today; with -j, or with states only, the defaults of sacct(1).
func (c *command) span(l *listing) (since, until time.Time, err error) {
	now := c.svc.Now()
	y, m, d := now.Local().Date()
	since, until = time.Date(y, m, d, 0, 0, 0, 0, time.Local), now
	switch {
	case l.set.has("starttime"):
		if since, err = acctWhen(l.set.get("starttime"), now); err != nil {
			return since, until, fmt.Errorf("--starttime: %w", err)
		}
	case len(l.ids) > 0:
		since = time.Unix(0, 0)
	case l.set.has("state"):
		since = now
	}
	if l.set.has("endtime") {
		if until, err = acctWhen(l.set.get("endtime"), now); err != nil {
			return since, until, fmt.Errorf("--endtime: %w", err)
		}
	}
	if since.After(until) {
		err = says("Start time (%s) requested is after end time (%s)", stamp(&since, ""), stamp(&until, ""))
	}
	return since, until, err
}

// acctWhen is ParseWhen, but an hour or date without a year is the last one, not the next, because sacct looks
// back.
func acctWhen(s string, now time.Time) (time.Time, error) {
	t, err := ParseWhen(s, now)
	if err != nil || !t.After(now) || strings.HasPrefix(strings.ToLower(s), "now") || strings.Contains(s, "-") ||
		strings.Contains(strings.ToLower(s), "tomorrow") {
		return t, err
	}
	if t.Sub(now) <= 24*time.Hour && strings.Contains(s, ":") {
		return t.AddDate(0, 0, -1), nil
	}
	if t.Sub(now) <= 366*24*time.Hour {
		return t.AddDate(-1, 0, 0), nil
	}
	return t, nil
}

func (c *command) acctFilter(l *listing) (err error) {
	if l.set.has("accounts") {
		l.accounts = strings.Split(l.set.get("accounts"), ",")
	}
	if l.set.has("uid") {
		l.users = append(l.users, userNames(strings.Split(l.set.get("uid"), ","))...)
	}
	if l.set.has("state") {
		l.states, err = parseStates(l.set.get("state"))
	}
	all := l.set.has("allusers") || c.svc.User() == "root" || len(l.ids) > 0
	if len(l.users) == 0 && !all {
		l.users = []string{c.svc.User()}
	}
	return err
}

func (c *command) acctFormat(s *settings) ([]acctColumn[record], error) {
	format := sacctDefault
	env, hasEnv := lookupEnv(c.env, "SACCT_FORMAT")
	switch {
	case s.has("format"):
		format = s.get("format")
	case s.has("long"):
		format = sacctLong
	case s.has("brief"):
		format = sacctBrief
	case hasEnv:
		format = env
	}
	return acctColumns(format, acctFields())
}

// only makes a field that the batch step leaves empty.
func only(get func(v *view, r record) string) func(*view, record) string {
	return func(v *view, r record) string {
		if r.step != "" {
			return ""
		}
		return get(v, r)
	}
}

// ofBatch makes a field that only the batch step shows, as Slurm does with measurements of steps.
func ofBatch(get func(r record) string) func(*view, record) string {
	return func(_ *view, r record) string {
		if r.step == "" {
			return ""
		}
		return get(r)
	}
}

// usedCPU and peak are of ended runs; empty: nothing was measured.
func usedCPU(r record) string {
	if r.CPUTime == 0 {
		return ""
	}
	return longClock(time.Duration(r.CPUTime))
}

func peak(r record) string {
	if r.RAMPeak == 0 {
		return ""
	}
	return kib(r.RAMPeak)
}

func unmeasured(*view, record) string { return "" }

// suspended is known only for a job that ran once: the rest of its elapsed time.
func suspended(v *view, r record) string {
	if r.Restarts > 0 {
		return ""
	}
	return longClock(ranFor(r.Job, v.now) - time.Duration(r.Ran))
}

func seconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }

func planned(v *view, r record) time.Duration {
	until := v.now
	if r.FirstStart != nil {
		until = *r.FirstStart
	} else if r.Ended != nil {
		until = *r.Ended
	}
	return until.Sub(r.Submitted)
}

// acctFields are sacct's fields, in the order of its --helpformat.
var acctFields = sync.OnceValue(func() []acctField[record] {
	return []acctField[record]{
		{"Account", 10, false, func(_ *view, r record) string { return r.Submission.Queue }},
		{"AllocCPUS", 10, false, func(_ *view, r record) string { return strconv.FormatInt(cpus(r.Job), 10) }},
		{"AllocNodes", 10, false, func(_ *view, r record) string { return "1" }},
		{"AllocTRES", 10, false, func(_ *view, r record) string { return tresText(r.Job) }},
		{"AveCPU", 10, false, ofBatch(usedCPU)},
		{"AveRSS", 10, false, ofBatch(peak)},
		{"AveVMSize", 10, false, unmeasured},
		{"Cluster", 10, false, func(*view, record) string { return "muster" }},
		{"Comment", 14, false, only(func(_ *view, r record) string { return r.Submission.Comment })},
		{"Constraints", 10, false,
			only(func(_ *view, r record) string { return strings.Join(r.Submission.GPUTypes, "|") })},
		{"CPUTime", 10, false, func(v *view, r record) string {
			return longClock(ranFor(r.Job, v.now) * time.Duration(cpus(r.Job)))
		}},
		{"CPUTimeRAW", 10, false, func(v *view, r record) string {
			return seconds(ranFor(r.Job, v.now) * time.Duration(cpus(r.Job)))
		}},
		{"DerivedExitCode", 15, false, only(func(_ *view, r record) string { return exitText(r.Job) })},
		{"Elapsed", 10, false, func(v *view, r record) string { return longClock(ranFor(r.Job, v.now)) }},
		{"ElapsedRaw", 10, false, func(v *view, r record) string { return seconds(ranFor(r.Job, v.now)) }},
		{"Eligible", 19, false, only(func(_ *view, r record) string { return stamp(r.Eligible, "Unknown") })},
		{"End", 19, false, func(_ *view, r record) string { return stamp(r.Ended, "Unknown") }},
		{"ExitCode", 8, false, func(_ *view, r record) string { return exitText(r.Job) }},
		{"GPUHours", 10, false,
			only(func(_ *view, r record) string { return strconv.FormatFloat(r.GPUHours, 'f', 2, 64) })},
		{"Group", 9, false, only(func(_ *view, r record) string { return groupName(r.User) })},
		{"JobID", 12, true, func(_ *view, r record) string { return r.text((&row{Job: r.Job}).idText()) }},
		{"JobIDRaw", 12, true, func(_ *view, r record) string { return r.text(strconv.Itoa(r.ID)) }},
		{"JobName", 10, false, func(_ *view, r record) string { return cmpOr(r.step, r.Submission.Name) }},
		{"MaxRSS", 10, false, ofBatch(peak)},
		{"MaxRSSNode", 10, false, unmeasured},
		{"MaxVMSize", 10, false, unmeasured},
		{"MaxVMSizeNode", 14, false, unmeasured},
		{"NCPUS", 10, false, func(_ *view, r record) string { return strconv.FormatInt(cpus(r.Job), 10) }},
		{"NNodes", 8, false, func(*view, record) string { return "1" }},
		{"NodeList", 15, false, func(_ *view, r record) string {
			return cmpOr(nodeOf(row{Job: r.Job}), "None assigned")
		}},
		{"NTasks", 8, false, func(_ *view, r record) string { return map[bool]string{true: "1"}[r.step != ""] }},
		{"Partition", 10, false, only(func(v *view, r record) string { return v.partitionText(r.Job) })},
		{"Planned", 10, false, only(func(v *view, r record) string { return longClock(planned(v, r)) })},
		{"Priority", 10, false, only(func(_ *view, r record) string { return strconv.FormatInt(priority(r.Job), 10) })},
		{"QOS", 10, false, only(func(_ *view, r record) string { return r.Submission.Tier })},
		{"Reason", 22, false, only(func(_ *view, r record) string { return reason(r.Job) })},
		{"ReqCPUS", 8, false, func(_ *view, r record) string { return strconv.FormatInt(cpus(r.Job), 10) }},
		{"ReqMem", 10, false, only(func(_ *view, r record) string { return memoryText(r.Job) })},
		{"ReqNodes", 8, false, func(*view, record) string { return "1" }},
		{"ReqTRES", 10, false, only(func(_ *view, r record) string { return tresText(r.Job) })},
		{"Reservation", 20, false, only(func(_ *view, r record) string { return r.Submission.Reservation })},
		{"Restarts", 8, false, only(func(_ *view, r record) string { return strconv.Itoa(r.Restarts) })},
		{"Start", 19, false, func(_ *view, r record) string { return stamp(r.Started, "Unknown") }},
		{"State", 10, false, func(_ *view, r record) string { return stateOf(r.Job).name }},
		{"Submit", 19, false, func(_ *view, r record) string { return stamp(&r.Submitted, "Unknown") }},
		{"Suspended", 10, false, only(suspended)},
		{"Timelimit", 10, false, only(func(_ *view, r record) string { return longLimit(&r.Submission) })},
		{"TimelimitRaw", 12, false, only(func(_ *view, r record) string { return limitMinutes(r.Job) })},
		{"TotalCPU", 10, false, func(_ *view, r record) string { return usedCPU(r) }},
		{"UID", 6, false, only(func(_ *view, r record) string { return idOf(r.User) })},
		{"User", 9, false, only(func(_ *view, r record) string { return r.User })},
		{"WorkDir", 20, false, only(func(_ *view, r record) string { return r.Submission.Dir })},
	}
})

func limitMinutes(j *api.Job) string {
	if limit(&j.Submission) == 0 {
		return "UNLIMITED"
	}
	return strconv.FormatInt(int64(limit(&j.Submission)/time.Minute), 10)
}

// text is a job's number with the step's name.
func (r record) text(id string) string {
	if r.step != "" {
		return id + "." + r.step
	}
	return id
}
