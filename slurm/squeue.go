package slurm

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-gpu/muster/api"
)

// squeue's formats, verbatim.
const (
	squeueDefault = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
	squeueLong    = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
	squeueStart   = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
)

var squeueOptions = []option{
	{name: "account", short: 'A', arg: needs},
	{name: "all", short: 'a'},
	{name: "array", short: 'r'},
	{name: "array-unique"},
	{name: "format", short: 'o', arg: needs},
	{name: "Format", short: 'O', arg: needs},
	{name: "help"},
	{name: "hide"},
	{name: "iterate", short: 'i', arg: needs, use: refused, note: "watch -n SECONDS squeue does it"},
	{name: "jobs", short: 'j', arg: needs},
	{name: "json"},
	{name: "long", short: 'l'},
	{name: "me"},
	{name: "name", short: 'n', arg: needs},
	{name: "noconvert"},
	{name: "nodelist", short: 'w', arg: needs},
	{name: "noheader", short: 'h'},
	{name: "partition", short: 'p', arg: needs},
	{name: "priority", short: 'P'},
	{name: "qos", short: 'q', arg: needs},
	{name: "reservation", short: 'R', arg: needs},
	{name: "sort", short: 'S', arg: needs, use: warned,
		note: "the order is partition, state, place in the line; sort(1) knows others"},
	{name: "start"},
	{name: "states", short: 't', arg: needs},
	{name: "steps", short: 's', arg: optional, use: refused, note: "Muster keeps no list of srun's steps"},
	{name: "user", short: 'u', arg: needs},
	{name: "usage"},
	{name: "verbose", short: 'v'},
	{name: "version", short: 'V'},
	{name: "yaml", use: refused, note: "--json says the same"},
}

// listing has the options of a listing.
type listing struct {
	filter
	set settings
}

// common reads options that the listings share; done: nothing is left to do.
func (c *command) common(table []option, usage string) (l listing, rest []string, done bool, err error) {
	if l.set, rest, done, err = c.begin(table, usage); done {
		return l, nil, true, err
	}
	for _, f := range []struct {
		name string
		into *[]string
	}{{"user", &l.users}, {"partition", &l.parts}, {"name", &l.names}, {"account", &l.accounts}, {"nodelist", &l.nodes},
		{"qos", &l.qos}} {
		if l.set.has(f.name) {
			*f.into = strings.Split(l.set.get(f.name), ",")
		}
	}
	l.users = userNames(l.users)
	if l.set.has("me") {
		l.users = []string{c.svc.User()}
	}
	if l.ids, err = parseRefs(l.set.get("jobs")); err == nil && l.set.has("states") {
		l.states, err = parseStates(l.set.get("states"))
	}
	return l, rest, err != nil, err
}

// userNames replaces user numbers by names, where these exist.
func userNames(users []string) []string {
	for i, u := range users {
		if _, ok := number(u, 1<<32); ok {
			if k, ok := accountOf(u); ok {
				users[i] = k.name
			}
		}
	}
	return users
}

func (c *command) squeue() (int, error) {
	l, rest, done, err := c.common(squeueOptions, "squeue [OPTIONS]")
	if done || err != nil {
		return 0, err
	}
	if len(rest) > 0 {
		return 1, says("Unrecognized option: %s", rest[0])
	}
	jobs, err := c.svc.Jobs()
	if l.set.has("states") || len(l.ids) > 0 {
		jobs, err = c.recent()
	}
	v, err := c.view(jobs, err)
	if err != nil {
		return 1, err
	}
	if len(l.ids) == 1 && !slices.ContainsFunc(v.jobs, func(j api.Job) bool { return l.ids[0].is(&j) }) {
		return 1, fmt.Errorf("slurm_load_jobs error: Invalid job id specified")
	}
	if !l.set.has("states") {
		l.states = []string{"PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING"}
	}
	rows := v.rows(&l.filter, l.set.has("array"))
	if l.set.has("start") {
		rows = startOrder(rows)
	}
	if l.set.has("json") {
		return 0, c.json("jobs", jobsJSON(v, rows))
	}
	t, err := c.squeueTable(&l.set)
	if err != nil {
		return 1, err
	}
	return 0, printListing(c, &l.set, t, v, rows)
}

func (c *command) squeueTable(s *settings) (table[row], error) {
	format := squeueDefault
	env, hasEnv := lookupEnv(c.env, "SQUEUE_FORMAT")
	switch {
	case s.has("Format"):
		return parseLongFormat(s.get("Format"), jobFields())
	case s.has("format"):
		format = s.get("format")
	case s.has("start"):
		format = squeueStart
	case s.has("long"):
		format = squeueLong
	case hasEnv:
		format = env
	}
	return parseFormat(format, jobFields())
}

// startOrder keeps the waiting jobs, in order of expected start.
func startOrder(rows []row) []row {
	rows = slices.DeleteFunc(rows, func(r row) bool { return r.State != api.StatePending })
	slices.SortStableFunc(rows, func(a, b row) int {
		x, y := expectedStart(a.Job), expectedStart(b.Job)
		switch {
		case x == nil && y == nil:
			return 0
		case x == nil:
			return 1
		case y == nil:
			return -1
		}
		return x.Compare(*y)
	})
	return rows
}

func fixed(s string) func(*view, row) string { return func(*view, row) string { return s } }

func startText(r row) string {
	if r.State == api.StatePending {
		return stamp(expectedStart(r.Job), "N/A")
	}
	return stamp(r.Started, "N/A")
}

func nodeOf(r row) string {
	if r.State == api.StatePending {
		return ""
	}
	return r.Node
}

func idOf(name string) string {
	if a, ok := accountOf(name); ok {
		return a.id
	}
	return "-1"
}

// groupOf is a user's first group, by name and by number.
func groupOf(name string) (group, id string) {
	a, ok := accountOf(name)
	if !ok {
		return "-1", "-1"
	}
	return groupNameOf(a.group), a.group
}

func groupName(name string) string { g, _ := groupOf(name); return g }

// jobFields are squeue's fields by letter and by name.
var jobFields = sync.OnceValue(func() []field[row] {
	return []field[row]{
		{'A', "jobid", "JOBID", "", func(_ *view, r row) string { return strconv.Itoa(r.ID) }},
		{'a', "account", "ACCOUNT", "", func(_ *view, r row) string { return orNull(r.Submission.Queue) }},
		{'B', "batchhost", "EXEC_HOST", "", func(_ *view, r row) string {
			if n := nodeOf(r); n != "" {
				return n
			}
			return "n/a"
		}},
		{'b', "tres-per-node", "TRES_PER_NODE", "", func(_ *view, r row) string { return gresText(r.Job) }},
		{'c', "mincpus", "MIN_CPUS", "", func(_ *view, r row) string { return strconv.FormatInt(cpus(r.Job), 10) }},
		{'C', "numcpus", "CPUS", "", func(_ *view, r row) string { return strconv.FormatInt(cpus(r.Job), 10) }},
		{'d', "mintmpdisk", "MIN_TMP_DISK", "", fixed("0")},
		{'D', "numnodes", "NODES", "", fixed("1")},
		{'e', "endtime", "END_TIME", "", func(_ *view, r row) string { return stamp(endOf(r.Job), "N/A") }},
		{'E', "dependency", "DEPENDENCY", "", func(_ *view, r row) string { return dependencyText(r.Job) }},
		{'f', "feature", "FEATURES", "", func(_ *view, r row) string {
			return orNull(strings.Join(r.Submission.GPUTypes, "|"))
		}},
		{'F', "arrayjobid", "ARRAY_JOB_ID", "", func(_ *view, r row) string {
			if r.Array != 0 {
				return strconv.Itoa(r.Array)
			}
			return strconv.Itoa(r.ID)
		}},
		{'g', "groupname", "GROUP", "", func(_ *view, r row) string { return groupName(r.User) }},
		{'h', "oversubscribe", "OVER_SUBSCRIBE", "", fixed("OK")},
		{'i', "jobarrayid", "JOBID", "", func(_ *view, r row) string { return r.idText() }},
		{'j', "name", "NAME", "", func(_ *view, r row) string { return r.Submission.Name }},
		{'k', "comment", "COMMENT", "", func(_ *view, r row) string { return orNull(r.Submission.Comment) }},
		{'K', "arraytaskid", "ARRAY_TASK_ID", "", func(_ *view, r row) string { return r.indexText() }},
		{'l', "timelimit", "TIME_LIMIT", "", func(_ *view, r row) string { return limitText(limit(&r.Submission)) }},
		{'L', "timeleft", "TIME_LEFT", "", func(v *view, r row) string {
			if limit(&r.Submission) == 0 {
				return "UNLIMITED"
			}
			return clockText(limit(&r.Submission) - ranFor(r.Job, v.now))
		}},
		{'m', "minmemory", "MIN_MEMORY", "", func(_ *view, r row) string { return sizeText(memory(r.Job)) }},
		{'M', "timeused", "TIME", "", func(v *view, r row) string { return clockText(ranFor(r.Job, v.now)) }},
		{'n', "reqnodes", "REQ_NODES", "", fixed("")},
		{'N', "nodelist", "NODELIST", "", func(_ *view, r row) string { return nodeOf(r) }},
		{'o', "command", "COMMAND", "", func(_ *view, r row) string { return commandText(r.Job) }},
		{'p', "priority", "PRIORITY", "", func(_ *view, r row) string {
			return fmt.Sprintf("%.14f", float64(priority(r.Job))/(1<<32))
		}},
		{'P', "partition", "PARTITION", "", func(v *view, r row) string { return v.partitionText(r.Job) }},
		{'q', "qos", "QOS", "", func(_ *view, r row) string { return orNull(r.Submission.Tier) }},
		{'Q', "prioritylong", "PRIORITY", "", func(_ *view, r row) string {
			return strconv.FormatInt(priority(r.Job), 10)
		}},
		{'r', "reason", "REASON", "", func(_ *view, r row) string { return reason(r.Job) }},
		{'R', "reasonlist", "NODELIST(REASON)", "", func(_ *view, r row) string {
			if n := nodeOf(r); n != "" {
				return n
			}
			return "(" + reason(r.Job) + ")"
		}},
		{'S', "starttime", "START_TIME", "", func(_ *view, r row) string { return startText(r) }},
		{'t', "statecompact", "ST", "", func(_ *view, r row) string { return stateOf(r.Job).code }},
		{'T', "state", "STATE", "", func(_ *view, r row) string { return stateOf(r.Job).name }},
		{'u', "username", "USER", "", func(_ *view, r row) string { return r.User }},
		{'U', "userid", "UID", "", func(_ *view, r row) string { return idOf(r.User) }},
		{'v', "reservation", "RESERVATION", "", func(_ *view, r row) string {
			return orNull(r.Submission.Reservation)
		}},
		{'V', "submittime", "SUBMIT_TIME", "", func(_ *view, r row) string { return stamp(&r.Submitted, "N/A") }},
		{'x', "", "EXC_NODES", "", fixed("")},
		{'y', "nice", "NICE", "", func(_ *view, r row) string { return strconv.FormatInt(nice(r.Job), 10) }},
		{'Y', "schednodes", "SCHEDNODES", "", fixed("(null)")},
		{'z', "sct", "S:C:T", "", fixed("*:*:*")},
		{'Z', "workdir", "WORK_DIR", "", func(_ *view, r row) string { return r.Submission.Dir }},
		{0, "stdout", "STDOUT", "", func(_ *view, r row) string { return r.StdOut }},
		{0, "stderr", "STDERR", "", func(_ *view, r row) string { return r.StdErr }},
		{0, "restartcnt", "RESTART_COUNT", "", func(_ *view, r row) string { return strconv.Itoa(r.Restarts) }},
		{0, "eligibletime", "ELIGIBLE_TIME", "", func(_ *view, r row) string { return stamp(r.Eligible, "N/A") }},
		{0, "deadline", "DEADLINE", "", func(_ *view, r row) string { return stamp(r.Submission.Deadline, "N/A") }},
		{0, "tres-alloc", "TRES_ALLOC", "", func(_ *view, r row) string { return tresText(r.Job) }},
		{0, "tres", "TRES_ALLOC", "", func(_ *view, r row) string { return tresText(r.Job) }},
		{0, "tres-per-job", "TRES_PER_JOB", "", func(_ *view, r row) string { return gresText(r.Job) }},
		{0, "gres", "TRES_PER_NODE", "", func(_ *view, r row) string { return gresText(r.Job) }},
		{0, "exit_code", "EXIT_CODE", "", func(_ *view, r row) string { return exitText(r.Job) }},
		{0, "pendingtime", "PENDING_TIME", "", func(_ *view, r row) string {
			return strconv.FormatInt(int64(time.Duration(r.Waited)/time.Second), 10)
		}},
		{0, "jobposition", "POSITION", "", func(_ *view, r row) string { return strconv.Itoa(r.Position) }},
	}
})

// exitText is the exit status as Slurm writes it, code:signal.
func exitText(j *api.Job) string { return fmt.Sprintf("%d:%d", j.ExitCode, j.ExitSignal) }

// hostName is the machine's short name.
func hostName() string {
	h, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return strings.SplitN(h, ".", 2)[0]
}
